//! Work that is begun where it stands and goes on, once what it waits for comes, where that is noticed.
//!
//! Handing a call to the runtime as soon as it has to wait costs two wakes: one for the runtime to take it
//! up and find that it waits, one when its answer comes. Begun here, it knows what wakes it, and the runtime
//! hears of it with the answer: on the very thread that read that from the line.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use tokio::runtime::Handle as Runtime;

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Polls `work` once, and again on the runtime when it is woken. One that panics is dropped, here as there. Timers in
/// it need a thread that has entered the runtime.
pub(crate) fn begin(runtime: &Runtime, work: impl Future<Output = ()> + Send + 'static) {
    let mut work: Work = Box::pin(work);
    let waits = Arc::new(Waiting { runtime: runtime.clone(), state: Mutex::new(State::Begun) });
    let waker = Waker::from(waits.clone());
    let mut context = Context::from_waker(&waker);
    if let Ok(Poll::Pending) = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(&mut context))) {
        waits.wait(work);
    }
}

struct Waiting {
    runtime: Runtime,
    state: Mutex<State>,
}

enum State {
    /// It is polled for the first time.
    Begun,
    /// It was woken while it was.
    WokenEarly,
    Waits(Work),
    /// The runtime has it.
    Gone,
}

impl Waiting {
    fn wait(&self, work: Work) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match *state {
            State::Begun => *state = State::Waits(work),
            _ => {
                *state = State::Gone;
                drop(state);
                drop(self.runtime.spawn(work));
            }
        }
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *state, State::Gone) {
            State::Begun | State::WokenEarly => *state = State::WokenEarly,
            State::Waits(work) => {
                drop(state);
                drop(self.runtime.spawn(work));
            }
            State::Gone => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::sync::oneshot;

    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
    }

    #[test]
    fn what_does_not_wait_is_done_here() {
        let (runtime, here) = (runtime(), std::thread::current().id());
        let (tell, mut told) = oneshot::channel();
        begin(runtime.handle(), async move { tell.send(std::thread::current().id()).expect("it is heard") });
        assert_eq!(told.try_recv().expect("it is done"), here);
    }

    #[test]
    fn who_begins_what_panics_goes_on_and_what_it_held_is_dropped() {
        let (runtime, held) = (runtime(), Arc::new(()));
        let holds = held.clone();
        begin(runtime.handle(), async move {
            let _holds = holds;
            panic!("on purpose");
        });
        assert_eq!(Arc::strong_count(&held), 1);
    }

    #[test]
    fn what_waits_goes_on_once_it_is_woken_whether_that_is_soon_or_late() {
        let runtime = runtime();
        let (go, gone) = oneshot::channel();
        let (tell, mut told) = oneshot::channel();
        begin(
            runtime.handle(),
            async move { tell.send(gone.await.expect("it is sent")).expect("it is heard") },
        );
        assert!(told.try_recv().is_err(), "it waits");
        go.send(7).expect("it waits");
        assert_eq!(runtime.block_on(told).expect("it goes on"), 7);
        // Woken while it is polled.
        let (tell, told) = oneshot::channel();
        let mut polled = false;
        let early = poll_fn(move |context| {
            context.waker().wake_by_ref();
            if std::mem::replace(&mut polled, true) { Poll::Ready(()) } else { Poll::Pending }
        });
        begin(runtime.handle(), async move {
            early.await;
            tell.send(()).expect("it is heard");
        });
        runtime.block_on(told).expect("it goes on");
    }
}
