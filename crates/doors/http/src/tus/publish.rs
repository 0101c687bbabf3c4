//! An upload that is whole becomes a file.

use weft_core::attr::{Changed, SetAttr};
use weft_core::form::{Call, Entry, Guard, VersionIs};

use super::found::Found;
use crate::codec::upload::Ticket;
use crate::exchange::{Exchange, Served};
use crate::map::Act;
use crate::put;
use crate::webdav::hold::{self, Shown};

/// Publishes an upload that is whole, unless it is a file already. What cannot be published now is kept: a lock
/// may be in the way, or another file that somebody removes.
pub async fn unless_done(
    x: &mut Exchange<'_, '_>,
    ticket: &Ticket,
    found: Found,
    (shown, guard): (&Shown, Guard),
) -> Served<Option<Changed<Entry>>> {
    let Found { stage: Some(stage), turn } = found else { return Ok(None) };
    x.renew();
    let held = hold::permit_write(x, shown).await?;
    let absent = ticket.is_new.then_some(VersionIs::Absent);
    let guard = Guard { version: guard.version.or(absent).or(held.version), ctime: None };
    let mtime = put::time_to_set(x, &x.at(), ticket.metadata.mtime).await;
    let set = SetAttr { mtime, ..SetAttr::default() };
    let (id, whose, uploads) = (ticket.id, x.call.caller.name().id(), x.talk.http.uploads.clone());
    let publish = |call: Call| async move {
        let published = stage.publish(&call, &[], &set, &guard).await;
        if published.is_ok() {
            uploads.published(id, whose);
        }
        drop((held, turn));
        published
    };
    match put::to_its_end(x.talk.http, &x.call, publish).await {
        Ok(changed) => Ok(Some(changed)),
        Err(error) => {
            x.renew();
            Err(x.problem(&error, Act::Make).await.into())
        }
    }
}
