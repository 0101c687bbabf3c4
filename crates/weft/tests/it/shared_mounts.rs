//! A mount that users of the machine share: root mounts it, or an ordinary user, whose process serves it in either case,
//! and each who logs in there is who their credential says.
//!
//! Needs root, to be several users.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use weft_conformance::run::{have, not_run};
use weft_core::limits;

use crate::node::{NOBODY, Node, Said, soon, weft};

/// Uids of this machine that nobody else here uses.
const ALICE: u32 = 43_001;
const BOB: u32 = 43_002;
const STRANGER: u32 = 43_003;

/// What was mounted for all users of this machine, served by who runs the node.
pub struct Shared {
    at: PathBuf,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // What serves it ends with it.
        let _ = Command::new("umount").arg("-l").arg(&self.at).status();
    }
}

impl Shared {
    /// Returns whether there can be one; otherwise counts the test as not run.
    pub fn can_be(test: &str) -> bool {
        if !have(test, &["fusermount3", "umount"]) {
            return false;
        }
        let is_root = rustix::process::geteuid().is_root();
        if !is_root {
            not_run(test, "root is needed to be several users");
        }
        is_root
    }

    /// Returns whether there can be one that an ordinary user mounts; otherwise counts the test as not run.
    fn can_be_without_root(test: &str) -> bool {
        if !Self::can_be(test) {
            return false;
        }
        let settings = fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
        let allowed = settings.lines().any(|line| line.trim() == "user_allow_other");
        if !allowed {
            not_run(test, "/etc/fuse.conf lacks user_allow_other; ./test adds it");
        }
        allowed
    }

    /// Has root mount a directory of the tree.
    pub fn mount(node: &Node, path: &str) -> Self {
        let shared = Self { at: node.make_dir("shared") };
        let options = format!("setuid={NOBODY},shared,node={}", node.data().display());
        let mut helper = Command::new(weft());
        helper.arg0("mount.weft").arg(format!("weft:{path}")).arg(&shared.at).args(["-o", &options]);
        node.feed_command(&mut helper, b"").ok();
        shared
    }

    /// Has who runs the node mount a directory of the tree, without any privilege.
    fn mount_without_root(node: &Node, path: &str) -> Self {
        let shared = Self { at: node.make_dir("shared") };
        let mut mount = node.command();
        mount.args(["mount", "--shared", "--daemon", path]).arg(&shared.at);
        node.feed_command(&mut mount, b"").ok();
        shared
    }

    /// Returns where it is.
    pub fn at(&self) -> &Path {
        &self.at
    }

    /// Has a uid of the machine say there who it is.
    pub fn log_in(&self, node: &Node, uid: u32, user: &str, password: &str) -> Said {
        let mut command = node.command();
        command.uid(uid).gid(uid);
        command.args(["login", user, "--password-stdin", "--mount"]).arg(&self.at);
        node.feed_command(&mut command, password.as_bytes())
    }
}

/// A mount that users share, of a node where alice may do everything in `/hers`, and bob in `/his`. Both may
/// look at what is in `/both`.
struct Scene {
    // It goes first.
    shared: Shared,
    node: Node,
}

impl Scene {
    fn make(test: &str) -> Option<Self> {
        Shared::can_be(test).then(|| Self::with(Shared::mount))
    }

    fn with(mount: fn(&Node, &str) -> Shared) -> Self {
        let node = Node::start();
        node.add_user("alice", "wonderland");
        node.add_user("bob", "builder");
        for directory in ["/hers", "/his", "/both"] {
            node.run(&["mkdir", directory]).ok();
        }
        node.run(&["acl", "grant", "/hers", "alice", "all"]).ok();
        node.run(&["acl", "grant", "/his", "bob", "all"]).ok();
        node.run(&["acl", "grant", "/both", "alice", "read"]).ok();
        node.run(&["acl", "grant", "/both", "bob", "read"]).ok();
        Self { shared: mount(&node, "/"), node }
    }

    /// Runs `weft` as a uid of the machine.
    fn weft_as(&self, uid: u32, args: &[&str], input: &str) -> Said {
        let mut command = self.command_as(uid, weft());
        self.node.feed_command(command.args(args), input.as_bytes())
    }

    /// Runs a shell script in the mount as a uid of the machine.
    fn sh_as(&self, uid: u32, script: &str) -> Said {
        let mut command = self.command_as(uid, "sh");
        command.args(["-euc", script]).current_dir("/").env("AT", self.shared.at());
        self.node.feed_command(&mut command, b"")
    }

    fn command_as(&self, uid: u32, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.node.as_user(program);
        command.uid(uid).gid(uid);
        command
    }

    fn log_in(&self, uid: u32, user: &str, password: &str) -> Said {
        self.shared.log_in(&self.node, uid, user, password)
    }

    fn text(&self) -> &str {
        self.shared.at().to_str().expect("a path of ours is text")
    }

    /// Returns as whom the mount knows a uid.
    fn who(&self, uid: u32) -> String {
        let said = self.weft_as(uid, &["--json", "status", self.text()], "");
        let said: Value = serde_json::from_str(&said.out).expect("one object");
        said["standing"]["for"].as_str().expect("a name").to_owned()
    }
}

#[test]
fn each_user_of_a_shared_mount_is_who_they_logged_in_as_and_all_others_are_anyone() {
    let Some(scene) = Scene::make("shared_mounts::users") else { return };
    assert_eq!(scene.who(ALICE), "anyone");
    let refused = scene.sh_as(ALICE, "ls $AT/hers");
    assert_ne!(refused.code, 0, "{}", refused.out);
    let said = scene.log_in(ALICE, "alice", "wonderland");
    assert!(said.err.contains("alice") && said.err.contains(&NOBODY.to_string()), "{}", said.err);
    said.ok();
    scene.log_in(BOB, "bob", "builder").ok();
    assert!(scene.who(ALICE).starts_with("alice@"), "{}", scene.who(ALICE));
    assert!(scene.who(BOB).starts_with("bob@"), "{}", scene.who(BOB));
    assert_eq!(scene.who(STRANGER), "anyone");
    scene.sh_as(ALICE, "echo secret > $AT/hers/f; cat $AT/hers/f; ls $AT/hers").ok();
    scene.sh_as(BOB, "echo his > $AT/his/f").ok();
    for (uid, name) in [(BOB, "hers"), (ALICE, "his"), (STRANGER, "hers"), (STRANGER, "his"), (0, "hers")] {
        for look in ["cat $AT/NAME/f", "ls $AT/NAME", "echo x > $AT/NAME/g"] {
            let said = scene.sh_as(uid, &look.replace("NAME", name));
            assert_ne!(said.code, 0, "{uid} {name} {look}: {}", said.out);
            assert!(!said.out.contains("secret"), "{}", said.out);
        }
    }
    let owner = scene.sh_as(ALICE, "stat -c %u $AT/hers/f").ok();
    assert_eq!(owner.trim(), ALICE.to_string());
    // Who the mount acts for of itself is who serves it.
    assert!(scene.who(NOBODY).starts_with("admin@"), "{}", scene.who(NOBODY));
}

#[test]
fn an_ordinary_user_shares_a_mount_where_the_machine_lets_users_and_each_is_who_they_are() {
    if !Shared::can_be_without_root("shared_mounts::without_root") {
        return;
    }
    let scene = Scene::with(Shared::mount_without_root);
    assert_eq!(scene.who(ALICE), "anyone");
    scene.log_in(ALICE, "alice", "wonderland").ok();
    assert!(scene.who(ALICE).starts_with("alice@"), "{}", scene.who(ALICE));
    assert_eq!(
        scene.sh_as(ALICE, "echo secret > $AT/hers/f; cat $AT/hers/f; ls $AT/hers").ok(),
        "secret\nf\n"
    );
    assert_eq!(scene.sh_as(ALICE, "stat -c %u $AT/hers/f").ok().trim(), ALICE.to_string());
    for uid in [STRANGER, 0] {
        assert_eq!(scene.who(uid), "anyone");
        for look in ["cat $AT/hers/f", "ls $AT/hers", "echo x > $AT/hers/g", "rm $AT/hers/f"] {
            let said = scene.sh_as(uid, look);
            assert_ne!(said.code, 0, "{uid} {look}: {}", said.out);
            assert!(!said.out.contains("secret"), "{uid} {look}: {}", said.out);
        }
    }
    // Who mounted it takes it away.
    scene.node.run(&["umount", scene.text()]).ok();
    assert_ne!(scene.sh_as(ALICE, "cat $AT/hers/f").code, 0);
}

#[test]
fn a_credential_that_is_handed_over_does_no_more_than_it_says_and_ends_with_a_logout() {
    let Some(scene) = Scene::make("shared_mounts::narrowed") else { return };
    let narrowed = ["login", "alice", "--password-stdin", "--rights", "read", "--mount", scene.text()];
    scene.log_in(ALICE, "alice", "wonderland").ok();
    scene.sh_as(ALICE, "echo x > $AT/hers/f").ok();
    let mut reader = scene.command_as(ALICE, "sh");
    reader.args(["-c", "exec 3< $AT/hers/f; echo; read line; cat <&3"]).env("AT", scene.shared.at());
    reader.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut reader = reader.spawn().expect("it starts");
    let mut byte = [0];
    std::io::Read::read_exact(reader.stdout.as_mut().expect("piped"), &mut byte).expect("it has opened");
    scene.weft_as(ALICE, &narrowed, "wonderland").ok();
    soon("the narrower one holds", || scene.sh_as(ALICE, "echo y > $AT/hers/f").code != 0);
    scene.sh_as(ALICE, "cat $AT/hers/f").ok();
    drop(reader.stdin.take());
    let output = reader.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "x\n", "what she had open stays open");
    scene.weft_as(ALICE, &["logout", "--mount", scene.text()], "").ok();
    assert_eq!(scene.who(ALICE), "anyone");
    assert_ne!(scene.sh_as(ALICE, "cat $AT/hers/f").code, 0);
}

#[test]
fn users_of_a_shared_mount_stay_who_they_are_when_the_node_starts_again() {
    let Some(mut scene) = Scene::make("shared_mounts::restart") else { return };
    scene.log_in(ALICE, "alice", "wonderland").ok();
    scene.sh_as(ALICE, "echo x > $AT/hers/f").ok();
    scene.node.kill();
    scene.node.up();
    assert_eq!(scene.sh_as(ALICE, "cat $AT/hers/f").ok(), "x\n");
    assert_ne!(scene.sh_as(STRANGER, "cat $AT/hers/f").code, 0, "anyone is still nobody else");
    assert_ne!(scene.sh_as(BOB, "cat $AT/hers/f").code, 0);
}

#[test]
fn a_credential_is_handed_to_the_process_of_a_shared_mount_and_to_nobody_else() {
    let Some(mut scene) = Scene::make("shared_mounts::handing") else { return };
    let nowhere = scene.node.path("tmp");
    let login = |dir: &Path| {
        let dir = dir.to_str().expect("text");
        scene.weft_as(ALICE, &["login", "alice", "--password-stdin", "--mount", dir], "wonderland")
    };
    login(&nowhere).fails(1, &["error:", "in no mount of weft"]);
    let wrong = scene.log_in(ALICE, "alice", "wrong");
    wrong.fails(3, &["error:", "alice"]);
    let kept = scene.node.path("home/.config/weft/credentials");
    assert!(!kept.exists() || fs::read_dir(kept).expect("read").count() == 0, "nothing is kept beside it");
    let own = scene.weft_as(NOBODY, &["login", "--mount", scene.text()], "");
    own.fails(3, &["error:", "who serves the mount"]);
    let other = Node::start();
    let said = other.run(&["login", "--mount", scene.text()]);
    said.fails(1, &["error:", "another domain", "--node"]);
    let alone = scene.node.mount("alone");
    let said = scene.node.run(&["login", "--mount", alone.to_str().expect("text")]);
    said.fails(1, &["error:", "of one user", "--shared"]);
    scene.node.unmount(&alone);
}

/// Places are few, and who becomes several users of the machine is one to the node.
#[test]
fn one_user_uses_a_mount_under_few_uids_and_again_under_another_once_one_is_let_go() {
    let Some(scene) = Scene::make("shared_mounts::uids") else { return };
    let uids: Vec<u32> = (0..=limits::MOUNT_UIDS_OF_ONE as u32).map(|n| 43_011 + n).collect();
    let (last, first) = uids.split_last().expect("there are some");
    for uid in first {
        scene.log_in(*uid, "alice", "wonderland").ok();
        scene.log_in(*uid, "alice", "wonderland").ok();
    }
    let refused = scene.log_in(*last, "alice", "wonderland");
    assert_ne!(refused.code, 0);
    assert!(
        refused.err.contains("as many uids") && refused.err.contains("weft logout --mount"),
        "{}",
        refused.err
    );
    assert_eq!(scene.who(*last), "anyone");
    scene.log_in(*last, "bob", "builder").ok();
    scene.weft_as(first[0], &["logout", "--mount", scene.text()], "").ok();
    scene.log_in(*last, "alice", "wonderland").ok();
    assert!(scene.who(*last).starts_with("alice@"), "{}", scene.who(*last));
}
