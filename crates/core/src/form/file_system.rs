//! The trait, and what its methods take.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::Verifier;
use super::address::{At, Cursor, Expect, Guard, Replace};
use super::answer::{
    Copied, Entry, LinkTarget, LockLease, Opened, Page, Part, PartPage, Protected, Reference, Space,
    StagePage, Supports, TagPage, Walked, Want, Why, Written,
};
use super::batch::{Reply, Request};
use super::call::Call;
use super::lock::{Lock, Wait};
use super::source::{InFiles, Source};
use super::watch::{ChangeSeq, Changes};
use crate::attr::{Attr, Changed, SetAttr, TagEdit, TagName, Wcc};
use crate::caller::CallerName;
use crate::error::{Error, Result};
use crate::id::{FileId, StageId, VolumeId};
use crate::limits;
use crate::policy::{Policy, PolicyEdit};
use crate::rights::Rights;

/// How many entries a page may hold: 1 to 4 096.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageMax(u32);

impl PageMax {
    /// The largest page.
    pub const MAX: Self = Self(limits::PAGE_ENTRIES_MAX);

    /// Returns the nearest page size that is allowed.
    pub fn new(entries: u32) -> Self {
        Self(entries.clamp(1, limits::PAGE_ENTRIES_MAX))
    }

    /// Returns the number of entries.
    pub fn entries(self) -> usize {
        self.0 as usize
    }
}

/// What to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum New {
    /// An empty file. With a verifier, making it again with the same verifier finds
    /// the one made before (NFS exclusive creation).
    File {
        /// Eight bytes the client chose.
        verifier: Option<[u8; 8]>,
    },
    /// An empty directory.
    Directory,
    /// A symbolic link to these bytes.
    Symlink(bytes::Bytes),
    /// A named pipe.
    Fifo,
    /// An entry that refers to something that is no file.
    Reference(Reference),
}

impl New {
    /// Checks that a request may make this. A junction is no entry like others: whoever made one
    /// would lead everybody to a volume of its choice, so only the node makes it (request-form
    /// law 20). Fails with `NotPermitted`.
    pub fn check(&self) -> Result<()> {
        match self {
            Self::Reference(Reference::Volume(_)) => {
                Err(Error::not_permitted("a junction is made by sharing, and by nothing else")
                    .hint("weft share"))
            }
            _ => Ok(()),
        }
    }
}

/// Whether reads of one open may see two versions (request-form law 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pin {
    /// Sees writes as they happen.
    #[default]
    None,
    /// Sees one version, or `Conflict` ("changed while reading").
    Version,
}

/// What `open` does if nothing is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Make {
    /// Whether something being there is `Exists`.
    pub exclusive: bool,
    /// Attributes of the file that is made.
    pub set: SetAttr,
}

/// How to open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenHow {
    /// The rights the open must carry: of `READ`, `WRITE`, `APPEND`, `EXECUTE`. A file that
    /// this open makes carries them whatever its mode bits say.
    pub need: Rights,
    /// Whether reads see one version.
    pub pin: Pin,
    /// Make the file if it is not there.
    pub make: Option<Make>,
    /// Cut the file to nothing.
    pub truncate: bool,
}

impl OpenHow {
    /// Checks that there can be such an open. Fails with `Invalid`.
    pub fn check(&self) -> Result<()> {
        check_carried(self.need)?;
        if self.pin == Pin::Version && self.need.intersects(Rights::WRITE | Rights::APPEND) {
            return Err(Error::invalid("an open pinned to one version only reads"));
        }
        Ok(())
    }
}

/// Checks that an open, or a file by its id, can carry these rights. Fails with `Invalid`.
pub fn check_carried(need: Rights) -> Result<()> {
    if (need - CARRIED).is_empty() {
        return Ok(());
    }
    Err(Error::invalid("a file carries read, write, append and execute only"))
}

const CARRIED: Rights = Rights::from_bits(
    Rights::READ.bits() | Rights::WRITE.bits() | Rights::APPEND.bits() | Rights::EXECUTE.bits(),
);

/// A range of bytes; `length` `None` is to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// The first byte.
    pub at: u64,
    /// How many; fewer come if the file ends.
    pub length: Option<u64>,
}

impl Range {
    /// The whole file.
    pub const ALL: Self = Self { at: 0, length: None };

    /// Returns the part of the range that lies in a file of `size` bytes: first byte
    /// and number of bytes.
    pub fn within(self, size: u64) -> (u64, u64) {
        let left = size.saturating_sub(self.at);
        (self.at, self.length.map_or(left, |length| length.min(left)))
    }
}

/// Where a write goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriteAt {
    /// At this byte.
    Offset(u64),
    /// At the end, atomically with finding it.
    End,
}

/// A change of a file's extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Shape {
    /// Cut or extend with zeros to this size.
    Truncate(u64),
    /// Make sure that writing this range will not fail for space.
    Allocate {
        /// The first byte.
        at: u64,
        /// How many.
        length: u64,
        /// Whether the file stays as long as it is.
        keep_size: bool,
    },
    /// Make a hole of this range; the size stays.
    Punch {
        /// The first byte.
        at: u64,
        /// How many.
        length: u64,
    },
    /// Make this range zeros.
    Zero {
        /// The first byte.
        at: u64,
        /// How many.
        length: u64,
        /// Whether the file stays as long as it is.
        keep_size: bool,
    },
}

/// What to look for from an offset on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Seek {
    /// The next byte that is not in a hole; `NotFound` beyond the last.
    Data,
    /// The next hole; the end counts as one. `NotFound` at or beyond the end.
    Hole,
}

/// How much a policy change covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scope {
    /// The whole container that governs the place, wherever its other members lie.
    Container,
    /// The place and what lies below: a container of its own is made unless the place
    /// is the root of one already.
    Subtree,
}

/// How much to bring to disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SyncScope {
    /// One file or directory.
    File,
    /// The whole volume.
    Volume,
}

/// What is known of an upload before it comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageHint {
    /// Its length: it can be refused for space, and small ones stay inline.
    pub length: Option<u64>,
    /// Whether nobody will look for it by its id, go on with it after an end of the process, or
    /// list it: then it may be kept in memory. Not told to other nodes, where a stage is found
    /// by its id with every call.
    #[serde(skip)]
    pub brief: bool,
}

/// Files and names: managed ones, exports, other nodes', the in-memory model. Every
/// implementation passes the suite in `conformance`.
///
/// All methods: check the caller, the deadline and the rights; act and read
/// attributes in one transaction; are safe to call concurrently. What the caller may
/// not know of is `NotFound`. Dropping a future abandons the answer, not the act; a
/// change with [`Call::once`] is made at most once however often it is sent, and
/// answers the same each time (law 8).
#[async_trait]
pub trait FileSystem: Send + Sync {
    /// Returns what a volume's implementation can do.
    fn supports(&self, volume: VolumeId) -> Supports;

    /// Returns what is at an address. Needs `traverse` on each directory passed and
    /// `attr-read`, or any right, on what is found. `Loop` beyond 40 symbolic links.
    async fn walk(&self, call: &Call, at: &At, want: Want) -> Result<Walked>;

    /// Returns a page of a directory's names. Needs `list`. Names that are there
    /// throughout a scan come exactly once, whatever else changes (law 5).
    async fn list(&self, call: &Call, dir: &At, from: Cursor, max: PageMax, want: Want) -> Result<Page>;

    /// Makes something. Needs `insert`. `Exists` if the name is taken. What `set` does
    /// not say, the new inode has from its caller and directory. `NotPermitted` for a junction.
    async fn make(&self, call: &Call, at: &At, new: New, set: &SetAttr) -> Result<Changed<Entry>>;

    /// Gives a file another name in the same container. Needs `attr-write` on the file and `insert`.
    /// `CrossVolume` across containers, `IsDirectory` for directories.
    async fn link(&self, call: &Call, file: &At, to: &At) -> Result<Changed<Entry>>;

    /// Renames, atomically. Needs `rename` (within a container) or `remove` there and
    /// `insert` here. `Loop` if a directory would come to lie below itself. The guard
    /// speaks of the target (`Absent`, `Is` …); for a missing source it is `NotFound`.
    async fn rename(
        &self,
        call: &Call,
        from: &At,
        to: &At,
        how: Replace,
        guard: &Guard,
    ) -> Result<Changed<()>>;

    /// Removes a name. Needs `remove`. The inode lives while it has names or opens. A junction is
    /// neither removed nor replaced (`NotPermitted`), and may be renamed.
    async fn remove(&self, call: &Call, at: &At, kind: Expect, guard: &Guard) -> Result<Changed<()>>;

    /// Returns where a symbolic link leads, or what a reference refers to. `Invalid`
    /// for other kinds.
    async fn target(&self, call: &Call, at: &At) -> Result<LinkTarget>;

    /// Sets attributes. Needs `attr-write` (`write` for the size); owner and group as
    /// law 17 says.
    async fn set(&self, call: &Call, at: &At, set: &SetAttr, guard: &Guard) -> Result<Changed<Attr>>;

    /// Returns user attributes in name order, after `from`. Needs `attr-read`.
    async fn tags(&self, call: &Call, at: &At, from: Option<TagName>) -> Result<TagPage>;

    /// Changes user attributes: all of the edits or none. Needs `attr-write`.
    async fn tag(&self, call: &Call, at: &At, edits: &[TagEdit], guard: &Guard) -> Result<Changed<()>>;

    /// Returns the policy of the container that governs the place. Needs `acl-read`.
    async fn policy(&self, call: &Call, at: &At) -> Result<Policy>;

    /// Changes policy. Needs `acl-write`. `Invalid` if nobody would be left who may. In
    /// the containers above, whoever is given something here is let pass, as far as the
    /// caller may change those.
    async fn protect(
        &self,
        call: &Call,
        at: &At,
        scope: Scope,
        edit: &PolicyEdit,
    ) -> Result<Changed<Protected>>;

    /// Explains whether `who` (the caller itself, if `None`) has `need`. Asking about
    /// others needs `acl-write`; they are taken by name, with the groups they are in now.
    async fn why(&self, call: &Call, at: &At, need: Rights, who: Option<CallerName>) -> Result<Why>;

    /// Returns the space that files at the place can take.
    async fn space(&self, call: &Call, at: &At) -> Result<Space>;

    /// Opens a file under the call's session: it stays readable while it is open, even
    /// without a name. Needs `how.need`, and `insert` if it makes the file.
    async fn open(&self, call: &Call, at: &At, how: &OpenHow) -> Result<Opened>;

    /// Returns a file to read or write by id without opening it: for doors without
    /// opens. No pin; it does not keep the file alive.
    async fn file(&self, call: &Call, id: FileId, need: Rights) -> Result<Arc<dyn OpenFile>>;

    /// Copies bytes between files of the volume without their leaving the node.
    async fn copy(&self, call: &Call, from: &At, range: Range, to: &At, offset: u64) -> Result<Copied>;

    /// Begins a stage for a name that may or may not exist. Needs `insert`, or `write`
    /// on what is there.
    async fn stage(&self, call: &Call, target: &At, hint: &StageHint) -> Result<Arc<dyn Stage>>;

    /// Returns a stage that was begun before, by the same caller. One that `anyone` began
    /// is found by whoever has its id, which nobody can guess.
    async fn staged(&self, call: &Call, id: StageId) -> Result<Arc<dyn Stage>>;

    /// Returns the caller's own stages for names in a directory, after `from`: those it may
    /// go on with. To `anyone`, who is not one caller, none.
    async fn stages(&self, call: &Call, dir: &At, from: Option<StageId>) -> Result<StagePage>;

    /// Takes a lock under the call's session. Needs `lock`.
    async fn lock(&self, call: &Call, at: &At, lock: &Lock, wait: Wait) -> Result<LockLease>;

    /// Returns a lock that stands in the way of this one, if any.
    async fn test(&self, call: &Call, at: &At, lock: &Lock) -> Result<Option<Lock>>;

    /// Gives up what the owner holds of the lock's scope. Nothing held is no error.
    async fn unlock(&self, call: &Call, at: &At, lock: &Lock) -> Result<()>;

    /// Brings everything acknowledged so far to disk. Returns the verifier (law 7).
    async fn sync(&self, call: &Call, at: &At, scope: SyncScope) -> Result<Verifier>;

    /// Returns changes at and below the place after `since`, waiting until the call's
    /// deadline if there are none (law 16). `Stale` if `since` is older than what is kept.
    async fn watch(&self, call: &Call, at: &At, since: ChangeSeq) -> Result<Changes>;

    /// Makes several requests, in order, not atomically. A later one is made even if
    /// an earlier one fails.
    async fn batch(&self, call: &Call, requests: Vec<Request>) -> Vec<Result<Reply>>;
}

/// An open file. Each call checks rights anew. Dropping it abandons it; `close`
/// reports errors that came late.
#[async_trait]
pub trait OpenFile: Send + Sync {
    /// Returns the file's id.
    fn id(&self) -> FileId;

    /// Returns the number, never 0, under which its file system keeps it for the process that comes after this one; `None`
    /// where no other could go on with it.
    fn kept_as(&self) -> Option<u64> {
        None
    }

    /// Returns its attributes: size and version as they are for this open.
    async fn attr(&self, call: &Call) -> Result<Attr>;

    /// Returns a source of the range's bytes. Holes read as zeros.
    async fn read(&self, call: &Call, range: Range) -> Result<Box<dyn Source>>;

    /// As [`OpenFile::read`], for whoever may read files of the machine below by itself: pieces that are files, as far as the
    /// range's first bytes lie in such. It ends where others begin, which are to be read. Of a pinned open nothing is to be
    /// lent: the files are read later, when they may hold another version.
    async fn lend(&self, call: &Call, range: Range) -> Result<Box<dyn Source>> {
        Ok(Box::new(InFiles::of(self.read(call, range).await?)))
    }

    /// Returns the BLAKE3 of each block of [`limits::SEAL_BLOCK_BYTES`](crate::limits::SEAL_BLOCK_BYTES)
    /// from the block numbered `block` on, the last as long as it is: at least one if there is one, and
    /// as many as cost little. Blocks that lie sealed have the digest that was made when they were
    /// written, others one of their bytes as they are now. Needs what `read` needs; a pinned open
    /// answers of its version.
    async fn digests(&self, call: &Call, block: u64) -> Result<Vec<[u8; 32]>>;

    /// Pulls the source to its end into the file. What was pulled before an error is
    /// written.
    async fn write(&self, call: &Call, at: WriteAt, data: &mut dyn Source) -> Result<Written>;

    /// Changes the file's extent.
    async fn shape(&self, call: &Call, shape: Shape) -> Result<Wcc>;

    /// Finds data or a hole from `offset` on.
    async fn seek(&self, call: &Call, offset: u64, what: Seek) -> Result<u64>;

    /// Brings the range (at least) and the attributes to disk.
    async fn sync(&self, call: &Call, range: Range) -> Result<Verifier>;

    /// Ends the open.
    async fn close(&self, call: &Call) -> Result<()>;
}

/// Bytes on their way to becoming a file: nobody sees any of them before `publish`,
/// and then everybody sees all. Each call needs what beginning the stage needed, and only
/// the caller that began it may make it.
#[async_trait]
pub trait Stage: Send + Sync {
    /// Returns the stage's id, by which it can be found again, also after a restart.
    fn id(&self) -> StageId;

    /// Pulls bytes into a part at an offset. Sending a part again replaces it; going
    /// on at its end continues it (resume); any other offset is `Invalid`.
    async fn put(&self, call: &Call, number: u32, offset: u64, data: &mut dyn Source) -> Result<Part>;

    /// Returns the parts there are, from a number on.
    async fn parts(&self, call: &Call, from: u32) -> Result<PartPage>;

    /// Makes the parts, in number order, the file at the target: atomically, and
    /// durably before it answers. `parts` must match what is staged (else `Invalid`);
    /// empty means whatever there is. An existing target keeps id, owner, mode,
    /// container, tags and links (law 14). The stage is gone afterwards.
    async fn publish(
        &self,
        call: &Call,
        parts: &[Part],
        set: &SetAttr,
        guard: &Guard,
    ) -> Result<Changed<Entry>>;

    /// Drops the stage and its bytes. The ACL need not allow it any more, but the
    /// credential must carry `insert` or `write` at the place.
    async fn discard(&self, call: &Call) -> Result<()>;
}
