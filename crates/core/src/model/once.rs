//! Replays: the same request of the same session gets its first answer again.

use std::collections::VecDeque;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::act::Act;
use crate::error::{Error, Result};
use crate::id::RequestId;
use crate::limits;

/// The last answers of one session.
#[derive(Default)]
pub(super) struct Ring(VecDeque<Kept>);

struct Kept {
    id: RequestId,
    /// Of the caller, the method and its arguments.
    fingerprint: [u8; 32],
    answer: Vec<u8>,
}

impl Act<'_> {
    /// Acts, or replays the answer to the same request. The same id with another
    /// request is `Invalid`. Failures change nothing and are not kept.
    pub(super) fn once<T: Serialize + DeserializeOwned>(
        &mut self,
        request: &impl Serialize,
        act: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let Some(id) = self.call.once else { return act(self) };
        let asked = (self.call.caller.name().id(), request);
        let fingerprint = *blake3::hash(&encode(&asked)?).as_bytes();
        let kept =
            self.state.rings.get(&self.call.session).and_then(|ring| ring.0.iter().find(|k| k.id == id));
        if let Some(kept) = kept {
            if kept.fingerprint != fingerprint {
                return Err(Error::invalid("the request id was used for another request of this session"));
            }
            return postcard::from_bytes(&kept.answer)
                .map_err(|e| Error::internal("a kept answer does not decode").caused_by(e));
        }
        let value = act(self)?;
        let answer = encode(&value)?;
        let ring = &mut self.state.rings.entry(self.call.session).or_default().0;
        if ring.len() == limits::ONCE_RING {
            ring.pop_front();
        }
        ring.push_back(Kept { id, fingerprint, answer });
        Ok(value)
    }
}

fn encode(value: &impl Serialize) -> Result<Vec<u8>> {
    postcard::to_stdvec(value).map_err(|e| Error::internal("a request does not encode").caused_by(e))
}
