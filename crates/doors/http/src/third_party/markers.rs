//! What whoever asked is told while a copy goes on.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weft_core::form::Door;
use weft_core::{Error, ErrorKind, Tick, limits};
use weft_mover::Class;
use weft_sys::net::More;

use crate::answer::Problem;
use crate::exchange::{Failed, Served, Talk};
use crate::status::Status;

/// The media type of markers.
const MEDIA: &str = "text/perf-marker-stream";

/// How many bytes a copy has moved.
#[derive(Clone, Default)]
pub struct Moved(Arc<AtomicU64>);

impl Moved {
    /// Counts more of them.
    pub fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// An answer that is begun once the copy takes longer than a moment.
pub struct Markers {
    moved: Moved,
    due: Tick,
    /// Once it is begun: whether it goes in chunks.
    begun: Option<bool>,
}

impl Markers {
    /// Begins to wait.
    pub fn new(talk: &Talk<'_>, moved: Moved) -> Self {
        let due = talk.http.services.sys.clock().tick().plus(limits::THIRD_PARTY_PROMPT);
        Self { moved, due, begun: None }
    }

    /// Waits for the work, and tells how far it is now and then. The work ends with whoever asked for it.
    pub async fn during<T>(&mut self, talk: &mut Talk<'_>, work: impl Future<Output = T>) -> Served<T> {
        let sys = &talk.http.services.sys;
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                () = talk.gone() => {
                    let why = "whoever asked for the copy is gone";
                    return Err(Failed::Broken(Error::new(ErrorKind::Unavailable, why)));
                }
                () = sys.sleep_until(self.due) => {}
            }
            self.due = sys.clock().tick().plus(limits::THIRD_PARTY_MARKER_EVERY);
            let marker = format!(
                "Perf Marker\nTimestamp: {}\nStripe Index: 0\nStripe Bytes Transferred: {}\nTotal Stripe Count: 1\nEnd\n",
                sys.clock().now().seconds(),
                self.moved.bytes()
            );
            self.say(talk, &marker, false).await?;
        }
    }

    /// Tells how it ended.
    pub async fn end(mut self, talk: &mut Talk<'_>, done: Result<(), Problem>) -> Served {
        match (self.begun, done) {
            (None, Err(problem)) => Err(problem.into()),
            (None, Ok(())) => {
                talk.reply(Status::CREATED, |_| {}, Some((MEDIA, b"success: Created\n".to_vec()))).await
            }
            (Some(_), Ok(())) => self.say(talk, "success: Created\n", true).await,
            (Some(_), Err(problem)) => {
                let text: String =
                    problem.detail().chars().map(|one| if one.is_control() { ' ' } else { one }).collect();
                // The words may hold an address, and that a secret.
                let (status, kind) = (problem.status.code(), problem.kind.name());
                tracing::debug!(trace = %talk.trace, status, kind, "a third-party copy failed");
                self.say(talk, &format!("failure: {} {text}\n", problem.status.code()), true).await
            }
        }
    }

    async fn say(&mut self, talk: &mut Talk<'_>, text: &str, ends: bool) -> Served {
        let (mut bytes, chunked) = match self.begun {
            Some(chunked) => (Vec::new(), chunked),
            None => talk.begin_stream(Status::ACCEPTED, |answer| {
                answer.field("Content-Type", MEDIA).fixed("Cache-Control: no-store\r\n");
            }),
        };
        self.begun = Some(chunked);
        match chunked {
            true => bytes.extend_from_slice(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes()),
            false => bytes.extend_from_slice(text.as_bytes()),
        }
        if ends && chunked {
            bytes.extend_from_slice(b"0\r\n\r\n");
        }
        let mut outbound = talk.http.services.mover.outbound(Class::door(Door::Http), talk.socket, None);
        let done = outbound.send_bytes(&bytes, More::Ends).await;
        let sent = outbound.sent();
        drop(outbound);
        talk.count(sent);
        done.map_err(Failed::Broken)
    }
}
