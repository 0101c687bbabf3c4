//! Addresses of files on other servers.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use weft_core::{Error, Result, limits};

/// What stays as it is in a path.
const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The address of a file or directory on a server that speaks HTTP.
///
/// Shown without its query: that may be what lets somebody in.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    /// Whether it is spoken to by TLS.
    secure: bool,
    /// The host, in lower case, an IPv6 address without its brackets.
    host: String,
    port: u16,
    /// Path and query.
    target: String,
}

impl Url {
    /// Returns whether a text begins as an address here does. Which is not yet one.
    pub fn is_meant(text: &str) -> bool {
        text.split_once("://").is_some_and(|(scheme, _)| is_secure(scheme).is_some())
    }

    /// Returns whether the server is spoken to by TLS.
    pub fn is_secure(&self) -> bool {
        self.secure
    }

    /// Returns the host: a name, or an address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns path and query, as they are asked for.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Returns the path without the query.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// Returns the bytes that the last name of the path stands for; none where it has none.
    pub fn name(&self) -> Option<Vec<u8>> {
        let last = self.path().trim_end_matches('/').rsplit('/').next()?;
        Some(percent_decode_str(last).collect::<Vec<u8>>()).filter(|name| !name.is_empty())
    }

    /// Returns host and port as a request names them.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let usual = if self.secure { 443 } else { 80 };
        if self.port == usual { host } else { format!("{host}:{}", self.port) }
    }

    /// Returns scheme, host and port: what a path is put behind.
    pub fn origin(&self) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        format!("{scheme}://{}", self.authority())
    }

    /// Returns whether what is meant for the server of one may be said to that of the other.
    pub fn is_same_server(&self, other: &Self) -> bool {
        (self.secure, &self.host, self.port) == (other.secure, &other.host, other.port)
    }

    /// Returns the directory of this address: the same with a `/` at its end and without a query.
    #[must_use]
    pub fn directory(&self) -> Self {
        let path = self.path();
        let target = if path.ends_with('/') { path.to_owned() } else { format!("{path}/") };
        Self { target, ..self.clone() }
    }

    /// Returns the address of a name in this directory.
    #[must_use]
    pub fn join(&self, name: &[u8]) -> Self {
        let mut below = self.directory();
        below.target.push_str(&percent_encode(name, KEPT).to_string());
        below
    }

    /// Returns where a server sends whoever asked for this address.
    pub fn leads_to(&self, location: &str) -> Result<Self> {
        // What comes after `#` is for whoever shows it.
        let location = location.split('#').next().unwrap_or_default();
        if let Some(rest) = location.strip_prefix("//") {
            let scheme = if self.secure { "https" } else { "http" };
            return format!("{scheme}://{rest}").parse();
        }
        if location.contains("://") {
            return location.parse();
        }
        let target = match location.as_bytes().first() {
            Some(b'/') => location.to_owned(),
            Some(b'?') => format!("{}{location}", self.path()),
            _ => {
                let directory = &self.path()[..=self.path().rfind('/').unwrap_or(0)];
                format!("{directory}{location}")
            }
        };
        Ok(Self { target: checked_target(&target)?, ..self.clone() })
    }
}

/// Returns whether a scheme is one of TLS; none if it is not spoken here.
fn is_secure(scheme: &str) -> Option<bool> {
    match scheme.to_ascii_lowercase().as_str() {
        "https" | "davs" => Some(true),
        "http" | "dav" => Some(false),
        _ => None,
    }
}

fn checked_target(target: &str) -> Result<String> {
    if target.len() > limits::HTTP_TARGET_BYTES_MAX {
        return Err(Error::invalid("the address is longer than its limit"));
    }
    if !target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
        return Err(Error::invalid("the address holds what must be written as `%` and two digits, or a `#`"));
    }
    Ok(target.to_owned())
}

fn parse_authority(text: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            (host, if after.is_empty() { None } else { Some(after.strip_prefix(':')?) })
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    // The dot of the root is no part of a name as others write it.
    let host = host.trim_end_matches('.');
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let is_host = !host.is_empty() && (host.contains(':') || host.bytes().all(is_name));
    let port = match port {
        None | Some("") => None,
        Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
            Some(port.parse().ok().filter(|port| *port != 0)?)
        }
        Some(_) => return None,
    };
    (is_host && host.len() <= 255).then(|| (host.to_ascii_lowercase(), port))
}

impl FromStr for Url {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = |why: &'static str| Error::invalid(why).hint("write it as https://host[:port]/path");
        let (scheme, rest) = text.split_once("://").ok_or_else(|| bad("the address has no scheme"))?;
        let secure = is_secure(scheme)
            .ok_or_else(|| bad("the address is of no scheme that is spoken here: https, http, davs, dav"))?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        if authority.contains('@') {
            return Err(bad("an address holds no name and no password of a user"));
        }
        let (host, port) = parse_authority(authority).ok_or_else(|| bad("the address names no host"))?;
        let port = port.unwrap_or(if secure { 443 } else { 80 });
        let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
        Ok(Self { secure, host, port, target: checked_target(&target)? })
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin(), self.path())
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Returns the address that a host is, if it is written as one.
pub(crate) fn literal(host: &str) -> Option<IpAddr> {
    host.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        text.parse().expect("an address")
    }

    #[test]
    fn an_address_is_of_a_scheme_a_host_and_a_path() {
        for (text, shown, port, target) in [
            ("https://Host/a?b=c", "https://host/a", 443, "/a?b=c"),
            ("DAVS://h:8443", "https://h:8443/", 8443, "/"),
            ("dav://h/a/", "http://h/a/", 80, "/a/"),
            ("http://[::1]:80/x", "http://[::1]/x", 80, "/x"),
            ("http://h.:81?q", "http://h:81/", 81, "/?q"),
            ("https://h:/", "https://h/", 443, "/"),
        ] {
            let url = url(text);
            assert_eq!((url.to_string().as_str(), url.port(), url.target()), (shown, port, target), "{text}");
        }
        for bad in [
            "",
            "h/a",
            "ftp://h/a",
            "file:///etc/passwd",
            "http://",
            "http:///a",
            "http://u:p@h/",
            "http://h:0/",
            "http://h:65536/",
            "http://h:8x/",
            "http://h/a b",
            "http://h/\u{e4}",
            "http://h/a#b",
            "http://[::1/",
            "http://[h]/",
            "http://h\r\n/",
            "http://a,b/",
            "http://./",
        ] {
            assert!(bad.parse::<Url>().is_err(), "{bad}");
        }
        let long = format!("http://h/{}", "a".repeat(limits::HTTP_TARGET_BYTES_MAX));
        assert!(long.parse::<Url>().is_err());
    }

    #[test]
    fn a_redirect_is_read_beside_what_was_asked_for() {
        let from = url("https://h:1/a/b?c=d");
        for (location, to) in [
            ("https://o/x?y", "https://o/x?y"),
            ("//o/x", "https://o/x"),
            ("/x", "https://h:1/x"),
            ("x", "https://h:1/a/x"),
            ("?x", "https://h:1/a/b?x"),
            ("/x#y", "https://h:1/x"),
        ] {
            assert_eq!(from.leads_to(location).expect("an address"), url(to), "{location}");
        }
        for bad in ["file:///etc/passwd", "gopher://h/", "http://u@h/", "/a b"] {
            assert!(from.leads_to(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn no_address_makes_the_reader_panic() {
        use weft_conformance::file_system::site::Dice;
        let make = |dice: &mut Dice| {
            let seeds =
                ["https://h:8443/a/b?c=d", "http://[::1]:80/x", "davs://h.example./%41/", "//o/x", "x?y"];
            seeds[dice.roll(seeds.len() as u64) as usize].as_bytes().to_vec()
        };
        weft_conformance::fuzz::fuzz("url", make, |bytes| {
            let text = String::from_utf8_lossy(bytes);
            for read in [text.parse::<Url>(), url("https://h:1/a/b?c").leads_to(&text)].into_iter().flatten()
            {
                let again: Url = read.to_string().parse().expect("what is shown can be read");
                assert!(again.is_same_server(&read) && again.path() == read.path(), "{read}");
            }
        });
    }

    #[test]
    fn a_name_of_any_bytes_goes_into_an_address_and_comes_out_of_it() {
        let name = b"a b/%\xff?#.txt";
        let below = url("https://h/d?q").join(name);
        assert_eq!(below.target(), "/d/a%20b%2F%25%FF%3F%23.txt");
        assert_eq!(below.name().expect("a name"), name);
        assert_eq!(url("https://h/").name(), None);
    }
}
