//! Objects: bytes under an id, labelled with a container, checked block by block.
//!
//! **Problem.** Bytes must be served as fast as the kernel can send them, and yet never wrong:
//! not after a crash, not after a bit flipped on the disk, not to somebody whose right was
//! withdrawn a moment ago. And a small durable object should cost one flush, not four.
//!
//! **Shape.** Two implementations of core's `ObjectStore`: [`Memory`], for scratch, and
//! [`Directory`], which keeps one plain file per object and everything about it in the metadata
//! engine:
//!
//! ```text
//!   make ──▶ takes a spare file ─┐  (64 made at once: one flush of names for 64 objects)
//!                                ├─▶ one record: label, file, "open for writing"
//!   write ─▶ pieces, as they come ─▶ the file; changed blocks are remembered
//!   seal, or 5 s idle ─▶ BLAKE3 of each changed 1 MiB ─▶ flush of the bytes ─▶ record of the seals
//!   sync ──▶ flush of the bytes, then of the records (shared with every other commit)
//!   read ──▶ per piece: the right? the label? the seal? ─▶ from the page cache: a piece of the
//!                                                       │   file, for sendfile
//!                                                       └─▶ else read, hashed, and sent from there
//! ```
//!
//! **Promises.** An object that is sealed is marked in one durable record before its first byte
//! changes, so that after a crash its blocks are known to be unsure: they are sealed anew as
//! *unverified* and `check` says so. A seal is recorded only once the bytes it speaks of are on
//! disk. A block is compared with its seal when it is first read after a start, and again
//! whenever it had left the page cache; what does not match is never served. A file is removed
//! only once its object's removal is on disk.
//!
//! **Rejected.** Files named by object: each new name would need a flush of its own. Checksums
//! in the files: ordinary tools could not read them. Sealing in `sync`: a database syncs every
//! few kilobytes and would hash a megabyte each time.
//!
//! **Ways to get it wrong.** Two `Live` values for one object: state would split, so loading and
//! making go through one lock per object. Recording a seal before the flush: a crash would call
//! good bytes corrupt. Sealing a block while it is written: each change moves a stamp, and a seal
//! counts only if the stamp stood still. Trusting a block because it once matched: it may have
//! come from the disk anew, so residency is asked each time.

mod directory;
mod memory;
mod proof;

pub use directory::{BackedUp, Check, Copied, Counts, Directory, Options, Restored, SCHEMA, SPACE, restore};
pub use memory::Memory;
