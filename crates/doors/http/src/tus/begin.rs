//! POST to a directory: an upload is begun.

use std::sync::Arc;

use weft_core::form::{Guard, Stage, StageHint, VersionIs};
use weft_core::{ErrorKind, limits};

use super::found::{self, Found};
use super::{SPOKEN, no_digests, publish};
use crate::answer::{Answer, Problem};
use crate::codec::Refusal;
use crate::codec::condition::Conditions;
use crate::codec::head::Field;
use crate::codec::target::Path;
use crate::codec::upload::{Metadata, STAMP_BYTES, Ticket, number};
use crate::exchange::{Exchange, Served};
use crate::map::Act;
use crate::put;
use crate::remove;
use crate::status::Status;
use crate::webdav::hold::{self, Shown};

/// Begins an upload. One of no bytes is published at once.
pub async fn serve(mut x: Exchange<'_, '_>) -> Served {
    let length = length(&x)?;
    let said = x.head.all(Field::UploadMetadata)?.unwrap_or_default().into_owned();
    let metadata = Metadata::of(&said)?;
    let path = x.path.path.join(&metadata.name).map_err(|error| Problem::of(&error, Act::Make))?;
    x.path = Path { path, is_directory: false };
    // What a stranger begins would stay, and there is nobody whose uploads could be counted.
    if x.call.caller.is_anyone() {
        return Err(Problem::who_asks().into());
    }
    let conditions = Conditions::of(x.head)?;
    let shown = hold::shown(&x).await?;
    let at = x.at();
    let guard = remove::guard(&x, &at, &conditions, Act::Make).await?;
    let is_new = is_new(guard.version.or(shown.version))?;
    let hint = StageHint { length: Some(length), brief: false };
    let services = &x.talk.http.services;
    let stage = match x.within(services.fs.stage(&x.call, &at, &hint)).await {
        Ok(stage) => stage,
        Err(error) => return Err(x.problem(&error, Act::Make).await.into()),
    };
    let ticket = Ticket { id: stage.id(), length, stamp: [0; STAMP_BYTES], is_new, said, metadata };
    let location = match begun(&mut x, &stage, &shown, ticket).await {
        Ok(location) => location,
        Err(failed) => {
            put::discard(&services.sys, &x.call, &stage).await;
            return Err(failed);
        }
    };
    let fields = |answer: &mut Answer| _ = answer.fixed(SPOKEN).field("Location", location);
    x.talk.reply(Status::CREATED, fields, None).await
}

/// Returns the address of an upload that was begun.
async fn begun(
    x: &mut Exchange<'_, '_>,
    stage: &Arc<dyn Stage>,
    shown: &Shown,
    mut ticket: Ticket,
) -> Served<String> {
    // Refused before the bytes come, to who may write there; what counts is leave when they are shown.
    hold::permit_write(x, shown).await?;
    ticket.stamp = found::stamp(x, ticket.id).await?;
    let address = address(x, &ticket)?;
    if ticket.length == 0 {
        let found = Found { stage: Some(stage.clone()), turn: found::turn(x, ticket.id).await? };
        publish::unless_done(x, &ticket, found, (shown, Guard::NONE)).await?;
    }
    Ok(address)
}

/// Returns how long the upload is to be. Fails for what nothing here would keep to.
fn length(x: &Exchange<'_, '_>) -> Served<u64> {
    if !x.talk.progress.is_done() {
        let why = "an upload is begun without a body: its bytes are sent to the address that is told";
        return Err(Problem::new(Status::UNSUPPORTED_TYPE, ErrorKind::Unsupported, why).into());
    }
    if x.head.has(Field::UploadConcat) {
        return Err(Refusal::malformed("uploads are not put together of others here").into());
    }
    no_digests(x.head)?;
    let said = x.head.one(Field::UploadLength)?.filter(|_| !x.head.has(Field::UploadDeferLength));
    let length =
        said.and_then(number).ok_or(Refusal::malformed("Upload-Length says how long the file is to be"))?;
    if length > limits::FILE_BYTES_MAX {
        let problem = Problem::new(Status::TOO_LARGE, ErrorKind::TooLarge, "a file has at most 2^62 bytes");
        return Err(problem.with("Tus-Max-Size", limits::FILE_BYTES_MAX.to_string()).into());
    }
    Ok(length)
}

/// Returns whether the name must be free still when the file is shown. What else must hold then cannot be said now.
fn is_new(version: Option<VersionIs>) -> Served<bool> {
    match version {
        None => Ok(false),
        Some(VersionIs::Absent) => Ok(true),
        Some(_) => {
            let why = "of what is replaced the last PATCH may say what it must be: here only that it must not be there";
            Err(Refusal::malformed(why).into())
        }
    }
}

/// Returns the address of an upload. It is asked for as any other is, so it is no longer than one may be.
fn address(x: &Exchange<'_, '_>, ticket: &Ticket) -> Served<String> {
    let address = format!("{}?{}", x.encode(&x.path), ticket.to_query());
    if address.len() <= limits::HTTP_TARGET_BYTES_MAX {
        return Ok(address);
    }
    let why = "path and Upload-Metadata are together longer than an address may be";
    Err(Problem::new(Status::FIELDS_TOO_LARGE, ErrorKind::TooLong, why).into())
}
