//! What a mount relies on when its node goes away and comes back.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use weft_client::steady::Steady;
use weft_core::attr::SetAttr;
use weft_core::form::{
    At, BytesSource, Call, Expect, FileSystem, Guard, Lock, LockKind, LockOwner, LockRange, LockScope, Make,
    New, OpenFile, OpenHow, Range, Request, Wait, Want, WriteAt, collect,
};
use weft_core::{Deadline, ErrorKind, FileId, RequestId, Result, Rights};
use weft_rpc::{CallBody, Connection};

use crate::node::Node;

fn name(name: &str) -> At {
    At::root(name.try_into().expect("a name"))
}

fn how(need: Rights) -> OpenHow {
    let make = Some(Make { exclusive: false, set: SetAttr::default() });
    OpenHow { need, make, ..OpenHow::default() }
}

async fn write(fs: &dyn FileSystem, call: &Call, file: &str, bytes: &str, at: WriteAt) -> Arc<dyn OpenFile> {
    let opened = fs.open(call, &name(file), &how(Rights::READ | Rights::WRITE)).await.expect("opened");
    let mut source = BytesSource::new(bytes.to_owned().into_bytes());
    opened.file.write(call, at, &mut source).await.expect("written");
    opened.file
}

async fn read(file: &dyn OpenFile, call: &Call) -> Result<String> {
    let mut source = file.read(call, Range::ALL).await?;
    let bytes = collect(&mut *source, usize::MAX).await?;
    Ok(String::from_utf8(bytes.to_vec()).expect("text"))
}

async fn stored(node: &Node, file: &str) -> String {
    let call = node.other();
    let (at, how) = (name(file), OpenHow { need: Rights::READ, ..OpenHow::default() });
    let opened = node.model.open(&call, &at, &how).await.expect("opened");
    read(&*opened.file, &call).await.expect("read")
}

/// Waits until a line is known to have ended.
async fn ended(line: &Connection) {
    let until = std::time::Instant::now() + Duration::from_secs(30);
    while line.ended().is_none() {
        assert!(std::time::Instant::now() < until, "the line stands");
        tokio::task::yield_now().await;
    }
}

/// Any call that is not about the file: what brings the next link.
async fn look(steady: &Steady, node: &Node) {
    steady.walk(&node.call(), &At::id(FileId::ROOT), Want::default()).await.expect("it answers");
}

/// Restarts the node, and lets the client come back.
async fn restart(node: &Node, line: &Connection, steady: &Steady) {
    node.restart().await;
    ended(line).await;
    look(steady, node).await;
}

fn lock(kind: LockKind, at: u64, length: u64) -> Lock {
    let scope = LockScope::Range(LockRange { at, length });
    Lock { scope, kind, owner: LockOwner(Bytes::from_static(b"me")) }
}

#[tokio::test]
async fn an_idle_file_is_opened_again_with_the_first_call_after_a_restart() {
    let node = Node::up();
    let (steady, line) = node.steady().await;
    let files: Vec<_> =
        futures_util::future::join_all(["a", "b", "c"].map(|file| write_in(&steady, &node, file))).await;
    restart(&node, &line, &steady).await;
    for file in ["a", "b", "c"] {
        node.model
            .remove(&node.other(), &name(file), Expect::NotDirectory, &Guard::NONE)
            .await
            .expect("removed");
    }
    for file in files {
        assert_eq!(read(&*file, &node.call()).await.expect("it is open still"), "bytes");
    }
}

async fn write_in(steady: &Steady, node: &Node, file: &str) -> Arc<dyn OpenFile> {
    write(steady, &node.call(), file, "bytes", WriteAt::Offset(0)).await
}

#[tokio::test]
async fn a_file_that_was_closed_is_not_opened_again() {
    let node = Node::up();
    let (steady, line) = node.steady().await;
    let file = write_in(&steady, &node, "f").await;
    file.close(&node.call()).await.expect("closed");
    let id = file.id();
    drop(file);
    restart(&node, &line, &steady).await;
    node.model.remove(&node.other(), &name("f"), Expect::NotDirectory, &Guard::NONE).await.expect("removed");
    let gone = node.model.walk(&node.other(), &At::id(id), Want::default()).await;
    assert_eq!(gone.expect_err("nobody has it open").kind(), ErrorKind::Stale);
}

#[tokio::test]
async fn a_lock_that_the_node_could_not_give_back_at_once_is_asked_for_again() {
    let node = Node::up();
    let (steady, line) = node.steady().await;
    let file = write_in(&steady, &node, "f").await;
    let at = At::id(file.id());
    steady.lock(&node.call(), &at, &lock(LockKind::Exclusive, 0, 10), Wait::No).await.expect("free");
    node.be_busy(3);
    restart(&node, &line, &steady).await;
    let other = lock(LockKind::Shared, 0, 0);
    let refused = node.model.lock(&node.other(), &at, &other, Wait::No).await;
    assert_eq!(refused.expect_err("it is held").kind(), ErrorKind::Locked);
    assert_eq!(read(&*file, &node.call()).await.expect("nothing was lost"), "bytes");
}

#[tokio::test]
async fn a_file_whose_lock_is_somebody_elses_now_is_neither_read_nor_written_until_it_is_given_up() {
    let node = Node::up();
    let (steady, line) = node.steady().await;
    let (file, same) = (write_in(&steady, &node, "f").await, write_in(&steady, &node, "f").await);
    let free = write_in(&steady, &node, "free").await;
    let at = At::id(file.id());
    steady.lock(&node.call(), &at, &lock(LockKind::Exclusive, 0, 10), Wait::No).await.expect("free");
    node.go_away();
    node.end_sessions()();
    let rival = lock(LockKind::Exclusive, 5, 1);
    node.model.lock(&node.other(), &at, &rival, Wait::No).await.expect("free now");
    node.come_back();
    ended(&line).await;
    let call = node.call();
    for used in [&file, &same] {
        assert_eq!(read(&**used, &call).await.expect_err("the lock is lost").kind(), ErrorKind::Stale);
        let mut source = BytesSource::new("over");
        let written = used.write(&call, WriteAt::Offset(0), &mut source).await;
        assert_eq!(written.expect_err("the lock is lost").kind(), ErrorKind::Stale);
        let synced = used.sync(&call, Range::ALL).await;
        assert_eq!(synced.expect_err("the lock is lost").kind(), ErrorKind::Stale);
    }
    let copied = steady.copy(&call, &At::id(free.id()), Range::ALL, &at, 0).await;
    assert_eq!(copied.expect_err("the lock is lost").kind(), ErrorKind::Stale);
    assert_eq!(read(&*free, &call).await.expect("no lock of it was lost"), "bytes");
    steady.unlock(&call, &at, &lock(LockKind::Exclusive, 0, 0)).await.expect("given up");
    assert_eq!(read(&*file, &call).await.expect("nobody relies on the lock any more"), "bytes");
}

/// What a mount that lost its session finds when the next line is cut as well, while `which`
/// is carried out over it.
async fn lose_the_line_twice(which: fn(&CallBody) -> bool) {
    let node = Node::up();
    let (steady, line) = node.steady().await;
    let mut files = Vec::new();
    for file in ["a", "b"] {
        let file = write_in(&steady, &node, file).await;
        let at = At::id(file.id());
        steady.lock(&node.call(), &at, &lock(LockKind::Exclusive, 0, 10), Wait::No).await.expect("free");
        files.push(file);
    }
    node.go_away();
    node.end_sessions()();
    node.come_back();
    node.cut_at(which, || {});
    ended(&line).await;
    let mut source = BytesSource::new("BYTES");
    let written = files[0].write(&node.call(), WriteAt::Offset(0), &mut source).await;
    written.expect("nothing of it was sent over either line");
    for (file, bytes) in files.into_iter().zip(["BYTES", "bytes"]) {
        let rival = lock(LockKind::Shared, 0, 10);
        let refused = node.model.lock(&node.other(), &At::id(file.id()), &rival, Wait::No).await;
        assert_eq!(refused.expect_err("it is held").kind(), ErrorKind::Locked);
        assert_eq!(read(&*file, &node.call()).await.expect("nothing was lost"), bytes);
    }
}

#[tokio::test]
async fn a_line_that_is_lost_while_locks_are_taken_again_costs_none_of_them() {
    lose_the_line_twice(|body| matches!(body, CallBody::Lock(..))).await;
}

#[tokio::test]
async fn a_line_that_is_lost_while_files_are_opened_again_costs_no_lock() {
    lose_the_line_twice(|body| matches!(body, CallBody::Open(..))).await;
}

#[tokio::test]
async fn a_part_of_a_lock_that_was_given_up_is_not_taken_again() {
    let node = Node::up();
    let (steady, line) = node.steady().await;
    let (call, file) = (node.call(), write_in(&steady, &node, "f").await);
    let at = At::id(file.id());
    steady.lock(&call, &at, &lock(LockKind::Exclusive, 0, 100), Wait::No).await.expect("free");
    steady.unlock(&call, &at, &lock(LockKind::Exclusive, 10, 10)).await.expect("given up");
    restart(&node, &line, &steady).await;
    let others = |at, length| lock(LockKind::Exclusive, at, length);
    node.model.lock(&node.other(), &at, &others(10, 10), Wait::No).await.expect("it is free");
    for held in [others(0, 10), others(20, 80)] {
        let refused = node.model.lock(&node.other(), &at, &held, Wait::No).await;
        assert_eq!(refused.expect_err("it is held").kind(), ErrorKind::Locked);
    }
}

#[tokio::test]
async fn an_unlock_that_was_refused_leaves_the_lock_to_be_taken_again() {
    let node = Node::up();
    let (steady, line) = node.steady().await;
    let (call, file) = (node.call(), write_in(&steady, &node, "f").await);
    let at = At::id(file.id());
    steady.lock(&call, &at, &lock(LockKind::Exclusive, 0, 10), Wait::No).await.expect("free");
    node.be_busy(1);
    let refused = steady.unlock(&call, &at, &lock(LockKind::Exclusive, 0, 10)).await;
    assert_eq!(refused.expect_err("it was not done").kind(), ErrorKind::Busy);
    restart(&node, &line, &steady).await;
    let rival = node.model.lock(&node.other(), &at, &lock(LockKind::Shared, 0, 10), Wait::No).await;
    assert_eq!(rival.expect_err("it is held").kind(), ErrorKind::Locked);
}

/// Writes as somebody else does while the line is cut.
fn append_as_another(node: &Node, file: &'static str) -> impl FnOnce() + Send + 'static {
    let (model, call) = (node.model.clone(), node.other());
    move || {
        let appended = async { write(&*model, &call, file, "more", WriteAt::End).await };
        // The model never waits for anything.
        drop(futures_util::FutureExt::now_or_never(appended).expect("at once"));
    }
}

#[tokio::test]
async fn an_open_that_cuts_is_not_made_a_second_time() {
    let node = Node::up();
    let (steady, _) = node.steady().await;
    drop(write_in(&steady, &node, "f").await);
    node.cut_at(|body| matches!(body, CallBody::Open(_, how) if how.truncate), append_as_another(&node, "f"));
    let cut = OpenHow { truncate: true, ..how(Rights::WRITE) };
    let call = Call { once: Some(RequestId(1)), ..node.call() };
    let unknown = steady.open(&call, &name("f"), &cut).await.map(drop).expect_err("nobody knows");
    assert_eq!(unknown.kind(), ErrorKind::Unavailable);
    assert_eq!(unknown.operation(), "hear the node's answer");
    assert_eq!(stored(&node, "f").await, "more", "what another wrote after the cut stays");
}

#[tokio::test]
async fn a_call_that_reaches_no_node_says_at_which_step_it_was() {
    let node = Node::up();
    let (steady, line) = node.steady().await;
    node.go_away();
    ended(&line).await;
    let soon = Deadline::within(node.sys.clock(), Duration::from_millis(300));
    let call = Call { until: soon, ..node.call() };
    let unreached = steady.walk(&call, &At::id(FileId::ROOT), Want::default()).await.expect_err("it is away");
    assert!(unreached.operation().starts_with("reach the node"), "{unreached}");
}

#[tokio::test]
async fn an_open_that_cuts_is_made_over_the_next_line_if_it_was_never_sent() {
    let node = Node::up();
    let (steady, line) = node.steady().await;
    drop(write_in(&steady, &node, "f").await);
    node.restart().await;
    ended(&line).await;
    let cut = OpenHow { truncate: true, ..how(Rights::WRITE) };
    steady.open(&node.call(), &name("f"), &cut).await.expect("nothing was sent over the line that ended");
    assert_eq!(stored(&node, "f").await, "");
}

#[tokio::test]
async fn an_open_of_what_must_be_new_does_not_find_its_own_in_the_way() {
    let node = Node::up();
    let (steady, _) = node.steady().await;
    node.cut_at(|body| matches!(body, CallBody::Open(..)), || {});
    let make = Some(Make { exclusive: true, set: SetAttr::default() });
    let new = OpenHow { need: Rights::WRITE, make, ..OpenHow::default() };
    let call = Call { once: Some(RequestId(1)), ..node.call() };
    let unknown = steady.open(&call, &name("lock"), &new).await.map(drop).expect_err("nobody knows");
    assert_eq!(unknown.kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_copy_is_not_made_a_second_time() {
    let node = Node::up();
    let (steady, _) = node.steady().await;
    let (from, to) = (write_in(&steady, &node, "from").await, write_in(&steady, &node, "to").await);
    let (model, call) = (node.model.clone(), node.other());
    node.cut_at(
        |body| matches!(body, CallBody::Request(Request::Copy { .. })),
        move || {
            let written = async { write(&*model, &call, "to", "BYTES", WriteAt::Offset(0)).await };
            drop(futures_util::FutureExt::now_or_never(written).expect("at once"));
        },
    );
    let copied = steady.copy(&node.call(), &At::id(from.id()), Range::ALL, &At::id(to.id()), 0).await;
    assert_eq!(copied.expect_err("nobody knows").kind(), ErrorKind::Unavailable);
    assert_eq!(stored(&node, "to").await, "BYTES", "what another wrote after the copy stays");
}

#[tokio::test]
async fn a_change_is_repeated_under_its_mark_and_only_in_the_session_of_the_mark() {
    let node = Node::up();
    let (steady, _) = node.steady().await;
    let makes: fn(&CallBody) -> bool = |body| matches!(body, CallBody::Request(Request::Make { .. }));
    let make = |file: &'static str, mark: u64| {
        let (steady, call) = (steady.clone(), Call { once: Some(RequestId(mark)), ..node.call() });
        async move { steady.make(&call, &name(file), New::Directory, &SetAttr::default()).await }
    };
    node.cut_at(makes, || {});
    make("one", 1).await.expect("it is made once, and answered the second time");
    node.cut_at(makes, node.end_sessions());
    let unknown = make("two", 2).await.expect_err("the mark means nothing in another session");
    assert_eq!(unknown.kind(), ErrorKind::Unavailable);
    node.model.walk(&node.other(), &name("two"), Want::default()).await.expect("it was made");
}
