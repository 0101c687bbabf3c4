//! Lock and Unlock.

use weft_core::attr::SetAttr;
use weft_core::form::{At, New};
use weft_core::name_locks::{NameLock, NameLockWanted, Reach, Touch};
use weft_core::{Error, ErrorKind, limits};

use super::hold::{self, Shown};
use super::multistatus::MEDIA;
use super::properties::active_lock;
use crate::answer::{Answer, Precondition, Problem};
use crate::codec::Refusal;
use crate::codec::webdav::fields::{self, Depth};
use crate::codec::webdav::request;
use crate::exchange::{Exchange, Served};
use crate::map::Act;
use crate::small_body;
use crate::status::Status;

/// Takes a lock, or goes on with one.
pub async fn lock(mut x: Exchange<'_, '_>) -> Served {
    let depth = fields::depth(x.head)?.unwrap_or(Depth::Infinity);
    if depth == Depth::One {
        return Err(Refusal::malformed("a lock is of `Depth: 0` or `infinity`").into());
    }
    let lasts = fields::timeout(x.head)?;
    let body = small_body::received(&mut x, limits::DAV_XML_BYTES_MAX).await?;
    x.renew();
    let shown = hold::shown(&x).await?;
    let locks = &x.talk.http.services.locks;
    if body.is_empty() {
        let refreshed = x.within(locks.refresh(&x.call, &x.path.path, &shown.tokens, lasts)).await;
        return match refreshed {
            Ok(lock) => granted(x, Status::OK, &lock).await,
            Err(error) => Err(refused(&x, &error).await.into()),
        };
    }
    let info = request::lock_info(&body)?;
    let wanted = NameLockWanted {
        path: x.path.path.clone(),
        deep: depth == Depth::Infinity,
        kind: info.kind,
        owner: info.owner.into(),
        lasts,
    };
    let lock = match locks.lock(&x.call, wanted).await {
        Ok(lock) => lock,
        Err(error) if error.kind() == ErrorKind::Locked => {
            return Err(hold::locked(&x, &error, Precondition::NoConflictingLock).into());
        }
        Err(error) => return Err(x.problem(&error, Act::Make).await.into()),
    };
    x.renew();
    match made(&x, &shown, &lock).await {
        Ok(made) => granted(x, if made { Status::CREATED } else { Status::OK }, &lock).await,
        Err(failed) => {
            x.renew();
            // Nobody was told of it; if this fails too, it ends with its time.
            let _ = x.within(x.talk.http.services.locks.unlock(&x.call, &x.path.path, lock.token)).await;
            Err(failed)
        }
    }
}

/// Makes an empty file where there was nothing (RFC 4918, 7.3). Returns whether it did.
async fn made(x: &Exchange<'_, '_>, shown: &Shown, lock: &NameLock) -> Served<bool> {
    let fs = &x.talk.http.services.fs;
    match x.found(&x.at()).await {
        Ok(Some(_)) => return Ok(false),
        Ok(None) => {}
        Err(error) => return Err(x.problem(&error, Act::Make).await.into()),
    }
    if x.path.is_directory {
        let why = "there is no such directory, and locking makes none";
        return Err(Problem::new(Status::CONFLICT, ErrorKind::NotFound, why).into());
    }
    let tokens = shown.tokens.iter().copied().chain([lock.token]).collect();
    let own = Shown { tokens, version: None };
    let touches = vec![Touch { path: x.path.path.clone(), reach: Reach::Name }];
    let _permit = hold::permit(x, &own, touches)?;
    let (call, at) = (x.call.clone().durable(), At::root(x.path.path.clone()));
    match x.within(fs.make(&call, &at, New::File { verifier: None }, &SetAttr::default())).await {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::Exists => Ok(false),
        Err(error) => Err(x.problem(&error, Act::Make).await.into()),
    }
}

async fn granted(x: Exchange<'_, '_>, status: Status, lock: &NameLock) -> Served {
    let mut text = String::from(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:prop xmlns:D=\"DAV:\"><D:lockdiscovery>",
    );
    active_lock(lock, &lock.holder, &mut text);
    text.push_str("</D:lockdiscovery></D:prop>\n");
    let fields = |answer: &mut Answer| {
        answer.field("Lock-Token", format_args!("<{}>", lock.token)).fixed("Cache-Control: no-store\r\n");
    };
    x.talk.reply(status, fields, Some((MEDIA, text.into_bytes()))).await
}

/// Ends a lock.
pub async fn unlock(x: Exchange<'_, '_>) -> Served {
    let token = fields::lock_token(x.head)?;
    let locks = &x.talk.http.services.locks;
    match x.within(locks.unlock(&x.call, &x.path.path, token)).await {
        Ok(()) => x.talk.reply(Status::NO_CONTENT, |_| {}, None).await,
        Err(error) => Err(refused(&x, &error).await.into()),
    }
}

/// Returns the problem of a lock that is not there, or not the caller's.
async fn refused(x: &Exchange<'_, '_>, error: &Error) -> Problem {
    match error.kind() {
        ErrorKind::Conflict | ErrorKind::Precondition if !x.call.caller.is_anyone() => {
            Problem::of(error, Act::Read).because(Precondition::LockTokenMatchesRequestUri, None)
        }
        _ => x.problem(error, Act::Read).await,
    }
}
