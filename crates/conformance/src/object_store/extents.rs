//! Laws of extents: cutting, growing, holes, reserved space, copies.

use weft_core::form::{Range, Seek, Shape, WriteAt};
use weft_core::limits::FILE_BYTES_MAX;
use weft_core::{ErrorKind, ObjectId};

use super::Subject;
use super::bench::{BLOCK, Bench, OBJECT, pattern, read, refused};

impl Bench<'_> {
    async fn shape(&self, shape: Shape) -> u64 {
        self.store.shape(&self.all, OBJECT, shape).await.expect("it can be shaped").size
    }

    async fn seal(&self) {
        self.store.seal(&self.all, OBJECT).await.expect("it can be sealed");
    }
}

/// What was cut off does not come back when the object grows again.
pub async fn cutting_and_growing_leave_zeros(subject: &dyn Subject) {
    let bench = Bench::with_object(subject).await;
    let bytes = pattern(1, 3 * BLOCK as usize);
    for sealed in [false, true] {
        for cut in [BLOCK as usize + 100, BLOCK as usize, 10, 0] {
            bench.write(0, bytes.clone()).await;
            if sealed {
                bench.seal().await;
            }
            assert_eq!(bench.shape(Shape::Truncate(cut as u64)).await, cut as u64);
            bench.expect(&bytes[..cut]).await;
            if sealed {
                bench.seal().await;
            }
            assert_eq!(bench.shape(Shape::Truncate(bytes.len() as u64)).await, bytes.len() as u64);
            let mut expected = bytes.clone();
            expected[cut..].fill(0);
            bench.expect(&expected).await;
            bench.seal().await;
            bench.expect(&expected).await;
        }
    }
}

/// A punched range reads as zeros, keeps the size and is found as a hole.
pub async fn a_hole_reads_as_zeros_and_is_found(subject: &dyn Subject) {
    let bench = Bench::with_object(subject).await;
    let mut bytes = pattern(2, 4 * BLOCK as usize);
    bench.write(0, bytes.clone()).await;
    bench.seal().await;
    let (at, length) = (BLOCK - 65_536, 2 * BLOCK);
    if !subject.holes() {
        let refusal = bench.store.shape(&bench.all, OBJECT, Shape::Punch { at, length }).await;
        assert_eq!(refused(refusal), ErrorKind::Unsupported);
        return;
    }
    assert_eq!(bench.shape(Shape::Punch { at, length }).await, bytes.len() as u64);
    bytes[at as usize..(at + length) as usize].fill(0);
    bench.expect(&bytes).await;
    bench.seal().await;
    bench.expect(&bytes).await;
    let seek = async |offset, what| bench.store.seek(&bench.all, OBJECT, offset, what).await;
    assert_eq!(seek(0, Seek::Data).await.expect("data"), 0);
    assert_eq!(seek(0, Seek::Hole).await.expect("a hole"), at);
    assert_eq!(seek(at + 5, Seek::Data).await.expect("data"), at + length);
    assert_eq!(seek(at + length, Seek::Hole).await.expect("the end"), bytes.len() as u64);
    assert_eq!(refused(seek(bytes.len() as u64, Seek::Hole).await), ErrorKind::NotFound);
    assert_eq!(refused(seek(bytes.len() as u64, Seek::Data).await), ErrorKind::NotFound);
    bench.shape(Shape::Punch { at: 3 * BLOCK, length: 9 * BLOCK }).await;
    assert_eq!(refused(seek(3 * BLOCK, Seek::Data).await), ErrorKind::NotFound, "no data to the end");
}

/// Zeros replace what is there, and let the object grow only if that is wanted.
pub async fn zeros_keep_the_size_if_asked(subject: &dyn Subject) {
    let bench = Bench::with_object(subject).await;
    let mut bytes = pattern(3, BLOCK as usize + 100);
    bench.write(0, bytes.clone()).await;
    let (at, length) = (BLOCK - 10, 50_000);
    assert_eq!(bench.shape(Shape::Zero { at, length, keep_size: true }).await, bytes.len() as u64);
    bytes[at as usize..].fill(0);
    bench.expect(&bytes).await;
    assert_eq!(bench.shape(Shape::Zero { at, length, keep_size: false }).await, at + length);
    bytes.resize((at + length) as usize, 0);
    bench.expect(&bytes).await;
}

/// Reserving changes no byte, and the size only if that is wanted.
pub async fn allocated_space_is_taken_and_reads_as_zeros(subject: &dyn Subject) {
    let bench = Bench::with_object(subject).await;
    bench.write(0, "abc").await;
    let length = 4 * BLOCK;
    assert_eq!(bench.shape(Shape::Allocate { at: 0, length, keep_size: true }).await, 3);
    bench.expect(b"abc").await;
    assert_eq!(bench.shape(Shape::Allocate { at: 0, length, keep_size: false }).await, length);
    let mut expected = vec![0; length as usize];
    expected[..3].copy_from_slice(b"abc");
    bench.expect(&expected).await;
    bench.seal().await;
    bench.expect(&expected).await;
    let reserved = ObjectId(77);
    bench.store.make(&bench.all, reserved, Some(BLOCK)).await.expect("there is room");
    assert_eq!(bench.store.stat(&bench.all, reserved).await.expect("it is there").size, 0);
}

/// What cannot be is refused before anything happens.
pub async fn nothing_may_be_longer_than_the_limit(subject: &dyn Subject) {
    let bench = Bench::with_object(subject).await;
    bench.write(0, "abc").await;
    let beyond = FILE_BYTES_MAX + 1;
    let wrong = [
        Shape::Truncate(beyond),
        Shape::Zero { at: u64::MAX, length: 9, keep_size: false },
        Shape::Allocate { at: FILE_BYTES_MAX, length: 1, keep_size: true },
    ];
    for shape in wrong {
        let kind = refused(bench.store.shape(&bench.all, OBJECT, shape).await);
        assert!(matches!(kind, ErrorKind::TooLarge | ErrorKind::NoSpace), "{shape:?}: {kind}");
    }
    for at in [FILE_BYTES_MAX, u64::MAX] {
        assert_eq!(refused(bench.try_write(WriteAt::Offset(at), "x").await), ErrorKind::TooLarge);
    }
    bench.expect(b"abc").await;
}

/// A copy is the source's bytes at another place, cut at the source's end.
pub async fn copies_follow_the_source_and_refuse_to_overlap(subject: &dyn Subject) {
    let bench = Bench::with_object(subject).await;
    let bytes = pattern(5, 2 * BLOCK as usize + 77);
    bench.write(0, bytes.clone()).await;
    bench.seal().await;
    let other = ObjectId(9);
    bench.store.make(&bench.all, other, None).await.expect("a fresh id");
    let copy = async |at, length, to, offset| {
        bench.store.copy((&bench.all, OBJECT), Range { at, length }, (&bench.all, to), offset).await
    };
    assert_eq!(copy(0, None, other, 0).await.expect("there is room"), bytes.len() as u64);
    assert_eq!(copy(100, Some(BLOCK), other, 7).await.expect("there is room"), BLOCK);
    assert_eq!(copy(BLOCK, None, OBJECT, 3 * BLOCK).await.expect("apart"), BLOCK + 77);
    assert_eq!(copy(u64::MAX, None, other, 0).await.expect("nothing to copy"), 0);
    let mut expected = bytes.clone();
    expected[7..7 + BLOCK as usize].copy_from_slice(&bytes[100..100 + BLOCK as usize]);
    bench.store.seal(&bench.all, other).await.expect("it can be sealed");
    assert!(read(&*bench.store, &bench.all, other, Range::ALL).await.expect("it can be read") == expected);
    let tail = bench.read(3 * BLOCK, None).await;
    assert!(tail == bytes[BLOCK as usize..]);
}
