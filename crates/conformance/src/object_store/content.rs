//! Laws of bytes: what is written is what is read.

use weft_core::form::{Range, WriteAt};
use weft_core::{Error, ErrorKind};

use super::Subject;
use super::bench::{BLOCK, Bench, OBJECT, fed, pattern};

/// Whatever is written at whatever place is there afterwards, block edges or not.
pub async fn what_is_written_is_read_back(subject: &dyn Subject) {
    let bench = Bench::with_object(subject).await;
    let mut expected = Vec::new();
    for (seed, (at, length)) in
        [(0, 10), (5, 100), (BLOCK - 3, 7), (BLOCK * 2, 1), (40, 2 * BLOCK as usize)].into_iter().enumerate()
    {
        let bytes = pattern(seed as u64, length);
        let end = at as usize + length;
        expected.resize(expected.len().max(end), 0);
        expected[at as usize..end].copy_from_slice(&bytes);
        let written = bench.write(at, bytes).await;
        assert_eq!(
            (written.at, written.bytes, written.stat.size),
            (at, length as u64, expected.len() as u64)
        );
        bench.expect(&expected).await;
    }
}

/// What lies between writes is zeros, also before anything was sealed.
pub async fn bytes_never_written_read_as_zeros(subject: &dyn Subject) {
    let bench = Bench::with_object(subject).await;
    bench.write(3 * BLOCK + 5, "end").await;
    let found = bench.read(0, None).await;
    assert!(found[..found.len() - 3].iter().all(|byte| *byte == 0));
    bench.store.seal(&bench.all, OBJECT).await.expect("it can be sealed");
    assert_eq!(bench.read(0, None).await, found);
}

/// A range beyond the end brings what there is.
pub async fn a_range_is_cut_at_the_end(subject: &dyn Subject) {
    let bench = Bench::with_object(subject).await;
    assert!(bench.read(0, None).await.is_empty());
    bench.write(0, "hello").await;
    assert_eq!(&bench.read(2, Some(100)).await[..], b"llo");
    assert_eq!(&bench.read(1, Some(2)).await[..], b"el");
    assert!(bench.read(5, Some(1)).await.is_empty());
    assert!(bench.read(u64::MAX, Some(1)).await.is_empty());
    let source = bench.store.read(&bench.all, OBJECT, Range { at: 1, length: Some(9) }).await;
    assert_eq!(source.expect("it can be read").length(), Some(4));
}

/// Each append goes where the last one ended.
pub async fn appends_follow_each_other_and_say_where_they_went(subject: &dyn Subject) {
    let bench = Bench::with_object(subject).await;
    for (at, word) in [(0, "one"), (3, "two"), (6, "three")] {
        let written = bench.try_write(WriteAt::End, word).await.expect("there is room");
        assert_eq!((written.at, written.bytes), (at, word.len() as u64));
    }
    bench.expect(b"onetwothree").await;
}

/// A source that fails half way leaves what came before, and the failure comes back.
pub async fn what_was_pulled_before_an_error_is_kept(subject: &dyn Subject) {
    let bench = Bench::with_object(subject).await;
    let (feed, mut source) = fed();
    feed.send(Ok("kept".into())).expect("it listens");
    feed.send(Err(Error::new(ErrorKind::Deadline, "the sender stopped"))).expect("it listens");
    let failed = bench.store.write(&bench.all, OBJECT, WriteAt::Offset(2), &mut source).await;
    assert_eq!(failed.err().map(|error| error.kind()), Some(ErrorKind::Deadline));
    bench.expect(b"\0\0kept").await;
}

/// A puller may ask for little at a time.
pub async fn pieces_are_never_larger_than_asked(subject: &dyn Subject) {
    let bench = Bench::with_object(subject).await;
    let bytes = pattern(1, BLOCK as usize + 1000);
    bench.write(0, bytes.clone()).await;
    bench.store.seal(&bench.all, OBJECT).await.expect("it can be sealed");
    let mut source =
        bench.store.read(&bench.all, OBJECT, Range { at: 10, length: None }).await.expect("a source");
    let mut found = Vec::new();
    for max in [1, 7, 4096, 100_000].into_iter().cycle() {
        let left = source.length().expect("a store knows");
        assert_eq!(left as usize, bytes.len() - 10 - found.len());
        let Some(piece) = source.next(max).await.expect("it can be read") else { break };
        assert!((1..=max).contains(&piece.length()));
        found.extend_from_slice(&piece.into_bytes().expect("they are there"));
    }
    assert_eq!(found, &bytes[10..]);
    assert!(source.next(1).await.expect("the end stays the end").is_none());
}

/// Sealing and syncing are about safety, not about content.
pub async fn sealing_changes_no_byte_and_syncing_no_verifier(subject: &dyn Subject) {
    let bench = Bench::with_object(subject).await;
    let bytes = pattern(2, 3 * BLOCK as usize / 2);
    let written = bench.write(0, bytes.clone()).await;
    assert!(!written.stat.sealed, "it is being written");
    let verifier = bench.store.sync(&bench.all, OBJECT).await.expect("it can be synced");
    assert_eq!((verifier, verifier), (written.verifier, bench.store.verifier()));
    bench.expect(&bytes).await;
    let stat = bench.store.seal(&bench.all, OBJECT).await.expect("it can be sealed");
    assert!(stat.sealed && stat.size == bytes.len() as u64);
    bench.expect(&bytes).await;
    let again = bench.store.seal(&bench.all, OBJECT).await.expect("twice is no error");
    assert_eq!(again, stat);
}

/// A block's digest is that of its bytes, whether it lies sealed or was written a moment ago.
pub async fn digests_are_those_of_the_bytes_sealed_or_not(subject: &dyn Subject) {
    let bench = Bench::with_object(subject).await;
    bench.expect_digests(&[]).await;
    let mut bytes = pattern(4, 20 * BLOCK as usize + 17);
    bytes[3 * BLOCK as usize..5 * BLOCK as usize].fill(0);
    bench.write(0, bytes[..3 * BLOCK as usize].to_vec()).await;
    bench.write(5 * BLOCK, bytes[5 * BLOCK as usize..].to_vec()).await;
    for round in 0..3 {
        bench.expect_digests(&bytes).await;
        bench.store.seal(&bench.all, OBJECT).await.expect("it can be sealed");
        bench.expect_digests(&bytes).await;
        let at = 2 * BLOCK as usize - 2 + round;
        bytes[at..at + 4].copy_from_slice(&[round as u8; 4]);
        bench.write(at as u64, vec![round as u8; 4]).await;
    }
    let beyond = bench.store.digests(&bench.all, OBJECT, u64::MAX).await;
    assert!(beyond.expect("nothing is there").is_empty());
}

/// Sealing does not freeze: writes go on, seals follow.
pub async fn an_overwrite_of_a_sealed_object_is_seen(subject: &dyn Subject) {
    let bench = Bench::with_object(subject).await;
    let mut bytes = pattern(3, 2 * BLOCK as usize);
    bench.write(0, bytes.clone()).await;
    for round in 0..3 {
        bench.store.seal(&bench.all, OBJECT).await.expect("it can be sealed");
        let at = BLOCK as usize - 2 + round;
        bytes[at..at + 4].copy_from_slice(&[round as u8; 4]);
        let written = bench.write(at as u64, vec![round as u8; 4]).await;
        assert!(!written.stat.sealed);
        bench.expect(&bytes).await;
    }
    bench.store.seal(&bench.all, OBJECT).await.expect("it can be sealed");
    bench.expect(&bytes).await;
}

/// The counter of writes rises with each and stands still otherwise.
pub async fn writes_are_counted(subject: &dyn Subject) {
    let bench = Bench::with_object(subject).await;
    let first = bench.write(0, "a").await.stat.writes;
    let second = bench.write(0, "b").await.stat.writes;
    assert!(second > first);
    bench.store.seal(&bench.all, OBJECT).await.expect("it can be sealed");
    bench.read(0, None).await;
    assert_eq!(bench.store.stat(&bench.all, OBJECT).await.expect("it is there").writes, second);
}

/// A clean restart loses nothing that was synced, sealed or not.
pub async fn everything_synced_outlives_a_restart(subject: &dyn Subject) {
    let bench = Bench::with_object(subject).await;
    let bytes = pattern(4, BLOCK as usize + 10);
    bench.write(0, bytes.clone()).await;
    bench.store.sync(&bench.all, OBJECT).await.expect("it can be synced");
    let before = bench.store.verifier();
    drop(bench);
    if !subject.restart().await {
        return;
    }
    let bench = Bench::of(subject);
    assert_ne!(bench.store.verifier(), before, "another boot");
    bench.expect(&bytes).await;
    let stat = bench.store.stat(&bench.all, OBJECT).await.expect("it is there");
    assert_eq!(stat.size, bytes.len() as u64);
}
