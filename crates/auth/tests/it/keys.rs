//! Keys on disk: private, rotated, away, damaged, half made.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use weft_auth::{Auth, FirstPassword, Settings};
use weft_conformance::ShownBy;
use weft_core::form::{Door, Origin};
use weft_core::proof::Purpose;
use weft_core::service::Evidence;
use weft_core::{Clock, ErrorKind, Rights, VolumeId, limits};
use weft_kv::{Embedded, Options, SpaceId};
use weft_sys::disk::Faults;
use weft_sys::{Disk, Open, RealDisk, SimDisk, Sys, simulate};

use crate::scene::{FOUNDER_UID, ROOT_WORD, Scene, scene, settings};

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

/// The keys that sign.
async fn current(node: &Scene) -> Vec<weft_core::KeyId> {
    let keys = node.auth.keys(&node.admin().await).expect("it may");
    keys.into_iter().filter(|key| key.current).map(|key| key.id).collect()
}

#[test]
fn a_key_about_to_run_out_is_replaced_while_the_node_runs_once_the_root_key_is_there() {
    scene(69, |node| async move {
        let before = current(&node).await;
        let made = node.auth.keys(&node.admin().await).expect("it may").iter().map(|key| key.until).min();
        assert_eq!(Some(node.auth.keys_until()), made);
        assert_eq!(
            node.sys.metrics().auth_key_end.value(()),
            node.auth.keys_until().seconds() as u64 * 1_000_000
        );
        node.pass(limits::KEY_LIFE - limits::KEY_RENEW - limits::AUTH_SWEEP * 2);
        node.sys.sleep(limits::AUTH_SWEEP).await;
        assert_eq!(current(&node).await, before, "it is too early");
        node.disk.rename(ROOT, "safe").expect("it is taken away");
        node.sys.sleep(limits::AUTH_SWEEP * 3).await;
        assert_eq!(current(&node).await, before, "there is nothing to certify others by");
        node.disk.rename("safe", ROOT).expect("it is put back");
        let token = node.token_of(&node.admin().await).await;
        node.sys.sleep(limits::AUTH_SWEEP * 2).await;
        let after = current(&node).await;
        assert!(after.len() == 3 && before.iter().all(|key| !after.contains(key)));
        assert!(node.auth.keys_until().since(node.sys.now()) > limits::KEY_RENEW);
        node.token(&token).await.expect("what the old ones signed is good");
    });
}

#[test]
fn with_a_key_that_ran_out_a_start_is_refused_until_the_root_key_is_back() {
    scene(70, |node| async move {
        node.disk.rename(ROOT, "safe").expect("it is taken away");
        node.pass(limits::KEY_LIFE + limits::KEY_RENEW);
        let Scene { sys, disk, auth, .. } = node;
        drop(auth);
        let disk = disk.kill();
        let error =
            Scene::try_start(&sys, disk.clone(), settings()).await.err().expect("nobody would be let in");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.detail().contains("run out"), "{error:?}");
        assert!(
            error.advice().is_some_and(|hint| hint.contains("put root.key back in its place")),
            "{error:?}"
        );
        let disk = disk.kill();
        disk.rename("safe", ROOT).expect("it is put back");
        let node = Scene::try_start(&sys, disk, settings()).await.expect("new ones are made");
        node.login("admin", ROOT_WORD).await.expect("right");
    });
}

/// What lies in the directory of keys.
fn key_files(disk: &SimDisk) -> Vec<String> {
    let mut names = Vec::new();
    disk.list("auth/keys", &mut |name, _| {
        names.push(name.to_owned());
        std::ops::ControlFlow::Continue(())
    })
    .expect("a directory");
    names.sort();
    names
}

/// Replaces a key, cuts the power, and says whether the secret of the old one is gone.
fn gone_after_a_crash(seed: u64, ignored: Option<weft_sys::FlushSite>) -> bool {
    scene(seed, |node| async move {
        let before = key_files(&node.disk);
        node.disk.set_faults(|faults| faults.ignore.extend(ignored));
        node.auth.rotate(&node.admin().await, Purpose::Capability).await.expect("the root key is here");
        let after = key_files(&node.disk.crashed_copy(seed));
        before.iter().filter(|name| !after.contains(name)).count() == 1
    })
}

#[test]
fn the_secret_of_a_key_that_was_replaced_is_gone_for_good_because_of_its_flush() {
    assert!((0..20).all(|seed| gone_after_a_crash(seed, None)));
    for site in ShownBy::AuthKeyGone.sites() {
        assert!(
            (0..200).any(|seed| !gone_after_a_crash(seed, Some(site))),
            "nothing comes back without {site:?}"
        );
    }
}

/// Cuts a rotation off at each of its changes to the disk, then starts again.
#[test]
fn a_rotation_cut_off_anywhere_leaves_no_secret_of_a_replaced_key_behind_the_next_start() {
    let settings = || Settings { founder_password: FirstPassword::None, ..settings() };
    for cut in 1.. {
        let done = simulate(cut, |sys| async move {
            let node = Scene::try_start(&sys, SimDisk::new(), settings()).await.expect("it starts");
            let admin = node.admin().await;
            node.disk.set_faults(|faults| faults.halt = Some(cut));
            let whole = node.auth.rotate(&admin, Purpose::Credential).await.is_ok();
            let Scene { disk, auth, .. } = node;
            drop(auth);
            let node = Scene::try_start(&sys, disk.crash(cut), settings()).await.expect("it starts again");
            let files = key_files(&node.disk);
            for key in node.auth.keys(&node.admin().await).expect("it may") {
                let there = files.iter().any(|name| name.contains(&key.id.to_string()));
                assert_eq!(there, key.current, "cut at {cut}: {files:?}");
            }
            whole
        });
        if done {
            assert!(cut > 5, "it was cut off only {cut} times");
            return;
        }
    }
}

/// On the real machine, where there are pipes, and disks that do not answer.
#[tokio::test(flavor = "multi_thread")]
#[expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "files that are none of the node's are what is tested"
)]
async fn nobody_waits_for_the_file_of_a_root_key() {
    let home = tempfile::tempdir().expect("a directory");
    let sys = Sys::real();
    let disk = RealDisk::open(home.path()).expect("it opens");
    let kv = Embedded::open(sys.clone(), disk.beneath("kv").expect("made"), Options::default());
    let engine = Arc::new(kv.expect("it opens"));
    let below = disk.beneath("auth").expect("made");
    let (auth, _) = Auth::open(sys.clone(), engine, SpaceId(2), below, settings()).await.expect("it starts");
    let at = Origin { door: Door::Native, peer: None, uid: Some(FOUNDER_UID) };
    let admin =
        auth.authority().authenticate(&Evidence::SocketUid(FOUNDER_UID), at).await.expect("it made it");
    // A pipe that nobody writes to.
    let pipe = home.path().join("pipe");
    let made = std::process::Command::new("mkfifo").args(["-m", "600"]).arg(&pipe).status().expect("it runs");
    assert!(made.success());
    assert_eq!(kind(auth.root_at(&admin, &pipe).await), Some(ErrorKind::NotPermitted));
    // The key itself counts, not who may look into its directory.
    let (own, away) = (home.path().join("auth/keys/root.key"), home.path().join("away"));
    std::fs::create_dir(&away).expect("made");
    std::fs::set_permissions(&away, std::fs::Permissions::from_mode(0o711)).expect("ours");
    std::fs::rename(&own, away.join("root.key")).expect("moved");
    let root = auth.root_at(&admin, &away.join("root.key")).await.expect("it is closed to others");
    auth.rotate_by(&admin, Purpose::Audit, Some(root)).await.expect("it is the domain's");
    // Where it was made, too: then those who log in go on meanwhile.
    let made = std::process::Command::new("mkfifo").args(["-m", "600"]).arg(&own).status().expect("it runs");
    assert!(made.success());
    let rotating = auth.rotate(&admin, Purpose::Audit);
    let login = async {
        // It is at the file by now, and stays there.
        sys.sleep(limits::ROOT_KEY_WAIT / 20).await;
        let begun = sys.clock().tick();
        let again = auth.authority().authenticate(&Evidence::SocketUid(FOUNDER_UID), at).await;
        again.expect("they may").live(sys.clock().moment()).expect("it is live");
        let took = sys.clock().tick().since(begun);
        assert!(took < limits::ROOT_KEY_WAIT / 2, "who logs in waited {took:?} for the file");
        // Whoever writes lets go the thread that waits for it.
        std::fs::File::options().write(true).open(&own).expect("it is a pipe")
    };
    let (rotated, _pipe) = tokio::join!(rotating, login);
    rotated.expect_err("it is no key");
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
