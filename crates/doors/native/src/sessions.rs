//! What is open, by session. Kept apart from connections, so that a client that comes
//! back over another one finds what it had.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weft_core::form::{OpenFile, Pin, Stage};
use weft_core::service::SessionWatcher;
use weft_core::{Error, ErrorKind, Result, SessionId, StageId, limits};

use crate::held::OpenPart;
use crate::repeats::Repeats;

/// Every session's open files and stages.
#[derive(Default)]
pub struct OpenTables {
    tables: Mutex<HashMap<SessionId, Arc<OpenTable>>>,
    /// Answers that are kept for those who ask again, of all sessions.
    repeats: Arc<AtomicUsize>,
}

impl OpenTables {
    pub(crate) fn of(&self, session: SessionId) -> Arc<OpenTable> {
        let new = || {
            let repeats = Arc::new(Repeats::of_many(&self.repeats));
            Arc::new(OpenTable { repeats, ..OpenTable::default() })
        };
        lock(&self.tables).entry(session).or_insert_with(new).clone()
    }
}

impl SessionWatcher for OpenTables {
    fn ended(&self, session: SessionId) {
        lock(&self.tables).remove(&session);
    }
}

/// One session's open files and stages, and what was asked of them by a mark.
#[derive(Default)]
pub(crate) struct OpenTable {
    opens: Mutex<Opens>,
    pub(crate) repeats: Arc<Repeats>,
}

#[derive(Default)]
struct Opens {
    last: u32,
    files: HashMap<u32, Opened>,
    stages: HashMap<StageId, (Arc<dyn Stage>, OpenPart)>,
}

/// An open file.
struct Opened {
    file: Arc<dyn OpenFile>,
    pin: Pin,
    _part: OpenPart,
}

impl OpenTable {
    pub(crate) fn add(&self, file: Arc<dyn OpenFile>, pin: Pin, part: OpenPart) -> Result<u32> {
        let mut opens = lock(&self.opens);
        if opens.files.len() >= limits::SESSION_OPENS_MAX {
            return Err(Error::new(ErrorKind::Busy, "the session has too many files open"));
        }
        loop {
            opens.last = opens.last.wrapping_add(1);
            let number = opens.last;
            if let Entry::Vacant(free) = opens.files.entry(number) {
                free.insert(Opened { file, pin, _part: part });
                return Ok(number);
            }
        }
    }

    pub(crate) fn file(&self, number: u32) -> Result<Arc<dyn OpenFile>> {
        lock(&self.opens)
            .files
            .get(&number)
            .map(|opened| opened.file.clone())
            .ok_or_else(|| Error::stale("the file is not open in this session"))
    }

    /// Returns whether all that is read of an open file must be of one version.
    pub(crate) fn is_pinned(&self, number: u32) -> bool {
        lock(&self.opens).files.get(&number).is_some_and(|opened| opened.pin == Pin::Version)
    }

    pub(crate) fn drop_file(&self, number: u32) -> Option<Arc<dyn OpenFile>> {
        lock(&self.opens).files.remove(&number).map(|opened| opened.file)
    }

    pub(crate) fn add_stage(&self, stage: Arc<dyn Stage>, part: OpenPart) {
        let mut opens = lock(&self.opens);
        // A stage can always be found again by id, so forgetting all of them is safe.
        if opens.stages.len() >= limits::SESSION_OPENS_MAX {
            opens.stages.clear();
        }
        opens.stages.insert(stage.id(), (stage, part));
    }

    pub(crate) fn stage(&self, id: StageId) -> Option<Arc<dyn Stage>> {
        lock(&self.opens).stages.get(&id).map(|(stage, _)| stage.clone())
    }

    pub(crate) fn drop_stage(&self, id: StageId) {
        lock(&self.opens).stages.remove(&id);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change leaves the maps whole, so a panic elsewhere cannot spoil them.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
