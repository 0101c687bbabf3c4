//! PUT and MKCOL: staged out of sight, checked, then published in one step.

use std::pin::pin;
use std::sync::Arc;

use async_trait::async_trait;
use weft_core::attr::{Changed, SetAttr};
use weft_core::form::{Entry, Guard, New, Piece, Source, Stage, StageHint, Stopped};
use weft_core::{ErrorKind, Result};
use weft_mover::Class;

use crate::answer::Problem;
use crate::codec::Refusal;
use crate::codec::condition::{Conditions, entity_tag, format_date};
use crate::codec::digest::{self, Sum, Value};
use crate::codec::head::{Field, Head};
use crate::exchange::{ALLOW_DIRECTORY, ALLOW_TAKEN, Exchange, Failed, Served, keeping_session};
use crate::map::Act;
use crate::remove;
use crate::status::Status;

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
    let at = x.at();
    let guard = match remove::judge(&x, &at, &conditions).await {
        Ok(Some(guard)) => guard,
        Ok(None) if x.call.caller.is_anyone() => return Err(Problem::who_asks().into()),
        Ok(None) => return Err(remove::failed().into()),
        Err(error) => return Err(x.problem(&error, Act::Make).await.into()),
    };
    let hint = StageHint { length: x.talk.progress.left(), brief: true };
    let stage = match x.within(x.talk.http.services.fs.stage(&x.call, &at, &hint)).await {
        Ok(stage) => stage,
        Err(error) => return Err(x.problem(&error, Act::Make).await.into()),
    };
    let published = match receive(&mut x, &stage, expected).await {
        Ok(()) => publish(&mut x, &stage, &guard).await,
        Err(failed) => Err(failed),
    };
    match published {
        Ok(changed) => created(x, &changed).await,
        Err(failed) => {
            x.renew();
            // Nothing of it was visible; if this fails too, the sweep takes the stage.
            let _ = x.within(stage.discard(&x.call)).await;
            Err(failed)
        }
    }
}

/// Returns the digests the file must have.
fn expected_digests(head: &Head) -> std::result::Result<Vec<Value>, Refusal> {
    let mut expected = Vec::new();
    // Without a content coding, which this door does not take, both digests are of the same bytes.
    for field in [Field::ReprDigest, Field::ContentDigest] {
        if let Some(text) = head.all(field)? {
            expected.extend(digest::values(&text)?);
        }
    }
    if let Some(text) = head.all(Field::Digest)? {
        expected.extend(digest::values_old(&text)?);
    }
    if let Some(text) = head.one(Field::ContentMd5)? {
        expected.push(digest::value_md5(text)?);
    }
    match head.one(Field::ContentEncoding)? {
        None | Some("" | "identity") => Ok(expected),
        Some(_) => Err(Refusal::new(
            Status::UNSUPPORTED_TYPE,
            "files are kept as they are sent: no Content-Encoding",
        )),
    }
}

/// Receives the body into the stage.
async fn receive(x: &mut Exchange<'_, '_>, stage: &Arc<dyn Stage>, expected: Vec<Value>) -> Served {
    let http = x.talk.http;
    let (class, stopped) = (Class::of(&x.call), x.withdrawn());
    let mut body = x.talk.body();
    let mut checks = Vec::new();
    let put = match http.services.mover.inbound(class, &mut body, stopped) {
        Ok(inbound) => {
            let sums = expected.iter().map(|value| Sum::new(value.algorithm)).collect();
            let mut checked = Checked { source: inbound, sums };
            let put = keeping_session(http, &x.call, pin!(stage.put(&x.call, 1, 0, &mut checked))).await;
            checks = checked.sums;
            put
        }
        Err(error) => Err(error),
    };
    drop(body);
    if let Err(error) = put {
        return Err(x.upload_failed(error).await);
    }
    if !x.talk.progress.is_done() {
        // The stage took less than the body holds, which it must not: never publish that.
        return Err(Problem::new(Status::INTERNAL, ErrorKind::Internal, "the upload was not taken whole")
            .closing()
            .into());
    }
    let found = checks.into_iter().map(Sum::finish);
    match expected.iter().zip(found).find(|(expected, found)| *expected != found) {
        None => Ok(()),
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

async fn publish(x: &mut Exchange<'_, '_>, stage: &Arc<dyn Stage>, guard: &Guard) -> Served<Changed<Entry>> {
    x.renew();
    let call = x.call.clone().durable();
    match x.within(stage.publish(&call, &[], &SetAttr::default(), guard)).await {
        Ok(changed) => Ok(changed),
        Err(error) => Err(Failed::from(x.problem(&error, Act::Make).await)),
    }
}

async fn created(x: Exchange<'_, '_>, changed: &Changed<Entry>) -> Served {
    let status = if changed.file.before.is_some() { Status::NO_CONTENT } else { Status::CREATED };
    let fields = |answer: &mut crate::answer::Answer| {
        if let Some(attr) = &changed.file.after {
            answer.field("ETag", entity_tag(attr)).field("Last-Modified", format_date(attr.mtime));
        }
    };
    x.talk.reply(status, fields, None).await
}

/// Makes a directory.
pub async fn make_directory(x: Exchange<'_, '_>) -> Served {
    if !x.talk.progress.is_done() {
        let why = "MKCOL takes no body";
        return Err(Problem::new(Status::UNSUPPORTED_TYPE, ErrorKind::Unsupported, why).into());
    }
    let at = weft_core::form::At::root(x.path.path.clone());
    let conditions = Conditions::of(x.head)?;
    match remove::judge(&x, &at, &conditions).await {
        Ok(Some(_)) => {}
        Ok(None) => return Err(remove::failed().into()),
        Err(error) => return Err(x.problem(&error, Act::Make).await.into()),
    }
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

/// A source whose bytes are summed up as they pass.
struct Checked<S> {
    source: S,
    sums: Vec<Sum>,
}

#[async_trait]
impl<S: Source> Source for Checked<S> {
    async fn next(&mut self, max: usize) -> Result<Option<Piece>> {
        let Some(piece) = self.source.next(max).await? else { return Ok(None) };
        if self.sums.is_empty() {
            return Ok(Some(piece));
        }
        let bytes = piece.into_bytes()?;
        self.sums.iter_mut().for_each(|sum| sum.update(&bytes));
        Ok(Some(Piece::Bytes(bytes)))
    }

    fn length(&self) -> Option<u64> {
        self.source.length()
    }

    fn stopped(&self) -> Stopped {
        self.source.stopped()
    }

    fn yield_turn(&mut self) {
        self.source.yield_turn();
    }
}
