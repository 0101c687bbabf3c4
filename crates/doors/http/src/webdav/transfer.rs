//! Copy and Move.

use std::pin::pin;

use weft_core::attr::{Attr, Kind, SetAttr, SetTime};
use weft_core::form::{At, Guard, Replace, VersionIs};
use weft_core::name_locks::{Reach, Touch};
use weft_core::{Error, ErrorKind, FileId, RelPath, Result, Time, limits};

use super::hold;
use super::multistatus::{self, begin_response, end_response, write_status};
use super::tree::{AsIs, Mtime, Taking, Trees, guard_of, is_shared};
use crate::answer::Problem;
use crate::codec::Refusal;
use crate::codec::condition::Conditions;
use crate::codec::head::Method;
use crate::codec::webdav::fields::{self, Depth};
use crate::exchange::{Exchange, Served, keeping_session};
use crate::map::{self, Act};
use crate::put;
use crate::remove;
use crate::status::Status;

/// What is to be done.
struct Asked {
    from: RelPath,
    to: RelPath,
    overwrites: bool,
    /// Whether what lies below goes too.
    deep: bool,
    moves: bool,
    /// The time that its bytes are said to be of.
    mtime: Option<Time>,
}

/// How it ended.
enum Outcome {
    /// Something came to be.
    Made,
    /// It took the place of something.
    Replaced,
    /// Some of it did not go.
    Partly(Vec<(RelPath, bool, Error)>),
}

/// Copies or moves what has the request's name.
pub async fn serve(x: Exchange<'_, '_>) -> Served {
    let asked = Asked::of(&x)?;
    let shown = hold::shown(&x).await?;
    let source = if asked.moves { At::root(asked.from.clone()) } else { x.at() };
    let conditions = Conditions::of(x.head)?;
    remove::guard(&x, &source, &conditions, Act::Read).await?;
    let touch = |path: &RelPath| Touch { path: path.clone(), reach: Reach::Tree };
    let mut touches = vec![touch(&asked.to)];
    touches.extend(asked.moves.then(|| touch(&asked.from)));
    let permit = hold::permit(&x, &shown, touches)?;
    let http = x.talk.http;
    let done = keeping_session(http, &x.call, pin!(done(&x, &asked, &source))).await;
    drop(permit);
    if asked.moves && matches!(done, Ok(Outcome::Made | Outcome::Replaced)) {
        http.services.locks.gone(&asked.from).await;
    }
    let mut x = x;
    x.renew();
    match done {
        Ok(Outcome::Made) => x.talk.reply(Status::CREATED, |_| {}, None).await,
        Ok(Outcome::Replaced) => x.talk.reply(Status::NO_CONTENT, |_| {}, None).await,
        Ok(Outcome::Partly(failures)) => told(&mut x, &failures).await,
        Err(Stopped::At(error, act)) => Err(x.problem(&error, act).await.into()),
        Err(Stopped::Taken) => Err(remove::failed().into()),
    }
}

/// Why nothing was done.
enum Stopped {
    At(Error, Act),
    /// There is something at the destination, and it must stay.
    Taken,
}

impl Asked {
    fn of(x: &Exchange<'_, '_>) -> Served<Self> {
        let to = fields::destination(x.head)?;
        if !hold::is_here(x, &to) {
            let why = "the destination is of another server";
            return Err(Problem::new(Status::BAD_GATEWAY, ErrorKind::Unsupported, why).into());
        }
        let moves = x.head.method == Method::Move;
        let deep = match fields::depth(x.head)? {
            None | Some(Depth::Infinity) => true,
            Some(Depth::Zero) if !moves => false,
            Some(_) => return Err(Refusal::malformed("that Depth is none of this method").into()),
        };
        let (from, to) = (x.path.path.clone(), to.path.path);
        if from == to || to.is_within(&from) && deep || from.is_within(&to) {
            let why = "one of source and destination lies within the other";
            return Err(Problem::new(Status::FORBIDDEN, ErrorKind::Invalid, why).into());
        }
        let (overwrites, mtime) = (fields::overwrites(x.head)?, fields::said_mtime(x.head)?);
        Ok(Self { from, to, overwrites, deep, moves, mtime })
    }
}

async fn done(x: &Exchange<'_, '_>, asked: &Asked, source: &At) -> std::result::Result<Outcome, Stopped> {
    let reading = |error| Stopped::At(error, Act::Read);
    let making = |error| Stopped::At(error, Act::Make);
    let from = x.found(source).await.map_err(reading)?.ok_or_else(|| reading(gone()))?;
    // What has the name itself is replaced, also if it is a link.
    let to = x.found(&At::root(asked.to.clone())).await.map_err(making)?;
    if to.is_some() && !asked.overwrites {
        return Err(Stopped::Taken);
    }
    apart(x, asked, &from, to.as_ref()).await.map_err(making)?;
    let services = &x.talk.http.services;
    let mut trees = Trees::new(&services.sys, &services.fs, &x.call);
    // Nothing is taken away for what could not come.
    let taking = taking(x, asked, &from).await.map_err(reading)?;
    trees.could_take(source, &from, taking).await.map_err(reading)?;
    // A file takes the place of a file in one step; anything else goes first.
    let goes_first = to.filter(|to| !(to.kind == Kind::File && from.kind == Kind::File));
    if let Some(to) = &goes_first {
        remove::one_or_tree(x, &mut trees, &asked.to, to, &Guard::NONE).await.map_err(making)?;
        if !trees.failures.is_empty() {
            return Ok(Outcome::Partly(trees.failures));
        }
    }
    let fresh = to.is_none() || goes_first.is_some();
    let made = if to.is_some() { Outcome::Replaced } else { Outcome::Made };
    if asked.moves {
        match renamed(x, asked).await {
            Ok(()) => return Ok(made),
            Err(error) if error.kind() == ErrorKind::CrossVolume => {}
            Err(error) => return Err(told_of(error, asked)),
        }
    }
    // What is replaced keeps its owner, who alone may set these.
    let said = put::time_to_set(x, &At::root(asked.to.clone()), asked.mtime).await;
    let mtime = match said {
        Some(time) => Mtime::Said(time),
        None if asked.moves && fresh => Mtime::Kept,
        None => Mtime::Now,
    };
    let as_is = AsIs { mode: fresh, mtime };
    trees.moves = asked.moves;
    let copied = copied(&mut trees, asked, source, &from, as_is).await;
    let copied = copied.map_err(|error| told_of(error, asked))?;
    if asked.moves && from.kind == Kind::Symlink {
        let gone = trees.remove_link(source, from.id).await;
        gone.map_err(|error| Stopped::At(error, Act::Remove))?;
    }
    if let Some(version) = copied.filter(|_| asked.moves) {
        // What was written to it since it was copied stays.
        let guard = Guard { version: Some(version), ctime: None };
        let gone = remove::one_or_tree(x, &mut trees, &asked.from, &from, &guard).await;
        gone.map_err(|error| Stopped::At(error, Act::Remove))?;
    }
    Ok(if trees.failures.is_empty() { made } else { Outcome::Partly(trees.failures) })
}

/// Returns what is to become of the source: nothing is renamed into another volume.
async fn taking(x: &Exchange<'_, '_>, asked: &Asked, from: &Attr) -> Result<Taking> {
    if !asked.moves {
        return Ok(Taking::Copied);
    }
    if is_root(from) {
        return Err(is_shared());
    }
    let Some((directory, _)) = asked.to.split_last() else { return Ok(Taking::Renamed) };
    // Where there is no such directory, whoever makes the name says so.
    let crosses = x.found(&At::root(directory).following()).await?;
    let crosses = crosses.is_some_and(|directory| directory.id.volume() != from.id.volume());
    Ok(if crosses { Taking::Moved } else { Taking::Renamed })
}

fn is_root(attr: &Attr) -> bool {
    attr.id == FileId::root_of(attr.id.volume())
}

fn told_of(error: Error, asked: &Asked) -> Stopped {
    match error.kind() {
        ErrorKind::Precondition | ErrorKind::Exists if !asked.overwrites => Stopped::Taken,
        _ => Stopped::At(error, Act::Make),
    }
}

fn gone() -> Error {
    Error::new(ErrorKind::NotFound, "there is nothing of that name")
}

async fn renamed(x: &Exchange<'_, '_>, asked: &Asked) -> Result<()> {
    let services = &x.talk.http.services;
    let call = x.call.renewed(services.sys.clock(), limits::CALL_DEADLINE).durable();
    let (from, to) = (At::root(asked.from.clone()), At::root(asked.to.clone()));
    let how = if asked.overwrites { Replace::Any } else { Replace::Never };
    let guard = guard_of(asked.overwrites);
    let renamed = services.fs.rename(&call, &from, &to, how, &guard);
    services.sys.within(call.until, renamed).await?;
    if let Some(time) = asked.mtime {
        let set = SetAttr { mtime: Some(SetTime::At(time)), ..SetAttr::default() };
        services.sys.within(call.until, services.fs.set(&call, &to, &set, &Guard::NONE)).await?;
    }
    Ok(())
}

/// Checks that neither lies within the other, nor is the other, by whatever names they were reached: a
/// link may lead there, and a directory of the machine may be shared twice.
async fn apart(x: &Exchange<'_, '_>, asked: &Asked, from: &Attr, to: Option<&Attr>) -> Result<()> {
    // Of two shares of one directory the volumes alone differ. All roots have one number: there it takes more.
    let is_same = |one: &Attr, other: &Attr| {
        let numbers = |attr: &Attr| (attr.id.serial(), attr.id.generation());
        let times = |attr: &Attr| (attr.ctime, attr.mtime);
        numbers(one) == numbers(other) && (one.id == other.id || !is_root(one) || times(one) == times(other))
    };
    let refused = || Error::not_permitted("one of source and destination is, or lies within, the other");
    if to.is_some_and(|to| is_same(to, from)) {
        return Err(refused());
    }
    for (path, one) in [(&asked.to, Some(from)), (&asked.from, to)] {
        let Some(one) = one.filter(|one| one.kind == Kind::Directory) else { continue };
        let mut above = path.split_last();
        while let Some((directory, _)) = above {
            let at = At::root(directory.clone()).following();
            if x.found(&at).await?.is_some_and(|attr| is_same(&attr, one)) {
                return Err(refused());
            }
            above = directory.split_last();
        }
    }
    Ok(())
}

/// Copies it; a directory that moves is gone thereafter. Returns what of a file was copied.
async fn copied(
    trees: &mut Trees<'_>,
    asked: &Asked,
    source: &At,
    from: &Attr,
    as_is: AsIs,
) -> Result<Option<VersionIs>> {
    if from.kind == Kind::Directory {
        trees.copy(&asked.from, from, &asked.to, asked.deep).await;
        return Ok(None);
    }
    if from.kind == Kind::Symlink && asked.moves {
        return trees.copy_link(source, &At::root(asked.to.clone())).await.map(|()| None);
    }
    let guard = guard_of(asked.overwrites);
    trees.copy_file(source, &At::root(asked.to.clone()), &guard, as_is).await.map(Some)
}

/// Tells what did not go.
pub async fn told(x: &mut Exchange<'_, '_>, failures: &[(RelPath, bool, Error)]) -> Served {
    let mut text = String::from(multistatus::BEGIN);
    for (path, is_directory, error) in failures {
        begin_response(path, *is_directory, &mut text);
        write_status(map::status(error.kind(), Act::Remove), &mut text);
        end_response(&mut text);
    }
    multistatus::reply(x.talk, text).await
}
