//! What a third-party copy is asked for with.

use weft_core::{ErrorKind, limits};
use weft_remote::{Fields, HeaderName, HeaderValue, Url};

use crate::answer::Problem;
use crate::codec::Refusal;
use crate::codec::head::{Field, Head};
use crate::codec::webdav::fields;
use crate::exchange::{Exchange, Served};
use crate::status::Status;

/// Fields that begin so are meant for the other server, without it.
const PASSED: &str = "transferheader";
/// What frames a message, or changes what it asks for: the other server gets those from this node alone.
const OWN: [&str; 24] = [
    "host",
    "content-length",
    "content-range",
    "content-encoding",
    "transfer-encoding",
    "te",
    "trailer",
    "upgrade",
    "connection",
    "keep-alive",
    "expect",
    "range",
    "if-match",
    "if-none-match",
    "if-modified-since",
    "if-unmodified-since",
    "if-range",
    "source",
    "destination",
    "overwrite",
    "accept-encoding",
    "proxy-authorization",
    "proxy-connection",
    "user-agent",
];

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the other server.
    Pull,
    /// To it.
    Push,
}

/// A third-party copy, as it was asked for.
pub struct Asked {
    pub way: Way,
    /// The file on the other server.
    pub url: Url,
    /// What proves to that server who asks.
    pub passed: Fields,
    pub overwrites: bool,
    /// Whether it fails if no digest shows that the bytes are the same.
    pub must_check: bool,
}

impl Asked {
    /// Reads what is asked.
    pub fn of(x: &Exchange<'_, '_>) -> Served<Self> {
        if x.path.is_directory {
            let why = "a file is copied to and from other servers, no directory";
            return Err(Problem::new(Status::CONFLICT, ErrorKind::IsDirectory, why).into());
        }
        if !x.talk.progress.is_done() {
            let why = "COPY takes no body";
            return Err(Problem::new(Status::UNSUPPORTED_TYPE, ErrorKind::Unsupported, why).closing().into());
        }
        let (way, text) = match (x.head.one(Field::Source)?, x.head.one(Field::Destination)?) {
            (Some(text), None) => (Way::Pull, text),
            (None, Some(text)) => (Way::Push, text),
            _ => return Err(Refusal::malformed("COPY has a Source or a Destination, not both").into()),
        };
        let url = text.parse::<Url>().map_err(|error| {
            Problem::new(Status::BAD_REQUEST, ErrorKind::Invalid, error.detail().to_owned())
        })?;
        check_credential(x.head)?;
        let must_check = match x.head.one(Field::RequireChecks)? {
            None => false,
            Some(text) if text.eq_ignore_ascii_case("true") => true,
            Some(text) if text.eq_ignore_ascii_case("false") => false,
            Some(_) => return Err(Refusal::malformed("RequireChecksumVerification is true or false").into()),
        };
        Ok(Self { way, url, passed: passed(x.head)?, overwrites: fields::overwrites(x.head)?, must_check })
    }
}

/// Returns whether a COPY is from or to another server. One between two names of this node has a Destination that is here.
pub fn is_asked(x: &Exchange<'_, '_>) -> Served<bool> {
    if x.head.has(Field::Source) {
        return Ok(true);
    }
    let Some(Ok(url)) = x.head.one(Field::Destination)?.map(str::parse::<Url>) else { return Ok(false) };
    Ok(!is_here(x, &url))
}

/// Returns whether an address is one of this door: what the request itself was sent to, or a name of this node with the port
/// that it came to. Another port of this machine is another server.
fn is_here(x: &Exchange<'_, '_>, url: &Url) -> bool {
    let scheme = if url.is_secure() { "https" } else { "http" };
    let asked = std::str::from_utf8(x.head.host()).ok();
    let asked = asked.and_then(|host| format!("{scheme}://{host}/").parse::<Url>().ok());
    let public = x.talk.http.public.as_ref();
    if asked.as_ref().into_iter().chain(public).any(|own| own.is_same_server(url)) {
        return true;
    }
    let usual = if url.is_secure() { 443 } else { 80 };
    let hosts = &x.talk.http.hosts;
    let own = x.talk.own_address();
    let is_own_port = own.is_some_and(|own| own.port() == url.port());
    // Behind a server in front the port is that one's.
    hosts.names(url.host()) && (is_own_port || url.port() == usual)
        || is_own_port && !hosts.is_any() && hosts.admits(url.host().as_bytes(), || own.map(|own| own.ip()))
}

/// This node makes no credential for another server: it passes on what it is given.
fn check_credential(head: &Head) -> Served {
    match head.one(Field::Credential)? {
        None => Ok(()),
        Some(text) if text.eq_ignore_ascii_case("none") => Ok(()),
        Some(_) => Err(Problem::new(
            Status::BAD_REQUEST,
            ErrorKind::Unsupported,
            "no credential is delegated here: send `Credential: none`, and a TransferHeaderAuthorization",
        )
        .into()),
    }
}

fn passed(head: &Head) -> Served<Fields> {
    let mut passed = Fields::new();
    for (count, (name, value)) in head.beginning(PASSED).into_iter().enumerate() {
        if count >= limits::THIRD_PARTY_FIELDS_MAX {
            return Err(Refusal::malformed("more fields are to be passed on than the limit").into());
        }
        let name = HeaderName::from_bytes(name.as_bytes());
        let name = name.ok().filter(|name| !OWN.contains(&name.as_str()));
        let name = name.ok_or(Refusal::malformed("a field is to be passed on that cannot be"))?;
        let mut value = HeaderValue::from_bytes(value.trim_ascii())
            .map_err(|_| Refusal::malformed("a field is to be passed on whose value cannot be"))?;
        value.set_sensitive(true);
        passed.append(name, value);
    }
    Ok(passed)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn head(fields: &str) -> Head {
        let text = format!("COPY /a HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        Head::parse(Bytes::from(text)).expect("a head")
    }

    #[test]
    fn what_is_meant_for_the_other_server_goes_without_the_word_that_says_so() {
        let head = head(
            "Authorization: Bearer own\r\nTransferHeaderAuthorization: Bearer a\r\ntransferheaderX-Two: b\r\nTransferHeadX: c\r\n",
        );
        let passed = passed(&head).unwrap_or_default();
        let mut seen: Vec<(&str, &[u8])> =
            passed.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        seen.sort();
        assert_eq!(seen, [("authorization", &b"Bearer a"[..]), ("x-two", b"b")]);
        assert!(!format!("{passed:?}").contains("Bearer"), "it would be in a log");
    }

    #[test]
    fn nothing_that_frames_a_message_is_passed_on() {
        for name in OWN.into_iter().chain([""]) {
            assert!(passed(&head(&format!("TransferHeader{name}: x\r\n"))).is_err(), "{name}");
        }
        let many = |count| (0..count).map(|n| format!("TransferHeaderX{n}: x\r\n")).collect::<String>();
        assert!(passed(&head(&many(limits::THIRD_PARTY_FIELDS_MAX))).is_ok());
        assert!(passed(&head(&many(limits::THIRD_PARTY_FIELDS_MAX + 1))).is_err());
    }
}
