//! A file system that outlives its connection: for a mount, which must not die with
//! the node it speaks to.
//!
//! When the line breaks, the next call dials again, takes up the session, or begins a
//! new one if that has ended, takes its locks and opens its files again, all of them,
//! and is repeated if that is safe: it reads, or it carries a mark by which the node
//! makes it once only.
//!
//! ```text
//!   call ─▶ link (epoch n) ─▶ answer
//!             │ lost
//!             └▶ again: dial … resume | begin, locks, files ─▶ link (epoch n+1) ─▶ the same call
//! ```
//!
//! Files are opened at once and not at their next use: the node removes what has no name
//! as soon as nobody has it open.
//!
//! How to get it wrong: repeat a change that may have been made. Without a mark, or
//! when the session that the mark belongs to has ended, the caller is told that nobody
//! knows. Or go on with a file under a lock that somebody else has now: its bytes can then
//! be neither read nor written here until that lock is given up. Or go on reading a file
//! that is another version now: a pinned one is then `Conflict`.

mod again;
mod file;
mod file_system;
mod kept;
mod locks;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use weft_core::form::Call;
use weft_core::proof::Caller;
use weft_core::service::SessionGrant;
use weft_core::{Error, ErrorKind, FileId, Result, SessionId, Time};
use weft_rpc::{As, Remote};
use weft_sys::Sys;

pub use kept::{OpenNote, OpenNotes, TakenUp};

use crate::Place;
use file::Files;
use kept::Kept;
use locks::Locks;

/// The file system of a node, over however many connections it takes.
#[derive(Clone)]
pub struct Steady(Arc<Inner>);

struct Inner {
    sys: Sys,
    socket: PathBuf,
    /// Whom calls without a credential are made as, over whichever connection.
    speaks_as: As,
    session: SessionId,
    link: RwLock<Arc<Link>>,
    /// Held while somebody dials, so that one does for all.
    dialling: tokio::sync::Mutex<Dialled>,
    locks: Mutex<Locks>,
    files: Mutex<Files>,
    /// While there is no line.
    lost: Mutex<Option<Lost>>,
    /// Where what is open is kept for the process after this one, if it is.
    kept: Option<Kept>,
}

/// Since when a node is not reached, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// When the line ended.
    pub since: Time,
    /// What came of the last attempt to have another.
    pub because: String,
}

/// What came of dialling so far, whether or not it came to be the link.
struct Dialled {
    /// The last epoch that a line was given.
    epoch: u64,
    /// The session to take up next: what was taken back in it is there, whatever became of
    /// the line.
    session: Option<SessionGrant>,
}

/// The epoch of the first line.
const FIRST_EPOCH: u64 = 1;

/// One connection, while it lasts.
struct Link {
    epoch: u64,
    remote: Arc<Remote>,
    grant: Option<SessionGrant>,
}

/// Whether a call whose answer was lost is made again.
#[derive(Clone, Copy)]
enum Repeat {
    /// Yes: it changes nothing, or making it twice comes to the same.
    Safe,
    /// If it carries a mark and the session that the mark belongs to goes on.
    Marked,
    /// No: what others did in between would be lost, and the node knows no mark for it.
    Never,
}

impl Steady {
    /// Makes calls in `session` steady, beginning with a connection that stands.
    pub fn new(remote: Arc<Remote>, place: &Place, session: SessionId) -> Self {
        Self::over(remote, place, session, None)
    }

    fn over(remote: Arc<Remote>, place: &Place, session: SessionId, kept: Option<Kept>) -> Self {
        let (sys, speaks_as) = (remote.connection().sys().clone(), remote.speaks_as());
        let link = Arc::new(Link { epoch: FIRST_EPOCH, remote, grant: None });
        Self(Arc::new(Inner {
            sys,
            socket: place.socket(),
            speaks_as,
            session,
            link: RwLock::new(link),
            dialling: tokio::sync::Mutex::new(Dialled { epoch: FIRST_EPOCH, session: None }),
            locks: Mutex::default(),
            files: Mutex::default(),
            lost: Mutex::default(),
            kept,
        }))
    }

    /// Begins the session, so that it can be taken up again later.
    pub async fn begin(&self, caller: &Caller) -> Result<()> {
        let mut dialled = self.0.dialling.lock().await;
        let link = self.0.link();
        let grant = link.remote.begin(caller, self.0.session).await?;
        dialled.session = Some(grant.clone());
        let (epoch, remote) = (link.epoch, link.remote.clone());
        self.0.is_in(&grant);
        self.0.replace(Link { epoch, remote, grant: Some(grant) });
        Ok(())
    }

    /// Returns since when the node is not reached, and why; `None` while it is, as far as is known.
    pub fn lost(&self) -> Option<Lost> {
        // Held while the link is looked at: another that comes now takes back what is noted here.
        let mut lost = self.0.lost.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(since) = self.0.link().ended_at() {
            lost.get_or_insert_with(|| Lost::at(since));
        }
        lost.clone()
    }
}

impl Lost {
    fn at(since: Time) -> Self {
        Self { since, because: String::from("the line to the node was lost") }
    }
}

impl Inner {
    /// Notes that there is no line, and what came of an attempt to have another.
    fn note_lost(&self, failed: Option<&Error>) {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        let since = self.link().ended_at().unwrap_or_else(|| self.sys.clock().now());
        let lost = lost.get_or_insert_with(|| Lost::at(since));
        if let Some(error) = failed {
            lost.because = error.causes().fold(error.to_string(), |said, cause| format!("{said}: {cause}"));
        }
    }

    fn link(&self) -> Arc<Link> {
        self.link.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn replace(&self, link: Link) -> Arc<Link> {
        let link = Arc::new(link);
        *self.link.write().unwrap_or_else(PoisonError::into_inner) = link.clone();
        *self.lost.lock().unwrap_or_else(PoisonError::into_inner) = None;
        link
    }

    /// Returns a link that stands as far as is known: over one that does not, nothing
    /// is sent, and so nothing has to be repeated.
    async fn standing(self: &Arc<Self>, call: &Call) -> Result<Arc<Link>> {
        let link = self.link();
        if link.has_ended() { self.again(&link, call).await } else { Ok(link) }
    }

    fn locks(&self) -> MutexGuard<'_, Locks> {
        // Every change leaves the list whole, so a panic elsewhere cannot spoil it.
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails if a program here relies on a lock of a file that is somebody else's now: what
    /// it read may have changed, and what it would write may undo the other's work.
    fn check_locks(&self, file: FileId) -> Result<()> {
        if self.locks().were_lost(file) {
            let lost = Error::stale("a lock on the file was lost with the node");
            return Err(lost.hint("give the lock up, or close the file"));
        }
        Ok(())
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Link {
    /// Whether the line is gone, whatever ended it.
    fn has_ended(&self) -> bool {
        self.remote.connection().ended().is_some()
    }

    fn ended_at(&self) -> Option<Time> {
        self.remote.connection().ended_at()
    }

    fn goes_on_with_the_session_of(&self, other: &Self) -> bool {
        match (&self.grant, &other.grant) {
            (Some(grant), Some(other)) => grant.id == other.id,
            _ => false,
        }
    }
}

impl Repeat {
    /// Whether a call that was sent over one link may be sent again over another.
    fn allows(self, call: &Call, sent: &Link, next: &Link) -> bool {
        match self {
            Self::Safe => true,
            Self::Marked => call.once.is_some() && next.goes_on_with_the_session_of(sent),
            Self::Never => false,
        }
    }
}

/// Names the step of a call that got no answer, unless what failed did.
fn unheard(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Unavailable | ErrorKind::Deadline => error.op("hear the node's answer"),
        _ => error,
    }
}

/// Makes a call over the link there is, and over the next one if that is lost and
/// `$repeat` allows it.
macro_rules! steadily {
    ($inner:expr, $call:ident, $repeat:expr, |$link:ident| $act:expr) => {{
        let mut $link = $inner.standing($call).await?;
        let mut losses = 0;
        loop {
            match $act.await {
                Err(error) if $link.has_ended() && !$call.until.passed($inner.sys.clock()) => {
                    losses += 1;
                    if matches!($repeat, Repeat::Never) || losses > weft_core::limits::RECONNECTS_MAX {
                        break Err($crate::steady::unheard(error));
                    }
                    let next = $inner.again(&$link, $call).await?;
                    if !$repeat.allows($call, &$link, &next) {
                        break Err($crate::steady::unheard(error));
                    }
                    $link = next;
                }
                outcome => break outcome.map_err($crate::steady::unheard),
            }
        }
    }};
}
use steadily;
