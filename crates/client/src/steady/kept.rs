//! What is open, kept for the process that comes after this one: so that it goes on with the very opens of this one, which
//! the node has in the session, whatever has become of names, modes and policies since.
//!
//! ```text
//!   a line is dialled ─▶ a life begins ─▶ files are opened, each noted with its life and the node's number
//!   taken up: of the life that began last, and open still at the node ─▶ held;  else ─▶ opened again by its id
//! ```
//!
//! How to get it wrong: believe a number of another life. The node counts from 1 in each of its own, so that it means another
//! file, or another open of the same.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use weft_core::attr::Attr;
use weft_core::form::{At, Call, Lock, OpenFile};
use weft_core::service::SessionGrant;
use weft_core::{ErrorKind, FileId, Result, Rights, SessionId, limits};
use weft_rpc::Remote;

use super::file::SteadyFile;
use super::{FIRST_EPOCH, Inner, Link, Steady};
use crate::Place;

/// Where it is kept. Whatever is said here is there when the next process looks, at whatever moment this one ends.
pub trait OpenNotes: Send + Sync {
    /// Returns the life that began last; 0 before the first.
    fn life(&self) -> u32;

    /// Says that another begins. Before anything is noted of it.
    fn begin_life(&self, life: u32);

    /// Notes what takes the session up from now on.
    fn is_in(&self, grant: &SessionGrant);

    /// Notes an open file. Returns under what, which is never 0; `None` if there is no room.
    fn add(&self, note: &OpenNote) -> Option<u64>;

    /// Notes that the file is open in another life, under another number, both at once.
    fn set(&self, kept: u64, life: u32, number: u32);

    /// Forgets a file.
    fn remove(&self, kept: u64);

    /// Returns all of them, and under what each is noted.
    fn list(&self) -> Vec<(u64, OpenNote)>;
}

/// An open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenNote {
    /// Which file.
    pub file: FileId,
    /// The rights that it was opened with.
    pub need: Rights,
    /// The life that it is open in.
    pub life: u32,
    /// The node's number of it in that life.
    pub number: u32,
}

/// Open files that were taken up, under what they are noted, and what each is like, as far as that was learnt.
pub type TakenUp = HashMap<u64, (Arc<dyn OpenFile>, Option<Attr>)>;

/// A file that the node has open over a link.
pub(super) struct Held {
    pub(super) epoch: u64,
    pub(super) file: Arc<dyn OpenFile>,
}

pub(super) struct Kept {
    notes: Arc<dyn OpenNotes>,
    /// The life of the first epoch.
    first_life: u32,
}

impl Kept {
    fn life(&self, epoch: u64) -> u32 {
        self.first_life.wrapping_add((epoch - FIRST_EPOCH) as u32)
    }
}

impl Steady {
    /// Makes calls steady as [`Steady::new`] does, and keeps what is open for the process after this one, which takes it up
    /// by [`Steady::take_up`].
    pub fn keeping(
        remote: Arc<Remote>,
        place: &Place,
        session: SessionId,
        notes: Arc<dyn OpenNotes>,
    ) -> Self {
        let first_life = notes.life().max(1);
        notes.begin_life(first_life);
        Self::over(remote, place, session, Some(Kept { notes, first_life }))
    }

    /// Goes on where a process before this one ended, in its session: with the files that it had open and the locks that it
    /// held. Before any other call. Of a session that has ended meanwhile, all of it is taken anew.
    ///
    /// Fails as the line does. A file that cannot be had says so at its next use, a lost lock as ever.
    pub async fn take_up(
        &self,
        call: &Call,
        before: &SessionGrant,
        locks: Vec<(At, Lock)>,
    ) -> Result<TakenUp> {
        let inner = &self.0;
        let mut dialled = inner.dialling.lock().await;
        for (at, lock) in &locks {
            inner.locks().took(at, lock);
        }
        let link = inner.link();
        let grant = inner.session_over(&link.remote, Some(before), call).await?;
        dialled.session = Some(grant.clone());
        inner.is_in(&grant);
        let notes = inner.kept.as_ref().map(|kept| kept.notes.list()).unwrap_or_default();
        let held = if grant.id == before.id { inner.held(&link, call, &notes).await? } else { None };
        if held.is_none() {
            // The node has none of them in this session: numbers begin anew.
            dialled.epoch += 1;
            inner.begin_life(dialled.epoch);
        }
        let (epoch, remote) = (dialled.epoch, link.remote.clone());
        let link = inner.replace(Link { epoch, remote, grant: Some(grant) });
        // Where the files are open still, locks are held: to ask for one that was being given up when the process before died
        // would find who was given it since, and take it for lost.
        let goes_on = held.as_ref().is_some_and(|held| !held.is_empty());
        let mut held = held.unwrap_or_default();
        let mut files = HashMap::new();
        for (kept, note) in notes {
            let (open, attr) = held.remove(&kept).unzip();
            let held = open.map(|file| Held { epoch, file });
            files.insert(kept, (SteadyFile::taken_up(inner, kept, &note, held), attr.flatten()));
        }
        if !goes_on {
            inner.take_locks_again(&link, call).await?;
        }
        inner.open_again(&link, call).await?;
        let files = stream::iter(files).map(|(kept, (file, attr))| async move {
            let attr = match attr {
                Some(attr) => Some(attr),
                None => file.attr(call).await.ok(),
            };
            (kept, (file as Arc<dyn OpenFile>, attr))
        });
        Ok(files.buffer_unordered(limits::REOPENS_AT_ONCE).collect().await)
    }
}

impl Inner {
    /// Returns those files of the last life that the node has open still; `None` if that life is over.
    async fn held(&self, link: &Link, call: &Call, notes: &[(u64, OpenNote)]) -> Result<Option<TakenUp>> {
        let Some(kept) = &self.kept else { return Ok(None) };
        let of_this_life = notes.iter().filter(|(_, note)| note.life == kept.first_life);
        let held = stream::iter(of_this_life).map(|(kept, note)| async move {
            let held = link.remote.held(call, note.file, note.number.into()).await;
            held.map(|held| (*kept, held))
        });
        let answers: Vec<_> = held.buffer_unordered(limits::REOPENS_AT_ONCE).collect().await;
        let (mut held, mut stale) = (TakenUp::new(), 0);
        for answer in answers {
            match answer {
                Ok((kept, file)) => drop(held.insert(kept, file)),
                // Its volume may be gone, and it with that; if all are, so is the life.
                Err(error) if error.kind() == ErrorKind::Stale => stale += 1,
                Err(error) => return Err(error),
            }
        }
        Ok((stale == 0 || !held.is_empty()).then_some(held))
    }

    /// Says that the numbers of files that are opened over an epoch's line are of another life.
    pub(super) fn begin_life(&self, epoch: u64) {
        if let Some(kept) = &self.kept {
            kept.notes.begin_life(kept.life(epoch));
        }
    }

    /// Keeps what takes the session up.
    pub(super) fn is_in(&self, grant: &SessionGrant) {
        if let Some(kept) = &self.kept {
            kept.notes.is_in(grant);
        }
    }

    /// Keeps a file that was opened over an epoch's line. Returns under what, if it is.
    pub(super) fn keep_open(
        &self,
        file: FileId,
        need: Rights,
        epoch: u64,
        open: &dyn OpenFile,
    ) -> Option<u64> {
        let kept = self.kept.as_ref()?;
        let number = u32::try_from(open.kept_as()?).ok()?;
        kept.notes.add(&OpenNote { file, need, life: kept.life(epoch), number })
    }

    /// Keeps that it was opened again.
    pub(super) fn keep_opened(&self, under: Option<u64>, epoch: u64, open: &dyn OpenFile) {
        let number = open.kept_as().and_then(|number| u32::try_from(number).ok());
        if let (Some(kept), Some(under), Some(number)) = (&self.kept, under, number) {
            kept.notes.set(under, kept.life(epoch), number);
        }
    }

    /// Keeps it no more.
    pub(super) fn keep_no_more(&self, under: Option<u64>) {
        if let (Some(kept), Some(under)) = (&self.kept, under) {
            kept.notes.remove(under);
        }
    }
}
