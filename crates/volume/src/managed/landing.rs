//! Writing into a file's object. Bytes are pulled first, while nobody waits for whoever
//! brings them; then the file's gate is taken, for as long as one piece takes to land.
//!
//! A piece lands in a task of its own, so that what was begun is counted in the rows
//! even if its caller goes away. It is marked before it is written, under the gate:
//! whoever settles the file, and takes the mark away, has the gate alone.

use std::sync::Arc;

use bytes::BytesMut;
use futures_util::future::try_join;
use tokio::sync::OwnedMutexGuard;
use weft_core::attr::Wcc;
use weft_core::form::{Ack, BytesSource, Piece, Source, Stopped, WriteAt, Written};
use weft_core::proof::Objects;
use weft_core::service::ObjectStat;
use weft_core::{ContainerId, Deadline, Error, ErrorKind, ObjectId, Result, Rights, limits};

use super::Volume;
use super::bytes::{Wrote, used_of};
use super::files::Writing;
use super::lease::Lease;
use super::names::check_size;
use super::table::inodes::Layout;

/// Bytes on their way from a client into a file, each piece after a look at the right.
pub(super) struct Pull<'a> {
    lease: &'a Arc<Lease>,
    data: &'a mut dyn Source,
    stopped: Stopped,
    /// What was pulled and is to be handed out again.
    first: Option<Piece>,
    ended: bool,
    /// Why the source ended early, if it did: what came before is written.
    pub(super) failed: Option<Error>,
}

impl<'a> Pull<'a> {
    pub(super) fn new(lease: &'a Arc<Lease>, data: &'a mut dyn Source) -> Self {
        let stopped = Box::pin(lease.clone().stopped());
        Self { lease, data, stopped, first: None, ended: false, failed: None }
    }

    /// Returns the next piece; `None` at the end.
    async fn next(&mut self) -> Option<Piece> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        while !self.ended {
            match self.pull().await {
                Ok(Some(piece)) if piece.length() == 0 => {}
                Ok(Some(piece)) => return Some(piece),
                Ok(None) => self.ended = true,
                Err(error) => self.fail(error),
            }
        }
        None
    }

    fn fail(&mut self, why: Error) {
        (self.ended, self.failed) = (true, Some(why));
    }

    async fn pull(&mut self) -> Result<Option<Piece>> {
        self.lease.check()?;
        tokio::select! {
            biased;
            piece = self.data.next(limits::PIECE_BYTES_MAX) => piece,
            why = &mut self.stopped => Err(why),
        }
    }

    /// Gathers bytes until there are more than `few`, or no more. Those of a first piece that has more stay where they are.
    pub(super) async fn gather(&mut self, few: usize) -> Piece {
        let mut bytes = BytesMut::new();
        while bytes.len() <= few
            && let Some(piece) = self.next().await
        {
            if bytes.is_empty() && piece.length() > few {
                return piece;
            }
            match piece.into_bytes() {
                Ok(more) => bytes.extend_from_slice(&more),
                Err(error) => self.fail(error),
            }
        }
        Piece::Bytes(bytes.freeze())
    }

    pub(super) fn push_back(&mut self, piece: Piece) {
        self.first = Some(piece).filter(|piece| piece.length() > 0);
    }

    /// Whether everything was handed out.
    pub(super) fn has_ended(&self) -> bool {
        self.ended && self.first.is_none()
    }
}

/// Where a write's next piece goes.
#[derive(Clone, Copy)]
struct Next {
    at: WriteAt,
    /// The object that earlier pieces of the same write went to.
    object: Option<ObjectId>,
}

/// What has landed of a write.
#[derive(Clone, Copy)]
struct Landed {
    at: u64,
    bytes: u64,
    object: ObjectId,
    file: Wcc,
}

impl Landed {
    fn and(self, more: Self) -> Self {
        let file = Wcc { before: self.file.before, after: more.file.after };
        Self { bytes: self.bytes + more.bytes, file, ..self }
    }

    fn next(&self) -> Next {
        Next { at: WriteAt::Offset(self.at + self.bytes), object: Some(self.object) }
    }
}

impl Volume {
    /// Writes what is pulled into a file's object.
    pub(super) async fn write_object(
        self: &Arc<Self>,
        lease: &Arc<Lease>,
        at: WriteAt,
        pull: &mut Pull<'_>,
    ) -> Result<Written> {
        let landed = match at {
            WriteAt::Offset(start) => {
                check_size(start)?;
                self.land_all(lease, Next { at, object: None }, pull).await?
            }
            WriteAt::End => self.append(lease, pull).await?,
        };
        if let Some(error) = pull.failed.take() {
            return Err(error);
        }
        let (ack, verifier) = (lease.call.ack, self.verifier());
        if ack == Ack::Durable {
            if let Some(landed) = &landed {
                self.sync_object(&lease.call, lease.id, landed.object).await?;
            }
            self.space.flush().await?;
        }
        let Some(Landed { at: start, bytes, file, .. }) = landed else {
            return self.nothing_written(lease, at);
        };
        Ok(Written { at: start, bytes, file, ack, verifier })
    }

    fn nothing_written(&self, lease: &Lease, at: WriteAt) -> Result<Written> {
        self.look_whenever(&lease.call, |view| {
            let node = view.node(lease.id)?;
            let at = match at {
                WriteAt::Offset(at) => at,
                WriteAt::End => node.inode.size,
            };
            let file = view.wcc(lease.id, Some(view.before(&node)?))?;
            Ok(Written { at, bytes: 0, file, ack: lease.call.ack, verifier: self.verifier() })
        })
    }

    /// Lands piece by piece; while one lands the next is pulled.
    async fn land_all(
        self: &Arc<Self>,
        lease: &Arc<Lease>,
        mut next: Next,
        pull: &mut Pull<'_>,
    ) -> Result<Option<Landed>> {
        let mut all: Option<Landed> = None;
        let mut piece = pull.next().await;
        while let Some(lands) = piece {
            let landing = self.lands(lease, next, lands, None);
            let (landed, more) = try_join(landing, async { Ok(pull.next().await) }).await?;
            let so_far = all.map_or(landed, |all| all.and(landed));
            (next, all, piece) = (so_far.next(), Some(so_far), more);
        }
        Ok(all)
    }

    /// Writes at the end. What is gathered goes there in one piece. A longer append keeps
    /// other appends from the end until its last byte, but must bring its bytes.
    async fn append(self: &Arc<Self>, lease: &Arc<Lease>, pull: &mut Pull<'_>) -> Result<Option<Landed>> {
        let mut piece = pull.gather(limits::APPEND_HELD_BYTES).await;
        if piece.length() == 0 {
            return Ok(None);
        }
        let writing = self.files.of(lease.id.serial());
        let end = writing.tail.clone().lock_owned();
        let end = Arc::new(self.sys.within(lease.call.until, async { Ok(end.await) }).await?);
        let (mut next, mut all) = (Next { at: WriteAt::End, object: None }, None::<Landed>);
        loop {
            let landed = self.lands(lease, next, piece, Some(end.clone())).await?;
            let so_far = all.map_or(landed, |all| all.and(landed));
            (next, all) = (so_far.next(), Some(so_far));
            if pull.has_ended() {
                return Ok(all);
            }
            let deadline = Deadline::within(self.sys.clock(), limits::APPEND_WAIT);
            match self.sys.within(deadline, async { Ok(pull.next().await) }).await? {
                Some(more) => piece = more,
                None => return Ok(all),
            }
        }
    }

    /// Lands one piece, whether or not its caller waits for it; an append's keeps the end until then.
    async fn lands(
        self: &Arc<Self>,
        lease: &Arc<Lease>,
        next: Next,
        piece: Piece,
        end: Option<Arc<OwnedMutexGuard<()>>>,
    ) -> Result<Landed> {
        let (volume, lease) = (self.clone(), lease.clone());
        let landing = async move {
            let landed = volume.land(&lease, next, &piece).await;
            drop(end);
            landed
        };
        self.sys.spawn(landing).await?
    }

    async fn land(self: &Arc<Self>, lease: &Lease, next: Next, piece: &Piece) -> Result<Landed> {
        let writing = self.files.of(lease.id.serial());
        for _ in 0..limits::PROMOTIONS_MAX {
            if let Some(landed) = self.land_in_object(&writing, lease, next, piece).await? {
                return Ok(landed);
            }
            self.promoted(lease).await?;
        }
        Err(changed_meanwhile())
    }

    /// Lands a piece if the file has an object by now. `None` if it has not.
    async fn land_in_object(
        self: &Arc<Self>,
        writing: &Arc<Writing>,
        lease: &Lease,
        next: Next,
        piece: &Piece,
    ) -> Result<Option<Landed>> {
        let bytes = piece.length() as u64;
        // An append goes alone: the end is where all that was begun before has ended.
        let (_shared, _alone) = match next.at {
            WriteAt::Offset(_) => (Some(writing.gate.read().await), None),
            WriteAt::End => (None, Some(writing.gate.write().await)),
        };
        lease.check()?;
        let node = self.look_whenever(&lease.call, |view| view.node(lease.id))?;
        let (object, label) = match (node.inode.layout, next.object) {
            (Layout::Whole { object, label }, earlier) if earlier.is_none_or(|earlier| earlier == object) => {
                (object, label)
            }
            (Layout::Inline, None) => return Ok(None),
            _ => return Err(changed_meanwhile()),
        };
        let start = match next.at {
            WriteAt::Offset(at) => at,
            WriteAt::End => node.inode.size,
        };
        let end = start.saturating_add(bytes);
        check_size(end)?;
        let room = self.room_to_write(lease, &node, start, end)?;
        self.mark(writing, lease.id.serial()).await?;
        let stroke = self.files.begin(writing, object);
        let poured = self.pour(lease, (object, label), start, piece).await;
        writing.written(self.sys.clock().tick());
        let wrote = match &poured {
            Ok(stat) => Wrote { object, bytes, end, used: Some(used_of(stat)), torn: false },
            Err(_) => self.torn(lease, (object, label)).await,
        };
        let (id, op) = (lease.id, lease.op);
        let noted =
            self.change_whenever(&lease.call, Ack::Applied, move |act| act.note_written(id, op, &wrote));
        let file = noted.await;
        match &file {
            Ok(_) => drop(stroke),
            // Its bytes are others now, under the version of before.
            Err(_) => stroke.untold(),
        }
        drop(room);
        poured?;
        Ok(Some(Landed { at: start, bytes, object, file: file? }))
    }

    /// What a write that failed may have done, as far as the store can tell.
    async fn torn(&self, lease: &Lease, (object, label): (ObjectId, ContainerId)) -> Wrote {
        let granted = self.look_whenever(&lease.call, |view| {
            self.upkeep(view.read, label, Objects::Only(vec![object]), Rights::READ)
        });
        let stat = match granted {
            Ok(granted) => self.store.stat(&granted, object).await.ok(),
            Err(_) => None,
        };
        let (end, used) = (stat.map_or(0, |stat| stat.size), stat.map(|stat| used_of(&stat)));
        Wrote { object, bytes: 0, end, used, torn: true }
    }

    /// Writes one piece, with a new proof whenever the old one is withdrawn and the right
    /// is not. Written twice it is the same.
    async fn pour(
        self: &Arc<Self>,
        lease: &Lease,
        (object, label): (ObjectId, ContainerId),
        start: u64,
        piece: &Piece,
    ) -> Result<ObjectStat> {
        loop {
            lease.check()?;
            let granted = lease.granted_on(object, label)?;
            let mut source = BytesSource::of(piece.clone());
            match self.store.write(&granted, object, WriteAt::Offset(start), &mut source).await {
                Ok(written) => return Ok(written.stat),
                Err(error) if matches!(error.kind(), ErrorKind::Revoked | ErrorKind::Expired) => {
                    lease.renew()?;
                }
                Err(error) => {
                    self.met_full_disk(&error);
                    return Err(error);
                }
            }
        }
    }
}

pub(super) fn changed_meanwhile() -> Error {
    Error::new(ErrorKind::Conflict, "the file was replaced by somebody else meanwhile")
}
