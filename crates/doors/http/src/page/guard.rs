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

/// Whose page has a request sent, as far as that is said: browsers say so of whatever may change something, and what is
/// no browser sends nothing that its user did not ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// Nobody says.
    Unsaid,
    /// A page of this origin.
    Own,
    /// A page of another one, or of none.
    Foreign,
}

/// Returns whose page has a request sent.
pub fn sender(head: &Head) -> Served<Sender> {
    let Some(origin) = head.one(Field::Origin)? else { return Ok(Sender::Unsaid) };
    let host = origin.split_once("://").map(|(_, host)| host.as_bytes());
    let is_own = host.is_some_and(|host| host.eq_ignore_ascii_case(head.host()));
    Ok(if is_own { Sender::Own } else { Sender::Foreign })
}

/// Fails unless a request that would change something is one that no page of another site has sent. Whoever is known
/// by a cookie alone must show the guard beside it. A certificate is shown by a browser wherever a page sends it to, and
/// by programs that know of no guard: what says that it comes from elsewhere is refused.
pub fn check(head: &Head, shown: Shown<'_>) -> Served {
    let good = match shown {
        Shown::Cookie(cookie) => head.one(Field::Guard)?.is_some_and(|guard| holds(guard, cookie)),
        Shown::Certificate(_) => sender(head)? != Sender::Foreign,
        Shown::Field(_) | Shown::Nothing => true,
    };
    if good { Ok(()) } else { Err(foreign().into()) }
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
