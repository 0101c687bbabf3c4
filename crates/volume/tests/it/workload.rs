//! Random changes, made alike of a volume and of the plain model, and how a tree looks
//! in words that are the same on both.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use weft_conformance::TestDomain;
use weft_conformance::file_system::ADMINISTRATOR;
use weft_conformance::file_system::site::{Dice, Outcome, at, free, how, new_file, pattern, read_of, who};
use weft_core::acl::AclEntry;
use weft_core::attr::{Kind, SetAttr, TagEdit, TagMust, TagName};
use weft_core::form::{
    Ack, At, BytesSource, Call, Cursor, Expect, FileSystem, LinkTarget, New, OpenFile, PageMax, Range,
    Replace, Scope, Shape, Stage, StageHint, Want, WriteAt,
};
use weft_core::policy::PolicyEdit;
use weft_core::{ContainerId, ErrorKind, FileId, Result, Rights, VolumeId, limits};

const NAMES: &[&str] = &["a", "b", "c", "d", "a/a", "a/b", "b/a", "b/c", "c/d", "a/a/a", "d/b/c", "b/a/c"];

/// A change to make.
#[derive(Clone, Debug)]
pub enum Step {
    Directory(&'static str),
    File(&'static str),
    Symlink(&'static str, &'static str),
    Link(&'static str, &'static str),
    Rename(&'static str, &'static str, Replace),
    Remove(&'static str),
    /// Opens a file, takes its name away and keeps it open.
    Orphan(&'static str),
    Write(&'static str, u64, usize, u8),
    Append(&'static str, usize, u8),
    Truncate(&'static str, u64),
    Punch(&'static str, u64, u64),
    /// Lets time pass: what was written is settled, what is left over is tidied.
    Rest,
    Mode(&'static str, u16),
    Tag(&'static str, u8),
    Publish(&'static str, usize, u8),
    /// Stages a part and leaves it there.
    Abandon(&'static str, usize),
    Protect(&'static str, u8),
}

impl Step {
    /// Every kind.
    pub const KINDS: [&str; 12] = [
        "made",
        "linked",
        "renamed over",
        "exchanged",
        "renamed",
        "removed",
        "orphaned",
        "written in place",
        "attributes set",
        "published",
        "stages left",
        "containers split",
    ];

    pub fn roll(dice: &mut Dice) -> Self {
        let one = *dice.pick(NAMES);
        let two = *dice.pick(NAMES);
        let size = *dice.pick(&[0, 10, 3_000, 9_000, 70_000]);
        let fill = dice.roll(200) as u8;
        match dice.roll(25) {
            0..4 => Self::Directory(one),
            4..7 => Self::File(one),
            7 => Self::Symlink(one, two),
            8 => Self::Link(one, two),
            9..12 => {
                let how = *dice.pick(&[Replace::Any, Replace::Any, Replace::Never, Replace::Exchange]);
                Self::Rename(one, two, how)
            }
            12..14 => Self::Remove(one),
            14 => Self::Orphan(one),
            15 => Self::Write(one, *dice.pick(&[0, 100, 8_000, 60_000]), size, fill),
            16 => Self::Truncate(one, *dice.pick(&[0, 5, 9_000, 100_000])),
            17 => Self::Mode(one, dice.roll(0o1000) as u16),
            18 => Self::Tag(one, fill),
            19..21 => Self::Publish(one, size, fill),
            21 if dice.roll(2) == 0 => Self::Abandon(one, size),
            22 => Self::Append(one, size, fill),
            23 => Self::Punch(one, *dice.pick(&[0, 4_000, 30_000]), *dice.pick(&[10, 8_192, 100_000])),
            24 => Self::Rest,
            _ => Self::Protect(one, fill),
        }
    }

    /// What is counted of it: the kinds of change that a power cut must have met.
    /// `over`: something had the new name already.
    pub fn kind(&self, over: bool) -> &'static str {
        match self {
            Self::Directory(_) | Self::File(_) | Self::Symlink(..) => "made",
            Self::Link(..) => "linked",
            Self::Rename(_, _, Replace::Exchange) => "exchanged",
            Self::Rename(..) if over => "renamed over",
            Self::Rename(..) => "renamed",
            Self::Remove(_) => "removed",
            Self::Orphan(_) => "orphaned",
            Self::Write(..) | Self::Append(..) | Self::Truncate(..) | Self::Punch(..) => "written in place",
            Self::Rest => "rested",
            Self::Mode(..) | Self::Tag(..) => "attributes set",
            Self::Publish(..) => "published",
            Self::Abandon(..) => "stages left",
            Self::Protect(..) => "containers split",
        }
    }

    /// Whether a crash in the middle of it may leave part of it: a write in place tears.
    pub fn may_tear(&self) -> bool {
        matches!(self, Self::Write(..) | Self::Append(..) | Self::Truncate(..) | Self::Punch(..))
    }
}

/// Where steps are made: a file system, and what is held open there.
pub struct Hand {
    pub fs: Arc<dyn FileSystem>,
    pub domain: Arc<TestDomain>,
    open: Vec<Arc<dyn OpenFile>>,
    /// Where time can be let pass.
    pub rests: Option<weft_sys::Sys>,
}

impl Hand {
    pub fn new(fs: Arc<dyn FileSystem>, domain: Arc<TestDomain>) -> Self {
        Self { fs, domain, open: Vec::new(), rests: None }
    }

    pub fn call(&self) -> Call {
        self.domain.call(&self.domain.caller(ADMINISTRATOR), 1)
    }

    /// Returns whether a rename finds its new name taken.
    pub async fn is_over(&self, step: &Step) -> bool {
        let Step::Rename(_, to, _) = step else { return false };
        self.fs.walk(&self.call(), &at(to), Want::default()).await.is_ok()
    }

    /// Makes a change; returns how it went.
    pub async fn make(&mut self, step: &Step, ack: Ack) -> std::result::Result<(), ErrorKind> {
        let call = Call { ack, ..self.call() };
        self.step(&call, step).await.map_err(|error| error.kind())
    }

    async fn step(&mut self, call: &Call, step: &Step) -> Result<()> {
        let fs = self.fs.clone();
        let none = SetAttr::default();
        match *step {
            Step::Directory(path) => drop(fs.make(call, &at(path), New::Directory, &none).await?),
            Step::File(path) => drop(fs.make(call, &at(path), new_file(), &none).await?),
            Step::Symlink(path, to) => {
                let new = New::Symlink(Bytes::from_static(to.as_bytes()));
                drop(fs.make(call, &at(path), new, &none).await?);
            }
            Step::Link(file, to) => drop(fs.link(call, &at(file), &at(to)).await?),
            Step::Rename(from, to, how) => {
                fs.rename(call, &at(from), &at(to), how, &free()).await?;
            }
            Step::Remove(path) => {
                fs.remove(call, &at(path), Expect::Any, &free()).await?;
            }
            Step::Orphan(path) => {
                let open = fs.open(call, &at(path), &how(Rights::READ)).await?;
                self.open.push(open.file);
                fs.remove(call, &at(path), Expect::NotDirectory, &free()).await?;
            }
            Step::Write(path, offset, size, fill) => {
                let id = fs.walk(call, &at(path), Want::default()).await?.attr.id;
                let file = fs.file(call, id, Rights::WRITE).await?;
                let mut source = BytesSource::new(pattern(size, fill));
                file.write(call, WriteAt::Offset(offset), &mut source).await?;
            }
            Step::Append(path, size, fill) => {
                let id = fs.walk(call, &at(path), Want::default()).await?.attr.id;
                let file = fs.file(call, id, Rights::APPEND).await?;
                file.write(call, WriteAt::End, &mut BytesSource::new(pattern(size, fill))).await?;
            }
            Step::Punch(path, at_byte, length) => {
                let id = fs.walk(call, &at(path), Want::default()).await?.attr.id;
                let file = fs.file(call, id, Rights::WRITE).await?;
                file.shape(call, Shape::Punch { at: at_byte, length }).await?;
            }
            Step::Rest => {
                if let Some(sys) = &self.rests {
                    sys.sleep(limits::OBJECT_IDLE * 2).await;
                }
            }
            Step::Truncate(path, size) => {
                let set = SetAttr { size: Some(size), ..none };
                fs.set(call, &at(path), &set, &free()).await?;
            }
            Step::Mode(path, mode) => {
                // The owner's bits stay, so that the look sees everything.
                let set = SetAttr { mode: Some(mode | 0o700), ..none };
                fs.set(call, &at(path), &set, &free()).await?;
            }
            Step::Tag(path, fill) => {
                let edit = TagEdit::Put {
                    name: TagName::new(vec![b'a' + fill % 3])?,
                    value: Bytes::from(vec![fill; usize::from(fill)]),
                    must: TagMust::Any,
                };
                fs.tag(call, &at(path), &[edit], &free()).await?;
            }
            Step::Publish(path, size, fill) => {
                let stage = self.staged(call, path, size, fill).await?;
                stage.publish(call, &[], &none, &free()).await?;
            }
            Step::Abandon(path, size) => drop(self.staged(call, path, size, 1).await?),
            Step::Protect(path, fill) => self.protect(call, path, fill).await?,
        }
        Ok(())
    }

    async fn staged(&self, call: &Call, path: &str, size: usize, fill: u8) -> Result<Arc<dyn Stage>> {
        let hint = StageHint { brief: fill.is_multiple_of(3), ..StageHint::default() };
        let stage = self.fs.stage(call, &at(path), &hint).await?;
        // Two parts of which the second is small: they have to be joined.
        for (number, size) in [(1, size), (2, usize::from(fill % 2) * 500)] {
            if size > 0 || number == 1 {
                stage.put(call, number, 0, &mut BytesSource::new(pattern(size, fill))).await?;
            }
        }
        Ok(stage)
    }

    async fn protect(&self, call: &Call, path: &str, fill: u8) -> Result<()> {
        let mut acl = self.fs.policy(call, &at(path)).await?.acl;
        let user = self.domain.caller(["alice", "bob"][usize::from(fill % 2)]);
        acl.entries.retain(|entry| entry.who != who(&user) || entry.rights == Rights::TRAVERSE);
        acl.entries.push(AclEntry::allow(who(&user), Rights::from_bits(u32::from(fill))));
        let edit = PolicyEdit { acl: Some(acl), ..PolicyEdit::default() };
        self.fs.protect(call, &at(path), Scope::Subtree, &edit).await?;
        Ok(())
    }

    /// Shows the whole tree. Without the contents of `torn`, if that is given.
    pub async fn look(&self, torn: Option<FileId>) -> String {
        let call = self.call();
        let mut seen = Seen::default();
        let mut text = String::new();
        let mut todo = vec![(String::new(), FileId::ROOT)];
        while let Some((path, id)) = todo.pop() {
            let attr = self.fs.walk(&call, &At::id(id), Want::default()).await.works().attr;
            let mut line = format!(
                "{path}: {:?} #{} {:o} links {} container {}",
                attr.kind,
                seen.file(id),
                attr.mode,
                attr.links,
                seen.container(attr.container)
            );
            match attr.kind {
                Kind::Directory => {
                    let page =
                        self.fs.list(&call, &At::id(id), Cursor::ByName, PageMax::MAX, Want::default()).await;
                    for entry in page.works().entries.into_iter().rev() {
                        todo.push((format!("{path}/{}", entry.name), entry.id));
                    }
                    line += &format!(" size {}", attr.size);
                }
                Kind::File if torn == Some(id) => line += " torn",
                Kind::File => {
                    let file = self.fs.file(&call, id, Rights::READ).await.works();
                    let bytes = read_of(&*file, &call, Range::ALL).await.works();
                    assert_eq!(bytes.len() as u64, attr.size, "{path}");
                    line += &format!(" {} bytes {}", bytes.len(), blake3::hash(&bytes).to_hex());
                }
                Kind::Symlink => {
                    let LinkTarget::Symlink(target) = self.fs.target(&call, &At::id(id)).await.works() else {
                        panic!("a symbolic link leads elsewhere");
                    };
                    line += &format!(" to {target:?}");
                }
                _ => {}
            }
            let tags = self.fs.tags(&call, &At::id(id), None).await.works().tags;
            let acl = self.fs.policy(&call, &At::id(id)).await.works().acl;
            let entries: Vec<String> =
                acl.entries.iter().map(|e| format!("{} {}", self.told(&e.who), e.rights)).collect();
            text += &format!("{line} {tags:?} v{} {entries:?}\n", acl.version);
        }
        text
    }

    fn told(&self, who: &weft_core::acl::Who) -> String {
        match who {
            weft_core::acl::Who::Caller(name) => name.local().to_owned(),
            other => format!("{other:?}"),
        }
    }
}

/// Ids in the order in which they are met.
#[derive(Default)]
struct Seen {
    files: HashMap<FileId, usize>,
    containers: HashMap<ContainerId, usize>,
}

impl Seen {
    fn file(&mut self, id: FileId) -> usize {
        let next = self.files.len();
        *self.files.entry(id).or_insert(next)
    }

    fn container(&mut self, id: ContainerId) -> usize {
        let next = self.containers.len();
        *self.containers.entry(id).or_insert(next)
    }
}

/// A model for a volume to be compared with. Its domain is a twin of the volume's: the ids
/// of their containers are the same, and each has its own epochs.
pub fn model(domain: &Arc<TestDomain>) -> Hand {
    let twin = TestDomain::new(7, domain.clock().clone(), &[VolumeId(0)]);
    let model = weft_core::model::Model::new(twin.clock().clone(), twin.clone(), &twin.name(ADMINISTRATOR));
    Hand::new(model, twin)
}

pub fn domain(clock: Arc<weft_sys::SimClock>) -> Arc<TestDomain> {
    TestDomain::new(7, clock, &[VolumeId(0)])
}
