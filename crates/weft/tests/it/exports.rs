//! Directories of the machine that a real node serves in place, by every way in, as an ordinary user.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::net::sockopt;
use rustix::process::Signal;
use weft_conformance::run::{have, not_run};

use crate::node::{Node, noise, soon, wait};
use crate::taking_over::served_by;

/// A node that shares a directory at `/data`, with a file and a directory in it.
fn sharing() -> Node {
    let node = Node::start();
    node.make_dir("mine");
    node.make_dir("mine/d");
    node.write("mine/f", "of the machine");
    node.run(&["share", "mine", "/data"]).ok();
    node
}

#[test]
fn a_shared_directory_is_read_and_written_by_every_way_in() {
    let node = sharing();
    let (http, carla) = (node.http(Some(&node.token())), node.add_user("carla", "carla's password"));
    let mine = node.path("mine");
    assert_eq!(http.bytes("/data/f"), b"of the machine");
    assert_eq!(http.put("/data/d/g", &noise(1, 3 << 20)).status, 201);
    assert!(fs::read(mine.join("d/g")).expect("it is there") == noise(1, 3 << 20));
    fs::write(mine.join("f"), "changed").expect("written");
    assert_eq!(http.bytes("/data/f"), b"changed");
    assert_eq!(node.http(Some(&carla)).get("/data/f").status, 404, "nothing was granted");
    node.run(&["acl", "grant", "/data", "carla", "read"]).ok();
    let theirs = node.http(Some(&carla));
    assert_eq!((theirs.bytes("/data/f"), theirs.put("/data/f", b"no").status), (b"changed".to_vec(), 403));
    // An entity tag lasts as long as the bytes, and no longer.
    let first = http.get("/data/f");
    let tag = first.head.lines().find_map(|line| line.strip_prefix("ETag: "));
    let unless = format!("If-None-Match: {}", tag.expect("there is one"));
    assert_eq!(http.ask("GET", "/data/f", &[&unless], b"").status, 304);
    fs::write(mine.join("f"), "CHANGED").expect("written");
    assert_eq!(http.ask("GET", "/data/f", &[&unless], b"").status, 200);
    node.run(&["cp", "-r", "weft:/data", "weft:/copy"]).ok();
    assert!(http.bytes("/copy/d/g") == noise(1, 3 << 20));
    let kept = node.run(&["stat", "--json", "/data/f"]).json()[0]["kept"].clone();
    assert_eq!(kept["directory"], mine.canonicalize().expect("there").display().to_string());
    node.run(&["unshare", "/data"]).ok();
    assert_eq!(http.get("/data/f").status, 404);
    assert_eq!(fs::read(mine.join("f")).expect("untouched"), b"CHANGED");
}

/// More than what the queues of two sockets may hold twice, where those are not set far up: pages are sent of it.
const LARGE_BYTES: usize = 96 << 20;

/// Asks for the large file and reads all of it but the last bytes, `unread` of them.
fn read_but(node: &Node, unread: impl FnOnce(&TcpStream) -> usize) -> (TcpStream, Vec<u8>, usize) {
    let mut socket = node.http(Some(&node.token())).begin("GET", "/data/large", &[]);
    sockopt::set_socket_recv_buffer_size(&socket, 4 << 20).expect("it can be set");
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        socket.read_exact(&mut byte).expect("a head");
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head));
    let unread = unread(&socket);
    let mut came = vec![0; LARGE_BYTES - unread];
    socket.read_exact(&mut came).expect("it comes");
    (socket, came, unread)
}

/// Writes other bytes into it, where they are.
fn write_into_large(node: &Node) {
    let mut file = fs::OpenOptions::new().write(true).open(node.path("mine/large")).expect("it is there");
    file.write_all(&noise(4, LARGE_BYTES)).expect("written");
}

#[test]
fn what_is_on_its_way_of_a_file_comes_as_it_was_whatever_is_written_into_it() {
    let node = sharing();
    let bytes = noise(3, LARGE_BYTES);
    node.write("mine/large", &bytes);
    let quarter =
        |socket: &TcpStream| sockopt::socket_recv_buffer_size(socket).expect("it has one").div_ceil(4);
    let (mut socket, mut came, unread) = read_but(&node, quarter);
    soon("all of it is sent", || rustix::io::ioctl_fionread(&socket).is_ok_and(|held| held == unread as u64));
    write_into_large(&node);
    let before = came.len();
    came.resize(LARGE_BYTES, 0);
    socket.read_exact(&mut came[before..]).expect("it is there");
    assert!(came == bytes, "bytes of two versions");
}

#[test]
fn what_comes_whole_of_a_file_that_is_written_into_meanwhile_is_of_one_version() {
    let node = sharing();
    // How many bytes are unread when it is changed: in pages still, and in copies only.
    for (number, unread) in [LARGE_BYTES - (1 << 20), LARGE_BYTES / 4].into_iter().enumerate() {
        let bytes = noise(5 + number as u64, LARGE_BYTES);
        node.write("mine/large", &bytes);
        let (mut socket, mut came, _) = read_but(&node, |_| unread);
        write_into_large(&node);
        let ended = socket.read_to_end(&mut came);
        println!("{} bytes came of {LARGE_BYTES}, {ended:?}", came.len());
        assert!(came.len() < LARGE_BYTES || came == bytes, "whole, of two versions");
    }
}

#[test]
fn a_share_is_served_again_after_the_node_was_killed() {
    let mut node = sharing();
    node.add_user("carla", "carla's password");
    node.run(&["acl", "grant", "/data/d", "carla", "read"]).ok();
    let before = node.run(&["acl", "show", "/data/d"]).ok();
    node.kill();
    node.up();
    assert_eq!(node.run(&["cat", "/data/f"]).ok(), "of the machine");
    assert_eq!(node.run(&["acl", "show", "/data/d"]).ok(), before);
    assert_eq!(node.run(&["share", "--json"]).json()[0]["path"], "/data");
    assert!(node.run(&["fsck", "--online"]).ok().ends_with(": 0 things wrong\n"));
    node.stop();
    assert!(node.run(&["fsck"]).ok().ends_with(": 0 things wrong\n"));
}

/// Returns the names of what is staged in a directory.
fn staged(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).expect("it is there").map(|entry| entry.expect("read").file_name());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(".weft-stage-")).collect()
}

#[test]
fn a_restored_node_serves_no_share_until_an_administrator_says_so_and_sweeps_nobodys_uploads() {
    let node = sharing();
    let carla = node.add_user("carla", "carla's password");
    node.run(&["acl", "grant", "/data", "carla", "read"]).ok();
    let (policy, mine) = (node.run(&["acl", "show", "/data"]).ok(), node.path("mine"));
    let backup = node.path("backup").display().to_string();
    node.run(&["backup", &backup]).ok();
    // The node of the backup goes on, and somebody brings it a file.
    let mut upload = TcpStream::connect(node.address()).expect("it listens");
    let head = format!(
        "PUT /data/big HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nContent-Length: 100000\r\n\r\n",
        node.token()
    );
    upload.write_all(&[head.as_bytes(), &[7; 90_000]].concat()).expect("taken");
    soon("the upload is staged", || !staged(&mine).is_empty());

    let mut other = Node::unstarted();
    let said = other.run(&["restore", &backup]);
    let shown = mine.canonicalize().expect("it is there").display().to_string();
    assert!(said.out.ends_with(&format!("not served: the share of {shown}\n")), "{}{}", said.out, said.err);
    assert!(said.err.contains("weft share DIR PATH"), "{}", said.err);
    other.up();
    other.run(&["ls", "/data"]).fails(4, &["error:"]);
    assert!(other.run(&["share"]).ok().contains("away: it came from a backup"));
    other.run(&["status"]).fails(1, &[]);
    assert!(other.run(&["fsck", "--online"]).ok().ends_with(": 0 things wrong\n"));
    // Who may go there, and is no administrator, does not decide it.
    other
        .run_with(&carla, &["share", &shown, "/data"])
        .fails(3, &["error: cannot share", "an administrator says"]);
    let said = other.run(&["share", &shown, "/data"]);
    assert!(said.err.contains("has it again"), "{}{}", said.out, said.err);
    said.ok();
    for _ in 0..2 {
        assert_eq!(other.run(&["ls", "/data"]).ok(), "d/\nf\n");
        assert_eq!(other.run(&["acl", "show", "/data"]).ok(), policy);
        assert_eq!(other.run_with(&carla, &["cat", "/data/f"]).ok(), "of the machine");
        assert_eq!(staged(&mine).len(), 1, "it swept what another node stages");
        other.stop();
        other.up();
    }
    upload.write_all(&[7; 10_000]).expect("taken");
    let mut answer = [0; 12];
    upload.read_exact(&mut answer).expect("it answers");
    assert_eq!(&answer, b"HTTP/1.1 201");
    assert_eq!(other.run(&["stat", "--json", "/data/big"]).json()[0]["size"], 100_000);
}

#[test]
fn what_the_nodes_user_may_not_do_nobody_may() {
    if !rustix::process::geteuid().is_root() {
        return not_run("exports::users", "only root can make files of somebody else");
    }
    let node = sharing();
    let theirs = node.path("mine/theirs");
    fs::write(&theirs, "of root").expect("written");
    fs::set_permissions(&theirs, fs::Permissions::from_mode(0o600)).expect("set");
    fs::create_dir(node.path("mine/closed")).expect("made");
    fs::set_permissions(node.path("mine/closed"), fs::Permissions::from_mode(0o700)).expect("set");
    for path in ["/data/theirs", "/data/closed/x"] {
        node.run(&["cat", path]).fails(3, &["error:", "the machine refuses this to the user it runs as"]);
    }
    let why = node.run(&["why", "/data/theirs"]).out;
    assert!(why.contains("the machine refuses it to the user whom the node runs as"), "{why}");
    assert!(node.run(&["stat", "/data/theirs"]).ok().contains("0600"), "what it is may be seen");
    assert_eq!(node.http(Some(&node.token())).get("/data/theirs").status, 403);
}

#[test]
fn the_nodes_own_directory_is_never_shared() {
    let node = Node::start();
    let data = node.data().canonicalize().expect("it is there");
    for dir in [data.join("auth"), data.clone(), "/".into()] {
        let dir = dir.to_str().expect("text").to_owned();
        node.run(&["share", &dir, "/x"]).fails(3, &["error: cannot share", "its own data and keys"]);
    }
    assert_eq!(node.run(&["ls", "/"]).ok(), "", "and nothing is left of the attempt");
    // Nor is a number spent on a share that never was.
    node.make_dir("mine");
    node.feed(&["cp", "-", "weft:/taken"], b"").ok();
    for _ in 0..3 {
        node.run(&["share", "mine", "/taken"]).fails(1, &["error: cannot share", "taken"]);
    }
    node.run(&["share", "mine", "/mine"]).ok();
    assert_eq!(node.run(&["share", "--json"]).json()[0]["volume"], 1);
}

#[test]
fn what_is_mounted_in_a_second_place_is_the_nodes_there_too() {
    if !rustix::process::geteuid().is_root() {
        return not_run("exports::bind", "only root can mount");
    }
    let node = Node::start();
    for what in ["data/auth", "data", "."] {
        let at = node.make_dir("elsewhere");
        if !run(&["mount", "--bind", &node.path(what).display().to_string(), &at.display().to_string()]) {
            return not_run("exports::bind", "nothing can be mounted here");
        }
        node.run(&["share", "elsewhere", "/x"]).fails(3, &["error: cannot share", "its own data and keys"]);
        assert!(run(&["umount", &at.display().to_string()]));
    }
}

fn run(command: &[&str]) -> bool {
    Command::new(command[0]).args(&command[1..]).status().is_ok_and(|done| done.success())
}

#[test]
fn a_mount_shows_what_programs_of_the_machine_do_to_a_share() {
    if !have("exports::mount", &["fusermount3", "git"]) {
        return;
    }
    let mut node = sharing();
    let at = node.mount("mnt");
    let (seen, mine) = (at.join("data"), node.path("mine"));
    // As the user whose mount it is: nobody else may look.
    let both = format!("seen={} mine={}; set -e;", seen.display(), mine.display());
    node.sh(&format!(
        r#"{both}
        [ "$(cat $seen/f)" = "of the machine" ]
        for n in $(seq 20); do
            text=$n$(head -c $n /dev/zero | tr '\0' x)
            echo $text > $mine/f; [ "$(cat $seen/f)" = $text ]
            mv $mine/d $mine/e; [ ! -e $seen/d ]; [ -d $seen/e ]
            mv $seen/e $seen/d; [ -d $mine/d ]; [ ! -e $mine/e ]
        done
        cd $seen; git init -q r; cd r; seq 1 5000 > a; mkdir b; seq 1 9 > b/c; git add .
        git -c user.name=a -c user.email=a@b commit -qm x; git fsck --strict; git status --porcelain"#
    ));
    node.sh(&format!("git -C {} -c safe.directory='*' fsck --strict", mine.join("r").display()));
    node.unmount(&at);
}

/// What a node serves lies on a mount of another node, whose process is stopped: nothing there
/// answers, and everything else goes on.
#[test]
fn a_directory_that_does_not_answer_holds_up_nobody_else() {
    if !have("exports::hung", &["fusermount3"]) {
        return;
    }
    let other = Node::start();
    other.feed(&["cp", "-", "weft:/f"], b"far away").ok();
    let at = other.make_dir("far");
    let mut mount: Child =
        other.command().args(["mount", "/"]).arg(&at).stdout(Stdio::piped()).spawn().expect("starts");
    let mut line = String::new();
    let out = mount.stdout.take().expect("piped");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).expect("text");
    let serves = served_by(mount.id()).expect("it is served");
    let keeper = rustix::process::Pid::from_child(&mount);
    // Its keeper as well, which would replace one that does not go on.
    let tell = |signal| {
        for pid in [keeper, serves] {
            rustix::process::kill_process(pid, signal).expect("it is ours");
        }
    };
    let mut node = Node::start();
    node.allow("the shared directory does not answer");
    let far = at.canonicalize().expect("there").display().to_string();
    node.run(&["share", &far, "/far"]).ok();
    assert_eq!(node.run(&["cat", "/far/f"]).ok(), "far away");
    node.feed(&["cp", "-", "weft:/near"], b"near").ok();
    tell(Signal::STOP);
    // More that wait than the node has threads for them.
    let mut waiting: Vec<Child> = Vec::new();
    for _ in 0..40 {
        let mut cat = node.command();
        cat.args(["cat", "/far/f"]).stdout(Stdio::null()).stderr(Stdio::null());
        waiting.push(cat.spawn().expect("it starts"));
    }
    for n in 0..20 {
        let begun = Instant::now();
        assert_eq!(node.run(&["cat", "/near"]).ok(), "near");
        let name = format!("weft:/near{n}");
        node.feed(&["cp", "-", &name], b"more").ok();
        assert!(begun.elapsed() < Duration::from_secs(20), "what is near is served meanwhile");
    }
    node.run(&["cat", "/far/f"]).fails(4, &["error:", "does not answer"]);
    tell(Signal::CONT);
    for mut cat in waiting {
        wait(&mut cat);
    }
    let until = Instant::now() + Duration::from_secs(60);
    while node.run(&["cat", "/far/f"]).out != "far away" {
        assert!(Instant::now() < until, "it is served again once it answers");
    }
    node.run(&["unshare", "/far"]).ok();
    let unmounted = Command::new("fusermount3").arg("-uz").arg(&at).status();
    assert!(unmounted.expect("it runs").success());
    wait(&mut mount);
}

/// The disk that a shared directory lies on is unmounted under it, and mounted again.
#[test]
fn a_disk_is_unmounted_under_a_share_and_mounted_again() {
    if !rustix::process::geteuid().is_root() {
        return not_run("exports::unmounted", "only root can mount");
    }
    let mut node = Node::start();
    node.allow("the shared directory cannot be reached");
    let (disk, at) = (node.make_dir("disk"), node.make_dir("at"));
    node.write("disk/f", "on the disk");
    let (disk, shown) = (disk.display().to_string(), at.display().to_string());
    if !run(&["mount", "--bind", &disk, &shown]) {
        return not_run("exports::unmounted", "nothing can be mounted here");
    }
    node.run(&["share", &shown, "/disk"]).ok();
    assert_eq!(node.run(&["cat", "/disk/f"]).ok(), "on the disk");
    let until = Instant::now() + Duration::from_secs(30);
    while !run(&["umount", &shown]) {
        assert!(Instant::now() < until, "the node lets go of a disk that nobody uses");
        std::thread::sleep(Duration::from_millis(100));
    }
    node.run(&["cat", "/disk/f"]).fails(4, &["error:", "another directory lies where the shared one was"]);
    node.run(&["cp", "-r", "weft:/disk", "out"]).fails(4, &["another directory"]);
    let state = node.run(&["share"]).ok();
    assert!(state.contains("away: another directory"), "{state}");
    assert!(run(&["mount", "--bind", &disk, &shown]));
    assert_eq!(node.run(&["cat", "/disk/f"]).ok(), "on the disk");
    node.run(&["unshare", "/disk"]).ok();
    let until = Instant::now() + Duration::from_secs(30);
    while !run(&["umount", &shown]) {
        assert!(Instant::now() < until, "nothing holds what is not shared any more");
        std::thread::sleep(Duration::from_millis(100));
    }
}
