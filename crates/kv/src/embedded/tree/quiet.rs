//! What redb panics of becomes an error, and only that error is told.
//!
//! The process has one hook that prints panics, and it is called before anything is caught. Ours
//! goes before it and passes on every panic but those of a thread that is in [`quietly`].

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook, take_hook};
use std::sync::Once;

type Hook = Box<dyn Fn(&PanicHookInfo<'_>) + Send + Sync>;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs `act`; a panic is not printed but returned, in its own words.
pub(super) fn quietly<T>(act: impl FnOnce() -> T) -> Result<T, String> {
    static HOOKED: Once = Once::new();
    HOOKED.call_once(|| set_hook(heeding(take_hook())));
    let before = QUIET.replace(true);
    let done = catch_unwind(AssertUnwindSafe(act));
    QUIET.set(before);
    done.map_err(|panic| words(&*panic))
}

/// Returns a hook that passes on to `next` what is not to be kept quiet.
fn heeding(next: Hook) -> Hook {
    Box::new(move |panic| {
        // A thread that is ending has nothing left that says so, and nothing to keep quiet.
        if !QUIET.try_with(Cell::get).unwrap_or(false) {
            next(panic);
        }
    })
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it gave up".to_owned())
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a thread that knows nothing of the tree")]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// What nobody else's panic says while this runs beside it.
    const OURS: &str = "the page of this test alone makes no sense";

    #[test]
    fn a_panic_is_told_once_as_an_error_and_those_of_others_as_ever() {
        // The hook is there before it is wrapped once more, and counted at.
        assert_eq!(quietly(|| 7), Ok(7));
        let printed = Arc::new(AtomicUsize::new(0));
        let (count, rest) = (printed.clone(), take_hook());
        set_hook(heeding(Box::new(move |panic| match words(panic.payload()) == OURS {
            true => drop(count.fetch_add(1, Ordering::Relaxed)),
            false => rest(panic),
        })));
        let panics = || -> () { std::panic::panic_any(OURS) };
        let within = quietly(|| {
            // One that is caught within keeps the rest quiet, too; another thread is not ours.
            assert_eq!(quietly(panics), Err(OURS.to_owned()));
            std::thread::spawn(panics).join().expect_err("it panics");
            panics();
        });
        assert_eq!(within, Err(OURS.to_owned()));
        assert_eq!(printed.load(Ordering::Relaxed), 1);
        assert!(catch_unwind(panics).is_err());
        assert_eq!(printed.load(Ordering::Relaxed), 2);
    }
}
