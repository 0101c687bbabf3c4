//! A file that comes whole in one message: what a stage, its one part and its publication do, without
//! a wait for whoever sends it in between. No method of the form, so that whatever implements
//! [`FileSystem`] has it.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::answer::{Entry, Part};
use super::file_system::{FileSystem, StageHint};
use super::{Ack, At, BytesSource, Call, Guard};
use crate::attr::{Changed, SetAttr};
use crate::error::{Error, Result};

/// What a file that comes whole is to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Whole {
    /// The BLAKE3 of its bytes, made where they were read.
    pub digest: [u8; 32],
    /// Attributes to set, as `publish` takes them.
    pub set: SetAttr,
    /// What must be true of the name.
    pub guard: Guard,
}

/// Makes bytes the file at an address: atomically, and durably before it answers. Needs what `stage`
/// and `publish` need. Fails with `Corrupt`, and changes nothing, if the bytes are not those of the
/// digest. It is not remembered: sent again, it is done again.
pub async fn put_whole(
    fs: &dyn FileSystem,
    call: &Call,
    at: &At,
    bytes: Bytes,
    whole: &Whole,
) -> Result<Changed<Entry>> {
    if bytes.is_empty() && *blake3::hash(b"").as_bytes() != whole.digest {
        return Err(Error::corrupt("nothing came, and something was sent"));
    }
    let call = Call { once: None, ..call.clone() };
    let hint = StageHint { length: Some(bytes.len() as u64), brief: true };
    let stage = fs.stage(&call, at, &hint).await?;
    let put = async {
        let mut parts = Vec::new();
        if !bytes.is_empty() {
            let (number, length) = (1, bytes.len() as u64);
            // Nobody goes on with it: `publish` brings the bytes to disk.
            let applied = Call { ack: Ack::Applied, ..call.clone() };
            let got = stage.put(&applied, number, 0, &mut BytesSource::new(bytes)).await?;
            if got != (Part { number, bytes: length, digest: whole.digest }) {
                return Err(Error::corrupt("what the node got is not what was sent: its checksum differs"));
            }
            parts.push(got);
        }
        stage.publish(&call, &parts, &whole.set, &whole.guard).await
    };
    let made = put.await;
    if made.is_err() {
        // Where it cannot be dropped either, it is given up later. What matters is why.
        let _ = stage.discard(&call).await;
    }
    made
}
