//! Clients that do not play by the rules, and lines that break.

use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWriteExt;
use weft_core::attr::SetAttr;
use weft_core::form::{
    Ack, At, BytesSource, ChangeSeq, Expect, FileSystem, Guard, New, OpenHow, Range, Source, Want, Wire,
    WriteAt,
};
use weft_core::{ErrorKind, FileId, Name, Rights, SessionId, TraceId};
use weft_rpc::{
    CallBody, CallHeader, Frame, FrameReader, NodeAsk, ToClient, ToServer, VERSION, VERSION_OLDEST, encode,
};

use crate::{ADMINISTRATOR, World};

fn hello() -> Frame {
    Frame::new(0, &ToServer::Hello { oldest: 1, newest: 1 }, Bytes::new())
}

fn status_call(stream: u32, session: u32, credential: u32) -> Frame {
    let (ack, wire) = (Ack::Applied, Wire::Private);
    let header = CallHeader { credential, session, once: None, ack, wire, trace: TraceId(1), left_ms: 1000 };
    Frame::new(stream, &ToServer::Call { header, body: CallBody::Node(NodeAsk::Status) }, Bytes::new())
}

/// Sends frames and returns every message that comes back until the server closes or
/// nothing more comes for a moment.
async fn exchange(world: &World, frames: &[Frame]) -> Vec<ToClient> {
    let (from, mut to) = tokio::io::split(world.line());
    for frame in frames {
        if to.write_all(&encode(frame)).await.is_err() {
            break;
        }
    }
    to.shutdown().await.expect("this end can be closed");
    let mut reader = FrameReader::new(from);
    let mut heard = Vec::new();
    while let Ok(Some(frame)) = reader.next().await {
        heard.push(frame.message().expect("the server speaks the protocol"));
    }
    heard
}

fn refused(heard: &[ToClient]) -> bool {
    matches!(heard.last(), Some(ToClient::Refused(_)))
}

#[tokio::test]
async fn who_breaks_the_rules_is_cut_off_and_nobody_else() {
    let world = World::new();
    let twice = [hello(), hello()];
    let rude = [status_call(1, 0, 1)];
    let stream_zero = [hello(), status_call(0, 0, 1)];
    let presented_as_nobody = [
        hello(),
        Frame::new(
            0,
            &ToServer::Present {
                number: 1,
                credential: world.domain.credential(&world.domain.claims("alice")),
            },
            Bytes::new(),
        ),
    ];
    let nonsense =
        [hello(), Frame { stream: 0, body: Bytes::from_static(b"\xff\xff\xff"), payload: Bytes::new() }];
    for frames in [&twice[..], &rude, &stream_zero, &presented_as_nobody, &nonsense] {
        assert!(refused(&exchange(&world, frames).await));
    }
    world.remote().await.who_am_i(&weft_core::proof::Caller::anyone()).await.expect("others go on");
}

#[tokio::test]
async fn bytes_for_a_call_that_takes_none_cut_the_line() {
    let world = World::new();
    let (ack, wire) = (Ack::Applied, Wire::Private);
    let header =
        CallHeader { credential: 2, session: 1, once: None, ack, wire, trace: TraceId(1), left_ms: 60_000 };
    let admin = world.domain.caller(ADMINISTRATOR);
    let credential = admin.signed().expect("it was verified").clone();
    let present = Frame::new(0, &ToServer::Present { number: 2, credential }, Bytes::new());
    let begin = ToServer::Begin { session: 1, credential: 2, resume: None };
    let begin = Frame::new(0, &begin, Bytes::new());
    let at = At::id(FileId::ROOT);
    let watch = CallBody::Request(weft_core::form::Request::Watch { at, since: ChangeSeq(0) });
    let call = Frame::new(1, &ToServer::Call { header, body: watch }, Bytes::new());
    let data = Frame::new(1, &ToServer::Data { end: false }, Bytes::from_static(b"unasked"));
    let heard = exchange(&world, &[hello(), present, begin, call, data]).await;
    assert!(refused(&heard), "{heard:?}");
}

#[tokio::test]
async fn a_version_that_is_not_spoken_is_refused_with_what_is() {
    let heard =
        exchange(&World::new(), &[Frame::new(0, &ToServer::Hello { oldest: 99, newest: 100 }, Bytes::new())])
            .await;
    let Some(ToClient::Refused(report)) = heard.last() else { panic!("it must be refused") };
    assert_eq!(report.kind, ErrorKind::Unsupported);
    assert!(report.detail.contains(&format!("versions {VERSION_OLDEST} to {VERSION}")), "{report:?}");
}

#[tokio::test]
async fn numbers_nothing_was_presented_under_give_no_rights() {
    let heard = exchange(&World::new(), &[hello(), status_call(1, 0, 77), status_call(2, 77, 1)]).await;
    let kinds: Vec<_> = heard
        .iter()
        .filter_map(|message| match message {
            ToClient::Reply(reply) => reply.as_ref().as_ref().err().map(|report| report.kind),
            _ => None,
        })
        .collect();
    assert_eq!(kinds, [ErrorKind::Invalid, ErrorKind::Stale]);
}

#[tokio::test]
async fn a_forged_credential_fails_each_call_made_under_it() {
    let world = World::new();
    let foreign = weft_conformance::TestDomain::new(9, world.domain.clock().clone(), &[]);
    let remote = world.remote().await;
    let outcome = remote.who_am_i(&foreign.caller("alice")).await;
    assert_eq!(outcome.expect_err("another domain signed it").kind(), ErrorKind::Unauthenticated);
}

#[tokio::test]
async fn opens_outlive_a_broken_line_if_the_session_is_resumed() {
    let world = World::new();
    let admin = world.domain.caller(ADMINISTRATOR);
    let first = world.remote().await;
    let grant = first.begin(&admin, SessionId(1)).await.expect("it begins");
    let call = world.domain.call(&admin, 1);
    let f = At::name(FileId::ROOT, Name::try_from("f").expect("good"));
    let new = New::File { verifier: None };
    let id = first.make(&call, &f, new, &SetAttr::default()).await.expect("it is made").value.id;
    let opened = first
        .open(&call, &At::id(id), &OpenHow { need: Rights::READ, ..OpenHow::default() })
        .await
        .expect("it opens");
    // The line breaks: nothing is closed, nothing is said.
    std::mem::forget(opened);
    drop(first);
    let second = world.remote().await;
    second.resume(&admin, SessionId(1), grant).await.expect("it is taken up again");
    assert_eq!(world.sessions.alive(), 1);
    second.remove(&call, &f, Expect::Any, &Guard::NONE).await.expect("it is removed");
    second.walk(&call, &At::id(id), Want::default()).await.expect("the open keeps it");
}

#[tokio::test]
async fn a_stranger_cannot_take_up_a_session_without_its_secret() {
    let world = World::new();
    let admin = world.domain.caller(ADMINISTRATOR);
    let remote = world.remote().await;
    let mut grant = remote.begin(&admin, SessionId(1)).await.expect("it begins");
    grant.secret = weft_core::service::Secret::new("guessed");
    let stolen = world.remote().await.resume(&admin, SessionId(1), grant).await;
    assert_eq!(stolen.expect_err("the secret is wrong").kind(), ErrorKind::Stale);
}

#[tokio::test]
async fn a_broken_line_fails_every_call_under_way_at_once() {
    let world = World::new();
    let (here, there) = tokio::io::duplex(1 << 16);
    let server = tokio::spawn(weft_doors_native::serve(world.services.clone(), there, 1));
    let until = weft_core::Deadline::within(world.sys.clock(), Duration::from_secs(10));
    let connection = weft_rpc::Connection::open(&world.sys, here, until).await.expect("welcome");
    let remote = std::sync::Arc::new(weft_rpc::Remote::new(connection, weft_rpc::As::Anyone));
    let admin = world.domain.caller(ADMINISTRATOR);
    let call = world.domain.call(&admin, 1);
    let watching = {
        let (remote, call) = (remote.clone(), call.clone());
        tokio::spawn(async move { remote.watch(&call, &At::id(FileId::ROOT), ChangeSeq(0)).await })
    };
    remote.who_am_i(&admin).await.expect("the line stands");
    server.abort();
    let outcome =
        tokio::time::timeout(Duration::from_secs(10), watching).await.expect("it ends").expect("no panic");
    if let Err(error) = outcome {
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
    let after = remote.who_am_i(&admin).await;
    assert_eq!(after.expect_err("the line is gone").kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_large_file_goes_both_ways_whole_while_small_calls_pass_it() {
    let world = World::new();
    let admin = world.domain.caller(ADMINISTRATOR);
    let (remote, call) = (world.remote().await, world.domain.call(&admin, 1));
    let at = At::name(FileId::ROOT, Name::try_from("large").expect("good"));
    let id = remote
        .make(&call, &at, New::File { verifier: None }, &SetAttr::default())
        .await
        .expect("made")
        .value
        .id;
    let bytes: Bytes = (0..20_000_000_u32).map(|n| (n ^ n >> 11) as u8).collect();
    let file = remote.file(&call, id, Rights::WRITE).await.expect("it is there");
    let mut data = BytesSource::new(bytes.clone());
    file.write(&call, WriteAt::Offset(0), &mut data).await.expect("it is written");
    let reading = remote.file(&call, id, Rights::READ).await.expect("it is there");
    let mut source: Box<dyn Source> = reading.read(&call, Range::ALL).await.expect("it is read");
    assert_eq!(source.length(), Some(bytes.len() as u64));
    let first = source.next(1 << 20).await.expect("bytes").expect("there are some");
    // A reader that has stopped holds nobody up.
    remote.who_am_i(&admin).await.expect("a small call passes");
    let mut read = first.into_bytes().expect("in memory").to_vec();
    while let Some(piece) = source.next(1 << 20).await.expect("bytes") {
        read.extend_from_slice(&piece.into_bytes().expect("in memory"));
    }
    assert_eq!(read, bytes);
    assert!(world.model.supports(weft_core::VolumeId(0)).links);
}

#[tokio::test]
async fn an_origin_that_the_client_names_is_not_believed() {
    let world = World::new();
    let mut claims = world.domain.claims(ADMINISTRATOR);
    claims.limits.hosts = vec!["10.0.0.0/8".parse().expect("a network")];
    let remote = world.remote().await;
    let mut call = world.domain.call(&world.domain.caller_with(&claims), 1);
    call.from.peer = Some("10.1.1.1".parse().expect("an address"));
    let outcome = remote.walk(&call, &At::id(FileId::ROOT), Want::default()).await;
    assert!(outcome.is_err(), "the line is local: it has no address, whatever the client says");
}

#[tokio::test]
async fn a_client_that_is_turned_away_is_told_why() {
    let world = World::new();
    let (here, mut there) = tokio::io::duplex(1 << 16);
    there.write_all(&weft_doors_native::too_many_connections()).await.expect("there is room");
    let until = weft_core::Deadline::within(world.sys.clock(), Duration::from_secs(10));
    let refused =
        weft_rpc::Connection::open(&world.sys, here, until).await.map(drop).expect_err("no welcome");
    assert_eq!(refused.kind(), ErrorKind::Busy);
    assert!(refused.to_string().contains("connections") && refused.advice().is_some(), "{refused}");
}
