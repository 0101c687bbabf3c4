//! A file of this node, given to another server.

use async_trait::async_trait;
use std::pin::pin;

use weft_core::attr::Kind;
use weft_core::form::{Call, OpenHow, Opened, Piece, Pin, Range, Source, Stopped};
use weft_core::{Error, ErrorKind, Result, Rights, limits};
use weft_mover::Class;
use weft_remote::{Put, Remote};

use super::asked::Asked;
use super::markers::{Markers, Moved};
use super::{Failure, differs, digests};
use crate::Http;
use crate::answer::Problem;
use crate::codec::digest::{Algorithm, Sum, Value};
use crate::exchange::{Exchange, Served, keeping_session};
use crate::map::Act;
use crate::status::Status;
use crate::sums::Summed;

/// What the other server may give a digest by: what grids keep, and what the Web has.
const SUMMED: [Algorithm; 4] = [Algorithm::Adler32, Algorithm::Sha256, Algorithm::Sha512, Algorithm::Md5];

/// Copies what has the request's name to another server.
pub async fn serve(mut x: Exchange<'_, '_>, asked: &Asked, remote: &Remote) -> Served {
    let http = x.talk.http;
    let how = OpenHow { need: Rights::READ, pin: Pin::Version, ..OpenHow::default() };
    let opened = match x.within(http.services.fs.open(&x.call, &x.at(), &how)).await {
        Ok(opened) => opened,
        Err(error) => return Err(x.problem(&error, Act::Read).await.into()),
    };
    let done = match opened.attr.kind {
        Kind::File => {
            let moved = Moved::default();
            let mut markers = Markers::new(x.talk, moved.clone());
            let call = x.call.clone();
            let pushed = async {
                keeping_session(http, &call, pin!(push(http, &call, remote, asked, &opened, moved))).await
            };
            let pushed = markers.during(x.talk, pushed).await;
            match pushed {
                Ok(pushed) => markers.end(x.talk, pushed.map_err(|failure| failure.problem())).await,
                Err(failed) => Err(failed),
            }
        }
        _ => Err(Problem::new(
            Status::CONFLICT,
            ErrorKind::Unsupported,
            "only files are copied to other servers",
        )
        .into()),
    };
    x.renew();
    // What was read was read; a late error of a read has nothing to tell.
    let _ = x.within(opened.file.close(&x.call)).await;
    done
}

async fn push(
    http: &Http,
    call: &Call,
    remote: &Remote,
    asked: &Asked,
    opened: &Opened,
    moved: Moved,
) -> std::result::Result<(), Failure> {
    let here = |error| Failure::Here(error, Act::Read);
    // Not every server knows the condition that goes with the file, too.
    if !asked.overwrites && remote.describe(&asked.url, &asked.passed).await.is_ok() {
        return Err(Failure::There(Error::new(ErrorKind::Precondition, "there is something of that name")));
    }
    let sys = &http.services.sys;
    let call = call.renewed(sys.clock(), limits::CALL_DEADLINE);
    let length = opened.attr.size;
    let read = opened.file.read(&call, Range { at: 0, length: Some(length) });
    let source = sys.within(call.until, read).await.map_err(here)?;
    let onward = http.services.mover.onward(Class::of(&call), source).map_err(here)?;
    let summed = Summed::new(sys, onward, SUMMED.into_iter().map(Sum::new).collect());
    let mut going = Going { source: summed, moved, failed: false };
    let put = Put {
        url: asked.url.clone(),
        passed: asked.passed.clone(),
        length: Some(length),
        overwrites: asked.overwrites,
        modified: None,
    };
    let stored = remote.upload(&put, &mut going).await;
    stored.map_err(|error| match going.failed || is_ours(error.kind()) {
        true => here(error),
        false => Failure::There(error),
    })?;
    let found = going.source.finish().unwrap_or_default();
    kept(remote, asked, length, &found).await.map_err(Failure::There)
}

/// Returns whether it is this node that stopped the transfer.
fn is_ours(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Revoked | ErrorKind::Expired)
}

/// Looks whether the other server has what it was given.
async fn kept(remote: &Remote, asked: &Asked, length: u64, found: &[Value]) -> Result<()> {
    let cannot = || {
        let why = "it gives no digest that is known here, and the copy, which is there, must be checked";
        Error::new(ErrorKind::Unsupported, why)
    };
    let said = match remote.describe(&asked.url, &asked.passed).await {
        Ok(said) => said,
        Err(_) if !asked.must_check => return Ok(()),
        Err(error) => return Err(cannot().caused_by(error)),
    };
    if said.length.is_some_and(|kept| kept != length) {
        return Err(Error::corrupt("it keeps another number of bytes than it was given"));
    }
    let mut is_checked = false;
    for value in digests(&said)? {
        let Some(own) = found.iter().find(|own| own.algorithm == value.algorithm) else { continue };
        if *own != value {
            return Err(differs(own, &value));
        }
        is_checked = true;
    }
    if is_checked || !asked.must_check { Ok(()) } else { Err(cannot()) }
}

/// What goes to the other server, counted.
struct Going<S> {
    source: S,
    moved: Moved,
    /// Whether it is the source that failed.
    failed: bool,
}

#[async_trait]
impl<S: Source> Source for Going<S> {
    async fn next(&mut self, max: usize) -> Result<Option<Piece>> {
        let piece = self.source.next(max).await;
        self.failed |= piece.is_err();
        let piece = piece?;
        self.moved.add(piece.as_ref().map_or(0, Piece::length));
        Ok(piece)
    }

    fn length(&self) -> Option<u64> {
        self.source.length()
    }

    fn stopped(&self) -> Stopped {
        self.source.stopped()
    }

    fn yield_turn(&mut self) {
        self.source.yield_turn();
    }
}
