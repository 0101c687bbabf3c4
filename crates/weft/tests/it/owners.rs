//! Directories that are shared by whom they belong to, who administers nothing. The node is an ordinary
//! user, and so are they.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;

use weft_conformance::run::not_run;

use crate::node::{NOBODY, Node, Said};

const CARLA: u32 = 4_100_001;
const DAN: u32 = 4_100_002;

/// Runs a command as one of the machine's users.
fn as_uid(node: &Node, uid: u32, args: &[&str]) -> Said {
    node.feed_command(node.command().uid(uid).gid(uid).args(args), b"")
}

fn give(node: &Node, name: &str, uid: u32, mode: u32) {
    chown(node.path(name), Some(uid), Some(uid)).expect("root may");
    fs::set_permissions(node.path(name), fs::Permissions::from_mode(mode)).expect("root may");
}

/// A node where carla, who may make names in `/people`, and dan are known by their uids; `hers` and `his` are
/// theirs. None where nobody can be made of these tests.
fn house(test: &str) -> Option<Node> {
    if !rustix::process::geteuid().is_root() {
        not_run(test, "only root can be several users");
        return None;
    }
    let node = Node::start();
    for (name, uid) in [("carla", CARLA), ("dan", DAN)] {
        node.run(&["user", "add", name, "--no-password", "--uid", &uid.to_string()]).ok();
    }
    node.run(&["mkdir", "/people"]).ok();
    node.run(&["acl", "grant", "/people", "carla", "traverse,list,insert"]).ok();
    node.run(&["acl", "grant", "/people", "dan", "traverse,list"]).ok();
    for (name, uid) in [("hers", CARLA), ("his", DAN)] {
        node.make_dir(name);
        node.write(&format!("{name}/f"), name);
        give(&node, &format!("{name}/f"), uid, 0o644);
        give(&node, name, uid, 0o755);
    }
    Some(node)
}

#[test]
fn an_owner_shares_what_is_hers_and_a_stranger_does_not() {
    let Some(node) = house("owners::shares") else { return };
    let hers = node.path("hers").display().to_string();
    // Not what is somebody else's, not where she may make no name, and not as one whom nobody knows.
    as_uid(&node, CARLA, &["share", "his", "/people/his"])
        .fails(3, &["belongs to another user of the machine"]);
    as_uid(&node, DAN, &["share", "his", "/people/his"]).fails(3, &["error: cannot share", "insert"]);
    as_uid(&node, DAN + 1, &["share", "hers", "/people/x"]).fails(3, &["error: cannot share", "weft login"]);
    let narrow = as_uid(&node, CARLA, &["login", "--print", "--path", "/people"]).ok();
    let mut narrowed = node.command();
    narrowed.uid(CARLA).gid(CARLA).env("BEARER_TOKEN", narrow.trim()).args(["share", "hers", "/people/hers"]);
    node.feed_command(&mut narrowed, b"").fails(3, &["not narrowed"]);
    let said = as_uid(&node, CARLA, &["share", "hers", "/people/hers"]);
    assert!(
        said.err.contains("only you may use it yet") && said.err.contains(&CARLA.to_string()),
        "{}",
        said.err
    );
    said.ok();
    assert_eq!(as_uid(&node, CARLA, &["cat", "/people/hers/f"]).ok(), "hers");
    // The node's administrators are nobody there, until she says so; and then no more than she is.
    node.run(&["cat", "/people/hers/f"]).fails(1, &["error:"]);
    as_uid(&node, CARLA, &["acl", "grant", "/people/hers", "dan", "read"]).ok();
    assert_eq!(as_uid(&node, DAN, &["cat", "/people/hers/f"]).ok(), "hers");
    // To each who made it; the directory to her and to administrators.
    let shares = |uid| as_uid(&node, uid, &["share", "--json"]).json();
    let (seen, told) = (shares(DAN), shares(CARLA));
    assert!(seen[0]["directory"].is_null() && seen[0]["by"].to_string().contains("carla"), "{}", seen[0]);
    assert_eq!((&told[0]["directory"], &told[0]["limited_to"]), (&hers.clone().into(), &CARLA.into()));
    assert!(node.run(&["share"]).ok().contains(&format!("served as uid {CARLA}")));
    as_uid(&node, DAN, &["unshare", "/people/hers"]).fails(3, &["error: cannot unshare"]);
    as_uid(&node, CARLA, &["unshare", "/people/hers"]).ok();
    as_uid(&node, CARLA, &["cat", "/people/hers/f"]).fails(1, &["error:"]);
    let record = node.run(&["audit"]).ok();
    assert!(record.contains("whoever made a share may end it"), "{record}");
}

#[test]
fn nobody_does_more_in_an_owners_share_than_she_may() {
    let Some(mut node) = house("owners::limits") else { return };
    node.allow("the shared directory belongs to another user");
    // The node itself could read these.
    node.write("hers/nodes", "of the node's user");
    give(&node, "hers/nodes", NOBODY, 0o600);
    node.make_dir("hers/closed");
    node.write("hers/closed/x", "behind a closed door");
    give(&node, "hers/closed", NOBODY, 0o700);
    as_uid(&node, CARLA, &["share", "hers", "/people/hers"]).ok();
    as_uid(&node, CARLA, &["cat", "/people/hers/nodes"]).fails(3, &["the user who shared the directory"]);
    as_uid(&node, CARLA, &["cat", "/people/hers/closed/x"]).fails(1, &["there is nothing"]);
    let why = as_uid(&node, CARLA, &["why", "/people/hers/nodes"]).out;
    assert!(why.contains("the machine refuses it to the user who shared the directory"), "{why}");
    // What it cannot make hers it does not make.
    fs::set_permissions(node.path("hers"), fs::Permissions::from_mode(0o777)).expect("root may");
    let made = node.feed_command(
        node.command().uid(CARLA).gid(CARLA).args(["cp", "-", "weft:/people/hers/new"]),
        b"new",
    );
    made.fails(3, &["cannot make files that belong to another user", "CAP_SETUID"]);
    assert_eq!(fs::read_dir(node.path("hers")).expect("there").count(), 3, "and nothing is left of it");
    as_uid(&node, CARLA, &["mv", "/people/hers/f", "/people/hers/g"]).ok();
    chown(node.path("hers"), Some(DAN), Some(DAN)).expect("root may");
    as_uid(&node, CARLA, &["cat", "/people/hers/g"]).fails(4, &["belongs to another user of the machine"]);
    let state = as_uid(&node, CARLA, &["share"]).ok();
    assert!(state.contains("away: the shared directory belongs to another user"), "{state}");
    as_uid(&node, CARLA, &["unshare", "/people/hers"]).ok();
}
