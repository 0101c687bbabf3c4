//! What the kernel goes by and only this process knows, where the next one finds it: which file a node is, what is open under
//! which number, who locks. Taken over by another process, a mount goes on (`docs/decisions/036`).
//!
//! ```text
//!   head │ papers, twice │ nodes │ handles │ opens │ locks        numbers of 64 bits, 8 to a place
//!                          └ key │ field … ┘                      a place counts once its key is there
//! ```
//!
//! A process may be killed between any two stores, and what was stored before is there. So fields are stored first and the
//! key last; a place is given up by its key alone; and papers are written where those that count are not. A request that
//! was being answered is sent to the next process once more and answered anew, so that half of what it changed here need not be
//! undone, only overtaken: what is counted twice leaks until the mount ends.
//!
//! What can be learnt again is not kept: attributes, versions, pages.
//!
//! How to get it wrong: answer the kernel before what it is told is stored.

use std::collections::HashSet;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weft_core::{Error, ErrorKind, FileId, Result, Rights, limits};
use weft_sys::SharedWords;

/// What the memory begins with: another number is of another layout.
const LAYOUT: u64 = u64::from_be_bytes(*b"weftmnt1");

/// Numbers in the head, by where they are.
#[derive(Clone, Copy)]
pub(crate) enum Head {
    Layout,
    /// Whether something could not be kept: then nobody may go by what was.
    Lacks,
    /// Whether the mount stands, so that there is something to go on with.
    Stands,
    /// What the kernel and the door can do.
    Agreed,
    /// The last number that a node, and an open file, was given.
    LastNode,
    LastHandle,
    /// The root of the mount.
    Root,
    RootGeneration,
    /// Up to where the kernel was told of changes, plus one; 0 before.
    Feed,
    /// Which of the two papers counts (the lowest bit), and how many bytes they are.
    Papers,
    /// In which life of its table the node's numbers of open files mean something.
    Life,
    /// How many places of each part were ever used.
    NodesUsed,
    HandlesUsed,
    OpensUsed,
    LocksUsed,
}

const HEAD_WORDS: usize = 64;
const PAPERS_WORDS: usize = limits::MOUNT_PAPERS_BYTES_MAX / 8;
const PLACE_WORDS: usize = 8;

/// One sort of places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Nodes,
    Handles,
    Opens,
    Locks,
}

impl Part {
    const ALL: [Self; 4] = [Self::Nodes, Self::Handles, Self::Opens, Self::Locks];

    /// Returns how many places it has.
    const fn places(self) -> usize {
        match self {
            Self::Nodes => limits::MOUNT_NODES_REMEMBERED,
            Self::Handles | Self::Opens => limits::MOUNT_OPENS_REMEMBERED,
            Self::Locks => limits::MOUNT_LOCKS_REMEMBERED,
        }
    }

    /// Returns where its first place begins.
    const fn begin(self) -> usize {
        match self {
            Self::Nodes => HEAD_WORDS + 2 * PAPERS_WORDS,
            Self::Handles => Self::Nodes.end(),
            Self::Opens => Self::Handles.end(),
            Self::Locks => Self::Opens.end(),
        }
    }

    const fn end(self) -> usize {
        self.begin() + self.places() * PLACE_WORDS
    }

    const fn used(self) -> Head {
        match self {
            Self::Nodes => Head::NodesUsed,
            Self::Handles => Head::HandlesUsed,
            Self::Opens => Head::OpensUsed,
            Self::Locks => Head::LocksUsed,
        }
    }
}

/// Seven numbers under a key that is not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(u32, Part);

/// What a place holds: its key, then its fields, whose meaning is their user's.
pub(crate) type Fields = [u64; PLACE_WORDS];

/// As what the file system has a file open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenedAs {
    /// In which life of its table; from 1.
    pub life: u32,
    /// Its number in that.
    pub number: u32,
}

impl OpenedAs {
    fn key(self) -> u64 {
        u64::from(self.life) << 32 | u64::from(self.number)
    }

    fn of(key: u64) -> Self {
        Self { life: (key >> 32) as u32, number: key as u32 }
    }
}

/// The memory of one mount.
pub struct Remembered {
    words: SharedWords,
    /// Places of each part that were given up, and how many were ever used.
    free: [Mutex<Free>; 4],
    /// How many more stores are made: the process is killed at one of them.
    #[cfg(test)]
    pub(crate) stores_left: std::sync::atomic::AtomicU64,
    #[cfg(test)]
    pub(crate) killed: std::sync::atomic::AtomicBool,
}

#[derive(Default)]
struct Free {
    places: Vec<u32>,
    used: u32,
}

impl Remembered {
    /// Makes the memory of a mount that is to be made. `Unavailable` without memory.
    pub fn new() -> Result<Self> {
        let words = SharedWords::new(Part::Locks.end());
        let words = words.map_err(|error| unusable("there is no memory for it").caused_by(error))?;
        let remembered = Self::over(words);
        remembered.set(Head::Layout, LAYOUT);
        Ok(remembered)
    }

    /// Takes up what a process before this one remembered. `Unavailable` if it is not such memory, of another layout, or
    /// lacks something.
    pub fn of(file: OwnedFd) -> Result<Self> {
        let words = SharedWords::of(file).map_err(|error| unusable("it cannot be read").caused_by(error))?;
        if words.len() != Part::Locks.end() {
            return Err(unusable("it has another size"));
        }
        let remembered = Self::over(words);
        if remembered.head(Head::Layout) != LAYOUT {
            return Err(unusable("another version of weft wrote it"));
        }
        if remembered.head(Head::Lacks) != 0 || remembered.head(Head::Stands) == 0 {
            return Err(unusable("not all of it was remembered"));
        }
        for part in Part::ALL {
            let used = remembered.head(part.used()).min(part.places() as u64) as u32;
            let places = (0..used).filter(|place| remembered.field(Place(*place, part), 0) == 0).collect();
            *remembered.free(part) = Free { places, used };
        }
        Ok(remembered)
    }

    fn over(words: SharedWords) -> Self {
        Self {
            words,
            free: std::array::from_fn(|_| Mutex::default()),
            #[cfg(test)]
            stores_left: u64::MAX.into(),
            #[cfg(test)]
            killed: false.into(),
        }
    }

    /// Returns the memory, for the process that keeps it.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.words.descriptor()
    }

    /// Returns the file that is the root of the mount.
    pub fn root(&self) -> FileId {
        file_of(self.head(Head::Root), self.head(Head::RootGeneration))
    }

    /// Keeps what the next process proves itself by, in the place of what was kept before.
    ///
    /// `TooLarge` beyond [`limits::MOUNT_PAPERS_BYTES_MAX`].
    pub fn keep_papers(&self, papers: &[u8]) -> Result<()> {
        if papers.len() > limits::MOUNT_PAPERS_BYTES_MAX {
            return Err(Error::new(ErrorKind::TooLarge, "what is to be remembered has no room"));
        }
        let other = !self.head(Head::Papers) & 1;
        let begin = HEAD_WORDS + other as usize * PAPERS_WORDS;
        for (at, bytes) in papers.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            self.store(begin + at, u64::from_ne_bytes(word));
        }
        self.set(Head::Papers, (papers.len() as u64) << 1 | other);
        Ok(())
    }

    /// Returns what was kept last.
    pub fn papers(&self) -> Vec<u8> {
        let which = self.head(Head::Papers);
        let length = usize::try_from(which >> 1).unwrap_or(0).min(limits::MOUNT_PAPERS_BYTES_MAX);
        let begin = HEAD_WORDS + (which & 1) as usize * PAPERS_WORDS;
        let words = (begin..begin + length.div_ceil(8)).map(|at| self.load(at).to_ne_bytes());
        words.flatten().take(length).collect()
    }

    /// Returns the life of the node's table of open files that the numbers which are kept of them are from.
    pub fn life(&self) -> u32 {
        self.head(Head::Life) as u32
    }

    /// Says that another life began, before anything is opened in it.
    pub fn begin_life(&self, life: u32) {
        self.set(Head::Life, life.into());
    }

    /// Keeps a file that the file system has open: which one, with which rights, and as what. Returns under what
    /// ([`OpenFile::kept_as`](weft_core::form::OpenFile::kept_as)); `None` if there is no room.
    pub fn keep_open(&self, file: FileId, rights: Rights, opened_as: OpenedAs) -> Option<u64> {
        let [inode, generation] = numbers_of(file);
        let fields = [opened_as.key(), inode, generation, rights.bits().into(), 0, 0, 0, 0];
        Some(self.keep(Part::Opens, fields)?.number())
    }

    /// Keeps that it is open as something else.
    pub fn keep_opened(&self, kept_as: u64, opened_as: OpenedAs) {
        if let Some(place) = self.place(Part::Opens, kept_as) {
            self.set_field(place, 0, opened_as.key());
        }
    }

    /// Keeps it no more.
    pub fn forget_open(&self, kept_as: u64) {
        if let Some(place) = self.place(Part::Opens, kept_as) {
            self.give_up(place);
        }
    }

    /// Returns the files that are open for the kernel, and under what each is kept. What was opened and never came to be
    /// the kernel's is forgotten: whoever asked for it asks again.
    pub fn opens(&self) -> Vec<(u64, FileId, Rights, OpenedAs)> {
        let used: HashSet<u64> = self.each(Part::Handles).map(|(_, fields)| fields[3]).collect();
        let (kept, unused): (Vec<_>, Vec<_>) =
            self.each(Part::Opens).partition(|(place, _)| used.contains(&place.number()));
        unused.into_iter().for_each(|(place, _)| self.give_up(place));
        let open = |(place, fields): (Place, Fields)| {
            let [key, inode, generation, rights, ..] = fields;
            (place.number(), file_of(inode, generation), Rights::from_bits(rights as u32), OpenedAs::of(key))
        };
        kept.into_iter().map(open).collect()
    }

    pub(crate) fn head(&self, of: Head) -> u64 {
        self.load(of as usize)
    }

    pub(crate) fn set(&self, of: Head, value: u64) {
        self.store(of as usize, value);
    }

    /// Keeps fields under a key. `None` if there is no room: the mount cannot be taken over any more, and goes on.
    pub(crate) fn keep(&self, part: Part, fields: Fields) -> Option<Place> {
        let place = self.take(part)?;
        for (at, field) in fields.iter().enumerate().skip(1) {
            self.set_field(place, at, *field);
        }
        self.set_field(place, 0, fields[0]);
        Some(place)
    }

    /// Gives up a place. Its fields mean nothing from then on.
    pub(crate) fn give_up(&self, place: Place) {
        self.set_field(place, 0, 0);
        self.free(place.1).places.push(place.0);
    }

    /// Returns a field of a place; 0 is its key.
    pub(crate) fn field(&self, place: Place, field: usize) -> u64 {
        self.load(at(place, field))
    }

    /// Sets one field of a place.
    pub(crate) fn set_field(&self, place: Place, field: usize, value: u64) {
        self.store(at(place, field), value);
    }

    /// Returns all places of a part that are in use.
    pub(crate) fn each(&self, part: Part) -> impl Iterator<Item = (Place, Fields)> + '_ {
        let used = self.free(part).used;
        let fields = move |place| std::array::from_fn(|field| self.field(Place(place, part), field));
        let each = (0..used).map(move |place| (Place(place, part), fields(place)));
        each.filter(|(_, fields)| fields[0] != 0)
    }

    /// Returns the place of a number that [`Place::number`] gave, if it is in use.
    pub(crate) fn place(&self, part: Part, number: u64) -> Option<Place> {
        let place = u32::try_from(number.checked_sub(1)?).ok()?;
        let place = (place < self.free(part).used).then_some(Place(place, part))?;
        (self.field(place, 0) != 0).then_some(place)
    }

    fn take(&self, part: Part) -> Option<Place> {
        let mut free = self.free(part);
        if let Some(place) = free.places.pop() {
            return Some(Place(place, part));
        }
        if free.used as usize >= part.places() {
            if self.head(Head::Lacks) == 0 {
                tracing::warn!(
                    ?part,
                    "there is more than can be remembered: if its process dies, the mount ends"
                );
            }
            self.set(Head::Lacks, 1);
            return None;
        }
        let place = Place(free.used, part);
        free.used += 1;
        self.set(part.used(), free.used.into());
        Some(place)
    }

    fn free(&self, part: Part) -> MutexGuard<'_, Free> {
        self.free[part as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn load(&self, at: usize) -> u64 {
        self.words[at].load(Ordering::Acquire)
    }

    fn store(&self, at: usize, value: u64) {
        #[cfg(test)]
        {
            let left = self
                .stores_left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            self.killed.fetch_or(left.is_err(), Ordering::Relaxed);
            if left.is_err() {
                return;
            }
        }
        self.words[at].store(value, Ordering::Release);
    }
}

impl Place {
    /// Returns a number for it, which is never 0.
    pub(crate) fn number(self) -> u64 {
        u64::from(self.0) + 1
    }
}

fn at(place: Place, field: usize) -> usize {
    let Place(number, part) = place;
    part.begin() + number as usize * PLACE_WORDS + field
}

/// Returns a file's id as two numbers.
pub(crate) fn numbers_of(file: FileId) -> [u64; 2] {
    [file.inode(), file.generation().into()]
}

/// Returns the id that two numbers are of.
pub(crate) fn file_of(inode: u64, generation: u64) -> FileId {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&inode.to_be_bytes());
    bytes[8..].copy_from_slice(&(generation as u32).to_be_bytes());
    FileId::from_bytes(bytes)
}

fn unusable(detail: &'static str) -> Error {
    Error::new(ErrorKind::Unavailable, detail).op("remember").about("what the mount goes by")
}

/// A place that may be given up while somebody still writes to it: who writes then writes nowhere.
#[derive(Clone, Default)]
pub(crate) struct Noted(Option<(Arc<Remembered>, Place)>);

impl Noted {
    pub(crate) fn at(remembered: &Arc<Remembered>, place: Option<Place>) -> Self {
        Self(place.map(|place| (remembered.clone(), place)))
    }

    pub(crate) fn set(&self, field: usize, value: u64) {
        if let Some((remembered, place)) = &self.0 {
            remembered.set_field(*place, field, value);
        }
    }

    /// Gives the place up.
    pub(crate) fn end(&mut self) {
        if let Some((remembered, place)) = self.0.take() {
            remembered.give_up(place);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
