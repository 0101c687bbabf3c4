//! Ranges of addresses, as operators write them.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use weft_core::{Error, Result};

/// A range of addresses: those that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    first: IpAddr,
    bits: u8,
}

impl Network {
    /// Returns whether an address lies in it.
    pub fn holds(&self, address: IpAddr) -> bool {
        match (self.first, address.to_canonical()) {
            (IpAddr::V4(first), IpAddr::V4(address)) => {
                let differs = u32::from(first) ^ u32::from(address);
                u32::from(self.bits) <= differs.leading_zeros()
            }
            (IpAddr::V6(first), IpAddr::V6(address)) => is_within(address, first, self.bits),
            _ => false,
        }
    }
}

fn is_within(address: Ipv6Addr, first: Ipv6Addr, bits: u8) -> bool {
    let differs = u128::from(first) ^ u128::from(address);
    u32::from(bits) <= differs.leading_zeros()
}

impl FromStr for Network {
    type Err = Error;

    /// Reads an address, or one with the number of bits that count after a `/`.
    fn from_str(text: &str) -> Result<Self> {
        let bad =
            || Error::invalid(format!("`{text}` is no network, such as 10.0.0.0/8, 192.0.2.7 or fd00::/8"));
        let (address, bits) =
            text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let first = address.parse::<IpAddr>().map_err(|_| bad())?;
        let widest = if first.is_ipv4() { 32 } else { 128 };
        let bits: u8 = match bits {
            None => widest,
            Some(text) => text.parse().ok().filter(|bits| *bits <= widest).ok_or_else(bad)?,
        };
        // One that is written as IPv6 means the addresses that it maps.
        match first.to_canonical() {
            IpAddr::V4(mapped) if first.is_ipv6() => {
                let bits = bits.checked_sub(96).ok_or_else(bad)?;
                Ok(Self { first: mapped.into(), bits })
            }
            _ => Ok(Self { first, bits }),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_holds_what_begins_alike() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.6"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("fd00::/8", "fdff::1", "fc00::1"),
            ("::/0", "2001:db8::1", "1.2.3.4"),
            ("::ffff:10.0.0.0/104", "10.1.2.3", "11.0.0.0"),
            ("127.0.0.1", "::ffff:127.0.0.1", "::1"),
        ] {
            let network: Network = network.parse().expect("a network");
            assert!(network.holds(inside.parse().expect("an address")), "{network} {inside}");
            assert!(!network.holds(outside.parse().expect("an address")), "{network} {outside}");
        }
        for bad in
            ["", "10.0.0.0/33", "10.0.0/8", "host", "::/129", "10.0.0.1:80", "::ffff:1.2.3.4/95", "1.2.3.4/"]
        {
            assert!(bad.parse::<Network>().is_err(), "{bad}");
        }
    }
}
