//! Rights that end otherwise than by being taken away where they were given: with another place, with time, with a mode.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::Duration;

use weft_core::{Rights, limits};

use crate::asked_again::follow_at;
use crate::bed::{Again, Bed, can_mount, mounted};
use crate::raw::{SOON, start, until, until_within};
use crate::sharing::reads_a_mapping;

/// For how long a right that ends by the clock is given here, after what is read by it was.
const A_WHILE: Duration = Duration::from_secs(8);
/// Until when it has ended: it is looked at so often, and looking may take its time.
const ENDED: Duration = limits::MOUNT_LISTING_KEPT.saturating_add(Duration::from_secs(15));

/// Makes `d`, in which bob may do much, with `e/f` in it, and `elsewhere`, where he has these rights.
fn places(bed: &Bed, elsewhere: Rights) -> Again {
    bed.allow(&[("bob", Rights::WRITING)]);
    for name in ["d", "d/e", "elsewhere"] {
        fs::create_dir(bed.join(name)).expect("alice may");
    }
    bed.store("d/e/f", &[1; 10_000]);
    bed.allow_below("elsewhere", &[("bob", elsewhere)]);
    let again = bed.mount_again("bob", 2);
    // From here on the kernel keeps what it is shown.
    follow_at(bed, &again.join("."));
    again
}

fn fill(directory: &Path) {
    (0..MANY).for_each(|n| drop(File::create(directory.join(format!("f{n}"))).expect("alice may")));
}

fn kept(path: &Path) -> File {
    let file = File::open(path).expect("bob may");
    file.read_exact_at(&mut [0], 5000).expect("bob may");
    file
}

fn is_refused(file: &File) -> bool {
    file.read_at(&mut [0], 5000).is_err()
}

/// Has alice move something, and fails unless what bob has open and read is not shown to him from then on.
fn moves_away(bed: &Bed, elsewhere: Rights, from: &str, to: &str) {
    let again = places(bed, elsewhere);
    let file = kept(&again.join("d/e/f"));
    fs::rename(bed.join(from), bed.join(to)).expect("alice may");
    until("what was kept is shown no more", || is_refused(&file));
}

/// More names than are tried until one is refused: one that is being opened as its directory's name is dropped is in use, and
/// stays for a while.
const MANY: usize = 100;

/// Takes away that a directory may be passed, and fails unless it cannot be soon.
fn is_not_passed(bed: &Bed, again: &Again, narrow: impl FnOnce()) {
    // That they were made is told by then.
    follow_at(bed, &again.join("."));
    let mut below = (0..MANY).map(|n| again.join(&format!("d/e/f{n}")));
    assert!(below.clone().all(|name| name.exists()), "it may be passed");
    narrow();
    until("nobody passes by names that were kept", || {
        std::thread::sleep(SOON / (MANY as u32));
        File::open(below.next().expect("one is left")).is_err()
    });
}

mounted! {
    fn a_file_that_others_move_to_where_it_may_not_be_read_is_shown_no_more(bed) {
        moves_away(&bed, Rights::LIST | Rights::TRAVERSE, "d/e/f", "elsewhere/f");
    }

    fn nor_is_one_that_moves_to_where_nothing_may_be_seen(bed) {
        moves_away(&bed, Rights::NONE, "d/e/f", "elsewhere/f");
    }

    fn nor_is_one_in_a_directory_that_moves(bed) {
        moves_away(&bed, Rights::LIST | Rights::TRAVERSE, "d/e", "elsewhere/e");
    }

    fn nor_is_one_in_a_directory_that_the_mount_itself_moves(bed) {
        let again = places(&bed, Rights::WRITING - Rights::READ);
        let file = kept(&again.join("d/e/f"));
        fs::rename(again.join("d/e"), again.join("elsewhere/e")).expect("bob may");
        until("what was kept is shown no more", || is_refused(&file));
    }

    fn a_file_that_others_move_stays_readable_where_it_may_be_read(bed) {
        let again = places(&bed, Rights::READING);
        let file = kept(&again.join("d/e/f"));
        fs::rename(bed.join("d/e/f"), bed.join("elsewhere/f")).expect("alice may");
        until("it is there", || again.join("elsewhere/f").exists());
        assert!(!is_refused(&file));
    }

    fn a_directory_that_others_make_impassable_is_not_passed_by_names_that_are_kept(bed) {
        let again = places(&bed, Rights::NONE);
        let left = [("bob", Rights::WRITING - Rights::TRAVERSE)];
        fill(&bed.join("d/e"));
        is_not_passed(&bed, &again, || bed.allow_below("d", &left));
    }

    fn nor_is_one_of_which_nothing_may_be_seen_any_more(bed) {
        let again = places(&bed, Rights::NONE);
        bed.allow_below("d", &[("bob", Rights::WRITING)]);
        bed.allow_below("d/e", &[("bob", Rights::WRITING)]);
        fill(&bed.join("d/e"));
        is_not_passed(&bed, &again, || bed.allow_below("d", &[]));
    }

    fn nor_is_one_that_others_narrow_by_its_mode(bed) {
        let again = places(&bed, Rights::NONE);
        bed.narrow_by_modes();
        fill(&bed.join("d/e"));
        is_not_passed(&bed, &again, || {
            fs::set_permissions(bed.join("d/e"), Permissions::from_mode(0o700)).expect("alice may");
        });
    }

    fn nor_is_one_that_the_mount_itself_narrows_whatever_it_is_called_by_then(bed) {
        bed.narrow_by_modes();
        let again = bed.mount_again("alice", 2);
        follow_at(&bed, &again.join("."));
        for name in ["d", "d/old"] {
            fs::create_dir(again.join(name)).expect("alice may");
        }
        fill(&again.join("d/old"));
        fs::rename(again.join("d/old"), again.join("d/e")).expect("alice may");
        is_not_passed(&bed, &again, || {
            fs::set_permissions(again.join("d/e"), Permissions::from_mode(0o600)).expect("alice may");
        });
        fs::set_permissions(again.join("d/e"), Permissions::from_mode(0o700)).expect("alice may");
        fs::read(again.join("d/e/f0")).expect("and again");
    }

    fn a_right_that_ends_with_time_ends_what_is_open(bed) {
        let again = places(&bed, Rights::NONE);
        let file = File::open(again.join("d/e/f")).expect("bob may");
        bed.allow_below_for("d", ("bob", Rights::READING), A_WHILE);
        until("it is kept", || file.read_at(&mut [0], 5000).is_ok());
        until_within(A_WHILE + ENDED, "it ends by itself", || is_refused(&file));
    }
}

/// Who serves it is one of its users, of whose mappings the kernel keeps pages like those of any.
#[test]
fn a_mapping_of_a_shared_mount_faults_once_its_right_has_ended_with_time() {
    const TEST: &str = "a_mapping_of_a_shared_mount_faults_once_its_right_has_ended_with_time";
    if reads_a_mapping() || !can_mount(TEST) {
        return;
    }
    let bed = Bed::new();
    drop(places(&bed, Rights::NONE));
    let shared = bed.mount_shared("bob", 3);
    follow_at(&bed, &shared.join("."));
    let mut child = start(&format!("ended::{TEST}"), "map-private", &shared.join("d/e/f"));
    child.hear("mapped");
    bed.allow_below_for("d", ("bob", Rights::READING), A_WHILE);
    assert_eq!(child.end_within(A_WHILE + ENDED).signal(), Some(libc::SIGBUS));
}
