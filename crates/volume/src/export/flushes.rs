//! Directories whose names are to be on disk: each is flushed once for all who wait for that.
//!
//! Whoever asks while a flush is under way may have acted after it began: they are the next one's.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use weft_core::{Error, ErrorReport, FileId, Result};
use weft_sys::Sys;

/// Who waits for which directory. One that nobody flushes has no row.
pub(super) struct Flushes<T>(Mutex<HashMap<FileId, Vec<Waiting<T>>>>);

struct Waiting<T> {
    dir: T,
    told: oneshot::Sender<Result<()>>,
}

impl<T> Default for Flushes<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Send + 'static> Flushes<T> {
    /// Has a directory flushed, by a flush that begins after this call. Fails as that does.
    pub(super) async fn flushed<F>(
        self: &Arc<Self>,
        sys: &Sys,
        (id, dir): (FileId, T),
        flush: impl Fn(T) -> F + Send + 'static,
    ) -> Result<()>
    where
        F: Future<Output = Result<()>> + Send,
    {
        let (told, answer) = oneshot::channel();
        if self.is_first(id, Waiting { dir, told }) {
            let all = self.clone();
            drop(sys.spawn(async move {
                while let Some((dir, waiting)) = all.next(id) {
                    let flushed = flush(dir).await.map_err(|error| ErrorReport::from(&error));
                    waiting.into_iter().for_each(|told| _ = told.send(flushed.clone().map_err(Error::from)));
                }
            }));
        }
        answer.await.map_err(|_| Error::internal("a flush was given up"))?
    }

    /// Returns whether nobody flushes the directory, so that whoever asks must have it done.
    fn is_first(&self, id: FileId, waiting: Waiting<T>) -> bool {
        let mut all = self.all();
        let is_first = !all.contains_key(&id);
        all.entry(id).or_default().push(waiting);
        is_first
    }

    /// Takes all who wait for a directory. If nobody does, it is flushed no more.
    fn next(&self, id: FileId) -> Option<(T, Vec<oneshot::Sender<Result<()>>>)> {
        let mut all = self.all();
        let waiting = std::mem::take(all.get_mut(&id)?);
        let (mut dirs, told): (Vec<T>, Vec<_>) = waiting.into_iter().map(|w| (w.dir, w.told)).unzip();
        let next = dirs.pop();
        if next.is_none() {
            all.remove(&id);
        }
        next.map(|dir| (dir, told))
    }

    fn all(&self) -> MutexGuard<'_, HashMap<FileId, Vec<Waiting<T>>>> {
        // Every change leaves it whole, so a panic elsewhere cannot spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Semaphore;
    use weft_core::ErrorKind;
    use weft_sys::{Task, simulate};

    use super::*;

    /// A disk whose flushes wait until they are let through; that of number 2 fails.
    struct Slow {
        begun: AtomicUsize,
        through: Semaphore,
    }

    fn asks(sys: &Sys, flushes: &Arc<Flushes<Arc<Slow>>>, disk: &Arc<Slow>) -> Task<Result<()>> {
        let (own, flushes, disk) = (sys.clone(), flushes.clone(), disk.clone());
        sys.spawn(async move {
            let flush = |disk: Arc<Slow>| async move {
                let number = disk.begun.fetch_add(1, Ordering::Relaxed) + 1;
                disk.through.acquire().await.expect("open").forget();
                if number == 2 { Err(Error::new(ErrorKind::Unavailable, "the second")) } else { Ok(()) }
            };
            flushes.flushed(&own, (FileId::ROOT, disk), flush).await
        })
    }

    #[test]
    fn who_asks_while_a_flush_runs_waits_for_the_next_and_shares_it() {
        simulate(1, |sys| async move {
            let flushes = Arc::new(Flushes::default());
            let disk = Arc::new(Slow { begun: AtomicUsize::new(0), through: Semaphore::new(0) });
            let pass = async || sys.sleep(std::time::Duration::from_millis(1)).await;
            let first = asks(&sys, &flushes, &disk);
            pass().await;
            let others: Vec<_> = (0..3).map(|_| asks(&sys, &flushes, &disk)).collect();
            pass().await;
            assert_eq!(disk.begun.load(Ordering::Relaxed), 1, "one at a time");
            disk.through.add_permits(1);
            first.await.expect("it ran").expect("flushed");
            pass().await;
            assert_eq!(
                disk.begun.load(Ordering::Relaxed),
                2,
                "what was asked for meanwhile is not yet on disk"
            );
            let later = asks(&sys, &flushes, &disk);
            pass().await;
            disk.through.add_permits(10);
            for other in others {
                let error = other.await.expect("it ran").expect_err("their flush failed");
                assert_eq!(error.kind(), ErrorKind::Unavailable);
            }
            later.await.expect("it ran").expect("the third is another");
            assert_eq!(disk.begun.load(Ordering::Relaxed), 3);
            assert!(flushes.all().is_empty(), "nothing is kept");
            asks(&sys, &flushes, &disk).await.expect("it ran").expect("flushed");
            assert_eq!(disk.begun.load(Ordering::Relaxed), 4);
        });
    }
}
