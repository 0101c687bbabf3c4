//! What each operation demands of the proof it is shown.

use weft_core::form::WriteAt;
use weft_core::proof::{Granted, Objects};
use weft_core::{Clock, ContainerId, Error, ErrorKind, Moment, ObjectId, Result, Rights};

/// To read bytes.
pub(crate) const READING: &[Rights] = &[Rights::READ];
/// To ask where holes are: one may need to know it to write beside them.
pub(crate) const SEEKING: &[Rights] = &[Rights::READ, Rights::WRITE];
/// To write somewhere in an object.
pub(crate) const WRITING: &[Rights] = &[Rights::WRITE];
/// To write at its end.
pub(crate) const APPENDING: &[Rights] = &[Rights::APPEND, Rights::WRITE];
/// To see its size.
pub(crate) const SEEING: &[Rights] = &[Rights::ATTR_READ, Rights::READ, Rights::WRITE];
/// To bring it to disk.
pub(crate) const SYNCING: &[Rights] = &[Rights::WRITE, Rights::APPEND, Rights::READ];

/// Returns the rights one of which a write needs.
pub(crate) fn writing(at: WriteAt) -> &'static [Rights] {
    if at == WriteAt::End { APPENDING } else { WRITING }
}

/// Checks that at least one of `rights` is allowed on the object now. The refusal is about the
/// first, unless one would be allowed by a proof that has ended.
pub(crate) fn any(granted: &Granted, rights: &[Rights], object: ObjectId, now: Moment) -> Result<()> {
    either(rights.iter().map(|right| granted.allows(*right, object, now)))
}

/// Checks that an object may come into the proof's container or leave it: by the right on the
/// container, or by `write` on exactly this object.
pub(crate) fn member(granted: &Granted, right: Rights, object: ObjectId, now: Moment) -> Result<()> {
    match &granted.claims().objects {
        Objects::All => granted.allows_container(right, now),
        Objects::Only(_) => granted.allows(Rights::WRITE, object, now),
    }
}

/// Checks that the container's objects may be listed.
pub(crate) fn listing(granted: &Granted, now: Moment) -> Result<()> {
    either([Rights::LIST, Rights::MAINTAIN].iter().map(|right| granted.allows_container(*right, now)))
}

fn either(answers: impl Iterator<Item = Result<()>>) -> Result<()> {
    let mut refusal: Option<Error> = None;
    for answer in answers {
        let Err(error) = answer else { return Ok(()) };
        let lacks = |error: &Error| error.kind() == ErrorKind::Denied;
        if refusal.as_ref().is_none_or(|first| lacks(first) && !lacks(&error)) {
            refusal = Some(error);
        }
    }
    Err(refusal.unwrap_or_else(|| Error::denied("no right was asked for")))
}

/// The one answer for an object that is not there and for one of another container: a proof
/// about one container tells nothing of others.
pub(crate) fn absent(object: ObjectId) -> Error {
    Error::not_found("the container has no such object").about(object)
}

/// A proof used over and over while bytes move, with the rights one of which is needed.
#[derive(Clone)]
pub(crate) struct Permit {
    granted: Granted,
    rights: &'static [Rights],
    object: ObjectId,
}

impl Permit {
    pub(crate) fn new(granted: &Granted, rights: &'static [Rights], object: ObjectId) -> Self {
        Self { granted: granted.clone(), rights, object }
    }

    pub(crate) fn container(&self) -> ContainerId {
        self.granted.claims().container
    }

    /// Checks, for one piece, that the right stands and that the object is still labelled with
    /// the proof's container.
    pub(crate) fn check(&self, label: ContainerId, clock: &dyn Clock) -> Result<()> {
        any(&self.granted, self.rights, self.object, clock.moment())?;
        if label == self.container() { Ok(()) } else { Err(absent(self.object)) }
    }

    pub(crate) fn granted(&self) -> &Granted {
        &self.granted
    }

    /// Returns all the rights it watches.
    pub(crate) fn watched(&self) -> Rights {
        self.rights.iter().fold(Rights::NONE, |all, right| all | *right)
    }
}
