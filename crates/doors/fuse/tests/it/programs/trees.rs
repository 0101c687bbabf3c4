//! Programs that bring trees in and out, and move them: git, tar, rsync, cp, mv.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use weft_conformance::run::full;

use super::{have, said_by, succeed};
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

/// Returns what rsync would still do to make one tree the other, compared by bytes.
fn left_to_do(from: &Path, to: &Path) -> String {
    let (from, to) = (format!("{}/", from.display()), format!("{}/", to.display()));
    said_by(Command::new("rsync").args(["-aHXcni", "--delete", &from, &to]))
}

/// Runs a script in a directory; returns what it prints.
fn sh(directory: &Path, script: &str) -> String {
    said_by(Command::new("sh").args(["-euc", script]).current_dir(directory))
}

#[test]
fn rsync_keeps_hard_links_and_attributes_and_deletes_what_went() {
    if !have("rsync -aHX", &["rsync", "setfattr", "getfattr"]) {
        return;
    }
    let bed = Bed::new();
    let home = tempfile::tempdir().expect("a directory of its own");
    let (source, copy) = (home.path().join("source"), bed.join("copy"));
    sh(
        home.path(),
        "mkdir -p source/a/b source/gone/deep source/empty; cd source
         seq 10000 > a/b/numbers; ln a/b/numbers a/twin; ln a/b/numbers gone/third; echo x > gone/deep/x
         ln -s ../b a/link; ln -s nowhere dangling; mkfifo pipe; : > 'odd \\ name'
         setfattr -n user.colour -v red a/twin; setfattr -n user.of -v dir a; chmod 2750 a; touch -d 2001-02-03 a/b",
    );
    let sync = || succeed(Command::new("rsync").args(["-aHX", "--delete"]).arg(source.join("")).arg(&copy));
    sync();
    assert_eq!(left_to_do(&source, &copy), "");
    assert_eq!(sh(&copy, "stat -c %h a/twin; getfattr --only-values -n user.colour a/b/numbers"), "3\nred");
    // Names go, kinds change, a link is cut, an attribute changes and one goes.
    sh(
        &source,
        "rm -r gone; rm a/link; mkdir a/link; echo y > a/link/y; rmdir empty; echo now a file > empty
         seq 9 > cut; mv cut a/twin; setfattr -n user.colour -v blue empty; setfattr -x user.of a",
    );
    assert_ne!(left_to_do(&source, &copy), "");
    sync();
    assert_eq!(left_to_do(&source, &copy), "");
    assert_eq!(
        sh(&copy, "stat -c %h a/twin a/b/numbers; cat empty; ls"),
        "1\n1\nnow a file\na\ndangling\nempty\nodd \\ name\npipe\n"
    );
    // And out again.
    let out = home.path().join("out");
    succeed(Command::new("rsync").arg("-aHX").arg(copy.join("")).arg(&out));
    assert_eq!(left_to_do(&source, &out), "");
}

#[test]
fn cp_makes_holes_finds_them_and_fills_them() {
    if !have("cp --sparse", &["cp", "cmp"]) {
        return;
    }
    let bed = Bed::new();
    let home = tempfile::tempdir().expect("a directory of its own");
    // Two islands in 16 MiB.
    sh(
        home.path(),
        "truncate -s 16M f; seq 5000 | dd of=f bs=1M seek=3 conv=notrunc status=none
         seq 20000 | dd of=f bs=1M seek=11 conv=notrunc status=none",
    );
    let (inside, outside) = (bed.path().display(), home.path().display());
    let script = format!(
        "cd {inside}
         cp --sparse=never {outside}/f full; cp --sparse=always full made; cp --sparse=auto made found; cp found {outside}/back
         for copy in full made found {outside}/back; do cmp {outside}/f $copy; stat -c %b $copy; done"
    );
    let blocks: Vec<u64> =
        sh(bed.path(), &script).lines().map(|line| line.parse().expect("a number")).collect();
    let [full, made, found, back] = blocks[..] else { panic!("{blocks:?}") };
    assert!(full >= 16 << 11, "{blocks:?}");
    assert!([made, found, back].iter().all(|blocks| (1..1 << 11).contains(blocks)), "{blocks:?}");
}

#[test]
fn mv_moves_between_directories_and_file_systems() {
    if !have("mv", &["mv", "diff"]) {
        return;
    }
    let bed = Bed::new();
    let home = tempfile::tempdir().expect("a directory of its own");
    sh(bed.path(), "mkdir -p a/deep/er b; seq 1000 > a/deep/er/f; echo 1 > a/x; echo 2 > b/x; ln -s x a/l");
    let inode = |name: &str| sh(bed.path(), &format!("stat -c %i {name}"));
    let (file, directory) = (inode("a/deep/er/f"), inode("a/deep"));
    sh(bed.path(), "mv a/deep b/; mv b/deep/er/f a/g; mv -n a/x b/x; mv a/l b");
    assert_eq!((inode("a/g"), inode("b/deep")), (file, directory), "moved and not copied");
    assert_eq!(
        sh(bed.path(), "cat a/x b/x b/l; mv -b a/x b/x; cat b/x b/x~; ls a b"),
        "1\n2\n2\n1\n2\na:\ng\n\nb:\ndeep\nl\nx\nx~\n"
    );
    let not_below_itself = Command::new("mv").args(["b", "b/deep"]).current_dir(bed.path()).output();
    assert!(!not_below_itself.expect("it runs").status.success());
    // To another file system and back: copied, with its modes and times, and removed here.
    let outside = home.path().display();
    let script = format!("chmod 640 a/g; touch -d 2001-02-03 a/g; cp -a b {outside}/was; mv a/g b {outside}; ls
         mv {outside}/b {outside}/g .; stat -c '%a %Y' g; diff -r --no-dereference b {outside}/was; ls {outside}");
    assert_eq!(sh(bed.path(), &script), "a\n640 981158400\nwas\n");
}
