//! What requests are answered with.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::Verifier;
use super::address::Cursor;
use super::call::Ack;
use super::file_system::OpenFile;
use crate::acl::Subject;
use crate::attr::{Attr, Kind, TagName, Wcc};
use crate::caller::CallerName;
use crate::id::{ContainerId, FileId, StageId, VolumeId};
use crate::name::Name;
use crate::proof::Caller;
use crate::rights::Rights;
use crate::time::{Tick, Time};

/// What an implementation declares it can do (request-form law 12). Wrappers forward
/// it; nothing is emulated silently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Supports {
    /// Hard links.
    pub links: bool,
    /// `rename` with `Exchange`.
    pub exchange: bool,
    /// User attributes.
    pub tags: bool,
    /// Locks.
    pub locks: bool,
    /// `watch`.
    pub watch: bool,
    /// `publish` onto a name keeps the inode (request-form law 14).
    pub publish_keeps_id: bool,
    /// Holes: `Punch`, and `seek` that finds them.
    pub holes: bool,
    /// Bytes in one file at most.
    pub file_bytes_max: u64,
}

impl Supports {
    /// What can be done where there is no volume.
    pub const NOTHING: Self = Self {
        links: false,
        exchange: false,
        tags: false,
        locks: false,
        watch: false,
        publish_keeps_id: false,
        holes: false,
        file_bytes_max: 0,
    };

    /// What may be assumed of a volume that was not asked: that nothing is told of changes in it,
    /// and that what can be refused will be.
    pub const UNKNOWN: Self = Self { file_bytes_max: u64::MAX, ..Self::NOTHING };
}

/// What a walk or listing should bring beyond id, kind and name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Want {
    /// For listings: each entry's attributes.
    pub attr: bool,
    /// The caller's rights on what was walked to.
    pub rights: bool,
}

/// What a walk found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Walked {
    /// Its attributes, id among them.
    pub attr: Attr,
    /// What the caller may do with it, mode bits considered; only if wanted.
    pub rights: Option<Rights>,
    /// The directory it was found in; `None` if the address was an id or the root.
    pub parent: Option<FileId>,
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The name.
    pub name: Name,
    /// What it names.
    pub id: FileId,
    /// What that is.
    pub kind: Kind,
    /// Where a listing in stored order goes on after it; never 0.
    pub cookie: u64,
    /// Its attributes, if they were wanted and the caller may see them.
    pub attr: Option<Attr>,
}

/// One page of a listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// The entries.
    pub entries: Vec<Entry>,
    /// Where the next page starts; `None` at the end.
    pub next: Option<Cursor>,
    /// The directory's own attributes, of the same instant.
    pub dir: Attr,
    /// The directory's parent; the root is its own.
    pub parent: FileId,
}

/// What an entry can refer to that is no file of this volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reference {
    /// A node.
    Node(CallerName),
    /// A group.
    Group(CallerName),
    /// A container.
    Container(ContainerId),
    /// Another volume's root: a junction.
    Volume(VolumeId),
}

/// Where a symbolic link leads or what a reference refers to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LinkTarget {
    /// A symbolic link's bytes: 1 to 4 095, no NUL.
    Symlink(Bytes),
    /// A reference.
    Reference(Reference),
}

/// User attributes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TagPage {
    /// Names and values, in name order.
    pub tags: Vec<(TagName, Bytes)>,
    /// The last name of this page if there are more.
    pub next: Option<TagName>,
}

/// What `protect` did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protected {
    /// The container that now governs the place.
    pub container: ContainerId,
    /// Whether it was made by this request.
    pub made: bool,
    /// Members still to be moved into it; until they are, both policies bind them.
    pub members_left: u64,
    /// Containers above in which `traverse` was added for the same callers.
    pub traverse_added: Vec<ContainerId>,
    /// Containers above whose ACL the caller may not change. Whether the same callers may
    /// pass there is for others to see to, and not told.
    pub untouched_above: Vec<ContainerId>,
}

/// One step of an explanation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhyStep {
    /// The place: as much of its path as the reader itself named.
    pub place: String,
    /// Its container.
    pub container: ContainerId,
    /// The rights that were needed there.
    pub needed: Rights,
    /// Those of them that were allowed.
    pub allowed: Rights,
    /// What settled each, in words: the entry, the credential or the mode bits.
    pub because: Vec<String>,
}

/// Why something is allowed or refused, by the code that decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Why {
    /// Whether it is allowed.
    pub allowed: bool,
    /// For whom.
    pub caller: CallerName,
    /// On which evidence the caller is who it is.
    pub evidence: String,
    /// Each decision on the way, first to last. To those who may not see the ACL,
    /// only what concerns themselves; of somebody else, only decisions over ACLs that
    /// the asker may change.
    pub steps: Vec<WhyStep>,
}

impl Why {
    /// Begins an explanation: for the caller itself, or for somebody by name.
    pub fn begin(caller: &Caller, who: &Subject<'_>) -> Self {
        let evidence = if who.name() == caller.name() {
            format!("{}, credential {}", caller.claims().evidence, caller.credential())
        } else {
            let groups = who.groups().len();
            format!("by name and {groups} groups it is in, with no address and no narrowed credential")
        };
        Self { allowed: true, caller: who.name().clone(), evidence, steps: Vec::new() }
    }

    /// Adds a step. Returns whether everything so far is allowed.
    pub fn add(&mut self, step: WhyStep) -> bool {
        self.allowed &= step.allowed == step.needed;
        self.steps.push(step);
        self.allowed
    }
}

/// Space, as `statfs` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    /// Bytes there are in all: the store's, or the container's limit if lower.
    pub bytes_total: u64,
    /// Bytes still free within that.
    pub bytes_free: u64,
    /// Files there are.
    pub files: u64,
}

/// What `open` answers.
pub struct Opened {
    /// The open file.
    pub file: Arc<dyn OpenFile>,
    /// Its attributes at the open.
    pub attr: Attr,
    /// Whether this open made it.
    pub made: bool,
    /// Its directory before and after, if it was made.
    pub parent: Option<Wcc>,
}

/// What `copy` did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copied {
    /// Bytes copied: fewer than asked at the source's end.
    pub bytes: u64,
    /// The target before and after.
    pub file: Wcc,
}

/// What a write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// Where the bytes went: for an append, where the end was.
    pub at: u64,
    /// How many.
    pub bytes: u64,
    /// The file before and after.
    pub file: Wcc,
    /// How safe they are.
    pub ack: Ack,
    /// Changes if unsynced bytes may have been lost since.
    pub verifier: Verifier,
}

/// One part of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Its number: 1 to 10 000; parts follow each other by number.
    pub number: u32,
    /// Bytes in it.
    pub bytes: u64,
    /// BLAKE3 of its bytes.
    pub digest: [u8; 32],
}

/// Parts of a stage, by number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartPage {
    /// The parts.
    pub parts: Vec<Part>,
    /// The number to go on from, if there are more.
    pub next: Option<u32>,
}

/// One stage under a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageEntry {
    /// Its id.
    pub id: StageId,
    /// The name it is meant for.
    pub name: Name,
    /// When it was begun.
    pub begun: Time,
    /// Bytes staged so far.
    pub bytes: u64,
}

/// Stages under a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagePage {
    /// The stages, by id.
    pub stages: Vec<StageEntry>,
    /// The last id of this page if there are more.
    pub next: Option<StageId>,
}

/// A lock that was given. It lasts as long as its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockLease {
    /// Until when it certainly stands without the session being used.
    pub until: Tick,
}
