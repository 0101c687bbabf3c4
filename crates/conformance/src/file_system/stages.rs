//! Laws of stages: nothing is seen before it is published, and then all of it is.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use weft_core::acl::{AclEntry, Who};
use weft_core::attr::{SetAttr, TagEdit, TagMust, TagName};
use weft_core::form::{
    At, BytesSource, Call, Expect, Guard, Part, Piece, Source, Stage, StageHint, Stopped, VersionIs,
};
use weft_core::proof::{Attenuation, Caller, CredentialClaims};
use weft_core::{ErrorKind, FileId, Result, Rights, limits};

use super::Subject;
use super::rights::refused;
use super::site::*;

async fn put(site: &Site<'_>, stage: &dyn Stage, number: u32, offset: u64, bytes: &[u8]) -> Result<Part> {
    stage.put(&site.call(), number, offset, &mut BytesSource::new(Bytes::copy_from_slice(bytes))).await
}

async fn begin(site: &Site<'_>, path: &str) -> std::sync::Arc<dyn Stage> {
    site.fs.stage(&site.call(), &at(path), &StageHint::default()).await.works()
}

/// Parts become the file in number order, whatever order they came in.
pub async fn parts_become_the_file_in_number_order(subject: &dyn Subject) {
    let site = Site::of(subject);
    let stage = begin(&site, "f").await;
    let big = pattern(3 << 20, 1);
    put(&site, &*stage, 9, 0, b"end").await.works();
    put(&site, &*stage, 2, 0, &big).await.works();
    let part = put(&site, &*stage, 1, 0, b"start").await.works();
    assert_eq!((part.number, part.bytes), (1, 5));
    assert_eq!(site.find("f").await.fails(), ErrorKind::NotFound, "nothing is seen before");
    let parts = stage.parts(&site.call(), 0).await.works();
    assert_eq!(parts.parts.iter().map(|p| p.number).collect::<Vec<_>>(), [1, 2, 9]);
    let published = stage.publish(&site.call(), &parts.parts, &SetAttr::default(), &free()).await.works();
    let read = site.read(published.value.id).await;
    assert!(read[..] == [&b"start"[..], &big, b"end"].concat());
    assert_eq!(site.find("f").await.works(), published.value.id);
}

/// A part is sent again, or gone on with at its end; nowhere else.
pub async fn a_part_is_replaced_or_gone_on_with(subject: &dyn Subject) {
    let site = Site::of(subject);
    let stage = begin(&site, "f").await;
    put(&site, &*stage, 1, 0, b"wrong").await.works();
    put(&site, &*stage, 1, 0, b"right").await.works();
    let resumed = put(&site, &*stage, 1, 5, b" and more").await.works();
    assert_eq!(resumed.bytes, 14);
    let whole = begin(&site, "g").await;
    let same = put(&site, &*whole, 1, 0, b"right and more").await.works();
    assert_eq!(resumed.digest, same.digest, "a digest is of the bytes, not of how they came");
    assert_eq!(put(&site, &*stage, 1, 3, b"x").await.fails(), ErrorKind::Invalid);
    assert_eq!(put(&site, &*stage, 1, 99, b"x").await.fails(), ErrorKind::Invalid);
    assert_eq!(put(&site, &*stage, 0, 0, b"x").await.fails(), ErrorKind::Invalid);
    assert_eq!(put(&site, &*stage, 10_001, 0, b"x").await.fails(), ErrorKind::Invalid);
    stage.publish(&site.call(), &[], &SetAttr::default(), &free()).await.works();
    assert_eq!(site.read(site.find("f").await.works()).await, &b"right and more"[..]);
}

/// A stage is found again by its id, by its maker only, and listed under its directory.
pub async fn a_stage_is_found_again_by_its_maker_only(subject: &dyn Subject) {
    let site = Site::of(subject);
    site.dir("d").await;
    let id = begin(&site, "d/f").await.id();
    let stage = site.fs.staged(&site.call_of(&site.admin, 77), id).await.works();
    put(&site, &*stage, 1, 0, b"from another session").await.works();
    let other = site.user("alice");
    site.allow("d", &other, Rights::WRITING).await;
    let theirs = site.fs.staged(&site.call_of(&other, 2), id).await.map(|s| s.id());
    assert_eq!(theirs.fails(), ErrorKind::NotFound);
    let page = site.fs.stages(&site.call(), &at("d"), None).await.works();
    assert_eq!(page.stages.len(), 1);
    assert_eq!((page.stages[0].id, page.stages[0].bytes), (id, 20));
    assert_eq!(page.stages[0].name, name("f"));
    let theirs = site.fs.stages(&site.call_of(&other, 2), &at("d"), None).await.works();
    assert!(theirs.stages.is_empty());
    let hijack = stage.publish(&site.call_of(&other, 2), &[], &SetAttr::default(), &free()).await;
    assert_eq!(hijack.fails(), ErrorKind::NotFound);
}

/// A discarded or published stage is gone; what it held is not seen.
pub async fn a_discarded_stage_is_gone(subject: &dyn Subject) {
    let site = Site::of(subject);
    let stage = begin(&site, "f").await;
    put(&site, &*stage, 1, 0, b"never seen").await.works();
    stage.discard(&site.call()).await.works();
    assert_eq!(put(&site, &*stage, 1, 0, b"x").await.fails(), ErrorKind::NotFound);
    let published = stage.publish(&site.call(), &[], &SetAttr::default(), &free()).await;
    assert_eq!(published.fails(), ErrorKind::NotFound);
    assert!(site.names(FileId::ROOT).await.is_empty());
    let stage = begin(&site, "g").await;
    stage.publish(&site.call(), &[], &SetAttr::default(), &free()).await.works();
    let again = site.fs.staged(&site.call(), stage.id()).await.map(|s| s.id());
    assert_eq!(again.fails(), ErrorKind::NotFound);
    assert_eq!(site.read(site.find("g").await.works()).await.len(), 0);
}

/// Publishing onto a file keeps what it is and swaps its bytes.
pub async fn publishing_onto_a_file_keeps_what_it_is(subject: &dyn Subject) {
    let site = Site::of(subject);
    if !site.supports().publish_keeps_id {
        return site.unsupported("publishing in place");
    }
    let alice = site.user("alice");
    let id = site.file("f", b"old bytes").await;
    let set = SetAttr { mode: Some(0o640), ..SetAttr::default() };
    site.fs.set(&site.call(), &at("f"), &set, &free()).await.works();
    if site.supports().tags {
        let edit = TagEdit::Put {
            name: TagName::new("t").works(),
            value: Bytes::from_static(b"v"),
            must: TagMust::Any,
        };
        site.fs.tag(&site.call(), &at("f"), &[edit], &free()).await.works();
    }
    let links = site.supports().links;
    if links {
        site.fs.link(&site.call(), &at("f"), &at("other")).await.works();
    }
    site.edit("", weft_core::form::Scope::Container, |all| {
        all.push(AclEntry::allow(who(&alice), Rights::WRITING));
    })
    .await;
    let before = site.attr(id).await;
    let call = site.call_of(&alice, 2);
    let stage =
        site.fs.stage(&call, &at("f"), &StageHint { length: Some(3), ..StageHint::default() }).await.works();
    stage.put(&call, 1, 0, &mut BytesSource::new(&b"new"[..])).await.works();
    let published = stage.publish(&call, &[], &SetAttr::default(), &free()).await.works();
    let after = site.attr(id).await;
    assert_eq!(published.value.id, id);
    let kept = |a: &weft_core::attr::Attr| (a.owner, a.group, a.mode, a.container, a.links, a.btime);
    assert_eq!(kept(&after), kept(&before));
    assert!(after.version != before.version && after.change > before.change);
    assert_eq!(published.file.before.map(|b| b.size), Some(9));
    assert_eq!(after.size, 3);
    if links {
        assert_eq!(site.read(site.find("other").await.works()).await, &b"new"[..]);
    }
    if site.supports().tags {
        assert_eq!(site.fs.tags(&site.call(), &at("f"), None).await.works().tags.len(), 1);
    }
}

/// A version that a publish made is not met again by publishing or writing.
pub async fn versions_of_published_files_never_meet(subject: &dyn Subject) {
    let site = Site::of(subject);
    let mut seen = Vec::new();
    for n in 0..6 {
        let stage = begin(&site, "f").await;
        put(&site, &*stage, 1, 0, &[n]).await.works();
        let published = stage.publish(&site.call(), &[], &SetAttr::default(), &free()).await.works();
        let id = published.value.id;
        for _ in 0..3 {
            let version = site.attr(id).await.version;
            assert!(!seen.contains(&(id, version)), "a version came again");
            seen.push((id, version));
            site.write(id, 0, &[n]).await;
        }
    }
}

/// `publish` refuses parts that are not those staged, and guards that do not hold,
/// and leaves the stage to try again.
pub async fn a_refused_publish_leaves_the_stage(subject: &dyn Subject) {
    let site = Site::of(subject);
    let stage = begin(&site, "f").await;
    let part = put(&site, &*stage, 1, 0, b"bytes").await.works();
    let none = SetAttr::default();
    for wrong in [Part { bytes: 6, ..part }, Part { number: 2, ..part }, Part { digest: [0; 32], ..part }] {
        let answer = stage.publish(&site.call(), &[wrong], &none, &free()).await;
        assert_eq!(answer.fails(), ErrorKind::Invalid);
    }
    let guard = |is| Guard { version: Some(is), ctime: None };
    let present = stage.publish(&site.call(), &[part], &none, &guard(VersionIs::Present)).await;
    assert_eq!(present.fails(), ErrorKind::Precondition);
    stage.publish(&site.call(), &[part], &none, &guard(VersionIs::Absent)).await.works();
    let stage = begin(&site, "f").await;
    let absent = stage.publish(&site.call(), &[], &none, &guard(VersionIs::Absent)).await;
    assert_eq!(absent.fails(), ErrorKind::Precondition, "If-None-Match: * of a PUT");
    site.dir("d").await;
    let onto = site.fs.stage(&site.call(), &at("d"), &StageHint::default()).await.map(|s| s.id());
    assert_eq!(onto.fails(), ErrorKind::IsDirectory);
}

/// Publishing sets the attributes that were asked for.
pub async fn publishing_sets_what_was_asked_for(subject: &dyn Subject) {
    let site = Site::of(subject);
    let stage = begin(&site, "f").await;
    put(&site, &*stage, 1, 0, b"bytes").await.works();
    let set = SetAttr { mode: Some(0o604), ..SetAttr::default() };
    let published = stage.publish(&site.call(), &[], &set, &free()).await.works();
    let attr = site.attr(published.value.id).await;
    assert_eq!((attr.mode, attr.owner, attr.size), (0o604, site.admin.name().id(), 5));
    assert!(published.parents[0].is_some_and(|wcc| wcc.after.is_some_and(|dir| dir.size == 1)));
}

/// Two stages for one name do not see each other; the last published stands.
pub async fn two_stages_for_one_name_do_not_mix(subject: &dyn Subject) {
    let site = Site::of(subject);
    let (one, two) = (begin(&site, "f").await, begin(&site, "f").await);
    assert_ne!(one.id(), two.id());
    put(&site, &*one, 1, 0, b"first").await.works();
    put(&site, &*two, 1, 0, b"second").await.works();
    one.publish(&site.call(), &[], &SetAttr::default(), &free()).await.works();
    two.publish(&site.call(), &[], &SetAttr::default(), &free()).await.works();
    assert_eq!(site.read(site.find("f").await.works()).await, &b"second"[..]);
}

/// A stage whose directory is gone cannot be published.
pub async fn a_stage_whose_directory_is_gone_is_not_published(subject: &dyn Subject) {
    let site = Site::of(subject);
    site.dir("d").await;
    let stage = begin(&site, "d/f").await;
    put(&site, &*stage, 1, 0, b"bytes").await.works();
    site.fs.remove(&site.call(), &at("d"), Expect::Directory, &free()).await.works();
    let answer = stage.publish(&site.call(), &[], &SetAttr::default(), &free()).await.fails();
    assert!(matches!(answer, ErrorKind::Stale | ErrorKind::NotFound));
}

/// A stage follows its directory when that is renamed.
pub async fn a_stage_follows_its_directory(subject: &dyn Subject) {
    let site = Site::of(subject);
    let dir = site.dir("d").await;
    let stage = begin(&site, "d/f").await;
    put(&site, &*stage, 1, 0, b"bytes").await.works();
    let any = weft_core::form::Replace::Any;
    site.fs.rename(&site.call(), &at("d"), &at("e"), any, &free()).await.works();
    stage.publish(&site.call(), &[], &SetAttr::default(), &free()).await.works();
    assert_eq!(site.names(dir).await, [name("f")]);
    site.fs.walk(&site.call(), &At::id(dir), Default::default()).await.works();
}

/// Begins a stage for `d/f` as a user who may write there.
async fn staged_by_alice(site: &Site<'_>) -> (Caller, Call, std::sync::Arc<dyn Stage>) {
    let alice = site.user("alice");
    site.dir("d").await;
    site.allow("d", &alice, Rights::WRITING).await;
    let call = site.call_of(&alice, 2);
    let stage = site.fs.stage(&call, &at("d/f"), &StageHint::default()).await.works();
    (alice, call, stage)
}

/// Rights that were taken away stop a stage that was begun with them.
pub async fn a_stage_needs_its_rights_to_the_end(subject: &dyn Subject) {
    let site = Site::of(subject);
    let (alice, call, stage) = staged_by_alice(&site).await;
    stage.put(&call, 1, 0, &mut BytesSource::new(&b"x"[..])).await.works();
    site.forbid("d", &alice).await;
    stage.publish(&call, &[], &SetAttr::default(), &free()).await.fails();
    assert_eq!(site.find("d/f").await.fails(), ErrorKind::NotFound);
}

/// Three pieces; the right to send them is taken away before the second.
struct Forbidden<'a> {
    site: &'a Site<'a>,
    who: &'a Caller,
    given: u32,
}

#[async_trait]
impl Source for Forbidden<'_> {
    async fn next(&mut self, _: usize) -> Result<Option<Piece>> {
        self.given += 1;
        match self.given {
            2 => drop(self.site.forbid("d", self.who).await),
            1 | 3 => {}
            _ => return Ok(None),
        }
        Ok(Some(Piece::Bytes(pattern(64 << 10, 1).into())))
    }

    fn length(&self) -> Option<u64> {
        None
    }

    fn stopped(&self) -> Stopped {
        Box::pin(std::future::pending())
    }
}

/// A put whose right is taken away in its middle ends as the next begins: the credential is as good as before.
pub async fn a_put_whose_right_ends_in_its_middle_is_refused_as_the_next_is(subject: &dyn Subject) {
    let site = Site::of(subject);
    let (alice, call, stage) = staged_by_alice(&site).await;
    let ended = stage.put(&call, 1, 0, &mut Forbidden { site: &site, who: &alice, given: 0 }).await.fails();
    let next = stage.put(&call, 1, 0, &mut BytesSource::new(&b"x"[..])).await.fails();
    assert_eq!(ended, next);
    assert_ne!(ended, ErrorKind::Revoked);
}

/// An abandoned stage is kept for days and not for ever. (Only where time is moved by hand.)
pub async fn an_abandoned_stage_is_swept(subject: &dyn Subject) {
    let site = Site::of(subject);
    let id = begin(&site, "f").await.id();
    let day = Duration::from_secs(24 * 3600);
    let before = subject.domain().clock().now();
    subject.pass(Duration::from_millis(1)).await;
    site.fs.staged(&site.call(), id).await.map(|s| s.id()).works();
    if !subject.time_is_moved() {
        return site.unsupported("moving time by days");
    }
    subject.pass(8 * day).await;
    assert!(subject.domain().clock().now().since(before) >= 8 * day);
    let later = Site::of(subject);
    assert_eq!(later.fs.staged(&later.call(), id).await.map(|s| s.id()).fails(), ErrorKind::NotFound);
}

/// A stage that nobody in particular began is found by whoever holds its id, and shown to
/// nobody: all those who proved nothing are not one caller.
pub async fn an_anonymous_stage_is_its_holders_alone(subject: &dyn Subject) {
    let site = Site::of(subject);
    site.dir("drop").await;
    let entry = AclEntry::allow(Who::Anyone, Rights::TRAVERSE | Rights::INSERT);
    site.grant("drop", vec![entry]).await;
    let (one, other) = (site.call_of(&Caller::anyone(), 2), site.call_of(&Caller::anyone(), 3));
    let stage = site.fs.stage(&one, &at("drop/f"), &StageHint::default()).await.works();
    stage.put(&one, 1, 0, &mut BytesSource::new(&b"bytes"[..])).await.works();
    for call in [&other, &one] {
        assert_eq!(site.fs.stages(call, &at("drop"), None).await.works().stages, []);
    }
    let held = site.fs.staged(&one, stage.id()).await.works();
    held.publish(&one, &[], &SetAttr::default(), &free()).await.works();
    assert_eq!(site.read(site.find("drop/f").await.works()).await, &b"bytes"[..]);
}

/// What a caller's other credential began is out of the reach of one that does not carry the
/// right to publish it; a right that the ACL took away does not keep one from cleaning up.
pub async fn a_stage_is_not_for_a_credential_that_carries_less(subject: &dyn Subject) {
    let site = Site::of(subject);
    let alice = site.user("alice");
    site.dir("d").await;
    site.dir("e").await;
    site.allow("d", &alice, Rights::WRITING).await;
    let narrowed = |limits: Attenuation| {
        let claims = CredentialClaims { limits, ..subject.domain().claims("alice") };
        site.call_of(&subject.domain().caller_with(&claims), 3)
    };
    let reader = narrowed(Attenuation { rights: Rights::READING, ..Attenuation::default() });
    let elsewhere = narrowed(Attenuation { paths: vec![at("e").path], ..Attenuation::default() });
    let hers = site.call_of(&alice, 2);
    let stage = site.fs.stage(&hers, &at("d/f"), &StageHint::default()).await.works();
    stage.put(&hers, 1, 0, &mut BytesSource::new(&b"bytes"[..])).await.works();
    for call in [&reader, &elsewhere] {
        refused(stage.parts(call, 0).await, "parts");
        refused(stage.discard(call).await, "discard");
        if let Ok(page) = site.fs.stages(call, &at("d"), None).await {
            assert_eq!(page.stages, []);
        }
    }
    assert_eq!(site.fs.stages(&hers, &at("d"), None).await.works().stages.len(), 1);
    assert_eq!(stage.parts(&hers, 0).await.works().parts.len(), 1);
    site.forbid("d", &alice).await;
    refused(stage.parts(&hers, 0).await, "parts");
    stage.discard(&hers).await.works();
    assert_eq!(stage.parts(&hers, 0).await.fails(), ErrorKind::NotFound);
}

/// Stages that a caller may not go on with now hide none of those behind them, however many they are.
pub async fn a_page_of_stages_that_are_not_shown_is_followed_by_others(subject: &dyn Subject) {
    let site = Site::of(subject);
    let alice = site.user("alice");
    site.dir("d").await;
    site.allow("d", &alice, Rights::WRITING | Rights::READING).await;
    let hers = site.call_of(&alice, 2);
    let mut begun = Vec::new();
    for number in 0..=limits::PAGE_ENTRIES_MAX {
        let path = format!("d/{number}");
        let stage = site.fs.stage(&hers, &at(&path), &StageHint::default()).await.works();
        begun.push((stage.id(), path));
    }
    let (last, path) = begun.into_iter().max().expect("there are some");
    site.file(&path, b"what is there is written, not inserted").await;
    let limits = Attenuation { rights: Rights::READING | Rights::WRITE, ..Attenuation::default() };
    let claims = CredentialClaims { limits, ..subject.domain().claims("alice") };
    let writer = site.call_of(&subject.domain().caller_with(&claims), 3);
    let (mut shown, mut from) = (Vec::new(), None);
    loop {
        let page = site.fs.stages(&writer, &at("d"), from).await.works();
        shown.extend(page.stages.into_iter().map(|entry| entry.id));
        from = page.next;
        if from.is_none() {
            break;
        }
    }
    assert_eq!(shown, [last]);
}

async fn begin_brief(site: &Site<'_>, path: &str, length: Option<u64>) -> std::sync::Arc<dyn Stage> {
    let hint = StageHint { brief: true, length };
    site.fs.stage(&site.call(), &at(path), &hint).await.works()
}

/// What is put into a brief stage becomes the file, whatever its size and however it comes; then
/// there is no such stage.
pub async fn a_brief_stage_becomes_the_file_however_its_bytes_come(subject: &dyn Subject) {
    let site = Site::of(subject);
    let inline = limits::INLINE_BYTES_MAX as usize;
    let sizes = [0, 1, inline, inline + 1, 200_000, limits::BRIEF_BYTES_MAX as usize, 3 << 20];
    let whole = sizes.map(|size| vec![(1, 0, pattern(size, 1))]).into_iter();
    let small = |byte: u8| vec![byte; 100];
    let in_pieces = [
        vec![],
        vec![(1, 0, small(9)), (1, 0, small(1))],
        vec![(1, 0, small(1)), (1, 100, small(2))],
        vec![(2, 0, small(1)), (1, 0, small(2))],
        vec![(1, 0, small(1)), (2, 0, pattern(2 << 20, 3))],
        vec![(1, 0, pattern(30_000, 4)), (1, 30_000, pattern(30_000, 5))],
        vec![(1, 0, pattern(30_000, 6)), (1, 0, pattern(20_000, 7))],
        vec![(2, 0, pattern(30_000, 8)), (1, 0, small(3))],
    ];
    let all: Vec<Vec<(u32, usize, Vec<u8>)>> = whole.chain(in_pieces).collect();
    let said = all.iter().map(|puts| Some(puts.iter().map(|(_, _, bytes)| bytes.len() as u64).sum()));
    let hints = said.chain(all.iter().map(|_| None)).chain(all.iter().map(|_| Some(9_000)));
    for (n, (puts, length)) in all.iter().cycle().zip(hints).enumerate() {
        let path = format!("f{n}");
        let stage = begin_brief(&site, &path, length).await;
        let mut parts = std::collections::BTreeMap::<u32, Vec<u8>>::new();
        for (number, offset, bytes) in puts {
            let put = put(&site, &*stage, *number, *offset as u64, bytes).await.works();
            let part = parts.entry(*number).or_default();
            part.truncate(*offset);
            part.extend_from_slice(bytes);
            assert_eq!((put.number, put.bytes), (*number, part.len() as u64));
        }
        assert_eq!(site.find(&path).await.fails(), ErrorKind::NotFound, "nothing is seen before");
        let published = stage.publish(&site.call(), &[], &SetAttr::default(), &free()).await.works();
        let expected: Vec<u8> = parts.into_values().flatten().collect();
        assert!(site.read(published.value.id).await[..] == expected[..], "{path}");
        assert_eq!(put(&site, &*stage, 1, 0, b"x").await.fails(), ErrorKind::NotFound);
        let again = stage.publish(&site.call(), &[], &SetAttr::default(), &free()).await;
        assert_eq!(again.fails(), ErrorKind::NotFound);
        assert_eq!(stage.discard(&site.call()).await.fails(), ErrorKind::NotFound);
    }
}

/// A brief stage is refused what any other is, and can be tried again.
pub async fn a_brief_stage_is_refused_what_any_other_is(subject: &dyn Subject) {
    let site = Site::of(subject);
    for (dir, bytes, length) in [
        ("waits", b"bytes".to_vec(), None),
        ("unmeasured", pattern(30_000, 1), None),
        ("measured", pattern(30_000, 1), Some(30_000)),
    ] {
        site.dir(dir).await;
        let (path, other) = (format!("{dir}/f"), format!("{dir}/g"));
        let (none, call) = (SetAttr::default(), site.call());
        let stage = begin_brief(&site, &path, length).await;
        assert_eq!(put(&site, &*stage, 0, 0, b"x").await.fails(), ErrorKind::Invalid);
        assert_eq!(put(&site, &*stage, 1, 7, b"x").await.fails(), ErrorKind::Invalid);
        let part = put(&site, &*stage, 1, 0, &bytes).await.works();
        let wrong = stage.publish(&call, &[Part { bytes: 6, ..part }], &none, &free()).await;
        assert_eq!(wrong.fails(), ErrorKind::Invalid);
        let guard = |is| Guard { version: Some(is), ctime: None };
        let present = stage.publish(&call, &[part], &none, &guard(VersionIs::Present)).await;
        assert_eq!(present.fails(), ErrorKind::Precondition);
        let alice = site.user("alice");
        site.allow(dir, &alice, Rights::WRITING).await;
        let theirs = site.call_of(&alice, 2);
        let hijack = stage.publish(&theirs, &[part], &none, &free()).await;
        assert_eq!(hijack.fails(), ErrorKind::NotFound);
        assert_eq!(stage.discard(&theirs).await.fails(), ErrorKind::NotFound);
        assert_eq!(site.find(&path).await.fails(), ErrorKind::NotFound);
        stage.publish(&call, &[part], &none, &guard(VersionIs::Absent)).await.works();
        assert!(site.read(site.find(&path).await.works()).await[..] == bytes[..]);
        let dropped = begin_brief(&site, &other, length).await;
        put(&site, &*dropped, 1, 0, &bytes).await.works();
        dropped.discard(&call).await.works();
        let published = dropped.publish(&call, &[], &none, &free()).await;
        assert_eq!(published.fails(), ErrorKind::NotFound);
        assert_eq!(site.find(&other).await.fails(), ErrorKind::NotFound);
    }
}

/// Who begins a brief stage needs its rights, and needs them to the end.
pub async fn a_brief_stage_needs_its_rights_to_the_end(subject: &dyn Subject) {
    let site = Site::of(subject);
    let alice = site.user("alice");
    site.dir("d").await;
    for size in [1, 30_000] {
        let (call, hint) = (site.call_of(&alice, 2), StageHint { brief: true, length: Some(size as u64) });
        let refused = site.fs.stage(&call, &at("d/f"), &hint).await.map(|stage| stage.id());
        assert!(matches!(refused.fails(), ErrorKind::Denied | ErrorKind::NotFound));
        site.allow("d", &alice, Rights::WRITING).await;
        let (early, late) = (
            site.fs.stage(&call, &at("d/f"), &hint).await.works(),
            site.fs.stage(&call, &at("d/f"), &hint).await.works(),
        );
        late.put(&call, 1, 0, &mut BytesSource::new(pattern(size, 1))).await.works();
        site.forbid("d", &alice).await;
        early.put(&call, 1, 0, &mut BytesSource::new(pattern(size, 1))).await.fails();
        late.publish(&call, &[], &SetAttr::default(), &free()).await.fails();
        assert_eq!(site.find("d/f").await.fails(), ErrorKind::NotFound);
    }
}
