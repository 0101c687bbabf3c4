//! Which hosts this door answers for: a page elsewhere must not reach it under its own name.

use std::net::IpAddr;

/// The hosts a door answers for.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    names: Vec<String>,
    any: bool,
}

impl Hosts {
    /// Makes the list from settings: host names without ports; `*` is any. Names of this machine's
    /// loopback always belong to it.
    pub fn new(names: &[String]) -> Self {
        let names: Vec<String> =
            names.iter().map(|name| name.trim_end_matches('.').to_ascii_lowercase()).collect();
        Self { any: names.iter().any(|name| name == "*"), names }
    }

    /// Returns whether every name is this door's.
    pub fn is_any(&self) -> bool {
        self.any
    }

    /// Returns whether an operator named this host, without its port.
    pub fn names(&self, name: &str) -> bool {
        self.names.iter().any(|own| own.eq_ignore_ascii_case(name.trim_end_matches('.')))
    }

    /// Returns whether a request for `host` (with or without a port) is for this door. `own` is the
    /// address the connection came to: asked only where nothing else says yes.
    pub fn admits(&self, host: &[u8], own: impl FnOnce() -> Option<IpAddr>) -> bool {
        let Ok(host) = std::str::from_utf8(host) else { return false };
        let Some(name) = without_port(host) else { return false };
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        if self.any || is_loopback(&name) || self.names.contains(&name) {
            return true;
        }
        // An address is nobody's name, so no page elsewhere can have taken it.
        address(&name).is_some_and(|asked| {
            let named = self.names.iter().any(|own| address(own) == Some(asked));
            named || own().map(|own| own.to_canonical()) == Some(asked)
        })
    }
}

fn is_loopback(name: &str) -> bool {
    name == "localhost"
        || name.ends_with(".localhost")
        || address(name).is_some_and(|address| address.is_loopback())
}

fn address(name: &str) -> Option<IpAddr> {
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    bare.parse().ok().map(|address: IpAddr| address.to_canonical())
}

/// Cuts the port off; `None` if what is there is no host.
fn without_port(host: &str) -> Option<&str> {
    let end = if host.starts_with('[') { host.find(']')? + 1 } else { host.find(':').unwrap_or(host.len()) };
    let (name, port) = host.split_at(end);
    let port_is_good = port.is_empty()
        || port
            .strip_prefix(':')
            .is_some_and(|port| port.len() <= 5 && port.bytes().all(|b| b.is_ascii_digit()));
    let name_is_good = name.starts_with('[')
        || name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._*".contains(&byte));
    (port_is_good && name_is_good && !name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_names_are_answered() {
        let hosts = Hosts::new(&["Data.Example.org", "2001:db8::1"].map(str::to_owned));
        let own = || Some("192.0.2.7".parse().expect("an address"));
        for good in [
            "localhost",
            "LOCALHOST:80",
            "a.localhost",
            "127.0.0.1:8080",
            "[::1]:80",
            "data.example.org:1",
            "data.example.org.",
            "192.0.2.7",
            "192.0.2.7:80",
            "[::ffff:127.0.0.1]",
            "[2001:db8::1]",
            "[2001:DB8:0::1]:8443",
        ] {
            assert!(hosts.admits(good.as_bytes(), own), "{good}");
        }
        for bad in [
            "evil.example",
            "localhost.evil.example",
            "192.0.2.8",
            "",
            ":80",
            "a b",
            "localhost:x",
            "[::1",
            "localhost@evil",
            "localhost/evil",
            "::1",
            "[2001:db8::2]",
            "[data.example.org]",
        ] {
            assert!(!hosts.admits(bad.as_bytes(), own), "{bad}");
        }
        assert!(Hosts::new(&["*".to_owned()]).admits(b"anything.example", || None));
    }
}
