//! Laws of what survives a restart. Those who keep nothing try none of them.

use bytes::Bytes;
use weft_core::attr::{SetAttr, TagEdit, TagMust, TagName};
use weft_core::form::{At, BytesSource, Cursor, Expect, StageHint, Want};
use weft_core::{ErrorKind, FileId, Rights};

use super::Subject;
use super::site::*;

/// Restarts, or says that there is nothing to try.
async fn restarted<'a>(site: Site<'a>) -> Option<Site<'a>> {
    let subject = site.subject;
    drop(site);
    if subject.restart().await {
        return Some(Site::of(subject));
    }
    Site::of(subject).unsupported("restarting");
    None
}

/// Names, ids, bytes, attributes, tags, policy and cookies are what they were.
pub async fn everything_is_what_it_was_after_a_restart(subject: &dyn Subject) {
    let site = Site::of(subject);
    let alice = site.user("alice");
    let dir = site.dir("d").await;
    let bytes = pattern(300_000, 9);
    let file = site.file("d/big", &bytes).await;
    site.file("d/small", b"few").await;
    site.symlink("d/link", "small").await;
    if site.supports().tags {
        let edit = TagEdit::Put {
            name: TagName::new("t").works(),
            value: Bytes::from_static(b"v"),
            must: TagMust::Any,
        };
        site.fs.tag(&site.call(), &at("d/big"), &[edit], &free()).await.works();
    }
    site.allow("d", &alice, Rights::READING).await;
    let opened = site.fs.file(&site.call(), file, Rights::WRITE).await.works();
    opened.sync(&site.call(), weft_core::form::Range::ALL).await.works();
    drop(opened);
    let (attr, entries) = (site.attr(file).await, site.scan(dir, 2).await);
    let policy = site.fs.policy(&site.call(), &at("d")).await.works();
    let Some(site) = restarted(site).await else { return };
    let now = site.attr(file).await;
    let same =
        |a: &weft_core::attr::Attr| (a.id, a.mode, a.links, a.owner, a.size, a.mtime, a.change, a.container);
    assert_eq!(same(&now), same(&attr));
    assert!(site.read(file).await == bytes);
    assert_eq!(site.scan(dir, 3).await, entries, "cookies are kept too");
    let rest = site.scan_from(dir, Cursor::Cookie(entries[0].cookie), 1).await;
    assert_eq!(rest, entries[1..], "a scan goes on after a restart");
    assert_eq!(site.fs.policy(&site.call(), &at("d")).await.works().acl, policy.acl);
    site.find_as(&site.call_of(&site.user("alice"), 2), "d/small").await.works();
    if site.supports().tags {
        assert_eq!(site.fs.tags(&site.call(), &at("d/big"), None).await.works().tags.len(), 1);
    }
}

/// Ids and cookies go on rising after a restart; gone ids stay gone.
pub async fn ids_and_cookies_go_on_after_a_restart(subject: &dyn Subject) {
    let site = Site::of(subject);
    let gone = site.file("gone", b"").await;
    let cookie = site.scan(FileId::ROOT, 1).await[0].cookie;
    site.fs.remove(&site.call(), &at("gone"), Expect::Any, &free()).await.works();
    let Some(site) = restarted(site).await else { return };
    let made = site.fs.make(&site.call(), &at("new"), new_file(), &SetAttr::default()).await.works();
    assert!(made.value.cookie > cookie && made.value.id != gone);
    let walked = site.fs.walk(&site.call(), &At::id(gone), Want::default()).await;
    assert_eq!(walked.fails(), ErrorKind::Stale);
}

/// A `once` that was answered before a restart is answered the same after it.
pub async fn replays_survive_a_restart(subject: &dyn Subject) {
    let site = Site::of(subject);
    let none = SetAttr::default();
    let call = site.once(5).durable();
    let made = site.fs.make(&call, &at("f"), new_file(), &none).await.works();
    site.fs.remove(&site.call(), &at("f"), Expect::Any, &free()).await.works();
    let Some(site) = restarted(site).await else { return };
    let again = site.fs.make(&site.once(5), &at("f"), new_file(), &none).await.works();
    assert_eq!(again.value, made.value);
    assert_eq!(site.find("f").await.fails(), ErrorKind::NotFound);
}

/// A stage is taken up again after a restart, at the byte it reached.
pub async fn a_stage_is_taken_up_after_a_restart(subject: &dyn Subject) {
    let site = Site::of(subject);
    let stage = site.fs.stage(&site.call(), &at("f"), &StageHint::default()).await.works();
    let mut source = BytesSource::new(pattern(200_000, 1));
    stage.put(&site.call().durable(), 1, 0, &mut source).await.works();
    let id = stage.id();
    drop(stage);
    let Some(site) = restarted(site).await else { return };
    let stage = site.fs.staged(&site.call(), id).await.works();
    let held = stage.parts(&site.call(), 0).await.works().parts.first().map_or(0, |part| part.bytes);
    assert!(held <= 200_000);
    let rest = pattern(200_000, 1).split_off(held as usize);
    stage.put(&site.call(), 1, held, &mut BytesSource::new(rest)).await.works();
    let done = stage.publish(&site.call(), &[], &SetAttr::default(), &free()).await.works();
    assert!(site.read(done.value.id).await == pattern(200_000, 1));
}

/// The verifier changes with a restart, and a version written after it is a new one.
pub async fn verifiers_and_versions_change_with_a_restart(subject: &dyn Subject) {
    let site = Site::of(subject);
    let id = site.file("f", b"one").await;
    let verifier = site.write(id, 0, b"two").await.verifier;
    let version = site.attr(id).await.version;
    let Some(site) = restarted(site).await else { return };
    let written = site.write(id, 0, b"six").await;
    assert_ne!(written.verifier, verifier);
    assert_ne!(site.attr(id).await.version, version);
}
