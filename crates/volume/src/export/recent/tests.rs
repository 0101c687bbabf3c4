//! What is kept is found only where the machine would lead to the same, and is let go.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
use weft_conformance::run::{not_run, open_below};
use weft_sys::Beneath;
use weft_sys::beneath::{coarse_now, coarse_rest};

use super::*;
use crate::export::version::is_young;

const PATH: &[u8] = b"a/b/file";

/// Directories with a file, which was read and kept.
fn kept() -> (tempfile::TempDir, Recent, Read) {
    let home = tempfile::tempdir().expect("a directory");
    fs::create_dir_all(home.path().join("a/b")).expect("made");
    fs::write(home.path().join("a/b/file"), b"bytes").expect("written");
    let beneath = Beneath::open(home.path()).expect("it is there");
    let recent = Recent::below(beneath.itself().expect("held"));
    let read = opened(&beneath, PATH);
    keep(&recent, PATH, &read);
    (home, recent, read)
}

/// Opens what is no longer young.
fn opened(beneath: &Beneath, path: &[u8]) -> Read {
    let held = Arc::new(beneath.find(path).expect("it is there"));
    while is_young(&held.facts().expect("facts")) {
        std::thread::sleep(coarse_rest());
    }
    let facts = held.facts().expect("facts");
    let file = held.open_known(&facts, false).expect("open");
    Read { held, facts, file }
}

/// Reads it as often as it takes.
fn keep(recent: &Recent, path: &[u8], read: &Read) {
    (0..2).for_each(|_| recent.keep(path, read, coarse_now()));
}

fn is_found(recent: &Recent, read: &Read) -> bool {
    let found = recent.kept(PATH).and_then(|kept| recent.read(PATH, kept));
    let Some((found, bytes)) = found else { return false };
    assert!(Arc::ptr_eq(&found.file, &read.file) && bytes.is_some_and(|bytes| bytes[..] == *b"bytes"));
    true
}

#[test]
fn what_was_read_is_found_as_long_as_its_name_leads_to_it_and_nothing_of_it_changed() {
    type Change = (&'static str, bool, fn(&Path));
    let changes: [Change; 14] = [
        ("nothing", true, |_| {}),
        ("it is read", true, |at| drop(fs::read(at.join("a/b/file")))),
        ("something beside it", true, |at| fs::write(at.join("a/b/other"), b"x").expect("written")),
        ("a directory has another name", false, |at| fs::rename(at.join("a"), at.join("z")).expect("moved")),
        ("its bytes", false, |at| fs::write(at.join("a/b/file"), b"BYTES").expect("written")),
        ("its length", false, |at| {
            let held = Beneath::open(at).and_then(|beneath| beneath.find(PATH)).expect("there");
            held.open(true).expect("open").set_length(4).expect("cut");
        }),
        ("its mode", false, |at| {
            let mode = fs::Permissions::from_mode(0o600);
            fs::set_permissions(at.join("a/b/file"), mode).expect("changed");
        }),
        ("its attributes, as of an ACL", false, |at| {
            let held = Beneath::open(at).and_then(|beneath| beneath.find(PATH)).expect("there");
            held.set_tag(b"user.more", Some(b"x")).expect("set");
        }),
        ("it has a second name", false, |at| {
            fs::hard_link(at.join("a/b/file"), at.join("second")).expect("linked");
        }),
        ("it is gone", false, |at| fs::remove_file(at.join("a/b/file")).expect("removed")),
        ("another has its name", false, |at| {
            fs::write(at.join("new"), b"bytes").expect("written");
            fs::rename(at.join("new"), at.join("a/b/file")).expect("moved");
        }),
        ("a link has its name", false, |at| {
            fs::rename(at.join("a/b/file"), at.join("a/b/moved")).expect("moved");
            symlink("moved", at.join("a/b/file")).expect("linked");
        }),
        ("a link has its directory's name", false, |at| {
            fs::rename(at.join("a"), at.join("z")).expect("moved");
            symlink("z", at.join("a")).expect("linked");
        }),
        ("another directory has the name", false, |at| {
            fs::rename(at.join("a"), at.join("z")).expect("moved");
            fs::create_dir_all(at.join("a/b")).expect("made");
            fs::write(at.join("a/b/file"), b"bytes").expect("written");
        }),
    ];
    for (what, stays, change) in changes {
        for seen_before in [false, true] {
            let (home, recent, read) = kept();
            assert!(!seen_before || is_found(&recent, &read));
            change(home.path());
            assert_eq!(is_found(&recent, &read), stays, "{what}; seen before: {seen_before}");
        }
    }
}

#[test]
fn what_has_left_its_path_is_kept_there_anew_once_it_is_read_there_again() {
    let (home, recent, read) = kept();
    let at = |name: &str| home.path().join(name);
    assert!(is_found(&recent, &read));
    fs::rename(at("a"), at("z")).expect("moved");
    fs::create_dir(at("a")).expect("made");
    assert!(!is_found(&recent, &read) && recent.kept(PATH).is_none());
    fs::remove_dir(at("a")).expect("removed");
    fs::rename(at("z"), at("a")).expect("moved");
    recent.keep(PATH, &read, coarse_now());
    assert!(is_found(&recent, &read));
}

#[test]
fn what_is_read_once_may_change_under_its_stamps_is_long_or_far_down_is_not_kept() {
    let (_home, recent, read) = kept();
    recent.keep(b"once", &read, coarse_now());
    assert!(recent.kept(b"once").is_none());
    let now = coarse_now().plus(Duration::from_secs(60));
    let cases = [
        (b"young".as_slice(), Facts { ctime: now, ..read.facts }, false),
        (b"long", Facts { size: BYTES_MAX + 1, ..read.facts }, false),
        (b"reserved", Facts { used: 2 * BYTES_MAX + 512, ..read.facts }, false),
        (b"1/2/3/4/5", read.facts, false),
        (b"1/2/3/4", Facts { size: BYTES_MAX, ..read.facts }, true),
    ];
    for (path, facts, is_kept) in cases {
        keep(&recent, path, &Read { facts, ..read.clone() });
        assert_eq!(recent.kept(path).is_some(), is_kept, "{}", path.escape_ascii());
    }
    let looked = read.facts.ctime;
    recent.keep(b"young when it was looked at", &read, looked);
    recent.keep(b"young when it was looked at", &read, looked);
    assert!(recent.kept(b"young when it was looked at").is_none());
}

#[test]
fn what_is_kept_open_is_bounded_and_let_go_with_the_root() {
    let (home, recent, read) = kept();
    drop(read);
    let beneath = Beneath::open(home.path()).expect("it is there");
    let mut found = 0;
    for number in 0..2 * KEPT_MAX {
        let path = format!("{number}/f");
        fs::create_dir(home.path().join(number.to_string())).expect("made");
        fs::write(home.path().join(&path), b"bytes").expect("written");
        let read = opened(&beneath, path.as_bytes());
        keep(&recent, path.as_bytes(), &read);
        let kept = recent.kept(path.as_bytes());
        found += usize::from(kept.is_some_and(|kept| recent.read(path.as_bytes(), kept).is_some()));
    }
    assert!(found > KEPT_MAX / 4, "{found} were found again");
    drop(beneath);
    let there = open_below(home.path());
    assert!(there > KEPT_MAX && there <= 2 * KEPT_MAX + 1, "{there} descriptors");
    let kept = recent.let_go();
    assert!(!kept.is_empty());
    drop(kept);
    assert_eq!(open_below(home.path()), 1, "the root's own");
    let beneath = Beneath::open(home.path()).expect("it is there");
    keep(&recent, PATH, &opened(&beneath, PATH));
    assert!(recent.kept(PATH).is_none(), "and nothing is kept after that");
}

#[test]
fn so_much_is_kept_for_all_shares_and_no_more() {
    static FEW: Places = Places { left: AtomicUsize::new(3) };
    let mut taken: Vec<_> = std::iter::from_fn(|| FEW.take()).collect();
    assert_eq!(taken.len(), 3);
    drop(taken.pop());
    assert!(FEW.take().is_some_and(|_place| FEW.take().is_none()));
    drop(taken);
    assert_eq!(FEW.left.load(Ordering::Relaxed), 3);
}

/// Something that is mounted, until this is dropped.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        // Nothing else can be done about one that stays.
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

#[test]
fn what_is_mounted_over_a_name_on_the_way_is_not_what_was_read() {
    if !rustix::process::geteuid().is_root() {
        return not_run("export::recent::mounted", "only root can mount");
    }
    for place in ["a", "a/b", "a/b/file"] {
        let (home, recent, read) = kept();
        assert!(is_found(&recent, &read));
        let at = home.path().join(place);
        if let Err(why) = mount_bind(&at, &at) {
            return not_run("export::recent::mounted", &why.to_string());
        }
        let mounted = Mounted(at);
        assert!(!is_found(&recent, &read), "the same over {place}");
        drop(mounted);
    }
}

/// A program that never answers is mounted over a directory on the way: who looks does not wait for it.
#[test]
fn what_is_mounted_on_the_way_is_asked_nothing() {
    if !rustix::process::geteuid().is_root() {
        return not_run("export::recent::hung", "only root can mount");
    }
    let (home, recent, read) = kept();
    assert!(is_found(&recent, &read));
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
    let Ok(program) = rustix::fs::open("/dev/fuse", flags, rustix::fs::Mode::empty()) else {
        return not_run("export::recent::hung", "there is no /dev/fuse");
    };
    let at = home.path().join("a/b");
    let number = std::os::fd::AsRawFd::as_raw_fd(&program);
    let options = format!("fd={number},rootmode=40000,user_id=0,group_id=0,allow_other\0");
    let options = std::ffi::CStr::from_bytes_with_nul(options.as_bytes()).expect("text");
    if let Err(why) = mount("hung", &at, "fuse", MountFlags::empty(), options) {
        return not_run("export::recent::hung", &why.to_string());
    }
    let mounted = Mounted(at);
    let (say, told) = mpsc::channel();
    let looking = std::thread::spawn(move || {
        let above = recent.directory(b"a").expect("it is there");
        let listed = above.look(b"b", false).expect("seen").expect("there");
        let _ = say.send((is_found(&recent, &read), listed.is_mount));
    });
    let answer = told.recv_timeout(Duration::from_secs(20));
    // Whoever waits for it is told that it is gone.
    drop((program, mounted));
    looking.join().expect("it ends");
    assert_eq!(answer, Ok((false, true)));
}
