//! Laws of what is kept in memory: it goes with what it is about.

use std::sync::Arc;

use bytes::Bytes;
use weft_conformance::TestDomain;
use weft_conformance::file_system::ADMINISTRATOR;
use weft_core::attr::SetAttr;
use weft_core::form::{
    At, BytesSource, Expect, FileSystem, Guard, Lock, LockKind, LockOwner, LockScope, New, Wait, WriteAt,
};
use weft_core::model::ModelStore;
use weft_core::{RelPath, Rights, VolumeId, limits};
use weft_kv::{Embedded, Options, SpaceId};
use weft_sys::{SimDisk, Sys, simulate};

use super::{Config, Managed};

const OPTIONS: Options = Options {
    segment_bytes: 256 << 10,
    fold_bytes: 128 << 10,
    overlay_bytes_max: 1 << 20,
    cache_bytes: 1 << 20,
    company_wait: limits::KV_COMPANY_WAIT,
    flush_at_once: limits::KV_FLUSH_AT_ONCE,
};

pub(super) async fn made(sys: &Sys) -> (Managed, Arc<TestDomain>) {
    let clock = sys.sim_clock().unwrap().clone();
    let domain = TestDomain::new(7, clock.clone(), &[VolumeId(0)]);
    let node = domain.clone();
    let config = Config {
        sys: sys.clone(),
        engine: Arc::new(Embedded::open(sys.clone(), Arc::new(SimDisk::new()), OPTIONS).unwrap()),
        space: SpaceId(1),
        issuer: domain.clone(),
        store: ModelStore::new(clock),
        volume: VolumeId(0),
        node: Arc::new(move || node.caller("node:n1")),
        audited: false,
        groups: domain.clone(),
    };
    (Managed::create(config, domain.name(ADMINISTRATOR)).await.unwrap(), domain)
}

#[test]
fn tables_in_memory_do_not_outlive_the_files_they_are_about() {
    simulate(1, |sys| async move {
        let (managed, domain) = made(&sys).await;
        let call = domain.call(&domain.caller(ADMINISTRATOR), 1);
        for n in 0..50 {
            let path = At::root(RelPath::try_from(&*format!("f{n}")).unwrap());
            let made = managed.make(&call, &path, New::File { verifier: None }, &SetAttr::default()).await;
            let id = made.unwrap().value.id;
            let file = managed.file(&call, id, Rights::WRITE).await.unwrap();
            let mut bytes = BytesSource::new(vec![1; 20_000]);
            file.write(&call, WriteAt::Offset(0), &mut bytes).await.unwrap();
            let owner = LockOwner(Bytes::from_static(b"owner"));
            let lock = Lock { scope: LockScope::Whole, kind: LockKind::Exclusive, owner };
            managed.lock(&call, &path, &lock, Wait::No).await.unwrap();
            if n % 2 == 0 {
                managed.remove(&call, &path, Expect::Any, &Guard::NONE).await.unwrap();
            }
        }
        sys.sleep(limits::OBJECT_IDLE * 3).await;
        let volume = &managed.volume;
        assert_eq!(volume.opens.decided().len(), 0, "ends that were decided");
        assert_eq!(volume.locks.count(), 25, "locks on files that are gone");
        assert_eq!(volume.files.count(), 0, "files that nobody writes");
    });
}
