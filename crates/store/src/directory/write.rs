//! Writing: pieces are pulled, and each goes into the file while the next is on its way.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use weft_core::form::{Ack, BytesSource, Piece, Range, Source, WriteAt};
use weft_core::limits::{
    FILE_BYTES_MAX, PIECE_BYTES_MAX, SEAL_BLOCK_BYTES, STORE_INLINE_BYTES, STORE_STRETCH_BYTES,
};
use weft_core::service::ObjectWritten;
use weft_core::{Error, ErrorKind, Result, Tick};
use weft_sys::Task;

use super::Inner;
use super::files::too_large;
use super::live::{Begun, Live, Phase};
use super::read::{ObjectSource, stopped};
use super::seals::{Passing, Seal, block_of};
use crate::proof::Permit;

/// A piece on its way into the file.
enum Landing {
    /// It is there, or failed.
    Done(Landed),
    /// Another thread is at it.
    Under(Task<Landed>),
}

/// What came of a piece.
struct Landed {
    passing: Passing,
    answer: Result<()>,
}

impl Landing {
    async fn end(self) -> Result<Passing> {
        let landed = match self {
            Self::Done(landed) => landed,
            Self::Under(task) => task.await?,
        };
        landed.answer.map(|()| landed.passing)
    }
}

impl Inner {
    /// Pulls a source into an object. What was pulled before an error is written.
    pub(super) async fn pull(
        &self,
        live: &Arc<Live>,
        permit: &Permit,
        at: WriteAt,
        data: &mut dyn Source,
    ) -> Result<ObjectWritten> {
        let tail = match at {
            WriteAt::End => Some(live.tail.lock().await),
            WriteAt::Offset(_) => None,
        };
        let at = match at {
            WriteAt::Offset(at) => at,
            WriteAt::End => live.state().size,
        };
        let pulled = self.pull_at(live, permit, at, data).await;
        drop(tail);
        let bytes = match pulled {
            Ok(bytes) => bytes,
            Err(error) => {
                self.trim(live).await?;
                return Err(error);
            }
        };
        let stat = self.stat(live)?;
        Ok(ObjectWritten { at, bytes, stat, ack: Ack::Applied, verifier: self.verifier() })
    }

    async fn pull_at(
        &self,
        live: &Arc<Live>,
        permit: &Permit,
        at: u64,
        data: &mut dyn Source,
    ) -> Result<u64> {
        let mut stop = stopped(self, permit.granted(), permit.watched());
        let (mut landing, mut done) =
            (Landing::Done(Landed { passing: Passing::default(), answer: Ok(()) }), 0);
        loop {
            let piece = tokio::select! {
                biased;
                piece = data.next(PIECE_BYTES_MAX) => piece,
                why = &mut stop => Err(why),
            };
            // The last piece is always waited for: nobody is told of an end before it.
            let passing = landing.end().await?;
            let Some(piece) = piece? else { return Ok(done) };
            permit.check(live.label(), self.clock())?;
            let length = piece.length() as u64;
            if length == 0 {
                landing = Landing::Done(Landed { passing, answer: Ok(()) });
                continue;
            }
            self.pieces.fetch_add(1, Ordering::Relaxed);
            let from = at.saturating_add(done);
            let stretch = stretch_ended(from, length, live.state().size);
            landing = self.land(live, piece, from, passing, stretch).await?;
            done += length;
        }
    }

    /// Begins to write a piece: all that must happen before it, then the write itself.
    /// `stretch` then begins its way to the disk.
    async fn land(
        &self,
        live: &Arc<Live>,
        piece: Piece,
        at: u64,
        passing: Passing,
        stretch: std::ops::Range<u64>,
    ) -> Result<Landing> {
        let length = piece.length() as u64;
        let end = at.checked_add(length).filter(|end| *end <= FILE_BYTES_MAX).ok_or_else(too_large)?;
        for edge in [at, end] {
            if edge % SEAL_BLOCK_BYTES != 0 {
                self.check_before_change(live, block_of(edge)).await?;
            }
        }
        self.check_before_growth(live, at).await?;
        let (gate, begun) = loop {
            let gate = live.gate.clone().read_owned().await;
            {
                let mut state = live.state();
                if state.phase == Phase::Writing {
                    let begun = state.begin_write(at, length);
                    drop(state);
                    break (gate, begun);
                }
            }
            drop(gate);
            self.open_for_writing(live).await?;
        };
        let (live, file, now) = (live.clone(), live.file.clone(), self.clock().tick());
        let write = move || {
            let landed = put(&live, &piece, at, begun, passing, now);
            drop(gate);
            landed
        };
        // The machine may make who sends a stretch to its disk wait for that.
        if length <= STORE_INLINE_BYTES && stretch.is_empty() {
            return Ok(Landing::Done(write()));
        }
        Ok(Landing::Under(self.sys.blocking(move || {
            let landed = write();
            if !stretch.is_empty() {
                file.write_behind(stretch.start, stretch.end - stretch.start);
            }
            landed
        })))
    }

    /// Takes away what a failed write left beyond the object's end.
    pub(super) async fn trim(&self, live: &Arc<Live>) -> Result<()> {
        if !live.state().ragged {
            return Ok(());
        }
        let _alone = live.gate.write().await;
        let size = live.state().size;
        if live.file.len()? > size {
            live.file.set_len(size)?;
        }
        live.state().ragged = false;
        Ok(())
    }

    /// Copies bytes of one object to another, inside the machine where it can.
    pub(super) async fn copy(
        self: &Arc<Self>,
        (source, read): (Arc<Live>, Permit),
        range: Range,
        (target, write): (&Arc<Live>, &Permit),
        offset: u64,
    ) -> Result<u64> {
        let (at, length) = range.within(source.state().size);
        if source.id == target.id && at < offset.saturating_add(length) && offset < at.saturating_add(length)
        {
            return Err(Error::invalid("the two ranges of the object overlap"));
        }
        let mut bytes = ObjectSource::new(self, source, read, range);
        self.pull(target, write, WriteAt::Offset(offset), &mut bytes).await.map(|written| written.bytes)
    }

    /// Writes zeros where the file system cannot make a hole.
    pub(super) async fn write_zeros(&self, live: &Arc<Live>, mut at: u64, end: u64) -> Result<()> {
        while at < end {
            let length = (end - at).min(PIECE_BYTES_MAX as u64);
            let zeros = BytesSource::new(vec![0; length as usize]).next(PIECE_BYTES_MAX).await?;
            let zeros = zeros.ok_or_else(|| Error::internal("a source of some bytes gave none"))?;
            self.land(live, zeros, at, Passing::default(), 0..0).await?.end().await?;
            at += length;
        }
        Ok(())
    }
}

/// Returns the whole stretches that a piece of `length` ends at `from`, in an object of `size`. What went before it came with
/// other writes, mostly: a file that is written through a mount comes a piece a write. Whatever of it is on the disk already
/// costs nothing. A few bytes that are written over end none: whoever does that again and again would wait for the disk.
fn stretch_ended(from: u64, length: u64, size: u64) -> std::ops::Range<u64> {
    let begun = |byte: u64| byte / STORE_STRETCH_BYTES * STORE_STRETCH_BYTES;
    if length <= STORE_INLINE_BYTES && from.saturating_add(length) <= size {
        return 0..0;
    }
    begun(from)..begun(from.saturating_add(length))
}

/// Writes one piece whose blocks are marked as changed, and notes how it ended.
fn put(live: &Live, piece: &Piece, at: u64, begun: Begun, mut passing: Passing, now: Tick) -> Landed {
    let length = piece.length() as u64;
    passing.go_on(begun.before);
    let mut passed: Vec<(u64, Option<Seal>)> = Vec::new();
    let answer = match piece {
        Piece::Bytes(bytes) => live.file.write_at(bytes, at).inspect(|()| passed = passing.pass(bytes, at)),
        // What the machine cannot copy by itself. Each part is hashed as it was written: whoever lent it may change it
        // meanwhile.
        Piece::File { file, .. } if file.descriptor().is_none() => {
            let mut at = at;
            piece.each_part(|part| {
                live.file.write_at(part, at)?;
                note(&mut passed, passing.pass(part, at));
                at += part.len() as u64;
                Ok(())
            })
        }
        Piece::File { file, at: from, .. } => match live.file.copy_from(&**file, *from, at, length) {
            Ok(copied) if copied == length => Ok(()),
            Ok(_) => Err(Error::new(ErrorKind::Conflict, "the bytes to be written were cut off meanwhile")),
            Err(error) => Err(error),
        },
    };
    if answer.is_err() {
        passed.clear();
    }
    passing.left(live.state().end_write(begun, answer.is_ok(), &passed, now));
    Landed { passing, answer }
}

/// Adds the seals of a part to those of what went before it. Of a block that both touch the later one is of all of it.
fn note(passed: &mut Vec<(u64, Option<Seal>)>, more: Vec<(u64, Option<Seal>)>) {
    if passed.last().map(|(block, _)| block) == more.first().map(|(block, _)| block) {
        passed.pop();
    }
    passed.extend(more);
}
