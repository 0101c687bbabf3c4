//! What a node counts, and how it is kept.
//!
//! [`Metrics`] is made of the catalogue (`metrics/catalogue.rs`), the one place that names what is
//! measured: a number that is not in it cannot be counted, since there is no field for it. It is a
//! value, and whoever counts is handed one (with the `Sys` they work with): two nodes in one process
//! do not add up.
//!
//! Counting is one relaxed addition, without a lock or an allocation. So labels are enums: how many
//! cells there are is known before anything happens, whatever strangers send. There is nothing for
//! each file, user or address, and there must not be.

mod catalogue;
mod label;

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub use catalogue::Metrics;
pub use label::{Flow, Label, Labels, LoginBy, Outcome, Version, Way, Withdrawn, Work};

/// A number that only rises while the node runs.
#[derive(Debug)]
pub struct Counter<L: Labels>(Cells<L>);

/// A number that is as things are.
#[derive(Debug)]
pub struct Gauge<L: Labels>(Cells<L>);

/// A cell for each combination of the labels' values.
#[derive(Debug)]
struct Cells<L> {
    cells: Box<[AtomicU64]>,
    labels: PhantomData<fn(L)>,
}

impl<L: Labels> Default for Cells<L> {
    fn default() -> Self {
        let cells = (0..L::CELLS).map(|_| AtomicU64::new(0)).collect();
        Self { cells, labels: PhantomData }
    }
}

impl<L: Labels> Cells<L> {
    fn of(&self, labels: L) -> &AtomicU64 {
        &self.cells[labels.place()]
    }

    /// Each value with those of its labels, in their order.
    fn samples(&self) -> Vec<Sample> {
        let sample = |(at, cell): (usize, &AtomicU64)| Sample {
            labels: label::values(L::LABELS, at),
            value: cell.load(Ordering::Relaxed),
        };
        self.cells.iter().enumerate().map(sample).collect()
    }
}

impl<L: Labels> Default for Counter<L> {
    fn default() -> Self {
        Self(Cells::default())
    }
}

impl<L: Labels> Counter<L> {
    /// Counts one.
    pub fn count(&self, labels: L) {
        self.add(labels, 1);
    }

    /// Counts so many.
    pub fn add(&self, labels: L, more: u64) {
        self.0.of(labels).fetch_add(more, Ordering::Relaxed);
    }

    /// Counts time, to the microsecond: of a counter whose unit is [`Unit::Seconds`].
    pub fn took(&self, labels: L, span: Duration) {
        self.add(labels, u64::try_from(span.as_micros()).unwrap_or(u64::MAX));
    }

    /// Takes over what is counted elsewhere, and only rises there.
    pub fn follow(&self, labels: L, value: u64) {
        self.0.of(labels).fetch_max(value, Ordering::Relaxed);
    }

    /// Returns what was counted.
    pub fn value(&self, labels: L) -> u64 {
        self.0.of(labels).load(Ordering::Relaxed)
    }

    fn samples(&self) -> Vec<Sample> {
        self.0.samples()
    }
}

impl<L: Labels> Default for Gauge<L> {
    fn default() -> Self {
        Self(Cells::default())
    }
}

impl<L: Labels> Gauge<L> {
    /// One more is there.
    pub fn enter(&self, labels: L) {
        self.0.of(labels).fetch_add(1, Ordering::Relaxed);
    }

    /// One of them has gone.
    pub fn leave(&self, labels: L) {
        self.0.of(labels).fetch_sub(1, Ordering::Relaxed);
    }

    /// Says how many there are: for what is looked at when somebody asks.
    pub fn set(&self, labels: L, value: u64) {
        self.0.of(labels).store(value, Ordering::Relaxed);
    }

    /// Returns how many there are.
    pub fn value(&self, labels: L) -> u64 {
        self.0.of(labels).load(Ordering::Relaxed)
    }

    fn samples(&self) -> Vec<Sample> {
        self.0.samples()
    }
}

/// How a metric behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only rises, from 0 at the node's start.
    Counter,
    /// It is as things are.
    Gauge,
}

/// What a metric's numbers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things of the kind that the name says.
    Count,
    /// Bytes.
    Bytes,
    /// Seconds; counted in microseconds.
    Seconds,
    /// 1 for yes and 0 for no, or 1 beside labels that say something.
    Flag,
}

/// What is promised of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stability {
    /// Name, unit and labels stay; values of labels may be added.
    Stable,
    /// It may go or change with any version.
    Trial,
}

/// What the catalogue says of a metric.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The field of [`Metrics`].
    pub field: &'static str,
    /// What it is called outside.
    pub name: &'static str,
    /// How it behaves.
    pub kind: Kind,
    /// What its numbers are.
    pub unit: Unit,
    /// What is promised of it.
    pub stability: Stability,
    /// What it says.
    pub help: &'static str,
    /// Its labels, each with all values that it can have.
    pub labels: &'static [(&'static str, &'static [&'static str])],
}

/// A value, and what it is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The labels' names and values.
    pub labels: Vec<(&'static str, &'static str)>,
    /// In microseconds if the unit is seconds.
    pub value: u64,
}

#[cfg(test)]
mod tests;
