//! Laws of locks: ranges that split and merge, who waits, and what ends them.

use std::time::Duration;

use bytes::Bytes;
use weft_core::form::{Lock, LockKind, LockOwner, LockRange, LockScope, Wait};
use weft_core::{Deadline, ErrorKind, Rights, SessionId};

use super::Subject;
use super::site::*;

fn lock_of(owner: &str, scope: LockScope, kind: LockKind) -> Lock {
    Lock { scope, kind, owner: LockOwner(Bytes::copy_from_slice(owner.as_bytes())) }
}

fn range(at: u64, length: u64) -> LockScope {
    LockScope::Range(LockRange { at, length })
}

/// Bytes that the byte map looks at; the last stands for all the rest.
const BYTES: usize = 24;

/// The lock of each byte, by holder: what ranges must add up to.
#[derive(Default)]
struct ByteMap([[Option<LockKind>; HOLDERS]; BYTES]);

const HOLDERS: usize = 4;

impl ByteMap {
    fn covered(scope: LockScope) -> impl Iterator<Item = usize> {
        let LockScope::Range(range) = scope else { panic!("the byte map knows ranges") };
        let last = BYTES as u64 - 1;
        (0..BYTES).filter(move |byte| {
            let byte = *byte as u64;
            if byte == last { range.end() > last } else { (range.at..range.end()).contains(&byte) }
        })
    }

    fn in_the_way(&self, holder: usize, lock: &Lock) -> bool {
        Self::covered(lock.scope).any(|byte| {
            self.0[byte].iter().enumerate().any(|(other, held)| {
                other != holder
                    && held.is_some_and(|k| k == LockKind::Exclusive || lock.kind == LockKind::Exclusive)
            })
        })
    }

    fn set(&mut self, holder: usize, scope: LockScope, kind: Option<LockKind>) {
        for byte in Self::covered(scope) {
            self.0[byte][holder] = kind;
        }
    }

    /// Checks a lock that `test` told of: held so, byte for byte, and no further.
    fn check_told(&self, told: &Lock) {
        let holder = told.owner.0[0] as usize - usize::from(b'0');
        let covered: Vec<usize> = Self::covered(told.scope).collect();
        assert!(!covered.is_empty());
        for byte in &covered {
            assert_eq!(self.0[*byte][holder], Some(told.kind), "{told:?} is not held at {byte}");
        }
        let beside = [covered[0].checked_sub(1), covered.last().map(|byte| byte + 1)];
        for byte in beside.into_iter().flatten().filter(|byte| *byte < BYTES) {
            assert_ne!(self.0[byte][holder], Some(told.kind), "{told:?} should have merged with {byte}");
        }
    }
}

/// Random locks, unlocks and tests by four holders agree with a map of single bytes.
pub async fn ranges_split_and_merge_like_a_map_of_bytes(subject: &dyn Subject) {
    let site = Site::of(subject);
    if !site.supports().locks {
        return site.unsupported("locks");
    }
    for seed in 0..30 {
        let path = format!("f{seed}");
        site.file(&path, b"").await;
        let (mut dice, mut map) = (Dice::new(seed), ByteMap::default());
        for step in 0..150 {
            let holder = dice.roll(HOLDERS as u64) as usize;
            // Two sessions of two owners each; the owner's name tells the holder.
            let call = site.call_of(&site.admin, 1 + holder as u128 / 2);
            let at_byte = dice.roll(BYTES as u64);
            let length = 1 + dice.roll(8);
            // What reaches the last byte reaches all the rest that it stands for.
            let to_the_end = dice.roll(6) == 0 || at_byte + length >= BYTES as u64;
            let length = if to_the_end { 0 } else { length };
            let kind = *dice.pick(&[LockKind::Shared, LockKind::Exclusive]);
            let lock = lock_of(&holder.to_string(), range(at_byte, length), kind);
            let blocked = map.in_the_way(holder, &lock);
            let here = || format!("seed {seed} step {step}: {lock:?}");
            match dice.roll(5) {
                0 => {
                    site.fs.unlock(&call, &at(&path), &lock).await.works();
                    map.set(holder, lock.scope, None);
                }
                1 => match site.fs.test(&call, &at(&path), &lock).await.works() {
                    Some(told) => {
                        assert!(blocked, "{}", here());
                        map.check_told(&told);
                    }
                    None => assert!(!blocked, "{}", here()),
                },
                _ => match site.fs.lock(&call, &at(&path), &lock, Wait::No).await {
                    Ok(_) => {
                        assert!(!blocked, "{}", here());
                        map.set(holder, lock.scope, Some(kind));
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Locked, "{}", here());
                        assert!(blocked, "{}", here());
                    }
                },
            }
        }
    }
}

/// Whole-file locks and range locks do not see each other.
pub async fn whole_and_range_locks_do_not_see_each_other(subject: &dyn Subject) {
    let site = Site::of(subject);
    if !site.supports().locks {
        return site.unsupported("locks");
    }
    site.file("f", b"").await;
    let (one, two) = (site.call_of(&site.admin, 1), site.call_of(&site.admin, 2));
    let whole = lock_of("o", LockScope::Whole, LockKind::Exclusive);
    let part = lock_of("o", range(0, 0), LockKind::Exclusive);
    site.fs.lock(&one, &at("f"), &whole, Wait::No).await.works();
    site.fs.lock(&two, &at("f"), &part, Wait::No).await.works();
    assert_eq!(site.fs.lock(&two, &at("f"), &whole, Wait::No).await.map(|_| ()).fails(), ErrorKind::Locked);
    assert_eq!(site.fs.lock(&one, &at("f"), &part, Wait::No).await.map(|_| ()).fails(), ErrorKind::Locked);
    assert_eq!(site.fs.test(&one, &at("f"), &part).await.works(), Some(part.clone()));
    site.fs.unlock(&one, &at("f"), &whole).await.works();
    site.fs.lock(&two, &at("f"), &whole, Wait::No).await.works();
}

/// A holder's own locks are never in its way: it may change shared to exclusive.
pub async fn own_locks_are_never_in_the_way(subject: &dyn Subject) {
    let site = Site::of(subject);
    if !site.supports().locks {
        return site.unsupported("locks");
    }
    site.file("f", b"").await;
    let call = site.call();
    for scope in [LockScope::Whole, range(0, 10)] {
        for kind in [LockKind::Shared, LockKind::Exclusive, LockKind::Shared] {
            site.fs.lock(&call, &at("f"), &lock_of("o", scope, kind), Wait::No).await.works();
        }
        let other = lock_of("p", scope, LockKind::Shared);
        site.fs.lock(&call, &at("f"), &other, Wait::No).await.works();
        let up = site.fs.lock(&call, &at("f"), &lock_of("o", scope, LockKind::Exclusive), Wait::No).await;
        assert_eq!(up.map(|_| ()).fails(), ErrorKind::Locked);
    }
}

/// Locks die with their session, and with nobody else's.
pub async fn locks_die_with_their_session(subject: &dyn Subject) {
    let site = Site::of(subject);
    if !site.supports().locks {
        return site.unsupported("locks");
    }
    site.file("f", b"").await;
    let held = |at| lock_of("same owner", range(at, 1), LockKind::Exclusive);
    let call = |session| site.call_of(&site.admin, session);
    for (session, byte) in [(31, 0), (32, 1)] {
        site.fs.lock(&call(session), &at("f"), &held(byte), Wait::No).await.works();
    }
    subject.end_session(SessionId(31));
    site.fs.lock(&call(33), &at("f"), &held(0), Wait::No).await.works();
    let still = site.fs.lock(&call(33), &at("f"), &held(1), Wait::No).await.map(|_| ());
    assert_eq!(still.fails(), ErrorKind::Locked);
}

/// A lock stays with the file through a rename.
pub async fn a_lock_stays_with_its_file(subject: &dyn Subject) {
    let site = Site::of(subject);
    if !site.supports().locks {
        return site.unsupported("locks");
    }
    site.file("f", b"").await;
    let lock = lock_of("o", LockScope::Whole, LockKind::Exclusive);
    site.fs.lock(&site.call(), &at("f"), &lock, Wait::No).await.works();
    let any = weft_core::form::Replace::Any;
    site.fs.rename(&site.call(), &at("f"), &at("g"), any, &free()).await.works();
    let other = site.call_of(&site.admin, 2);
    assert_eq!(site.fs.lock(&other, &at("g"), &lock, Wait::No).await.map(|_| ()).fails(), ErrorKind::Locked);
}

fn wait(site: &Site<'_>, span: Duration) -> Wait {
    Wait::Until(Deadline::within(&**site.subject.domain().clock(), span))
}

/// Who waits gets the lock when it is given up.
pub async fn a_waiter_gets_the_lock_when_it_is_given_up(subject: &dyn Subject) {
    let site = Site::of(subject);
    if !site.supports().locks {
        return site.unsupported("locks");
    }
    site.file("f", b"").await;
    let lock = lock_of("o", range(0, 0), LockKind::Exclusive);
    site.fs.lock(&site.call(), &at("f"), &lock, Wait::No).await.works();
    let (fs, other, wanted) = (site.fs.clone(), site.call_of(&site.admin, 2), lock.clone());
    let until = wait(&site, Duration::from_secs(20));
    let waiter = tokio::spawn(async move { fs.lock(&other, &at("f"), &wanted, until).await.map(|_| ()) });
    let_it_begin().await;
    assert!(!waiter.is_finished(), "the lock is held");
    site.fs.unlock(&site.call(), &at("f"), &lock).await.works();
    soon(waiter).await.expect("the waiter ran").works();
    let mine = site.fs.lock(&site.call(), &at("f"), &lock, Wait::No).await.map(|_| ());
    assert_eq!(mine.fails(), ErrorKind::Locked);
}

/// A wait ends at its deadline with `Locked`, and leaves nothing behind.
pub async fn a_wait_ends_at_its_deadline(subject: &dyn Subject) {
    let site = Site::of(subject);
    if !site.supports().locks {
        return site.unsupported("locks");
    }
    site.file("f", b"").await;
    let lock = lock_of("o", range(0, 0), LockKind::Exclusive);
    site.fs.lock(&site.call(), &at("f"), &lock, Wait::No).await.works();
    let (fs, other, wanted) = (site.fs.clone(), site.call_of(&site.admin, 2), lock.clone());
    let until = wait(&site, Duration::from_millis(50));
    let waiter = tokio::spawn(async move { fs.lock(&other, &at("f"), &wanted, until).await.map(|_| ()) });
    let_it_begin().await;
    subject.pass(Duration::from_millis(60)).await;
    assert_eq!(soon(waiter).await.expect("the waiter ran").fails(), ErrorKind::Locked);
    site.fs.unlock(&site.call(), &at("f"), &lock).await.works();
    site.fs.lock(&site.call_of(&site.admin, 3), &at("f"), &lock, Wait::No).await.works();
}

/// Two who wait for each other, also across files, are told instead of waiting.
pub async fn a_circle_of_waiters_is_a_deadlock(subject: &dyn Subject) {
    let site = Site::of(subject);
    if !site.supports().locks {
        return site.unsupported("locks");
    }
    for path in ["a", "b", "c"] {
        site.file(path, b"").await;
    }
    let lock = lock_of("o", range(0, 1), LockKind::Exclusive);
    let held = ["a", "b", "c"];
    let call = |caller: usize| site.call_of(&site.admin, caller as u128 + 1);
    for (caller, path) in held.into_iter().enumerate() {
        site.fs.lock(&call(caller), &at(path), &lock, Wait::No).await.works();
    }
    // Each waits for the next; whoever comes last closes the circle, which is any of them.
    let until = wait(&site, Duration::from_secs(20));
    let mut waits = tokio::task::JoinSet::new();
    for caller in 0..held.len() {
        let (fs, call, lock) = (site.fs.clone(), call(caller), lock.clone());
        let wanted = at(held[(caller + 1) % held.len()]);
        waits.spawn(async move { (caller, fs.lock(&call, &wanted, &lock, until).await.map(|_| ())) });
    }
    let mut next = async || soon(waits.join_next()).await.expect("one still waits").expect("it ran");
    let (told, answer) = next().await;
    assert_eq!(answer.fails(), ErrorKind::Deadlock);
    let mut gives = told;
    for _ in 1..held.len() {
        site.fs.unlock(&call(gives), &at(held[gives]), &lock).await.works();
        let (caller, answer) = next().await;
        answer.works();
        assert_eq!((caller + 1) % held.len(), gives, "who waited for that one has it");
        gives = caller;
    }
}

/// Locks need `lock`; giving up what is not held is no error.
pub async fn locks_need_their_right(subject: &dyn Subject) {
    let site = Site::of(subject);
    if !site.supports().locks {
        return site.unsupported("locks");
    }
    let alice = site.user("alice");
    site.file("f", b"").await;
    site.allow("f", &alice, Rights::READ | Rights::WRITE).await;
    let lock = lock_of("o", LockScope::Whole, LockKind::Shared);
    let call = site.call_of(&alice, 2);
    assert_eq!(site.fs.lock(&call, &at("f"), &lock, Wait::No).await.map(|_| ()).fails(), ErrorKind::Denied);
    site.fs.unlock(&site.call(), &at("f"), &lock).await.works();
    let long = Lock { owner: LockOwner(vec![1; 1025].into()), ..lock };
    let answer = site.fs.lock(&site.call(), &at("f"), &long, Wait::No).await.map(|_| ());
    assert_eq!(answer.fails(), ErrorKind::TooLong);
}

/// Waits for what must come without delay; the law fails if it does not.
pub(super) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(10), future).await.expect("it comes at once")
}

/// Lets other tasks run until they wait.
pub(super) async fn let_it_begin() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(Duration::from_millis(2)).await;
}
