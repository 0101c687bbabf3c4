//! Laws of what is kept in memory: it goes with what it is about.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use weft_conformance::TestDomain;
use weft_conformance::file_system::ADMINISTRATOR;
use weft_core::acl::{AclEntry, Who};
use weft_core::attr::SetAttr;
use weft_core::form::{
    Ack, At, BytesSource, Call, Expect, FileSystem, Guard, Lock, LockKind, LockOwner, LockScope, New,
    OpenHow, Pin, Scope, Wait, WriteAt,
};
use weft_core::model::ModelStore;
use weft_core::policy::{AuditReads, PolicyEdit};
use weft_core::service::SessionWatcher;
use weft_core::{ErrorKind, FileId, RelPath, Rights, VolumeId, limits};
use weft_kv::{Embedded, Options, SpaceId};
use weft_sys::{SimDisk, Sys, simulate};

use super::table::inodes;
use super::view::View;
use super::{Config, Managed};
use crate::audited::Witness;

const OPTIONS: Options = Options {
    segment_bytes: 256 << 10,
    fold_bytes: 128 << 10,
    overlay_bytes_max: 1 << 20,
    cache_bytes: 1 << 20,
    company_wait: limits::KV_COMPANY_WAIT,
    flush_at_once: limits::KV_FLUSH_AT_ONCE,
    flush_aside: 2,
    flush_aside_from: limits::KV_FLUSH_ASIDE_FROM,
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
        watched_flush_rest: limits::WATCHED_FLUSH_REST,
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
fn what_was_read_is_recalled_under_the_same_commit_of_the_same_volume_and_nowhere_else() {
    simulate(1, |sys| async move {
        let (managed, domain) = made(&sys).await;
        let (other, _) = made(&sys).await;
        let call = domain.call(&domain.caller(ADMINISTRATOR), 1);
        let (path, id) = small(&managed, &call, 0o600).await;
        let (_, same) = small(&other, &call, 0o640).await;
        assert_eq!(id, same, "two volumes alike");
        let before = managed.volume.space.snapshot().unwrap();
        let elsewhere = other.volume.space.snapshot().unwrap();
        assert_eq!(before.commit(), elsewhere.commit(), "at commits alike");
        let chmod = SetAttr { mode: Some(0o400), ..SetAttr::default() };
        managed.set(&call, &path, &chmod, &Guard::NONE).await.unwrap();
        let edit = PolicyEdit { audit_reads: Some(AuditReads::Off), ..PolicyEdit::default() };
        managed.protect(&call, &At::root(RelPath::EMPTY), Scope::Container, &edit).await.unwrap();
        let after = managed.volume.space.snapshot().unwrap();
        let look = |managed: &Managed, snapshot| {
            let view = View::committed(&managed.volume, snapshot, &call);
            let node = view.node(id).unwrap();
            (node.inode.mode, view.governing(node.inode.container).unwrap().rules.audit_reads)
        };
        for _ in 0..2 {
            assert_eq!(look(&managed, &before), (0o600, AuditReads::All));
            assert_eq!(look(&other, &elsewhere), (0o640, AuditReads::All));
            assert_eq!(look(&managed, &after), (0o400, AuditReads::Off));
        }
    });
}

#[test]
fn a_file_that_lost_its_last_name_while_it_was_open_ends_with_its_close() {
    simulate(1, |sys| async move {
        let (managed, domain) = made(&sys).await;
        let call = domain.call(&domain.caller(ADMINISTRATOR), 1);
        for pin in [Pin::None, Pin::Version] {
            for removed in [false, true] {
                let (path, id) = small(&managed, &call, 0o600).await;
                let how = OpenHow { need: Rights::READ, pin, ..OpenHow::default() };
                let opened = managed.open(&call, &path, &how).await.unwrap();
                if removed {
                    managed.remove(&call, &path, Expect::Any, &Guard::NONE).await.unwrap();
                }
                opened.file.close(&call).await.unwrap();
                let rows = managed.volume.space.snapshot().unwrap();
                assert_eq!(inodes::find(&rows, id.serial()).unwrap().is_none(), removed, "{pin:?}");
                if !removed {
                    managed.remove(&call, &path, Expect::Any, &Guard::NONE).await.unwrap();
                }
            }
        }
    });
}

/// Ways in which a file stops being open.
#[derive(Clone, Copy, Debug)]
enum End {
    Close,
    Drop,
    Session,
}

#[test]
fn a_file_that_is_closed_before_the_loss_of_its_last_name_is_shown_ends_all_the_same() {
    for end in [End::Close, End::Drop, End::Session] {
        simulate(1, |sys| async move {
            let (managed, domain) = made(&sys).await;
            let call = domain.call(&domain.caller(ADMINISTRATOR), 1);
            let (path, id) = small(&managed, &call, 0o600).await;
            let how = OpenHow { need: Rights::READ, ..OpenHow::default() };
            let opened = managed.open(&call, &path, &how).await.unwrap();
            let (closer, watched) = (call.clone(), managed.clone());
            // What another thread does while the transaction decides: nothing of it is shown yet.
            let mut close = Some(move || match end {
                End::Close => {
                    let mut closing = async move { opened.file.close(&closer).await }.boxed();
                    match closing.as_mut().now_or_never() {
                        Some(closed) => closed.unwrap(),
                        None => drop(watched.volume.sys.spawn(async move { closing.await.unwrap() })),
                    }
                }
                End::Session => watched.ended(closer.session),
                End::Drop => drop(opened),
            });
            let removed = managed.volume.change_whenever(&call, Ack::Applied, move |act| {
                act.remove(&path, Expect::Any, &Guard::NONE)?;
                close.take().into_iter().for_each(|close| close());
                Ok(())
            });
            removed.await.unwrap();
            sys.sleep(limits::OBJECT_IDLE * 3).await;
            let rows = managed.volume.space.snapshot().unwrap();
            assert!(inodes::find(&rows, id.serial()).unwrap().is_none(), "{end:?}: it is kept");
        });
    }
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
