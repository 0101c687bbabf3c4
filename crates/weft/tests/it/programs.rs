//! Programs nobody here wrote, over a real node's mount: fsx, git, rsync, sqlite3, a C
//! compiler and make.

use std::fs;
use std::os::unix::fs::PermissionsExt;

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
    if !have("programs::fsx", &["fusermount3"]) {
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
    for (tree, seeds) in ["mnt", "mnt/share"].into_iter().zip(seeds) {
        for seed in 1..=seeds {
            node.sh(&format!("./fsx -f fsx.toml -P found -N {count} -S {seed} {tree}/file{seed}"));
        }
    }
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

/// bzip2, as a crate ships its sources.
#[test]
fn a_real_c_project_is_built_over_the_mount_and_its_product_works() {
    if !have("programs::make", &["fusermount3", "make", "cc"]) {
        return;
    }
    let Some(source) = brought("programs::make", "src/bzip2") else { return };
    let mut node = Node::start();
    let here = node.make_dir("source");
    for entry in fs::read_dir(source).expect("read") {
        let entry = entry.expect("read");
        let to = here.join(entry.file_name());
        fs::copy(entry.path(), &to).expect("a flat directory of files");
        give(&to);
    }
    let mnt = node.mount("mnt");
    let make = "cd mnt/bzip2 && make -j2 libbz2.a bzip2 bzip2recover";
    node.sh(&format!("cp -rp source mnt/bzip2; {make}"));
    // The second round has nothing to do, by the times the mount shows.
    let again = node.sh(make);
    assert!(!again.contains("-c "), "the second make compiled again:\n{again}");
    node.sh("cd mnt/bzip2; ./bzip2 -k -9 manual.html; ./bzip2 -d -f manual.html.bz2; cmp manual.html ../../source/manual.html");
    node.unmount(&mnt);
}

#[test]
fn sqlite_in_wal_mode_with_four_writers_loses_no_row_over_the_mount() {
    if !have("programs::sqlite", &["fusermount3", "sqlite3"]) {
        return;
    }
    let mut node = Node::start();
    let mnt = node.mount("mnt");
    let said = node.sh(r#"cd mnt; s() { sqlite3 -bail -batch -cmd '.timeout 60000' rows.db "$@"; }
        s 'pragma journal_mode=wal; create table t (w, n);' > /dev/null
        rows() { i=0; while [ $i -lt 50 ]; do echo "insert into t values ($1, $i);"; i=$((i+1)); done; }
        writers=
        for w in 1 2 3 4; do rows $w | s > /dev/null & writers="$writers $!"; done
        for writer in $writers; do wait $writer; done
        s 'pragma integrity_check; select count(*), count(distinct w * 1000 + n) from t;'"#);
    assert_eq!(said, "ok\n200|200\n");
    node.unmount(&mnt);
}
