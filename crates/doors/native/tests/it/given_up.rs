//! Calls that nobody waits for any more, on a simulated clock: what they would have held is not held.

use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use weft_core::attr::SetAttr;
use weft_core::form::{
    At, Expect, FileSystem, Guard, Lock, LockKind, LockOwner, LockScope, New, OpenHow, Wait, Want,
};
use weft_core::{Deadline, ErrorKind, FileId, Name, Rights};
use weft_sys::simulate;

use crate::{ADMINISTRATOR, World};

const MOMENT: Duration = Duration::from_secs(1);

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
