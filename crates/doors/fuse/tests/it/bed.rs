//! A mount of its own for each test: a `Model`, a domain that signs, a directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::runtime::Runtime;
use weft_conformance::run::have;
use weft_conformance::{Sharing, TestDomain};
use weft_core::acl::{AclEntry, Condition, Modes, Who};
use weft_core::attr::{SetAttr, TagEdit, TagMust, TagName};
use weft_core::form::{
    At, BytesSource, Call, ChangeSeq, FileSystem, Guard, Make, OpenHow, Range, Scope, Walked, Want, WriteAt,
    collect,
};
use weft_core::model::Model;
use weft_core::policy::PolicyEdit;
use weft_core::proof::{Caller, CredentialClaims};
use weft_core::{Clock, RelPath, Result, Rights, SessionId, Tick, VolumeId, limits};
use weft_doors_fuse::{
    LocalUser, Login, Mount, MountSettings, Mounter, OVERFLOW_ID, OneCaller, Others, Remembered, Without,
    mount,
};
use weft_sys::RealClock;

/// The session a bed's mount calls in; others are other clients.
pub const SESSION: u128 = 1;

/// A mounted file system and everything beside it.
pub struct Bed {
    pub domain: Arc<TestDomain>,
    pub model: Arc<Model>,
    pub runtime: Runtime,
    mount: Option<Mount>,
    directory: TempDir,
}

/// Ends waits by the real clock.
struct RealTimer(Arc<RealClock>);

impl weft_core::time::Timer for RealTimer {
    fn at(&self, tick: Tick) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(tokio::time::sleep(tick.since(self.0.tick())))
    }
}

impl Bed {
    /// Mounts an empty model for `alice`, who owns it.
    pub fn new() -> Self {
        Self::with(|fs| fs, limits::CALL_DEADLINE)
    }

    /// Mounts what `wrap` makes of an empty model.
    pub fn with(wrap: impl FnOnce(Arc<Model>) -> Arc<dyn FileSystem>, patience: Duration) -> Self {
        Self::with_models(
            |new, _| {
                let model = new();
                (model.clone(), wrap(model))
            },
            patience,
        )
    }

    /// Mounts an empty model, and another whose files are volume 1 below it, under the name
    /// `share`: nobody is told of changes there. Returns that one too.
    pub fn with_share() -> (Self, Arc<Model>) {
        let mut below = None;
        let bed = Self::with_models(
            |new, domain| {
                let (root, share) = (new(), new());
                below = Some(share.clone());
                let call = domain.call(&domain.caller("alice"), 99);
                (root.clone(), Sharing::new(&call, root, share, "share").expect("a free name"))
            },
            limits::CALL_DEADLINE,
        );
        (bed, below.expect("it was made"))
    }

    /// Mounts what is made of empty models, the first of which is the bed's.
    fn with_models(
        build: impl FnOnce(&dyn Fn() -> Arc<Model>, &TestDomain) -> (Arc<Model>, Arc<dyn FileSystem>),
        patience: Duration,
    ) -> Self {
        let clock = Arc::new(RealClock::new());
        let domain = TestDomain::new(7, clock.clone(), &[VolumeId(0)]);
        let timer = Arc::new(RealTimer(clock.clone()));
        let new = || Model::with_timer(clock.clone(), timer.clone(), domain.clone(), &domain.name("alice"));
        let (model, fs) = build(&new, &domain);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(2).build();
        let runtime = runtime.expect("a runtime starts");
        let directory = tempfile::tempdir().expect("a directory of its own");
        let mut bed = Self { domain, model, runtime, mount: None, directory };
        let root = At::root(RelPath::EMPTY);
        let mut settings = bed.settings(bed.directory.path(), fs, root, "alice", SESSION);
        settings.patience = patience;
        bed.mount = Some(bed.runtime.block_on(mount(settings)).expect("the mount stands"));
        bed
    }

    /// Mounts the same files once more, for a user in a session of its own: another
    /// client. The mount has to go before its directory.
    pub fn mount_again(&self, user: &str, session: u128) -> Again {
        let directory = tempfile::tempdir().expect("a directory of its own");
        let root = At::root(RelPath::EMPTY);
        let settings = self.settings(directory.path(), self.model.clone(), root, user, session);
        Again { _mount: self.runtime.block_on(mount(settings)).expect("the mount stands"), directory }
    }

    /// The same for a directory below the root, for alice.
    pub fn mount_below(&self, path: &str, session: u128) -> Again {
        let directory = tempfile::tempdir().expect("a directory of its own");
        let root = At::root(path.try_into().expect("a path"));
        let settings = self.settings(directory.path(), self.model.clone(), root, "alice", session);
        Again { _mount: self.runtime.block_on(mount(settings)).expect("the mount stands"), directory }
    }

    /// Mounts the same files once more with a credential of alice's that is narrowed, if that can be mounted with.
    pub fn mount_narrowed(&self, change: impl FnOnce(&mut CredentialClaims)) -> Result<Again> {
        let mut claims = self.domain.claims("alice");
        change(&mut claims);
        let calls = OneCaller { caller: self.domain.caller_with(&claims), session: SessionId(2) };
        let directory = tempfile::tempdir().expect("a directory of its own");
        let root = At::root(RelPath::EMPTY);
        let settings = self.settings(directory.path(), self.model.clone(), root, "alice", 2);
        let own = LocalUser { calls: Arc::new(calls), ..settings.own };
        let settings = MountSettings { own, ..settings };
        Ok(Again { _mount: self.runtime.block_on(mount(settings))?, directory })
    }

    /// Mounts the same files once more for all users of the machine, in a session of its own for the one who mounts.
    pub fn mount_shared(&self, user: &str, session: u128) -> Shared {
        let directory = tempfile::tempdir().expect("a directory of its own");
        let root = At::root(RelPath::EMPTY);
        let mut settings = self.settings(directory.path(), self.model.clone(), root, user, session);
        let anyone = self.local_user(self.model.clone(), Caller::anyone(), session + 1, OVERFLOW_ID);
        let (socket, domain) = (directory.path().with_extension("login"), self.domain.id());
        settings.others = Some(Others { anyone, login: Login { socket, domain } });
        let mount = self.runtime.block_on(mount(settings)).expect("the mount stands");
        Shared { mount: Some(mount), directory }
    }

    fn settings(
        &self,
        at: &Path,
        fs: Arc<dyn FileSystem>,
        root: At,
        user: &str,
        session: u128,
    ) -> MountSettings {
        let uid = rustix::process::getuid().as_raw();
        MountSettings {
            mountpoint: at.to_owned(),
            mounter: Mounter::Fusermount(Without::default()),
            name: "weft-test".into(),
            root,
            remembered: Arc::new(Remembered::new().expect("memory")),
            own: self.local_user(fs, self.domain.caller(user), session, uid),
            others: None,
            clock: self.domain.clock().clone(),
            patience: limits::CALL_DEADLINE,
            memory: limits::MOUNT_MEMORY_USUAL,
        }
    }

    /// Returns a user of this machine who is some caller to the file system. Everybody but who runs the tests has a
    /// group of their own, of the same number.
    pub fn local_user(&self, fs: Arc<dyn FileSystem>, caller: Caller, session: u128, uid: u32) -> LocalUser {
        let calls = Arc::new(OneCaller { caller, session: SessionId(session) });
        let is_own = uid == rustix::process::getuid().as_raw();
        let gid = if is_own { rustix::process::getgid().as_raw() } else { uid };
        LocalUser { fs, calls, uid, gid, away: Box::new(|| None) }
    }

    /// Does something on the runtime that the mounts are served by.
    pub fn inside<T>(&self, act: impl FnOnce() -> T) -> T {
        let _inside = self.runtime.enter();
        act()
    }

    /// Returns where it is mounted.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Returns a path below the mount.
    pub fn join(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns a call by a user in a session, past the mount.
    pub fn call(&self, user: &str, session: u128) -> Call {
        self.domain.call(&self.domain.caller(user), session)
    }

    /// Returns a file's bytes as the file system keeps them, read past the mount.
    pub fn stored(&self, path: &str) -> Vec<u8> {
        let at = At::root(path.try_into().expect("a path"));
        let call = self.call("alice", 99);
        self.runtime.block_on(async {
            let how = OpenHow { need: Rights::READ, ..OpenHow::default() };
            let opened = self.model.open(&call, &at, &how).await.expect("opened");
            let mut source = opened.file.read(&call, Range::ALL).await.expect("read");
            collect(&mut *source, usize::MAX).await.expect("read").to_vec()
        })
    }

    /// Returns where the change feed stands.
    pub fn feed(&self) -> ChangeSeq {
        let (call, root) = (self.call("alice", 99), At::root(RelPath::EMPTY));
        self.runtime.block_on(self.model.watch(&call, &root, ChangeSeq(u64::MAX >> 1))).expect("told").next
    }

    /// Returns what alice is told of a file, past the mount.
    pub fn walked(&self, path: &str) -> Walked {
        let at = At::root(path.try_into().expect("a path"));
        let want = Want { attr: true, rights: true };
        self.runtime.block_on(self.model.walk(&self.call("alice", 99), &at, want)).expect("it is there")
    }

    /// Gives a file a user attribute, past the mount.
    pub fn tag(&self, path: &str, name: &'static str, value: &'static str) {
        let at = At::root(path.try_into().expect("a path"));
        let (name, value) = (TagName::new(name).expect("a name"), value.into());
        let edits = [TagEdit::Put { name, value, must: TagMust::Any }];
        let call = self.call("alice", 99);
        self.runtime.block_on(self.model.tag(&call, &at, &edits, &Guard::NONE)).expect("tagged");
    }

    /// Replaces a file's bytes as another client would, past the mount.
    pub fn store(&self, path: &str, bytes: &[u8]) {
        self.store_in(&self.model, path, bytes);
    }

    /// The same in another model.
    pub fn store_in(&self, model: &Model, path: &str, bytes: &[u8]) {
        self.put(model, path, bytes, true, WriteAt::Offset(0));
    }

    /// Appends to a file as another client would, past the mount.
    pub fn append(&self, path: &str, bytes: &[u8]) {
        self.put(&self.model, path, bytes, false, WriteAt::End);
    }

    fn put(&self, model: &Model, path: &str, bytes: &[u8], truncate: bool, place: WriteAt) {
        let at = At::root(path.try_into().expect("a path"));
        let call = self.call("alice", 99);
        let make = Some(Make { exclusive: false, set: SetAttr::default() });
        let how = OpenHow { need: Rights::WRITE, make, truncate, ..OpenHow::default() };
        self.runtime.block_on(async {
            let opened = model.open(&call, &at, &how).await.expect("opened");
            let mut source = BytesSource::new(bytes.to_vec());
            opened.file.write(&call, place, &mut source).await.expect("written");
        });
    }

    /// Gives users, or `anyone`, rights over everything; alice keeps all of hers.
    pub fn allow(&self, who: &[(&str, Rights)]) {
        self.allow_at("", Scope::Container, who);
    }

    /// Gives users rights over a directory and what lies below; alice keeps all of hers.
    pub fn allow_below(&self, path: &str, who: &[(&str, Rights)]) {
        self.allow_at(path, Scope::Subtree, who);
    }

    /// Gives a user rights over a directory and what lies below for a while; alice keeps all of hers.
    pub fn allow_below_for(&self, path: &str, (user, rights): (&str, Rights), time: Duration) {
        let mut entry = AclEntry::allow(Who::Caller(self.domain.name(user)), rights);
        entry.when.push(Condition::Until(self.domain.clock().now().plus(time)));
        self.allow_entries(path, Scope::Subtree, [entry]);
    }

    fn allow_at(&self, path: &str, scope: Scope, who: &[(&str, Rights)]) {
        let whom = |user: &str| match user {
            "anyone" => Who::Anyone,
            user => Who::Caller(self.domain.name(user)),
        };
        self.allow_entries(
            path,
            scope,
            who.iter().map(|(user, rights)| AclEntry::allow(whom(user), *rights)),
        );
    }

    fn allow_entries(&self, path: &str, scope: Scope, entries: impl IntoIterator<Item = AclEntry>) {
        let (call, at) = (self.call("alice", 99), At::root(path.try_into().expect("a path")));
        let mut acl = self.runtime.block_on(self.model.policy(&call, &at)).expect("shown").acl;
        let alice = AclEntry::allow(Who::Caller(self.domain.name("alice")), Rights::ALL);
        acl.entries = [alice].into_iter().chain(entries).collect();
        self.protect(&at, scope, &PolicyEdit { acl: Some(acl), ..PolicyEdit::default() });
    }

    /// Has mode bits narrow what users may, each by their class.
    pub fn narrow_by_modes(&self) {
        let edit = PolicyEdit { modes: Some(Modes::Classes), ..PolicyEdit::default() };
        self.protect(&At::root(RelPath::EMPTY), Scope::Container, &edit);
    }

    /// Limits how many bytes there may be.
    pub fn limit(&self, bytes: u64) {
        let edit = PolicyEdit { bytes_max: Some(Some(bytes)), ..PolicyEdit::default() };
        self.protect(&At::root(RelPath::EMPTY), Scope::Container, &edit);
    }

    fn protect(&self, at: &At, scope: Scope, edit: &PolicyEdit) {
        let call = self.call("alice", 99);
        self.runtime.block_on(self.model.protect(&call, at, scope, edit)).expect("protected");
    }

    /// Returns the mount.
    pub fn mount(&self) -> &Mount {
        self.mount.as_ref().expect("it stands until the bed goes")
    }
}

/// A second mount of the same files.
pub struct Again {
    _mount: Mount,
    directory: TempDir,
}

impl Again {
    /// Returns a path below it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

/// A mount of the same files that users of the machine share.
pub struct Shared {
    mount: Option<Mount>,
    directory: TempDir,
}

impl Shared {
    /// Returns a path below it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the mount.
    pub fn mount(&self) -> &Mount {
        self.mount.as_ref().expect("it stands until this goes")
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Before the directory it is mounted on.
        self.mount.take();
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        // Before the directory it is mounted on.
        self.mount.take();
    }
}

/// Makes tests that each get a bed of their own, and are counted where there is no FUSE.
macro_rules! mounted {
    ($(fn $name:ident($bed:ident) $body:block)*) => { $(
        #[test]
        fn $name() {
            if $crate::bed::can_mount(stringify!($name)) {
                let $bed = $crate::bed::Bed::new();
                $body
            }
        }
    )* };
}
pub(crate) use mounted;

/// Returns whether mounts can be tested here; otherwise says so where it is counted.
pub fn can_mount(test: &str) -> bool {
    have(test, &["fusermount3"])
}
