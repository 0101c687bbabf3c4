//! Which ACL was read, for when it is written back.
//!
//! Programs that copy a file copy its attributes without being asked, and what they copy may have been
//! written by anybody (an attribute of a local file, of a shared one, in an archive). So an ACL is taken
//! only with the mark that this mount showed it under: nobody can guess one, and each stands for one
//! file, in one container, under one version of its ACL. A copy is another file, so a mark that somebody
//! was shown who should not have been lets in nobody either.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use weft_core::{ContainerId, FileId, limits};

/// The ACLs that were shown last.
#[derive(Default)]
pub(crate) struct Editions(Mutex<VecDeque<Edition>>);

#[derive(Clone, Copy)]
struct Edition {
    mark: u128,
    of: Shown,
}

/// Of which file an ACL was shown, and which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub file: FileId,
    pub container: ContainerId,
    pub version: u64,
}

impl Editions {
    /// Returns the mark to show an ACL under, the same as before while it is known.
    pub(crate) fn mark(&self, of: Shown) -> Result<u128, Errno> {
        let mut shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = shown.iter().position(|edition| edition.of == of);
        if let Some(edition) = known.and_then(|place| shown.remove(place)) {
            shown.push_back(edition);
            return Ok(edition.mark);
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
    pub(crate) fn shown(&self, mark: u128) -> Option<Shown> {
        let shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shown.iter().find(|edition| edition.mark == mark).map(|edition| edition.of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(serial: u64, version: u64) -> Shown {
        let volume = FileId::ROOT.volume();
        Shown { file: FileId::new(volume, serial, 0), container: ContainerId::new(volume, 1), version }
    }

    #[test]
    fn a_mark_stands_for_one_version_at_one_file_until_many_others_were_shown() {
        let editions = Editions::default();
        let mark = |shown| editions.mark(shown).expect("made");
        let marks = [of(1, 1), of(1, 2), of(2, 1)].map(mark);
        assert_eq!(editions.shown(marks[1]), Some(of(1, 2)));
        assert!(marks[0] != marks[1] && marks[1] != marks[2] && editions.shown(0).is_none());
        assert_eq!(mark(of(1, 1)), marks[0], "a program asks for the length first");
        for serial in 3..3 + limits::MOUNT_EDITIONS_KEPT as u64 - 2 {
            mark(of(serial, 1));
        }
        // The first one was shown again since.
        assert_eq!((editions.shown(marks[0]), editions.shown(marks[1])), (Some(of(1, 1)), None));
    }
}
