//! The streams of one connection while they are answered.
//!
//! A stream that is alone goes along in the connection's own task: what the two tell each other, piece by piece,
//! rouses no other thread, and who fetches something large mostly fetches nothing beside it. As soon as another
//! comes each has a task of its own, on as many processors as there are. (All along: 16 small streams at a time took
//! twice as long.) So whoever polls these asks for more streams before the one along goes on.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::task::JoinSet;

/// Streams that are under way.
pub struct Streams<F: Future> {
    along: Option<Pin<Box<F>>>,
    beside: JoinSet<F::Output>,
}

impl<F: Future<Output: Send> + Send + 'static> Streams<F> {
    pub fn new() -> Self {
        Self { along: None, beside: JoinSet::new() }
    }

    pub fn len(&self) -> usize {
        usize::from(self.along.is_some()) + self.beside.len()
    }

    /// Begins one.
    pub fn add(&mut self, stream: F) {
        if self.len() == 0 {
            self.along = Some(Box::pin(stream));
            return;
        }
        if let Some(first) = self.along.take() {
            self.beside.spawn(first);
        }
        self.beside.spawn(stream);
    }

    /// Ready once one beside has ended, with what came of it; with nothing if it panicked.
    pub fn poll_beside(&mut self, context: &mut Context<'_>) -> Poll<Option<F::Output>> {
        match ready!(self.beside.poll_join_next(context)) {
            Some(done) => Poll::Ready(done.inspect_err(|_| panicked()).ok()),
            None => Poll::Pending,
        }
    }

    /// Has the one along go on: ready once it has ended, likewise.
    pub fn poll_along(&mut self, context: &mut Context<'_>) -> Poll<Option<F::Output>> {
        let Some(stream) = &mut self.along else { return Poll::Pending };
        let polled = catch_unwind(AssertUnwindSafe(|| stream.as_mut().poll(context)));
        if matches!(polled, Ok(Poll::Pending)) {
            return Poll::Pending;
        }
        self.along = None;
        polled.inspect_err(|_| panicked()).map_or(Poll::Ready(None), |done| done.map(Some))
    }

    /// Returns what came of the next that ends; `None` if there is none.
    pub async fn next(&mut self) -> Option<F::Output> {
        while self.len() > 0 {
            let ended = poll_fn(|context| match self.poll_beside(context) {
                Poll::Pending => self.poll_along(context),
                ended => ended,
            });
            if let Some(done) = ended.await {
                return Some(done);
            }
        }
        None
    }
}

fn panicked() {
    tracing::error!("a stream panicked: a defect");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where it ran in the end, after a turn of others.
    async fn ran(number: usize, panics: bool) -> (usize, Option<tokio::task::Id>) {
        tokio::task::yield_now().await;
        assert!(!panics, "on purpose");
        (number, tokio::task::try_id())
    }

    #[tokio::test]
    async fn one_alone_goes_along_and_others_beside_each_other() {
        let here = tokio::task::try_id();
        let mut streams = Streams::new();
        streams.add(ran(0, false));
        assert_eq!((streams.next().await, streams.len()), (Some((0, here)), 0));
        for number in [1, 2] {
            streams.add(ran(number, false));
        }
        assert_eq!(streams.len(), 2);
        for _ in [1, 2] {
            assert!(streams.next().await.is_some_and(|(_, task)| task != here));
        }
        assert_eq!(streams.next().await, None);
    }

    #[tokio::test]
    async fn one_that_panics_ends_alone() {
        let mut streams = Streams::new();
        streams.add(ran(0, true));
        assert_eq!((streams.next().await, streams.len()), (None, 0), "along");
        for number in [1, 2, 3] {
            streams.add(ran(number, number == 2));
        }
        let mut ended =
            [streams.next().await, streams.next().await].map(|done| done.expect("two end well").0);
        ended.sort_unstable();
        assert_eq!((ended, streams.next().await), ([1, 3], None), "beside");
    }
}
