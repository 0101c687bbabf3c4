//! Valid calls of every kind, for frames to be made of and mutated.

pub(super) mod services;

use bytes::Bytes;
use weft_core::attr::{SetAttr, TagEdit, TagMust, TagName};
use weft_core::form::{
    At, ChangeSeq, Cursor, Expect, Guard, Lock, LockKind, LockOwner, LockScope, New, OpenHow, PageMax, Range,
    Replace, Request, Scope, Seek, Shape, StageHint, SyncScope, Want, Whole, WriteAt,
};
use weft_core::policy::PolicyEdit;
use weft_core::{FileId, RelPath, RequestId, Rights, StageId, TraceId, VolumeId};

use super::Frame;
use crate::message::{AuthorityAsk, CallBody, CallHeader, FileAsk, FileRef, Put, StageAsk, ToServer};

fn at() -> At {
    At::root(RelPath::new("a/b/c").expect("a path"))
}

/// One request of each kind.
fn requests() -> Vec<Request> {
    let (at, guard, set) = (at(), Guard::default(), SetAttr { mode: Some(0o640), ..SetAttr::default() });
    let name = TagName::new("t").expect("a name");
    let tag = TagEdit::Put { name: name.clone(), value: Bytes::from_static(b"value"), must: TagMust::Any };
    vec![
        Request::Walk { at: at.clone(), want: Want::default() },
        Request::List {
            dir: at.clone(),
            from: Cursor::Cookie(7),
            max: PageMax::new(100),
            want: Want::default(),
        },
        Request::Make { at: at.clone(), new: New::Symlink(Bytes::from_static(b"to")), set: set.clone() },
        Request::Link { file: at.clone(), to: at.clone() },
        Request::Rename { from: at.clone(), to: at.clone(), how: Replace::Exchange, guard },
        Request::Remove { at: at.clone(), kind: Expect::Any, guard },
        Request::Target { at: at.clone() },
        Request::Set { at: at.clone(), set, guard },
        Request::Tags { at: at.clone(), from: Some(name) },
        Request::Tag { at: at.clone(), edits: vec![tag], guard },
        Request::Policy { at: at.clone() },
        Request::Protect { at: at.clone(), scope: Scope::Subtree, edit: PolicyEdit::default() },
        Request::Why { at: at.clone(), need: Rights::READ, who: None },
        Request::Space { at: at.clone() },
        Request::Copy { from: at.clone(), range: Range::ALL, to: at.clone(), offset: 9 },
        Request::Stages { dir: at.clone(), from: Some(StageId(3)) },
        Request::Sync { at: at.clone(), scope: SyncScope::Volume },
        Request::Watch { at, since: ChangeSeq(5) },
    ]
}

fn file_asks() -> Vec<FileAsk> {
    vec![
        FileAsk::Check,
        FileAsk::Attr,
        FileAsk::Read(Range::ALL),
        FileAsk::Write { at: WriteAt::End, whole: true },
        FileAsk::Shape(Shape::Punch { at: 1, length: 2 }),
        FileAsk::Seek(3, Seek::Hole),
        FileAsk::Sync(Range::ALL),
        FileAsk::Close,
        FileAsk::Digests(9),
        FileAsk::WriteLent { at: WriteAt::Offset(3), from: 80, length: 7 },
        FileAsk::Lend(Range::ALL),
    ]
}

fn stage_asks() -> Vec<StageAsk> {
    vec![
        StageAsk::Put { number: 1, offset: 0, whole: false },
        StageAsk::Parts(2),
        StageAsk::Publish { parts: Vec::new(), set: Box::default(), guard: Guard::default() },
        StageAsk::Discard,
    ]
}

/// Frames with one call of each kind.
pub(super) fn frames() -> Vec<Frame> {
    let header = CallHeader {
        credential: 2,
        session: 1,
        once: Some(RequestId(4)),
        ack: weft_core::form::Ack::Durable,
        wire: weft_core::form::Wire::default(),
        trace: TraceId(9),
        left_ms: 1000,
    };
    let lock = Lock {
        scope: LockScope::Whole,
        kind: LockKind::Exclusive,
        owner: LockOwner(Bytes::from_static(b"o")),
    };
    let mut bodies: Vec<CallBody> = requests().into_iter().map(CallBody::Request).collect();
    bodies.push(CallBody::Batch(requests()));
    bodies.push(CallBody::Open(at(), OpenHow::default()));
    bodies.extend(
        file_asks().into_iter().map(|ask| CallBody::File(FileRef::Id(FileId::ROOT, Rights::READ), ask)),
    );
    bodies.push(CallBody::Stage(at(), StageHint::default()));
    bodies.push(CallBody::Staged(StageId(3)));
    bodies.extend(stage_asks().into_iter().map(|ask| CallBody::OnStage(StageId(3), ask)));
    bodies.push(CallBody::Lock(at(), lock.clone(), Some(10)));
    bodies.push(CallBody::Test(at(), lock.clone()));
    bodies.push(CallBody::Unlock(at(), lock));
    bodies.push(CallBody::Authority(AuthorityAsk::WhoAmI));
    bodies.push(CallBody::Supports(VolumeId(0)));
    let whole = Whole { digest: [7; 32], set: SetAttr::default(), guard: Guard::default() };
    bodies.push(CallBody::Put(at(), Box::new(whole.clone())));
    bodies.push(CallBody::PutAll(vec![Put { at: at(), bytes: 3, whole }]));
    let frame = |body| Frame::new(5, &ToServer::Call { header, body }, Bytes::new());
    bodies.into_iter().map(frame).collect()
}

/// A request that is added to the form stands here before it is fuzzed: this does not compile
/// without it, and fails until [`requests`] has one.
#[test]
fn every_kind_of_request_is_among_those_that_are_mutated() {
    fn place(request: &Request) -> usize {
        match request {
            Request::Walk { .. } => 0,
            Request::List { .. } => 1,
            Request::Make { .. } => 2,
            Request::Link { .. } => 3,
            Request::Rename { .. } => 4,
            Request::Remove { .. } => 5,
            Request::Target { .. } => 6,
            Request::Set { .. } => 7,
            Request::Tags { .. } => 8,
            Request::Tag { .. } => 9,
            Request::Policy { .. } => 10,
            Request::Protect { .. } => 11,
            Request::Why { .. } => 12,
            Request::Space { .. } => 13,
            Request::Copy { .. } => 14,
            Request::Stages { .. } => 15,
            Request::Sync { .. } => 16,
            Request::Watch { .. } => 17,
        }
    }
    assert!(requests().iter().map(place).eq(0..18));
    let asks = file_asks().into_iter().map(|ask| match ask {
        FileAsk::Check => 0,
        FileAsk::Attr => 1,
        FileAsk::Read(_) => 2,
        FileAsk::Write { .. } => 3,
        FileAsk::Shape(_) => 4,
        FileAsk::Seek(..) => 5,
        FileAsk::Sync(_) => 6,
        FileAsk::Close => 7,
        FileAsk::Digests(_) => 8,
        FileAsk::WriteLent { .. } => 9,
        FileAsk::Lend(_) => 10,
    });
    assert!(asks.eq(0..11));
    let asks = stage_asks().into_iter().map(|ask| match ask {
        StageAsk::Put { .. } => 0,
        StageAsk::Parts(_) => 1,
        StageAsk::Publish { .. } => 2,
        StageAsk::Discard => 3,
    });
    assert!(asks.eq(0..4));
    for frame in frames() {
        frame.message::<ToServer>().expect("it is valid before it is mutated");
    }
}
