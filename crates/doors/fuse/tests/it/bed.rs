//! A mount of its own for each test: a `Model`, a domain that signs, a directory.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::runtime::Runtime;
use weft_conformance::TestDomain;
use weft_core::form::{At, FileSystem};
use weft_core::model::Model;
use weft_core::{Clock, SessionId, Tick, VolumeId, limits};
use weft_doors_fuse::{Mount, MountSettings, OneCaller, mount};
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
        let clock = Arc::new(RealClock::new());
        let domain = TestDomain::new(7, clock.clone(), &[VolumeId(0)]);
        let timer = Arc::new(RealTimer(clock.clone()));
        let model = Model::with_timer(clock, timer, domain.clone(), &domain.name("alice"));
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(2).build();
        let runtime = runtime.expect("a runtime starts");
        let directory = tempfile::tempdir().expect("a directory of its own");
        let mut bed = Self { domain, model: model.clone(), runtime, mount: None, directory };
        bed.mount = Some(bed.mount_at(bed.directory.path(), wrap(model), SESSION, patience));
        bed
    }

    /// Mounts the same files once more, in a session of its own: another client.
    pub fn mount_again(&self, session: u128) -> (Mount, TempDir) {
        let directory = tempfile::tempdir().expect("a directory of its own");
        let mount = self.mount_at(directory.path(), self.model.clone(), session, limits::CALL_DEADLINE);
        (mount, directory)
    }

    fn mount_at(&self, at: &Path, fs: Arc<dyn FileSystem>, session: u128, patience: Duration) -> Mount {
        let caller = self.domain.caller("alice");
        let settings = MountSettings {
            mountpoint: at.to_owned(),
            name: "weft-test".into(),
            fs,
            root: At::root(weft_core::RelPath::EMPTY),
            calls: Arc::new(OneCaller { caller, session: SessionId(session) }),
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            clock: self.domain.clock().clone(),
            patience,
        };
        self.runtime.block_on(mount(settings)).expect("the mount stands")
    }

    /// Returns where it is mounted.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Returns a path below the mount.
    pub fn join(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the mount.
    pub fn mount(&self) -> &Mount {
        self.mount.as_ref().expect("it stands until the bed goes")
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        // Before the directory it is mounted on.
        self.mount.take();
    }
}

/// Returns whether mounts can be tested here; otherwise says so where it is counted.
pub fn can_mount(test: &str) -> bool {
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
    if device && program("fusermount3").is_some() {
        return true;
    }
    not_run(test, "no /dev/fuse or no fusermount3 (Debian: fuse3)");
    false
}

/// Counts a test as not run. Fails it where nobody counts.
pub fn not_run(test: &str, why: &str) {
    let Some(list) = std::env::var_os("WEFT_NOT_RUN") else { panic!("{test}: {why}") };
    let mut list = std::fs::OpenOptions::new().append(true).open(list).expect("the list can be written");
    writeln!(list, "weft-doors-fuse {test}: {why}").expect("the list can be written");
}

/// Returns where a program is: on PATH or among Weft's own tools.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places: Vec<_> = std::env::split_paths(&path).chain([tools().join("bin")]).collect();
    places.into_iter().map(|place| place.join(name)).find(|file| file.is_file())
}

/// Returns where `./test` puts programs and sources that the machine does not have.
pub fn tools() -> PathBuf {
    match std::env::var_os("WEFT_TOOLS") {
        Some(tools) => tools.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target/tools"),
    }
}
