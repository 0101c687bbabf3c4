//! One file out of the tree.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use weft_core::attr::Attr;
use weft_core::form::{At, OpenFile, OpenHow, Piece, Pin, Range, collect};
use weft_core::{Error, ErrorKind, Result, Rights, Time, limits};
use weft_sys::fault;

use super::{How, Outcome, Progress};
use crate::Client;

/// Bytes compared before an interrupted copy is trusted and gone on with.
const COMPARED_BYTES: u64 = limits::SEAL_BLOCK_BYTES;

/// A file of the tree, and what errors call it.
#[derive(Clone, Copy)]
pub struct From<'a> {
    /// Where it is.
    pub at: &'a At,
    /// Its path, as whoever asked wrote it.
    pub shown: &'a str,
}

/// Copies a file to a local path. What is there is replaced whole once every byte is
/// on disk; an interrupted copy of the same version is gone on with.
pub async fn download(
    client: &Client,
    from: From<'_>,
    to: &Path,
    how: How,
    progress: &Progress,
) -> Result<Outcome> {
    let open = OpenHow { need: Rights::READ, pin: Pin::Version, ..OpenHow::default() };
    let opened = client.fs().open(&client.call(), from.at, &open).await.map_err(|e| e.said_of(from.shown))?;
    let attr = opened.attr;
    let outcome = if !how.force && unchanged(to, &attr) {
        progress.add_bytes(attr.size)?;
        Outcome::Unchanged
    } else {
        let resumed = Receiving { client, from, file: &*opened.file, attr: &attr, progress }.run(to).await?;
        Outcome::Copied { resumed }
    };
    opened.file.close(&client.call()).await.map_err(|e| e.said_of(from.shown))?;
    progress.add_file();
    Ok(outcome)
}

fn unchanged(local: &Path, attr: &Attr) -> bool {
    std::fs::symlink_metadata(local).is_ok_and(|m| {
        let mtime = Time::from_unix(m.mtime(), m.mtime_nsec() as u32);
        m.is_file() && m.len() == attr.size && mtime == attr.mtime
    })
}

/// Returns a time as the machine's files carry it. What they cannot carry is 1970.
fn system_time(time: Time) -> SystemTime {
    let (after, before) = (time.since(Time::EPOCH), Time::EPOCH.since(time));
    UNIX_EPOCH.checked_add(after).and_then(|at| at.checked_sub(before)).unwrap_or(UNIX_EPOCH)
}

struct Receiving<'a> {
    client: &'a Client,
    from: From<'a>,
    file: &'a dyn OpenFile,
    attr: &'a Attr,
    progress: &'a Progress,
}

impl Receiving<'_> {
    /// Returns how many bytes were there already.
    async fn run(&self, to: &Path) -> Result<u64> {
        let partial = self.partial_path(to)?;
        let failed = |e: io::Error| fault::error(e, "write", partial.display());
        let options = || OpenOptions::new().read(true).write(true).create(true).truncate(false).clone();
        let local = options().open(&partial).map_err(failed)?;
        let resumed = self.trusted(&local).await?;
        local.set_len(resumed).map_err(failed)?;
        self.progress.add_bytes(resumed)?;
        self.receive(&local, resumed, &partial).await?;
        local
            .set_permissions(std::fs::Permissions::from_mode(u32::from(self.attr.mode & 0o777)))
            .map_err(failed)?;
        local.set_modified(system_time(self.attr.mtime)).map_err(failed)?;
        local.sync_all().map_err(failed)?;
        std::fs::rename(&partial, to).map_err(|e| fault::error(e, "replace", to.display()))?;
        Ok(resumed)
    }

    /// The hidden file beside the target, named after the version: another version's
    /// leftovers are never gone on with.
    fn partial_path(&self, to: &Path) -> Result<PathBuf> {
        let name =
            to.file_name().ok_or_else(|| Error::invalid("the target has no name").about(to.display()))?;
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{:x}.weft-part", self.attr.version.0));
        Ok(to.with_file_name(hidden))
    }

    /// Returns how many bytes of an earlier attempt can be kept: all of them if the
    /// last block is what the file holds there, else none.
    async fn trusted(&self, local: &File) -> Result<u64> {
        let there = local.metadata().map_err(|e| fault::error(e, "look at", "the partial copy"))?.len();
        if there == 0 || there > self.attr.size {
            return Ok(0);
        }
        let at = there.saturating_sub(COMPARED_BYTES);
        let length = (there - at) as usize;
        let mut mine = vec![0; length];
        if local.read_exact_at(&mut mine, at).is_err() {
            return Ok(0);
        }
        let range = Range { at, length: Some(length as u64) };
        let unreadable = |e: Error| e.said_of(self.from.shown);
        let mut source = self.file.read(&self.client.call(), range).await.map_err(unreadable)?;
        let theirs: Bytes = collect(&mut *source, length).await.map_err(unreadable)?;
        Ok(if theirs == mine { there } else { 0 })
    }

    async fn receive(&self, local: &File, mut at: u64, partial: &Path) -> Result<()> {
        let call = self.client.call_within(limits::TRANSFER_WITHIN);
        let unreadable = |e: Error| e.said_of(self.from.shown);
        let mut source = self.file.read(&call, Range { at, length: None }).await.map_err(unreadable)?;
        while let Some(piece) = source.next(limits::PIECE_BYTES_MAX).await.map_err(unreadable)? {
            let bytes = Piece::into_bytes(piece)?;
            local.write_all_at(&bytes, at).map_err(|e| fault::error(e, "write", partial.display()))?;
            at += bytes.len() as u64;
            self.progress.add_bytes(bytes.len() as u64)?;
        }
        if at != self.attr.size {
            return Err(Error::new(ErrorKind::Conflict, "the file ended before its size"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_before_1970_are_kept_as_those_after_it() {
        let whole = |seconds| Duration::from_secs(seconds);
        for (time, expected) in [
            (Time::EPOCH, UNIX_EPOCH),
            (Time::from_unix(7, 5), UNIX_EPOCH + Duration::new(7, 5)),
            (Time::from_unix(-7, 0), UNIX_EPOCH - whole(7)),
            (Time::from_nanos(-1), UNIX_EPOCH - Duration::from_nanos(1)),
        ] {
            assert_eq!(system_time(time), expected);
        }
    }
}
