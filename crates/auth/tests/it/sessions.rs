//! Sessions.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use weft_core::proof::Caller;
use weft_core::service::{Secret, SessionGrant, SessionWatcher};
use weft_core::{ErrorKind, SessionId, limits};

use crate::scene::{Scene, scene};

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
        let grant = sessions.begin(&Caller::anyone()).expect("room");
        let other = sessions.begin(&Caller::anyone()).expect("room");
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
        assert_eq!(sessions.resume(&Caller::anyone(), &grant).expect_err("gone").kind(), ErrorKind::Stale);
        assert_eq!(node.auth.session_count(), 0);
    });
}

#[test]
fn only_its_caller_with_its_secret_takes_a_session_up() {
    scene(52, |node| async move {
        let sessions = node.auth.sessions();
        let admin = node.admin().await;
        let grant = sessions.begin(&admin).expect("room");
        sessions.resume(&admin, &grant).expect("its own");
        assert!(sessions.resume(&Caller::anyone(), &grant).is_err());
        for secret in ["", "x", &grant.secret.expose()[1..]] {
            let forged = SessionGrant { id: grant.id, secret: Secret::new(secret) };
            assert!(sessions.resume(&admin, &forged).is_err());
        }
        let other = SessionGrant { id: SessionId(grant.id.0 ^ 1), secret: grant.secret.clone() };
        assert!(sessions.resume(&admin, &other).is_err());
    });
}

#[test]
fn after_a_restart_a_session_can_be_taken_up_within_the_grace_and_not_later() {
    scene(53, |node| async move {
        let admin = node.admin().await;
        let (one, two) = {
            let sessions = node.auth.sessions();
            (sessions.begin(&admin).expect("room"), sessions.begin(&admin).expect("room"))
        };
        let node = node.crash(1).await;
        let (admin, sessions) = (node.admin().await, node.auth.sessions());
        assert_eq!(sessions.renew(one.id).expect_err("not taken up yet").kind(), ErrorKind::Stale);
        assert!(sessions.resume(&Caller::anyone(), &one).is_err(), "nobody else");
        sessions.resume(&admin, &one).expect("within the grace");
        sessions.renew(one.id).expect("it is back");
        node.pass(limits::SESSION_GRACE);
        assert_eq!(sessions.resume(&admin, &two).expect_err("too late").kind(), ErrorKind::Stale);
        sessions.resume(&admin, &one).expect("it lives");
        let node = node.restart().await;
        node.auth.sessions().resume(&node.admin().await, &one).expect("again, from two starts ago");
    });
}

#[test]
fn a_node_keeps_a_bounded_number_of_sessions_and_nobody_takes_them_all() {
    scene(54, |node| async move {
        let sessions = node.auth.sessions();
        let busy = |caller: &Caller| sessions.begin(caller).expect_err("full").kind() == ErrorKind::Busy;
        let anyone = Caller::anyone();
        let first = sessions.begin(&anyone).expect("room").id;
        for _ in 1..limits::SESSIONS_PER_CALLER_MAX {
            sessions.begin(&anyone).expect("room");
        }
        assert!(busy(&anyone));
        let mut last = node.admin().await;
        for number in 1..limits::SESSIONS_MAX / limits::SESSIONS_PER_CALLER_MAX {
            for _ in 0..limits::SESSIONS_PER_CALLER_MAX {
                sessions.begin(&last).expect("another caller has its own room");
            }
            let name = format!("user{number}");
            node.add_user(&name, "secret").await;
            last = node.login(&name, "secret").await.expect("in");
        }
        assert!(busy(&last), "the node is full");
        sessions.end(first);
        sessions.begin(&anyone).expect("room again");
        assert!(busy(&anyone));
        node.sys.sleep(limits::SESSION_IDLE + limits::SESSION_SWEEP + Duration::from_secs(1)).await;
        assert_eq!(node.auth.session_count(), 0);
        sessions.begin(&anyone).expect("room for all again");
    });
}

#[test]
fn after_a_restore_no_session_of_since_the_backup_is_taken_up() {
    scene(55, |node| async move {
        let backup = node.disk.crashed_copy(1);
        // The life that is lost: a start, and a session of it.
        let node = node.restart().await;
        let lost = node.auth.sessions().begin(&node.admin().await).expect("room");
        let sys = node.sys.clone();
        drop(node);
        let mut node = Scene::restore(&sys, backup).await;
        for _ in 0..3 {
            let taken_up = node.auth.sessions().resume(&node.admin().await, &lost);
            assert_eq!(taken_up.expect_err("of another life").kind(), ErrorKind::Stale);
            node = node.restart().await;
        }
    });
}
