//! WebDAV clients that nobody here wrote, against a real node: over files that it manages and over a
//! directory that it shares in place.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use weft_conformance::run::{full, have};

use crate::node::{Node, give};
use crate::trees::gather;

/// A node with a user, who may do everything below `/managed` and `/shared`, a directory of the machine.
struct Furnished {
    node: Node,
}

const PASSWORD: &str = "wonder";

impl Furnished {
    fn new() -> Self {
        let node = Node::start();
        node.add_user("alice", PASSWORD);
        let directory = node.make_dir("of the machine");
        node.run(&["mkdir", "/managed"]).ok();
        node.run(&["share", directory.to_str().expect("plain"), "/shared"]).ok();
        for path in ["/managed", "/shared"] {
            node.run(&["acl", "grant", path, "alice", "all"]).ok();
        }
        Self { node }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.node.address())
    }

    /// Runs a program in a directory of its own, at most so long.
    fn run(&self, seconds: u32, program: &str, arguments: &[&str], input: &str) -> Output {
        let place = self.node.make_dir("work");
        let script = self.node.write("input", input);
        let mut command = Command::new("timeout");
        command.arg(seconds.to_string()).arg(program).args(arguments).current_dir(place);
        command.env_remove("http_proxy").env("no_proxy", "*").env("HOME", self.node.path("work"));
        command.env("RCLONE_CONFIG", self.node.path("rclone.conf"));
        command.stdin(fs::File::open(script).map_or_else(|_| Stdio::null(), Stdio::from));
        command.output().expect("`timeout` is installed")
    }

    #[track_caller]
    fn good(&self, program: &str, arguments: &[&str], input: &str) -> String {
        let output = self.run(240, program, arguments, input);
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{program} {arguments:?}\n{out}\n{err}");
        out.into_owned()
    }

    /// Tells rclone where the node is.
    fn configure_rclone(&self) {
        let secret = self.good("rclone", &["obscure", PASSWORD], "");
        let (url, secret) = (self.url("/"), secret.trim());
        let kind = "type = webdav\nvendor = owncloud\nuser = alice";
        self.node.write("rclone.conf", format!("[weft]\n{kind}\nurl = {url}\npass = {secret}\n"));
    }
}

/// Each file below a directory: its path there, its bytes and the second of its time.
fn files(dir: &Path) -> Vec<(PathBuf, Vec<u8>, i64)> {
    let (mut found, mut waiting) = (Vec::new(), vec![dir.to_path_buf()]);
    while let Some(next) = waiting.pop() {
        for entry in fs::read_dir(&next).expect("it is there").flatten() {
            let path = entry.path();
            let told = entry.metadata().expect("told");
            if told.is_dir() {
                waiting.push(path);
            } else {
                let bytes = fs::read(&path).expect("it is read");
                found.push((path.strip_prefix(dir).expect("below").to_path_buf(), bytes, told.mtime()));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn litmus_passes_over_managed_files_a_shared_directory_and_tls() {
    if !have("webdav::litmus", &["litmus"]) {
        return;
    }
    let home = Furnished::new();
    let secured = format!("https://localhost:{}/managed/", home.node.https_port());
    // Over TLS litmus itself leaves one test out: that of `Expect: 100-continue`.
    for (place, https) in [(home.url("/managed/"), 0), (home.url("/shared/"), 0), (secured, 1)] {
        let said = home.good("litmus", &["-k", &place, "alice", PASSWORD], "");
        for (suite, tests) in
            [("basic", 16), ("copymove", 13), ("props", 30), ("locks", 41), ("http", 4 - https)]
        {
            let summary = format!("summary for `{suite}': of {tests} tests run: {tests} passed, 0 failed.");
            assert!(said.contains(&summary), "{place}: {summary}\n{said}");
        }
        let left_out = said.matches("SKIPPED (skipping for SSL server)").count();
        assert_eq!((said.matches("SKIPPED").count(), left_out), (https, https), "{place}: {said}");
        assert!(!said.contains("WARNING"), "{place}: {said}");
    }
}

#[test]
fn rclone_takes_a_real_tree_in_and_out_with_its_times() {
    if !have("webdav::rclone", &["rclone"]) {
        return;
    }
    let home = Furnished::new();
    home.configure_rclone();
    let tree = home.node.make_dir("tree");
    gather(&tree, if full() { 5000 } else { 400 });
    let (old, odd) = (tree.join("old & \u{e4}.txt"), fs::FileTimes::new());
    fs::write(&old, "an old file").expect("written");
    let then = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_007);
    fs::File::options()
        .write(true)
        .open(&old)
        .expect("there")
        .set_times(odd.set_modified(then))
        .expect("set");
    give(&old);
    let before = files(&tree);
    let tree = tree.to_str().expect("plain");
    for place in ["weft:managed/tree", "weft:shared/tree"] {
        home.good("rclone", &["copy", tree, place], "");
        home.good("rclone", &["check", "--download", tree, place], "");
        let back = home.node.make_dir("back");
        home.good("rclone", &["copy", place, back.to_str().expect("plain")], "");
        let after = files(&back);
        assert_eq!(after.len(), before.len(), "{place}");
        for (one, other) in before.iter().zip(&after) {
            assert!(one == other, "{place}: {:?} and {:?}: {} {}", one.0, other.0, one.2, other.2);
        }
        fs::remove_dir_all(&back).expect("it was ours");
        // On the node's side: what is there is taken for the same, and goes as a whole.
        let again = home.run(240, "rclone", &["copy", "-v", tree, place], "");
        let said = String::from_utf8_lossy(&again.stderr).into_owned();
        assert!(again.status.success() && !said.contains("Copied"), "nothing is sent twice: {said}");
        home.good("rclone", &["moveto", place, &format!("{place}-moved")], "");
        home.good("rclone", &["purge", &format!("{place}-moved")], "");
    }
    assert!(files(&home.node.path("of the machine")).is_empty(), "it is gone on the machine too");
}

#[test]
fn restic_keeps_a_backup_in_it_and_gives_it_back() {
    if !have("webdav::restic", &["restic", "rclone"]) {
        return;
    }
    let home = Furnished::new();
    home.configure_rclone();
    let tree = home.node.make_dir("work/tree");
    gather(&tree, 200);
    let secret = home.node.write("restic-password", "kept");
    for place in ["managed", "shared"] {
        let repository = format!("rclone:weft:{place}/backup");
        let restic = |words: &[&str]| {
            let own = ["-r", &repository, "--no-cache", "-p", secret.to_str().expect("plain")];
            home.good("restic", &[&own, words].concat(), "")
        };
        restic(&["init"]);
        restic(&["backup", "tree"]);
        fs::write(tree.join("later"), "a second backup").expect("written");
        restic(&["backup", "tree"]);
        assert!(restic(&["check", "--read-data"]).contains("no errors were found"));
        let back = home.node.make_dir("back");
        restic(&["restore", "latest", "--target", back.to_str().expect("plain")]);
        assert_eq!(files(&back.join("tree")), files(&tree), "{place}");
        restic(&["forget", "--keep-last", "1", "--prune"]);
        assert!(restic(&["check", "--read-data"]).contains("no errors were found"), "{place}");
        fs::remove_dir_all(&back).expect("it was ours");
    }
}

#[test]
fn gnomes_gio_goes_about_in_it() {
    if !have("webdav::gio", &["gio", "dbus-run-session"]) {
        return;
    }
    let home = Furnished::new();
    let session = home.node.make_dir("work/session");
    fs::set_permissions(&session, std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("it is ours");
    let base = format!("dav://{}/managed", home.node.address());
    let script = format!(
        "set -e; export XDG_RUNTIME_DIR={}; B={base}\n\
         printf 'alice\\n{PASSWORD}\\n' | gio mount $B\n\
         printf text > note; gio mkdir $B/d; gio copy note $B/d/note; gio cat $B/d/note > back; gio copy $B/d/note $B/d/copy\n\
         gio rename $B/d/note 'other \u{e4}'; gio move $B/d/copy $B/moved; gio list $B/d > listed; gio info $B/moved > known\n\
         gio remove $B/d/other%20%C3%A4; gio remove $B/d; gio list $B > left\n",
        session.display()
    );
    home.good("dbus-run-session", &["--", "sh"], &script);
    let said = |name: &str| fs::read_to_string(home.node.path("work").join(name)).expect("it was written");
    assert_eq!((said("back").as_str(), said("listed").as_str()), ("text", "other \u{e4}\n"));
    assert_eq!(said("left"), "moved\n");
    assert!(said("known").contains("standard::size: 4"), "{}", said("known"));
}

#[test]
fn cadaver_locks_edits_and_sets_properties() {
    if !have("webdav::cadaver", &["cadaver"]) {
        return;
    }
    let home = Furnished::new();
    home.node.make_dir("work");
    home.node.write("work/.netrc", format!("default login alice password {PASSWORD}\n"));
    home.node.write("work/note", "first");
    let script = "mkcol d\ncd d\nput note\nlock note\npropset note author me\npropget note author\n\
                  copy note other\nmove other third\nls\ndiscover note\nunlock note\nget third\nrmcol ../d\nquit\n";
    let said = home.good("cadaver", &[&home.url("/managed/")], script);
    assert!(!said.contains("failed") && said.contains("third"), "{said}");
    assert_eq!(fs::read_to_string(home.node.path("work/third")).expect("it came"), "first");
    assert_eq!(home.node.run(&["ls", "/managed"]).ok(), "");
}

#[test]
fn davfs2_mounts_it_as_a_file_system() {
    let device = Path::new("/dev/fuse").exists() && rustix::process::geteuid().is_root();
    if !have("webdav::davfs2", &["mount.davfs", "fusermount3"]) || !device {
        return;
    }
    let home = Furnished::new();
    let at = home.node.make_dir("mounted");
    let secrets = home.node.write("davfs-secrets", format!("{} alice {PASSWORD}\n", home.url("/shared/")));
    let conf = format!("secrets {}\nask_auth 0\ndelay_upload 0\n", secrets.display());
    let conf = home.node.write("davfs.conf", conf);
    for path in [&secrets, &conf] {
        std::os::unix::fs::chown(path, Some(0), Some(0)).expect("root may");
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("root may");
    }
    let at_text = at.to_str().expect("plain");
    let options = format!("conf={},uid=0", conf.display());
    home.good("mount.davfs", &[&home.url("/shared/"), at_text, "-o", &options], "");
    let work = || -> std::io::Result<String> {
        fs::create_dir(at.join("d"))?;
        fs::write(at.join("d/f"), "by davfs2")?;
        fs::rename(at.join("d/f"), at.join("d/g"))?;
        fs::read_to_string(at.join("d/g"))
    };
    let read = work();
    // It writes behind: its end is told by umount.
    home.good("umount", &[at_text], "");
    assert_eq!(read.expect("it works"), "by davfs2");
    let there = home.node.path("of the machine/d/g");
    assert_eq!(fs::read_to_string(there).expect("it is a file of the machine"), "by davfs2");
}

#[test]
fn who_may_only_read_keeps_nobody_from_writing() {
    let home = Furnished::new();
    home.node.feed(&["cp", "-", "weft:/managed/f"], b"x").ok();
    home.node.add_user("bob", "b");
    for who in ["anyone", "bob"] {
        home.node.run(&["acl", "grant", "/managed", who, "read"]).ok();
    }
    let lock =
        b"<lockinfo xmlns='DAV:'><lockscope><exclusive/></lockscope><locktype><write/></locktype></lockinfo>";
    let address = home.node.address();
    for target in ["/managed/f", "/managed/", "/managed/new"] {
        let anyones = crate::http::Http::new(address, None).ask("LOCK", target, &[], lock).status;
        let bobs = crate::http::Http::basic(address, "bob", "b").ask("LOCK", target, &[], lock).status;
        assert_eq!((anyones, bobs), (401, 403), "{target}");
    }
    let alice = crate::http::Http::basic(address, "alice", PASSWORD);
    assert_eq!(alice.ask("PUT", "/managed/new", &[], b"y").status, 201);
    assert_eq!(alice.ask("LOCK", "/managed/f", &[], lock).status, 200);
}

#[test]
fn a_tree_that_is_removed_leaves_what_is_shared_in_it() {
    let home = Furnished::new();
    let directory = home.node.make_dir("inner");
    home.node.write("inner/theirs", "stays");
    home.node.run(&["mkdir", "/managed/d", "/managed/d/e"]).ok();
    home.node.run(&["share", directory.to_str().expect("plain"), "/managed/d/e/share"]).ok();
    home.node.run(&["acl", "grant", "/managed/d/e/share", "alice", "all"]).ok();
    home.node.feed(&["cp", "-", "weft:/managed/d/e/own"], b"goes").ok();
    let http = crate::http::Http::basic(home.node.address(), "alice", PASSWORD);
    assert_eq!(http.ask("GET", "/managed/d/e/share/theirs", &[], b"").body, b"stays", "alice may all there");
    for (method, fields) in [("DELETE", &[][..]), ("MOVE", &["Destination: /shared/d"][..])] {
        let answer = http.ask(method, "/managed/d/", fields, b"");
        let said = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(answer.status == 207 && said.contains("/managed/d/e/share/<"), "{method}: {said}");
        assert_eq!(fs::read_to_string(directory.join("theirs")).expect("it is there"), "stays", "{method}");
    }
    assert_eq!(http.ask("GET", "/managed/d/e/own", &[], b"").status, 404);
}

#[test]
fn what_comes_to_a_tree_while_it_moves_to_another_volume_is_not_lost() {
    let home = Furnished::new();
    let http = crate::http::Http::basic(home.node.address(), "alice", PASSWORD);
    assert_eq!(http.ask("MKCOL", "/managed/d", &[], b"").status, 201);
    for n in 0..150 {
        assert_eq!(http.put(&format!("/managed/d/{n}"), b"first").status, 201);
    }
    let mover = http.clone();
    let moving =
        std::thread::spawn(move || mover.ask("MOVE", "/managed/d/", &["Destination: /shared/d"], b"").status);
    // Some replace what is there, some come to it, on either side: what was acknowledged has to be somewhere.
    let mut put = BTreeMap::new();
    for n in 0.. {
        let (at, name) = match n % 3 {
            0 => ("managed", format!("{}", 74 - n / 3 % 75)),
            1 => ("managed", format!("late-{n}")),
            _ => ("shared", format!("{}", 149 - n / 3 % 75)),
        };
        let content = format!("content {n}").into_bytes();
        let fields: &[&str] = if at == "shared" { &["If-None-Match: *"] } else { &[] };
        if http.ask("PUT", &format!("/{at}/d/{name}"), fields, &content).status / 100 == 2 {
            put.insert(name, content);
        }
        if moving.is_finished() {
            break;
        }
    }
    let status = moving.join().expect("it answers");
    assert!([201, 207].contains(&status) && put.len() > 2, "{status}, {} were put", put.len());
    for (name, content) in put {
        let places = ["managed", "shared"].map(|at| http.get(&format!("/{at}/d/{name}")).body);
        assert!(places.contains(&content), "{name} is at neither place, after {status}");
    }
}

#[test]
fn a_tree_that_moves_to_another_volume_keeps_its_times_and_links() {
    let home = Furnished::new();
    let http = crate::http::Http::basic(home.node.address(), "alice", PASSWORD);
    let old = home.node.make_dir("of the machine/d");
    home.node.make_dir("of the machine/d/below");
    home.node.write("of the machine/d/below/f", "its bytes");
    std::os::unix::fs::symlink("below/f", old.join("link")).expect("it can be made");
    fs::create_dir(old.join("empty")).expect("it can be made");
    // Just made: what it is seen as lasts for a moment only.
    let young = || std::os::unix::fs::symlink("f", old.join("below/young")).expect("it can be made");
    let set = Command::new("touch").args(["-d", "@1700000000"]).arg(old.join("below/f")).status();
    assert!(set.expect("it is installed").success());
    young();
    assert_eq!(http.ask("MOVE", "/shared/d/", &["Destination: /managed/moved"], b"").status, 201);
    assert!(!old.exists(), "it is gone where it was");
    assert_eq!(http.get("/managed/moved/link").body, b"its bytes");
    let head = http.get("/managed/moved/below/f").head;
    assert!(head.contains("Tue, 14 Nov 2023 22:13:20 GMT"), "{head}");
    assert_eq!(home.node.run(&["ls", "/managed/moved"]).ok().split_whitespace().count(), 3);
    // A link by itself, onto a directory.
    assert_eq!(http.ask("MOVE", "/managed/moved/link", &["Destination: /shared/link"], b"").status, 201);
    assert_eq!(http.ask("MKCOL", "/managed/full", &[], b"").status, 201);
    assert_eq!(http.put("/managed/full/f", b"goes").status, 201);
    assert_eq!(http.ask("MOVE", "/shared/link", &["Destination: /managed/full"], b"").status, 204);
    let link = home.node.run(&["stat", "/managed/full", "--json"]).json();
    assert_eq!(link[0]["kind"], "symlink", "{link:?}");
}

#[test]
fn what_cannot_move_to_another_volume_leaves_what_is_there() {
    let home = Furnished::new();
    let http = crate::http::Http::basic(home.node.address(), "alice", PASSWORD);
    for (path, bytes) in
        [("secret", "s"), ("p/own", "o"), ("p/q/below", "b"), ("t/valuable", "v"), ("k/f", "k")]
    {
        let path = format!("/managed/{path}");
        for (at, _) in path.match_indices('/').skip(2) {
            http.ask("MKCOL", &format!("{}/", &path[..at]), &[], b"");
        }
        assert_eq!(http.put(&path, bytes.as_bytes()).status, 201, "{path}");
    }
    assert_eq!(http.ask("COPY", "/managed/t/", &["Destination: /shared/t"], b"").status, 201);
    // It may be moved, but not read: nobody can copy it.
    home.node.run(&["acl", "grant", "--deny", "/managed/secret", "alice", "read"]).ok();
    assert_eq!(http.ask("MOVE", "/managed/secret", &["Destination: /shared/t"], b"").status, 403);
    assert_eq!(http.get("/shared/t/valuable").body, b"v", "nothing made room for it");
    // It may be renamed and read, but not removed, which follows upon a copy.
    home.node.run(&["acl", "grant", "--deny", "/managed/k", "alice", "remove"]).ok();
    assert_eq!(http.ask("MOVE", "/managed/k/f", &["Destination: /shared/t"], b"").status, 403);
    assert_eq!(http.get("/shared/t/valuable").body, b"v", "nor for that");
    assert_eq!(http.ask("MOVE", "/managed/k/f", &["Destination: /managed/k/g"], b"").status, 201, "renamed");
    // Nobody who was kept out is let in by a move.
    home.node.add_user("bob", "b");
    home.node.run(&["acl", "grant", "--deny", "/managed/p/q", "bob", "all"]).ok();
    let answer = http.ask("MOVE", "/managed/p/", &["Destination: /shared/p"], b"");
    let said = String::from_utf8_lossy(&answer.body).into_owned();
    assert!(answer.status == 207 && said.contains("/managed/p/q/<"), "{said}");
    assert_eq!(http.get("/managed/p/q/below").body, b"b");
    assert_eq!((http.get("/managed/p/own").status, http.get("/shared/p/own").status), (404, 200));
    assert_eq!(http.ask("MOVE", "/managed/p/q/", &["Destination: /shared/q"], b"").status, 403);
    // A share itself is copied, and never emptied.
    assert_eq!(http.ask("COPY", "/shared/", &["Destination: /managed/whole"], b"").status, 201);
    assert_eq!(http.get("/managed/whole/t/valuable").body, b"v");
    home.node.run(&["share", home.node.make_dir("other").to_str().expect("plain"), "/other"]).ok();
    home.node.run(&["acl", "grant", "/other", "alice", "all"]).ok();
    assert_eq!(http.ask("MOVE", "/shared/", &["Destination: /other/all"], b"").status, 403);
    assert_eq!(http.get("/shared/t/valuable").body, b"v");
}

#[test]
fn what_is_shared_twice_is_not_moved_onto_itself() {
    let home = Furnished::new();
    let directory = home.node.path("of the machine");
    home.node.run(&["share", directory.to_str().expect("plain"), "/twin"]).ok();
    home.node.run(&["acl", "grant", "/twin", "alice", "all"]).ok();
    home.node.write("of the machine/f", "one copy");
    let http = crate::http::Http::basic(home.node.address(), "alice", PASSWORD);
    for method in ["MOVE", "COPY"] {
        let answer = http.ask(method, "/shared/f", &["Destination: /twin/f"], b"");
        assert_eq!((method, answer.status), (method, 403));
        assert_eq!(fs::read_to_string(directory.join("f")).expect("it is there"), "one copy", "{method}");
    }
}

#[test]
fn a_lock_outlives_the_node_that_granted_it() {
    let mut home = Furnished::new();
    let lock =
        "<lockinfo xmlns='DAV:'><lockscope><exclusive/></lockscope><locktype><write/></locktype></lockinfo>";
    let ask = |home: &Furnished, method: &str, fields: &[&str], body: &str| {
        let http = crate::http::Http::basic(home.node.address(), "alice", PASSWORD);
        http.ask(method, "/managed/f", fields, body.as_bytes())
    };
    let granted = ask(&home, "LOCK", &["Timeout: Second-1000"], lock);
    assert_eq!(granted.status, 201);
    let token = granted.head.lines().find_map(|line| line.strip_prefix("Lock-Token: ")).expect("a token");
    let (token, shown) = (format!("Lock-Token: {token}"), format!("If: ({token})"));
    home.node.kill();
    home.node.up();
    assert_eq!(ask(&home, "PUT", &[], "x").status, 423);
    assert_eq!(ask(&home, "PUT", &[&shown], "x").status, 204);
    assert_eq!(ask(&home, "UNLOCK", &[&token], "").status, 204);
    home.node.stop();
    home.node.up();
    assert_eq!(ask(&home, "PUT", &[], "y").status, 204, "what was given up stays so");
}
