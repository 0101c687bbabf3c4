//! Programs nobody here wrote, over a real node's mount: fsx, git, rsync, and what the scripts of the mount's own tests
//! run (`crates/doors/fuse/tests/it/programs`), of managed files and of a share.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::thread;

use weft_conformance::run::{brought, full, have};

use crate::node::{Node, give};
use crate::trees::gather;

/// Mappings beside writes, holes, copies within the file.
const FSX_CONFIG: &str = include_str!("../../../doors/fuse/tests/it/fsx.toml");

/// git without anybody's settings, and with a name to commit in.
pub const GIT: &str = "export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 \
    GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@example.org";

#[test]
fn fsx_finds_no_difference_over_the_mount_of_managed_files_and_of_a_share() {
    if !have("programs::fsx", &["fusermount3", "getfattr"]) {
        return;
    }
    let Some(fsx) = brought("programs::fsx", "bin/fsx") else { return };
    let mut node = Node::start();
    fs::copy(fsx, node.path("fsx")).expect("copied");
    fs::set_permissions(node.path("fsx"), fs::Permissions::from_mode(0o755)).expect("it is ours");
    node.write("fsx.toml", FSX_CONFIG);
    node.make_dir("found");
    node.make_dir("shared");
    node.run(&["share", "shared", "/share"]).ok();
    let mnt = node.mount("mnt");
    let (count, seeds) = if full() { (200_000, [5, 3]) } else { (5_000, [2, 1]) };
    // Why something failed the mount alone says.
    let why = "getfattr --only-values -n user.weft.why mnt >&2; exit 1";
    // All at once: each waits for the disk most of its time.
    thread::scope(|scope| {
        for (file, seeds) in ["managed", "share/shared"].into_iter().zip(seeds) {
            for seed in 1..=seeds {
                let fsx = format!("./fsx -f fsx.toml -P found -N {count} -S {seed} mnt/{file}{seed}");
                let (node, run) = (&node, format!("{fsx} || {{ {why}; }}"));
                scope.spawn(move || node.sh(&run));
            }
        }
    });
    node.unmount(&mnt);
}

#[test]
fn rsync_and_git_work_over_the_mount() {
    if !have("programs::git", &["fusermount3", "rsync", "git"]) {
        return;
    }
    let mut node = Node::start();
    let tree = node.make_dir("tree");
    gather(&tree, 300);
    let mnt = node.mount("mnt");
    node.sh("rsync -a tree/ mnt/r/");
    assert_eq!(node.sh("rsync -ai tree/ mnt/r/"), "");
    node.sh(&format!(
        "{GIT}
         git init -q -b main tree; cd tree; git add -A; git commit -qm all; cd ..
         git clone -q file://$PWD/tree mnt/clone; cd mnt/clone
         test -z \"$(git status --porcelain)\"
         echo line > new; git add -A; git commit -qm more; git gc -q --prune=now; git fsck --full --strict",
    ));
    node.sh("diff -r -x .git -x new tree mnt/clone");
    node.unmount(&mnt);
}

/// A node that serves both trees, and two mounts of them.
struct Scene {
    node: Node,
    mounts: [PathBuf; 2],
}

/// The trees that scripts are run in, by their names in a mount.
const TREES: [&str; 2] = ["managed", "share"];

impl Scene {
    fn new() -> Self {
        Self::of(Node::unstarted())
    }

    fn of(mut node: Node) -> Self {
        node.up();
        node.make_dir("shared");
        node.run(&["share", "shared", "/share"]).ok();
        node.run(&["mkdir", "/managed"]).ok();
        let mounts = [node.mount("one"), node.mount("other")];
        Self { node, mounts }
    }

    /// Runs a script in a new directory of a tree, with some settings, as the mount's own tests do over the model. `$OUT`
    /// is an empty directory elsewhere, `$OTHER` another mount of the same.
    fn script(&self, tree: &str, text: &str, settings: &[(&str, &OsStr)]) {
        let [at, other] = self.mounts.each_ref().map(|mount| mount.join(tree).join("script"));
        let out = self.node.make_dir(&format!("out of {tree}"));
        let mut sh = self.node.as_user("sh");
        sh.args(["-euxc", &format!("mkdir \"$AT\"; cd \"$AT\"\n{text}")]);
        sh.env("AT", at).env("OUT", out).env("OTHER", other).envs(settings.iter().copied());
        self.node.feed_command(&mut sh, b"").ok();
    }
}

/// Runs a script in both trees.
fn in_both(programs: &[&str], text: &str, settings: &[(&str, &OsStr)]) {
    if have(&format!("programs::{}", programs[0]), &[&["fusermount3"], programs].concat()) {
        let scene = Scene::new();
        for tree in TREES {
            scene.script(tree, text, settings);
        }
    }
}

/// Returns a script of the mount's own tests.
macro_rules! script {
    ($name:literal) => {
        include_str!(concat!("../../../doors/fuse/tests/it/programs/", $name))
    };
}

/// bzip2, as a crate ships its sources.
#[test]
fn a_real_c_project_is_cloned_and_built_over_the_mount_and_its_product_works() {
    if !have("programs::make", &["fusermount3", "make", "cc", "git"]) {
        return;
    }
    let Some(source) = brought("programs::make", "src/bzip2") else { return };
    let scene = Scene::new();
    let here = scene.node.make_dir("source");
    for entry in fs::read_dir(source).expect("read") {
        let entry = entry.expect("read");
        let to = here.join(entry.file_name());
        fs::copy(entry.path(), &to).expect("a flat directory of files");
        give(&to);
    }
    scene.script("managed", script!("c_project.sh"), &[("SOURCE", here.as_os_str())]);
}

/// The toolchain may lie in root's home, and who mounted may alone look into a mount: so here root runs the node.
#[test]
fn cargo_builds_a_crate_over_the_mount_and_knows_what_is_fresh() {
    if !have("programs::cargo", &["fusermount3", "cargo", "cc"]) {
        return;
    }
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().expect("it runs").stdout;
    let sysroot = String::from_utf8(sysroot).expect("a path of text");
    let path = format!("{}/bin:{}", sysroot.trim(), std::env::var("PATH").expect("there is one"));
    let node = Node::unstarted();
    let is_root = rustix::process::geteuid().is_root();
    let scene = Scene::of(if is_root { node.run_by(0) } else { node });
    scene.script("managed", script!("crate.sh"), &[("PATH", path.as_ref())]);
}

/// Rows of each of the four who write to a database.
fn rows() -> &'static OsStr {
    if full() { "1000" } else { "25" }.as_ref()
}

#[test]
fn sqlite_in_wal_mode_with_four_writers_loses_no_row_over_the_mount() {
    in_both(&["sqlite3"], script!("sqlite.sh"), &[("MODE", "wal".as_ref()), ("ROWS", rows())]);
}

#[test]
fn sqlite_with_a_rollback_journal_and_writers_on_two_mounts_loses_no_row() {
    in_both(&["sqlite3"], script!("sqlite.sh"), &[("MODE", "delete".as_ref()), ("ROWS", rows())]);
}

#[test]
fn an_editor_saves_by_rename_and_in_place_and_another_mount_shows_it() {
    in_both(&["vim.tiny"], script!("vim.sh"), &[]);
}

#[test]
fn sed_patch_install_gzip_and_ar_replace_what_they_change_over_the_mount() {
    in_both(&["patch", "sed", "diff", "install", "gzip", "ar"], script!("tools.sh"), &[]);
}

#[test]
fn rsync_keeps_hard_links_and_attributes_over_the_mount_and_deletes_what_went() {
    in_both(&["rsync", "setfattr", "getfattr"], script!("rsync.sh"), &[]);
}

#[test]
fn cp_makes_holes_over_the_mount_finds_them_and_fills_them() {
    in_both(&["cp", "cmp"], script!("sparse.sh"), &[]);
}

#[test]
fn mv_moves_between_directories_of_the_mount_and_out_of_it() {
    in_both(&["mv", "diff"], script!("mv.sh"), &[]);
}
