//! The fields of WebDAV (RFC 4918, 10), and what clients add to say when a file was changed.

use std::time::Duration;

use bytes::Bytes;
use weft_core::Time;
use weft_core::limits;
use weft_core::name_locks::LockToken;

use crate::codec::head::{Field, Head};
use crate::codec::target::Path;
use crate::codec::{Refusal, members};
use crate::status::Status;

/// How far a request reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// The resource itself.
    Zero,
    /// What is in it, too.
    One,
    /// All that lies below it.
    Infinity,
}

/// Reads how far a request reaches, if it says.
pub fn depth(head: &Head) -> Result<Option<Depth>, Refusal> {
    match head.one(Field::Depth)? {
        None => Ok(None),
        Some("0") => Ok(Some(Depth::Zero)),
        Some("1") => Ok(Some(Depth::One)),
        Some(text) if text.eq_ignore_ascii_case("infinity") => Ok(Some(Depth::Infinity)),
        Some(_) => Err(Refusal::malformed("Depth is 0, 1 or infinity")),
    }
}

/// Reads whether what is at the destination may be replaced: yes, unless it says no.
pub fn overwrites(head: &Head) -> Result<bool, Refusal> {
    match head.one(Field::Overwrite)? {
        None | Some("T" | "t") => Ok(true),
        Some("F" | "f") => Ok(false),
        Some(_) => Err(Refusal::malformed("Overwrite is T or F")),
    }
}

/// Reads for how long a lock is wanted: the first of the times that can be read.
pub fn timeout(head: &Head) -> Result<Duration, Refusal> {
    let Some(list) = head.all(Field::Timeout)? else { return Ok(limits::NAME_LOCK_LASTS) };
    let one = |member: &str| {
        if member.eq_ignore_ascii_case("infinite") {
            return Some(limits::NAME_LOCK_LASTS_MAX);
        }
        let seconds =
            member.get(..7).filter(|word| word.eq_ignore_ascii_case("second-")).map(|_| &member[7..])?;
        let seconds = seconds.parse::<u32>().ok().filter(|seconds| *seconds > 0)?;
        Some(Duration::from_secs(seconds.into()).min(limits::NAME_LOCK_LASTS_MAX))
    };
    Ok(members(&list).find_map(one).unwrap_or(limits::NAME_LOCK_LASTS))
}

/// Reads the token of the lock that is to be ended.
pub fn lock_token(head: &Head) -> Result<LockToken, Refusal> {
    const NONE: Refusal = Refusal::malformed("Lock-Token must name the lock, as `<urn:uuid:…>`");
    let text = head.one(Field::LockToken)?.ok_or(NONE)?;
    let coded = text.strip_prefix('<').and_then(|text| text.strip_suffix('>')).ok_or(NONE)?;
    // What is no token of ours is a lock that there is not.
    Ok(LockToken::parse(coded).unwrap_or(LockToken(0)))
}

/// Where a request points to: a host, if it names one, and a path there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointed {
    /// The host with its port, if there is one.
    pub host: Option<String>,
    /// The path.
    pub path: Path,
}

/// Reads where a copy or move goes.
pub fn destination(head: &Head) -> Result<Pointed, Refusal> {
    let text = head.one(Field::Destination)?;
    pointed(text.ok_or(Refusal::malformed("there is no Destination"))?)
}

/// Reads a path, or an address with one (RFC 4918, 8.3: what is no fragment and no query).
pub fn pointed(text: &str) -> Result<Pointed, Refusal> {
    const BAD: Refusal = Refusal::malformed("an address is neither a path nor one of http or https");
    let after = |scheme: &str| text.get(..scheme.len()).filter(|own| own.eq_ignore_ascii_case(scheme));
    let rest = after("http://").or(after("https://")).map(|scheme| &text[scheme.len()..]);
    let (host, path) = match rest {
        Some(rest) => {
            let slash = rest.find('/').unwrap_or(rest.len());
            let host = &rest[..slash];
            if host.is_empty() || host.contains(['@', '?', '#']) {
                return Err(BAD);
            }
            (Some(host.to_owned()), if slash == rest.len() { "/" } else { &rest[slash..] })
        }
        None if text.starts_with('/') => (None, text),
        None => return Err(BAD),
    };
    if path.contains(['?', '#']) {
        return Err(Refusal::malformed("an address of a file has no query and no fragment"));
    }
    let path = Path::decode(Bytes::copy_from_slice(path.as_bytes()));
    Ok(Pointed {
        host,
        path: path.map_err(|_| Refusal::malformed("the path of an address cannot be taken"))?,
    })
}

/// Reads the time that a file's bytes are said to be of (`X-OC-Mtime`: seconds, which may have a
/// fraction).
pub fn said_mtime(head: &Head) -> Result<Option<Time>, Refusal> {
    let Some(text) = head.one(Field::OcMtime)? else { return Ok(None) };
    parse_seconds(text)
        .map(Some)
        .ok_or(Refusal::new(Status::BAD_REQUEST, "X-OC-Mtime is not a number of seconds"))
}

/// Reads seconds since 1970, with a fraction of at most nine digits.
pub fn parse_seconds(text: &str) -> Option<Time> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let unsigned = whole.strip_prefix('-').unwrap_or(whole);
    if unsigned.is_empty() || !digits(unsigned) || !digits(fraction) {
        return None;
    }
    let seconds: i64 = whole.parse().ok()?;
    let nanos: u32 = format!("{:0<9.9}", fraction).parse().ok()?;
    (seconds.unsigned_abs() <= Time::MAX.seconds() as u64).then(|| Time::from_unix(seconds, nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_path_here_or_at_a_host() {
        let is = |text: &str| pointed(text).map(|to| (to.host, to.path.encode())).ok();
        for (text, host, path) in [
            ("/a/b%20c", None, "/a/b%20c"),
            ("http://h:80/a/", Some("h:80"), "/a/"),
            ("HTTPS://h", Some("h"), "/"),
            ("http://h/", Some("h"), "/"),
        ] {
            assert_eq!(is(text), Some((host.map(str::to_owned), path.to_owned())), "{text}");
        }
        for bad in [
            "",
            "a",
            "ftp://h/a",
            "http:///a",
            "http://u@h/a",
            "/a?b",
            "/a#b",
            "/a/../b",
            "//h/a",
            "http://h?/",
        ] {
            assert_eq!(is(bad), None, "{bad}");
        }
    }

    #[test]
    fn seconds_may_have_a_fraction() {
        for (text, time) in [
            ("0", Some((0, 0))),
            ("1700000000", Some((1_700_000_000, 0))),
            ("1700000000.5", Some((1_700_000_000, 500_000_000))),
            ("1700000000.1234567891", Some((1_700_000_000, 123_456_789))),
            ("-5", Some((-5, 0))),
            ("", None),
            (".5", None),
            ("+1", None),
            ("1e3", None),
            ("99999999999999", None),
        ] {
            assert_eq!(parse_seconds(text), time.map(|(s, n)| Time::from_unix(s, n)), "{text}");
        }
    }
}
