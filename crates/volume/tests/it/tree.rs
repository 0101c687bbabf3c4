//! Laws of volumes that are joined into one tree: a managed volume, and another at a junction.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use weft_conformance::TestDomain;
use weft_conformance::file_system::site::*;
use weft_conformance::file_system::{ADMINISTRATOR, Subject};
use weft_core::acl::AclEntry;
use weft_core::attr::{Attr, Kind, SetAttr};
use weft_core::form::{
    At, Call, ChangeSeq, Cursor, Expect, FileSystem, Guard, Lock, LockKind, LockOwner, LockScope, Page,
    PageMax, Range, Replace, Request, StageHint, Supports, SyncScope, Wait, Want,
};
use weft_core::proof::Caller;
use weft_core::service::SessionWatcher;
use weft_core::{ErrorKind, FileId, Result, Rights, SessionId, VolumeId};
use weft_sys::{SimDisk, simulate};
use weft_volume::audited::Witness;
use weft_volume::managed::Managed;
use weft_volume::tree::{Anchor, ManagedAnchor, Tree};

use super::crash::volume_on;
use super::site::Volume;

const MEMBER: VolumeId = VolumeId(1);

/// A root volume, one beside it, and both as a tree.
pub struct Woven {
    root: Volume,
    member: Volume,
    junction: FileId,
    tree: Mutex<Arc<Tree>>,
}

impl Woven {
    /// Joins a second volume to a first, at `/dir/share`.
    async fn fresh() -> Self {
        let root = Volume::fresh(1).await;
        Site::of(&root).dir("dir").await;
        Self::joined_at(root, "dir/share").await
    }

    async fn joined_at(root: Volume, path: &str) -> Self {
        let member = root.beside().await;
        let call = Site::of(&root).call();
        let junction = root.running().managed.join(&call, &at(path), MEMBER).await.works();
        let tree = Mutex::new(woven(&root, &member, junction));
        Self { root, member, junction, tree }
    }

    /// A tree with a member that is seen nowhere: its junction is gone.
    async fn with_nothing_to_see() -> Self {
        let woven = Self::joined_at(Volume::fresh(1).await, "share").await;
        woven.managed().unjoin(&Site::of(&woven.root).call(), woven.junction).await.works();
        woven
    }

    fn tree(&self) -> Arc<Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn managed(&self) -> Managed {
        self.root.running().managed
    }

    fn member(&self) -> Arc<Managed> {
        Arc::new(self.member.running().managed)
    }

    fn anchor(&self) -> ManagedAnchor {
        ManagedAnchor::new(self.managed(), self.junction)
    }
}

fn woven(root: &Volume, member: &Volume, junction: FileId) -> Arc<Tree> {
    let tree = Tree::new(root.running().managed);
    tree.attach(MEMBER, junction, Arc::new(member.running().managed)).works();
    Arc::new(tree)
}

#[async_trait]
impl Subject for Woven {
    fn fs(&self) -> Arc<dyn FileSystem> {
        self.tree()
    }

    fn domain(&self) -> &Arc<TestDomain> {
        &self.root.domain
    }

    fn end_session(&self, session: SessionId) {
        self.tree().ended(session);
    }

    async fn pass(&self, span: Duration) {
        self.root.pass(span).await;
    }

    fn time_is_moved(&self) -> bool {
        true
    }

    async fn restart(&self) -> bool {
        self.root.reopen().await;
        self.member.reopen().await;
        let tree = woven(&self.root, &self.member, self.junction);
        *self.tree.lock().unwrap_or_else(PoisonError::into_inner) = tree;
        true
    }
}

/// The laws of the request form hold in the root as if nothing were joined to it.
mod suite {
    use super::Woven;

    async fn fresh() -> Woven {
        Woven::with_nothing_to_see().await
    }

    weft_conformance::file_system_suite!(fresh);
}

async fn page(site: &Site<'_>, call: &Call, dir: &At, from: Cursor, max: u32) -> Page {
    let want = Want { attr: true, ..Want::default() };
    site.fs.list(call, dir, from, PageMax::new(max), want).await.works()
}

fn rw(owner: &str) -> Lock {
    let (kind, scope) = (LockKind::Exclusive, LockScope::Whole);
    Lock { owner: LockOwner(Bytes::copy_from_slice(owner.as_bytes())), kind, scope }
}

fn limited(woven: &Woven, path: &str) -> Caller {
    let mut claims = woven.domain().claims(ADMINISTRATOR);
    claims.limits.paths = vec![at(path).path];
    woven.domain().caller_with(&claims)
}

async fn attr_at(site: &Site<'_>, path: &str) -> Attr {
    site.fs.walk(&site.call(), &at(path), Want::default()).await.works().attr
}

#[tokio::test]
async fn a_path_beyond_a_junction_leads_into_the_member() {
    let woven = Woven::fresh().await;
    let site = Site::of(&woven);
    let sub = site.dir("dir/share/sub").await;
    let id = site.file("dir/share/sub/f", b"bytes").await;
    assert_eq!((sub.volume(), id.volume()), (MEMBER, MEMBER));
    assert_eq!(site.find("dir/share/sub/f").await.works(), id);
    assert_eq!(site.read(id).await, &b"bytes"[..]);
    let there = At { base: FileId::root_of(MEMBER), ..at("sub/f") };
    let same = woven.member().walk(&site.call(), &there, Want::default()).await.works().attr.id;
    assert_eq!(same, id, "it is the same as there");
    let walked = site.fs.walk(&site.call(), &at("dir/share/sub/f"), Want::default()).await.works();
    assert_eq!(walked.parent, Some(sub));
    let opened = site.open("dir/share/sub/f", Rights::READ).await;
    assert_eq!(read_of(&*opened.file, &site.call(), Range::ALL).await.works(), &b"bytes"[..]);
    let stage = site.fs.stage(&site.call(), &at("dir/share/new"), &StageHint::default()).await.works();
    let again = site.fs.staged(&site.call(), stage.id()).await.works();
    assert_eq!(site.fs.stages(&site.call(), &at("dir/share"), None).await.works().stages.len(), 1);
    let made = again.publish(&site.call(), &[], &SetAttr::default(), &free()).await.works();
    assert_eq!(site.find("dir/share/new").await.works(), made.value.id);
    site.fs.remove(&site.call(), &at("dir/share/new"), Expect::Any, &free()).await.works();
    assert_eq!(site.find("dir/share/new").await.fails(), ErrorKind::NotFound);
    assert_eq!(site.find("dir/share/sub/f/x").await.fails(), ErrorKind::NotDirectory);
}

#[tokio::test]
async fn at_a_junction_the_members_root_is_seen() {
    let woven = Woven::fresh().await;
    let site = Site::of(&woven);
    let (call, share, root) = (site.call(), at("dir/share"), FileId::root_of(MEMBER));
    for place in [share.clone(), At::id(root), At::id(woven.junction)] {
        let walked = site.fs.walk(&call, &place, Want::default()).await.works();
        assert_eq!((walked.attr.id, walked.attr.kind), (root, Kind::Directory));
        let above = if place.path.is_empty() { None } else { Some(site.find("dir").await.works()) };
        assert_eq!(walked.parent, above, "{place}");
    }
    let mode = SetAttr { mode: Some(0o700), ..SetAttr::default() };
    assert_eq!(site.fs.set(&call, &share, &mode, &free()).await.works().value.id, root);
    assert_eq!(site.attr(root).await.mode, 0o700);
    assert_eq!(site.fs.policy(&call, &share).await.works().container.volume(), MEMBER);
    assert_eq!(site.seal("dir/share").await.container.volume(), MEMBER);
    assert_eq!(site.fs.tags(&call, &share, None).await.works().tags, []);
    site.fs.space(&call, &share).await.works();
    site.fs.sync(&call, &share, SyncScope::Volume).await.works();
    site.fs.lock(&call, &share, &rw("o"), Wait::No).await.works();
    let other = site.call_of(&site.admin, 2);
    let root_itself = At::id(root);
    assert!(site.fs.test(&other, &root_itself, &rw("o")).await.works().is_some());
    woven.end_session(call.session);
    assert!(site.fs.test(&other, &root_itself, &rw("o")).await.works().is_none(), "its session ended");
    let call = other;
    assert_eq!(site.fs.target(&call, &share).await.fails(), ErrorKind::Invalid);
    let opened = site.fs.open(&call, &share, &how(Rights::READ)).await.map(drop);
    assert_eq!(opened.fails(), ErrorKind::IsDirectory);
    let stage = site.fs.stage(&call, &share, &StageHint::default()).await.map(drop);
    assert_eq!(stage.fails(), ErrorKind::IsDirectory);
    let made = site.fs.make(&call, &share, new_file(), &SetAttr::default()).await;
    assert_eq!(made.fails(), ErrorKind::Exists);
}

#[tokio::test]
async fn a_listing_shows_a_junction_as_the_members_root() {
    let woven = Woven::fresh().await;
    let site = Site::of(&woven);
    let (dir, root) = (site.find("dir").await.works(), FileId::root_of(MEMBER));
    for name in ["dir/a", "dir/b"] {
        site.file(name, b"").await;
    }
    let first = page(&site, &site.call(), &at("dir"), Cursor::Start, 1).await;
    let shown = &first.entries[0];
    assert_eq!((&shown.name, shown.id, shown.kind), (&name("share"), root, Kind::Directory));
    assert_eq!(shown.attr, Some(site.attr(root).await));
    assert_eq!(first.next, Some(Cursor::Cookie(shown.cookie)), "where it goes on stays the root's affair");
    assert_eq!(site.scan(dir, 1).await.len(), 3);
    let within = page(&site, &site.call(), &at("dir/share"), Cursor::Start, 9).await;
    assert_eq!((within.dir.id, within.parent), (root, dir));
    let sub = site.dir("dir/share/sub").await;
    assert_eq!(page(&site, &site.call(), &At::id(sub), Cursor::Start, 9).await.parent, root);
    assert_eq!(page(&site, &site.call(), &At::id(root), Cursor::Start, 9).await.parent, dir);
    // Who has no right beyond it sees that it is there, as of any directory.
    let bob = site.user("bob");
    site.allow("dir", &bob, Rights::LIST | Rights::ATTR_READ).await;
    let entry = &page(&site, &site.call_of(&bob, 2), &At::id(dir), Cursor::Start, 1).await.entries[0];
    assert_eq!((entry.id, entry.kind, &entry.attr), (root, Kind::Directory, &None));
}

#[tokio::test]
async fn symbolic_links_lead_through_a_junction_and_not_up_again() {
    let woven = Woven::fresh().await;
    let site = Site::of(&woven);
    site.dir("dir/share/sub").await;
    let id = site.file("dir/share/sub/f", b"").await;
    for (link, target) in [("dir/near", "share/sub"), ("far", "/dir/../dir/./share//sub/"), ("twice", "far")]
    {
        site.symlink(link, target).await;
        assert_eq!(site.find(&format!("{link}/f")).await.works(), id, "{link}");
        let at = at(link).following();
        let walked = site.fs.walk(&site.call(), &at, Want::default()).await.works();
        assert_eq!(walked.attr.id, site.find("dir/share/sub").await.works());
    }
    site.symlink("file", "dir/share/sub/f").await;
    let attr = site.fs.walk(&site.call(), &at("file").following(), Want::default()).await.works().attr;
    assert_eq!(attr.id, id);
    assert_eq!(attr_at(&site, "file").await.kind, Kind::Symlink, "the link itself is the root's");
    for target in ["dir/share/..", "dir/share/sub/../sub"] {
        site.symlink("up", target).await;
        assert_eq!(site.find("up/f").await.fails(), ErrorKind::Unsupported, "{target}");
        site.fs.remove(&site.call(), &at("up"), Expect::Any, &free()).await.works();
    }
}

#[tokio::test]
async fn what_would_span_two_volumes_is_refused() {
    let woven = Woven::fresh().await;
    let site = Site::of(&woven);
    let (call, none) = (site.call(), Guard::NONE);
    let here = site.file("here", b"1").await;
    let there = site.file("dir/share/there", b"2").await;
    let ways = [
        (at("here"), at("dir/share/new")),
        (at("dir/share/there"), at("new")),
        (At::id(here), At::name(FileId::root_of(MEMBER), name("new"))),
        (at("dir/share"), at("dir/share/new")),
    ];
    for (from, to) in &ways[..2] {
        let renamed = site.fs.rename(&call, from, to, Replace::Any, &none).await;
        assert_eq!(renamed.fails(), ErrorKind::CrossVolume, "{from} {to}");
    }
    assert_eq!(
        site.fs.rename(&call, &ways[3].0, &ways[3].1, Replace::Any, &none).await.fails(),
        ErrorKind::CrossVolume,
        "the entry is the root's"
    );
    for (from, to) in &ways[..3] {
        assert_eq!(site.fs.link(&call, from, to).await.fails(), ErrorKind::CrossVolume, "{from} {to}");
    }
    let copy = site.fs.copy(&call, &at("here"), Range::ALL, &At::id(there), 0).await;
    assert_eq!(copy.fails(), ErrorKind::CrossVolume);
    let copy = site.fs.copy(&call, &at("dir/share/there"), Range::ALL, &at("here"), 0).await;
    assert_eq!(copy.fails(), ErrorKind::CrossVolume);
    assert_eq!((site.read(here).await, site.read(there).await), (b"1"[..].into(), b"2"[..].into()));
}

#[tokio::test]
async fn within_a_member_names_are_linked_renamed_and_copied_however_it_is_reached() {
    let woven = Woven::fresh().await;
    let site = Site::of(&woven);
    let (call, root) = (site.call(), FileId::root_of(MEMBER));
    let id = site.file("dir/share/a", b"bytes").await;
    site.fs.rename(&call, &at("dir/share/a"), &at("dir/share/b"), Replace::Never, &free()).await.works();
    let c = At::name(root, name("c"));
    site.fs.rename(&call, &at("dir/share/b"), &c, Replace::Never, &free()).await.works();
    assert_eq!(site.fs.link(&call, &c, &at("dir/share/d")).await.works().value.id, id);
    let to = site.file("dir/share/e", b"").await;
    let copied = site.fs.copy(&call, &at("dir/share/c"), Range::ALL, &At::id(to), 0).await.works();
    assert_eq!((copied.bytes, site.read(to).await), (5, b"bytes"[..].into()));
    let linked = site.fs.link(&call, &at("dir/share"), &at("dir/share/f")).await;
    assert_eq!(linked.fails(), ErrorKind::IsDirectory);
    let taken = site.fs.rename(&call, &at("dir/share/c"), &at("dir/share/e"), Replace::Never, &free()).await;
    assert_eq!(
        taken.as_ref().err().and_then(|e| e.subject().map(str::to_owned)),
        Some("/dir/share/c".into())
    );
    assert_eq!(taken.fails(), ErrorKind::Exists);
}

#[tokio::test]
async fn a_junction_is_neither_removed_nor_replaced_by_a_request() {
    let woven = Woven::fresh().await;
    let site = Site::of(&woven);
    let (call, share) = (site.call(), at("dir/share"));
    site.file("f", b"").await;
    site.dir("empty").await;
    for kind in [Expect::Any, Expect::Directory, Expect::NotDirectory] {
        let error = site.fs.remove(&call, &share, kind, &free()).await.expect_err("it is a share");
        assert_eq!((error.kind(), error.advice()), (ErrorKind::NotPermitted, Some("weft unshare PATH")));
    }
    for from in ["f", "empty"] {
        let over = site.fs.rename(&call, &at(from), &share, Replace::Any, &free()).await;
        assert_eq!(over.fails(), ErrorKind::NotPermitted);
        let onto = site.fs.rename(&call, &at(from), &share, Replace::Never, &free()).await;
        assert_eq!(onto.fails(), ErrorKind::Exists);
    }
    assert_eq!(site.fs.link(&call, &at("f"), &share).await.fails(), ErrorKind::Exists);
    let dir = site.fs.remove(&call, &at("dir"), Expect::Directory, &free()).await;
    assert_eq!(dir.fails(), ErrorKind::NotEmpty);
    assert_eq!(site.find("dir/share").await.works(), FileId::root_of(MEMBER));
}

#[tokio::test]
async fn a_stage_is_not_published_over_a_junction_that_came_meanwhile() {
    let root = Volume::fresh(1).await;
    let stage = {
        let site = Site::of(&root);
        site.fs.stage(&site.call(), &at("share"), &StageHint::default()).await.works()
    };
    let woven = Woven::joined_at(root, "share").await;
    let site = Site::of(&woven);
    let published = stage.publish(&site.call(), &[], &SetAttr::default(), &free()).await;
    assert_eq!(published.fails(), ErrorKind::IsDirectory);
    assert_eq!(site.find("share").await.works(), FileId::root_of(MEMBER));
}

#[tokio::test]
async fn moving_a_junction_moves_the_share() {
    let woven = Woven::fresh().await;
    let site = Site::of(&woven);
    let call = site.call();
    let id = site.file("dir/share/f", b"").await;
    let places = || {
        let places = woven.anchor().places().works();
        places.into_iter().map(|path| path.iter().map(ToString::to_string).collect::<Vec<_>>().join("/"))
    };
    assert_eq!(places().collect::<Vec<_>>(), ["dir/share"]);
    site.fs.rename(&call, &at("dir/share"), &at("moved"), Replace::Never, &free()).await.works();
    assert_eq!(site.find("moved/f").await.works(), id);
    assert_eq!(site.find("dir/share").await.fails(), ErrorKind::NotFound);
    site.fs.rename(&call, &at("moved"), &at("dir"), Replace::Exchange, &free()).await.works();
    assert_eq!(site.find("dir/f").await.works(), id);
    site.fs.rename(&call, &at("moved"), &at("deep"), Replace::Never, &free()).await.works();
    site.fs.rename(&call, &at("dir"), &at("deep/dir"), Replace::Never, &free()).await.works();
    assert_eq!(places().collect::<Vec<_>>(), ["deep/dir"]);
    assert_eq!(
        page(&site, &call, &at("deep/dir"), Cursor::Start, 9).await.parent,
        site.find("deep").await.works()
    );
}

#[tokio::test]
async fn the_way_to_a_member_is_asked_for_traverse_and_let_pass_gives_it() {
    let woven = Woven::fresh().await;
    let site = Site::of(&woven);
    let bob = site.user("bob");
    let call = site.call_of(&bob, 2);
    site.file("dir/share/f", b"").await;
    let sealed = site.seal("dir").await.container;
    site.allow("dir/share", &bob, Rights::ALL).await;
    let subject = FileId::root_of(MEMBER);
    site.fs.walk(&call, &At::id(subject), Want::default()).await.works();
    assert_eq!(site.find_as(&call, "dir/share/f").await.fails(), ErrorKind::NotFound, "he may not pass");
    let gained = [AclEntry::allow(who(&bob), Rights::READ)];
    let carol = site.user("carol");
    let (changed, untouched) = woven.anchor().let_pass(&site.call_of(&carol, 3), &gained).await.works();
    assert_eq!((changed, untouched.first()), (vec![], Some(&sealed)), "not hers to change");
    assert_eq!(site.find_as(&call, "dir/share/f").await.fails(), ErrorKind::NotFound);
    let (changed, untouched) = woven.anchor().let_pass(&site.call(), &gained).await.works();
    assert_eq!((changed.len(), changed[0], untouched), (2, sealed, vec![]));
    site.find_as(&call, "dir/share/f").await.works();
    let listed = site.fs.list(&call, &at("dir"), Cursor::Start, PageMax::MAX, Want::default()).await;
    assert_eq!(listed.fails(), ErrorKind::Denied, "to pass, and no more");
    let again = woven.anchor().let_pass(&site.call(), &gained).await.works();
    assert_eq!(again, (vec![], vec![]), "what is there is not added again");
}

#[tokio::test]
async fn a_credential_limited_to_other_paths_does_not_cross() {
    let woven = Woven::fresh().await;
    let site = Site::of(&woven);
    site.dir("other").await;
    let across = |path: &str| {
        let call = site.call_of(&limited(&woven, path), 2);
        woven.managed().across(&call, &at("dir/share/sub/f"))
    };
    for path in ["other", "dir/sharex", "dir/other"] {
        assert_eq!(across(path).fails(), ErrorKind::NotFound, "{path}");
        let call = site.call_of(&limited(&woven, path), 2);
        assert_eq!(site.find_as(&call, "dir/share").await.fails(), ErrorKind::NotFound, "{path}");
    }
    for path in ["dir", "dir/share", "dir/share/sub/f"] {
        let across = across(path).works().expect("it leads there");
        assert_eq!((across.volume, across.junction), (MEMBER, woven.junction));
        let base = FileId::root_of(MEMBER);
        assert_eq!(across.rest, At { base, ..at("sub/f") });
    }
}

#[tokio::test]
async fn an_explanation_goes_on_in_the_member() {
    let woven = Woven::fresh().await;
    let site = Site::of(&woven);
    site.dir("dir/share/sub").await;
    site.file("dir/share/sub/f", b"").await;
    let why = site.fs.why(&site.call(), &at("dir/share/sub/f"), Rights::READ, None).await.works();
    let places: Vec<&str> = why.steps.iter().map(|step| step.place.as_str()).collect();
    assert!(why.allowed);
    assert_eq!(places, ["/", "/dir", "/dir/share", "/dir/share/sub", "/dir/share/sub/f"]);
    assert_eq!(why.steps[2].container.volume(), MEMBER);
    let bob = site.user("bob");
    site.allow("", &bob, Rights::TRAVERSE).await;
    let name = Some(bob.name().clone());
    let why = site.fs.why(&site.call(), &at("dir/share/sub/f"), Rights::READ, name).await.works();
    assert!(!why.allowed);
    assert_eq!(why.steps.last().map(|step| step.place.as_str()), Some("/dir/share"), "there it ends");
    site.seal("dir").await;
    let why = site.fs.why(&site.call_of(&bob, 2), &at("dir/share/f"), Rights::READ, None).await.works();
    assert!(!why.allowed);
    assert_eq!(why.steps.last().map(|step| step.place.as_str()), Some("/dir"), "or there");
}

#[tokio::test]
async fn a_share_that_is_not_served_is_unavailable_and_its_ids_are_stale() {
    let woven = Woven::fresh().await;
    let site = Site::of(&woven);
    let id = site.file("dir/share/f", b"").await;
    let here = site.file("here", b"").await;
    let member = woven.member();
    assert!(woven.tree().detach(MEMBER) && !woven.tree().detach(MEMBER));
    let (call, none) = (site.call(), Guard::NONE);
    for path in ["dir/share", "dir/share/f", "dir/share/none/x"] {
        let error = site.find(path).await.expect_err("nobody serves it");
        assert_eq!((error.kind(), error.detail()), (ErrorKind::Unavailable, "the share is not served"));
        assert_eq!(error.to_string(), format!("cannot look up /{path}: the share is not served"));
    }
    let over = site.fs.rename(&call, &at("here"), &at("dir/share/f"), Replace::Any, &none).await;
    assert_eq!(over.fails(), ErrorKind::Unavailable);
    let mode = SetAttr { mode: Some(0), ..SetAttr::default() };
    let set = site.fs.set(&call, &at("dir/share"), &mode, &none).await;
    assert_eq!(set.fails(), ErrorKind::Unavailable, "the entry has no attributes of its own to set");
    assert_eq!(site.fs.walk(&call, &At::id(id), Want::default()).await.fails(), ErrorKind::Stale);
    assert_eq!(site.fs.file(&call, id, Rights::READ).await.map(drop).fails(), ErrorKind::Stale);
    assert_eq!(site.fs.link(&call, &At::id(id), &at("x")).await.fails(), ErrorKind::Stale);
    assert_eq!(site.fs.supports(MEMBER), Supports::NOTHING);
    let shown = &page(&site, &call, &at("dir"), Cursor::Start, 9).await.entries[0];
    assert_eq!((shown.id, shown.kind), (woven.junction, Kind::Reference), "the entry is there still");
    assert_eq!(
        site.fs.remove(&call, &at("dir/share"), Expect::Any, &none).await.fails(),
        ErrorKind::NotPermitted
    );
    assert_eq!(site.find("here").await.works(), here);
    woven.tree().attach(MEMBER, woven.junction, member).works();
    assert_eq!(site.find("dir/share/f").await.works(), id);
    assert_eq!(site.fs.supports(MEMBER), site.supports());
}

#[tokio::test]
async fn a_volume_is_seen_at_the_junction_it_was_attached_to_and_nowhere_else() {
    let woven = Woven::fresh().await;
    let site = Site::of(&woven);
    let (managed, call) = (woven.managed(), site.call());
    managed.join(&call, &at("again"), MEMBER).await.works();
    managed.join(&call, &at("unknown"), VolumeId(7)).await.works();
    for path in ["again", "again/x", "unknown"] {
        assert_eq!(site.find(path).await.fails(), ErrorKind::Unavailable, "{path}");
    }
    let again = woven.tree().attach(MEMBER, woven.junction, woven.member());
    assert_eq!(again.fails(), ErrorKind::Exists);
    let root = woven.tree().attach(VolumeId(0), woven.junction, woven.member());
    assert_eq!(root.fails(), ErrorKind::Invalid);
}

#[tokio::test]
async fn joining_needs_insert_and_a_free_name_and_taking_back_needs_remove() {
    let woven = Woven::fresh().await;
    let site = Site::of(&woven);
    let (managed, bob) = (woven.managed(), site.user("bob"));
    let join = async |call: Call, path: &str| managed.join(&call, &at(path), MEMBER).await;
    let unjoin = async |call: Call, junction: FileId| -> Result<()> { managed.unjoin(&call, junction).await };
    assert_eq!(join(site.call(), "dir/share").await.fails(), ErrorKind::Exists);
    assert_eq!(join(site.call(), "").await.fails(), ErrorKind::Exists);
    assert_eq!(managed.join(&site.call(), &at("x"), VolumeId(0)).await.fails(), ErrorKind::Invalid);
    site.allow("dir", &bob, Rights::LIST | Rights::TRAVERSE).await;
    assert_eq!(join(site.call_of(&bob, 2), "dir/his").await.fails(), ErrorKind::Denied);
    assert_eq!(unjoin(site.call_of(&bob, 2), woven.junction).await.fails(), ErrorKind::Denied);
    site.allow("dir", &bob, Rights::INSERT).await;
    let his = join(site.call_of(&bob, 2), "dir/his").await.works();
    site.allow("dir", &bob, Rights::REMOVE).await;
    unjoin(site.call_of(&bob, 2), his).await.works();
    assert_eq!(unjoin(site.call_of(&bob, 2), his).await.fails(), ErrorKind::Stale);
    let file = site.file("dir/f", b"").await;
    assert_eq!(unjoin(site.call(), file).await.fails(), ErrorKind::Invalid);
    unjoin(site.call(), woven.junction).await.works();
    assert_eq!(site.find("dir/share").await.fails(), ErrorKind::NotFound);
    assert_eq!(woven.anchor().places().fails(), ErrorKind::Stale);
    site.file("dir/share", b"a name like others").await;
    let root = site.attr(FileId::root_of(MEMBER)).await;
    assert_eq!(root.kind, Kind::Directory, "by its id the member is reached all the same");
}

#[test]
fn a_junction_and_its_removal_survive_a_power_cut_once_they_are_answered() {
    for seed in 0..8 {
        simulate(seed, |sys| async move {
            let disk = SimDisk::new();
            let (root, _) = volume_on(&sys, &disk, 1, true).await;
            let (first, second) = (joined(&root, "first").await, joined(&root, "second").await);
            drop(root);
            let disk = disk.crash(seed);
            let (root, _) = volume_on(&sys, &disk, 2, false).await;
            let managed = root.running().managed;
            assert_eq!(managed.places(first).works(), [[name("first")]]);
            managed.unjoin(&Site::of(&root).call(), first).await.works();
            drop((managed, root));
            let (root, _) = volume_on(&sys, &disk.crash(seed), 3, false).await;
            let managed = root.running().managed;
            assert_eq!(managed.places(first).fails(), ErrorKind::Stale);
            assert_eq!(managed.places(second).works(), [[name("second")]]);
        });
    }
}

async fn joined(root: &Volume, path: &str) -> FileId {
    root.running().managed.join(&Site::of(root).call(), &at(path), MEMBER).await.works()
}

#[tokio::test]
async fn what_happens_in_a_member_is_told_there() {
    let woven = Woven::fresh().await;
    let site = Site::of(&woven);
    let next = async |path: &str, since| site.fs.watch(&site.call(), &at(path), since).await.works();
    let (root, share) = (next("", ChangeSeq(0)).await.next, ChangeSeq(0));
    let id = site.dir("dir/share/new").await;
    let told = next("dir/share", share).await.changes;
    assert!(told.iter().any(|change| change.file == id));
    let here = site.dir("here").await;
    let told: Vec<FileId> = next("", root).await.changes.iter().map(|change| change.file).collect();
    assert_eq!(told, [here]);
}

#[tokio::test]
async fn a_batch_reaches_every_volume() {
    let woven = Woven::fresh().await;
    let site = Site::of(&woven);
    let walk = |path: &str| Request::Walk { at: at(path), want: Want::default() };
    let replies = site.fs.batch(&site.call(), vec![walk("dir"), walk("dir/share"), walk("none")]).await;
    assert_eq!(replies.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, true, false]);
}

#[tokio::test]
async fn a_record_says_which_volume_a_place_is_of() {
    let woven = Woven::fresh().await;
    let site = Site::of(&woven);
    let (tree, call) = (woven.tree(), site.call());
    let id = site.file("dir/share/f", b"").await;
    let dir = site.find("dir").await.works();
    let found = tree.found(&call, &at("dir/share/f"));
    assert_eq!((found.object, found.container), (Some(id), tree.container_of(&call, id)));
    assert_eq!(found.container.map(weft_core::ContainerId::volume), Some(MEMBER));
    let share = tree.found(&call, &at("dir/share"));
    assert_eq!((share.object, &share.place), (Some(FileId::root_of(MEMBER)), &Some((dir, name("share")))));
    assert!(share.is_about_container(site.attr(dir).await.container), "whoever has the directory may know");
    assert!(tree.settled_by(&call, id).is_some());
    // Behind what he may not pass nothing is looked at.
    let sealed = site.seal("dir").await.container;
    let bob = site.call_of(&site.user("bob"), 2);
    let hidden = tree.found(&bob, &at("dir/share/f"));
    assert_eq!(
        (hidden.object, hidden.container),
        (None, Some(tree.container_of(&call, FileId::ROOT).expect("it is there"))),
        "{sealed}"
    );
    assert!(tree.are_recorded(weft_core::ContainerId::new(VolumeId(9), 1)), "what is not known is recorded");
}
