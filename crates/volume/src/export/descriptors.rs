//! The machine's descriptors that opens of a share's files go by.
//!
//! Whoever maps a file and closes it has it open until nothing of it is mapped any more, and a program may do that
//! thousands of times with one file. On the machine itself that counts for nobody's bound; here each open would take
//! descriptors of the node, until there are none for anyone. So of one file the first opens have one each, for which
//! the machine reads ahead and tells what was lost, and those after them share these. Decision 040.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use weft_core::{Error, ErrorReport, Result, limits};
use weft_sys::disk::RealFile;

/// A descriptor, and what became known of it.
pub(super) struct Descriptor {
    file: Arc<RealFile>,
    writes: bool,
    losses: Losses,
}

/// Flushes that failed: the machine says once for each of its descriptors that bytes were lost.
#[derive(Default)]
struct Losses {
    count: AtomicU64,
    /// Held while a flush is under way: who begins a later one is told of what that finds.
    last: Mutex<Option<ErrorReport>>,
}

/// A descriptor in the hands of one open.
pub(super) struct Handle {
    of: Arc<Descriptor>,
    /// How many of its losses the open was told of, or came after.
    told: AtomicU64,
}

/// All descriptors by which a file is open.
#[derive(Default)]
pub(super) struct Descriptors(Vec<Weak<Descriptor>>);

impl Descriptor {
    /// Takes a file that was opened, `writes` also to write.
    pub(super) fn new(file: Arc<RealFile>, writes: bool) -> Self {
        Self { file, writes, losses: Losses::default() }
    }
}

impl Handle {
    /// Takes a descriptor that nobody shares.
    pub(super) fn of(own: Descriptor) -> Self {
        Self::joining(Arc::new(own))
    }

    fn joining(of: Arc<Descriptor>) -> Self {
        let told = AtomicU64::new(of.losses.count.load(Ordering::Acquire));
        Self { of, told }
    }

    pub(super) fn file(&self) -> &Arc<RealFile> {
        &self.of.file
    }

    /// Brings bytes and attributes to disk. Fails once for each loss since the file was opened, whoever of those
    /// that share the descriptor the machine told.
    pub(super) fn flush(&self) -> Result<()> {
        self.of.losses.flush(&self.told, || self.of.file.flush())
    }
}

impl Losses {
    fn flush(&self, told: &AtomicU64, flush: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let flushed = flush();
        if let Err(error) = &flushed {
            *last = Some(ErrorReport::from(error));
            self.count.fetch_add(1, Ordering::Release);
        }
        let count = self.count.load(Ordering::Acquire);
        match &*last {
            Some(lost) if told.swap(count, Ordering::AcqRel) != count => Err(Error::from(lost.clone())),
            _ => flushed,
        }
    }
}

impl Descriptors {
    /// Returns what an open goes by that has just opened `own`, and `own` if that is not it: closing it may take
    /// its time. `number` is any that tells opens apart.
    pub(super) fn join(&mut self, own: Descriptor, number: u64) -> (Handle, Option<Descriptor>) {
        self.0.retain(|other| other.strong_count() > 0);
        let others = self.0.iter().filter_map(Weak::upgrade);
        let alike: Vec<_> = others.filter(|other| other.writes == own.writes).collect();
        let shared = &alike.get(number as usize % alike.len().max(1));
        if alike.len() >= limits::EXPORT_DESCRIPTORS_OF_FILE
            && let Some(shared) = shared
            // Another disk may be mounted by now where the share lies.
            && shared.file.is_alike(&own.file)
        {
            return (Handle::joining(Arc::clone(shared)), Some(own));
        }
        let own = Arc::new(own);
        self.0.push(Arc::downgrade(&own));
        (Handle::joining(own), None)
    }
}

#[cfg(test)]
mod tests {
    use weft_core::ErrorKind;

    use super::*;

    #[test]
    fn each_open_that_shares_a_descriptor_is_told_once_of_what_a_flush_of_any_found_lost() {
        let losses = Losses::default();
        let [one, other] = [AtomicU64::new(0), AtomicU64::new(0)];
        let fails = || Err(Error::new(ErrorKind::NoSpace, "the disk is full").op("flush"));
        let works = || Ok(());
        assert!(losses.flush(&one, works).is_ok());
        let lost = losses.flush(&one, fails).expect_err("the machine says so");
        assert_eq!(lost.kind(), ErrorKind::NoSpace);
        let later = AtomicU64::new(losses.count.load(Ordering::Acquire));
        assert!(losses.flush(&one, works).is_ok(), "who was told already");
        let lost = losses.flush(&other, works).expect_err("its bytes may be among those lost");
        assert_eq!(lost.kind(), ErrorKind::NoSpace);
        assert!(losses.flush(&other, works).is_ok(), "once");
        assert!(losses.flush(&later, works).is_ok(), "who opened it since");
        assert!(losses.flush(&later, fails).is_err() && losses.flush(&one, works).is_err(), "the next loss");
    }
}
