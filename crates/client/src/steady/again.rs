//! The next link after one that was lost: another connection, with all that was held over
//! the one before.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use weft_core::form::{At, Call, FileSystem, Lock, OpenFile, Wait};
use weft_core::service::SessionGrant;
use weft_core::{Deadline, Error, ErrorKind, Result, limits};
use weft_rpc::{Connection, Remote};
use weft_sys::net::Socket;

use super::{Dialled, Inner, Link};

/// The first and the longest pause between two attempts to dial, or to take something back.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

impl Inner {
    /// Returns the link after `lost`, dialling until the call's deadline if nobody else
    /// has it yet. Goes on by itself when the call is dropped: half of what was held,
    /// taken back over a line that nobody keeps, would help nobody.
    pub(super) async fn again(self: &Arc<Self>, lost: &Link, call: &Call) -> Result<Arc<Link>> {
        let (inner, epoch, of) = (self.clone(), lost.epoch, call.clone());
        let next = self.sys.spawn(async move { inner.next_link(epoch, &of).await });
        let next = self.sys.within(call.until, async { next.await? }).await;
        next.map_err(|error| error.op("reach the node again"))
    }

    async fn next_link(&self, lost: u64, call: &Call) -> Result<Arc<Link>> {
        let mut dialled = self.dialling.lock().await;
        let before = self.link();
        if before.epoch > lost {
            return Ok(before);
        }
        self.note_lost(None);
        let mut losses = 0;
        loop {
            let remote = self.dial(call.until).await?;
            match self.take_back(remote.clone(), &mut dialled, call).await {
                Ok(link) => return Ok(link),
                Err(error) => {
                    self.note_lost(Some(&error));
                    if remote.connection().ended().is_none() || losses >= limits::RECONNECTS_MAX {
                        return Err(error);
                    }
                    losses += 1;
                }
            }
        }
    }

    /// Takes back over a new line what was held over the one before. Fails if the line is lost
    /// meanwhile: then all of it is done again over another.
    async fn take_back(&self, remote: Arc<Remote>, dialled: &mut Dialled, call: &Call) -> Result<Arc<Link>> {
        let grant = self.session_over(&remote, dialled.session.as_ref(), call).await;
        let grant = grant.map_err(|error| error.op("go on with the session"))?;
        // At once: in another session our own locks would be somebody else's.
        dialled.session = Some(grant.clone());
        self.is_in(&grant);
        dialled.epoch += 1;
        self.begin_life(dialled.epoch);
        let link = Link { epoch: dialled.epoch, remote, grant: Some(grant) };
        let call = Call { once: None, ..call.renewed(self.sys.clock(), limits::RECLAIM_WITHIN) };
        let locked = self.take_locks_again(&link, &call).await;
        locked.map_err(|error| error.op("take the locks back"))?;
        self.open_again(&link, &call).await.map_err(|error| error.op("open again what was open"))?;
        let link = self.replace(link);
        // What was opened over the old link, and noted only while its files were opened again.
        // A line that is lost now is for the next call to replace.
        let _ = self.open_again(&link, &call).await;
        Ok(link)
    }

    /// Takes the session up, or begins another if it has ended.
    pub(super) async fn session_over(
        &self,
        remote: &Remote,
        before: Option<&SessionGrant>,
        call: &Call,
    ) -> Result<SessionGrant> {
        if let Some(grant) = before {
            match remote.resume(&call.caller, self.session, grant.clone()).await {
                Err(e) if e.kind() == ErrorKind::Stale => {}
                outcome => return outcome,
            }
        }
        remote.begin(&call.caller, self.session).await
    }

    async fn dial(&self, until: Deadline) -> Result<Arc<Remote>> {
        let mut pause = PAUSE_MIN;
        loop {
            match self.dial_once(until).await {
                Ok(connection) => return Ok(Arc::new(Remote::new(connection, self.speaks_as))),
                Err(error) => {
                    self.note_lost(Some(&error));
                    if until.left(self.sys.clock()) <= pause {
                        return Err(error);
                    }
                }
            }
            self.sys.sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn dial_once(&self, until: Deadline) -> Result<Connection> {
        let line = Socket::connect_local(&self.socket).await.map_err(|cause| {
            Error::new(ErrorKind::Unavailable, "the node does not answer")
                .op("reach the node at")
                .about(self.socket.display())
                .caused_by(cause)
        })?;
        Connection::open_local(&self.sys, line, until).await
    }

    /// Takes back every lock. What somebody else was given after our session had ended is
    /// lost. Fails if the line is lost meanwhile.
    pub(super) async fn take_locks_again(&self, link: &Link, call: &Call) -> Result<()> {
        let held = self.locks().list();
        for (at, lock) in held {
            match self.take_again(link, call, &at, &lock).await {
                Ok(()) => {}
                Err(error) if link.has_ended() => return Err(error),
                Err(error) => {
                    tracing::warn!(file = %at.base, %error, "a lock was lost with the node");
                    self.locks().lose(&at, &lock);
                }
            }
        }
        Ok(())
    }

    /// Takes one lock back, trying again as long as it is not somebody else's.
    async fn take_again(&self, link: &Link, call: &Call, at: &At, lock: &Lock) -> Result<()> {
        let mut pause = PAUSE_MIN;
        loop {
            let error = match link.remote.lock(call, at, lock, Wait::No).await {
                Ok(_) => return Ok(()),
                Err(error) => error,
            };
            let may_pass =
                matches!(error.kind(), ErrorKind::Busy | ErrorKind::Deadline | ErrorKind::Unavailable);
            if !may_pass || link.has_ended() || call.until.left(self.sys.clock()) <= pause {
                return Err(error);
            }
            self.sys.sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Opens again whatever is not open over this link. What cannot be is told so at its
    /// next use, by the same answer. Fails if the line is lost meanwhile.
    pub(super) async fn open_again(&self, link: &Link, call: &Call) -> Result<()> {
        let files = stream::iter(self.files().each()).map(Ok);
        let opened = files.try_for_each_concurrent(limits::REOPENS_AT_ONCE, |file| async move {
            match file.over(link, call).await {
                Err(error) if link.has_ended() => return Err(error),
                Err(error) => tracing::debug!(file = %file.id(), %error, "a file could not be opened again"),
                Ok(_) => {}
            }
            Ok(())
        });
        opened.await
    }
}
