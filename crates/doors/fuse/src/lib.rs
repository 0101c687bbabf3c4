//! The mount: any [`FileSystem`] as a directory of this machine, for one user or, shared, for
//! all, without privileges.
//!
//! **Shape.**
//!
//! ```text
//!  programs ─▶ kernel ─▶ /dev/fuse ─▶ session ─▶ doors ─▶ door ─▶ FileSystem   (in process, or another
//!                ▲                     threads    one method              node's, through the client)
//!                │                                per request
//!                └──── forget what others changed ◀─ watch ◀─ change feed
//! ```
//!
//! `abi` knows the kernel's layouts, `device` the descriptor, `mounter` who mounts, `fusermount` how an ordinary user does, `buffers` the memory, `session` how requests run,
//! `doors` whose they are, `door` what each means in the form, `mounted` what those share, `nodes` and `handles` what the kernel holds, `ahead` what
//! was read beyond what it asked, `watch` what it must be told, `telling` when, `look` what nobody tells, `passing` what may not be passed any more, `room` how much is held at once, `remembered` what another process goes on with if this one
//! dies, `takeover` how, `marks` what makes a change of it be made once. `errno` is the one table of errors, `failures` what is told of
//! them afterwards.
//!
//! **Choices.** Our own loop over `/dev/fuse` instead of a library, because programs that
//! wait for a lock must be killable and bytes must cross once
//! (`docs/decisions/fuse-data-path.md`). Writes
//! go through at once, without the kernel's write-back cache: what a program has written,
//! HTTP shows, and a withdrawn right stops the next write. Names, attributes and pages
//! are kept by the kernel until the change feed says otherwise; an open always sees what
//! was changed before it. Of a volume without a feed it keeps names and attributes for no
//! time, and pages no longer than until the next open, or a look a second later (`look`). The kernel is never asked to check modes
//! (`default_permissions`): the ACL answers.
//!
//! **Ways to get it wrong.** Telling the kernel to drop something while answering a
//! request for which it holds that very thing: it waits for the answer, the answer waits
//! for it (`Door::expire_later`). Counting a lookup the kernel never heard of: the node
//! would live for ever (`Undo`). Keeping pages of a version that somebody else replaced
//! (`Nodes`). Giving the kernel of a shared mount anything to keep: it shows it to all
//! (`Mounted::is_shared`). Failing a call because a timer's signal came (`limits::MOUNT_INTERRUPT_GRACE`).

mod abi;
mod ahead;
mod buffers;
mod device;
mod door;
mod doors;
mod editions;
mod errno;
mod failures;
mod fresh;
mod fusermount;
mod handles;
mod look;
mod marks;
mod mounted;
mod mounter;
mod nodes;
mod onward;
mod others;
mod passing;
mod pending;
mod pipes;
mod remembered;
mod room;
mod session;
mod signals;
mod takeover;
mod telling;
mod watch;

use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch as signal;
use weft_core::form::{At, FileSystem, Supports, Want};
use weft_core::proof::Caller;
use weft_core::{Clock, DomainId, Error, ErrorKind, RequestId, Result, SessionId, Time, TraceId, limits};

pub use door::remembered_locks;
pub use errno::of_kind as errno_of;
pub use fusermount::take_away;
pub use mounter::{Handover, Mounter, Without};
pub use remembered::{OpenedAs, Remembered};
pub use takeover::{Opened, Taken, TakenOver};

use crate::abi::reply::Agreed;
use crate::abi::request::Header;
use crate::abi::{IN_HEADER_BYTES, MAJOR, MINOR_MIN, init, opcode};
use crate::buffers::Buffers;
use crate::device::{Device, Received};
use crate::doors::Doors;
use crate::mounted::{Ids, Mounted};
use crate::remembered::Head;
use crate::room::Room;
use crate::session::Session;

/// The uid and gid that files of other callers are shown under.
pub const OVERFLOW_ID: u32 = 65534;

/// In whose name a mount calls. Asked for every call, so that a credential or session
/// that was renewed counts from the next call on.
pub trait CallSource: Send + Sync {
    /// Returns the caller, and the session its opens and locks belong to.
    fn who(&self) -> (Caller, SessionId);

    /// Returns what tells a change that may have to be sent twice from all others of the session, given what tells it from
    /// those of the mount; `None` where it cannot get lost.
    fn once(&self, _mark: u64) -> Option<RequestId> {
        None
    }
}

/// What keeps a mount from its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Away {
    /// When the line was lost.
    pub since: Time,
    /// What came of the last attempt to reach it again.
    pub because: String,
}

/// One caller in one session, for as long as the mount stands.
#[derive(Clone, Debug)]
pub struct OneCaller {
    /// Who asks.
    pub caller: Caller,
    /// The session its opens and locks belong to.
    pub session: SessionId,
}

impl CallSource for OneCaller {
    fn who(&self) -> (Caller, SessionId) {
        (self.caller.clone(), self.session)
    }
}

/// A user of this machine, and who they are to the files' node.
pub struct LocalUser {
    /// The files, as a line of this user's own.
    pub fs: Arc<dyn FileSystem>,
    /// In whose name.
    pub calls: Arc<dyn CallSource>,
    /// The user's uid, under which what the caller owns is shown.
    pub uid: u32,
    /// The user's gid, under which groups that the caller is in are shown.
    pub gid: u32,
    /// Since when the files' node is not reached; `None` while it is. Must not wait.
    pub away: Box<dyn Fn() -> Option<Away> + Send + Sync>,
}

impl LocalUser {
    pub(crate) fn ids(&self) -> Ids {
        Ids { uid: self.uid, gid: self.gid }
    }
}

/// Who uses a mount beside the user who mounts.
pub struct Others {
    /// Those who have not said who they are, whatever their uid.
    pub anyone: LocalUser,
    /// Where they do, which the mount tells them of.
    pub login: Login,
}

/// Where users of a shared mount say who they are.
pub struct Login {
    /// The socket of the mount's process.
    pub socket: PathBuf,
    /// The domain whose credentials it takes.
    pub domain: DomainId,
}

/// What to mount, where, and for whom.
pub struct MountSettings {
    /// An empty directory of the mounting user.
    pub mountpoint: PathBuf,
    /// Who mounts.
    pub mounter: Mounter,
    /// What stands in the mount table's first column.
    pub name: String,
    /// The directory that becomes the mount's root.
    pub root: At,
    /// What the next process goes on with if this one dies; of a mount that is taken over, what this one does.
    pub remembered: Arc<Remembered>,
    /// The user who mounts.
    pub own: LocalUser,
    /// All others, in a mount that is shared.
    pub others: Option<Others>,
    /// What deadlines are measured by: the file system's own clock.
    pub clock: Arc<dyn Clock>,
    /// How long one call may take; [`limits::CALL_DEADLINE`] at most.
    pub patience: Duration,
    /// Bytes that it holds at most of what programs read and write; [`limits::MOUNT_MEMORY_MIN`] at least. With fewer, fewer
    /// calls go on at once.
    pub memory: u64,
}

/// A mount that stands. Dropping it takes it away lazily: nobody finds it any more, and
/// who has files open there goes on until they are closed.
pub struct Mount {
    doors: Arc<Doors>,
    ended: signal::Receiver<bool>,
    /// Whether it was taken out of the tree: whatever is mounted there since is somebody else's.
    away: AtomicBool,
}

/// Mounts. The mount is served by threads of its own and by the runtime this is called
/// on, until it is unmounted.
///
/// Fails as a walk to the root does, with `NotDirectory`, or with `Unavailable` or
/// `NotPermitted` as `fusermount3` and the kernel have it.
pub async fn mount(settings: MountSettings) -> Result<Mount> {
    let MountSettings {
        mountpoint,
        mut mounter,
        name,
        root,
        remembered,
        own,
        others,
        clock,
        patience,
        memory,
    } = settings;
    let patience = patience.min(limits::CALL_DEADLINE);
    let first = door::call_of(&*own.calls, &*clock, patience, TraceId(0));
    let walked = own.fs.walk(&first, &root, Want::default()).await?;
    if walked.attr.kind != weft_core::attr::Kind::Directory {
        return Err(Error::new(ErrorKind::NotDirectory, "only a directory can be mounted").op("mount"));
    }
    let shared = others.is_some();
    let wanted = wanted(&own.fs.supports(walked.attr.id.volume()), shared);
    let before = match &mut mounter {
        Mounter::Taken(taken) => Some((std::mem::take(&mut taken.files), taken.told.clone())),
        Mounter::Fusermount(_) | Mounter::Helper(_) => None,
    };
    let agreed_before = before.is_some().then(|| remembered.head(Head::Agreed));
    let mounted = tokio::task::spawn_blocking(move || {
        let device = Device::mount(&mountpoint, &name, mounter, shared)?;
        match agreed_before.map_or_else(|| agree(&device, wanted), Ok) {
            Ok(agreed) => Ok((device, agreed)),
            Err(error) => take_away(device.mountpoint(), true).and(Err(error)),
        }
    });
    let mounted = mounted.await.map_err(|e| Error::internal("mounting was stopped").caused_by(e))?;
    let ((device, agreed), (files, taken)) = (mounted?, before.unzip());
    remembered.set(Head::Agreed, agreed);
    let is_taken = taken.is_some();
    let mut mounted =
        Mounted::new(device, (agreed, remembered, taken), &walked.attr, Room::of(memory), (clock, patience));
    let anyone = others.map(|Others { anyone, login }| {
        mounted.is_shared = true;
        mounted.login = Some(login);
        anyone
    });
    let (caller, _) = own.calls.who();
    // What anyone made, each of those who share it might have made.
    if !(shared && caller.is_anyone()) {
        mounted.owners.show(caller.name().id(), own.ids());
    }
    let mounted = Arc::new(mounted);
    let (end, ended) = signal::channel(false);
    let doors = Doors::new(mounted.clone(), (own, &files.unwrap_or_default()), anyone, &ended)?;
    let unsure = if is_taken { mounted.take_over()? } else { Vec::new() };
    mounted.remembered.set(Head::Stands, 1);
    Session::start(doors.clone(), tokio::runtime::Handle::current(), end)
        .map_err(|error| Error::new(ErrorKind::Unavailable, "no threads for the mount").caused_by(error))?;
    tokio::task::spawn_blocking(move || mounted.drop_unsure(&unsure));
    Ok(Mount { doors, ended, away: AtomicBool::new(false) })
}

/// Answers the kernel's first request, and returns what both can do.
fn agree(device: &Device, wanted: u64) -> Result<u64> {
    let refuse = |detail: &'static str| Error::new(ErrorKind::Unsupported, detail).op("mount");
    let mut buffer = Buffers::new(0).take();
    let Received::Request(size) = device.receive(&mut buffer) else {
        return Err(refuse("the kernel took the mount away at once"));
    };
    let header = Header::read(&buffer[..size]).filter(|header| header.opcode == opcode::INIT);
    let header = header.ok_or_else(|| refuse("the kernel began with another request"))?;
    let asked = abi::request::init(Bytes::copy_from_slice(&buffer[IN_HEADER_BYTES..size]))
        .map_err(|_| refuse("the kernel's greeting is cut short"))?;
    if asked.major != MAJOR || asked.minor < MINOR_MIN {
        return Err(refuse("the kernel is too old: Linux 5.4 or later is needed"));
    }
    let agreed = Agreed {
        flags: asked.flags & wanted,
        readahead_max: asked.readahead_max.max(limits::MOUNT_WRITE_BYTES_MAX as u32),
        write_max: limits::MOUNT_WRITE_BYTES_MAX as u32,
        background_max: limits::MOUNT_BACKGROUND_MAX,
        pages_max: (limits::MOUNT_WRITE_BYTES_MAX / rustix::param::page_size()) as u16,
    };
    let answered = device.answer(header.unique, Ok((&abi::reply::init(&asked, &agreed), &[])));
    if answered { Ok(agreed.flags) } else { Err(refuse("the kernel did not take the greeting")) }
}

/// Returns what the door can do. Without a change feed the kernel has to look at times
/// and sizes itself to know that its pages are old. In a shared mount it is given no names and no links to keep, and
/// nothing is mapped to be shared: what one user writes so, the kernel may send as another who has the file mapped.
fn wanted(supports: &Supports, is_shared: bool) -> u64 {
    let kept =
        init::DO_READDIRPLUS | init::READDIRPLUS_AUTO | init::CACHE_SYMLINKS | init::DIRECT_IO_ALLOW_MMAP;
    let kept = if is_shared { 0 } else { kept };
    let told = if supports.watch { init::EXPLICIT_INVAL_DATA } else { init::AUTO_INVAL_DATA };
    let locks = if supports.locks { init::POSIX_LOCKS | init::FLOCK_LOCKS } else { 0 };
    init::ASYNC_READ
        | init::ATOMIC_O_TRUNC
        | init::BIG_WRITES
        | init::ASYNC_DIO
        | init::PARALLEL_DIROPS
        | init::MAX_PAGES
        | init::HANDLE_KILLPRIV_V2
        | init::INIT_EXT
        | init::HAS_RESEND
        | kept
        | told
        | locks
}

impl Mount {
    /// Returns where it is.
    pub fn mountpoint(&self) -> &Path {
        self.device().mountpoint()
    }

    /// Returns the kernel's end, for a process that keeps it for the next one should this one die; `None` if the kernel
    /// would not tell that one what this one was asked (before Linux 6.9), or the mount is shared: nobody else holds the
    /// credentials of those who use it.
    pub fn kept(&self) -> Option<BorrowedFd<'_>> {
        let mounted = &self.doors.mounted;
        let resends = mounted.remembered.head(Head::Agreed) & init::HAS_RESEND != 0;
        (resends && !mounted.is_shared).then(|| mounted.device.descriptor())
    }

    /// Takes the mount away, and returns once it is gone. `Busy` if files are open there
    /// or somebody's working directory is.
    ///
    /// A mount namespace that was made since (a container, a service with a private `/tmp`) may
    /// have a copy of it, which nobody here can take away: after [`limits::MOUNT_END_WAIT`] that
    /// one is left to end with the process, and its users are told that nobody is there.
    pub async fn unmount(&self) -> Result<()> {
        self.take_away(false).await?;
        if tokio::time::timeout(limits::MOUNT_END_WAIT, self.wait()).await.is_err() {
            let path = self.mountpoint().display();
            tracing::warn!(op = "unmount", %path, "another mount namespace has a copy of the mount: it ends there");
        }
        Ok(())
    }

    /// Takes the mount out of the tree at once; it is gone when the last file that is
    /// open there is closed.
    pub async fn unmount_lazily(&self) -> Result<()> {
        self.take_away(true).await
    }

    async fn take_away(&self, lazy: bool) -> Result<()> {
        if self.is_away() {
            return Ok(());
        }
        let mountpoint = self.mountpoint().to_owned();
        let done = tokio::task::spawn_blocking(move || take_away(&mountpoint, lazy)).await;
        let done = done.map_err(|error| Error::internal("unmounting was stopped").caused_by(error))?;
        self.away.fetch_or(done.is_ok(), Ordering::Relaxed);
        // Somebody else may have been quicker, which is about to be heard, unless it is in use.
        if done.as_ref().is_err_and(|error| error.kind() != ErrorKind::Busy) {
            let _ = tokio::time::timeout(limits::MOUNT_END_HEARD, self.wait()).await;
        }
        if self.is_away() { Ok(()) } else { done }
    }

    /// Has a user of this machine use the mount as who they say they are, in place of anyone or of who they said
    /// before: what they had open as that one is closed. To be called on the runtime that serves the mount.
    ///
    /// `Unsupported` if the mount is not shared, `NotPermitted` for the uid that serves it and for [`OVERFLOW_ID`], `Busy` if
    /// [`limits::MOUNT_USERS_MAX`] use it.
    pub fn admit(&self, user: LocalUser) -> Result<()> {
        self.doors.admit(user)
    }

    /// Has a user of this machine be anyone again, and closes what they have open. Returns whether they were admitted. To be
    /// called on the runtime that serves the mount.
    ///
    /// `Unsupported` if the mount is not shared.
    pub fn dismiss(&self, uid: u32) -> Result<bool> {
        self.doors.dismiss(uid)
    }

    /// Drops what is kept for a user whose [`CallSource`] names another credential from now on.
    pub fn look_again(&self, uid: u32) {
        self.doors.look_again(uid);
    }

    fn device(&self) -> &Device {
        &self.doors.mounted.device
    }

    fn is_away(&self) -> bool {
        self.away.load(Ordering::Relaxed) || self.is_ended()
    }

    /// Waits until the mount is gone, whoever takes it away.
    pub async fn wait(&self) {
        let mut ended = self.ended.clone();
        // An error says that its threads are gone, which is an end as well.
        let _ = ended.wait_for(|ended| *ended).await;
    }

    /// Returns whether the mount is gone.
    pub fn is_ended(&self) -> bool {
        *self.ended.borrow()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if !self.is_away()
            && let Err(error) = take_away(self.mountpoint(), true)
        {
            tracing::warn!(op = "unmount", path = %self.mountpoint().display(), %error, "the mount stays");
        }
    }
}
