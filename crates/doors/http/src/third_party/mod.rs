//! Third-party copies: a caller has this node read a file from another server, or give it one.
//!
//! ```text
//!   COPY /here  Source: https://there/f       stage ◀─ mover.inbound ◀─ remote.download      published like a PUT
//!   COPY /here  Destination: https://there/f  open ─▶ mover.onward ─▶ remote.upload          looked at again there
//!        │
//!        └─▶ whoever asked: 201 if it is quick; else 202, a marker now and then, and how it ended
//! ```
//!
//! As the grids of WLCG have it: what the other server needs to know its caller comes in fields that begin with
//! `TransferHeader`, is passed on to that server alone, and is written down nowhere.
//!
//! **Ways to get it wrong.** Fetching for who has no right to write, or is nobody: rights come first. Taking a copy between two
//! names of this node for one to another server, or the other way round ([`is_asked`]). Going on for who has left.

mod asked;
mod markers;
mod pull;
mod push;

use std::borrow::Cow;

use weft_core::{Error, ErrorKind};
use weft_remote::Said;

pub use asked::is_asked;

use crate::answer::Problem;
use crate::codec::digest::{self, Value};
use crate::exchange::{Exchange, Served};
use crate::map::{self, Act};
use crate::places::Full;
use crate::status::Status;
use asked::{Asked, Way};

/// Copies to or from another server.
pub async fn serve(x: Exchange<'_, '_>) -> Served {
    if x.call.caller.is_anyone() {
        return Err(Problem::who_asks().into());
    }
    let asked = Asked::of(&x)?;
    let Some(remote) = x.talk.http.services.remote.clone() else {
        let why = "this node copies nothing from and to other servers";
        return Err(Problem::new(Status::NOT_IMPLEMENTED, ErrorKind::Unsupported, why).into());
    };
    let place = x.talk.http.third_party.enter(x.call.caller.name().id());
    let _place = place.map_err(|full| Problem::of(&busy(full), Act::Make))?;
    match asked.way {
        Way::Pull => pull::serve(x, &asked, &remote).await,
        Way::Push => push::serve(x, &asked, &remote).await,
    }
}

/// Each copy holds a connection, maybe two, and bytes for somebody who need not do anything for it.
fn busy(full: Full) -> Error {
    let why = match full {
        Full::All => "as many third-party copies are under way as this node makes at once",
        Full::Own => "as many of your third-party copies are under way as one caller may have",
    };
    Error::new(ErrorKind::Busy, why).hint("ask again later")
}

/// Why a copy failed.
enum Failure {
    /// At the other server.
    There(Error),
    /// On this node, in this act.
    Here(Error, Act),
}

impl Failure {
    fn problem(&self) -> Problem {
        let (error, status) = match self {
            Self::Here(error, act) => return Problem::of(error, *act),
            Self::There(error) => (error, status_there(error.kind())),
        };
        let hint = error.advice().map(|hint| format!(" ({hint})")).unwrap_or_default();
        let why: Cow<'static, str> = format!("the other server: {error}{hint}").into();
        Problem::new(status, error.kind(), why)
    }
}

/// What an error of the other server is answered with: never with what would make a client prove again who it is here.
fn status_there(kind: ErrorKind) -> Status {
    match kind {
        ErrorKind::Denied | ErrorKind::Unauthenticated => Status::FORBIDDEN,
        ErrorKind::Precondition => Status::PRECONDITION_FAILED,
        ErrorKind::Revoked | ErrorKind::Expired => map::status(kind, Act::Read),
        ErrorKind::Deadline => Status::GATEWAY_TIMEOUT,
        _ => Status::BAD_GATEWAY,
    }
}

/// Returns the digests that the other server gives, one of each sort.
fn digests(said: &Said) -> Result<Vec<Value>, Error> {
    let mut found: Vec<Value> = Vec::new();
    let new = said.repr_digest.as_deref().map(digest::values);
    let old = said.digest.as_deref().map(digest::values_old);
    for values in [new, old].into_iter().flatten() {
        for value in values.map_err(|refusal| Error::corrupt(refusal.reason))? {
            match found.iter().find(|other| other.algorithm == value.algorithm) {
                None => found.push(value),
                Some(other) if *other == value => {}
                Some(_) => return Err(Error::corrupt("two digests of one algorithm differ")),
            }
        }
    }
    Ok(found)
}

/// Returns the error of bytes that are not those which a digest is of.
fn differs(found: &Value, expected: &Value) -> Error {
    let (found, expected) = (found.to_old_field(), expected.to_old_field());
    Error::corrupt(format!("the bytes have another digest there: {found} was moved, {expected} is said"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_other_server_answers_never_asks_for_a_login_here() {
        for kind in
            ErrorKind::ALL.into_iter().filter(|kind| !matches!(kind, ErrorKind::Revoked | ErrorKind::Expired))
        {
            assert_ne!(status_there(kind), Status::UNAUTHORIZED, "{}", kind.name());
        }
    }

    #[test]
    fn digests_that_contradict_each_other_are_believed_by_nobody() {
        let said = |new: &str, old: &str| Said {
            repr_digest: Some(new.to_owned()),
            digest: Some(old.to_owned()),
            ..Said::default()
        };
        let good = digests(&said("adler=:BiwCFQ==:", "adler32=062c0215")).expect("they agree");
        assert_eq!(good.len(), 1);
        assert!(digests(&said("adler=:BiwCFQ==:", "adler32=062c0216")).is_err());
        assert!(digests(&said("md5=:x:", "adler32=062c0215")).is_err());
    }
}
