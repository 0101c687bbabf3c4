//! `weft cp`: real trees there and back, big files interrupted and taken up again.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::node::{Node, Said, give, noise, signal};
use crate::trees::gather;

const MIB: u64 = 1 << 20;

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of ours")
}

#[test]
fn a_real_tree_comes_back_as_it_went() {
    let node = Node::start();
    let tree = node.make_dir("tree");
    let (files, _) = gather(&tree, 400);
    std::os::unix::fs::symlink("nowhere/at all", tree.join("link")).expect("made");
    fs::create_dir(tree.join("empty")).expect("made");
    fs::write(tree.join("no bytes"), "").expect("written");
    fs::write(tree.join("ümläut \n\"name\""), noise(3, 9_000)).expect("written");
    give(&tree);
    let would = node.run(&["cp", "-r", "--dry-run", text(&tree), "weft:/tree"]).ok();
    assert!(would.lines().count() > files, "each file and directory is named");
    assert_eq!(node.run(&["ls"]).ok(), "", "a dry run makes nothing");
    node.run(&["cp", text(&tree), "weft:/tree"])
        .fails(1, &["error:", "it is a directory", "hint: weft cp -r"]);
    let said = node.run(&["cp", "-r", text(&tree), "weft:/tree"]);
    assert_eq!((said.code, said.out.as_str()), (0, ""), "{}", said.err);
    assert!(said.err.contains(&format!("copied {} files", files + 2)), "{}", said.err);
    let back = node.path("back");
    node.run(&["cp", "-r", "weft:/tree", text(&back)]).ok();
    node.sh("diff -r --no-dereference tree back");
    // Times and modes came along, so a second copy has nothing to do, either way.
    let again = node.run(&["cp", "-r", text(&tree), "weft:/"]);
    assert!(again.err.contains("copied 0 files"), "{}", again.err);
    let again = node.run(&["cp", "-r", "weft:/tree", text(&node.path("."))]);
    assert!(again.err.contains("were there already"), "{}", again.err);
    // Within the tree, too.
    node.run(&["cp", "-r", "weft:/tree", "weft:/copy"]).ok();
    node.run(&["cp", "-r", "weft:/copy", text(&node.path("copy"))]).ok();
    node.sh("diff -r --no-dereference tree copy");
}

#[test]
fn times_before_1970_come_back_as_they_went() {
    let node = Node::start();
    let (old, back) = (node.write("old", "1"), node.path("back"));
    for date in ["1960-02-29 12:34:56.789", "1969-12-31 23:59:59.5"] {
        node.sh(&format!("TZ=UTC touch -d '{date}' old"));
        node.run(&["cp", "--force", text(&old), "weft:/old"]).ok();
        node.run(&["cp", "--force", "weft:/old", text(&back)]).ok();
        let time = |path| fs::metadata(path).expect("it is there").modified().expect("it has one");
        assert_eq!(time(&back), time(&old), "{date}");
        assert!(node.run(&["ls", "-l", "/old"]).ok().contains(&date[..10]), "{date}");
        let again = node.run(&["cp", "weft:/old", text(&back)]);
        assert!(again.err.contains("were there already"), "{}", again.err);
    }
}

#[test]
fn single_files_go_where_cp_would_put_them() {
    let node = Node::start();
    let one = node.write("one", "1");
    let two = node.write("two", "2");
    node.run(&["mkdir", "/d"]).ok();
    node.run(&["cp", text(&one), text(&two), "weft:/d"]).ok();
    node.run(&["cp", text(&one), "weft:/d/three"]).ok();
    assert_eq!(node.run(&["ls", "/d"]).ok(), "one\nthree\ntwo\n");
    node.run(&["cp", text(&one), text(&two), "weft:/d/one"]).fails(1, &["error: cannot copy"]);
    node.run(&["cp", text(&one), text(&two)]).fails(1, &["error:", "hint:", "weft:/a/b"]);
    node.run(&["cp", "weft:/none", "x"]).fails(1, &["error: cannot copy"]);
    node.run(&["cp", "none", "weft:/x"]).fails(1, &["error: cannot read none"]);
    node.run(&["cp", text(&one), "weft:/no/x"]).fails(1, &["error: cannot copy"]);
    node.run(&["cp", "weft:/d/one", "/proc/x"]).fails(1, &["error: cannot write"]);
    node.run(&["cp", text(&one)]).fails(2, &["Usage"]);
    // Standard input: all of it or nothing; standard output is cat's.
    let bytes = noise(5, 3_000_000);
    node.feed(&["cp", "-", "weft:/in"], &bytes).ok();
    assert!(node.http(Some(&node.token())).bytes("/in") == bytes);
    node.run(&["cp", "weft:/in", "-"]).fails(1, &["weft cat"]);
}

/// Starts a copy, and ends it with a signal once it has moved so many bytes.
pub fn cut_off(node: &Node, args: &[&str], moved: u64, how: Signal) -> Said {
    cut_off_command(node.command().args(args), moved, how)
}

fn cut_off_command(command: &mut Command, moved: u64, how: Signal) -> Said {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let until = Instant::now() + Duration::from_secs(60);
    while bytes_moved(&child) < moved {
        assert!(Instant::now() < until, "the copy does not move");
        std::thread::sleep(Duration::from_millis(1));
    }
    signal(&child, how);
    let output = child.wait_with_output().expect("it ends");
    Said {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// What a process has read from files or written to them so far, whichever is more.
pub fn bytes_moved(child: &Child) -> u64 {
    let io = fs::read_to_string(format!("/proc/{}/io", child.id())).unwrap_or_default();
    let of = |name: &str| io.lines().find_map(|line| line.strip_prefix(name)?.parse().ok());
    [of("rchar: "), of("wchar: ")].into_iter().flatten().max().unwrap_or(u64::MAX)
}

/// How much a copy says it did not have to send again.
#[track_caller]
fn kept(said: Said) -> f64 {
    assert_eq!(said.code, 0, "{}", said.err);
    let (before, _) =
        said.err.split_once(" MiB did not have to be sent again").unwrap_or_else(|| panic!("{}", said.err));
    before.rsplit(' ').next().and_then(|number| number.parse().ok()).expect("a number")
}

#[test]
fn an_interrupted_upload_goes_on_where_it_stopped_and_is_never_seen_before() {
    let node = Node::start();
    let bytes = noise(1, 200 << 20);
    let big = node.write("big", &bytes);
    let http = node.http(Some(&node.token()));
    for (how, name) in [(Signal::INT, "/int"), (Signal::KILL, "/kill")] {
        let copy = ["cp", text(&big), &format!("weft:{name}")];
        let said = cut_off(&node, &copy, 100 * MIB, how);
        if how == Signal::INT {
            said.fails(4, &["error:", "interrupted", "hint:"]);
        }
        assert_eq!(http.get(name).status, 404, "an unfinished copy is visible");
        let kept = kept(node.run(&copy));
        assert!(kept >= 64.0, "{name}: only {kept} MiB were kept of 100");
        assert!(http.bytes(name) == bytes, "{name}");
        println!("{name}: {kept} MiB of 200 were not sent again");
    }
    // What changed meanwhile is not mixed with what was sent before.
    let copy = ["cp", text(&big), "weft:/changed"];
    cut_off(&node, &copy, 100 * MIB, Signal::KILL);
    let other = noise(2, 200 << 20);
    node.write("big", &other);
    node.run(&copy).ok();
    assert!(http.bytes("/changed") == other);
}

#[test]
fn an_interrupted_download_goes_on_where_it_stopped_and_is_never_seen_before() {
    let node = Node::start();
    let bytes = noise(1, 200 << 20);
    assert_eq!(node.http(Some(&node.token())).put("/big", &bytes).status, 201);
    for (how, name) in [(Signal::INT, "int"), (Signal::KILL, "kill")] {
        let to = node.path(name);
        let copy = ["cp", "weft:/big", text(&to)];
        let said = cut_off(&node, &copy, 100 * MIB, how);
        if how == Signal::INT {
            said.fails(4, &["error:", "interrupted", "hint:"]);
        }
        assert!(!to.exists(), "an unfinished copy is visible");
        let kept = kept(node.run(&copy));
        assert!(kept >= 32.0, "{name}: only {kept} MiB were kept of 100");
        assert!(fs::read(&to).expect("read") == bytes, "{name}");
        println!("{name}: {kept} MiB of 200 were not sent again");
    }
}

/// Between two attempts whatever is not this copy may write to what it left: a disk, a person.
#[test]
fn bytes_of_an_unfinished_download_that_changed_meanwhile_are_sent_again() {
    let node = Node::start();
    let bytes = noise(1, 160 << 20);
    assert_eq!(node.http(Some(&node.token())).put("/big", &bytes).status, 201);
    let copy = ["cp", "weft:/big", "back"];
    let (dir, back) = (node.make_dir("dir"), node.path("dir/back"));
    let run = |until: u64| loop {
        let mut command = node.command();
        let command = command.args(copy).current_dir(&dir);
        cut_off_command(command, until, Signal::KILL);
        if !back.exists() {
            let left = fs::read_dir(&dir).expect("read").map(|entry| entry.expect("read").path());
            break left.filter(|path| text(path).ends_with(".weft-part")).collect::<Vec<_>>();
        }
        // On a busy machine it may be through before it can be ended.
        fs::remove_file(&back).expect("removed");
    };
    for (place, good) in [(10, 0.0), (20 * MIB, 20.0), (40 * MIB - 1, 39.0)] {
        let left = run(80 * MIB);
        assert_eq!(left.len(), 1, "{left:?}");
        let part = fs::File::options().read(true).write(true).open(&left[0]).expect("it is there");
        assert!(part.metadata().expect("read").len() > 40 * MIB);
        part.write_all_at(&[!bytes[place as usize]], place).expect("written");
        let mut command = node.command();
        let said = node.feed_command(command.args(copy).current_dir(&dir), b"");
        assert_eq!(said.code, 0, "{}", said.err);
        assert!(fs::read(&back).expect("it is there") == bytes, "the byte at {place} is not the file's");
        let kept = if good > 0.0 { kept(said) } else { 0.0 };
        assert_eq!(kept, good, "MiB were kept, and the byte at {place} is not the file's");
        assert_eq!(fs::read_dir(&dir).expect("read").count(), 1, "nothing else is left");
        fs::remove_file(&back).expect("removed");
    }
}

#[test]
fn an_interrupted_copy_of_a_tree_goes_on_where_it_stopped() {
    let node = Node::start();
    let tree = node.make_dir("tree");
    for number in 0..40 {
        node.make_dir(&format!("tree/{}", number % 4));
        node.write(&format!("tree/{}/{number}", number % 4), noise(number, 5 << 20));
    }
    let back = node.make_dir("back");
    let up = ["cp", "-r", text(&tree), "weft:/"];
    let down = ["cp", "-r", "weft:/tree", text(&back)];
    for copy in [up, down] {
        cut_off(&node, &copy, 100 * MIB, Signal::KILL);
        let again = node.run(&copy);
        assert_eq!(again.code, 0, "{}", again.err);
        assert!(again.err.contains("were there already"), "{}", again.err);
        assert!(!again.err.contains("copied 40 files"), "{}", again.err);
    }
    node.sh("diff -r tree back/tree");
}
