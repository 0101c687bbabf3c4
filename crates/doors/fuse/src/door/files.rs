//! Requests on open files and their bytes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use tokio::runtime::Handle as Runtime;
use weft_core::attr::SetAttr;
use weft_core::form::{
    At, BytesSource, Call, Make, OpenFile, OpenHow, Opened, Piece, Pin, Range, Seek, Shape, WriteAt, pieces,
};
use weft_core::{Error, ErrorKind, Rights, limits};

use super::{Contents, Door, Outcome, Reply, Undo, done, permissions, refuse};
use crate::abi::{fopen, mark, open, reply};
use crate::ahead::{Asked, Fetch, Fetched, Moving, Now};
use crate::buffers::Lent;
use crate::errno::Failure;
use crate::handles::{self, Handle};
use crate::marks;
use crate::nodes::{Kept, Told};
use crate::onward;

/// The two questions `lseek` puts to a file system.
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

impl Door {
    pub(super) async fn open(self: &Arc<Self>, node: u64, flags: u32, kill_privileges: bool) -> Outcome {
        let truncate = flags & open::TRUNCATE != 0;
        let _unsettled = truncate.then(|| self.mounted.fresh.unsettle());
        let _moving = truncate.then(|| Moving::new(self.mounted.nodes.moves(node)));
        let (opened, rights) = self.open_with(&self.at(node)?, flags, None).await?;
        let kept = self.mounted.nodes.opened(node, &opened.attr);
        // What was cached of it is of another state, and a program that opens after a
        // change must see it. Not while cutting: then the kernel holds the file.
        match (kept, truncate) {
            (Kept { stale: true, .. }, false) => self.expire(node, true).await,
            (Kept { going, attributes, .. }, false) => {
                if let Some(up_to) = going {
                    self.wait_for_drop(node, up_to).await;
                }
                if !attributes {
                    self.expire(node, false).await;
                }
            }
            _ => {}
        }
        if kill_privileges && truncate {
            self.clear_set_id(node, &opened.attr).await;
        }
        if truncate && kept.stale {
            // The kernel cuts its pages as well, once it is answered: nothing is waited for any more.
            let up_to = self.mounted.nodes.stale_up_to(node);
            self.mounted.nodes.dropped(node, up_to);
        }
        let (handle, shown) = self.keep_open(node, flags, opened.file, rights);
        // Of a volume that nobody tells of, the version may say less than it seems: two changes
        // within one tick of the disk's clock look like one.
        let keeps = kept.pages && self.is_watched(opened.attr.id.volume()) && !self.mounted.is_shared;
        let keep = shown | if keeps { fopen::KEEP_CACHE } else { 0 };
        let undo = Undo { handle: Some(handle), ..Undo::default() };
        Ok(Reply { head: reply::open(handle, keep), contents: Contents::default(), undo })
    }

    pub(super) async fn create(self: &Arc<Self>, node: u64, name: Bytes, flags: u32, mode: u32) -> Outcome {
        let set = SetAttr { mode: Some(permissions(mode)), ..SetAttr::default() };
        let make = Make { exclusive: flags & open::EXCLUSIVE != 0, set };
        let _unsettled = self.mounted.fresh.unsettle();
        let asking = self.mounted.fresh.ask();
        let (opened, rights) = self.open_with(&self.at_name(node, name.clone())?, flags, Some(make)).await?;
        let (found, told) = self.mounted.nodes.found(&opened.attr);
        let entry = self.entry_out(found, &opened.attr, (node, &name), asking);
        let kept = self.mounted.nodes.opened(entry.node, &opened.attr);
        if told == Told::Stale || kept.stale {
            self.expire_later(entry.node);
        }
        let (handle, shown) = self.keep_open(entry.node, flags, opened.file, rights);
        let mut head = reply::entry(&entry);
        reply::put_open(&mut head, handle, shown);
        Ok(Reply {
            head,
            contents: Contents::default(),
            undo: Undo { nodes: vec![entry.node], handle: Some(handle), ..Undo::default() },
        })
    }

    /// Takes an open file in. Returns its number, and what the kernel is told of it: what appends passes its cache by,
    /// since it would cut a write at a page that it has not read, and what another mount appends could come between;
    /// and so does all in a shared mount, where its pages would be shown to whoever has the file open, whatever they
    /// may do by now.
    fn keep_open(&self, node: u64, flags: u32, file: Arc<dyn OpenFile>, rights: Rights) -> (u64, u32) {
        let appends = flags & open::APPEND != 0 && flags & open::ACCESS_MODE != 0;
        let past_cache = self.mounted.appends_whole && appends;
        let handle = Handle::new(&self.mounted.nodes, node, file, rights, past_cache, marks::request());
        if marks::is_again() {
            self.handles.remove_untold(marks::request());
        }
        let handle = self.handles.add(handle);
        (handle, if past_cache || self.mounted.is_shared { fopen::DIRECT_IO } else { 0 })
    }

    /// Opens with the most rights that the flags can use and the caller has.
    async fn open_with(&self, at: &At, flags: u32, make: Option<Make>) -> Result<(Opened, Rights), Error> {
        let truncate = flags & open::TRUNCATE != 0;
        let [most, least] = rights_for(flags);
        let mut how = OpenHow { need: most, pin: Pin::None, make, truncate };
        match self.fs.open(&self.change(), at, &how).await {
            Err(error) if error.kind() == ErrorKind::Denied && least != most => {
                how.need = least;
                Ok((self.fs.open(&self.change(), at, &how).await?, least))
            }
            answer => Ok((answer?, most)),
        }
    }

    pub(super) async fn read(self: &Arc<Self>, handle: u64, (at, size): (u64, u32), flags: u32) -> Outcome {
        let handle = self.handles.find(handle)?;
        // Who is not told of changes would show what was there before them; who reads past the page cache asks
        // for what is there now.
        let is_watched = self.is_watched(handle.file.id().volume());
        let told = self.watching.load(Ordering::Relaxed) && is_watched;
        let pieces = if told && flags & open::DIRECT == 0 {
            let pieces = self.windowed(&handle, at, u64::from(size)).await?;
            self.read_on(&handle, at);
            pieces
        } else {
            pull(&handle, &self.call(), Range { at, length: Some(u64::from(size)) }).await?
        };
        let contents = match self.mounted.pipes.fill(marks::unique(), &pieces) {
            Some(piped) => Contents::Pipe(piped),
            None => Contents::Memory(self.filled(&handle, pieces, (at, size)).await?),
        };
        if !is_watched {
            self.unwatched.shows(handle.node);
        }
        Ok(Reply { contents, ..Reply::default() })
    }

    /// Returns the bytes of pieces, read into buffers where they are in files.
    async fn filled(
        &self,
        handle: &Handle,
        pieces: Vec<Piece>,
        (at, size): (u64, u32),
    ) -> Result<Vec<Bytes>, Error> {
        let fill =
            |pieces: Vec<Piece>| pieces.into_iter().map(|piece| self.mounted.buffers.fill(piece)).collect();
        let filled: Result<_, Error> = fill(pieces);
        match filled {
            Ok(filled) => Ok(filled),
            // Somebody may have cut the file since it was lent: how long it is now, the node knows.
            Err(_) => {
                self.mounted.nodes.moved(handle.node);
                fill(pull(handle, &self.call(), Range { at, length: Some(u64::from(size)) }).await?)
            }
        }
    }

    /// Returns bytes of a file, through its windows if it is read from end to end.
    async fn windowed(&self, handle: &Handle, at: u64, size: u64) -> Result<Vec<Piece>, Error> {
        let call = self.call();
        let alone = Range { at, length: Some(size) };
        match handle.ahead.ask(at, size, self.as_of(handle), &self.mounted.ahead_room) {
            Asked::Here(pieces) => return Ok(pieces),
            Asked::Alone => return pull(handle, &call, alone).await,
            // Somebody may be fetching it.
            Asked::Fetch(_) => {}
        }
        let turn = handle.ahead.turn().await;
        let as_of = self.as_of(handle);
        let fetch = match handle.ahead.ask(at, size, as_of, &self.mounted.ahead_room) {
            Asked::Here(pieces) => return Ok(pieces),
            Asked::Fetch(fetch) => fetch,
            Asked::Alone => {
                drop(turn);
                return pull(handle, &call, alone).await;
            }
        };
        match pull_window(handle, &call, &fetch).await {
            Ok(fetched) => Ok(handle.ahead.keep(fetch, fetched, as_of, (at, size))),
            // What was not asked for may be what failed.
            Err(_) => pull(handle, &self.call(), alone).await,
        }
    }

    /// Fetches what will be asked for next of a file that is read from end to end. Nobody waits for it.
    fn read_on(self: &Arc<Self>, handle: &Arc<Handle>, at: u64) {
        let as_of = self.as_of(handle);
        let Some((fetch, turn)) = handle.ahead.next(at, as_of, &self.mounted.ahead_room) else { return };
        let (door, handle) = (self.clone(), handle.clone());
        onward::begin(&Runtime::current(), async move {
            let _turn = turn;
            if let Ok(fetched) = pull_window(&handle, &door.call(), &fetch).await {
                handle.ahead.keep(fetch, fetched, as_of, (0, 0));
            }
        });
    }

    fn as_of(&self, handle: &Handle) -> Now {
        Now { moves: handle.moves.so_far(), tick: self.mounted.clock.tick() }
    }

    pub(super) async fn write(
        self: &Arc<Self>,
        (handle, at): (u64, u64),
        (marks, flags): (u32, u32),
        bytes: Bytes,
        lent: Option<Arc<Lent>>,
    ) -> Outcome {
        let handle = self.handles.find(handle)?;
        // What comes from a mapping has its place already, also in a file that is
        // appended to.
        let is_mapped = marks & mark::WRITE_CACHE != 0;
        let append = flags & open::APPEND != 0 && !is_mapped;
        let place = if append { WriteAt::End } else { WriteAt::Offset(at) };
        let _moving = Moving::new(handle.moves.clone());
        let (mut data, held) = match lent {
            Some(lent) if bytes.len() as u64 >= limits::RPC_LEND_FROM => {
                let (piece, held) = lent.held(bytes.len());
                (BytesSource::of(piece), Some(held))
            }
            _ => (BytesSource::new(bytes), None),
        };
        let changing = self.mounted.fresh.change(handle.node);
        let written = handle.file.write(&self.change(), place, &mut data).await?;
        if let Some(held) = held {
            held.release();
        }
        handle.written.wrote(written.verifier);
        let stale = self.came_to(changing, handle.node, &written.file);
        if !self.is_watched(handle.file.id().volume()) {
            self.unwatched.shows(handle.node);
        }
        // What comes from a mapping holds the page that it comes from.
        match (handle.past_cache && !is_mapped, stale) {
            // Before the answer tells of the new length: who read the last page while this was under way may have
            // brought it back as it was, with zeros to its end, and not every kernel drops that again.
            (true, false) => self.expire_from(handle.node, written.at).await,
            // The page that was the last before somebody else's change has zeros to its end as well.
            (true, true) => self.expire(handle.node, true).await,
            (false, true) => self.expire_later(handle.node),
            // Somebody else appended meanwhile: the kernel keeps these bytes in a wrong place.
            (false, false) if written.at != at => {
                self.mounted.nodes.becomes_stale(handle.node);
                self.expire_later(handle.node);
            }
            (false, false) => {}
        }
        if let (true, Some(after)) = (marks & mark::WRITE_KILL_SUIDGID != 0, &written.file.after) {
            self.clear_set_id(handle.node, after).await;
        }
        Ok(reply::size(u32::try_from(written.bytes).unwrap_or(u32::MAX)).into())
    }

    pub(super) async fn release(self: &Arc<Self>, number: u64) -> Outcome {
        // First, whatever becomes of its locks: those of a file that is not open are given up by the next process as well.
        let Some(handle) = self.handles.remove(number) else { return refuse(Errno::BADF) };
        // While the node has the file, which with its last name may go with this.
        self.unlock_all(number).await;
        // Nobody is told how it ended, and nobody waits: `close(2)` has returned long ago.
        drop(handle);
        done()
    }

    pub(super) async fn sync(&self, handle: u64) -> Outcome {
        let handle = self.handles.find(handle)?;
        // Of what was written before it is asked, and no later: that may not have come along.
        let noted = handle.written.noted();
        let verifier = handle.file.sync(&self.durable(), Range::ALL).await?;
        handle.synced(noted, verifier)?;
        done()
    }

    pub(super) async fn allocate(self: &Arc<Self>, handle: u64, at: u64, length: u64, mode: u32) -> Outcome {
        let keep_size = mode & FallocateFlags::KEEP_SIZE.bits() != 0;
        let shape = match FallocateFlags::from_bits(mode & !FallocateFlags::KEEP_SIZE.bits()) {
            Some(mode) if mode.is_empty() => Shape::Allocate { at, length, keep_size },
            Some(FallocateFlags::PUNCH_HOLE) if keep_size => Shape::Punch { at, length },
            Some(FallocateFlags::ZERO_RANGE) => Shape::Zero { at, length, keep_size },
            _ => return refuse(Errno::OPNOTSUPP),
        };
        let handle = self.handles.find(handle)?;
        let _moving = Moving::new(handle.moves.clone());
        let changing = self.mounted.fresh.change(handle.node);
        let change = handle.file.shape(&self.change(), shape).await?;
        self.changed(changing, handle.node, &change);
        done()
    }

    pub(super) async fn seek(&self, handle: u64, at: u64, whence: u32) -> Outcome {
        let what = match whence {
            SEEK_DATA => Seek::Data,
            SEEK_HOLE => Seek::Hole,
            _ => return refuse(Errno::INVAL),
        };
        let handle = self.handles.find(handle)?;
        let found = handle.file.seek(&self.call(), at, what).await;
        // Nothing more from there on is ENXIO in the manual page of lseek(2).
        let found = found.map_err(|error| Failure::from(error).shown(ErrorKind::NotFound, Errno::NXIO))?;
        Ok(reply::offset(found).into())
    }

    /// Copies by name of the files, not of the opens: where that is refused although
    /// the opens have the rights, or are of two users, the kernel copies through them.
    pub(super) async fn copy_range(
        self: &Arc<Self>,
        from: (u64, u64),
        to: (u64, u64),
        to_handle: u64,
        length: u64,
    ) -> Outcome {
        if handles::door_of(to_handle) != self.number {
            return refuse(Errno::OPNOTSUPP);
        }
        let (source, target) = (self.at(from.0)?, self.at(to.0)?);
        // Whoever asks for more is told how much it was, and asks again for the rest.
        let length = length.min(limits::MOUNT_COPY_BYTES_MAX);
        let range = Range { at: from.1, length: Some(length) };
        let _moving = Moving::new(self.mounted.nodes.moves(to.0));
        let changing = self.mounted.fresh.change(to.0);
        match self.fs.copy(&self.change(), &source, range, &target, to.1).await {
            Ok(copied) => {
                self.changed(changing, to.0, &copied.file);
                Ok(reply::size(copied.bytes as u32).into())
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::Denied | ErrorKind::Stale | ErrorKind::Unsupported) =>
            {
                refuse(Errno::OPNOTSUPP)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns bytes of a file, as many as there are of a range of [`limits::PIECE_BYTES_MAX`] at most.
async fn pull(handle: &Handle, call: &Call, range: Range) -> Result<Vec<Piece>, Error> {
    let mut source = handle.file.read(call, range).await?;
    pieces(&mut *source, limits::PIECE_BYTES_MAX).await
}

/// Fetches a window: a long one as far as it is lent, else what is read at once.
async fn pull_window(handle: &Handle, call: &Call, fetch: &Fetch) -> Result<Fetched, Error> {
    let long = fetch.to_borrow();
    if let Some(range) = long
        && let Ok(mut source) = handle.file.lend(call, range).await
        && let Ok(Some(fetched)) = fetch.borrow(&mut *source).await
    {
        return Ok(fetched);
    }
    Ok(Fetched::read(pull(handle, call, fetch.to_read()).await?, long.is_some()))
}

/// Returns the rights that open flags can use: all that would be used if the caller has
/// them, and the least that the open makes sense with.
fn rights_for(flags: u32) -> [Rights; 2] {
    let write = |beside: Rights| {
        let append_only = flags & (open::APPEND | open::TRUNCATE) == open::APPEND;
        let least = if append_only { Rights::APPEND } else { Rights::WRITE };
        [beside | Rights::WRITE | Rights::APPEND, beside | least]
    };
    match flags & open::ACCESS_MODE {
        open::WRITE_ONLY => write(Rights::NONE),
        open::READ_WRITE => write(Rights::READ),
        _ if flags & open::EXECUTE != 0 => [Rights::READ | Rights::EXECUTE, Rights::EXECUTE],
        _ if flags & open::TRUNCATE != 0 => write(Rights::READ),
        _ => [Rights::READ, Rights::READ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_asks_for_what_its_flags_can_use_and_falls_back_on_what_it_needs() {
        let both = Rights::WRITE | Rights::APPEND;
        let table = [
            (0, Rights::READ, Rights::READ),
            (open::EXECUTE, Rights::READ | Rights::EXECUTE, Rights::EXECUTE),
            (open::WRITE_ONLY, both, Rights::WRITE),
            (open::WRITE_ONLY | open::APPEND, both, Rights::APPEND),
            (open::WRITE_ONLY | open::APPEND | open::TRUNCATE, both, Rights::WRITE),
            (open::READ_WRITE, Rights::READ | both, Rights::READ | Rights::WRITE),
            (open::TRUNCATE, Rights::READ | both, Rights::READ | Rights::WRITE),
        ];
        for (flags, most, least) in table {
            assert_eq!(rights_for(flags), [most, least], "flags {flags:o}");
        }
    }
}
