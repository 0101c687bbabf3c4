//! Files that are lent instead of their bytes: whose descriptor is whose, whatever the server sends.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use weft_conformance::TestDomain;
use weft_core::form::{Call, FileSystem, OpenFile, Piece, Range, Supports};
use weft_core::{Deadline, Error, ErrorKind, FileId, Result, Rights, VolumeId};
use weft_rpc::{
    Answer, As, CallBody, Connection, FileAsk, Frame, FrameReader, LEND_SINCE, Lent, Remote, ToClient,
    ToServer, VERSION, write_frame,
};
use weft_sys::Sys;
use weft_sys::net::Socket;

use crate::{begun, welcome};

/// What the server answers a read with: the stream, from that of the read on, the parts, and what is in the files
/// that really go along.
type Said = (u32, Vec<Lent>, &'static [&'static str]);

fn file(text: &str) -> OwnedFd {
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(text.as_bytes()).expect("there is room");
    file.into()
}

fn part(descriptor: u32, at: u64, length: u32) -> Lent {
    Lent::File { descriptor, at, length }
}

async fn serve(
    (domain, newest): (weft_core::DomainId, u16),
    socket: Socket,
    said: Vec<Said>,
    payload: &'static [u8],
) {
    let (socket, lends) = socket.lending();
    let (from, mut to) = tokio::io::split(socket);
    let mut frames = FrameReader::new(from);
    while let Ok(Some(frame)) = frames.next().await {
        match frame.message().expect("ours") {
            ToServer::Hello { .. } => {
                let welcome = welcome(domain, newest, Supports::NOTHING);
                write_frame(&mut to, &Frame::new(0, &welcome, Bytes::new())).await.expect("it is read");
            }
            ToServer::Begin { session, .. } => {
                write_frame(&mut to, &Frame::new(0, &begun(session), Bytes::new()))
                    .await
                    .expect("it is read");
            }
            ToServer::Call { body: CallBody::File(_, FileAsk::Check), .. } => {
                let done = ToClient::Reply(Box::new(Ok(Answer::Done)));
                write_frame(&mut to, &Frame::new(frame.stream, &done, Bytes::new()))
                    .await
                    .expect("it is read");
            }
            ToServer::Call {
                body: CallBody::File(_, ask @ (FileAsk::Read(_) | FileAsk::Lend(_))), ..
            } => {
                assert!(newest >= LEND_SINCE || matches!(ask, FileAsk::Read(_)));
                for (stream, parts, files) in &said {
                    files.iter().for_each(|text| lends.add(file(text)));
                    let reply = ToClient::Reply(Box::new(Ok(Answer::Lent(parts.clone()))));
                    let frame = Frame::new(frame.stream + stream, &reply, Bytes::from_static(payload));
                    // A client that was told nonsense hangs up.
                    let _ = write_frame(&mut to, &frame).await;
                }
            }
            _ => {}
        }
    }
}

/// Opens a file of a server that says all this, and speaks versions up to one.
async fn open(
    newest: u16,
    said: Vec<Said>,
    payload: &'static [u8],
) -> Result<(Connection, Arc<dyn OpenFile>, Call)> {
    let sys = Sys::real();
    let domain = TestDomain::new(3, Arc::new(sys.clone()), &[VolumeId(0)]);
    let (here, there) = Socket::pair().expect("a pair");
    drop(sys.spawn(serve((domain.id(), newest), there, said, payload)));
    let until = Deadline::within(sys.clock(), Duration::from_secs(10));
    let connection = Connection::open_local(&sys, here, until).await?;
    let remote = Remote::new(connection.clone(), As::Anyone);
    let call = domain.call(&domain.caller("alice"), 1);
    let file = remote.file(&call, FileId::new(VolumeId(0), 9, 0), Rights::READ).await?;
    Ok((connection, file, call))
}

#[tokio::test]
async fn a_server_that_is_too_old_to_lend_files_alone_is_not_asked_to() {
    for (newest, lent) in [(LEND_SINCE - 1, None), (LEND_SINCE, Some(3))] {
        let said = vec![(0, vec![part(0, 0, 3)], &["abc"][..])];
        let (_connection, file, call) = open(newest, said, b"").await.expect("it says welcome");
        let mut source = file.lend(&call, Range::ALL).await.expect("it answers");
        let piece = source.next(4).await.expect("it came");
        assert_eq!(piece.map(|piece| piece.length()), lent, "of version {newest}");
    }
}

/// Reads of a server that says all this; returns each piece's text, and whether it is a file.
async fn read(said: Vec<Said>, payload: &'static [u8]) -> Result<Vec<(String, bool)>> {
    let (connection, file, call) = open(VERSION, said, payload).await?;
    let mut source = file.read(&call, Range { at: 0, length: Some(100) }).await?;
    let mut pieces = Vec::new();
    while let Some(piece) = source.next(4).await? {
        let is_file = matches!(piece, Piece::File { .. });
        pieces.push((String::from_utf8(piece.into_bytes()?.to_vec()).expect("text"), is_file));
    }
    connection.ended().map_or(Ok(pieces), Err::<_, Error>)
}

#[tokio::test]
async fn parts_are_read_where_they_lie_and_in_their_order() {
    let parts = vec![part(1, 2, 5), Lent::Bytes(2), part(0, 0, 1)];
    let pieces = read(vec![(0, parts, &["abc", "0123456789"])], b"xy").await.expect("they are there");
    let found = |text: &str, is_file| (String::from(text), is_file);
    assert_eq!(pieces, [found("2345", true), found("6", true), found("xy", false), found("a", true)]);
}

#[tokio::test]
async fn a_file_for_who_has_left_is_not_taken_for_the_next_ones() {
    let to_nobody = (1000, vec![part(0, 0, 3)], &["old"][..]);
    let to_us = (0, vec![part(0, 0, 3)], &["new"][..]);
    assert_eq!(read(vec![to_nobody, to_us], b"").await.expect("it is there"), [("new".into(), true)]);
}

#[tokio::test]
async fn a_server_that_lends_something_else_than_it_says_is_refused() {
    let many = vec![part(0, 0, 1); weft_core::limits::RPC_LENT_PARTS_MAX + 1];
    let nonsense: [(Said, &'static [u8]); 8] = [
        ((0, vec![part(0, 0, 3)], &[]), b""),
        ((0, vec![part(1, 0, 3)], &["abc"]), b""),
        ((0, vec![part(u32::MAX, 0, 3)], &["abc"]), b""),
        ((0, vec![part(0, 0, 0)], &["abc"]), b""),
        ((0, vec![part(0, u64::MAX, 3)], &["abc"]), b""),
        ((0, many, &["abc"]), b""),
        ((0, vec![Lent::Bytes(3)], &[]), b"ab"),
        ((0, vec![part(0, 0, 3)], &["abc"]), b"too much"),
    ];
    for (said, payload) in nonsense {
        let met = read(vec![said.clone()], payload).await.expect_err("nonsense");
        assert_eq!(met.kind(), ErrorKind::Invalid, "{said:?}: {met}");
    }
    let short = read(vec![(0, vec![part(0, 1, 3)], &["abc"])], b"").await.expect_err("it ends too early");
    assert_eq!(short.kind(), ErrorKind::Corrupt);
}
