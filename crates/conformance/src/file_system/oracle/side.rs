//! One of the two sides: performs operations and shows answers in words that are the
//! same on both if both behave alike.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use weft_core::acl::{AclEntry, Effect, Modes, Who};
use weft_core::attr::{Attr, Changed, Kind, SetAttr, SetTime, TagEdit, TagMust, TagName};
use weft_core::form::{
    At, BytesSource, Call, Cursor, Entry, Follow, Guard, LinkTarget, Lock, LockKind, LockOwner, LockRange,
    LockScope, Make, New, OpenFile, OpenHow, PageMax, Pin, Range, Shape, StageHint, VersionIs, Wait, Want,
    WriteAt,
};
use weft_core::policy::PolicyEdit;
use weft_core::proof::Caller;
use weft_core::{
    CallerId, ContainerId, ErrorKind, FileId, RelPath, RequestId, Result, Rights, SessionId, Time,
};

use super::AnyFs;
use super::op::{Act, Check, Counts, Op, Place, Thing};
use crate::TestDomain;
use crate::file_system::ADMINISTRATOR;
use crate::file_system::site::{Outcome, read_of, write_to};

const USERS: &[&str] = &[ADMINISTRATOR, "alice", "bob"];

/// One side of the comparison.
pub(super) struct Side {
    pub(super) fs: AnyFs,
    domain: Arc<TestDomain>,
    users: Vec<Caller>,
    /// Rises when all sessions end: their ids must not come again.
    life: u128,
    ids: Vec<FileId>,
    containers: Vec<ContainerId>,
    opens: Vec<Arc<dyn OpenFile>>,
    /// The last change that was asked for once, to be asked for again.
    last: Option<Op>,
    /// What each version's bytes were.
    versions: HashMap<(FileId, u128), digest::Digest>,
}

/// A digest of bytes, to compare versions by.
mod digest {
    use std::hash::{DefaultHasher, Hash, Hasher};

    pub(super) type Digest = u64;

    pub(super) fn of(bytes: &[u8]) -> Digest {
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        hasher.finish()
    }
}

impl Side {
    pub(super) fn new(fs: AnyFs, domain: Arc<TestDomain>) -> Self {
        let users = USERS.iter().map(|user| domain.caller(user)).collect();
        Self {
            fs,
            domain,
            users,
            life: 1,
            ids: vec![FileId::ROOT],
            containers: Vec::new(),
            opens: Vec::new(),
            last: None,
            versions: HashMap::new(),
        }
    }

    pub(super) fn counts(&self) -> Counts {
        Counts { ids: self.ids.len(), opens: self.opens.len(), users: USERS.len() }
    }

    fn session(&self, user: usize) -> u128 {
        self.life * 100 + user as u128
    }

    /// Returns every session that operations were made in.
    pub(super) fn sessions(&self) -> Vec<SessionId> {
        (0..USERS.len()).map(|user| SessionId(self.session(user))).collect()
    }

    /// Goes on with new sessions, over the file system as it is now.
    pub(super) fn begin_again(&mut self, fs: AnyFs) {
        self.fs = fs;
        self.life += 1;
        self.opens.clear();
        self.last = None;
    }

    fn call(&self, op: &Op) -> Call {
        let mut call = self.domain.call(&self.users[op.by.user], self.session(op.by.user));
        call.once = op.by.once.map(RequestId);
        call
    }

    fn admin(&self) -> Call {
        self.domain.call(&self.users[0], self.session(0))
    }

    fn at(&self, place: &Place) -> At {
        let path = RelPath::try_from(place.path.as_str()).works();
        let follow = if place.follow { Follow::Last } else { Follow::Never };
        At { base: self.ids[place.base % self.ids.len()], path, follow }
    }

    async fn guard(&self, check: Check, place: &Place) -> Guard {
        let now = async {
            let found = self.fs.walk(&self.admin(), &self.at(place), Want::default()).await;
            found.ok().map(|walked| walked.attr.version)
        };
        let version = match check {
            Check::None => None,
            Check::Absent => Some(VersionIs::Absent),
            Check::Present => Some(VersionIs::Present),
            Check::IsNow => now.await.map(VersionIs::Is),
            Check::IsNotNow => now.await.map(VersionIs::IsNot),
        };
        Guard { version, ctime: None }
    }

    fn id(&mut self, id: FileId) -> String {
        let number = self.ids.iter().position(|known| *known == id).unwrap_or_else(|| {
            self.ids.push(id);
            self.ids.len() - 1
        });
        format!("#{number}")
    }

    fn container(&mut self, id: ContainerId) -> String {
        let number = self.containers.iter().position(|known| *known == id).unwrap_or_else(|| {
            self.containers.push(id);
            self.containers.len() - 1
        });
        format!("container {number}")
    }

    fn caller(&self, id: CallerId) -> &'static str {
        let user = self.users.iter().position(|user| user.name().id() == id);
        user.map_or("somebody", |user| USERS[user])
    }

    fn attr(&mut self, attr: &Attr) -> String {
        let (id, container) = (self.id(attr.id), self.container(attr.container));
        // Times are compared where somebody set them: all of those are long past.
        let times: Vec<i64> = [attr.atime, attr.mtime]
            .iter()
            .map(|t| t.seconds())
            .filter(|s| (0..10_000).contains(s))
            .collect();
        format!(
            "{id} {:?} {:o} links {} size {} {} {} {container} {times:?}",
            attr.kind,
            attr.mode,
            attr.links,
            attr.size,
            self.caller(attr.owner),
            self.caller(attr.group),
        )
    }

    fn entry(&mut self, entry: &Entry) -> String {
        let attr = entry.attr.as_ref().map(|attr| self.attr(attr)).unwrap_or_default();
        format!("{} {} {:?} ({attr})", entry.name, self.id(entry.id), entry.kind)
    }

    fn changed<T>(&mut self, changed: &Changed<T>, value: String) -> String {
        let before = changed.file.before.map(|before| before.size);
        let after = changed.file.after.as_ref().map(|attr| self.attr(attr));
        let mut parents = Vec::new();
        for parent in &changed.parents {
            let sizes = parent.map(|wcc| (wcc.before.map(|b| b.size), wcc.after.map(|a| a.size)));
            parents.push(format!("{sizes:?}"));
        }
        format!("{value}: {before:?} -> {after:?} in {parents:?}")
    }

    /// Performs an operation and shows the answer.
    pub(super) async fn perform(&mut self, op: &Op) -> String {
        let op = match (&op.act, self.last.clone()) {
            (Act::Again, Some(last)) => last,
            (Act::Again, None) => return String::from("nothing to ask for again"),
            _ => op.clone(),
        };
        if op.by.once.is_some() {
            self.last = Some(op.clone());
        }
        let answer = match &op.act {
            Act::Read(_) | Act::Write(..) | Act::Punch(..) | Act::Attr(_) | Act::Close(_) => {
                self.use_open(&op).await
            }
            Act::Lock(..) | Act::Unlock(..) | Act::Test(..) => self.lock(&op).await,
            Act::Make(..) | Act::Link(..) | Act::Rename(..) | Act::Remove(..) => self.change_names(&op).await,
            Act::Policy(_) | Act::Protect(..) | Act::Why(..) => self.rule(&op).await,
            _ => self.act(&op).await,
        };
        answer.unwrap_or_else(|error| error.kind().to_string())
    }

    async fn change_names(&mut self, op: &Op) -> Result<String> {
        let (fs, call) = (self.fs.clone(), self.call(op));
        match &op.act {
            Act::Make(place, thing, mode) => {
                let new = match thing {
                    Thing::File(verifier) => New::File { verifier: verifier.map(|byte| [byte; 8]) },
                    Thing::Directory => New::Directory,
                    Thing::Symlink(target) => New::Symlink(Bytes::copy_from_slice(target.as_bytes())),
                    Thing::Fifo => New::Fifo,
                };
                let set = SetAttr { mode: Some(*mode), ..SetAttr::default() };
                let made = fs.make(&call, &self.at(place), new, &set).await?;
                let value = self.entry(&made.value);
                Ok(self.changed(&made, value))
            }
            Act::Link(file, to) => {
                let linked = fs.link(&call, &self.at(file), &self.at(to)).await?;
                let value = self.entry(&linked.value);
                Ok(self.changed(&linked, value))
            }
            Act::Rename(from, to, how, check) => {
                let guard = self.guard(*check, to).await;
                let moved = fs.rename(&call, &self.at(from), &self.at(to), *how, &guard).await?;
                Ok(self.changed(&moved, String::from("renamed")))
            }
            Act::Remove(place, expect, check) => {
                let guard = self.guard(*check, place).await;
                let removed = fs.remove(&call, &self.at(place), *expect, &guard).await?;
                Ok(self.changed(&removed, String::from("removed")))
            }
            _ => Ok(String::new()),
        }
    }

    async fn act(&mut self, op: &Op) -> Result<String> {
        let (fs, call) = (self.fs.clone(), self.call(op));
        match &op.act {
            Act::Walk(place) => {
                let want = Want { attr: false, rights: true };
                let walked = fs.walk(&call, &self.at(place), want).await?;
                let parent = walked.parent.map(|id| self.id(id));
                Ok(format!("{} {:?} {parent:?}", self.attr(&walked.attr), walked.rights))
            }
            Act::List(place, max) => {
                let want = Want { attr: true, rights: false };
                let page = fs.list(&call, &self.at(place), Cursor::Start, PageMax::new(*max), want).await?;
                let mut text = format!("{} below {}", self.attr(&page.dir), self.id(page.parent));
                for entry in &page.entries {
                    text += &format!("\n  {}", self.entry(entry));
                }
                Ok(format!("{text}\n  more: {}", page.next.is_some()))
            }
            Act::Target(place) => match fs.target(&call, &self.at(place)).await? {
                LinkTarget::Symlink(target) => Ok(format!("{target:?}")),
                LinkTarget::Reference(_) => Ok(String::from("a reference")),
            },
            Act::Mode(place, mode, check) => {
                let set = SetAttr { mode: Some(*mode), ..SetAttr::default() };
                self.set(&call, place, &set, *check).await
            }
            Act::Size(place, size, check) => {
                let set = SetAttr { size: Some(*size), ..SetAttr::default() };
                self.set(&call, place, &set, *check).await
            }
            Act::Times(place, seconds) => {
                let time = Some(SetTime::At(Time::from_unix(*seconds, 0)));
                let set = SetAttr { atime: time, mtime: time, ..SetAttr::default() };
                self.set(&call, place, &set, Check::None).await
            }
            Act::Tag(place, tag, value) => {
                let name = TagName::new(vec![b't', *tag])?;
                let edit = match value {
                    Some(byte) => TagEdit::Put { name, value: vec![*byte; 3].into(), must: TagMust::Any },
                    None => TagEdit::Remove(name),
                };
                let tagged = fs.tag(&call, &self.at(place), &[edit], &Guard::NONE).await?;
                Ok(self.changed(&tagged, String::from("tagged")))
            }
            Act::Tags(place) => Ok(format!("{:?}", fs.tags(&call, &self.at(place), None).await?.tags)),
            Act::Open(..) => self.open(op).await,
            Act::Copy(from, to, offset) => {
                let copied = fs.copy(&call, &self.at(from), Range::ALL, &self.at(to), *offset).await?;
                let after = copied.file.after.map(|attr| self.attr(&attr));
                Ok(format!("copied {} {after:?}", copied.bytes))
            }
            Act::Publish(place, parts, check) => self.publish(&call, place, parts, *check).await,
            _ => Ok(String::new()),
        }
    }

    async fn set(&mut self, call: &Call, place: &Place, set: &SetAttr, check: Check) -> Result<String> {
        let guard = self.guard(check, place).await;
        let changed = self.fs.clone().set(call, &self.at(place), set, &guard).await?;
        let value = self.attr(&changed.value);
        Ok(self.changed(&changed, value))
    }

    async fn open(&mut self, op: &Op) -> Result<String> {
        let Act::Open(place, need, make, truncate, pin) = &op.act else { return Ok(String::new()) };
        let set = SetAttr { mode: Some(0o640), ..SetAttr::default() };
        let how = OpenHow {
            need: *need,
            pin: if *pin { Pin::Version } else { Pin::None },
            make: make.map(|exclusive| Make { exclusive, set }),
            truncate: *truncate,
        };
        let opened = self.fs.clone().open(&self.call(op), &self.at(place), &how).await?;
        let text = format!("{} made {}", self.attr(&opened.attr), opened.made);
        self.opens.push(opened.file);
        Ok(text)
    }

    async fn publish(
        &mut self,
        call: &Call,
        place: &Place,
        parts: &[(u8, usize)],
        check: Check,
    ) -> Result<String> {
        let guard = self.guard(check, place).await;
        let stage = self.fs.clone().stage(call, &self.at(place), &StageHint::default()).await?;
        let mut staged = Vec::new();
        for (number, (byte, length)) in parts.iter().enumerate() {
            let mut bytes = BytesSource::new(vec![*byte; *length]);
            staged.push(stage.put(call, 1 + number as u32, 0, &mut bytes).await?);
        }
        // Each publish is another request: it must not be taken for the one before.
        let once = Call { once: None, ..call.clone() };
        let published = stage.publish(&once, &staged, &SetAttr::default(), &guard).await;
        if published.is_err() {
            stage.discard(call).await?;
        }
        let published = published?;
        let value = format!("{} {}", published.value.name, self.id(published.value.id));
        let after = published.file.after.map(|attr| (attr.size, attr.links));
        Ok(format!("{value} {after:?}"))
    }

    async fn use_open(&mut self, op: &Op) -> Result<String> {
        let call = self.call(op);
        let number = match &op.act {
            Act::Read(n) | Act::Write(n, ..) | Act::Punch(n, ..) | Act::Attr(n) | Act::Close(n) => *n,
            _ => return Ok(String::new()),
        };
        let Some(file) = self.opens.get(number).cloned() else { return Ok(String::from("no open")) };
        match &op.act {
            Act::Read(_) => {
                let bytes = read_of(&*file, &call, Range::ALL).await?;
                Ok(format!("bytes {} {}", bytes.len(), digest::of(&bytes)))
            }
            Act::Write(_, at, byte, length) => {
                let at = at.map_or(WriteAt::End, WriteAt::Offset);
                let written = write_to(&*file, &call, at, &vec![*byte; *length]).await?;
                let sizes = (written.file.before.map(|b| b.size), written.file.after.map(|a| a.size));
                Ok(format!("wrote {} at {} {sizes:?}", written.bytes, written.at))
            }
            Act::Punch(_, at, length) => {
                file.shape(&call, Shape::Punch { at: *at, length: *length }).await?;
                Ok(String::from("punched"))
            }
            Act::Attr(_) => {
                let attr = file.attr(&call).await?;
                Ok(self.attr(&attr))
            }
            _ => {
                file.close(&call).await?;
                Ok(String::from("closed"))
            }
        }
    }

    async fn rule(&mut self, op: &Op) -> Result<String> {
        let (fs, call) = (self.fs.clone(), self.call(op));
        match &op.act {
            Act::Policy(place) => {
                let policy = fs.policy(&call, &self.at(place)).await?;
                Ok(self.policy(&policy))
            }
            Act::Why(place, need) => {
                // A refusal may be an answer or an error, where the place is hidden.
                match fs.why(&call, &self.at(place), *need, None).await {
                    Ok(why) => Ok(format!("allowed {}", why.allowed)),
                    Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::Denied) => {
                        Ok(String::from("allowed false"))
                    }
                    Err(e) => Err(e),
                }
            }
            Act::Protect(place, scope, entries, classes) => {
                // The administrator reads what is there; whoever asks edits it.
                let mut acl = fs.policy(&self.admin(), &self.at(place)).await?.acl;
                let admin = Who::Caller(self.users[0].name().clone());
                acl.entries.retain(|entry| entry.who == admin || entry.rights == Rights::TRAVERSE);
                for (user, rights, allow) in entries {
                    let who = Who::Caller(self.users[*user].name().clone());
                    acl.entries.push(match allow {
                        true => AclEntry::allow(who, *rights),
                        false => AclEntry::deny(who, *rights),
                    });
                }
                let modes = classes.map(|classes| if classes { Modes::Classes } else { Modes::Owner });
                let edit = PolicyEdit { acl: Some(acl), modes, ..PolicyEdit::default() };
                let done = fs.protect(&call, &self.at(place), *scope, &edit).await?;
                let mut added: Vec<String> =
                    done.value.traverse_added.iter().map(|id| self.container(*id)).collect();
                added.sort();
                let container = self.container(done.value.container);
                Ok(format!("{container} made {} traverse added in {added:?}", done.value.made))
            }
            _ => Ok(String::new()),
        }
    }

    fn policy(&mut self, policy: &weft_core::policy::Policy) -> String {
        let mut entries: Vec<String> = Vec::new();
        for entry in &policy.acl.entries {
            let who = match &entry.who {
                Who::Caller(name) => self.caller(name.id()),
                Who::Domain(_) => "domain",
                Who::Anyone => "anyone",
            };
            let sign = if entry.effect == Effect::Allow { '+' } else { '-' };
            entries.push(format!("{sign}{who} {}", entry.rights));
        }
        // Their order means nothing.
        entries.sort();
        format!("{} {:?} {entries:?}", self.container(policy.container), policy.modes)
    }

    async fn lock(&mut self, op: &Op) -> Result<String> {
        let (fs, call) = (self.fs.clone(), self.call(op));
        let of = |whole: bool, at: u64, length: u64, kind: LockKind| Lock {
            scope: if whole { LockScope::Whole } else { LockScope::Range(LockRange { at, length }) },
            kind,
            owner: LockOwner(Bytes::from_static(b"owner")),
        };
        match &op.act {
            Act::Lock(place, whole, at, length, kind) => {
                let lock = of(*whole, *at, *length, *kind);
                fs.lock(&call, &self.at(place), &lock, Wait::No).await?;
                Ok(String::from("locked"))
            }
            Act::Unlock(place, whole, at, length) => {
                let lock = of(*whole, *at, *length, LockKind::Shared);
                fs.unlock(&call, &self.at(place), &lock).await?;
                Ok(String::from("unlocked"))
            }
            Act::Test(place, whole, at, length, kind) => {
                let lock = of(*whole, *at, *length, *kind);
                let told = fs.test(&call, &self.at(place), &lock).await?;
                Ok(format!("in the way: {}", told.is_some()))
            }
            _ => Ok(String::new()),
        }
    }

    /// Shows the whole tree as the administrator sees it.
    pub(super) async fn look(&mut self) -> String {
        let mut text = String::new();
        let mut todo = vec![(FileId::ROOT, String::from("/"))];
        while let Some((id, path)) = todo.pop() {
            let call = self.admin();
            let fs = self.fs.clone();
            let attr = match fs.walk(&call, &At::id(id), Want::default()).await {
                Ok(walked) => walked.attr,
                Err(error) => {
                    text += &format!("{path}: {}\n", error.kind());
                    continue;
                }
            };
            text += &format!("{path}: {}", self.attr(&attr));
            text +=
                &self.look_inside(&call, &attr).await.unwrap_or_else(|error| format!(" {}", error.kind()));
            text.push('\n');
            if attr.kind == Kind::Directory {
                for entry in self.entries(&call, id).await.unwrap_or_default() {
                    todo.push((entry.id, format!("{path}{}/", entry.name)));
                }
            }
        }
        text
    }

    /// Returns a directory's entries in stored order, a few to a page.
    async fn entries(&self, call: &Call, dir: FileId) -> Result<Vec<Entry>> {
        let mut entries = Vec::new();
        let mut from = Some(Cursor::Start);
        while let Some(cursor) = from {
            let page = self.fs.list(call, &At::id(dir), cursor, PageMax::new(3), Want::default()).await?;
            entries.extend(page.entries);
            from = page.next;
        }
        Ok(entries)
    }

    async fn look_inside(&mut self, call: &Call, attr: &Attr) -> Result<String> {
        let (fs, at) = (self.fs.clone(), At::id(attr.id));
        let mut text = match attr.kind {
            Kind::File => {
                let file = fs.file(call, attr.id, Rights::READ).await?;
                let bytes = read_of(&*file, call, Range::ALL).await?;
                let hash = digest::of(&bytes);
                let known = *self.versions.entry((attr.id, attr.version.0)).or_insert(hash);
                assert_eq!(known, hash, "{:?}: equal versions have unequal bytes", attr.id);
                format!(" {hash:x}")
            }
            Kind::Symlink => format!(" {:?}", fs.target(call, &at).await?),
            Kind::Directory => {
                let names: Vec<String> =
                    self.entries(call, attr.id).await?.iter().map(|entry| entry.name.to_string()).collect();
                let policy = fs.policy(call, &at).await?;
                format!(" {names:?} {}", self.policy(&policy))
            }
            Kind::Fifo | Kind::Reference => String::new(),
        };
        text += &format!(" {:?}", fs.tags(call, &at, None).await.map(|page| page.tags).unwrap_or_default());
        Ok(text)
    }
}
