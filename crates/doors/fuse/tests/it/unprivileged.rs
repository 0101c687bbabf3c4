//! The mount as an ordinary user, without any capability: through `fusermount3` alone.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;

use weft_conformance::run::not_run;
use weft_core::Rights;

use crate::bed::{Bed, can_mount};
use crate::raw::{command, is_child, say};

/// Debian's `nobody` and `nogroup`.
const NOBODY: u32 = 65534;

#[test]
fn a_user_without_privileges_mounts_works_and_unmounts() {
    const TEST: &str = "a_user_without_privileges_mounts_works_and_unmounts";
    if is_child("nobody").is_some() {
        as_nobody();
        say("it worked");
        return;
    }
    if !can_mount(TEST) {
        return;
    }
    if !rustix::process::getuid().is_root() {
        return not_run(TEST, "only root can become nobody");
    }
    // A copy of this binary where nobody can reach it.
    let place = tempfile::tempdir_in("/tmp").expect("a directory of its own");
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).expect("changed");
    let binary = place.path().join("it");
    fs::copy(std::env::current_exe().expect("this binary"), &binary).expect("copied");
    let home = place.path().join("home");
    fs::create_dir(&home).expect("made");
    chown(&home, Some(NOBODY), Some(NOBODY)).expect("given");
    let mut other = std::process::Command::new("setpriv");
    other.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]);
    other.arg(&binary);
    let same = command(&format!("unprivileged::{TEST}"), "nobody", &home);
    other.args(same.get_args()).env("TMPDIR", &home).current_dir(&home);
    for (name, value) in same.get_envs() {
        other.env(name, value.expect("it is set"));
    }
    other.process_group(0);
    let output = other.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("it worked"),
        "{said}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn as_nobody() {
    assert_eq!(rustix::process::geteuid().as_raw(), NOBODY);
    let status = fs::read_to_string("/proc/self/status").expect("read");
    let effective = status.lines().find(|line| line.starts_with("CapEff")).expect("told");
    assert!(effective.ends_with("0000000000000000"), "{effective}");
    let bed = Bed::new();
    fs::create_dir(bed.join("d")).expect("made");
    fs::write(bed.join("d/f"), "x").expect("written");
    let file = fs::File::options().write(true).open(bed.join("d/f")).expect("opened");
    // Here the bits count, since root is not asked: a write clears them.
    file.set_permissions(fs::Permissions::from_mode(0o6755)).expect("changed");
    std::os::unix::fs::FileExt::write_all_at(&file, b"y", 0).expect("written");
    let stat = file.metadata().expect("there");
    assert_eq!((stat.mode() & 0o7777, stat.uid(), stat.gid()), (0o755, NOBODY, NOBODY));
    drop(file);
    fs::set_permissions(bed.join("d/f"), fs::Permissions::from_mode(0o6755)).expect("changed");
    fs::File::create(bed.join("d/f")).expect("cut");
    assert_eq!(fs::metadata(bed.join("d/f")).expect("there").mode() & 0o7777, 0o755);
    // Who may write and not change attributes: the bits stay, and the writing is done all the same.
    let writer = Rights::READ | Rights::WRITE | Rights::APPEND | Rights::TRAVERSE | Rights::LIST;
    bed.allow(&[("bob", writer)]);
    let of_bob = bed.mount_again("bob", 2);
    fs::set_permissions(bed.join("d/f"), fs::Permissions::from_mode(0o6777)).expect("changed");
    let file = fs::File::options().append(true).open(of_bob.join("d/f")).expect("opened");
    std::io::Write::write_all(&mut &file, b"more").expect("written, and answered so");
    file.set_len(2).expect("cut, and answered so");
    fs::File::create(of_bob.join("d/f")).expect("opened and cut, and answered so");
    assert_eq!(fs::metadata(bed.join("d/f")).expect("there").len(), 0);
    drop((file, of_bob));
    bed.runtime.block_on(bed.mount().unmount()).expect("unmounted");
}
