//! A small file in one message: as a stage, its bytes and their publication would make it.

use bytes::Bytes;
use weft_core::attr::SetAttr;
use weft_core::form::{At, Call, FileSystem, Guard, OpenHow, Range, Supports, VersionIs, Whole, collect};
use weft_core::{Deadline, ErrorKind, RelPath, Rights};
use weft_rpc::{As, CallBody, Connection, Frame, FrameReader, Remote, ToServer, write_frame};

use crate::{ADMINISTRATOR, World, begun, welcome};

fn whole(bytes: &[u8]) -> Whole {
    let set = SetAttr { mode: Some(0o640), ..SetAttr::default() };
    Whole { digest: *blake3::hash(bytes).as_bytes(), set, guard: Guard::NONE }
}

fn at(name: &str) -> At {
    At::root(RelPath::new(name.to_owned()).expect("a name"))
}

async fn bytes_of(remote: &Remote, call: &Call, at: &At) -> weft_core::Result<Bytes> {
    let how = OpenHow { need: Rights::READ, ..OpenHow::default() };
    let opened = remote.open(call, at, &how).await?;
    collect(&mut *opened.file.read(call, Range::ALL).await?, 1 << 20).await
}

#[tokio::test]
async fn a_file_that_comes_whole_is_made_or_replaced_and_never_differs_from_its_digest() {
    let world = World::new();
    let (remote, call) = (world.remote().await, world.domain.call(&world.domain.caller(ADMINISTRATOR), 9));
    for bytes in [&b""[..], b"first", &[7; 100_000]] {
        let made =
            remote.put(&call, &at("f"), Bytes::copy_from_slice(bytes), whole(bytes)).await.expect("made");
        assert_eq!(made.value.attr.expect("seen").mode, 0o640);
        assert_eq!(bytes_of(&remote, &call, &at("f")).await.expect("there"), bytes);
    }
    // What is not what was sent changes nothing, and leaves no stage.
    for bytes in [&b"other"[..], b""] {
        let refused = remote.put(&call, &at("f"), Bytes::copy_from_slice(bytes), whole(b"sent")).await;
        assert_eq!(refused.expect_err("it differs").kind(), ErrorKind::Corrupt);
    }
    assert_eq!(bytes_of(&remote, &call, &at("f")).await.expect("there"), vec![7; 100_000]);
    let left = remote.stages(&call, &At::id(weft_core::FileId::ROOT), None).await.expect("listed");
    assert!(left.stages.is_empty(), "{:?}", left.stages);
    // The guard and the rights are those of a publication.
    let absent = Whole { guard: Guard { version: Some(VersionIs::Absent), ctime: None }, ..whole(b"new") };
    let refused = remote.put(&call, &at("f"), Bytes::from_static(b"new"), absent).await;
    assert_eq!(refused.expect_err("it is there").kind(), ErrorKind::Precondition);
    let stranger = world.domain.call(&world.domain.caller("stranger"), 10);
    let refused = remote.put(&stranger, &at("g"), Bytes::from_static(b"new"), whole(b"new")).await;
    assert!(matches!(refused.expect_err("no right").kind(), ErrorKind::Denied | ErrorKind::NotFound));
}

#[tokio::test]
async fn files_that_come_together_are_each_made_or_refused_for_themselves() {
    let world = World::new();
    let (remote, call) = (world.remote().await, world.domain.call(&world.domain.caller(ADMINISTRATOR), 9));
    remote.put(&call, &at("old"), Bytes::from_static(b"old"), whole(b"old")).await.expect("made");
    let absent = Whole { guard: Guard { version: Some(VersionIs::Absent), ctime: None }, ..whole(b"new") };
    let file = |name: &str, bytes: &'static [u8], whole| (at(name), Bytes::from_static(bytes), whole);
    let files = vec![
        file("a", b"first", whole(b"first")),
        file("lied", b"other", whole(b"sent")),
        file("empty", b"", whole(b"")),
        file("old", b"new", absent),
        file("none/below", b"lost", whole(b"lost")),
        file("large", &[7; 100_000], whole(&[7; 100_000])),
    ];
    let made = remote.put_all(&call, files).await.expect("answered");
    let kinds: Vec<_> = made.iter().map(|made| made.as_ref().err().map(weft_core::Error::kind)).collect();
    let expected = [None, Some(ErrorKind::Corrupt), None, Some(ErrorKind::Precondition)];
    assert_eq!(kinds[..4], expected);
    assert_eq!(kinds[4..], [Some(ErrorKind::NotFound), None]);
    for (name, bytes) in [("a", &b"first"[..]), ("empty", b""), ("old", b"old"), ("large", &[7; 100_000])] {
        assert_eq!(bytes_of(&remote, &call, &at(name)).await.expect("there"), bytes, "{name}");
    }
    assert_eq!(
        bytes_of(&remote, &call, &at("lied")).await.expect_err("not there").kind(),
        ErrorKind::NotFound
    );
    let stranger = world.domain.call(&world.domain.caller("stranger"), 10);
    let files = ["x", "y"].map(|name| file(name, b"new", whole(b"new")));
    let refused = remote.put_all(&stranger, files.into()).await.expect("answered");
    assert!(refused.iter().all(|one| {
        one.as_ref().is_err_and(|e| matches!(e.kind(), ErrorKind::Denied | ErrorKind::NotFound))
    }));
}

/// An older node would hang up: it is asked as before.
#[tokio::test]
async fn a_node_of_an_older_version_is_asked_for_a_stage() {
    let world = World::new();
    let (here, there) = tokio::io::duplex(64 << 10);
    let domain = world.domain.id();
    let asked = tokio::spawn(async move {
        let (from, mut to) = tokio::io::split(there);
        let mut frames = FrameReader::new(from);
        loop {
            let frame = frames.next().await.expect("ours").expect("it goes on");
            let answer = match frame.message().expect("ours") {
                ToServer::Hello { .. } => welcome(domain, 4, Supports::NOTHING),
                ToServer::Begin { session, .. } => begun(session),
                ToServer::Call { body, .. } => return body,
                _ => continue,
            };
            write_frame(&mut to, &Frame::new(frame.stream, &answer, Bytes::new())).await.expect("it is read");
        }
    });
    let until = Deadline::within(world.sys.clock(), std::time::Duration::from_secs(10));
    let connection = Connection::open(&world.sys, here, until).await.expect("welcome");
    let remote = Remote::new(connection, As::Anyone);
    let call = world.domain.call(&world.domain.caller(ADMINISTRATOR), 9);
    let put = remote.put(&call, &at("f"), Bytes::from_static(b"x"), whole(b"x")).await;
    assert!(put.is_err(), "nobody answered");
    assert!(matches!(asked.await.expect("it was asked"), CallBody::Stage(..)));
}
