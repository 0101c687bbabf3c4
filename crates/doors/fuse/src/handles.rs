//! Open files, by the number the kernel names them with.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use rustix::io::Errno;
use weft_core::form::{OpenFile, Verifier};
use weft_core::{FileId, Rights};

/// One open file.
pub(crate) struct Handle {
    /// The node it was opened at.
    pub node: u64,
    /// What the file system opened.
    pub file: Arc<dyn OpenFile>,
    /// The rights it was opened with.
    pub rights: Rights,
    /// The verifier of the first write since the last sync.
    unsynced: Mutex<Option<Verifier>>,
}

impl Handle {
    pub(crate) fn new(node: u64, file: Arc<dyn OpenFile>, rights: Rights) -> Self {
        Self { node, file, rights, unsynced: Mutex::new(None) }
    }

    /// Notes a write. Returns nothing: a loss is told to whoever syncs, as Linux does.
    pub(crate) fn wrote(&self, verifier: Verifier) {
        self.unsynced.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(verifier);
    }

    /// Notes a sync. Fails with `EIO` once if what was written before it may be lost.
    pub(crate) fn synced(&self, verifier: Verifier) -> Result<(), Errno> {
        match self.unsynced.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(written) if written != verifier => Err(Errno::IO),
            _ => Ok(()),
        }
    }
}

/// The open files of one mount.
#[derive(Default)]
pub(crate) struct Handles {
    open: RwLock<HashMap<u64, Arc<Handle>>>,
    last: AtomicU64,
}

impl Handles {
    /// Takes an open file in. Returns its number, which never comes again.
    pub(crate) fn add(&self, handle: Handle) -> u64 {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.open.write().unwrap_or_else(PoisonError::into_inner).insert(number, Arc::new(handle));
        number
    }

    /// Returns an open file. `EBADF` if there is none of that number.
    pub(crate) fn find(&self, number: u64) -> Result<Arc<Handle>, Errno> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.get(&number).cloned().ok_or(Errno::BADF)
    }

    /// Takes an open file out.
    pub(crate) fn remove(&self, number: u64) -> Option<Arc<Handle>> {
        self.open.write().unwrap_or_else(PoisonError::into_inner).remove(&number)
    }

    /// Returns an open file of a node, if there is one.
    pub(crate) fn of_node(&self, node: u64) -> Option<Arc<Handle>> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.values().find(|handle| handle.node == node).cloned()
    }

    /// Returns which files are open, and with which rights, each node once.
    pub(crate) fn each_node(&self) -> Vec<(u64, FileId, Rights)> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let mut nodes = HashMap::new();
        for handle in open.values() {
            let (_, rights) = nodes.entry(handle.node).or_insert((handle.file.id(), Rights::NONE));
            *rights |= handle.rights;
        }
        nodes.into_iter().map(|(node, (file, rights))| (node, file, rights)).collect()
    }
}
