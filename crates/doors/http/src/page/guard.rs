//! The guard of a login: what its pages hold and no other site can know, shown beside the cookie by whatever
//! changes something.

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use weft_core::ErrorKind;

use crate::answer::Problem;
use crate::codec::head::{Field, Head};
use crate::exchange::Served;
use crate::identity::Shown;
use crate::status::Status;

/// Returns the problem of what no page of this login sent.
pub fn foreign() -> Problem {
    let why =
        "this was not sent by a page of this node, or by one of a login that is over; load the page again";
    Problem::new(Status::FORBIDDEN, ErrorKind::NotPermitted, why)
}

/// Fails unless a request that would change something is one that only the page can send: whoever is known
/// by a cookie alone must show the guard beside it.
pub fn check(head: &Head, shown: Shown<'_>) -> Served {
    let Shown::Cookie(cookie) = shown else { return Ok(()) };
    match head.one(Field::Guard)? {
        Some(guard) if holds(guard, cookie) => Ok(()),
        _ => Err(foreign().into()),
    }
}

/// Returns the guard of a login: what its pages hold and no other site can know.
pub fn of(cookie: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(b"weft page guard\0");
    hash.update(cookie);
    HEXLOWER.encode(&hash.finalize()[..16])
}

/// Returns whether a guard is that of a login.
pub fn holds(guard: &str, cookie: &str) -> bool {
    guard.as_bytes().ct_eq(of(cookie).as_bytes()).into()
}
