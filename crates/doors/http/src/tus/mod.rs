//! Uploads that go on where a line broke: tus 1.0.0, with its extensions `creation` and `termination`.
//!
//! **Problem.** A PUT whose line breaks is nothing, and whoever sends 50 GB over a weak line never comes to its end.
//! What came must be kept, and whoever sent it must learn how much that is, also after the node was started anew.
//!
//! **Shape.** An upload is a stage that lasts. What else is known of it (how long it is to be, what it is said to be) stands
//! in its address, which the node tells and the client brings along: nothing is kept beside the stage.
//!
//! ```text
//!  POST /dir/              ─▶ begin ─▶ fs.stage ─▶ 201, Location: /dir/NAME?upload=ID.LENGTH.STAMP&metadata=…
//!  HEAD that address       ─▶ found ─▶ how much there is
//!  PATCH that address      ─▶ found ─▶ add: stage.put, slice by slice ─▶ when it is whole, publish
//!  DELETE that address     ─▶ found ─▶ stage.discard
//! ```
//!
//! Whoever asks is asked who they are each time, and a stage is its caller's: an address by itself gives nothing. The
//! path of the address is what locks and conditions are judged by, so it must be the one that the stage is for:
//! its stamp shows that, or the file system is asked (`found`).
//!
//! Rejected: a table of uploads (it would have to survive what the stage survives); one part for each PATCH (they would all
//! have to be copied into one in the end).
//!
//! **Ways to get it wrong.** Waiting for a sender whose line is dead while it comes back on another: each request to an
//! upload stops the one before (`turns`). Telling that all bytes are there when they are no file, because the node ended
//! between the last byte and the publishing: a program would take that for success, so a look publishes what is whole.
//! Forgetting an upload as it becomes a file: a client whose last answer was lost would send all of it again. Taking a
//! DELETE that forgot to say `Tus-Resumable` for one of the file: an address of an upload is never one of a file.

mod add;
mod begin;
mod found;
mod publish;
mod slice;
mod turns;

use weft_core::form::Guard;
use weft_core::{ErrorKind, limits};

use crate::answer::{Answer, Problem};
use crate::codec::Refusal;
use crate::codec::head::{Field, Head, Method};
use crate::codec::upload::{Ticket, is_ticket};
use crate::exchange::{Exchange, Failed, Served};
use crate::map::Act;
use crate::page::guard;
use crate::put;
use crate::status::Status;
use crate::webdav::hold;

pub use turns::Uploads;

/// The version that is spoken.
const VERSION: &str = "1.0.0";
/// What each answer says.
const SPOKEN: &str = "Tus-Resumable: 1.0.0\r\n";

/// What is asked of uploads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// To begin one.
    Begin,
    /// How far one is.
    Look,
    /// To take more of one.
    Add,
    /// To end one.
    End,
}

/// Says, to whoever asks what can be asked, what is spoken here.
pub fn offer(answer: &mut Answer) {
    answer.fixed(SPOKEN).field("Tus-Version", VERSION).fixed("Tus-Extension: creation,termination\r\n");
    answer.field("Tus-Max-Size", limits::FILE_BYTES_MAX);
}

/// Returns what a request asks of uploads; none if it is about something else.
pub fn asked(head: &Head) -> Result<Option<Asked>, Refusal> {
    let is_ticket = is_ticket(head.query());
    Ok(match method(head)? {
        Method::Post if head.has(Field::TusResumable) && !is_ticket => Some(Asked::Begin),
        Method::Patch if is_ticket => Some(Asked::Add),
        Method::Head if is_ticket => Some(Asked::Look),
        Method::Delete if is_ticket => Some(Asked::End),
        _ => None,
    })
}

/// Returns the method that is meant: where something on the way lets no other through, POST stands for it.
fn method(head: &Head) -> Result<Method, Refusal> {
    if head.method != Method::Post || !head.has(Field::TusResumable) {
        return Ok(head.method);
    }
    match head.one(Field::MethodOverride)? {
        None | Some("POST") => Ok(Method::Post),
        Some("PATCH") => Ok(Method::Patch),
        Some("DELETE") => Ok(Method::Delete),
        Some(_) => {
            Err(Refusal::malformed("POST stands for PATCH or DELETE of an upload, and for nothing else"))
        }
    }
}

/// Answers what was asked of uploads.
pub async fn serve(x: Exchange<'_, '_>, asked: Asked) -> Served {
    let done = match admitted(&x) {
        Ok(()) => match asked {
            Asked::Begin => begin::serve(x).await,
            Asked::Look => look(x).await,
            Asked::Add => add::serve(x).await,
            Asked::End => end(x).await,
        },
        Err(failed) => Err(failed),
    };
    done.map_err(|failed| match failed {
        Failed::Problem(problem) => problem.with("Tus-Resumable", VERSION).into(),
        broken => broken,
    })
}

/// Fails unless the version is the one spoken here, and what a cookie alone proves was sent by a page of ours: a look
/// publishes what is whole.
fn admitted(x: &Exchange<'_, '_>) -> Served {
    if x.head.one(Field::TusResumable)? != Some(VERSION) {
        let why = "this is for `Tus-Resumable: 1.0.0`, which the request does not say";
        let problem = Problem::new(Status::PRECONDITION_FAILED, ErrorKind::Unsupported, why);
        return Err(problem.with("Tus-Version", VERSION).into());
    }
    guard::check(x.head, x.shown)
}

/// Tells how far an upload is.
async fn look(mut x: Exchange<'_, '_>) -> Served {
    let ticket = Ticket::of(x.head.query())?;
    let found = found::alone(&x, &ticket).await?;
    let offset = found.offset(&x, &ticket).await?;
    if offset == ticket.length {
        let shown = hold::shown(&x).await?;
        publish::unless_done(&mut x, &ticket, found, (&shown, Guard::NONE)).await?;
    }
    let fields = |answer: &mut Answer| {
        answer.fixed(SPOKEN).fixed("Cache-Control: no-store\r\n");
        answer.field("Upload-Offset", offset).field("Upload-Length", ticket.length);
        answer.field("Upload-Metadata", &ticket.said);
    };
    x.talk.reply(Status::OK, fields, None).await
}

/// Ends an upload: what came of it goes.
async fn end(x: Exchange<'_, '_>) -> Served {
    let ticket = Ticket::of(x.head.query())?;
    let Some(stage) = found::find(&x, &ticket).await? else {
        let why = "the upload is whole, and a file: remove that";
        return Err(Problem::new(Status::GONE, ErrorKind::NotFound, why).into());
    };
    let call = x.call.renewed(x.talk.http.services.sys.clock(), limits::CALL_DEADLINE).durable();
    match x.within(stage.discard(&call)).await {
        Ok(()) => {
            // Whoever is at work on it has nothing left to go on with. Only now: it was not theirs to end before.
            drop(found::turn(&x, ticket.id).await);
            x.talk.reply(Status::NO_CONTENT, |answer| _ = answer.fixed(SPOKEN), None).await
        }
        Err(error) => Err(x.problem(&error, Act::Remove).await.into()),
    }
}

/// Fails if digests came, which nothing here would compare.
fn no_digests(head: &Head) -> Served {
    if put::expected_digests(head)?.is_empty() && !head.has(Field::UploadChecksum) {
        return Ok(());
    }
    let why = "an upload in parts is not compared with a digest: ask for that of the file (Want-Repr-Digest)";
    Err(Refusal::malformed(why).into())
}
