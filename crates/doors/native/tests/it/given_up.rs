//! Calls that nobody waits for any more, on a simulated clock: what they would have held is not held.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::io::DuplexStream;
use weft_conformance::TestDomain;
use weft_core::attr::SetAttr;
use weft_core::form::{
    At, BytesSource, Call, Expect, FileSystem, Guard, Lock, LockKind, LockOwner, LockScope, New, OpenHow,
    Range, Supports, Wait, Want, WriteAt,
};
use weft_core::{Deadline, DomainId, ErrorKind, FileId, Name, Rights, VolumeId, limits};
use weft_rpc::{
    Answer, As, CallBody, Connection, FileAsk, Frame, FrameReader, Remote, ToClient, ToServer, VERSION,
    write_frame,
};
use weft_sys::{Sys, simulate};

use crate::{ADMINISTRATOR, World, begun, welcome};

const MOMENT: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

fn f() -> At {
    At::name(FileId::ROOT, Name::try_from("f").expect("good"))
}

#[test]
fn a_lock_that_nobody_waits_for_any_more_is_not_taken() {
    simulate(1, |sys| async move {
        let world = World::on(sys.clone());
        let (remote, admin) = (world.remote().await, world.domain.caller(ADMINISTRATOR));
        let call = world.domain.call(&admin, 1);
        let new = New::File { verifier: None };
        remote.make(&call, &f(), new, &SetAttr::default()).await.expect("it is made");
        let lock = |owner: &'static str| Lock {
            scope: LockScope::Whole,
            kind: LockKind::Exclusive,
            owner: LockOwner(Bytes::from_static(owner.as_bytes())),
        };
        remote.lock(&call, &f(), &lock("holder"), Wait::No).await.expect("it is free");
        // Somebody waits for it, and stops waiting.
        let wait = Wait::Until(Deadline::within(sys.clock(), 20 * MOMENT));
        let (at, waiter) = (f(), lock("waiter"));
        tokio::select! {
            heard = remote.lock(&call, &at, &waiter, wait) => panic!("the holder has it: {heard:?}"),
            () = sys.sleep(5 * MOMENT) => {}
        }
        sys.sleep(MOMENT).await;
        remote.unlock(&call, &f(), &lock("holder")).await.expect("it was held");
        sys.sleep(MOMENT).await;
        remote.lock(&call, &f(), &lock("third"), Wait::No).await.expect("nobody has it");
    });
}

#[test]
fn a_file_whose_opening_nobody_waits_for_any_more_is_not_kept_open() {
    simulate(2, |sys| async move {
        let world = World::on(sys.clone());
        let (remote, admin) = (world.remote().await, world.domain.caller(ADMINISTRATOR));
        let call = world.domain.call(&admin, 1);
        let new = New::File { verifier: None };
        let id = remote.make(&call, &f(), new, &SetAttr::default()).await.expect("it is made").value.id;
        let how = OpenHow { need: Rights::READ, ..OpenHow::default() };
        let at = f();
        assert!(remote.open(&call, &at, &how).now_or_never().is_none(), "the answer is still to come");
        let mut answered = Box::pin(remote.open(&call, &at, &how));
        assert!(answered.as_mut().now_or_never().is_none(), "so is this one's");
        sys.sleep(MOMENT).await;
        // It has come, and nobody looks.
        drop(answered);
        sys.sleep(MOMENT).await;
        remote.remove(&call, &f(), Expect::Any, &Guard::NONE).await.expect("it is removed");
        let left = remote.walk(&call, &At::id(id), Want::default()).await;
        assert_eq!(left.expect_err("nobody has it open").kind(), ErrorKind::Stale);
    });
}

/// A server that stops reading for an hour at the first write. Returns, once the line has ended, of how many bytes each
/// write was that it heard of.
async fn writes_heard_with_a_rest(sys: Sys, domain: DomainId, line: DuplexStream) -> Vec<usize> {
    let (from, mut to) = tokio::io::split(line);
    let (mut frames, mut writes) = (FrameReader::new(from), Vec::new());
    while let Ok(Some(frame)) = frames.next().await {
        let answer = match frame.message().expect("ours") {
            ToServer::Hello { .. } => welcome(domain, VERSION, Supports::NOTHING),
            ToServer::Begin { session, .. } => begun(session),
            ToServer::Call { body: CallBody::File(_, FileAsk::Write { .. }), .. } => {
                writes.push(frame.payload.len());
                if writes.len() == 1 {
                    sys.sleep(HOUR).await;
                }
                continue;
            }
            ToServer::Call { .. } => ToClient::Reply(Box::new(Ok(Answer::Done))),
            _ => continue,
        };
        // The client may have gone.
        let _ = write_frame(&mut to, &Frame::new(frame.stream, &answer, Bytes::new())).await;
    }
    writes
}

/// What a write is of: whoever else has it keeps the bytes in memory.
struct Kept {
    _held: Arc<()>,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &[7; limits::PIECE_BYTES_MAX]
    }
}

#[test]
fn a_call_given_up_before_it_was_sent_is_neither_kept_nor_sent() {
    simulate(3, |sys| async move {
        let domain = TestDomain::new(3, Arc::new(sys.clone()), &[VolumeId(0)]);
        let (here, there) = tokio::io::duplex(64 << 10);
        let server = sys.spawn(writes_heard_with_a_rest(sys.clone(), domain.id(), there));
        let until = Deadline::within(sys.clock(), 10 * MOMENT);
        let remote = Remote::new(Connection::open(&sys, here, until).await.expect("welcome"), As::Anyone);
        let admin = domain.caller(ADMINISTRATOR);
        let call = || Call { until: Deadline::within(sys.clock(), 10 * MOMENT), ..domain.call(&admin, 1) };
        let file = remote.file(&call(), FileId::ROOT, Rights::WRITE).await.expect("it is there");
        let bytes = Arc::new(());
        // More than the queue has room for: some wait to be put there.
        let writes = join_all((0..limits::RPC_QUEUE_FRAMES + 10).map(|_| async {
            let mut data = BytesSource::new(Bytes::from_owner(Kept { _held: bytes.clone() }));
            file.write(&call(), WriteAt::Offset(0), &mut data).await
        }));
        for outcome in writes.await {
            assert_eq!(outcome.expect_err("nobody answers").kind(), ErrorKind::Deadline);
        }
        let left = Arc::strong_count(&bytes) - 1;
        assert!(left <= 1, "{left} of them are kept, and nobody waits for one");
        sys.sleep(HOUR).await;
        let odd = file.sync(&call(), Range::ALL).await.expect_err("it says something else");
        assert_eq!(odd.kind(), ErrorKind::Invalid, "it reads again, and answers");
        drop((file, remote));
        let heard = server.await.expect("the line has ended");
        assert!(heard.len() <= 2, "{} writes were sent", heard.len());
        assert!(heard.iter().all(|bytes| *bytes == limits::PIECE_BYTES_MAX), "each of them whole");
    });
}
