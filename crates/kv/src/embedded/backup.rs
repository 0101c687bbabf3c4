//! Backups: every row of one snapshot in one checksummed file.
//!
//! ```text
//!   "WEFTKVB1"
//!   block    length (u32), rows: key length, key, value length, value …, check over all so far
//!   end      length 0, commit (u64), rows (u64), check over all so far
//! ```

use std::sync::Arc;

use bytes::Bytes;
use weft_core::limits::{KV_KEY_BYTES_MAX, KV_VALUE_BYTES_MAX};
use weft_core::{Error, ErrorKind, Result};
use weft_sys::{Disk, DiskFile, FlushSite, Open, Sys};

use super::Options;
use super::log::Log;
use super::tree::Tree;
use super::view::EmbeddedSnapshot;
use crate::engine::{Commit, Row, Snapshot};

const NAME: &str = "weft-kv.backup";
const NAME_UNFINISHED: &str = "weft-kv.backup.new";
pub(super) const MAGIC: &[u8; 8] = b"WEFTKVB1";
const CHECK_BYTES: usize = 32;
/// Rows gathered before a block is written.
const BLOCK_BYTES: usize = 1 << 20;
/// No block is longer: one more row may pass the mark.
const BLOCK_BYTES_MAX: usize = BLOCK_BYTES + KV_KEY_BYTES_MAX + KV_VALUE_BYTES_MAX + 64;

/// Writes everything `snapshot` shows into `into`, under its name only once it is whole.
pub(super) fn write(snapshot: &EmbeddedSnapshot, into: &dyn Disk) -> Result<Commit> {
    match into.remove(NAME_UNFINISHED) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut out =
        Out { file: into.open(NAME_UNFINISHED, Open::MakeNew)?, at: 0, hasher: blake3::Hasher::new() };
    out.write(MAGIC)?;
    let (mut block, mut rows) = (Vec::new(), 0_u64);
    for row in snapshot.own_rows(&[0], &[]) {
        let (key, value) = row?;
        append(&mut block, &key, &value);
        rows += 1;
        if block.len() >= BLOCK_BYTES {
            out.block(&block)?;
            block.clear();
        }
    }
    if !block.is_empty() {
        out.block(&block)?;
    }
    let commit = snapshot.commit();
    out.end(commit, rows)?;
    out.file.sync(FlushSite::KvBackup)?;
    into.rename(NAME_UNFINISHED, NAME)?;
    into.sync_dir("", FlushSite::KvBackupDir)?;
    Ok(commit)
}

struct Out {
    file: Arc<dyn DiskFile>,
    at: u64,
    hasher: blake3::Hasher,
}

impl Out {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.hasher.update(bytes);
        self.file.write_at(bytes, self.at)?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn check(&mut self) -> Result<()> {
        let check = *self.hasher.finalize().as_bytes();
        self.write(&check)
    }

    fn block(&mut self, rows: &[u8]) -> Result<()> {
        let len = (rows.len() as u32).to_le_bytes();
        self.write(&len)?;
        self.write(rows)?;
        self.check()
    }

    fn end(&mut self, commit: Commit, rows: u64) -> Result<()> {
        let end = [&0_u32.to_le_bytes()[..], &commit.0.to_le_bytes(), &rows.to_le_bytes()].concat();
        self.write(&end)?;
        self.check()
    }
}

fn append(block: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    for part in [key, value] {
        block.extend_from_slice(&(part.len() as u32).to_le_bytes());
        block.extend_from_slice(part);
    }
}

/// Makes an engine on `into` from the backup on `from`.
pub(super) fn restore(sys: &Sys, from: &dyn Disk, into: &Arc<dyn Disk>, options: Options) -> Result<Commit> {
    // Read it all once before anything is made: a damaged backup must leave nothing behind.
    let commit = read(from, &mut |_| Ok(()))?;
    let identity = sys.random().u64();
    Log::make(into.clone(), sys.clone(), identity, commit.0 + 1, options.segment_bytes)?;
    Tree::make(&**into, options.cache_bytes, identity, |tree| {
        read(from, &mut |rows| tree.fill(rows, commit.0))?;
        tree.fill(&[], commit.0)
    })?;
    into.sync_dir("", FlushSite::KvTreeDir)?;
    Ok(commit)
}

/// Reads a backup, calling `each` with the rows of every block once its check has held.
fn read(from: &dyn Disk, each: &mut dyn FnMut(&[Row]) -> Result<()>) -> Result<Commit> {
    let mut input = In { file: from.open(NAME, Open::Read)?, at: 0, hasher: blake3::Hasher::new() };
    if input.take(MAGIC.len())? != MAGIC[..] {
        return Err(Error::unsupported("this is not a metadata backup that this Weft can read").about(NAME));
    }
    let whole = input.file.len()?;
    let mut rows = 0;
    loop {
        let len = number(&input.take(4)?) as usize;
        if len == 0 {
            break;
        }
        // No memory for what cannot be there.
        if len > BLOCK_BYTES_MAX || input.at + len as u64 > whole {
            return Err(damaged(input.at));
        }
        let block = input.take(len)?;
        input.check()?;
        let block = parse(block, input.at)?;
        rows += block.len() as u64;
        each(&block)?;
    }
    let (commit, counted) = (number(&input.take(8)?), number(&input.take(8)?));
    input.check()?;
    if counted != rows || input.at != whole {
        return Err(damaged(input.at));
    }
    Ok(Commit(commit))
}

struct In {
    file: Arc<dyn DiskFile>,
    at: u64,
    hasher: blake3::Hasher,
}

impl In {
    fn take(&mut self, len: usize) -> Result<Bytes> {
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, self.at).map_err(|error| error.about(NAME))?;
        self.hasher.update(&bytes);
        self.at += len as u64;
        Ok(bytes.into())
    }

    fn check(&mut self) -> Result<()> {
        let check = *self.hasher.finalize().as_bytes();
        if self.take(CHECK_BYTES)? != check[..] {
            return Err(damaged(self.at));
        }
        Ok(())
    }
}

fn parse(mut block: Bytes, at: u64) -> Result<Vec<Row>> {
    let part = |block: &mut Bytes| {
        let len = number(block.get(..4)?) as usize;
        (block.len() >= 4 + len).then(|| block.split_to(4 + len).slice(4..))
    };
    let mut rows = Vec::new();
    while !block.is_empty() {
        let row = part(&mut block).and_then(|key| Some((key, part(&mut block)?)));
        rows.push(row.ok_or_else(|| damaged(at))?);
    }
    Ok(rows)
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn damaged(at: u64) -> Error {
    Error::corrupt(format!("the metadata backup is damaged before byte {at}"))
        .about(NAME)
        .hint("restore an older backup")
}

#[cfg(test)]
mod tests;
