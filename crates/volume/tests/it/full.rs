//! Laws of a full disk: uploads that rest make room for those that go on, and what could not be
//! written is not said to be there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use async_trait::async_trait;

use weft_conformance::file_system::site::*;
use weft_core::form::{Ack, BytesSource, Call, Piece, Source, Stage, StageHint, Stopped};
use weft_core::limits::{FULL_ROOM_WAIT, FULL_STAGE_IDLE, PIECE_BYTES_MAX};
use weft_core::{Error, ErrorKind, Result, StageId, attr::SetAttr};
use weft_sys::{SimDisk, simulate};
use weft_volume::managed::Unfinished;

use super::in_place::{published, soon, unsteady_on};
use super::site::Volume;
use super::slow::rest;
use super::unsteady_store::Op;

const BYTES: usize = 100_000;

/// Begins an upload and leaves it.
async fn left(site: &Site<'_>, path: &str) -> Arc<dyn Stage> {
    let stage = site.fs.stage(&site.call(), &at(path), &StageHint::default()).await.works();
    stage.put(&site.call(), 1, 0, &mut BytesSource::new(pattern(BYTES, 1))).await.works();
    stage
}

#[test]
fn a_file_is_not_published_without_what_may_be_lost_of_it() {
    simulate(4, |sys| async move {
        let (volume, store) = unsteady_on(&sys, &SimDisk::new()).await;
        let site = Site::of(&volume);
        site.file("f", b"as it was").await;
        let stage = site.fs.stage(&site.call(), &at("f"), &StageHint::default()).await.works();
        let bytes = || BytesSource::new(pattern(BYTES, 1));
        let part = stage.put(&site.call(), 1, 0, &mut bytes()).await.works();
        store.lose();
        for parts in [&[][..], &[part]] {
            let call = site.call().durable();
            let published = stage.publish(&call, parts, &SetAttr::default(), &free()).await;
            assert_eq!(published.fails(), ErrorKind::Conflict);
        }
        let id = site.find("f").await.works();
        assert_eq!(site.read(id).await[..], *b"as it was");
        // Sent once more it is a file as any other.
        stage.put(&site.call(), 1, 0, &mut bytes()).await.works();
        stage.publish(&site.call().durable(), &[], &SetAttr::default(), &free()).await.works();
        assert!(site.read(id).await[..] == pattern(BYTES, 1)[..]);
    });
}

#[test]
fn uploads_that_rest_are_given_up_on_a_full_disk_the_oldest_first_and_no_more_than_needed() {
    simulate(1, |sys| async move {
        let (volume, store) = unsteady_on(&sys, &SimDisk::new()).await;
        let site = Site::of(&volume);
        sys.sleep(FULL_STAGE_IDLE).await;
        let oldest = left(&site, "oldest").await;
        sys.sleep(FULL_STAGE_IDLE / 2).await;
        let older = left(&site, "older").await;
        sys.sleep(FULL_STAGE_IDLE).await;
        let fresh = left(&site, "fresh").await;
        let unfinished = volume.running().managed.unfinished().works();
        assert_eq!(unfinished, Unfinished { uploads: 3, bytes: 3 * BYTES as u64 });
        // While there is room nobody loses anything.
        published(&site, "before", &pattern(BYTES, 2)).await;
        assert_eq!(volume.running().managed.unfinished().works(), unfinished);
        store.leave_free(10);
        soon(&sys, "an upload", published(&site, "f", &pattern(BYTES, 3))).await;
        let call = site.call();
        assert_eq!(oldest.parts(&call, 1).await.fails(), ErrorKind::NotFound);
        for stage in [&older, &fresh] {
            assert_eq!(stage.parts(&call, 1).await.works().parts.len(), 1);
        }
        // What somebody works on is never given up, and nobody waits for it.
        store.leave_free(10);
        soon(&sys, "an upload", published(&site, "g", &pattern(BYTES, 3))).await;
        store.leave_free(10);
        let began = sys.clock().tick();
        soon(&sys, "an upload", published(&site, "h", &pattern(BYTES, 3))).await;
        assert!(sys.clock().tick().since(began) <= FULL_ROOM_WAIT * 2);
        let call = site.call();
        assert_eq!(older.parts(&call, 1).await.fails(), ErrorKind::NotFound);
        assert_eq!(fresh.parts(&call, 1).await.works().parts.len(), 1);
        let unfinished = volume.running().managed.unfinished().works();
        assert_eq!(unfinished, Unfinished { uploads: 1, bytes: BYTES as u64 });
    });
}

/// Says whether its turn was given back since it last handed bytes out.
struct Turn {
    bytes: BytesSource,
    yielded: Arc<AtomicBool>,
}

#[async_trait]
impl Source for Turn {
    async fn next(&mut self, max: usize) -> Result<Option<Piece>> {
        self.yielded.store(false, Ordering::Release);
        self.bytes.next(max).await
    }

    fn length(&self) -> Option<u64> {
        self.bytes.length()
    }

    fn stopped(&self) -> Stopped {
        self.bytes.stopped()
    }

    fn yield_turn(&mut self) {
        self.yielded.store(true, Ordering::Release);
    }
}

#[test]
fn an_upload_that_waits_for_room_or_for_another_of_the_same_part_lets_others_move_theirs() {
    simulate(5, |sys| async move {
        let (volume, store) = unsteady_on(&sys, &SimDisk::new()).await;
        let site = Site::of(&volume);
        let stage = site.fs.stage(&site.call(), &at("f"), &StageHint::default()).await.works();
        store.leave_free(10);
        let mut puts = Vec::new();
        for why in ["for room", "for the other"] {
            let yielded = Arc::<AtomicBool>::default();
            let mut source = Turn { bytes: BytesSource::new(pattern(BYTES, 1)), yielded: yielded.clone() };
            let (stage, call) = (stage.clone(), site.call());
            let mut put = sys.spawn(async move { stage.put(&call, 1, 0, &mut source).await });
            rest().await;
            assert!(yielded.load(Ordering::Acquire), "one that waits {why}");
            tokio::select! {
                biased;
                _ = &mut put => panic!("it does not wait {why}"),
                () = std::future::ready(()) => {}
            }
            puts.push(put);
        }
        for put in puts {
            soon(&sys, "an upload", put).await.works().works();
        }
    });
}

#[test]
fn a_length_that_is_only_said_costs_nobody_an_upload() {
    /// Says that very much is coming, and brings little.
    struct Boast(BytesSource);

    #[async_trait]
    impl Source for Boast {
        async fn next(&mut self, max: usize) -> Result<Option<Piece>> {
            self.0.next(max).await
        }

        fn length(&self) -> Option<u64> {
            Some(1 << 60)
        }

        fn stopped(&self) -> Stopped {
            self.0.stopped()
        }
    }

    simulate(3, |sys| async move {
        let (volume, store) = unsteady_on(&sys, &SimDisk::new()).await;
        let site = Site::of(&volume);
        sys.sleep(FULL_STAGE_IDLE).await;
        let rests = left(&site, "rests").await;
        sys.sleep(FULL_STAGE_IDLE).await;
        store.leave_free(PIECE_BYTES_MAX as u64);
        let boasts = site.fs.stage(&site.call(), &at("f"), &StageHint::default()).await.works();
        let mut boast = Boast(BytesSource::new(pattern(BYTES, 2)));
        boasts.put(&site.call(), 1, 0, &mut boast).await.works();
        assert_eq!(rests.parts(&site.call(), 1).await.works().parts.len(), 1);
    });
}

#[test]
fn what_a_full_disk_did_not_take_is_not_said_to_be_staged_and_an_upload_that_goes_on_is_whole() {
    simulate(2, |sys| async move {
        let (volume, store) = unsteady_on(&sys, &SimDisk::new()).await;
        let site = Site::of(&volume);
        let bytes = pattern(5 * PIECE_BYTES_MAX, 1);
        let call = site.call();
        let stage = site.fs.stage(&call, &at("f"), &StageHint::default()).await.works();
        store.fill_up();
        let put = stage.put(&call, 1, 0, &mut BytesSource::new(bytes.clone())).await;
        assert_eq!(put.fails(), ErrorKind::NoSpace);
        let part = stage.parts(&call, 1).await.works().parts[0];
        let there = part.bytes as usize;
        assert!(there > 0 && there < 3 * PIECE_BYTES_MAX, "{there}");
        assert_eq!(part.digest, *blake3::hash(&bytes[..there]).as_bytes());
        stage.put(&call, 1, part.bytes, &mut BytesSource::new(bytes[there..].to_vec())).await.works();
        let published = stage.publish(&call, &[], &SetAttr::default(), &free()).await.works();
        assert!(site.read(published.value.id).await == bytes);
    });
}

/// An upload of which this much was acknowledged as durable.
pub async fn acknowledged(site: &Site<'_>, bytes: &[u8]) -> Arc<dyn Stage> {
    let stage = site.fs.stage(&site.call(), &at("f"), &StageHint::default()).await.works();
    stage.put(&site.call().durable(), 1, 0, &mut BytesSource::new(bytes.to_vec())).await.works();
    stage
}

/// Goes on with an upload after a restart, and compares the file with what was sent.
pub async fn gone_on_with(volume: &Volume, id: StageId, bytes: &[u8], acknowledged: u64) {
    let site = Site::of(volume);
    let stage = site.fs.staged(&site.call(), id).await.works();
    let there = stage.parts(&site.call(), 1).await.works().parts.first().map_or(0, |part| part.bytes);
    assert!(there >= acknowledged, "{acknowledged} bytes were acknowledged, {there} are there");
    let rest = bytes[there as usize..].to_vec();
    stage.put(&site.call().durable(), 1, there, &mut BytesSource::new(rest)).await.works();
    let done = stage.publish(&site.call().durable(), &[], &SetAttr::default(), &free()).await.works();
    assert!(site.read(done.value.id).await == bytes);
}

#[test]
fn what_was_acknowledged_of_an_upload_outlives_a_put_that_failed_in_its_middle() {
    let (in_row, large) = (4096, 2 * PIECE_BYTES_MAX);
    let cases = [
        (large, true, Ack::Durable),
        (large, false, Ack::Durable),
        (large, true, Ack::Applied),
        (in_row, true, Ack::Durable),
        (in_row, true, Ack::Applied),
    ];
    for (first, can_flush, ack) in cases {
        simulate(6, |sys| async move {
            let (volume, store) = unsteady_on(&sys, &SimDisk::new()).await;
            let bytes = pattern(6 * PIECE_BYTES_MAX, 1);
            let site = Site::of(&volume);
            let stage = acknowledged(&site, &bytes[..first]).await;
            store.fill_up();
            if !can_flush {
                store.fail(Op::Sync, store.last(Op::Sync));
            }
            let call = Call { ack, ..site.call() };
            let put = stage.put(&call, 1, first as u64, &mut BytesSource::new(bytes[first..].to_vec())).await;
            assert_eq!(put.fails(), ErrorKind::NoSpace, "why it failed, and not what became of the rest");
            let id = stage.id();
            drop((stage, site));
            volume.crash_in_place().await;
            store.recover();
            gone_on_with(&volume, id, &bytes, first as u64).await;
        });
    }
}

/// The rest of an upload, whose sender is told to stop at a look after so many.
struct Hasty {
    bytes: BytesSource,
    looks: u32,
}

#[async_trait]
impl Source for Hasty {
    async fn next(&mut self, max: usize) -> Result<Option<Piece>> {
        self.bytes.next(max).await
    }

    fn length(&self) -> Option<u64> {
        self.bytes.length()
    }

    fn stopped(&self) -> Stopped {
        let mut left = self.looks;
        Box::pin(std::future::poll_fn(move |_| {
            left = left.wrapping_sub(1);
            match left {
                u32::MAX => Poll::Ready(Error::new(ErrorKind::Conflict, "somebody else goes on")),
                _ => Poll::Pending,
            }
        }))
    }
}

#[test]
fn who_comes_back_after_a_restart_need_not_wait_until_what_came_before_is_hashed() {
    simulate(7, |sys| async move {
        let (volume, _) = unsteady_on(&sys, &SimDisk::new()).await;
        let (bytes, there) = (pattern(6 * PIECE_BYTES_MAX, 1), 4 * PIECE_BYTES_MAX);
        let stage = acknowledged(&Site::of(&volume), &bytes[..there]).await;
        let id = stage.id();
        drop(stage);
        volume.crash_in_place().await;
        let site = Site::of(&volume);
        let stage = site.fs.staged(&site.call(), id).await.works();
        for looks in [0, 1, 2] {
            let mut rest = Hasty { bytes: BytesSource::new(bytes[there..].to_vec()), looks };
            let put = stage.put(&site.call().durable(), 1, there as u64, &mut rest).await;
            assert_eq!(put.fails(), ErrorKind::Conflict, "told at look {looks}");
            assert_eq!(rest.bytes.length(), Some((bytes.len() - there) as u64), "nothing was pulled");
        }
        let mut rest = BytesSource::new(bytes[there..].to_vec());
        let part = stage.put(&site.call().durable(), 1, there as u64, &mut rest).await.works();
        assert_eq!(part.digest, *blake3::hash(&bytes).as_bytes(), "also of what was hashed in pieces");
    });
}
