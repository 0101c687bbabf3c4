//! Whom uids stand for once a backup was restored by a user with another one.

use std::sync::Arc;

use weft_auth::TakenOver;
use weft_core::CallerName;
use weft_core::service::{GroupEdit, NewUser, Secret, UserEdit};
use weft_kv::{Embedded, Engine, Options, SpaceId};
use weft_sys::Disk;

use crate::scene::{FOUNDER_UID, ROOT_WORD, SPACE, Scene, scene};

/// A node with two people of uids 1001 and 1002, and one without.
async fn furnished(node: &Scene) {
    let admin = node.admin().await;
    for (name, uid) in [("alice", Some(1001)), ("bob", Some(1002)), ("carol", None)] {
        let user = NewUser { name: name.to_owned(), password: Some(Secret::new("word")), uid };
        node.auth.accounts().add_user(&admin, &user).await.expect("it is new");
    }
}

async fn edit(node: &Scene, name: &str, edit: UserEdit) {
    let (admin, name) = (node.admin().await, node.name(name));
    node.auth.accounts().edit_user(&admin, &name, &edit).await.expect("an administrator may");
}

async fn edit_administrators(node: &Scene, edit: impl FnOnce(CallerName) -> GroupEdit, name: &str) {
    let group = node.auth.administrators().clone();
    let edit = edit(node.name(name));
    node.auth.accounts().edit_group(&node.admin().await, &group, &edit).await.expect("one is left");
}

/// Restores the node for a user of this uid, and starts it.
async fn restored(node: Scene, uid: u32, keep: bool) -> (Scene, TakenOver) {
    node.auth.close().await.expect("it closes");
    node.engine.flush().await.expect("the disk is on");
    let (sys, disk) = (node.sys.clone(), node.disk.crashed_copy(1));
    drop(node);
    let kv = disk.beneath("kv").expect("it is there");
    let engine: Arc<dyn Engine> =
        Arc::new(Embedded::open(sys.clone(), kv, Options::default()).expect("it opens"));
    let taken = weft_auth::take_over(engine.clone(), SpaceId(SPACE), uid, keep).await.expect("written");
    engine.close().await.expect("it closes");
    drop(engine);
    let node = Scene::restore(&sys, disk).await;
    let below = node.disk.beneath("auth").expect("it is there");
    let wrong = weft_auth::check(&sys, node.engine.clone(), SpaceId(SPACE), &*below).await;
    assert_eq!(wrong.expect("it can look"), [], "the tables agree");
    (node, taken)
}

async fn known(node: &Scene, uids: &[u32]) -> Vec<String> {
    let mut names = Vec::new();
    for uid in uids {
        let caller = node.uid(*uid).await;
        names.push(if caller.is_anyone() { "-".to_owned() } else { caller.name().local().to_owned() });
    }
    names
}

fn ended(of: &[(&str, u32)]) -> Vec<(String, u32)> {
    of.iter().map(|(user, uid)| ((*user).to_owned(), *uid)).collect()
}

const EVERYBODY: [u32; 4] = [FOUNDER_UID, 1001, 1002, 2000];

#[test]
fn whoever_restores_with_another_uid_is_the_founder_and_no_uid_of_the_backup_is_anybody() {
    scene(71, |node| async move {
        furnished(&node).await;
        let (node, taken) = restored(node, 2000, false).await;
        assert_eq!(taken.administrator.as_deref(), Some("admin"));
        assert_eq!(taken.ended, ended(&[("admin", FOUNDER_UID), ("alice", 1001), ("bob", 1002)]));
        assert_eq!(known(&node, &EVERYBODY).await, ["-", "-", "-", "admin"]);
        let admin = node.uid(2000).await;
        node.auth.demand_administrator(&admin).expect("the uid that restored");
        for (user, word) in [("admin", ROOT_WORD), ("alice", "word"), ("carol", "word")] {
            node.login(user, word).await.expect("passwords are as they were");
        }
        // It can say again who is who.
        let alice = node.name("alice");
        let edited = node.auth.accounts().edit_user(&admin, &alice, &UserEdit::Uid(Some(1002))).await;
        edited.expect("nobody has it");
        assert_eq!(known(&node, &[1001, 1002]).await, ["-", "alice"]);
    });
}

#[test]
fn a_restore_by_the_same_administrators_uid_leaves_every_uid_as_it_was() {
    scene(72, |node| async move {
        furnished(&node).await;
        let (node, taken) = restored(node, FOUNDER_UID, false).await;
        assert_eq!(taken, TakenOver { administrator: Some("admin".to_owned()), ended: Vec::new() });
        assert_eq!(known(&node, &EVERYBODY).await, ["admin", "alice", "bob", "-"]);
        edit_administrators(&node, GroupEdit::Add, "bob").await;
        let (node, taken) = restored(node, 1002, false).await;
        assert_eq!(taken, TakenOver { administrator: Some("bob".to_owned()), ended: Vec::new() });
        assert_eq!(known(&node, &EVERYBODY).await, ["admin", "alice", "bob", "-"]);
    });
}

#[test]
fn a_uid_that_was_somebody_elses_in_the_backup_is_the_administrators_who_restores() {
    for keep in [false, true] {
        scene(73, |node| async move {
            furnished(&node).await;
            let (node, taken) = restored(node, 1001, keep).await;
            let bob = if keep { "bob" } else { "-" };
            assert_eq!(known(&node, &EVERYBODY).await, ["-", "admin", bob, "-"]);
            let of = [("admin", FOUNDER_UID), ("alice", 1001), ("bob", 1002)];
            assert_eq!(taken.ended, ended(if keep { &of[..2] } else { &of }));
        });
    }
}

#[test]
fn a_founder_who_may_not_log_in_or_is_no_administrator_any_more_is_not_given_back_what_was_taken() {
    for disabled in [true, false] {
        scene(74, |node| async move {
            furnished(&node).await;
            edit_administrators(&node, GroupEdit::Add, "carol").await;
            if disabled {
                edit(&node, "admin", UserEdit::Enabled(false)).await;
            } else {
                edit_administrators(&node, GroupEdit::Remove, "admin").await;
            }
            let (node, taken) = restored(node, 2000, false).await;
            assert_eq!(taken.administrator.as_deref(), Some("carol"));
            assert_eq!(known(&node, &EVERYBODY).await, ["-", "-", "-", "carol"]);
            node.auth.demand_administrator(&node.uid(2000).await).expect("one who still is");
            assert_eq!(node.login("admin", ROOT_WORD).await.is_ok(), !disabled);
        });
    }
}

#[test]
fn a_domain_of_many_users_keeps_none_of_their_uids() {
    scene(75, |node| async move {
        let admin = node.admin().await;
        // More than one transaction takes.
        for number in 0..weft_core::limits::AUTH_STEP_ROWS as u32 + 2 {
            let user = NewUser { name: format!("u{number:05}"), password: None, uid: Some(5000 + number) };
            node.auth.accounts().add_user(&admin, &user).await.expect("it is new");
        }
        let (node, taken) = restored(node, 2000, false).await;
        assert_eq!(taken.ended.len(), weft_core::limits::AUTH_STEP_ROWS + 3);
        assert_eq!(
            known(&node, &[FOUNDER_UID, 2000, 5000, 5999, 6000, 6001]).await.join(" "),
            "- admin - - - -"
        );
    });
}
