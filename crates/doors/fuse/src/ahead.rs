//! What was read of an open file beyond what was asked.
//!
//! The kernel reads ahead 128 KiB at a time, whatever a program asks, and more only a superuser may
//! let it. Of a file that is read from one end to the other, the door asks for a whole window at once, and
//! answers the kernel's next requests from it: one request of the form instead of eight, or of thirty-two where the
//! window costs no memory, since it came as files that are lent.
//!
//! ```text
//!   a window ends here, or the file begins ──▶ fetch the next one whole, twice as long if that one was lent
//!   it is read past its middle             ──▶ fetch the next one meanwhile
//!   neither: read here and there           ──▶ ask for what was asked, no more
//! ```
//!
//! How to get it wrong: answer from a window what somebody has changed since. Each carries the count of
//! changes of its node from before it was fetched ([`crate::nodes::Nodes::moves`]), and is of no use under another. Or
//! from one whose right has ended: that moves the node as well, and none is kept for longer than
//! [`limits::MOUNT_AHEAD_KEPT`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use weft_core::form::{Piece, Range, Source};
use weft_core::{Result, Tick, limits};

/// Windows begin at multiples of it, and the first of a file is as long.
const STEP: u64 = limits::MOUNT_AHEAD_BYTES as u64;
const LONGEST: u64 = limits::MOUNT_AHEAD_LENT_BYTES as u64;

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
    at: u64,
    /// How many bytes of the file it speaks for.
    span: u64,
    pieces: Vec<Piece>,
    /// Less than the span at the end of the file alone.
    length: u64,
    grows: bool,
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

    fn fetch(&self, at: u64, span: u64) -> Option<Fetch> {
        let room = self.left.clone().try_acquire_owned().ok()?;
        self.taken.notify_one();
        Some(Fetch { at, span, room })
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
    at: u64,
    span: u64,
    room: OwnedSemaphorePermit,
}

/// What there is of a window.
pub(crate) struct Fetched {
    pieces: Vec<Piece>,
    /// How much of the file that is, the end of the file aside.
    span: u64,
    /// Whether a longer one would have been had, for all that is known.
    grows: bool,
}

impl Fetch {
    /// Returns what of the file it is if it is read; less may be wanted of it than if it is lent.
    pub(crate) fn to_read(&self) -> Range {
        Range { at: self.at, length: Some(STEP) }
    }

    /// Returns what of the file it is, if it is so long that it is to be had only if it is lent.
    pub(crate) fn to_borrow(&self) -> Option<Range> {
        (self.span > STEP).then_some(Range { at: self.at, length: Some(self.span) })
    }

    /// Takes what was lent of it; `None` if that is nothing.
    pub(crate) async fn borrow(&self, source: &mut dyn Source) -> Result<Option<Fetched>> {
        let (mut pieces, mut length) = (Vec::with_capacity(1), 0);
        while length < self.span {
            let most = (self.span - length).min(limits::PIECE_BYTES_MAX as u64);
            let Some(piece) = source.next(most as usize).await?.filter(is_lent) else { break };
            length += piece.length() as u64;
            pieces.push(piece);
        }
        // What is less than a step is the end of the file, or is asked for alone.
        let span = length.next_multiple_of(STEP);
        Ok((length > 0).then_some(Fetched { pieces, span, grows: length == self.span }))
    }
}

impl Fetched {
    /// Of what was read. It grows where it came as files and none was refused before.
    pub(crate) fn read(pieces: Vec<Piece>, was_refused: bool) -> Self {
        let grows = !was_refused && pieces.iter().all(is_lent);
        Self { pieces, span: STEP, grows }
    }
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
        if size < limits::MOUNT_AHEAD_FROM as u64 {
            return Asked::Alone;
        }
        let windows = self.lock();
        let held = || windows.iter().flatten().filter(|window| window.speaks_for(at));
        if let Some(window) = held().find(|window| window.is_good(now)) {
            // What is answered short is the end of the file to the kernel: that is asked for, not remembered.
            let whole = at + size <= window.at + window.length;
            return if whole { Asked::Here(window.cut(at, size)) } else { Asked::Alone };
        }
        let begin = at - at % STEP;
        if at + size > begin + STEP {
            return Asked::Alone;
        }
        let span = match held().max_by_key(|window| window.at) {
            // Who reads and writes by turns would fetch a whole window for each request.
            Some(window) if window.as_of.moves == now.moves || window.at < begin => Some(STEP),
            Some(_) => None,
            None if begin == 0 => Some(STEP),
            None => {
                windows.iter().flatten().find(|window| window.end() == begin).map(|last| last.next_span(now))
            }
        };
        drop(windows);
        span.and_then(|span| room.fetch(begin, span)).map_or(Asked::Alone, Asked::Fetch)
    }

    /// Returns the window after the one that is read at `at`, if that is past its middle and nobody fetches:
    /// then it is there when it is asked for.
    pub(crate) fn next(&self, at: u64, now: Now, room: &AheadRoom) -> Option<(Fetch, Turn)> {
        self.wanted_after(at, now)?;
        let turn = self.fetching.clone().try_lock_owned().ok()?;
        // Who had the turn may have fetched it.
        let (begin, span) = self.wanted_after(at, now)?;
        Some((room.fetch(begin, span)?, turn))
    }

    /// Returns where the window begins that will be wanted next, and how long it is to be.
    fn wanted_after(&self, at: u64, now: Now) -> Option<(u64, u64)> {
        let windows = self.lock();
        let good =
            |at: u64| windows.iter().flatten().find(|window| window.speaks_for(at) && window.is_good(now));
        let read = good(at).filter(|window| at - window.at >= window.span / 2)?;
        let goes_on = read.length == read.span && good(read.end()).is_none();
        goes_on.then(|| (read.end(), read.next_span(now)))
    }

    /// Keeps a window that was fetched, and returns its part that was asked for. `as_of` is from before that.
    pub(crate) fn keep(
        &self,
        fetch: Fetch,
        fetched: Fetched,
        as_of: Now,
        (at, size): (u64, u64),
    ) -> Vec<Piece> {
        let Fetched { pieces, span, grows } = fetched;
        let length = span.min(pieces.iter().map(|piece| piece.length() as u64).sum());
        let window = Window { at: fetch.at, span, pieces, length, grows, as_of, _room: fetch.room };
        let asked = window.cut(at, size);
        let mut windows = self.lock();
        let begin = |place: usize| windows[place].as_ref().map(|held: &Window| held.at);
        let same = (0..windows.len()).find(|place| begin(*place) == Some(fetch.at));
        // Of two others the one that lies further back.
        let place = same.unwrap_or_else(|| usize::from(begin(1) < begin(0)));
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

    fn speaks_for(&self, at: u64) -> bool {
        (self.at..self.end()).contains(&at)
    }

    fn end(&self) -> u64 {
        self.at + self.span
    }

    /// Returns how long the window after it is to be.
    fn next_span(&self, now: Now) -> u64 {
        if self.grows && self.is_good(now) { (2 * self.span).min(LONGEST) } else { STEP }
    }

    /// Returns what it holds of a range.
    fn cut(&self, at: u64, size: u64) -> Vec<Piece> {
        let from = at.saturating_sub(self.at).min(self.length);
        let to = from.saturating_add(size).min(self.length);
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

/// Returns whether a piece takes no memory.
fn is_lent(piece: &Piece) -> bool {
    matches!(piece, Piece::File { .. })
}

/// Returns `length` bytes of a piece, from some on; `None` if there are none.
fn part(mut piece: Piece, from: usize, length: usize) -> Option<Piece> {
    let mut part = if from > 0 { piece.split_off(from)? } else { piece };
    part.split_off(length);
    Some(part)
}

#[cfg(test)]
mod tests {
    use std::os::fd::BorrowedFd;

    use async_trait::async_trait;
    use bytes::Bytes;
    use weft_core::form::{OpenedFile, Stopped};

    use super::*;

    const PART: u64 = 128 << 10;
    const WINDOW: u64 = STEP;

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
                let (from, to) = (fetch.at, (fetch.at + fetch.span).min(length));
                let whole = Bytes::from(vec![(from / WINDOW) as u8; to.saturating_sub(from) as usize]);
                let middle = whole.len() / 3;
                let pieces = [whole.slice(..middle), whole.slice(middle..)];
                let pieces = pieces.into_iter().filter(|piece| !piece.is_empty()).map(Piece::Bytes).collect();
                (bytes(ahead.keep(fetch, Fetched::read(pieces, false), now, (at, size))), true)
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

    /// A file that is not read here.
    struct Lent;

    impl OpenedFile for Lent {
        fn read_at(&self, _buffer: &mut [u8], _at: u64) -> std::io::Result<usize> {
            unreachable!("nobody reads it")
        }

        fn descriptor(&self) -> Option<BorrowedFd<'_>> {
            None
        }
    }

    /// Keeps a fetch that came as files that are lent.
    fn keep_lent(ahead: &Ahead, fetch: Fetch, now: Now) -> (u64, u64) {
        let (at, span) = (fetch.at, fetch.span);
        let pieces = vec![Piece::File { file: Arc::new(Lent), at, length: span as usize }];
        ahead.keep(fetch, Fetched { pieces, span, grows: true }, now, (at, 0));
        (at, span)
    }

    fn fetch(ahead: &Ahead, at: u64, now: Now, room: &AheadRoom) -> Fetch {
        let Asked::Fetch(fetch) = ahead.ask(at, PART, now, room) else { panic!("a fetch at {at}") };
        fetch
    }

    #[test]
    fn windows_that_are_lent_are_twice_as_long_each_time_and_begin_anew_after_a_change() {
        let (ahead, room) = (Arc::<Ahead>::default(), AheadRoom::new(limits::MOUNT_AHEAD_WINDOWS));
        let (mut at, mut fetched) = (0, Vec::new());
        while fetched.len() < 4 {
            let (begin, span) = keep_lent(&ahead, fetch(&ahead, at, now(1, 0), &room), now(1, 0));
            assert!(matches!(ahead.ask(begin + span - PART, PART, now(1, 0), &room), Asked::Here(_)));
            assert!(ahead.next(begin + span / 2 - 1, now(1, 0), &room).is_none());
            let (next, _) = ahead.next(begin + span / 2, now(1, 0), &room).expect("it is read on");
            assert_eq!(next.at, begin + span);
            fetched.push(span / STEP);
            at = begin + span;
        }
        assert_eq!(fetched, [1, 2, 4, 4]);
        assert_eq!(fetch(&ahead, at, now(1, 0), &room).span, 4 * STEP);
        assert_eq!(fetch(&ahead, at, now(2, 0), &room).span, STEP, "it has changed");
        let late = limits::MOUNT_AHEAD_KEPT.as_nanos() as u64;
        assert_eq!(fetch(&ahead, at, now(1, late), &room).span, STEP, "it is read slowly");
        let again = fetch(&ahead, at - PART, now(1, late), &room);
        assert_eq!(
            (again.at, again.span),
            (at - STEP, STEP),
            "what has grown old is not all asked for again"
        );
    }

    #[test]
    fn a_request_across_the_edge_of_windows_is_one_of_its_own() {
        let (ahead, room) = (Arc::<Ahead>::default(), AheadRoom::new(limits::MOUNT_AHEAD_WINDOWS));
        keep_lent(&ahead, fetch(&ahead, 0, now(1, 0), &room), now(1, 0));
        keep_lent(&ahead, fetch(&ahead, STEP, now(1, 0), &room), now(1, 0));
        let within = ahead.ask(2 * STEP - PART / 2, PART, now(1, 0), &room);
        assert!(matches!(within, Asked::Here(pieces) if pieces.len() == 1), "no edge of a window");
        assert!(matches!(ahead.ask(3 * STEP - PART / 2, PART, now(1, 0), &room), Asked::Alone));
    }

    /// So many bytes, of which so many from the beginning on are lent.
    struct Mixed {
        at: u64,
        lent: u64,
        length: u64,
    }

    #[async_trait]
    impl Source for Mixed {
        async fn next(&mut self, max: usize) -> Result<Option<Piece>> {
            let to = if self.at < self.lent { self.lent } else { self.length };
            let length = (to - self.at).min(max as u64) as usize;
            let piece = match self.at < self.lent {
                true => Piece::File { file: Arc::new(Lent), at: self.at, length },
                false => Piece::Bytes(Bytes::from(vec![0; length])),
            };
            self.at += length as u64;
            Ok((length > 0).then_some(piece))
        }

        fn length(&self) -> Option<u64> {
            Some(self.length - self.at)
        }

        fn stopped(&self) -> Stopped {
            Box::pin(std::future::pending())
        }
    }

    #[tokio::test]
    async fn of_a_long_window_what_is_lent_is_kept_and_nothing_else() {
        let room = AheadRoom::new(limits::MOUNT_AHEAD_WINDOWS);
        // Lent from the beginning on, all there is, what the window speaks for, how long the next one is.
        let table = [
            (4 * STEP, 4 * STEP, Some((4 * STEP, 4 * STEP))),
            (4 * STEP, 9 * STEP, Some((4 * STEP, 4 * STEP))),
            (3 * STEP, 4 * STEP, Some((3 * STEP, STEP))),
            (STEP + PART, 4 * STEP, Some((2 * STEP, STEP))),
            (STEP + PART, STEP + PART, Some((2 * STEP, STEP))),
            (0, 4 * STEP, None),
            (0, 0, None),
        ];
        for (lent, length, is) in table {
            let (ahead, mut source) = (Arc::<Ahead>::default(), Mixed { at: 0, lent, length });
            let fetch = room.fetch(0, 4 * STEP).expect("there is room");
            let fetched = fetch.borrow(&mut source).await.expect("it is pulled");
            assert_eq!(fetched.is_some(), is.is_some(), "{lent} of {length}");
            let (Some(fetched), Some((end, next))) = (fetched, is) else { continue };
            let asked = ahead.keep(fetch, fetched, now(1, 0), (0, PART));
            assert_eq!(asked.iter().map(Piece::length).sum::<usize>() as u64, PART);
            let ask = |at: u64| ahead.ask(at, PART, now(1, 0), &room);
            assert!(matches!(ask(lent - PART), Asked::Here(pieces) if pieces[0].length() as u64 == PART));
            if lent < end {
                assert!(matches!(ask(lent), Asked::Alone), "it was not lent, and may be more by now");
                assert!(ahead.next(lent - PART, now(1, 0), &room).is_none());
            }
            assert!(matches!(ask(end), Asked::Fetch(fetch) if (fetch.at, fetch.span) == (end, next)));
        }
    }

    #[test]
    fn a_window_that_had_to_be_read_since_nothing_was_lent_does_not_grow() {
        let (ahead, room) = (Arc::<Ahead>::default(), AheadRoom::new(limits::MOUNT_AHEAD_WINDOWS));
        let lent = || vec![Piece::File { file: Arc::new(Lent), at: 0, length: STEP as usize }];
        for (at, was_refused, next) in [(0, false, 2), (STEP, true, 1), (2 * STEP, false, 2)] {
            let fetch = fetch(&ahead, at, now(1, 0), &room);
            ahead.keep(fetch, Fetched::read(lent(), was_refused), now(1, 0), (at, 0));
            let (fetch, _) = ahead.next(at + STEP / 2, now(1, 0), &room).expect("it is read on");
            assert_eq!((fetch.at, fetch.span), (at + STEP, next * STEP));
        }
    }

    #[test]
    fn a_long_window_that_has_changed_is_fetched_anew_a_step_at_a_time() {
        let (ahead, room) = (Arc::<Ahead>::default(), AheadRoom::new(limits::MOUNT_AHEAD_WINDOWS));
        let whole = room.fetch(0, 4 * STEP).expect("there is room");
        keep_lent(&ahead, whole, now(1, 0));
        for step in [1, 2] {
            let fetch = fetch(&ahead, step * STEP + PART, now(step + 1, 0), &room);
            assert_eq!((fetch.at, fetch.span), (step * STEP, STEP));
            keep_lent(&ahead, fetch, now(step + 1, 0));
            let again = ahead.ask(step * STEP + 2 * PART, PART, now(10 + step, 0), &room);
            assert!(matches!(again, Asked::Alone), "whoever writes by turns fetches it once");
        }
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
        let next = |at: u64| ahead.next(at, now(1, 0), &room).map(|(fetch, turn)| (fetch.at, turn));
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
