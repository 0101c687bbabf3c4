//! Users and groups.

use weft_core::proof::Caller;
use weft_core::service::{GroupEdit, NewUser, Revoke, UserEdit};
use weft_core::{CallerName, DomainId, ErrorKind, Rights, limits};
use weft_kv::{Ack, Engine};

use crate::scene::{FOUNDER_UID, Scene, all_rows, as_version_1, scene};

async fn make_group(node: &Scene, maker: &str, name: &str) -> CallerName {
    let maker = node.login(maker, maker).await.expect("right");
    node.auth.accounts().add_group(&maker, name).await.expect("new").name
}

#[test]
fn only_administrators_change_users_and_names_and_uids_are_taken_once() {
    scene(31, |node| async move {
        let (admin, accounts) = (node.admin().await, node.auth.accounts());
        let alice = node.add_user("alice", "alice").await;
        let caller = node.login("alice", "alice").await.expect("right");
        let user = |name: &str, uid| NewUser { name: name.to_owned(), password: None, uid };
        let kind = |answer: weft_core::Result<_>| {
            answer.map(|_: weft_core::service::UserRecord| ()).map_err(|e| e.kind())
        };
        assert_eq!(kind(accounts.add_user(&caller, &user("bob", None)).await), Err(ErrorKind::NotPermitted));
        assert_eq!(kind(accounts.add_user(&admin, &user("alice", None)).await), Err(ErrorKind::Exists));
        assert_eq!(
            kind(accounts.add_user(&admin, &user("bob", Some(FOUNDER_UID))).await),
            Err(ErrorKind::Exists)
        );
        assert_eq!(kind(accounts.add_user(&admin, &user("b/b", None)).await), Err(ErrorKind::Invalid));
        for edit in [UserEdit::Enabled(false), UserEdit::Uid(Some(9))] {
            let refused = accounts.edit_user(&caller, &alice, &edit).await;
            assert_eq!(refused.expect_err("not hers").kind(), ErrorKind::NotPermitted);
        }
        let unknown = accounts.edit_user(&admin, &node.name("nobody"), &UserEdit::Enabled(false)).await;
        assert_eq!(unknown.expect_err("not there").kind(), ErrorKind::NotFound);
        assert!(accounts.users(&caller, None).await.is_err());
        let users = accounts.users(&admin, None).await.expect("it may");
        let names: Vec<_> = users.iter().map(|user| (user.name.local(), user.has_password)).collect();
        assert_eq!(names, [("admin", true), ("alice", true)]);
        let rest = accounts.users(&admin, Some(&users[0].name)).await.expect("it may");
        assert_eq!(rest, users[1..]);
    });
}

#[test]
fn a_domain_is_never_left_without_an_administrator() {
    scene(32, |node| async move {
        let (admin, accounts) = (node.admin().await, node.auth.accounts());
        let group = node.auth.administrators().clone();
        let kind = |answer: weft_core::Result<()>| answer.map_err(|error| error.kind());
        let off = accounts.edit_user(&admin, admin.name(), &UserEdit::Enabled(false)).await.map(drop);
        assert_eq!(kind(off), Err(ErrorKind::NotPermitted));
        let out =
            accounts.edit_group(&admin, &group, &GroupEdit::Remove(admin.name().clone())).await.map(drop);
        assert_eq!(kind(out), Err(ErrorKind::NotPermitted));
        assert_eq!(kind(accounts.remove_group(&admin, &group).await), Err(ErrorKind::NotPermitted));
        let alice = node.add_user("alice", "alice").await;
        accounts.edit_group(&admin, &group, &GroupEdit::Add(alice)).await.expect("it may");
        accounts
            .edit_group(&admin, &group, &GroupEdit::Remove(admin.name().clone()))
            .await
            .expect("one is left");
        let admin = node.uid(FOUNDER_UID).await;
        let back = accounts.edit_group(&admin, &group, &GroupEdit::Add(admin.name().clone())).await.map(drop);
        assert_eq!(kind(back), Err(ErrorKind::NotPermitted), "its maker owns other groups, not this one");
        let alice = node.login("alice", "alice").await.expect("right");
        accounts.users(&alice, None).await.expect("she is the administrator now");
    });
}

#[test]
fn groups_are_made_by_anyone_and_changed_by_their_owner() {
    scene(33, |node| async move {
        for name in ["alice", "bob"] {
            node.add_user(name, name).await;
        }
        let accounts = node.auth.accounts();
        let team = make_group(&node, "alice", "team").await;
        assert_eq!(team.local(), "alice/team");
        let (alice, bob) = (
            node.login("alice", "alice").await.expect("right"),
            node.login("bob", "bob").await.expect("right"),
        );
        let twice = accounts.add_group(&alice, "team").await;
        assert_eq!(twice.expect_err("taken").kind(), ErrorKind::Exists);
        let add_bob = GroupEdit::Add(bob.name().clone());
        let hidden = accounts.edit_group(&bob, &team, &add_bob).await.expect_err("not his");
        assert_eq!(hidden.kind(), ErrorKind::NotFound, "nor his to know of");
        let foreign = CallerName::user("carol", DomainId([9; 32])).expect("a good name");
        let made = accounts.edit_group(&alice, &team, &GroupEdit::Add(foreign.clone())).await.expect("hers");
        assert_eq!(made.members, [foreign]);
        accounts.edit_group(&alice, &team, &add_bob).await.expect("hers");
        let bob = node.login("bob", "bob").await.expect("right");
        assert!(bob.is_or_is_in(team.id()));
        let refused = accounts.edit_group(&bob, &team, &GroupEdit::Add(alice.name().clone())).await;
        assert_eq!(refused.expect_err("a member only").kind(), ErrorKind::NotPermitted);
        for nobody in [team.clone(), CallerName::ANYONE] {
            let refused = accounts.edit_group(&alice, &team, &GroupEdit::Add(nobody)).await;
            assert_eq!(refused.expect_err("no caller").kind(), ErrorKind::Invalid);
        }
        let unknown = accounts.edit_group(&alice, &team, &GroupEdit::Add(node.name("nobody"))).await;
        assert_eq!(unknown.expect_err("not there").kind(), ErrorKind::NotFound);
        let names = |groups: Vec<weft_core::service::GroupRecord>| {
            groups.into_iter().map(|group| group.name.local().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names(accounts.groups(&bob, None).await.expect("his")), ["alice/team"]);
        let all = names(accounts.groups(&node.admin().await, None).await.expect("all"));
        assert_eq!(all, ["admin/administrators", "alice/team"]);
        let rest = accounts.groups(&node.admin().await, Some(node.auth.administrators())).await.expect("all");
        assert_eq!(names(rest), ["alice/team"]);
    });
}

#[test]
fn a_change_of_membership_ends_capabilities_and_counts_at_once_in_callers_and_in_tokens() {
    scene(34, |node| async move {
        for name in ["alice", "bob"] {
            node.add_user(name, name).await;
        }
        let team = make_group(&node, "alice", "team").await;
        let bob = node.login("bob", "bob").await.expect("right");
        let token = node.token_of(&bob).await;
        let granted = node.auth.issuer().issue(&node.decision(&bob, Rights::READ)).expect("allowed");
        let before = node.token(&token).await.expect("good");
        assert!(!before.is_or_is_in(team.id()));
        let (alice, accounts) = (node.login("alice", "alice").await.expect("right"), node.auth.accounts());
        accounts.edit_group(&alice, &team, &GroupEdit::Add(bob.name().clone())).await.expect("hers");
        let now = node.sys.clock().moment();
        for caller in [&before, &bob] {
            caller.live(now).expect("he is who he was");
            assert!(caller.is_or_is_in(team.id()));
        }
        assert!(granted.allows_container(Rights::READ, now).is_err());
        let after = node.token(&token).await.expect("made afresh");
        assert!(after.is_or_is_in(team.id()));
        assert_eq!(after.claims().expires, before.claims().expires, "and lives no longer");
        accounts.edit_group(&alice, &team, &GroupEdit::Remove(bob.name().clone())).await.expect("hers");
        assert!(!before.is_or_is_in(team.id()) && !after.is_or_is_in(team.id()));
        assert!(!node.token(&token).await.expect("made afresh").is_or_is_in(team.id()));
        accounts.edit_group(&alice, &team, &GroupEdit::Add(bob.name().clone())).await.expect("hers");
        let node = node.restart().await;
        let after = node.token(&token).await.expect("made afresh");
        assert!(after.is_or_is_in(team.id()), "an old membership is found out after a restart too");
        node.auth.accounts().remove_group(&node.admin().await, &team).await.expect("it may");
        let after = node.token(&token).await.expect("made afresh");
        assert!(!after.is_or_is_in(team.id()));
        let what = Revoke::Credential(*after.claims().parents.last().expect("it came from the token"));
        node.auth.authority().revoke(&after, &what).await.expect("his own");
        assert!(node.token(&token).await.is_err(), "what was made afresh ends with what it came from");
    });
}

#[test]
fn whoever_is_in_a_group_leaves_it_and_changes_nothing_else_there() {
    scene(36, |node| async move {
        for name in ["alice", "bob"] {
            node.add_user(name, name).await;
        }
        let team = make_group(&node, "alice", "team").await;
        let (alice, bob) = (
            node.login("alice", "alice").await.expect("right"),
            node.login("bob", "bob").await.expect("right"),
        );
        let accounts = node.auth.accounts();
        let edit = async |caller: &Caller, edit: GroupEdit| accounts.edit_group(caller, &team, &edit).await;
        let leave = || GroupEdit::Remove(bob.name().clone());
        assert_eq!(edit(&bob, leave()).await.expect_err("not in").kind(), ErrorKind::NotFound);
        for member in [&alice, &bob] {
            edit(&alice, GroupEdit::Add(member.name().clone())).await.expect("hers");
        }
        let other = GroupEdit::Remove(alice.name().clone());
        assert_eq!(edit(&bob, other).await.expect_err("hers").kind(), ErrorKind::NotPermitted);
        edit(&bob, leave()).await.expect("he may");
        assert!(!bob.is_or_is_in(team.id()));
        assert_eq!(
            edit(&bob, GroupEdit::Add(bob.name().clone())).await.expect_err("hers").kind(),
            ErrorKind::NotFound
        );
    });
}

#[test]
fn the_uid_that_somebody_has_already_ends_nothing_and_another_ends_what_they_hold() {
    scene(37, |node| async move {
        let alice = node.add_user("alice", "alice").await;
        let (admin, accounts) = (node.admin().await, node.auth.accounts());
        let set =
            async |uid| accounts.edit_user(&admin, &alice, &UserEdit::Uid(Some(uid))).await.expect("free");
        set(1001).await;
        let held = node.uid(1001).await;
        set(1001).await;
        held.live(node.sys.clock().moment()).expect("nothing has changed");
        set(1002).await;
        assert!(held.live(node.sys.clock().moment()).is_err());
    });
}

#[test]
fn a_user_owns_and_is_in_a_bounded_number_of_groups_and_a_credential_of_that_many_works() {
    scene(35, |node| async move {
        node.add_user("alice", "alice").await;
        let accounts = node.auth.accounts();
        let uid = UserEdit::Uid(Some(1001));
        accounts.edit_user(&node.admin().await, &node.name("alice"), &uid).await.expect("free");
        let alice = node.uid(1001).await;
        let mut groups = Vec::new();
        for n in 0..=limits::MEMBERSHIPS_MAX {
            groups.push(accounts.add_group(&alice, &format!("g{n}")).await.expect("new").name);
        }
        let add = GroupEdit::Add(alice.name().clone());
        for (n, group) in groups.iter().enumerate() {
            let added = accounts.edit_group(&alice, group, &add).await;
            if n < limits::MEMBERSHIPS_MAX {
                added.expect("within the bound");
            } else {
                assert_eq!(added.expect_err("one too many").kind(), ErrorKind::TooLarge);
            }
        }
        let token = node.token_of(&alice).await;
        assert_eq!(node.token(&token).await.expect("good").claims().groups.len(), limits::MEMBERSHIPS_MAX);
    });
}

#[test]
fn names_are_known_for_users_groups_and_members_from_elsewhere() {
    scene(36, |node| async move {
        let alice = node.add_user("alice", "alice").await;
        let team = make_group(&node, "alice", "team").await;
        let foreign = CallerName::user("carol", DomainId([9; 32])).expect("a good name");
        let caller = node.login("alice", "alice").await.expect("right");
        let edit = GroupEdit::Add(foreign.clone());
        node.auth.accounts().edit_group(&caller, &team, &edit).await.expect("hers");
        let authority = node.auth.authority();
        for name in [alice, team, foreign, CallerName::ANYONE] {
            assert_eq!(authority.name_of(name.id()).await.expect("a look-up"), Some(name));
        }
        assert_eq!(authority.name_of(node.name("nobody").id()).await.expect("a look-up"), None);
    });
}

/// Counts what the disk is asked to do, rather than time: a cliff would show as work that grows
/// with the domain.
#[test]
fn a_login_in_a_domain_of_100_000_users_costs_what_it_costs_in_one_of_ten() {
    scene(37, |node| async move {
        node.add_user("zoe", "zoe").await;
        node.auth.close().await.expect("it closes");
        // The rows of one user, again and again under other names, as version 1 had them: the start
        // makes of them what they are now.
        as_version_1(&*node.engine).await;
        let row = all_rows(&*node.engine)[&b"\x02uadmin"[..]].clone();
        for batch in 0..100_u32 {
            let row = row.clone();
            let act = move |txn: &mut dyn weft_kv::Txn| {
                for n in 0..1000_u32 {
                    txn.put(format!("\x02ux{:06}", batch * 1000 + n).as_bytes(), &row)?;
                }
                Ok(())
            };
            node.engine.write(Ack::Applied, Box::new(act)).await.expect("room");
        }
        let node = node.restart().await;
        let before = node.disk.counts();
        node.login("zoe", "zoe").await.expect("right");
        let reads = node.disk.counts().reads - before.reads;
        assert!(reads < 64, "{reads} reads for one login");
        let (admin, accounts) = (node.admin().await, node.auth.accounts());
        let mut after = None;
        let mut seen = 0;
        loop {
            let page = accounts.users(&admin, after.as_ref()).await.expect("it may");
            let Some(last) = page.last() else { break };
            assert!(page.len() <= limits::ACCOUNTS_PAGE_MAX);
            (seen, after) = (seen + page.len(), Some(last.name.clone()));
        }
        assert_eq!(seen, 100_002);
    });
}
