//! Trees of real files, and programs nobody here wrote, over a real node's mount.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::http::Http;
use crate::node::{Node, full, give, have};

/// Copies regular files of this machine below a directory, so many at most, for who
/// runs the node: the Rust toolchain's first, then what Debian installs. Returns how
/// many, and their bytes.
pub fn gather(into: &Path, most: usize) -> (usize, u64) {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output();
    let sysroot = sysroot.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned()).unwrap_or_default();
    let places = [
        format!("{sysroot}/share/doc"),
        "/usr/include".into(),
        "/usr/share/doc".into(),
        "/usr/lib/python3".into(),
    ];
    let (mut files, mut bytes) = (0, 0);
    for (number, place) in places.iter().enumerate() {
        let mut waiting = vec![(PathBuf::from(place), into.join(format!("from{number}")))];
        while let Some((from, to)) = waiting.pop() {
            let Ok(entries) = fs::read_dir(&from) else { continue };
            if files >= most {
                return (files, bytes);
            }
            fs::create_dir_all(&to).expect("made");
            give(&to);
            let mut entries: Vec<_> = entries.flatten().collect();
            entries.sort_by_key(fs::DirEntry::file_name);
            for entry in entries {
                let (kind, target) = (entry.file_type().expect("told"), to.join(entry.file_name()));
                if kind.is_dir() {
                    waiting.push((entry.path(), target));
                } else if kind.is_file() && files < most {
                    bytes += fs::copy(entry.path(), &target).expect("copied");
                    give(&target);
                    files += 1;
                }
            }
        }
    }
    assert!(files >= most / 4, "this machine has only {files} files to try with");
    (files, bytes)
}

/// Fails unless a tree over HTTP has the names and bytes of one on disk. Returns how
/// many files it compared.
fn assert_same_over_http(http: &Http, target: &str, dir: &Path) -> usize {
    let mut here = BTreeMap::new();
    for entry in fs::read_dir(dir).expect("read") {
        let entry = entry.expect("read");
        let name = entry.file_name().into_string().expect("these names are UTF-8");
        here.insert(name, entry);
    }
    let there = http.names(target);
    assert!(there.iter().map(String::as_str).eq(here.keys().map(String::as_str)), "{target} has other names");
    let mut compared = 0;
    for (name, entry) in here {
        let encoded: String = name.bytes().map(|b| format!("%{b:02x}")).collect();
        let target = format!("{}/{encoded}", target.trim_end_matches('/'));
        if entry.file_type().expect("told").is_dir() {
            compared += assert_same_over_http(http, &format!("{target}/"), &entry.path());
        } else {
            assert!(http.bytes(&target) == fs::read(entry.path()).expect("read"), "{name} differs");
            compared += 1;
        }
    }
    compared
}

#[test]
fn a_tree_written_through_the_mount_is_the_same_over_http() {
    if !have("trees::http", &["fusermount3", "tar", "rsync"]) {
        return;
    }
    let mut node = Node::start();
    let tree = node.make_dir("tree");
    let (files, bytes) = gather(&tree, if full() { 50_000 } else { 1_000 });
    let mnt = node.mount("mnt");
    let start = std::time::Instant::now();
    // `tar` in, and what `tar -d` finds of it.
    node.sh("tar -cf tree.tar -C tree . && mkdir mnt/tree && tar -xpf tree.tar -C mnt/tree && tar -df tree.tar -C mnt/tree");
    let took = start.elapsed();
    let said = node.sh("rsync -aic tree/ mnt/tree/");
    assert_eq!(said, "", "nothing is left to copy");
    node.sh("cp -a mnt/tree again && diff -r tree again");
    let start = std::time::Instant::now();
    assert_eq!(assert_same_over_http(&node.http(Some(&node.token())), "/tree/", &tree), files);
    println!("{files} files, {bytes} bytes: tar in {took:?}, read over HTTP in {:?}", start.elapsed());
    node.sh("rm -rf mnt/tree");
    assert_eq!(node.run(&["ls"]).ok(), "");
    node.unmount(&mnt);
}

#[test]
fn rsync_git_and_make_work_over_the_mount() {
    if !have("trees::programs", &["fusermount3", "rsync", "git", "make", "cc"]) {
        return;
    }
    let mut node = Node::start();
    let tree = node.make_dir("tree");
    gather(&tree, 300);
    let mnt = node.mount("mnt");
    node.sh("rsync -a tree/ mnt/r/");
    assert_eq!(node.sh("rsync -ai tree/ mnt/r/"), "");
    node.sh(
        "export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.org \
         GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@example.org
         git init -q -b main tree; cd tree; git add -A; git commit -qm all; cd ..
         git clone -q file://$PWD/tree mnt/clone; cd mnt/clone
         test -z \"$(git status --porcelain)\"
         echo line > new; git add -A; git commit -qm more; git gc -q --prune=now; git fsck --full --strict",
    );
    node.sh("diff -r -x .git -x new tree mnt/clone");
    node.sh(r#"mkdir mnt/c; cd mnt/c
        for n in 1 2 3 4 5 6 7 8; do echo "int f$n(void) { return $n; }" > f$n.c; done
        { for n in 1 2 3 4 5 6 7 8; do echo "int f$n(void);"; done
          echo 'int main(void) { return f1()+f2()+f3()+f4()+f5()+f6()+f7()+f8() - 36; }'; } > main.c
        printf 'prog: $(patsubst %%.c,%%.o,$(wildcard *.c))\n\tcc -o $@ $^\n' > Makefile
        make -s -j2; ./prog; make -q"#);
    node.unmount(&mnt);
}

#[test]
fn sqlite_in_wal_mode_with_two_writers_loses_no_row_over_the_mount() {
    if !have("trees::sqlite", &["fusermount3", "sqlite3"]) {
        return;
    }
    let mut node = Node::start();
    let mnt = node.mount("mnt");
    let said = node.sh(r#"cd mnt; s() { sqlite3 -bail -batch -cmd '.timeout 60000' rows.db "$@"; }
        s 'pragma journal_mode=wal; create table t (w, n);' > /dev/null
        rows() { i=0; while [ $i -lt 50 ]; do echo "insert into t values ($1, $i);"; i=$((i+1)); done; }
        rows 1 | s > /dev/null & one=$!
        rows 2 | s > /dev/null & two=$!
        wait $one; wait $two
        s 'pragma integrity_check; select count(*), count(distinct w * 1000 + n) from t;'"#);
    assert_eq!(said, "ok\n100|100\n");
    node.unmount(&mnt);
}
