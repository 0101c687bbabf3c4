//! Copying files into, out of and within a node: resumable, verified, several at a time.
//!
//! Into Weft, a file is staged in parts of 64 MiB, each with a BLAKE3 digest made here
//! while it is read; `publish` names those digests, so what becomes visible is what
//! was read, or nothing. An interrupted copy leaves a stage; the next one finds it,
//! compares digests part by part, and goes on behind the last that matches. A file that
//! is copied within the tree passes through here likewise, from one pinned version of it:
//! so it replaces another whole or not at all, and can be stopped.
//!
//! Out of Weft, bytes of one pinned version go to a hidden file beside the target,
//! named after that version, which is renamed into place when it is whole and on
//! disk. Each block of 1 MiB is compared with the digest that the node made of it when it
//! was written, before any of it goes there. The next copy compares what it finds there in
//! the same way, and goes on behind the last block that matches. Whoever writes the hidden
//! file holds a lock on it.

mod contents;
mod download;
mod local;
mod partial;
mod upload;
mod verified;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use weft_core::{Error, ErrorKind, Result};

pub use download::{From, Spot, download, is_there};
pub use upload::{copy_within, is_up, must_be_as_sent, upload};
pub use verified::Verified;

/// What a copy did with one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was copied.
    Copied {
        /// Bytes in it.
        bytes: u64,
        /// Bytes that did not have to be sent again.
        resumed: u64,
    },
    /// Same size and time on both sides: nothing was done.
    Unchanged,
}

/// How to copy.
#[derive(Clone, Copy, Debug, Default)]
pub struct How {
    /// Copy even what has the same size and modification time on both sides.
    pub force: bool,
    /// Permission bits that files made here do not get.
    pub umask: u16,
}

/// How far a copy has got; shared with whoever shows it, and the way to stop it.
#[derive(Debug, Default)]
pub struct Progress {
    bytes: AtomicU64,
    files: AtomicU64,
    stop: AtomicBool,
}

impl Progress {
    /// Returns bytes copied or found to be there already.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns files finished.
    pub fn files(&self) -> u64 {
        self.files.load(Ordering::Relaxed)
    }

    /// Returns whether the copies were asked to stop.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Asks every copy that reports here to stop at its next piece. What was staged
    /// stays, for the next attempt.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    pub(crate) fn add_bytes(&self, bytes: u64) -> Result<()> {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.stopped() {
            return Err(Error::new(ErrorKind::Unavailable, "interrupted"));
        }
        Ok(())
    }

    pub(crate) fn add_file(&self) {
        self.files.fetch_add(1, Ordering::Relaxed);
    }
}
