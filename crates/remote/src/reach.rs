//! Which addresses may be spoken to.
//!
//! A node stands where its callers do not: it reaches its own machine, the networks behind it, the address that hands machines in
//! a cloud their secrets. So it speaks only to addresses of the whole Internet, and to those that its operator names. What is not
//! known to be such an address is none.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Network;

/// Which addresses may be spoken to.
#[derive(Clone, Debug)]
pub struct Reach {
    anywhere: bool,
    also: Vec<Network>,
}

impl Reach {
    /// Those of the whole Internet, and these.
    pub fn public(also: Vec<Network>) -> Self {
        Self { anywhere: false, also }
    }

    /// All: for whoever asks for themselves.
    pub fn anywhere() -> Self {
        Self { anywhere: true, also: Vec::new() }
    }

    /// Returns whether an address may be spoken to. `own` returns the addresses of this machine, which are asked for only where
    /// they count: what guards them from outside does not from inside.
    pub fn admits(&self, address: IpAddr, own: impl FnOnce() -> Vec<IpAddr>) -> bool {
        let address = address.to_canonical();
        if self.anywhere || self.also.iter().any(|network| network.holds(address)) {
            return true;
        }
        is_public(address) && !own().iter().any(|own| own.to_canonical() == address)
    }
}

/// Returns whether an address is one of the whole Internet (IANA's registries of special addresses, as of 2025).
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(four) => is_public_four(four),
        IpAddr::V6(six) => is_public_six(six),
    }
}

fn is_public_four(address: Ipv4Addr) -> bool {
    let special = match address.octets() {
        // This network, private ones, those behind a carrier's translation, the loopback, one link.
        [0 | 10 | 127, ..] | [100, 64..=127, ..] | [169, 254, ..] | [172, 16..=31, ..] | [192, 168, ..] => {
            true
        }
        // Protocols, documentation, relays of 6to4, benchmarks.
        [192, 0, 0 | 2, _] | [192, 88, 99, _] | [198, 18..=19, ..] | [198, 51, 100, _] | [203, 0, 113, _] => {
            true
        }
        // Multicast, reserved, broadcast.
        [224..=255, ..] => true,
        _ => false,
    };
    !special
}

/// Of IPv6 only 2000::/3 is given out, and of that the parts that carry another address, which is not the one that would be
/// looked at (6to4, Teredo), stand apart. What translates from IPv4 (NAT64) lies outside.
fn is_public_six(address: Ipv6Addr) -> bool {
    match address.segments() {
        // Teredo and other protocols; documentation; 6to4; documentation again.
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x2002, ..] | [0x3fff, 0..=0xfff, ..] => false,
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admits(reach: &Reach, address: &str) -> bool {
        reach.admits(address.parse().expect("an address"), || vec!["198.35.26.9".parse().expect("one")])
    }

    #[test]
    fn only_addresses_of_the_whole_internet_are_reached() {
        let reach = Reach::public(Vec::new());
        for good in ["1.1.1.1", "192.0.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2001:200::1"] {
            assert!(admits(&reach, good), "{good}");
        }
        for bad in [
            "0.0.0.0",
            "0.1.2.3",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "127.8.9.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.9",
            "224.0.0.1",
            "239.255.255.250",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::1",
            "3fff::1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "5f00::1",
            // This machine's own.
            "198.35.26.9",
        ] {
            assert!(!admits(&reach, bad), "{bad}");
            assert!(admits(&Reach::anywhere(), bad), "{bad}");
        }
    }

    #[test]
    fn what_the_operator_names_is_reached_and_nothing_beside_it() {
        let reach =
            Reach::public(vec!["10.1.0.0/16".parse().expect("one"), "127.0.0.1".parse().expect("one")]);
        for (address, good) in [
            ("10.1.2.3", true),
            ("10.2.0.1", false),
            ("::ffff:127.0.0.1", true),
            ("127.0.0.2", false),
            ("::1", false),
        ] {
            assert_eq!(admits(&reach, address), good, "{address}");
        }
    }
}
