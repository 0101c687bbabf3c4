//! The machine's descriptors that opens of a share's files go by.
//!
//! Whoever maps a file and closes it has it open until nothing of it is mapped any more, and a program may do that
//! thousands of times with one file. On the machine itself that counts for nobody's bound; here each open would take
//! descriptors of the node, until there are none for anyone. So of one file the first opens have one each, for which
//! the machine reads ahead and tells what was lost, and those after them share these. Decision 040.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::OwnedMutexGuard;
use weft_core::{Error, ErrorReport, Result, limits};
use weft_sys::disk::{OpenedAs, RealFile};

/// A descriptor, and what became known of it.
pub(super) struct Descriptor {
    file: Arc<RealFile>,
    /// What others of the file must be as well to share it; none may if it is not known.
    opened: Option<OpenedAs>,
    losses: Losses,
}

/// Flushes that failed: the machine says once for each of its descriptors that bytes were lost.
#[derive(Default)]
struct Losses {
    /// Taken by who flushes: whoever comes later is told of what that finds.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Flushes that were begun, and those that failed.
    begun: AtomicU64,
    count: AtomicU64,
    last: Mutex<Option<ErrorReport>>,
}

/// A descriptor in the hands of one open.
pub(super) struct Handle {
    of: Arc<Descriptor>,
    /// How many of its losses the open was told of, or came after.
    told: AtomicU64,
}

/// The turn of an open to flush.
pub(super) struct Turn {
    of: Arc<Descriptor>,
    /// Whether another open has flushed since this one asked to.
    is_flushed: bool,
    _turn: OwnedMutexGuard<()>,
}

/// The descriptors of a file that more opens may share.
#[derive(Default)]
pub(super) struct Descriptors(Vec<(OpenedAs, Weak<Descriptor>)>);

impl Descriptor {
    /// Takes what was opened for one open alone.
    pub(super) fn own(file: Arc<RealFile>) -> Arc<Self> {
        Arc::new(Self { file, opened: None, losses: Losses::default() })
    }

    /// Takes what was opened and others may share. Asks the machine, and so may wait for it.
    pub(super) fn to_share(file: Arc<RealFile>) -> Arc<Self> {
        Arc::new(Self { opened: file.opened_as().ok(), file, losses: Losses::default() })
    }
}

impl Handle {
    pub(super) fn of(descriptor: Arc<Descriptor>) -> Self {
        let told = AtomicU64::new(descriptor.losses.count.load(Ordering::Acquire));
        Self { of: descriptor, told }
    }

    pub(super) fn file(&self) -> &Arc<RealFile> {
        &self.of.file
    }

    /// Waits until no open that shares the descriptor flushes.
    pub(super) async fn turn(self: Arc<Self>) -> Turn {
        let losses = &self.of.losses;
        let begun = losses.begun.load(Ordering::SeqCst);
        let turn = losses.turn.clone().lock_owned().await;
        let is_flushed = losses.begun.load(Ordering::SeqCst) > begun;
        Turn { of: self.of.clone(), is_flushed, _turn: turn }
    }

    /// Fails once for each loss that flushes have found since the file was opened, whoever of those that share the
    /// descriptor the machine told, and whether or not they heard it.
    pub(super) fn tell_losses(&self) -> Result<()> {
        let losses = &self.of.losses;
        let count = losses.count.load(Ordering::Acquire);
        match &*losses.last.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(lost) if self.told.fetch_max(count, Ordering::AcqRel) < count => {
                Err(Error::from(lost.clone()))
            }
            _ => Ok(()),
        }
    }
}

impl Turn {
    /// Brings bytes and attributes to disk. That some were lost is asked for after it ([`Handle::tell_losses`]).
    pub(super) fn flush(&self) {
        self.flush_by(|| self.of.file.flush());
    }

    fn flush_by(&self, flush: impl FnOnce() -> Result<()>) {
        let losses = &self.of.losses;
        if self.is_flushed {
            return;
        }
        losses.begun.fetch_add(1, Ordering::SeqCst);
        if let Err(error) = flush() {
            *losses.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(ErrorReport::from(&error));
            losses.count.fetch_add(1, Ordering::AcqRel);
        }
    }
}

impl Descriptors {
    /// Returns what an open goes by that has just opened `own`, and `own` if that is not it: closing it may take
    /// its time.
    pub(super) fn join(&mut self, own: Arc<Descriptor>) -> (Handle, Option<Arc<Descriptor>>) {
        let Some(opened) = own.opened else { return (Handle::of(own), None) };
        self.0.retain(|(_, other)| other.strong_count() > 0);
        // Another disk may be mounted by now where the share lies.
        let alike = self.0.iter().filter(|(other, _)| *other == opened).map(|(_, other)| other);
        if alike.clone().count() >= limits::EXPORT_DESCRIPTORS_OF_FILE
            && let Some(shared) = alike.min_by_key(|other| other.strong_count()).and_then(Weak::upgrade)
        {
            return (Handle::of(shared), Some(own));
        }
        self.0.push((opened, Arc::downgrade(&own)));
        (Handle::of(own), None)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};
    use std::task::{Context, Waker};

    use weft_core::ErrorKind;
    use weft_sys::beneath::{Beneath, Fresh};
    use weft_sys::simulate;

    use super::*;

    /// Opens of a descriptor.
    fn opens<const N: usize>(of: &Arc<Descriptor>) -> [Arc<Handle>; N] {
        std::array::from_fn(|_| Arc::new(Handle::of(of.clone())))
    }

    fn descriptor() -> (tempfile::TempDir, Arc<Descriptor>) {
        let home = tempfile::tempdir().expect("a directory");
        let above = Beneath::open(home.path()).and_then(|beneath| beneath.itself()).expect("it is there");
        let made = above.make(b"f", Fresh::File, 0o600).expect("made");
        (home, Descriptor::to_share(made.open(true).expect("opened")))
    }

    async fn flush(by: &Arc<Handle>, flush: fn() -> Result<()>) -> Result<()> {
        by.clone().turn().await.flush_by(flush);
        by.tell_losses()
    }

    /// Begins to wait, and returns whether that is needed.
    fn waits(future: Pin<&mut impl Future>) -> bool {
        future.poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    fn works() -> Result<()> {
        Ok(())
    }

    fn fails() -> Result<()> {
        Err(Error::new(ErrorKind::NoSpace, "the disk is full").op("flush"))
    }

    #[test]
    fn each_open_that_shares_a_descriptor_is_told_once_of_what_a_flush_of_any_found_lost() {
        simulate(1, |_| async {
            let (_home, of) = descriptor();
            let [one, other] = opens(&of);
            flush(&one, works).await.expect("nothing is lost");
            let lost = flush(&one, fails).await.expect_err("the machine says so");
            assert_eq!(lost.kind(), ErrorKind::NoSpace);
            let [later] = opens(&of);
            flush(&one, works).await.expect("it was told already");
            let lost = flush(&other, works).await.expect_err("its bytes may be among those lost");
            assert_eq!(lost.kind(), ErrorKind::NoSpace);
            flush(&other, works).await.expect("once");
            flush(&later, works).await.expect("it was opened since");
            flush(&later, fails).await.expect_err("the next loss");
            flush(&one, works).await.expect_err("the next loss");
        });
    }

    #[test]
    fn what_a_flush_found_lost_that_nobody_waited_for_any_more_is_told_by_the_next() {
        simulate(1, |_| async {
            let (_home, of) = descriptor();
            let [one] = opens(&of);
            one.clone().turn().await.flush_by(fails);
            let lost = flush(&one, works).await.expect_err("its bytes may be among those lost");
            assert_eq!(lost.kind(), ErrorKind::NoSpace);
            flush(&one, works).await.expect("once");
        });
    }

    #[test]
    fn who_asks_before_a_flush_begins_needs_no_other_and_who_asks_while_it_is_made_does() {
        simulate(1, |_| async {
            let (_home, of) = descriptor();
            let [one, before, meanwhile] = opens(&of);
            let told = [&before, &meanwhile].map(Arc::clone);
            let (mut before, mut meanwhile) = (pin!(before.turn()), pin!(meanwhile.turn()));
            let turn = one.turn().await;
            assert!(waits(before.as_mut()));
            let fails = || {
                assert!(waits(meanwhile.as_mut()));
                fails()
            };
            turn.flush_by(fails);
            drop(turn);
            before.await.flush_by(|| unreachable!("it was flushed since"));
            let mut flushed = false;
            let again = || {
                flushed = true;
                works()
            };
            meanwhile.await.flush_by(again);
            told.iter().for_each(|open| drop(open.tell_losses().expect_err("what was lost may be its own")));
            assert!(flushed, "what it wrote need not have been there when the first began");
        });
    }
}
