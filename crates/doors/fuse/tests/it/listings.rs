//! What the kernel keeps of a directory's listing is shown again without the node, and never when it is another by then.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use rustix::fs::Dir;
use rustix::io::Errno;
use weft_core::{Rights, limits};

use crate::asked_again::{counted, follow, follow_at};
use crate::bed::{Bed, can_mount, mounted};
use crate::faulty::Faulty;
use crate::raw::{SOON, until, until_within};
use crate::told::{get, set};

/// More names than an open brings along, and than one page has.
const MANY: usize = 300;

fn fill(directory: &Path) {
    fs::create_dir(directory).expect("made");
    (0..MANY).for_each(|n| drop(File::create(directory.join(format!("f{n}"))).expect("made")));
}

/// Returns the names in a directory, and that each is there once.
fn names(directory: &Path) -> BTreeSet<String> {
    of(Dir::new(File::open(directory).expect("opened")).expect("a directory"))
}

fn of(directory: impl Iterator<Item = Result<rustix::fs::DirEntry, Errno>>) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for entry in directory {
        let name = entry.expect("listed").file_name().to_str().expect("text").to_owned();
        assert!(names.insert(name.clone()), "{name} is there twice");
    }
    names
}

/// Lists a directory until that asks nobody, which shows that the kernel keeps it.
fn have_kept(directory: &Path, asked: &AtomicU64) {
    until("the feed is followed, and the listing is kept", || {
        names(directory);
        let before = asked.load(Ordering::SeqCst);
        names(directory);
        asked.load(Ordering::SeqCst) == before
    });
}

/// Returns a mount that follows the feed and a large directory in it whose listing is kept, with a count of what the node is asked;
/// `None` where none can be had, as the test `name` notes.
fn kept(name: &str) -> Option<(Bed, Arc<AtomicU64>, PathBuf)> {
    if !can_mount(name) {
        return None;
    }
    let (bed, asked) = counted();
    // What the kernel is told of the directory it believes for long from here on.
    follow(&bed);
    let directory = bed.join("d");
    fill(&directory);
    have_kept(&directory, &asked);
    Some((bed, asked, directory))
}

#[test]
fn a_large_directory_that_is_listed_again_asks_the_node_nothing() {
    let kept = kept("a_large_directory_that_is_listed_again_asks_the_node_nothing");
    let Some((_bed, _, directory)) = kept else { return };
    assert_eq!(names(&directory).len(), MANY + [".", ".."].len());
}

#[test]
fn what_is_changed_here_and_elsewhere_is_in_the_next_listing_of_what_was_kept() {
    let kept = kept("what_is_changed_here_and_elsewhere_is_in_the_next_listing_of_what_was_kept");
    let Some((bed, asked, directory)) = kept else { return };
    let other = bed.join("e");
    fs::create_dir(&other).expect("made");
    let again = bed.mount_again("alice", 2);
    let has = |directory: &Path, name: &str| names(directory).contains(name);
    for (at, told) in [(bed.path().to_owned(), false), (again.join("."), true)] {
        // Nothing is to be looked up by name: the listing alone is to tell.
        let comes_to = |what: &str, so: &dyn Fn() -> bool| match told {
            true => until(what, so),
            false => assert!(so(), "{what}"),
        };
        let have_kept = || [&directory, &other].iter().for_each(|directory| have_kept(directory, &asked));
        have_kept();
        fs::write(at.join("d/new"), "x").expect("written");
        comes_to("a name that came", &|| has(&directory, "new"));
        have_kept();
        fs::rename(at.join("d/new"), at.join("e/moved")).expect("renamed");
        comes_to("a name that went to another directory", &|| {
            has(&other, "moved") && !has(&directory, "new")
        });
        have_kept();
        fs::hard_link(at.join("e/moved"), at.join("d/linked")).expect("linked");
        comes_to("a second name", &|| has(&directory, "linked"));
        have_kept();
        fs::remove_file(at.join("d/linked")).expect("removed");
        fs::remove_file(at.join("e/moved")).expect("removed");
        comes_to("names that went", &|| !has(&directory, "linked") && !has(&other, "moved"));
        have_kept();
        fs::create_dir(at.join("e/below")).expect("made");
        comes_to("a directory", &|| has(&other, "below"));
        have_kept();
        fs::remove_dir(at.join("e/below")).expect("removed");
        comes_to("a directory that went", &|| !has(&other, "below"));
    }
}

#[test]
fn an_answer_that_others_overtook_while_it_was_on_its_way_is_not_kept() {
    if !can_mount("an_answer_that_others_overtook_while_it_was_on_its_way_is_not_kept") {
        return;
    }
    let (late, [asked, told]) = (Arc::<AtomicBool>::default(), [(); 2].map(|()| Arc::<AtomicU64>::default()));
    let (lists_late, counts) = (late.clone(), [asked.clone(), told.clone()]);
    let bed = Bed::with(
        move |inner| {
            let [asked, told] = counts;
            Arc::new(Faulty { lists_late, asked, told, ..Faulty::new(inner) })
        },
        limits::CALL_DEADLINE,
    );
    follow(&bed);
    for round in 0..5 {
        let directory = bed.join(&format!("d{round}"));
        fill(&directory);
        let mut open = Dir::new(File::open(&directory).expect("opened")).expect("a directory");
        // What the open brought along goes with any change; all is asked for, answered, and held up.
        File::create(bed.join(&format!("e{round}"))).expect("made");
        let before = asked.load(Ordering::SeqCst);
        late.store(true, Ordering::SeqCst);
        let listing = thread::spawn(move || (of(open.by_ref()).len(), open));
        until("the node is asked", || asked.load(Ordering::SeqCst) > before);
        let heard = told.load(Ordering::SeqCst);
        bed.store(&format!("d{round}/new"), b"x");
        until("it is told of", || told.load(Ordering::SeqCst) > heard);
        late.store(false, Ordering::SeqCst);
        let (_, mut open) = listing.join().expect("listed");
        until("what stays open shows it", || {
            open.rewind();
            of(open.by_ref()).contains("new")
        });
        assert!(names(&directory).contains("new"), "and so does what is opened anew");
    }
}

#[test]
fn what_was_made_although_it_failed_to_the_program_is_listed_once_it_is_there() {
    let kept = kept("what_was_made_although_it_failed_to_the_program_is_listed_once_it_is_there");
    let Some((_bed, asked, directory)) = kept else { return };
    assert!(fs::create_dir(directory.join("late")).is_err());
    have_kept(&directory, &asked);
    until("it is made", || names(&directory).contains("late"));
}

#[test]
fn what_nobody_tells_of_is_listed_after_a_while_where_a_directory_stays_open() {
    let kept = kept("what_nobody_tells_of_is_listed_after_a_while_where_a_directory_stays_open");
    let Some((_bed, _, directory)) = kept else { return };
    let mut open = Dir::new(File::open(&directory).expect("opened")).expect("a directory");
    let mut shows = || {
        open.rewind();
        of(open.by_ref()).contains("late")
    };
    assert!(!shows());
    // It is made by this mount, so nobody tells it, and the kernel was told that it failed.
    assert!(fs::create_dir(directory.join("late")).is_err());
    until_within(limits::MOUNT_LISTING_KEPT + SOON, "it is shown where it stays open", shows);
}

mounted! {
    fn a_right_to_list_that_others_withdraw_ends_what_was_kept(bed) {
        fs::create_dir(bed.join("d")).expect("made");
        fs::write(bed.join("d/f"), "x").expect("written");
        bed.allow(&[("bob", Rights::READING)]);
        let again = bed.mount_again("bob", 2);
        let directory = again.join("d");
        follow_at(&bed, &again.join("."));
        let mut open = Dir::new(File::open(&directory).expect("opened")).expect("a directory");
        for _ in 0..3 {
            assert!(names(&directory).contains("f"));
            open.rewind();
            assert!(of(open.by_ref()).contains("f"));
        }
        // Of what bob has no right on any more he is not even told.
        bed.allow_below("d", &[]);
        // Only opened: to look at it as well would be refused for itself.
        until("it is refused", || File::open(&directory).is_err());
        until("and nothing is shown where it is open", || {
            open.rewind();
            !open.by_ref().any(|entry| entry.is_ok())
        });
    }

    fn a_directory_that_others_move_to_where_less_may_be_done_is_not_listed_below_it(bed) {
        for name in ["pub", "pub/b", "pub/b/c", "priv"] {
            fs::create_dir(bed.join(name)).expect("made");
        }
        fs::write(bed.join("pub/b/c/f"), "x").expect("written");
        bed.allow(&[("bob", Rights::READING)]);
        bed.allow_below("priv", &[("bob", Rights::TRAVERSE)]);
        let again = bed.mount_again("bob", 2);
        follow_at(&bed, &again.join("."));
        let mut open = Dir::new(File::open(again.join("pub/b/c")).expect("opened")).expect("a directory");
        assert!(of(open.by_ref()).contains("f"));
        assert!(names(&again.join("pub/b/c")).contains("f"));
        fs::rename(bed.join("pub/b"), bed.join("priv/b")).expect("moved");
        until("it is refused", || File::open(again.join("priv/b/c")).is_err());
        until("and nothing is shown where it is open", || {
            open.rewind();
            !open.by_ref().any(|entry| entry.is_ok())
        });
    }

    fn a_right_to_list_that_is_given_up_here_ends_what_was_kept_at_once(bed) {
        follow(&bed);
        let directory = bed.join("d");
        fs::create_dir(&directory).expect("made");
        fs::write(directory.join("f"), "x").expect("written");
        let text = get(&directory, "user.weft.acl").expect("shown");
        (0..3).for_each(|_| assert!(names(&directory).contains("f")));
        set(&directory, "user.weft.acl", &format!("{text}deny alice list\n")).expect("set");
        let refused = File::open(&directory).expect_err("refused");
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    }

    fn a_listing_goes_on_and_begins_anew_while_names_come_and_go(bed) {
        follow(&bed);
        let directory = bed.join("d");
        fill(&directory);
        let again = bed.mount_again("alice", 2);
        let stays: BTreeSet<_> = (0..MANY).map(|n| format!("f{n}")).collect();
        thread::scope(|scope| {
            let others = scope.spawn(|| {
                for round in 0..100 {
                    let name = again.join(&format!("d/n{round}"));
                    fs::write(&name, "x").expect("written");
                    fs::remove_file(&name).expect("removed");
                }
            });
            while !others.is_finished() {
                assert!(names(&directory).is_superset(&stays));
            }
        });
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).expect("changed");
        until("nothing else is left", || names(&directory).len() == MANY + [".", ".."].len());
    }
}
