//! Random changes, made alike of a volume and of the plain model, and how a tree looks
//! in words that are the same on both.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashMap};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;
use weft_core::acl::AclEntry;
use weft_core::attr::{Kind, SetAttr, TagEdit, TagMust, TagName};
use weft_core::form::{
    Ack, At, BytesSource, Call, Cursor, Expect, FileSystem, LinkTarget, New, OpenFile, PageMax, Range,
    Replace, Scope, Shape, Stage, StageHint, Want, WriteAt,
};
use weft_core::policy::PolicyEdit;
use weft_core::{ContainerId, ErrorKind, FileId, Result, Rights, TraceId, VolumeId, limits};
use weft_sys::SimDisk;

use super::ADMINISTRATOR;
use super::site::{Dice, Outcome, at, free, how, new_file, pattern, read_of, who};
use crate::TestDomain;

const NAMES: &[&str] = &["a", "b", "c", "d", "a/a", "a/b", "b/a", "b/c", "c/d", "a/a/a", "d/b/c", "b/a/c"];

/// A change to make.
#[derive(Clone, Debug)]
pub enum Step {
    /// Makes a directory.
    Directory(&'static str),
    /// Makes an empty file.
    File(&'static str),
    /// Makes a symbolic link: where, and to what.
    Symlink(&'static str, &'static str),
    /// Gives a file another name.
    Link(&'static str, &'static str),
    /// Renames: from, to, and over what.
    Rename(&'static str, &'static str, Replace),
    /// Removes a name.
    Remove(&'static str),
    /// Opens a file, takes its name away and keeps it open.
    Orphan(&'static str),
    /// Writes in place: where in the file, how many bytes, of which pattern.
    Write(&'static str, u64, usize, u8),
    /// Writes at the end: how many bytes, of which pattern.
    Append(&'static str, usize, u8),
    /// Sets the size.
    Truncate(&'static str, u64),
    /// Makes a hole: where, how long.
    Punch(&'static str, u64, u64),
    /// Lets time pass: what was written is settled, what is left over is tidied.
    Rest,
    /// Sets mode bits.
    Mode(&'static str, u16),
    /// Puts a user attribute.
    Tag(&'static str, u8),
    /// Replaces a file, or makes one, of two parts.
    Publish(&'static str, usize, u8),
    /// Stages a part and leaves it there.
    Abandon(&'static str, usize),
    /// Gives a user rights on a subtree.
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

    /// Rolls one.
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
    /// The file system.
    pub fs: Arc<dyn FileSystem>,
    /// Who signs for it.
    pub domain: Arc<TestDomain>,
    open: Vec<Arc<dyn OpenFile>>,
    /// Steps made so far: each has its number as trace, from 1.
    made: u64,
    /// Where time can be let pass.
    pub rests: Option<weft_sys::Sys>,
}

impl Hand {
    /// Goes to work on a file system, as its administrator.
    pub fn new(fs: Arc<dyn FileSystem>, domain: Arc<TestDomain>) -> Self {
        Self { fs, domain, open: Vec::new(), made: 0, rests: None }
    }

    /// Returns a call.
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
        self.made += 1;
        let call = Call { ack, trace: TraceId(self.made), ..self.call() };
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
        let length = fill.is_multiple_of(2).then_some(size as u64);
        let hint = StageHint { brief: fill.is_multiple_of(3), length };
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
                    let mut hasher = DefaultHasher::new();
                    bytes.hash(&mut hasher);
                    line += &format!(" {} bytes {:016x}", bytes.len(), hasher.finish());
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

/// The domain that such volumes and their models believe.
pub fn domain(clock: Arc<weft_sys::SimClock>) -> Arc<TestDomain> {
    TestDomain::new(7, clock, &[VolumeId(0)])
}

/// Steps that one seed makes at most.
const STEPS: usize = 40;

/// What the workload had done when the power went.
#[derive(Debug)]
pub struct Cut {
    /// How the tree looked after each step, the first before any.
    pub looks: Vec<String>,
    /// The last step that was durable.
    pub durable: usize,
    /// The step that was under way.
    pub last: Option<Step>,
    /// How many steps of each kind worked.
    pub worked: Counts,
    /// Each step, and whether it worked.
    pub done: Vec<(Step, bool)>,
}

/// Steps by kind.
pub type Counts = BTreeMap<&'static str, u64>;

/// Makes random steps on both sides until `disk` goes off, which the step under way need not tell of:
/// where something else met it first, what was staged may be lost, and `publish` says just that.
pub async fn work(hand: &mut Hand, plain: &mut Hand, dice: &mut Dice, disk: &SimDisk) -> Cut {
    let mut cut = Cut {
        looks: vec![plain.look(None).await],
        durable: 0,
        last: None,
        worked: Counts::new(),
        done: Vec::new(),
    };
    for _ in 0..STEPS {
        let step = Step::roll(dice);
        // What could tear is made durable; so only the step under way can have torn.
        // Nobody is told how resting went.
        let durable = step.may_tear() || dice.roll(4) == 0 && !matches!(step, Step::Rest);
        let ack = if durable { Ack::Durable } else { Ack::Applied };
        let over = plain.is_over(&step).await;
        let got = hand.make(&step, ack).await;
        let is_off = got.is_err() && disk.cut_at().is_some();
        if is_off || got == Err(ErrorKind::Unavailable) || got == Err(ErrorKind::Internal) {
            let _ = plain.make(&step, ack).await;
            cut.done.push((step.clone(), false));
            cut.looks.push(plain.look(None).await);
            cut.last = Some(step);
            return cut;
        }
        let expected = plain.make(&step, ack).await;
        cut.done.push((step.clone(), got.is_ok()));
        assert_eq!(got, expected, "{step:?}");
        cut.looks.push(plain.look(None).await);
        if got.is_ok() {
            *cut.worked.entry(step.kind(over)).or_default() += 1;
        }
        let published = matches!(step, Step::Publish(..) | Step::Protect(..));
        if got.is_ok() && (durable || published) {
            cut.durable = cut.looks.len() - 1;
        }
    }
    cut
}

/// Checks that a volume shows what some step had left, not before the last durable one.
pub async fn found_among(hand: &Hand, cut: &Cut, seed: u64) -> usize {
    let look = hand.look(None).await;
    if let Some(place) = cut.looks.iter().rposition(|known| *known == look) {
        assert!(
            place >= cut.durable,
            "seed {seed}: step {} was durable, what is there is of step {place}",
            cut.durable
        );
        return place;
    }
    let torn = cut.last.as_ref().is_some_and(Step::may_tear);
    let plain = |look: &str| -> Vec<String> {
        // Without contents: what was written in place when the power went may be torn.
        look.lines().map(|line| line.split(" bytes ").next().unwrap_or(line).to_owned()).collect()
    };
    let names = |look: &str| -> Vec<String> {
        plain(look)
            .iter()
            .map(|line| line.rsplit_once(' ').map_or(line.clone(), |(a, _)| a.to_owned()))
            .collect()
    };
    // Its bytes are flushed before the log is: names that were only applied may be lost beside it.
    let similar = cut.looks[cut.durable..].iter().rposition(|known| names(known) == names(&look));
    similar.filter(|_| torn).map(|place| cut.durable + place).unwrap_or_else(|| {
        let since = cut.looks[cut.durable..].join("\n");
        panic!("seed {seed}: what is there is of no step; last {:?}\nthere:\n{look}\nsince the last durable:\n{since}", cut.last)
    })
}
