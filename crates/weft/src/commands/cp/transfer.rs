//! Files on their way, several at a time, while others are still looked for.

use std::sync::Arc;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::mpsc::{Sender, channel};
use weft_client::copy::{Outcome, Progress};
use weft_core::{Error, Result, limits};

use super::{Job, interrupted};
use crate::progress;

/// What a file counts for at most of the bytes that are under way at once: of large ones eight, enough
/// to share flushes, few enough for one disk.
const COUNTED_BYTES_MAX: u64 = limits::COPIES_AT_ONCE_BYTES / 8;

/// Where found files go, to be copied while others are still looked for.
pub(super) struct Files<T> {
    shared: Arc<Progress>,
    files: Sender<(u64, T)>,
}

impl<T> Files<T> {
    /// Hands on a file of so many bytes.
    pub(super) async fn put(&self, bytes: u64, file: T) -> Result<()> {
        self.shared.expect(bytes);
        // Nobody takes them after what ended all, which is said by whoever met it.
        self.files.send((bytes, file)).await.map_err(|_| interrupted())
    }
}

impl Job<'_> {
    /// Shows how far the copies are while `work` makes them, and has them stop at Ctrl-C.
    async fn carry(&self, shared: &Arc<Progress>, work: impl Future<Output = Result<()>>) -> Result<()> {
        let shown = |beside| {
            self.report.beside(beside);
            work
        };
        self.heeding(progress::watch(self.context, shared, shown)).await?;
        if shared.stopped() {
            // All that was under way is through by now.
            self.ended.set(true);
            return Err(interrupted());
        }
        Ok(())
    }

    /// Copies files of known sizes.
    pub(super) async fn transfer_all<T>(
        &self,
        files: Vec<(u64, T)>,
        copy: impl AsyncFn(T, &Progress) -> Result<Outcome>,
    ) -> Result<()> {
        let shared = Arc::new(Progress::default());
        shared.expect(files.iter().map(|(bytes, _)| bytes).sum());
        let mut files = files.into_iter();
        let transfer = self.transfer(&shared, limits::COPIES_AT_ONCE_MAX, async || files.next(), copy);
        self.carry(&shared, transfer).await
    }

    /// Copies files while `look` finds them, `at_once` at a time.
    pub(super) async fn transfer_found<T>(
        &self,
        shared: &Arc<Progress>,
        at_once: usize,
        look: impl AsyncFnOnce(Files<T>) -> Result<()>,
        copy: impl AsyncFn(T, &Progress) -> Result<Outcome>,
    ) -> Result<()> {
        let (files, mut found) = channel(limits::COPIES_WAITING_MAX);
        let looked = look(Files { shared: shared.clone(), files });
        let copied = async {
            let copied = self.transfer(shared, at_once, async || found.recv().await, copy).await;
            // Whoever looks for more is told that nobody takes them.
            found.close();
            copied
        };
        let both = async {
            let (looked, copied) = tokio::join!(looked, copied);
            copied.and(looked)
        };
        self.carry(shared, both).await
    }

    /// Copies files, as `next` brings them with their sizes, `at_once` at a time. After a failure that ends
    /// all no more are begun, but those under way end: what they have done is not lost.
    async fn transfer<T>(
        &self,
        shared: &Progress,
        at_once: usize,
        mut next: impl AsyncFnMut() -> Option<(u64, T)>,
        copy: impl AsyncFn(T, &Progress) -> Result<Outcome>,
    ) -> Result<()> {
        let one = async |counted: u64, file: T| (counted, copy(file, shared).await);
        let (mut running, mut ended, mut more, mut under_way) = (FuturesUnordered::new(), None, true, 0);
        loop {
            let room = running.len() < at_once && under_way < limits::COPIES_AT_ONCE_BYTES;
            let goes_on = more && ended.is_none() && !self.ended.get() && !shared.stopped();
            if running.is_empty() && !goes_on {
                return ended.map_or(Ok(()), Err);
            }
            tokio::select! {
                biased;
                Some((counted, done)) = running.next(), if !running.is_empty() => {
                    under_way -= counted;
                    if let Some(error) = self.count(shared, done).await {
                        ended = ended.or(Some(error));
                    }
                }
                file = next(), if goes_on && room => match file {
                    Some((bytes, file)) => {
                        let counted = bytes.min(COUNTED_BYTES_MAX);
                        under_way += counted;
                        running.push(one(counted, file));
                    }
                    None => more = false,
                },
            }
        }
    }

    /// Counts what became of a file. Returns what ends all.
    async fn count(&self, shared: &Progress, done: Result<Outcome>) -> Option<Error> {
        match done {
            Ok(outcome) => {
                self.report.add(outcome);
                None
            }
            Err(e) => {
                if shared.stopped() {
                    self.ended.set(true);
                }
                self.failed(e).await.err()
            }
        }
    }
}
