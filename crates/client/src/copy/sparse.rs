//! A file with holes into the tree: only what is no hole is sent.
//!
//! Stages take bytes one after the other, so such a file is written in place under a hidden name
//! beside its own, compared with the digests that the node makes of it, and renamed. What was there is
//! replaced by another file; one that has a policy of its own is not, and gets all bytes.

use std::sync::Arc;

use bytes::Bytes;
use weft_core::attr::{Attr, SetAttr};
use weft_core::form::{
    At, BytesSource, Expect, Guard, Make, OpenFile, OpenHow, Piece, Range, Replace, Shape, Want, WriteAt,
};
use weft_core::{Error, ErrorKind, FileId, Name, Result, Rights, limits};

use super::Progress;
use super::contents::Contents;
use super::upload::To;
use super::verified::{BLOCK_BYTES, Digests, damaged_on_the_way};
use crate::Client;

/// A file with holes on its way.
pub(super) struct Sparse<'a> {
    pub(super) client: &'a Client,
    pub(super) contents: &'a Contents<'a>,
    pub(super) to: &'a To<'a>,
    pub(super) size: u64,
    pub(super) set: &'a SetAttr,
}

impl Sparse<'_> {
    /// Sends it. `None` if it has to go as other files do: whoever sends it may not read or rename
    /// there, or what has the name is more than bytes.
    pub(super) async fn send(&self, there: Option<&Attr>, progress: &Progress) -> Result<Option<FileId>> {
        let (client, fs) = (self.client, self.client.fs());
        if !self.may_be_sent().await? {
            return Ok(None);
        }
        // A name that nobody else makes: two copies at once, and whoever else may write there, keep apart.
        let hidden = At::name(self.to.dir, hidden_name(client.sys().random().u64())?);
        let make = Make { exclusive: true, set: SetAttr { mode: Some(0o600), ..SetAttr::default() } };
        let need = Rights::READ | Rights::WRITE;
        let how = OpenHow { need, make: Some(make), ..OpenHow::default() };
        let opened = match fs.open(&client.call(), &hidden, &how).await {
            Ok(opened) => opened,
            Err(e) if goes_otherwise(&e) => return Ok(None),
            Err(e) => return Err(e),
        };
        let keeps = |there: &Attr| there.container != opened.attr.container || there.links > 1;
        let done = match there {
            Some(there) if keeps(there) => Ok(None),
            _ => self.fill_and_rename(&opened.file, &hidden, progress).await,
        };
        let closed = opened.file.close(&client.call()).await;
        if !matches!(done, Ok(Some(_))) {
            // What matters is why; the next copy begins anew.
            let _ = fs.remove(&client.call(), &hidden, Expect::NotDirectory, &Guard::NONE).await;
        }
        let id = done?;
        closed.map(|()| id)
    }

    /// Whether its sender may do all that this takes, and away with it again: else bytes would lie under
    /// a hidden name for good.
    async fn may_be_sent(&self) -> Result<bool> {
        let (call, want) = (self.client.call(), Want { rights: true, ..Want::default() });
        let walked = self.client.fs().walk(&call, &At::id(self.to.dir), want).await?;
        let all = Rights::INSERT
            | Rights::READ
            | Rights::WRITE
            | Rights::ATTR_WRITE
            | Rights::RENAME
            | Rights::REMOVE;
        Ok(walked.rights.is_some_and(|rights| rights.contains(all)))
    }

    async fn fill_and_rename(
        &self,
        file: &Arc<dyn OpenFile>,
        hidden: &At,
        progress: &Progress,
    ) -> Result<Option<FileId>> {
        let (client, fs) = (self.client, self.client.fs());
        let sent = self.fill(&**file, progress).await?;
        self.compare(file, &sent).await?;
        progress.add_bytes(self.size - sent.iter().map(|(begin, end)| end - begin).sum::<u64>())?;
        let call = client.call_within(limits::publish_within(self.size));
        file.sync(&call, Range::ALL).await?;
        fs.set(&client.call(), &At::id(file.id()), self.set, &Guard::NONE).await?;
        match fs.rename(&client.call(), hidden, &self.to_at(), Replace::Any, &Guard::NONE).await {
            Ok(_) => Ok(Some(file.id())),
            Err(e) if goes_otherwise(&e) => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn to_at(&self) -> At {
        At::name(self.to.dir, self.to.name.clone())
    }

    /// Writes what is no hole. Returns which bytes that were.
    async fn fill(&self, file: &dyn OpenFile, progress: &Progress) -> Result<Vec<(u64, u64)>> {
        let (mut sent, mut at) = (Vec::new(), 0);
        let call = self.client.call_within(limits::TRANSFER_WITHIN);
        while at < self.size
            && let Some((begin, end)) = self.contents.next_run(self.client, at).await?
        {
            let (mut from, end) = (begin, end.min(self.size));
            let mut source = self.contents.source(self.client, from, end).await?;
            while from < end {
                let piece = source.next(limits::PIECE_BYTES_MAX).await;
                let Some(piece) = piece.map_err(|e| self.contents.unreadable(e))? else { break };
                let bytes = Piece::into_bytes(piece)?;
                let to = from + bytes.len() as u64;
                file.write(&call, WriteAt::Offset(from), &mut BytesSource::new(bytes)).await?;
                progress.add_bytes(to - from)?;
                from = to;
            }
            if begin < end {
                sent.push((begin, end));
            }
            at = end.max(at + 1);
        }
        file.shape(&call, Shape::Truncate(self.size)).await?;
        Ok(sent)
    }

    /// Compares each block that has bytes with what the node has got.
    async fn compare(&self, file: &Arc<dyn OpenFile>, sent: &[(u64, u64)]) -> Result<()> {
        let mut sums = self.contents.sums(self.client);
        let (mut digests, mut next) = (Digests::new(self.client, file.clone()), 0);
        for (begin, end) in sent {
            for block in (begin / BLOCK_BYTES).max(next)..end.div_ceil(BLOCK_BYTES) {
                if sums.of(block, self.size).await? != digests.of(block).await? {
                    return Err(damaged_on_the_way(
                        "what the node got is not what was sent: its checksum differs",
                    ));
                }
            }
            next = end.div_ceil(BLOCK_BYTES);
        }
        Ok(())
    }
}

/// Whether a refusal is one of this way of sending, and says nothing of others.
fn goes_otherwise(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Denied | ErrorKind::NotPermitted | ErrorKind::Unsupported | ErrorKind::CrossVolume
    )
}

/// The name that such a file has until it is whole.
fn hidden_name(number: u64) -> Result<Name> {
    Name::new(Bytes::from(format!(".{number:016x}.weft-part")))
}
