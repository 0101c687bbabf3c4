//! When a node was last backed up, checked and swept: for whoever asks how it is.
//!
//! A small file beside the node's data, written whole: it is no part of them, and one that is lost or
//! damaged says "never".

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use weft_core::Time;

use super::directory::write_closed;

/// Its name in the node's directory.
const FILE: &str = "upkeep.json";

/// What is done now and then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chore {
    /// A backup was written.
    Backup,
    /// Everything was checked, and nothing was wrong.
    Check,
    /// What nobody refers to was taken away.
    Sweep,
}

/// When each was done last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Done {
    /// In seconds since 1970, as the two below.
    pub backup: Option<i64>,
    /// See [`Chore::Check`].
    pub check: Option<i64>,
    /// See [`Chore::Sweep`].
    pub sweep: Option<i64>,
}

/// The file, and what is in it.
pub struct Upkeep {
    path: PathBuf,
    done: Mutex<Done>,
}

impl Upkeep {
    /// Takes up what was done before.
    pub fn open(dir: &Path) -> Self {
        let path = dir.join(FILE);
        let read = std::fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Self { path, done: Mutex::new(read.unwrap_or_default()) }
    }

    /// Remembers that a chore was done.
    pub fn did(&self, chore: Chore, at: Time) {
        let mut done = self.lock();
        let of = match chore {
            Chore::Backup => &mut done.backup,
            Chore::Check => &mut done.check,
            Chore::Sweep => &mut done.sweep,
        };
        *of = Some(at.seconds());
        let text = serde_json::to_vec(&*done).unwrap_or_default();
        let fresh = self.path.with_extension("new");
        let written = write_closed(&fresh, &text).and_then(|()| std::fs::rename(&fresh, &self.path));
        if let Err(error) = written {
            tracing::warn!(%error, path = %self.path.display(), "when upkeep was done is not remembered");
        }
    }

    /// Returns when each was done last.
    pub fn done(&self) -> Done {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Done> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_is_remembered_and_a_damaged_file_says_never() {
        let dir = tempfile::tempdir().expect("a directory");
        let upkeep = Upkeep::open(dir.path());
        assert_eq!(upkeep.done(), Done::default());
        upkeep.did(Chore::Backup, Time::from_unix(5, 0));
        upkeep.did(Chore::Check, Time::from_unix(7, 0));
        let wanted = Done { backup: Some(5), check: Some(7), sweep: None };
        assert_eq!(Upkeep::open(dir.path()).done(), wanted);
        for damaged in ["", "{", "[]", "{\"backup\":\"x\"}"] {
            std::fs::write(dir.path().join(FILE), damaged).expect("written");
            assert_eq!(Upkeep::open(dir.path()).done(), Done::default(), "{damaged}");
        }
    }
}
