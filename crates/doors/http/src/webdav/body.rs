//! The XML that a request brings.

use weft_core::limits;
use weft_mover::Incoming;

use crate::codec::Refusal;
use crate::exchange::{Exchange, Served};
use crate::status::Status;

const TOO_LARGE: Refusal = Refusal::new(Status::TOO_LARGE, "the XML of the request is larger than its limit");
/// What is read at once.
const READ: usize = 16 << 10;

/// Receives the body of a request whole: at most [`limits::DAV_XML_BYTES_MAX`].
pub async fn received(x: &mut Exchange<'_, '_>) -> Served<Vec<u8>> {
    if x.talk.progress.left().is_some_and(|left| left > limits::DAV_XML_BYTES_MAX as u64) {
        return Err(TOO_LARGE.into());
    }
    let sys = &x.talk.http.services.sys;
    let mut whole = Vec::new();
    let mut body = x.talk.body();
    let done = sys
        .within(x.call.until, async {
            while let Some(bytes) = body.receive(READ).await? {
                whole.extend_from_slice(&bytes);
                if whole.len() > limits::DAV_XML_BYTES_MAX {
                    return Ok(false);
                }
            }
            Ok(true)
        })
        .await;
    drop(body);
    match done {
        Ok(true) => Ok(whole),
        Ok(false) => Err(crate::answer::Problem::from(TOO_LARGE).closing().into()),
        Err(error) => Err(x.upload_failed(error).await),
    }
}
