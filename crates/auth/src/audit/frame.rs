//! One frame of an audit file, as bytes.
//!
//! ```text
//!   body length (4) · head length (4) · body · head · link (32)
//!
//!   hash = H(link of the frame before · body length · body)    what the head signs
//!   link = H(hash · head length · head)                        what the next frame starts from
//! ```
//!
//! Every byte is under a hash: the body under `hash`, which the head repeats and signs, the head
//! under `link`, and the link is compared with what it should be.

use serde::{Deserialize, Serialize};
use weft_core::proof::{Purpose, Signed, Trust};
use weft_core::service::AuditRecord;
use weft_core::{DomainId, Error, Result, Time, limits};

/// How a file starts.
pub(crate) const MAGIC: &[u8; 16] = b"weft audit log 2";

const LENGTHS: usize = 8;
const LINK: usize = 32;

/// The hash that a frame starts from.
pub(super) type Link = [u8; 32];

/// What a frame holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Body {
    /// The first frame of a file.
    Opening {
        /// Whose log it is.
        domain: DomainId,
        /// The file's number.
        number: u64,
        /// The link that the file before ended with.
        previous: Link,
        /// The position of the first record after this.
        next: u64,
        /// The last note copied before this.
        notes: u64,
    },
    /// A batch.
    Records {
        /// The position of its first record.
        first: u64,
        /// The last note copied up to the end of this batch.
        notes: u64,
        /// The records.
        records: Vec<AuditRecord>,
    },
}

/// What is signed of a frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Head {
    pub(super) file: u64,
    pub(super) next: u64,
    pub(super) hash: Link,
    pub(super) at: Time,
}

/// A frame that was read and whose hashes match.
pub(super) struct Frame {
    pub(super) body: Body,
    pub(super) signed: Signed,
    pub(super) link: Link,
    pub(super) bytes: u64,
}

/// Why bytes are no frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// They end too early: this many are needed.
    Short(usize),
    /// They are wrong.
    Wrong(&'static str),
}

impl Fault {
    /// Says what is wrong.
    pub(super) fn detail(&self) -> &'static str {
        match self {
            Self::Short(_) => "a batch is cut short",
            Self::Wrong(detail) => detail,
        }
    }
}

/// Makes a frame. `sign` signs its head.
pub(super) fn encode(
    body: &Body,
    previous: &Link,
    file: u64,
    at: Time,
    sign: impl FnOnce(&Head) -> Result<Signed>,
) -> Result<(Vec<u8>, Link)> {
    let failed =
        |error: postcard::Error| Error::internal("an audit frame cannot be encoded").caused_by(error);
    let next = body.next();
    let body = postcard::to_stdvec(body).map_err(failed)?;
    let hash = hash_of("weft audit body v1", previous, &body);
    let head = postcard::to_stdvec(&sign(&Head { file, next, hash, at })?).map_err(failed)?;
    let link = hash_of("weft audit link v1", &hash, &head);
    let bytes = [&length(&body)?[..], &length(&head)?, &body, &head, &link].concat();
    if bytes.len() > limits::AUDIT_FRAME_BYTES_MAX {
        return Err(Error::internal("an audit frame is larger than it may be"));
    }
    Ok((bytes, link))
}

fn length(part: &[u8]) -> Result<[u8; 4]> {
    let length = u32::try_from(part.len())
        .map_err(|error| Error::internal("an audit frame is larger than it may be").caused_by(error))?;
    Ok(length.to_be_bytes())
}

fn hash_of(context: &str, before: &Link, part: &[u8]) -> Link {
    let mut hasher = blake3::Hasher::new_derive_key(context);
    hasher.update(before);
    hasher.update(&(part.len() as u64).to_be_bytes());
    hasher.update(part);
    *hasher.finalize().as_bytes()
}

impl Body {
    /// Returns the position of the first record after this.
    pub(super) fn next(&self) -> u64 {
        match self {
            Self::Opening { next, .. } => *next,
            Self::Records { first, records, .. } => first.saturating_add(records.len() as u64),
        }
    }

    /// Returns the last note copied up to the end of this.
    pub(super) fn notes(&self) -> u64 {
        match self {
            Self::Opening { notes, .. } | Self::Records { notes, .. } => *notes,
        }
    }
}

/// Reads the frame that `bytes` start with. Without `previous` the frame must be an opening, and
/// is believed as to what it follows.
pub(super) fn decode(bytes: &[u8], previous: Option<&Link>) -> std::result::Result<Frame, Fault> {
    let wrong = |_| Fault::Wrong("a batch is malformed");
    let (lengths, rest) = bytes.split_first_chunk::<LENGTHS>().ok_or(Fault::Short(LENGTHS))?;
    let [a, b, c, d, e, f, g, h] = *lengths;
    let body_bytes = u32::from_be_bytes([a, b, c, d]) as usize;
    let head_bytes = u32::from_be_bytes([e, f, g, h]) as usize;
    let whole = LENGTHS + body_bytes + head_bytes + LINK;
    if whole > limits::AUDIT_FRAME_BYTES_MAX {
        return Err(Fault::Wrong("a batch is longer than any may be"));
    }
    if bytes.len() < whole {
        return Err(Fault::Short(whole));
    }
    let (encoded, rest) = rest.split_at(body_bytes);
    let (head, rest) = rest.split_at(head_bytes);
    let body: Body = whole_of(encoded).ok_or(Fault::Wrong("a batch is malformed"))?;
    let before = match (previous, &body) {
        (Some(previous), _) => previous,
        (None, Body::Opening { previous, .. }) => previous,
        (None, Body::Records { .. }) => return Err(Fault::Wrong("the file does not begin with its opening")),
    };
    let hash = hash_of("weft audit body v1", before, encoded);
    let link = hash_of("weft audit link v1", &hash, head);
    if rest[..LINK] != link {
        return Err(Fault::Wrong("a batch does not match its hash"));
    }
    let signed: Signed = whole_of(head).ok_or(Fault::Wrong("a batch's head is malformed"))?;
    let claims: Head = postcard::from_bytes(signed.claims()).map_err(wrong)?;
    if claims.hash != hash || claims.next != body.next() {
        return Err(Fault::Wrong("a batch does not match its head"));
    }
    Ok(Frame { body, signed, link, bytes: whole as u64 })
}

/// Decodes a value that must fill the bytes.
fn whole_of<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    postcard::take_from_bytes(bytes).ok().filter(|(_, rest)| rest.is_empty()).map(|(value, _)| value)
}

impl Frame {
    /// Checks that the head was signed by a key that the domain had certified for that when it
    /// was signed, and speaks of this file.
    pub(super) fn check_head(&self, trust: &Trust, file: u64) -> std::result::Result<(), Fault> {
        let said: Head = postcard::from_bytes(self.signed.claims())
            .map_err(|_| Fault::Wrong("a batch's head is malformed"))?;
        let head: Head = trust
            .verify(&self.signed, Purpose::Audit, said.at)
            .map_err(|_| Fault::Wrong("a batch's head is not signed by the domain"))?;
        if head.file == file { Ok(()) } else { Err(Fault::Wrong("a batch belongs in another file")) }
    }
}
