//! Opening files, under a session or by their id alone, and copying between them.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use weft_core::attr::{Attr, Kind, Wcc};
use weft_core::form::New;
use weft_core::form::{
    At, BytesSource, Call, Copied, Door, OpenFile, OpenHow, Opened, Pin, Range, WriteAt, check_carried,
    collect,
};
use weft_core::{Error, FileId, Result, Rights, limits};
use weft_sys::beneath::coarse_now;
use weft_sys::disk::RealFile;

use super::Volume;
use super::attributes::must_have_bytes;
use super::audit::Deed;
use super::descriptors::{Descriptor, Handle};
use super::file::{ExportFile, Held, Looked};
use super::names::taken;
use super::opens::OpenInode;
use super::recent::Read;
use super::version::{GROWTHS_AWAITED, is_of_this_tick, until_grown};
use super::view::{Node, View, hidden};

/// An open that is begun, and ends unless something is opened.
struct Opening {
    volume: Arc<Volume>,
    number: Option<u64>,
}

impl Opening {
    fn opened(mut self, node: &Node, own: Arc<Descriptor>) -> Result<(u64, Handle)> {
        let number = self.number.take().ok_or_else(|| Error::internal("an open is begun once"))?;
        let inode = OpenInode { held: node.held.clone(), path: node.path.clone(), last: None };
        let (handle, surplus) = self.volume.opens.opened(number, node.id, inode, own)?;
        if surplus.is_some() {
            drop(self.volume.sys.blocking(move || drop(surplus)));
        }
        Ok((number, handle))
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.number.iter().for_each(|number| _ = self.volume.opens.close(*number));
    }
}

/// What opening found or made.
struct Found {
    node: Node,
    descriptor: Arc<Descriptor>,
    made: bool,
    parent: Option<Wcc>,
    deed: Option<Deed>,
    /// Whether others may read by the same descriptor.
    shares: bool,
    /// The bytes of what was read a moment ago, if they are few.
    bytes: Option<Bytes>,
}

impl Found {
    fn there(node: Node, descriptor: Arc<Descriptor>) -> Self {
        Self { node, descriptor, made: false, parent: None, deed: None, shares: false, bytes: None }
    }
}

/// What was opened, as one look saw it.
struct Seen {
    attr: Attr,
    /// The count of policy changes before.
    policies: u64,
}

impl View<'_> {
    fn open(&self, at: &At, how: &OpenHow) -> Result<Found> {
        let needs = if how.truncate { how.need | Rights::WRITE } else { how.need };
        let writes = needs.intersects(Rights::WRITE | Rights::APPEND);
        // Whoever reads one version flushes nothing: others need a descriptor of their own to be told what was lost.
        // And native clients keep open for long what they open.
        let only_reads = how.pin == Pin::Version && !writes && how.make.is_none();
        let shares = only_reads && self.call.from.door != Door::Native && self.goes_straight();
        if shares && let Some(found) = self.reopen(at, needs)? {
            return Ok(found);
        }
        let node = match &how.make {
            None => self.existing(at)?,
            Some(make) => {
                let place = self.locate(at)?;
                match (place.node, place.above) {
                    (Some(_), _) if make.exclusive => return Err(taken()),
                    (Some(node), _) => node,
                    (None, Some((dir, name))) => {
                        self.need(&dir, Rights::INSERT)?;
                        let decision = self.decide(&dir, how.need);
                        if !decision.is_allowed() {
                            return Err(self.refusal_of(&dir, &decision));
                        }
                        let above = self.before(&dir);
                        return self.open_new(&dir, &name, make, above);
                    }
                    (None, None) => return Err(hidden()),
                }
            }
        };
        if needs.is_empty() {
            self.need_any(&node)?;
        }
        self.need(&node, needs)?;
        must_have_bytes(&node)?;
        let file = node.held.open_known(&node.facts, writes)?;
        let deed =
            how.truncate.then(|| Deed::of(self, "write", &node, (&node, Rights::WRITE)).of_file(&node));
        if how.truncate {
            file.set_length(0)?;
            self.volume.versions.written(node.id);
            return Ok(Found { deed, ..Found::there(self.again(&node)?, Descriptor::to_share(file)) });
        }
        let descriptor = if shares { Descriptor::own(file) } else { Descriptor::to_share(file) };
        Ok(Found { deed, shares, ..Found::there(node, descriptor) })
    }

    /// Opens what was read a moment ago and is there unchanged, for whoever may read it; all else goes the long way.
    fn reopen(&self, at: &At, needs: Rights) -> Result<Option<Found>> {
        let Some(path) = self.straight_path(at)? else { return Ok(None) };
        let Some(kept) = self.root.recent.kept(&path) else { return Ok(None) };
        let bound = self.policies.root();
        if needs.is_empty() || !self.rights_at(&path, bound, needs).contains(needs) {
            return Ok(None);
        }
        let Some((Read { held, facts, file }, bytes)) = self.root.recent.read(&path, kept) else {
            return Ok(None);
        };
        let node = self.seen(path, held, facts, bound);
        Ok(node.map(|node| Found { bytes, ..Found::there(node, Descriptor::own(file)) }))
    }

    /// Keeps open what a request reads that it opened, for whoever reads it next.
    pub(super) fn keep(&self, looked: &Looked, file: &Arc<RealFile>) {
        let Some(clock) = looked.kept_as_of.filter(|_| !self.root.stalls) else { return };
        let Node { path, held, facts, .. } = &looked.node;
        let read = Read { held: held.clone(), facts: *facts, file: file.clone() };
        self.root.recent.keep(path, &read, clock);
    }

    /// Makes a file and opens it. Its mode bits do not bind the open that makes it: so it is opened
    /// before it has them.
    fn open_new(
        &self,
        dir: &Node,
        name: &weft_core::Name,
        make: &weft_core::form::Make,
        above: weft_core::attr::Before,
    ) -> Result<Found> {
        let mode = super::names::mode_of(Kind::File, make.set.mode.unwrap_or(0o644))?;
        let for_now = weft_core::attr::SetAttr { mode: Some(0o600), ..make.set.clone() };
        let made = self.make_in(dir, name, &New::File { verifier: None }, &for_now);
        let node = made.map_err(|e| if e.kind() == weft_core::ErrorKind::Exists { busy(e) } else { e })?;
        let file = node.held.open_known(&node.facts, true)?;
        node.held.set_mode(mode)?;
        let node = self.again(&node)?;
        let deed = Deed::of(self, "make", &node, (dir, Rights::INSERT)).at(dir, name).of_file(&node);
        let deed = deed.fresh(&node);
        let parent = Some(self.wcc(dir, Some(above)));
        Ok(Found { made: true, parent, deed: Some(deed), ..Found::there(node, Descriptor::to_share(file)) })
    }

    fn by_id(&self, id: FileId, need: Rights) -> Result<(Node, Arc<Descriptor>)> {
        let node = self.node(id)?;
        if need.is_empty() {
            self.need_any(&node)?;
        }
        self.need(&node, need)?;
        must_have_bytes(&node)?;
        let writes = need.intersects(Rights::WRITE | Rights::APPEND);
        let file = node.held.open_known(&node.facts, writes)?;
        Ok((node, Descriptor::own(file)))
    }
}

/// Somebody on the machine made it in between: it may be opened now.
fn busy(error: Error) -> Error {
    Error::new(weft_core::ErrorKind::Busy, "the name was taken meanwhile").hint("try again").caused_by(error)
}

impl Volume {
    pub(super) async fn open(self: &Arc<Self>, call: &Call, at: &At, how: &OpenHow) -> Result<Opened> {
        how.check()?;
        let opening = Opening { volume: self.clone(), number: Some(self.opens.begin(call.session)?) };
        let when = self.sys.clock().tick();
        let clock = coarse_now();
        let (found, mut seen) = self.find_to_open(call, at, how).await?;
        let Found { mut node, descriptor, made, parent, shares, mut bytes, .. } = found;
        let pins = how.pin == Pin::Version;
        for _ in 0..GROWTHS_AWAITED {
            if !pins || !is_of_this_tick(&node.facts) {
                break;
            }
            self.sys.real_sleep(until_grown()).await;
            let look = move |view: &View<'_>| {
                let node = view.again(&node)?;
                Ok((view.attr(&node), node))
            };
            (seen.attr, node) = self.look_whenever(call, look).await?;
            // They were read before that look, and may be of another version.
            bytes = None;
        }
        let (number, handle) = opening.opened(&node, descriptor)?;
        let pinned = pins.then_some((node.facts, seen.attr.version));
        let id = node.id;
        let kept_as_of = shares.then_some(clock);
        let looked = Looked { by: call.trace, when, seen: seen.policies, node, bytes, kept_as_of };
        // Native clients choose the traces of their calls, which tell no requests apart.
        let looked = Mutex::new((call.from.door != Door::Native).then_some(looked));
        let open = Some(Held { number, pinned, looked });
        let file = ExportFile { volume: self.clone(), id, need: how.need, handle: Arc::new(handle), open };
        Ok(Opened { file: Arc::new(file), attr: seen.attr, made, parent })
    }

    /// Finds what is to be opened, or makes or cuts it: which is recorded even if nobody waits for it any more.
    async fn find_to_open(self: &Arc<Self>, call: &Call, at: &At, how: &OpenHow) -> Result<(Found, Seen)> {
        let (place, asked) = (at.clone(), how.clone());
        let look = move |view: &View<'_>| {
            let found = view.open(&place, &asked)?;
            let seen = Seen { attr: view.attr(&found.node), policies: view.seen };
            Ok((found, seen))
        };
        if !how.truncate && how.make.is_none() {
            return self.look(call, look).await;
        }
        let (volume, own) = (self.clone(), call.clone());
        let act = async move {
            let turn = volume.in_turn(&own).await?;
            let (mut found, seen) = volume.look_to_act(&own, look).await?;
            drop(turn);
            if let Some(deed) = found.deed.take() {
                volume.leave(&own, deed).await?;
            }
            Ok((found, seen))
        };
        self.undropped(call, act).await
    }

    pub(super) async fn file(self: &Arc<Self>, call: &Call, id: FileId, need: Rights) -> Result<ExportFile> {
        check_carried(need)?;
        let (node, own) = self.look(call, move |view| view.by_id(id, need)).await?;
        let handle = Arc::new(Handle::of(own));
        Ok(ExportFile { volume: self.clone(), id: node.id, need, handle, open: None })
    }

    pub(super) async fn copy(
        self: &Arc<Self>,
        call: &Call,
        from: &At,
        range: Range,
        to: &At,
        offset: u64,
    ) -> Result<Copied> {
        let (from, to) = (from.clone(), to.clone());
        let (source, target) = self
            .look(call, move |view| {
                let (source, target) = (view.existing(&from)?, view.existing(&to)?);
                view.need(&source, Rights::READ)?;
                view.need(&target, Rights::WRITE)?;
                must_have_bytes(&source)?;
                must_have_bytes(&target)?;
                Ok((source, target))
            })
            .await?;
        let (start, length) = range.within(source.facts.size);
        let read = self.file(call, source.id, Rights::READ).await?;
        let write = self.file(call, target.id, Rights::WRITE).await?;
        let kept = target.clone();
        let before = self.look_whenever(call, move |view| Ok(view.before(&kept))).await?;
        // Of a file onto itself further up, the last piece goes first: nothing is overwritten before it
        // was read.
        let backwards = source.id == target.id && offset > start;
        let (mut done, mut copied) = (0, length);
        while done < length {
            let piece = (length - done).min(limits::PIECE_BYTES_MAX as u64);
            let at = if backwards { length - done - piece } else { done };
            let mut bytes = read.read(call, Range { at: start + at, length: Some(piece) }).await?;
            let held = collect(&mut *bytes, limits::PIECE_BYTES_MAX).await?;
            let there = held.len() as u64;
            let to = offset.checked_add(at).ok_or_else(|| Error::invalid("the offset is too large"))?;
            write.write(call, WriteAt::Offset(to), &mut BytesSource::new(held)).await?;
            done += piece;
            // The source was cut meanwhile: what is behind its end is no copy of anything.
            if there < piece {
                copied = at + there;
                if !backwards {
                    break;
                }
            }
        }
        let file = self.look_whenever(call, move |view| Ok(view.wcc(&target, Some(before)))).await?;
        Ok(Copied { bytes: copied, file })
    }
}
