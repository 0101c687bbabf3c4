//! Keys on disk: private, rotated, away, damaged, half made.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use weft_auth::{Auth, FirstPassword, Settings};
use weft_conformance::ShownBy;
use weft_core::proof::Purpose;
use weft_core::{ErrorKind, Rights, VolumeId, limits};
use weft_kv::{Embedded, Options, SpaceId};
use weft_sys::disk::Faults;
use weft_sys::{Disk, Open, RealDisk, SimDisk, Sys, simulate};

use crate::scene::{ROOT_WORD, Scene, scene, settings};

const ROOT: &str = "auth/keys/root.key";

fn kind<T>(answer: weft_core::Result<T>) -> Option<ErrorKind> {
    answer.err().map(|error| error.kind())
}

#[test]
fn with_the_root_key_away_the_node_runs_and_only_rotation_is_refused() {
    scene(61, |node| async move {
        node.disk.rename(ROOT, "safe").expect("it is taken away");
        let token = node.token_of(&node.admin().await).await;
        let node = node.restart().await;
        node.token(&token).await.expect("good");
        node.login("admin", ROOT_WORD).await.expect("right");
        let admin = node.admin().await;
        let error = node.auth.rotate(&admin, Purpose::Credential).await.expect_err("no root key");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.advice().is_some_and(|hint| hint.contains("root.key")), "{error:?}");
        node.disk.rename("safe", ROOT).expect("it is put back");
        node.auth.rotate(&admin, Purpose::Credential).await.expect("the root key is here");
    });
}

#[test]
fn rotation_keeps_old_credentials_until_the_old_key_is_ended() {
    scene(62, |node| async move {
        node.add_user("alice", "alice").await;
        let alice = node.login("alice", "alice").await.expect("right");
        let (admin, old) = (node.admin().await, node.token_of(&alice).await);
        let by_old = node.token(&old).await.expect("good");
        node.auth.rotate(&admin, Purpose::Credential).await.expect("the root key is here");
        let new = node.token_of(&alice).await;
        let node = node.restart().await;
        node.token(&old).await.expect("still believed");
        let admin = node.admin().await;
        let keys = node.auth.keys(&admin).expect("it may");
        let of_credentials: Vec<_> =
            keys.iter().filter(|key| key.purpose == Purpose::Credential).map(|key| key.current).collect();
        assert_eq!((of_credentials.len(), of_credentials.iter().filter(|now| **now).count()), (2, 1));
        let ended = keys.iter().find(|key| key.purpose == Purpose::Credential && !key.current).expect("one");
        let live = node.token(&new).await.expect("good");
        node.auth.end_key(&admin, ended.id).await.expect("it signs no more");
        assert!(live.live(node.sys.clock().moment()).is_err(), "every live proof must be shown again");
        node.token(&new).await.expect("and can be");
        assert_eq!(kind(node.token(&old).await), Some(ErrorKind::Unauthenticated));
        let node = node.restart().await;
        assert_eq!(kind(node.token(&old).await), Some(ErrorKind::Unauthenticated));
        node.token(&new).await.expect("good");
        drop(by_old);
    });
}

#[test]
fn only_administrators_rotate_and_some_keys_are_never_ended() {
    scene(63, |node| async move {
        node.add_user("alice", "alice").await;
        let alice = node.login("alice", "alice").await.expect("right");
        assert_eq!(kind(node.auth.rotate(&alice, Purpose::Audit).await), Some(ErrorKind::NotPermitted));
        assert_eq!(kind(node.auth.keys(&alice)), Some(ErrorKind::NotPermitted));
        let admin = node.admin().await;
        let root = node.auth.rotate(&admin, Purpose::Certificate).await;
        assert_eq!(kind(root), Some(ErrorKind::Unsupported));
        let before = node.auth.keys(&admin).expect("it may");
        let audit = before.iter().find(|key| key.purpose == Purpose::Audit).expect("one").id;
        node.auth.rotate(&admin, Purpose::Audit).await.expect("the root key is here");
        assert_eq!(kind(node.auth.end_key(&admin, audit).await), Some(ErrorKind::Unsupported));
        assert_eq!(kind(node.auth.end_key(&admin, weft_core::KeyId(1)).await), Some(ErrorKind::NotFound));
    });
}

#[test]
fn a_key_about_to_run_out_is_replaced_at_a_start_if_the_root_key_is_there() {
    scene(64, |node| async move {
        let current = |node: &Scene, admin: &weft_core::proof::Caller| {
            let keys = node.auth.keys(admin).expect("it may");
            keys.into_iter().filter(|key| key.current).map(|key| key.id).collect::<Vec<_>>()
        };
        let before = current(&node, &node.admin().await);
        node.disk.rename(ROOT, "safe").expect("it is taken away");
        node.pass(limits::KEY_LIFE - limits::KEY_RENEW / 2);
        let node = node.restart().await;
        assert_eq!(current(&node, &node.admin().await), before, "it runs on");
        node.disk.rename("safe", ROOT).expect("it is put back");
        let node = node.restart().await;
        let after = current(&node, &node.admin().await);
        assert!(before.iter().all(|key| !after.contains(key)));
    });
}

#[test]
fn speaking_for_another_volume_needs_the_root_key_once() {
    scene(65, |node| async move {
        let more = || Settings { volumes: vec![VolumeId(0), VolumeId(8)], ..settings() };
        let Scene { sys, disk, auth, .. } = node;
        drop(auth);
        let disk = disk.kill();
        disk.rename(ROOT, "safe").expect("it is taken away");
        let refused = Scene::try_start(&sys, disk.clone(), more()).await;
        assert_eq!(kind(refused), Some(ErrorKind::Unavailable));
        let disk = disk.kill();
        disk.rename("safe", ROOT).expect("it is put back");
        let node = Scene::try_start(&sys, disk, more()).await.expect("certified anew");
        let admin = node.admin().await;
        node.auth.issuer().issue(&node.decision(&admin, Rights::READ)).expect("as before");
    });
}

/// Stops the first start at each of its changes to the disk, then starts again.
#[test]
fn a_first_start_cut_off_anywhere_is_made_good_by_the_next_and_keeps_its_root_key() {
    // Without a password, whose hashing would take most of the test.
    let settings = || Settings { founder_password: FirstPassword::None, ..settings() };
    let mut cut = 0;
    loop {
        cut += 1;
        let done = simulate(cut, |sys| async move {
            let disk = SimDisk::new();
            disk.set_faults(|faults| faults.halt = Some(cut));
            let whole = Scene::try_start(&sys, disk.clone(), settings()).await.is_ok();
            let disk = disk.crash(cut);
            let read = |name| {
                let mut bytes = [0; 64];
                disk.open(name, Open::Read)
                    .and_then(|file| file.read(&mut bytes, 0))
                    .map(|n| bytes[..n].to_vec())
            };
            let root = read(ROOT).ok();
            let node = Scene::try_start(&sys, disk.clone(), settings()).await.expect("made good");
            node.auth.keys(&node.admin().await).expect("it may");
            if let Some(root) = root {
                assert_eq!(read(ROOT).expect("there"), root, "never replaced");
            }
            whole
        });
        if done {
            break;
        }
        assert!(cut < 1000, "a first start has an end");
    }
    assert!(cut > 10, "it was cut off only {cut} times");
}

#[test]
fn each_flush_of_a_key_is_needed() {
    for site in ShownBy::AuthKeys.sites() {
        let lost = (0..20).any(|seed| {
            simulate(seed, |sys| async move {
                let disk = SimDisk::new();
                disk.set_faults(|faults| *faults = Faults { ignore: [site].into(), ..Faults::default() });
                let domain = Scene::start(&sys, disk.clone()).await.auth.domain();
                let again = Scene::try_start(&sys, disk.crash(seed), settings()).await;
                again.map(|node| node.auth.domain()).ok() != Some(domain)
            })
        });
        assert!(lost, "{site:?} was skipped and nobody noticed");
        simulate(7, |sys| async move {
            let node = Scene::start(&sys, SimDisk::new()).await;
            let domain = node.auth.domain();
            assert_eq!(node.crash(7).await.auth.domain(), domain);
        });
    }
}

#[test]
fn a_damaged_key_stops_the_start_and_is_named() {
    scene(66, |node| async move {
        let Scene { sys, disk, auth, .. } = node;
        drop(auth);
        let mut names = Vec::new();
        disk.list("auth/keys", &mut |name, _| {
            names.push(name.to_owned());
            std::ops::ControlFlow::Continue(())
        })
        .expect("a directory");
        assert_eq!(names.len(), 4, "{names:?}");
        let mut disk = disk.kill();
        for name in names.iter().filter(|name| *name != "root.key") {
            let path = format!("auth/keys/{name}");
            disk.flip_bit(&path, 20, 3).expect("it is there");
            let error = Scene::try_start(&sys, disk.clone(), settings()).await.err().expect("damaged");
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
            assert!(error.subject().is_some_and(|subject| subject.contains(name.as_str())), "{error:?}");
            disk = disk.kill();
            disk.flip_bit(&path, 20, 3).expect("it is there");
        }
        Scene::start(&sys, disk).await;
    });
}

/// On the real machine, where files have modes.
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the modes of real files are what is tested")]
async fn keys_are_closed_to_others_and_a_node_refuses_keys_that_are_not() {
    let home = tempfile::tempdir().expect("a directory");
    let path = |name: &str| home.path().join("auth").join(name);
    let sys = Sys::real();
    let open = || async {
        let disk = RealDisk::open(home.path())?;
        let kv = Embedded::open(sys.clone(), disk.beneath("kv")?, Options::default())?;
        let engine = Arc::new(kv);
        let opened =
            Auth::open(sys.clone(), engine.clone(), SpaceId(2), disk.beneath("auth")?, settings()).await;
        weft_kv::Engine::close(&*engine).await?;
        opened.map(drop)
    };
    open().await.expect("a first start");
    let mode = |name: &str| std::fs::metadata(path(name)).expect("there").permissions().mode() & 0o777;
    assert_eq!((mode("keys"), mode("keys/root.key")), (0o700, 0o600));
    let set = |name: &str, mode| {
        std::fs::set_permissions(path(name), std::fs::Permissions::from_mode(mode)).expect("ours");
    };
    for (name, loose, tight) in [("keys/root.key", 0o640, 0o600), ("keys", 0o711, 0o700)] {
        set(name, loose);
        let error = open().await.expect_err("others could reach it");
        assert_eq!(error.kind(), ErrorKind::NotPermitted);
        assert!(error.advice().is_some_and(|hint| hint.contains("chmod")));
        set(name, tight);
        open().await.expect("closed again");
    }
}
