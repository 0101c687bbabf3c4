//! Conditions: what must hold of a request for an ACL entry to count. Only what the
//! request brings, never the file's own attributes, so that one decision holds for a
//! whole container.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::Subject;
use crate::error::{Error, Result};
use crate::id::DomainId;
use crate::rights::Rights;
use crate::time::{Moment, Time};

/// A range of network addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// Makes a range of the addresses that share the first `prefix` bits. Fails with
    /// `Invalid` if the address has fewer bits.
    pub fn new(address: IpAddr, prefix: u8) -> Result<Self> {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        if prefix > bits {
            return Err(Error::invalid("the prefix is longer than the address"));
        }
        Ok(Self { address, prefix })
    }

    /// Returns whether the address lies in the range. An IPv4 address that arrives
    /// mapped into IPv6 counts as the IPv4 address it is.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address.to_canonical(), address.to_canonical()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                same_prefix(a.to_bits().into(), b.to_bits().into(), self.prefix, 32)
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => same_prefix(a.to_bits(), b.to_bits(), self.prefix, 128),
            _ => false,
        }
    }
}

fn same_prefix(a: u128, b: u128, prefix: u8, bits: u8) -> bool {
    prefix == 0 || (a ^ b) >> (bits - prefix.min(bits)) == 0
}

impl std::str::FromStr for Network {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let bad = || Error::invalid("a network is ADDRESS or ADDRESS/BITS");
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix.parse().map_err(|_| bad())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        Self::new(address, prefix.unwrap_or(if address.is_ipv4() { 32 } else { 128 }))
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// Something that must hold of the request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Condition {
    /// It is this time or later.
    From(Time),
    /// It is earlier than this time.
    Until(Time),
    /// The caller's address lies in the range. A caller on the node itself has no
    /// address, so this does not hold for it.
    Network(Network),
    /// The caller's domain is this one.
    Organisation(DomainId),
    /// The credential carries this attribute with this value.
    Attribute {
        /// The attribute's name.
        name: String,
        /// The value it must have.
        value: String,
    },
}

/// When and from where a request comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Circumstance {
    /// The time.
    pub now: Moment,
    /// The address it comes from; none on a local socket.
    pub peer: Option<IpAddr>,
}

impl Condition {
    /// Returns whether the condition holds for this caller now.
    pub fn holds(&self, who: &Subject<'_>, at: &Circumstance) -> bool {
        match self {
            Self::From(time) => at.now.wall >= *time,
            Self::Until(time) => at.now.wall < *time,
            Self::Network(network) => at.peer.is_some_and(|peer| network.contains(peer)),
            Self::Organisation(domain) => who.name().domain() == Some(*domain),
            Self::Attribute { name, value } => who.attribute(name) == Some(value),
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::From(time) => write!(f, "from {}", time.seconds()),
            Self::Until(time) => write!(f, "until {}", time.seconds()),
            Self::Network(network) => write!(f, "network {network}"),
            Self::Organisation(domain) => write!(f, "organisation {domain}"),
            Self::Attribute { name, value } => write!(f, "attribute {name}={value}"),
        }
    }
}

/// Conditions that a decision leaned on: whoever holds the capability made of it may
/// use `rights` only while they hold (or, for a sleeping negative entry, only while
/// not all of them hold).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Constraint {
    /// The rights that depend on it.
    pub rights: Rights,
    /// The conditions, taken together.
    pub conditions: Vec<Condition>,
    /// `true`: all must hold. `false`: not all may hold.
    pub must_hold: bool,
}

impl Constraint {
    /// Returns whether the constraint is met for this caller now.
    pub fn met(&self, who: &Subject<'_>, at: &Circumstance) -> bool {
        self.conditions.iter().all(|c| c.holds(who, at)) == self.must_hold
    }
}
