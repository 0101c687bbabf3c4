//! A file of another server, copied here: staged out of sight, checked, then published in one step.

use std::pin::pin;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use weft_core::attr::SetAttr;
use weft_core::form::{Call, Guard, Stage, StageHint, Stopped, VersionIs};
use weft_core::{Error, ErrorKind, Result, limits};
use weft_mover::{Class, Incoming};
use weft_remote::{Download, From, Remote};

use super::asked::Asked;
use super::markers::{Markers, Moved};
use super::{Failure, differs, digests};
use crate::Http;
use crate::answer::Problem;
use crate::codec::condition::Conditions;
use crate::codec::digest::Sum;
use crate::exchange::{Exchange, Served, keeping_session};
use crate::map::Act;
use crate::put;
use crate::remove;
use crate::sums::Summed;
use crate::webdav::hold;

/// Copies a file of another server to the request's name.
pub async fn serve(mut x: Exchange<'_, '_>, asked: &Asked, remote: &Remote) -> Served {
    let http = x.talk.http;
    let conditions = Conditions::of(x.head)?;
    let shown = hold::shown(&x).await?;
    let at = x.at();
    let guard = remove::guard(&x, &at, &conditions, Act::Make).await?;
    // Who may not write here has nothing fetched.
    let hint = StageHint { length: None, brief: true };
    let stage = match x.within(http.services.fs.stage(&x.call, &at, &hint)).await {
        Ok(stage) => stage,
        Err(error) => return Err(x.problem(&error, Act::Make).await.into()),
    };
    let discard = async |call: &Call| put::discard(&http.services.sys, call, &stage).await;
    if let Err(failed) = may_write(&x, &shown, asked).await {
        discard(&x.call).await;
        return Err(failed);
    }
    let moved = Moved::default();
    let mut markers = Markers::new(x.talk, moved.clone());
    let (call, path) = (x.call.clone(), x.path.path.clone());
    let pulled = keeping_session_of(http, &call, pull(http, &call, remote, asked, &stage, moved));
    let pulled = match markers.during(x.talk, pulled).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(failure)) => Err(failure.problem()),
        Err(failed) => {
            discard(&call).await;
            return Err(failed);
        }
    };
    if let Err(problem) = pulled {
        discard(&call).await;
        return markers.end(x.talk, Err(problem)).await;
    }
    x.renew();
    let held = match hold::permit_write(&x, &shown).await {
        Ok(held) => held,
        Err(_) => {
            discard(&call).await;
            let error = Error::new(ErrorKind::Locked, "a lock is in the way").about(format_args!("/{path}"));
            return markers.end(x.talk, Err(Problem::of(&error, Act::Make))).await;
        }
    };
    let absent = (!asked.overwrites).then_some(VersionIs::Absent);
    let guard = Guard { version: absent.or(guard.version).or(held.version), ctime: None };
    let published = put::publish_large(http, &call, stage, SetAttr::default(), guard, held);
    let published = markers.during(x.talk, published).await?;
    let published = published.map(drop).map_err(|error| Problem::of(&error, Act::Make));
    markers.end(x.talk, published).await
}

/// Fails before anything is fetched for what could not be kept anyway.
async fn may_write(x: &Exchange<'_, '_>, shown: &hold::Shown, asked: &Asked) -> Served {
    if !asked.overwrites {
        match x.found(&x.at()).await {
            Ok(None) => {}
            Ok(Some(_)) => return Err(remove::failed().into()),
            Err(error) => return Err(x.problem(&error, Act::Make).await.into()),
        }
    }
    hold::permit_write(x, shown).await.map(drop)
}

async fn keeping_session_of<T>(http: &Http, call: &Call, work: impl Future<Output = T>) -> T {
    keeping_session(http, call, pin!(work)).await
}

/// Brings the bytes to the stage, and looks whether they are those that the other server has.
async fn pull(
    http: &Http,
    call: &Call,
    remote: &Remote,
    asked: &Asked,
    stage: &Arc<dyn Stage>,
    moved: Moved,
) -> std::result::Result<(), Failure> {
    let here = |error| Failure::Here(error, Act::Make);
    let opened = tokio::select! {
        biased;
        opened = remote.download(&asked.url, &asked.passed, From::default(), true) => opened,
        () = call.caller.withdrawn() => return Err(here(revoked())),
    };
    let download = opened.map_err(Failure::There)?;
    let expected = digests(download.said()).map_err(Failure::There)?;
    if asked.must_check && expected.is_empty() {
        let why = "it gives no digest that is known here, and the copy must be checked";
        return Err(Failure::There(Error::new(ErrorKind::Unsupported, why)));
    }
    let sys = &http.services.sys;
    let call = call.renewed(sys.clock(), limits::CALL_DEADLINE);
    let mut coming = Coming { download, moved, failed: None };
    let sums = expected.iter().map(|value| Sum::new(value.algorithm)).collect();
    let inbound =
        http.services.mover.inbound(Class::of(&call), &mut coming, withdrawn(&call)).map_err(here)?;
    let mut summed = Summed::new(sys, inbound, sums);
    let put = stage.put(&call, 1, 0, &mut summed).await;
    let found = summed.finish();
    let part = match (put, coming.failed) {
        (Err(_), Some(error)) => return Err(Failure::There(error)),
        (put, _) => put.map_err(here)?,
    };
    let Some(found) = found.filter(|_| coming.download.said().length == Some(part.bytes)) else {
        // The stage took less than there is, which it must not: never publish that.
        return Err(here(Error::internal("the copy was not taken whole")));
    };
    match expected.iter().zip(&found).find(|(expected, found)| expected != found) {
        Some((expected, found)) => Err(Failure::There(differs(found, expected))),
        None => Ok(()),
    }
}

fn withdrawn(call: &Call) -> Stopped {
    let withdrawn = call.caller.withdrawn();
    Box::pin(async move {
        withdrawn.await;
        revoked()
    })
}

fn revoked() -> Error {
    Error::new(ErrorKind::Revoked, "the credential was revoked")
}

/// A download, as the mover takes it.
struct Coming {
    download: Download,
    moved: Moved,
    /// What went wrong at the other server.
    failed: Option<Error>,
}

#[async_trait]
impl Incoming for Coming {
    async fn receive(&mut self, max: usize) -> Result<Option<Bytes>> {
        match self.download.next_bytes(max).await {
            Ok(bytes) => {
                self.moved.add(bytes.as_ref().map_or(0, Bytes::len));
                Ok(bytes)
            }
            Err(error) => {
                let told = Error::new(error.kind(), error.detail().to_owned());
                self.failed = Some(error);
                Err(told)
            }
        }
    }

    fn left(&self) -> Option<u64> {
        self.download.left()
    }
}
