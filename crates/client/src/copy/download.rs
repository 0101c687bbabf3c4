//! One file out of the tree.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use weft_core::attr::Attr;
use weft_core::form::{At, OpenFile, OpenHow, Opened, Piece, Pin, Source};
use weft_core::{Error, ErrorKind, Result, Rights, Time, limits};
use weft_sys::{Folder, Sort};

use super::partial::Partial;
use super::verified::{Digests, Verified};
use super::{How, Outcome, Progress};
use crate::Client;

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
/// replaced whole once every byte is on disk and was compared with the digests that the node keeps;
/// an interrupted copy of the same version is gone on with. Fails with `Corrupt` if bytes that came
/// differ, and with `Busy` while another copy of that version to that name is under way.
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
        let receiving = Receiving { client, from, file: &opened.file, attr: &attr, mode, progress };
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
    file: &'a Arc<dyn OpenFile>,
    attr: &'a Attr,
    mode: u16,
    progress: &'a Progress,
}

impl Receiving<'_> {
    /// Returns how many bytes were there already.
    async fn run(&self, to: Spot<'_>) -> Result<u64> {
        let mut partial = Partial::claim(to, self.attr.version.0)?;
        let mut digests = Digests::new(self.client, self.file.clone());
        let resumed = partial.keep(&mut digests, self.attr.size, self.progress).await;
        let resumed = match resumed {
            Ok(resumed) => resumed,
            Err(error) => {
                if partial.length() == 0 {
                    // Nothing that could be gone on with. What matters is why.
                    let _ = partial.discard();
                }
                return Err(error.said_of(self.from.shown));
            }
        };
        if let Err(error) = self.receive(&mut partial).await {
            if error.kind() == ErrorKind::Corrupt {
                // Nobody goes on with it. What matters is why.
                let _ = partial.discard();
            }
            return Err(error);
        }
        partial.finish(self.mode, self.attr.mtime)?;
        Ok(resumed)
    }

    async fn receive(&self, partial: &mut Partial<'_>) -> Result<()> {
        let unreadable = |e: Error| e.said_of(self.from.shown);
        let (at, size) = (partial.length(), self.attr.size);
        let source = Verified::begin(self.client, self.file, size, (at, size)).await;
        let mut source = source.map_err(unreadable)?;
        while let Some(piece) = source.next(limits::PIECE_BYTES_MAX).await.map_err(unreadable)? {
            let bytes = Piece::into_bytes(piece)?;
            partial.add(&bytes)?;
            self.progress.add_bytes(bytes.len() as u64)?;
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
