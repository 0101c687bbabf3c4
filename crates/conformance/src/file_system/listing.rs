//! Laws of listings: cookies, pages and orders.

use std::collections::BTreeSet;

use weft_core::attr::SetAttr;
use weft_core::form::{At, Cursor, Expect, PageMax, Replace, Want};
use weft_core::{ErrorKind, FileId, Name};

use super::Subject;
use super::site::*;

/// Cookies rise with every name entered and never come again.
pub async fn cookies_rise_and_are_never_used_again(subject: &dyn Subject) {
    let site = Site::of(subject);
    let dir = site.dir("d").await;
    let mut last = 0;
    for round in 0..30 {
        let place = At::name(dir, name(&format!("n{}", round % 3)));
        let made = site.fs.make(&site.call(), &place, new_file(), &SetAttr::default()).await.works();
        assert!(made.value.cookie > last, "cookies rise");
        last = made.value.cookie;
        site.fs.remove(&site.call(), &place, Expect::Any, &free()).await.works();
    }
    site.file("d/a", b"").await;
    site.fs.rename(&site.call(), &at("d/a"), &at("d/b"), Replace::Any, &free()).await.works();
    let entries = site.scan(dir, 10).await;
    assert!(entries.iter().all(|entry| entry.cookie > last), "a name that a rename enters is a new one");
}

/// Names that are there throughout a scan come exactly once, whatever else comes and goes.
pub async fn names_present_throughout_a_scan_come_exactly_once(subject: &dyn Subject) {
    let site = Site::of(subject);
    let dir = site.dir("d").await;
    let stays: BTreeSet<Name> = (0..60).map(|n| name(&format!("stays-{n}"))).collect();
    for n in 0..60 {
        site.file(&format!("d/stays-{n}"), b"").await;
        site.file(&format!("d/goes-{n}"), b"").await;
    }
    for page in [1, 2, 7, 64] {
        let mut seen: Vec<Name> = Vec::new();
        let mut from = Cursor::Start;
        let mut step = 0;
        loop {
            let max = PageMax::new(page);
            let got = site.fs.list(&site.call(), &At::id(dir), from, max, Want::default()).await.works();
            seen.extend(got.entries.into_iter().map(|entry| entry.name));
            let Some(next) = got.next else { break };
            from = next;
            // Names ahead of the scan and behind it go, come and are renamed; one that
            // stays is replaced by something else under its name.
            let (churn, other) = (format!("d/goes-{}", step % 60), format!("d/comes-{page}-{step}"));
            if site.find(&churn).await.is_ok() {
                site.fs.remove(&site.call(), &at(&churn), Expect::Any, &free()).await.works();
            }
            site.file(&other, b"").await;
            let onto = format!("d/stays-{}", (step * 7) % 60);
            site.fs.rename(&site.call(), &at(&other), &at(&onto), Replace::Any, &free()).await.works();
            step += 1;
            assert!(step < 1_000, "a scan that names keep moving ahead of never ends");
        }
        for wanted in &stays {
            let times = seen.iter().filter(|name| *name == wanted).count();
            assert_eq!(times, 1, "{wanted} with pages of {page}");
        }
    }
}

/// A cookie still says where to go on when its own entry is gone.
pub async fn a_cookie_outlives_its_entry(subject: &dyn Subject) {
    let site = Site::of(subject);
    let dir = site.dir("d").await;
    for n in 0..5 {
        site.file(&format!("d/{n}"), b"").await;
    }
    let entries = site.scan(dir, 10).await;
    let third = entries[2].clone();
    site.fs.remove(&site.call(), &At::name(dir, third.name), Expect::Any, &free()).await.works();
    let rest = site.scan_from(dir, Cursor::Cookie(third.cookie), 10).await;
    let expected: Vec<_> = entries[3..].iter().map(|e| e.name.clone()).collect();
    assert_eq!(rest.into_iter().map(|e| e.name).collect::<Vec<_>>(), expected);
    let end = site.scan_from(dir, Cursor::Cookie(u64::MAX), 10).await;
    assert!(end.is_empty());
}

/// Name order is byte order, from any name on, whether it is there or not.
pub async fn name_order_is_byte_order(subject: &dyn Subject) {
    let site = Site::of(subject);
    let dir = site.dir("d").await;
    let mut all: Vec<Vec<u8>> = vec![
        b"b".to_vec(),
        b"a".to_vec(),
        b"aa".to_vec(),
        b"A".to_vec(),
        vec![0xff],
        vec![1],
        b"a.b".to_vec(),
        b"a b".to_vec(),
        "\u{e9}".as_bytes().to_vec(),
    ];
    for bytes in &all {
        let place = At::name(dir, Name::new(bytes.clone()).works());
        site.fs.make(&site.call(), &place, new_file(), &SetAttr::default()).await.works();
    }
    all.sort();
    for page in [1, 3, 100] {
        let listed = site.scan_from(dir, Cursor::ByName, page).await;
        assert_eq!(listed.iter().map(|e| e.name.as_bytes().to_vec()).collect::<Vec<_>>(), all);
    }
    let after = site.scan_from(dir, Cursor::After(name("a-not-there")), 2).await;
    let expected: Vec<_> = all.iter().filter(|bytes| bytes[..] > b"a-not-there"[..]).cloned().collect();
    assert_eq!(after.iter().map(|e| e.name.as_bytes().to_vec()).collect::<Vec<_>>(), expected);
}

/// A page shows attributes when wanted, the directory itself, and its parent.
pub async fn a_page_shows_the_directory_and_its_parent(subject: &dyn Subject) {
    let site = Site::of(subject);
    let (outer, inner) = (site.dir("o").await, site.dir("o/i").await);
    let file = site.file("o/i/f", b"12345").await;
    let list = |at: At, want: Want| {
        let site = &site;
        async move { site.fs.list(&site.call(), &at, Cursor::Start, PageMax::MAX, want).await }
    };
    let page = list(at("o/i"), Want { attr: true, rights: false }).await.works();
    assert_eq!((page.dir.id, page.parent), (inner, outer));
    assert_eq!(page.entries[0].attr.map(|attr| (attr.id, attr.size)), Some((file, 5)));
    let page = list(At::id(FileId::ROOT), Want::default()).await.works();
    assert_eq!((page.dir.id, page.parent), (FileId::ROOT, FileId::ROOT), "the root is its own parent");
    assert_eq!(list(at("o/i/f"), Want::default()).await.fails(), ErrorKind::NotDirectory);
    assert_eq!(list(at("none"), Want::default()).await.fails(), ErrorKind::NotFound);
}

/// A page holds at most 4 096 entries however many are asked for.
pub async fn a_page_has_a_largest_size(subject: &dyn Subject) {
    let site = Site::of(subject);
    let dir = site.dir("d").await;
    for n in 0..4100 {
        let place = At::name(dir, name(&n.to_string()));
        site.fs.make(&site.call(), &place, new_file(), &SetAttr::default()).await.works();
    }
    let max = PageMax::new(u32::MAX);
    let page = site.fs.list(&site.call(), &At::id(dir), Cursor::Start, max, Want::default()).await.works();
    assert_eq!(page.entries.len(), 4096);
    assert!(page.next.is_some());
    assert_eq!(site.scan(dir, u32::MAX).await.len(), 4100);
}
