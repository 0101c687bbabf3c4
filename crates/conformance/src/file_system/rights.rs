//! Laws of rights: what each method needs, what is hidden, what ends a right.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use weft_core::acl::{AclEntry, Condition, Modes, Network, Who};
use weft_core::attr::{SetAttr, SetTime, TagEdit, TagMust, TagName};
use weft_core::form::{
    At, BytesSource, Call, Cursor, Expect, FileSystem, Lock, LockKind, LockOwner, LockScope, PageMax, Range,
    Replace, Scope, StageHint, Wait, Want, Why, WriteAt,
};
use weft_core::policy::PolicyEdit;
use weft_core::proof::{Attenuation, Caller};
use weft_core::{ErrorKind, FileId, RelPath, Result, Rights, Time};

use super::Subject;
use super::locks::soon;
use super::site::*;

/// A method under way.
pub(super) type Trying<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

/// One method, tried on the directory `d`, which holds the file `f` and `g` of mode 0777.
struct Trial {
    name: &'static str,
    /// Sets of rights, any of which is enough; with all rights but one of each, it is refused.
    needs: &'static [Rights],
    act: for<'a> fn(&'a dyn FileSystem, &'a Call, FileId) -> Trying<'a>,
}

macro_rules! trials {
    ($($name:literal needs [$($needs:expr),*]: |$fs:ident, $call:ident, $file:ident| $act:expr;)*) => {
        const TRIALS: &[Trial] = &[$(Trial {
            name: $name,
            needs: &[$($needs),*],
            act: |$fs, $call, $file| Box::pin(async move { let _ = $file; $act.await.map(|_| ()) }),
        }),*];
    };
}

const fn both(a: Rights, b: Rights) -> Rights {
    Rights::from_bits(a.bits() | b.bits())
}

pub(super) const PASS: Rights = Rights::TRAVERSE;
const NO_CHANGE: SetAttr =
    SetAttr { mode: Some(0o770), owner: None, group: None, size: None, atime: None, mtime: None };
pub(super) const CUT: SetAttr =
    SetAttr { size: Some(1), mode: None, owner: None, group: None, atime: None, mtime: None };

async fn reading(fs: &dyn FileSystem, call: &Call, need: Rights) -> Result<()> {
    let opened = fs.open(call, &at("d/f"), &how(need)).await?;
    opened.file.close(call).await
}

async fn publishing(fs: &dyn FileSystem, call: &Call, path: &str) -> Result<()> {
    let stage = fs.stage(call, &at(path), &StageHint::default()).await?;
    stage.put(call, 1, 0, &mut BytesSource::new(&b"x"[..])).await?;
    stage.publish(call, &[], &SetAttr::default(), &free()).await.map(|_| ())
}

fn tagging() -> [TagEdit; 1] {
    [TagEdit::Put { name: TagName::new("t").works(), value: Bytes::new(), must: TagMust::Any }]
}

fn whole_lock() -> Lock {
    Lock { scope: LockScope::Whole, kind: LockKind::Shared, owner: LockOwner(Bytes::new()) }
}

trials! {
    "list" needs [Rights::LIST]: |fs, call, file| fs.list(call, &at("d"), Cursor::Start, PageMax::MAX, Want::default());
    "make" needs [both(PASS, Rights::INSERT)]: |fs, call, file| fs.make(call, &at("d/n"), new_file(), &NO_CHANGE);
    "link" needs [both(PASS, both(Rights::ATTR_WRITE, Rights::INSERT))]: |fs, call, file| fs.link(call, &at("d/f"), &at("d/n"));
    "remove" needs [both(PASS, Rights::REMOVE)]: |fs, call, file| fs.remove(call, &at("d/f"), Expect::Any, &weft_core::form::Guard::NONE);
    "rename" needs [both(PASS, Rights::RENAME), both(PASS, both(Rights::INSERT, Rights::REMOVE))]:
        |fs, call, file| fs.rename(call, &at("d/f"), &at("d/n"), Replace::Never, &weft_core::form::Guard::NONE);
    "set mode" needs [both(PASS, Rights::ATTR_WRITE)]: |fs, call, file| fs.set(call, &at("d/f"), &NO_CHANGE, &weft_core::form::Guard::NONE);
    "set size" needs [both(PASS, Rights::WRITE)]: |fs, call, file| fs.set(call, &at("d/f"), &CUT, &weft_core::form::Guard::NONE);
    "tags" needs [both(PASS, Rights::ATTR_READ)]: |fs, call, file| fs.tags(call, &at("d/f"), None);
    "tag" needs [both(PASS, Rights::ATTR_WRITE)]: |fs, call, file| async move { fs.tag(call, &at("d/f"), &tagging(), &free()).await };
    "policy" needs [Rights::ACL_READ]: |fs, call, file| fs.policy(call, &at("d"));
    "protect" needs [Rights::ACL_WRITE]: |fs, call, file| async move {
        let edit = PolicyEdit { bytes_max: Some(None), ..PolicyEdit::default() };
        fs.protect(call, &at("d"), Scope::Container, &edit).await
    };
    "open to read" needs [both(PASS, Rights::READ)]: |fs, call, file| reading(fs, call, Rights::READ);
    "open to write" needs [both(PASS, Rights::WRITE)]: |fs, call, file| reading(fs, call, Rights::WRITE);
    "open to append" needs [both(PASS, Rights::APPEND)]: |fs, call, file| reading(fs, call, Rights::APPEND);
    "open to run" needs [both(PASS, Rights::EXECUTE)]: |fs, call, file| reading(fs, call, Rights::EXECUTE);
    "file by id" needs [Rights::READ]: |fs, call, file| fs.file(call, file, Rights::READ);
    "copy" needs [both(PASS, both(Rights::READ, Rights::WRITE))]:
        |fs, call, file| fs.copy(call, &at("d/f"), Range::ALL, &at("d/g"), 0);
    "publish a new name" needs [both(PASS, Rights::INSERT)]: |fs, call, file| publishing(fs, call, "d/n");
    "publish over a file" needs [both(PASS, Rights::WRITE)]: |fs, call, file| publishing(fs, call, "d/f");
    "lock" needs [both(PASS, Rights::LOCK)]: |fs, call, file| async move { fs.lock(call, &at("d/f"), &whole_lock(), Wait::No).await };
}

pub(super) async fn prepare(site: &Site<'_>, user: &Caller, rights: Rights) -> FileId {
    let open = SetAttr { mode: Some(0o777), ..SetAttr::default() };
    if site.find("d").await.is_ok() {
        for entry in site.scan(site.find("d").await.works(), 100).await {
            let place = at("d").path.join(&entry.name).works();
            site.fs.remove(&site.call(), &At::root(place), Expect::Any, &free()).await.works();
        }
        site.fs.remove(&site.call(), &at("d"), Expect::Directory, &free()).await.works();
    }
    site.fs.make(&site.call(), &at("d"), weft_core::form::New::Directory, &open).await.works();
    let mut file = FileId::ROOT;
    for path in ["d/g", "d/f"] {
        file = site.fs.make(&site.call(), &at(path), new_file(), &open).await.works().value.id;
        site.write(file, 0, b"bytes").await;
    }
    site.seal("d").await;
    site.allow("d", user, rights).await;
    file
}

/// Each method works with exactly the rights it needs.
pub async fn each_method_works_with_exactly_what_it_needs(subject: &dyn Subject) {
    let site = Site::of(subject);
    let user = site.user("alice");
    for trial in TRIALS.iter().filter(|trial| tried(&site, trial)) {
        for needs in trial.needs {
            let file = prepare(&site, &user, *needs).await;
            let answer = (trial.act)(&*site.fs, &site.call_of(&user, 2), file).await;
            assert!(answer.is_ok(), "{} with {needs}: {answer:?}", trial.name);
        }
    }
}

/// Each method is refused with every right but one that it needs, and changes nothing.
pub async fn each_method_is_refused_without_one_right_it_needs(subject: &dyn Subject) {
    let site = Site::of(subject);
    let user = site.user("alice");
    for trial in TRIALS.iter().filter(|trial| tried(&site, trial)) {
        let [first, ways @ ..] = trial.needs else { panic!("a trial needs something") };
        for (_, right) in first.each() {
            // Where there are several ways in, each loses what is not in this one.
            let others =
                ways.iter().filter(|way| !way.contains(right)).fold(Rights::NONE, |all, way| all | *way);
            let left = Rights::ALL - right - (others - *first);
            let file = prepare(&site, &user, left).await;
            let before = (site.attr(file).await.change, site.names(site.find("d").await.works()).await);
            let answer = (trial.act)(&*site.fs, &site.call_of(&user, 2), file).await;
            let kind = answer.as_ref().map_err(|e| e.kind()).err();
            assert_eq!(kind, Some(ErrorKind::Denied), "{} without {right}: {answer:?}", trial.name);
            let after = (site.attr(file).await.change, site.names(site.find("d").await.works()).await);
            assert_eq!(before, after, "{} without {right} changed something", trial.name);
        }
    }
}

fn tried(site: &Site<'_>, trial: &Trial) -> bool {
    let supports = site.supports();
    match trial.name {
        "link" => supports.links,
        "tags" | "tag" => supports.tags,
        "lock" => supports.locks,
        _ => true,
    }
}

/// Without `list` or `traverse` on the directory and any right on the thing, it does
/// not exist: what is there and what is not are answered alike, by path and by id.
pub async fn what_a_caller_may_not_know_of_does_not_exist(subject: &dyn Subject) {
    let site = Site::of(subject);
    site.dir("secret").await;
    let file = site.file("secret/there", b"bytes").await;
    site.seal("secret").await;
    let user = site.user("alice");
    let call = site.call_of(&user, 2);
    let kinds = |path: &'static str| {
        let (fs, call) = (&site.fs, &call);
        async move {
            let none = SetAttr::default();
            [
                fs.walk(call, &at(path), Want::default()).await.map(|_| ()).fails(),
                fs.open(call, &at(path), &how(Rights::READ)).await.map(|_| ()).fails(),
                fs.remove(call, &at(path), Expect::Any, &free()).await.map(|_| ()).fails(),
                fs.make(call, &at(path), new_file(), &none).await.map(|_| ()).fails(),
                fs.tags(call, &at(path), None).await.map(|_| ()).fails(),
            ]
        }
    };
    assert_eq!(kinds("secret/there").await, [ErrorKind::NotFound; 5]);
    assert_eq!(kinds("secret/there").await, kinds("secret/not-there").await);
    assert_eq!(kinds("secret/there/below").await, [ErrorKind::NotFound; 5]);
    let by_id = site.fs.walk(&call, &At::id(file), Want::default()).await.map(|_| ());
    assert_eq!(by_id.fails(), ErrorKind::NotFound);
    let by_id = site.fs.file(&call, file, Rights::READ).await.map(|_| ());
    assert_eq!(by_id.fails(), ErrorKind::NotFound);
    site.allow("secret", &user, Rights::TRAVERSE).await;
    assert_eq!(
        site.fs.walk(&call, &at("secret/not-there"), Want::default()).await.fails(),
        ErrorKind::NotFound
    );
    let read = site.fs.open(&call, &at("secret/there"), &how(Rights::READ)).await.map(|_| ());
    assert_eq!(read.fails(), ErrorKind::Denied, "who may look it up may know of it");
}

/// Names may be listed without being looked into: what is listed is `Denied`, not hidden.
pub async fn what_is_listed_is_denied_and_not_hidden(subject: &dyn Subject) {
    let site = Site::of(subject);
    let (user, anyone) = (site.user("alice"), Caller::anyone());
    site.dir("d").await;
    let inner = site.dir("d/inner").await;
    site.seal("d/inner").await;
    site.allow("d", &user, Rights::LIST | Rights::TRAVERSE).await;
    let call = site.call_of(&user, 2);
    assert_eq!(site.fs.walk(&call, &at("d/inner"), Want::default()).await.fails(), ErrorKind::Denied);
    let list = site.fs.list(&call, &At::id(inner), Cursor::Start, PageMax::MAX, Want::default()).await;
    assert_eq!(list.fails(), ErrorKind::Denied);
    let hidden = site.fs.walk(&site.call_of(&anyone, 3), &at("d/inner"), Want::default()).await;
    assert_eq!(hidden.fails(), ErrorKind::NotFound);
}

/// A listing shows attributes only of what the caller may see.
pub async fn a_listing_shows_attributes_of_what_may_be_seen(subject: &dyn Subject) {
    let site = Site::of(subject);
    let user = site.user("alice");
    site.dir("d").await;
    site.file("d/open", b"").await;
    site.dir("d/closed").await;
    site.seal("d/closed").await;
    site.allow("d", &user, Rights::READING).await;
    let want = Want { attr: true, rights: false };
    let page =
        site.fs.list(&site.call_of(&user, 2), &at("d"), Cursor::ByName, PageMax::MAX, want).await.works();
    let shown: Vec<bool> = page.entries.iter().map(|entry| entry.attr.is_some()).collect();
    assert_eq!(shown, [false, true]);
}

/// A negative entry wins over any positive one.
pub async fn a_negative_entry_wins(subject: &dyn Subject) {
    let site = Site::of(subject);
    let user = site.user("alice");
    site.file("f", b"bytes").await;
    let deny = AclEntry::deny(who(&user), Rights::WRITE);
    site.grant("f", vec![deny, AclEntry::allow(Who::Anyone, Rights::WRITING)]).await;
    let call = site.call_of(&user, 2);
    reading_of(&site, &call, "f").await.works();
    let write = site.fs.open(&call, &at("f"), &how(Rights::WRITE)).await.map(|_| ());
    assert_eq!(write.fails(), ErrorKind::Denied);
    let other = site.call_of(&Caller::anyone(), 3);
    site.fs.open(&other, &at("f"), &how(Rights::WRITE)).await.map(|_| ()).works();
}

async fn reading_of(site: &Site<'_>, call: &Call, path: &str) -> Result<Bytes> {
    let opened = site.fs.open(call, &at(path), &how(Rights::READ)).await?;
    read_of(&*opened.file, call, Range::ALL).await
}

/// Groups, domains and anyone are meant as such.
pub async fn entries_mean_groups_domains_and_anyone(subject: &dyn Subject) {
    let site = Site::of(subject);
    let domain = subject.domain();
    let team = domain.name("group:alice/team");
    let (member, other) = (domain.caller_in("bob", &[team.id()]), domain.caller("carol"));
    for path in ["team", "domain", "anyone"] {
        site.file(path, b"bytes").await;
    }
    site.grant("team", vec![AclEntry::allow(Who::Caller(team), Rights::READING)]).await;
    site.grant("domain", vec![AclEntry::allow(Who::Domain(domain.id()), Rights::READING)]).await;
    site.grant("anyone", vec![AclEntry::allow(Who::Anyone, Rights::READING)]).await;
    for (caller, allowed) in
        [(member, [true, true, true]), (other, [false, true, true]), (Caller::anyone(), [false, false, true])]
    {
        for (path, allowed) in ["team", "domain", "anyone"].into_iter().zip(allowed) {
            let read = reading_of(&site, &site.call_of(&caller, 2), path).await;
            assert_eq!(read.is_ok(), allowed, "{caller:?} {path}");
        }
    }
}

/// Mode bits narrow the ACL, the owner's for everybody by default, and never widen it.
pub async fn mode_bits_narrow_and_never_widen(subject: &dyn Subject) {
    let site = Site::of(subject);
    let user = site.user("alice");
    let id = site.file("f", b"bytes").await;
    site.allow("f", &user, Rights::READING).await;
    let mode = |mode: u16| {
        let site = &site;
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        async move { site.fs.set(&site.call(), &At::id(id), &set, &free()).await.works() }
    };
    let call = site.call_of(&user, 2);
    mode(0o400).await;
    reading_of(&site, &call, "f").await.works();
    mode(0o077).await;
    assert_eq!(reading_of(&site, &call, "f").await.fails(), ErrorKind::Denied);
    assert_eq!(reading_of(&site, &site.call(), "f").await.fails(), ErrorKind::Denied);
    mode(0o777).await;
    let write = site.fs.open(&call, &at("f"), &how(Rights::WRITE)).await.map(|_| ());
    assert_eq!(write.fails(), ErrorKind::Denied, "modes give nothing");
    let edit = PolicyEdit { modes: Some(Modes::Classes), ..PolicyEdit::default() };
    site.fs.protect(&site.call(), &at("f"), Scope::Container, &edit).await.works();
    mode(0o604).await;
    reading_of(&site, &call, "f").await.works();
    mode(0o640).await;
    assert_eq!(reading_of(&site, &call, "f").await.fails(), ErrorKind::Denied, "others' bits count now");
    reading_of(&site, &site.call(), "f").await.works();
}

/// Where classes count, the mode is the owner's to change, and to say that a file was used now takes who may write it.
pub async fn where_classes_count_the_mode_is_the_owners(subject: &dyn Subject) {
    let site = Site::of(subject);
    let user = site.user("alice");
    site.file("f", b"bytes").await;
    site.allow("f", &user, Rights::READING | Rights::WRITING).await;
    let call = site.call_of(&user, 2);
    let set = async |set: &SetAttr| site.fs.set(&call, &at("f"), set, &free()).await.map(|_| ());
    let (open, shut) = (mode(0o666), mode(0o644));
    let now = SetAttr { atime: Some(SetTime::Now), mtime: Some(SetTime::Now), ..SetAttr::default() };
    let half = SetAttr { atime: None, ..now.clone() };
    let classes = async |modes| {
        let edit = PolicyEdit { modes: Some(modes), ..PolicyEdit::default() };
        site.fs.protect(&site.call(), &at("f"), Scope::Container, &edit).await.works();
    };
    set(&shut).await.works();
    set(&half).await.works();
    classes(Modes::Classes).await;
    assert_eq!(set(&open).await.fails(), ErrorKind::NotPermitted);
    assert_eq!(set(&shut).await.fails(), ErrorKind::NotPermitted, "as it is, too");
    assert_eq!(set(&now).await.fails(), ErrorKind::Denied, "others may not write it");
    site.fs.set(&site.call(), &at("f"), &mode(0o6666), &free()).await.works();
    set(&now).await.works();
    assert_eq!(set(&half).await.fails(), ErrorKind::NotPermitted);
    assert_eq!(set(&mode(0o4644)).await.fails(), ErrorKind::NotPermitted);
    assert_eq!(set(&mode(0o7666)).await.fails(), ErrorKind::NotPermitted);
    set(&open).await.works();
    classes(Modes::Owner).await;
    set(&shut).await.works();
}

/// Where classes count, that a directory was used now takes who may bring something into it.
pub async fn where_classes_count_a_directory_is_used_by_who_may_bring_something(subject: &dyn Subject) {
    let site = Site::of(subject);
    let user = site.user("alice");
    site.dir("d").await;
    site.allow("d", &user, Rights::INSERT | Rights::ATTR_WRITE).await;
    let edit = PolicyEdit { modes: Some(Modes::Classes), ..PolicyEdit::default() };
    site.fs.protect(&site.call(), &at("d"), Scope::Container, &edit).await.works();
    let now = SetAttr { atime: Some(SetTime::Now), mtime: Some(SetTime::Now), ..SetAttr::default() };
    for (bits, answer) in [(0o755, Some(ErrorKind::Denied)), (0o757, None)] {
        site.fs.set(&site.call(), &at("d"), &mode(bits), &free()).await.works();
        let said = site.fs.set(&site.call_of(&user, 2), &at("d"), &now, &free()).await;
        assert_eq!(said.err().map(|error| error.kind()), answer, "{bits:o}");
    }
}

fn mode(mode: u16) -> SetAttr {
    SetAttr { mode: Some(mode), ..SetAttr::default() }
}

/// A mode changed under an open file does not end the open; a later open is bound.
pub async fn a_mode_changed_later_does_not_end_an_open(subject: &dyn Subject) {
    let site = Site::of(subject);
    site.file("f", b"bytes").await;
    let open = site.open("f", Rights::READ).await.file;
    let set = SetAttr { mode: Some(0), ..SetAttr::default() };
    site.fs.set(&site.call(), &at("f"), &set, &free()).await.works();
    assert_eq!(read_of(&*open, &site.call(), Range::ALL).await.works(), &b"bytes"[..]);
    assert_eq!(reading_of(&site, &site.call(), "f").await.fails(), ErrorKind::Denied);
}

/// A changed ACL takes effect on open files, in both directions, at once.
pub async fn a_changed_acl_takes_effect_on_open_files(subject: &dyn Subject) {
    let site = Site::of(subject);
    let (alice, bob) = (site.user("alice"), site.user("bob"));
    site.file("f", b"bytes").await;
    site.allow("f", &alice, Rights::READING).await;
    site.allow("f", &bob, Rights::READING).await;
    let (hers, his) = (site.call_of(&alice, 2), site.call_of(&bob, 3));
    let open = site.fs.open(&hers, &at("f"), &how(Rights::READ)).await.works().file;
    let other = site.fs.open(&his, &at("f"), &how(Rights::READ)).await.works().file;
    read_of(&*open, &hers, Range::ALL).await.works();
    site.forbid("f", &alice).await;
    read_of(&*open, &hers, Range::ALL).await.fails();
    read_of(&*other, &his, Range::ALL).await.works();
    site.allow("f", &alice, Rights::READING).await;
    read_of(&*open, &hers, Range::ALL).await.works();
}

/// A source stops between pieces when the ACL takes the right away, and `stopped`
/// tells; a reader who keeps the right goes on.
pub async fn a_running_read_stops_when_the_right_goes(subject: &dyn Subject) {
    let site = Site::of(subject);
    let (alice, bob) = (site.user("alice"), site.user("bob"));
    site.file("f", &pattern(3 << 20, 1)).await;
    site.allow("f", &alice, Rights::READING).await;
    site.allow("f", &bob, Rights::READING).await;
    let mut sources = Vec::new();
    for (caller, session) in [(&alice, 2), (&bob, 3)] {
        let call = site.call_of(caller, session);
        let opened = site.fs.open(&call, &at("f"), &how(Rights::READ)).await.works();
        let mut source = opened.file.read(&call, Range::ALL).await.works();
        source.next(1000).await.works();
        sources.push((source, opened));
    }
    let stopped = sources[0].0.stopped();
    site.forbid("f", &alice).await;
    assert_eq!(soon(stopped).await.kind(), ErrorKind::Revoked);
    assert_eq!(sources[0].0.next(1000).await.map(|_| ()).fails(), ErrorKind::Revoked);
    let mut left = (3 << 20) - 1000;
    while let Some(piece) = sources[1].0.next(1 << 20).await.works() {
        left -= piece.length();
    }
    assert_eq!(left, 0, "who keeps the right reads to the end");
}

/// A revoked credential stops its running reads and writes and every later call.
pub async fn a_revoked_credential_stops_everything_of_its_caller(subject: &dyn Subject) {
    let site = Site::of(subject);
    let alice = site.user("alice");
    let id = site.file("f", &pattern(3 << 20, 1)).await;
    site.allow("f", &alice, Rights::WRITING).await;
    let call = site.call_of(&alice, 2);
    let opened = site.fs.open(&call, &at("f"), &how(Rights::READ | Rights::WRITE)).await.works();
    let mut source = opened.file.read(&call, Range::ALL).await.works();
    source.next(1000).await.works();
    let stopped = source.stopped();
    let until = subject.domain().clock().now().plus(Duration::from_secs(3600));
    subject.domain().revocations().end_credential(alice.credential(), until);
    assert_eq!(soon(stopped).await.kind(), ErrorKind::Revoked);
    assert_eq!(source.next(1000).await.map(|_| ()).fails(), ErrorKind::Revoked);
    let write = write_to(&*opened.file, &call, WriteAt::Offset(0), b"x").await;
    assert_eq!(write.fails(), ErrorKind::Revoked);
    let walk = site.fs.walk(&call, &At::id(id), Want::default()).await;
    assert_eq!(walk.fails(), ErrorKind::Revoked);
    let fresh = site.user("alice");
    reading_of(&site, &site.call_of(&fresh, 4), "f").await.works();
}

/// An expired credential can do nothing more, and its running reads end.
pub async fn an_expired_credential_can_do_nothing_more(subject: &dyn Subject) {
    let site = Site::of(subject);
    site.file("f", &pattern(2 << 20, 1)).await;
    site.grant("f", vec![AclEntry::allow(Who::Anyone, Rights::READING)]).await;
    let mut claims = subject.domain().claims("alice");
    // The skew that two clocks may differ by is part of every lease.
    let skew = weft_core::limits::CLOCK_SKEW_MAX;
    let life = Duration::from_millis(300);
    claims.expires = Time::from_nanos(claims.issued.nanos() - skew.as_nanos() as i64).plus(life);
    let alice = subject.domain().caller_with(&claims);
    let call = site.call_of(&alice, 2);
    let opened = site.fs.open(&call, &at("f"), &how(Rights::READ)).await.works();
    let mut source = opened.file.read(&call, Range::ALL).await.works();
    source.next(1000).await.works();
    subject.pass(life * 2).await;
    assert_eq!(source.next(1000).await.map(|_| ()).fails(), ErrorKind::Expired);
    assert_eq!(site.find_as(&call, "f").await.fails(), ErrorKind::Expired);
    assert_eq!(read_of(&*opened.file, &call, Range::ALL).await.fails(), ErrorKind::Expired);
}

/// A call whose deadline has passed is not begun.
pub async fn a_call_past_its_deadline_is_not_begun(subject: &dyn Subject) {
    let site = Site::of(subject);
    let mut call = site.call();
    call.until = weft_core::Deadline(subject.domain().clock().tick());
    subject.pass(Duration::from_millis(2)).await;
    let made = site.fs.make(&call, &at("f"), new_file(), &SetAttr::default()).await;
    assert_eq!(made.fails(), ErrorKind::Deadline);
    assert!(site.names(FileId::ROOT).await.is_empty());
}

/// A conditional entry counts only while its condition holds, also under an open file.
pub async fn a_condition_counts_while_it_holds(subject: &dyn Subject) {
    let site = Site::of(subject);
    if !subject.carries_origin() {
        return site.unsupported("an origin that the client names");
    }
    let alice = site.user("alice");
    site.file("f", b"bytes").await;
    let span = Duration::from_millis(400);
    let until = subject.domain().clock().now().plus(span);
    let near: Network = "10.0.0.0/8".parse().works();
    let when = vec![Condition::Until(until), Condition::Network(near)];
    let entry = AclEntry { when, ..AclEntry::allow(who(&alice), Rights::READING) };
    site.grant("f", vec![entry]).await;
    let mut call = site.call_of(&alice, 2);
    reading_of(&site, &call, "f").await.fails();
    call.from.peer = Some("192.0.2.1".parse().expect("an address"));
    reading_of(&site, &call, "f").await.fails();
    call.from.peer = Some("10.1.2.3".parse().expect("an address"));
    let opened = site.fs.open(&call, &at("f"), &how(Rights::READ)).await.works();
    let mut source = opened.file.read(&call, Range::ALL).await.works();
    read_of(&*opened.file, &call, Range::ALL).await.works();
    subject.pass(span * 2).await;
    source.next(10).await.map(|_| ()).fails();
    read_of(&*opened.file, &call, Range::ALL).await.fails();
}

fn limited(subject: &dyn Subject, limits: Attenuation) -> Caller {
    let mut claims = subject.domain().claims(super::ADMINISTRATOR);
    claims.limits = limits;
    subject.domain().caller_with(&claims)
}

/// A credential limited to a path reaches what lies there, by path and by id, and
/// nothing else, not even through links or by renaming.
pub async fn a_credential_limited_to_a_path_reaches_nothing_else(subject: &dyn Subject) {
    let site = Site::of(subject);
    for dir in ["in", "in/deep", "out", "inside"] {
        site.dir(dir).await;
    }
    let inner = site.file("in/deep/f", b"inner").await;
    let outer = site.file("out/f", b"outer").await;
    site.file("inside/f", b"a name that only begins alike").await;
    site.symlink("in/escape", "../out").await;
    let paths = vec![RelPath::try_from("in/deep").works(), RelPath::try_from("in/escape").works()];
    let caller = limited(subject, Attenuation { paths, ..Attenuation::default() });
    let call = site.call_of(&caller, 2);
    assert_eq!(reading_of(&site, &call, "in/deep/f").await.works(), &b"inner"[..]);
    site.fs.walk(&call, &At::id(inner), Want::default()).await.works();
    site.fs.make(&call, &at("in/deep/new"), new_file(), &SetAttr::default()).await.works();
    for path in ["out/f", "inside/f", "in/escape/f"] {
        refused(reading_of(&site, &call, path).await.map(|_| ()), path);
    }
    refused(site.fs.walk(&call, &At::id(outer), Want::default()).await.map(|_| ()), "an id outside");
    refused(site.fs.file(&call, outer, Rights::READ).await.map(|_| ()), "a file outside");
    let list = site.fs.list(&call, &at(""), Cursor::Start, PageMax::MAX, Want::default()).await;
    refused(list.map(|_| ()), "listing above");
    let make = site.fs.make(&call, &at("in/new"), new_file(), &SetAttr::default()).await;
    refused(make.map(|_| ()), "making above");
    let any = Replace::Any;
    let out = site.fs.rename(&call, &at("in/deep/f"), &at("out/g"), any, &free()).await;
    refused(out, "renaming out");
    let within = site.fs.rename(&call, &at("out/f"), &at("in/deep/g"), any, &free()).await;
    refused(within, "renaming in");
    if site.supports().links {
        let link = site.fs.link(&call, &at("out/f"), &at("in/deep/g")).await;
        refused(link.map(|_| ()), "linking in");
    }
    assert_eq!(site.read(outer).await, &b"outer"[..]);
}

/// Demands that something was refused, by either of the answers that a refusal has.
#[track_caller]
pub(super) fn refused<T>(answer: Result<T>, what: &str) {
    let kind = answer.map(|_| ()).map_err(|error| error.kind());
    assert!(matches!(kind, Err(ErrorKind::Denied | ErrorKind::NotFound)), "{what}: {kind:?}");
}

/// A file that is moved out of a limited credential's path is out of its reach.
pub async fn what_leaves_a_limited_path_is_out_of_reach(subject: &dyn Subject) {
    let site = Site::of(subject);
    site.dir("in").await;
    let id = site.file("in/f", b"bytes").await;
    let paths = vec![RelPath::try_from("in").works()];
    let caller = limited(subject, Attenuation { paths, ..Attenuation::default() });
    let call = site.call_of(&caller, 2);
    let file = site.fs.file(&call, id, Rights::READ).await.works();
    read_of(&*file, &call, Range::ALL).await.works();
    site.fs.rename(&site.call(), &at("in/f"), &at("f"), Replace::Any, &free()).await.works();
    refused(read_of(&*file, &call, Range::ALL).await, "it left");
    site.fs.rename(&site.call(), &at("f"), &at("in/g"), Replace::Any, &free()).await.works();
    read_of(&*file, &call, Range::ALL).await.works();
}

/// A credential limited to operations, hosts or a time carries nothing beyond.
pub async fn a_credential_limited_otherwise_carries_nothing_beyond(subject: &dyn Subject) {
    let site = Site::of(subject);
    if !subject.carries_origin() {
        return site.unsupported("an origin that the client names");
    }
    site.file("f", b"bytes").await;
    let rights = limited(subject, Attenuation { rights: Rights::READING, ..Attenuation::default() });
    let call = site.call_of(&rights, 2);
    reading_of(&site, &call, "f").await.works();
    let write = site.fs.open(&call, &at("f"), &how(Rights::WRITE)).await.map(|_| ());
    assert_eq!(write.fails(), ErrorKind::Denied);
    let hosts = vec!["10.0.0.0/8".parse().works()];
    let host = limited(subject, Attenuation { hosts, ..Attenuation::default() });
    let mut call = site.call_of(&host, 3);
    refused(reading_of(&site, &call, "f").await, "no address");
    call.from.peer = Some("192.0.2.1".parse().expect("an address"));
    refused(reading_of(&site, &call, "f").await, "another address");
    call.from.peer = Some("10.9.9.9".parse().expect("an address"));
    reading_of(&site, &call, "f").await.works();
    let from = subject.domain().clock().now().plus(Duration::from_millis(200));
    let later = limited(subject, Attenuation { from, ..Attenuation::default() });
    let call = site.call_of(&later, 4);
    refused(reading_of(&site, &call, "f").await, "too early");
    subject.pass(Duration::from_millis(300)).await;
    reading_of(&site, &call, "f").await.works();
}

/// Why is answered as it is decided: allowed with the entry, refused with what lacks.
pub async fn why_answers_what_is_decided(subject: &dyn Subject) {
    let site = Site::of(subject);
    let alice = site.user("alice");
    site.dir("d").await;
    site.file("d/f", b"").await;
    site.allow("d", &alice, Rights::READING).await;
    let call = site.call_of(&alice, 2);
    for need in [Rights::READ, Rights::WRITE, Rights::READ | Rights::WRITE] {
        let why = site.fs.why(&call, &at("d/f"), need, None).await.works();
        let open = site.fs.open(&call, &at("d/f"), &how(need)).await;
        assert_eq!(why.allowed, open.is_ok(), "{need}");
        assert_eq!(&why.caller, alice.name());
        let last = why.steps.last().expect("there is a decision");
        assert_eq!((last.needed, last.allowed), (need, need & Rights::READ));
        assert!(!last.because.is_empty());
    }
    site.dir("secret").await;
    site.file("secret/f", b"").await;
    site.seal("secret").await;
    let shown = |path: &'static str| {
        let (fs, call) = (&site.fs, &call);
        async move {
            let why = fs.why(call, &at(path), Rights::READ, None).await;
            why.map(|why| (why.allowed, why.steps)).map_err(|error| error.kind())
        }
    };
    let (there, not) = (shown("secret/f").await, shown("secret/none").await);
    assert_eq!(there, not, "why tells nothing of what is hidden");
    assert!(!matches!(there, Ok((true, _))));
    let other = site.fs.why(&call, &at("d/f"), Rights::READ, Some(site.admin.name().clone())).await;
    assert_eq!(other.map(|_| ()).fails(), ErrorKind::Denied, "asking about others needs acl-read");
}

/// For somebody else it is answered to whoever may change the ACL, by name and the groups it is
/// in, and as that caller itself finds it.
pub async fn why_answers_for_others_to_whoever_administers(subject: &dyn Subject) {
    let site = Site::of(subject);
    let domain = subject.domain();
    let team = domain.name("group:administrator/team");
    let (bob, carol) = (domain.caller_in("bob", &[team.id()]), site.user("carol"));
    let (alice, reader) = (site.user("alice"), site.user("reader"));
    site.dir("d").await;
    site.file("d/f", b"bytes").await;
    site.grant(
        "d",
        vec![
            AclEntry::allow(Who::Caller(team), Rights::READING),
            AclEntry::allow(who(&carol), Rights::READING),
            AclEntry::deny(who(&carol), Rights::READ),
            AclEntry::allow(who(&alice), Rights::ALL),
            AclEntry::allow(who(&reader), Rights::READING | Rights::ACL_READ),
        ],
    )
    .await;
    let ask = |asker: &Caller, about: &Caller, need: Rights| {
        let (fs, call, about) = (site.fs.clone(), site.call_of(asker, 2), about.name().clone());
        async move { fs.why(&call, &at("d/f"), need, Some(about)).await }
    };
    for (person, session) in [(&bob, 3), (&carol, 4)] {
        for need in [Rights::READ, Rights::EXECUTE, Rights::WRITE] {
            let itself = site.fs.why(&site.call_of(person, session), &at("d/f"), need, None).await.works();
            let why = ask(&site.admin, person, need).await.works();
            assert_eq!((why.allowed, &why.caller), (itself.allowed, person.name()), "{need}");
            let allowed =
                |why: &Why| why.steps.iter().map(|s| (s.place.clone(), s.allowed)).collect::<Vec<_>>();
            assert_eq!(allowed(&why), allowed(&itself), "{need}");
        }
    }
    let said = ask(&site.admin, &carol, Rights::READ).await.works();
    let last = said.steps.last().expect("there is a decision");
    assert!(last.because[0].contains("withholds"), "{:?}", last.because);
    // Of what lies above and is not hers to administer, she is told nothing.
    let hers = ask(&alice, &bob, Rights::READ).await.works();
    assert!(hers.allowed && hers.steps.iter().all(|step| step.place != "/"), "{:?}", hers.steps);
    assert_eq!(ask(&reader, &bob, Rights::READ).await.map(drop).fails(), ErrorKind::Denied);
    assert_eq!(ask(&bob, &carol, Rights::READ).await.map(drop).fails(), ErrorKind::Denied);
    ask(&bob, &bob, Rights::READ).await.works();
}
