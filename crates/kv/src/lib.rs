//! The ordered, transactional key-value engine that all metadata lives in.
//!
//! **Problem.** A create touches a handful of rows that must appear together, be on disk before
//! the caller hears "done", and share that one flush with everybody who creates at the same
//! moment; lookups must not wait for any of it.
//!
//! **Shape.** One trait, [`Engine`], and in front of it one [`Space`] per crate: its own range of
//! keys, its own schema version. A write is a closure over a [`Txn`]; it runs alone, sees
//! everything committed before it, and either all of it happens or none. Reads go through a
//! [`Snapshot`], on any thread, without waiting.
//!
//! ```text
//!   Space::write ─▶ queue ─▶ one writer: closures in order ─▶ log (one write, one flush a batch)
//!            └─ alone: at once, on its own thread ─┘            └─▶ notes, after the flush
//!                                  │
//!                                  ▼
//!   Space::snapshot ─▶ reads ─▶ overlay (versions in memory) ─▶ folded behind into the tree
//! ```
//!
//! ```text
//! let space = Space::open(engine, SpaceId(1), &SCHEMA).await?;
//! let (serial, commit) = space.write(Ack::Durable, move |txn| {
//!     let serial = next_serial(txn)?;
//!     if txn.get(&name)?.is_some() {
//!         return Err(Error::exists("the name is taken"));     // nothing of this closure remains
//!     }
//!     txn.put(&name, &serial.to_be_bytes())?;
//!     txn.bump(&parent_entries, 1)?;                          // commutes with other creators
//!     txn.note(CHANGES, &change)?;                            // delivered once this is durable
//!     Ok(serial)
//! }).await?;
//! let names = space.snapshot()?;                              // sees it
//! for row in names.scan(&dir, &prefix_end(&dir), Order::Rising) { … }   // lazy: stop any time
//! ```
//!
//! **Promises.** `Ack::Applied` answers once every later snapshot sees the commit; it is on disk
//! within [`limits::APPLIED_FLUSH_DELAY`](weft_core::limits::APPLIED_FLUSH_DELAY).
//! `Ack::Durable` answers after the flush, and then every earlier commit is on disk too. After a
//! crash the commits that remain are a prefix of those made. A [`Notes`] feed delivers each note
//! at least once, in commit order, never one whose commit can still be lost. Dropping the future
//! of a write abandons the answer, not the act. [`Engine::boot`] changes when unflushed commits
//! may have been lost: at each opening and after a failed flush, after which writes are refused
//! until the engine is opened again.
//!
//! **Ways to get it wrong.** Keeping state in the closure: it may run twice, so let it compute
//! everything from the transaction and return it. Doing I/O or waiting in it: every writer waits
//! with you. Reading a snapshot, deciding, then writing: decide inside the closure. Holding a
//! snapshot for hours: it keeps old versions alive. A transaction over two spaces: there is none,
//! what must be atomic lives in one crate's tables. Taking the first error of
//! [`Notes::next`] for their end: use [`Following`]. Not acknowledging notes: after
//! [`limits::KV_NOTES_KEPT_MAX`](weft_core::limits::KV_NOTES_KEPT_MAX) writers that note get `Busy`.

mod embedded;
mod engine;
mod following;
mod space;

pub use embedded::{Embedded, FILE_FORMATS, Options, TREE_FORMAT};
pub use engine::{
    Boot, Commit, Engine, Note, NoteKind, NotePosition, Notes, Order, Read, Row, Rows, Snapshot, Supports,
    Txn, WriteFn, counter, prefix_end,
};
pub use following::Following;
pub use space::{Migration, Schema, Space, SpaceId, SpaceSnapshot, SpaceTxn, Stepped};
pub use weft_core::form::Ack;
