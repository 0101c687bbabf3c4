//! Leave for a change: what `If` says is judged, and a permit of the locks is held.

use weft_core::attr::Attr;
use weft_core::form::{At, VersionIs};
use weft_core::name_locks::{LockToken, Permit, Reach, Touch};
use weft_core::{Error, ErrorKind, RelPath};

use crate::answer::{Precondition, Problem};
use crate::codec::condition::entity_tag;
use crate::codec::head::Field;
use crate::codec::webdav::fields::Pointed;
use crate::codec::webdav::if_header::{Condition, If, List, State};
use crate::exchange::{Exchange, Served};
use crate::map::Act;
use crate::remove;

/// What a request shows.
#[derive(Default)]
pub struct Shown {
    /// Tokens of locks.
    pub tokens: Vec<LockToken>,
    /// What the request's own resource must still be when it changes, if `If` spoke of its version.
    pub version: Option<VersionIs>,
}

/// Judges the `If` of a request. Fails with 412 if none of its lists holds.
pub async fn shown(x: &Exchange<'_, '_>) -> Served<Shown> {
    let Some(text) = x.head.all(Field::If)? else { return Ok(Shown::default()) };
    let asked = If::parse(&text)?;
    for list in &asked.lists {
        if let Some(version) = holds(x, list).await? {
            return Ok(Shown { tokens: asked.tokens(), version });
        }
    }
    Err(remove::failed().into())
}

/// Returns whether a list holds, and then what was seen of the request's own resource, if that counted.
async fn holds(x: &Exchange<'_, '_>, list: &List) -> Served<Option<Option<VersionIs>>> {
    let Some(path) = path_of(x, list.of.as_ref()) else { return Ok(None) };
    let locks = x.talk.http.services.locks.covering(&path);
    let speaks_of_tags = list.conditions.iter().any(|condition| matches!(condition.state, State::Tag(..)));
    let attr = if speaks_of_tags { attr_of(x, &path).await? } else { None };
    let tag = attr.as_ref().map(entity_tag);
    let is_so = |condition: &Condition| match &condition.state {
        State::Locked(token) => token.is_some_and(|token| locks.iter().any(|lock| lock.token == token)),
        State::Tag(weak, text) => !weak && tag.as_ref() == Some(text),
    };
    if !list.conditions.iter().all(|condition| is_so(condition) != condition.not) {
        return Ok(None);
    }
    let own = speaks_of_tags && path == x.path.path;
    Ok(Some(own.then(|| attr.map_or(VersionIs::Absent, |attr| VersionIs::Exactly(attr.id, attr.version)))))
}

/// Returns the path that a list is about; `None` if that is not here.
fn path_of(x: &Exchange<'_, '_>, of: Option<&Pointed>) -> Option<RelPath> {
    match of {
        None => Some(x.path.path.clone()),
        Some(pointed) => is_here(x, pointed).then(|| pointed.path.path.clone()),
    }
}

/// Returns whether an address is of this door: the host that the request itself was for, or another
/// that it answers for.
pub fn is_here(x: &Exchange<'_, '_>, pointed: &Pointed) -> bool {
    let Some(host) = &pointed.host else { return true };
    let own = || x.talk.own_ip();
    host.as_bytes().eq_ignore_ascii_case(x.head.host()) || x.talk.http.hosts.admits(host.as_bytes(), own)
}

async fn attr_of(x: &Exchange<'_, '_>, path: &RelPath) -> Served<Option<Attr>> {
    match x.found(&At::root(path.clone()).following()).await {
        Err(error) if error.kind() == ErrorKind::NotDirectory => Ok(None),
        Err(error) => Err(x.problem(&error, Act::Read).await.into()),
        Ok(attr) => Ok(attr),
    }
}

/// Returns leave for a change. Fails with 423 where a lock stands in the way that was not shown.
pub fn permit(x: &Exchange<'_, '_>, shown: &Shown, touches: Vec<Touch>) -> Served<Permit> {
    let locks = &x.talk.http.services.locks;
    locks
        .permit(&x.call, touches, &shown.tokens)
        .map_err(|error| locked(x, &error, Precondition::LockTokenSubmitted).into())
}

/// Leave to write at the request's name.
pub struct Held {
    /// As long as it is held.
    _permit: Permit,
    /// What must be there when the change is made, as far as locks and `If` say.
    pub version: Option<VersionIs>,
}

/// Returns leave to change what has the request's name, or to make something of that name.
pub async fn permit_write(x: &Exchange<'_, '_>, shown: &Shown) -> Served<Held> {
    let touch = |reach| vec![Touch { path: x.path.path.clone(), reach }];
    match permit(x, shown, touch(Reach::Name)) {
        Ok(permit) => Ok(Held { _permit: permit, version: shown.version }),
        // A lock of the directory alone is in the way of new names, not of what is there.
        Err(refused) => match permit(x, shown, touch(Reach::Content)) {
            Ok(permit) if attr_of(x, &x.path.path).await?.is_some() => {
                Ok(Held { _permit: permit, version: shown.version.or(Some(VersionIs::Present)) })
            }
            _ => Err(refused),
        },
    }
}

/// Returns the problem of a lock that is in the way. Where it lies is told if the request named that
/// place or one below it, which its caller then knows of; what lies below may be hidden from them.
pub fn locked(x: &Exchange<'_, '_>, error: &Error, what: Precondition) -> Problem {
    if x.call.caller.is_anyone() {
        return Problem::who_asks();
    }
    let place = error.subject().and_then(|path| RelPath::try_from(path.trim_start_matches('/')).ok());
    let own = &x.path.path;
    let told = place.filter(|place| own.is_within(place)).unwrap_or_else(|| own.clone());
    let error = Error::new(error.kind(), error.detail().to_owned()).about(format_args!("/{told}"));
    Problem::of(&error, Act::Make).because(what, Some(told))
}
