//! What was read of an open file beyond what was asked.
//!
//! The kernel reads ahead 128 KiB at a time, whatever a program asks, and more only a superuser may
//! let it. Of a file that is read from one end to the other, the door asks for a whole window at once, and
//! answers the kernel's next requests from it: one request of the form instead of eight.
//!
//! ```text
//!   window n is there, or the file begins ──▶ fetch window n + 1 whole
//!   it is read past its middle           ──▶ fetch the next one meanwhile
//!   neither: read here and there         ──▶ ask for what was asked, no more
//! ```
//!
//! How to get it wrong: answer from a window what somebody has changed since. Each carries the count of
//! changes of its node from before it was fetched ([`crate::nodes::Nodes::moves`]), and is of no use under another. Or
//! from one whose right has ended: that moves the node as well, and none is kept for longer than
//! [`limits::MOUNT_AHEAD_KEPT`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use weft_core::form::{Piece, Range};
use weft_core::{Tick, limits};

const WINDOW: u64 = limits::MOUNT_AHEAD_BYTES as u64;

/// How often a file's bytes may have changed, as far as the door knows.
#[derive(Default)]
pub(crate) struct Moves(AtomicU64);

impl Moves {
    /// Notes that its bytes, or the right to them, may be others than before.
    pub(crate) fn count(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn so_far(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// Counts when it goes: held by who changes a file, however that ends. A change that fails may have been made in part.
pub(crate) struct Moving(Arc<Moves>);

impl Moving {
    pub(crate) fn new(moves: Arc<Moves>) -> Self {
        Self(moves)
    }
}

impl Drop for Moving {
    fn drop(&mut self) {
        self.0.count();
    }
}

/// Held by who fetches a window.
pub(crate) type Turn = tokio::sync::OwnedMutexGuard<()>;

/// The windows of one open file.
#[derive(Default)]
pub(crate) struct Ahead {
    /// Held while one is fetched, so that one fetch does for all who wait for it.
    fetching: Arc<tokio::sync::Mutex<()>>,
    /// The last two: requests come out of order, also across the edge of one.
    windows: Mutex<[Option<Window>; 2]>,
}

struct Window {
    number: u64,
    pieces: Vec<Piece>,
    /// Shorter than a window at the end of the file alone.
    length: u64,
    as_of: Now,
    _room: OwnedSemaphorePermit,
}

/// Room for windows, in memory and descriptors: shared by all open files of a mount.
pub(crate) struct AheadRoom {
    windows: usize,
    left: Arc<Semaphore>,
    taken: Notify,
}

impl AheadRoom {
    /// Makes room for so many windows.
    pub(crate) fn new(windows: usize) -> Self {
        Self { windows, left: Arc::new(Semaphore::new(windows)), taken: Notify::new() }
    }

    fn fetch(&self, number: u64) -> Option<Fetch> {
        let room = self.left.clone().try_acquire_owned().ok()?;
        self.taken.notify_one();
        Some(Fetch { range: Range { at: number * WINDOW, length: Some(WINDOW) }, room })
    }

    /// Waits until some of it is taken.
    pub(crate) async fn taken(&self) {
        while self.left.available_permits() == self.windows {
            self.taken.notified().await;
        }
    }
}

/// What a request means for the windows.
pub(crate) enum Asked {
    /// These are its bytes.
    Here(Vec<Piece>),
    /// The window that it lies in is worth fetching.
    Fetch(Fetch),
    /// It is one of its own.
    Alone,
}

/// A window that is to be fetched.
pub(crate) struct Fetch {
    pub(crate) range: Range,
    room: OwnedSemaphorePermit,
}

/// As of when a request looks at windows.
#[derive(Clone, Copy)]
pub(crate) struct Now {
    pub(crate) moves: u64,
    pub(crate) tick: Tick,
}

impl Ahead {
    /// Waits until nobody fetches a window of the file. Whoever means to holds what is returned meanwhile.
    pub(crate) async fn turn(&self) -> Turn {
        self.fetching.clone().lock_owned().await
    }

    /// Says how a request for `size` bytes at `at` is to be answered.
    pub(crate) fn ask(&self, at: u64, size: u64, now: Now, room: &AheadRoom) -> Asked {
        let number = at / WINDOW;
        if size < limits::MOUNT_AHEAD_FROM as u64 || at % WINDOW + size > WINDOW {
            return Asked::Alone;
        }
        let windows = self.lock();
        let known = |number: u64| windows.iter().flatten().find(|window| window.number == number);
        if let Some(window) = known(number).filter(|window| window.is_good(now)) {
            // What is answered short is the end of the file to the kernel: that is asked for, not remembered.
            let whole = at % WINDOW + size <= window.length;
            return if whole { Asked::Here(window.cut(at % WINDOW, size)) } else { Asked::Alone };
        }
        let follows = match known(number) {
            // Who reads and writes by turns would fetch a whole window for each request.
            Some(window) => window.as_of.moves == now.moves,
            None => number == 0 || known(number - 1).is_some(),
        };
        drop(windows);
        let fetch = if follows { room.fetch(number) } else { None };
        fetch.map_or(Asked::Alone, Asked::Fetch)
    }

    /// Returns the window after the one that is read at `at`, if that is past its middle and nobody fetches:
    /// then it is there when it is asked for.
    pub(crate) fn next(&self, at: u64, now: Now, room: &AheadRoom) -> Option<(Fetch, Turn)> {
        if at % WINDOW < WINDOW / 2 {
            return None;
        }
        let turn = self.fetching.clone().try_lock_owned().ok()?;
        let windows = self.lock();
        let good = |number: u64| {
            windows.iter().flatten().find(|window| window.number == number && window.is_good(now))
        };
        let goes_on = good(at / WINDOW).is_some_and(|window| window.length == WINDOW);
        let wanted = goes_on && good(at / WINDOW + 1).is_none();
        drop(windows);
        let fetch = if wanted { room.fetch(at / WINDOW + 1) } else { None };
        fetch.map(|fetch| (fetch, turn))
    }

    /// Keeps a window that was fetched, and returns its part that was asked for. `as_of` is from before that.
    pub(crate) fn keep(
        &self,
        fetch: Fetch,
        pieces: Vec<Piece>,
        as_of: Now,
        (at, size): (u64, u64),
    ) -> Vec<Piece> {
        let number = fetch.range.at / WINDOW;
        let length = pieces.iter().map(|piece| piece.length() as u64).sum();
        let window = Window { number, pieces, length, as_of, _room: fetch.room };
        let asked = window.cut(at % WINDOW, size);
        let mut windows = self.lock();
        let number_at = |at: usize| windows[at].as_ref().map(|held: &Window| held.number);
        let same = (0..windows.len()).find(|at| number_at(*at) == Some(number));
        // Of two others the one that lies further back.
        let place = same.unwrap_or_else(|| usize::from(number_at(1) < number_at(0)));
        windows[place] = Some(window);
        asked
    }

    /// Drops windows that nobody is answered from any more.
    pub(crate) fn forget_old(&self, now: Tick) {
        for window in &mut *self.lock() {
            *window = window.take().filter(|window| window.as_of.is_recent(now));
        }
    }

    fn lock(&self) -> MutexGuard<'_, [Option<Window>; 2]> {
        self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Now {
    fn is_recent(self, now: Tick) -> bool {
        now.since(self.tick) < limits::MOUNT_AHEAD_KEPT
    }
}

impl Window {
    fn is_good(&self, now: Now) -> bool {
        self.as_of.moves == now.moves && self.as_of.is_recent(now.tick)
    }

    /// Returns what it holds of a range.
    fn cut(&self, from: u64, size: u64) -> Vec<Piece> {
        let (from, to) = (from.min(self.length), (from + size).min(self.length));
        let mut begin = 0;
        let mut found = Vec::with_capacity(1);
        for piece in &self.pieces {
            let end = begin + piece.length() as u64;
            let (first, last) = (from.max(begin), to.min(end));
            if first < last {
                found.extend(part(piece.clone(), (first - begin) as usize, (last - first) as usize));
            }
            begin = end;
        }
        found
    }
}

/// Returns `length` bytes of a piece, from some on; `None` if there are none.
fn part(mut piece: Piece, from: usize, length: usize) -> Option<Piece> {
    let mut part = if from > 0 { piece.split_off(from)? } else { piece };
    part.split_off(length);
    Some(part)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    const PART: u64 = 128 << 10;

    fn now(moves: u64, tick: u64) -> Now {
        Now { moves, tick: Tick(tick) }
    }

    /// Reads through windows of a file whose bytes are the number of their window; returns what came and how many
    /// windows were fetched for it.
    fn read(
        ahead: &Arc<Ahead>,
        (at, size): (u64, u64),
        length: u64,
        now: Now,
        room: &AheadRoom,
    ) -> (Vec<u8>, bool) {
        let bytes = |pieces: Vec<Piece>| -> Vec<u8> {
            pieces.into_iter().flat_map(|piece| piece.into_bytes().expect("it is in memory")).collect()
        };
        match ahead.ask(at, size, now, room) {
            Asked::Here(pieces) => (bytes(pieces), false),
            Asked::Fetch(fetch) => {
                let (from, to) = (fetch.range.at, (fetch.range.at + WINDOW).min(length));
                let whole = Bytes::from(vec![(from / WINDOW) as u8; to.saturating_sub(from) as usize]);
                let middle = whole.len() / 3;
                let pieces = [whole.slice(..middle), whole.slice(middle..)];
                let pieces = pieces.into_iter().filter(|piece| !piece.is_empty()).map(Piece::Bytes).collect();
                (bytes(ahead.keep(fetch, pieces, now, (at, size))), true)
            }
            Asked::Alone => (vec![(at / WINDOW) as u8; size.min(length.saturating_sub(at)) as usize], false),
        }
    }

    #[test]
    fn a_file_read_from_end_to_end_takes_one_fetch_a_window_and_ends_where_it_ends() {
        let (ahead, room, length) =
            (Arc::<Ahead>::default(), AheadRoom::new(limits::MOUNT_AHEAD_WINDOWS), 3 * WINDOW + PART + 7);
        let (mut fetched, mut got) = (0, Vec::new());
        for at in (0..length).step_by(PART as usize) {
            let (bytes, fetch) = read(&ahead, (at, PART), length, now(1, 0), &room);
            assert!(bytes.iter().all(|byte| u64::from(*byte) == at / WINDOW), "at {at}");
            fetched += usize::from(fetch);
            got.extend(bytes);
        }
        assert_eq!((got.len() as u64, fetched), (length, 4));
        assert_eq!(read(&ahead, (4 * WINDOW, PART), length, now(1, 0), &room), (Vec::new(), true));
    }

    #[test]
    fn the_end_of_a_file_is_asked_for_and_not_remembered() {
        let (ahead, room, length) =
            (Arc::<Ahead>::default(), AheadRoom::new(limits::MOUNT_AHEAD_WINDOWS), 2 * PART + 1);
        assert!(read(&ahead, (0, PART), length, now(1, 0), &room).1);
        assert!(matches!(ahead.ask(PART, PART, now(1, 0), &room), Asked::Here(_)));
        assert!(
            matches!(ahead.ask(PART, PART + 2, now(1, 0), &room), Asked::Alone),
            "it is longer by now, perhaps"
        );
        assert!(matches!(ahead.ask(2 * PART, PART, now(1, 0), &room), Asked::Alone));
    }

    #[test]
    fn requests_out_of_order_across_the_edge_of_a_window_fetch_each_once() {
        let (ahead, room, length) =
            (Arc::<Ahead>::default(), AheadRoom::new(limits::MOUNT_AHEAD_WINDOWS), 4 * WINDOW);
        let at = [0, WINDOW, WINDOW - PART, WINDOW + PART, 2 * WINDOW, 2 * WINDOW - PART];
        let fetched = at.map(|at| read(&ahead, (at, PART), length, now(1, 0), &room).1);
        assert_eq!(fetched, [true, true, false, false, true, false]);
    }

    #[test]
    fn nothing_is_answered_from_before_a_change_or_for_too_long() {
        let (ahead, room, length) =
            (Arc::<Ahead>::default(), AheadRoom::new(limits::MOUNT_AHEAD_WINDOWS), WINDOW);
        assert!(read(&ahead, (0, PART), length, now(1, 0), &room).1);
        assert!(!read(&ahead, (PART, PART), length, now(1, 0), &room).1);
        assert!(matches!(ahead.ask(PART, PART, now(2, 0), &room), Asked::Alone), "something has changed");
        let late = limits::MOUNT_AHEAD_KEPT.as_nanos() as u64;
        assert!(read(&ahead, (PART, PART), length, now(1, late), &room).1, "it is old");
    }

    #[test]
    fn past_its_middle_the_next_window_is_fetched_once_and_only_where_the_file_goes_on() {
        let (ahead, room) = (Arc::<Ahead>::default(), AheadRoom::new(limits::MOUNT_AHEAD_WINDOWS));
        let next = |at: u64| ahead.next(at, now(1, 0), &room).map(|(fetch, turn)| (fetch.range.at, turn));
        assert!(next(WINDOW / 2).is_none(), "nothing was read");
        read(&ahead, (0, PART), 4 * WINDOW, now(1, 0), &room);
        assert!(next(WINDOW / 2 - 1).is_none());
        let (at, turn) = next(WINDOW / 2).expect("it is read on");
        assert_eq!(at, WINDOW);
        assert!(next(WINDOW / 2).is_none(), "it is fetched already");
        drop(turn);
        read(&ahead, (WINDOW, PART), 4 * WINDOW, now(1, 0), &room);
        assert!(next(WINDOW / 2).is_none(), "it is there");
        let short = Arc::<Ahead>::default();
        read(&short, (0, PART), WINDOW - 1, now(1, 0), &room);
        assert!(short.next(WINDOW / 2, now(1, 0), &room).is_none(), "the file ends there");
    }

    #[test]
    fn what_is_read_here_and_there_is_asked_for_alone() {
        let (ahead, room) = (Arc::<Ahead>::default(), AheadRoom::new(limits::MOUNT_AHEAD_WINDOWS));
        let alone = |at: u64, size: u64| matches!(ahead.ask(at, size, now(1, 0), &room), Asked::Alone);
        assert!(alone(5 * WINDOW, PART), "nothing before it was read");
        assert!(alone(0, 4096), "it is small");
        assert!(alone(WINDOW - PART / 2, PART), "it crosses an edge");
        read(&ahead, (0, PART), WINDOW, now(1, 0), &room);
        assert!(!alone(WINDOW, PART));
    }

    #[test]
    fn room_for_windows_is_bounded_and_files_that_are_not_read_any_more_give_theirs_up() {
        let (room, length) = (AheadRoom::new(limits::MOUNT_AHEAD_WINDOWS), WINDOW);
        let files: Vec<_> = (0..limits::MOUNT_AHEAD_WINDOWS).map(|_| Arc::<Ahead>::default()).collect();
        for file in &files {
            read(file, (0, PART), length, now(1, 0), &room);
        }
        let another = Arc::<Ahead>::default();
        assert!(matches!(another.ask(0, PART, now(1, 0), &room), Asked::Alone));
        let late = limits::MOUNT_AHEAD_KEPT.as_nanos() as u64;
        files.iter().for_each(|file| file.forget_old(Tick(late - 1)));
        assert_eq!(room.left.available_permits(), 0, "they are of use still");
        files.iter().for_each(|file| file.forget_old(Tick(late)));
        assert_eq!(room.left.available_permits(), limits::MOUNT_AHEAD_WINDOWS);
        assert!(matches!(another.ask(0, PART, now(1, late), &room), Asked::Fetch(_)));
    }

    #[test]
    fn who_reads_and_writes_by_turns_fetches_no_window_for_each_request() {
        let (ahead, room, length) =
            (Arc::<Ahead>::default(), AheadRoom::new(limits::MOUNT_AHEAD_WINDOWS), 4 * WINDOW);
        let reads = (0..length).step_by(PART as usize).zip(1..);
        let fetched = reads.filter(|(at, moves)| read(&ahead, (*at, PART), length, now(*moves, 0), &room).1);
        assert_eq!(fetched.count(), 4, "one where each begins");
        assert!(!read(&ahead, (3 * WINDOW, PART), length, now(1000, 0), &room).1);
    }
}
