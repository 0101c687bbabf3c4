//! Programs that replace a file by another of its name, each in its own way: editors, sed, patch,
//! install, gzip, ar; and flock, by which scripts keep out of each other's way.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{have, script};
use crate::bed::Bed;

#[test]
fn an_editor_saves_by_rename_and_in_place_and_the_other_mount_shows_it() {
    if have("vim", &["vim.tiny"]) {
        script(&Bed::new(), include_str!("vim.sh"), &[]);
    }
}

#[test]
fn sed_patch_install_gzip_and_ar_replace_what_they_change() {
    if have("small tools", &["sed", "patch", "diff", "install", "gzip", "ar"]) {
        script(&Bed::new(), include_str!("tools.sh"), &[]);
    }
}

/// Two scripts on two mounts count in one file, each time under `flock`.
#[test]
fn flock_keeps_two_scripts_on_two_mounts_apart() {
    if !have("flock", &["flock"]) {
        return;
    }
    const EACH: usize = 60;
    let bed = Bed::new();
    let again = bed.mount_again("alice", 2);
    fs::write(bed.join("count"), "0\n").expect("written");
    fs::write(bed.join("lock"), "").expect("made");
    let script = format!(
        "for i in $(seq {EACH}); do flock lock sh -c 'read n < count; echo $((n + 1)) > count'; done"
    );
    let start =
        |at: &Path| Command::new("sh").args(["-euc", &script]).current_dir(at).spawn().expect("it starts");
    let mut scripts =
        [start(bed.path()), start(bed.path()), start(&again.join(".")), start(&again.join("."))];
    for script in &mut scripts {
        assert!(script.wait().expect("it is ours").success());
    }
    assert_eq!(fs::read_to_string(bed.join("count")).expect("read"), format!("{}\n", 4 * EACH));
}
