//! What accompanies every request: who asks, until when, from where, how durably.

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::acl::Circumstance;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{RequestId, SessionId, TraceId};
use crate::proof::Caller;
use crate::time::{Clock, Deadline};

/// When a change is answered (request-form law 13).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Ack {
    /// Once it is visible; it is on disk within 5 seconds, in order.
    #[default]
    Applied,
    /// Once it, and every change before it, is on disk.
    Durable,
}

/// The least protection that bytes of this call may travel under.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Wire {
    /// Plain, where policy names the network.
    Clear,
    /// Authenticated, not encrypted.
    Integrity,
    /// Encrypted.
    #[default]
    Private,
}

/// The way in that a call came through, for audit and conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Door {
    /// HTTP.
    Http,
    /// The mount.
    Mount,
    /// The native protocol.
    Native,
    /// The node itself: sweeps, scrubs, repairs.
    Node,
}

impl Door {
    /// Returns its name, as logs and scripts read it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Mount => "mount",
            Self::Native => "native",
            Self::Node => "node",
        }
    }
}

/// Where a call came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The door.
    pub door: Door,
    /// The address of the other end; none on a local socket.
    pub peer: Option<IpAddr>,
    /// The uid at the other end of a local socket, as the kernel said it; none elsewhere.
    /// Means something on this node only, so it is neither stored nor sent.
    #[serde(skip)]
    pub uid: Option<u32>,
}

/// Returns what an address is counted as where bounds are per machine: of IPv6, the
/// network of 64 bits that one machine has to itself.
pub fn one_machine(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if v6.is_loopback() => address,
        IpAddr::V6(v6) => IpAddr::V6((u128::from(v6) >> 64 << 64).into()),
        v4 => v4,
    }
}

/// What accompanies every request. Made by a door of what it verified; never sent
/// over a wire (request-form law 19).
#[derive(Clone, Debug)]
pub struct Call {
    /// Who asks.
    pub caller: Caller,
    /// The session that opens, locks and replays belong to.
    pub session: SessionId,
    /// When there must be an answer.
    pub until: Deadline,
    /// The trace this call's log lines and refusals carry.
    pub trace: TraceId,
    /// Where it came from.
    pub from: Origin,
    /// For changes: the same id again in the same session gets the first answer again.
    pub once: Option<RequestId>,
    /// When a change is answered.
    pub ack: Ack,
    /// The least protection its bytes may travel under.
    pub wire: Wire,
}

impl Call {
    /// Returns the circumstances that conditions are judged by.
    pub fn circumstance(&self, clock: &dyn Clock) -> Circumstance {
        Circumstance { now: clock.moment(), peer: self.from.peer }
    }

    /// Checks, at the start of each method, that the caller's credential still runs
    /// and the deadline has not passed. Fails with `Expired`, `Revoked` or `Deadline`.
    pub fn check(&self, clock: &dyn Clock) -> Result<()> {
        self.caller.live(clock.moment())?;
        if self.until.passed(clock) {
            return Err(Error::new(ErrorKind::Deadline, "the deadline passed before the call began"));
        }
        Ok(())
    }

    /// Returns this call with a deadline of its own, so long from now on: for what begins after waits
    /// that are no time of its.
    #[must_use]
    pub fn renewed(&self, clock: &dyn Clock, within: Duration) -> Self {
        Self { until: Deadline::within(clock, within), ..self.clone() }
    }

    /// Returns this call answered only once its change is on disk.
    #[must_use]
    pub fn durable(mut self) -> Self {
        self.ack = Ack::Durable;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_machine_are_counted_as_one() {
        let one = |text: &str| one_machine(text.parse().expect("an address")).to_string();
        for (address, counted) in [
            ("192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("2001:db8:1:2::9", "2001:db8:1:2::"),
            ("::1", "::1"),
        ] {
            assert_eq!(one(address), counted);
        }
    }
}
