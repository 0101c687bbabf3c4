//! Uploads under way: what is known of them in memory, and the names that their bytes have.
//!
//! Bytes are staged in the directory that they are meant for, since a file is put in its place by a
//! rename: under names that a share neither shows nor takes. Stages end with the process; what one that
//! was killed left behind is taken away when its directory is next listed, or removed.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weft_core::form::At;
use weft_core::{CallerId, Error, ErrorKind, FileId, Name, Result, StageId, Time, limits};
use weft_sys::DiskFile;
use weft_sys::beneath::Held;
use weft_sys::disk::RealFile;

/// What every name of staged bytes begins with.
const PREFIX: &[u8] = b".weft-stage-";

/// Returns whether a name is kept for staged bytes.
pub(super) fn is_reserved(name: &Name) -> bool {
    name.as_bytes().starts_with(PREFIX)
}

/// Returns whether a name is one under which this share's node stages, or has staged.
pub(super) fn is_staged_by(name: &[u8], owner: u64) -> bool {
    staged(name).is_some_and(|(of, _)| of == owner)
}

/// Returns whose staged bytes a name is of, and of which stage.
fn staged(name: &[u8]) -> Option<(u64, StageId)> {
    let rest = std::str::from_utf8(name.strip_prefix(PREFIX)?).ok()?;
    let mut fields = rest.split('-');
    let owner = u64::from_str_radix(fields.next()?, 16).ok()?;
    let id = u128::from_str_radix(fields.next()?, 16).ok()?;
    Some((owner, StageId(id)))
}

/// Every stage.
#[derive(Default)]
pub(super) struct Stages(Mutex<HashMap<StageId, Arc<Staging>>>);

/// One stage.
pub(super) struct Staging {
    pub(super) id: StageId,
    pub(super) caller: CallerId,
    pub(super) dir: FileId,
    pub(super) name: Name,
    pub(super) begun: Time,
    /// Tells the node's own leftovers from what another node stages in the same directory.
    owner: u64,
    /// The directory, wherever it is moved.
    pub(super) held: Arc<Held>,
    /// Held while a part is begun.
    pub(super) making: tokio::sync::Mutex<()>,
    parts: Mutex<BTreeMap<u32, Arc<tokio::sync::Mutex<StagedPart>>>>,
}

/// Bytes of one part.
pub(super) struct StagedPart {
    pub(super) bytes: u64,
    /// As many of the first of them are on their way to the disk.
    pub(super) on_its_way: u64,
    pub(super) hasher: blake3::Hasher,
    pub(super) file: Arc<RealFile>,
    /// The file itself, whatever has its name.
    pub(super) held: Arc<Held>,
    /// The directory they are in, as it was when they came.
    pub(super) dir: Arc<Held>,
    pub(super) name: Vec<u8>,
    /// Whether they have become the file.
    pub(super) published: bool,
}

impl Stages {
    fn lock(&self) -> MutexGuard<'_, HashMap<StageId, Arc<Staging>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a stage. `Busy` if there are as many as there may be.
    pub(super) fn begin(&self, staging: Staging) -> Result<Arc<Staging>> {
        let mut stages = self.lock();
        if stages.len() >= limits::EXPORT_STAGES_MAX {
            return Err(Error::new(ErrorKind::Busy, "as many uploads are under way on the share as may be"));
        }
        let staging = Arc::new(staging);
        stages.insert(staging.id, staging.clone());
        Ok(staging)
    }

    pub(super) fn find(&self, id: StageId) -> Option<Arc<Staging>> {
        self.lock().get(&id).cloned()
    }

    pub(super) fn end(&self, id: StageId) -> Option<Arc<Staging>> {
        self.lock().remove(&id)
    }

    /// Returns a caller's stages in a directory, by id, after one.
    pub(super) fn of(&self, dir: FileId, caller: CallerId, from: Option<StageId>) -> Vec<Arc<Staging>> {
        let stages = self.lock();
        let own = stages.values().filter(|staging| staging.dir == dir && staging.caller == caller);
        let mut own: Vec<_> =
            own.filter(|staging| from.is_none_or(|from| staging.id > from)).cloned().collect();
        own.sort_unstable_by_key(|staging| staging.id);
        own
    }

    /// Ends the stages that were begun before a moment.
    pub(super) fn end_older(&self, than: Time) -> Vec<Arc<Staging>> {
        let mut stages = self.lock();
        let old: Vec<_> = stages.values().filter(|staging| staging.begun < than).cloned().collect();
        old.iter().for_each(|staging| _ = stages.remove(&staging.id));
        old
    }

    /// Returns whether a name is one of staged bytes that nobody stages any more.
    pub(super) fn is_left_behind(&self, name: &[u8], owner: u64) -> bool {
        staged(name).is_some_and(|(of, id)| of == owner && self.find(id).is_none())
    }
}

impl Staging {
    pub(super) fn new(
        id: StageId,
        caller: CallerId,
        (dir, held, name): (FileId, Arc<Held>, Name),
        begun: Time,
        owner: u64,
    ) -> Self {
        let (making, parts) = (tokio::sync::Mutex::default(), Mutex::default());
        Self { id, caller, dir, name, begun, owner, held, making, parts }
    }

    /// Returns the name that it is meant for.
    pub(super) fn target(&self) -> At {
        At::name(self.dir, self.name.clone())
    }

    /// Returns the name that bytes are staged under.
    pub(super) fn staged_as(&self, what: &str) -> Vec<u8> {
        let mut name = PREFIX.to_vec();
        name.extend_from_slice(format!("{:016x}-{:032x}-{what}", self.owner, self.id.0).as_bytes());
        name
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<tokio::sync::Mutex<StagedPart>>>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a part, if there is one.
    pub(super) fn part(&self, number: u32) -> Option<Arc<tokio::sync::Mutex<StagedPart>>> {
        self.lock().get(&number).cloned()
    }

    /// Adds a part. For who holds `making`, and has seen that there is none.
    pub(super) fn add(&self, number: u32, part: StagedPart) -> Arc<tokio::sync::Mutex<StagedPart>> {
        let part = Arc::new(tokio::sync::Mutex::new(part));
        self.lock().insert(number, part.clone());
        part
    }

    /// Returns the parts by number, from one on.
    pub(super) fn parts(&self, from: u32) -> Vec<(u32, Arc<tokio::sync::Mutex<StagedPart>>)> {
        self.lock().range(from..).map(|(number, part)| (*number, part.clone())).collect()
    }
}

impl StagedPart {
    /// Has what came begin its way to the disk, so that a flush at the end does not find all of it left to do.
    pub(super) fn send_on_its_way(&mut self) {
        let length = self.bytes - self.on_its_way;
        if length >= limits::STORE_STRETCH_BYTES {
            self.file.write_behind(self.on_its_way, length);
            self.on_its_way = self.bytes;
        }
    }
}

impl Drop for StagedPart {
    fn drop(&mut self) {
        // What fails here is taken away when the directory is next listed.
        if !self.published {
            let _ = self.dir.remove(&self.name, false);
        }
    }
}
