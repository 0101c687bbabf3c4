//! Files of the node that came instead of their bytes.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::Bytes;
use weft_core::form::{OpenedFile, Piece};
use weft_core::{Error, Result, limits};
use weft_sys::net::Borrowed;

use crate::message::Lent;

/// Makes pieces of what was lent. Fails with `Invalid` if descriptors or bytes are missing, or there are others.
pub(crate) fn pieces(parts: &[Lent], mut payload: Bytes, descriptors: Vec<OwnedFd>) -> Result<Vec<Piece>> {
    let wrong = || Error::invalid("the server lent something else than it said");
    if parts.len() > limits::RPC_LENT_PARTS_MAX {
        return Err(wrong());
    }
    let files: Vec<Arc<dyn OpenedFile>> =
        descriptors.into_iter().map(|descriptor| Arc::new(Borrowed(descriptor)) as _).collect();
    let mut pieces = Vec::with_capacity(parts.len());
    for part in parts {
        pieces.push(match *part {
            Lent::File { descriptor, at, length: length @ 1.. } => {
                let file = files.get(descriptor as usize).ok_or_else(wrong)?.clone();
                at.checked_add(length.into()).ok_or_else(wrong)?;
                Piece::File { file, at, length: length as usize }
            }
            Lent::Bytes(length @ 1..) if length as usize <= payload.len() => {
                Piece::Bytes(payload.split_to(length as usize))
            }
            _ => return Err(wrong()),
        });
    }
    if payload.is_empty() { Ok(pieces) } else { Err(wrong()) }
}
