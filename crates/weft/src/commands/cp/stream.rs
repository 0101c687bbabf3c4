//! Standard input into a file of the tree.

use async_trait::async_trait;
use bytes::{BufMut, BytesMut};
use tokio::io::AsyncReadExt;
use weft_core::attr::SetAttr;
use weft_core::form::{At, Guard, Piece, Source, StageHint, Stopped};
use weft_core::{RelPath, Result, limits};
use weft_sys::fault;

use super::Job;
use crate::progress::{self, Count};

/// Copies standard input to a file: all of it or nothing.
pub async fn from_input(job: &Job<'_>, to: RelPath) -> Result<()> {
    let (client, read) = (job.client, progress::reading(job.context));
    let target = At::root(to).following();
    let stage = client.fs().stage(&client.call(), &target, &StageHint::default()).await?;
    let call = client.call_within(limits::TRANSFER_WITHIN);
    let part = stage.put(&call, 1, 0, &mut Input(tokio::io::stdin(), read)).await?;
    stage.publish(&client.call(), &[part], &SetAttr::default(), &Guard::NONE).await.map(drop)
}

struct Input(tokio::io::Stdin, Count);

#[async_trait]
impl Source for Input {
    async fn next(&mut self, max: usize) -> Result<Option<Piece>> {
        let max = max.min(limits::PIECE_BYTES_MAX);
        let mut bytes = BytesMut::with_capacity(max);
        let read = self.0.read_buf(&mut (&mut bytes).limit(max)).await;
        let read = read.map_err(|e| fault::error(e, "read", "standard input"))?;
        self.1.add(bytes.len() as u64);
        Ok((read > 0).then(|| Piece::Bytes(bytes.freeze())))
    }

    fn length(&self) -> Option<u64> {
        None
    }

    fn stopped(&self) -> Stopped {
        Box::pin(std::future::pending())
    }
}
