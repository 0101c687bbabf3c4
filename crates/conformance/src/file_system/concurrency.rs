//! Laws of many callers at once.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use weft_core::attr::SetAttr;
use weft_core::form::{At, BytesSource, Expect, FileSystem, Replace, StageHint, WriteAt};
use weft_core::{ErrorKind, FileId, Rights};

use super::Subject;
use super::site::*;

const CALLERS: usize = 64;

async fn at_once<T, F>(site: &Site<'_>, act: impl Fn(usize, Arc<dyn FileSystem>) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let tasks: Vec<_> = (0..CALLERS).map(|n| tokio::spawn(act(n, site.fs.clone()))).collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.expect("no caller panics"));
    }
    answers
}

/// 64 creators in one directory all succeed, each with a cookie of its own.
pub async fn creators_in_one_directory_all_succeed(subject: &dyn Subject) {
    let site = Site::of(subject);
    let dir = site.dir("d").await;
    let calls: Vec<_> = (0..CALLERS).map(|n| site.call_of(&site.admin, n as u128 + 1)).collect();
    let made = at_once(&site, |n, fs| {
        let call = calls[n].clone();
        async move {
            let mut cookies = Vec::new();
            for i in 0..20 {
                let place = At::name(dir, name(&format!("{n}-{i}")));
                let made = fs.make(&call, &place, new_file(), &SetAttr::default()).await.works();
                cookies.push(made.value.cookie);
            }
            assert!(cookies.is_sorted(), "cookies rise for each caller");
            cookies
        }
    })
    .await;
    let cookies: BTreeSet<u64> = made.into_iter().flatten().collect();
    assert_eq!(cookies.len(), CALLERS * 20, "no cookie is given twice");
    let attr = site.attr(dir).await;
    assert_eq!(attr.size, CALLERS as u64 * 20);
    let listed: BTreeSet<u64> = site.scan(dir, 100).await.iter().map(|entry| entry.cookie).collect();
    assert_eq!(listed, cookies);
}

/// Of many who make one name, one makes it and the rest are told `Exists`.
pub async fn of_many_who_make_one_name_one_makes_it(subject: &dyn Subject) {
    let site = Site::of(subject);
    let calls: Vec<_> = (0..CALLERS).map(|n| site.call_of(&site.admin, n as u128 + 1)).collect();
    let made = at_once(&site, |n, fs| {
        let call = calls[n].clone();
        async move { fs.make(&call, &at("f"), new_file(), &SetAttr::default()).await.map_err(|e| e.kind()) }
    })
    .await;
    assert_eq!(made.iter().filter(|answer| answer.is_ok()).count(), 1);
    assert!(made.into_iter().filter_map(Result::err).all(|kind| kind == ErrorKind::Exists));
    assert_eq!(site.names(FileId::ROOT).await, [name("f")]);
}

/// Appends by many land whole, one after the other, where they say they did.
pub async fn appends_land_whole(subject: &dyn Subject) {
    let site = Site::of(subject);
    let id = site.file("log", b"").await;
    let calls: Vec<_> = (0..CALLERS).map(|n| site.call_of(&site.admin, n as u128 + 1)).collect();
    let places = at_once(&site, |n, fs| {
        let call = calls[n].clone();
        async move {
            let file = fs.file(&call, id, Rights::APPEND).await.works();
            let mut places = Vec::new();
            for round in 0..4_u8 {
                let record = [n as u8, round].repeat(500 + n * 37);
                let written = write_to(&*file, &call, WriteAt::End, &record).await.works();
                places.push((written.at, record));
            }
            places
        }
    })
    .await;
    let mut all: Vec<(u64, Vec<u8>)> = places.into_iter().flatten().collect();
    all.sort_by_key(|(at, _)| *at);
    let bytes = site.read(id).await;
    let mut end = 0;
    for (at, record) in all {
        assert_eq!(at, end, "appends neither overlap nor leave gaps");
        end += record.len() as u64;
        assert!(bytes[at as usize..end as usize] == record, "an append was torn");
    }
    assert_eq!(bytes.len() as u64, end);
}

/// Of many who rename one file away, one does; the file ends up under one name.
pub async fn of_many_who_rename_one_file_one_does(subject: &dyn Subject) {
    let site = Site::of(subject);
    let id = site.file("f", b"").await;
    let calls: Vec<_> = (0..CALLERS).map(|n| site.call_of(&site.admin, n as u128 + 1)).collect();
    let moved = at_once(&site, |n, fs| {
        let call = calls[n].clone();
        async move {
            let to = at(&format!("to-{n}"));
            fs.rename(&call, &at("f"), &to, Replace::Never, &free()).await.map_err(|e| e.kind())
        }
    })
    .await;
    assert_eq!(moved.iter().filter(|answer| answer.is_ok()).count(), 1);
    assert!(moved.into_iter().filter_map(Result::err).all(|kind| kind == ErrorKind::NotFound));
    let entries = site.scan(FileId::ROOT, 100).await;
    assert_eq!(entries.iter().map(|entry| entry.id).collect::<Vec<_>>(), [id]);
}

/// Two directories renamed into each other at once never make a circle.
pub async fn renames_at_once_never_make_a_circle(subject: &dyn Subject) {
    let site = Site::of(subject);
    for round in 0..30 {
        let (a, b) = (format!("a{round}"), format!("b{round}"));
        site.dir(&a).await;
        site.dir(&b).await;
        let (one, two) = (site.call_of(&site.admin, 1), site.call_of(&site.admin, 2));
        let (fs, x, y) = (site.fs.clone(), at(&a), at(&format!("{b}/x")));
        let first = tokio::spawn(async move { fs.rename(&one, &x, &y, Replace::Any, &free()).await });
        let (fs, x, y) = (site.fs.clone(), at(&b), at(&format!("{a}/x")));
        let second = tokio::spawn(async move { fs.rename(&two, &x, &y, Replace::Any, &free()).await });
        let answers = [first.await.expect("it ran"), second.await.expect("it ran")];
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1, "one, and not both");
    }
}

/// Readers meet a published file old or new, never mixed, while publishers replace it.
pub async fn readers_never_meet_a_mixture_while_publishers_replace(subject: &dyn Subject) {
    let site = Site::of(subject);
    site.file("f", &[0; 40_000]).await;
    let calls: Vec<_> = (0..CALLERS).map(|n| site.call_of(&site.admin, n as u128 + 1)).collect();
    at_once(&site, |n, fs| {
        let call = calls[n].clone();
        async move {
            if n % 8 == 0 {
                for round in 0..5 {
                    let stage = fs.stage(&call, &at("f"), &StageHint::default()).await.works();
                    let bytes = Bytes::from(vec![(n + round) as u8; 30_000 + n * 1_000]);
                    stage.put(&call, 1, 0, &mut BytesSource::new(bytes)).await.works();
                    stage.publish(&call, &[], &SetAttr::default(), &free()).await.works();
                }
                return;
            }
            for _ in 0..5 {
                let opened = fs.open(&call, &at("f"), &pinned()).await.works();
                match read_of(&*opened.file, &call, weft_core::form::Range::ALL).await {
                    Ok(bytes) => assert!(bytes.windows(2).all(|pair| pair[0] == pair[1]), "a mixture"),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict),
                }
            }
        }
    })
    .await;
}

/// Names that come and go under many hands leave the directory's counts true.
pub async fn counts_stay_true_under_many_hands(subject: &dyn Subject) {
    let site = Site::of(subject);
    let dir = site.dir("d").await;
    let calls: Vec<_> = (0..CALLERS).map(|n| site.call_of(&site.admin, n as u128 + 1)).collect();
    at_once(&site, |n, fs| {
        let call = calls[n].clone();
        async move {
            for round in 0..10 {
                let place = At::name(dir, name(&format!("{}", (n + round) % 16)));
                let new = if n % 2 == 0 { new_file() } else { weft_core::form::New::Directory };
                match n % 3 {
                    0 => fs.remove(&call, &place, Expect::Any, &free()).await.map(|_| ()),
                    1 => fs.make(&call, &place, new, &SetAttr::default()).await.map(|_| ()),
                    _ => {
                        let to = At::name(dir, name(&format!("{}", (n * 7 + round) % 16)));
                        fs.rename(&call, &place, &to, Replace::Any, &free()).await.map(|_| ())
                    }
                }
                .unwrap_or(());
            }
        }
    })
    .await;
    let (entries, attr) = (site.scan(dir, 5).await, site.attr(dir).await);
    let directories = entries.iter().filter(|e| e.kind == weft_core::attr::Kind::Directory).count();
    assert_eq!(attr.size, entries.len() as u64);
    assert_eq!(attr.links as usize, 2 + directories);
}
