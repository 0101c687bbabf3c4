//! DELETE.

use weft_core::form::{At, Expect, Guard, Want};
use weft_core::{ErrorKind, Result};

use crate::answer::Problem;
use crate::codec::condition::{Conditions, Present, Verdict};
use crate::exchange::{Exchange, Served};
use crate::map::Act;
use crate::status::Status;

/// Removes a name. With a `/` at its end it must be an empty directory.
pub async fn serve(x: Exchange<'_, '_>) -> Served {
    let conditions = Conditions::of(x.head)?;
    // The name itself goes, also if it is a link.
    let at = At::root(x.path.path.clone());
    let guard = guard(&x, &at, &conditions, Act::Remove).await?;
    let kind = if x.path.is_directory { Expect::Directory } else { Expect::Any };
    let call = x.call.clone().durable();
    match x.within(x.talk.http.services.fs.remove(&call, &at, kind, &guard)).await {
        Ok(_) => x.talk.reply(Status::NO_CONTENT, |_| {}, None).await,
        Err(error) => Err(x.problem(&error, Act::Remove).await.into()),
    }
}

/// Returns the guard that the conditions come to. Where they do not hold, whoever has not said who
/// they are is asked to: what is there may be hidden from them.
pub async fn guard(x: &Exchange<'_, '_>, at: &At, conditions: &Conditions, act: Act) -> Served<Guard> {
    match judge(x, at, conditions).await {
        Ok(Some(guard)) => Ok(guard),
        Ok(None) if x.call.caller.is_anyone() => Err(Problem::who_asks().into()),
        Ok(None) => Err(failed().into()),
        Err(error) => Err(x.problem(&error, act).await.into()),
    }
}

/// Returns the guard that the conditions come to; `None` if they do not hold.
async fn judge(x: &Exchange<'_, '_>, at: &At, conditions: &Conditions) -> Result<Option<Guard>> {
    if conditions.is_empty() {
        return Ok(Some(Guard::NONE));
    }
    let walked = x.within(x.talk.http.services.fs.walk(&x.call, at, Want::default())).await;
    let attr = match walked {
        Ok(walked) => Some(walked.attr),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    match conditions.judge(attr.as_ref().map(Present::of).as_ref()) {
        // If-Modified-Since says nothing about changes, and nothing else makes a date known.
        Verdict::Known if conditions.none_matches.is_none() => {}
        Verdict::Holds => {}
        Verdict::Known | Verdict::Fails => return Ok(None),
    }
    Ok(Some(Guard { version: conditions.pinned(attr.as_ref()), ctime: None }))
}

/// Returns the problem of conditions that do not hold.
pub fn failed() -> Problem {
    Problem::new(
        Status::PRECONDITION_FAILED,
        ErrorKind::Precondition,
        "a condition of the request does not hold",
    )
}
