//! What a process that is killed at any store leaves to the next one. Each test makes changes whose answers are given one after
//! the other, stops all stores after each number of them in turn, and looks at what the next process finds: what was answered,
//! and nothing that never was.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use rustix::io::Errno;
use weft_conformance::file_system::site::Dice;
use weft_core::attr::Attr;
use weft_core::{ContainerId, VolumeId};

use super::*;
use crate::abi::ROOT_NODE;
use crate::nodes::Nodes;

fn file(serial: u64) -> FileId {
    FileId::new(VolumeId(3), serial, 7)
}

fn attr(serial: u64) -> Attr {
    let id = file(serial);
    Attr { id, container: ContainerId::new(id.volume(), 1), ..crate::nodes::tests::attr(serial, 1, 1) }
}

fn fresh() -> Arc<Remembered> {
    Arc::new(Remembered::new().expect("memory"))
}

/// Returns what the next process finds.
pub(crate) fn next(remembered: &Remembered) -> Arc<Remembered> {
    let file = remembered.descriptor().try_clone_to_owned().expect("a descriptor");
    Arc::new(Remembered::of(file).expect("all of it is there"))
}

/// Does the same with fewer stores each time, until none is lacking; `act` is told when the process is dead.
pub(crate) fn killed_at_every_store(act: impl Fn(&Arc<Remembered>, &dyn Fn() -> bool)) {
    for stores in 0.. {
        let remembered = fresh();
        remembered.set(Head::Stands, 1);
        remembered.stores_left.store(stores, Ordering::Relaxed);
        let is_dead = || remembered.killed.load(Ordering::Relaxed);
        act(&remembered, &is_dead);
        if !is_dead() {
            return;
        }
        assert!(stores < 100_000, "it ends");
    }
}

#[test]
fn of_a_process_killed_at_any_store_every_node_that_was_answered_is_found_with_all_its_lookups() {
    killed_at_every_store(|remembered, is_dead| {
        let nodes = Nodes::new(&attr(1), remembered);
        let mut dice = Dice::new(11);
        let mut answered: HashMap<u64, (FileId, u64)> = HashMap::new();
        for _ in 0..60 {
            if dice.roll(3) > 0 {
                let attr = attr(2 + dice.roll(8));
                let (node, _) = nodes.found(&attr);
                if !is_dead() {
                    answered.entry(node).or_insert((attr.id, 0)).1 += 1;
                }
            } else if let Some(node) = answered.keys().copied().min_by_key(|node| node * 7 % 5) {
                let all = answered[&node].1;
                let some = if dice.roll(2) == 0 { all } else { all.min(1) };
                // The kernel has forgotten them, whether that was noted or not.
                let (file, left) = (answered[&node].0, all - some);
                answered.remove(&node);
                if left > 0 {
                    answered.insert(node, (file, left));
                }
                nodes.forget(node, some);
            }
        }
        let found = Nodes::new(&attr(1), &next(remembered));
        for (node, (file, lookups)) in &answered {
            assert_eq!(found.file(*node), Ok(*file));
            found.forget(*node, lookups - 1);
            assert_eq!(found.file(*node), Ok(*file), "{lookups} lookups are known");
        }
        let (number, _) = found.found(&attr(99));
        assert!(number > ROOT_NODE && answered.keys().all(|known| *known < number), "no number comes again");
    });
}

#[test]
fn a_node_that_is_forgotten_is_not_found_and_its_place_is_used_again() {
    let remembered = fresh();
    remembered.set(Head::Stands, 1);
    let nodes = Nodes::new(&attr(1), &remembered);
    for serial in 2..100 {
        let (node, _) = nodes.found(&attr(serial));
        nodes.forget(node, 1);
        assert_eq!(nodes.file(node), Err(Errno::STALE));
    }
    assert_eq!(remembered.head(Head::NodesUsed), 1);
    assert_eq!(next(&remembered).each(Part::Nodes).count(), 0);
}

#[test]
fn papers_are_those_before_or_those_after_at_every_store() {
    let texts = [b"short".to_vec(), vec![7; 5000], Vec::new(), vec![9; 77]];
    killed_at_every_store(|remembered, is_dead| {
        let mut known = Vec::new();
        let mut tried = Vec::new();
        for text in &texts {
            tried = text.clone();
            remembered.keep_papers(text).expect("there is room");
            if is_dead() {
                break;
            }
            known = text.clone();
        }
        let found = next(remembered).papers();
        assert!(found == known || found == tried, "{} bytes", found.len());
    });
    let most = vec![1; limits::MOUNT_PAPERS_BYTES_MAX + 1];
    assert_eq!(fresh().keep_papers(&most).expect_err("too many").kind(), ErrorKind::TooLarge);
}

#[test]
fn an_open_file_is_of_one_life_and_number_at_every_store() {
    let both = [1, 2].map(|life| OpenedAs { life, number: 10 * life });
    killed_at_every_store(|remembered, is_dead| {
        let kept = remembered.keep_open(file(5), Rights::READ, both[0]).expect("room");
        let handle = [1, 9, 0, kept, 0, 0, 0, 0];
        remembered.keep(Part::Handles, handle).expect("room");
        let was_open = !is_dead();
        remembered.keep_opened(kept, both[1]);
        let again = !is_dead();
        let found = next(remembered).opens();
        assert!(found.len() == 1 || !was_open && found.is_empty(), "{found:?}");
        for (number, id, rights, opened_as) in found {
            assert_eq!((number, id, rights), (kept, file(5), Rights::READ));
            assert!(opened_as == both[1] || !again && opened_as == both[0], "{opened_as:?}");
        }
    });
}

#[test]
fn what_was_opened_and_never_given_to_the_kernel_is_forgotten() {
    let remembered = fresh();
    remembered.set(Head::Stands, 1);
    let opened_as = OpenedAs { life: 1, number: 4 };
    remembered.keep_open(file(5), Rights::READ, opened_as).expect("room");
    let next = next(&remembered);
    assert!(next.opens().is_empty());
    assert_eq!(next.keep_open(file(6), Rights::READ, opened_as), Some(1), "its place is free");
}

#[test]
fn what_lacks_something_or_never_stood_is_not_taken_up() {
    let remembered = fresh();
    let of = |remembered: &Remembered| {
        let file = remembered.descriptor().try_clone_to_owned().expect("a descriptor");
        Remembered::of(file).map(|_| ()).map_err(|error| error.kind())
    };
    assert_eq!(of(&remembered), Err(ErrorKind::Unavailable), "no mount stood");
    remembered.set(Head::Stands, 1);
    assert_eq!(of(&remembered), Ok(()));
    for place in 0..limits::MOUNT_LOCKS_REMEMBERED as u64 {
        assert!(remembered.keep(Part::Locks, [1, place, 0, 0, 0, 0, 0, 0]).is_some());
    }
    assert_eq!(of(&remembered), Ok(()));
    assert_eq!(remembered.keep(Part::Locks, [1; 8]), None);
    assert_eq!(of(&remembered), Err(ErrorKind::Unavailable), "one lock is not known");
    let other = SharedWords::new(Part::Locks.end()).expect("memory");
    other[Head::Layout as usize].store(LAYOUT + 1, Ordering::Relaxed);
    let file = other.descriptor().try_clone_to_owned().expect("a descriptor");
    assert!(Remembered::of(file).is_err(), "of another layout");
}
