//! One file out of the tree.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use weft_core::attr::Attr;
use weft_core::form::{At, OpenFile, OpenHow, Opened, Piece, Pin, Source};
use weft_core::{Error, ErrorKind, FileId, Result, Rights, Time, limits};
use weft_sys::local::Tags;
use weft_sys::{Folder, Seen, Sort, fault};

use super::compare::same_bytes;
use super::contents::next_run;
use super::local::LocalFile;
use super::partial::Partial;
use super::tags::tags_of;
use super::verified::{Digests, Verified};
use super::{Attributes, How, Outcome, Progress};
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
    let mode = attr.mode & 0o777 & !how.umask;
    let outcome = if is_same(client, to, &attr, how, progress).await? {
        progress.add_bytes(attr.size)?;
        if how.attributes != Attributes::Leave {
            make_alike(client, to, &attr, mode, how.attributes).await?;
        }
        Outcome::Unchanged
    } else {
        refuse_what_is_kept(to)?;
        let receiving = Receiving { client, from, file: &opened.file, attr: &attr, mode, how, progress };
        Outcome::Copied { bytes: attr.size, resumed: receiving.run(to).await? }
    };
    opened.file.close(&client.call()).await.map_err(|e| e.said_of(from.shown))?;
    progress.add_file();
    Ok(outcome)
}

/// Returns whether what stands at a name need not come.
async fn is_same(client: &Client, to: Spot<'_>, attr: &Attr, how: How, progress: &Progress) -> Result<bool> {
    let Some(seen) = to.folder.look(to.name)?.filter(|seen| seen.sort == Sort::File) else {
        return Ok(false);
    };
    match how.is_same((attr.size, attr.mtime), (seen.size, seen.mtime)) {
        Some(same) => Ok(same),
        None => {
            let file = LocalFile(to.folder.read(to.name)?);
            same_bytes(client, &At::id(attr.id), &file, attr.size, progress).await
        }
    }
}

/// Gives a local file that has the bytes already its mode, time and user attributes, where they differ.
async fn make_alike(
    client: &Client,
    to: Spot<'_>,
    attr: &Attr,
    mode: u16,
    attributes: Attributes,
) -> Result<()> {
    let failed = |e| fault::error(e, "set attributes of", to.folder.shown(to.name).display());
    let wanted = tags_of(client, &At::id(attr.id)).await?;
    let file = to.folder.read(to.name)?;
    give_tags(&file, &wanted, attributes).map_err(|e| e.said_of(to.folder.shown(to.name).display()))?;
    let seen = to.folder.look(to.name)?;
    if seen.is_none_or(|seen| seen.mtime != attr.mtime) {
        file.set_modified(system_time(attr.mtime)).map_err(failed)?;
    }
    if seen.is_none_or(|seen| seen.mode != mode) {
        file.set_permissions(Permissions::from_mode(u32::from(mode))).map_err(failed)?;
    }
    Ok(())
}

/// Gives a local file user attributes, and takes others away where they are to match.
fn give_tags(file: &File, wanted: &BTreeMap<Vec<u8>, Bytes>, attributes: Attributes) -> Result<()> {
    let there = weft_sys::local::tags(file)?;
    for (name, value) in edits_of(&there, wanted, attributes) {
        weft_sys::local::set_tag(file, name, value)?;
    }
    Ok(())
}

/// Returns whether what `cp` would fetch stands at a name already: a regular file of that size and
/// modification time, unless `how` says otherwise.
pub fn is_there(local: Spot<'_>, attr: &Attr, how: How) -> Result<bool> {
    let seen = local.folder.look(local.name)?.filter(|seen| seen.sort == Sort::File);
    let same = |seen: Seen| how.is_same((attr.size, attr.mtime), (seen.size, seen.mtime));
    Ok(seen.and_then(same) == Some(true))
}

/// Gives a local directory the user attributes of one of the tree.
pub async fn match_local_tags(
    client: &Client,
    id: FileId,
    folder: &Folder,
    attributes: Attributes,
) -> Result<()> {
    if attributes == Attributes::Leave {
        return Ok(());
    }
    let (wanted, there) = (tags_of(client, &At::id(id)).await?, folder.tags()?);
    for (name, value) in edits_of(&there, &wanted, attributes) {
        folder.set_tag(name, value)?;
    }
    Ok(())
}

/// Returns which local attributes are to be given or taken away.
fn edits_of<'a>(
    there: &'a Tags,
    wanted: &'a BTreeMap<Vec<u8>, Bytes>,
    attributes: Attributes,
) -> Vec<(&'a [u8], Option<&'a [u8]>)> {
    let gone = there.iter().filter(|(name, _)| attributes == Attributes::Match && !wanted.contains_key(name));
    let new =
        wanted.iter().filter(|(name, value)| !there.iter().any(|(own, held)| own == *name && held == *value));
    gone.map(|(name, _)| (&name[..], None))
        .chain(new.map(|(name, value)| (&name[..], Some(&value[..]))))
        .collect()
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
    how: How,
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
        let mut given = Ok(());
        if self.how.attributes != Attributes::Leave {
            let wanted = tags_of(self.client, &At::id(self.attr.id)).await;
            let wanted = wanted.map_err(|e| e.said_of(self.from.shown))?;
            given = give_tags(partial.file(), &wanted, Attributes::Match)
                .map_err(|e| not_kept(e).said_of(to.folder.shown(to.name).display()));
        }
        // A name that was there must not come to stand for less than it did.
        let flushed = !self.how.flushed_later || to.folder.look(to.name)?.is_some();
        partial.finish(self.mode, self.attr.mtime, flushed)?;
        // Its bytes are there, whatever this file system says of its attributes.
        given.map(|_| resumed)
    }

    async fn receive(&self, partial: &mut Partial<'_>) -> Result<()> {
        // A file that has holes at the node has them here: nothing is sent of them.
        let sparse = self.attr.used < self.attr.size;
        while let Some((at, end)) = self.next_run(partial.length(), sparse).await? {
            self.progress.add_bytes(at - partial.length())?;
            partial.pass(at);
            self.receive_run(partial, end).await?;
        }
        self.progress.add_bytes(self.attr.size - partial.length())?;
        partial.pass(self.attr.size);
        Ok(())
    }

    /// Returns the next bytes that have to come, from a place on that begins a block.
    async fn next_run(&self, at: u64, sparse: bool) -> Result<Option<(u64, u64)>> {
        let size = self.attr.size;
        if !sparse {
            return Ok((at < size).then_some((at, size)));
        }
        next_run(self.client, &**self.file, size, at).await.map_err(|e| e.said_of(self.from.shown))
    }

    async fn receive_run(&self, partial: &mut Partial<'_>, end: u64) -> Result<()> {
        let unreadable = |e: Error| e.said_of(self.from.shown);
        let range = (partial.length(), end);
        let source = Verified::begin(self.client, self.file, self.attr.size, range).await;
        let mut source = source.map_err(unreadable)?;
        while let Some(piece) = source.next(limits::PIECE_BYTES_MAX).await.map_err(unreadable)? {
            let bytes = Piece::into_bytes(piece)?;
            partial.add(&bytes)?;
            self.progress.add_bytes(bytes.len() as u64)?;
        }
        Ok(())
    }
}

/// An attribute that does not fit says nothing of the disk: other files still do.
fn not_kept(error: Error) -> Error {
    match error.kind() {
        ErrorKind::NoSpace | ErrorKind::NoQuota => {
            Error::new(ErrorKind::TooLarge, "its user attributes do not fit on this file system")
                .caused_by(error)
        }
        _ => error,
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
