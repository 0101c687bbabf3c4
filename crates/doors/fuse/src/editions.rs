//! Which ACL was read, for when it is written back.
//!
//! Programs that copy a file copy its attributes without being asked, and what they copy may have been
//! written by anybody (an attribute of a local file, of a shared one, in an archive). So an ACL is taken
//! only with the mark that this mount showed it under: nobody can guess one, and each stands for one
//! container in one version.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use weft_core::{ContainerId, limits};

/// The ACLs that were shown last.
#[derive(Default)]
pub(crate) struct Editions(Mutex<VecDeque<Edition>>);

#[derive(Clone, Copy)]
struct Edition {
    mark: u128,
    of: (ContainerId, u64),
}

impl Editions {
    /// Returns the mark of a container's ACL in a version, the same as before while it is known.
    pub(crate) fn mark(&self, of: (ContainerId, u64)) -> Result<u128, Errno> {
        let mut shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = shown.iter().find(|edition| edition.of == of) {
            return Ok(known.mark);
        }
        let mut mark = [0; 16];
        if getrandom(&mut mark, GetRandomFlags::empty())? != mark.len() {
            return Err(Errno::AGAIN);
        }
        let mark = u128::from_ne_bytes(mark);
        if shown.len() >= limits::MOUNT_EDITIONS_KEPT {
            shown.pop_front();
        }
        shown.push_back(Edition { mark, of });
        Ok(mark)
    }

    /// Returns what was shown under a mark.
    pub(crate) fn shown(&self, mark: u128) -> Option<(ContainerId, u64)> {
        let shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shown.iter().find(|edition| edition.mark == mark).map(|edition| edition.of)
    }
}

#[cfg(test)]
mod tests {
    use weft_core::FileId;

    use super::*;

    #[test]
    fn a_mark_stands_for_one_version_of_one_container_until_many_others_were_shown() {
        let editions = Editions::default();
        let container = |serial| ContainerId::new(FileId::ROOT.volume(), serial);
        let marks: Vec<u128> = [(1, 1), (1, 2), (2, 1)]
            .map(|(id, version)| editions.mark((container(id), version)).expect("made"))
            .into();
        assert_eq!(editions.shown(marks[1]), Some((container(1), 2)));
        assert_eq!(editions.mark((container(1), 2)), Ok(marks[1]), "a program asks for the length first");
        assert!(marks[0] != marks[1] && marks[1] != marks[2] && editions.shown(0).is_none());
        for id in 3..3 + limits::MOUNT_EDITIONS_KEPT as u64 - 2 {
            editions.mark((container(id), 1)).expect("made");
        }
        assert_eq!((editions.shown(marks[0]), editions.shown(marks[1])), (None, Some((container(1), 2))));
    }
}
