//! Uploads that come in drops, on a simulated clock.

use std::time::Duration;

use async_trait::async_trait;
use weft_core::attr::SetAttr;
use weft_core::form::{At, Call, FileSystem, New, Piece, Range, Source, Stopped, WriteAt, Written, collect};
use weft_core::{Deadline, ErrorKind, FileId, Name, Result, Rights, limits};
use weft_sys::{Sys, simulate};

use crate::{ADMINISTRATOR, World};

/// So many bytes after each pause, so many times.
struct Drops {
    sys: Sys,
    pause: Duration,
    bytes: usize,
    times: usize,
}

#[async_trait]
impl Source for Drops {
    async fn next(&mut self, _max: usize) -> Result<Option<Piece>> {
        if self.times == 0 {
            return Ok(None);
        }
        self.sys.sleep(self.pause).await;
        self.times -= 1;
        Ok(Some(Piece::Bytes(vec![7; self.bytes].into())))
    }

    fn length(&self) -> Option<u64> {
        None
    }

    fn stopped(&self) -> Stopped {
        Box::pin(std::future::pending())
    }
}

/// Uploads in drops; returns what was said, after how long, and what the file then holds.
fn uploaded(bytes: usize, pause: Duration, times: usize) -> (Result<Written>, Duration, usize) {
    simulate(1, |sys| async move {
        let world = World::on(sys.clone());
        let (remote, admin) = (world.remote().await, world.domain.caller(ADMINISTRATOR));
        let until = || Deadline::within(sys.clock(), limits::TRANSFER_WITHIN);
        let call = || Call { until: until(), ..world.domain.call(&admin, 1) };
        let at = At::name(FileId::ROOT, Name::try_from("drops").expect("good"));
        let new = New::File { verifier: None };
        let id = remote.make(&call(), &at, new, &SetAttr::default()).await.expect("it is made").value.id;
        let file = remote.file(&call(), id, Rights::WRITE | Rights::READ).await.expect("it is there");
        let (begun, mut drops) = (sys.clock().tick(), Drops { sys: sys.clone(), pause, bytes, times });
        let said = file.write(&call(), WriteAt::Offset(0), &mut drops).await;
        let took = sys.clock().tick().since(begun);
        let mut source = file.read(&call(), Range::ALL).await.expect("it is read");
        (said, took, collect(&mut *source, 1 << 30).await.expect("bytes").len())
    })
}

#[test]
fn an_upload_that_comes_by_the_byte_is_given_up_and_one_that_is_only_slow_is_not() {
    let pause = limits::TRANSFER_IDLE / 4;
    let (said, took, _) = uploaded(1, pause, 1000);
    assert_eq!(said.expect_err("it is no progress").kind(), ErrorKind::Deadline);
    assert!((limits::TRANSFER_IDLE..limits::TRANSFER_IDLE + pause).contains(&took), "after {took:?}");
    let least = limits::TRANSFER_PROGRESS_BYTES as usize / 2;
    let (said, _, held) = uploaded(least, pause, 100);
    assert_eq!((said.expect("it is slow").bytes as usize, held), (100 * least, 100 * least));
}

/// What brings no bytes at all is no progress, either.
#[test]
fn an_upload_that_stands_still_is_given_up_as_soon() {
    let (said, took, held) = uploaded(1, 2 * limits::TRANSFER_IDLE, 1);
    assert_eq!(said.expect_err("nothing came").kind(), ErrorKind::Deadline);
    assert_eq!((took.as_secs(), held), (limits::TRANSFER_IDLE.as_secs(), 0));
}
