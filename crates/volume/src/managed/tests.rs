//! Laws of what is kept in memory: it goes with what it is about.

use std::sync::Arc;

use bytes::Bytes;
use weft_conformance::TestDomain;
use weft_conformance::file_system::ADMINISTRATOR;
use weft_core::acl::{AclEntry, Who};
use weft_core::attr::SetAttr;
use weft_core::form::{
    At, BytesSource, Call, Expect, FileSystem, Guard, Lock, LockKind, LockOwner, LockScope, New, Scope, Wait,
    WriteAt,
};
use weft_core::model::ModelStore;
use weft_core::policy::PolicyEdit;
use weft_core::{ErrorKind, FileId, RelPath, Rights, VolumeId, limits};
use weft_kv::{Embedded, Options, SpaceId};
use weft_sys::{SimDisk, Sys, simulate};

use super::{Config, Managed};
use crate::audited::Readings;

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

/// Makes a small file at the root.
async fn small(managed: &Managed, call: &Call, mode: u16) -> (At, FileId) {
    let path = At::root(RelPath::try_from("f").unwrap());
    let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
    let made = managed.make(call, &path, New::File { verifier: None }, &set).await;
    let id = made.unwrap().value.id;
    let file = managed.file(call, id, Rights::WRITE).await.unwrap();
    file.write(call, WriteAt::Offset(0), &mut BytesSource::new(&b"bytes"[..])).await.unwrap();
    (path, id)
}

#[test]
fn the_words_for_a_read_are_those_that_why_says_however_often_they_were_said() {
    simulate(1, |sys| async move {
        let (managed, domain) = made(&sys).await;
        let admin = domain.call(&domain.caller(ADMINISTRATOR), 1);
        let reader = domain.call(&domain.caller("reader"), 2);
        let (path, id) = small(&managed, &admin, 0o600).await;
        let root = At::root(RelPath::EMPTY);
        let who = |name: &str| Who::Caller(domain.name(name));
        let may_read = AclEntry::allow(who("reader"), Rights::READ | Rights::TRAVERSE);
        let all_may = |more| AclEntry::allow(Who::Anyone, Rights::READ | Rights::TRAVERSE | more);
        let steps = [
            vec![],
            vec![may_read.clone()],
            vec![all_may(Rights::NONE)],
            vec![all_may(Rights::LIST)],
            vec![AclEntry::allow(Who::Anyone, Rights::ACL_READ), may_read.clone()],
            vec![AclEntry::allow(who("reader"), Rights::ALL)],
            vec![may_read.clone(), AclEntry::deny(who("reader"), Rights::READ)],
        ];
        for more in steps {
            let mut acl = managed.policy(&admin, &root).await.unwrap().acl;
            acl.entries.truncate(1);
            acl.entries.extend(more);
            let edit = PolicyEdit { acl: Some(acl), ..PolicyEdit::default() };
            managed.protect(&admin, &root, Scope::Container, &edit).await.unwrap();
            for mode in [0o600, 0o200] {
                let chmod = SetAttr { mode: Some(mode), ..SetAttr::default() };
                managed.set(&admin, &path, &chmod, &Guard::NONE).await.unwrap();
                for call in [&admin, &reader, &reader, &admin] {
                    let said = managed.settled_by(call, id).unwrap();
                    match managed.why(call, &At::id(id), Rights::READ, None).await {
                        Ok(why) => assert_eq!(said, why.steps.last().unwrap().because.join("; ")),
                        // Who may know nothing of the file is told nothing; the log is.
                        Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound),
                    }
                }
            }
        }
    });
}
