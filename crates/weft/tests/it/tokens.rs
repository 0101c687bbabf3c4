//! Tokens, as programs, their owners and administrators meet them.

use std::io::Read;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use weft_conformance::run::have;

use crate::http::Http;
use crate::node::{Node, give, noise, soon};

/// A node where alice may do all below `/d`, with a file in it and one in a directory of it.
struct Scene {
    node: Node,
    alice: String,
}

/// A token that was made.
struct Made {
    id: String,
    token: String,
}

impl Scene {
    fn new() -> Self {
        let node = Node::start();
        let alice = node.add_user("alice", "wonder");
        node.run(&["mkdir", "-p", "/d/in"]).ok();
        node.run(&["acl", "grant", "/d", "alice", "all"]).ok();
        let http = node.http(Some(&alice));
        for (path, bytes) in [("f.txt", &b"beside"[..]), ("in/g.txt", b"within")] {
            assert_eq!(http.put(&format!("/d/{path}"), bytes).status, 201);
        }
        Self { node, alice }
    }

    #[track_caller]
    fn make(&self, name: &str, more: &[&str]) -> Made {
        let args = [&["token", "create", name, "--json"], more].concat();
        let made = self.node.run_with(&self.alice, &args).json().remove(0);
        let text = |field: &str| made[field].as_str().expect("text").to_owned();
        Made { id: text("id"), token: text("token") }
    }

    fn bearer(&self, made: &Made) -> Http {
        self.node.http(Some(&made.token))
    }

    fn basic(&self, user: &str, made: &Made) -> Http {
        Http::basic(self.node.address(), user, &made.token)
    }

    /// Both ways to show a token.
    fn both(&self, made: &Made) -> [Http; 2] {
        [self.bearer(made), self.basic("alice", made)]
    }

    /// What alice's list says of a token.
    fn listed(&self, made: &Made) -> serde_json::Value {
        let list = self.node.run_with(&self.alice, &["token", "ls", "--json"]).json();
        list.into_iter().find(|token| token["id"] == made.id.as_str()).expect("it is listed")
    }
}

#[test]
fn curl_reads_and_writes_by_a_token_as_bearer_and_as_password_and_it_is_shown_once() {
    if !have("tokens::curl", &["curl"]) {
        return;
    }
    let scene = Scene::new();
    let said = scene.node.run_with(&scene.alice, &["token", "create", "rclone"]);
    assert!(
        said.err.contains("token rclone, all rights but `acl-write`, until ")
            && said.err.contains("not shown again")
    );
    let token = said.ok().trim().to_owned();
    let address = scene.node.address();
    scene.node.sh(&format!(
        r#"U=http://{address}
        test "$(curl -sSf -H 'Authorization: Bearer {token}' $U/d/f.txt)" = beside
        test "$(curl -sSf -u 'alice:{token}' $U/d/in/g.txt)" = within
        printf new | curl -sSf -u 'alice:{token}' -T - $U/d/new.txt
        printf other | curl -sSf -H 'Authorization: Bearer {token}' -T - $U/d/other.txt
        test "$(curl -sSf -u 'alice:{token}' $U/d/new.txt)" = new
        test "$(curl -s -o /dev/null -w '%{{http_code}}' -u 'bob:{token}' $U/d/f.txt)" = 401"#
    ));
    for args in [&["token", "ls"][..], &["token", "ls", "--json"], &["audit", "--json"]] {
        let told = scene.node.run_with(if args[0] == "audit" { "" } else { &scene.alice }, args).ok();
        assert!(!told.contains(&token), "{told}");
    }
    assert!(!scene.node.log().contains(&token), "the secret is nowhere");
    let audit = scene.node.run(&["audit", "--json"]).ok();
    for words in ["\"make-token\"", "`rclone`, all", "token:"] {
        assert!(audit.contains(words), "{words}: {audit}");
    }
}

/// As the guide writes it.
#[test]
fn rclone_copies_by_a_token_as_bearer_and_as_password() {
    if !have("tokens::rclone", &["rclone"]) {
        return;
    }
    let scene = Scene::new();
    let made = scene.make("rclone", &["--rights", "read", "--path", "/d/in", "--life", "30d"]);
    let (address, token) = (scene.node.address(), &made.token);
    scene.node.sh(&format!(
        r#"export RCLONE_CONFIG=/dev/null
        U=http://{address}/d/in
        rclone copy --webdav-url $U --webdav-bearer-token {token} :webdav: ./bearer
        P=$(rclone obscure {token})
        rclone copy --webdav-url $U --webdav-user alice --webdav-pass "$P" :webdav: ./password
        test "$(cat bearer/g.txt password/g.txt)" = withinwithin"#
    ));
}

#[test]
fn a_token_does_nothing_outside_its_paths() {
    let scene = Scene::new();
    let made = scene.make("in", &["--path", "/d/in"]);
    for http in scene.both(&made) {
        assert_eq!(http.bytes("/d/in/g.txt"), b"within");
        assert_eq!(http.get("/d/f.txt").status, 404);
        assert_eq!(http.put("/d/new", b"x").status, 403);
        assert_eq!(http.ask("MOVE", "/d/in/g.txt", &["Destination: /d/out.txt"], b"").status / 100, 4);
        assert_eq!(http.bytes("/d/in/g.txt"), b"within");
    }
}

#[test]
fn a_token_does_nothing_but_what_its_rights_name() {
    let scene = Scene::new();
    let made = scene.make("reader", &["--rights", "read"]);
    for http in scene.both(&made) {
        assert_eq!(http.bytes("/d/f.txt"), b"beside");
        assert_eq!(http.names("/d/"), ["f.txt", "in"]);
        assert_eq!(http.put("/d/new", b"x").status, 403);
        assert_eq!(http.put("/d/f.txt", b"x").status, 403);
        assert_eq!(http.delete("/d/f.txt").status, 403);
    }
    scene.node.run_with(&made.token, &["rm", "/d/f.txt"]).fails(3, &["error:"]);
    scene.node.run_with(&made.token, &["acl", "grant", "/d", "anyone", "read"]).fails(3, &["error:"]);
}

#[test]
fn a_token_does_nothing_from_outside_its_networks() {
    let scene = Scene::new();
    let made = scene.make("there", &["--host", "192.0.2.0/24"]);
    for http in scene.both(&made) {
        assert_eq!(http.get("/d/f.txt").status, 404);
        assert_eq!(http.put("/d/new", b"x").status / 100, 4);
        assert_eq!(scene.node.http(Some(&scene.alice)).get("/d/new").status, 404);
    }
    let made = scene.make("here", &["--host", "127.0.0.0/8", "--host", "192.0.2.0/24"]);
    for http in scene.both(&made) {
        assert_eq!(http.bytes("/d/f.txt"), b"beside");
    }
}

#[test]
fn a_token_runs_out_when_it_was_said_to() {
    let scene = Scene::new();
    let made = scene.make("short", &["--life", "3s"]);
    for http in scene.both(&made) {
        assert_eq!(http.get("/d/f.txt").status, 200);
    }
    soon("it runs out", || scene.both(&made).iter().all(|http| http.get("/d/f.txt").status == 401));
    assert_eq!(scene.listed(&made)["ended"], "the token has run out");
    scene.node.run_with(&made.token, &["ls", "/d"]).fails(3, &["the token has run out", "hint: weft token"]);
    for (span, words) in [("0s", "some time"), ("367d", "366 days")] {
        scene.node.run(&["token", "create", "x", "--life", span]).fails(1, &[words]);
    }
    scene.node.run(&["token", "create", "x", "--life", "7"]).fails(2, &["a number and a unit"]);
}

const LARGE: usize = 64 << 20;

/// A download of a file that no socket's buffers hold, of which little was read.
fn begun(http: &Http) -> TcpStream {
    let mut socket = http.begin("GET", "/d/large", &[]);
    let mut first = [0; 64 << 10];
    socket.read_exact(&mut first).expect("it begins");
    assert!(first.starts_with(b"HTTP/1.1 200"));
    socket
}

/// What ends a token in the middle of downloads by it.
fn ends_in_mid_download(ending: impl FnOnce(&Scene, &Made)) {
    let scene = Scene::new();
    let put = scene.node.http(Some(&scene.alice)).put("/d/large", &noise(5, LARGE));
    assert_eq!(put.status, 201);
    let made = scene.make("cron", &[]);
    let sockets = scene.both(&made).map(|http| begun(&http));
    ending(&scene, &made);
    let since = Instant::now();
    for mut socket in sockets {
        let mut rest = Vec::new();
        let ended = socket.read_to_end(&mut rest);
        assert!(ended.is_err() || rest.len() < LARGE / 2, "{} bytes came after the end", rest.len());
    }
    assert!(since.elapsed() < Duration::from_secs(30), "{:?}", since.elapsed());
    for http in scene.both(&made) {
        assert_eq!(http.get("/d/f.txt").status, 401);
    }
}

#[test]
fn a_revoked_token_ends_the_downloads_by_it() {
    ends_in_mid_download(|scene, _| {
        scene.node.run_with(&scene.alice, &["token", "revoke", "cron"]).ok();
    });
}

/// What becomes of a download of bob's who reads by a group of alice's, once groups of his are changed.
fn after_a_change_of_groups(right_stays: bool) {
    let scene = Scene::new();
    let alice = |args: &[&str]| scene.node.run_with(&scene.alice, args).ok();
    let bob = scene.node.add_user("bob", "builder");
    for group in ["readers", "others"] {
        alice(&["group", "make", group]);
    }
    alice(&["group", "add", "readers", "bob"]);
    scene.node.run(&["acl", "grant", "/d", "group:alice/readers", "read"]).ok();
    assert_eq!(scene.node.http(Some(&scene.alice)).put("/d/large", &noise(6, LARGE)).status, 201);
    let mut socket = begun(&scene.node.http(Some(&bob)));
    for way in ["add", "remove", "add"] {
        alice(&["group", way, "others", "bob"]);
    }
    if !right_stays {
        alice(&["group", "remove", "readers", "bob"]);
    }
    let mut rest = Vec::new();
    let ended = socket.read_to_end(&mut rest);
    if right_stays {
        ended.expect("nobody else's groups are in its way");
        assert!(rest.len() > LARGE - (64 << 10), "{} bytes", rest.len());
    } else {
        assert!(ended.is_err() || rest.len() < LARGE / 2, "{} bytes came after the end", rest.len());
    }
}

#[test]
fn what_others_do_with_somebodys_groups_breaks_off_nothing_that_is_under_way() {
    after_a_change_of_groups(true);
}

#[test]
fn who_is_taken_out_of_a_group_loses_in_mid_download_what_it_gave() {
    after_a_change_of_groups(false);
}

#[test]
fn a_token_that_could_not_be_shown_is_none() {
    let scene = Scene::new();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("it is there");
    let mut command = scene.node.command();
    command.env("BEARER_TOKEN", &scene.alice).args(["token", "create", "lost"]).stdout(full);
    assert!(!command.status().expect("it runs").success());
    let listed = scene.node.run_with(&scene.alice, &["token", "ls", "--json"]).json();
    assert!(listed[0]["ended"].is_string(), "{listed:?}");
}

#[test]
fn a_token_changes_no_policy_and_makes_no_drop_box() {
    let scene = Scene::new();
    let made = scene.make("cron", &[]);
    for args in [
        &["acl", "grant", "/d", "anyone", "read"][..],
        &["dropbox", "create", "/d/in", "--bytes", "1M", "--files", "9", "--rate", "1M/d"],
    ] {
        let said = scene.node.run_with(&made.token, args);
        assert_eq!(said.code, 3, "{args:?}: {}{}", said.out, said.err);
    }
    let none = scene.node.run_with(&scene.alice, &["token", "create", "policy", "--rights", "acl-write"]);
    none.fails(1, &["never `acl-write`"]);
}

#[test]
fn what_somebody_else_put_under_the_communitys_name_keeps_nobody_from_commands() {
    let scene = Scene::new();
    let node = &scene.node;
    let uid = crate::node::NOBODY;
    let dir = node.make_dir("run");
    let there = dir.join(format!("bt_u{uid}"));
    let who = || {
        let mut command = node.command();
        command.env("XDG_RUNTIME_DIR", &dir).arg("whoami");
        node.feed_command(&mut command, b"")
    };
    // Root's, here; and what is no text, of another system.
    std::fs::write(&there, "weft_").expect("written");
    std::fs::set_permissions(&there, PermissionsExt::from_mode(0o600)).expect("it is ours");
    if rustix::process::geteuid().is_root() {
        assert!(who().ok().starts_with("admin"));
    }
    std::fs::write(&there, [0xff, 0xfe]).expect("written");
    give(&there);
    assert!(who().ok().starts_with("admin"));
    // One's own that is open to others is refused all the same.
    std::fs::set_permissions(&there, PermissionsExt::from_mode(0o644)).expect("it is ours");
    who().fails(3, &["others can read or replace it"]);
}

#[test]
fn a_token_ends_with_its_owners_account() {
    ends_in_mid_download(|scene, made| {
        scene.node.run(&["user", "disable", "alice"]).ok();
        scene.node.run(&["user", "enable", "alice"]).ok();
        let list = scene.node.run(&["token", "ls", "--for", "alice", "--json"]).json();
        assert_eq!((list[0]["id"].as_str(), list[0]["ended"].is_string()), (Some(made.id.as_str()), true));
    });
}

#[test]
fn nobody_sees_or_ends_tokens_of_others_but_administrators() {
    let scene = Scene::new();
    let node = &scene.node;
    let bob = node.add_user("bob", "builder");
    let made = scene.make("cron", &["--rights", "read", "--path", "/d/in"]);
    assert!(node.run_with(&bob, &["token", "ls", "--json"]).json().is_empty());
    node.run_with(&bob, &["token", "ls", "--for", "alice"]).fails(3, &["administrators"]);
    node.run_with(&bob, &["token", "ls", "--all"]).fails(3, &["administrators"]);
    node.run_with(&bob, &["token", "revoke", &made.id]).fails(1, &["no such token", "hint: weft token ls"]);
    node.run_with(&bob, &["token", "revoke", "cron"]).fails(1, &["no token of that name works"]);
    node.run_with(&bob, &["token", "revoke", "cron", "--for", "alice"]).fails(3, &["administrators"]);
    node.run(&["token", "ls", "--for", "carol"]).fails(1, &["no such user"]);
    assert!(node.run(&["token", "ls", "--json"]).json().is_empty(), "an administrator's own");
    for of in [&["--for", "alice"][..], &["--all"]] {
        let line = node.run(&[&["token", "ls"], of].concat()).ok();
        for words in [made.id.as_str(), "cron", "/d/in", "until", "used never", "read"] {
            assert!(line.contains(words), "{words}: {line}");
        }
    }
    let again = node.run_with(&scene.alice, &["token", "create", "cron"]);
    again.fails(1, &["a token of that name", "weft token revoke"]);
    assert_eq!(scene.bearer(&made).get("/d/in/g.txt").status, 200);
    assert!(scene.listed(&made)["last"].is_i64());
    node.run(&["token", "revoke", "cron", "--for", "alice"]).ok();
    assert_eq!(scene.bearer(&made).get("/d/in/g.txt").status, 401);
    assert_eq!(scene.listed(&made)["ended"], "the token was revoked");
}

#[test]
fn a_token_makes_no_other_way_in() {
    let scene = Scene::new();
    let made = scene.make("cron", &[]);
    let run = |args: &[&str]| scene.node.run_with(&made.token, args);
    assert!(run(&["whoami"]).ok().starts_with("alice\n"));
    run(&["token", "create", "more"]).fails(3, &["no token"]);
    run(&["token", "ls"]).fails(3, &["no token"]);
    run(&["token", "revoke", &made.id]).fails(3, &["no token"]);
    run(&["link", "create", "/d/f.txt"]).fails(3, &["no token"]);
    run(&["group", "make", "team"]).fails(3, &["error:"]);
    run(&["revoke", "--caller", "alice"]).fails(3, &["error:"]);
    let admin = scene.node.run(&["token", "create", "root", "--json"]).json().remove(0);
    let admin = admin["token"].as_str().expect("text").to_owned();
    for args in
        [&["user", "ls"][..], &["user", "add", "eve", "--no-password"], &["backup", "copy"], &["down"]]
    {
        scene.node.run_with(&admin, args).fails(3, &["error:"]);
    }
    scene.node.run_with(&admin, &["ls", "/d"]).ok();
}

#[test]
fn tokens_outlive_a_restart_and_a_restore_and_those_that_ended_stay_ended() {
    let mut scene = Scene::new();
    let (made, ended) = (scene.make("cron", &["--path", "/d/in"]), scene.make("old", &[]));
    scene.node.run_with(&scene.alice, &["token", "revoke", "old"]).ok();
    let check = |scene: &Scene| {
        for http in scene.both(&made) {
            assert_eq!((http.get("/d/in/g.txt").status, http.get("/d/f.txt").status), (200, 404));
        }
        assert!(scene.both(&ended).iter().all(|http| http.get("/d/f.txt").status == 401));
    };
    check(&scene);
    scene.node.kill();
    scene.node.up();
    check(&scene);
    scene.node.run(&["backup", "copy"]).ok();
    scene.node.stop();
    std::fs::rename(scene.node.data(), scene.node.path("before")).expect("renamed");
    scene.node.run(&["restore", "copy", "data"]).ok();
    scene.node.up();
    check(&scene);
    scene.node.stop();
    let found = scene.node.run(&["fsck", "--json"]).json();
    assert!(found.iter().all(|finding| finding["severity"].is_null()), "{found:?}");
}

#[test]
fn commands_find_a_token_where_they_find_a_credential_and_refuse_a_file_that_others_can_read() {
    let scene = Scene::new();
    let made = scene.make("cron", &["--rights", "read"]);
    let file = scene.node.write("token", format!("{}\n", made.token));
    let run = |variable: &str, value: &str| {
        let mut command = scene.node.command();
        command.env(variable, value).args(["whoami", "--json"]);
        scene.node.feed_command(&mut command, b"")
    };
    let path = file.to_str().expect("text");
    for mode in [0o644, 0o640, 0o620, 0o602] {
        std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).expect("it is ours");
        run("BEARER_TOKEN_FILE", path).fails(3, &["others can read or replace it", path, "chmod 600"]);
    }
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).expect("it is ours");
    let said = run("BEARER_TOKEN_FILE", path).json().remove(0);
    assert!(said["caller"].as_str().expect("a name").starts_with("alice@"), "{said}");
    let said = run("BEARER_TOKEN", &made.token).json().remove(0);
    assert!(said.to_string().contains("read"), "as narrow as the token: {said}");
    let dir = scene.node.make_dir("run");
    let uid = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(&file).expect("it is there"));
    let runtime = dir.join(format!("bt_u{uid}"));
    std::fs::copy(&file, &runtime).expect("copied");
    give(&runtime);
    let said = run("XDG_RUNTIME_DIR", dir.to_str().expect("text")).json().remove(0);
    assert!(said["caller"].as_str().expect("a name").starts_with("alice@"), "{said}");
    let wrong = format!("weft_{}", "a".repeat(32));
    run("BEARER_TOKEN", &wrong).fails(3, &["use the token", "no such token"]);
}

#[test]
fn the_first_place_that_holds_something_says_who_one_is_and_the_others_are_not_looked_at() {
    let scene = Scene::new();
    let node = &scene.node;
    let token = |user: &str| {
        let login = node.add_user(user, "a word");
        let made = node.run_with(&login, &["token", "create", "cron", "--json"]).json().remove(0);
        made["token"].as_str().expect("text").to_owned()
    };
    let private = |name: &std::ffi::OsStr, text: &str| {
        let path = node.path(name);
        std::fs::write(&path, text).expect("written");
        give(&path);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("it is ours");
        path
    };
    // A path need not be text.
    let strange = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"file-\xff");
    let file = private(strange, &token("bob"));
    let runtime = node.make_dir("runtime");
    let place = format!("runtime/bt_u{}", crate::node::NOBODY);
    let at_runtime = private(place.as_ref(), &token("carol"));
    let dora = token("dora");
    node.feed(&["login", "alice", "--password-stdin"], b"wonder").ok();
    let mut variables = vec![
        ("BEARER_TOKEN", std::ffi::OsString::from(dora)),
        ("BEARER_TOKEN_FILE", file.clone().into()),
        ("XDG_RUNTIME_DIR", runtime.into()),
    ];
    let who = |variables: &[(&str, std::ffi::OsString)]| {
        let mut command = node.command();
        command.envs(variables.iter().cloned()).arg("whoami");
        node.feed_command(&mut command, b"")
    };
    assert!(who(&variables).ok().starts_with("dora"));
    // What is set to something else is refused, and nothing after it is tried.
    variables[0].1 = std::os::unix::ffi::OsStringExt::from_vec(vec![0xff]);
    who(&variables).fails(3, &["error:", "BEARER_TOKEN"]);
    variables[0].1 = "".into();
    assert!(who(&variables).ok().starts_with("bob"), "what is set to nothing is not set");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o604)).expect("it is ours");
    who(&variables).fails(3, &["others can read or replace it", "hint: chmod 600"]);
    std::fs::remove_file(&file).expect("it is there");
    who(&variables).fails(1, &["there is no such file"]);
    variables.remove(1);
    assert!(who(&variables).ok().starts_with("carol"));
    private(place.as_ref(), "of another system");
    assert!(who(&variables).ok().starts_with("alice"), "what `login` kept");
    std::fs::remove_file(&at_runtime).expect("it is there");
    std::os::unix::fs::symlink(node.path("home"), &at_runtime).expect("made");
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::lchown(&at_runtime, Some(crate::node::NOBODY), None).expect("it is ours");
    }
    who(&variables).fails(3, &["it is a symbolic link", "hint: chmod 600"]);
    std::fs::remove_file(&at_runtime).expect("it is there");
    node.run(&["logout"]).ok();
    assert!(who(&variables).ok().starts_with("admin"), "the uid at the socket");
}
