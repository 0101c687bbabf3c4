//! Random locking compared with a byte-by-byte table.

use bytes::Bytes;
use weft_core::VolumeId;
use weft_core::form::LockRange;

use super::*;

const FILE: FileId = FileId::ROOT;
const BYTES: u64 = 24;

fn lock(owner: u8, kind: LockKind, at: u64, length: u64) -> Lock {
    Lock {
        scope: LockScope::Range(LockRange { at, length }),
        kind,
        owner: LockOwner(Bytes::from(vec![owner])),
    }
}

/// What each of three owners has of each byte, the last byte standing for all after it.
type Table = [[Option<LockKind>; BYTES as usize]; 3];

fn clashes(table: &Table, owner: usize, kind: LockKind, range: std::ops::Range<u64>) -> bool {
    (0..3).filter(|other| *other != owner).any(|other| {
        range.clone().any(|byte| {
            table[other][byte as usize]
                .is_some_and(|held| held == LockKind::Exclusive || kind == LockKind::Exclusive)
        })
    })
}

#[test]
fn ranges_split_and_merge_as_a_table_of_bytes_would() {
    let mut dice = 5_u64;
    let mut roll = |sides: u64| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (dice >> 33) % sides
    };
    let locks = Locks::default();
    let mut table: Table = [[None; BYTES as usize]; 3];
    for step in 0..20_000 {
        let owner = roll(3);
        let kind = if roll(2) == 0 { LockKind::Shared } else { LockKind::Exclusive };
        let at = roll(BYTES);
        let (length, end) = match roll(BYTES - at + 1) {
            0 => (0, BYTES),
            length => (length, at + length),
        };
        // Only ranges to the very end reach the last byte, as the last stands for all after it.
        let (length, end) = if length > 0 && end == BYTES { (0, BYTES) } else { (length, end) };
        let wanted = lock(owner as u8, kind, at, length);
        if roll(3) == 0 {
            locks.give_up(FILE, SessionId(1), &wanted).unwrap();
            table[owner as usize][at as usize..end as usize].fill(None);
        } else {
            let free = !clashes(&table, owner as usize, kind, at..end);
            let found = locks.test(FILE, SessionId(1), &wanted).unwrap();
            assert_eq!(found.is_none(), free, "step {step}");
            assert_eq!(locks.take(FILE, SessionId(1), &wanted, None).unwrap(), free, "step {step}");
            if free {
                table[owner as usize][at as usize..end as usize].fill(Some(kind));
            }
        }
        let state = locks.lock();
        for (holder, held) in state.files.get(&FILE).into_iter().flatten() {
            let runs: Vec<_> = held.each().collect();
            for pair in runs.windows(2) {
                let [(LockScope::Range(one), kind), (LockScope::Range(next), other)] = pair else {
                    panic!("no whole locks were taken")
                };
                let apart = one.end() < next.at || (one.end() == next.at && kind != other);
                assert!(apart, "apart, or of another kind");
            }
            assert_eq!(holder.session, SessionId(1));
        }
    }
}

#[test]
fn whole_locks_and_ranges_do_not_see_each_other() {
    let locks = Locks::default();
    let whole = Lock { scope: LockScope::Whole, ..lock(1, LockKind::Exclusive, 0, 0) };
    assert!(locks.take(FILE, SessionId(1), &whole, None).unwrap());
    assert!(locks.take(FILE, SessionId(2), &lock(2, LockKind::Exclusive, 0, 0), None).unwrap());
    assert!(!locks.take(FILE, SessionId(2), &whole, None).unwrap());
}

#[test]
fn waiting_in_a_circle_is_a_deadlock_and_ends_when_one_gives_up_waiting() {
    let locks = Locks::default();
    let other = FileId::new(VolumeId(0), 9, 0);
    let (a, b) = (lock(1, LockKind::Exclusive, 0, 1), lock(2, LockKind::Exclusive, 0, 1));
    assert!(locks.take(FILE, SessionId(1), &a, None).unwrap());
    assert!(locks.take(other, SessionId(1), &b, None).unwrap());
    let waits = locks.waiter();
    assert!(!locks.take(other, SessionId(1), &a, Some(&waits)).unwrap());
    let second = locks.waiter();
    let closed = locks.take(FILE, SessionId(1), &b, Some(&second));
    assert_eq!(closed.map_err(|e| e.kind()), Err(ErrorKind::Deadlock));
    drop(waits);
    assert!(!locks.take(FILE, SessionId(1), &b, Some(&second)).unwrap());
}

#[test]
fn a_session_has_a_bounded_number_of_locks_over_all_files_and_gets_back_what_it_gives_up() {
    let locks = Locks::default();
    let (one, other) = (SessionId(1), SessionId(2));
    let file = |n: usize| FileId::new(VolumeId(0), n as u64 / 64 + 1, 0);
    // Ranges that do not touch, 64 of each file.
    let range = |n: usize| lock(1, LockKind::Exclusive, n as u64 % 64 * 10, 5);
    let take = |n: usize, session| locks.take(file(n), session, &range(n), None).map_err(|e| e.kind());
    for n in 0..limits::LOCKS_PER_SESSION_MAX {
        assert_eq!(take(n, one), Ok(true), "{n}");
    }
    let next = limits::LOCKS_PER_SESSION_MAX;
    assert_eq!(take(next, one), Err(ErrorKind::Busy));
    assert_eq!(take(next - 1, one), Ok(true), "what it has it may take again");
    assert_eq!(take(next, other), Ok(true), "another session is another matter");
    locks.give_up(file(next), other, &range(next)).unwrap();
    locks.give_up(file(3), one, &range(3)).unwrap();
    assert_eq!(take(next, one), Ok(true));
    assert_eq!(take(3, one), Err(ErrorKind::Busy));
    // A file that is gone takes its locks along.
    locks.forget(file(64));
    for n in 0..64 {
        assert_eq!(take(next + 64 + n, one), Ok(true), "{n}");
    }
    assert_eq!(take(3, one), Err(ErrorKind::Busy));
    locks.end_session(one);
    assert_eq!(take(3, one), Ok(true));
    locks.end_session(one);
    assert!(locks.lock().counts.is_empty() && locks.count() == 0);
}
