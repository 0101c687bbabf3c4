//! Laws of containers: splits, edits, what may cross them, and their limits.

use weft_core::acl::{AclEntry, Modes, Who};
use weft_core::attr::SetAttr;
use weft_core::form::{
    At, BytesSource, Cursor, Expect, PageMax, Replace, Scope, Shape, StageHint, Want, WriteAt,
};
use weft_core::policy::{AuditReads, PolicyEdit};
use weft_core::proof::{Attenuation, Caller, CredentialClaims};
use weft_core::{ErrorKind, FileId, Rights};

use super::site::*;
use super::{ADMINISTRATOR, Subject};

/// What is made joins its directory's container.
pub async fn what_is_made_joins_its_directorys_container(subject: &dyn Subject) {
    let site = Site::of(subject);
    site.dir("d").await;
    let made = site.grant("d", Vec::new()).await;
    assert!(made.made);
    let inner = site.file("d/f", b"").await;
    assert_eq!(site.attr(inner).await.container, made.container);
    assert_ne!(site.attr(FileId::ROOT).await.container, made.container);
}

/// A split moves what lies below, and nothing else, into a container of its own, and
/// happens once: the next edit of the same place is of that container.
pub async fn a_split_moves_what_lies_below(subject: &dyn Subject) {
    let site = Site::of(subject);
    let (dir, other) = (site.dir("d").await, site.dir("o").await);
    let deep = site.dir("d/e").await;
    let file = site.file("d/e/f", b"bytes").await;
    let outer = site.attr(other).await.container;
    let made = site.grant("d", Vec::new()).await;
    assert!(made.made);
    for id in [dir, deep, file] {
        assert_eq!(site.attr(id).await.container, made.container);
    }
    assert_eq!(site.attr(other).await.container, outer);
    let again = site.grant("d", Vec::new()).await;
    assert_eq!((again.container, again.made), (made.container, false));
    let inner = site.grant("d/e", Vec::new()).await;
    assert!(inner.made && inner.container != made.container);
    assert_eq!(site.attr(dir).await.container, made.container);
    assert_eq!(site.attr(file).await.container, inner.container);
}

/// A file may have a container of its own.
pub async fn a_file_may_have_a_container_of_its_own(subject: &dyn Subject) {
    let site = Site::of(subject);
    let alice = site.user("alice");
    let id = site.file("f", b"bytes").await;
    site.file("g", b"").await;
    let made = site.allow("f", &alice, Rights::READING).await;
    assert_eq!(site.attr(id).await.container, made.container);
    let call = site.call_of(&alice, 2);
    site.find_as(&call, "f").await.works();
    site.fs.open(&call, &at("g"), &how(Rights::READ)).await.map(|_| ()).fails();
}

/// A grant on an inner container lets its callers pass above, and says so.
pub async fn a_grant_lets_its_callers_pass_above(subject: &dyn Subject) {
    let site = Site::of(subject);
    let alice = site.user("alice");
    for dir in ["a", "a/b", "a/b/c"] {
        site.dir(dir).await;
    }
    let middle = site.grant("a/b", Vec::new()).await.container;
    let root = site.attr(FileId::ROOT).await.container;
    let granted = site.allow("a/b/c", &alice, Rights::READING).await;
    let mut added = granted.traverse_added.clone();
    added.sort_unstable();
    let mut expected = vec![root, middle];
    expected.sort_unstable();
    assert_eq!(added, expected);
    let call = site.call_of(&alice, 2);
    site.find_as(&call, "a/b/c").await.works();
    let page = site.fs.list(&call, &at("a/b"), Cursor::Start, PageMax::MAX, Want::default()).await;
    assert_eq!(page.map(|_| ()).fails(), ErrorKind::Denied, "passing is not listing");
    let again = site.allow("a/b/c", &alice, Rights::WRITE).await;
    assert!(again.traverse_added.is_empty(), "they may pass already");
}

/// The entries that a grant adds above are edits of the ACLs there: they are made where the granter
/// may change those, and where it may not the answer says so.
pub async fn a_grant_changes_no_acl_that_its_maker_may_not_change(subject: &dyn Subject) {
    let site = Site::of(subject);
    let (alice, bob) = (site.user("alice"), site.user("bob"));
    for dir in ["home", "home/alice", "home/alice/shared"] {
        site.dir(dir).await;
    }
    let hers = site.allow("home/alice", &alice, Rights::ALL).await.container;
    let root = site.attr(FileId::ROOT).await.container;
    let before = site.fs.policy(&site.call(), &at("")).await.works();
    let call = site.call_of(&alice, 2);
    let mut acl = site.fs.policy(&call, &at("home/alice/shared")).await.works().acl;
    acl.entries.push(AclEntry::allow(who(&bob), Rights::READING));
    let edit = PolicyEdit { acl: Some(acl), ..PolicyEdit::default() };
    let done = site.fs.protect(&call, &at("home/alice/shared"), Scope::Subtree, &edit).await.works().value;
    assert_eq!((done.traverse_added, done.untouched_above), (vec![hers], vec![root]));
    assert_eq!(site.fs.policy(&site.call(), &at("")).await.works(), before);
    let his = site.call_of(&bob, 3);
    assert_eq!(site.find_as(&his, "home/alice/shared").await.fails(), ErrorKind::NotFound);
    site.edit("", Scope::Container, |all| all.push(AclEntry::allow(who(&bob), Rights::TRAVERSE))).await;
    site.find_as(&his, "home/alice/shared").await.works();
}

/// A credential that is limited to paths changes policy only where all that it governs lies
/// there: not by an edit of a container that reaches beyond, not by what a grant adds above.
pub async fn a_credential_limited_to_paths_edits_no_policy_that_reaches_beyond_them(subject: &dyn Subject) {
    let site = Site::of(subject);
    let (alice, bob) = (site.user("alice"), site.user("bob"));
    for dir in ["a", "a/b", "a/b/c"] {
        site.dir(dir).await;
    }
    let limits = Attenuation { paths: vec![at("a").path], ..Attenuation::default() };
    let claims = CredentialClaims { limits, ..subject.domain().claims(ADMINISTRATOR) };
    let call = site.call_of(&subject.domain().caller_with(&claims), 2);
    let root = site.attr(FileId::ROOT).await.container;
    let policy = async || site.fs.policy(&site.call(), &at("")).await.works();
    let before = policy().await;
    let mut wider = before.acl.clone();
    wider.entries.push(AclEntry::allow(Who::Anyone, Rights::ALL));
    for edit in [
        PolicyEdit { acl: Some(wider), ..PolicyEdit::default() },
        PolicyEdit { modes: Some(Modes::Classes), ..PolicyEdit::default() },
        PolicyEdit { bytes_max: Some(Some(1)), ..PolicyEdit::default() },
        PolicyEdit { audit_reads: Some(AuditReads::Off), ..PolicyEdit::default() },
    ] {
        for path in ["a", "a/b/c"] {
            let answer = site.fs.protect(&call, &at(path), Scope::Container, &edit).await;
            assert_eq!(answer.fails(), ErrorKind::Denied, "{edit:?} at {path}");
        }
    }
    assert_eq!(policy().await, before);
    let grant = async |path: &str, scope: Scope, to: &Caller| {
        let mut acl = site.fs.policy(&call, &at(path)).await.works().acl;
        acl.entries.push(AclEntry::allow(who(to), Rights::READING));
        let edit = PolicyEdit { acl: Some(acl), ..PolicyEdit::default() };
        site.fs.protect(&call, &at(path), scope, &edit).await.works().value
    };
    let inner = grant("a/b", Scope::Subtree, &alice).await;
    assert_eq!((inner.made, inner.traverse_added, inner.untouched_above), (true, vec![], vec![root]));
    let again = grant("a/b/c", Scope::Container, &bob).await;
    assert_eq!((again.made, again.container), (false, inner.container), "all of it lies within");
    assert_eq!(again.untouched_above, vec![root]);
    let carol = site.user("carol");
    let deep = grant("a/b/c", Scope::Subtree, &carol).await;
    assert_eq!((deep.traverse_added, deep.untouched_above), (vec![inner.container], vec![root]));
    assert_eq!(policy().await.acl, before.acl);
}

/// An edit of the whole container is felt wherever its members lie.
pub async fn an_edit_of_the_container_is_felt_by_all_members(subject: &dyn Subject) {
    let site = Site::of(subject);
    let alice = site.user("alice");
    for dir in ["a", "a/b"] {
        site.dir(dir).await;
    }
    site.file("a/b/f", b"bytes").await;
    let outer = site.attr(FileId::ROOT).await.container;
    let edited = site
        .edit("a/b/f", Scope::Container, |all| all.push(AclEntry::allow(who(&alice), Rights::READING)))
        .await;
    assert_eq!((edited.container, edited.made), (outer, false));
    let call = site.call_of(&alice, 2);
    for path in ["", "a", "a/b", "a/b/f"] {
        site.find_as(&call, path).await.works();
    }
}

/// An ACL edited from an older one is `Conflict`; its version rises with every edit.
pub async fn an_edit_from_an_older_acl_is_a_conflict(subject: &dyn Subject) {
    let site = Site::of(subject);
    site.dir("d").await;
    site.grant("d", Vec::new()).await;
    let read = site.fs.policy(&site.call(), &at("d")).await.works();
    let edit = PolicyEdit { acl: Some(read.acl.clone()), ..PolicyEdit::default() };
    site.fs.protect(&site.call(), &at("d"), Scope::Container, &edit).await.works();
    let stale = site.fs.protect(&site.call(), &at("d"), Scope::Container, &edit).await;
    assert_eq!(stale.fails(), ErrorKind::Conflict);
    let now = site.fs.policy(&site.call(), &at("d")).await.works();
    assert_eq!(now.acl.version, read.acl.version + 1);
    assert_eq!(now.acl.entries, read.acl.entries);
}

/// An edit that would leave nobody with `acl-write` is refused, and changes nothing.
pub async fn an_edit_that_leaves_nobody_in_charge_is_refused(subject: &dyn Subject) {
    let site = Site::of(subject);
    let id = site.dir("d").await;
    let policy = site.fs.policy(&site.call(), &at("d")).await.works();
    let mut acl = policy.acl.clone();
    acl.entries = vec![AclEntry::allow(who(&site.admin), Rights::READING)];
    for scope in [Scope::Subtree, Scope::Container] {
        let edit = PolicyEdit { acl: Some(acl.clone()), ..PolicyEdit::default() };
        let answer = site.fs.protect(&site.call(), &at("d"), scope, &edit).await;
        assert_eq!(answer.fails(), ErrorKind::Invalid);
    }
    assert_eq!(site.fs.policy(&site.call(), &at("d")).await.works(), policy);
    assert_eq!(site.attr(id).await.container, policy.container);
}

/// What an edit does not speak of stays; a split takes it over.
pub async fn what_an_edit_does_not_speak_of_stays(subject: &dyn Subject) {
    let site = Site::of(subject);
    site.dir("d").await;
    site.dir("d/e").await;
    let edit = PolicyEdit {
        modes: Some(Modes::Classes),
        bytes_max: Some(Some(1 << 40)),
        audit_reads: Some(AuditReads::Off),
        ..PolicyEdit::default()
    };
    site.fs.protect(&site.call(), &at("d"), Scope::Subtree, &edit).await.works();
    site.grant("d/e", Vec::new()).await;
    for path in ["d", "d/e"] {
        let policy = site.fs.policy(&site.call(), &at(path)).await.works();
        assert_eq!((policy.modes, policy.bytes_max), (Modes::Classes, Some(1 << 40)), "{path}");
        assert_eq!(policy.audit_reads, AuditReads::Off);
    }
    let lift = PolicyEdit { bytes_max: Some(None), ..PolicyEdit::default() };
    site.fs.protect(&site.call(), &at("d/e"), Scope::Container, &lift).await.works();
    assert_eq!(site.fs.policy(&site.call(), &at("d/e")).await.works().bytes_max, None);
    assert_eq!(site.fs.policy(&site.call(), &at("d")).await.works().bytes_max, Some(1 << 40));
}

/// Hard links do not cross containers, and a split that would tear one is refused.
pub async fn hard_links_do_not_cross_containers(subject: &dyn Subject) {
    let site = Site::of(subject);
    if !site.supports().links {
        return site.unsupported("hard links");
    }
    for dir in ["in", "torn"] {
        site.dir(dir).await;
    }
    site.grant("in", Vec::new()).await;
    site.file("f", b"").await;
    site.file("in/g", b"").await;
    let link = |from: &'static str, to: &'static str| {
        let site = &site;
        async move { site.fs.link(&site.call(), &at(from), &at(to)).await }
    };
    assert_eq!(link("f", "in/f").await.fails(), ErrorKind::CrossVolume);
    assert_eq!(link("in/g", "g").await.fails(), ErrorKind::CrossVolume);
    let id = site.file("torn/x", b"").await;
    link("torn/x", "x").await.works();
    let edit = PolicyEdit { bytes_max: Some(None), ..PolicyEdit::default() };
    let split = site.fs.protect(&site.call(), &at("torn"), Scope::Subtree, &edit).await;
    assert_eq!(split.fails(), ErrorKind::CrossVolume);
    assert_eq!(site.attr(id).await.container, site.attr(FileId::ROOT).await.container);
}

/// A rename across containers changes the member's container, and needs `remove`
/// there and `insert` here.
pub async fn a_rename_across_containers_changes_the_members(subject: &dyn Subject) {
    let site = Site::of(subject);
    let alice = site.user("alice");
    site.dir("from").await;
    site.dir("to").await;
    let moved = site.dir("from/d").await;
    let file = site.file("from/d/f", b"bytes").await;
    site.allow("from", &alice, Rights::WRITING - Rights::REMOVE).await;
    let to = site.allow("to", &alice, Rights::WRITING).await.container;
    let rename = || {
        let site = &site;
        let call = site.call_of(&alice, 2);
        async move { site.fs.rename(&call, &at("from/d"), &at("to/d"), Replace::Never, &free()).await }
    };
    assert_eq!(rename().await.fails(), ErrorKind::Denied, "`rename` alone is for within a container");
    site.allow("from", &alice, Rights::REMOVE).await;
    rename().await.works();
    for id in [moved, file] {
        assert_eq!(site.attr(id).await.container, to);
    }
    assert_eq!(site.read(file).await, &b"bytes"[..]);
}

/// A container that is moved stays the container it is.
pub async fn a_moved_container_stays_itself(subject: &dyn Subject) {
    let site = Site::of(subject);
    let alice = site.user("alice");
    site.dir("a").await;
    site.dir("b").await;
    site.grant("b", Vec::new()).await;
    let id = site.dir("a/own").await;
    let own = site.allow("a/own", &alice, Rights::READING).await.container;
    site.fs.rename(&site.call(), &at("a/own"), &at("b/own"), Replace::Never, &free()).await.works();
    assert_eq!(site.attr(id).await.container, own);
}

/// A container's limit on bytes refuses growth with `NoSpace`, by any way in, and
/// removing makes room again.
pub async fn a_limit_on_bytes_refuses_growth(subject: &dyn Subject) {
    let site = Site::of(subject);
    const MIB: usize = 1 << 20;
    site.dir("d").await;
    let limit = PolicyEdit { bytes_max: Some(Some(4 * MIB as u64)), ..PolicyEdit::default() };
    site.fs.protect(&site.call(), &at("d"), Scope::Subtree, &limit).await.works();
    let full = pattern(3 * MIB, 1);
    site.file("d/big", &full).await;
    let used = site.fs.policy(&site.call(), &at("d")).await.works().bytes_used;
    assert!((3 * MIB as u64..=4 * MIB as u64).contains(&used));
    let small = site.file("d/small", b"").await;
    let file = site.fs.file(&site.call(), small, Rights::WRITE | Rights::APPEND).await.works();
    for place in [WriteAt::Offset(0), WriteAt::End] {
        let write = write_to(&*file, &site.call(), place, &full).await;
        assert_eq!(write.fails(), ErrorKind::NoSpace);
    }
    let allocate = Shape::Allocate { at: 0, length: 8 * MIB as u64, keep_size: true };
    assert_eq!(file.shape(&site.call(), allocate).await.fails(), ErrorKind::NoSpace);
    assert_eq!(publish(&site, &full).await, Some(ErrorKind::NoSpace));
    assert_eq!(site.find("d/new").await.fails(), ErrorKind::NotFound);
    let copy = site.fs.copy(&site.call(), &at("d/big"), weft_core::form::Range::ALL, &at("d/small"), 0).await;
    assert_eq!(copy.map(|_| ()).fails(), ErrorKind::NoSpace);
    let space = site.fs.space(&site.call(), &at("d")).await.works();
    assert_eq!(space.bytes_total, 4 * MIB as u64);
    let error = publish_error(&site, &full).await;
    assert!(error.is_some_and(|e| !e.detail().is_empty()), "it says which limit");
    site.fs.remove(&site.call(), &at("d/big"), Expect::Any, &free()).await.works();
    site.fs.remove(&site.call(), &at("d/small"), Expect::Any, &free()).await.works();
    drop(file);
    assert_eq!(publish(&site, &full).await, None);
}

/// A file of holes counts by what fills them: no limit is passed through one, and what is there in
/// full may be written over whatever the limit.
pub async fn a_limit_on_bytes_counts_what_fills_holes(subject: &dyn Subject) {
    const MIB: u64 = 1 << 20;
    let site = Site::of(subject);
    if !site.supports().holes {
        return site.unsupported("holes");
    }
    site.dir("d").await;
    let limit = PolicyEdit { bytes_max: Some(Some(4 * MIB)), ..PolicyEdit::default() };
    site.fs.protect(&site.call(), &at("d"), Scope::Subtree, &limit).await.works();
    let piece = pattern(MIB as usize, 1);
    let sparse = site.file("d/sparse", b"").await;
    let file = site.fs.file(&site.call(), sparse, Rights::WRITE).await.works();
    file.shape(&site.call(), Shape::Truncate(1 << 30)).await.works();
    for n in 0..8 {
        let write = write_to(&*file, &site.call(), WriteAt::Offset(n * 100 * MIB), &piece).await;
        let used = site.fs.policy(&site.call(), &at("d")).await.works().bytes_used;
        assert!(used <= 4 * MIB, "{used} bytes after {write:?} of piece {n}");
        match n {
            0..3 => drop(write.works()),
            // What a store takes beside the bytes may count, too.
            3 => {}
            _ => assert_eq!(write.fails(), ErrorKind::NoSpace),
        }
    }
    let more = Shape::Allocate { at: 800 * MIB, length: 2 * MIB, keep_size: true };
    assert_eq!(file.shape(&site.call(), more).await.fails(), ErrorKind::NoSpace);
    site.fs.remove(&site.call(), &at("d/sparse"), Expect::Any, &free()).await.works();
    drop(file);
    let full = pattern(4 * MIB as usize, 1);
    let dense = site.file("d/dense", &full).await;
    site.write(dense, 0, &full).await;
}

async fn publish_error(site: &Site<'_>, bytes: &[u8]) -> Option<weft_core::Error> {
    let call = site.call();
    let hint = StageHint { length: Some(bytes.len() as u64), ..StageHint::default() };
    let stage = match site.fs.stage(&call, &at("d/new"), &hint).await {
        Ok(stage) => stage,
        Err(error) => return Some(error),
    };
    let mut source = BytesSource::new(bytes.to_vec());
    if let Err(error) = stage.put(&call, 1, 0, &mut source).await {
        return Some(error);
    }
    stage.publish(&call, &[], &SetAttr::default(), &free()).await.err()
}

async fn publish(site: &Site<'_>, bytes: &[u8]) -> Option<ErrorKind> {
    publish_error(site, bytes).await.map(|error| error.kind())
}

/// A caller without a right over the place may neither read nor change its policy.
pub async fn policy_is_not_for_everybody(subject: &dyn Subject) {
    let site = Site::of(subject);
    site.dir("d").await;
    site.grant("d", vec![AclEntry::allow(Who::Anyone, Rights::WRITING)]).await;
    let call = site.call_of(&Caller::anyone(), 2);
    assert_eq!(site.fs.policy(&call, &at("d")).await.fails(), ErrorKind::Denied);
    let edit = PolicyEdit { bytes_max: Some(None), ..PolicyEdit::default() };
    let answer = site.fs.protect(&call, &at("d"), Scope::Subtree, &edit).await;
    assert_eq!(answer.fails(), ErrorKind::Denied);
}

/// A split of many members leaves each governed by the new policy as soon as it answers.
pub async fn a_split_of_many_members_binds_them_at_once(subject: &dyn Subject) {
    let site = Site::of(subject);
    let alice = site.user("alice");
    site.edit("", Scope::Container, |all| all.push(AclEntry::allow(who(&alice), Rights::READING))).await;
    let dir = site.dir("d").await;
    let mut files = Vec::new();
    for n in 0..300 {
        let place = At::name(dir, name(&n.to_string()));
        files
            .push(site.fs.make(&site.call(), &place, new_file(), &SetAttr::default()).await.works().value.id);
    }
    let call = site.call_of(&alice, 2);
    let open = site.fs.file(&call, files[0], Rights::READ).await.works();
    site.edit("d", Scope::Subtree, |all| all.retain(|entry| entry.who != who(&alice))).await;
    for id in &files {
        site.fs.file(&call, *id, Rights::READ).await.map(|_| ()).fails();
    }
    read_of(&*open, &call, weft_core::form::Range::ALL).await.fails();
}
