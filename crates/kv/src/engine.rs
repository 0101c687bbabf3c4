//! What every engine promises.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use weft_core::form::Ack;
use weft_core::{Error, Result};
use weft_sys::Disk;

/// A place in the order of commits. 0 is "before the first".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Commit(pub u64);

/// Names one stretch of time in which nothing visible was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Boot(pub u64);

/// Which feed a note belongs to. Each kind has one subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NoteKind(pub u8);

/// A note's number within its kind: 1, 2, 3 … in commit order, without gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NotePosition(pub u64);

/// Something a commit had to tell the subscriber of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Its number.
    pub position: NotePosition,
    /// The commit that carried it.
    pub commit: Commit,
    /// What the transaction said.
    pub bytes: Bytes,
}

/// What an engine can do beyond the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Supports {
    /// Whether other nodes may write to the same data.
    pub shared: bool,
    /// Whether [`Engine::backup`] works.
    pub backup: bool,
}

/// Which end a scan starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// From the smallest key.
    Rising,
    /// From the largest key.
    Falling,
}

/// A key and its value.
pub type Row = (Bytes, Bytes);

/// Rows in order. The first error ends it.
pub type Rows<'a> = Box<dyn Iterator<Item = Result<Row>> + 'a>;

/// The body of a transaction. It may run more than once; only the last run counts.
pub type WriteFn = Box<dyn FnMut(&mut dyn Txn) -> Result<()> + Send>;

/// Reading, at one moment.
pub trait Read {
    /// Returns the value under `key`.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>>;

    /// Returns the rows from `from` (inclusive) to `to` (exclusive; empty means to the end).
    /// Lazy: it seeks once and reads on as it is asked to, in bounded chunks.
    fn scan(&self, from: &[u8], to: &[u8], order: Order) -> Rows<'_>;
}

/// Everything as it was at one moment, whatever is written meanwhile.
pub trait Snapshot: Read + Send + Sync {
    /// Returns the last commit it shows.
    fn commit(&self) -> Commit;
}

/// A transaction under way: it sees what was committed and what it has done itself.
///
/// Keys are 1 to `KV_KEY_BYTES_MAX` bytes, values up to `KV_VALUE_BYTES_MAX`; larger ones, and
/// transactions over `KV_TXN_BYTES_MAX`, are `TooLarge`. Once a method has failed the transaction
/// cannot commit, whatever its closure returns.
pub trait Txn: Read {
    /// Sets the value under `key`.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Removes the value under `key`, if there is one.
    fn delete(&mut self, key: &[u8]) -> Result<()>;

    /// Adds `delta` to the counter under `key`, which is 0 if absent. Bumps commute: two
    /// transactions that bump the same counter never conflict. Read it with [`counter`].
    fn bump(&mut self, key: &[u8], delta: i64) -> Result<()>;

    /// Leaves a note for the subscriber of `kind`, delivered once this commit is durable. `Busy`
    /// if that subscriber is `KV_NOTES_KEPT_MAX` behind.
    fn note(&mut self, kind: NoteKind, bytes: &[u8]) -> Result<()>;
}

/// The notes of one kind, for its one subscriber. Dropping it ends the subscription; what was
/// not acknowledged comes again to the next.
#[async_trait]
pub trait Notes: Send {
    /// Waits for notes after those already handed over, and returns up to `KV_NOTES_PAGE_MAX` of
    /// them in order. Cancelling loses nothing. After an error they can be asked for again, unless
    /// [`Notes::is_closed`].
    async fn next(&mut self) -> Result<Vec<Note>>;

    /// Forgets the notes up to `position`: they will not come again, except after a crash within
    /// `APPLIED_FLUSH_DELAY`.
    async fn ack(&mut self, position: NotePosition) -> Result<()>;

    /// Returns whether the engine is closed, so that no note will ever come.
    fn is_closed(&self) -> bool;
}

/// An ordered, transactional store of keys and values.
///
/// Keys that start with `0xff` are the engine's own: writing them is `Invalid`, and scans end
/// before them.
#[async_trait]
pub trait Engine: Send + Sync {
    /// Returns what it can do.
    fn supports(&self) -> Supports;

    /// Returns a snapshot that shows every commit answered so far.
    fn snapshot(&self) -> Result<Box<dyn Snapshot>>;

    /// Runs a transaction. An error of the closure is returned as it is, and nothing of the
    /// closure remains. `NoSpace`: nothing happened, try when there is space. `Unavailable`: the
    /// disk failed, and whether the commit survives the next opening is unknown. Waits while
    /// `KV_QUEUE_MAX` others do. Where nobody else writes and the disk is quick, all of it happens
    /// on the caller's thread, flush included.
    async fn write(&self, ack: Ack, act: WriteFn) -> Result<Commit>;

    /// Makes everything committed so far durable, and returns how far that is.
    async fn flush(&self) -> Result<Commit>;

    /// Subscribes to the notes of a kind, from the first unacknowledged one. `Busy` if there is
    /// a subscriber already.
    fn notes(&self, kind: NoteKind) -> Result<Box<dyn Notes>>;

    /// Returns the last note of a kind, if it is not acknowledged yet.
    fn last_note(&self, kind: NoteKind) -> Result<Option<NotePosition>>;

    /// Writes one consistent, checksummed copy of everything into `into`, durably, while work
    /// goes on. Returns the last commit in it.
    async fn backup(&self, into: Arc<dyn Disk>) -> Result<Commit>;

    /// Returns the name of the present boot.
    fn boot(&self) -> Boot;

    /// Returns why nothing can be written until the engine is opened again, if that is so.
    fn failed(&self) -> Option<Error> {
        None
    }

    /// Finishes what is queued, makes it durable and lets go of the data.
    async fn close(&self) -> Result<()>;
}

/// Returns the number in a counter that [`Txn::bump`] keeps.
pub fn counter(value: &[u8]) -> Result<i64> {
    let bytes = value.try_into().map_err(|_| Error::corrupt("a counter is not eight bytes"))?;
    Ok(i64::from_be_bytes(bytes))
}

/// Returns the smallest key after every key that starts with `prefix`; empty if there is none.
pub fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            break;
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_is_after_all_it_starts_and_nothing_more() {
        assert_eq!(prefix_end(b"ab"), b"ac");
        assert_eq!(prefix_end(&[1, 0xff, 0xff]), [2]);
        assert_eq!(prefix_end(&[0xff]), b"");
        assert_eq!(prefix_end(b""), b"");
    }
}
