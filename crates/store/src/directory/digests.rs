//! Digests of blocks, for whoever compares what came of them.

use std::sync::Arc;

use weft_core::{Error, Result, limits};

use super::Inner;
use super::live::{Known, Live};
use super::read::distrust_read_ahead;
use super::seal::hash;
use super::seals::extent;
use crate::proof::Permit;

impl Inner {
    /// Returns the digest of each block from `block` on: of a sealed one its seal, unread; of another
    /// that of its bytes as they are now, for a few at a time.
    pub(super) async fn digests(
        &self,
        live: &Arc<Live>,
        permit: &Permit,
        block: u64,
    ) -> Result<Vec<[u8; 32]>> {
        let (mut digests, mut made) = (Vec::new(), 0);
        for block in block..block.saturating_add(limits::BLOCK_DIGESTS_MAX as u64) {
            if extent(block, live.state().size).1 == 0 {
                break;
            }
            let (known, at, length) = self.look_up(live, block)?;
            digests.push(match known {
                Known::Sealed { seal, .. } => seal.digest(length),
                Known::Unsealed | Known::Elsewhere if made == limits::BLOCK_DIGESTS_MADE_MAX => break,
                Known::Unsealed | Known::Elsewhere => {
                    made += 1;
                    permit.check(live.label(), self.clock())?;
                    self.digest_now(live, block, (at, length)).await?
                }
            });
        }
        Ok(digests)
    }

    async fn digest_now(&self, live: &Arc<Live>, block: u64, (at, length): (u64, u64)) -> Result<[u8; 32]> {
        let live = live.clone();
        // Held to the end of the work, not of the call: whoever asks and goes away adds nothing.
        let turn = self.digesting.clone().acquire_owned().await;
        let turn = turn.map_err(|e| Error::internal("the store's turns are closed").caused_by(e))?;
        let read = move || -> Result<[u8; 32]> {
            let _turn = turn;
            distrust_read_ahead(&live, block);
            Ok(hash(&live, at, length)?.digest(length))
        };
        self.sys.blocking(read).await?
    }
}
