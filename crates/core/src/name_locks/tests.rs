use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::caller::CallerKind;
use crate::error::{ErrorKind, Result};
use crate::id::DomainId;

const NOW: Time = Time::from_unix(1000, 0);

/// Whether a task was woken.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn path(text: &str) -> RelPath {
    RelPath::try_from(text).expect("tests use good paths")
}

fn who(name: &str) -> CallerName {
    CallerName::new(CallerKind::User, name, DomainId([1; 32])).expect("a good name")
}

fn lock(token: u128, at: &str, deep: bool, kind: LockKind, holder: &str) -> NameLock {
    let lasts = Duration::from_secs(60);
    let wanted = NameLockWanted { path: path(at), deep, kind, owner: Bytes::new(), lasts };
    NameLock { token: LockToken(token), wanted, holder: who(holder), until: NOW.plus(lasts) }
}

fn touch(at: &str, reach: Reach) -> Vec<Touch> {
    vec![Touch { path: path(at), reach }]
}

fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

use LockKind::{Exclusive, Shared};

#[test]
fn a_lock_binds_what_it_covers_and_nothing_beside() {
    // Lock: where and whether deep. Touch: where and how far. Whether the lock is in the way.
    for (at, deep, touched, reach, bound) in [
        ("a", false, "a", Reach::Content, true),
        ("a", false, "ab", Reach::Tree, false),
        ("a", false, "a/b", Reach::Content, false),
        ("a", false, "a/b", Reach::Name, true),
        ("a", false, "a/b/c", Reach::Name, false),
        ("a", true, "a/b/c", Reach::Content, true),
        ("a/b", false, "a", Reach::Content, false),
        ("a/b", false, "a", Reach::Name, false),
        ("a/b", false, "a", Reach::Tree, true),
        ("a/b/c", true, "a", Reach::Tree, true),
        ("a0", false, "a", Reach::Tree, false),
        ("a.b", false, "a", Reach::Tree, false),
        ("", true, "x", Reach::Content, true),
        ("", false, "x", Reach::Name, true),
        ("", false, "x", Reach::Content, false),
        ("x/y", false, "", Reach::Tree, true),
    ] {
        let table = Arc::new(NameLockTable::default());
        assert!(table.take(&lock(1, at, deep, Exclusive, "alice"), NOW).expect("it is free"));
        let told = kind(table.permit(&who("alice"), touch(touched, reach), &[], NOW));
        assert_eq!(told, bound.then_some(ErrorKind::Locked), "{at} deep {deep}: {touched} {reach:?}");
        let shown = table.permit(&who("alice"), touch(touched, reach), &[LockToken(1)], NOW);
        assert!(shown.is_ok(), "whoever shows it may: {at} {touched}");
        assert_eq!(
            kind(table.permit(&who("bob"), touch(touched, reach), &[LockToken(1)], NOW)),
            bound.then_some(ErrorKind::Locked),
            "a token is no proof of who shows it: {at} {touched}"
        );
        assert!(
            table.permit(&who("bob"), touch(touched, reach), &[], NOW.plus(Duration::from_secs(60))).is_ok()
        );
    }
}

#[test]
fn exclusive_locks_lie_beside_none_and_shared_ones_beside_each_other() {
    for (at, deep, kind_held, other, deep_other, kind_wanted, clash) in [
        ("a", false, Exclusive, "a", false, Exclusive, true),
        ("a", false, Exclusive, "a", false, Shared, true),
        ("a", false, Shared, "a", false, Shared, false),
        ("a", false, Shared, "a", false, Exclusive, true),
        ("a", true, Exclusive, "a/b/c", false, Shared, true),
        ("a", false, Exclusive, "a/b", false, Exclusive, false),
        ("a/b", false, Exclusive, "a", true, Exclusive, true),
        ("a/b", false, Exclusive, "a", false, Exclusive, false),
        ("a/b", false, Exclusive, "", true, Shared, true),
        ("ab", false, Exclusive, "a", true, Exclusive, false),
    ] {
        let table = NameLockTable::default();
        assert!(table.take(&lock(1, at, deep, kind_held, "alice"), NOW).expect("it is free"));
        let told = table.take(&lock(2, other, deep_other, kind_wanted, "alice"), NOW);
        assert_eq!(kind(told), clash.then_some(ErrorKind::Locked), "{at} {deep} and {other} {deep_other}");
    }
}

#[test]
fn one_token_of_several_shared_locks_is_enough() {
    let table = Arc::new(NameLockTable::default());
    for (token, holder) in [(1, "alice"), (2, "bob")] {
        assert!(table.take(&lock(token, "a", false, Shared, holder), NOW).expect("shared"));
    }
    let content = || touch("a", Reach::Content);
    assert!(table.permit(&who("bob"), content(), &[LockToken(2)], NOW).is_ok());
    assert!(table.permit(&who("bob"), content(), &[LockToken(1)], NOW).is_err(), "alice's");
    assert!(table.permit(&who("carol"), content(), &[LockToken(1), LockToken(2)], NOW).is_err());
    // Of each name that is locked one is needed.
    assert!(table.take(&lock(3, "", false, Exclusive, "bob"), NOW).expect("beside"));
    let name = || touch("a", Reach::Name);
    assert!(table.permit(&who("bob"), name(), &[LockToken(2)], NOW).is_err());
    assert!(table.permit(&who("bob"), name(), &[LockToken(2), LockToken(3)], NOW).is_ok());
}

#[test]
fn nothing_is_locked_over_a_change_that_is_under_way() {
    let table = Arc::new(NameLockTable::default());
    let permit = table.permit(&who("alice"), touch("a/b", Reach::Name), &[], NOW).expect("free");
    for (at, deep, granted) in
        [("a/b", false, false), ("a", false, false), ("", true, false), ("c", true, true)]
    {
        let taken = table.take(&lock(7, at, deep, Exclusive, "bob"), NOW).expect("no lock is in the way");
        assert_eq!(taken, granted, "{at}");
        table.drop_lock(LockToken(7));
    }
    let (waited_for, woken) = (lock(8, "a/b", false, Exclusive, "bob"), Arc::new(Woken::default()));
    let mut taken = pin!(table.take_once_free(&waited_for, || NOW));
    let waker = Waker::from(woken.clone());
    let mut turn = || taken.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(turn().is_pending() && !woken.0.load(Ordering::SeqCst));
    drop(permit);
    assert!(woken.0.load(Ordering::SeqCst), "who waits is woken");
    assert!(matches!(turn(), Poll::Ready(Ok(()))));
    assert!(table.covering(&path("a/b"), NOW).contains(&waited_for));
}

#[test]
fn a_name_has_so_many_shared_locks_and_no_more() {
    let table = NameLockTable::default();
    for token in 0..crate::limits::NAME_LOCKS_SHARED_MAX as u128 {
        assert!(table.take(&lock(token, "a", true, Shared, "bob"), NOW).expect("shared"));
    }
    assert_eq!(kind(table.take(&lock(99, "a", true, Shared, "alice"), NOW)), Some(ErrorKind::Busy));
    assert!(table.take(&lock(99, "a/b", false, Shared, "alice"), NOW).expect("another name"));
}

#[test]
fn what_has_gone_takes_its_locks_along_and_bounds_are_kept() {
    let table = NameLockTable::default();
    for (token, at) in [(1, "a"), (2, "a/b"), (3, "ab"), (4, "a/b/c")] {
        assert!(table.take(&lock(token, at, false, Exclusive, "alice"), NOW).expect("free"));
    }
    let mut below = table.below(&path("a"));
    below.sort();
    assert_eq!(below, [LockToken(1), LockToken(2), LockToken(4)]);
    below.into_iter().for_each(|token| table.drop_lock(token));
    assert!(table.covering(&path("a/b"), NOW).is_empty());
    assert!(table.find(LockToken(3), NOW).is_some());
    for token in 0..crate::limits::NAME_LOCKS_EACH_MAX as u128 - 1 {
        assert!(
            table
                .take(&lock(100 + token, &format!("x{token}"), false, Exclusive, "alice"), NOW)
                .expect("free")
        );
    }
    let further = lock(99, "y", false, Exclusive, "alice");
    assert_eq!(kind(table.take(&further, NOW)), Some(ErrorKind::Busy));
    assert!(table.take(&NameLock { holder: who("bob"), ..further }, NOW).expect("bob has none"));
}

#[test]
fn a_token_reads_back_as_it_is_written_and_nothing_else_is_one() {
    let token = LockToken::of_random(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
    let text = token.to_string();
    assert_eq!(text, "urn:uuid:01234567-89ab-4def-8123-456789abcdef");
    assert_eq!(LockToken::parse(&text), Some(token));
    for bad in [
        "",
        "urn:uuid:",
        "DAV:no-lock",
        "urn:uuid:01234567-89ab-4def-8123-456789abcdeg",
        "urn:uuid:01234567-89ab-4def-8123-456789abcde",
        "urn:uuid:+1234567-89ab-4def-8123-456789abcdef",
        "urn:uuid:01234567-89ab-4def-8123-456789abcdef-0",
    ] {
        assert_eq!(LockToken::parse(bad), None, "{bad}");
    }
}
