//! Acting, and writing down what was asked and heard, and when.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use weft_core::attr::SetAttr;
use weft_core::form::{At, Call, Expect, FileSystem, Replace, Want};
use weft_core::{ErrorKind, FileId, Result};

use crate::file_system::site::{Dice, Site, free, name, new_file};

/// Names in each of a group's two directories.
const NAMES: u8 = 2;

/// A place that a name can be in: a group, and a number within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Spot {
    /// The group: nothing moves between groups.
    pub group: usize,
    /// The place in it: two directories of two names each.
    pub place: u8,
}

/// What is asked. Two places are of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Make a file.
    Make(Spot),
    /// Give the file at the first place the second as another name.
    Link(Spot, Spot),
    /// Rename, replacing or not.
    Rename(Spot, Spot, bool),
    /// Remove a name.
    Remove(Spot),
    /// Set the mode.
    Set(Spot, u16),
    /// Look up.
    Walk(Spot),
}

/// What is heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It was done to, or found, this file, which then had this mode and so many names.
    File {
        /// Which file.
        id: FileId,
        /// Its mode afterwards.
        mode: u16,
        /// Its names afterwards.
        links: u32,
    },
    /// It was done; nothing is told of a file.
    Done,
    /// It was refused.
    Refused(ErrorKind),
}

/// One request and its answer.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// The count when it was sent.
    pub begun: u64,
    /// The count when it was answered; the largest number if it never was.
    pub ended: u64,
    /// What was asked.
    pub act: Act,
    /// What was heard; nothing if no answer came.
    pub answer: Option<Answer>,
}

/// Acts on names below one directory and writes down what happens.
pub struct Recorder {
    fs: Mutex<Arc<dyn FileSystem>>,
    directories: Vec<[FileId; 2]>,
    count: AtomicU64,
    events: Mutex<HashMap<u64, Event>>,
}

/// The mode that files are made with here.
const MODE: u16 = 0o600;

impl Recorder {
    /// Makes a directory with so many groups in it.
    pub async fn begin(site: &Site<'_>, path: &str, groups: usize) -> Self {
        site.dir(path).await;
        let mut directories = Vec::new();
        for group in 0..groups {
            let x = site.dir(&format!("{path}/{group}-x")).await;
            directories.push([x, site.dir(&format!("{path}/{group}-y")).await]);
        }
        let fs = Mutex::new(site.fs.clone());
        Self { fs, directories, count: AtomicU64::new(0), events: Mutex::default() }
    }

    /// Goes on over another file system: the same one after a restart.
    pub fn go_on_with(&self, fs: Arc<dyn FileSystem>) {
        *self.fs.lock().unwrap_or_else(PoisonError::into_inner) = fs;
    }

    /// Returns a random act.
    pub fn roll(&self, dice: &mut Dice) -> Act {
        let group = dice.roll(self.directories.len() as u64) as usize;
        let mut spot = || Spot { group, place: dice.roll(u64::from(2 * NAMES)) as u8 };
        let (one, two) = (spot(), spot());
        match dice.roll(12) {
            0..4 => Act::Make(one),
            4..6 => Act::Link(one, two),
            6..8 => Act::Rename(one, two, dice.roll(3) > 0),
            8..10 => Act::Remove(one),
            10 => Act::Set(one, dice.roll(0o1000) as u16),
            _ => Act::Walk(one),
        }
    }

    /// Makes a request and writes it down with its answer. If the answer never comes
    /// (the future is dropped), it stays written down without one.
    pub async fn act(&self, call: &Call, act: Act) {
        let fs = self.fs.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let begun = self.count.fetch_add(1, Ordering::SeqCst);
        self.write_down(Event { begun, ended: u64::MAX, act, answer: None });
        let answer = self.perform(&*fs, call, act).await;
        let ended = self.count.fetch_add(1, Ordering::SeqCst);
        // Whether an unanswered request was carried out is anyone's guess.
        if !matches!(answer, Answer::Refused(ErrorKind::Unavailable | ErrorKind::Deadline)) {
            self.write_down(Event { begun, ended, act, answer: Some(answer) });
        }
    }

    /// Looks every name up, after everything else: what is there binds the history.
    pub async fn look_everywhere(&self, call: &Call) {
        for group in 0..self.directories.len() {
            for place in 0..2 * NAMES {
                self.act(call, Act::Walk(Spot { group, place })).await;
            }
        }
    }

    fn write_down(&self, event: Event) {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).insert(event.begun, event);
    }

    fn at(&self, spot: Spot) -> At {
        let directory = self.directories[spot.group][usize::from(spot.place / NAMES)];
        At::name(directory, name(["a", "b"][usize::from(spot.place % NAMES)]))
    }

    async fn perform(&self, fs: &dyn FileSystem, call: &Call, act: Act) -> Answer {
        self.ask(fs, call, act).await.unwrap_or_else(|error| Answer::Refused(error.kind()))
    }

    async fn ask(&self, fs: &dyn FileSystem, call: &Call, act: Act) -> Result<Answer> {
        let file =
            |attr: weft_core::attr::Attr| Answer::File { id: attr.id, mode: attr.mode, links: attr.links };
        let told = |attr: Option<weft_core::attr::Attr>| attr.map_or(Answer::Done, file);
        Ok(match act {
            Act::Make(spot) => {
                let set = SetAttr { mode: Some(MODE), ..SetAttr::default() };
                told(fs.make(call, &self.at(spot), new_file(), &set).await?.file.after)
            }
            Act::Link(from, to) => told(fs.link(call, &self.at(from), &self.at(to)).await?.file.after),
            Act::Rename(from, to, replace) => {
                let how = if replace { Replace::Any } else { Replace::Never };
                told(fs.rename(call, &self.at(from), &self.at(to), how, &free()).await?.file.after)
            }
            Act::Remove(spot) => {
                // What is left of the file says which one it was, if it has other names.
                told(fs.remove(call, &self.at(spot), Expect::NotDirectory, &free()).await?.file.after)
            }
            Act::Set(spot, mode) => {
                let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
                file(fs.set(call, &self.at(spot), &set, &free()).await?.value)
            }
            Act::Walk(spot) => file(fs.walk(call, &self.at(spot), Want::default()).await?.attr),
        })
    }

    /// Returns each group's events, in the order in which they began.
    pub fn histories(&self) -> Vec<Vec<Event>> {
        let mut groups = vec![Vec::new(); self.directories.len()];
        for event in self.events.lock().unwrap_or_else(PoisonError::into_inner).values() {
            groups[event.act.group()].push(*event);
        }
        for events in &mut groups {
            events.sort_by_key(|event| event.begun);
        }
        groups
    }
}

impl Act {
    fn group(&self) -> usize {
        match self {
            Self::Make(spot) | Self::Remove(spot) | Self::Set(spot, _) | Self::Walk(spot) => spot.group,
            Self::Link(spot, _) | Self::Rename(spot, _, _) => spot.group,
        }
    }
}

/// What a file made here starts as.
pub(super) fn made(id: FileId) -> Answer {
    Answer::File { id, mode: MODE, links: 1 }
}
