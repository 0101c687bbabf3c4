//! Progress on stderr: only for people, and only for what takes longer than 250 ms.
//!
//! A thread of its own draws, so that work which blocks its thread is shown too. What is shown is
//! gone from the terminal when its [`Shown`] is dropped: before anything else is said there. A
//! terminal that cannot clear a line (`TERM=dumb`) is shown nothing.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use weft_client::copy::Progress;

use crate::context::Context;

/// Below this, a bar would only flicker.
const SHOWN_AFTER: Duration = Duration::from_millis(250);
const REDRAWN_EVERY: Duration = Duration::from_millis(100);

/// Bytes of a known number.
const BAR: &str = "{bar:30} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta} {msg}";
/// Bytes until there are no more.
const BYTES: &str = "{spinner} {bytes} {binary_bytes_per_sec} {elapsed}";
/// Things counted.
const COUNT: &str = "{spinner} {human_pos} {msg} {elapsed}";
/// Something that does not say how far it is.
const TIME: &str = "{spinner} {msg} {elapsed}";

/// What is shown until this is dropped.
#[must_use]
pub struct Shown {
    drawing: Option<(Sender<()>, JoinHandle<()>)>,
    /// Set once there is one.
    bar: Arc<OnceLock<ProgressBar>>,
}

impl Shown {
    /// Returns the way to print meanwhile.
    pub fn room(&self) -> Beside {
        Beside(self.bar.clone())
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.drawing.take() {
            drop(end);
            // A panic there was printed there, and spoils nothing here.
            let _ = thread.join();
        }
    }
}

/// Something that is counted while it is shown.
pub struct Count {
    done: Arc<AtomicU64>,
    shown: Shown,
}

impl Count {
    /// Counts more.
    pub fn add(&self, more: u64) {
        self.done.fetch_add(more, Ordering::Relaxed);
    }

    /// Lets something be printed meanwhile: whole lines.
    pub fn beside<T>(&self, print: impl FnOnce() -> T) -> T {
        self.room().print(print)
    }

    /// Returns the way to print meanwhile.
    pub fn room(&self) -> Beside {
        self.shown.room()
    }
}

/// Lets something be printed while something is shown: whole lines.
#[derive(Clone, Default)]
pub struct Beside(Arc<OnceLock<ProgressBar>>);

impl Beside {
    /// Prints.
    pub fn print<T>(&self, print: impl FnOnce() -> T) -> T {
        match self.0.get() {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }
}

/// Says that something is under way: `doing` is what, as in "backing up".
pub fn waiting(context: &Context, doing: &'static str) -> Shown {
    show(is_for_people(context), None, TIME, move |bar| bar.set_message(doing))
}

/// Counts things: `what` is what was done to them, as in "removed". A command that `prints` them
/// meanwhile is progress enough on a terminal.
pub fn counting(context: &Context, what: &'static str, prints: bool) -> Count {
    let visible = is_for_people(context) && !(prints && std::io::stdout().is_terminal());
    count(visible, None, COUNT, what)
}

/// Counts bytes that go to standard output.
pub fn printing(context: &Context, total: u64) -> Count {
    count(is_for_people(context) && !std::io::stdout().is_terminal(), Some(total), BAR, "")
}

/// Counts bytes that come from standard input, unless a person types them.
pub fn reading(context: &Context) -> Count {
    count(is_for_people(context) && !std::io::stdin().is_terminal(), None, BYTES, "")
}

/// Shows how far copies are while `work` runs, which is told how to print meanwhile,
/// and stops them cleanly at the first Ctrl-C.
pub async fn watch<T, F: Future<Output = T>>(
    context: &Context,
    progress: &Arc<Progress>,
    work: impl FnOnce(Beside) -> F,
) -> T {
    let seen = progress.clone();
    let shown = show(is_for_people(context), Some(progress.expected()), BAR, move |bar| {
        bar.set_length(seen.expected());
        bar.set_position(seen.bytes());
        bar.set_message(format!("{} files", seen.files()));
    });
    let mut work = std::pin::pin!(work(shown.room()));
    loop {
        tokio::select! {
            outcome = &mut work => return outcome,
            Ok(()) = tokio::signal::ctrl_c() => progress.stop(),
        }
    }
}

fn is_for_people(context: &Context) -> bool {
    !context.json() && std::io::stderr().is_terminal()
}

fn count(visible: bool, total: Option<u64>, template: &'static str, what: &'static str) -> Count {
    let done = Arc::new(AtomicU64::new(0));
    let seen = done.clone();
    let shown = show(visible, total, template, move |bar| {
        bar.set_position(seen.load(Ordering::Relaxed));
        bar.set_message(what);
    });
    Count { done, shown }
}

fn show(
    visible: bool,
    total: Option<u64>,
    template: &'static str,
    look: impl Fn(&ProgressBar) + Send + 'static,
) -> Shown {
    let (end, ended) = channel();
    let bar = Arc::new(OnceLock::new());
    let drawn = bar.clone();
    let draw = move || {
        let goes_on = |pause| ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout);
        if !goes_on(SHOWN_AFTER) {
            return;
        }
        let style =
            ProgressStyle::with_template(template).expect("the templates are constants and were tried");
        let bar = total.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
        bar.set_style(style.progress_chars("=> "));
        let bar = drawn.get_or_init(|| bar);
        loop {
            look(bar);
            bar.tick();
            if !goes_on(REDRAWN_EVERY) {
                break;
            }
        }
        bar.finish_and_clear();
    };
    // Where there is no room for a thread nothing is shown; the work is what counts.
    let thread = visible.then(|| std::thread::Builder::new().spawn(draw).ok()).flatten();
    Shown { drawing: thread.map(|thread| (end, thread)), bar }
}
