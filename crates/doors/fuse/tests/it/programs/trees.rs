//! Programs that bring trees in and out, and move them: git, tar, rsync, cp, mv.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use weft_conformance::run::full;

use super::{have, script, succeed};
use crate::bed::Bed;

/// Runs git as somebody, away from any configuration of this machine.
fn git(directory: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("git");
    command.current_dir(directory).args(arguments);
    for (name, value) in [
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_AUTHOR_NAME", "Alice"),
        ("GIT_AUTHOR_EMAIL", "alice@example.org"),
        ("GIT_COMMITTER_NAME", "Alice"),
        ("GIT_COMMITTER_EMAIL", "alice@example.org"),
        ("GIT_TERMINAL_PROMPT", "0"),
    ] {
        command.env(name, value);
    }
    String::from_utf8(succeed(&mut command).stdout).expect("git speaks UTF-8 here")
}

#[test]
fn git_clones_commits_repacks_and_finds_every_object_whole() {
    if !have("git", &["git", "rsync"]) {
        return;
    }
    let bed = Bed::new();
    let home = tempfile::tempdir().expect("a directory of its own");
    let source = home.path().join("source");
    // Real files: the sources this test is compiled from.
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    succeed(Command::new("cp").arg("-r").arg(&crates).arg(&source));
    git(&source, &["init", "-q", "-b", "main"]);
    git(&source, &["add", "-A"]);
    git(&source, &["commit", "-q", "-m", "all of it"]);
    let from = format!("file://{}", source.display());
    git(bed.path(), &["clone", "-q", &from, "clone"]);
    let clone = bed.join("clone");
    assert_eq!(git(&clone, &["status", "--porcelain"]), "");
    fs::write(clone.join("new"), "a line\n").expect("written");
    fs::rename(clone.join("core"), clone.join("heart")).expect("renamed");
    git(&clone, &["add", "-A"]);
    git(&clone, &["commit", "-q", "-m", "moved"]);
    git(&clone, &["gc", "-q", "--prune=now"]);
    git(&clone, &["fsck", "--full", "--strict"]);
    git(&clone, &["checkout", "-q", "HEAD~1"]);
    // Git keeps no times and no empty directories.
    assert_same_tree(&source, &clone, &["--exclude=.git", "-m"]);
}

#[test]
fn tar_brings_a_real_tree_in_and_out_unchanged() {
    if !have("tar", &["tar", "rsync"]) {
        return;
    }
    let bed = Bed::new();
    let tree = Path::new("/usr/include");
    let archive = bed.join("archive.tar");
    succeed(Command::new("tar").arg("-cf").arg(&archive).arg("-C").arg(tree).arg("."));
    let copy = bed.join("include");
    fs::create_dir(&copy).expect("made");
    succeed(Command::new("tar").arg("--no-same-owner").arg("-xpf").arg(&archive).arg("-C").arg(&copy));
    assert_same_tree(tree, &copy, &[]);
    succeed(Command::new("tar").arg("-df").arg(&archive).arg("-C").arg(&copy));
}

/// The Rust toolchain's own files: a part of them, or all with `./test --full`.
fn toolchain() -> PathBuf {
    let root = succeed(Command::new("rustc").args(["--print", "sysroot"])).stdout;
    let root = PathBuf::from(String::from_utf8(root).expect("a path").trim());
    if full() { root } else { root.join("lib/rustlib") }
}

#[test]
fn rsync_of_the_toolchain_leaves_nothing_for_a_second_run() {
    if !have("rsync", &["rsync", "rustc"]) {
        return;
    }
    let bed = Bed::new();
    let tree = toolchain();
    let (from, to) = (format!("{}/", tree.display()), bed.join("toolchain"));
    succeed(Command::new("rsync").args(["-a", "--no-owner", "--no-group"]).arg(&from).arg(&to));
    let again =
        succeed(Command::new("rsync").args(["-a", "-i", "--no-owner", "--no-group"]).arg(&from).arg(&to));
    assert_eq!(String::from_utf8_lossy(&again.stdout), "", "nothing was left to do");
    assert_same_tree(&tree, &to, &[]);
}

/// Fails unless two trees have the same names, kinds, modes, times, link targets and
/// bytes.
fn assert_same_tree(one: &Path, other: &Path, more: &[&str]) {
    let times = if more.is_empty() { "-rlptcni" } else { "-rlpcni" };
    let output = Command::new("rsync")
        .args([times, "--delete"])
        .args(more)
        .arg(format!("{}/", one.display()))
        .arg(format!("{}/", other.display()))
        .output()
        .expect("rsync runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.is_empty(), "the trees differ:\n{said}");
}

#[test]
fn rsync_keeps_hard_links_and_attributes_and_deletes_what_went() {
    if have("rsync -aHX", &["rsync", "setfattr", "getfattr"]) {
        script(&Bed::new(), include_str!("rsync.sh"), &[]);
    }
}

#[test]
fn cp_makes_holes_finds_them_and_fills_them() {
    if have("cp --sparse", &["cp", "cmp"]) {
        script(&Bed::new(), include_str!("sparse.sh"), &[]);
    }
}

#[test]
fn mv_moves_between_directories_and_file_systems() {
    if have("mv", &["mv", "diff"]) {
        script(&Bed::new(), include_str!("mv.sh"), &[]);
    }
}
