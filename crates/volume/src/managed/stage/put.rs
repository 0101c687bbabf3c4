//! Putting a part: what is small stays in its row, what is not goes to an object.

use bytes::{Bytes, BytesMut};
use weft_core::form::{Ack, Call, Part, Range, Shape, Source, Stopped, WriteAt};
use weft_core::proof::Granted;
use weft_core::{ContainerId, Error, ErrorKind, ObjectId, Result, limits};
use weft_kv::SpaceTxn;

use super::{ManagedStage, Standing, check_number, object_of, shown};
use crate::managed::Making;
use crate::managed::drop_box::{Pace, full};
use crate::managed::source::Inbound;
use crate::managed::stages::{Coming, Tail};
use crate::managed::table::stages::{self, PartBytes, PartRow, StageRow};
use crate::managed::table::unnamed;

/// Pulls as much as may stay in a row, after what a part has there: more than that if there is
/// more. `None` if it has an object.
pub(super) async fn pull_small(
    held: Option<&PartRow>,
    inbound: &mut Inbound<'_>,
) -> Result<Option<BytesMut>> {
    let mut bytes = match held {
        None => BytesMut::new(),
        Some(PartRow { held: PartBytes::Inline(held), .. }) => BytesMut::from(&held[..]),
        Some(_) => return Ok(None),
    };
    while bytes.len() as u64 <= limits::INLINE_BYTES_MAX {
        match inbound.next(limits::PIECE_BYTES_MAX).await? {
            Some(piece) => bytes.extend_from_slice(&piece.into_bytes()?),
            None => break,
        }
    }
    Ok(Some(bytes))
}

/// Returns a part that stays in its row.
pub(super) fn inline(bytes: BytesMut) -> PartRow {
    let digest = *blake3::hash(&bytes).as_bytes();
    PartRow { bytes: bytes.len() as u64, digest, held: PartBytes::Inline(bytes.freeze()) }
}

/// A part being put.
pub(super) struct Putting {
    pub(super) row: StageRow,
    pub(super) number: u32,
    /// What it held so far, if it is gone on with.
    pub(super) held: Option<PartRow>,
    /// Bytes it may have in all.
    pub(super) room: u64,
    /// The verifier under which it was looked at: what is not flushed counts for as long as that is it.
    pub(super) verifier: u64,
    /// Whether its sender drops it, and learns nothing of what is there.
    pub(super) drops: bool,
}

impl Putting {
    /// Returns how many bytes the part has so far, if it is gone on with.
    fn there(&self) -> u64 {
        self.held.as_ref().map_or(0, |part| part.bytes)
    }

    /// Returns whether its bytes go on where they are; else what it has there goes.
    pub(super) fn goes_on_in_place(&self) -> bool {
        self.held.as_ref().is_some_and(|part| object_of(&part.held).is_some())
    }
}

/// What the bytes of a part are poured into.
struct Vessel {
    object: ObjectId,
    /// Where the next byte goes.
    start: u64,
    /// Keeps the sweep off one that is new.
    making: Option<Making>,
}

/// What became of bytes that were poured.
pub(super) struct Poured {
    pub(super) object: ObjectId,
    /// Keeps the sweep off an object that is new.
    pub(super) making: Option<Making>,
    /// All that were pulled, with what was there before.
    pub(super) pulled: Tail,
    /// Counts them until a row does.
    pub(super) coming: Coming,
    /// Whether the store may have pulled more than it wrote.
    torn: bool,
    /// Why they ended early, if they did.
    pub(super) failed: Option<Error>,
}

impl ManagedStage {
    /// Begins or goes on with a part.
    pub(super) fn begin(&self, call: &Call, number: u32, offset: u64) -> Result<Putting> {
        let verifier = self.volume.verifier().0;
        self.volume.look(call, |view| {
            let (row, spot) = self.found(view)?;
            let drops = view.drops_into(&spot.dir)?;
            let held = view.part(self.id, number)?.filter(|_| offset > 0);
            let there = held.as_ref().map_or(0, |part| part.bytes);
            if offset != there {
                let detail = format!("the part has {there} bytes: go on there or start again at 0");
                return Err(Error::invalid(detail));
            }
            let room = view.room_for_part(self.id, &row, number)?;
            Ok(Putting { row, number, held, room, verifier, drops })
        })
    }

    async fn write_row(&self, call: &Call, number: u32, part: PartRow) -> Result<Part> {
        let (id, shown) = (self.id, shown(number, &part));
        self.volume.change_whenever(call, call.ack, move |act| act.put_part(id, number, &part)).await?;
        Ok(shown)
    }

    /// Puts a part whose first bytes were pulled already.
    pub(super) async fn put_after(
        &self,
        call: &Call,
        number: u32,
        offset: u64,
        (first, data): (Option<Bytes>, &mut dyn Source),
    ) -> Result<Part> {
        check_number(number)?;
        // Somebody else's bytes may be waited for: nobody's transfer waits along.
        data.yield_turn();
        let now = self.volume.sys.clock().tick();
        let tail = self.volume.stagings.tail(self.id, number, now).lock_owned();
        let mut tail = self.volume.sys.within(call.until, async { Ok(tail.await) }).await?;
        // Only now: whoever had the part until here may have begun it again.
        let putting = self.begin(call, number, offset)?;
        let drops = putting.drops;
        let standing = Standing::new(&self.volume, &putting.row, call);
        let check = || standing.check();
        let mut inbound = Inbound::new(&check, first, data, putting.room.saturating_sub(putting.there()));
        let small = pull_small(putting.held.as_ref(), &mut inbound).await?;
        let (failed, rest) = (inbound.failed.take(), inbound.first.take());
        drop(inbound);
        let part = match small {
            Some(bytes) if bytes.len() as u64 <= limits::INLINE_BYTES_MAX => {
                self.write_row(call, number, inline(bytes)).await
            }
            Some(mut bytes) => {
                bytes.extend_from_slice(&rest.unwrap_or_default());
                let first = Some(bytes.freeze());
                self.put_large(call, &putting, &mut tail, &standing, (first, data)).await
            }
            None => self.put_large(call, &putting, &mut tail, &standing, (rest, data)).await,
        };
        self.volume.stagings.touch(self.id, number, self.volume.sys.clock().tick());
        let put = match failed {
            Some(error) => part.and(Err(error)),
            None => part,
        };
        put.map_err(|error| if drops { full(error) } else { error })
    }

    /// Puts the rest of a part into an object: its own from before, or a new one.
    async fn put_large(
        &self,
        call: &Call,
        putting: &Putting,
        tail: &mut Tail,
        standing: &Standing<'_>,
        data: (Option<Bytes>, &mut dyn Source),
    ) -> Result<Part> {
        let Poured { object, making, pulled, coming: _coming, torn, failed } =
            self.pour_rest(call, putting, tail, standing, data).await?;
        let noted = self.note(call, putting, (object, making), tail, (pulled, torn)).await;
        if noted.is_err() {
            // What the row says is not what came here.
            *tail = Tail::default();
        }
        let part = failed.map_or(noted, Err);
        if part.is_err() {
            self.drop_unnamed(putting, object).await;
        }
        part
    }

    /// Pours the rest of a part into an object, of which no row says anything yet.
    pub(super) async fn pour_rest(
        &self,
        call: &Call,
        putting: &Putting,
        tail: &mut Tail,
        standing: &Standing<'_>,
        (first, data): (Option<Bytes>, &mut dyn Source),
    ) -> Result<Poured> {
        let label = putting.row.container;
        let more = first.as_ref().map_or(0, Bytes::len) as u64 + data.length().unwrap_or(0);
        // A length is only what the sender says: others' uploads are given up for a piece at a time,
        // on a disk that has no room for that. No other transfer waits along.
        data.yield_turn();
        self.volume.make_room(more.min(putting.room).min(limits::PIECE_BYTES_MAX as u64)).await?;
        let Vessel { object, start, making } = self.vessel(call, putting, tail, data.stopped()).await?;
        let check = || standing.check();
        // The whole of it: were this dropped on the way, a hash of nothing would be left for bytes.
        let mut own = std::mem::take(tail);
        let mut tap = |bytes: &[u8]| _ = own.hasher.update(bytes);
        let room = putting.room.saturating_sub(start);
        let mut coming = Coming::new(&self.volume.stagings, label);
        let clock = self.volume.sys.clock();
        let mut pace = putting.drops.then(|| Pace::begin(clock.tick()));
        let mut admit = |bytes: u64| {
            if let Some(pace) = &mut pace {
                pace.step(clock.tick(), bytes)?;
            }
            let coming = coming.add(bytes);
            self.volume.look_whenever(call, |view| view.room_as_they_come(self.id, putting, coming))
        };
        let mut inbound = Inbound::new(&check, first, data, room);
        inbound.tap = Some(&mut tap);
        inbound.admit = Some(&mut admit);
        let mut torn = false;
        let poured = self.pour(call, (label, object), start, &mut inbound, &mut torn).await;
        let (passed, failed) = (inbound.passed, inbound.failed.take());
        drop(inbound);
        data.yield_turn();
        let pulled = Tail { bytes: start + passed, ..own };
        Ok(Poured { object, making, pulled, coming, torn, failed: poured.err().or(failed) })
    }

    /// Notes what a part has after bytes were poured: all that were pulled, or what is stored of them. What was on
    /// disk stays so: if what came after it cannot be flushed, the row says what it said.
    async fn note(
        &self,
        call: &Call,
        putting: &Putting,
        (object, making): (ObjectId, Option<Making>),
        tail: &mut Tail,
        (pulled, torn): (Tail, bool),
    ) -> Result<Part> {
        let (number, label) = (putting.number, putting.row.container);
        *tail = if torn { self.kept(call, (label, object), pulled).await? } else { pulled };
        if making.is_some() && tail.bytes <= putting.there() {
            return Err(Error::new(ErrorKind::Unavailable, "the part has no more bytes than before"));
        }
        let mut unsynced = Some(putting.verifier);
        if call.ack == Ack::Durable || putting.held.as_ref().is_some_and(PartRow::is_flushed) {
            self.volume.store.sync(&self.granted(call, label, object)?, object).await?;
            unsynced = None;
        }
        let held = PartBytes::Object { object, unsynced };
        let digest = *tail.hasher.finalize().as_bytes();
        let part = PartRow { bytes: tail.bytes, digest, held };
        let (own, call) = (Self::of(&self.volume, self.id), call.clone());
        // The sweep is kept off it until the row is there, also if nobody waits for that any more.
        let write = async move {
            let _making = making;
            own.write_row(&call, number, part).await
        };
        self.volume.sys.spawn(write).await?
    }

    /// Has an object removed that was begun for a part whose row names it not.
    pub(super) async fn drop_unnamed(&self, putting: &Putting, object: ObjectId) {
        let (id, number, label) = (self.id, putting.number, putting.row.container);
        let act = move |txn: &mut SpaceTxn<'_>| {
            let named = stages::part(txn, id, number)?.and_then(|part| object_of(&part.held));
            if named == Some(object) { Ok(()) } else { unnamed::add_garbage(txn, object, label) }
        };
        if let Err(error) = self.volume.space.write(Ack::Applied, act).await {
            tracing::debug!(%error, %object, "the sweep finds what was begun of a part");
        }
        self.volume.to_tidy.notify_one();
    }

    /// Returns what a part's bytes go on in. Of a new object no row says anything until it has them: what the row
    /// holds is the part's until then.
    async fn vessel(
        &self,
        call: &Call,
        putting: &Putting,
        tail: &mut Tail,
        stopped: Stopped,
    ) -> Result<Vessel> {
        let label = putting.row.container;
        if let Some(PartRow { bytes, held: PartBytes::Object { object, .. }, .. }) = putting.held {
            let granted = self.granted(call, label, object)?;
            self.catch_up((&granted, object), tail, bytes, stopped).await?;
            self.volume.store.shape(&granted, object, Shape::Truncate(bytes)).await?;
            return Ok(Vessel { object, start: bytes, making: None });
        }
        let object = self.volume.new_object().await?;
        let making = Some(self.volume.making(object, label));
        self.volume.store.make(&self.granted(call, label, object)?, object, None).await?;
        *tail = Tail::default();
        Ok(Vessel { object, start: 0, making })
    }

    /// Hashes what an object holds, up to so many bytes: the hash so far went with a restart. If whoever sends is
    /// told to stop meanwhile, the next goes on where this was.
    async fn catch_up(
        &self,
        (granted, object): (&Granted, ObjectId),
        tail: &mut Tail,
        bytes: u64,
        mut stopped: Stopped,
    ) -> Result<()> {
        if tail.bytes > bytes {
            *tail = Tail::default();
        }
        if tail.bytes == bytes {
            return Ok(());
        }
        let range = Range { at: tail.bytes, length: Some(bytes - tail.bytes) };
        let mut source = self.volume.store.read(granted, object, range).await?;
        loop {
            let piece = tokio::select! {
                biased;
                why = &mut stopped => return Err(why),
                piece = source.next(limits::PIECE_BYTES_MAX) => piece?,
            };
            let Some(piece) = piece else { break };
            let piece = piece.into_bytes()?;
            tail.hasher.update(&piece);
            tail.bytes += piece.len() as u64;
        }
        if tail.bytes == bytes {
            return Ok(());
        }
        Err(Error::corrupt("the staged bytes are fewer than were put").about(object))
    }

    /// Pours bytes into an object. `torn` says whether the store may have pulled more than it wrote.
    async fn pour(
        &self,
        call: &Call,
        (label, object): (ContainerId, ObjectId),
        start: u64,
        inbound: &mut Inbound<'_>,
        torn: &mut bool,
    ) -> Result<()> {
        loop {
            let granted = self.granted(call, label, object)?;
            let at = WriteAt::Offset(start + inbound.passed);
            let wrote = self.volume.store.write(&granted, object, at, inbound).await;
            let Err(error) = wrote else { return Ok(()) };
            inbound.push_back();
            if !matches!(error.kind(), ErrorKind::Revoked | ErrorKind::Expired) {
                self.volume.met_full_disk(&error);
                *torn = true;
                return Err(error);
            }
            if let Err(error) = (inbound.check)() {
                *torn = true;
                return Err(error);
            }
        }
    }

    /// Returns what is stored of a part when the store could not write all that it had pulled.
    async fn kept(
        &self,
        call: &Call,
        (label, object): (ContainerId, ObjectId),
        pulled: Tail,
    ) -> Result<Tail> {
        let granted = self.granted(call, label, object)?;
        let bytes = self.volume.store.stat(&granted, object).await?.size;
        if bytes >= pulled.bytes {
            return Ok(pulled);
        }
        let mut tail = Tail::default();
        self.catch_up((&granted, object), &mut tail, bytes, Box::pin(std::future::pending())).await?;
        Ok(tail)
    }
}
