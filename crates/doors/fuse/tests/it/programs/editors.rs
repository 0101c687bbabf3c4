//! Programs that replace a file by another of its name, each in its own way: editors, sed, patch,
//! install, gzip, ar; and flock, by which scripts keep out of each other's way.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use super::{have, said_by, succeed};
use crate::bed::Bed;
use crate::raw::until;

/// Has vim put `new` in the place of `old` and save by a rename (`no`) or in place (`yes`), with a backup.
fn edit(file: &Path, in_place: &str) {
    let settings = format!(
        "set nocompatible backup writebackup backupskip= backupdir=. swapfile directory=. backupcopy={in_place}"
    );
    let mut vim = Command::new("vim.tiny");
    vim.args(["-u", "NONE", "-i", "NONE", "-es", "-c", &settings, "-c", "%s/old/new/", "-c", "wq"]);
    succeed(vim.env("TERM", "dumb").arg(file));
}

#[test]
fn an_editor_saves_by_rename_and_in_place_and_the_other_mount_shows_it() {
    if !have("vim", &["vim.tiny"]) {
        return;
    }
    let bed = Bed::new();
    let again = bed.mount_again("alice", 2);
    for (in_place, saved) in [("no", "by a rename"), ("yes", "in place")] {
        let file = bed.join("text");
        fs::write(&file, "an old line\n".repeat(3000)).expect("written");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("set");
        let new = "an new line\n".repeat(3000);
        assert_ne!(
            fs::read_to_string(again.join("text")).expect("read"),
            new,
            "the other mount has it in its cache"
        );
        let before = fs::metadata(&file).expect("there");
        edit(&file, in_place);
        let after = fs::metadata(&file).expect("there");
        assert_eq!(fs::read_to_string(&file).expect("read"), new, "{saved}");
        assert_eq!(before.ino() == after.ino(), in_place == "yes", "{saved}");
        assert_eq!(after.permissions(), before.permissions(), "{saved}");
        assert_eq!(
            fs::read_to_string(bed.join("text~")).expect("read"),
            new.replace("new", "old"),
            "{saved}"
        );
        until("the other mount shows it", || {
            fs::read_to_string(again.join("text")).is_ok_and(|text| text == new)
        });
        let names = said_by(Command::new("ls").arg("-A").arg(bed.path()));
        assert_eq!(names, "text\ntext~\n", "{saved}: no swap file stays");
    }
}

#[test]
fn sed_patch_install_gzip_and_ar_replace_what_they_change() {
    if !have("small tools", &["sed", "patch", "diff", "install", "gzip", "ar"]) {
        return;
    }
    let bed = Bed::new();
    let script = "seq 3000 > f; chmod 640 f; cp f was
        sed -i.bak 's/^7$/seven/' f; cmp f.bak was; stat -c %a f; grep -n seven f
        diff -u was f > d || true; cp was g; patch -s -b g d; cmp f g; cmp g.orig was; patch -s -R g d; cmp g was
        install -D -m 750 f in/side/f; install -b -m 700 was in/side/f; cmp in/side/f~ f; stat -c %a in/side/f
        gzip -9 -k f; mv f f2; gzip -d f.gz; cmp f f2; test ! -e f.gz
        ar rc a.ar f was; ar r a.ar g; ar d a.ar was; ar t a.ar; ar p a.ar g | cmp - was
        cat f >> f2; sort -n -u -o f2 f2; wc -l < f2";
    let said = said_by(Command::new("sh").args(["-euc", script]).current_dir(bed.path()));
    assert_eq!(said, "640\n7:seven\n700\nf\ng\n3000\n");
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
