//! Who appends to a file: one after the other, each to the end.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::OwnedMutexGuard;
use weft_core::FileId;

/// Files that somebody appends to.
#[derive(Default)]
pub(super) struct Tails(Mutex<HashMap<FileId, Weak<tokio::sync::Mutex<()>>>>);

impl Tails {
    /// Waits until nobody else appends to a file.
    pub(super) async fn of(&self, file: FileId) -> OwnedMutexGuard<()> {
        let tail = {
            let mut tails = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // As many as there are at once, and no more.
            tails.retain(|_, tail| tail.strong_count() > 0);
            let known = tails.get(&file).and_then(Weak::upgrade);
            let tail: Arc<tokio::sync::Mutex<()>> = known.unwrap_or_default();
            tails.insert(file, Arc::downgrade(&tail));
            tail
        };
        tail.lock_owned().await
    }
}
