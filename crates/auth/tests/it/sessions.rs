//! Sessions.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use weft_core::form::{Door, Origin};
use weft_core::proof::Caller;
use weft_core::service::{Secret, SessionGrant, SessionWatcher};
use weft_core::{ErrorKind, SessionId, limits};

use crate::scene::{SOCKET, Scene, scene};

#[derive(Default)]
struct Ended(Mutex<Vec<SessionId>>);

impl SessionWatcher for Ended {
    fn ended(&self, session: SessionId) {
        self.0.lock().expect("no test panics in here").push(session);
    }
}

impl Ended {
    fn take(&self) -> Vec<SessionId> {
        std::mem::take(&mut self.0.lock().expect("no test panics in here"))
    }
}

#[test]
fn a_session_lives_while_it_is_used_and_its_end_is_told_once() {
    scene(51, |node| async move {
        let (sessions, ended) = (node.auth.sessions(), Arc::new(Ended::default()));
        sessions.watch(ended.clone());
        let grant = sessions.begin(&Caller::anyone(), SOCKET).expect("room");
        let other = sessions.begin(&Caller::anyone(), SOCKET).expect("room");
        assert_ne!(grant.id, other.id);
        for _ in 0..5 {
            node.sys.sleep(limits::SESSION_IDLE - limits::SESSION_SWEEP).await;
            sessions.renew(grant.id).expect("it is used");
        }
        assert_eq!(ended.take(), [other.id], "the idle one has ended");
        assert_eq!(sessions.renew(other.id).expect_err("gone").kind(), ErrorKind::Stale);
        sessions.end(grant.id);
        sessions.end(grant.id);
        assert_eq!(ended.take(), [grant.id]);
        assert_eq!(
            sessions.resume(&Caller::anyone(), &grant, SOCKET).expect_err("gone").kind(),
            ErrorKind::Stale
        );
        assert_eq!(node.auth.session_count(), 0);
    });
}

#[test]
fn only_its_caller_with_its_secret_takes_a_session_up() {
    scene(52, |node| async move {
        let sessions = node.auth.sessions();
        let admin = node.admin().await;
        let grant = sessions.begin(&admin, SOCKET).expect("room");
        sessions.resume(&admin, &grant, SOCKET).expect("its own");
        assert!(sessions.resume(&Caller::anyone(), &grant, SOCKET).is_err());
        for secret in ["", "x", &grant.secret.expose()[1..]] {
            let forged = SessionGrant { id: grant.id, secret: Secret::new(secret) };
            assert!(sessions.resume(&admin, &forged, SOCKET).is_err());
        }
        let other = SessionGrant { id: SessionId(grant.id.0 ^ 1), secret: grant.secret.clone() };
        assert!(sessions.resume(&admin, &other, SOCKET).is_err());
    });
}

#[test]
fn after_a_restart_a_session_can_be_taken_up_within_the_grace_and_not_later() {
    scene(53, |node| async move {
        let admin = node.admin().await;
        let (one, two) = {
            let sessions = node.auth.sessions();
            (sessions.begin(&admin, SOCKET).expect("room"), sessions.begin(&admin, SOCKET).expect("room"))
        };
        let node = node.crash(1).await;
        let (admin, sessions) = (node.admin().await, node.auth.sessions());
        assert_eq!(sessions.renew(one.id).expect_err("not taken up yet").kind(), ErrorKind::Stale);
        assert!(sessions.resume(&Caller::anyone(), &one, SOCKET).is_err(), "nobody else");
        sessions.resume(&admin, &one, SOCKET).expect("within the grace");
        sessions.renew(one.id).expect("it is back");
        node.pass(limits::SESSION_GRACE);
        assert_eq!(sessions.resume(&admin, &two, SOCKET).expect_err("too late").kind(), ErrorKind::Stale);
        sessions.resume(&admin, &one, SOCKET).expect("it lives");
        let node = node.restart().await;
        node.auth.sessions().resume(&node.admin().await, &one, SOCKET).expect("again, from two starts ago");
    });
}

#[test]
fn a_node_keeps_a_bounded_number_of_sessions_and_nobody_takes_them_all() {
    scene(54, |node| async move {
        let sessions = node.auth.sessions();
        let busy =
            |caller: &Caller| sessions.begin(caller, SOCKET).expect_err("full").kind() == ErrorKind::Busy;
        let anyone = Caller::anyone();
        let first = sessions.begin(&anyone, SOCKET).expect("room").id;
        for _ in 1..limits::SESSIONS_PER_CALLER_MAX {
            sessions.begin(&anyone, SOCKET).expect("room");
        }
        assert!(busy(&anyone));
        let mut last = node.admin().await;
        for number in 1..limits::SESSIONS_MAX / limits::SESSIONS_PER_CALLER_MAX {
            for _ in 0..limits::SESSIONS_PER_CALLER_MAX {
                sessions.begin(&last, SOCKET).expect("another caller has its own room");
            }
            let name = format!("user{number}");
            node.add_user(&name, "secret").await;
            last = node.login(&name, "secret").await.expect("in");
        }
        assert!(busy(&last), "the node is full");
        sessions.end(first);
        sessions.begin(&anyone, SOCKET).expect("room again");
        assert!(busy(&anyone));
        node.sys.sleep(limits::SESSION_IDLE + limits::SESSION_SWEEP + Duration::from_secs(1)).await;
        assert_eq!(node.auth.session_count(), 0);
        sessions.begin(&anyone, SOCKET).expect("room for all again");
    });
}

#[test]
fn who_proves_nothing_takes_no_sessions_from_others_elsewhere_who_prove_nothing() {
    scene(56, |node| async move {
        let (sessions, anyone) = (node.auth.sessions(), Caller::anyone());
        let (http, native) = (Door::Http, Door::Native);
        let at = |peer: &str| Origin { door: http, peer: Some(peer.parse().expect("good")), uid: None };
        let uid = |uid| Origin { door: native, peer: None, uid: Some(uid) };
        for _ in 0..limits::SESSIONS_PER_CALLER_MAX {
            sessions.begin(&anyone, uid(1001)).expect("room");
        }
        assert_eq!(sessions.begin(&anyone, uid(1001)).expect_err("full").kind(), ErrorKind::Busy);
        for from in [uid(1002), at("127.0.0.1"), at("192.0.2.7"), at("2001:db8::1")] {
            sessions.begin(&anyone, from).expect("others have their own room");
        }
    });
}

#[test]
fn after_a_restore_no_session_of_since_the_backup_is_taken_up() {
    scene(55, |node| async move {
        let backup = node.disk.crashed_copy(1);
        // The life that is lost: a start, and a session of it.
        let node = node.restart().await;
        let lost = node.auth.sessions().begin(&node.admin().await, SOCKET).expect("room");
        let sys = node.sys.clone();
        drop(node);
        let mut node = Scene::restore(&sys, backup).await;
        for _ in 0..3 {
            let taken_up = node.auth.sessions().resume(&node.admin().await, &lost, SOCKET);
            assert_eq!(taken_up.expect_err("of another life").kind(), ErrorKind::Stale);
            node = node.restart().await;
        }
    });
}
