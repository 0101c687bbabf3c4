//! A server that says welcome and nothing more: every wait of a client ends.

use std::time::Duration;

use bytes::Bytes;
use tokio::io::DuplexStream;
use weft_conformance::TestDomain;
use weft_core::attr::{Attr, Kind, Version};
use weft_core::form::{
    At, BytesSource, FileSystem, OpenHow, Reply, Request, Source, StageHint, Supports, Walked, Want,
};
use weft_core::service::{Node, Tokens, TokensOf};
use weft_core::{
    Deadline, Error, ErrorKind, FileId, Result, Rights, SessionId, StageId, Time, TokenId, VolumeId, limits,
};
use weft_rpc::{
    Answer, As, CallBody, Connection, FileAsk, Frame, FrameReader, Remote, ToClient, ToServer, write_frame,
};
use weft_sys::{Sys, simulate};

use crate::{HERE, begun, welcome};

/// What the server still does once it has said welcome.
#[derive(Clone, Copy, Debug)]
enum Server {
    /// Nothing: it does not even read.
    Deaf,
    /// It reads, and answers nothing.
    Mute,
    /// It begins sessions, opens and stages, and answers no call about them.
    Opens,
    /// It asks for one piece of an upload, too.
    Pulls,
    /// Whatever is walked to is of volume 1, and of that volume it knows what it can do.
    Shares,
    /// It is of version 1, and hangs up when it is asked what only later ones know.
    Old,
}

async fn serve(server: Server, domain: weft_core::DomainId, line: DuplexStream) {
    let (from, mut to) = tokio::io::split(line);
    let mut frames = FrameReader::new(from);
    while let Ok(Some(frame)) = frames.next().await {
        let answer = match (frame.message().expect("ours"), server) {
            (ToServer::Hello { newest, .. }, _) => {
                let supports = Supports { watch: true, ..Supports::NOTHING };
                let version = if matches!(server, Server::Old) { 1 } else { newest };
                Some(welcome(domain, version, supports))
            }
            (_, Server::Deaf) => std::future::pending().await,
            (_, Server::Mute) => None,
            (ToServer::Begin { session, .. }, _) => Some(begun(session)),
            (ToServer::Call { body: CallBody::Staged(_), .. }, _) => {
                Some(ToClient::Reply(Box::new(Ok(Answer::Stage(StageId(1))))))
            }
            (ToServer::Call { body: CallBody::File(_, FileAsk::Check), .. }, Server::Old) => {
                Some(ToClient::Reply(Box::new(Ok(Answer::Done))))
            }
            (ToServer::Call { .. }, Server::Old) => return,
            (ToServer::Call { body: CallBody::Request(Request::Walk { .. }), .. }, Server::Shares) => {
                let walked = Walked { attr: of_volume_1(), rights: None, parent: None };
                Some(ToClient::Reply(Box::new(Ok(Answer::Reply(Reply::Walk(walked))))))
            }
            (ToServer::Call { body: CallBody::Supports(VolumeId(1)), .. }, Server::Shares) => {
                let supports = Supports { locks: true, ..Supports::NOTHING };
                Some(ToClient::Reply(Box::new(Ok(Answer::Supports(supports)))))
            }
            (ToServer::Call { body: CallBody::OnStage(..), .. }, Server::Pulls) => {
                Some(ToClient::Grant(limits::RPC_WINDOW_BYTES))
            }
            _ => None,
        };
        if let Some(answer) = answer {
            write_frame(&mut to, &Frame::new(frame.stream, &answer, Bytes::new())).await.expect("it is read");
        }
    }
}

/// Bytes without end.
fn endless() -> impl Source {
    BytesSource::new(Bytes::from(vec![7; 8 * limits::PIECE_BYTES_MAX]))
}

/// Returns what a client met, and after how long.
async fn met<T>(sys: &Sys, act: impl Future<Output = Result<T>>) -> (Option<ErrorKind>, Duration) {
    let before = sys.clock().tick();
    let outcome = act.await.err().as_ref().map(Error::kind);
    (outcome, sys.clock().tick().since(before))
}

#[test]
fn a_server_that_never_answers_is_found_out_by_each_wait_of_a_client() {
    for server in [Server::Deaf, Server::Mute, Server::Opens, Server::Pulls] {
        simulate(1, |sys| async move {
            let domain = TestDomain::new(3, std::sync::Arc::new(sys.clone()), &[VolumeId(0)]);
            let (here, there) = tokio::io::duplex(64 << 10);
            drop(sys.spawn(serve(server, domain.id(), there)));
            let until = Deadline::within(sys.clock(), Duration::from_secs(10));
            let connection = Connection::open(&sys, here, until).await.expect("welcome");
            let remote = Remote::new(connection, As::Anyone);
            let alice = domain.caller("alice");
            let call = |session, within| {
                let until = Deadline::within(sys.clock(), within);
                weft_core::form::Call { until, ..domain.call(&alice, session) }
            };
            let small = limits::CALL_DEADLINE + 2 * limits::RPC_ANSWER_GRACE;
            let mut waits = Vec::new();
            if matches!(server, Server::Deaf | Server::Mute) {
                waits.push(("begin", small, met(&sys, remote.begin(&alice, SessionId(7))).await));
            }
            let (root, how, hint) = (At::id(FileId::ROOT), OpenHow::default(), StageHint::default());
            let soon = || call(1, limits::CALL_DEADLINE);
            let now = soon();
            waits.push(("walk", small, met(&sys, remote.walk(&now, &root, Want::default())).await));
            waits.push(("who am i", small, met(&sys, remote.who_am_i(&alice)).await));
            let now = soon();
            waits.push(("open", small, met(&sys, remote.open(&now, &root, &how)).await));
            let now = soon();
            waits.push(("stage", small, met(&sys, remote.stage(&now, &root, &hint)).await));
            if matches!(server, Server::Opens | Server::Pulls) {
                let stage =
                    remote.staged(&call(1, limits::CALL_DEADLINE), StageId(1)).await.expect("it opens");
                let upload = call(1, limits::TRANSFER_WITHIN);
                let stalled = limits::RPC_STALL * 2 + Duration::from_secs(1);
                let mut data = endless();
                let put = met(&sys, stage.put(&upload, 1, 0, &mut data)).await;
                waits.push(("upload", stalled, put));
                let short = call(1, Duration::from_secs(5));
                let mut data = endless();
                let put = met(&sys, stage.put(&short, 1, 0, &mut data)).await;
                waits.push(("short upload", Duration::from_secs(8), put));
            }
            for (what, most, (outcome, took)) in waits {
                assert_eq!(outcome, Some(ErrorKind::Deadline), "{server:?}: {what}");
                assert!(took <= most, "{server:?}: {what} took {took:?}");
            }
        });
    }
}

/// Returns a client of such a server.
async fn client(sys: &Sys, domain: &TestDomain, server: Server) -> Remote {
    let (here, there) = tokio::io::duplex(64 << 10);
    drop(sys.spawn(serve(server, domain.id(), there)));
    let until = Deadline::within(sys.clock(), Duration::from_secs(10));
    Remote::new(Connection::open(sys, here, until).await.expect("welcome"), As::Anyone)
}

/// Returns the attributes of a directory of volume 1.
fn of_volume_1() -> Attr {
    Attr {
        id: FileId::new(VolumeId(1), 1, 0),
        kind: Kind::Directory,
        mode: 0o755,
        links: 2,
        owner: weft_core::CallerId(0),
        group: weft_core::CallerId(0),
        size: 0,
        used: 0,
        atime: Time::EPOCH,
        mtime: Time::EPOCH,
        ctime: Time::EPOCH,
        btime: Time::EPOCH,
        change: 0,
        version: Version(0),
        container: weft_core::ContainerId(1),
    }
}

#[test]
fn a_client_knows_what_a_volume_can_do_once_it_has_come_to_it_and_assumes_nothing_before() {
    simulate(1, |sys| async move {
        let domain = TestDomain::new(3, std::sync::Arc::new(sys.clone()), &[VolumeId(0)]);
        let remote = client(&sys, &domain, Server::Shares).await;
        let call = domain.call(&domain.caller("alice"), 1);
        assert_eq!(remote.supports(VolumeId(1)), Supports::NOTHING);
        let root = At::id(FileId::ROOT);
        let walked = remote.walk(&call, &root, Want::default()).await.expect("it is there");
        assert_eq!(walked.attr.id.volume(), VolumeId(1));
        let [here, there] = [0, 1].map(|volume| remote.supports(VolumeId(volume)));
        assert_eq!([(here.watch, here.locks), (there.watch, there.locks)], [(true, false), (false, true)]);
    });
}

#[test]
fn a_node_of_version_1_is_not_asked_about_shares_and_tokens() {
    simulate(1, |sys| async move {
        let domain = TestDomain::new(3, std::sync::Arc::new(sys.clone()), &[VolumeId(0)]);
        let remote = client(&sys, &domain, Server::Old).await;
        let (alice, at) = (domain.caller("alice"), weft_core::RelPath::EMPTY);
        let refused = [
            remote.share(&alice, HERE, "/srv", &at).await.map(drop),
            remote.unshare(&alice, &at).await.map(drop),
            remote.shares(&alice).await.map(drop),
            remote.tokens(&alice, &TokensOf::Caller, None).await.map(drop),
            remote.end_token(&alice, TokenId(1)).await.map(drop),
        ];
        for refused in refused {
            assert_eq!(refused.expect_err("it does not know them").kind(), ErrorKind::Unsupported);
        }
        assert!(remote.connection().ended().is_none(), "it was asked, and hung up");
    });
}

#[test]
fn a_node_of_version_1_is_not_asked_for_digests_and_nothing_is_believed_in_their_place() {
    simulate(1, |sys| async move {
        let domain = TestDomain::new(3, std::sync::Arc::new(sys.clone()), &[VolumeId(0)]);
        let remote = client(&sys, &domain, Server::Old).await;
        let call = domain.call(&domain.caller("alice"), 1);
        let file = remote.file(&call, FileId::ROOT, Rights::READ).await.expect("it is there");
        let refused = file.digests(&call, 0).await.expect_err("it does not know them");
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
        assert!(remote.connection().ended().is_none(), "it was asked, and hung up");
    });
}
