//! The door: from the kernel's requests to the form, one method each, in the files
//! below. It decides nothing: every answer is the file system's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use rustix::io::Errno;
use tokio::sync::{Semaphore, mpsc};
use weft_core::attr::{Attr, Kind, Wcc};
use weft_core::form::{Ack, At, Call, Door as Way, FileSystem, Origin, Wire};
use weft_core::proof::Caller;
use weft_core::{
    CallerId, Clock, ContainerId, Deadline, Error, FileId, Name, Result, SessionId, Time, TraceId, VolumeId,
    limits,
};

use crate::abi::reply::{AttrOut, EntryOut, STAT_BLOCK_BYTES};
use crate::abi::request::{Header, Request, Subject};
use crate::abi::{self, mode};
use crate::buffers::Lent;
use crate::editions::Editions;
use crate::errno::Failure;
use crate::failures::{Asked, Failures};
use crate::fresh::{Asking, Changing};
use crate::handles::Handles;
use crate::look::Unwatched;
use crate::marks;
use crate::mounted::{Ids, Mounted};
use crate::nodes::Told;
use crate::passing::Doubtful;
use crate::pipes::Piped;
use crate::remembered::Remembered;
use crate::{Away, CallSource, LocalUser, OVERFLOW_ID, doors, nodes};
use lockers::Lockers;

mod attributes;
mod files;
mod listing;
mod lockers;
mod locks;
mod names;
mod own;
mod tags;

pub use locks::remembered_locks;

/// The door of one user, or of all who are anyone.
pub(crate) struct Door {
    pub(crate) mounted: Arc<Mounted>,
    number: u64,
    pub(crate) fs: Arc<dyn FileSystem>,
    calls: Arc<dyn CallSource>,
    uid: u32,
    gid: u32,
    away: Box<dyn Fn() -> Option<Away> + Send + Sync>,
    pub(crate) handles: Handles,
    remembered: Arc<Remembered>,
    failures: Failures,
    editions: Editions,
    lockers: Lockers,
    /// Whether changes by others are being pushed, so that what the kernel keeps may be
    /// believed for long.
    pub(crate) watching: AtomicBool,
    /// Containers that turned a call away, for the watcher to drop from the cache.
    pub(crate) refused: mpsc::Sender<Option<ContainerId>>,
    /// Open files that the kernel keeps pages of, though nobody tells of their changes.
    pub(crate) unwatched: Unwatched,
    /// Directories that may not be passed any more.
    pub(crate) doubtful: Doubtful,
    /// Turns of those that give up all that somebody locked.
    unlocks: Semaphore,
    /// Whether it was shut: nothing that is asked for through it is to be kept.
    shut: AtomicBool,
    trace: AtomicU64,
}

/// What the kernel is answered with.
#[derive(Default)]
pub(crate) struct Reply {
    /// The fixed part.
    pub head: Vec<u8>,
    /// File bytes after it.
    pub contents: Contents,
    /// What to take back if the kernel has given the request up.
    pub undo: Undo,
}

/// File bytes of a reply.
pub(crate) enum Contents {
    Memory(Vec<Bytes>),
    /// They lie in a pipe, behind the header that they are answered with: the fixed part is empty.
    Pipe(Piped),
}

impl Default for Contents {
    fn default() -> Self {
        Self::Memory(Vec::new())
    }
}

/// What a reply gives the kernel to keep.
#[derive(Default)]
pub(crate) struct Undo {
    /// Nodes whose lookup was counted.
    pub nodes: Vec<u64>,
    /// A file that was opened.
    pub handle: Option<u64>,
    /// A directory that was.
    pub directory: Option<u64>,
}

/// What a reply is to give, which is taken back if the request is given up before it is answered.
struct Given<'a> {
    door: &'a Arc<Door>,
    undo: Undo,
}

impl Given<'_> {
    /// Returns what is to be taken back from now on if the kernel does not take the reply.
    fn answered(mut self) -> Undo {
        std::mem::take(&mut self.undo)
    }
}

impl Drop for Given<'_> {
    fn drop(&mut self) {
        self.door.undo(std::mem::take(&mut self.undo));
    }
}

impl From<Vec<u8>> for Reply {
    fn from(head: Vec<u8>) -> Self {
        Self { head, ..Self::default() }
    }
}

/// What comes with a request beside its body.
#[derive(Default)]
pub(crate) struct Beside {
    /// The buffer that the body lies in, if that came along.
    pub lent: Option<Arc<Lent>>,
    /// Set once a lock that is waited for is taken: an interrupt comes too late then.
    pub taken: Option<Arc<AtomicBool>>,
}

pub(crate) type Outcome = std::result::Result<Reply, Failure>;

impl Door {
    /// Makes a user's door, the mount's door of that number, with what is open at it and what is remembered of it. What the
    /// watcher is to drop comes by `refused`.
    pub(crate) fn new(
        mounted: Arc<Mounted>,
        number: u64,
        user: LocalUser,
        (handles, remembered): (Handles, Arc<Remembered>),
        refused: mpsc::Sender<Option<ContainerId>>,
    ) -> Self {
        let LocalUser { fs, calls, uid, gid, away } = user;
        let trace = AtomicU64::new(mounted.clock.now().nanos() as u64);
        Self {
            handles,
            failures: Failures::default(),
            editions: Editions::default(),
            lockers: Lockers::new(&remembered),
            remembered,
            watching: AtomicBool::new(false),
            mounted,
            number,
            fs,
            calls,
            uid,
            gid,
            away,
            refused,
            unwatched: Unwatched::default(),
            doubtful: Doubtful::default(),
            unlocks: Semaphore::new(limits::MOUNT_UNLOCKS_AT_ONCE),
            shut: AtomicBool::new(false),
            trace,
        }
    }

    /// Returns what is remembered of it.
    pub(crate) fn remembered(&self) -> &Remembered {
        &self.remembered
    }

    /// Returns which of the mount's doors it is.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns whose it is on this machine.
    pub(crate) fn ids(&self) -> Ids {
        Ids { uid: self.uid, gid: self.gid }
    }

    /// Returns the uid of this machine that it is for.
    pub(crate) fn uid(&self) -> u32 {
        self.uid
    }

    /// Returns whether it was shut while something was asked for through it.
    fn is_shut(&self) -> bool {
        self.shut.load(Ordering::Acquire)
    }

    /// Returns in whose name it calls, and in which session.
    pub(crate) fn who(&self) -> (Caller, SessionId) {
        self.calls.who()
    }

    /// Answers one request, and notes why it failed for whoever asks later.
    pub(crate) async fn handle(self: Arc<Self>, header: Header, request: Request, beside: Beside) -> Outcome {
        let subject = request.subject();
        let outcome = marks::answering(&header, self.answer(header.node, request, beside)).await;
        if let Err(failure) = &outcome
            && let Some(error) = failure.error()
        {
            self.note_failure(&header, &subject, error);
        }
        outcome
    }

    async fn answer(self: &Arc<Self>, node: u64, request: Request, beside: Beside) -> Outcome {
        match request {
            Request::Lookup { name } => self.lookup(node, name).await,
            Request::GetAttr { handle } => self.get_attr(node, handle).await,
            Request::SetAttr(set) => self.set_attr(node, &set).await,
            Request::ReadLink => self.read_link(node).await,
            Request::Symlink { name, target } => self.symlink(node, name, target).await,
            Request::MakeNode { name, mode } => self.make_node(node, name, mode).await,
            Request::MakeDirectory { name, mode } => self.make_directory(node, name, mode).await,
            Request::Unlink { name } => self.unlink(node, name).await,
            Request::RemoveDirectory { name } => self.remove_directory(node, name).await,
            Request::Rename { name, to_node, to_name, flags } => {
                self.rename((node, name), (to_node, to_name), flags).await
            }
            Request::Link { node: file, name } => self.link(file, node, name).await,
            Request::Open { flags, kill_privileges } => self.open(node, flags, kill_privileges).await,
            Request::Create { name, flags, mode } => self.create(node, name, flags, mode).await,
            Request::Read { handle, at, size, flags } => self.read(handle, (at, size), flags).await,
            Request::Write { handle, at, marks, flags, bytes } => {
                self.write((handle, at), (marks, flags), bytes, beside.lent).await
            }
            Request::Flush { owner, .. } => self.flush(node, owner).await,
            Request::Release { handle } => self.release(handle).await,
            Request::Sync { handle } => self.sync(handle).await,
            Request::OpenDirectory => self.open_directory(node).await,
            Request::ReadDirectory { at, size, attributes } => {
                self.read_directory(node, at, size, attributes).await
            }
            Request::ReleaseDirectory => self.release_directory(node),
            Request::SyncDirectory => self.sync_directory(node).await,
            Request::StatFs => self.stat_fs(node).await,
            Request::SetTag { name, value, flags } => self.set_tag(node, &name, value, flags).await,
            Request::GetTag { name, size } => self.get_tag(node, &name, size).await,
            Request::ListTags { size } => self.list_tags(node, size).await,
            Request::RemoveTag { name } => self.remove_tag(node, &name).await,
            Request::Access { mask } => self.access(node, mask).await,
            Request::TestLock(lock) => self.test_lock(node, &lock).await,
            Request::SetLock { lock, wait } => self.set_lock(node, &lock, wait, beside.taken).await,
            Request::Allocate { handle, at, length, mode } => self.allocate(handle, at, length, mode).await,
            Request::Seek { handle, at, whence } => self.seek(handle, at, whence).await,
            Request::CopyRange { at, to_handle, to_node, to_at, length, .. } => {
                self.copy_range((node, at), (to_node, to_at), to_handle, length).await
            }
        }
    }

    /// Returns how long a request may take.
    pub(crate) fn patience(&self, opcode: u32) -> Duration {
        match opcode {
            _ if abi::opcode::syncs(opcode) => self.mounted.patience.max(limits::MOUNT_SYNC_WITHIN),
            // Four calls: nobody is to be told that he has not got the lock that was taken by one of the first.
            abi::opcode::SETLK => 4 * self.mounted.patience,
            _ => self.mounted.patience,
        }
    }

    /// Returns what accompanies a call that brings bytes to the disk.
    fn durable(&self) -> Call {
        self.call_within(self.patience(abi::opcode::FSYNC)).durable()
    }

    /// Returns what accompanies the next call, with the whole patience to go.
    pub(crate) fn call(&self) -> Call {
        self.call_within(self.mounted.patience)
    }

    /// The same, with a patience of its own.
    pub(crate) fn call_within(&self, patience: Duration) -> Call {
        let trace = TraceId(self.trace.fetch_add(1, Ordering::Relaxed));
        call_of(&*self.calls, &*self.mounted.clock, patience, trace)
    }

    /// The same, for a change of the request that is being answered: sent twice, it is made once.
    fn change(&self) -> Call {
        let mut call = self.call();
        call.once = marks::next().and_then(|mark| self.calls.once(mark));
        call
    }

    /// Returns the root of the mount.
    pub(crate) fn root(&self) -> At {
        At::id(self.mounted.root)
    }

    fn at(&self, node: u64) -> std::result::Result<At, Failure> {
        Ok(At::id(self.mounted.nodes.file(node)?))
    }

    fn at_name(&self, node: u64, name: Bytes) -> std::result::Result<At, Failure> {
        Ok(At::name(self.mounted.nodes.file(node)?, Name::new(name)?))
    }

    /// Returns whether changes by others in a volume are told of at all. In one where they are not
    /// (an export, which local programs change), every access asks the file system.
    pub(crate) fn is_watched(&self, volume: VolumeId) -> bool {
        self.fs.supports(volume).watch
    }

    /// Returns whether whatever others change in a volume is told of, so that what was answered may be given again.
    fn is_told(&self, volume: VolumeId) -> bool {
        !self.mounted.is_shared && self.watching.load(Ordering::Relaxed) && self.is_watched(volume)
    }

    /// Returns for how long the kernel may believe what it is told of a volume.
    fn valid(&self, volume: VolumeId) -> Duration {
        if self.mounted.is_shared {
            limits::MOUNT_BELIEVED_SHARED
        } else if !self.is_watched(volume) {
            limits::MOUNT_BELIEVED_UNWATCHED
        } else if self.watching.load(Ordering::Relaxed) {
            limits::MOUNT_BELIEVED_WATCHED
        } else {
            limits::MOUNT_BELIEVED
        }
    }

    /// Returns the gid a group is shown as: the user's own for the caller and for every group it
    /// is in, since they have one group here, and for no other; that of another user of the mount for that one alone.
    fn shown_gid(&self, group: CallerId) -> u32 {
        if self.calls.who().0.is_or_is_in(group) {
            return self.gid;
        }
        self.mounted.owners.gid(group).filter(|gid| *gid != self.gid).unwrap_or(OVERFLOW_ID)
    }

    fn attr_out(&self, attr: &Attr) -> AttrOut {
        let time = |time: Time| (time.seconds(), time.subsec_nanos());
        AttrOut {
            inode: attr.id.inode(),
            size: attr.size,
            blocks: attr.used.div_ceil(STAT_BLOCK_BYTES),
            times: [time(attr.atime), time(attr.mtime), time(attr.ctime)],
            mode: kind_bits(attr.kind) | u32::from(attr.mode),
            links: attr.links,
            uid: self.mounted.owners.uid(attr.owner),
            gid: self.shown_gid(attr.group),
        }
    }

    /// Returns what the kernel is told of a name in a directory, which is a node by now, so that whatever comes is told, and for
    /// which nothing is waited any more. The name is believed as long as what it leads to: a name in a volume
    /// that is not watched leads nowhere else. Neither is believed that others changed since it was asked for: of what the kernel
    /// did not know when it was told of that it took no notice.
    fn entry_out(&self, node: u64, attr: &Attr, (directory, name): (u64, &[u8]), asking: Asking) -> EntryOut {
        let overtaken = |above| self.mounted.fresh.is_overtaken(asking, attr.id, (above, name));
        let (file, name) = self.mounted.nodes.file(directory).map_or((true, true), overtaken);
        let valid = |overtaken| if overtaken { Duration::ZERO } else { self.valid(attr.id.volume()) };
        let (attr_valid, name_valid) = (valid(file), valid(name));
        let generation = u64::from(attr.id.generation());
        EntryOut { node, generation, name_valid, attr_valid, attr: self.attr_out(attr) }
    }

    /// Counts a lookup of a name and answers it.
    async fn entry(self: &Arc<Self>, attr: &Attr, way: nodes::Way, asking: Asking) -> Reply {
        let (node, told) = self.mounted.nodes.found(attr);
        let given = self.gives(Undo { nodes: vec![node], ..Undo::default() });
        self.came_by(attr.kind, node, way.clone());
        self.make_way(node, told).await;
        let out = self.entry_out(node, attr, (way.0, &way.1), asking);
        Reply { head: abi::reply::entry(&out), contents: Contents::default(), undo: given.answered() }
    }

    /// Notes by which name the kernel is told of a directory; of a shared mount it keeps none.
    fn came_by(&self, kind: Kind, node: u64, way: nodes::Way) {
        if kind == Kind::Directory && !self.mounted.is_shared {
            self.mounted.nodes.came_by(node, way);
        }
    }

    /// Answers with attributes.
    fn attributes(&self, attr: &Attr) -> Reply {
        abi::reply::attr(self.valid(attr.id.volume()), &self.attr_out(attr)).into()
    }

    /// Has the kernel drop what it keeps of a node, and waits until it has. On a thread
    /// of its own: the kernel may first wait for reads that are answered here.
    pub(crate) async fn expire(self: &Arc<Self>, node: u64, pages: bool) {
        self.tell_kernel(move |door| door.mounted.drop_kept(node, pages)).await;
    }

    /// The same for the pages from a byte on, which become old by it.
    async fn expire_from(self: &Arc<Self>, node: u64, at: u64) {
        let time = self.mounted.nodes.becomes_stale(node);
        self.tell_kernel(move |door| {
            door.mounted.nodes.moved(node);
            door.mounted.expire_node(node, Some(at));
            door.mounted.nodes.dropped_some(node, time);
        })
        .await;
    }

    /// Has pages go that are not of the state that the kernel is about to be told of.
    async fn make_way(self: &Arc<Self>, node: u64, told: Told) {
        match told {
            Told::Shown => {}
            Told::Stale => self.expire(node, true).await,
            Told::Going(up_to) => self.wait_for_drop(node, up_to).await,
        }
    }

    /// Waits until pages have gone that are being dropped for somebody else, and sends nothing itself: each such word has the kernel
    /// put aside what it is being told. Not for long, since that may wait for a read that waits for this.
    async fn wait_for_drop(self: &Arc<Self>, node: u64, up_to: u64) {
        let gone = self.mounted.nodes.wait_until_gone(node, up_to);
        if tokio::time::timeout(limits::MOUNT_PAGES_GO_WITHIN, gone).await.is_err() {
            // Whoever was to drop them may be gone.
            self.expire_later(node);
        }
    }

    /// Tells the kernel something, on a thread of its own, which may wait, and waits until it was told.
    pub(crate) async fn tell_kernel(self: &Arc<Self>, tell: impl FnOnce(&Self) + Send + 'static) {
        let door = self.clone();
        // A runtime that stops takes the mount with it.
        let _ = tokio::task::spawn_blocking(move || tell(&door)).await;
    }

    /// The same, without waiting: for answers during which the kernel holds what it
    /// would have to drop.
    fn expire_later(self: &Arc<Self>, node: u64) {
        let door = self.clone();
        tokio::spawn(async move { door.expire(node, true).await });
    }

    /// Notes what came of a change made through this mount, and has the kernel drop what somebody else's made old, later.
    fn changed(self: &Arc<Self>, changing: Changing<'_>, node: u64, change: &Wcc) {
        if self.came_to(changing, node, change) {
            self.expire_later(node);
        }
    }

    /// Notes what came of a change made through this mount. Returns whether somebody else's came between, so that what the
    /// kernel keeps is to expire.
    fn came_to(&self, changing: Changing<'_>, node: u64, change: &Wcc) -> bool {
        let after = change.after.as_ref().filter(|after| self.is_told(after.id.volume()));
        self.mounted.nodes.changed(node, change, || {
            changing.came_to(after, self.mounted.clock.tick());
            self.mounted.fresh.is_changing(node)
        })
    }

    /// Returns what a node was told to be a moment ago, if nothing is known to have come between.
    fn just_told(&self, node: u64) -> Option<Attr> {
        let attr = self.mounted.fresh.attr(node, self.mounted.clock.tick())?;
        (self.is_told(attr.id.volume()) && self.mounted.nodes.is_still(node, &attr)).then_some(attr)
    }

    /// Returns attributes from after a change, asking for them only if it did not say.
    async fn after(&self, at: &At, change: &Wcc) -> Result<Attr> {
        match change.after {
            Some(attr) => Ok(attr),
            None => Ok(self.fs.walk(&self.call(), at, weft_core::form::Want::default()).await?.attr),
        }
    }

    /// Notes why a request failed. What failed for anyone is told to nobody: each of those may be another.
    pub(crate) fn note_failure(&self, header: &Header, subject: &Subject, error: &Error) {
        if self.number == doors::ANYONE {
            return;
        }
        let nodes = [Some(header.node), subject.other.filter(|other| *other != header.node)];
        let files: Vec<FileId> =
            nodes.into_iter().flatten().filter_map(|node| self.mounted.nodes.file(node).ok()).collect();
        let request = abi::opcode::name(header.opcode);
        let asked = Asked { request, files, names: &subject.names, open: subject.open };
        self.failures.note(&asked, error, self.mounted.clock.now());
    }

    /// Closes all that is open at it, and has the kernel show nothing of that any longer. What it had locked is given up
    /// when its node answers. Nobody waits for either.
    pub(crate) fn close_all(self: Arc<Self>) {
        self.shut.store(true, Ordering::Release);
        let open = self.handles.take_all();
        tokio::spawn(async move {
            let (numbers, nodes): (Vec<u64>, Vec<u64>) =
                open.into_iter().map(|(number, handle)| (number, handle.node)).unzip();
            let drop = move |door: &Self| nodes.iter().for_each(|node| door.mounted.drop_kept(*node, true));
            let unlock = async {
                for number in numbers {
                    self.unlock_all(number).await;
                }
            };
            tokio::join!(self.tell_kernel(drop), unlock);
        });
    }

    /// Holds what a reply is to give while something is waited for before it.
    fn gives(self: &Arc<Self>, undo: Undo) -> Given<'_> {
        Given { door: self, undo }
    }

    /// Takes back what a reply gave that the kernel no longer waited for.
    pub(crate) fn undo(self: &Arc<Self>, undo: Undo) {
        for node in undo.nodes {
            self.mounted.nodes.forget(node, 1);
        }
        if let Some(node) = undo.directory {
            // What the kernel was to drop as it opens it, it has not.
            self.mounted.nodes.listing_is_old(node);
            self.mounted.nodes.closed_directory(node);
        }
        if let Some(handle) = undo.handle {
            let door = self.clone();
            tokio::spawn(async move { door.release(handle).await });
        }
    }
}

/// Returns what accompanies a call.
pub(crate) fn call_of(calls: &dyn CallSource, clock: &dyn Clock, patience: Duration, trace: TraceId) -> Call {
    let (caller, session) = calls.who();
    Call {
        caller,
        session,
        until: Deadline::within(clock, patience),
        trace,
        from: Origin { door: Way::Mount, peer: None, uid: None },
        once: None,
        ack: Ack::Applied,
        wire: Wire::Private,
    }
}

/// Returns the type bits of a mode.
fn kind_bits(kind: Kind) -> u32 {
    match kind {
        Kind::File => mode::FILE,
        Kind::Directory => mode::DIRECTORY,
        // A reference reads as a link whose text says what it refers to.
        Kind::Symlink | Kind::Reference => mode::SYMLINK,
        Kind::Fifo => mode::FIFO,
    }
}

/// Returns the permission bits of a mode.
fn permissions(mode: u32) -> u16 {
    (mode & mode::PERMISSIONS) as u16
}

/// Returns a mode without the set-id bits that a write clears, if it has any: set-gid
/// only where the group may execute, since without it means something else.
fn without_set_id(mode: u16) -> Option<u16> {
    let bits = u32::from(mode);
    let set_gid = if bits & mode::GROUP_EXECUTE != 0 { mode::SET_GID } else { 0 };
    let left = bits & !(mode::SET_UID | set_gid);
    (left != bits).then_some(left as u16)
}

/// An answer that has no bytes.
fn done() -> Outcome {
    Ok(Reply::default())
}

/// Refuses.
fn refuse(errno: Errno) -> Outcome {
    Err(Failure::Door(errno))
}
