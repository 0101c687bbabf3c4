//! In which volume a request is made again: one address, and two that must agree.

use weft_core::form::{At, Call};
use weft_core::{Error, ErrorKind, Result};

use super::{Joined, Tree, is_root};

/// What an address that ends at a junction means.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The entry of the root volume.
    Name,
    /// What is seen there: the member's root.
    Thing,
}

/// One of a request's two addresses, and what its end means.
pub(super) type Side<'a> = (&'a At, End);

impl Tree {
    /// Returns where a request goes on that the root refused as none of its business. If it is, or
    /// nobody serves what is there, the refusal stands.
    pub(super) fn goes_on(&self, call: &Call, at: &At, refused: Error) -> Result<(Joined, At)> {
        match self.beyond(call, at) {
            Ok(Some(there)) => Ok(there),
            Ok(None) => Err(refused),
            Err(error) if error.kind() == ErrorKind::Unavailable => Err(refused),
            Err(error) => Err(error),
        }
    }

    /// Returns the one member that both addresses lie in, with what they are there. `refused` is
    /// what the root said, if both begin there; it stands if both end there, too.
    pub(super) fn meet(
        &self,
        call: &Call,
        [from, to]: [Side<'_>; 2],
        refused: Option<Error>,
    ) -> Result<(Joined, At, At)> {
        match (self.lies(call, from)?, self.lies(call, to)?) {
            (Some((joined, from)), Some((other, to))) if joined.volume == other.volume => {
                Ok((joined, from, to))
            }
            (None, None) => Err(refused.unwrap_or_else(between_volumes)),
            _ => Err(between_volumes().about(from.0)),
        }
    }

    /// Returns the member that an address lies in, and what it is there; none for the root.
    fn lies(&self, call: &Call, (at, end): Side<'_>) -> Result<Option<(Joined, At)>> {
        if let Some(joined) = self.member_of(at.base.volume())? {
            return Ok(Some((joined, at.clone())));
        }
        let there = self.beyond(call, at)?;
        Ok(there.filter(|(_, rest)| end == End::Thing || !rest.path.is_empty()))
    }
}

/// Returns whether the root is asked first: it can answer only for what begins there.
pub(super) fn begin_at_root(from: &At, to: &At) -> bool {
    is_root(from.base.volume()) && is_root(to.base.volume())
}

/// Says of the address that was asked for what a member said of what was left of it.
pub(super) fn retold(error: Error, rest: &At, at: &At) -> Error {
    if error.subject() == Some(rest.to_string().as_str()) { error.said_of(at) } else { error }
}

fn between_volumes() -> Error {
    Error::new(ErrorKind::CrossVolume, "the two lie in different volumes")
        .hint("copy it and remove the original")
}
