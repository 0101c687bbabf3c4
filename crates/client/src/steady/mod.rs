//! A file system that outlives its connection: for a mount, which must not die with
//! the node it speaks to.
//!
//! When the line breaks, the next call dials again, takes up the session, or begins a
//! new one if that has ended, takes its locks again, and is repeated if that is safe:
//! it reads, or it carries a mark by which the node makes it once only. Files are
//! opened again by id, at their first use.
//!
//! ```text
//!   call ─▶ link (epoch n) ─▶ answer
//!             │ lost
//!             └▶ again: dial … resume | begin, locks ─▶ link (epoch n+1) ─▶ the same call
//! ```
//!
//! How to get it wrong: repeat a change that may have been made. Without a mark, or
//! when the session that the mark belongs to has ended, the caller is told that nobody
//! knows. Or go on reading a file that is another version now: a pinned one is then
//! `Conflict`.

mod file;
mod file_system;
mod locks;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use tokio::net::UnixStream;
use weft_core::form::{Call, FileSystem};
use weft_core::proof::Caller;
use weft_core::service::SessionGrant;
use weft_core::{Deadline, Error, ErrorKind, Result, SessionId};
use weft_rpc::{As, Connection, Remote};
use weft_sys::Sys;

use crate::Place;
use locks::Held;

/// The file system of a node, over however many connections it takes.
#[derive(Clone)]
pub struct Steady(Arc<Inner>);

struct Inner {
    sys: Sys,
    socket: PathBuf,
    session: SessionId,
    link: RwLock<Arc<Link>>,
    /// Held while somebody dials, so that one does for all.
    dialling: tokio::sync::Mutex<()>,
    held: Mutex<Held>,
}

/// One connection, while it lasts.
struct Link {
    epoch: u64,
    remote: Arc<Remote>,
    grant: Option<SessionGrant>,
    /// Whether it goes on with the session of the link before it.
    resumed: bool,
}

/// The first and the longest pause between two attempts to dial.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

impl Steady {
    /// Makes calls in `session` steady, beginning with a connection that stands.
    pub fn new(remote: Arc<Remote>, place: &Place, session: SessionId) -> Self {
        let sys = remote.connection().sys().clone();
        let link = Arc::new(Link { epoch: 0, remote, grant: None, resumed: false });
        Self(Arc::new(Inner {
            sys,
            socket: place.socket(),
            session,
            link: RwLock::new(link),
            dialling: tokio::sync::Mutex::new(()),
            held: Mutex::default(),
        }))
    }

    /// Begins the session, so that it can be taken up again later.
    pub async fn begin(&self, caller: &Caller) -> Result<()> {
        let link = self.0.link();
        let grant = link.remote.begin(caller, self.0.session).await?;
        self.0.replace(Link {
            epoch: link.epoch,
            remote: link.remote.clone(),
            grant: Some(grant),
            resumed: false,
        });
        Ok(())
    }
}

impl Inner {
    fn link(&self) -> Arc<Link> {
        self.link.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn replace(&self, link: Link) -> Arc<Link> {
        let link = Arc::new(link);
        *self.link.write().unwrap_or_else(PoisonError::into_inner) = link.clone();
        link
    }

    /// Returns the link after `lost`, dialling until the call's deadline if nobody else
    /// has it yet.
    async fn again(&self, lost: &Link, call: &Call) -> Result<Arc<Link>> {
        let _alone = self.dialling.lock().await;
        let link = self.link();
        if link.epoch > lost.epoch {
            return Ok(link);
        }
        let remote = self.dial(call.until).await?;
        let (grant, resumed) = match &link.grant {
            Some(grant) => match remote.resume(&call.caller, self.session, grant.clone()).await {
                Ok(grant) => (grant, true),
                Err(e) if e.kind() == ErrorKind::Stale => {
                    (remote.begin(&call.caller, self.session).await?, false)
                }
                Err(e) => return Err(e),
            },
            None => (remote.begin(&call.caller, self.session).await?, false),
        };
        self.take_locks_again(&*remote, call).await;
        Ok(self.replace(Link { epoch: link.epoch + 1, remote, grant: Some(grant), resumed }))
    }

    async fn dial(&self, until: Deadline) -> Result<Arc<Remote>> {
        let mut pause = PAUSE_MIN;
        loop {
            match self.dial_once(until).await {
                Ok(connection) => return Ok(Arc::new(Remote::new(connection, As::Connection))),
                Err(error) if until.left(self.sys.clock()) <= pause => return Err(error),
                Err(_) => self.sys.sleep(pause).await,
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn dial_once(&self, until: Deadline) -> Result<Connection> {
        let line = UnixStream::connect(&self.socket).await.map_err(|cause| {
            Error::new(ErrorKind::Unavailable, "the node does not answer")
                .about(self.socket.display())
                .caused_by(cause)
        })?;
        Connection::open(&self.sys, line, until).await
    }

    /// What cannot be had back was given to somebody else after our session had ended:
    /// the file is told so at its next use, by the lock that is missing.
    async fn take_locks_again(&self, remote: &dyn FileSystem, call: &Call) {
        let held = self.held().list();
        for (at, lock) in held {
            if let Err(error) = remote.lock(call, &at, &lock, weft_core::form::Wait::No).await {
                tracing::warn!(%error, "a lock was lost with the node");
            }
        }
    }

    fn held(&self) -> std::sync::MutexGuard<'_, Held> {
        // Every change leaves the list whole, so a panic elsewhere cannot spoil it.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Link {
    /// Whether the line is gone, whatever it ended with.
    fn is_lost(&self) -> bool {
        self.remote.connection().ended().is_some()
    }
}

/// Makes a call over the link there is, and over the next one if that is lost. `$safe`:
/// it may be made twice. Otherwise only if it carries a mark and the session goes on.
macro_rules! steadily {
    ($inner:expr, $call:ident, $safe:expr, |$link:ident| $act:expr) => {{
        let mut $link = $inner.link();
        loop {
            match $act.await {
                Err(error) if $link.is_lost() && !$call.until.passed($inner.sys.clock()) => {
                    $link = $inner.again(&$link, $call).await?;
                    if !($safe || ($call.once.is_some() && $link.resumed)) {
                        break Err(error);
                    }
                }
                outcome => break outcome,
            }
        }
    }};
}
use steadily;
