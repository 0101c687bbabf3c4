//! Laws of attributes: setting, guards, before and after, user attributes, space.

use bytes::Bytes;
use weft_core::attr::{Attr, Before, SetAttr, SetTime, TagEdit, TagMust, TagName, Wcc};
use weft_core::form::{At, Expect, Guard, New, Replace, StageHint, VersionIs, Want};
use weft_core::{ErrorKind, FileId, Rights, Time};

use super::Subject;
use super::site::*;

/// What is set is shown; what is not set stays.
pub async fn what_is_set_is_shown_and_the_rest_stays(subject: &dyn Subject) {
    let site = Site::of(subject);
    let id = site.file("f", b"abc").await;
    let before = site.attr(id).await;
    let (a, m) = (Time::from_unix(1_000_000, 7), Time::from_unix(-3, 5));
    let set = SetAttr {
        mode: Some(0o4751),
        atime: Some(SetTime::At(a)),
        mtime: Some(SetTime::At(m)),
        ..SetAttr::default()
    };
    let changed = site.fs.set(&site.call(), &at("f"), &set, &free()).await.works();
    let after = site.attr(id).await;
    assert_eq!(changed.value, after);
    assert_eq!((after.mode, after.atime, after.mtime), (0o4751, a, m));
    let rest = |attr: &Attr| (attr.owner, attr.group, attr.size, attr.version, attr.btime, attr.container);
    assert_eq!(rest(&before), rest(&after));
    assert!(after.change > before.change);
    let odd = SetAttr { mode: Some(0o10000), ..SetAttr::default() };
    assert_eq!(site.fs.set(&site.call(), &at("f"), &odd, &free()).await.fails(), ErrorKind::Invalid);
}

/// What is made has the attributes that were asked for, and is its maker's.
pub async fn what_is_made_has_what_was_asked_for(subject: &dyn Subject) {
    let site = Site::of(subject);
    for (path, new) in [("f", new_file()), ("d", New::Directory), ("p", New::Fifo)] {
        let set = SetAttr { mode: Some(0o521), ..SetAttr::default() };
        let made = site.fs.make(&site.call(), &at(path), new, &set).await.works();
        let attr = site.attr(made.value.id).await;
        assert_eq!((attr.mode, attr.owner), (0o521, site.admin.name().id()));
        let told = made.value.attr.expect("it is told");
        assert_eq!(Attr { version: attr.version, ..told }, attr, "a version may be of the moment");
        assert_eq!(made.file.before, None, "the change made it");
    }
}

/// Setting owner or group to what they are is nothing; to another is not for everybody.
pub async fn only_who_may_gives_files_away(subject: &dyn Subject) {
    let site = Site::of(subject);
    let user = site.user("alice");
    site.dir("d").await;
    site.allow("d", &user, Rights::WRITING).await;
    let call = site.call_of(&user, 2);
    let made = site.fs.make(&call, &at("d/f"), new_file(), &SetAttr::default()).await.works();
    let attr = site.attr(made.value.id).await;
    assert_eq!(attr.owner, user.name().id(), "what is made is its maker's");
    let same = SetAttr { owner: Some(attr.owner), group: Some(attr.group), ..SetAttr::default() };
    site.fs.set(&call, &at("d/f"), &same, &free()).await.works();
    for set in [
        SetAttr { owner: Some(site.admin.name().id()), ..SetAttr::default() },
        SetAttr { group: Some(site.user("bob").name().id()), ..SetAttr::default() },
    ] {
        let answer = site.fs.set(&call, &at("d/f"), &set, &free()).await;
        assert_eq!(answer.fails(), ErrorKind::NotPermitted);
    }
    site.file("d/admins", b"").await;
    let times = SetAttr { mtime: Some(SetTime::At(Time::EPOCH)), ..SetAttr::default() };
    let answer = site.fs.set(&call, &at("d/admins"), &times, &free()).await;
    assert_eq!(answer.fails(), ErrorKind::NotPermitted, "only the owner sets times at will");
    let now = SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() };
    site.fs.set(&call, &at("d/admins"), &now, &free()).await.works();
}

fn matches(wcc: Option<Wcc>, before: &Attr, after: &Attr) {
    let wcc = wcc.expect("the implementation gives it");
    assert_eq!(wcc.before, Some(Before::from(before)));
    assert_eq!(wcc.after.map(|attr| Before::from(&attr)), Some(Before::from(after)));
}

/// Before and after of each parent are of the change itself: chained changes meet
/// exactly, and a change of the parent shows in its counter and size.
pub async fn before_and_after_are_of_the_change_itself(subject: &dyn Subject) {
    let site = Site::of(subject);
    let (one, two) = (site.dir("one").await, site.dir("two").await);
    let (b1, b2) = (site.attr(one).await, site.attr(two).await);
    let made = site.fs.make(&site.call(), &at("one/f"), new_file(), &SetAttr::default()).await.works();
    let a1 = site.attr(one).await;
    matches(made.parents[0], &b1, &a1);
    assert!(a1.change > b1.change && a1.size == 1 && made.parents[1].is_none());
    let renamed =
        site.fs.rename(&site.call(), &at("one/f"), &at("two/g"), Replace::Any, &free()).await.works();
    matches(renamed.parents[0], &a1, &site.attr(one).await);
    matches(renamed.parents[1], &b2, &site.attr(two).await);
    let b2 = site.attr(two).await;
    let within =
        site.fs.rename(&site.call(), &at("two/g"), &at("two/h"), Replace::Any, &free()).await.works();
    matches(within.parents[0], &b2, &site.attr(two).await);
    assert!(within.parents[1].is_none(), "one directory is told once");
    let (dir, file) = (site.attr(two).await, site.attr(made.value.id).await);
    let removed = site.fs.remove(&site.call(), &at("two/h"), Expect::Any, &free()).await.works();
    matches(removed.parents[0], &dir, &site.attr(two).await);
    assert_eq!(removed.file.before, Some(Before::from(&file)));
    assert_eq!(removed.file.after, None);
}

/// What one change tells as after, the next tells as before, without a look between.
pub async fn one_changes_after_is_the_nexts_before(subject: &dyn Subject) {
    let site = Site::of(subject);
    site.file("f", b"").await;
    let mut last: Option<Before> = None;
    for n in 0..20_u16 {
        let set = SetAttr { mode: Some(n), ..SetAttr::default() };
        let changed = site.fs.set(&site.call(), &at("f"), &set, &free()).await.works();
        assert!(last.is_none() || changed.file.before == last);
        last = changed.file.after.as_ref().map(Before::from);
    }
}

/// A guard that does not hold stops every guarded change and leaves everything.
pub async fn a_guard_that_does_not_hold_stops_the_change(subject: &dyn Subject) {
    let site = Site::of(subject);
    let id = site.file("f", b"one").await;
    let other = site.file("g", b"one").await;
    let old = site.attr(id).await.version;
    site.write(id, 0, b"two").await;
    let now = site.lasting(id).await;
    let guard = |version| Guard { version: Some(version), ctime: None };
    let wrong = [
        guard(VersionIs::Is(old)),
        guard(VersionIs::IsNot(now.version)),
        guard(VersionIs::Absent),
        guard(VersionIs::Exactly(id, old)),
        guard(VersionIs::Exactly(other, now.version)),
        Guard { version: None, ctime: Some(Time::EPOCH) },
    ];
    let tag = [TagEdit::Put { name: TagName::new("t").works(), value: Bytes::new(), must: TagMust::Any }];
    for guard in wrong {
        let set = SetAttr { mode: Some(0), ..SetAttr::default() };
        let kinds = [
            site.fs.set(&site.call(), &at("f"), &set, &guard).await.fails(),
            site.fs.remove(&site.call(), &at("f"), Expect::Any, &guard).await.fails(),
            site.fs.tag(&site.call(), &at("f"), &tag, &guard).await.fails(),
        ];
        assert_eq!(kinds, [ErrorKind::Precondition; 3], "{guard:?}");
    }
    assert_eq!(site.attr(id).await, now);
    let right = [
        guard(VersionIs::Is(now.version)),
        guard(VersionIs::IsNot(old)),
        guard(VersionIs::Present),
        guard(VersionIs::Exactly(id, now.version)),
        Guard { version: None, ctime: Some(now.ctime) },
    ];
    for guard in right {
        site.fs.set(&site.call(), &at("f"), &SetAttr::default(), &guard).await.works();
    }
}

/// A rename's guard speaks of the target; a missing source is `NotFound`.
pub async fn a_renames_guard_speaks_of_the_target(subject: &dyn Subject) {
    let site = Site::of(subject);
    site.file("f", b"").await;
    let there = site.file("g", b"there").await;
    let version = site.lasting(there).await.version;
    let rename = |from: &'static str, to: &'static str, is: VersionIs| {
        let site = &site;
        let guard = Guard { version: Some(is), ctime: None };
        async move { site.fs.rename(&site.call(), &at(from), &at(to), Replace::Any, &guard).await }
    };
    assert_eq!(rename("f", "g", VersionIs::Absent).await.fails(), ErrorKind::Precondition);
    assert_eq!(rename("f", "g", VersionIs::IsNot(version)).await.fails(), ErrorKind::Precondition);
    assert_eq!(rename("f", "x", VersionIs::Present).await.fails(), ErrorKind::Precondition);
    assert_eq!(rename("none", "x", VersionIs::Present).await.fails(), ErrorKind::NotFound);
    rename("f", "x", VersionIs::Absent).await.works();
    rename("x", "g", VersionIs::Is(version)).await.works();
}

/// User attributes are kept, ordered by name, and changed all together or not at all.
pub async fn user_attributes_change_together_or_not_at_all(subject: &dyn Subject) {
    let site = Site::of(subject);
    if !site.supports().tags {
        return site.unsupported("user attributes");
    }
    site.file("f", b"").await;
    let tag = |text: &'static str| TagName::new(text).works();
    let put = |text, value: &'static [u8], must| TagEdit::Put {
        name: tag(text),
        value: Bytes::from_static(value),
        must,
    };
    let edit = |edits: Vec<TagEdit>| {
        let site = &site;
        async move { site.fs.tag(&site.call(), &at("f"), &edits, &free()).await }
    };
    edit(vec![put("b", b"2", TagMust::Any), put("a", b"\xff\0", TagMust::BeNew)]).await.works();
    let broken = vec![put("c", b"3", TagMust::Any), TagEdit::Remove(tag("none"))];
    assert_eq!(edit(broken).await.fails(), ErrorKind::NoAttribute);
    assert_eq!(edit(vec![put("a", b"", TagMust::BeNew)]).await.fails(), ErrorKind::Exists);
    assert_eq!(edit(vec![put("x", b"", TagMust::Exist)]).await.fails(), ErrorKind::NoAttribute);
    let page = site.fs.tags(&site.call(), &at("f"), None).await.works();
    let expected = vec![(tag("a"), Bytes::from_static(b"\xff\0")), (tag("b"), Bytes::from_static(b"2"))];
    assert_eq!((page.tags, page.next), (expected, None));
    let rest = site.fs.tags(&site.call(), &at("f"), Some(tag("a"))).await.works();
    assert_eq!(rest.tags.len(), 1);
    edit(vec![TagEdit::Remove(tag("a")), put("b", b"", TagMust::Exist)]).await.works();
    let page = site.fs.tags(&site.call(), &at("f"), None).await.works();
    assert_eq!(page.tags, [(tag("b"), Bytes::new())]);
}

/// One value has at most 60 KiB, all together 64 KiB; what is too much changes nothing.
pub async fn user_attributes_have_limits(subject: &dyn Subject) {
    let site = Site::of(subject);
    if !site.supports().tags {
        return site.unsupported("user attributes");
    }
    site.file("f", b"").await;
    let put = |text: &str, length: usize| {
        let name = TagName::new(text.as_bytes().to_vec()).works();
        let edit = [TagEdit::Put { name, value: vec![7; length].into(), must: TagMust::Any }];
        let site = &site;
        async move { site.fs.tag(&site.call(), &at("f"), &edit, &free()).await }
    };
    assert_eq!(put("big", (60 << 10) + 1).await.fails(), ErrorKind::TooLarge);
    put("big", 60 << 10).await.works();
    put("b", 3 << 10).await.works();
    assert_eq!(put("c", 2 << 10).await.fails(), ErrorKind::TooLarge);
    assert_eq!(site.fs.tags(&site.call(), &at("f"), None).await.works().tags.len(), 2);
}

/// Entering and leaving changes a directory's times, and nothing else's.
pub async fn a_directory_changes_with_its_names(subject: &dyn Subject) {
    let site = Site::of(subject);
    let dir = site.dir("d").await;
    let before = site.attr(dir).await;
    subject.pass(std::time::Duration::from_millis(20)).await;
    let file = site.file("d/f", b"").await;
    let after = site.attr(dir).await;
    assert!(after.mtime > before.mtime && after.ctime > before.ctime && after.change > before.change);
    assert_eq!(after.btime, before.btime);
    subject.pass(std::time::Duration::from_millis(20)).await;
    site.write(file, 0, b"bytes").await;
    let later = site.attr(dir).await;
    assert_eq!((later.mtime, later.ctime), (after.mtime, after.ctime), "a child's bytes are not its names");
}

/// Space is told within the volume, and files are counted.
pub async fn space_is_told(subject: &dyn Subject) {
    let site = Site::of(subject);
    // Where others make and remove files beside it, the count is right only while they rest.
    let tries = if subject.room_is_its_own() { 1 } else { 1_000 };
    for round in 0..tries {
        let before = site.fs.space(&site.call(), &at("")).await.works();
        assert!(before.bytes_free <= before.bytes_total && before.bytes_total > 0);
        for n in 0..3 {
            site.file(&format!("{round}.{n}"), b"").await;
        }
        let after = site.fs.space(&site.call(), &At::id(FileId::ROOT)).await.works();
        if after.files == before.files + 3 {
            return;
        }
    }
    panic!("three files more are not counted as three more");
}

/// A walk shows rights only when wanted.
pub async fn a_walk_shows_rights_when_wanted(subject: &dyn Subject) {
    let site = Site::of(subject);
    site.file("f", b"").await;
    let want = Want { attr: false, rights: true };
    let walked = site.fs.walk(&site.call(), &at("f"), want).await.works();
    let rights = walked.rights.expect("they were wanted");
    assert!(rights.contains(Rights::READ | Rights::WRITE | Rights::ACL_WRITE));
    assert!(!rights.contains(Rights::EXECUTE), "its mode withholds it");
    let walked = site.fs.walk(&site.call(), &at("f"), Want::default()).await.works();
    assert_eq!(walked.rights, None);
    site.fs.stage(&site.call(), &at("g"), &StageHint::default()).await.map(|s| s.id()).works();
}
