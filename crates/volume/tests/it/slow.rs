//! Bytes that come when a test sends them.

use async_trait::async_trait;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use weft_core::Result;
use weft_core::form::{Piece, Source, Stopped};

/// Hands out what a test sends it, when it sends it.
pub struct Slow(UnboundedReceiver<Vec<u8>>);

pub fn slow() -> (UnboundedSender<Vec<u8>>, Slow) {
    let (sender, receiver) = unbounded_channel();
    (sender, Slow(receiver))
}

#[async_trait]
impl Source for Slow {
    async fn next(&mut self, _max: usize) -> Result<Option<Piece>> {
        Ok(self.0.recv().await.map(|bytes| Piece::Bytes(bytes.into())))
    }

    fn length(&self) -> Option<u64> {
        None
    }

    fn stopped(&self) -> Stopped {
        Box::pin(std::future::pending())
    }
}

/// Lets everything that can go on do so.
pub async fn rest() {
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
}
