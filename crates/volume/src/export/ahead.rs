//! Names of a large directory in their order, read ahead of the page that was asked for.
//!
//! The machine lists names in an order of its own: the next page in the order of names is found only by
//! reading all of them. So each reading keeps as many of those that come next as some memory holds, and
//! the pages after it are taken from there, as long as the directory's stamps say that it is as it was.

use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};
use std::sync::{Mutex, PoisonError};

use weft_core::form::PageMax;
use weft_core::{FileId, Name, Result, Time, limits};

use super::version::is_young;
use super::view::{Node, shown_kind};

/// What is read ahead of whom, the latest last.
#[derive(Default)]
pub(super) struct Ahead(Mutex<VecDeque<Kept>>);

struct Kept {
    dir: FileId,
    stamp: (Time, Time),
    /// The name that these come after.
    after: Vec<u8>,
    names: Names,
}

/// As many listings are gone on with, however little is kept for each.
const KEPT_MAX: usize = 64;

/// A name and its cookie.
type Listed = (Vec<u8>, u64);

/// As many names of a directory as some memory holds: those that come first.
struct Names {
    /// All of them, one after the other in any order: a million allocations less, and half of the memory.
    text: Vec<u8>,
    places: Vec<Place>,
    /// How many of the first were given out.
    given: usize,
    /// The last name that is not left out for later, once some are.
    last: Option<Vec<u8>>,
    bytes_max: usize,
}

/// Where a name lies in the text, and its cookie.
#[derive(Clone, Copy)]
struct Place {
    cookie: u64,
    at: u32,
    length: u16,
}

const _: () = assert!(limits::EXPORT_AHEAD_BYTES <= u32::MAX as usize);

impl Ahead {
    /// Takes the names of a directory that come after one, if they were read and it has not changed.
    fn take(&self, dir: &Node, after: &[u8]) -> Option<Names> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |kept: &Kept| (kept.dir, kept.stamp, &kept.after[..]) == (dir.id, stamp(dir), after);
        let place = kept.iter().position(is_it)?;
        kept.remove(place).map(|kept| kept.names)
    }

    /// Keeps names for whoever asks for those after one. Of a directory that may have changed under its
    /// stamps none are kept.
    fn keep(&self, dir: &Node, after: &[u8], names: Names) {
        if !names.left().is_empty() && !is_young(&dir.facts) {
            self.add(Kept { dir: dir.id, stamp: stamp(dir), after: after.to_vec(), names });
        }
    }

    fn add(&self, new: Kept) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Who lists the same at once shares it.
        all.retain(|kept| (kept.dir, &kept.after) != (new.dir, &new.after));
        all.push_back(new);
        let bytes = |all: &VecDeque<Kept>| all.iter().map(|kept| kept.names.bytes()).sum::<usize>();
        while all.len() > KEPT_MAX || all.len() > 1 && bytes(&all) > limits::EXPORT_AHEAD_BYTES {
            all.pop_front();
        }
    }

    /// Returns the names of a directory after one, as many as a page has, and whether there are more.
    pub(super) fn page(&self, dir: &Node, after: Option<&Name>, max: PageMax) -> Result<(Vec<Listed>, bool)> {
        let after = after.map(Name::as_bytes).unwrap_or_default();
        let mut names = match self.take(dir, after) {
            Some(names) => names,
            None => Names::read(dir, after)?,
        };
        let page = names.give(max.entries());
        let more = names.last.is_some() || !names.left().is_empty();
        if let Some((last, _)) = page.last() {
            self.keep(dir, last, names);
        }
        Ok((page, more))
    }
}

impl Names {
    fn within(bytes_max: usize) -> Self {
        Self { text: Vec::new(), places: Vec::new(), given: 0, last: None, bytes_max }
    }

    /// Reads a directory, and keeps the names that come first after one.
    fn read(dir: &Node, after: &[u8]) -> Result<Self> {
        let mut names = Self::within(limits::EXPORT_AHEAD_BYTES / 2);
        dir.held.list(0, |listed| {
            let shown = listed.sort.is_none_or(|sort| shown_kind(sort).is_some());
            if shown && listed.name() > after {
                names.offer(listed.name(), listed.next)?;
            }
            Ok(ControlFlow::Continue(()))
        })?;
        names.sort();
        Ok(names)
    }

    /// Takes a name, in any order. Where they become too many, the later half is left out.
    fn offer(&mut self, name: &[u8], cookie: u64) -> Result<()> {
        if self.last.as_ref().is_some_and(|last| name > &last[..]) {
            return Ok(());
        }
        let too_long = |_| weft_core::Error::corrupt("a name of the machine is longer than any may be");
        let length = u16::try_from(name.len()).map_err(too_long)?;
        self.places.push(Place { cookie, at: self.text.len() as u32, length });
        self.text.extend_from_slice(name);
        if self.bytes() > self.bytes_max && self.places.len() > 1 {
            self.halve();
        }
        Ok(())
    }

    fn halve(&mut self) {
        let half = self.places.len() / 2;
        let text = &self.text;
        let (_, last, _) =
            self.places.select_nth_unstable_by(half - 1, |a, b| a.name(text).cmp(b.name(text)));
        self.last = Some(last.name(text).to_vec());
        self.places.truncate(half);
        // Each moves towards the front, over nothing that is kept.
        self.places.sort_unstable_by_key(|place| place.at);
        let mut end = 0;
        for place in &mut self.places {
            self.text.copy_within(place.range(), end);
            place.at = end as u32;
            end += usize::from(place.length);
        }
        self.text.truncate(end);
    }

    fn sort(&mut self) {
        let text = &self.text;
        self.places.sort_unstable_by(|a, b| a.name(text).cmp(b.name(text)));
        self.places.shrink_to_fit();
        self.text.shrink_to_fit();
    }

    /// Gives out as many as that, in order.
    fn give(&mut self, most: usize) -> Vec<Listed> {
        let left = self.left();
        let given: Vec<_> = left[..left.len().min(most)]
            .iter()
            .map(|place| (place.name(&self.text).to_vec(), place.cookie))
            .collect();
        self.given += given.len();
        given
    }

    fn left(&self) -> &[Place] {
        &self.places[self.given..]
    }

    fn bytes(&self) -> usize {
        self.text.len() + self.places.len() * size_of::<Place>()
    }
}

impl Place {
    fn range(self) -> Range<usize> {
        let at = self.at as usize;
        at..at + usize::from(self.length)
    }

    fn name(self, text: &[u8]) -> &[u8] {
        &text[self.range()]
    }
}

fn stamp(dir: &Node) -> (Time, Time) {
    (dir.facts.mtime, dir.facts.ctime)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lists names as pages do: those after the last, until nothing was left out.
    fn listed(names: &[String], bytes_max: usize, page: usize) -> (Vec<Listed>, usize) {
        let (mut all, mut readings) = (Vec::<Listed>::new(), 0);
        loop {
            let after = all.last().map(|(name, _)| name.clone()).unwrap_or_default();
            let mut read = Names::within(bytes_max);
            for (cookie, name) in names.iter().enumerate().filter(|(_, name)| name.as_bytes() > &after[..]) {
                read.offer(name.as_bytes(), cookie as u64).expect("a name");
                assert!(read.bytes() <= bytes_max.max(300));
            }
            read.sort();
            readings += 1;
            while !read.left().is_empty() {
                all.extend(read.give(page));
            }
            if read.last.is_none() {
                return (all, readings);
            }
        }
    }

    #[test]
    fn what_is_kept_is_bounded_by_bytes_and_by_number_and_the_oldest_goes() {
        let ahead = Ahead::default();
        let kept = |after: u32, bytes: usize| {
            let mut names = Names::within(usize::MAX);
            names.text = vec![b'x'; bytes];
            let dir = FileId::ROOT;
            Kept { dir, stamp: Default::default(), after: after.to_be_bytes().to_vec(), names }
        };
        let afters = || -> Vec<_> {
            let all = ahead.0.lock().expect("nobody panicked");
            all.iter().map(|kept| u32::from_be_bytes(kept.after[..].try_into().expect("four"))).collect()
        };
        (0..1000).for_each(|_| ahead.add(kept(0, 1)));
        assert_eq!(afters(), [0], "one of a place");
        (1..100).for_each(|after| ahead.add(kept(after, 1)));
        assert_eq!(afters(), Vec::from_iter(100 - KEPT_MAX as u32..100));
        (100..104).for_each(|after| ahead.add(kept(after, limits::EXPORT_AHEAD_BYTES / 2)));
        assert_eq!(afters(), [102, 103]);
        ahead.add(kept(104, 2 * limits::EXPORT_AHEAD_BYTES));
        assert_eq!(afters(), [104], "the newest stays");
    }

    #[test]
    fn every_name_comes_once_in_order_with_its_cookie_however_little_is_kept() {
        let spread = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (n % 60);
        let names: Vec<_> = (0..1000).map(|n| format!("{:x}.{n}", spread(n))).collect();
        let mut sorted: Vec<_> = names.iter().map(|name| name.clone().into_bytes()).zip(0..).collect();
        sorted.sort();
        for (bytes_max, page, readings) in [(1 << 20, 7, 1..=1), (8 << 10, 64, 3..=12), (0, 1, 1000..=1000)] {
            let (all, took) = listed(&names, bytes_max, page);
            assert!(readings.contains(&took), "{took} readings within {bytes_max} bytes");
            assert!(all == sorted, "within {bytes_max} bytes");
        }
    }
}
