//! The shared directory itself: held for a moment, known by its inode, waited for off the threads
//! that serve everybody where it may not answer.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use weft_core::form::Call;
use weft_core::{Deadline, Error, ErrorKind, Result, Tick, limits};
use weft_sys::Beneath;

use super::Volume;
use super::recent::Recent;
use super::user::{self, User};
use super::view::View;

pub(super) struct Root {
    pub(super) directory: PathBuf,
    /// The inode that was shared.
    inode: (u64, u32),
    held: Mutex<Option<(Arc<Rooted>, Tick)>>,
    /// Looks that may be under way at once where the directory may not answer.
    threads: Arc<Semaphore>,
    /// Looks that went on when nobody waited for them any more, and have not ended.
    stuck: Arc<AtomicUsize>,
}

/// The directory, while it is held.
pub(super) struct Rooted {
    pub(super) beneath: Beneath,
    /// Whether it lies on a network or behind another program.
    pub(super) stalls: bool,
    pub(super) recent: Recent,
    finely: OnceLock<bool>,
}

impl Root {
    pub(super) fn of(directory: &[u8], inode: (u64, u32)) -> Self {
        Self {
            directory: std::ffi::OsStr::from_bytes(directory).into(),
            inode,
            held: Mutex::default(),
            threads: Arc::new(Semaphore::new(limits::EXPORT_THREADS)),
            stuck: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Arc<Rooted>, Tick)>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(directory: &Path, inode: (u64, u32), user: Option<&User>) -> Result<Rooted> {
        let beneath = open_for(directory, user).map_err(away)?;
        let top = beneath.itself().map_err(away)?;
        let facts = top.facts().map_err(away)?;
        if (facts.inode, facts.generation) != inode {
            let another = "another directory lies where the shared one was; its disk may not be mounted";
            return Err(Error::new(ErrorKind::Unavailable, another).hint("mount it, or share it again"));
        }
        let (stalls, recent) = (beneath.may_stall(), Recent::below(top));
        Ok(Rooted { stalls, recent, finely: OnceLock::new(), beneath })
    }
}

/// Opens a directory by its path, if the user it is for may go there.
pub(super) fn open_for(directory: &Path, user: Option<&User>) -> Result<Beneath> {
    let Some(user) = user else { return Beneath::open(directory) };
    Beneath::open_through(directory, |passed| {
        if user::access(user, passed, &passed.facts()?) & user::SEARCH != 0 {
            return Ok(());
        }
        Err(Error::denied("the machine lets the directory's owner not come to it"))
    })
}

impl Rooted {
    /// Returns whether changes in it may be stamped finer than the machine's clock ticks.
    pub(super) fn may_stamp_finely(&self) -> bool {
        *self.finely.get_or_init(|| !self.stalls && self.beneath.may_stamp_finely())
    }

    /// Checks that the directory is still that user's whose rights limit the share.
    fn must_belong(&self, user: &User) -> Result<()> {
        if self.beneath.owner()? == user.uid {
            return Ok(());
        }
        let detail = "the shared directory belongs to another user of the machine than it did";
        Err(Error::new(ErrorKind::Unavailable, detail).hint("unshare it, or have its owner share it"))
    }
}

fn away(cause: Error) -> Error {
    let detail = format!("the shared directory cannot be reached: {}", cause.detail());
    Error::new(ErrorKind::Unavailable, detail).caused_by(cause)
}

fn unanswered(error: Error) -> Error {
    if error.kind() != ErrorKind::Deadline {
        return error;
    }
    Error::new(ErrorKind::Unavailable, "the shared directory does not answer").caused_by(error)
}

impl Volume {
    /// Returns a deadline for what nobody's call asked for.
    pub(super) fn sys_deadline(&self) -> Deadline {
        Deadline::within(self.sys.clock(), limits::EXPORT_LOOK)
    }

    /// Returns a deadline for what a call has begun and should end: its own, and no sooner than that.
    pub(super) fn deadline_to_end(&self, call: &Call) -> Deadline {
        call.until.max(self.sys_deadline())
    }

    /// Returns the directory, and the user whose rights limit what is done there.
    pub(super) async fn entered(self: &Arc<Self>, until: &Deadline) -> Result<(Arc<Rooted>, Option<User>)> {
        let Some(known) = &self.user else { return Ok((self.held_root(until, None).await?, None)) };
        let user = known.now(&self.sys).await;
        let rooted = self.held_root(until, Some(&user)).await?;
        let (held, owner) = (rooted.clone(), user.clone());
        let look = move || held.must_belong(&owner);
        if rooted.stalls {
            self.apart(*until, look).await?
        } else {
            look()?
        }
        Ok((rooted, Some(user)))
    }

    /// Returns the directory: as it is held, or opened anew.
    async fn held_root(self: &Arc<Self>, until: &Deadline, user: Option<&User>) -> Result<Arc<Rooted>> {
        let now = self.sys.clock().tick();
        let held = self.root.lock().clone();
        if let Some((rooted, since)) = held
            && now.since(since) < limits::EXPORT_ROOT_HELD
        {
            return Ok(rooted);
        }
        let (directory, inode, user) = (self.root.directory.clone(), self.root.inode, user.cloned());
        let open = move || Root::open(&directory, inode, user.as_ref());
        let rooted = Arc::new(self.apart(*until, open).await?);
        let before = self.root.lock().replace((rooted.clone(), now));
        self.let_go(before);
        self.let_go_behind();
        Ok(rooted)
    }

    /// Lets go of the directory after a moment: as long as it is held its disk cannot be unmounted.
    fn let_go_behind(self: &Arc<Self>) {
        let (sys, volume) = (self.sys.clone(), Arc::downgrade(self));
        drop(self.sys.spawn(async move {
            sys.sleep(limits::EXPORT_ROOT_HELD).await;
            let Some(volume) = volume.upgrade() else { return };
            let now = sys.clock().tick();
            let is_over =
                |(_, since): &mut (Arc<Rooted>, Tick)| now.since(*since) >= limits::EXPORT_ROOT_HELD;
            let over = volume.root.lock().take_if(is_over);
            volume.let_go(over);
        }));
    }

    /// Lets go of what was kept open below the directory, whoever has that still: of a file that was removed meanwhile
    /// that frees the bytes, and nobody waits for it.
    fn let_go(&self, held: Option<(Arc<Rooted>, Tick)>) {
        let Some((rooted, _)) = held else { return };
        let kept = rooted.recent.let_go();
        if !kept.is_empty() {
            drop(self.sys.blocking(move || drop(kept)));
        }
    }

    /// Does what may wait for the machine on a thread of its own, until a deadline: what does not
    /// answer keeps its thread, and of those there are so many. While one is kept so, nobody waits for
    /// long: the directory is known not to answer.
    pub(super) async fn apart<T: Send + 'static>(
        &self,
        until: Deadline,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.apart_until(self.patience(until), work).await
    }

    /// Waits for what somebody else does apart, for as long as one may who does it.
    pub(super) async fn behind<T>(&self, until: Deadline, done: impl Future<Output = T>) -> Result<T> {
        let done = async { Ok(done.await) };
        self.sys.within(self.patience(until), done).await.map_err(unanswered)
    }

    /// Returns until when the directory may take to answer somebody who has time until then.
    fn patience(&self, until: Deadline) -> Deadline {
        let silent = self.root.stuck.load(Ordering::Acquire) > 0;
        let patience = if silent { limits::EXPORT_PROBE } else { limits::EXPORT_LOOK };
        until.min(Deadline::within(self.sys.clock(), patience))
    }

    async fn apart_until<T: Send + 'static>(
        &self,
        until: Deadline,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (threads, stay) = (self.root.threads.clone(), Arc::new(Stay::of(&self.root.stuck)));
        let own = stay.clone();
        let worked = async {
            let turn = threads.acquire_owned().await;
            let turn = turn.map_err(|e| Error::internal("the threads of a share are gone").caused_by(e))?;
            own.began();
            let worked = self.sys.blocking(move || {
                let worked = work();
                own.ended();
                drop(turn);
                worked
            });
            worked.await?
        };
        let worked = self.sys.within(until, worked).await;
        if matches!(&worked, Err(error) if error.kind() == ErrorKind::Deadline) {
            stay.is_late();
        }
        worked.map_err(unanswered)
    }

    /// Looks at the machine, however late.
    pub(super) async fn look_whenever<T: Send + 'static>(
        self: &Arc<Self>,
        call: &Call,
        look: impl FnOnce(&View<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.look_within(call, None, look).await
    }

    /// Looks at the machine to act on it: what is begun is waited for to its end, since something must
    /// follow it. Whoever called is answered at the deadline all the same.
    pub(super) async fn look_to_act<T: Send + 'static>(
        self: &Arc<Self>,
        call: &Call,
        look: impl FnOnce(&View<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        call.check(self.sys.clock())?;
        self.look_within(call, Some(limits::PUBLISH_WITHIN), look).await
    }

    /// Looks at the machine, apart if that takes long.
    pub(super) async fn look_for_long<T: Send + 'static>(
        self: &Arc<Self>,
        call: &Call,
        long: bool,
        look: impl FnOnce(&View<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        if !long {
            return self.look(call, look).await;
        }
        call.check(self.sys.clock())?;
        let (rooted, user) = self.entered(&call.until).await?;
        let (volume, own, reading) = (self.clone(), call.clone(), self.reading.clone());
        let turn = self.sys.within(call.until, async { Ok(reading.acquire_owned().await) }).await?;
        let look = move || {
            let _turn = turn;
            look(&View::of(&volume, &rooted, user, &own))
        };
        self.apart(call.until, look).await
    }

    async fn look_within<T: Send + 'static>(
        self: &Arc<Self>,
        call: &Call,
        acts: Option<Duration>,
        look: impl FnOnce(&View<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let until = if call.until.passed(self.sys.clock()) { self.sys_deadline() } else { call.until };
        let (rooted, user) = self.entered(&until).await?;
        if !rooted.stalls {
            return look(&View::of(self, &rooted, user, call));
        }
        let (volume, call) = (self.clone(), call.clone());
        let look = move || look(&View::of(&volume, &rooted, user, &call));
        match acts {
            Some(span) => self.apart_until(Deadline::within(self.sys.clock(), span), look).await,
            None => self.apart(until, look).await,
        }
    }
}

/// How work on a thread of its own stands: whoever gave it up counts it until it ends.
struct Stay {
    state: AtomicU8,
    stuck: Arc<AtomicUsize>,
}

const WAITS: u8 = 0;
const RUNS: u8 = 1;
const ENDED: u8 = 2;
const LATE: u8 = 3;

impl Stay {
    fn of(stuck: &Arc<AtomicUsize>) -> Self {
        Self { state: AtomicU8::new(WAITS), stuck: stuck.clone() }
    }

    fn began(&self) {
        self.state.store(RUNS, Ordering::Release);
    }

    fn ended(&self) {
        if self.state.swap(ENDED, Ordering::AcqRel) == LATE {
            self.stuck.fetch_sub(1, Ordering::AcqRel);
        }
    }

    fn is_late(&self) {
        self.stuck.fetch_add(1, Ordering::AcqRel);
        let late = self.state.compare_exchange(RUNS, LATE, Ordering::AcqRel, Ordering::Acquire);
        if late.is_err() {
            self.stuck.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
