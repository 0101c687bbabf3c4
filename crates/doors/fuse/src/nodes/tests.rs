use std::time::Duration;

use weft_core::attr::Before;
use weft_core::form::{Change, ChangeKind, ChangeSeq};
use weft_core::{CallerId, SessionId, Tick, Time, VolumeId, limits};

use super::*;

/// A change that another made of a file.
pub(crate) fn change(kind: ChangeKind, file: u64) -> Change {
    let (file, caller, session) = (attr(file, 0, 0).id, CallerId(1), SessionId(1));
    Change { seq: ChangeSeq(1), kind, file, place: None, to: None, caller, session }
}

pub(crate) fn attr(serial: u64, change: u64, version: u128) -> Attr {
    Attr {
        id: FileId::new(VolumeId(0), serial, 0),
        kind: Kind::File,
        mode: 0o644,
        links: 1,
        owner: CallerId(1),
        group: CallerId(1),
        size: 0,
        used: 0,
        atime: Time::EPOCH,
        mtime: Time::EPOCH,
        ctime: Time::EPOCH,
        btime: Time::EPOCH,
        version: Version(version),
        change,
        container: ContainerId(0),
    }
}

/// Makes the table of a mount that the kernel was told nothing of yet.
pub(crate) fn nodes() -> Nodes {
    Nodes::new(&attr(1, 0, 0), &Arc::new(Remembered::new().expect("memory")))
}

fn write(before: &Attr, after: &Attr) -> Wcc {
    Wcc { before: Some(Before::from(before)), after: Some(*after) }
}

#[test]
fn a_node_goes_when_every_lookup_is_forgotten_and_its_number_never_comes_again() {
    let nodes = nodes();
    let (first, _) = nodes.found(&attr(2, 0, 0));
    assert_eq!(nodes.found(&attr(2, 0, 0)).0, first);
    nodes.forget(first, 1);
    assert!(nodes.file(first).is_ok());
    nodes.forget(first, 1);
    assert_eq!(nodes.file(first), Err(Errno::STALE));
    assert_ne!(nodes.found(&attr(2, 0, 0)).0, first);
    nodes.forget(ROOT_NODE, u64::MAX);
    assert!(nodes.file(ROOT_NODE).is_ok());
}

/// Has the kernel drop all pages of a node.
fn drop_all(nodes: &Nodes, node: u64) {
    nodes.dropped(node, nodes.stale_up_to(node));
}

#[test]
fn own_writes_keep_pages_and_a_foreign_one_between_drops_them() {
    let nodes = nodes();
    let (node, _) = nodes.found(&attr(2, 5, 50));
    assert!(!nodes.opened(node, &attr(2, 5, 50)).pages, "the first open knows of no pages");
    assert!(!nodes.changed(node, &write(&attr(2, 5, 50), &attr(2, 6, 60)), || false));
    let kept = Kept { pages: true, stale: false, going: None, attributes: true };
    assert_eq!(nodes.opened(node, &attr(2, 6, 60)), kept);
    // Somebody else wrote between: 7 was never seen here.
    assert!(nodes.changed(node, &write(&attr(2, 7, 70), &attr(2, 8, 80)), || false));
    // And between that and the next open.
    let kept = Kept { pages: false, stale: true, going: Some(1), attributes: false };
    assert_eq!(nodes.opened(node, &attr(2, 9, 90)), kept);
}

#[test]
fn own_writes_that_are_answered_in_any_order_keep_pages_until_one_is_missing() {
    let nodes = nodes();
    let (node, _) = nodes.found(&attr(2, 0, 0));
    nodes.opened(node, &attr(2, 0, 0));
    let state = |change| attr(2, change, u128::from(change) * 10);
    let wrote =
        |found, left, more_come| nodes.changed(node, &write(&state(found), &state(left)), || more_come);
    let keeps = |change| nodes.opened(node, &state(change)).pages;
    for (found, more_come) in [(2, true), (0, true), (3, true), (1, false)] {
        assert!(!wrote(found, found + 1, more_come));
    }
    assert!(keeps(4), "four of ours, and nobody else's");
    // Of a share: both were looked at before, and after, either was made.
    assert!(!wrote(4, 5, true) && !wrote(4, 6, false) && keeps(6));
    // What others were told meanwhile has taken the pages along.
    assert!(!wrote(7, 8, true));
    assert_eq!(nodes.told(node, &state(8)), Told::Stale);
    drop_all(&nodes, node);
    assert!(!wrote(6, 7, false) && keeps(8));
    // One that says that it found what was before that may have come after somebody else's.
    assert!(wrote(7, 9, false));
    drop_all(&nodes, node);
    // One that failed says nothing; or there was none, and somebody else wrote.
    assert!(!wrote(9, 10, true));
    assert!(wrote(11, 12, false), "10 to 11 is missing");
    drop_all(&nodes, node);
    assert!(keeps(12));
    assert!((0..1000).any(|more| wrote(20 + more, 21 + more, true)), "not for ever while more come");
}

#[test]
fn attributes_of_another_version_say_that_pages_must_go_once() {
    let nodes = nodes();
    let (node, _) = nodes.found(&attr(2, 1, 10));
    nodes.opened(node, &attr(2, 1, 10));
    assert_eq!(nodes.told(node, &attr(2, 2, 10)), Told::Shown, "a changed mode is no change of bytes");
    assert_eq!(nodes.told(node, &attr(2, 3, 30)), Told::Stale);
    assert_eq!(nodes.told(node, &attr(2, 3, 30)), Told::Going(1), "whoever comes meanwhile waits");
    assert_eq!(nodes.told(node, &attr(2, 1, 10)), Told::Going(1), "an answer that was overtaken, too");
    drop_all(&nodes, node);
    assert_eq!(nodes.told(node, &attr(2, 3, 30)), Told::Shown);
    assert_eq!(nodes.told(node, &attr(2, 1, 10)), Told::Shown, "an answer that was overtaken");
}

#[test]
fn another_version_of_one_state_and_length_has_nothing_go_before_it_is_told_but_an_open_does() {
    let nodes = nodes();
    let (node, _) = nodes.found(&attr(2, 1, 10));
    nodes.opened(node, &attr(2, 1, 10));
    assert_eq!(nodes.told(node, &attr(2, 1, 11)), Told::Shown);
    let longer = Attr { size: 1, ..attr(2, 1, 12) };
    assert_eq!(nodes.told(node, &longer), Told::Stale, "zeros would be shown for what it is longer by");
    drop_all(&nodes, node);
    assert!(nodes.opened(node, &Attr { version: Version(13), ..longer }).stale);
}

#[test]
fn an_open_keeps_no_pages_while_they_are_being_dropped() {
    let nodes = nodes();
    let (node, _) = nodes.found(&attr(2, 1, 10));
    nodes.opened(node, &attr(2, 1, 10));
    let keeps = || match nodes.opened(node, &attr(2, 2, 20)) {
        Kept { pages, stale: false, going, .. } if pages == going.is_none() => pages,
        kept => panic!("{kept:?}"),
    };
    // One open finds another version and drops; a second comes before that is done.
    assert!(nodes.opened(node, &attr(2, 2, 20)).stale);
    assert!(!keeps());
    drop_all(&nodes, node);
    assert!(keeps());
    // The same while a look, or a write after somebody else's, drops them.
    assert_eq!(nodes.told(node, &attr(2, 3, 30)), Told::Stale);
    let begun = nodes.stale_up_to(node);
    assert!(nodes.changed(node, &write(&attr(2, 4, 40), &attr(2, 5, 50)), || false));
    nodes.dropped(node, begun);
    assert!(!nodes.opened(node, &attr(2, 5, 50)).pages, "one of two is under way still");
    drop_all(&nodes, node);
    assert!(nodes.opened(node, &attr(2, 5, 50)).pages);
}

#[test]
fn a_drop_of_all_pages_makes_up_for_those_before_it_and_one_of_some_for_itself_alone() {
    let nodes = nodes();
    let (node, _) = nodes.found(&attr(2, 1, 10));
    nodes.opened(node, &attr(2, 1, 10));
    let keeps = || nodes.opened(node, &attr(2, 1, 10)).pages;
    let [first, second] = [nodes.becomes_stale(node), nodes.becomes_stale(node)];
    nodes.dropped_some(node, second);
    assert!(!keeps(), "older ones are there still");
    nodes.dropped_some(node, first);
    assert!(!keeps(), "nobody knows that the second has");
    drop_all(&nodes, node);
    assert!(keeps());
    nodes.dropped_some(node, nodes.becomes_stale(node));
    assert!(keeps());
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_pages_to_go_waits_for_those_that_were_old_by_then() {
    let nodes = nodes();
    let (node, _) = nodes.found(&attr(2, 1, 10));
    let time = nodes.becomes_stale(node);
    let waits = || tokio::time::timeout(Duration::from_secs(1), nodes.wait_until_gone(node, time));
    assert!(waits().await.is_err());
    let (begun, _) = (nodes.stale_up_to(node), nodes.becomes_stale(node));
    let (waited, ()) = tokio::join!(waits(), async { nodes.dropped(node, begun) });
    assert!(waited.is_ok() && waits().await.is_ok());
    nodes.forget(node, u64::MAX);
    assert!(waits().await.is_ok(), "nothing is there any more");
}

/// Returns whether a node moves while something is done.
fn moved<T>(moves: &Moves, act: impl FnOnce() -> T) -> bool {
    let before = moves.so_far();
    act();
    moves.so_far() != before
}

#[test]
fn every_state_that_the_kernel_is_told_of_moves_what_was_read_before_it() {
    let nodes = nodes();
    let (node, _) = nodes.found(&attr(2, 5, 50));
    let moves = nodes.moves(node);
    assert!(!moved(&moves, || nodes.told(node, &attr(2, 5, 50))), "it knew that");
    assert!(moved(&moves, || nodes.told(node, &attr(2, 6, 60))));
    assert!(!moved(&moves, || nodes.told(node, &attr(2, 5, 50))), "an answer that was overtaken");
    assert!(moved(&moves, || nodes.found(&attr(2, 7, 70))));
    assert!(moved(&moves, || nodes.opened(node, &attr(2, 8, 80))));
    let silent = Wcc { before: None, after: None };
    assert!(moved(&moves, || nodes.changed(node, &silent, || false)), "a change that says nothing");
    assert!(moved(&moves, || nodes.moved(node)));
}

const NOW: Tick = Tick(1 << 40);

#[test]
fn a_listing_is_shown_again_for_a_while_till_it_or_all_became_old_or_the_directory_changed() {
    let nodes = nodes();
    let (directory, _) = nodes.found(&attr(2, 5, 50));
    let (other, _) = nodes.found(&attr(3, 5, 50));
    let list = || nodes.note_listing(nodes.ask_to_list(directory, NOW), &attr(2, 5, 50));
    let is_kept = || nodes.noted_listing(directory, NOW).is_some();
    assert!(!is_kept(), "it was never listed");
    list();
    assert_eq!(nodes.noted_listing(directory, NOW), Some(attr(2, 5, 50)));
    assert_eq!(nodes.noted_listing(other, NOW), None);
    let late = NOW.plus(limits::MOUNT_LISTING_KEPT + Duration::from_nanos(1));
    assert_eq!((nodes.noted_listing(directory, late), is_kept()), (None, false));
    list();
    nodes.listing_is_old(other);
    nodes.told(directory, &attr(2, 5, 50));
    assert!(is_kept(), "that was known");
    let told = || assert_eq!(nodes.told(directory, &attr(2, 6, 50)), Told::Shown, "it has no pages");
    let drops: [&dyn Fn(); 3] = [&|| nodes.listing_is_old(directory), &|| nodes.listings_are_old(), &told];
    for (number, come) in drops.into_iter().enumerate() {
        list();
        let asked = nodes.ask_to_list(directory, NOW);
        come();
        assert!(!is_kept(), "{number}");
        nodes.note_listing(asked, &attr(2, 5, 50));
        assert!(!is_kept(), "{number}: between the question and its answer");
        list();
        nodes.keeps_answer(nodes.ask_to_list(directory, NOW));
        assert!(is_kept(), "{number}: nothing came between");
        nodes.keeps_answer(asked);
        assert!(!is_kept(), "{number}: an answer that was overtaken is kept with newer ones");
    }
}

#[test]
fn a_directory_counts_as_open_as_often_as_it_was_opened_and_where_it_is_listed_at_all() {
    let nodes = nodes();
    let own = Attr { kind: Kind::Directory, ..attr(2, 5, 50) };
    let (directory, _) = nodes.found(&own);
    nodes.found(&Attr { kind: Kind::Fifo, ..attr(3, 5, 50) });
    (0..2).for_each(|_| nodes.opened_directory(directory, &own));
    nodes.lists_directory(directory, &own);
    nodes.closed_directory(directory);
    assert_eq!((nodes.open_directories(), nodes.is_open_directory(directory)), (vec![directory], true));
    nodes.closed_directory(directory);
    assert_eq!((nodes.open_directories(), nodes.is_open_directory(directory)), (vec![], false));
    nodes.lists_directory(directory, &own);
    assert_eq!(nodes.open_directories(), [directory], "the process before this one opened it");
    nodes.closed_directory(directory);
    assert!(nodes.open_directories().is_empty());
}
