//! DELETE.

use std::pin::pin;

use weft_core::attr::{Attr, Kind};
use weft_core::form::{At, Expect, Guard, Want};
use weft_core::name_locks::{Reach, Touch};
use weft_core::{Error, ErrorKind, RelPath, Result, limits};

use crate::answer::Problem;
use crate::codec::Refusal;
use crate::codec::condition::{Conditions, Present, Verdict};
use crate::codec::webdav::fields::{self, Depth};
use crate::exchange::{Exchange, Served, keeping_session};
use crate::map::Act;
use crate::status::Status;
use crate::webdav::tree::Trees;
use crate::webdav::{hold, transfer};

/// Removes a name; a directory with all that is in it, as RFC 4918 says (9.6.1).
pub async fn serve(mut x: Exchange<'_, '_>) -> Served {
    if fields::depth(x.head)?.is_some_and(|depth| depth != Depth::Infinity) {
        return Err(Refusal::malformed("a directory is removed with all that is in it").into());
    }
    let conditions = Conditions::of(x.head)?;
    let shown = hold::shown(&x).await?;
    // The name itself goes, also if it is a link.
    let path = x.path.path.clone();
    let at = At::root(path.clone());
    let guard = guard(&x, &at, &conditions, Act::Remove).await?;
    let guard = Guard { version: guard.version.or(shown.version), ctime: None };
    let services = &x.talk.http.services;
    let attr = match x.within(services.fs.walk(&x.call, &at, Want::default())).await {
        Ok(walked) => walked.attr,
        Err(error) => return Err(x.problem(&error, Act::Remove).await.into()),
    };
    if x.path.is_directory && !matches!(attr.kind, Kind::Directory | Kind::Symlink) {
        let error = Error::new(ErrorKind::NotDirectory, "what has the name is no directory").about(&at);
        return Err(x.problem(&error, Act::Remove).await.into());
    }
    let permit = hold::permit(&x, &shown, vec![Touch { path: path.clone(), reach: Reach::Tree }])?;
    let mut trees = Trees::new(&services.sys, &services.fs, &x.call);
    let work = one_or_tree(&x, &mut trees, &path, &attr, &guard);
    let done = keeping_session(x.talk.http, &x.call, pin!(work)).await;
    let failures = std::mem::take(&mut trees.failures);
    drop(permit);
    x.renew();
    match done {
        Ok(()) if failures.is_empty() => {
            x.talk.http.services.locks.gone(&path).await;
            x.talk.reply(Status::NO_CONTENT, |_| {}, None).await
        }
        // Of one name alone the request's own status tells.
        Ok(()) => match &failures[..] {
            [(own, _, error)] if *own == path => Err(x.problem(error, Act::Remove).await.into()),
            _ => transfer::told(&mut x, &failures).await,
        },
        Err(error) => Err(x.problem(&error, Act::Remove).await.into()),
    }
}

/// Removes what was found at a path: a directory with all that is in it.
pub async fn one_or_tree(
    x: &Exchange<'_, '_>,
    trees: &mut Trees<'_>,
    path: &RelPath,
    attr: &Attr,
    guard: &Guard,
) -> Result<()> {
    let services = &x.talk.http.services;
    let call = x.call.renewed(services.sys.clock(), limits::CALL_DEADLINE).durable();
    let at = At::root(path.clone());
    // An empty directory goes in one step, as does what is in another volume: its junction, which refuses.
    let expect = if attr.kind == Kind::Directory { Expect::Directory } else { Expect::NotDirectory };
    match services.sys.within(call.until, services.fs.remove(&call, &at, expect, guard)).await {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotEmpty => {
            trees.remove(path, attr).await;
            Ok(())
        }
        Err(error) => Err(error),
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
    let attr = x.found(at).await?;
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
