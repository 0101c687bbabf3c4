//! Taking notes for as long as there may be any.

use weft_core::Result;
use weft_core::limits::KV_NOTES_RETRY;
use weft_sys::Sys;

use crate::engine::{Note, NotePosition, Notes};

/// A subscriber that only the end of the engine ends: what cannot be read or acknowledged now can
/// be later, and nobody would begin to follow anew.
pub struct Following {
    sys: Sys,
    notes: Box<dyn Notes>,
    /// Nothing could be read the last time.
    failing: bool,
}

impl Following {
    /// Follows `notes`, after those already handed over.
    pub fn new(sys: Sys, notes: Box<dyn Notes>) -> Self {
        Self { sys, notes, failing: false }
    }

    /// Waits for notes as [`Notes::next`] does. If they cannot be read it says so once and tries
    /// again every [`KV_NOTES_RETRY`]. Cancelling loses nothing. `None` once the engine is closed.
    pub async fn next(&mut self) -> Option<Vec<Note>> {
        loop {
            let read = self.notes.next().await;
            if read.is_err() && self.notes.is_closed() {
                return None;
            }
            self.tell(&read);
            match read {
                Ok(notes) => return Some(notes),
                Err(_) => self.sys.sleep(KV_NOTES_RETRY).await,
            }
        }
    }

    /// Says when reading begins to fail, and when it works again.
    fn tell(&mut self, read: &Result<Vec<Note>>) {
        let failed_before = std::mem::replace(&mut self.failing, read.is_err());
        match read {
            Err(error) if !failed_before => {
                tracing::warn!(?error, "notes of writes cannot be read: it is tried again");
            }
            Ok(_) if failed_before => tracing::info!("notes of writes can be read again"),
            _ => {}
        }
    }

    /// Forgets the notes up to `position`, as [`Notes::ack`] does. If that fails, on a disk that is
    /// full for a while, it is made up for by the next: each acknowledges all before it.
    pub async fn ack(&mut self, position: NotePosition) {
        if let Err(error) = self.notes.ack(position).await
            && !self.notes.is_closed()
        {
            tracing::warn!(%error, "notes of writes are kept longer than needed");
        }
    }
}
