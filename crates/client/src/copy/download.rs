//! One file out of the tree.

use std::ffi::OsStr;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use weft_core::attr::Attr;
use weft_core::form::{At, OpenFile, OpenHow, Opened, Piece, Pin, Range, collect};
use weft_core::{Error, ErrorKind, Result, Rights, Time, limits};
use weft_sys::{Folder, Sort};

use super::partial::Partial;
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

impl From<'_> {
    /// Opens it pinned to the version it has now.
    pub(super) async fn open(self, client: &Client) -> Result<Opened> {
        let how = OpenHow { need: Rights::READ, pin: Pin::Version, ..OpenHow::default() };
        client.fs().open(&client.call(), self.at, &how).await.map_err(|e| e.said_of(self.shown))
    }
}

/// A name in a directory of this machine.
#[derive(Clone, Copy)]
pub struct Spot<'a> {
    /// The directory.
    pub folder: &'a Folder,
    /// The name in it.
    pub name: &'a OsStr,
}

/// Copies a file to a name in a local directory. A regular file there, or a symbolic link, is
/// replaced whole once every byte is on disk; an interrupted copy of the same version is gone on
/// with. Fails with `Busy` while another copy of that version to that name is under way.
pub async fn download(
    client: &Client,
    from: From<'_>,
    to: Spot<'_>,
    how: How,
    progress: &Progress,
) -> Result<Outcome> {
    let opened = from.open(client).await?;
    let attr = opened.attr;
    let outcome = if !how.force && is_there(to, &attr)? {
        progress.add_bytes(attr.size)?;
        Outcome::Unchanged
    } else {
        refuse_what_is_kept(to)?;
        let mode = attr.mode & 0o777 & !how.umask;
        let receiving = Receiving { client, from, file: &*opened.file, attr: &attr, mode, progress };
        Outcome::Copied { bytes: attr.size, resumed: receiving.run(to).await? }
    };
    opened.file.close(&client.call()).await.map_err(|e| e.said_of(from.shown))?;
    progress.add_file();
    Ok(outcome)
}

/// Returns whether a regular file with a file's size and modification time stands at a name.
pub fn is_there(local: Spot<'_>, attr: &Attr) -> Result<bool> {
    let seen = local.folder.look(local.name)?;
    Ok(seen.is_some_and(|s| s.sort == Sort::File && s.size == attr.size && s.mtime == attr.mtime))
}

/// Fails where something stands that a file does not replace.
fn refuse_what_is_kept(to: Spot<'_>) -> Result<()> {
    let error = match to.folder.look(to.name)?.map(|seen| seen.sort) {
        None | Some(Sort::File | Sort::Symlink) => return Ok(()),
        Some(Sort::Directory) => Error::new(ErrorKind::IsDirectory, "it is a directory"),
        Some(Sort::Fifo | Sort::Other) => Error::exists("it is no regular file, and stays"),
    };
    Err(error.op("replace").about(to.folder.shown(to.name).display()))
}

/// Returns a time as the machine's files carry it. What they cannot carry is 1970.
pub(super) fn system_time(time: Time) -> SystemTime {
    let (after, before) = (time.since(Time::EPOCH), Time::EPOCH.since(time));
    UNIX_EPOCH.checked_add(after).and_then(|at| at.checked_sub(before)).unwrap_or(UNIX_EPOCH)
}

struct Receiving<'a> {
    client: &'a Client,
    from: From<'a>,
    file: &'a dyn OpenFile,
    attr: &'a Attr,
    mode: u16,
    progress: &'a Progress,
}

impl Receiving<'_> {
    /// Returns how many bytes were there already.
    async fn run(&self, to: Spot<'_>) -> Result<u64> {
        let mut partial = Partial::claim(to, self.attr.version.0)?;
        let resumed = self.trusted(&partial).await?;
        partial.keep(resumed)?;
        self.receive(&mut partial).await?;
        partial.finish(self.mode, self.attr.mtime)?;
        Ok(resumed)
    }

    /// Returns how many bytes of an earlier attempt can be kept: those that are still as they
    /// were put there, if the last block of them is what the file holds there.
    async fn trusted(&self, partial: &Partial<'_>) -> Result<u64> {
        let there = partial.as_noted(self.attr.size, self.progress).await?;
        if there == 0 {
            return Ok(0);
        }
        let at = there.saturating_sub(COMPARED_BYTES);
        let length = (there - at) as usize;
        let mut mine = vec![0; length];
        partial.read(&mut mine, at)?;
        let range = Range { at, length: Some(length as u64) };
        let unreadable = |e: Error| e.said_of(self.from.shown);
        let mut source = self.file.read(&self.client.call(), range).await.map_err(unreadable)?;
        let theirs: Bytes = collect(&mut *source, length).await.map_err(unreadable)?;
        Ok(if theirs == mine { there } else { 0 })
    }

    async fn receive(&self, partial: &mut Partial<'_>) -> Result<()> {
        let call = self.client.call_within(limits::TRANSFER_WITHIN);
        let unreadable = |e: Error| e.said_of(self.from.shown);
        let range = Range { at: partial.length(), length: None };
        let mut source = self.file.read(&call, range).await.map_err(unreadable)?;
        while let Some(piece) = source.next(limits::PIECE_BYTES_MAX).await.map_err(unreadable)? {
            let bytes = Piece::into_bytes(piece)?;
            partial.add(&bytes)?;
            self.progress.add_bytes(bytes.len() as u64)?;
        }
        if partial.length() != self.attr.size {
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
