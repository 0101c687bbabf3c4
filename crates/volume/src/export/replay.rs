//! Answers kept for requests that are sent again. In memory: an act on the machine and a row beside it
//! are no one commit, and an answer that was kept without its act would be worse than none. So a request
//! that is repeated over a restart of the node is made again, and finds what it made.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::OwnedMutexGuard;
use weft_core::form::Call;
use weft_core::{Error, RequestId, Result, SessionId, limits};
use weft_sys::Sys;

/// Every session's answers.
#[derive(Default)]
pub(super) struct Replays(Mutex<HashMap<SessionId, Arc<tokio::sync::Mutex<Ring>>>>);

#[derive(Default)]
struct Ring {
    given: HashMap<RequestId, Given>,
    order: VecDeque<RequestId>,
}

struct Given {
    fingerprint: [u8; 32],
    answer: Vec<u8>,
}

/// The right to make one request, or its answer if it was made before.
pub(super) enum Turn<T> {
    /// To be made, and kept with this.
    Make(Keeper),
    Answered(T),
}

/// Keeps an answer. Held while the act is made: the same request waits for it.
pub(super) struct Keeper(Option<(OwnedMutexGuard<Ring>, RequestId, [u8; 32])>);

impl Replays {
    /// Begins a request.
    pub(super) async fn begin<T: DeserializeOwned>(
        &self,
        sys: &Sys,
        call: &Call,
        request: &(impl Serialize + Sync),
    ) -> Result<Turn<T>> {
        let Some(id) = call.once else { return Ok(Turn::Make(Keeper(None))) };
        let fingerprint = *blake3::hash(&encode(&(call.caller.name().id(), request))?).as_bytes();
        let ring =
            self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(call.session).or_default().clone();
        let ring = sys.within(call.until, async { Ok(ring.lock_owned().await) }).await?;
        match ring.given.get(&id) {
            None => Ok(Turn::Make(Keeper(Some((ring, id, fingerprint))))),
            Some(given) if given.fingerprint == fingerprint => postcard::from_bytes(&given.answer)
                .map(Turn::Answered)
                .map_err(|e| Error::internal("a kept answer does not decode").caused_by(e)),
            Some(_) => Err(Error::invalid("the request id was used for another request of this session")),
        }
    }

    pub(super) fn end_session(&self, session: SessionId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&session);
    }
}

impl Keeper {
    /// Keeps the answer of an act that was made.
    pub(super) fn keep(self, answer: &impl Serialize) -> Result<()> {
        let Some((mut ring, id, fingerprint)) = self.0 else { return Ok(()) };
        let answer = encode(answer)?;
        ring.given.insert(id, Given { fingerprint, answer });
        ring.order.push_back(id);
        if ring.order.len() > limits::ONCE_RING
            && let Some(oldest) = ring.order.pop_front()
        {
            ring.given.remove(&oldest);
        }
        Ok(())
    }
}

fn encode(value: &impl Serialize) -> Result<Vec<u8>> {
    postcard::to_stdvec(value).map_err(|e| Error::internal("a value does not encode").caused_by(e))
}
