//! An export: a directory of the machine, served in place.
//!
//! **Problem.** The files are somebody's own. Programs of the machine make, write, rename and remove
//! them without a word, and must see at once what comes through Weft, as Weft sees what they do.
//! Nothing may be kept that the files themselves would contradict, and nothing in them (a link, a
//! mount, a name that changes while it is looked up) may lead out of the directory.
//!
//! **Shape.** The path below the export's root is the truth. Every request looks at the machine anew
//! through [`Beneath`](weft_sys::Beneath), decides by policies that are kept beside the files, and
//! acts on the very inode that it looked at.
//!
//! ```text
//!   FileSystem ─▶ file_system ─▶ View: locate · decide · list · why      one look at the machine
//!                                 │       ▲ policies: path and inode → container → ACL
//!                                 └─ names attributes open stage         one act, by descriptors
//!   in memory: ids → last path, opens, locks, stages, answers to replay
//!   in kv: what is shared, policies, the audit of writes
//! ```
//!
//! **Ids.** An inode's number, and what tells it from earlier ones of that number; the path where it was
//! last seen is kept in memory, for as many as fit. What was renamed on the machine, or was forgotten,
//! is `Stale` until its name is looked up again; unless the two are what the file system makes its handles of, and
//! the process may open by handle: then the machine is asked where it lies, and it is looked for there.
//!
//! **What cannot be as in a managed volume.** Deciding and acting are two steps: a policy that changes
//! between them is felt by the next call. Acts and their audit records are two commits. Locks and open
//! files are of Weft alone. Versions are made of what the machine tells of a file ([`version`]).
//!
//! **Rights.** Those that the policy gives, of which the machine leaves what it lets the node's user do;
//! of a directory that was shared by its owner, and not by an administrator, also no more than what it would
//! let that user do ([`user`]).
//!
//! **Directories that do not answer.** What lies on a network or behind another program may stall: then
//! every look is made on a thread that nobody else waits for, so many at once and no more, each until
//! its call's deadline. The root is held for a moment only, so that its file system can be unmounted,
//! and known again by its inode: an empty mount point is not taken for an empty share.

mod ahead;
mod attributes;
mod audit;
mod check;
mod descriptors;
mod file;
mod file_system;
mod flushes;
mod known;
mod lease;
mod list;
mod locate;
mod names;
mod open;
mod opens;
mod policies;
mod protect;
mod recent;
mod rename;
mod replay;
mod root;
mod shares;
mod source;
mod stage;
mod stages;
mod table;
mod tails;
mod user;
mod version;
mod view;
mod why;
mod within;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use quick_cache::sync::Cache;
use tokio::sync::Notify;
use weft_core::form::{At, Call, Verifier};
use weft_core::service::{AuditSubject, Issuer, Memberships, SessionWatcher};
use weft_core::{CallerId, ContainerId, FileId, Result, SessionId, StageId, VolumeId, limits};
use weft_kv::Space;
use weft_sys::Sys;

use self::policies::Policies;
use self::policies::Stand;
use self::table::ShareRow;
use self::view::View;
use crate::audited::Witness;
use crate::granted::Kept;
use crate::locks::Locks;
use crate::tree::{Anchor, Member};

pub use self::check::{Beside, check};
pub use self::shares::{Shared, Shares, SharesConfig, after_restore};

/// What an export works with.
#[derive(Clone)]
struct Config {
    sys: Sys,
    space: Space,
    issuer: Arc<dyn Issuer>,
    groups: Arc<dyn Memberships>,
    volume: VolumeId,
    /// Where it hangs in the tree.
    anchor: Arc<dyn Anchor>,
    /// Whether somebody takes the audit of writes.
    audited: bool,
    /// Whether ids may be found by handle.
    handles: bool,
}

/// A directory of the machine as a file system. Cheap to clone.
#[derive(Clone)]
pub struct Export(Arc<Volume>);

struct Volume {
    sys: Sys,
    space: Space,
    issuer: Arc<dyn Issuer>,
    groups: Arc<dyn Memberships>,
    id: VolumeId,
    anchor: Arc<dyn Anchor>,
    audited: bool,
    handles: bool,
    root: root::Root,
    /// The user of the machine whose rights limit it, if any do.
    user: Option<user::Known>,
    /// The user and the group that the node acts as.
    own: (u32, u32),
    /// Who is shown as the owner of what belongs to the user that the share is limited to, or else to
    /// the node's own.
    owner: CallerId,
    policies: Mutex<Arc<Policies>>,
    /// Held while a policy is edited, or moves with its place.
    editing: tokio::sync::Mutex<()>,
    /// Held while names are looked up and changed.
    naming: Arc<tokio::sync::Mutex<()>>,
    /// Rises with every change of policy or of a place that has one: who holds a lease looks again.
    policy_changes: AtomicU64,
    policy_changed: Notify,
    granted: Kept<Stand>,
    known: known::Known,
    ahead: ahead::Ahead,
    /// Listings in the order of names that read their directories at once.
    reading: Arc<tokio::sync::Semaphore>,
    /// What their makers gave new files to find them again by.
    verifiers: Cache<FileId, [u8; 8]>,
    opens: opens::Opens,
    locks: Locks,
    stages: stages::Stages,
    /// Tells the staged bytes of this share from what another node stages in the same directory.
    stage_owner: u64,
    tails: tails::Tails,
    flushes: Arc<flushes::Flushes<Arc<weft_sys::beneath::Held>>>,
    replays: replay::Replays,
    versions: version::Versions,
}

impl Export {
    fn assemble(config: Config, share: &ShareRow) -> Result<Self> {
        let Config { sys, space, issuer, groups, volume: id, anchor, audited, handles } = config;
        let policies = Policies::of(id, table::bounds(&space.snapshot()?, id)?)?;
        Ok(Self(Arc::new(Volume {
            root: root::Root::of(&share.directory, share.root),
            user: share.limited_to.map(user::Known::of),
            own: (weft_sys::process::uid(), weft_sys::process::gid()),
            owner: share.by.id(),
            versions: version::Versions::new(&sys),
            sys,
            space,
            issuer,
            groups,
            id,
            anchor,
            audited,
            handles,
            policies: Mutex::new(Arc::new(policies)),
            editing: tokio::sync::Mutex::default(),
            naming: Arc::default(),
            policy_changes: AtomicU64::new(0),
            policy_changed: Notify::new(),
            granted: Kept::default(),
            known: known::Known::new(id),
            ahead: ahead::Ahead::default(),
            reading: Arc::new(tokio::sync::Semaphore::new(limits::EXPORT_READINGS)),
            verifiers: Cache::new(limits::EXPORT_VERIFIERS_KEPT),
            opens: opens::Opens::default(),
            locks: Locks::default(),
            stages: stages::Stages::default(),
            stage_owner: share.stage_owner,
            tails: tails::Tails::default(),
            flushes: Arc::default(),
            replays: replay::Replays::default(),
        })))
    }

    /// Returns why the directory cannot be served just now; nothing if it can.
    pub async fn away(&self) -> Option<String> {
        self.0.entered(&self.0.sys_deadline()).await.err().map(|error| error.detail().to_owned())
    }

    /// Ends uploads that nobody goes on with.
    pub fn sweep(&self) {
        self.0.sweep_stages();
    }
}

impl Volume {
    /// Returns the policies as they are now.
    fn policies(&self) -> Arc<Policies> {
        self.policies.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the path where an id was last seen.
    fn last_path(&self, id: FileId) -> Option<Arc<[u8]>> {
        if id == FileId::root_of(self.id) {
            Some(Arc::default())
        } else {
            self.known.paths(id).first().cloned()
        }
    }

    /// Returns what changes when bytes that were not flushed may have been lost: as far as a process
    /// of the machine can know, its own start.
    fn verifier(&self) -> Verifier {
        Verifier(self.space.boot().0.rotate_left(17) ^ u64::from(self.id.0))
    }

    /// Begins a request: the caller's lease runs, the deadline has not passed.
    async fn look<T: Send + 'static>(
        self: &Arc<Self>,
        call: &Call,
        look: impl FnOnce(&View<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        call.check(self.sys.clock())?;
        self.look_whenever(call, look).await
    }
}

impl SessionWatcher for Export {
    fn ended(&self, session: SessionId) {
        self.0.opens.end_session(session);
        self.0.locks.end_session(session);
        self.0.replays.end_session(session);
    }
}

impl Witness for Export {
    fn are_recorded(&self, container: ContainerId) -> bool {
        self.0.policies().by_id(container).are_reads_recorded()
    }

    // What follows is asked after the answer was made, and by who waits for nobody: so it is answered
    // from memory, and where the policies differ by place, by the place where the file was last seen.

    fn container_of(&self, _: &Call, file: FileId) -> Option<ContainerId> {
        let path = self.0.last_path(file)?;
        Some(self.0.policies().governing_path(&path).container)
    }

    fn settled_by(&self, call: &Call, file: FileId) -> Option<String> {
        let path = self.0.last_path(file)?;
        Some(view::settled_by(&self.0, call, &path))
    }

    fn found(&self, _: &Call, at: &At) -> AuditSubject {
        audit::found(&self.0, at)
    }

    fn meant_for(&self, _: &Call, stage: StageId) -> Option<At> {
        self.0.stages.find(stage).map(|staging| staging.target())
    }
}

impl Member for Export {}
