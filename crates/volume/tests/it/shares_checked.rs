//! What `weft fsck` says of the rows of shares, and what becomes of them.

use std::path::Path;
use std::sync::Arc;

use weft_conformance::TestDomain;
use weft_conformance::file_system::site::Outcome;
use weft_core::acl::{Acl, AclEntry, Who};
use weft_core::form::Ack;
use weft_core::service::{Finding, Severity};
use weft_core::{FileId, RelPath, Rights, Time, VolumeId};
use weft_kv::{Embedded, Options, Read, Schema, Space, SpaceId, Txn};
use weft_sys::{SimDisk, Sys};
use weft_volume::export::{Beside, Shares, SharesConfig, check};
use weft_volume::managed::Junction;

const SPACE: SpaceId = SpaceId(2);

/// Two shares, at `/a` and `/b`.
struct Rows {
    config: SharesConfig,
    domain: Arc<TestDomain>,
    junctions: Vec<Junction>,
    _dir: tempfile::TempDir,
}

impl Rows {
    async fn new() -> Self {
        let sys = Sys::simulated(1);
        let domain = TestDomain::new(7, sys.sim_clock().expect("simulated").clone(), &[VolumeId(0)]);
        let engine = Embedded::open(sys.clone(), Arc::new(SimDisk::new()), Options::default());
        let config = SharesConfig {
            sys,
            engine: Arc::new(engine.works()),
            space: SPACE,
            issuer: domain.clone(),
            groups: domain.clone(),
            audited: false,
            handles: false,
            first: VolumeId(1),
        };
        let dir = tempfile::tempdir().expect("a directory");
        let mut rows = Self { config, domain, junctions: Vec::new(), _dir: dir };
        let shares = rows.shares().await;
        let (path, by) = (rows._dir.path().canonicalize().expect("there"), rows.domain.name("alice"));
        for (serial, name) in [(20, "a"), (21, "b")] {
            let everybody = Acl::new(vec![AclEntry::allow(Who::Anyone, Rights::ALL)]);
            let volume = shares.add(Path::new(&path), &by, everybody, None).await.works().volume;
            let id = FileId::new(VolumeId(0), serial, 1);
            shares.joined(volume, id).await.works();
            rows.junctions.push(Junction { id, at: RelPath::new(name).works(), volume });
        }
        rows
    }

    async fn shares(&self) -> Shares {
        Shares::open(self.config.clone()).await.works()
    }

    async fn space(&self) -> Space {
        Space::open(self.config.engine.clone(), SPACE, &Schema { version: 1, migrations: &[] }).await.works()
    }

    async fn put(&self, key: &[u8], value: Option<&[u8]>) {
        let (key, value) = (key.to_vec(), value.map(<[u8]>::to_vec));
        let put = move |txn: &mut weft_kv::SpaceTxn<'_>| match &value {
            Some(value) => txn.put(&key, value),
            None => txn.delete(&key),
        };
        self.space().await.write(Ack::Durable, put).await.works();
    }

    /// Flips a bit of a row.
    async fn damage(&self, key: &[u8]) {
        let mut value = self.space().await.snapshot().works().get(key).works().expect("it is there").to_vec();
        *value.last_mut().expect("some bytes") ^= 1;
        self.put(key, Some(&value)).await;
    }

    async fn check(&self, repair: bool) -> Vec<Finding> {
        let administrators = self.domain.name("group:alice/keepers");
        let now = Time::from_unix(1_800_000_000, 0);
        let beside = Beside { junctions: &self.junctions, administrators: &administrators, now };
        check(self.config.engine.clone(), SPACE, &beside, repair).await.works()
    }

    /// Checks that there is one finding of this kind, that looking changes nothing, and that mending leaves none.
    async fn finds(&self, severity: Severity, words: &str) {
        for repair in [false, false, true] {
            let found = self.check(repair).await;
            assert_eq!(found.len(), 1, "{words}: {found:?}");
            assert!(found[0].severity == severity && found[0].detail.contains(words), "{found:?}");
            assert!(!found[0].repair.is_empty());
        }
        let left = self.check(false).await;
        assert!(left.iter().all(|finding| finding.severity == Severity::Note), "{left:?}");
    }
}

fn share_key(volume: u16) -> Vec<u8> {
    [&[1][..], &volume.to_be_bytes()].concat()
}

/// The key of the policy of a share's root.
fn bound_key(volume: u16) -> Vec<u8> {
    let container = weft_core::ContainerId::new(VolumeId(volume), FileId::root_of(VolumeId(volume)).serial());
    [&[3][..], &volume.to_be_bytes(), &container.0.to_be_bytes()].concat()
}

#[tokio::test]
async fn nothing_is_said_of_shares_that_are_whole() {
    let rows = Rows::new().await;
    assert_eq!(rows.check(true).await, []);
    assert_eq!(rows.shares().await.all().works().len(), 2);
}

#[tokio::test]
async fn a_share_that_cannot_be_read_ends_and_takes_its_policies_along() {
    let rows = Rows::new().await;
    rows.damage(&share_key(1)).await;
    assert!(rows.shares().await.all().is_err(), "no node starts with it");
    for repair in [false, true] {
        let found = rows.check(repair).await;
        let said: Vec<_> = found.iter().map(|finding| (finding.severity, &finding.detail[..])).collect();
        let lost = (Severity::Loss, "which directory share 1 at /a is cannot be read");
        assert_eq!(said, [lost, (Severity::Note, "/a leads to share 1, which is not there")]);
    }
    let left = rows.shares().await.all().works();
    assert!(left.len() == 1 && left[0].volume == VolumeId(2));
    let after: Vec<_> = rows.check(false).await.into_iter().map(|finding| finding.severity).collect();
    assert_eq!(after, [Severity::Note], "the entry that leads there is left");
}

#[tokio::test]
async fn a_policy_that_cannot_be_read_lets_nobody_in_who_was_not_before() {
    for lost in [true, false] {
        let rows = Rows::new().await;
        match lost {
            true => rows.damage(&bound_key(2)).await,
            false => rows.put(&bound_key(2), None).await,
        }
        rows.finds(Severity::Loss, "a policy of the share of").await;
        let row =
            rows.space().await.snapshot().works().get(&bound_key(2)).works().expect("there is one again");
        let text = |name: &[u8]| row.windows(name.len()).any(|part| part == name);
        assert!(text(b"keepers") && !text(b"alice@"), "it is for administrators alone");
    }
}

#[tokio::test]
async fn what_is_of_no_share_is_removed() {
    let rows = Rows::new().await;
    let policy = rows.space().await.snapshot().works().get(&bound_key(2)).works().expect("there");
    rows.put(&bound_key(3), Some(&policy)).await;
    rows.put(&[2], Some(&3_u16.to_be_bytes())).await;
    rows.finds(Severity::Repairable, "policies of share 3, which is not there").await;
    rows.put(&[9, 9], Some(b"what")).await;
    rows.finds(Severity::Repairable, "none of any table").await;
    assert_eq!(rows.shares().await.all().works().len(), 2);
}

#[tokio::test]
async fn no_volume_number_is_given_twice_whatever_became_of_the_count() {
    for count in [None, Some(&[7][..]), Some(&[0, 1])] {
        let rows = Rows::new().await;
        rows.put(&[2], count).await;
        rows.finds(Severity::Repairable, "the number of the last share").await;
        let (shares, by) = (rows.shares().await, rows.domain.name("alice"));
        let path = rows._dir.path().canonicalize().expect("there");
        let acl = Acl::new(vec![AclEntry::allow(Who::Anyone, Rights::ALL)]);
        assert_eq!(shares.add(&path, &by, acl, None).await.works().volume, VolumeId(3));
    }
}

#[tokio::test]
async fn a_share_whose_place_is_gone_is_told_and_left_to_the_next_start() {
    let mut rows = Rows::new().await;
    let gone = rows.junctions.pop().expect("two");
    let found = rows.check(true).await;
    assert!(found.len() == 1 && found[0].severity == Severity::Note, "{found:?}");
    assert!(found[0].detail.contains("the place in the tree of"), "{found:?}");
    assert_eq!(rows.shares().await.all().works().len(), 2);
    rows.junctions.extend([gone.clone(), Junction { id: FileId::new(VolumeId(0), 22, 1), ..gone }]);
    let found = rows.check(true).await;
    assert!(found.len() == 1 && found[0].detail.contains("/b leads to share 2"), "{found:?}");
}
