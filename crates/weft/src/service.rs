//! What a service manager is told: that the node answers, reads its configuration again, stops, lives.
//!
//! It is systemd's protocol (`sd_notify`): words to the socket that NOTIFY_SOCKET names. Without one nobody
//! is told, and a manager that does not listen is no fault of the node's.

use std::time::Duration;

use sd_notify::NotifyState;
use weft_sys::{Sys, Task};

/// The node answers.
pub fn ready() {
    tell(&[NotifyState::Ready, NotifyState::Status("serves")]);
}

/// It is about to stop, which may take a while.
pub fn stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("ends what is under way")]);
}

/// Tells now and then that the node lives, if the manager wants to hear that. Told from a task: where tasks
/// do not go on, it is not.
pub fn live(sys: &Sys) -> Option<Task<()>> {
    let every = lives_every()?;
    let own = sys.clone();
    Some(sys.spawn(async move {
        loop {
            lives();
            own.sleep(every).await;
        }
    }))
}

/// Returns how often the manager is to be told that this process lives, if it wants to hear that.
pub fn lives_every() -> Option<Duration> {
    Some(sd_notify::watchdog_enabled()? / 2)
}

/// It lives.
pub fn lives() {
    tell(&[NotifyState::Watchdog]);
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the service manager cannot be told how the node is");
    }
}
