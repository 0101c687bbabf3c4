//! A file to read or write.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use weft_core::attr::{Attr, Version, Wcc};
use weft_core::form::{
    Call, OpenFile, Piece, Range, Seek, Shape, Source, Verifier, WriteAt, Written, digested_range, digests_of,
};
use weft_core::{Error, FileId, Result, Rights, Tick, Time, TraceId, limits};
use weft_sys::DiskFile;
use weft_sys::beneath::Facts;
use weft_sys::disk::RealFile;

use super::Volume;
use super::audit::Deed;
use super::descriptors::Handle;
use super::lease::Lease;
use super::names::{check_size, too_large};
use super::source::{FileSource, stamp_of};
use super::view::{Node, View};
use crate::managed::changed_while_read;

/// A file to read or write.
pub(super) struct ExportFile {
    pub(super) volume: Arc<Volume>,
    pub(super) id: FileId,
    pub(super) need: Rights,
    pub(super) handle: Arc<Handle>,
    pub(super) open: Option<Held>,
}

/// What an open keeps.
pub(super) struct Held {
    pub(super) number: u64,
    /// The one version that a pinned open sees, and what the file looked like.
    pub(super) pinned: Option<(Facts, Version)>,
    /// What the request that opened it saw, until something was done with it. None where nobody can tell whose a call is.
    pub(super) looked: Mutex<Option<Looked>>,
}

/// What a request saw: all of one request goes by that, for a moment, and nothing else does.
pub(super) struct Looked {
    pub(super) by: TraceId,
    pub(super) when: Tick,
    /// The count of policy changes before.
    pub(super) seen: u64,
    pub(super) node: Node,
    /// The bytes of the one version that it opened, if they were read before the look.
    pub(super) bytes: Option<Bytes>,
    /// The machine's clock before it looked, if the descriptor may be kept for others.
    pub(super) kept_as_of: Option<Time>,
}

impl ExportFile {
    /// Begins a call on the file: `Stale` once it is closed or its session has ended.
    fn is_open(&self) -> Result<()> {
        match &self.open {
            Some(open) if !self.volume.opens.has(open.number) => Err(closed()),
            _ => Ok(()),
        }
    }

    /// Takes up the first of some rights that both the file carries and the policy gives.
    async fn lease(&self, call: &Call, any_of: &[Rights]) -> Result<(Arc<Lease>, Node)> {
        let (lease, node, _) = self.lease_by(call, any_of, None).await?;
        Ok((lease, node))
    }

    /// Returns a range of the file for whoever may read it: what opened it may go by what it saw then.
    async fn source(&self, call: &Call, range: Range) -> Result<FileSource> {
        let any_of = [Rights::READ, Rights::EXECUTE];
        let (lease, node, bytes) = self.lease_by(call, &any_of, self.looked(call)).await?;
        let pinned = self.pinned().map(|(facts, _)| stamp_of(facts));
        let (at, left) = range.within(pinned.map_or(node.facts.size, |(size, _)| size));
        Ok(FileSource { lease, file: self.handle.file().clone(), at, left, pinned, bytes })
    }

    async fn lease_by(
        &self,
        call: &Call,
        any_of: &[Rights],
        looked: Option<Looked>,
    ) -> Result<(Arc<Lease>, Node, Option<Bytes>)> {
        self.is_open()?;
        let any_of: Vec<_> = any_of.iter().copied().filter(|op| self.need.contains(*op)).collect();
        let (id, file) = (self.id, self.handle.file().clone());
        let look = move |view: &View<'_>| {
            let (node, bytes) = match looked.filter(|looked| looked.seen == view.seen) {
                Some(looked) => {
                    view.keep(&looked, &file);
                    (looked.node, looked.bytes)
                }
                None => (view.node(id)?, None),
            };
            Ok((Arc::new(Lease::take(view, &node, &any_of)?), node, bytes))
        };
        self.volume.look(call, look).await
    }

    /// Returns what this very request saw when it opened the file, once.
    fn looked(&self, call: &Call) -> Option<Looked> {
        let looked = self.open.as_ref()?.looked.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let age = self.volume.sys.clock().tick().since(looked.when);
        (looked.by == call.trace && age < limits::EXPORT_ROOT_HELD).then_some(looked)
    }

    fn pinned(&self) -> Option<&(Facts, Version)> {
        self.open.as_ref().and_then(|open| open.pinned.as_ref())
    }

    /// Waits until nobody else appends.
    async fn tail(&self, call: &Call) -> Result<tokio::sync::OwnedMutexGuard<()>> {
        let (sys, tails) = (&self.volume.sys, &self.volume.tails);
        sys.within(call.until, async { Ok(tails.of(self.id).await) }).await
    }

    /// Writes a piece. Returns where it went.
    async fn put(&self, at: WriteAt, piece: Piece) -> Result<u64> {
        let file = self.handle.file().clone();
        let write = move || match at {
            WriteAt::Offset(at) => {
                let mut next = at;
                let written = piece.each_part(|part| {
                    file.write_at(part, next)?;
                    next += part.len() as u64;
                    Ok(())
                });
                written.map(|()| at).map_err(Error::unplaced)
            }
            // In one go: what a program of the machine appends meanwhile would come between.
            WriteAt::End => file.append(&piece.into_bytes()?).map_err(Error::unplaced),
        };
        let put = self.volume.apart(self.volume.sys_deadline(), write).await;
        self.volume.versions.written(self.id);
        put
    }

    /// Pulls bytes to their end into the file, and counts those that went.
    async fn pull(&self, lease: &Lease, at: WriteAt, data: &mut dyn Source, went: &mut Went) -> Result<()> {
        while let Some(piece) = data.next(limits::PIECE_BYTES_MAX).await? {
            lease.check().await?;
            self.is_open()?;
            let length = piece.length() as u64;
            let at = match at {
                WriteAt::Offset(at) => {
                    let at = at.checked_add(went.bytes).ok_or_else(too_large)?;
                    check_size(at.checked_add(length).ok_or_else(too_large)?)?;
                    WriteAt::Offset(at)
                }
                WriteAt::End => WriteAt::End,
            };
            let first = self.put(at, piece).await?;
            went.first = went.first.or(Some(first));
            went.bytes += length;
        }
        Ok(())
    }

    /// Records a write, and brings it to disk if that was asked for.
    async fn wrote(
        &self,
        call: &Call,
        node: &Node,
        (op, what): (Rights, &'static str),
        bytes: u64,
    ) -> Result<()> {
        let node = node.clone();
        let deed = move |view: &View<'_>| {
            let deed = Deed::of(view, what, &node, (&node, op)).of_file(&node);
            Ok(Deed { bytes, ..deed })
        };
        let deed = self.volume.look_whenever(call, deed).await?;
        self.volume.leave(call, deed).await
    }

    async fn after(&self, call: &Call, node: Node, before: weft_core::attr::Before) -> Result<Wcc> {
        self.volume.look_whenever(call, move |view| Ok(view.wcc(&node, Some(before)))).await
    }

    async fn before(&self, call: &Call, node: &Node) -> Result<weft_core::attr::Before> {
        let node = node.clone();
        self.volume.look_whenever(call, move |view| Ok(view.before(&node))).await
    }
}

/// What of a write has gone into the file.
#[derive(Default)]
struct Went {
    /// Where its first piece went.
    first: Option<u64>,
    bytes: u64,
}

fn closed() -> Error {
    Error::stale("the file was closed")
}

/// Any of which rights a write needs, and what the audit calls it.
fn right_of(at: WriteAt) -> (&'static [Rights], &'static str) {
    match at {
        WriteAt::End => (&[Rights::APPEND, Rights::WRITE], "append"),
        WriteAt::Offset(_) => (&[Rights::WRITE], "write"),
    }
}

#[async_trait]
impl OpenFile for ExportFile {
    fn id(&self) -> FileId {
        self.id
    }

    async fn attr(&self, call: &Call) -> Result<Attr> {
        self.is_open()?;
        let id = self.id;
        let look = move |view: &View<'_>| {
            let node = view.node(id)?;
            view.need_any(&node)?;
            Ok(view.attr(&node))
        };
        let mut attr = self.volume.look(call, look).await.map_err(|e| e.op("stat"))?;
        if let Some((facts, version)) = self.pinned() {
            (attr.size, attr.version) = (facts.size, *version);
        }
        Ok(attr)
    }

    async fn read(&self, call: &Call, range: Range) -> Result<Box<dyn Source>> {
        let read = async { Ok(Box::new(self.source(call, range).await?) as Box<dyn Source>) };
        read.await.map_err(|e: Error| e.op("read"))
    }

    async fn digests(&self, call: &Call, block: u64) -> Result<Vec<[u8; 32]>> {
        let read = async { digests_of(&mut self.source(call, digested_range(block)).await?).await };
        read.await.map_err(|e: Error| e.op("read"))
    }

    async fn write(&self, call: &Call, at: WriteAt, data: &mut dyn Source) -> Result<Written> {
        let (any_of, what) = right_of(at);
        let write = async {
            let (lease, node) = self.lease(call, any_of).await?;
            // Two appends of one file never mix, whatever their pieces.
            let _tail = match at {
                WriteAt::End => Some(self.tail(call).await?),
                WriteAt::Offset(_) => None,
            };
            // Not while it waits: what others do meanwhile would count as done by this.
            let before = self.before(call, &node).await?;
            let mut went = Went::default();
            let pulled = self.pull(&lease, at, data, &mut went).await;
            let bytes = went.bytes;
            if bytes > 0 {
                self.wrote(call, &node, (any_of[0], what), bytes).await?;
            }
            pulled?;
            let at = went.first.unwrap_or(match at {
                WriteAt::Offset(at) => at,
                WriteAt::End => node.facts.size,
            });
            let file = self.after(call, node, before).await?;
            Ok(Written { at, bytes, file, ack: call.ack, verifier: self.volume.verifier() })
        };
        write.await.map_err(|e: Error| e.op(what).about(self.id))
    }

    async fn shape(&self, call: &Call, shape: Shape) -> Result<Wcc> {
        let shaped = async {
            let (_lease, node) = self.lease(call, &[Rights::WRITE]).await?;
            let before = self.before(call, &node).await?;
            let file = self.handle.file().clone();
            let (until, act) =
                (self.volume.sys_deadline(), move || shape_file(&file, shape).map_err(Error::unplaced));
            self.volume.apart(until, act).await?;
            self.volume.versions.written(self.id);
            self.wrote(call, &node, (Rights::WRITE, "write"), 0).await?;
            self.after(call, node, before).await
        };
        shaped.await.map_err(|e: Error| e.op("shape").about(self.id))
    }

    async fn seek(&self, call: &Call, offset: u64, what: Seek) -> Result<u64> {
        let sought = async {
            let (_lease, node) = self.lease(call, &[Rights::READ, Rights::WRITE, Rights::EXECUTE]).await?;
            let size = self.pinned().map_or(node.facts.size, |(facts, _)| facts.size);
            if offset >= size {
                return Err(Error::not_found("the offset is at or beyond the end"));
            }
            if let Some((facts, _)) = self.pinned()
                && stamp_of(facts) != stamp_of(&node.facts)
            {
                return Err(changed_while_read());
            }
            let file = self.handle.file().clone();
            let find = move || file.seek(offset, what).map_err(Error::unplaced);
            let found = self.volume.apart(self.volume.sys_deadline(), find).await?;
            found.ok_or_else(|| Error::not_found("there is no data beyond the offset"))
        };
        sought.await.map_err(|e| e.op("seek"))
    }

    async fn sync(&self, call: &Call, _range: Range) -> Result<Verifier> {
        self.is_open()?;
        call.check(self.volume.sys.clock())?;
        let synced = async {
            // Who waits for another's flush holds no thread meanwhile.
            let turn = self.volume.behind(call.until, self.handle.clone().turn()).await?;
            let flush = move || {
                turn.flush();
                Ok(())
            };
            self.volume.apart(call.until, flush).await?;
            // Not before somebody hears it.
            self.handle.tell_losses().map_err(Error::unplaced)
        };
        synced.await.map_err(|e| e.op("sync").about(self.id))?;
        Ok(self.volume.verifier())
    }

    async fn close(&self, call: &Call) -> Result<()> {
        let Some(open) = &self.open else {
            return self.attr(call).await.map(drop).map_err(|e| e.op("close"));
        };
        call.check(self.volume.sys.clock()).map_err(|e| e.op("close"))?;
        if self.volume.opens.close(open.number) { Ok(()) } else { Err(closed().op("close")) }
    }
}

impl Drop for ExportFile {
    fn drop(&mut self) {
        if let Some(open) = &self.open {
            self.volume.opens.close(open.number);
        }
    }
}

fn shape_file(file: &RealFile, shape: Shape) -> Result<()> {
    match shape {
        Shape::Truncate(size) => {
            check_size(size)?;
            file.set_length(size)
        }
        Shape::Allocate { at, length, keep_size } => {
            check_size(at.checked_add(length).ok_or_else(too_large)?)?;
            if length == 0 {
                return Ok(());
            }
            if keep_size { file.reserve(at, length) } else { file.allocate(at, length) }
        }
        Shape::Punch { at, length } => file.punch_within(at, length),
        Shape::Zero { at, length, keep_size } => {
            let end = at.checked_add(length).ok_or_else(too_large)?;
            check_size(end)?;
            file.punch_within(at, length)?;
            if !keep_size && file.len()? < end {
                file.set_length(end)?;
            }
            Ok(())
        }
    }
}
