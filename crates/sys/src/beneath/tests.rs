use std::ops::ControlFlow;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};

use weft_core::form::OpenedFile;
use weft_core::{ErrorKind, Time};

use super::*;
use crate::folder::Sort;

fn at(path: &Path) -> Beneath {
    Beneath::open(&path.canonicalize().expect("it is there")).expect("it opens")
}

fn names(held: &Held, from: u64) -> Vec<(Vec<u8>, u64)> {
    let mut names = Vec::new();
    let each = |listed: Listed<'_>| {
        names.push((listed.name().to_vec(), listed.next));
        Ok(ControlFlow::Continue(()))
    };
    held.list(from, each).expect("it can be listed");
    names
}

#[test]
fn no_path_leads_out() {
    let home = tempfile::tempdir().expect("a directory");
    let (top, away) = (home.path().join("top"), home.path().join("away"));
    std::fs::create_dir_all(top.join("d")).expect("made");
    std::fs::create_dir(&away).expect("made");
    std::fs::write(away.join("secret"), "secret").expect("written");
    symlink(&away, top.join("link")).expect("made");
    symlink("../away/secret", top.join("file")).expect("made");
    symlink("/proc/self/root", top.join("d/magic")).expect("made");
    let beneath = at(&top);
    for path in ["..", "d/../..", "../away/secret", "/etc/passwd", "link/secret", "d/magic/etc/passwd"] {
        let refused = beneath.find(path.as_bytes()).expect_err(path).kind();
        assert!(matches!(refused, ErrorKind::NotFound | ErrorKind::Loop), "{path}: {refused:?}");
    }
    for link in ["link", "file", "d/magic"] {
        let held = beneath.find(link.as_bytes()).expect("the link itself");
        let facts = held.facts().expect("facts");
        assert_eq!(facts.sort, Sort::Symlink);
        assert_eq!(held.open(false).map(drop).expect_err("a link is not opened").kind(), ErrorKind::Invalid);
        assert_eq!(held.tags(&facts).expect_err("nor followed").kind(), ErrorKind::Unsupported);
        assert_eq!(held.set_mode(0o777).expect_err("nor followed").kind(), ErrorKind::Unsupported);
    }
}

/// Somebody swaps a directory and a link to another place as fast as they can.
#[test]
fn a_link_swapped_in_while_others_look_leads_nowhere() {
    let home = tempfile::tempdir().expect("a directory");
    let (top, away) = (home.path().join("top"), home.path().join("away"));
    for dir in [top.join("d"), away.clone()] {
        std::fs::create_dir_all(&dir).expect("made");
    }
    std::fs::write(top.join("d/f"), "inside").expect("written");
    std::fs::write(away.join("f"), "outside").expect("written");
    symlink(&away, top.join("link")).expect("made");
    let (beneath, done) = (at(&top), AtomicBool::new(false));
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let top = beneath.itself().expect("it is held");
            while !done.load(Ordering::Relaxed) {
                top.rename(b"d", &top, b"link", Onto::Exchange).expect("both are there");
            }
        });
        let mut read = 0;
        for _ in 0..tries() {
            let Ok(file) = beneath.find(b"d/f").and_then(|held| held.open(false)) else { continue };
            let mut bytes = [0; 7];
            let length = file.read_at(&mut bytes, 0).expect("it is a file");
            assert_eq!(&bytes[..length], b"inside");
            read += 1;
        }
        done.store(true, Ordering::Relaxed);
        assert!(read > 0, "it was there at times");
    });
}

/// Tries of an escape: a hundred thousand with `./test --full`.
fn tries() -> usize {
    if std::env::var_os("WEFT_TEST_FULL").is_some() { 100_000 } else { 10_000 }
}

#[test]
fn devices_sockets_and_pipes_are_held_and_never_opened() {
    let home = tempfile::tempdir().expect("a directory");
    let top = at(home.path()).itself().expect("it is held");
    top.make(b"pipe", Fresh::Fifo, 0o600).expect("made");
    let _socket = UnixListener::bind(home.path().join("socket")).expect("made");
    for (name, sort) in [("pipe", Sort::Fifo), ("socket", Sort::Other)] {
        let held = top.inside(name.as_bytes()).expect("it is there");
        assert_eq!(held.facts().expect("facts").sort, sort);
        for write in [false, true] {
            assert_eq!(held.open(write).map(drop).expect_err(name).kind(), ErrorKind::Invalid);
        }
    }
}

/// While the machine makes a file of a number, it says that it is out of memory to whoever asks for the
/// earlier one.
#[test]
fn a_file_whose_number_is_being_given_out_again_is_gone() {
    let home = tempfile::tempdir().expect("a directory");
    let beneath = at(home.path());
    let top = beneath.itself().expect("it is held");
    let gone = top.make(b"f", Fresh::File, 0o600).and_then(|held| held.facts()).expect("made");
    top.remove(b"f", false).expect("it is there");
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        for name in [b"f", b"g"] {
            let (top, done) = (&top, &done);
            threads.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    top.make(name, Fresh::File, 0o600).expect("made");
                    top.remove(name, false).expect("it is there");
                }
            });
        }
        for _ in 0..tries() {
            let found = beneath.by_handle(gone.inode, gone.generation).map(|held| held.is_some());
            if found.as_ref().ok() != Some(&false) {
                done.store(true, Ordering::Relaxed);
                panic!("{found:?}");
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn an_inode_is_told_from_an_earlier_one_of_its_number() {
    let home = tempfile::tempdir().expect("a directory");
    let top = at(home.path()).itself().expect("it is held");
    let mut seen = std::collections::HashSet::new();
    for _ in 0..200 {
        let facts = top.make(b"f", Fresh::File, 0o600).and_then(|held| held.facts()).expect("made");
        assert!(seen.insert((facts.inode, facts.generation)), "an id came twice");
        top.rename(b"f", &top, b"g", Onto::Nothing).expect("free");
        assert!(top.inside(b"g").and_then(|held| held.facts()).expect("there").is_same_inode(&facts));
        top.remove(b"g", false).expect("there");
    }
}

#[test]
fn a_listing_goes_on_where_it_was() {
    let home = tempfile::tempdir().expect("a directory");
    for n in 0..3000 {
        std::fs::write(home.path().join(format!("file-{n}")), "").expect("written");
    }
    let top = at(home.path()).itself().expect("it is held");
    let all = names(&top, 0);
    assert_eq!(all.len(), 3000);
    for place in [0, 1, 1499, 2998, 2999] {
        assert_eq!(names(&top, all[place].1), all[place + 1..], "after {place}");
    }
}

#[test]
fn attributes_are_of_the_inode_that_was_found() {
    let home = tempfile::tempdir().expect("a directory");
    let top = at(home.path()).itself().expect("it is held");
    let held = top.make(b"f", Fresh::File, 0o600).expect("made");
    top.rename(b"f", &top, b"g", Onto::Nothing).expect("free");
    top.make(b"f", Fresh::File, 0o600).expect("made");
    held.set_mode(0o640).expect("mine");
    held.set_times(None, Some(Time::from_unix(-7, 5))).expect("mine");
    held.set_tag(b"user.a", Some(b"1")).expect("it can");
    let facts = top.inside(b"g").and_then(|held| held.facts()).expect("there");
    assert_eq!((facts.mode, facts.mtime), (0o640, Time::from_unix(-7, 5)));
    let other = top.inside(b"f").expect("there");
    let its = other.facts().expect("facts");
    assert_eq!((its.mode, other.tags(&its).expect("none")), (0o600, vec![]));
    assert_eq!(held.tag(b"user.a").expect("there").as_deref(), Some(&b"1"[..]));
    assert_eq!(held.tags(&facts).expect("one"), [b"user.a".to_vec()]);
    let long: Vec<Vec<u8>> = (0..9).map(|n| format!("user.a{}", "b".repeat(40 + n)).into_bytes()).collect();
    long.iter().for_each(|name| held.set_tag(name, Some(b"2")).expect("it can"));
    assert_eq!(held.tags(&facts).expect("many")[1..], long[..]);
    held.set_tag(b"user.a", None).expect("there");
    assert_eq!(held.set_tag(b"user.a", None).expect_err("gone").kind(), ErrorKind::NoAttribute);
}
