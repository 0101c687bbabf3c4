//! A full disk: each way in says so and nothing is lost; space that returns is used.

use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use weft_conformance::run::{have, not_run};

use crate::node::{Node, give, noise, soon};

const PIECE: usize = 1 << 20;

/// A small file system for one node's directory.
pub struct Small(PathBuf);

impl Small {
    /// Mounts one where a node will make its directory; `None` if that cannot be.
    pub fn mount(test: &str, node: &Node, size: &str) -> Option<Self> {
        Self::mount_at(test, node, "data", size)
    }

    /// The same where something else of the node's is.
    fn mount_at(test: &str, node: &Node, name: &str, size: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            not_run(test, "only root can mount a tmpfs");
            return None;
        }
        let at = node.make_dir(name);
        let options = format!("size={size},mode=0711");
        let status = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(&at).status();
        if !status.is_ok_and(|status| status.success()) {
            not_run(test, "a tmpfs cannot be mounted");
            return None;
        }
        give(&at);
        Some(Self(at))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Writes a file until the disk takes no byte more.
fn fill_up(path: &Path) {
    let mut file = fs::File::create(path).expect("a name is free");
    let mut piece = PIECE;
    while piece > 0 {
        if file.write_all(&vec![b'f'; piece]).is_err() {
            piece /= 2;
        }
    }
}

#[test]
fn a_node_starts_on_a_disk_without_a_free_block_however_it_ended() {
    const TEST: &str = "full::a_node_starts_on_a_disk_without_a_free_block_however_it_ended";
    let mut node = Node::unstarted();
    let Some(_small) = Small::mount(TEST, &node, "32m") else { return };
    for text in ["space", "full", "os error 28"] {
        node.allow(text);
    }
    node.up();
    assert_eq!(node.http(Some(&node.token())).put("/kept", &noise(1, 5000)).status, 201);
    let filler = node.data().join("filler");
    let ends: [fn(&mut Node); 2] = [Node::kill, Node::stop];
    for end in ends.iter().cycle().take(6) {
        end(&mut node);
        fill_up(&filler);
        node.up();
        assert!(node.http(Some(&node.token())).bytes("/kept") == noise(1, 5000));
    }
    fs::remove_file(&filler).expect("it is there");
    assert_eq!(node.http(Some(&node.token())).put("/after", &noise(2, 5000)).status, 201);
}

#[test]
fn a_full_disk_is_told_at_each_door_and_recovers() {
    const TEST: &str = "full::a_full_disk_is_told_at_each_door_and_recovers";
    if !have(TEST, &["fusermount3"]) {
        return;
    }
    let mut node = Node::unstarted();
    let Some(_small) = Small::mount(TEST, &node, "64m") else { return };
    // What the node says of it is the point of this test.
    for text in ["space", "full", "os error 28"] {
        node.allow(text);
    }
    node.up();
    let http = node.http(Some(&node.token()));
    let mut kept = Vec::new();
    let refused = (0..200).find_map(|n| {
        let name = format!("/f{n}");
        let answer = http.put(&name, &noise(n, PIECE));
        match answer.status {
            201 => kept.push((name, noise(n, PIECE))),
            _ => return Some(answer),
        }
        None
    });
    let refused = refused.expect("64 MiB do not hold 200");
    assert_eq!(refused.status, 507, "{}", refused.text());
    assert!(refused.text().contains("space"), "{}", refused.text());
    // The machine's paths are for the node's log.
    assert!(!refused.text().contains("data/"), "{}", refused.text());
    assert!(kept.len() > 10, "most of the disk can be used: {}", kept.len());

    // The command line says the same.
    let big = node.write("big", noise(9, 8 * PIECE));
    let said = node.run(&["cp", big.to_str().expect("a path"), "weft:/big"]);
    said.fails(1, &["error:", "space"]);

    // So does the mount.
    let at = node.mount("mnt");
    let mut dd = node.as_user("dd");
    dd.args(["if=/dev/zero", "bs=1M", "count=40", "conv=fsync"]);
    dd.arg(format!("of={}", at.join("zeroes").display()));
    let out = dd.output().expect("dd runs");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success() && out.status.signal().is_none(), "{said}");
    assert!(said.contains("No space left on device"), "{said}");
    node.unmount(&at);

    // Reading works on; nothing that was refused is visible; nothing kept has gone.
    assert_ne!(http.get("/big").status, 200);
    assert_ne!(http.get(&format!("/f{}", kept.len())).status, 200);
    for (name, bytes) in &kept {
        assert!(http.bytes(name) == *bytes, "{name} has changed");
    }

    // A restart on the full disk works.
    node.kill();
    node.up();
    let http = node.http(Some(&node.token()));
    for (name, bytes) in &kept {
        assert!(http.bytes(name) == *bytes, "{name} has changed");
    }

    // What is removed makes room, within the delay of the sweep.
    assert!(http.delete("/zeroes").status < 500);
    for (name, _) in kept.drain(..kept.len() / 2) {
        let answer = http.delete(&name);
        assert_eq!(answer.status, 204, "{name}: {}", answer.text());
    }
    let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
    loop {
        let answer = http.put("/after", &noise(77, 4 * PIECE));
        if answer.status == 201 {
            break;
        }
        assert!(std::time::Instant::now() < until, "no room 30 s later: {}", answer.text());
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    assert!(http.bytes("/after") == noise(77, 4 * PIECE));
    node.stop();
    node.up();
    let http = node.http(Some(&node.token()));
    for (name, bytes) in &kept {
        assert!(http.bytes(name) == *bytes, "{name} has changed");
    }
    assert!(fs::metadata(node.data()).is_ok());
}

/// What programs do with a directory whose disk they fill: what was there is read on, and once something was removed there is
/// room again, for what is made anew and for what is appended.
const FILLS: &str = r#"
cd "$TREE"
seq 200000 >kept
sync kept
cp kept "$SCRATCH"
i=0
while dd if=/dev/zero of=full$i bs=1M count=8 conv=fsync 2>"$SCRATCH/said"; do i=$((i + 1)); test $i -lt 50; done
grep -q 'No space left on device' "$SCRATCH/said"
cmp kept "$SCRATCH/kept"
rm full*
tries=0
until cp kept again 2>"$SCRATCH/said" && sync again 2>"$SCRATCH/said"; do
  tries=$((tries + 1)); test $tries -lt 100; sleep 0.3
done
cmp again "$SCRATCH/kept"
echo more >>kept
sync kept
test "$(tail -n 1 kept)" = more
test "$(ls)" = 'again
kept'
"#;

/// One mount stands through it all.
fn is_filled_and_goes_on(node: &mut Node, tree: &str) {
    let (mount, scratch) = (node.mount("mnt"), node.make_dir("scratch"));
    let tree = mount.join(tree);
    node.sh(&format!("export TREE={} SCRATCH={}\n{FILLS}", tree.display(), scratch.display()));
}

#[test]
fn a_mount_over_a_full_disk_goes_on_once_there_is_room() {
    const TEST: &str = "full::mount";
    if !have(TEST, &["fusermount3"]) {
        return;
    }
    let mut node = Node::unstarted();
    let Some(_small) = Small::mount(TEST, &node, "64m") else { return };
    for text in ["space", "full", "os error 28"] {
        node.allow(text);
    }
    node.up();
    node.run(&["mkdir", "/in"]).ok();
    is_filled_and_goes_on(&mut node, "in");
}

#[test]
fn a_mount_over_a_share_on_a_full_disk_goes_on_once_there_is_room() {
    const TEST: &str = "full::share";
    if !have(TEST, &["fusermount3"]) {
        return;
    }
    let mut node = Node::unstarted();
    let Some(_small) = Small::mount_at(TEST, &node, "shared", "64m") else { return };
    node.up();
    node.run(&["share", "shared", "/in"]).ok();
    is_filled_and_goes_on(&mut node, "in");
}

/// Programs that ask how much room there is are told of the directory they write to.
#[test]
fn a_directory_with_a_limit_shows_programs_the_limit_and_what_is_left_of_it() {
    const LIMIT: u64 = 4 << 20;
    if !have("full::limit", &["fusermount3"]) {
        return;
    }
    let mut node = Node::start();
    node.run(&["mkdir", "/d"]).ok();
    node.run(&["acl", "set", "/d", "--bytes-max", &LIMIT.to_string()]).ok();
    let at = node.mount("mnt");
    let space = |dir: &str| {
        let said = node.sh(&format!("stat -f -c '%b %a %S' mnt/{dir}"));
        let told: Vec<u64> = said.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        (told[0] * told[2], told[1] * told[2])
    };
    assert_eq!(space("d"), (LIMIT, LIMIT));
    let (all, free) = space("");
    assert!(all > LIMIT && free > LIMIT, "of the disk: {free} of {all}");

    node.sh("mkdir mnt/d/below; dd if=/dev/zero of=mnt/d/below/f bs=1M count=3 status=none");
    assert_eq!(space("d/below"), (LIMIT, LIMIT / 4));
    let mut dd = node.as_user("dd");
    dd.args(["if=/dev/zero", "bs=64K", "of=mnt/d/g"]);
    node.feed_command(&mut dd, b"").fails(1, &["No space left on device"]);
    for dir in ["d", "d/below", "d/g"] {
        let (all, free) = space(dir);
        assert!(all == LIMIT && free < 64 << 10, "{dir}: {free} of {all}");
    }
    node.sh("rm mnt/d/below/f");
    soon("there is room again", || space("d").1 >= LIMIT * 3 / 4);
    node.unmount(&at);
}

#[test]
fn an_upload_that_does_not_fit_keeps_no_room_from_the_next() {
    const TEST: &str = "full::an_upload_that_does_not_fit_keeps_no_room_from_the_next";
    let mut node = Node::unstarted();
    let Some(_small) = Small::mount(TEST, &node, "48m") else { return };
    for text in ["space", "full", "os error 28"] {
        node.allow(text);
    }
    node.up();
    let path = |file: PathBuf| file.to_str().expect("a path").to_owned();
    let big = path(node.write("big", noise(1, 100 * PIECE)));
    let small = path(node.write("small", noise(2, 5 * PIECE)));
    for n in 0..3 {
        node.run(&["cp", &big, "weft:/big"]).fails(1, &["error:", "full"]);
        let status = node.run(&["status", "--json"]);
        assert_eq!(status.code, 1, "it is not ready: so little is free");
        let status: serde_json::Value = serde_json::from_str(&status.out).expect("one document");
        assert!(status["uploads"] == 0 && status["upload_bytes"] == 0, "{status}");
        // There is no wait in between for anything to be tidied.
        node.run(&["cp", &small, &format!("weft:/small{n}")]).ok();
    }
    assert!(node.http(Some(&node.token())).bytes("/small2") == noise(2, 5 * PIECE));
}

#[test]
fn a_restore_that_a_full_disk_ends_leaves_nothing_in_the_way_of_the_next() {
    const TEST: &str = "full::a_restore_that_a_full_disk_ends_leaves_nothing_in_the_way_of_the_next";
    let node = Node::start();
    assert_eq!(node.http(Some(&node.token())).put("/f", &noise(1, 20 * PIECE)).status, 201);
    let backup = node.path("backup");
    node.run(&["backup", backup.to_str().expect("a path")]).ok();
    let mut other = Node::unstarted();
    let Some(_small) = Small::mount(TEST, &other, "16m") else { return };
    node.sh(&format!("chmod -R a+rX '{}'", backup.display()));
    let restore = ["restore", backup.to_str().expect("a path")];
    for _ in 0..2 {
        other.run(&restore).fails(1, &["error:", "full"]);
    }
    let larger = Command::new("mount").args(["-o", "remount,size=64m"]).arg(other.data()).status();
    assert!(larger.expect("it runs").success());
    other.run(&restore).ok();
    other.up();
    assert!(other.http(Some(&other.token())).bytes("/f") == noise(1, 20 * PIECE));
}
