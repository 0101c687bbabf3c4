//! What one owner holds of one file: who grants locks keeps it, and who must be able to
//! take them again.

use std::collections::BTreeMap;

use super::{LockKind, LockRange, LockScope};

/// What one owner has of one file: sorted ranges that neither overlap nor, if of one
/// kind, touch; and the whole file, which ranges do not see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldLocks {
    ranges: BTreeMap<u64, (u64, LockKind)>,
    whole: Option<LockKind>,
}

impl HeldLocks {
    /// Returns the first of these locks that another owner's would clash with.
    pub fn in_the_way(&self, scope: LockScope, kind: LockKind) -> Option<(LockScope, LockKind)> {
        let clash = |held: LockKind| held == LockKind::Exclusive || kind == LockKind::Exclusive;
        match scope {
            LockScope::Whole => self.whole.filter(|held| clash(*held)).map(|held| (LockScope::Whole, held)),
            LockScope::Range(range) => self
                .over(range.at, range.end())
                .find(|(_, _, held)| clash(*held))
                .map(|(at, end, held)| (LockScope::Range(span(at, end)), held)),
        }
    }

    /// Gives up what is held of a scope: ranges are cut where they reach beyond it.
    pub fn give_up(&mut self, scope: LockScope) {
        let LockScope::Range(range) = scope else {
            self.whole = None;
            return;
        };
        let (at, end) = (range.at, range.end());
        let cut: Vec<_> = self.over(at, end).collect();
        for (start, stop, kind) in cut {
            self.ranges.remove(&start);
            if start < at {
                self.ranges.insert(start, (at, kind));
            }
            if stop > end {
                self.ranges.insert(end, (stop, kind));
            }
        }
    }

    /// Takes a lock: what was held of its scope gives way, and what it touches joins it.
    pub fn take(&mut self, scope: LockScope, kind: LockKind) {
        self.give_up(scope);
        let LockScope::Range(range) = scope else {
            self.whole = Some(kind);
            return;
        };
        let (mut at, mut end) = (range.at, range.end());
        if let Some((start, (stop, held))) = self.ranges.range(..at).next_back().map(|(a, b)| (*a, *b))
            && stop == at
            && held == kind
        {
            self.ranges.remove(&start);
            at = start;
        }
        if let Some((stop, held)) = self.ranges.get(&end).copied()
            && held == kind
        {
            self.ranges.remove(&end);
            end = stop;
        }
        self.ranges.insert(at, (end, kind));
    }

    /// Returns each lock, the ranges in order.
    pub fn each(&self) -> impl Iterator<Item = (LockScope, LockKind)> + '_ {
        let ranges = self.ranges.iter().map(|(at, (end, kind))| (LockScope::Range(span(*at, *end)), *kind));
        ranges.chain(self.whole.map(|kind| (LockScope::Whole, kind)))
    }

    /// Returns how many locks that is.
    pub fn count(&self) -> usize {
        self.ranges.len() + usize::from(self.whole.is_some())
    }

    /// Ranges that share a byte with `at..end`, in order.
    fn over(&self, at: u64, end: u64) -> impl Iterator<Item = (u64, u64, LockKind)> + '_ {
        let first = self.ranges.range(..=at).next_back().map_or(at, |(start, _)| *start);
        self.ranges
            .range(first..end)
            .map(|(start, (stop, kind))| (*start, *stop, *kind))
            .filter(move |(_, stop, _)| *stop > at)
    }
}

fn span(at: u64, end: u64) -> LockRange {
    LockRange { at, length: if end == u64::MAX { 0 } else { end - at } }
}
