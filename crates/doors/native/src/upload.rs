//! An upload: a source whose bytes the server asks for as it has room (law of
//! server-directed movement: the server says when and how much).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::mpsc;
use weft_core::form::{Piece, Source, Stopped};
use weft_core::{Deadline, Error, ErrorKind, ErrorReport, Result, limits};
use weft_mover::Pace;
use weft_rpc::{Frame, ToClient};

use crate::connection::Replies;
use crate::held::Part;

/// What the reader hands on of an upload.
pub(crate) enum Arrived {
    /// With what they take of their uid's room.
    Bytes {
        bytes: Bytes,
        end: bool,
        part: Option<Part>,
    },
    Aborted(ErrorReport),
}

/// Messages of an upload that may wait to be taken. A client that sends more is cut off.
const MESSAGES_MAX: usize = 256;

/// The reader's end of an upload. No more is kept than was asked for.
pub(crate) struct Intake {
    arrived: mpsc::Sender<Arrived>,
    granted: Arc<AtomicU32>,
}

impl Intake {
    /// Makes both ends of the upload that a call may become.
    pub(crate) fn new() -> (Self, Inflow) {
        let (sender, arrived) = mpsc::channel(MESSAGES_MAX);
        let granted = Arc::<AtomicU32>::default();
        (Self { arrived: sender, granted: granted.clone() }, Inflow { arrived, granted })
    }

    /// Hands on what came. Fails with `Invalid` where that is more than was asked for. What comes
    /// for a call that takes no more is dropped.
    pub(crate) fn pass(&self, arrived: Arrived) -> Result<()> {
        if let Arrived::Bytes { bytes, .. } = &arrived {
            let bytes = u32::try_from(bytes.len()).map_err(|_| more_than_granted())?;
            let take = |granted: u32| granted.checked_sub(bytes);
            self.granted
                .try_update(Ordering::AcqRel, Ordering::Acquire, take)
                .map_err(|_| more_than_granted())?;
        }
        match self.arrived.try_send(arrived) {
            Err(mpsc::error::TrySendError::Full(_)) => Err(more_than_granted()),
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => Ok(()),
        }
    }
}

/// The call's end of an upload that nobody pulls yet.
pub(crate) struct Inflow {
    arrived: mpsc::Receiver<Arrived>,
    granted: Arc<AtomicU32>,
}

fn more_than_granted() -> Error {
    Error::invalid("the client sent more than it was granted")
}

pub(crate) struct Upload {
    stream: u32,
    replies: Replies,
    inflow: Inflow,
    ready: Bytes,
    part: Option<Part>,
    /// Bytes asked for that have not been taken yet.
    awaited: u32,
    /// Of these, what the client was not told of yet: whoever pulls may give that wait up.
    untold: u32,
    /// However often a byte comes: a client that brings too few of them is given up.
    pace: Pace,
    ended: bool,
}

impl Upload {
    pub(crate) fn new(stream: u32, replies: Replies, inflow: Inflow) -> Self {
        let (ready, pace) = (Bytes::new(), Pace::START);
        Self { stream, replies, inflow, ready, part: None, awaited: 0, untold: 0, pace, ended: false }
    }

    async fn receive(&mut self) -> Result<()> {
        self.part = None;
        if self.awaited == 0 {
            self.awaited = limits::RPC_WINDOW_BYTES;
            self.untold = self.awaited;
            self.inflow.granted.fetch_add(self.awaited, Ordering::AcqRel);
        }
        if self.untold > 0 {
            self.replies.send(Frame::new(self.stream, &ToClient::Grant(self.untold), Bytes::new())).await?;
            self.untold = 0;
        }
        match self.wait().await? {
            Arrived::Bytes { bytes, end, part } => {
                // No more was let in than was awaited.
                self.awaited -= bytes.len() as u32;
                (self.ready, self.part, self.ended) = (bytes, part, end);
                Ok(())
            }
            Arrived::Aborted(report) => {
                self.ended = true;
                Err(report.into())
            }
        }
    }

    /// Waits for the client. Fails with `Deadline` if it brings too little for too long.
    async fn wait(&mut self) -> Result<Arrived> {
        let sys = self.replies.sys();
        let (begun, until) = (sys.clock().tick(), Deadline::within(sys.clock(), self.pace.left()));
        let gone = || Error::new(ErrorKind::Unavailable, "the client went away in the middle of its upload");
        let arrived = sys.within(until, async { self.inflow.arrived.recv().await.ok_or_else(gone) }).await?;
        let brought = if let Arrived::Bytes { bytes, .. } = &arrived { bytes.len() } else { 0 };
        self.pace.waited(sys.clock().tick().since(begun), brought);
        Ok(arrived)
    }
}

#[async_trait]
impl Source for Upload {
    async fn next(&mut self, max: usize) -> Result<Option<Piece>> {
        while self.ready.is_empty() {
            if self.ended {
                return Ok(None);
            }
            self.receive().await?;
        }
        Ok(Some(Piece::Bytes(self.ready.split_to(self.ready.len().min(max)))))
    }

    fn length(&self) -> Option<u64> {
        None
    }

    /// Never ends by itself: whoever writes re-checks its right for every piece.
    fn stopped(&self) -> Stopped {
        Box::pin(std::future::pending())
    }
}

#[cfg(test)]
mod tests {
    use weft_sys::simulate;

    use super::*;
    use crate::Uids;

    #[test]
    fn no_more_is_kept_of_an_upload_than_was_asked_for() {
        let (intake, inflow) = Intake::new();
        let bytes = |length: usize| Arrived::Bytes { bytes: vec![0; length].into(), end: false, part: None };
        assert!(intake.pass(bytes(1)).is_err(), "nothing was asked for yet");
        inflow.granted.store(10, Ordering::Release);
        intake.pass(bytes(7)).expect("asked for");
        assert!(intake.pass(bytes(4)).is_err());
        intake.pass(bytes(3)).expect("the rest");
        for _ in 2..MESSAGES_MAX {
            intake.pass(bytes(0)).expect("a message");
        }
        assert!(intake.pass(bytes(0)).is_err(), "messages without bytes are bounded, too");
        drop(inflow);
        intake
            .pass(Arrived::Bytes { bytes: Bytes::new(), end: true, part: None })
            .expect("nobody takes more");
    }

    #[test]
    fn a_question_for_bytes_that_was_given_up_is_asked_again() {
        simulate(1, |sys| async move {
            let mut queue = None;
            let write = |frames| {
                queue = Some(frames);
                std::future::ready(())
            };
            let (replies, _) = Replies::new(sys.clone(), Uids::default().of(7), write);
            let mut queue = queue.expect("it was made");
            for _ in 0..limits::RPC_QUEUE_FRAMES {
                let frame = Frame::new(9, &ToClient::Grant(0), Bytes::new());
                replies.send(frame).await.expect("there is room");
            }
            let (intake, inflow) = Intake::new();
            let mut upload = Upload::new(5, replies, inflow);
            tokio::select! {
                biased;
                _ = upload.next(10) => panic!("there is no room to ask"),
                () = std::future::ready(()) => {}
            }
            for _ in 0..limits::RPC_QUEUE_FRAMES {
                queue.recv().await.expect("a frame of another");
            }
            let answers = async {
                let asked = queue.recv().await.expect("the question").frame;
                let bytes = Bytes::from_static(b"answer");
                intake.pass(Arrived::Bytes { bytes, end: true, part: None }).expect("it was asked for");
                asked
            };
            let (piece, asked) = tokio::join!(upload.next(10), answers);
            assert_eq!(asked.stream, 5);
            assert_eq!(piece.expect("it came").expect("bytes").into_bytes().expect("in memory"), "answer");
        });
    }
}
