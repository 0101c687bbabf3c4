//! `weft backup` of a running node and `weft restore` elsewhere: the copy is the same
//! tree with the same rights, and one that is damaged is refused before anything is made.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use weft_conformance::run::not_run;

use crate::http::Http;
use crate::node::{NOBODY, Node, noise};

/// Large enough for an object of more than one block, small enough for an inode, and between.
const LENGTHS: [usize; 3] = [2_500_000, 300, 70_000];

/// A node with people, rights and files of each kind.
fn furnished() -> Node {
    let node = Node::start();
    let alice = node.add_user("alice", "wonder");
    node.add_user("bob", "builder");
    node.run_with(&alice, &["group", "make", "team"]).ok();
    node.run_with(&alice, &["group", "add", "group:alice/team", "bob"]).ok();
    node.run(&["mkdir", "-p", "/fixed/team", "/fixed/closed"]).ok();
    let http = node.http(Some(&node.token()));
    for (number, length) in LENGTHS.into_iter().enumerate() {
        for dir in ["team", "closed"] {
            let path = format!("/fixed/{dir}/{number}");
            assert_eq!(http.put(&path, &noise(number as u64, length)).status, 201);
        }
    }
    node.run(&["ln", "/fixed/closed/0", "/fixed/closed/hard"]).ok();
    node.run(&["ln", "-s", "team/1", "/fixed/soft"]).ok();
    node.run(&["acl", "grant", "/fixed/team", "group:alice/team", "read"]).ok();
    node.run(&["acl", "grant", "/fixed/closed", "alice", "read"]).ok();
    node.run(&["acl", "grant", "/fixed/closed", "bob", "read", "--deny"]).ok();
    node
}

/// Everything that is said of `/fixed`, and its bytes.
fn portrait(node: &Node) -> (Vec<serde_json::Value>, Vec<Vec<u8>>) {
    let mut said = node.run(&["ls", "-R", "-d", "--json", "/fixed"]).json();
    said.extend(node.run(&["ls", "-R", "--json", "/fixed"]).json());
    for path in ["/fixed", "/fixed/team", "/fixed/closed"] {
        let mut policy = node.run(&["acl", "show", path, "--json"]).json().remove(0);
        // The root's container holds what is put meanwhile, too.
        policy.as_object_mut().expect("an object").remove("bytes_used");
        said.push(policy);
    }
    said.extend(node.run(&["group", "ls", "--json"]).json());
    said.extend(node.run(&["user", "ls", "--json"]).json());
    let http = node.http(Some(&node.token()));
    let bytes = (0..LENGTHS.len()).map(|number| http.bytes(&format!("/fixed/closed/{number}"))).collect();
    (said, bytes)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of ours is text")
}

fn load_path(number: usize) -> String {
    format!("/load/{number}")
}

fn load_bytes(number: usize) -> Vec<u8> {
    noise(1000 + number as u64, LENGTHS[number % LENGTHS.len()])
}

/// Puts files one after another until it is told to stop; counts what was acknowledged.
fn load(http: &Http, stop: &AtomicBool, acknowledged: &AtomicUsize) {
    for number in 0.. {
        if stop.load(Ordering::Acquire) {
            return;
        }
        assert_eq!(http.put(&load_path(number), &load_bytes(number)).status, 201);
        acknowledged.store(number + 1, Ordering::Release);
    }
}

/// Every file below a directory.
fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("read") {
        let path = entry.expect("read").path();
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}

/// Changes the bit in the middle of a file, as a worn disk does.
fn flip(path: &Path) {
    let mut bytes = fs::read(path).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    fs::write(path, bytes).expect("written");
}

#[test]
fn a_backup_taken_under_load_is_restored_elsewhere_as_the_same_tree_with_the_same_rights() {
    let node = furnished();
    node.run(&["mkdir", "/load"]).ok();
    let before = portrait(&node);
    let alice = node.login("alice", "wonder", &[]);
    let (revoked, backup) = (node.login("bob", "builder", &[]), node.path("backup"));
    node.run_with(&revoked, &["revoke", "--caller", "bob"]).ok();
    let (stop, acknowledged) = (AtomicBool::new(false), AtomicUsize::new(0));
    let at_least = std::thread::scope(|scope| {
        let (http, stop, acknowledged) = (node.http(Some(&node.token())), &stop, &acknowledged);
        scope.spawn(move || load(&http, stop, acknowledged));
        while acknowledged.load(Ordering::Acquire) < LENGTHS.len() {
            std::thread::yield_now();
        }
        let at_least = acknowledged.load(Ordering::Acquire);
        let said = node.run(&["backup", text(&backup), "--json"]);
        stop.store(true, Ordering::Release);
        assert_eq!(said.err, "");
        let report = said.json();
        assert_eq!(report[0]["path"], text(&backup));
        assert!(report[0]["warning"].as_str().is_some_and(|words| words.contains("keys")), "{report:?}");
        assert!(report[0]["objects"].as_u64() >= Some(4), "{report:?}");
        at_least
    });
    let acknowledged = acknowledged.into_inner();
    assert_eq!(portrait(&node).0, before.0, "a backup changes nothing");
    let root_key = files_called(&backup, "root.key");
    assert!(root_key.is_empty(), "the root key is in a backup: {root_key:?}");

    let mut other = Node::unstarted();
    other.run(&["restore", text(&backup), text(&other.data())]).ok();
    other.up();
    assert_eq!(portrait(&other).0, before.0);
    assert!(portrait(&other).1 == before.1, "bytes differ");
    // What was acknowledged before the backup began is there; what came later, whole or not.
    let http = other.http(Some(&other.token()));
    for number in 0..=acknowledged {
        let answer = http.get(&load_path(number));
        let there = answer.status == 200;
        assert!(there || (answer.status == 404 && number >= at_least), "{number}: {}", answer.status);
        assert!(!there || answer.body == load_bytes(number), "{number} is not what was put");
    }
    // People, their passwords, groups and credentials; and what was withdrawn stays so.
    other.run_with(&alice, &["cat", "/fixed/closed/1"]).ok();
    let bob = other.login("bob", "builder", &[]);
    other.run_with(&bob, &["cat", "/fixed/team/1"]).ok();
    other.run_with(&bob, &["cat", "/fixed/closed/1"]).fails(1, &["error: cannot read /fixed/closed/1"]);
    other.run_with(&revoked, &["whoami"]).fails(3, &["error:"]);
    assert!(other.run(&["audit", "--verify"]).ok().starts_with("the log is whole"));
    other.stop();
    let clean = other.run(&["fsck", text(&other.data()), "--json"]).json();
    assert_eq!(clean.last().expect("a summary")["wrong"], 0, "{clean:?}");
}

fn files_called(dir: &Path, name: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    files(dir, &mut found);
    found.retain(|path| path.file_name().is_some_and(|file| file == name));
    found
}

#[test]
fn a_backup_with_one_changed_byte_is_refused_by_name_and_leaves_nothing_behind() {
    let node = furnished();
    let backup = node.path("backup");
    node.run(&["backup", text(&backup)]).ok();
    let mut all = Vec::new();
    files(&backup, &mut all);
    let all: Vec<_> =
        all.into_iter().filter(|file| fs::metadata(file).expect("it is there").len() > 0).collect();
    for part in ["meta/", "objects/", "auth/keys/", "auth/audit/", "complete"] {
        let hurt: Vec<_> = all.iter().filter(|file| text(file).contains(&format!("backup/{part}"))).collect();
        assert!(!hurt.is_empty(), "no file of the backup is below {part}");
        for file in hurt {
            flip(file);
            let said = node.run(&["restore", text(&backup), text(&node.path("copy"))]);
            assert_eq!(said.code, 1, "{}: {}{}", file.display(), said.out, said.err);
            let name = file.strip_prefix(&backup).expect("it is below").display().to_string();
            assert!(said.err.contains(&name), "`{name}` is not in: {}", said.err);
            assert!(!node.path("copy").exists(), "something is left after {name} was damaged");
            flip(file);
        }
    }
    // Something missing, something cut, something that was not there.
    let object = all.iter().find(|file| text(file).contains("/objects/objects/")).expect("there is one");
    let bytes = fs::read(object).expect("read");
    for damage in [None, Some(&bytes[..bytes.len() - 1])] {
        match damage {
            None => fs::remove_file(object).expect("removed"),
            Some(cut) => fs::write(object, cut).expect("written"),
        }
        node.run(&["restore", text(&backup), text(&node.path("copy"))]).fails(1, &["error:", "damaged"]);
    }
    fs::write(object, &bytes).expect("written");
    crate::node::give(object);
    fs::write(backup.join("meta/stranger"), "x").expect("written");
    node.run(&["restore", text(&backup), text(&node.path("copy"))]).fails(1, &["error:", "meta/stranger"]);
    fs::remove_file(backup.join("meta/stranger")).expect("removed");
    // Whole again, it is taken.
    node.run(&["restore", text(&backup), text(&node.path("copy"))]).ok();
}

#[test]
fn a_restore_takes_no_directory_that_holds_anything() {
    let node = furnished();
    let backup = node.path("backup");
    node.run(&["backup", text(&backup)]).ok();
    // That of the node itself, which runs; one with somebody's file in it.
    let pid = format!("pid {}", node.pid());
    let said = node.run(&["restore", text(&backup), text(&node.data())]);
    said.fails(4, &["error:", text(&node.data()), &pid, "has it", "hint:"]);
    node.run(&["status"]).ok();
    let (dir, kept) = (node.make_dir("dir"), node.write("dir/kept", "mine"));
    let said = node.run(&["restore", text(&backup), text(&dir)]);
    said.fails(1, &["error: cannot restore to", text(&dir), "empty"]);
    assert_eq!(fs::read(&kept).expect("read"), b"mine");
    assert_eq!(fs::read_dir(&dir).expect("read").count(), 1, "something was put beside it");
    fs::remove_file(kept).expect("removed");
    node.run(&["restore", text(&backup), text(&dir)]).ok();
    node.run(&["restore", text(&backup), text(&dir)]).fails(1, &["error: cannot restore to", "empty"]);
    // What a restore that was cut off leaves is no node.
    fs::remove_dir_all(dir.join("auth/keys")).expect("removed");
    let up = node.run(&["up", text(&dir), "--http", "127.0.0.1:0"]);
    assert!(up.code != 0 && up.err.contains("error:"), "{}{}", up.out, up.err);
    // A backup is never written over anything either, nor into what it copies.
    node.run(&["backup", text(&backup)]).fails(1, &["error:", text(&backup)]);
    let inside = node.data().join("auth/backup");
    node.run(&["backup", text(&inside)]).fails(1, &["error:", text(&inside)]);
    node.run(&["restore", text(&dir), text(&node.path("x"))]).fails(1, &["error:", "no whole backup"]);
    assert!(!node.path("x").exists());
    // It is the administrator's to make.
    let alice = node.login("alice", "wonder", &[]);
    node.run_with(&alice, &["backup", text(&node.path("hers"))]).fails(3, &["error:"]);
    assert!(!node.path("hers").exists());
}

#[test]
fn whoever_comes_during_a_restore_is_told_who_has_the_directory() {
    let node = furnished();
    let backup = node.path("backup");
    node.run(&["backup", text(&backup)]).ok();
    let slow = node.path("slow");
    fs::create_dir(&slow).expect("made");
    // Its list is a pipe: the restore waits for whoever writes to it.
    let list = slow.join("complete");
    let made = Command::new("mkfifo").arg(&list).status().expect("it runs");
    assert!(made.success());
    for dir in [node.path("above/new"), node.make_dir("empty")] {
        let was_there = dir.exists();
        let mut restore = node.command().args(["restore", text(&slow), text(&dir)]).spawn().expect("it runs");
        let who = format!("weft restore, pid {} has it", restore.id());
        let until = Instant::now() + Duration::from_secs(60);
        while fs::read_to_string(dir.join("lock.holder")).unwrap_or_default().is_empty() {
            assert!(Instant::now() < until, "the restore does not take its directory");
            std::thread::sleep(Duration::from_millis(5));
        }
        node.run(&["restore", text(&backup), text(&dir)]).fails(4, &["error:", text(&dir), &who]);
        node.run(&["up", text(&dir), "--http", "127.0.0.1:0"]).fails(4, &["error:", text(&dir), &who]);
        // The list is empty after all. What was made for the restore is gone with it.
        drop(fs::File::options().write(true).open(&list).expect("opened"));
        assert_eq!(restore.wait().expect("it ends").code(), Some(1));
        assert_eq!(dir.exists(), was_there);
        assert!(!was_there || fs::read_dir(&dir).expect("read").count() == 0, "something is left there");
        assert!(!node.path("above").exists(), "a directory is left above it");
        node.run(&["restore", text(&backup), text(&dir)]).ok();
        fs::remove_dir_all(node.path("above")).ok();
    }
}

/// Puts files of each kind, and returns their ids.
fn made_ids(node: &Node, dir: &str) -> BTreeSet<String> {
    node.run(&["mkdir", dir]).ok();
    let http = node.http(Some(&node.token()));
    let mut paths = vec![String::from(dir)];
    for (number, length) in LENGTHS.into_iter().enumerate() {
        let path = format!("{dir}/{number}");
        assert_eq!(http.put(&path, &noise(number as u64, length)).status, 201);
        paths.push(path);
    }
    paths.iter().map(|path| said_of(node, path, "id")).collect()
}

/// One word of what `stat` says.
fn said_of(node: &Node, path: &str, word: &str) -> String {
    let said = node.run(&["stat", path, "--json"]).json().remove(0);
    said[word].as_str().unwrap_or_else(|| panic!("no {word} in {said}")).to_owned()
}

/// Restores a backup beside the node, and starts what came of it.
fn restored(backup: &Path) -> Node {
    let mut other = Node::unstarted();
    other.run(&["restore", text(backup), text(&other.data())]).ok();
    other.up();
    other
}

#[test]
fn no_id_given_since_a_backup_is_given_again_by_any_restore_of_it() {
    let mut node = Node::start();
    made_ids(&node, "/before");
    let before = said_of(&node, "/before/0", "id");
    let backup = node.path("backup");
    node.run(&["backup", text(&backup)]).ok();
    // From here on the numbers are those of a lease that the backup knows nothing of.
    node.stop();
    node.up();
    let mut given = made_ids(&node, "/lives");
    let mut containers = BTreeSet::from([said_of(&node, "/before", "container")]);
    node.run(&["acl", "grant", "/lives", "admin", "read"]).ok();
    assert!(containers.insert(said_of(&node, "/lives", "container")), "a policy of its own");
    node.kill();
    for life in 1..3 {
        let other = restored(&backup);
        assert_eq!(said_of(&other, "/before/0", "id"), before, "ids of before stay");
        let made = made_ids(&other, "/lives");
        let again: Vec<_> = made.intersection(&given).collect();
        assert!(again.is_empty(), "given twice in life {life}: {again:?}");
        given.extend(made);
        other.run(&["acl", "grant", "/lives", "admin", "read"]).ok();
        assert!(
            containers.insert(said_of(&other, "/lives", "container")),
            "a container twice: {containers:?}"
        );
        other.run(&["cat", "/before/0"]).ok();
    }
}

#[test]
fn a_credential_made_since_the_backup_holds_and_what_was_decided_since_is_undone() {
    let mut node = Node::start();
    let alice = node.add_user("alice", "wonder");
    node.run(&["mkdir", "/his"]).ok();
    let backup = node.path("backup");
    node.run(&["backup", text(&backup)]).ok();
    let (later, bob) = (node.login("alice", "wonder", &[]), node.add_user("bob", "builder"));
    node.run(&["acl", "grant", "/his", "bob", "read"]).ok();
    node.run_with(&bob, &["ls", "/his"]).ok();
    node.run_with(&alice, &["revoke", "--caller", "alice"]).ok();
    let latest = node.login("alice", "wonder", &[]);
    node.run_with(&later, &["whoami"]).fails(3, &["error:"]);
    node.kill();
    let other = restored(&backup);
    for credential in [&alice, &later, &latest, &bob] {
        other.run_with(credential, &["whoami"]).ok();
    }
    // What was granted to a user whom the backup does not know is undone, too.
    other.run_with(&bob, &["ls", "/his"]).fails(1, &["error:"]);
    other.run(&["revoke", "--caller", "alice"]).ok();
    other.run(&["revoke", "--caller", "bob"]).fails(1, &["the domain has no such user", "--unknown"]);
    other.run_with(&bob, &["whoami"]).ok();
    other.run(&["revoke", "--caller", "bob", "--unknown"]).ok();
    for credential in [&alice, &later, &latest, &bob] {
        other.run_with(credential, &["whoami"]).fails(3, &["error:"]);
    }
}

#[test]
fn a_restore_by_another_uid_makes_its_user_the_administrator_and_takes_no_stranger_for_somebody() {
    if !rustix::process::geteuid().is_root() {
        return not_run("backups::uid", "only root can run a node as another user");
    }
    const OTHER: u32 = 61_234;
    let node = Node::start();
    node.add_user("alice", "wonder");
    node.run(&["user", "uid", "alice", "61235"]).ok();
    let backup = node.path("backup");
    node.run(&["backup", text(&backup)]).ok();
    for keep in [false, true] {
        let other = Node::unstarted();
        let copied = Command::new("cp").arg("-r").args([&backup, &other.path("backup")]).status();
        assert!(copied.expect("it runs").success());
        let mut other = other.run_by(OTHER);
        let mut restore = vec!["restore", "backup"];
        restore.extend(keep.then_some("--keep-uids"));
        let said = other.run(&restore);
        let mut expected = format!("administrator admin: uid {OTHER} on this machine\n");
        expected += &format!("uid {NOBODY} is not admin any more\n");
        if !keep {
            expected += "uid 61235 is not alice any more\n";
        }
        assert!(
            said.out.ends_with(&expected) && said.err.contains("weft user uid"),
            "{}{}",
            said.out,
            said.err
        );
        said.ok();
        other.up();
        let who = |uid: u32| other.feed_command(other.command().arg("whoami").uid(uid).gid(uid), b"");
        assert!(who(OTHER).ok().contains("admin"));
        assert!(!who(NOBODY).out.contains("admin"), "a stranger is an administrator");
        assert_eq!(who(61_235).out.contains("alice"), keep);
        other.run(&["user", "ls"]).ok();
        other.login("alice", "wonder", &[]);
    }
    let said = node.run(&["restore", "backup", "same", "--json"]).json().remove(0);
    assert_eq!(said["administrator"], serde_json::json!({ "user": "admin", "uid": NOBODY }));
    assert_eq!(said["uids_ended"], serde_json::json!([]));
}

#[test]
fn damage_that_a_backup_meets_is_named_and_all_else_is_in_it() {
    let mut node = furnished();
    for text in ["corrupt", "damaged", "match", "verif"] {
        node.allow(text);
    }
    let place =
        crate::corrupt::find(&node.data().join("objects"), &noise(0, 100)[..64]).expect("it is there").0;
    flip(&place);
    let (first, second) = (node.path("first"), node.path("second"));
    let said = node.run(&["backup", text(&first)]);
    assert_eq!(said.code, 1, "{}{}", said.out, said.err);
    assert!(said.out.contains("LOST") && said.out.contains("/fixed/"), "{}", said.out);
    assert!(said.out.contains("do not match") && said.out.contains("backed up to"), "{}", said.out);
    let said = node.run(&["backup", text(&second), "--json"]);
    assert_eq!(said.code, 1, "{}{}", said.out, said.err);
    let report: serde_json::Value = serde_json::from_str(&said.out).expect("JSON");
    let damaged = report["damaged"].as_array().expect("a list");
    assert!(damaged.len() == 1 && damaged[0].to_string().contains("/fixed/"), "{report}");
    node.stop();
    fs::rename(node.data(), node.path("old")).expect("moved away");
    node.run(&["restore", text(&second)]).ok();
    node.up();
    let http = node.http(Some(&node.token()));
    for (number, length) in LENGTHS.into_iter().enumerate().skip(1) {
        assert!(http.bytes(&format!("/fixed/team/{number}")) == noise(number as u64, length));
    }
}

#[test]
fn a_backup_that_failed_is_gone_and_one_that_cannot_begin_says_why() {
    let mut node = Node::start();
    node.allow("");
    let backup = node.path("backup");
    node.run(&["backup", text(&node.path("no/parent"))]).fails(1, &["error:", "would lie in", "hint: make"]);
    let keys = node.data().join("auth").join("keys");
    fs::rename(&keys, node.path("keys")).expect("moved away");
    fs::write(&keys, "").expect("written");
    let failed = node.run(&["backup", text(&backup)]);
    assert!(failed.code != 0 && !backup.exists(), "{}{}", failed.out, failed.err);
    fs::remove_file(&keys).expect("removed");
    fs::rename(node.path("keys"), &keys).expect("moved back");
    node.run(&["backup", text(&backup)]).ok();
    node.run(&["backup", text(&backup)]).fails(1, &["error:", "name is taken", "not there yet"]);
}
