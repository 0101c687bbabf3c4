//! Progress on stderr: only for people, and only for what takes longer than 250 ms.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use weft_client::copy::Progress;

/// Below this, a bar would only flicker.
const SHOWN_AFTER: Duration = Duration::from_millis(250);
const REDRAWN_EVERY: Duration = Duration::from_millis(100);

/// Shows `progress` while `work` runs, and stops the work cleanly at the first Ctrl-C.
pub async fn watch<T>(progress: Arc<Progress>, total: u64, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    let mut bar: Option<ProgressBar> = None;
    let visible = std::io::stderr().is_terminal();
    let mut pause = SHOWN_AFTER;
    let outcome = loop {
        tokio::select! {
            outcome = &mut work => break outcome,
            () = tokio::time::sleep(pause), if visible => {
                let bar = bar.get_or_insert_with(|| new_bar(total));
                bar.set_position(progress.bytes());
                bar.set_message(format!("{} files", progress.files()));
                pause = REDRAWN_EVERY;
            }
            Ok(()) = tokio::signal::ctrl_c() => progress.stop(),
        }
    };
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    outcome
}

fn new_bar(total: u64) -> ProgressBar {
    let style =
        ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta} {msg}")
            .expect("the template is a constant and was tried")
            .progress_chars("=> ");
    ProgressBar::new(total).with_style(style)
}
