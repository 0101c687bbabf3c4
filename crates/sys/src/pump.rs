//! A task that whoever brings it something may drive on the spot.
//!
//! A task that empties a queue costs two wakes a message: one for the thread that runs it, and one for
//! a thread that looks whether there is more to do. Whoever put a message there is awake already, and
//! [`Pump::bring`] has it poll the task itself. The task is spawned all the same: it goes on when what
//! it waits for comes, and when nobody brings anything.
//!
//! ```text
//!   bring: put, poll ──▶ written        a wake that comes meanwhile is remembered, not passed on
//!   woken by the line ─▶ spawned task ─▶ poll
//! ```
//!
//! How to get it wrong: lose a wake. One is dropped only by who polls after it: who finds the task
//! being polled leaves, and who polled looks once more whether it was woken.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use crate::{Sys, Task};

/// How often one who drives the task polls it, if it is woken again and again: then it goes on by itself.
const POLLS_MAX: usize = 8;

/// Drives one task. Cloning shares it.
#[derive(Clone)]
pub struct Pump(Arc<Driven>);

type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

struct Driven {
    work: Mutex<Work>,
    /// Whether it was woken since it was polled.
    woken: AtomicBool,
    /// How many are bringing something, and will poll it.
    bringing: AtomicUsize,
    task: Mutex<Option<Waker>>,
}

enum Work {
    Running(Running),
    Ended,
    /// The task is still to say so: who drove it is not to blame.
    Panicked(Box<dyn Any + Send>),
}

impl Pump {
    /// Spawns `work`, to be driven by whoever has the pump as well.
    ///
    /// # Panics
    /// If called outside a tokio runtime.
    pub fn new(sys: &Sys, work: impl Future<Output = ()> + Send + 'static) -> (Self, Task<()>) {
        let driven = Arc::new(Driven {
            work: Mutex::new(Work::Running(Box::pin(work))),
            woken: AtomicBool::new(false),
            bringing: AtomicUsize::new(0),
            task: Mutex::default(),
        });
        let task = sys.spawn(driven.clone().run());
        (Self(driven), task)
    }

    /// Does `put`, which gives the task something to do, and has it do that here as far as that needs no
    /// waiting.
    pub fn bring<T>(&self, put: impl FnOnce() -> T) -> T {
        let brings = Brings::begin(&self.0);
        let done = put();
        brings.0.drive();
        done
    }
}

/// Somebody who is bringing something. The last of them to leave, by a panic as well, passes a wake on that nobody polled after.
struct Brings<'a>(&'a Arc<Driven>);

impl<'a> Brings<'a> {
    fn begin(driven: &'a Arc<Driven>) -> Self {
        driven.bringing.fetch_add(1, SeqCst);
        Self(driven)
    }
}

impl Drop for Brings<'_> {
    fn drop(&mut self) {
        if self.0.bringing.fetch_sub(1, SeqCst) == 1 && self.0.woken.load(SeqCst) {
            self.0.wake_task();
        }
    }
}

impl Driven {
    async fn run(self: Arc<Self>) {
        poll_fn(|context| {
            *lock(&self.task) = Some(context.waker().clone());
            self.drive();
            if let Ok(mut work) = self.work.try_lock() {
                match std::mem::replace(&mut *work, Work::Ended) {
                    Work::Running(running) => *work = Work::Running(running),
                    Work::Ended => return Poll::Ready(()),
                    Work::Panicked(why) => resume_unwind(why),
                }
            }
            if self.woken.load(SeqCst) {
                context.waker().wake_by_ref();
            }
            Poll::Pending
        })
        .await;
    }

    /// Polls for as long as it was woken meanwhile, unless somebody else does, who then looks once more.
    fn drive(self: &Arc<Self>) {
        let waker = Waker::from(self.clone());
        for _ in 0..POLLS_MAX {
            let Ok(mut work) = self.work.try_lock() else { return };
            self.woken.store(false, SeqCst);
            let Work::Running(running) = &mut *work else { return };
            let mut context = Context::from_waker(&waker);
            match catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(&mut context))) {
                Ok(Poll::Pending) => {}
                Ok(Poll::Ready(())) => *work = Work::Ended,
                Err(why) => *work = Work::Panicked(why),
            }
            let goes_on = matches!(*work, Work::Running(_));
            drop(work);
            if !goes_on {
                return self.wake_task();
            }
            if !self.woken.load(SeqCst) {
                return;
            }
        }
    }

    fn wake_task(&self) {
        if let Some(task) = &*lock(&self.task) {
            task.wake_by_ref();
        }
    }
}

impl Wake for Driven {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, SeqCst);
        if self.bringing.load(SeqCst) == 0 {
            self.wake_task();
        }
    }
}

fn lock(task: &Mutex<Option<Waker>>) -> MutexGuard<'_, Option<Waker>> {
    task.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::mpsc;

    use super::*;
    use crate::simulate;

    #[test]
    fn what_is_brought_is_done_before_who_brought_it_goes_on() {
        simulate(1, |sys| async move {
            let (put, mut queue) = mpsc::channel(8);
            let (tell, mut told) = mpsc::unbounded_channel();
            let (pump, ended) = Pump::new(&sys, async move {
                while let Some(number) = queue.recv().await {
                    tell.send(number).expect("it is heard");
                }
            });
            for number in 0..100 {
                pump.bring(|| put.try_send(number).expect("there is room"));
                assert_eq!(told.try_recv(), Ok(number));
            }
            drop(put);
            ended.await.expect("it ends");
        });
    }

    #[test]
    fn it_goes_on_by_itself_with_what_it_waits_for() {
        simulate(1, |sys| async move {
            let (put, mut queue) = mpsc::channel(8);
            let (tell, mut told) = mpsc::unbounded_channel();
            let clock = sys.clone();
            let (pump, _) = Pump::new(&sys, async move {
                while let Some(number) = queue.recv().await {
                    clock.sleep(Duration::from_secs(1)).await;
                    tell.send(number).expect("it is heard");
                }
            });
            pump.bring(|| put.try_send(1).expect("there is room"));
            assert!(told.try_recv().is_err(), "it waits");
            put.send(2).await.expect("it runs");
            assert_eq!((told.recv().await, told.recv().await), (Some(1), Some(2)));
        });
    }

    /// Many threads bring, and what they bring goes on by a runtime of two threads: nothing is left lying.
    #[test]
    fn no_wake_is_lost_among_many_who_bring() {
        const THREADS: u64 = 4;
        const EACH: u64 = 5_000;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let _entered = runtime.enter();
        let sys = Sys::real();
        let (put, mut queue) = mpsc::unbounded_channel::<u64>();
        let (tell, mut told) = mpsc::channel(1);
        let (pump, _) = Pump::new(&sys, async move {
            while let Some(number) = queue.recv().await {
                if tell.send(number).await.is_err() {
                    return;
                }
            }
        });
        let bring = |thread: u64| {
            let (put, pump) = (put.clone(), pump.clone());
            move || {
                for number in 0..EACH {
                    pump.bring(|| put.send(thread * EACH + number).expect("it runs"));
                }
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| std::thread::spawn(bring(thread))).collect();
        let mut sum = 0;
        runtime.block_on(async {
            for _ in 0..THREADS * EACH {
                let next = tokio::time::timeout(Duration::from_secs(20), told.recv()).await;
                sum += next.expect("nothing is left lying").expect("it runs");
            }
        });
        assert_eq!(sum, (0..THREADS * EACH).sum());
        threads.into_iter().for_each(|thread| thread.join().expect("it brings all"));
    }

    #[test]
    fn one_that_panics_fails_for_who_waits_for_it_and_not_for_who_drives_it() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
        let _entered = runtime.enter();
        let (put, mut queue) = mpsc::unbounded_channel::<()>();
        let (pump, ended) = Pump::new(&Sys::real(), async move {
            queue.recv().await;
            panic!("on purpose");
        });
        pump.bring(|| put.send(())).expect("it runs still");
        assert!(runtime.block_on(ended).is_err());
        assert!(pump.bring(|| put.send(())).is_err(), "what it held is gone");
    }
}
