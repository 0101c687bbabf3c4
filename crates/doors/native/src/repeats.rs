//! Calls on open files that may come twice: whoever asks again by the same mark, over another connection as well, is given the
//! first answer.
//!
//! Changes of names and attributes are known by their marks to the volume, which keeps the answer with the change. What is
//! opened is open in the memory of this process alone, and bytes that were written are not on the disk before a sync: so is
//! what is known of these. After a restart both are gone, and a call that is made again then is made anew.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use weft_core::form::{At, OpenHow, Shape, WriteAt};
use weft_core::{CallerId, Error, RequestId, Result, limits};
use weft_rpc::{Answer, CallBody, FileAsk, FileRef};

/// The answers of one session, [`limits::ONCE_RING`] of them, as long as all sessions have no more than
/// [`limits::REPEATS_KEPT_MAX`].
#[derive(Default)]
pub(crate) struct Repeats {
    ring: Mutex<Ring>,
    /// How many all sessions have.
    kept: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Ring {
    given: HashMap<RequestId, (Asked, State)>,
    order: VecDeque<RequestId>,
}

/// Who asks for what.
pub(crate) type Asked = (CallerId, Act);

/// What is asked, without the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Open(At, OpenHow),
    Write(FileRef, WriteAt),
    Shape(FileRef, Shape),
}

enum State {
    /// It is being made: this ends with that.
    UnderWay(watch::Receiver<()>),
    Made(Box<Answer>),
}

/// What becomes of a call.
pub(crate) enum Turn {
    /// It is made, and its answer kept with this.
    Make(Box<Keeper>),
    /// It was made.
    Made(Box<Answer>),
}

/// Keeps an answer; dropped without, the call may be made anew.
pub(crate) struct Keeper {
    repeats: Arc<Repeats>,
    mark: RequestId,
    asked: Asked,
    _under_way: watch::Sender<()>,
}

impl Act {
    /// Returns what a call does, if it is one that is known here by its mark.
    pub(crate) fn of(body: &CallBody) -> Option<Self> {
        Some(match body {
            // One that neither makes nor cuts may be opened as often as it is asked for, and is kept all the same: what
            // was opened for nobody would stay open.
            // A mount opens by ids and names: longer paths would be kept for nobody.
            CallBody::Open(at, _) if at.path.as_bytes().len() > limits::NAME_BYTES_MAX => return None,
            CallBody::Open(at, how) => Self::Open(at.clone(), how.clone()),
            CallBody::File(file, FileAsk::Write { at, .. } | FileAsk::WriteLent { at, .. }) => {
                Self::Write(*file, *at)
            }
            CallBody::File(file, FileAsk::Shape(shape)) => Self::Shape(*file, *shape),
            _ => return None,
        })
    }
}

impl Repeats {
    /// Makes it for one session of many, which count together by `kept`.
    pub(crate) fn of_many(kept: &Arc<AtomicUsize>) -> Self {
        Self { ring: Mutex::default(), kept: kept.clone() }
    }

    /// Begins a call: waits for the first if it is under way. `Invalid` if the mark was another call's.
    pub(crate) async fn begin(self: &Arc<Self>, mark: RequestId, asked: &Asked) -> Result<Turn> {
        loop {
            let mut over = {
                let mut ring = self.ring();
                match ring.given.get(&mark) {
                    Some((other, _)) if other != asked => {
                        let detail = "the request id was used for another request of this session";
                        return Err(Error::invalid(detail));
                    }
                    Some((_, State::Made(answer))) => return Ok(Turn::Made(answer.clone())),
                    Some((_, State::UnderWay(over))) => over.clone(),
                    None => {
                        let (under_way, over) = watch::channel(());
                        ring.given.insert(mark, (asked.clone(), State::UnderWay(over)));
                        let (repeats, asked) = (self.clone(), asked.clone());
                        let keeper = Keeper { repeats, mark, asked, _under_way: under_way };
                        return Ok(Turn::Make(Box::new(keeper)));
                    }
                }
            };
            // Nothing is ever said over it: it ends.
            while over.changed().await.is_ok() {}
        }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        // Every change leaves the ring whole, so a panic elsewhere cannot spoil it.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Repeats {
    fn drop(&mut self) {
        let count = self.ring().order.len();
        self.kept.fetch_sub(count, Ordering::Relaxed);
    }
}

impl Keeper {
    /// Keeps the answer, in the place of the oldest if there are many. Where all sessions have as many as there may be, it
    /// is not kept: the call is then made again if it comes again.
    pub(crate) fn keep(self, answer: Answer) {
        if self.repeats.kept.fetch_add(1, Ordering::Relaxed) >= limits::REPEATS_KEPT_MAX {
            self.repeats.kept.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let mut ring = self.repeats.ring();
        ring.given.insert(self.mark, (self.asked.clone(), State::Made(Box::new(answer))));
        ring.order.push_back(self.mark);
        if ring.order.len() > limits::ONCE_RING
            && let Some(oldest) = ring.order.pop_front()
        {
            ring.given.remove(&oldest);
            self.repeats.kept.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let mut ring = self.repeats.ring();
        if matches!(ring.given.get(&self.mark), Some((_, State::UnderWay(_)))) {
            ring.given.remove(&self.mark);
        }
    }
}

#[cfg(test)]
mod tests {
    use weft_core::ErrorKind;

    use super::*;

    fn act(number: u32) -> Asked {
        (CallerId(1), Act::Write(FileRef::Open(number), WriteAt::End))
    }

    async fn make(repeats: &Arc<Repeats>, mark: u64) -> Box<Keeper> {
        match repeats.begin(RequestId(mark), &act(1)).await.expect("its own") {
            Turn::Make(keeper) => keeper,
            Turn::Made(_) => panic!("{mark} was made"),
        }
    }

    #[tokio::test]
    async fn who_asks_again_is_given_the_first_answer_also_while_that_is_not_there_yet() {
        let repeats = Arc::new(Repeats::default());
        let first = make(&repeats, 1).await;
        let again = tokio::spawn({
            let repeats = repeats.clone();
            async move { repeats.begin(RequestId(1), &act(1)).await }
        });
        tokio::task::yield_now().await;
        assert!(!again.is_finished(), "the first is under way");
        first.keep(Answer::Offset(7));
        let again = again.await.expect("it ends").expect("its own");
        assert!(matches!(again, Turn::Made(answer) if *answer == Answer::Offset(7)));
        for other in [act(2), (CallerId(2), act(1).1)] {
            let refused = repeats.begin(RequestId(1), &other).await;
            assert_eq!(refused.err().map(|error| error.kind()), Some(ErrorKind::Invalid));
        }
    }

    #[tokio::test]
    async fn all_sessions_together_have_no_more_answers_kept_than_there_may_be() {
        let kept = Arc::new(AtomicUsize::new(limits::REPEATS_KEPT_MAX - 1));
        let [one, other] = [(), ()].map(|()| Arc::new(Repeats::of_many(&kept)));
        make(&one, 1).await.keep(Answer::Done);
        make(&other, 1).await.keep(Answer::Done);
        assert_eq!((one.ring().given.len(), other.ring().given.len()), (1, 0));
        drop(one);
        make(&other, 1).await.keep(Answer::Done);
        assert_eq!(other.ring().given.len(), 1, "there is room again");
    }

    #[tokio::test]
    async fn what_failed_is_made_anew_and_of_many_the_last_are_known() {
        let repeats = Arc::new(Repeats::default());
        drop(make(&repeats, 1).await);
        for mark in 1..=limits::ONCE_RING as u64 + 1 {
            make(&repeats, mark).await.keep(Answer::Done);
        }
        drop(make(&repeats, 1).await);
        assert!(matches!(repeats.begin(RequestId(2), &act(1)).await, Ok(Turn::Made(_))));
        assert_eq!(repeats.ring().given.len(), limits::ONCE_RING);
    }
}
