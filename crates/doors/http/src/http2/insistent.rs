//! A task whose parts wake each other goes on at once, not once its turn comes again.
//!
//! What wakes itself while it is polled is put at the end of its thread's queue, and another thread is roused to
//! take it from there: for each piece of an answer, since a stream and its connection wait for each other in turn.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, ThreadId};

/// As often it is polled before others have their turn.
const ROUNDS_MAX: usize = 16;

/// Passes on that it was woken, and remembers whether that was by what runs on its own thread: what others wake it for
/// comes in numbers, and goes out together if it waits for its turn.
struct Heard {
    woken: AtomicBool,
    waker: Waker,
    thread: ThreadId,
}

impl Wake for Heard {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if thread::current().id() == self.thread {
            self.woken.store(true, Ordering::Relaxed);
        }
        self.waker.wake_by_ref();
    }
}

/// Runs a future, and polls it anew as long as it was woken meanwhile.
pub async fn insistent<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut heard: Option<Arc<Heard>> = None;
    std::future::poll_fn(|context| poll(future.as_mut(), &mut heard, context)).await
}

fn poll<T>(
    mut future: Pin<&mut impl Future<Output = T>>,
    heard: &mut Option<Arc<Heard>>,
    context: &mut Context<'_>,
) -> Poll<T> {
    let thread = thread::current().id();
    let heard = match heard {
        Some(heard) if heard.thread == thread && heard.waker.will_wake(context.waker()) => heard,
        heard => heard.insert(Arc::new(Heard {
            woken: AtomicBool::new(false),
            waker: context.waker().clone(),
            thread,
        })),
    };
    let waker = Waker::from(heard.clone());
    for _ in 0..ROUNDS_MAX {
        heard.woken.store(false, Ordering::Relaxed);
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Poll::Ready(done);
        }
        if !heard.woken.load(Ordering::Relaxed) {
            break;
        }
    }
    Poll::Pending
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// Counts how often it is woken.
    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Wakes itself until it was polled so many times.
    async fn polled(times: usize) {
        let mut left = times;
        std::future::poll_fn(|context| {
            left -= 1;
            if left == 0 {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    #[test]
    fn what_wakes_itself_goes_on_at_once_but_not_for_ever_and_is_always_woken() {
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let mut context = Context::from_waker(&waker);
        assert!(pin!(insistent(polled(ROUNDS_MAX))).poll(&mut context).is_ready());
        let mut long = pin!(insistent(polled(2 * ROUNDS_MAX)));
        let before = count.0.load(Ordering::Relaxed);
        assert!(long.as_mut().poll(&mut context).is_pending(), "others have their turn");
        assert!(count.0.load(Ordering::Relaxed) > before, "it comes again");
        assert!(long.as_mut().poll(&mut context).is_ready());
    }

    #[test]
    fn what_only_waits_is_polled_once_and_by_its_latest_waker() {
        let (first, second) = (Arc::new(Count::default()), Arc::new(Count::default()));
        let (polls, kept) = (AtomicUsize::new(0), std::sync::Mutex::new(None));
        let mut waits = pin!(insistent(std::future::poll_fn(|context| {
            polls.fetch_add(1, Ordering::Relaxed);
            *kept.lock().expect("nobody panicked") = Some(context.waker().clone());
            Poll::<()>::Pending
        })));
        for count in [&first, &second] {
            let waker = Waker::from(count.clone());
            assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        assert_eq!(polls.load(Ordering::Relaxed), 2);
        kept.lock().expect("nobody panicked").take().expect("it was polled").wake();
        assert_eq!([first, second].map(|count| count.0.load(Ordering::Relaxed)), [0, 1]);
    }
}
