//! Writes whose bytes lie in memory that the client lends, to a server that runs as the same user.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWriteExt;
use weft_core::attr::SetAttr;
use weft_core::form::{
    Ack, At, BytesSource, FileSystem, New, OpenFile, OpenHow, OpenedFile, Piece, Range, Wire, WriteAt,
    collect,
};
use weft_core::metrics::Way;
use weft_core::{Deadline, FileId, Name, Rights, TraceId, limits};
use weft_doors_native::{serve, serve_own};
use weft_rpc::{
    As, CallBody, CallHeader, Connection, FileAsk, FileRef, Frame, FrameReader, Remote, ToClient, ToServer,
    VERSION, encode,
};
use weft_sys::SharedBuffer;
use weft_sys::net::Socket;

use crate::{ADMINISTRATOR, UID, World};

/// Memory with a file behind it, as a mount's buffers are.
struct Memory(SharedBuffer);

impl OpenedFile for Memory {
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        into.copy_from_slice(&self.0[at as usize..at as usize + into.len()]);
        Ok(into.len())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.descriptor())
    }
}

fn memory(bytes: &[u8]) -> Piece {
    let mut buffer = SharedBuffer::new(80 + bytes.len()).expect("memory");
    buffer[80..].copy_from_slice(bytes);
    Piece::File { file: Arc::new(Memory(buffer)), at: 80, length: bytes.len() }
}

/// A client of the server over a local socket that lends, or not, as the server says; and a file it has open.
async fn open(world: &World, own: bool) -> Arc<dyn OpenFile> {
    let (here, there) = Socket::pair().expect("a pair");
    let there = there.counted(world.sys.metrics().clone(), Way::Native);
    let services = world.services.clone();
    drop(world.sys.spawn(async move {
        if own { serve_own(services, there, UID).await } else { serve(services, there, UID).await }
    }));
    let until = Deadline::within(world.sys.clock(), Duration::from_secs(10));
    let connection = match own {
        true => Connection::open_local(&world.sys, here, until).await,
        false => Connection::open(&world.sys, here, until).await,
    };
    let remote = Arc::new(Remote::new(connection.expect("it says welcome"), As::Anyone));
    let call = world.domain.call(&world.domain.caller(ADMINISTRATOR), 1);
    let at = At::name(FileId::ROOT, Name::try_from("f").expect("good"));
    remote.make(&call, &at, New::File { verifier: None }, &SetAttr::default()).await.expect("it is made");
    let how = OpenHow { need: Rights::READ | Rights::WRITE, ..OpenHow::default() };
    remote.open(&call, &at, &how).await.expect("it is there").file
}

/// Returns how many bytes came over the socket for a file's bytes, written from such memory.
async fn sent_for(bytes: &[u8], own: bool) -> u64 {
    let world = World::new();
    let call = world.domain.call(&world.domain.caller(ADMINISTRATOR), 1);
    let file = open(&world, own).await;
    let came = || {
        let families = world.sys.metrics().families();
        let moved = families.into_iter().find(|(entry, _)| entry.name == "weft_doors_moved_bytes_total");
        let (_, samples) = moved.expect("it is in the catalogue");
        let labels = [("door", "native"), ("flow", "in")];
        samples.iter().find(|sample| sample.labels == labels).expect("it is counted").value
    };
    let before = came();
    let mut data = BytesSource::of(memory(bytes));
    let written = file.write(&call, WriteAt::Offset(5), &mut data).await.expect("there is room");
    assert_eq!(written.bytes, bytes.len() as u64);
    let sent = came() - before;
    let mut source = file.read(&call, Range { at: 5, length: None }).await.expect("it is there");
    assert_eq!(collect(&mut *source, 2 << 20).await.expect("all of it"), bytes);
    sent
}

#[tokio::test]
async fn bytes_of_large_writes_cross_no_socket_where_memory_can_be_lent() {
    let bytes: Vec<u8> = (0..limits::PIECE_BYTES_MAX).map(|at| (at % 251) as u8).collect();
    assert!(sent_for(&bytes, true).await < 1000);
    assert!(sent_for(&bytes, false).await > bytes.len() as u64, "another user's are sent");
    let few = &bytes[..limits::RPC_LEND_FROM as usize - 1];
    assert!(sent_for(few, true).await > few.len() as u64, "few cost less to copy");
}

#[tokio::test]
async fn many_writes_at_once_have_each_their_own_memory() {
    let world = World::new();
    let call = world.domain.call(&world.domain.caller(ADMINISTRATOR), 1);
    let file = open(&world, true).await;
    let length = limits::RPC_LEND_FROM as usize;
    let writes = (0..100_u8).map(|number| {
        let (file, call) = (file.clone(), call.clone());
        async move {
            let mut data = BytesSource::of(memory(&vec![number; length]));
            let at = WriteAt::Offset(u64::from(number) * length as u64);
            file.write(&call, at, &mut data).await.expect("there is room");
        }
    });
    futures_util::future::join_all(writes).await;
    for number in 0..100_u8 {
        let range = Range { at: u64::from(number) * length as u64, length: Some(length as u64) };
        let mut source = file.read(&call, range).await.expect("it is there");
        let bytes = collect(&mut *source, length).await.expect("all of it");
        assert!(bytes.iter().all(|byte| *byte == number), "of {number}");
    }
}

fn call(from: u64, length: u32) -> Frame {
    let (ack, wire) = (Ack::Applied, Wire::Private);
    let header =
        CallHeader { credential: 1, session: 1, once: None, ack, wire, trace: TraceId(1), left_ms: 1000 };
    let ask = FileAsk::WriteLent { at: WriteAt::Offset(0), from, length };
    let body = CallBody::File(FileRef::Id(FileId::ROOT, Rights::WRITE), ask);
    Frame::new(1, &ToServer::Call { header, body }, Bytes::new())
}

/// Returns whether a client that lends this for these bytes is cut off.
async fn is_cut_off(own: bool, lent: Option<OwnedFd>, (from, length): (u64, u32)) -> bool {
    let world = World::new();
    let (here, there) = Socket::pair().expect("a pair");
    let services = world.services.clone();
    drop(world.sys.spawn(async move {
        if own { serve_own(services, there, UID).await } else { serve(services, there, UID).await }
    }));
    let (here, lends) = here.lending();
    let (from_there, mut to) = tokio::io::split(here);
    let hello = Frame::new(0, &ToServer::Hello { oldest: 1, newest: VERSION }, Bytes::new());
    to.write_all(&encode(&hello)).await.expect("it is read");
    lent.into_iter().for_each(|memory| lends.add(memory));
    to.write_all(&encode(&call(from, length))).await.expect("it is read");
    let mut frames = FrameReader::new(from_there);
    loop {
        match frames.next().await.expect("whole frames").expect("an answer").message() {
            Ok(ToClient::Welcome(_)) => {}
            Ok(ToClient::Refused(_)) => return true,
            // It has begun no session.
            Ok(ToClient::Reply(answer)) if answer.is_err() => return false,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn who_lends_something_else_than_memory_that_stays_as_long_as_it_is_is_cut_off() {
    let lent = || {
        let buffer = SharedBuffer::new(1000).expect("memory");
        Some(buffer.descriptor().try_clone_to_owned().expect("a descriptor"))
    };
    let file = || {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(1000).expect("there is room");
        Some(OwnedFd::from(file))
    };
    let pipe = || Some(rustix::pipe::pipe().expect("a pipe").0);
    assert!(!is_cut_off(true, lent(), (0, 1000)).await, "that is how it is done");
    assert!(is_cut_off(true, None, (0, 1000)).await, "nothing");
    assert!(is_cut_off(true, file(), (0, 1000)).await, "a file");
    assert!(is_cut_off(true, pipe(), (0, 1)).await, "a pipe");
    assert!(is_cut_off(false, lent(), (0, 1000)).await, "to a server of another user");
    let beyond = [(0, 1001), (1, 1000), (u64::MAX, 1000), (u64::MAX, 0), (0, 0), (0, u32::MAX)];
    for part in beyond {
        assert!(is_cut_off(true, lent(), part).await, "{part:?}");
    }
}
