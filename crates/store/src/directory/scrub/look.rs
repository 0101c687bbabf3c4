//! Looking at one block.

use std::collections::BTreeSet;
use std::sync::Arc;

use weft_core::{ErrorKind, Result, limits};

use super::super::Inner;
use super::super::live::{Known, Live};
use super::super::read::{READ_AHEAD_BLOCKS, holds_data};
use super::super::seals::{Seal, extent};

/// What a look at a block came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looked {
    /// It is as it was written; so many bytes were read for that.
    Whole(u64),
    /// It has no seal just now: somebody writes it.
    Skipped,
    /// It is not as it was written.
    Wrong {
        /// First byte and length.
        extent: (u64, u64),
        /// The disk does not give it.
        unread: bool,
    },
}

/// Blocks of an object that were not in memory, and that the machine may have read ahead for the scrubber: as
/// much as a few whole blocks, on some. They are as little others' as the block that was asked for.
#[derive(Debug, Default)]
pub(super) struct Ahead(BTreeSet<u64>);

impl Ahead {
    /// Notes that a block is about to be read. Returns whether it comes into memory by that.
    fn reading(&mut self, live: &Live, block: u64) -> bool {
        let size = live.state().size;
        let is_in_memory = |block| {
            let (at, length) = extent(block, size);
            length == 0 || live.file.resident(at, length)
        };
        let ours = self.0.contains(&block) || !is_in_memory(block);
        if ours {
            let next = block + 1..=block.saturating_add(READ_AHEAD_BLOCKS);
            self.0.extend(next.filter(|next| !is_in_memory(*next)));
        }
        self.0.retain(|known| *known >= block);
        ours
    }
}

impl Inner {
    /// Compares a block with its seal. `ahead` are the blocks that came into memory only because those before
    /// them were looked at.
    pub(super) async fn look_at(&self, live: &Arc<Live>, block: u64, ahead: &mut Ahead) -> Result<Looked> {
        let mut wrong = None;
        for _ in 0..limits::STORE_READ_TRIES {
            let (known, at, length) = match self.look_up(live, block) {
                // The record of its seal cannot be read.
                Err(error) if self.is_of_object(&error) => {
                    let unread = error.kind() != ErrorKind::Corrupt;
                    return Ok(Looked::Wrong { extent: extent(block, live.state().size), unread });
                }
                known => known?,
            };
            let Known::Sealed { seal, .. } = known else { return Ok(Looked::Skipped) };
            let unread = match self.compare(live, block, seal, (at, length), ahead).await {
                Ok(Some(read)) => return Ok(Looked::Whole(read)),
                Ok(None) => false,
                // Whatever the machine says of it: nobody can read it.
                Err(error) if self.is_of_object(&error) => true,
                Err(error) => return Err(error),
            };
            wrong = Some((seal, Looked::Wrong { extent: (at, length), unread }));
            // It may be in the middle of a change, as for a reader.
            drop(live.gate.read().await);
        }
        let still = self.look_up(live, block)?.0;
        Ok(match wrong {
            Some((seen, wrong)) if matches!(still, Known::Sealed { seal, .. } if seal == seen) => wrong,
            _ => Looked::Skipped,
        })
    }

    /// Reads a block, and forgets what only that brought into memory. Returns how many bytes were read if they match
    /// the seal.
    async fn compare(
        &self,
        live: &Arc<Live>,
        block: u64,
        seal: Seal,
        (at, length): (u64, u64),
        ahead: &mut Ahead,
    ) -> Result<Option<u64>> {
        if seal == Seal::Hole && !holds_data(live, at, length)? {
            return Ok(Some(0));
        }
        let ours = ahead.reading(live, block);
        let read = self.checked(live, block, seal, at, length).await;
        if ours {
            live.file.forget(at, length);
        }
        Ok(read?.map(|_| length))
    }
}
