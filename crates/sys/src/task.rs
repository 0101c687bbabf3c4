//! Tasks and timers: on the runtime that calls, on a thread of their own, or inline.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot;
use weft_core::{Deadline, Error, ErrorKind, Result, Tick};

use crate::{Kind, Sys, fault, trace};

/// Work under way. Await it for what it returned; `Internal` if it panicked. Dropping the handle
/// lets the work run on.
pub struct Task<T> {
    answer: oneshot::Receiver<T>,
    abort: Option<tokio::task::AbortHandle>,
}

impl<T> Task<T> {
    /// Stops the work at its next wait. Work on a thread of its own, or blocking work, runs on.
    pub fn abort(&self) {
        if let Some(abort) = &self.abort {
            abort.abort();
        }
    }
}

impl<T> Future for Task<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        Pin::new(&mut self.answer)
            .poll(context)
            .map_err(|_| Error::internal("a task ended without its answer: it panicked or was stopped"))
    }
}

impl Sys {
    /// Runs `work` on the current runtime.
    ///
    /// # Panics
    /// If called outside a tokio runtime.
    pub fn spawn<T, F>(&self, work: F) -> Task<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let (send, answer) = oneshot::channel();
        let work = trace::traced(trace::inherited(), work);
        let handle = tokio::spawn(async move {
            // Nobody may be left to hear the answer: that is what dropping the handle means.
            let _ = send.send(work.await);
        });
        Task { answer, abort: Some(handle.abort_handle()) }
    }

    /// Runs `work` on a thread of its own called `name`, on a runtime with timers and nothing
    /// else: it parks on a futex, so waking it is one system call. In a simulation it is a task
    /// among the others.
    pub fn dedicated<T, F>(&self, name: &str, work: F) -> Result<Task<T>>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        if self.is_simulated() {
            return Ok(self.spawn(work));
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .map_err(|error| fault::error(error, "start a thread", name))?;
        let (send, answer) = oneshot::channel();
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let _ = send.send(runtime.block_on(work));
            })
            .map_err(|error| fault::error(error, "start a thread", name))?;
        Ok(Task { answer, abort: None })
    }

    /// Runs `work`, which may block, where it holds nobody up; in a simulation, here and now.
    ///
    /// # Panics
    /// If called outside a tokio runtime.
    pub fn blocking<T, F>(&self, work: F) -> Task<T>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let (send, answer) = oneshot::channel();
        let inherited = trace::inherited();
        let run = move || {
            let _held = trace::Held::take(inherited);
            let _ = send.send(work());
        };
        if self.is_simulated() {
            run();
        } else {
            tokio::task::spawn_blocking(run);
        }
        Task { answer, abort: None }
    }

    /// Runs `work` as [`Self::blocking`] does; in a simulation now or a moment later, whose end the answer waits for, so that
    /// there too others go on meanwhile.
    ///
    /// # Panics
    /// If called outside a tokio runtime.
    pub fn aside<T, F>(&self, work: F) -> Task<T>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        if !self.is_simulated() {
            return self.blocking(work);
        }
        let sys = self.clone();
        let pass = async move || sys.sleep(Duration::from_micros(1 + sys.random().below(500))).await;
        if self.random().below(2) == 0 {
            let done = work();
            return self.spawn(async move {
                pass().await;
                done
            });
        }
        self.spawn(async move {
            pass().await;
            work()
        })
    }

    /// Waits until the monotonic clock shows `at`.
    pub async fn sleep_until(&self, at: Tick) {
        match &self.inner.kind {
            Kind::Real(clock) => tokio::time::sleep_until(clock.instant(at).into()).await,
            Kind::Simulated(clock) => clock.sleep_until(at).await,
        }
    }

    /// Waits for `span`.
    pub async fn sleep(&self, span: Duration) {
        self.sleep_until(self.clock().tick().plus(span)).await;
    }

    /// Waits for `span` on the machine's own clock, in a simulation as well: for what the kernel stamps.
    pub async fn real_sleep(&self, span: Duration) {
        tokio::time::sleep(span).await;
    }

    /// Waits for `work`, at most until `deadline`; then it is dropped and the answer is
    /// `Deadline`.
    pub async fn within<T>(&self, deadline: Deadline, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            biased;
            answer = work => answer,
            () = self.sleep_until(deadline.0) => {
                Err(Error::new(ErrorKind::Deadline, "no answer before the deadline"))
            }
        }
    }
}

/// Runs `work` to its end on a simulated system made from `seed`: one thread, tasks in a fixed
/// order, and time that moves to the next timer whenever everything waits. The same seed gives
/// the same run.
///
/// # Panics
/// If `work` does, or if everything waits and no timer is set: a deadlock.
pub fn simulate<T, F: Future<Output = T>>(seed: u64, work: impl FnOnce(Sys) -> F) -> T {
    let sys = Sys::simulated(seed);
    let clock: Arc<_> = sys.sim_clock().expect("the system was made simulated above").clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .on_thread_park(move || {
            clock.skip_to_timer();
        })
        .build()
        .expect("a runtime without drivers needs nothing of the machine");
    runtime.block_on(work(sys))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simulated_hours_pass_at_once_and_in_order() {
        let order = simulate(1, |sys| async move {
            let (send, mut heard) = tokio::sync::mpsc::unbounded_channel();
            for hours in [3_u64, 1, 2] {
                let (sys, send) = (sys.clone(), send.clone());
                let inner = sys.clone();
                drop(sys.spawn(async move {
                    inner.sleep(Duration::from_secs(hours * 3600)).await;
                    send.send(hours).expect("the receiver waits");
                }));
            }
            drop(send);
            let mut order = Vec::new();
            while let Some(hours) = heard.recv().await {
                order.push(hours);
            }
            order
        });
        assert_eq!(order, [1, 2, 3]);
    }

    #[test]
    fn a_deadline_ends_a_wait() {
        let kind = simulate(1, |sys| async move {
            let deadline = Deadline::within(sys.clock(), Duration::from_secs(1));
            sys.within(deadline, std::future::pending::<Result<()>>()).await.map_err(|error| error.kind())
        });
        assert_eq!(kind, Err(ErrorKind::Deadline));
    }

    #[tokio::test]
    async fn real_tasks_answer_from_their_own_threads() {
        let sys = Sys::real();
        let name = || std::thread::current().name().map(str::to_owned);
        let task = sys.dedicated("weft-test", async move { name() }).expect("a thread starts");
        assert_eq!(task.await.expect("it answers").as_deref(), Some("weft-test"));
        assert_eq!(sys.blocking(|| 7).await.expect("it answers"), 7);
        assert!(sys.blocking(|| -> u8 { panic!("on purpose") }).await.is_err());
    }
}
