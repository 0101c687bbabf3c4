//! Laws of the change feed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use weft_core::attr::SetAttr;
use weft_core::form::{At, Change, ChangeKind, ChangeSeq, Changes, Expect, Replace};
use weft_core::proof::Caller;
use weft_core::{Deadline, ErrorKind, FileId, Rights, limits};

use super::Subject;
use super::locks::{let_it_begin, soon};
use super::site::*;

/// Returns what is told at and below a place after a position, and the position to go on from.
///
/// What happens is told a while after it was acknowledged, so an empty page proves nothing: a file that
/// is made last marks the end, and all before it is there once that is.
async fn feed(site: &Site<'_>, place: At, since: ChangeSeq) -> Changes {
    static MARKS: AtomicU64 = AtomicU64::new(0);
    let mark = format!("{MARK}{}", MARKS.fetch_add(1, Ordering::Relaxed));
    let mark = site.make(&mark, new_file()).await;
    let mut next = since;
    let end = loop {
        let page = soon(site.fs.watch(&site.call(), &at(""), next)).await.works();
        assert!(page.next >= next, "the position rises");
        next = page.next;
        if let Some(told) = page.changes.iter().find(|change| change.file == mark) {
            break told.seq;
        }
    };
    let mut all = Changes { changes: Vec::new(), next: since };
    while all.next < end {
        let page = soon(site.fs.watch(&site.call(), &place, all.next)).await.works();
        all.next = page.next;
        all.changes.extend(page.changes);
    }
    all.changes.retain(|change| !is_mark(change));
    all
}

/// What the names of marks begin with.
const MARK: &str = ".mark-";

fn is_mark(change: &Change) -> bool {
    change.place.as_ref().is_some_and(|(_, name)| name.as_bytes().starts_with(MARK.as_bytes()))
}

fn kinds(changes: &[Change]) -> Vec<ChangeKind> {
    changes.iter().map(|change| change.kind).collect()
}

/// Every kind of change is told, in order, with its place and who did it.
pub async fn every_change_is_told_in_order(subject: &dyn Subject) {
    let site = Site::of(subject);
    if !site.supports().watch {
        return site.unsupported("watching");
    }
    let start = feed(&site, at(""), ChangeSeq(0)).await.next;
    let dir = site.dir("d").await;
    let file = site.make("d/f", new_file()).await;
    site.write(file, 0, b"bytes").await;
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    site.fs.set(&site.call(), &at("d/f"), &set, &free()).await.works();
    site.fs.rename(&site.call(), &at("d/f"), &at("g"), Replace::Any, &free()).await.works();
    site.fs.remove(&site.call(), &at("g"), Expect::Any, &free()).await.works();
    let told = feed(&site, at(""), start).await.changes;
    use ChangeKind::{Attr, Make, Remove, Rename, Write};
    assert_eq!(kinds(&told), [Make, Make, Write, Attr, Rename, Remove]);
    assert!(told.windows(2).all(|pair| pair[0].seq < pair[1].seq));
    let me = (site.admin.name().id(), site.call().session);
    assert!(told.iter().all(|change| (change.caller, change.session) == me));
    assert_eq!((told[0].file, told[0].place.clone()), (dir, Some((FileId::ROOT, name("d")))));
    assert_eq!((told[4].file, told[4].place.clone()), (file, Some((dir, name("f")))));
    assert_eq!(told[4].to, Some((FileId::ROOT, name("g"))));
    assert_eq!((told[5].file, told[5].place.clone()), (file, Some((FileId::ROOT, name("g")))));
}

/// A watch tells of what is at and below its place only.
pub async fn a_watch_is_of_its_place_only(subject: &dyn Subject) {
    let site = Site::of(subject);
    if !site.supports().watch {
        return site.unsupported("watching");
    }
    site.dir("here").await;
    site.dir("here/below").await;
    site.dir("there").await;
    let start = feed(&site, at(""), ChangeSeq(0)).await.next;
    let wanted = site.file("here/below/f", b"").await;
    site.file("there/f", b"").await;
    let told = feed(&site, at("here"), start).await.changes;
    assert_eq!(told.iter().map(|change| change.file).collect::<Vec<_>>(), [wanted]);
}

/// A reader is told only of what it may know of; the position rises all the same.
pub async fn a_reader_is_told_only_of_what_it_may_know(subject: &dyn Subject) {
    let site = Site::of(subject);
    if !site.supports().watch {
        return site.unsupported("watching");
    }
    let alice = site.user("alice");
    site.dir("hers").await;
    site.allow("hers", &alice, Rights::READING).await;
    site.dir("secret").await;
    site.seal("secret").await;
    let start = feed(&site, at(""), ChangeSeq(0)).await.next;
    site.file("secret/f", b"").await;
    let hers = site.file("hers/f", b"").await;
    let told = told_to(&site, &alice, at(""), start).await;
    assert_eq!(told.iter().map(|change| change.file).collect::<Vec<_>>(), [hers]);
    let start = told[0].seq;
    site.file("secret/g", b"").await;
    assert_eq!(told_to(&site, &alice, at(""), start).await, []);
}

/// Who has not asked for so long that changes were dropped since is told so, and never a list
/// with a hole; from the present position on it goes on.
pub async fn a_position_that_is_no_longer_kept_is_stale(subject: &dyn Subject) {
    let site = Site::of(subject);
    if !site.supports().watch {
        return site.unsupported("watching");
    }
    let id = site.file("f", b"").await;
    let start = feed(&site, at(""), ChangeSeq(0)).await.next;
    for n in 0..=limits::CHANGES_KEPT {
        let set = SetAttr { mode: Some(0o600 + n as u16 % 8), ..SetAttr::default() };
        site.fs.set(&site.call(), &At::id(id), &set, &free()).await.works();
    }
    let refused = loop {
        // Changes are told once they are durable: they are dropped as they come in.
        let mut call = site.call();
        call.until = Deadline::within(&**site.subject.domain().clock(), Duration::from_secs(5));
        match site.fs.watch(&call, &at(""), start).await {
            Err(error) if error.kind() != ErrorKind::Deadline => break error.kind(),
            Err(_) => {}
            Ok(page) => {
                assert!(page.changes.first().is_none_or(|first| first.seq.0 == start.0 + 1), "a hole");
            }
        }
        site.subject.pass(Duration::from_millis(50)).await;
    };
    assert_eq!(refused, ErrorKind::Stale);
    let present = ChangeSeq(start.0 + limits::CHANGES_KEPT as u64);
    let told = feed(&site, at(""), present).await.changes;
    assert_eq!(
        told.iter().map(|change| (change.file, change.seq.0)).collect::<Vec<_>>(),
        [(id, present.0 + 1)]
    );
}

/// Returns what a caller is told of a place after a position, once all there is to tell can be.
async fn told_to(site: &Site<'_>, caller: &Caller, place: At, since: ChangeSeq) -> Vec<Change> {
    feed(site, at(""), since).await;
    let page = site.fs.watch(&site.call_of(caller, 2), &place, since).await.works();
    assert!(page.next > since, "it goes on after what it may not be told");
    page.changes.into_iter().filter(|change| !is_mark(change)).collect()
}

/// Who may only look exact names up is told neither names nor ids; of a file that it has looked
/// up and watches it is told, without the name.
pub async fn what_may_not_be_listed_is_not_named(subject: &dyn Subject) {
    let site = Site::of(subject);
    if !site.supports().watch {
        return site.unsupported("watching");
    }
    let alice = site.user("alice");
    site.dir("drop").await;
    site.allow("drop", &alice, Rights::TRAVERSE | Rights::READ | Rights::ATTR_READ).await;
    let start = feed(&site, at(""), ChangeSeq(0)).await.next;
    let file = site.file("drop/unguessable", b"bytes").await;
    site.dir("drop/secret").await;
    site.fs.rename(&site.call(), &at("drop/unguessable"), &at("drop/s"), Replace::Any, &free()).await.works();
    site.fs.remove(&site.call(), &at("drop/secret"), Expect::Any, &free()).await.works();
    for place in ["", "drop"] {
        assert_eq!(told_to(&site, &alice, at(place), start).await, [], "{place:?}");
    }
    let told = told_to(&site, &alice, at("drop/s"), start).await;
    assert_eq!(told.iter().map(|change| change.file).collect::<Vec<_>>(), [file; 3]);
    assert!(told.iter().all(|change| change.place.is_none() && change.to.is_none()), "{told:?}");
    assert_eq!(kinds(&told), [ChangeKind::Attr, ChangeKind::Write, ChangeKind::Attr]);
}

/// Who may list names and nothing else is told of names that come and go, not of what happens
/// to what they lead to.
pub async fn of_what_is_only_listed_the_names_are_told(subject: &dyn Subject) {
    let site = Site::of(subject);
    if !site.supports().watch {
        return site.unsupported("watching");
    }
    let alice = site.user("alice");
    let dir = site.dir("d").await;
    site.allow("d", &alice, Rights::LIST).await;
    site.file("d/closed", b"").await;
    site.seal("d/closed").await;
    let start = feed(&site, at(""), ChangeSeq(0)).await.next;
    let closed = site.find("d/closed").await.works();
    site.write(closed, 0, b"bytes").await;
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    site.fs.set(&site.call(), &at("d/closed"), &set, &free()).await.works();
    site.fs.rename(&site.call(), &at("d/closed"), &at("d/shut"), Replace::Any, &free()).await.works();
    let told = told_to(&site, &alice, At::id(dir), start).await;
    assert_eq!(kinds(&told), [ChangeKind::Rename]);
    site.fs.remove(&site.call(), &at("d/shut"), Expect::Any, &free()).await.works();
    let told = told_to(&site, &alice, At::id(dir), start).await;
    assert_eq!(kinds(&told), [ChangeKind::Rename, ChangeKind::Remove], "also when it is gone");
    assert_eq!(told[1].place, Some((dir, name("shut"))));
}

/// Of a rename, each reader is told the side that it may list, and nothing of the other.
pub async fn a_rename_shows_only_the_sides_that_may_be_listed(subject: &dyn Subject) {
    let site = Site::of(subject);
    if !site.supports().watch {
        return site.unsupported("watching");
    }
    let (alice, bob) = (site.user("alice"), site.user("bob"));
    let (hers, his) = (site.dir("hers").await, site.dir("his").await);
    for (path, user) in [("hers", &alice), ("his", &bob)] {
        site.seal(path).await;
        site.allow(path, user, Rights::READING).await;
    }
    let file = site.file("hers/f", b"").await;
    let start = feed(&site, at(""), ChangeSeq(0)).await.next;
    site.fs.rename(&site.call(), &at("hers/f"), &at("his/g"), Replace::Any, &free()).await.works();
    for (user, dir, place, to) in
        [(&alice, hers, Some((hers, name("f"))), None), (&bob, his, None, Some((his, name("g"))))]
    {
        for top in [FileId::ROOT, dir] {
            let told = told_to(&site, user, At::id(top), start).await;
            assert_eq!(told.len(), 1, "{told:?}");
            let change = &told[0];
            assert_eq!((change.kind, change.file), (ChangeKind::Rename, file));
            assert_eq!((&change.place, &change.to), (&place, &to));
        }
    }
}

/// A credential that is limited to paths is told of what lies there, and of nothing else.
pub async fn a_limited_credential_is_told_of_its_paths_only(subject: &dyn Subject) {
    let site = Site::of(subject);
    if !site.supports().watch {
        return site.unsupported("watching");
    }
    for dir in ["in", "in/deep", "out"] {
        site.dir(dir).await;
    }
    let mut claims = subject.domain().claims(super::ADMINISTRATOR);
    claims.limits.paths = vec![at("in/deep").path];
    let limited = subject.domain().caller_with(&claims);
    let start = feed(&site, at(""), ChangeSeq(0)).await.next;
    for path in ["in/f", "out/f", "f"] {
        site.file(path, b"bytes").await;
    }
    let inner = site.file("in/deep/f", b"").await;
    let any = Replace::Any;
    site.fs.rename(&site.call(), &at("in/deep/f"), &at("out/g"), any, &free()).await.works();
    site.fs.remove(&site.call(), &at("in/f"), Expect::Any, &free()).await.works();
    for place in ["", "in", "in/deep"] {
        let told = told_to(&site, &limited, at(place), start).await;
        assert_eq!(kinds(&told), [ChangeKind::Make, ChangeKind::Rename], "{place:?}: {told:?}");
        assert!(told.iter().all(|change| change.file == inner && change.to.is_none()), "{told:?}");
    }
}

/// What happens to a file with several names, names that it gains and loses included, is told to
/// those who watch any of them; but no name of a directory that may not be listed.
pub async fn a_file_of_several_names_is_told_of_at_each_of_them(subject: &dyn Subject) {
    let site = Site::of(subject);
    if !site.supports().watch || !site.supports().links {
        return site.unsupported("watching or links");
    }
    site.dir("a").await;
    let b = site.dir("b").await;
    let file = site.file("a/f", b"").await;
    site.fs.link(&site.call(), &at("a/f"), &at("b/g")).await.works();
    let mut claims = subject.domain().claims(super::ADMINISTRATOR);
    claims.limits.paths = vec![at("b").path];
    let limited = subject.domain().caller_with(&claims);
    let start = feed(&site, at(""), ChangeSeq(0)).await.next;
    site.write(file, 0, b"bytes").await;
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    site.fs.set(&site.call(), &at("b/g"), &set, &free()).await.works();
    site.fs.link(&site.call(), &at("a/f"), &at("a/h")).await.works();
    site.fs.remove(&site.call(), &at("a/h"), Expect::Any, &free()).await.works();
    site.fs.rename(&site.call(), &at("a/f"), &at("a/i"), Replace::Any, &free()).await.works();
    site.file("a/other", b"other").await;
    site.fs.rename(&site.call(), &at("a/other"), &at("a/i"), Replace::Any, &free()).await.works();
    site.fs.link(&site.call(), &at("b/g"), &at("a/j")).await.works();
    site.fs.rename(&site.call(), &at("a/i"), &at("a/j"), Replace::Exchange, &free()).await.works();
    use ChangeKind::{Attr, Link, Remove, Rename, Write};
    for (reader, expected) in [
        (&site.admin, [Write, Attr, Link, Remove, Rename, Attr, Link, Attr]),
        (&limited, [Write, Attr, Attr, Attr, Attr, Attr, Attr, Attr]),
    ] {
        let told = told_to(&site, reader, at("b"), start).await;
        assert_eq!(kinds(&told), expected, "{told:?}");
        assert!(told.iter().all(|change| change.file == file), "{told:?}");
    }
    for change in told_to(&site, &limited, at(""), start).await {
        let mut named = change.place.iter().chain(&change.to);
        assert!(named.all(|(dir, _)| *dir == b), "{change:?}");
    }
}

/// A watch with nothing to tell waits until something changes.
pub async fn a_watch_waits_until_something_changes(subject: &dyn Subject) {
    let site = Site::of(subject);
    if !site.supports().watch {
        return site.unsupported("watching");
    }
    let start = feed(&site, at(""), ChangeSeq(0)).await.next;
    let (fs, call) = (site.fs.clone(), site.call());
    let watching = tokio::spawn(async move { fs.watch(&call, &at(""), start).await });
    let_it_begin().await;
    assert!(!watching.is_finished(), "there is nothing to tell");
    let dir = site.dir("d").await;
    let page = soon(watching).await.expect("it ran").works();
    assert_eq!(page.changes.iter().map(|change| change.file).collect::<Vec<_>>(), [dir]);
}

/// A watch with nothing to tell ends at its deadline with an empty page.
pub async fn a_watch_ends_at_its_deadline_with_an_empty_page(subject: &dyn Subject) {
    let site = Site::of(subject);
    if !site.supports().watch {
        return site.unsupported("watching");
    }
    let start = feed(&site, at(""), ChangeSeq(0)).await.next;
    // On a busy machine a short time may be over before the call begins, which is `Deadline`.
    for millis in [40, 400, 4_000] {
        let mut call = site.call();
        call.until = Deadline::within(&**subject.domain().clock(), Duration::from_millis(millis));
        let fs = site.fs.clone();
        let watching = tokio::spawn(async move { fs.watch(&call, &at(""), start).await });
        let_it_begin().await;
        subject.pass(Duration::from_millis(millis + 20)).await;
        match soon(watching).await.expect("it ran") {
            Err(error) if error.kind() == ErrorKind::Deadline && millis < 4_000 => {}
            page => {
                let page = page.works();
                assert!(page.changes.is_empty() && page.next == start);
                return;
            }
        }
    }
}

/// A change that failed, or was replayed, is not told.
pub async fn what_did_not_happen_is_not_told(subject: &dyn Subject) {
    let site = Site::of(subject);
    if !site.supports().watch {
        return site.unsupported("watching");
    }
    let none = SetAttr::default();
    site.fs.make(&site.once(3), &at("f"), new_file(), &none).await.works();
    let start = feed(&site, at(""), ChangeSeq(0)).await.next;
    site.fs.make(&site.once(3), &at("f"), new_file(), &none).await.works();
    site.fs.make(&site.call(), &at("f"), new_file(), &none).await.fails();
    site.fs.remove(&site.call(), &at("none"), Expect::Any, &free()).await.fails();
    assert_eq!(kinds(&feed(&site, at(""), start).await.changes), []);
}
