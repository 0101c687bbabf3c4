//! What may be sealed, and what a change in the middle of it does.

use weft_core::limits::SEAL_BLOCK_BYTES as BLOCK;
use weft_sys::{Disk, Open, SimDisk};

use super::*;

const NOW: Tick = Tick(0);

fn live() -> Live {
    live_that(Was::MadeNow)
}

fn live_that(was: Was) -> Live {
    let row = ObjectRow {
        container: ContainerId(1),
        file: FileNumber(0),
        size: 0,
        unverified: 0,
        writes: 0,
        boot: 0,
    };
    let file = SimDisk::new().open("a", Open::Make).expect("a file can be made");
    Live::new(ObjectId(1), &row, file, was, NOW)
}

fn write(state: &mut State, at: u64, length: u64) {
    let begun = state.begin_write(at, length);
    state.end_write(begun, true, &[], NOW);
}

fn hashed(n: u8) -> Seal {
    Seal::of(&[n; 10])
}

#[test]
fn a_seal_of_bytes_that_changed_meanwhile_does_not_count() {
    let live = live();
    let mut state = live.state();
    write(&mut state, 0, 10);
    let todo = state.changed(0);
    write(&mut state, 5, 1);
    state.take_seal(&todo[0], hashed(1), None);
    assert!(state.close_for_record().is_none(), "it was hashed before the second write");
    let todo = state.changed(0);
    state.take_seal(&todo[0], hashed(2), None);
    let record = state.close_for_record().expect("now it counts");
    assert_eq!(record.fresh.get(&0), Some(&hashed(2)));
}

#[test]
fn a_block_under_a_write_is_not_hashed_and_keeps_the_object_open() {
    let live = live();
    let mut state = live.state();
    let begun = state.begin_write(0, 10);
    assert!(state.changed(0).is_empty());
    assert!(state.close_for_record().is_none());
    state.end_write(begun, true, &[], NOW);
    assert_eq!(state.changed(0).len(), 1);
}

#[test]
fn growing_past_the_end_changes_the_block_it_was_in() {
    let live = live();
    let mut state = live.state();
    write(&mut state, 0, 10);
    let todo = state.changed(0);
    state.take_seal(&todo[0], hashed(1), None);
    write(&mut state, 2 * BLOCK, 10);
    let blocks: Vec<_> = state.changed(0).iter().map(|todo| (todo.block, todo.length)).collect();
    assert_eq!(blocks, [(0, BLOCK), (2, 10)]);
    assert_eq!(state.known(1).0, Known::Sealed { seal: Seal::Hole, checked: false });
}

#[test]
fn while_the_record_is_on_its_way_nobody_writes_and_a_failed_one_is_made_again() {
    let live = live();
    let mut state = live.state();
    write(&mut state, 0, 10);
    let todo = state.changed(0);
    state.take_seal(&todo[0], hashed(1), None);
    let record = state.close_for_record().expect("everything is sealed");
    assert_eq!(state.phase, Phase::Sealing);
    state.end_record(None);
    assert_eq!(state.phase, Phase::Writing);
    let again = state.close_for_record().expect("everything is still sealed");
    assert_eq!(again.fresh, record.fresh);
    state.end_record(Some(0));
    assert_eq!(state.phase, Phase::Sealed);
}

#[test]
fn losses_end_when_every_lost_byte_is_written_again_or_cut_off() {
    let live = live();
    let mut state = live.state();
    write(&mut state, 0, 100);
    state.lose();
    write(&mut state, 20, 60);
    write(&mut state, 0, 20);
    assert!(state.has_losses());
    state.begin_void(80, 100);
    assert!(!state.has_losses());
}

#[test]
fn a_write_under_way_while_a_flush_fails_counts_as_lost() {
    let live = live();
    let mut state = live.state();
    let begun = state.begin_write(0, 100);
    state.lose();
    state.end_write(begun, true, &[], NOW);
    assert!(state.has_losses(), "it lies beyond what was the end");
    write(&mut state, 0, 100);
    assert!(!state.has_losses());
    let begun = state.begin_write(0, 50);
    state.lose();
    state.end_write(begun, true, &[], NOW);
    write(&mut state, 50, 50);
    assert!(state.has_losses(), "what was begun before is not what was written anew");
    write(&mut state, 0, 50);
    assert!(!state.has_losses());
}

#[test]
fn what_was_open_at_the_stop_is_unsure_until_looked_at() {
    let live = live_that(Was::Writing { size: 2 * BLOCK });
    let mut state = live.state();
    assert_eq!(state.known(0).0, Known::Unsealed);
    assert!(state.close_for_record().is_none());
    let (todo, end) = state.unsure_from(0).expect("two blocks");
    assert_eq!((todo.len(), end), (2, 2));
    state.take_seal(&todo[0], hashed(1), Some(hashed(1)));
    state.take_seal(&todo[1], hashed(2), Some(Seal::Hole));
    state.settle_unsure(end);
    let record = state.close_for_record().expect("all was looked at");
    assert!(!record.fresh[&0].is_unverified() && record.fresh[&1].is_unverified());
}

#[test]
fn a_seal_in_passing_does_not_count_if_somebody_wrote_there_meanwhile() {
    let live = live();
    let mut state = live.state();
    let passed = [(0, Some(hashed(1)))];
    let long = state.begin_write(0, 10);
    write(&mut state, 3, 1);
    state.end_write(long, true, &passed, NOW);
    assert_eq!(state.changed(0)[0].passed, None, "the other wrote while it did");
    let alone = state.begin_write(0, 10);
    let left = state.end_write(alone, true, &passed, NOW);
    assert_eq!(state.changed(0)[0].passed, Some(hashed(1)));
    assert_eq!(state.begin_write(10, 10).before, Some(left), "it goes on where it was");
}

#[test]
fn what_is_voided_again_and_again_is_kept_once() {
    let live = live();
    let mut state = live.state();
    write(&mut state, 0, 100 * BLOCK);
    state.voided = Voided::default();
    for _ in 0..100 {
        for block in (0..90).rev().step_by(3) {
            state.begin_void(block * BLOCK, (block + 1) * BLOCK);
        }
    }
    assert_eq!(state.voided.ranges().count(), 30);
    state.begin_void(2 * BLOCK, 50 * BLOCK);
    state.begin_void(50 * BLOCK, 51 * BLOCK);
    let ranges: Vec<_> = state.voided.ranges().collect();
    assert_eq!(ranges[0], 2..51, "what touches is one");
    assert_eq!(ranges.len(), 1 + 13);
    assert!(state.voided.contains(2) && state.voided.contains(50) && !state.voided.contains(51));
}

#[test]
fn a_hole_that_was_unsure_leaves_no_entry_for_each_of_its_blocks() {
    let blocks = 1 << 40;
    let live = live_that(Was::Writing { size: blocks * BLOCK });
    let mut state = live.state();
    let (todo, end) = state.unsure_from(blocks - 2).expect("two blocks are left");
    assert_eq!((todo[0].block, end), (blocks - 2, blocks));
    assert_eq!(state.known(7).0, Known::Sealed { seal: Seal::Hole, checked: false });
    assert!(state.fresh.is_empty() && state.checked.is_empty());
    assert!(state.unsure_from(u64::MAX).is_none() && state.first_unsure().is_none());
}
