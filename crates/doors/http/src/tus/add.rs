//! PATCH: more of an upload.

use std::pin::pin;
use std::sync::Arc;

use weft_core::form::{Stage, Stopped};
use weft_core::{Error, ErrorKind, limits};
use weft_mover::Class;

use super::found::{self, PART};
use super::slice::Slice;
use super::turns::Turn;
use super::{SPOKEN, no_digests, publish};
use crate::answer::{Answer, Problem};
use crate::codec::Refusal;
use crate::codec::condition::Conditions;
use crate::codec::head::Field;
use crate::codec::upload::{Ticket, number};
use crate::exchange::{Exchange, Served, keeping_session};
use crate::map::Act;
use crate::put;
use crate::remove;
use crate::status::Status;
use crate::webdav::hold;

/// What the bytes of an upload are sent as.
const MEDIA: &str = "application/offset+octet-stream";

/// Takes more of an upload. What came is kept, however the request ends.
pub async fn serve(mut x: Exchange<'_, '_>) -> Served {
    let ticket = Ticket::of(x.head.query())?;
    let offset = offset(&x)?;
    let conditions = Conditions::of(x.head)?;
    let found = found::alone(&x, &ticket).await?;
    let shown = hold::shown(&x).await?;
    let guard = remove::guard(&x, &x.at(), &conditions, Act::Make).await?;
    let there = found.offset(&x, &ticket).await?;
    if there != offset {
        let why = format!("the upload has {there} bytes, so it goes on at byte {there}");
        return Err(Problem::new(Status::CONFLICT, ErrorKind::Conflict, why).into());
    }
    if x.talk.progress.left().is_some_and(|left| left > ticket.length - there) {
        let why = "the bytes that would come are more than the upload was to have";
        return Err(Problem::new(Status::TOO_LARGE, ErrorKind::TooLarge, why).into());
    }
    let now = match &found.stage {
        Some(stage) if !x.talk.progress.is_done() => {
            // Refused before the bytes come, as it would be after them.
            hold::permit_write(&x, &shown).await?;
            receive(&mut x, stage, &found.turn, (there, ticket.length)).await?
        }
        _ => there,
    };
    let changed = match now == ticket.length {
        true => publish::unless_done(&mut x, &ticket, found, (&shown, guard)).await?,
        false => None,
    };
    let fields = |answer: &mut Answer| {
        answer.fixed(SPOKEN).field("Upload-Offset", now);
        if let Some(changed) = &changed {
            put::tell_of(changed, answer);
        }
    };
    x.talk.reply(Status::NO_CONTENT, fields, None).await
}

/// Returns where the bytes of the request go.
fn offset(x: &Exchange<'_, '_>) -> Served<u64> {
    if x.head.one(Field::ContentType)? != Some(MEDIA) {
        let why = "the bytes of an upload are sent as `Content-Type: application/offset+octet-stream`";
        return Err(Problem::new(Status::UNSUPPORTED_TYPE, ErrorKind::Unsupported, why).into());
    }
    no_digests(x.head)?;
    let said = x.head.one(Field::UploadOffset)?.and_then(number);
    Ok(said.ok_or(Refusal::malformed("Upload-Offset says where the bytes go"))?)
}

/// Receives the body of a request, slice by slice, each on disk before the next begins. Returns how many bytes the upload
/// has then.
async fn receive(
    x: &mut Exchange<'_, '_>,
    stage: &Arc<dyn Stage>,
    turn: &Turn,
    (from, length): (u64, u64),
) -> Served<u64> {
    let (http, call) = (x.talk.http, x.call.clone());
    let (class, stopped) = (Class::of(&call), stopped(x, turn));
    let given_up = || given_up(turn);
    let sys = &http.services.sys;
    let mut body = x.talk.body();
    let received = async {
        let mut inbound = http.services.mover.inbound(class, &mut body, stopped)?;
        let mut at = from;
        loop {
            let call = call.renewed(sys.clock(), limits::CALL_DEADLINE).durable();
            let mut slice = Slice::new(sys, &mut inbound, length - at, &given_up);
            let part = keeping_session(http, &call, pin!(stage.put(&call, PART, at, &mut slice))).await?;
            if part.bytes != at + slice.passed() {
                // It took less than came, which it must not.
                return Err(Error::internal("the upload was not taken whole"));
            }
            at = part.bytes;
            if slice.is_last() {
                return Ok(at);
            }
        }
    };
    let received = received.await;
    drop(body);
    match received {
        Ok(at) => Ok(at),
        Err(error) => Err(x.upload_failed(error).await),
    }
}

/// Returns a future that ends when the caller's credential is withdrawn, or somebody else goes on with the upload.
fn stopped(x: &Exchange<'_, '_>, turn: &Turn) -> Stopped {
    let (withdrawn, given_up) = (x.withdrawn(), given_up(turn));
    Box::pin(async move {
        tokio::select! {
            biased;
            why = withdrawn => why,
            why = given_up => why,
        }
    })
}

/// Returns a future that ends when somebody else goes on with the upload.
fn given_up(turn: &Turn) -> Stopped {
    let over = turn.over();
    Box::pin(async move {
        over.await;
        Error::new(ErrorKind::Conflict, "another request goes on with the upload")
    })
}
