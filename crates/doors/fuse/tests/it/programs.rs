//! Programs nobody here wrote: fsx, git, tar, rsync, sqlite3, a C compiler and make.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use weft_conformance::run::{self, brought, full};

use crate::bed::{Bed, can_mount};

/// Everything fsx can do here, its own default and what is ours to prove: mappings
/// beside writes, holes, copies within the file.
const FSX_CONFIG: &str = include_str!("fsx.toml");

/// Runs a command, and fails with what it said unless it succeeds.
pub fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        text.chars().rev().take(3000).collect::<Vec<_>>().into_iter().rev().collect::<String>()
    };
    let said = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{}\n{}", output.status, said.0, said.1);
    output
}

/// Returns whether these programs are there and mounts can be made; otherwise counts the test as
/// not run.
fn have(test: &str, programs: &[&str]) -> bool {
    run::have(test, programs) && can_mount(test)
}

/// Counts and seeds of fsx: more of both with `./test --full`.
fn fsx_rounds() -> (u32, Vec<u32>) {
    if full() { (100_000, (1..=5).collect()) } else { (5_000, vec![1, 7, 42]) }
}

#[test]
fn fsx_finds_no_difference_in_its_operations_with_mappings() {
    if !can_mount("fsx") {
        return;
    }
    let Some(fsx) = brought("fsx", "bin/fsx") else { return };
    let artifacts = tempfile::tempdir().expect("a directory of its own");
    let config = artifacts.path().join("fsx.toml");
    fs::write(&config, FSX_CONFIG).expect("written");
    let (count, seeds) = fsx_rounds();
    for seed in seeds {
        let bed = Bed::new();
        let mut command = Command::new(&fsx);
        command.arg("-f").arg(&config).arg("-P").arg(artifacts.path());
        command.args(["-N", &count.to_string(), "-S", &seed.to_string()]).arg(bed.join("file"));
        succeed(&mut command);
    }
}

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

#[test]
fn sqlite_with_four_writers_in_wal_mode_loses_no_row() {
    if !have("sqlite3", &["sqlite3"]) {
        return;
    }
    const WRITERS: usize = 4;
    const ROWS: usize = 100;
    let bed = Bed::new();
    let database = bed.join("rows.db");
    let sqlite = |sql: &str| {
        let mut command = Command::new("sqlite3");
        command.args(["-bail", "-batch", "-cmd", ".timeout 60000"]).arg(&database).arg(sql);
        command
    };
    let mode = succeed(&mut sqlite("pragma journal_mode=wal; create table t (writer, row, text);"));
    assert_eq!(String::from_utf8_lossy(&mode.stdout).trim(), "wal");
    let insert = |writer: usize| {
        let one = |row| format!("insert into t values ({writer}, {row}, hex(randomblob(200)));");
        (0..ROWS).map(one).collect::<String>() + "pragma wal_checkpoint;"
    };
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || succeed(&mut sqlite(&insert(writer))));
        }
    });
    let check = succeed(&mut sqlite(
        "pragma integrity_check; select count(*), count(distinct writer * 1000 + row) from t;",
    ));
    let all = WRITERS * ROWS;
    assert_eq!(String::from_utf8_lossy(&check.stdout).trim(), format!("ok\n{all}|{all}"));
}

#[test]
fn a_c_project_is_configured_and_built_and_its_product_works() {
    if !have("make", &["make", "cc", "rsync"]) {
        return;
    }
    let Some(source) = brought("make", "src/bzip2") else { return };
    let bed = Bed::new();
    let build = bed.join("bzip2");
    succeed(Command::new("cp").arg("-rp").arg(&source).arg(&build));
    // Two rounds: the second has nothing to do, by the times the mount shows.
    let make = || {
        succeed(Command::new("make").args(["-j2", "libbz2.a", "bzip2", "bzip2recover"]).current_dir(&build))
    };
    make();
    let again = String::from_utf8_lossy(&make().stdout).into_owned();
    assert!(!again.contains("-c "), "the second make compiled again:\n{again}");
    // What was built runs from the mount, on files there.
    succeed(Command::new("./bzip2").args(["-k", "-9", "manual.html"]).current_dir(&build));
    succeed(Command::new("./bzip2").args(["-d", "-f", "manual.html.bz2"]).current_dir(&build));
    let made = fs::read(build.join("manual.html")).expect("read");
    assert_eq!(made, fs::read(source.join("manual.html")).expect("read"));
}

/// Fails unless two trees have the same names, kinds, modes, times, link targets and
/// bytes.
pub fn assert_same_tree(one: &Path, other: &Path, more: &[&str]) {
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
