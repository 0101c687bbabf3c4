//! Whose bytes they are: what shares are given by.

use weft_core::form::{Call, Door};
use weft_core::{CallerId, DomainId};

/// What transfers are told apart by when they compete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Class {
    /// The organisation that vouches for the caller; none for `anyone`.
    pub domain: Option<DomainId>,
    /// The caller.
    pub caller: CallerId,
    /// The way in.
    pub door: Door,
}

impl Class {
    /// Returns the class of a call's bytes.
    pub fn of(call: &Call) -> Self {
        let name = call.caller.name();
        Self { domain: name.domain(), caller: name.id(), door: call.from.door }
    }

    /// Returns the class of what a door itself says, to whomever.
    pub fn door(door: Door) -> Self {
        Self { domain: None, caller: CallerId::ANYONE, door }
    }
}
