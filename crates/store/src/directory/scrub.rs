//! The scrubber: reads everything there is, slowly, round after round, so that what rots on the disk is
//! found while a backup has it still.
//!
//! A round goes over objects in the order of their ids, block by block, each compared with its seal as for a
//! reader. What has no seal just now, because somebody writes it, is left to the next round. Where it is
//! is recorded now and then, what it finds at once: a crash costs half a minute of reading, and tells nothing
//! twice.
//!
//! It takes up one object at a time, as a reader would, since a block that comes into memory unseen must not
//! be believed; and it forgets what it read unless that was in memory before. What is in memory is compared
//! as it is there: of the disk it says nothing until it has left the memory.

mod found;
mod look;
mod record;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weft_core::form::Ack;
use weft_core::service::Scrub;
use weft_core::{Error, ErrorKind, ObjectId, Result, Tick, limits};
use weft_kv::{Order, Read, Space, SpaceTxn, Txn, prefix_end};

use self::look::{Ahead, Looked};
use self::record::{Found, Place, Round};
use super::Inner;
use super::live::Live;
use super::rows::{DAMAGED, OBJECTS, ROUND, object_at, object_key};
use super::seals::blocks_in;

/// What is known of it, and how it is told what to do.
pub(super) struct Scrubber {
    /// Bytes in a second; 0 is none.
    rate: AtomicU64,
    wake: Arc<tokio::sync::Notify>,
    state: Mutex<State>,
}

struct State {
    round: Round,
    /// Whether somebody wants a round that has not begun.
    asked: bool,
    /// As it is recorded.
    noted: Round,
    /// When it is to be recorded again.
    note_at: Tick,
    found: BTreeMap<ObjectId, Found>,
    /// The object that was last counted as one beyond those.
    beyond: Option<ObjectId>,
    /// Whether a block of the object under way could not be looked at.
    skipped: bool,
    /// What came into memory ahead of the next step.
    ahead: Ahead,
    /// Blocks to be looked at out of their turn, the next one first.
    again: VecDeque<(ObjectId, u64)>,
    /// Whether the last step was one of those.
    looked_again: bool,
    /// When what was found is to be looked after again, if there is nothing else to do.
    tend_at: Tick,
    /// When the last step ended.
    stepped: Tick,
    /// What it cost, in bytes, and is not to be spent until then.
    cost: u64,
    /// Until then no round begins that nobody asked for.
    quiet_until: Tick,
    /// Objects looked up in the store when the last step ended.
    lookups: u64,
    /// Pieces that others had read or written by then.
    pieces: u64,
    /// Whether somebody else used it between the last two steps.
    in_use: bool,
}

/// Starts it. It ends when the store is dropped.
pub(super) fn start(inner: &Arc<Inner>) {
    inner.count_damaged();
    inner.count_end();
    let (weak, wake, sys) = (Arc::downgrade(inner), inner.scrubber.wake.clone(), inner.sys.clone());
    // Nobody waits for it: it ends by itself.
    drop(inner.sys.spawn(async move {
        loop {
            let next = match weak.upgrade() {
                Some(inner) if !*inner.closing.borrow() => inner.scrub_on().await,
                _ => return,
            };
            match next {
                None => wake.notified().await,
                Some(at) => {
                    tokio::select! {
                        () = wake.notified() => {}
                        () = sys.sleep_until(at) => {}
                    }
                }
            }
        }
    }));
}

impl Scrubber {
    /// Takes up where it was. A record that cannot be read is as none: a round begins anew.
    pub(super) fn open(space: &Space, rate: u64, now: Tick) -> Result<Self> {
        let records = space.snapshot()?;
        let round = records.get(ROUND)?.and_then(|row| Round::decode(&row).ok()).unwrap_or_default();
        let mut found = BTreeMap::new();
        for row in records.scan(&[DAMAGED], &prefix_end(&[DAMAGED]), Order::Rising) {
            let (key, value) = row?;
            if let (Ok(object), Ok(what)) = (object_at(&key, 1), Found::decode(&value)) {
                found.insert(object, what);
            }
            if found.len() >= limits::SCRUB_DAMAGED_MAX {
                break;
            }
        }
        let state = State {
            round,
            asked: false,
            noted: round,
            note_at: now.plus(limits::SCRUB_NOTE_EVERY),
            found,
            beyond: None,
            // Of an object that was under way nobody knows what was left out.
            skipped: true,
            ahead: Ahead::default(),
            again: VecDeque::new(),
            looked_again: false,
            tend_at: now,
            stepped: now,
            cost: 0,
            quiet_until: now.plus(limits::SCRUB_AFTER_START),
            lookups: 0,
            pieces: 0,
            in_use: false,
        };
        Ok(Self { rate: AtomicU64::new(rate), wake: Arc::default(), state: Mutex::new(state) })
    }

    /// Has a round begun: after the one that is under way, if one is.
    pub(super) fn ask(&self) -> Result<()> {
        if self.rate() == 0 {
            return Err(Error::new(ErrorKind::Conflict, "the scrubber is switched off")
                .op("scrub")
                .hint("set `scrub` in weft.toml, and send SIGHUP"));
        }
        {
            let mut state = self.state();
            state.asked = true;
            // One that rests after a start goes on.
            state.quiet_until = Tick(0);
        }
        self.wake();
        Ok(())
    }

    pub(super) fn set_rate(&self, rate: u64) {
        self.rate.store(rate, Ordering::Relaxed);
        self.wake();
    }

    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Returns when the next step is due at a rate: later if others use the store.
    fn due(&self, rate: u64) -> Tick {
        let state = self.state();
        let slower = if state.in_use { limits::SCRUB_SLOWER_IN_USE } else { 1 };
        state.stepped.plus(time_for(state.cost, rate).saturating_mul(slower))
    }

    fn rate(&self) -> u64 {
        self.rate.load(Ordering::Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change leaves the state whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Returns how far it is, without what is damaged and was removed since.
    pub(super) fn scrubbed(&self) -> Result<Scrub> {
        let (round, asked, found) = {
            let state = self.scrubber.state();
            let found: Vec<_> = state.found.iter().map(|(object, found)| found.of(*object)).collect();
            (state.round, state.asked, found)
        };
        let records = self.space.snapshot()?;
        let mut damaged = Vec::new();
        for damage in found {
            if records.get(&object_key(OBJECTS, damage.object))?.is_some() {
                damaged.push(damage);
            }
        }
        Ok(Scrub {
            bytes_per_second: self.scrubber.rate(),
            rounds: round.number,
            asked,
            began: round.at.map(|_| round.began),
            ended: round.ended,
            objects: round.objects,
            bytes: round.bytes,
            damaged,
            beyond: round.beyond,
        })
    }

    /// Does what is due. Returns when to come again; `None` if there is nothing to come for.
    async fn scrub_on(self: &Arc<Self>) -> Option<Tick> {
        let rate = self.scrubber.rate();
        if rate == 0 {
            return self.look_after().await;
        }
        let due = self.scrubber.due(rate);
        if due > self.clock().tick() {
            return Some(due);
        }
        match self.scrub_step().await {
            Ok(Some(cost)) => {
                {
                    let mut state = self.scrubber.state();
                    (state.stepped, state.cost) = (self.clock().tick(), cost);
                }
                // It may have been told another rate meanwhile.
                Some(self.scrubber.due(self.scrubber.rate()))
            }
            Ok(None) => Some(self.clock().tick().plus(limits::SCRUB_REST)),
            Err(error) => {
                // The engine closes while this runs; the next start goes on.
                if !*self.closing.borrow() {
                    tracing::warn!(op = "scrub", error = ?error, "will be tried again");
                }
                self.look_after().await;
                Some(self.clock().tick().plus(limits::SCRUB_REST))
            }
        }
    }

    /// Looks after what was found, without reading anything. Returns when to do so again, if anything is left.
    async fn look_after(&self) -> Option<Tick> {
        if let Err(error) = self.tend_found().await
            && !*self.closing.borrow()
        {
            tracing::warn!(op = "scrub", error = ?error, "what was found damaged is not looked after");
        }
        let is_whole = self.scrubber.state().found.is_empty();
        (!is_whole).then(|| self.clock().tick().plus(limits::SCRUB_REST))
    }

    /// Looks at a block, or begins or ends a round. Returns what that cost, in bytes; `None` if there is
    /// nothing to do.
    async fn scrub_step(&self) -> Result<Option<u64>> {
        let lookups = self.lookups.load(Ordering::Relaxed);
        let is_quiet = self.clock().tick() < self.scrubber.state().quiet_until;
        let cost = match self.scrubber.next_again(is_quiet) {
            Some((object, block)) => Some(self.look_again(object, block).await?),
            None if is_quiet => None,
            None => self.go_on().await?,
        };
        self.note_use(lookups);
        Ok(cost)
    }

    /// Notes whether others used the store since the last step, or, by pieces, during this one. `lookups` are those
    /// before it: its own are no use.
    fn note_use(&self, lookups: u64) {
        let (now, pieces) = (self.lookups.load(Ordering::Relaxed), self.pieces.load(Ordering::Relaxed));
        let mut state = self.scrubber.state();
        let looked_up = std::mem::replace(&mut state.lookups, now) != lookups;
        let moved = std::mem::replace(&mut state.pieces, pieces) != pieces;
        state.in_use = looked_up || moved;
    }

    /// Goes on with the round, or begins one if it is time.
    async fn go_on(&self) -> Result<Option<u64>> {
        let at = self.scrubber.state().round.at;
        let Some(place) = at else {
            if self.begin_round().await? {
                return Ok(Some(0));
            }
            if self.clock().tick() >= self.scrubber.state().tend_at {
                self.tend_found().await?;
            }
            let is_more = !self.scrubber.state().again.is_empty();
            return Ok(is_more.then_some(0));
        };
        let next = if place == Place::LAST { None } else { self.next_object(place.object)? };
        let Some(object) = next else {
            self.end_round().await?;
            return Ok(Some(0));
        };
        let place = if object == place.object { place } else { Place { object, block: 0 } };
        let cost = self.scrub_at(place).await?;
        if self.clock().tick() >= self.scrubber.state().note_at {
            self.note_round().await?;
            self.tend_found().await?;
        }
        Ok(Some(cost))
    }

    async fn begin_round(&self) -> Result<bool> {
        let now = self.clock().now();
        {
            let mut state = self.scrubber.state();
            let asked = std::mem::take(&mut state.asked);
            let Round { number, began, ended, .. } = state.round;
            // Where the clock was set back nobody knows how long ago that was.
            let over = now < began || now.since(began) >= limits::SCRUB_EVERY;
            if !(asked || number == 0 || over) {
                return Ok(false);
            }
            let (number, at) = (number + 1, Some(Place::FIRST));
            state.round = Round { number, began: now, at, ended, ..Round::default() };
        }
        self.note_round().await?;
        Ok(true)
    }

    async fn end_round(&self) -> Result<()> {
        let round = {
            let mut state = self.scrubber.state();
            state.round.at = None;
            state.round.ended = Some(self.clock().now());
            state.round
        };
        self.note_round().await?;
        self.count_end();
        self.tend_found().await?;
        let damaged = self.scrubber.state().found.len() as u64 + round.beyond;
        let Round { objects, bytes, .. } = round;
        tracing::info!(op = "scrub", objects, bytes, damaged, "a round of the scrubber has ended");
        Ok(())
    }

    /// Tells monitors when a round last came to its end.
    fn count_end(&self) {
        let ended = self.scrubber.state().round.ended.map_or(0, |ended| ended.seconds());
        self.sys.metrics().store_scrub_ended.set((), u64::try_from(ended).unwrap_or(0) * 1_000_000);
    }

    /// Records where it is.
    pub(super) async fn note_round(&self) -> Result<()> {
        let round = {
            let mut state = self.scrubber.state();
            state.note_at = self.clock().tick().plus(limits::SCRUB_NOTE_EVERY);
            if state.round == state.noted {
                return Ok(());
            }
            state.round
        };
        self.space.write(Ack::Applied, move |txn: &mut SpaceTxn<'_>| txn.put(ROUND, &round.encode())).await?;
        self.scrubber.state().noted = round;
        Ok(())
    }

    /// Returns the first object from `from` on.
    fn next_object(&self, from: ObjectId) -> Result<Option<ObjectId>> {
        let records = self.space.snapshot()?;
        for row in records.scan(&object_key(OBJECTS, from), &prefix_end(&[OBJECTS]), Order::Rising) {
            // A key of another length is found by `check`.
            if let Ok(object) = object_at(&row?.0, 1) {
                return Ok(Some(object));
            }
        }
        Ok(None)
    }

    /// Looks at the next block of an object from a place on, and moves on. Returns what that cost.
    async fn scrub_at(&self, place: Place) -> Result<u64> {
        let Place { object, block } = place;
        if block == 0 {
            let mut state = self.scrubber.state();
            (state.skipped, state.ahead) = (false, Ahead::default());
            state.found.get_mut(&object).into_iter().for_each(Found::begin_look);
        }
        let Some(borrowed) = self.taken_up(object).await? else {
            self.next_after(object, None).await?;
            return Ok(limits::SCRUB_OBJECT_BYTES);
        };
        let cost = self.scrub_live(&borrowed.live, block).await;
        self.give_back(borrowed);
        cost
    }

    async fn scrub_live(&self, live: &Arc<Live>, block: u64) -> Result<u64> {
        let begun = if block == 0 { limits::SCRUB_OBJECT_BYTES } else { 0 };
        let block = match self.next_to_look_at(live, block).await {
            Err(error) if self.is_of_object(&error) => {
                self.found_lost(live.id, &error).await?;
                self.next_after(live.id, None).await?;
                return Ok(limits::SCRUB_OBJECT_BYTES);
            }
            block => block?,
        };
        let blocks = blocks_in(live.state().size);
        if block >= blocks {
            self.next_after(live.id, Some(blocks)).await?;
            return Ok(begun);
        }
        let mut ahead = std::mem::take(&mut self.scrubber.state().ahead);
        let looked = self.look_at(live, block, &mut ahead).await;
        self.scrubber.state().ahead = ahead;
        let looked = looked?;
        let read = self.note_look(live, block, looked).await?;
        {
            let mut state = self.scrubber.state();
            state.skipped |= looked == Looked::Skipped;
            state.round.bytes += read;
            state.round.at = Some(Place { object: live.id, block: block + 1 });
        }
        if block + 1 >= blocks {
            self.next_after(live.id, Some(blocks)).await?;
        }
        Ok(begun + read)
    }

    /// Returns the next block from `block` on that may hold anything, or that was damaged: it may be a hole by now.
    async fn next_to_look_at(&self, live: &Arc<Live>, block: u64) -> Result<u64> {
        let damaged = {
            let state = self.scrubber.state();
            let found = state.found.get(&live.id);
            found.and_then(|found| found.blocks.range(block..).next().map(|(block, _)| *block))
        };
        Ok(self.next_block(live, block).await?.min(damaged.unwrap_or(u64::MAX)))
    }

    /// Goes on to the next object. `blocks` are those of this one, if it was looked at.
    async fn next_after(&self, object: ObjectId, blocks: Option<u64>) -> Result<()> {
        let left_out = {
            let mut state = self.scrubber.state();
            let next = object.0.checked_add(1).map(|id| Place { object: ObjectId(id), block: 0 });
            state.round.at = Some(next.unwrap_or(Place::LAST));
            state.round.objects += u64::from(blocks.is_some());
            state.skipped
        };
        let Some(blocks) = blocks else { return Ok(()) };
        self.sys.metrics().store_scrubbed.count(());
        self.lessen(object, |found| found.end_look(blocks, left_out)).await
    }

    /// Returns an object as a reader would have it.
    async fn borrow(&self, object: ObjectId) -> Result<Borrowed> {
        let known = self.table().get(&object).cloned();
        if let Some(live) = known {
            return Ok(Borrowed { live, taken_up: None });
        }
        let live = self.take_up(object).await?;
        let taken_up = Some(live.used.load(Ordering::Relaxed));
        Ok(Borrowed { live, taken_up })
    }

    /// Lets an object go that was taken up for this, and that nobody else has used since: what readers will want
    /// again is more worth its place. Whatever was in use before stays, with what is known of its blocks.
    fn give_back(&self, Borrowed { live, taken_up }: Borrowed) {
        let mut table = self.table();
        // The table has it, and we; and whoever writes has it too.
        if taken_up == Some(live.used.load(Ordering::Relaxed))
            && Arc::strong_count(&live) == 2
            && table.get(&live.id).is_some_and(|known| Arc::ptr_eq(known, &live))
        {
            table.remove(&live.id);
        }
    }
}

/// An object that the scrubber looks at.
struct Borrowed {
    live: Arc<Live>,
    /// When it was last looked up, if it was taken up for this.
    taken_up: Option<u64>,
}

/// Returns how long reading so many bytes may take.
fn time_for(bytes: u64, rate: u64) -> Duration {
    let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX / 8))
}
