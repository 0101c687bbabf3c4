//! Telling everybody that the node stops.

use tokio::sync::watch;

/// Says that it is time to stop. Dropping it says so too.
pub struct Stopper(watch::Sender<bool>);

/// Hears that it is time to stop. Clone it for everybody who must hear.
#[derive(Clone)]
pub struct Shutdown(watch::Receiver<bool>);

/// Returns the two ends.
pub fn shutdown() -> (Stopper, Shutdown) {
    let (send, receive) = watch::channel(false);
    (Stopper(send), Shutdown(receive))
}

impl Stopper {
    /// Tells everybody. Telling them again is no error.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Shutdown {
    /// Returns whether it was said.
    pub fn requested(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }

    /// Waits until it is said.
    pub async fn wait(&mut self) {
        // An error means that the stopper is gone, which says the same.
        let _ = self.0.wait_for(|stop| *stop).await;
    }
}
