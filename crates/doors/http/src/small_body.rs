//! Bodies that are small enough to be held whole: XML, forms.

use weft_core::ErrorKind;
use weft_mover::Incoming;

use crate::answer::Problem;
use crate::exchange::{Exchange, Served};
use crate::status::Status;

/// What is read at once.
const READ: usize = 16 << 10;

/// Receives the body of a request whole: at most `max` bytes.
pub async fn received(x: &mut Exchange<'_, '_>, max: usize) -> Served<Vec<u8>> {
    let too_large = || {
        let why = format!("the body of this request has at most {max} bytes");
        Problem::new(Status::TOO_LARGE, ErrorKind::TooLarge, why)
    };
    if x.talk.progress.left().is_some_and(|left| left > max as u64) {
        return Err(too_large().into());
    }
    let sys = &x.talk.http.services.sys;
    let mut whole = Vec::new();
    let mut body = x.talk.body();
    let done = sys
        .within(x.call.until, async {
            while let Some(bytes) = body.receive(READ).await? {
                whole.extend_from_slice(&bytes);
                if whole.len() > max {
                    return Ok(false);
                }
            }
            Ok(true)
        })
        .await;
    drop(body);
    match done {
        Ok(true) => Ok(whole),
        Ok(false) => Err(too_large().closing().into()),
        Err(error) => Err(x.upload_failed(error).await),
    }
}
