//! Numbers that are given once: inodes, cookies, containers, objects.
//!
//! They are leased in blocks, durably, before any is used. So a number that a caller
//! has seen is never given again, not even if a crash takes back the commit that used
//! it; and creators share no row.

use std::sync::{Mutex, PoisonError};

use weft_core::form::Ack;
use weft_core::{Error, FileId, Result, limits};
use weft_kv::Space;

use super::table::volume;

/// Gives numbers away.
#[derive(Default)]
pub(super) struct Numbers {
    left: Mutex<std::ops::Range<u64>>,
    leasing: tokio::sync::Mutex<()>,
}

impl Numbers {
    /// Returns a number never given before.
    pub(super) async fn take(&self, space: &Space) -> Result<u64> {
        loop {
            if let Some(number) = self.next() {
                return Ok(number);
            }
            let _one_at_a_time = self.leasing.lock().await;
            if self.lock().is_empty() {
                let count = limits::NUMBERS_LEASED;
                let act = move |txn: &mut weft_kv::SpaceTxn<'_>| volume::lease(txn, count);
                let (first, _) = space.write(Ack::Durable, act).await?;
                if first + u64::from(count) > FileId::SERIAL_MAX {
                    return Err(Error::internal("the volume has given away all its numbers"));
                }
                *self.lock() = first..first + u64::from(count);
            }
        }
    }

    fn next(&self) -> Option<u64> {
        self.lock().next()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, std::ops::Range<u64>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
