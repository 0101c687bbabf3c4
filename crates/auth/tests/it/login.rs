//! Passwords and uids.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use weft_auth::Auth;
use weft_core::form::Origin;
use weft_core::service::{Evidence, NewUser, Revoke, Secret, UserEdit};
use weft_core::{ErrorKind, Result, Rights, limits};
use weft_kv::{
    Ack, Boot, Commit, Embedded, Engine, NoteKind, NotePosition, Notes, Snapshot, SpaceId, Supports, WriteFn,
};
use weft_sys::{Disk, SimDisk};

use crate::scene::{FOUNDER_UID, ROOT_WORD, SOCKET, Scene, read_decision, scene, settings};

#[test]
fn a_first_start_makes_a_domain_with_an_administrator_and_a_second_one_finds_it() {
    scene(1, |node| async move {
        let founded = node.founded.clone().expect("a first start");
        assert_eq!((founded.domain, founded.root_key.as_str()), (node.auth.domain(), "keys/root.key"));
        let admin = node.login("admin", ROOT_WORD).await.expect("the given password");
        assert!(admin.is_or_is_in(node.auth.administrators().id()));
        let domain = node.auth.domain();
        let node = node.restart().await;
        assert!(node.founded.is_none() && node.auth.domain() == domain);
        node.login("admin", ROOT_WORD).await.expect("it is still the password");
    });
}

#[test]
fn nothing_but_the_right_password_proves_a_user_and_nothing_is_told_of_which_part_was_wrong() {
    scene(2, |node| async move {
        node.add_user("alice", "secret").await;
        let user = NewUser { name: "carol".to_owned(), password: None, uid: None };
        node.auth.accounts().add_user(&node.admin().await, &user).await.expect("new");
        let mut errors = Vec::new();
        for (user, word) in [
            ("alice", "wrong"),
            ("alice", ""),
            ("nobody", "secret"),
            ("carol", ""),
            ("carol", "x"),
            ("a b", "x"),
        ] {
            let error = node.login(user, word).await.expect_err(user);
            errors.push((error.kind(), error.to_string()));
        }
        errors.dedup();
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert_eq!(errors[0].0, ErrorKind::Unauthenticated);
        let alice = node.login("alice", "secret").await.expect("right");
        assert_eq!(*alice.name(), node.name("alice"));
        let full = node.name("alice").to_string();
        assert_eq!(node.login(&full, "secret").await.expect("right").name(), alice.name());
    });
}

#[test]
fn a_repeated_password_is_remembered_for_five_minutes_and_no_longer() {
    scene(3, |node| async move {
        node.add_user("alice", "secret").await;
        let first = node.login("alice", "secret").await.expect("right").credential();
        node.pass(limits::PASSWORD_REMEMBERED - Duration::from_secs(1));
        assert_eq!(node.login("alice", "secret").await.expect("right").credential(), first);
        node.pass(Duration::from_secs(2));
        assert_ne!(node.login("alice", "secret").await.expect("right").credential(), first);
    });
}

#[test]
fn a_changed_password_counts_at_once_though_the_old_one_was_remembered() {
    scene(4, |node| async move {
        let name = node.add_user("alice", "old").await;
        let alice = node.login("alice", "old").await.expect("right");
        let edit = UserEdit::Password { new: Secret::new("new"), old: Some(Secret::new("old")) };
        node.auth.accounts().edit_user(&alice, &name, &edit).await.expect("her own");
        assert!(node.login("alice", "old").await.is_err());
        node.login("alice", "new").await.expect("right");
        let other = node.add_user("bob", "bob").await;
        let alice = node.login("alice", "new").await.expect("remembered");
        let error = node.auth.accounts().edit_user(&alice, &other, &edit).await.expect_err("not hers");
        assert_eq!(error.kind(), ErrorKind::NotPermitted);
    });
}

/// Whoever knows the old password and comes again and again, over whatever line, is put out: also
/// one who was proved so long ago that nothing but the line remembers it.
#[test]
fn a_new_password_ends_whoever_repeats_the_old_one_and_no_login() {
    scene(14, |node| async move {
        let name = node.add_user("alice", "old").await;
        let early = node.login("alice", "old").await.expect("right");
        node.pass(limits::PASSWORD_REMEMBERED * 2);
        let late = node.login("alice", "old").await.expect("right");
        assert_ne!(early.credential(), late.credential(), "it was checked again");
        let granted = node.auth.issuer().issue(&node.decision(&late, Rights::READ)).expect("allowed");
        let evidence = Evidence::Password { user: "alice".to_owned(), password: Secret::new("old") };
        let life = Duration::from_secs(3600);
        let signed = node.auth.authority().login(&evidence, &Default::default(), life, SOCKET).await;
        let login = node.token(&signed.expect("it proves her").to_token()).await.expect("good");
        let now = || node.sys.clock().moment();
        for caller in [&early, &late, &login] {
            caller.live(now()).expect("nothing has changed yet");
        }
        let edit = new_password("new", None);
        node.auth.accounts().edit_user(&node.admin().await, &name, &edit).await.expect("it may");
        for caller in [&early, &late] {
            assert_eq!(caller.live(now()).expect_err("ended").kind(), ErrorKind::Revoked);
        }
        assert!(granted.allows_container(Rights::READ, now()).is_err(), "nor what came of it");
        login.live(now()).expect("a login has a credential of its own");
        let same = new_password("new", Some("new"));
        let alice = node.login("alice", "new").await.expect("right");
        node.auth.accounts().edit_user(&login, &name, &same).await.expect("she knows it");
        assert!(alice.live(now()).is_err(), "set anew, though the same");
        node.login("alice", "new").await.expect("right");
    });
}

fn new_password(new: &str, old: Option<&str>) -> UserEdit {
    UserEdit::Password { new: Secret::new(new), old: old.map(Secret::new) }
}

#[test]
fn whoever_changes_their_own_password_must_know_it_and_who_guesses_waits() {
    scene(11, |node| async move {
        let name = node.add_user("alice", "old").await;
        let alice = node.login("alice", "old").await.expect("right");
        let (admin, accounts) = (node.admin().await, node.auth.accounts());
        let without = accounts.edit_user(&alice, &name, &new_password("new", None)).await;
        assert_eq!(without.expect_err("not without the old").kind(), ErrorKind::NotPermitted);
        for _ in 0..=limits::PASSWORD_FAILURES_FREE {
            let guess = accounts.edit_user(&alice, &name, &new_password("new", Some("guess"))).await;
            assert_eq!(guess.expect_err("wrong").kind(), ErrorKind::Unauthenticated);
        }
        let before = node.sys.clock().tick();
        accounts.edit_user(&alice, &name, &new_password("new", Some("old"))).await.expect("she knows it");
        assert!(node.sys.clock().tick().since(before) >= limits::PASSWORD_FAILURE_DELAY, "guesses wait");
        node.login("alice", "new").await.expect("it was changed");
        // An administrator sets another's, and her own as anybody does: over the socket too.
        accounts.edit_user(&admin, &name, &new_password("reset", None)).await.expect("she may");
        node.login("alice", "reset").await.expect("it was set");
        let without = accounts.edit_user(&admin, admin.name(), &new_password("new", None)).await;
        assert_eq!(without.expect_err("her own").kind(), ErrorKind::NotPermitted);
        let edit = new_password("new", Some(ROOT_WORD));
        accounts.edit_user(&admin, admin.name(), &edit).await.expect("she knows it");
        // Whoever has none yet cannot know it.
        let user = NewUser { name: "carol".to_owned(), password: None, uid: Some(1003) };
        accounts.add_user(&admin, &user).await.expect("new");
        let carol = node.uid(1003).await;
        accounts.edit_user(&carol, carol.name(), &new_password("first", None)).await.expect("her first");
        node.login("carol", "first").await.expect("it was set");
    });
}

#[test]
fn each_login_is_recorded_and_has_a_credential_that_ends_no_other() {
    scene(12, |node| async move {
        node.add_user("alice", "secret").await;
        let authority = node.auth.authority();
        let life = Duration::from_secs(3600);
        let (password, user) = (Secret::new("secret"), "alice".to_owned());
        let by_uid = Evidence::SocketUid(FOUNDER_UID);
        for evidence in [Evidence::Password { user, password }, by_uid] {
            let mut made = Vec::new();
            for _ in 0..3 {
                let signed = authority.login(&evidence, &Default::default(), life, SOCKET).await;
                made.push(node.token(&signed.expect("it proves her").to_token()).await.expect("good"));
            }
            let remembered = authority.authenticate(&evidence, SOCKET).await.expect("remembered");
            let what = Revoke::Credential(made[0].credential());
            authority.revoke(&made[0], &what).await.expect("her own");
            // What the evidence is remembered as is no parent of theirs either.
            let what = Revoke::Credential(remembered.credential());
            authority.revoke(&made[1], &what).await.expect("her own");
            let live: Vec<_> =
                made.iter().map(|caller| caller.live(node.sys.clock().moment()).is_ok()).collect();
            assert_eq!(live, [false, true, true], "{evidence:?}");
            let records = node.auth.audit().records(&node.admin().await, &Default::default()).await;
            let logins: Vec<_> = records
                .expect("she may")
                .records
                .into_iter()
                .filter(|(_, record)| record.operation == "login" && record.caller == *made[0].name())
                .map(|(_, record)| record.credential)
                .collect();
            for caller in &made {
                assert!(logins.contains(&caller.credential()), "a login is not in the log: {logins:?}");
            }
        }
    });
}

#[test]
fn what_one_local_uid_guesses_costs_another_nothing() {
    scene(13, |node| async move {
        node.add_user("alice", "secret").await;
        let from = |uid| Origin { uid: Some(uid), ..SOCKET };
        let evidence = |word| Evidence::Password { user: "alice".to_owned(), password: Secret::new(word) };
        let authority = node.auth.authority();
        for _ in 0..=limits::PASSWORD_FAILURES_FREE {
            authority.authenticate(&evidence("wrong"), from(1001)).await.expect_err("wrong");
        }
        let before = node.sys.clock().tick();
        authority.authenticate(&evidence("secret"), from(1002)).await.expect("right");
        assert_eq!(node.sys.clock().tick(), before, "another uid waited");
        let wrong = authority.authenticate(&evidence("wrong"), from(1001)).await;
        assert_eq!(wrong.expect_err("wrong").kind(), ErrorKind::Unauthenticated);
        assert!(node.sys.clock().tick() > before, "the one who guessed did not wait");
    });
}

#[test]
fn a_disabled_user_loses_live_callers_at_once_and_its_old_tokens_for_good() {
    scene(5, |node| async move {
        let name = node.add_user("alice", "secret").await;
        let alice = node.login("alice", "secret").await.expect("right");
        let token = node.token_of(&alice).await;
        let by_token = node.token(&token).await.expect("good");
        let admin = node.admin().await;
        let accounts = node.auth.accounts();
        accounts.edit_user(&admin, &name, &UserEdit::Enabled(false)).await.expect("it may");
        let now = node.sys.clock().moment();
        assert_eq!(alice.live(now).expect_err("ended").kind(), ErrorKind::Revoked);
        assert_eq!(by_token.live(now).expect_err("ended").kind(), ErrorKind::Revoked);
        assert_eq!(node.token(&token).await.expect_err("ended").kind(), ErrorKind::Revoked);
        assert_eq!(node.login("alice", "secret").await.expect_err("off").kind(), ErrorKind::Unauthenticated);
        accounts.edit_user(&admin, &name, &UserEdit::Enabled(true)).await.expect("it may");
        let again = node.login("alice", "secret").await.expect("on again, at the same instant");
        again.live(now).expect("a new credential");
        assert_eq!(node.token(&token).await.expect_err("still ended").kind(), ErrorKind::Revoked);
        let node = node.restart().await;
        assert_eq!(node.token(&token).await.expect_err("still ended").kind(), ErrorKind::Revoked);
    });
}

#[test]
fn the_uid_that_made_the_node_is_the_administrator_and_every_other_uid_is_anyone_until_added() {
    scene(6, |node| async move {
        assert_eq!(node.uid(FOUNDER_UID).await.name().local(), "admin");
        for uid in [0, 1, 1001, 65_534, u32::MAX] {
            assert!(node.uid(uid).await.is_anyone(), "{uid}");
        }
        let admin = node.admin().await;
        let name = node.add_user("alice", "secret").await;
        let accounts = node.auth.accounts();
        accounts.edit_user(&admin, &name, &UserEdit::Uid(Some(1001))).await.expect("free");
        assert_eq!(*node.uid(1001).await.name(), name, "though the uid was remembered as anyone");
        let taken = accounts.edit_user(&admin, &name, &UserEdit::Uid(Some(FOUNDER_UID))).await;
        assert_eq!(taken.expect_err("taken").kind(), ErrorKind::Exists);
        for nobody in [65_534, u32::MAX] {
            let refused = accounts.edit_user(&admin, &name, &UserEdit::Uid(Some(nobody))).await;
            assert_eq!(refused.expect_err("nobody's").kind(), ErrorKind::Invalid);
        }
        accounts.edit_user(&admin, &name, &UserEdit::Uid(None)).await.expect("it may");
        assert!(node.uid(1001).await.is_anyone());
        let first = node.uid(FOUNDER_UID).await.credential();
        assert_eq!(node.uid(FOUNDER_UID).await.credential(), first, "remembered");
    });
}

#[test]
fn a_change_whose_caller_hangs_up_takes_effect_all_the_same() {
    scene(9, |node| async move {
        let name = node.add_user("alice", "secret").await;
        let alice = node.login("alice", "secret").await.expect("right");
        let (admin, accounts) = (node.admin().await, node.auth.accounts());
        let edit = UserEdit::Enabled(false);
        let mut change = accounts.edit_user(&admin, &name, &edit);
        // Polled once, then dropped.
        let polled = std::future::poll_fn(|context| Poll::Ready(change.as_mut().poll(context).is_ready()));
        assert!(!polled.await, "it waits for the disk");
        drop(change);
        node.sys.sleep(Duration::from_secs(1)).await;
        assert!(alice.live(node.sys.clock().moment()).is_err());
        let alice = node.add_user("alicia", "secret").await;
        let caller = node.login("alicia", "secret").await.expect("right");
        let (authority, what) = (node.auth.authority(), Revoke::Caller(alice));
        let mut change = authority.revoke(&admin, &what);
        let polled = std::future::poll_fn(|context| Poll::Ready(change.as_mut().poll(context).is_ready()));
        assert!(!polled.await, "it waits for the disk");
        drop(change);
        node.sys.sleep(Duration::from_secs(1)).await;
        assert!(caller.live(node.sys.clock().moment()).is_err());
    });
}

#[test]
fn no_evidence_is_anyone_and_anyone_gets_no_credential() {
    scene(7, |node| async move {
        let authority = node.auth.authority();
        let anyone = authority.authenticate(&Evidence::None, SOCKET).await.expect("anyone");
        assert!(anyone.is_anyone());
        let error = authority.credential(&anyone, &Default::default(), Duration::from_secs(60)).await;
        assert_eq!(error.expect_err("nothing to vouch for").kind(), ErrorKind::Unauthenticated);
        let revoke = authority.revoke(&anyone, &Revoke::Credential(anyone.credential())).await;
        assert_eq!(revoke.expect_err("not anyone's").kind(), ErrorKind::NotPermitted);
    });
}

#[test]
fn after_many_wrong_passwords_the_right_one_works_a_second_later_and_others_notice_nothing() {
    scene(8, |node| async move {
        node.add_user("alice", "secret").await;
        node.add_user("bob", "bob").await;
        let peer = Some(IpAddr::from([192, 0, 2, 7]));
        for _ in 0..=limits::PASSWORD_FAILURES_FREE {
            assert!(node.login_from("alice", "wrong", peer).await.is_err());
        }
        let before = node.sys.clock().tick();
        node.login_from("bob", "bob", peer).await.expect("bob");
        node.login_from("alice", "secret", None).await.expect("from elsewhere");
        assert_eq!(node.sys.clock().tick(), before, "neither waited");
        // Remembered from elsewhere, so make it forget.
        node.pass(limits::PASSWORD_REMEMBERED / 2);
        node.auth
            .accounts()
            .edit_user(&node.admin().await, &node.name("alice"), &new_password("next", None))
            .await
            .expect("it may");
        let before = node.sys.clock().tick();
        node.login_from("alice", "next", peer).await.expect("right, after a wait");
        assert!(node.sys.clock().tick().since(before) >= limits::PASSWORD_FAILURE_DELAY);
    });
}

#[test]
fn what_repeats_is_answered_without_the_tables() {
    scene(10, |node| async move {
        let Scene { sys, engine, auth, .. } = node;
        drop(auth);
        let engine = Arc::new(Counted { engine, looks: AtomicU64::new(0) });
        let disk = SimDisk::new();
        let opened = Auth::open(sys.clone(), engine.clone(), SpaceId(3), Arc::new(disk), settings()).await;
        let (auth, _) = opened.expect("a first start");
        let (authority, mut token) = (auth.authority(), None);
        let mut seen = Vec::new();
        for round in 0..2 {
            let before = engine.looks.load(Ordering::SeqCst);
            let admin =
                authority.authenticate(&Evidence::SocketUid(FOUNDER_UID), SOCKET).await.expect("known");
            let nobody = authority.authenticate(&Evidence::SocketUid(4321), SOCKET).await.expect("anyone");
            let password = Secret::new(ROOT_WORD);
            let evidence = Evidence::Password { user: "admin".to_owned(), password };
            let by_password = authority.authenticate(&evidence, SOCKET).await.expect("right");
            if token.is_none() {
                let life = Duration::from_secs(3600);
                let signed = authority.credential(&admin, &Default::default(), life).await.expect("it may");
                token = Some(Evidence::Token(Secret::new(signed.to_token())));
            }
            let by_token = authority.authenticate(token.as_ref().expect("made"), SOCKET).await.expect("good");
            let decision = read_decision(&sys, &admin);
            let granted = auth.issuer().issue(&decision).expect("allowed");
            let own = auth.node_caller().expect("the node is itself");
            let session = auth.sessions().begin(&admin, SOCKET).expect("room");
            auth.sessions().renew(session.id).expect("it lives");
            let callers = [admin, nobody, by_password, by_token, own].map(|caller| caller.credential());
            seen.push((callers, granted.claims().id));
            let looks = engine.looks.load(Ordering::SeqCst) - before;
            assert_eq!(looks == 0, round == 1, "round {round}: {looks} looks");
        }
        assert_eq!(seen[0], seen[1]);
    });
}

/// Counts how often anybody looks into the tables.
struct Counted {
    engine: Arc<Embedded>,
    looks: AtomicU64,
}

#[async_trait::async_trait]
impl Engine for Counted {
    fn supports(&self) -> Supports {
        self.engine.supports()
    }
    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        self.engine.snapshot()
    }
    async fn write(&self, ack: Ack, act: WriteFn) -> Result<Commit> {
        self.engine.write(ack, act).await
    }
    async fn flush(&self) -> Result<Commit> {
        self.engine.flush().await
    }
    fn notes(&self, kind: NoteKind) -> Result<Box<dyn Notes>> {
        self.engine.notes(kind)
    }
    fn last_note(&self, kind: NoteKind) -> Result<Option<NotePosition>> {
        self.engine.last_note(kind)
    }
    async fn backup(&self, into: Arc<dyn Disk>) -> Result<Commit> {
        self.engine.backup(into).await
    }
    fn boot(&self) -> Boot {
        self.engine.boot()
    }
    async fn close(&self) -> Result<()> {
        self.engine.close().await
    }
}

/// On the real machine: threads, and argon2 on them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::disallowed_methods, reason = "a runtime with real threads is what is tested")]
async fn a_hundred_wrong_passwords_at_once_leave_the_right_one_working() {
    let sys = weft_sys::Sys::real();
    let node = Arc::new(Scene::start(&sys, SimDisk::new()).await);
    let attempts: Vec<_> = (0..100)
        .map(|n| {
            let node = node.clone();
            let peer = Some(IpAddr::from([127, 0, 0, 1]));
            sys.spawn(async move {
                let word = format!("wrong {n}");
                node.login_from("admin", &word, peer).await.expect_err("wrong").kind()
            })
        })
        .collect();
    for attempt in attempts {
        let kind = attempt.await.expect("it answers");
        assert!(matches!(kind, ErrorKind::Unauthenticated | ErrorKind::Busy), "{kind}");
    }
    let peer = Some(IpAddr::from([127, 0, 0, 1]));
    node.login_from("admin", ROOT_WORD, peer).await.expect("right, if a second later");
}

/// A user without a password may set the first at once, so nothing but the line holds back one who
/// sets it a thousand times at the same moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::disallowed_methods, reason = "a runtime with real threads is what is tested")]
async fn passwords_that_are_set_wait_in_line_as_those_that_are_checked() {
    let sys = weft_sys::Sys::real();
    let node = Arc::new(Scene::start(&sys, SimDisk::new()).await);
    let user = NewUser { name: "carol".to_owned(), password: None, uid: Some(1003) };
    let carol = node.auth.accounts().add_user(&node.admin().await, &user).await.expect("new").name;
    let mut kinds = Vec::new();
    let changes: Vec<_> = (0..2 * limits::PASSWORD_WAITERS_PER_PEER_MAX)
        .map(|n| {
            let (node, carol) = (node.clone(), carol.clone());
            sys.spawn(async move {
                let caller = node.uid(1003).await;
                let edit = new_password(&format!("first {n}"), None);
                node.auth.accounts().edit_user(&caller, &carol, &edit).await.map(drop).map_err(|e| e.kind())
            })
        })
        .collect();
    for change in changes {
        kinds.push(change.await.expect("it answers"));
    }
    assert_eq!(kinds.iter().filter(|kind| kind.is_ok()).count(), 1, "one is the first: {kinds:?}");
    assert!(kinds.contains(&Err(ErrorKind::Busy)), "all were hashed at once: {kinds:?}");
}
