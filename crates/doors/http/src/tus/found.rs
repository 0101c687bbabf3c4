//! An upload, found again by its address: whose it is, and whether it is for the name that the address leads to.

use std::sync::Arc;

use subtle::ConstantTimeEq;
use weft_core::drop_box::stored_name;
use weft_core::form::{At, Stage, Want};
use weft_core::{Error, ErrorKind, StageId};

use super::turns::Turn;
use crate::answer::Problem;
use crate::codec::upload::{STAMP_BYTES, Ticket};
use crate::exchange::{Exchange, Served};
use crate::map::Act;
use crate::status::Status;

/// The one part that an upload is: it is gone on with at its end.
pub const PART: u32 = 1;

/// An upload that nobody else is at work on.
pub struct Found {
    /// Its stage; none if it was published already.
    pub stage: Option<Arc<dyn Stage>>,
    /// As long as it is held.
    pub turn: Turn,
}

impl Found {
    /// Returns how many bytes there are.
    pub async fn offset(&self, x: &Exchange<'_, '_>, ticket: &Ticket) -> Served<u64> {
        let Some(stage) = &self.stage else { return Ok(ticket.length) };
        let page = match x.within(stage.parts(&x.call, PART)).await {
            Ok(page) => page,
            Err(error) => return Err(x.problem(&error, Act::Read).await.into()),
        };
        let part = page.parts.iter().find(|part| part.number == PART);
        match part.map_or(0, |part| part.bytes) {
            bytes if bytes <= ticket.length => Ok(bytes),
            _ => {
                let why = "more came than this address says that there would be";
                Err(Problem::new(Status::CONFLICT, ErrorKind::Conflict, why).into())
            }
        }
    }
}

/// Finds the upload of an address, and stops the request that is at work on it: that one's line may be dead, and
/// nobody there to tell.
pub async fn alone(x: &Exchange<'_, '_>, ticket: &Ticket) -> Served<Found> {
    // Nobody else's is stopped, and none by who may not go on with it.
    if let Some(stage) = find(x, ticket).await? {
        may_go_on(x, &stage).await?;
    }
    let turn = turn(x, ticket.id).await?;
    // Whoever was at work may have come to the end.
    Ok(Found { stage: find(x, ticket).await?, turn })
}

/// Fails if an upload is not for the caller to go on with. Waits for nobody who is at work on it.
async fn may_go_on(x: &Exchange<'_, '_>, stage: &Arc<dyn Stage>) -> Served {
    // After the only one there are no parts to be told of, and the right is looked at first.
    match x.within(stage.parts(&x.call, PART + 1)).await {
        Ok(_) => Ok(()),
        Err(error) => Err(x.problem(&error, Act::Read).await.into()),
    }
}

/// Waits for the turn to work on an upload.
pub async fn turn(x: &Exchange<'_, '_>, id: StageId) -> Served<Turn> {
    match x.within(x.talk.http.uploads.turn(id)).await {
        Ok(turn) => Ok(turn),
        Err(error) => Err(x.problem(&error, Act::Make).await.into()),
    }
}

/// Returns what shows that a stage is for the name that the request's path leads to. It is of the directory, wherever that is
/// moved.
pub async fn stamp(x: &Exchange<'_, '_>, id: StageId) -> Served<[u8; STAMP_BYTES]> {
    let Some((above, name)) = x.path.path.split_last() else { return Err(no_upload().into()) };
    let dir = At::root(above).following();
    match x.within(x.talk.http.services.fs.walk(&x.call, &dir, Want::default())).await {
        Ok(walked) => Ok(x.talk.http.uploads.stamp(id, walked.attr.id, &name)),
        Err(error) => Err(x.problem(&error, Act::Read).await.into()),
    }
}

/// Finds the stage of an address; none if it was published.
pub async fn find(x: &Exchange<'_, '_>, ticket: &Ticket) -> Served<Option<Arc<dyn Stage>>> {
    let is_stamped: bool = stamp(x, ticket.id).await?.ct_eq(&ticket.stamp).into();
    let uploads = &x.talk.http.uploads;
    match x.within(x.talk.http.services.fs.staged(&x.call, ticket.id)).await {
        Ok(stage) if is_stamped || is_meant(x, ticket).await? => Ok(Some(stage)),
        Ok(_) => Err(no_upload().into()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            match is_stamped && uploads.has_published(ticket.id, x.call.caller.name().id()) {
                true => Ok(None),
                false => Err(x.problem(&error, Act::Read).await.into()),
            }
        }
        Err(error) => Err(x.problem(&error, Act::Read).await.into()),
    }
}

/// Returns whether a stage is for the name that the request's path leads to, as the file system knows it: stamps of the
/// process before mean nothing.
async fn is_meant(x: &Exchange<'_, '_>, ticket: &Ticket) -> Served<bool> {
    let Some((above, name)) = x.path.path.split_last() else { return Ok(false) };
    let (dir, before) = (At::root(above).following(), ticket.id.0.checked_sub(1).map(StageId));
    let page = match x.within(x.talk.http.services.fs.stages(&x.call, &dir, before)).await {
        Ok(page) => page,
        Err(error) => return Err(x.problem(&error, Act::Read).await.into()),
    };
    let entry = page.stages.first().filter(|entry| entry.id == ticket.id);
    // What is dropped into a box gets a name of its own there.
    Ok(entry.is_some_and(|entry| {
        entry.name == name || stored_name(&name, ticket.id).is_ok_and(|stored| entry.name == stored)
    }))
}

fn no_upload() -> Problem {
    Problem::of(&Error::not_found("there is no such upload of yours"), Act::Read)
}
