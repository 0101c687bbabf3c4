//! pjdfstest, which asks what POSIX says of files, where the container's mode bits count by class: over a mount that users of
//! the machine share, on which root holds all rights and three others those of who writes; and over one that the kernel
//! keeps things of, as the ordinary user whose it is.
//!
//! The first needs root, to be several users.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use weft_conformance::run::{brought, have};

use crate::node::Node;
use crate::shared_mounts::Shared;

/// Users that every machine has, whose group is of the same name: they need not be the test's own.
const OTHERS: [&str; 3] = ["games", "daemon", "bin"];

/// What fails by design, by the end of its name, and why.
const NOT_HAD: [(&str, &str); 4] = [
    ("::block", "no devices in the tree: a name is shared by many machines"),
    ("::char", "no devices in the tree: a name is shared by many machines"),
    ("::socket", "no sockets in the tree: a name is shared by many machines"),
    ("open::socket_error", "no sockets in the tree: a name is shared by many machines"),
];

/// What it leaves out here, by a part of its name, and why.
const LEFT_OUT: [(&str, &str); 2] = [
    ("::erofs_", "it would mount what it is run on anew, read-only, as no user may"),
    ("link::link_count_max", "it asks for the most names that a file may have, which FUSE does not tell"),
];

/// What ends either way on a mount that the kernel keeps things of, and why.
const EITHER: [(&str, &str); 1] = [(
    "open::etxtbsy",
    "Linux leaves it to a file system that cuts while it opens to refuse that of a program that runs, and tells it of none",
)];

struct Scene {
    // It goes first.
    shared: Shared,
    node: Node,
}

impl Scene {
    /// Makes `/posix`, root's, mounts it shared, and logs all users in.
    fn make() -> Self {
        let node = Node::start();
        let root = node.add_user("root", "root's");
        node.run(&["acl", "grant", "/", "root", "all"]).ok();
        node.run_with(&root, &["mkdir", "/posix"]).ok();
        node.run(&["acl", "set", "/posix", "--modes", "classes"]).ok();
        node.run(&["acl", "grant", "/posix", "root", "all"]).ok();
        for user in OTHERS {
            node.add_user(user, "theirs");
            node.run(&["acl", "grant", "/posix", user, "write"]).ok();
        }
        let shared = Shared::mount(&node, "/posix");
        shared.log_in(&node, 0, "root", "root's").ok();
        for user in OTHERS {
            shared.log_in(&node, uid_of(user), user, "theirs").ok();
        }
        Self { shared, node }
    }

    /// Runs the suite as all users, and returns how each of its tests ended.
    fn run(&self, program: &Path) -> BTreeMap<String, String> {
        run(&self.node, Command::new(program), self.shared.at())
    }
}

/// Has the suite look at a directory, and become the others where it is root.
fn run(node: &Node, mut suite: Command, at: &Path) -> BTreeMap<String, String> {
    let elsewhere = node.make_dir("elsewhere");
    let entries: Vec<_> = OTHERS.iter().map(|user| format!("[\"{user}\", \"{user}\"]")).collect();
    let settings = node.write(
        "pjdfstest.toml",
        format!(
            "features = {{ posix_fallocate = {{}}, rename_ctime = {{}}, utimensat = {{}}, utime_now = {{}} }}\n\
             settings = {{ naptime = 0.02, allow_remount = false }}\n\
             dummy_auth = {{ entries = [{}] }}\n",
            entries.join(", ")
        ),
    );
    suite.arg("-c").arg(settings).arg("-p").arg(at).arg("-s").arg(elsewhere);
    let said = node.feed_command(suite.current_dir(at).env("RUST_BACKTRACE", "0"), b"");
    let all = format!("{}{}", said.out, said.err);
    let ended: BTreeMap<_, _> = all.lines().filter_map(ended).collect();
    assert!(all.contains(&format!(" {} total", ended.len())), "{all}");
    ended
}

/// Returns the name of a test and how it ended, if a line says that.
fn ended(line: &str) -> Option<(String, String)> {
    let (name, how) = line.split_once(' ')?;
    let how = how.trim();
    let tells = name.contains("::") && ["ok", "FAILED", "skipped"].contains(&how);
    tells.then(|| (name.to_owned(), how.to_owned()))
}

/// Returns the uid of a user of this machine.
fn uid_of(user: &str) -> u32 {
    let said = Command::new("id").args(["-u", user]).output().expect("it runs");
    String::from_utf8_lossy(&said.stdout).trim().parse().expect("every machine has that user")
}

/// Returns how a test has to end.
fn expected(name: &str) -> &'static str {
    if NOT_HAD.iter().any(|(end, _)| name.ends_with(end)) {
        "FAILED"
    } else if LEFT_OUT.iter().any(|(part, _)| name.contains(part)) {
        "skipped"
    } else {
        "ok"
    }
}

#[test]
fn what_pjdfstest_asks_of_posix_holds_on_a_shared_mount() {
    const TEST: &str = "pjdfstest::what_pjdfstest_asks_of_posix_holds_on_a_shared_mount";
    if !Shared::can_be(TEST) {
        return;
    }
    let Some(program) = brought(TEST, "bin/pjdfstest") else { return };
    let ended = Scene::make().run(&program);
    let others: Vec<_> = ended.iter().filter(|(name, how)| *how != expected(name)).collect();
    assert!(others.is_empty(), "{others:#?}");
    assert!(ended.len() > 390, "{}", ended.len());
}

/// Whoever is not root is asked less: what takes root to look at is left out.
#[test]
fn what_pjdfstest_asks_of_posix_as_an_ordinary_user_holds_on_a_mount_that_the_kernel_keeps_things_of() {
    const TEST: &str = "pjdfstest::as_an_ordinary_user";
    if !have(TEST, &["fusermount3"]) {
        return;
    }
    let Some(program) = brought(TEST, "bin/pjdfstest") else { return };
    let mut node = Node::start();
    node.run(&["mkdir", "/posix"]).ok();
    node.run(&["acl", "set", "/posix", "--modes", "classes"]).ok();
    let at = node.mount("mnt").join("posix");
    // Who runs the node need not reach where it lies.
    let here = node.write("pjdfstest", std::fs::read(program).expect("it can be read"));
    std::fs::set_permissions(&here, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let ended = run(&node, node.as_user(here), &at);
    let asked: Vec<_> = ended.iter().filter(|(_, how)| *how != "skipped").collect();
    let other =
        |name: &str, how: &str| how != expected(name) && EITHER.iter().all(|(either, _)| name != *either);
    let others: Vec<_> = asked.iter().filter(|(name, how)| other(name, how)).collect();
    assert!(others.is_empty(), "{others:#?}");
    assert!(asked.len() > 250, "{}", asked.len());
}
