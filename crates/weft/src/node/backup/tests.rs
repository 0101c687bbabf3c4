//! Backups of a node that is written to at the worst moments.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use tempfile::TempDir;
use weft_conformance::ShownBy;
use weft_core::attr::{Attr, SetAttr};
use weft_core::form::{
    At, BytesSource, Call, Door, FileSystem, Guard, Origin, Replace, Shape, StageHint, Want, WriteAt,
};
use weft_core::proof::{Caller, Purpose};
use weft_core::service::Evidence;
use weft_core::{FileId, RelPath, Rights};
use weft_sys::SimDisk;

use super::super::{NodeSettings, Running, call_of};
use super::*;

/// Large enough for an object.
const LENGTH: usize = 200_000;

/// A node in a directory of its own, and its administrator.
struct Scene {
    sys: Sys,
    node: Running,
    admin: Caller,
}

impl Scene {
    async fn start(sys: &Sys, data: &Path) -> Self {
        let directory = NodeDirectory::take(data, true, "test").expect("it is ours");
        let uid = directory.owner();
        let http = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let third_party = Default::default();
        let settings = NodeSettings {
            http,
            https: None,
            monitor: None,
            hosts: Vec::new(),
            public: None,
            third_party,
            issuers: Vec::new(),
            client_authorities: Vec::new(),
            scrub: 0,
        };
        let node = Running::start(sys, directory, &settings, |_| {}).await.expect("it starts");
        let at = Origin { door: Door::Native, peer: None, uid: Some(uid) };
        let admin = node.auth.authority().authenticate(&Evidence::SocketUid(uid), at).await;
        Self { sys: sys.clone(), node, admin: admin.expect("it made the node") }
    }

    fn call(&self) -> Call {
        call_of(&self.sys, &self.admin)
    }

    async fn publish(&self, name: &str) -> FileId {
        let (call, at) = (self.call().durable(), At::root(path(name)));
        let stage = self.node.volume.stage(&call, &at, &StageHint::default()).await.expect("begun");
        let mut bytes = BytesSource::new(vec![7; LENGTH]);
        stage.put(&call, 1, 0, &mut bytes).await.expect("put");
        stage.publish(&call, &[], &SetAttr::default(), &Guard::NONE).await.expect("published").value.id
    }

    async fn append(&self, file: FileId) {
        let call = self.call();
        let open = self.node.volume.file(&call, file, Rights::APPEND).await.expect("it is there");
        let mut bytes = BytesSource::new(vec![8; 1000]);
        open.write(&call, WriteAt::End, &mut bytes).await.expect("written");
    }

    async fn cut(&self, file: FileId) {
        let call = self.call();
        let open = self.node.volume.file(&call, file, Rights::WRITE).await.expect("it is there");
        open.shape(&call, Shape::Truncate(1000)).await.expect("cut");
    }

    async fn attr(&self, file: FileId) -> Attr {
        self.node.volume.walk(&self.call(), &At::id(file), Want::default()).await.expect("it is there").attr
    }

    /// Waits until the engine holds no audit record that is not in the log.
    async fn audited(&self) {
        self.node.engine.flush().await.expect("the disk is on");
        while let Some(last) = self.node.engine.last_note(managed::AUDITS).expect("it can be read") {
            self.node.auth.audit_log().copied(last).await.expect("in time");
            tokio::task::yield_now().await;
        }
    }

    /// Backs the node up; `before` and `after` happen right around the copy of the metadata.
    async fn back_up(&self, into: &Path, before: impl Future<Output = ()>, after: impl Future<Output = ()>) {
        let metadata = async |meta| {
            before.await;
            let commit = self.node.engine.backup(meta).await?;
            after.await;
            Ok(commit)
        };
        let data = self.node.directory.path();
        write(&self.sys, metadata, &self.node.store, data, into).await.expect("it is made");
    }

    async fn stop(self) {
        self.node.stop(&self.sys).await.expect("it stops");
    }
}

fn path(name: &str) -> RelPath {
    RelPath::try_from(name).expect("a good path")
}

/// A test on this machine: two directories that are not there yet, and a third for the backup.
async fn on_disk<F: Future<Output = ()>>(test: impl FnOnce(Sys, [PathBuf; 3]) -> F) {
    let place = TempDir::new().expect("a directory of its own");
    let place_of = |name| place.path().join(name);
    test(Sys::real(), [place_of("data"), place_of("other"), place_of("backup")]).await;
}

/// Restores a backup and starts what came of it.
async fn restored(sys: &Sys, backup: &Path, data: &Path) -> Scene {
    verify(sys, backup).await.expect("it is whole");
    let directory = NodeDirectory::take(data, true, "test").expect("it is ours");
    restore(sys, backup, &directory, false).await.expect("it can be restored");
    directory.release().expect("it is ours");
    Scene::start(sys, data).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_written_in_place_during_a_backup_comes_back_as_its_object_is_under_a_new_version() {
    on_disk(async |sys, [data, other, backup]| {
        let node = Scene::start(&sys, &data).await;
        let (longer, shorter) = (node.publish("longer").await, node.publish("shorter").await);
        let still = node.publish("still").await;
        let before = [node.attr(longer).await, node.attr(shorter).await, node.attr(still).await];
        let writes = async {
            node.append(longer).await;
            node.cut(shorter).await;
        };
        node.back_up(&backup, async {}, writes).await;
        node.stop().await;
        let node = restored(&sys, &backup, &other).await;
        let [longer, shorter, still] =
            [node.attr(longer).await, node.attr(shorter).await, node.attr(still).await];
        assert_eq!([longer.size, shorter.size, still.size], [LENGTH as u64 + 1000, 1000, LENGTH as u64]);
        assert_ne!(longer.version, before[0].version, "other bytes under an old version");
        assert_ne!(shorter.version, before[1].version, "other bytes under an old version");
        assert_eq!(still.version, before[2].version, "it was not written");
        node.stop().await;
    })
    .await;
}

/// Far more than a test could read, or this machine hold.
const SPARSE: u64 = 1 << 40;

#[tokio::test(flavor = "multi_thread")]
async fn holes_stay_holes_in_a_backup_and_in_what_is_restored_of_it() {
    on_disk(async |sys, [data, other, backup]| {
        let node = Scene::start(&sys, &data).await;
        let file = node.publish("sparse").await;
        let (call, end) = (node.call().durable(), WriteAt::Offset(SPARSE - 3));
        let open = node.node.volume.file(&call, file, Rights::WRITE).await.expect("it is there");
        open.write(&call, end, &mut BytesSource::new("end")).await.expect("written");
        open.close(&call).await.expect("it can be closed");
        node.back_up(&backup, async {}, async {}).await;
        node.stop().await;
        for place in [&data, &backup] {
            let disk = RealDisk::open(&place.join("objects")).expect("it is there");
            let files = files_below(&disk, "").expect("it can be read");
            let sizes = files.iter().map(|file| disk.measure(file).expect("it is there"));
            let (len, used) = sizes.fold((0, 0), |(len, used), size| (len.max(size.len), used + size.used));
            assert_eq!((len, used < 1 << 20), (SPARSE, true), "{used} bytes in {}", place.display());
        }
        let node = restored(&sys, &backup, &other).await;
        let attr = node.attr(file).await;
        assert_eq!((attr.size, attr.used < 1 << 20), (SPARSE, true));
        node.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_write_in_a_backup_has_its_audit_record_in_it() {
    on_disk(async |sys, [data, other, backup]| {
        let node = Scene::start(&sys, &data).await;
        node.publish("early").await;
        let late = async {
            let (call, early, late) =
                (node.call().durable(), At::root(path("early")), At::root(path("late")));
            let renamed = node.node.volume.rename(&call, &early, &late, Replace::Never, &Guard::NONE);
            renamed.await.expect("nothing is there");
            node.audited().await;
        };
        node.back_up(&backup, late, async {}).await;
        node.stop().await;
        let node = restored(&sys, &backup, &other).await;
        let late = At::root(path("late"));
        node.node.volume.walk(&node.call(), &late, Want::default()).await.expect("it is in the backup");
        node.stop().await;
        let disk = RealDisk::open(&other).expect("it is there");
        let files = files_below(&disk, "auth").expect("it can be read");
        let recorded = files.iter().any(|file| {
            let bytes = read(&disk, file).expect("it can be read");
            bytes.windows(6).any(|text| text == b"rename")
        });
        assert!(recorded, "what was renamed has no record in {files:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_has_the_keys_of_its_metadata_whenever_they_are_replaced() {
    for early in [true, false] {
        on_disk(async |sys, [data, other, backup]| {
            let node = Scene::start(&sys, &data).await;
            let rotate = async |now: bool| {
                if now {
                    node.node
                        .auth
                        .rotate(&node.admin, Purpose::Capability)
                        .await
                        .expect("the root key is here");
                }
            };
            node.back_up(&backup, rotate(early), rotate(!early)).await;
            node.stop().await;
            let node = restored(&sys, &backup, &other).await;
            node.publish("signed-for").await;
            node.stop().await;
        })
        .await;
    }
}

/// Copies keys, cuts the power and looks. `true` if all is there.
fn copied(seed: u64, ignored: Option<FlushSite>) -> bool {
    let (from, into) = (SimDisk::new(), SimDisk::new());
    let of = |word: &str| format!("{word}-{}.key", weft_core::KeyId(7));
    let signing = ["credential", "capability", "audit"].map(of);
    // Wherever somebody puts it away, and what a crash left of a key that was being made.
    let others = ["root.key", "root.key.away", "copy-of-root.key", "credential.key.new"].map(str::to_owned);
    for name in signing.iter().chain(&others) {
        let file = from.open(name, Open::MakeNew).expect("it is new");
        file.write_at(name.as_bytes(), 0).expect("the disk is on");
    }
    into.set_faults(|faults| faults.ignore.extend(ignored));
    copy_tree(&from, &into, KEYS.files).expect("the disk is on");
    let into = into.crash(seed);
    let is_whole = |name: &String| {
        let mut bytes = vec![0; name.len()];
        let read = into.open(name, Open::Read).and_then(|file| file.read_exact_at(&mut bytes, 0));
        read.is_ok() && bytes == name.as_bytes()
    };
    assert!(others.iter().all(|name| into.measure(name).is_err()), "the root key is in no backup");
    signing.iter().all(is_whole)
}

#[test]
fn copied_keys_survive_a_crash_because_of_their_flushes() {
    assert!((0..20).all(|seed| copied(seed, None)));
    for site in ShownBy::NodeBackup.sites() {
        assert!((0..200).any(|seed| !copied(seed, Some(site))), "nothing is lost without {site:?}");
    }
}
