//! PUT and MKCOL: staged out of sight, checked, then published in one step.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use weft_core::attr::{Changed, SetAttr, SetTime};
use weft_core::form::{At, Call, Entry, Guard, New, Stage, StageHint, Want};
use weft_core::name_locks::{Reach, Touch};
use weft_core::{ErrorKind, Result, Rights, Time, limits};
use weft_mover::Class;
use weft_sys::Sys;

use crate::Http;
use crate::answer::{Answer, Problem};
use crate::codec::Refusal;
use crate::codec::condition::{Conditions, entity_tag, format_date};
use crate::codec::digest::{self, Sum, Value};
use crate::codec::head::{Field, Head};
use crate::codec::webdav::fields::said_mtime;
use crate::exchange::{ALLOW_DIRECTORY, ALLOW_TAKEN, Exchange, Served, keeping_session};
use crate::map::Act;
use crate::remove;
use crate::status::Status;
use crate::sums::Summed;
use crate::webdav::hold::{self, Held};

/// Makes or replaces a file.
pub async fn serve(mut x: Exchange<'_, '_>) -> Served {
    if x.path.is_directory {
        let problem = Problem::new(
            Status::METHOD_NOT_ALLOWED,
            ErrorKind::IsDirectory,
            "a name that ends in `/` is a directory: MKCOL makes one",
        );
        return Err(problem.with("Allow", ALLOW_DIRECTORY).into());
    }
    if x.head.has(Field::ContentRange) {
        return Err(Refusal::malformed("PUT takes a whole file, not a range of one").into());
    }
    let expected = expected_digests(x.head)?;
    let conditions = Conditions::of(x.head)?;
    let said = said_mtime(x.head)?;
    let shown = hold::shown(&x).await?;
    let at = x.at();
    let guard = remove::guard(&x, &at, &conditions, Act::Make).await?;
    let hint = StageHint { length: x.talk.progress.left(), brief: true };
    let stage = match x.within(x.talk.http.services.fs.stage(&x.call, &at, &hint)).await {
        Ok(stage) => stage,
        Err(error) => return Err(x.problem(&error, Act::Make).await.into()),
    };
    // Refused before the bytes come, to who may write there; what counts is leave when they are shown.
    if let Err(failed) = hold::permit_write(&x, &shown).await.map(drop) {
        discard(&x.talk.http.services.sys, &x.call, &stage).await;
        return Err(failed);
    }
    let bytes = match receive(&mut x, &stage, expected).await {
        Ok(bytes) => bytes,
        Err(failed) => {
            discard(&x.talk.http.services.sys, &x.call, &stage).await;
            return Err(failed);
        }
    };
    x.renew();
    let held = match hold::permit_write(&x, &shown).await {
        Ok(held) => held,
        Err(failed) => {
            discard(&x.talk.http.services.sys, &x.call, &stage).await;
            return Err(failed);
        }
    };
    let guard = Guard { version: guard.version.or(held.version), ctime: None };
    let set = SetAttr { mtime: time_to_set(&x, &at, said).await, ..SetAttr::default() };
    let accepts_time = set.mtime.is_some();
    let published = match bytes {
        0..=limits::INLINE_BYTES_MAX => {
            let call = x.call.clone().durable();
            let published = publish_or_drop(&x.talk.http.services.sys, &call, &stage, &set, guard);
            let published = x.within(published).await;
            drop(held);
            published
        }
        _ => publish_large(x.talk.http, &x.call, stage, set, guard, held).await,
    };
    match published {
        Ok(changed) => created(x, &changed, accepts_time).await,
        Err(error) => {
            x.renew();
            Err(x.problem(&error, Act::Make).await.into())
        }
    }
}

/// Returns the time of change to publish a file with at a name, of the one that was said. None where a file of
/// somebody else is replaced and stays theirs: its owner alone may set that, and the bytes are worth more than the time
/// they bring along.
pub async fn time_to_set(x: &Exchange<'_, '_>, at: &At, said: Option<Time>) -> Option<SetTime> {
    let time = SetTime::At(said?);
    let fs = &x.talk.http.services.fs;
    let want = Want { rights: true, ..Want::default() };
    // What cannot be looked at is refused, or not, by who publishes.
    let Ok(there) = x.within(fs.walk(&x.call, at, want)).await else { return Some(time) };
    let owns = there.attr.owner == x.call.caller.name().id()
        || there.rights.is_some_and(|rights| rights.contains(Rights::ACL_WRITE));
    (owns || !fs.supports(there.attr.id.volume()).publish_keeps_id).then_some(time)
}

/// Drops what was staged. Nothing of it was visible; if this fails too, the sweep takes it.
pub async fn discard(sys: &Sys, call: &Call, stage: &Arc<dyn Stage>) {
    let call = call.renewed(sys.clock(), limits::CALL_DEADLINE);
    let _ = sys.within(call.until, stage.discard(&call)).await;
}

/// Returns the digests the file must have: one for each algorithm, however often each is said.
pub fn expected_digests(head: &Head) -> std::result::Result<Vec<Value>, Refusal> {
    let mut said = Vec::new();
    // Without a content coding, which this door does not take, both digests are of the same bytes.
    for field in [Field::ReprDigest, Field::ContentDigest] {
        if let Some(text) = head.all(field)? {
            said.extend(digest::values(&text)?);
        }
    }
    if let Some(text) = head.all(Field::Digest)? {
        said.extend(digest::values_old(&text)?);
    }
    if let Some(text) = head.one(Field::ContentMd5)? {
        said.push(digest::value_md5(text)?);
    }
    let mut expected: Vec<Value> = Vec::new();
    for value in said {
        match expected.iter().find(|other| other.algorithm == value.algorithm) {
            None => expected.push(value),
            Some(other) if *other == value => {}
            Some(_) => return Err(Refusal::malformed("two digests of one algorithm differ")),
        }
    }
    match head.one(Field::ContentEncoding)? {
        None | Some("" | "identity") => Ok(expected),
        Some(_) => Err(Refusal::new(
            Status::UNSUPPORTED_TYPE,
            "files are kept as they are sent: no Content-Encoding",
        )),
    }
}

/// Receives the body into the stage. Returns how many bytes there were.
pub async fn receive(x: &mut Exchange<'_, '_>, stage: &Arc<dyn Stage>, expected: Vec<Value>) -> Served<u64> {
    let http = x.talk.http;
    let (class, stopped) = (Class::of(&x.call), x.withdrawn());
    let mut body = x.talk.body();
    let mut found = None;
    let put = match http.services.mover.inbound(class, &mut body, stopped) {
        Ok(inbound) => {
            let sums = expected.iter().map(|value| Sum::new(value.algorithm)).collect();
            let mut summed = Summed::new(&http.services.sys, inbound, sums);
            let put = keeping_session(http, &x.call, pin!(stage.put(&x.call, 1, 0, &mut summed))).await;
            found = summed.finish();
            put
        }
        Err(error) => Err(error),
    };
    drop(body);
    let bytes = match put {
        Ok(part) => part.bytes,
        Err(error) => return Err(x.upload_failed(error).await),
    };
    let Some(found) = found.filter(|_| x.talk.progress.is_done()) else {
        // The stage took less than the body holds, which it must not: never publish that.
        return Err(Problem::new(Status::INTERNAL, ErrorKind::Internal, "the upload was not taken whole")
            .closing()
            .into());
    };
    match expected.iter().zip(found).find(|(expected, found)| *expected != found) {
        None => Ok(bytes),
        Some((expected, found)) => {
            let why = format!(
                "the bytes that came have another digest: {}, not {}",
                found.to_field(),
                expected.to_field()
            );
            Err(Problem::new(Status::BAD_REQUEST, ErrorKind::Invalid, why).into())
        }
    }
}

/// Shows what was staged, or drops it.
pub async fn publish_or_drop(
    sys: &Sys,
    call: &Call,
    stage: &Arc<dyn Stage>,
    set: &SetAttr,
    guard: Guard,
) -> Result<Changed<Entry>> {
    let published = stage.publish(call, &[], set, &guard).await;
    if published.is_err() {
        discard(sys, call, stage).await;
    }
    published
}

/// The same of what must come to disk first.
pub async fn publish_large(
    http: &Http,
    call: &Call,
    stage: Arc<dyn Stage>,
    set: SetAttr,
    guard: Guard,
    held: Held,
) -> Result<Changed<Entry>> {
    let sys = http.services.sys.clone();
    let publish = |call: Call| async move {
        let published = publish_or_drop(&sys, &call, &stage, &set, guard).await;
        drop(held);
        published
    };
    to_its_end(http, call, publish).await
}

/// Publishes. If that takes longer than anybody waits, it goes on, and is seen once it is through.
pub async fn to_its_end<F>(
    http: &Http,
    call: &Call,
    publish: impl FnOnce(Call) -> F,
) -> Result<Changed<Entry>>
where
    F: Future<Output = Result<Changed<Entry>>> + Send + 'static,
{
    let sys = &http.services.sys;
    let call = call.renewed(sys.clock(), limits::PUBLISH_WITHIN).durable();
    let task = sys.spawn(publish(call.clone()));
    let published = sys.within(call.until, async { task.await? });
    keeping_session(http, &call, pin!(published)).await
}

async fn created(x: Exchange<'_, '_>, changed: &Changed<Entry>, accepts_time: bool) -> Served {
    let status = if changed.file.before.is_some() { Status::NO_CONTENT } else { Status::CREATED };
    let fields = |answer: &mut Answer| {
        tell_of(changed, answer);
        if accepts_time {
            answer.fixed("X-OC-MTime: accepted\r\n");
        }
    };
    x.talk.reply(status, fields, None).await
}

/// Says what a file is that was published; nothing of one that was dropped.
pub fn tell_of(changed: &Changed<Entry>, answer: &mut Answer) {
    if let Some(attr) = &changed.file.after {
        answer.field("ETag", entity_tag(attr)).field("Last-Modified", format_date(attr.mtime));
    }
}

/// Makes a directory.
pub async fn make_directory(x: Exchange<'_, '_>) -> Served {
    if !x.talk.progress.is_done() {
        let why = "MKCOL takes no body";
        return Err(Problem::new(Status::UNSUPPORTED_TYPE, ErrorKind::Unsupported, why).into());
    }
    let at = At::root(x.path.path.clone());
    let conditions = Conditions::of(x.head)?;
    // What is not there is made, what is there is refused: there is nothing to guard.
    let shown = hold::shown(&x).await?;
    remove::guard(&x, &at, &conditions, Act::Make).await?;
    let _permit = hold::permit(&x, &shown, vec![Touch { path: x.path.path.clone(), reach: Reach::Name }])?;
    let call = x.call.clone().durable();
    let fs = &x.talk.http.services.fs;
    match x.within(fs.make(&call, &at, New::Directory, &SetAttr::default())).await {
        Ok(_) => x.talk.reply(Status::CREATED, |_| {}, None).await,
        Err(error) if error.kind() == ErrorKind::Exists => {
            let problem = Problem::new(Status::METHOD_NOT_ALLOWED, ErrorKind::Exists, "the name is taken");
            Err(problem.with("Allow", ALLOW_TAKEN).into())
        }
        Err(error) => Err(x.problem(&error, Act::Make).await.into()),
    }
}
