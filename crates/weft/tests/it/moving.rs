//! `weft import`, `export` and `sync`: what comes along, what is left out, what goes, and what a run that
//! was cut off leaves for the next. The commands are those of `docs/guides/moving-data.md`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{XattrFlags, mknodat};
use rustix::process::Signal;
use weft_conformance::file_system::site::Dice;
use weft_conformance::run::{full, have, seed_or_fresh};

use crate::node::{Node, give, noise, signal, wait};

/// Everything that both sides can carry of a tree, by path: what is compared by somebody who has
/// nothing to do with the copying. Names of one file are told by the first of them.
fn carried(top: &Path) -> BTreeMap<PathBuf, String> {
    let (mut all, mut firsts) = (BTreeMap::new(), BTreeMap::new());
    let mut waiting = vec![top.to_path_buf()];
    while let Some(path) = waiting.pop() {
        let (meta, own) =
            (fs::symlink_metadata(&path).expect("there"), path.strip_prefix(top).expect("below"));
        let kind = meta.file_type();
        let mut text = format!("{:o} {}.{:09}", meta.mode() & 0o777, meta.mtime(), meta.mtime_nsec());
        if kind.is_symlink() {
            text = format!(
                "{}.{:09} -> {:?}",
                meta.mtime(),
                meta.mtime_nsec(),
                fs::read_link(&path).expect("read")
            );
        } else if kind.is_dir() {
            text += &format!(" directory {:?}", tags(&path));
            let mut inside: Vec<PathBuf> =
                fs::read_dir(&path).expect("listed").map(|e| e.expect("one").path()).collect();
            inside.sort();
            waiting.extend(inside.into_iter().rev());
        } else if kind.is_file() {
            let digest = blake3::hash(&fs::read(&path).expect("read")).to_hex();
            let first = firsts.entry(meta.ino()).or_insert_with(|| own.to_path_buf());
            text += &format!(" {} {digest} {:?} one of {first:?}", meta.len(), tags(&path));
        } else {
            text += " pipe";
        }
        all.insert(own.to_path_buf(), text);
    }
    all
}

fn tags(path: &Path) -> Vec<(String, Vec<u8>)> {
    let mut names = vec![0; 4096];
    let length = rustix::fs::listxattr(path, &mut names[..]).expect("listed");
    let mut tags = Vec::new();
    for name in names[..length].split(|byte| *byte == 0).filter(|name| name.starts_with(b"user.")) {
        let mut value = vec![0; 4096];
        let length = rustix::fs::getxattr(path, name, &mut value[..]).expect("read");
        tags.push((String::from_utf8_lossy(name).into_owned(), value[..length].to_vec()));
    }
    tags.sort();
    tags
}

#[track_caller]
fn alike(one: &Path, other: &Path) {
    let (one, other) = (carried(one), carried(other));
    for (path, text) in &one {
        assert_eq!(Some(text), other.get(path), "{path:?}");
    }
    let more: Vec<_> = other.keys().filter(|path| !one.contains_key(*path)).collect();
    assert!(more.is_empty(), "and {more:?}");
}

fn tag(path: &Path, name: &str, value: &str) {
    rustix::fs::setxattr(path, name, value.as_bytes(), XattrFlags::empty())
        .expect("a file system with attributes");
}

fn at(path: &Path, seconds: u64) {
    let time = SystemTime::UNIX_EPOCH + Duration::new(seconds, 123_456_789);
    File::open(path).expect("opened").set_modified(time).expect("set");
}

fn pipe(path: &Path) {
    let made = mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, 0o640.into(), 0);
    made.expect("made");
}

/// Has all of a tree belong to who runs the commands.
fn give_all(top: &Path) {
    for path in carried(top).keys() {
        let path = top.join(path);
        if path.symlink_metadata().expect("there").file_type().is_symlink() {
            if rustix::process::geteuid().is_root() {
                std::os::unix::fs::lchown(&path, Some(crate::node::NOBODY), Some(crate::node::NOBODY))
                    .expect("given");
            }
        } else {
            let mode = fs::metadata(&path).expect("there").permissions();
            give(&path);
            fs::set_permissions(&path, mode).expect("ours");
        }
    }
}

/// Bytes that lie in the metadata, if a file has no more.
const INLINE: usize = weft_core::limits::INLINE_BYTES_MAX as usize;

/// A tree with one of each thing that comes along.
fn one_of_each(top: &Path) {
    fs::create_dir_all(top.join("d/e")).expect("made");
    fs::create_dir(top.join("empty")).expect("made");
    for (name, length) in [
        ("a", 5),
        ("d/inline", INLINE),
        ("d/small", INLINE + 1),
        ("d/e/middling", 300_000),
        ("large", 3 << 20),
        ("none", 0),
    ] {
        fs::write(top.join(name), noise(length as u64, length)).expect("written");
    }
    fs::write(top.join("d/\u{e4}\n \\"), "an odd name").expect("written");
    fs::hard_link(top.join("a"), top.join("d/again")).expect("linked");
    symlink("../a", top.join("d/link")).expect("made");
    symlink("/nowhere", top.join("broken")).expect("made");
    pipe(&top.join("pipe"));
    let sparse = File::create(top.join("sparse")).expect("made");
    sparse.set_len(64 << 20).expect("long");
    sparse.write_all_at(b"middle", 33 << 20).expect("written");
    tag(&top.join("a"), "user.colour", "blue");
    tag(&top.join("d"), "user.of.a.directory", "");
    for (name, mode) in [("a", 0o640), ("large", 0o755), ("d/e", 0o711)] {
        fs::set_permissions(top.join(name), fs::Permissions::from_mode(mode)).expect("ours");
    }
    give_all(top);
    for (name, seconds) in
        [("a", 1), ("large", 1_000_000_000), ("d/e", 7), ("d", 4_000_000_000), ("empty", 9), ("", 10)]
    {
        at(&top.join(name), seconds);
    }
}

#[test]
fn a_tree_that_went_in_and_out_again_is_the_same_in_all_that_both_sides_carry() {
    let node = Node::start();
    let top = node.make_dir("photos");
    one_of_each(&top);
    let said = node.run(&["import", "photos", "/photos", "--json"]).json();
    assert_eq!(said[0]["copied"], 8, "{said:?}");
    assert_eq!((&said[0]["linked"], &said[0]["failed"]), (&1.into(), &0.into()), "{said:?}");
    node.run(&["export", "/photos", "back"]).ok();
    alike(&top, &node.path("back"));
    let blocks = |path: PathBuf| fs::metadata(path).expect("there").blocks() * 512;
    assert!(blocks(node.path("back/sparse")) <= 2 << 20, "it was filled");
    let stored = node.run(&["stat", "/photos/sparse", "--json"]).json();
    assert!(stored[0]["used"].as_u64().is_none_or(|used| used <= 2 << 20), "{stored:?}");
    if have("moving", &["rsync"]) {
        let differs = node.sh("rsync -anicHX --no-o --no-g --delete photos/ back/");
        assert_eq!(differs, "", "rsync finds differences");
    }
    // Again, either way, nothing is left to do.
    for command in [["import", "photos", "/photos"], ["export", "/photos", "back"]] {
        let said = node.run(&[&command[..], &["--json"]].concat()).json();
        assert_eq!((&said[0]["copied"], &said[0]["linked"]), (&0.into(), &0.into()), "{said:?}");
        assert_eq!(node.run(&[&command[..], &["--dry-run"]].concat()).ok(), "");
    }
}

#[test]
fn what_is_left_out_is_what_rsync_leaves_out_and_is_not_removed_either() {
    let node = Node::start();
    let top = node.make_dir("src");
    for name in ["a.o", "b.c", "deep/er/c.o", "deep/keep.o", "build/x", "deep/build/y", "z/build"] {
        fs::create_dir_all(top.join(name).parent().expect("it has one")).expect("made");
        fs::write(top.join(name), name).expect("written");
    }
    give_all(&top);
    node.write("rules", "# of a file\n- /z/\n");
    if !have("what_is_left_out_is_what_rsync_leaves_out_and_is_not_removed_either", &["rsync"]) {
        return;
    }
    let rules = ["--include", "keep.o", "--exclude=*.o", "--exclude", "/build/", "--exclude-from", "rules"];
    node.sh(&format!("rsync -a {} src/ rsynced/", rules.map(|rule| format!("'{rule}'")).join(" ")));
    node.run(&[&["import", "src", "/src"], &rules[..]].concat()).ok();
    node.run(&["export", "/src", "out"]).ok();
    let names = |top| carried(&node.path(top)).into_keys().collect::<Vec<_>>();
    assert_eq!(names("rsynced"), names("out"));
    assert!(node.path("out/deep/keep.o").exists() && node.path("out/deep/build/y").exists());
    assert!(
        !node.path("out/build").exists() && !node.path("out/a.o").exists() && !node.path("out/z").exists()
    );
    // There before, and protected by the rules both ways.
    for path in ["/src/mine.o", "/src/deep/other.o", "/src/gone"] {
        node.feed(&["cp", "-", &format!("weft:{path}")], b"x").ok();
    }
    node.run(&[&["sync", "--delete", "src", "weft:/src"], &rules[..]].concat()).ok();
    let left = node.run(&["find", "/src", "--type", "f"]).ok();
    assert!(left.contains("/src/mine.o") && left.contains("/src/deep/other.o"), "{left}");
    assert!(!left.contains("gone"), "{left}");
    node.write("out/own.o", "x");
    node.write("out/gone", "x");
    node.run(&[&["sync", "--delete", "weft:/src", "out"], &rules[..]].concat()).ok();
    assert!(node.path("out/own.o").exists() && !node.path("out/gone").exists());
}

/// Changes something of a tree.
fn change(top: &Path, dice: &mut Dice) {
    let names = ["a", "b", "c", "d"];
    let mut path = top.to_path_buf();
    for _ in 0..=dice.roll(2) {
        let next = path.join(*dice.pick(&names));
        if !path.is_dir() || path.is_symlink() {
            break;
        }
        path = next;
    }
    let kind = path.symlink_metadata().map(|meta| meta.file_type());
    let remove = |path: &Path| match path.symlink_metadata() {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path).expect("removed"),
        Ok(_) => fs::remove_file(path).expect("removed"),
        Err(_) => {}
    };
    let seconds = 1_000_000_000 + dice.roll(1_000_000);
    match dice.roll(9) {
        0 | 1 => {
            remove(&path);
            let length = *dice.pick(&[0, 10, INLINE, INLINE + 1, 100_000, 1 << 20, (1 << 20) + 1]);
            fs::write(&path, noise(seconds, length)).expect("written");
            at(&path, seconds);
        }
        2 | 3 => {
            remove(&path);
            fs::create_dir(&path).expect("made");
        }
        4 => {
            remove(&path);
            symlink(format!("to/{seconds}"), &path).expect("made");
        }
        5 => remove(&path),
        6 if kind.as_ref().is_ok_and(fs::FileType::is_file) => {
            let other = top.join(*dice.pick(&names));
            if other.symlink_metadata().is_err() {
                fs::hard_link(&path, other).expect("linked");
            }
        }
        7 if kind.as_ref().is_ok_and(|kind| kind.is_file() || kind.is_dir()) => {
            let mode = 0o700 | dice.roll(0o100) as u32;
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("ours");
            tag(&path, "user.t", &seconds.to_string());
        }
        8 => {
            remove(&path);
            pipe(&path);
        }
        _ => {}
    }
}

/// That one of them goes changes the other's file.
#[test]
fn names_of_one_file_that_all_become_something_else_do_so_in_one_run() {
    let mut node = Node::start();
    node.make_dir("shared");
    node.run(&["share", "shared", "/share"]).ok();
    for to in ["weft:/managed", "weft:/share/in"] {
        node.sh("mkdir from; echo x > from/a; ln from/a from/b; ln from/a from/c; ln from/a from/d");
        node.run(&["sync", "from", to]).ok();
        node.sh("rm from/[abc]; ln -s nowhere from/a; mkfifo from/b; mkdir from/c");
        node.run(&["sync", "--delete", "from", to]).ok();
        assert_eq!(node.run(&["sync", "--delete", "-n", "from", to]).ok(), "");
        node.sh("rm -r from");
    }
    node.stop();
}

/// Whatever is on either side, the one is made like the other, in one run; and a second has nothing to do.
#[test]
fn a_sync_makes_one_side_like_the_other_and_then_has_nothing_to_do() {
    let node = Node::start();
    let seed = seed_or_fresh();
    println!("again with WEFT_SEED={seed}");
    let mut dice = Dice::new(seed);
    let (up, down) = (node.make_dir("up"), node.make_dir("down"));
    for round in 0..if full() { 200 } else { 12 } {
        for (top, times) in [(&up, 12), (&down, 6)] {
            (0..times).for_each(|_| change(top, &mut dice));
            give_all(top);
        }
        let shown = format!("seed {seed}, round {round}");
        node.run(&["sync", "--delete", "up", "weft:/mirror"]).ok();
        let again = node.run(&["sync", "--delete", "--json", "up", "weft:/mirror"]).json();
        let idle = |said: &serde_json::Value| ["copied", "linked", "removed"].iter().all(|of| said[of] == 0);
        assert!(idle(&again[0]), "{shown}: {again:?}");
        assert_eq!(node.run(&["sync", "--delete", "-n", "up", "weft:/mirror"]).ok(), "", "{shown}");
        node.run(&["sync", "--delete", "weft:/mirror", "down"]).ok();
        let (one, other) = (carried(&up), carried(&down));
        assert_eq!(one, other, "{shown}");
        let again = node.run(&["sync", "--delete", "--json", "weft:/mirror", "down"]).json();
        assert!(idle(&again[0]), "{shown}: {again:?}");
    }
}

#[test]
fn nothing_is_removed_where_not_all_of_the_source_could_be_read() {
    let node = Node::start();
    let top = node.make_dir("src");
    fs::create_dir(top.join("closed")).expect("made");
    for name in ["a", "closed/in"] {
        fs::write(top.join(name), name).expect("written");
    }
    give_all(&top);
    node.run(&["sync", "src", "weft:/dst"]).ok();
    node.feed(&["cp", "-", "weft:/dst/extra"], b"x").ok();
    let close =
        |mode| fs::set_permissions(top.join("closed"), fs::Permissions::from_mode(mode)).expect("ours");
    close(0o000);
    let said =
        node.run(&["sync", "--delete", "src", "weft:/dst"]).fails(3, &["closed", "nothing was removed"]);
    assert!(!said.err.contains("1 removed"), "{}", said.err);
    assert_eq!(node.run(&["cat", "/dst/closed/in", "/dst/extra"]).ok(), "closed/inx");
    close(0o755);
    node.run(&["sync", "--delete", "src", "weft:/dst"]).ok();
    node.run(&["cat", "/dst/extra"]).fails(1, &["extra"]);
    // Out of the tree: what may not be seen is not lacking.
    node.add_user("bob", "bob's password");
    node.run(&["acl", "grant", "/dst", "bob", "read"]).ok();
    node.run(&["acl", "grant", "--deny", "/dst/closed", "bob", "all"]).ok();
    let token = node.login("bob", "bob's password", &[]);
    node.make_dir("out/closed");
    for name in ["out/extra", "out/closed/in"] {
        node.write(name, "x");
    }
    node.run_with(token.trim(), &["sync", "--delete", "weft:/dst", "out"]).fails(3, &["nothing was removed"]);
    assert!(node.path("out/extra").exists() && node.path("out/closed/in").exists());
}

#[test]
fn a_dry_run_says_what_a_run_does_and_changes_nothing() {
    let node = Node::start();
    let top = node.make_dir("src");
    fs::create_dir_all(top.join("d")).expect("made");
    for name in ["same", "d/new", "changed"] {
        fs::write(top.join(name), name).expect("written");
    }
    give_all(&top);
    node.run(&["import", "src", "/dst", "--exclude", "/d"]).ok();
    fs::write(top.join("changed"), "is longer").expect("written");
    node.feed(&["cp", "-", "weft:/dst/extra"], b"x").ok();
    let said = node.run(&["sync", "--delete", "--dry-run", "src", "weft:/dst"]).ok();
    let mut lines: Vec<&str> = said.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["/dst/changed", "/dst/d/", "/dst/d/new", "remove /dst/extra"]);
    let listed = node.run(&["find", "/dst"]).ok();
    assert_eq!(listed, "/dst\n/dst/changed\n/dst/extra\n/dst/same\n");
    node.run(&["sync", "--delete", "src", "weft:/dst"]).ok();
    assert_eq!(node.run(&["find", "/dst"]).ok(), "/dst\n/dst/changed\n/dst/d\n/dst/same\n/dst/d/new\n");
}

#[test]
fn a_name_that_is_a_file_of_its_own_again_is_one_in_the_copy() {
    let node = Node::start();
    let top = node.make_dir("src");
    fs::write(top.join("a"), "one").expect("written");
    fs::hard_link(top.join("a"), top.join("b")).expect("linked");
    give_all(&top);
    node.run(&["sync", "src", "weft:/dst"]).ok();
    let id = |name: &str| {
        node.run(&["stat", "--json", &format!("/dst/{name}")]).json().remove(0)["id"].to_string()
    };
    assert_eq!(id("a"), id("b"));
    // As programs save: another file takes the name.
    fs::write(top.join("new"), "TWO").expect("written");
    fs::rename(top.join("new"), top.join("a")).expect("renamed");
    give_all(&top);
    for _ in 0..2 {
        node.run(&["sync", "src", "weft:/dst"]).ok();
        let bytes = ["a", "b"].map(|name| node.run(&["cat", &format!("/dst/{name}")]).ok());
        assert_eq!(bytes, ["TWO", "one"]);
        assert_ne!(id("a"), id("b"));
    }
}

#[test]
fn a_directory_that_rules_may_protect_is_not_replaced_by_a_file() {
    let node = Node::start();
    let top = node.make_dir("src");
    fs::write(top.join("d"), "a file").expect("written");
    give_all(&top);
    node.run(&["mkdir", "/dst", "/dst/d"]).ok();
    node.feed(&["cp", "-", "weft:/dst/d/keep.o"], b"kept").ok();
    let sync = |more: &[&str]| node.run(&[&["sync", "--delete", "src", "weft:/dst"], more].concat());
    sync(&["--exclude", "*.o"]).fails(1, &["a directory stands there"]);
    assert_eq!(node.run(&["cat", "/dst/d/keep.o"]).ok(), "kept");
    sync(&[]).ok();
    assert_eq!(node.run(&["cat", "/dst/d"]).ok(), "a file");
}

#[test]
fn bytes_that_size_and_time_do_not_tell_apart_are_told_by_checksum() {
    let node = Node::start();
    let top = node.make_dir("src");
    let write = |bytes: &[u8]| {
        fs::write(top.join("f"), bytes).expect("written");
        at(&top.join("f"), 5);
    };
    let (one, other) = (noise(1, 3 << 20), noise(2, 3 << 20));
    write(&one);
    give_all(&top);
    node.run(&["import", "src", "/dst"]).ok();
    write(&other);
    node.run(&["import", "src", "/dst"]).ok();
    node.run(&["cp", "weft:/dst/f", "quick"]).ok();
    assert!(fs::read(node.path("quick")).expect("read") == one, "size and time are the same");
    let said = node.run(&["import", "--checksum", "src", "/dst", "--json"]).json();
    assert_eq!(said[0]["copied"], 1);
    let said = node.run(&["import", "--checksum", "src", "/dst", "--json"]).json();
    assert_eq!(said[0]["copied"], 0);
    // Another time, the same bytes: nothing is sent, and the time is set.
    at(&top.join("f"), 6);
    let said = node.run(&["import", "--checksum", "src", "/dst", "--json"]).json();
    assert_eq!(said[0]["copied"], 0);
    node.run(&["export", "/dst", "out"]).ok();
    alike(&top, &node.path("out"));
    fs::write(node.path("out/f"), &one).expect("written");
    at(&node.path("out/f"), 6);
    node.run(&["export", "--checksum", "/dst", "out"]).ok();
    alike(&top, &node.path("out"));
}

/// Fills a tree with so many small files, several of each hundred larger.
fn many(top: &Path, count: u64) {
    for n in 0..count {
        let dir = top.join(format!("{:02}/{:02}", n % 7, n % 41));
        fs::create_dir_all(&dir).expect("made");
        let length = if n % 50 == 0 { 200_000 } else { (n * 37 % 9000) as usize };
        fs::write(dir.join(format!("f{n}")), noise(n, length)).expect("written");
    }
    give_all(top);
}

fn count() -> u64 {
    if full() { 50_000 } else { 500 }
}

#[test]
fn an_import_that_was_killed_is_gone_on_with_and_ends_equal() {
    let node = Node::start();
    let top = node.make_dir("src");
    many(&top, count());
    for part in [1, 3] {
        let mut import = node.command();
        let mut running = import.args(["import", "src", "/dst"]).spawn().expect("it starts");
        // Until some of it is there, however fast the machine is.
        let arrived = || node.run(&["find", "/dst", "--type", "f"]).out.lines().count() as u64;
        while arrived() < count() * part / 8 && running.try_wait().expect("ours").is_none() {}
        signal(&running, Signal::KILL);
        wait(&mut running);
    }
    let said = node.run(&["import", "src", "/dst", "--json"]).json();
    let unchanged = said[0]["unchanged"].as_u64().expect("a number");
    assert!(unchanged >= count() / 8, "what had arrived was sent again: {said:?}");
    // And one out of the tree.
    let mut export = node.command();
    let mut running = export.args(["export", "/dst", "out"]).spawn().expect("it starts");
    let some = node.path("out/00/00");
    while !some.exists() && running.try_wait().expect("ours").is_none() {}
    signal(&running, Signal::KILL);
    wait(&mut running);
    node.run(&["sync", "--delete", "weft:/dst", "out"]).ok();
    alike(&top, &node.path("out"));
}

/// Names, links, times and attributes are applied one by one and flushed once: before they are reported.
#[test]
fn what_an_import_reported_outlives_the_node_that_is_killed_then() {
    let mut node = Node::start();
    let top = node.make_dir("photos");
    one_of_each(&top);
    node.run(&["import", "photos", "/photos"]).ok();
    node.kill();
    node.up();
    node.run(&["export", "/photos", "back"]).ok();
    alike(&top, &node.path("back"));
}

#[test]
fn what_cannot_be_meant_is_refused_before_anything_is_made() {
    let node = Node::start();
    node.make_dir("d");
    node.write("f", "x");
    node.feed(&["cp", "-", "weft:/f"], b"f").ok();
    for (args, words) in [
        (["import", "f", "/x"], "not a directory"),
        (["import", "none", "/x"], "none"),
        (["import", "d", "/f"], "not a directory"),
        (["export", "/f", "x"], "not a directory"),
        (["export", "/", "f"], "not a directory"),
        (["sync", "d", "x"], "one side must be in the tree"),
        (["sync", "weft:/", "weft:/x"], "weft cp -r"),
        (["import", "d", "x"], "starts with `/`"),
    ] {
        node.run(&args).fails(1, &["error:", words]);
    }
    node.run(&["import", "--exclude", "/", "d", "/x"]).fails(1, &["pattern"]);
    assert_eq!(node.run(&["ls", "/"]).ok(), "f\n");
    assert_eq!(node.run(&["cat", "/f"]).ok(), "f");
    assert!(!node.path("x").exists());
}
