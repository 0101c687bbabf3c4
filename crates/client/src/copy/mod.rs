//! Copying files into, out of and within a node: resumable, verified, several at a time.
//!
//! Into Weft, a file of at most 1 MiB goes in one message, with the digest of its bytes, and is made
//! at the node in one go. A larger one is staged in parts of 64 MiB, each with a BLAKE3 digest made here
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

mod compare;
mod contents;
mod download;
mod local;
mod partial;
mod sparse;
mod tags;
mod upload;
mod verified;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;
use weft_core::{Error, ErrorKind, Result, Time};

pub use download::{From, Spot, download, is_there, match_local_tags};
pub use tags::match_tags;
pub use upload::{Sent, There, To, copy_within, is_up, must_be_as_sent, upload};
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
    /// Tell what is the same by its bytes, not by its modification time.
    pub checksum: bool,
    /// What becomes of user attributes, and of the modes and times of what is there already.
    pub attributes: Attributes,
    /// New files of this machine are not brought to disk one by one: whoever copies does that for all.
    pub flushed_later: bool,
}

/// What becomes of attributes beside the bytes, on the side that is copied to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attributes {
    /// User attributes do not come along, and what is there keeps its mode.
    #[default]
    Leave,
    /// Those of the source come along; others that are there stay.
    Add,
    /// They are made those of the source.
    Match,
}

impl How {
    /// Returns whether something is there already, of which size and modification time are known on
    /// both sides: `None` if its bytes have to be compared to tell.
    fn is_same(self, (size, mtime): (u64, Time), there: (u64, Time)) -> Option<bool> {
        match self {
            Self { force: true, .. } => Some(false),
            _ if size != there.0 => Some(false),
            Self { checksum: true, .. } => None,
            _ => Some(mtime == there.1),
        }
    }
}

/// How far a copy has got; shared with whoever shows it, and the way to stop it.
#[derive(Debug, Default)]
pub struct Progress {
    bytes: AtomicU64,
    files: AtomicU64,
    expected: AtomicU64,
    stop: AtomicBool,
    stops: Notify,
}

impl Progress {
    /// Returns bytes copied or found to be there already.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns bytes that there are to copy, as far as it is known by now.
    pub fn expected(&self) -> u64 {
        self.expected.load(Ordering::Relaxed)
    }

    /// Adds bytes that there are to copy.
    pub fn expect(&self, bytes: u64) {
        self.expected.fetch_add(bytes, Ordering::Relaxed);
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
        self.stops.notify_waiters();
    }

    /// Waits until the copies were asked to stop.
    pub async fn until_stopped(&self) {
        // Whoever is told from here on is heard, so the look behind it misses nobody.
        let told = self.stops.notified();
        if !self.stopped() {
            told.await;
        }
    }

    /// Adds bytes copied or found to be there already. Fails as [`Self::must_go_on`] does.
    pub fn add_bytes(&self, bytes: u64) -> Result<()> {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.must_go_on()
    }

    /// Fails with `Unavailable` once the copies were asked to stop.
    pub fn must_go_on(&self) -> Result<()> {
        if self.stopped() {
            return Err(Error::new(ErrorKind::Unavailable, "interrupted"));
        }
        Ok(())
    }

    /// Adds a file that is finished.
    pub fn add_file(&self) {
        self.files.fetch_add(1, Ordering::Relaxed);
    }
}
