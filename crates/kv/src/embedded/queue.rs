//! How callers come to their commits: at the desk, if it is free, or through a queue.
//!
//! Whoever is alone spares itself two wakes of a sleeping thread, which cost more than the flush
//! of a fast disk. Whoever is not shares a batch, which the writer makes.

use std::sync::Arc;

use tokio::sync::{Mutex, Notify, mpsc, oneshot};
use weft_core::limits::KV_QUEUE_MAX;
use weft_core::{Error, ErrorKind, Result};

use super::desk::{Desk, Wish};
use crate::engine::Commit;

/// Where an answer goes. Nobody may be listening any more: the act stands all the same.
pub(super) type Reply = oneshot::Sender<Result<Commit>>;

/// What the writer is asked to do.
pub(super) enum Message {
    /// Do a wish.
    Serve { wish: Wish, reply: Reply },
    /// Finish and stop.
    Close { reply: Reply },
}

/// The desk, for whoever may hold it.
pub(super) struct Shared {
    /// `None` once it is closed, or after somebody panicked at it.
    pub(super) desk: Mutex<Option<Box<Desk>>>,
    /// Told when the writer has something to do at the desk.
    pub(super) wanted: Notify,
}

/// A caller's end of the queue. Cheap to clone; the writer ends when the last one is gone.
#[derive(Clone)]
pub(super) struct Queue {
    shared: Arc<Shared>,
    messages: mpsc::Sender<Message>,
}

impl Queue {
    /// Makes a queue before a desk, and returns what the writer needs of both.
    pub(super) fn new(desk: Desk) -> (Self, Arc<Shared>, mpsc::Receiver<Message>) {
        let shared = Arc::new(Shared { desk: Mutex::new(Some(Box::new(desk))), wanted: Notify::new() });
        let (messages, received) = mpsc::channel(KV_QUEUE_MAX);
        (Self { shared: shared.clone(), messages }, shared, received)
    }

    /// Has a wish done. Waits while `KV_QUEUE_MAX` others do.
    pub(super) async fn serve(&self, wish: Wish) -> Result<Commit> {
        // Whoever does nothing but write lets others have the thread now and then.
        tokio::task::consume_budget().await;
        match self.serve_at_once(wish) {
            Ok(done) => done,
            Err(wish) => self.send(|reply| Message::Serve { wish, reply }).await,
        }
    }

    /// Has everything finished, and the desk given up.
    pub(super) async fn close(&self) -> Result<Commit> {
        self.send(|reply| Message::Close { reply }).await
    }

    async fn send(&self, message: impl FnOnce(Reply) -> Message) -> Result<Commit> {
        let closed = || Error::new(ErrorKind::Unavailable, "the metadata engine is closed");
        let (reply, answer) = oneshot::channel();
        self.messages.send(message(reply)).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }

    /// Does a wish here and now, from its beginning to its end: a caller that is dropped cannot
    /// leave half of it. Returns the wish if that is not to be.
    fn serve_at_once(&self, wish: Wish) -> std::result::Result<Result<Commit>, Wish> {
        // Those that queue are overtaken only while the writer goes to the desk with them.
        if self.messages.capacity() < self.messages.max_capacity() {
            return Err(wish);
        }
        let Ok(mut held) = self.shared.desk.try_lock() else { return Err(wish) };
        // It comes back only if nothing panics: after that it would be in doubt.
        let Some(mut desk) = held.take_if(|desk| desk.serves_at_once(&wish)) else { return Err(wish) };
        let done = desk.serve(wish);
        if desk.wants_the_writer() {
            self.shared.wanted.notify_one();
        }
        *held = Some(desk);
        Ok(done)
    }
}
