//! Test suites and load generators of others over a real node's mount, on managed files and on a
//! share: fio, dbench, and CPython's own tests of what it does with files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use weft_conformance::run::{brought, full, have, not_run, python_with};

use crate::node::Node;

/// What fio does; the mount's own tests do it over the model.
const FIO_JOBS: &str = include_str!("../../../doors/fuse/tests/it/fio.ini");

/// The trees that each suite is run on, by their names in the mount.
const TREES: [&str; 2] = ["managed", "share"];

/// Tests of CPython that are left out: of which tree, which, and why.
const PYTHON_LEFT_OUT: [(&str, &str, &str); 1] = [(
    "managed",
    "test.test_tempfile.TestTemporaryDirectory.test_modes",
    "a directory whose mode no longer lets it be searched: names in it that the mount's kernel knows already are \
     not asked for again, so the removal of a tree gets further down than on a disk before it is refused",
)];

/// What CI leaves out besides, and `--full` does not: deep trees are walked a hundred times, and on a share each step
/// asks the machine (a minute and a half).
const PYTHON_LONG: [(&str, &str); 2] = [("share", "test_fd_leak"), ("share", "test_walk_many_open_files")];

/// A node that serves both trees, and two mounts of them.
struct Scene {
    node: Node,
    mounts: [PathBuf; 2],
}

impl Scene {
    fn new() -> Self {
        let mut node = Node::start();
        node.make_dir("shared");
        node.run(&["share", "shared", "/share"]).ok();
        node.run(&["mkdir", "/managed"]).ok();
        let mounts = [node.mount("one"), node.mount("other")];
        Self { node, mounts }
    }
}

/// Bytes of each of fio's jobs, and of each of those that share a file.
fn fio_sizes() -> (&'static str, &'static str) {
    if full() { ("64M", "8M") } else { ("1M", "256k") }
}

/// Returns a script that has fio do its jobs in a directory, or only compare what it wrote there.
fn fio(directory: &Path, only_compare: bool) -> String {
    let (size, part) = fio_sizes();
    let compare = if only_compare { "--verify_only" } else { "" };
    format!(
        "SIZE={size} PART={part} fio --output-format=terse {compare} --directory={} fio.ini",
        directory.display()
    )
}

/// What was written through one mount is compared by whoever wrote it, then through another mount, and of a
/// share in the directory itself.
#[test]
fn fio_finds_what_it_wrote_through_this_mount_another_and_none() {
    if !have("suites::fio", &["fusermount3", "fio"]) {
        return;
    }
    let scene = Scene::new();
    scene.node.write("fio.ini", FIO_JOBS);
    for tree in TREES {
        scene.node.sh(&fio(&scene.mounts[0].join(tree), false));
        scene.node.sh(&fio(&scene.mounts[1].join(tree), true));
    }
    scene.node.sh(&fio(&scene.node.path("shared"), true));
}

#[test]
fn dbench_meets_no_error() {
    if !have("suites::dbench", &["fusermount3", "dbench"]) {
        return;
    }
    let scene = Scene::new();
    let seconds = if full() { 60 } else { 4 };
    for tree in TREES {
        let place = scene.mounts[0].join(tree);
        let said = scene.node.sh(&format!("dbench -D {} -t {seconds} 4", place.display()));
        // Of some answers that it did not expect it only speaks.
        let mut wrong: Vec<_> =
            said.lines().filter(|line| line.contains("failed") || line.contains("expected")).collect();
        // It takes 0 for none, and that is the number of the first semaphore since the machine was started.
        wrong.retain(|line| line.trim_end() != "failed to create barrier semaphore");
        assert!(wrong.is_empty() && said.contains("Throughput"), "{tree}: {said}\n{wrong:?}");
        // Its directories it leaves, wherever it runs.
        scene.node.sh(&format!("rm -r {}/clients", place.display()));
    }
}

/// Builds, clones and copies of the mount's own tests, which run them over the model.
const PROJECTS: [(&str, &str); 2] = [
    ("bzip2", include_str!("../../../doors/fuse/tests/it/programs/c_project.sh")),
    ("rsync", include_str!("../../../doors/fuse/tests/it/programs/rsync.sh")),
];

#[test]
fn a_c_project_is_cloned_and_built_and_rsync_keeps_all_that_it_copies_over_the_mount() {
    const TEST: &str = "suites::projects";
    if !have(TEST, &["fusermount3", "make", "cc", "git", "rsync", "getfattr"]) {
        return;
    }
    let Some(source) = brought(TEST, "src/bzip2") else { return };
    let scene = Scene::new();
    // Who runs the node need not reach where it lies.
    let copied = Command::new("cp").arg("-r").arg(&source).arg(scene.node.path("source")).status();
    assert!(copied.expect("it runs").success());
    for tree in TREES {
        for (name, script) in PROJECTS {
            let (place, out) =
                (scene.mounts[0].join(tree).join(name), scene.node.make_dir(&format!("{tree}-{name}")));
            scene.node.sh(&format!(
                "export SOURCE={} OUT={}; mkdir {place}; cd {place}\n{script}",
                scene.node.path("source").display(),
                out.display(),
                place = place.display()
            ));
        }
    }
}

/// Returns the options that leave out of a tree what is left out there.
fn python_left_out(tree: &str) -> String {
    let always = PYTHON_LEFT_OUT.iter().map(|(of, test, _)| (*of, *test));
    let long = PYTHON_LONG.into_iter().filter(|_| !full());
    always.chain(long).filter(|(of, _)| *of == tree).map(|(_, test)| format!(" -i {test}")).collect()
}

/// Prints the names of the tests that were skipped, of what CPython's runner wrote.
const PYTHON_SKIPPED: &str = "import sys, xml.etree.ElementTree as tree
for case in tree.parse(sys.argv[1]).iter('testcase'):
    if case.find('skipped') is not None: print(case.get('name'))";

/// Runs CPython's tests in a directory, which has to be empty afterwards, and returns which of them were skipped.
fn cpythons_own(node: &Node, python: &str, place: &Path, left_out: &str) -> BTreeSet<String> {
    let report = node.path("cpython.xml");
    let skipped = node.sh(&format!(
        "cd {0}; TMPDIR={0} {python} -m test --junit-xml {1}{left_out} test_os test_shutil test_mmap test_tempfile >&2
         {python} -c \"{PYTHON_SKIPPED}\" {1}",
        place.display(),
        report.display()
    ));
    assert_eq!(node.sh(&format!("ls -A {}", place.display())), "");
    skipped.lines().map(String::from).collect()
}

/// The suites that a package of its own brings: `libpython3.N-testsuite`. They skip what they find that a directory
/// cannot do: no more of that on the mount than beside it.
#[test]
fn cpythons_own_tests_pass_over_the_mount_and_skip_no_more_than_beside_it() {
    if !have("suites::cpython", &["fusermount3"]) {
        return;
    }
    let Some(python) = python_with("suites::cpython", "test.test_os, test.test_tempfile") else { return };
    if python != "/usr/bin/python3" {
        return not_run("suites::cpython", "/usr/bin/python3 lacks its tests; ./test installs them");
    }
    let scene = Scene::new();
    let beside = cpythons_own(&scene.node, python, &scene.node.make_dir("plain"), "");
    for tree in TREES {
        let skipped = cpythons_own(&scene.node, python, &scene.mounts[0].join(tree), &python_left_out(tree));
        let more: Vec<_> = skipped.difference(&beside).collect();
        assert!(!beside.is_empty() && more.is_empty(), "{tree}: {more:?}");
    }
}
