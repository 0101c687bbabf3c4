//! Rows in order, merged from the places they lie in.

use std::collections::{BTreeMap, btree_map};

use bytes::Bytes;
use weft_core::Result;

use super::held::Key;
use super::overlay::OverlayCursor;
use super::tree::TreeCursor;
use crate::engine::{Order, Row};

/// A key and what became of it: a value, or `None` where it was deleted.
pub(super) type Change = (Key, Option<Bytes>);

/// Changes by key.
pub(super) type Changes = BTreeMap<Key, Option<Bytes>>;

/// One place that rows come from.
pub(super) enum Source<'a> {
    /// The batch under way.
    Pending(btree_map::Range<'a, Key, Option<Bytes>>),
    /// An overlay.
    Overlay(OverlayCursor),
    /// The tree.
    Tree(TreeCursor),
}

impl Source<'_> {
    fn next(&mut self, order: Order) -> Option<Result<Change>> {
        match self {
            Self::Pending(range) => {
                let row = if order == Order::Rising { range.next() } else { range.next_back() };
                row.map(|(key, value)| Ok((key.clone(), value.clone())))
            }
            Self::Overlay(cursor) => cursor.next().map(Ok),
            Self::Tree(cursor) => {
                cursor.next().map(|row| row.map(|(key, value)| (Key::Long(key), Some(value))))
            }
        }
    }
}

/// Several sources as one; where two have the same key, the earlier source is newer and wins.
pub(super) struct Merged<'a> {
    sources: Vec<Source<'a>>,
    heads: Vec<Option<Change>>,
    order: Order,
    state: State,
}

#[derive(PartialEq)]
enum State {
    Fresh,
    Running,
    Ended,
}

impl<'a> Merged<'a> {
    /// Merges `sources`, newest first, all of which run in `order`.
    pub(super) fn new(sources: Vec<Source<'a>>, order: Order) -> Self {
        let heads = sources.iter().map(|_| None).collect();
        Self { sources, heads, order, state: State::Fresh }
    }

    fn advance(&mut self, source: usize) -> Result<()> {
        self.heads[source] = self.sources[source].next(self.order).transpose()?;
        Ok(())
    }

    /// Returns the source whose head comes first; of equals, the newest.
    fn first(&self) -> Option<usize> {
        let mut best: Option<(usize, &Key)> = None;
        for (source, head) in self.heads.iter().enumerate() {
            let Some((key, _)) = head else { continue };
            let sooner = best.is_none_or(|(_, least)| match self.order {
                Order::Rising => key < least,
                Order::Falling => key > least,
            });
            if sooner {
                best = Some((source, key));
            }
        }
        best.map(|(source, _)| source)
    }

    fn step(&mut self) -> Result<Option<Row>> {
        if self.state == State::Fresh {
            self.state = State::Running;
            (0..self.sources.len()).try_for_each(|source| self.advance(source))?;
        }
        while let Some(first) = self.first() {
            let Some((key, value)) = self.heads[first].take() else { break };
            self.advance(first)?;
            for other in first + 1..self.sources.len() {
                if self.heads[other].as_ref().is_some_and(|(theirs, _)| *theirs == key) {
                    self.advance(other)?;
                }
            }
            if let Some(value) = value {
                return Ok(Some((key.into_bytes(), value)));
            }
        }
        Ok(None)
    }
}

impl Iterator for Merged<'_> {
    type Item = Result<Row>;

    fn next(&mut self) -> Option<Result<Row>> {
        if self.state == State::Ended {
            return None;
        }
        let row = self.step().transpose();
        if !matches!(row, Some(Ok(_))) {
            self.state = State::Ended;
        }
        row
    }
}
