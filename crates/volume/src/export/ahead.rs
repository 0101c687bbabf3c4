//! Names of a large directory in their order, read ahead of the page that was asked for.
//!
//! The machine lists names in an order of its own: the next page in the order of names is found only by
//! reading all of them. So each reading keeps as many of those that come next as some memory holds, and
//! the pages after it are taken from there, as long as the directory's stamps say that it is as it was.

use std::collections::{BinaryHeap, VecDeque};
use std::ops::ControlFlow;
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

/// A name and its cookie.
type Listed = (Vec<u8>, u64);

/// Names in order.
pub(super) struct Names {
    names: VecDeque<Listed>,
    bytes: usize,
    /// Whether there are more after these.
    more: bool,
}

/// What a name takes beside its own bytes.
const NAME_BYTES: usize = size_of::<Listed>();

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
        if names.names.is_empty() || is_young(&dir.facts) {
            return;
        }
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push_back(Kept { dir: dir.id, stamp: stamp(dir), after: after.to_vec(), names });
        while all.len() > 1
            && all.iter().map(|kept| kept.names.bytes).sum::<usize>() > limits::EXPORT_AHEAD_BYTES
        {
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
        let count = names.names.len().min(max.entries());
        let page: Vec<_> = names.names.drain(..count).collect();
        names.bytes -= page.iter().map(|(name, _)| name.len() + NAME_BYTES).sum::<usize>();
        let more = names.more || !names.names.is_empty();
        if let Some((last, _)) = page.last() {
            self.keep(dir, last, names);
        }
        Ok((page, more))
    }
}

impl Names {
    /// Reads a directory, and keeps the names that come first after one.
    fn read(dir: &Node, after: &[u8]) -> Result<Self> {
        let (mut first, mut bytes, mut more) = (BinaryHeap::<Listed>::new(), 0, false);
        dir.held.list(0, |listed| {
            let name = listed.name();
            let shown = listed.sort.is_none_or(|sort| shown_kind(sort).is_some());
            if name <= after || !shown {
                return Ok(ControlFlow::Continue(()));
            }
            if more && first.peek().is_some_and(|(last, _)| name > &last[..]) {
                return Ok(ControlFlow::Continue(()));
            }
            bytes += name.len() + NAME_BYTES;
            first.push((name.to_vec(), listed.next));
            while bytes > limits::EXPORT_AHEAD_BYTES / 2
                && let Some((last, _)) = first.pop()
            {
                bytes -= last.len() + NAME_BYTES;
                more = true;
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(Self { names: first.into_sorted_vec().into(), bytes, more })
    }
}

fn stamp(dir: &Node) -> (Time, Time) {
    (dir.facts.mtime, dir.facts.ctime)
}
