//! Mounts with a credential that was narrowed: they can do no more than it says, whatever its owner may.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::time::Duration;

use rustix::io::Errno;
use weft_core::{ErrorKind, Rights, Time, limits};

use crate::bed::{Again, Bed, mounted};
use crate::raw::until;

fn number<T>(answer: std::io::Result<T>) -> Option<Errno> {
    answer.err().and_then(|error| Errno::from_io_error(&error))
}

/// Makes two directories with a file in each.
fn two(bed: &Bed) {
    for name in ["one", "two"] {
        fs::create_dir(bed.join(name)).expect("alice may");
        bed.store(&format!("{name}/f"), &[7; 100_000]);
    }
}

/// Returns what every way to change something under a name is answered with.
fn changed(again: &Again, directory: &str) -> Vec<Option<Errno>> {
    let at = |name: &str| again.join(&format!("{directory}/{name}"));
    vec![
        number(fs::write(at("f"), "x")),
        number(fs::write(at("new"), "x")),
        number(fs::create_dir(at("d"))),
        number(fs::rename(at("f"), at("g"))),
        number(fs::remove_file(at("f"))),
        number(fs::set_permissions(at("f"), fs::Permissions::from_mode(0o600))),
        number(std::os::unix::fs::symlink("x", at("l"))),
    ]
}

mounted! {
    fn a_mount_narrowed_to_a_path_reaches_nothing_beside_it(bed) {
        two(&bed);
        let path = "one".try_into().expect("a path");
        let again = bed.mount_narrowed(|claims| claims.limits.paths = vec![path]).expect("it stands");
        assert_eq!(fs::read(again.join("one/f")).expect("it is within"), [7; 100_000]);
        fs::write(again.join("one/new"), "x").expect("it is within");
        assert!(number(fs::read(again.join("two/f"))).is_some());
        assert!(number(fs::read_dir(again.join("."))).is_some(), "names beside it are not shown");
        assert!(changed(&again, "two").iter().all(Option::is_some), "{:?}", changed(&again, "two"));
        let moved = number(fs::rename(again.join("one/new"), again.join("two/new")));
        assert!(moved.is_some(), "nothing leaves it");
        assert_eq!(bed.stored("two/f"), [7; 100_000]);
        fs::symlink_metadata(bed.join("two/new")).expect_err("nothing came");
    }

    fn a_mount_narrowed_to_some_operations_does_no_others(bed) {
        two(&bed);
        let again = bed.mount_narrowed(|claims| claims.limits.rights = Rights::READING).expect("it stands");
        assert_eq!(fs::read(again.join("two/f")).expect("it may read"), [7; 100_000]);
        assert_eq!(fs::read_dir(again.join("one")).expect("it may list").count(), 1);
        assert_eq!(changed(&again, "one"), [Some(Errno::ACCESS); 7]);
        fs::write(bed.join("one/f"), "alice herself may").expect("she may");
    }

    fn a_mount_with_a_credential_that_runs_out_does_nothing_from_then_on(bed) {
        two(&bed);
        let ends = bed.domain.clock().now().plus(Duration::from_millis(1500));
        // Clocks may differ by so much.
        let before = |time: Time, span: Duration| Time::from_nanos(time.nanos() - span.as_nanos() as i64);
        let again = bed.mount_narrowed(|claims| {
            claims.issued = before(claims.issued, limits::CLOCK_SKEW_MAX * 2);
            claims.expires = before(ends, limits::CLOCK_SKEW_MAX);
        });
        let again = again.expect("it stands");
        let file = File::options().read(true).write(true).open(again.join("one/f")).expect("it may still");
        let mut byte = [0];
        file.read_exact_at(&mut byte, 50_000).expect("it may still");
        until("a write is refused", || number(file.write_at(b"x", 0)).is_some());
        assert!(bed.domain.clock().now() >= ends, "not before its time");
        until("what was kept is not shown any more", || file.read_at(&mut byte, 50_000).is_err());
        assert!(number(fs::read(again.join("two/f"))).is_some());
        assert!(changed(&again, "two").iter().all(Option::is_some));
        assert_eq!(bed.stored("two/f"), [7; 100_000]);
    }

    fn a_credential_bound_to_hosts_elsewhere_mounts_nothing_here(bed) {
        two(&bed);
        let elsewhere = "192.0.2.0/24".parse().expect("a network");
        let refused = bed.mount_narrowed(|claims| claims.limits.hosts = vec![elsewhere]);
        assert_eq!(refused.err().map(|error| error.kind()), Some(ErrorKind::Denied));
    }
}
