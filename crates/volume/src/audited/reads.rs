//! What was read and stands in no record yet.
//!
//! Each open, with whatever still reads through it, counts its bytes. They are recorded when it is
//! closed, when the last of it goes, and meanwhile every [`limits::AUDIT_READS_EVERY`]: so a node
//! that is killed loses a moment of reads, however long a file is held open.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use weft_core::form::Call;
use weft_core::{ContainerId, Error, FileId, limits};

use super::{About, Inner};

/// What is read through one open.
pub(super) struct Tally {
    pub(super) inner: Arc<Inner>,
    pub(super) reader: Reader,
    touched: AtomicBool,
    bytes: AtomicU64,
    /// That its right ended is recorded: who reads and who waits may both meet it.
    is_cut_off: AtomicBool,
}

/// Who reads what. Who reads is who opened.
#[derive(Clone)]
pub(super) struct Reader {
    pub(super) call: Call,
    pub(super) file: FileId,
    /// Where it was when it was opened.
    pub(super) container: Option<ContainerId>,
}

/// Reads that are to be recorded soon.
#[derive(Default)]
pub(super) struct Unrecorded {
    due: Mutex<Due>,
    /// Whoever records; who comes meanwhile waits until that is done.
    recording: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Due {
    /// By their addresses, which nobody else has while they are here. Most leave within a moment,
    /// when what was opened for one answer is closed.
    open: HashMap<usize, Weak<Tally>>,
    gone: Vec<(Reader, u64)>,
    /// Somebody comes to record them.
    awaited: bool,
}

impl Tally {
    pub(super) fn new(inner: Arc<Inner>, reader: Reader) -> Arc<Self> {
        inner.sys.metrics().volume_opens.enter(());
        Arc::new(Self {
            inner,
            reader,
            touched: AtomicBool::new(false),
            bytes: AtomicU64::new(0),
            is_cut_off: AtomicBool::new(false),
        })
    }

    /// Notes that a read begins. Returns what [`Tally::count`] does.
    pub(super) fn begin(self: &Arc<Self>) -> bool {
        self.is_cut_off.store(false, Ordering::Release);
        self.count(0)
    }

    /// Records why a read that had begun ended, if that was a refusal.
    pub(super) async fn cut_off(&self, error: &Error) {
        if !self.is_cut_off.swap(true, Ordering::AcqRel) {
            self.inner.refused(&self.reader.call, "read", About::Open(&self.reader), error).await;
        }
    }

    /// Counts bytes that were read; none at first, by whoever begins. Returns whether more had
    /// gathered than should before it.
    pub(super) fn count(self: &Arc<Self>, bytes: u64) -> bool {
        self.bytes.fetch_add(bytes, Ordering::AcqRel);
        if self.touched.swap(true, Ordering::AcqRel) {
            return false;
        }
        let mut due = self.inner.unrecorded.due();
        let full = due.open.len() + due.gone.len() >= limits::AUDIT_QUEUE_MAX;
        due.open.insert(self.place(), Arc::downgrade(self));
        self.inner.record_soon(&mut due);
        full
    }

    fn place(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Returns the bytes that are in no record; `None` if nothing was read since the last.
    fn take(&self, due: &mut Due) -> Option<u64> {
        // Both under the lock: whoever counts from here on puts it there again.
        let touched = self.touched.swap(false, Ordering::AcqRel);
        touched.then(|| {
            due.open.remove(&self.place());
            self.bytes.swap(0, Ordering::AcqRel)
        })
    }

    /// Records what is in no record.
    pub(super) async fn record(&self) {
        let taken = self.take(&mut self.inner.unrecorded.due());
        if let Some(bytes) = taken {
            self.inner.read(&self.reader, bytes).await;
        }
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.inner.sys.metrics().volume_opens.leave(());
        if !*self.touched.get_mut() {
            return;
        }
        let mut due = self.inner.unrecorded.due();
        if let Some(bytes) = self.take(&mut due) {
            due.gone.push((self.reader.clone(), bytes));
            self.inner.record_soon(&mut due);
        }
    }
}

impl Unrecorded {
    fn due(&self) -> MutexGuard<'_, Due> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn record_soon(self: &Arc<Self>, due: &mut Due) {
        if !std::mem::replace(&mut due.awaited, true) {
            let inner = self.clone();
            drop(self.sys.spawn(async move {
                inner.sys.sleep(limits::AUDIT_READS_EVERY).await;
                inner.unrecorded.due().awaited = false;
                inner.record_reads().await;
            }));
        }
    }

    /// Records everything that was read before now.
    pub(super) async fn record_reads(&self) {
        let _alone = self.unrecorded.recording.lock().await;
        let (open, gone) = {
            let mut due = self.unrecorded.due();
            (std::mem::take(&mut due.open), std::mem::take(&mut due.gone))
        };
        for (reader, bytes) in gone {
            self.read(&reader, bytes).await;
        }
        for tally in open.values().filter_map(Weak::upgrade) {
            tally.record().await;
        }
    }
}
