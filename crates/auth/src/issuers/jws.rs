//! A token as it is written: three parts, of which nothing is believed until the third has been checked.
//!
//! The cryptography is *ring*'s. What stands here is the envelope (RFC 7515, 7519): small, strict, and judged by
//! nothing that the token says of itself but the name of the key and of the algorithm, which must suit the key.

use data_encoding::BASE64URL_NOPAD;
use serde::Deserialize;
use serde::de::IgnoredAny;
use weft_core::{Error, ErrorKind, Result, Time, limits};

use super::keys::Algorithm;
use super::scope::Profile;

/// A token that has been read, and not verified.
pub(super) struct Token<'t> {
    /// What is signed.
    pub(super) signed: &'t str,
    pub(super) signature: Vec<u8>,
    pub(super) algorithm: Algorithm,
    /// The name of the key.
    pub(super) key: Option<String>,
    pub(super) claims: Claims,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    /// What must be understood (RFC 7515, 4.1.11): nothing of that is understood here.
    crit: Option<IgnoredAny>,
}

/// What a token says.
#[derive(Deserialize)]
pub(super) struct Claims {
    pub(super) iss: String,
    pub(super) sub: String,
    #[serde(default)]
    pub(super) jti: Option<String>,
    aud: Audience,
    exp: f64,
    #[serde(default)]
    nbf: Option<f64>,
    #[serde(default)]
    iat: Option<f64>,
    #[serde(default)]
    pub(super) scope: String,
    #[serde(default, rename = "wlcg.ver")]
    wlcg: Option<String>,
    #[serde(default)]
    ver: Option<String>,
    #[serde(default, rename = "wlcg.groups")]
    groups: Vec<String>,
}

/// For whom a token is: one, or several.
#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

/// Returns whether a text is written as a token of an issuer is. Nothing of ours is: those hold no two dots, and
/// begin otherwise.
pub(crate) fn is_meant(text: &str) -> bool {
    text.starts_with("ey") && text.bytes().filter(|byte| *byte == b'.').count() == 2
}

fn malformed() -> Error {
    Error::new(ErrorKind::Unauthenticated, "the token of an issuer is malformed")
}

impl<'t> Token<'t> {
    /// Reads a token. Fails with `Unauthenticated`.
    pub(super) fn read(text: &'t str) -> Result<Self> {
        if text.len() > limits::ISSUED_BYTES_MAX {
            return Err(Error::new(
                ErrorKind::Unauthenticated,
                "the token of an issuer is larger than one may be",
            ));
        }
        let (signed, signature) = text.rsplit_once('.').ok_or_else(malformed)?;
        let (header, claims) = signed.split_once('.').ok_or_else(malformed)?;
        let decoded = |part: &str| {
            BASE64URL_NOPAD.decode(part.as_bytes()).map_err(|error| malformed().caused_by(error))
        };
        let header: Header = json(&decoded(header)?)?;
        if header.crit.is_some() {
            let detail = "the token demands that its reader understands what is not understood here";
            return Err(Error::new(ErrorKind::Unauthenticated, detail));
        }
        let algorithm = Algorithm::named(&header.alg).ok_or_else(|| {
            Error::new(ErrorKind::Unauthenticated, "the token is signed by no algorithm that is taken here")
        })?;
        let claims = json(&decoded(claims)?)?;
        Ok(Self { signed, signature: decoded(signature)?, algorithm, key: header.kid, claims })
    }
}

fn json<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|error| malformed().caused_by(error))
}

impl Claims {
    /// Returns by whose rules its scopes are read. Fails with `Unauthenticated` where that is not told, or not known.
    pub(super) fn profile(&self) -> Result<Profile> {
        match (self.wlcg.as_deref(), self.ver.as_deref()) {
            (Some(version), None) if is_of_version_one(version) => Ok(Profile::Wlcg),
            (None, Some("scitokens:2.0")) => Ok(Profile::SciTokens),
            _ => Err(Error::new(
                ErrorKind::Unauthenticated,
                "the token is neither of the WLCG's profile 1 nor of SciTokens' 2.0",
            )),
        }
    }

    /// Fails unless the token holds now, whatever clocks may differ by. Fails with `Expired`, or `Unauthenticated`
    /// before its time, or if it lasts longer than what is withdrawn of it is kept.
    pub(super) fn check_times(&self, now: Time) -> Result<()> {
        if now.is_past(self.expires(), limits::CLOCK_SKEW_MAX) {
            let error = Error::new(ErrorKind::Expired, "the token of the issuer has run out");
            return Err(error.hint("get another one from the issuer"));
        }
        if self.expires() > now.plus(limits::ISSUED_LIFE_MAX) {
            let detail = "the token of the issuer lasts longer than a token may: 366 days";
            return Err(Error::new(ErrorKind::Unauthenticated, detail));
        }
        let latest = now.plus(limits::CLOCK_SKEW_MAX);
        if [self.nbf, self.iat].into_iter().flatten().any(|from| time(from) > latest) {
            let error =
                Error::new(ErrorKind::Unauthenticated, "the token of the issuer is from later than now");
            return Err(error.hint("compare the clocks"));
        }
        Ok(())
    }

    /// Fails with `Unauthenticated` unless the token is for one of these.
    pub(super) fn check_audience(&self, own: &[String]) -> Result<()> {
        let bare = |text: &str| text.strip_suffix('/').unwrap_or(text).to_owned();
        let is_ours = |one: &String| own.iter().any(|own| bare(own) == bare(one));
        let ours = match &self.aud {
            Audience::One(one) => is_ours(one),
            Audience::Several(all) => all.iter().any(is_ours),
        };
        if ours {
            return Ok(());
        }
        let error = Error::new(ErrorKind::Unauthenticated, "the token of the issuer is for another audience");
        Err(error.hint("ask the issuer for one whose `aud` is this node"))
    }

    /// Returns the groups that it says, in its order: of the profile that knows any. Fails with `TooLarge` if there are
    /// too many, and with `Unauthenticated` where one has no name of a group.
    pub(super) fn groups(&self, profile: Profile) -> Result<&[String]> {
        if profile != Profile::Wlcg {
            return Ok(&[]);
        }
        if self.groups.len() > limits::ISSUED_GROUPS_MAX {
            return Err(Error::new(ErrorKind::TooLarge, "the token says more groups than a token may"));
        }
        if !self.groups.iter().all(|group| is_group(group)) {
            return Err(Error::new(ErrorKind::Unauthenticated, "the token says a group that is none"));
        }
        Ok(&self.groups)
    }

    /// Returns when it ends.
    pub(super) fn expires(&self) -> Time {
        time(self.exp)
    }

    /// Returns when it was made; long ago if it does not say.
    pub(super) fn made(&self) -> Time {
        self.iat.or(self.nbf).map_or(Time::EPOCH, time)
    }
}

/// Whether a version is `1` and a number after the point.
fn is_of_version_one(text: &str) -> bool {
    let minor = text.strip_prefix("1.");
    minor.is_some_and(|minor| {
        (1..=4).contains(&minor.len()) && minor.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// Whether a text is the name of a group as the WLCG's profile has it: `/` and a word, once or several times.
pub fn is_group(text: &str) -> bool {
    let is_word = |word: &str| {
        word.starts_with(|first: char| first.is_ascii_alphanumeric())
            && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
    };
    text.len() <= limits::ISSUED_GROUP_BYTES_MAX
        && text.strip_prefix('/').is_some_and(|rest| rest.split('/').all(is_word))
}

/// Returns a time of so many seconds since 1970. What is out of range is at its end.
fn time(seconds: f64) -> Time {
    Time::from_nanos((seconds * 1e9) as i64)
}

#[cfg(test)]
mod tests {
    use weft_conformance::file_system::site::Dice;
    use weft_conformance::fuzz::fuzz;

    use super::*;

    #[test]
    fn times_are_seconds_and_at_their_ends_beyond_what_there_is() {
        for (seconds, expected) in [
            (0.0, Time::EPOCH),
            (1.5, Time::from_nanos(1_500_000_000)),
            (1e300, Time::from_nanos(i64::MAX)),
            (-1e300, Time::from_nanos(i64::MIN)),
        ] {
            assert_eq!(time(seconds), expected, "{seconds}");
        }
    }

    #[test]
    fn a_group_has_the_name_of_one() {
        let long = format!("/{}", "a".repeat(limits::ISSUED_GROUP_BYTES_MAX));
        for good in
            ["/cms", "/cms/uscms", "/cms/ALARM", "/0/a_b.c-d", &long[..limits::ISSUED_GROUP_BYTES_MAX]]
        {
            assert!(is_group(good), "{good}");
        }
        for bad in ["", "/", "cms", "/cms/", "//cms", "/-a", "/cms/../x", "/cms/Role=production", "/é", &long]
        {
            assert!(!is_group(bad), "{bad}");
        }
    }

    #[test]
    fn a_mutated_token_is_read_whole_or_refused() {
        let make = |dice: &mut Dice| {
            let header = *dice.pick(&[r#"{"alg":"ES256","kid":"a"}"#, r#"{"alg":"RS256","crit":["b64"]}"#]);
            let claims = *dice.pick(&[
                r#"{"iss":"https://i/","sub":"s","aud":"a","exp":1e9,"wlcg.ver":"1.0","scope":"storage.read:/"}"#,
                r#"{"iss":"https://i/","sub":"s","aud":["a","b"],"exp":1,"ver":"scitokens:2.0","nbf":-1.5}"#,
                r#"{"iss":"https://i/","sub":"s","aud":"a","exp":1,"wlcg.ver":"1.0","wlcg.groups":["/a","/a/b"]}"#,
            ]);
            let coded = |text: &str| BASE64URL_NOPAD.encode(text.as_bytes());
            match dice.roll(3) {
                0 => format!("{}.{}.{}", coded(header), coded(claims), coded("signature")).into_bytes(),
                1 => claims.as_bytes().to_vec(),
                _ => header.as_bytes().to_vec(),
            }
        };
        fuzz("token of an issuer", make, |bytes| {
            if let Ok(claims) = json::<Claims>(bytes) {
                let groups = claims.profile().and_then(|profile| claims.groups(profile).map(<[_]>::len));
                let _ = (groups, claims.check_times(claims.made()), claims.check_audience(&[]));
            }
            let Ok(text) = std::str::from_utf8(bytes) else { return };
            if let Ok(token) = Token::read(text) {
                assert!(text.starts_with(token.signed) && text.len() <= limits::ISSUED_BYTES_MAX);
                assert!(token.claims.check_audience(&[]).is_err(), "for nobody is for nobody");
            }
        });
    }
}
