//! Files to read or write: opened under a session, or by their id alone.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use weft_core::attr::{Attr, Changed, SetAttr, Version, Wcc};
use weft_core::caller::CallerName;
use weft_core::form::{
    At, Call, ChangeKind, Copied, New, OpenFile, OpenHow, Opened, Pin, Range, Seek, Shape, Source, Verifier,
    WriteAt, Written, check_carried, digest_of_zeros,
};
use weft_core::limits::SEAL_BLOCK_BYTES;
use weft_core::{ContainerId, CredentialId, Error, ErrorKind, FileId, ObjectId, Result, Rights, limits};

use super::Volume;
use super::act::{Act, Deed, answered};
use super::attributes::must_have_bytes;
use super::files::Unwritten;
use super::lease::{Lease, Since, is_of_another_moment, place_of};
use super::locate::Place;
use super::source::{InlineSource, ObjectSource, changed_while_read};
use super::table::inodes::{self, Layout};
use super::view::{Bits, Named, Node, View, hidden};

/// A file to read or write.
pub(super) struct ManagedFile {
    volume: Arc<Volume>,
    id: FileId,
    need: Rights,
    open: Option<Open>,
}

/// What an open keeps.
struct Open {
    number: u64,
    opener: CallerName,
    credential: CredentialId,
    pinned: Option<Pinned>,
    /// That it had a name when it was opened.
    named: Option<Named>,
}

/// The one version that a pinned open sees.
#[derive(Clone)]
struct Pinned {
    size: u64,
    version: Version,
    object: ObjectId,
    label: ContainerId,
    bytes: PinnedBytes,
}

#[derive(Clone)]
enum PinnedBytes {
    Inline(Bytes),
    /// An object's, as long as nobody writes them.
    Object(Unwritten),
}

impl PinnedBytes {
    fn inline(&self) -> Option<&Bytes> {
        match self {
            Self::Inline(bytes) => Some(bytes),
            Self::Object(_) => None,
        }
    }

    fn unwritten(&self) -> Option<&Unwritten> {
        match self {
            Self::Inline(_) => None,
            Self::Object(unwritten) => Some(unwritten),
        }
    }
}

/// What an opening transaction found or made.
struct Found {
    node: Node,
    attr: Attr,
    made: bool,
    parent: Option<Wcc>,
}

impl View<'_> {
    /// Finds what attributes are to be set of, and checks that they may be.
    fn may_begin_set(&self, at: &At, set: &SetAttr, guard: &weft_core::form::Guard) -> Result<Node> {
        let node = self.existing(at)?;
        self.may_set(&node, set)?;
        self.guard(guard, Some(&node))?;
        self.may_change(&node, set)?;
        Ok(node)
    }

    fn may_open(&self, node: &Node, need: Rights) -> Result<()> {
        self.must_be_here(node)?;
        if need.is_empty() {
            self.need_any(node)?;
        }
        self.need(node, need)?;
        must_have_bytes(node)
    }
}

impl Volume {
    pub(super) async fn open(self: &Arc<Self>, call: &Call, at: &At, how: &OpenHow) -> Result<Opened> {
        how.check()?;
        call.check(self.sys.clock())?;
        self.opens.lives(call.session)?;
        loop {
            let found = match self.look(call, |view| view.open(at, how))? {
                Some(found) if !how.truncate => found,
                _ => Box::pin(self.open_changing(call, at, how)).await?,
            };
            let (number, doubtful) = self.opens.pin(call.session, found.node.id)?;
            let file = self.opened(call, &found, how, number);
            if doubtful {
                // Wait for the transaction that may be ending it; then look.
                Box::pin(self.space.write(weft_core::form::Ack::Applied, |_| Ok(()))).await?;
                self.opens.settled(found.node.id);
            }
            match self.still_there(call, file, found, how) {
                Ok(Some(opened)) => return Ok(opened),
                // Somebody published in between: what is there now is opened.
                Ok(None) => tokio::task::yield_now().await,
                Err(error) if error.kind() == ErrorKind::Stale && !at.path.is_empty() => continue,
                Err(error) => return Err(error),
            }
        }
    }

    fn opened(self: &Arc<Self>, call: &Call, found: &Found, how: &OpenHow, number: u64) -> ManagedFile {
        let open = Open {
            number,
            opener: call.caller.name().clone(),
            credential: call.caller.credential(),
            pinned: None,
            named: None,
        };
        ManagedFile { volume: self.clone(), id: found.node.id, need: how.need, open: Some(open) }
    }

    /// Looks whether what was found is there now that it is held, and takes hold of the version
    /// that a pinned open is to see. `None` if the file was replaced meanwhile.
    fn still_there(
        &self,
        call: &Call,
        mut file: ManagedFile,
        found: Found,
        how: &OpenHow,
    ) -> Result<Option<Opened>> {
        let Found { node, mut attr, made, parent } = found;
        let Some(open) = &mut file.open else { return Err(Error::internal("an open without its number")) };
        if how.pin == Pin::Version {
            let (object, _) = place_of(&node);
            // Pinned first, looked at afterwards: what it shows then stays.
            self.opens.pin_object(open.number, object);
            // Before the look: of a write that ends after it, the row looked at knows nothing.
            let unwritten = match node.inode.layout {
                Layout::Whole { .. } => self.files.unwritten(node.serial(), object),
                Layout::Inline => None,
            };
            match self.look(call, |view| view.pin(&node, unwritten))? {
                Some((pinned, now, named)) => (attr, open.pinned, open.named) = (now, Some(pinned), named),
                None => return Ok(None),
            }
        } else {
            open.named = self.look(call, |view| Ok(view.named(&view.node(node.id)?)))?;
        }
        Ok(Some(Opened { file: Arc::new(file), attr, made, parent }))
    }

    /// Opens with a transaction: something is made, or cut to nothing.
    async fn open_changing(self: &Arc<Self>, call: &Call, at: &At, how: &OpenHow) -> Result<Found> {
        let number = self.number().await?;
        let (at, how, empties) = (at.clone(), how.clone(), how.truncate);
        let found = self.change(call, move |act| act.open(&at, &how, number)).await?;
        if empties {
            self.to_tidy.notify_one();
        }
        Ok(found)
    }

    pub(super) fn file(self: &Arc<Self>, call: &Call, id: FileId, need: Rights) -> Result<ManagedFile> {
        check_carried(need)?;
        self.look(call, |view| {
            let node = view.node(id)?;
            view.may_open(&node, need)
        })?;
        Ok(ManagedFile { volume: self.clone(), id, need, open: None })
    }

    /// Sets attributes; the size of what is in an object, there.
    pub(super) async fn set(
        self: &Arc<Self>,
        call: &Call,
        at: &At,
        set: &SetAttr,
        guard: &weft_core::form::Guard,
    ) -> Result<Changed<Attr>> {
        let print = super::act::fingerprint(call, &("set", at, set, guard))?;
        // What cannot be found here is refused in the transaction, after a look whether
        // the request was answered before.
        let object = self.look(call, |view| Ok(view.existing(at).ok()))?;
        let object = object.filter(|node| matches!(node.inode.layout, Layout::Whole { .. }));
        let (at, set, guard) = (at.clone(), set.clone(), *guard);
        let (Some(node), Some(size)) = (object.filter(|_| set.size.is_some_and(|size| size > 0)), set.size)
        else {
            let empties = set.size == Some(0);
            let set = self.change(call, move |act| act.once(&print, |act| act.set(&at, &set, &guard)));
            let changed = set.await?;
            if empties {
                self.to_tidy.notify_one();
            }
            return Ok(changed);
        };
        let (volume, call_again) = (self.clone(), call.clone());
        self.undropped(call, async move {
            volume.set_large(&call_again, At::id(node.id), set, guard, size, print).await
        })
        .await
    }

    /// Sets the size of a file's object, which may fail; then all the rest, in one transaction that
    /// says so to the audit.
    async fn set_large(
        self: &Arc<Self>,
        call: &Call,
        at: At,
        set: SetAttr,
        guard: weft_core::form::Guard,
        size: u64,
        print: [u8; 32],
    ) -> Result<Changed<Attr>> {
        let begun = self.look_whenever(call, |view| {
            if let Some(answer) = answered::<Changed<Attr>>(view.read, view.call, &print)? {
                return Ok(Err(answer));
            }
            let node = view.may_begin_set(&at, &set, &guard)?;
            let before = view.before(&node)?;
            Ok(Ok((node, before)))
        });
        let (node, before) = match begun? {
            Ok(begun) => begun,
            Err(answer) => return Ok(answer),
        };
        let lease = Lease::take(self, call, &node, (Rights::WRITE, Bits::WereCounted), place_of(&node))?;
        self.shape(&Arc::new(lease), Shape::Truncate(size)).await?;
        let only_size = SetAttr { size: None, ..set.clone() }.is_empty();
        self.change_whenever(call, call.ack, move |act| {
            act.once(&print, |act| {
                if only_size {
                    let node = act.view().node(at.base)?;
                    let file = act.wcc(node.id, Some(before))?;
                    return Ok(Changed { value: act.attr(&node)?, file, parents: [None, None] });
                }
                // The guard was met before the size changed; the credential may have ended since.
                act.call.caller.live(act.now)?;
                let mut node = act.view().may_begin_set(&at, &set, &weft_core::form::Guard::NONE)?;
                act.apply(&mut node, &set)?;
                act.finish_set(&node, &set, Some(before))
            })
        })
        .await
    }

    pub(super) async fn copy(
        self: &Arc<Self>,
        call: &Call,
        from: &At,
        range: Range,
        to: &At,
        offset: u64,
    ) -> Result<Copied> {
        let (source, target, before) = self.look(call, |view| {
            let (source, target) = (view.existing(from)?, view.existing(to)?);
            view.need(&source, Rights::READ)?;
            view.need(&target, Rights::WRITE)?;
            must_have_bytes(&source)?;
            must_have_bytes(&target)?;
            let before = view.before(&target)?;
            Ok((source, target, before))
        })?;
        let (start, length) = range.within(source.inode.size);
        let (read, write) = (self.by_id(&source, Rights::READ), self.by_id(&target, Rights::WRITE));
        // Of a file onto itself further up, the last piece goes first: nothing is
        // overwritten before it was read.
        let backwards = source.id == target.id && offset > start;
        let (mut done, mut copied) = (0, length);
        while done < length {
            let piece = (length - done).min(limits::PIECE_BYTES_MAX as u64);
            let at = if backwards { length - done - piece } else { done };
            let mut bytes = read.read(call, Range { at: start + at, length: Some(piece) }).await?;
            let held = weft_core::form::collect(&mut *bytes, limits::PIECE_BYTES_MAX).await?;
            let there = held.len() as u64;
            let mut held = weft_core::form::BytesSource::new(held);
            let to = offset.checked_add(at).ok_or_else(|| Error::invalid("the offset is too large"))?;
            write.write(call, WriteAt::Offset(to), &mut held).await?;
            done += piece;
            // The source was cut meanwhile: what is behind its end is no copy of anything.
            if there < piece {
                copied = at + there;
                if !backwards {
                    break;
                }
            }
        }
        let file = self.look_whenever(call, |view| view.wcc(target.id, Some(before)))?;
        Ok(Copied { bytes: copied, file })
    }

    fn by_id(self: &Arc<Self>, node: &Node, need: Rights) -> ManagedFile {
        ManagedFile { volume: self.clone(), id: node.id, need, open: None }
    }
}

impl View<'_> {
    /// Opens what is there. `None` if something must be made first.
    fn open(&self, at: &At, how: &OpenHow) -> Result<Option<Found>> {
        let place = self.locate(at)?;
        let Some(node) = place.node else {
            return if how.make.is_some() && place.above.is_some() { Ok(None) } else { Err(hidden()) };
        };
        if how.make.as_ref().is_some_and(|make| make.exclusive) {
            return Err(super::names::taken());
        }
        let need = if how.truncate { how.need | Rights::WRITE } else { how.need };
        self.may_open(&node, need)?;
        let attr = self.attr(&node)?;
        Ok(Some(Found { node, attr, made: false, parent: None }))
    }

    /// Returns what a pinned open of a file sees from now on. `None` if other contents took the
    /// place of those it was found with, or they were written since `unwritten` was taken, before
    /// the look: the row may be older than the bytes.
    fn pin(
        &self,
        found: &Node,
        unwritten: Option<Unwritten>,
    ) -> Result<Option<(Pinned, Attr, Option<Named>)>> {
        let node = self.node(found.id)?;
        let (object, label) = place_of(&node);
        if object != place_of(found).0 {
            return Ok(None);
        }
        let (attr, named) = (self.attr(&node)?, self.named(&node));
        let bytes = match (node.inode.layout, unwritten) {
            (Layout::Inline, _) => PinnedBytes::Inline(inodes::inline(self.read, node.serial())?),
            (Layout::Whole { .. }, Some(unwritten)) if unwritten.still() => PinnedBytes::Object(unwritten),
            (Layout::Whole { .. }, Some(_)) => return Ok(None),
            (Layout::Whole { .. }, None) => {
                return Err(Error::new(ErrorKind::Conflict, "the file is being written just now"));
            }
        };
        Ok(Some((Pinned { size: attr.size, version: attr.version, object, label, bytes }, attr, named)))
    }
}

impl Act<'_, '_> {
    fn open(&mut self, at: &At, how: &OpenHow, number: u64) -> Result<Found> {
        let Place { above, node, .. } = self.view().locate(at)?;
        match (node, above, &how.make) {
            (Some(mut node), _, make) => {
                if make.as_ref().is_some_and(|make| make.exclusive) {
                    return Err(super::names::taken());
                }
                self.view().may_open(&node, how.need | Rights::WRITE)?;
                if how.truncate {
                    self.empty(&mut node)?;
                    self.record_write(&node, Rights::WRITE, 0)?;
                }
                let attr = self.attr(&node)?;
                Ok(Found { node, attr, made: false, parent: None })
            }
            (None, Some((dir, name)), Some(make)) => {
                let view = self.view();
                view.need(&dir, Rights::INSERT)?;
                // A file that an open makes is governed by its directory's container;
                // its mode bits do not bind the open that makes it.
                let decision = view.decide(&dir, how.need, Bits::WereCounted)?;
                if !decision.is_allowed() {
                    return Err(view.refusal_of(&dir, &decision));
                }
                let above = self.before(&dir)?;
                let (node, _) =
                    self.make_in(&dir, &name, &New::File { verifier: None }, &make.set, number)?;
                self.record(&Deed {
                    place: Some((&dir, &name)),
                    ..Deed::of(ChangeKind::Make, "make", &node, (&dir, Rights::INSERT))
                })?;
                let parent = Some(self.wcc(dir.id, above)?);
                Ok(Found { attr: self.attr(&node)?, node, made: true, parent })
            }
            _ => Err(hidden()),
        }
    }
}

impl ManagedFile {
    /// Begins a call on the file: `Stale` once it is closed or its session has ended.
    fn look<T>(&self, call: &Call, look: impl FnOnce(&View<'_>) -> Result<T>) -> Result<T> {
        if self.open.as_ref().is_some_and(|open| !self.volume.opens.has(open.number)) {
            return Err(closed());
        }
        self.volume.look(call, look)
    }

    fn node(&self, call: &Call) -> Result<Node> {
        self.look(call, |view| view.node(self.id))
    }

    /// Whether mode bits count: not for who opened the file, who met them then.
    fn bits(&self, call: &Call) -> Bits {
        let carries = self.open.as_ref().is_some_and(|open| {
            open.opener == *call.caller.name()
                && (!call.caller.is_confined() || open.credential == call.caller.credential())
        });
        if carries { Bits::WereCounted } else { Bits::Count }
    }

    fn pinned(&self) -> Option<&Pinned> {
        self.open.as_ref().and_then(|open| open.pinned.as_ref())
    }

    /// Takes up the first of some rights that both the file carries and the ACL gives.
    fn lease(&self, call: &Call, any_of: &[Rights]) -> Result<(Lease, Node)> {
        let (volume, bits) = (&self.volume, self.bits(call));
        let since = Since::now(volume, call);
        self.look(call, |view| {
            let node = view.node(self.id)?;
            let place = match self.pinned() {
                Some(pinned) => (pinned.object, view.label_of(&node, pinned.object, pinned.label)?),
                None => place_of(&node),
            };
            let mut refused = None;
            for op in any_of.iter().copied().filter(|op| self.need.contains(*op)) {
                match view.grant_on(&node, op, bits, place.0, place.1) {
                    Ok(granted) => {
                        let lease = Lease::of(volume, call, self.id, (op, bits), place, (granted, since));
                        return Ok((lease, node));
                    }
                    Err(error) => refused = Some(error),
                }
            }
            Err(refused.unwrap_or_else(|| Error::denied("the file was not opened for that")))
        })
    }

    /// Returns the size, and the bytes unless an object has them.
    fn held(&self, lease: &Lease, node: &Node) -> Result<(u64, Option<Bytes>)> {
        match self.pinned() {
            Some(pinned) => Ok((pinned.size, pinned.bytes.inline().cloned())),
            None if node.inode.layout == Layout::Inline => lease.volume.look_whenever(&lease.call, |view| {
                let node = view.node(self.id)?;
                Ok((node.inode.size, Some(inodes::inline(view.read, self.id.serial())?)))
            }),
            None => Ok((node.inode.size, None)),
        }
    }

    async fn digested(&self, lease: Lease, node: Node, block: u64) -> Result<Vec<[u8; 32]>> {
        let (size, bytes) = self.held(&lease, &node)?;
        if let Some(bytes) = bytes {
            return Ok(digests_of_inline(&bytes, size, block));
        }
        let digests = lease.volume.store.digests(&lease.granted(), lease.object, block).await;
        let digests = digests.map_err(|e| e.about(self.id))?;
        let unwritten = self.pinned().and_then(|pinned| pinned.bytes.unwritten());
        if unwritten.is_some_and(|unwritten| !unwritten.still()) {
            return Err(changed_while_read().about(self.id));
        }
        Ok(digests)
    }

    /// Does what reads: once again if the object was replaced or labelled anew between looking and
    /// asking for it.
    async fn reading<T, F: Future<Output = Result<T>> + Send>(
        &self,
        read: impl Fn() -> F + Send + Sync,
    ) -> Result<T> {
        match read().await {
            Err(error) if is_of_another_moment(&error) => {
                let again = async {
                    self.volume.label_is_through(self.id).await;
                    read().await
                };
                Box::pin(again).await
            }
            answer => answer,
        }
        .map_err(|e| e.op("read"))
    }

    async fn source(&self, lease: Lease, node: Node, range: Range) -> Result<Box<dyn Source>> {
        let lease = Arc::new(lease);
        let (size, bytes) = self.held(&lease, &node)?;
        let (at, length) = range.within(size);
        if let Some(bytes) = bytes {
            let start = usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
            let end = usize::try_from(at.saturating_add(length)).unwrap_or(usize::MAX).min(bytes.len());
            let bytes = bytes.slice(start..end.max(start));
            let zeros = length - bytes.len() as u64;
            return Ok(Box::new(InlineSource { lease, bytes, zeros }));
        }
        let unwritten = self.pinned().and_then(|pinned| pinned.bytes.unwritten().cloned());
        let wanted = Range { at, length: Some(length) };
        let inner = lease.volume.store.read(&lease.granted(), lease.object, wanted).await;
        let inner = inner.map_err(|e| e.about(self.id))?;
        Ok(Box::new(ObjectSource { lease, inner, at, left: length, unwritten }))
    }

    /// Finds data or a hole; once `again` if its object moves meanwhile.
    async fn sought(&self, call: &Call, offset: u64, what: Seek, again: bool) -> Result<u64> {
        let any_of = [Rights::READ, Rights::WRITE, Rights::EXECUTE];
        let (lease, node) = self.lease(call, &any_of)?;
        let (size, inline) = match self.pinned() {
            Some(pinned) => (pinned.size, pinned.bytes.inline().map(|bytes| bytes.len() as u64)),
            None if node.inode.layout == Layout::Inline => (node.inode.size, Some(node.inode.used)),
            None => (node.inode.size, None),
        };
        if offset >= size {
            return Err(Error::not_found("the offset is at or beyond the end"));
        }
        if let Some(held) = inline {
            return match what {
                Seek::Data if offset < held => Ok(offset),
                Seek::Data => Err(Error::not_found("there is no data beyond the offset")),
                Seek::Hole => Ok(offset.max(held)),
            };
        }
        match self.volume.store.seek(&lease.granted(), lease.object, offset, what).await {
            Err(error) if is_of_another_moment(&error) && again => {
                self.volume.label_is_through(self.id).await;
                Box::pin(self.sought(call, offset, what, false)).await
            }
            answer => answer.map_err(|e| e.about(self.id)),
        }
    }
}

#[async_trait]
impl OpenFile for ManagedFile {
    fn id(&self) -> FileId {
        self.id
    }

    async fn attr(&self, call: &Call) -> Result<Attr> {
        let node = self.node(call)?;
        let mut attr = self.volume.look(call, |view| {
            let decision = view.decide(&node, Rights::ALL, self.bits(call))?;
            if decision.allowed().is_empty() {
                return Err(view.refusal_of(&node, &decision).op("stat"));
            }
            view.attr(&node)
        })?;
        if let Some(pinned) = self.pinned() {
            (attr.size, attr.version) = (pinned.size, pinned.version);
        }
        Ok(attr)
    }

    async fn read(&self, call: &Call, range: Range) -> Result<Box<dyn Source>> {
        let read = || async {
            let (lease, node) = self.lease(call, &[Rights::READ, Rights::EXECUTE])?;
            self.source(lease, node, range).await
        };
        self.reading(read).await
    }

    async fn digests(&self, call: &Call, block: u64) -> Result<Vec<[u8; 32]>> {
        let read = || async {
            let (lease, node) = self.lease(call, &[Rights::READ, Rights::EXECUTE])?;
            self.digested(lease, node, block).await
        };
        self.reading(read).await
    }

    async fn write(&self, call: &Call, at: WriteAt, data: &mut dyn Source) -> Result<Written> {
        let (any_of, op): (&[Rights], _) = match at {
            WriteAt::End => (&[Rights::APPEND, Rights::WRITE], "append"),
            WriteAt::Offset(_) => (&[Rights::WRITE], "write"),
        };
        let (lease, _) = self.lease(call, any_of).map_err(|e| e.op(op))?;
        self.volume.write(&Arc::new(lease), at, data).await.map_err(|e| e.op(op).about(self.id))
    }

    async fn shape(&self, call: &Call, shape: Shape) -> Result<Wcc> {
        let (lease, _) = self.lease(call, &[Rights::WRITE]).map_err(|e| e.op("shape"))?;
        self.volume.shape(&Arc::new(lease), shape).await.map_err(|e| e.op("shape").about(self.id))
    }

    async fn seek(&self, call: &Call, offset: u64, what: Seek) -> Result<u64> {
        self.sought(call, offset, what, true).await.map_err(|e| e.op("seek"))
    }

    async fn sync(&self, call: &Call, _range: Range) -> Result<Verifier> {
        let node = self.node(call)?;
        if let Layout::Whole { object, .. } = node.inode.layout {
            self.volume.sync_object(call, self.id, object).await.map_err(|e| e.op("sync").about(self.id))?;
        }
        self.volume.space.flush().await.map_err(|e| e.op("sync"))?;
        Ok(self.volume.verifier())
    }

    async fn close(&self, call: &Call) -> Result<()> {
        let Some(open) = &self.open else { return self.node(call).map(drop).map_err(|e| e.op("close")) };
        call.check(self.volume.sys.clock()).map_err(|e| e.op("close"))?;
        let kept = self.volume.opens.close(open.number).ok_or_else(|| closed().op("close"))?;
        // Nothing was committed since: it has its name and its bytes still.
        let now = self.volume.space.snapshot()?.commit();
        if kept.unnamed || !open.named.is_some_and(|named| named.is_still(now, kept.object)) {
            Box::pin(self.volume.clone().let_go(kept)).await.map_err(|e| e.op("close"))?;
        }
        Ok(())
    }
}

impl Drop for ManagedFile {
    fn drop(&mut self) {
        if let Some(open) = &self.open
            && let Some(closed) = self.volume.opens.close(open.number)
        {
            self.volume.clone().let_go_behind(closed);
        }
    }
}

/// Digests the blocks of bytes in memory, with zeros after them up to `size`, from `block` on.
fn digests_of_inline(bytes: &[u8], size: u64, block: u64) -> Vec<[u8; 32]> {
    let blocks = block..size.div_ceil(SEAL_BLOCK_BYTES);
    let digest = |block: u64| {
        let length = (size - block * SEAL_BLOCK_BYTES).min(SEAL_BLOCK_BYTES);
        if block > 0 || bytes.is_empty() {
            return digest_of_zeros(length);
        }
        let mut whole = bytes.to_vec();
        whole.resize(length as usize, 0);
        *blake3::hash(&whole).as_bytes()
    };
    blocks.take(limits::BLOCK_DIGESTS_MAX).map(digest).collect()
}

fn closed() -> Error {
    Error::stale("the file was closed")
}

#[cfg(test)]
mod tests;
