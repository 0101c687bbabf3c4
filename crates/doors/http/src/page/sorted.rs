//! Listings in an order that the directory is not kept in: the first entries of it, however many there
//! are, in memory for those alone.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use weft_core::attr::Kind;
use weft_core::form::Entry;
use weft_core::{Result, Time};

use crate::codec::target::parameter;

/// What entries are compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Their names, as bytes: the order in which they are kept.
    Name,
    /// The bytes in them; what is no file has none.
    Size,
    /// When they last changed.
    Changed,
}

/// An order, and which way it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sorting {
    /// What is compared.
    pub order: Order,
    /// Whether the largest comes first.
    pub falls: bool,
}

impl Sorting {
    /// The order in which entries are kept.
    pub const KEPT: Self = Self { order: Order::Name, falls: false };

    /// Returns the order that a query asks for: `sort=size`, `sort=-size`. `Invalid` for another.
    pub fn asked(query: Option<&[u8]>) -> Result<Self> {
        let Some(text) = parameter(query, "sort")? else { return Ok(Self::KEPT) };
        let (falls, name) = match text.strip_prefix(b"-") {
            Some(name) => (true, name),
            None => (false, text.as_slice()),
        };
        let order = match name {
            b"name" => Order::Name,
            b"size" => Order::Size,
            b"changed" => Order::Changed,
            _ => return Err(weft_core::Error::invalid("`sort` is `name`, `size` or `changed`")),
        };
        Ok(Self { order, falls })
    }

    /// Returns the value of `sort` that asks for it.
    pub fn name(self) -> String {
        let name = match self.order {
            Order::Name => "name",
            Order::Size => "size",
            Order::Changed => "changed",
        };
        format!("{}{name}", if self.falls { "-" } else { "" })
    }

    fn compare(self, one: &Entry, other: &Entry) -> Ordering {
        let size =
            |entry: &Entry| entry.attr.as_ref().filter(|_| entry.kind == Kind::File).map(|attr| attr.size);
        let changed = |entry: &Entry| entry.attr.as_ref().map_or(Time::EPOCH, |attr| attr.mtime);
        let by = match self.order {
            Order::Name => Ordering::Equal,
            Order::Size => size(one).cmp(&size(other)),
            Order::Changed => changed(one).cmp(&changed(other)),
        };
        let by = by.then_with(|| one.name.cmp(&other.name));
        if self.falls { by.reverse() } else { by }
    }
}

/// The first entries in an order, of as many as are shown to it.
pub struct First {
    sorting: Sorting,
    /// The last of them on top.
    kept: BinaryHeap<Placed>,
    most: usize,
    seen: u64,
}

struct Placed {
    sorting: Sorting,
    entry: Entry,
}

impl Ord for Placed {
    fn cmp(&self, other: &Self) -> Ordering {
        self.sorting.compare(&self.entry, &other.entry)
    }
}

impl PartialOrd for Placed {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Placed {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Placed {}

impl First {
    /// Begins with none: at most so many will be kept.
    pub fn new(sorting: Sorting, most: usize) -> Self {
        Self { sorting, kept: BinaryHeap::new(), most, seen: 0 }
    }

    /// Takes an entry in, if it is among the first.
    pub fn see(&mut self, entry: Entry) {
        self.seen += 1;
        self.kept.push(Placed { sorting: self.sorting, entry });
        if self.kept.len() > self.most {
            self.kept.pop();
        }
    }

    /// Returns the first in their order, and how many there were in all.
    pub fn done(self) -> (Vec<Entry>, u64) {
        let entries = self.kept.into_sorted_vec().into_iter().map(|placed| placed.entry).collect();
        (entries, self.seen)
    }
}
