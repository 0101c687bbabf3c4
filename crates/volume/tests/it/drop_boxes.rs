//! Drop-boxes: what those who may insert and no more can and cannot do, by every method, and that the
//! limits hold over time, restarts and many at once. The raw volume is attacked, not a door.

use std::time::Duration;

use weft_conformance::file_system::Subject;
use weft_conformance::file_system::site::{Outcome, Site, at, free, how, name, new_file, pattern, who};
use weft_core::acl::AclEntry;
use weft_core::attr::{SetAttr, TagEdit, TagMust, TagName};
use weft_core::drop_box::DropLimits;
use weft_core::form::{
    At, BytesSource, Call, ChangeSeq, Cursor, Expect, FileSystem, Guard, New, PageMax, Range, Replace,
    StageHint, SyncScope, VersionIs, Want,
};
use weft_core::proof::Caller;
use weft_core::{ErrorKind, FileId, Result, Rights, limits};
use weft_volume::managed::Managed;

use super::site::Volume;
use super::slow::{rest, slow};

const LIMITS: DropLimits =
    DropLimits { bytes: 1 << 20, files: 4, rate_bytes: 2 << 20, rate_per: Duration::from_secs(3600) };

/// A box at `/box` with `known` in it, and a stranger's call.
async fn boxed(volume: &Volume, limits: &DropLimits) -> (Managed, Call, FileId) {
    let site = Site::of(volume);
    site.dir("box").await;
    let known = site.file("box/known", b"the owner's").await;
    let managed = volume.running().managed;
    managed.make_drop_box(&site.call(), &at("box"), limits).await.works();
    (managed, site.call_of(&Caller::anyone(), 9), known)
}

async fn put(fs: &dyn FileSystem, call: &Call, at: &At, bytes: &[u8], hint: StageHint) -> Result<()> {
    let stage = fs.stage(call, at, &hint).await?;
    let put = stage.put(call, 1, 0, &mut BytesSource::new(bytes.to_vec())).await;
    let published = match put {
        Ok(_) => stage.publish(call, &[], &SetAttr::default(), &free()).await,
        Err(error) => Err(error),
    };
    if published.is_err() {
        let _ = stage.discard(call).await;
    }
    let answer = published?;
    // The same, whatever is there and whatever it became.
    assert!(answer.file.before.is_none() && answer.file.after.is_none(), "{answer:?}");
    assert!(answer.value.attr.is_none() && answer.parents == [None, None], "{answer:?}");
    Ok(())
}

async fn dropped(fs: &dyn FileSystem, call: &Call, path: &str, bytes: &[u8]) -> Result<()> {
    put(fs, call, &at(path), bytes, StageHint { brief: true, ..StageHint::default() }).await
}

async fn names(volume: &Volume) -> Vec<String> {
    let site = Site::of(volume);
    let dir = site.find("box").await.works();
    site.names(dir).await.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn a_drop_meets_no_name_and_tells_none_by_either_way_of_staging() {
    let volume = Volume::fresh(1).await;
    let (managed, stranger, known) = boxed(&volume, &LIMITS).await;
    for brief in [true, false] {
        let hint = StageHint { brief, ..StageHint::default() };
        put(&managed, &stranger, &at("box/known"), b"a stranger's", hint).await.works();
    }
    let dir = Site::of(&volume).find("box").await.works();
    put(&managed, &stranger, &At::name(dir, name("by-id.txt")), &pattern(9000, 1), StageHint::default())
        .await
        .works();
    let there = names(&volume).await;
    assert_eq!(there.len(), 4, "{there:?}");
    assert_eq!(Site::of(&volume).read(known).await, &b"the owner's"[..]);
    let site = Site::of(&volume);
    let owner = site.attr(dir).await.owner;
    for entry in there {
        let id = site.find(&format!("box/{entry}")).await.works();
        assert_eq!(site.attr(id).await.owner, owner, "{entry}: what is dropped is not the stranger's");
    }
}

#[tokio::test]
async fn whoever_may_only_insert_does_nothing_but_drop() {
    let volume = Volume::fresh(2).await;
    let (managed, stranger, known) = boxed(&volume, &LIMITS).await;
    let site = Site::of(&volume);
    dropped(&managed, &stranger, "box/f", b"mine").await.works();
    let stored = names(&volume).await.into_iter().find(|name| name.starts_with("f-")).expect("it is there");
    let own = site.find(&format!("box/{stored}")).await.works();
    let dir = site.find("box").await.works();
    let (fs, c, none) = (&managed, &stranger, SetAttr::default());
    let tag = TagEdit::Put { name: TagName::new("x").works(), value: "y".into(), must: TagMust::Any };
    let mut tried: Vec<(String, Result<()>)> = Vec::new();
    for target in [At::id(known), At::id(own), at("box/known"), at(&format!("box/{stored}"))] {
        let t = &target;
        let shown = |what: &str| format!("{what} {t}");
        for need in [Rights::READ, Rights::WRITE, Rights::APPEND, Rights::EXECUTE] {
            tried.push((shown(&format!("open for {need}")), fs.open(c, t, &how(need)).await.map(drop)));
        }
        tried.push((shown("walk"), fs.walk(c, t, Want { attr: true, rights: true }).await.map(drop)));
        tried.push((shown("remove"), fs.remove(c, t, Expect::Any, &free()).await.map(drop)));
        tried.push((
            shown("set"),
            fs.set(c, t, &SetAttr { mode: Some(0o777), ..none.clone() }, &free()).await.map(drop),
        ));
        tried.push((shown("tag"), fs.tag(c, t, std::slice::from_ref(&tag), &free()).await.map(drop)));
        tried.push((shown("tags"), fs.tags(c, t, None).await.map(drop)));
        tried.push((shown("policy"), fs.policy(c, t).await.map(drop)));
        tried.push((shown("rename"), fs.rename(c, t, &at("box/g"), Replace::Any, &free()).await.map(drop)));
        tried.push((shown("link"), fs.link(c, t, &at("box/g")).await.map(drop)));
        tried.push((shown("copy"), fs.copy(c, t, Range::ALL, t, 0).await.map(drop)));
        tried.push((shown("sync"), fs.sync(c, t, SyncScope::File).await.map(drop)));
    }
    for target in [at("box/new"), At::name(dir, name("new")), At::name(dir, name("known"))] {
        for new in [new_file(), New::Directory, New::Fifo, New::Symlink("x".into())] {
            tried.push((format!("make {new:?} {target}"), fs.make(c, &target, new, &none).await.map(drop)));
        }
    }
    tried.push((
        "list".into(),
        fs.list(c, &At::id(dir), Cursor::Start, PageMax::MAX, Want::default()).await.map(drop),
    ));
    let watched = fs.watch(c, &At::id(dir), ChangeSeq(0)).await.works();
    let of_box = watched.changes.iter().all(|change| change.file == dir && change.place.is_none());
    assert!(of_box, "{watched:?}");
    for (what, answer) in tried {
        let kind = answer.map_err(|error| error.kind());
        let refused = matches!(
            kind,
            Err(ErrorKind::Denied
                | ErrorKind::NotFound
                | ErrorKind::Invalid
                | ErrorKind::Stale
                | ErrorKind::NotPermitted)
        );
        assert!(refused, "{what}: {kind:?}");
    }
    assert_eq!(names(&volume).await.len(), 2);
    assert!(fs.stages(c, &At::id(dir), None).await.works().stages.is_empty());
}

#[tokio::test]
async fn a_guard_tells_the_same_of_a_name_that_is_there_and_of_one_that_is_not() {
    let volume = Volume::fresh(3).await;
    let (managed, stranger, _) = boxed(&volume, &LIMITS).await;
    for version in [VersionIs::Absent, VersionIs::Present] {
        let mut answers = Vec::new();
        for path in ["box/known", "box/none"] {
            let stage = managed.stage(&stranger, &at(path), &StageHint::default()).await.works();
            stage.put(&stranger, 1, 0, &mut BytesSource::new(&b"x"[..])).await.works();
            let guard = Guard { version: Some(version), ctime: None };
            let published = stage.publish(&stranger, &[], &SetAttr::default(), &guard).await;
            answers.push(published.map(drop).map_err(|error| error.kind()));
            let _ = stage.discard(&stranger).await;
        }
        assert_eq!(answers[0], answers[1], "{version:?}");
    }
}

#[tokio::test]
async fn a_box_takes_no_more_than_its_limits_and_what_is_removed_makes_room() {
    let volume = Volume::fresh(4).await;
    let (managed, stranger, known) = boxed(&volume, &LIMITS).await;
    let kind = |answer: Result<()>| answer.map_err(|error| error.kind());
    let large = pattern(1 << 20, 1);
    assert_eq!(
        kind(dropped(&managed, &stranger, "box/a", &large).await),
        Err(ErrorKind::NoSpace),
        "with the owner's"
    );
    dropped(&managed, &stranger, "box/a", &large[..1000 << 10]).await.works();
    volume.reopen().await;
    let managed = volume.running().managed;
    assert_eq!(
        kind(dropped(&managed, &stranger, "box/b", &large[..100 << 10]).await),
        Err(ErrorKind::NoSpace)
    );
    for _ in 0..2 {
        dropped(&managed, &stranger, "box/b", b"x").await.works();
    }
    assert_eq!(kind(dropped(&managed, &stranger, "box/b", b"").await), Err(ErrorKind::NoSpace), "four files");
    let site = Site::of(&volume);
    site.fs
        .remove(&site.call(), &At::id(site.find("box").await.works()).clone(), Expect::Any, &free())
        .await
        .map(drop)
        .fails();
    site.fs.remove(&site.call(), &at("box/known"), Expect::Any, &free()).await.works();
    let _ = known;
    dropped(&managed, &stranger, "box/b", b"").await.works();
}

#[tokio::test]
async fn the_rate_holds_over_removals_and_restarts_and_runs_off_with_time() {
    let volume = Volume::fresh(5).await;
    let limits = DropLimits { files: 100, bytes: 8 << 20, rate_bytes: 1 << 20, ..LIMITS };
    let (managed, stranger, _) = boxed(&volume, &limits).await;
    let kind = |answer: Result<()>| answer.map_err(|error| error.kind());
    let half = pattern(512 << 10, 1);
    for _ in 0..2 {
        dropped(&managed, &stranger, "box/a", &half).await.works();
    }
    let site = Site::of(&volume);
    for entry in names(&volume).await {
        site.fs.remove(&site.call(), &at(&format!("box/{entry}")), Expect::Any, &free()).await.works();
    }
    assert_eq!(kind(dropped(&managed, &stranger, "box/a", b"x").await), Err(ErrorKind::NoQuota));
    volume.reopen().await;
    let managed = volume.running().managed;
    let stranger = Site::of(&volume).call_of(&Caller::anyone(), 10);
    assert_eq!(kind(dropped(&managed, &stranger, "box/a", b"x").await), Err(ErrorKind::NoQuota));
    volume.pass(Duration::from_secs(1800)).await;
    let stranger = Site::of(&volume).call_of(&Caller::anyone(), 11);
    dropped(&managed, &stranger, "box/a", &half).await.works();
    assert_eq!(kind(dropped(&managed, &stranger, "box/a", &half[..1024]).await), Err(ErrorKind::NoQuota));
}

#[tokio::test]
async fn what_was_sent_counts_for_the_rate_whatever_becomes_of_it() {
    let volume = Volume::fresh(11).await;
    let limits = DropLimits { bytes: 8 << 20, rate_bytes: 1 << 20, ..LIMITS };
    let (managed, stranger, _) = boxed(&volume, &limits).await;
    let kind = |answer: Result<()>| answer.map_err(|error| error.kind());
    let brief = StageHint { brief: true, length: Some(400 << 10) };
    let abandoned = managed.stage(&stranger, &at("box/c"), &brief).await.works();
    abandoned.put(&stranger, 1, 0, &mut BytesSource::new(pattern(400 << 10, 6))).await.works();
    drop(abandoned);
    let stage = managed.stage(&stranger, &at("box/a"), &StageHint::default()).await.works();
    for n in 0..2 {
        // Begun again: what was sent before was sent all the same.
        stage.put(&stranger, 1, 0, &mut BytesSource::new(pattern(300 << 10, n))).await.works();
    }
    let more = stage.put(&stranger, 1, 300 << 10, &mut BytesSource::new(pattern(100 << 10, 2))).await;
    assert_eq!(more.map(drop).fails(), ErrorKind::NoQuota, "as it comes, not at its end");
    stage.discard(&stranger).await.works();
    assert_eq!(
        kind(dropped(&managed, &stranger, "box/b", &pattern(100 << 10, 3)).await),
        Err(ErrorKind::NoQuota)
    );
    assert_eq!(names(&volume).await, ["known"]);
    let site = Site::of(&volume);
    site.file("box/mine", &pattern(100 << 10, 4)).await;
    volume.pass(Duration::from_secs(3600)).await;
    let stranger = site.call_of(&Caller::anyone(), 12);
    dropped(&managed, &stranger, "box/b", &pattern(1 << 20, 5)).await.works();
}

#[tokio::test]
async fn a_box_shows_strangers_the_same_whatever_was_dropped() {
    let volume = Volume::fresh(12).await;
    let (managed, stranger, _) = boxed(&volume, &LIMITS).await;
    let site = Site::of(&volume);
    let dir = site.find("box").await.works();
    let shown = async |call: &Call| {
        let walked = managed.walk(call, &at("box"), Want { attr: true, rights: true }).await.works();
        (walked, managed.space(call, &At::id(dir)).await.works())
    };
    let (before, owners) = (shown(&stranger).await, shown(&site.call()).await);
    let since = managed.watch(&stranger, &At::id(dir), ChangeSeq(u64::MAX)).await.works().next;
    volume.pass(Duration::from_secs(5)).await;
    let (stranger, owner) = (site.call_of(&Caller::anyone(), 13), site.call());
    dropped(&managed, &stranger, "box/a", &pattern(100 << 10, 1)).await.works();
    assert_eq!(shown(&stranger).await, before);
    assert_ne!(shown(&owner).await, owners);
    let told = managed.watch(&stranger, &At::id(dir), since).await.works();
    assert!(told.changes.is_empty(), "{told:?}");
    assert!(!managed.watch(&owner, &At::id(dir), since).await.works().changes.is_empty());
}

#[tokio::test]
async fn a_length_that_is_announced_measures_nothing_of_what_is_left() {
    let volume = Volume::fresh(16).await;
    let limits = DropLimits { bytes: 1 << 50, rate_bytes: 1 << 20, ..LIMITS };
    let (managed, _, _) = boxed(&volume, &limits).await;
    let site = Site::of(&volume);
    let dir = site.find("box").await.works();
    let stranger = site.call_of(&Caller::anyone(), 30);
    let mut told = Vec::new();
    for round in 0..2 {
        let mut answers = Vec::new();
        for length in [1, 300 << 10, 1 << 20, (1 << 20) + 1, 1 << 51] {
            let hint = StageHint { length: Some(length), ..StageHint::default() };
            let stage = managed.stage(&stranger, &at("box/f"), &hint).await;
            answers.push(stage.as_ref().map(drop).map_err(|error| error.kind()));
            if let Ok(stage) = stage {
                stage.discard(&stranger).await.works();
            }
        }
        // The box's limit is larger than the disk: what is free there is not told instead.
        let space = managed.space(&stranger, &At::id(dir)).await.works();
        told.push((answers, space));
        if round == 0 {
            dropped(&managed, &stranger, "box/a", &pattern(900 << 10, 1)).await.works();
        }
    }
    assert_eq!(told[0], told[1]);
    assert_eq!(told[0].0, [Ok(()), Ok(()), Ok(()), Err(ErrorKind::NoQuota), Err(ErrorKind::NoSpace)]);
}

#[tokio::test]
async fn a_refusal_tells_neither_how_much_a_box_takes_nor_whose_it_is() {
    let volume = Volume::fresh(13).await;
    let (managed, stranger, _) = boxed(&volume, &LIMITS).await;
    for brief in [true, false] {
        for length in [None, Some(2 << 20)] {
            let hint = StageHint { brief, length };
            let error = put(&managed, &stranger, &at("box/f"), &pattern(2 << 20, 1), hint).await;
            let error = error.expect_err("it is more than the box takes").to_string();
            assert!(error.contains("the drop-box is full") || error.contains("no more for now"), "{error}");
            assert!(!error.contains("limit") && !error.contains("container"), "{error}");
        }
    }
}

#[tokio::test]
async fn a_drop_that_stands_still_is_given_up_and_a_steady_one_is_not() {
    let volume = Volume::fresh(14).await;
    let (managed, _, _) = boxed(&volume, &LIMITS).await;
    let site = Site::of(&volume);
    for (each, lasts) in [(100_usize << 10, true), (10 << 10, false)] {
        let (sender, mut source) = slow();
        let (managed, call) = (managed.clone(), site.call_of(&Caller::anyone(), 20 + each as u128));
        let put = tokio::spawn(async move {
            let stage = managed.stage(&call, &at("box/f"), &StageHint::default()).await.works();
            let put = stage.put(&call, 1, 0, &mut source).await.map(drop).map_err(|error| error.kind());
            let _ = stage.discard(&call).await;
            put
        });
        for _ in 0..7 {
            let _ = sender.send(vec![7; each]);
            rest().await;
            volume.pass(Duration::from_secs(20)).await;
        }
        drop(sender);
        let ended = put.await.expect("it ends");
        assert_eq!(ended, if lasts { Ok(()) } else { Err(ErrorKind::Deadline) });
    }
}

#[tokio::test]
async fn what_strangers_abandon_keeps_its_room_for_three_days() {
    let volume = Volume::fresh(15).await;
    let (managed, stranger, _) = boxed(&volume, &LIMITS).await;
    let stage = managed.stage(&stranger, &at("box/a"), &StageHint::default()).await.works();
    stage.put(&stranger, 1, 0, &mut BytesSource::new(pattern(1000 << 10, 1))).await.works();
    let used = || managed.drop_boxes(&Site::of(&volume).call()).works()[0].bytes;
    assert!(used() > 1000 << 10);
    volume.pass(limits::DROP_STAGE_LIFE).await;
    let node = volume.domain.call(&volume.domain.caller("node:n1"), 0);
    managed.sweep(&node).await.works();
    assert!(used() < 1000, "{}", used());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drops_at_once_never_exceed_a_limit_together() {
    for (seed, limits, size, fit) in [
        (6, DropLimits { files: 6, ..LIMITS }, 10, 5),
        (7, DropLimits { files: 100, bytes: 100 << 10, ..LIMITS }, 30 << 10, 3),
        (8, DropLimits { files: 100, rate_bytes: 100 << 10, ..LIMITS }, 30 << 10, 3),
    ] {
        let volume = Volume::fresh(seed).await;
        let (managed, _, _) = boxed(&volume, &limits).await;
        let site = Site::of(&volume);
        let drops = (0..16).map(|n| {
            let (managed, call) = (managed.clone(), site.call_of(&Caller::anyone(), 100 + n));
            let bytes = pattern(size, n as u8);
            tokio::spawn(async move { dropped(&managed, &call, "box/f", &bytes).await.is_ok() })
        });
        let drops: Vec<_> = drops.collect();
        let mut taken = 0;
        for one in drops {
            taken += usize::from(one.await.expect("it ends"));
        }
        assert!((1..=fit).contains(&taken), "{limits:?}: {taken}");
        assert_eq!(names(&volume).await.len(), 1 + taken);
    }
}

#[tokio::test]
async fn what_is_given_below_a_box_and_after_it_is_not_the_strangers() {
    let volume = Volume::fresh(9).await;
    let (managed, stranger, _) = boxed(&volume, &LIMITS).await;
    let site = Site::of(&volume);
    let sub = site.dir("box/sub").await;
    for target in [at("box/sub/f"), At::name(sub, name("f"))] {
        let put = put(&managed, &stranger, &target, b"x", StageHint::default()).await;
        assert!(put.is_err(), "only into the box itself: {target}");
    }
    let policy = site.seal("box/sub").await;
    assert!(policy.made);
    let acl = site.fs.policy(&site.call(), &at("box/sub")).await.works().acl;
    assert!(!acl.entries.iter().any(|entry| entry.who == who(&Caller::anyone())), "{acl:?}");
    let mut lifted = weft_core::policy::PolicyEdit { bytes_max: Some(None), ..Default::default() };
    let unbounded =
        site.fs.protect(&site.call(), &at("box"), weft_core::form::Scope::Container, &lifted).await;
    assert_eq!(unbounded.map(drop).fails(), ErrorKind::Invalid);
    lifted.bytes_max = Some(Some(5));
    site.fs.protect(&site.call(), &at("box"), weft_core::form::Scope::Container, &lifted).await.works();
    managed.end_drop_box(&site.call(), &at("box")).await.works();
    assert!(dropped(&managed, &stranger, "box/f", b"x").await.is_err());
    assert!(managed.drop_boxes(&site.call()).works().is_empty());
    let bob = site.call_of(&site.user("bob"), 12);
    site.grant("box", vec![AclEntry::allow(who(&site.user("bob")), Rights::READING)]).await;
    assert_eq!(managed.make_drop_box(&bob, &at("box"), &LIMITS).await.map(drop).fails(), ErrorKind::Denied);
}

#[tokio::test]
async fn a_removed_box_leaves_nothing_and_a_check_finds_nothing() {
    let volume = Volume::fresh(10).await;
    let (managed, stranger, _) = boxed(&volume, &LIMITS).await;
    dropped(&managed, &stranger, "box/f", b"x").await.works();
    let site = Site::of(&volume);
    let node = volume.domain.call(&volume.domain.caller("node:n1"), 0);
    assert!(managed.check(&node).await.works().findings.is_empty());
    site.fs.rename(&site.call(), &at("box"), &at("moved"), Replace::Never, &free()).await.works();
    dropped(&managed, &stranger, "moved/g", b"x").await.works();
    assert_eq!(managed.drop_boxes(&site.call()).works()[0].path.to_string(), "moved");
    let dir = site.find("moved").await.works();
    for entry in site.names(dir).await {
        site.fs.remove(&site.call(), &At::name(dir, entry), Expect::Any, &free()).await.works();
    }
    site.fs.remove(&site.call(), &at("moved"), Expect::Directory, &free()).await.works();
    assert!(managed.drop_boxes(&site.call()).works().is_empty());
    let found = managed.check(&node).await.works().findings;
    assert!(found.is_empty(), "{found:?}");
}
