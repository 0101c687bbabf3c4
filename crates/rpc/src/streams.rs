//! The calls under way on a client's line, and what is to be said over it.
//!
//! ```text
//!   call ─▶ unsent ─▶ sent ─▶ answered
//!             │        └▶ given up: cancelled, or what it opened is closed again
//!             └▶ given up: not sent at all, and what it carries goes
//! ```
//!
//! So of calls that were given up no bytes are kept for a server that takes nothing, but for memory that it was lent,
//! [`limits::RPC_LENT_AT_ONCE`] pieces until it answers, and what it said it had room for.
//!
//! How to get it wrong: drop a call, or who waits for it, under the lock. Whoever is woken may come back here at once.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};
use weft_core::service::SessionGrant;
use weft_core::{Error, ErrorKind, ErrorReport, Result, Time, limits};

use crate::frame::Frame;
use crate::message::{Answer, ToClient, ToServer};

/// Messages that may wait for room: of all files and calls that may be dropped at once. What is
/// beyond ends with its session.
const UNSAID_MAX: usize = limits::SESSION_OPENS_MAX + limits::RPC_CALLS_MAX;

/// What is in the queue to the line.
pub(crate) enum Leaving {
    /// The call of a stream, which waits in the table: it may be given up.
    Call(u32),
    Told(Frame),
}

/// Memory that a write's bytes lie in, and a turn to lend it: each takes a descriptor of the server's.
pub(crate) struct Lendable {
    pub(crate) memory: OwnedFd,
    pub(crate) from: u64,
    pub(crate) length: u32,
    pub(crate) turn: OwnedSemaphorePermit,
}

/// A call that was not sent yet.
struct Unsent {
    frame: Frame,
    lent: Option<Lendable>,
}

/// A message for one stream.
pub(crate) struct Incoming {
    pub(crate) message: ToClient,
    pub(crate) payload: Bytes,
    /// Of an [`Answer::Lent`].
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// Who waits for a stream's messages.
#[derive(Clone)]
pub(crate) struct Waiting {
    pub(crate) messages: mpsc::Sender<Incoming>,
    pub(crate) failed: watch::Sender<Option<ErrorReport>>,
}

/// Why the line has ended, and since when.
#[derive(Clone)]
pub(crate) struct Closed {
    pub(crate) why: ErrorReport,
    pub(crate) since: Time,
}

#[derive(Default)]
pub(crate) struct Streams {
    last: u32,
    waiting: HashMap<u32, Waiting>,
    /// Calls that are in the queue, or wait for room there.
    unsent: HashMap<u32, Unsent>,
    /// Turns of calls that were sent with memory.
    lent: HashMap<u32, OwnedSemaphorePermit>,
    pub(crate) sessions: HashMap<u32, oneshot::Sender<Result<SessionGrant>>>,
    /// Opens that nobody waits for any more, and whose session they are in: what comes of them is
    /// given back.
    opens_given_up: HashMap<u32, u32>,
    /// What was to be said while there was no room, to be sent as soon as there is.
    unsaid: Vec<Frame>,
    pub(crate) closed: Option<Closed>,
}

/// What has left the table, to be dropped after the lock.
pub(crate) struct Ended {
    _waiting: Option<Waiting>,
    unsent: Option<Unsent>,
}

/// A frame that goes now, and the memory that goes along.
pub(crate) type Going = (Frame, Option<OwnedFd>);

impl Streams {
    /// Fails if the line has ended, and with `Busy` if too many calls are under way.
    pub(crate) fn may_begin(&self) -> Result<()> {
        if let Some(closed) = &self.closed {
            return Err(closed.why.clone().into());
        }
        if self.waiting.len() >= limits::RPC_CALLS_MAX {
            return Err(Error::new(ErrorKind::Busy, "too many calls are under way on this connection"));
        }
        Ok(())
    }

    /// Notes a call that may begin and is about to be queued. Returns its number.
    pub(crate) fn begin(&mut self, mut frame: Frame, lent: Option<Lendable>, who: Waiting) -> u32 {
        let number = self.free_number();
        frame.stream = number;
        self.waiting.insert(number, who);
        self.unsent.insert(number, Unsent { frame, lent });
        number
    }

    /// Takes what goes now: a call only if somebody waits for it still, and then all that there was no room for.
    pub(crate) fn leave(&mut self, leaving: Leaving) -> (Option<Going>, Vec<Frame>) {
        let goes = match leaving {
            Leaving::Told(frame) => Some((frame, None)),
            Leaving::Call(stream) => self.unsent.remove(&stream).map(|Unsent { frame, lent }| {
                let lend = |Lendable { memory, turn, .. }| {
                    self.lent.insert(stream, turn);
                    memory
                };
                (frame, lent.map(lend))
            }),
        };
        (goes, std::mem::take(&mut self.unsaid))
    }

    /// Returns who waits for a message. Memory that was lent for a call is the client's again once that is answered.
    pub(crate) fn waiting_for(&mut self, stream: u32, message: &ToClient) -> Option<Waiting> {
        if matches!(message, ToClient::Reply(_)) {
            self.lent.remove(&stream);
        }
        self.waiting.get(&stream).cloned()
    }

    /// Takes out a call that nobody waits for any more.
    pub(crate) fn end(&mut self, stream: u32) -> Ended {
        Ended { _waiting: self.waiting.remove(&stream), unsent: self.unsent.remove(&stream) }
    }

    /// Has the server hear that a call has ended before it was over, if it has heard of the call. What that opens in a session
    /// is closed again; `answer` is what came of it and nobody looked at.
    pub(crate) fn give_up(
        &mut self,
        (stream, opens_in): (u32, Option<u32>),
        ended: &Ended,
        answer: Option<&ToClient>,
        out: &mpsc::Sender<Leaving>,
    ) {
        if ended.unsent.is_some() {
            return;
        }
        if let Some(session) = opens_in {
            self.opens_given_up.insert(stream, session);
            if let Some(answer) = answer {
                return self.give_back(stream, opened(answer), out);
            }
        }
        self.tell_soon(out, Frame::new(stream, &ToServer::Cancel, Bytes::new()));
    }

    /// Notes the answer to an open, if that is one which nobody waits for any more: what it brought is given back.
    pub(crate) fn give_back(&mut self, stream: u32, opened: Option<u32>, out: &mpsc::Sender<Leaving>) {
        if let (Some(session), Some(file)) = (self.opens_given_up.remove(&stream), opened) {
            self.tell_soon(out, Frame::new(0, &ToServer::Drop { session, file }, Bytes::new()));
        }
    }

    /// Queues a frame, or keeps it until something leaves: whoever that is looks here.
    pub(crate) fn tell_soon(&mut self, out: &mpsc::Sender<Leaving>, frame: Frame) {
        if let Err(TrySendError::Full(Leaving::Told(frame))) = out.try_send(Leaving::Told(frame))
            && self.unsaid.len() < UNSAID_MAX
        {
            self.unsaid.push(frame);
        }
    }

    /// Notes that the line has ended. Everybody hears of it by what is returned being dropped, after the lock.
    pub(crate) fn close(&mut self, why: &Error, now: Time) -> Self {
        // The one who found out first says since when.
        let since = self.closed.as_ref().map_or(now, |closed| closed.since);
        let closed = Self { closed: Some(Closed { why: why.into(), since }), ..Self::default() };
        std::mem::replace(self, closed)
    }

    fn free_number(&mut self) -> u32 {
        loop {
            self.last = self.last.wrapping_add(1).max(1);
            let last = &self.last;
            let is_taken = self.waiting.contains_key(last)
                || self.opens_given_up.contains_key(last)
                || self.lent.contains_key(last);
            if !is_taken {
                return self.last;
            }
        }
    }
}

pub(crate) fn lock(streams: &Mutex<Streams>) -> MutexGuard<'_, Streams> {
    // Every change leaves the table whole, so a panic elsewhere cannot spoil it.
    streams.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the number of the file that a message says was opened.
pub(crate) fn opened(message: &ToClient) -> Option<u32> {
    match message {
        ToClient::Reply(reply) => match &**reply {
            Ok(Answer::Opened { file, .. }) => Some(*file),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Semaphore;

    use super::*;

    /// A table, the end of its queue, and turns to lend.
    struct Line {
        streams: Streams,
        out: mpsc::Sender<Leaving>,
        queue: mpsc::Receiver<Leaving>,
        turns: Arc<Semaphore>,
    }

    impl Line {
        fn new() -> Self {
            let (out, queue) = mpsc::channel(1);
            Self { streams: Streams::default(), out, queue, turns: Arc::new(Semaphore::new(1)) }
        }

        /// Begins a call that memory goes along with.
        fn begin(&mut self) -> u32 {
            let memory = std::io::pipe().expect("any descriptor").0.into();
            let turn = self.turns.clone().try_acquire_owned().expect("there is one");
            let lent = Lendable { memory, from: 0, length: 1, turn };
            let who = Waiting { messages: mpsc::channel(1).0, failed: watch::channel(None).0 };
            let frame = Frame::new(0, &ToServer::Data { end: true }, Bytes::new());
            self.streams.may_begin().expect("it is the only one");
            self.streams.begin(frame, Some(lent), who)
        }

        fn give_up(&mut self, stream: u32, opens_in: Option<u32>) {
            let ended = self.streams.end(stream);
            self.streams.give_up((stream, opens_in), &ended, None, &self.out);
        }

        fn is_lent(&self) -> bool {
            self.turns.available_permits() == 0
        }
    }

    #[test]
    fn memory_is_lent_until_the_call_is_answered_whoever_waits_or_was_not_sent() {
        let mut line = Line::new();
        let sent = line.begin();
        let (going, _) = line.streams.leave(Leaving::Call(sent));
        assert!(going.is_some_and(|(_, memory)| memory.is_some()));
        line.give_up(sent, None);
        assert!(line.is_lent(), "the server may be reading it");
        assert!(line.streams.waiting_for(sent, &ToClient::Grant(1)).is_none());
        assert!(line.is_lent());
        let answer = ToClient::Reply(Box::new(Ok(Answer::Done)));
        assert!(line.streams.waiting_for(sent, &answer).is_none() && !line.is_lent());
        let unsent = line.begin();
        line.give_up(unsent, None);
        assert!(!line.is_lent(), "nobody will");
    }

    #[test]
    fn a_call_given_up_is_cancelled_if_it_was_sent_and_else_forgotten() {
        for opens_in in [None, Some(2)] {
            let mut line = Line::new();
            let unsent = line.begin();
            line.give_up(unsent, opens_in);
            assert!(line.streams.leave(Leaving::Call(unsent)).0.is_none(), "it does not go");
            assert!(line.queue.try_recv().is_err() && line.streams.opens_given_up.is_empty());
            let sent = line.begin();
            drop(line.streams.leave(Leaving::Call(sent)));
            line.give_up(sent, opens_in);
            let said = line.queue.try_recv().expect("something is said");
            let (frame, _) = line.streams.leave(said).0.expect("it goes");
            let message: ToServer = frame.message().expect("ours");
            assert_eq!((frame.stream, message), (sent, ToServer::Cancel));
            assert_eq!(line.streams.opens_given_up.get(&sent).copied(), opens_in);
        }
    }
}
