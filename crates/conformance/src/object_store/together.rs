//! Laws of doing things at once.

use futures_util::future::join_all;
use weft_core::ErrorKind;
use weft_core::form::{Range, WriteAt};

use super::Subject;
use super::bench::{BLOCK, Bench, OBJECT, fed, pattern, read};

/// Each append lands whole, somewhere.
pub async fn appends_at_once_never_tear_each_other(subject: &dyn Subject) {
    let bench = Bench::with_object(subject).await;
    let appends = (1..=20_u8).map(|n| {
        let bench = &bench;
        async move {
            let (feed, mut source) = fed();
            for _ in 0..3 {
                feed.send(Ok(vec![n; 1000].into())).expect("it listens");
            }
            drop(feed);
            bench.store.write(&bench.all, OBJECT, WriteAt::End, &mut source).await.expect("there is room")
        }
    });
    let written = join_all(appends).await;
    let bytes = bench.read(0, None).await;
    assert_eq!(bytes.len(), 20 * 3000);
    for (n, written) in written.into_iter().enumerate() {
        let at = written.at as usize;
        assert!(bytes[at..at + 3000].iter().all(|byte| *byte == n as u8 + 1), "append {n} is whole");
    }
}

/// A writer that waits for its source holds nobody up elsewhere in the object.
pub async fn writers_of_disjoint_ranges_do_not_wait_for_each_other(subject: &dyn Subject) {
    let bench = Bench::with_object(subject).await;
    bench.write(0, pattern(1, 2 * BLOCK as usize)).await;
    let (feed, mut slow) = fed();
    feed.send(Ok("slow".into())).expect("it listens");
    let stalled = bench.store.write(&bench.all, OBJECT, WriteAt::Offset(0), &mut slow);
    let others = async {
        for n in 0..10_u64 {
            bench.write(BLOCK + n * 10, "quick").await;
            bench.read(BLOCK, Some(10)).await;
            bench.store.sync(&bench.all, OBJECT).await.expect("it can be synced");
        }
        drop(feed);
    };
    let (answer, ()) = futures_util::join!(stalled, others);
    answer.expect("it goes on");
    assert_eq!(&bench.read(0, Some(4)).await[..], b"slow");
    assert_eq!(&bench.read(BLOCK + 90, Some(5)).await[..], b"quick");
}

/// Of many who make one id, one does.
pub async fn one_of_many_makers_wins(subject: &dyn Subject) {
    let bench = Bench::of(subject);
    let makers = (0..10).map(|_| bench.store.make(&bench.all, OBJECT, None));
    let answers = join_all(makers).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
    let lost = answers.iter().filter_map(|answer| answer.as_ref().err());
    assert!(lost.map(|error| error.kind()).all(|kind| kind == ErrorKind::Exists));
}

/// Readers beside writers, seals and flushes never hear of damage that is none.
pub async fn readers_see_whole_writes_of_a_block_or_none_once_sealed(subject: &dyn Subject) {
    let bench = Bench::with_object(subject).await;
    bench.write(0, vec![1; 2 * BLOCK as usize]).await;
    bench.store.seal(&bench.all, OBJECT).await.expect("it can be sealed");
    let writer = async {
        for round in 2..12_u8 {
            bench.write(0, vec![round; 2 * BLOCK as usize]).await;
            bench.store.seal(&bench.all, OBJECT).await.expect("it can be sealed");
        }
    };
    let readers = join_all((0..4).map(|_| async {
        for _ in 0..10 {
            let found =
                read(&*bench.store, &bench.all, OBJECT, Range::ALL).await.expect("nothing is damaged");
            assert!(found.iter().all(|byte| (1..12).contains(byte)));
        }
    }));
    futures_util::join!(writer, readers);
    bench.expect(&vec![11; 2 * BLOCK as usize]).await;
}
