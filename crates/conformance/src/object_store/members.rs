//! Laws of membership: making, listing, labelling, removing.

use weft_core::form::{BytesSource, Range, Shape, WriteAt};
use weft_core::limits::PAGE_ENTRIES_MAX;
use weft_core::{ErrorKind, ObjectId, Rights};

use super::Subject;
use super::bench::{BLOCK, Bench, HERE, OBJECT, THERE, pattern, proof, read, refused};

/// An id is taken until its object is gone, and then holds nothing of it.
pub async fn an_id_is_made_once_and_comes_again_after_removal(subject: &dyn Subject) {
    let bench = Bench::with_object(subject).await;
    bench.write(0, "old").await;
    assert_eq!(refused(bench.store.make(&bench.all, OBJECT, None).await), ErrorKind::Exists);
    bench.expect(b"old").await;
    bench.store.remove(&bench.all, OBJECT).await.expect("it is there");
    bench.store.make(&bench.all, OBJECT, None).await.expect("the id is free");
    bench.expect(b"").await;
    bench.store.seal(&bench.all, OBJECT).await.expect("an empty object can be sealed");
    bench.expect(b"").await;
}

/// Pages follow each other without gap or repetition and show this container only.
pub async fn listing_pages_through_a_container_in_order(subject: &dyn Subject) {
    let bench = Bench::of(subject);
    let there = proof(subject, THERE, Rights::ALL);
    let empty = bench.store.list(&bench.all, None).await.expect("it can be listed");
    assert_eq!((empty.objects.len(), empty.next), (0, None));
    let count = u128::from(PAGE_ENTRIES_MAX) + 10;
    for id in (0..count).rev() {
        bench.store.make(&bench.all, ObjectId(id << 64 | id), None).await.expect("a fresh id");
    }
    bench.store.make(&there, ObjectId(5 << 64), None).await.expect("a fresh id");
    let first = bench.store.list(&bench.all, None).await.expect("it can be listed");
    assert_eq!(first.objects.len(), PAGE_ENTRIES_MAX as usize);
    assert_eq!(first.next, first.objects.last().map(|last| last.id));
    let rest = bench.store.list(&bench.all, first.next).await.expect("it can be listed");
    assert_eq!(rest.next, None);
    let found: Vec<_> = first.objects.iter().chain(&rest.objects).map(|stat| stat.id).collect();
    assert_eq!(found, (0..count).map(|id| ObjectId(id << 64 | id)).collect::<Vec<_>>());
    assert!(first.objects.iter().all(|stat| stat.container == HERE));
}

/// Who reads when an object goes, reads on.
pub async fn a_removed_object_is_read_to_its_end_by_who_began(subject: &dyn Subject) {
    let bench = Bench::with_object(subject).await;
    let bytes = pattern(6, 2 * BLOCK as usize);
    bench.write(0, bytes.clone()).await;
    bench.store.seal(&bench.all, OBJECT).await.expect("it can be sealed");
    let mut source = bench.store.read(&bench.all, OBJECT, Range::ALL).await.expect("a source");
    let mut found = Vec::new();
    let first = source.next(1000).await.expect("it can be read").expect("there are bytes");
    found.extend_from_slice(&first.into_bytes().expect("they are there"));
    bench.store.remove(&bench.all, OBJECT).await.expect("it is there");
    subject.pass(std::time::Duration::from_secs(10)).await;
    while let Some(piece) = source.next(BLOCK as usize).await.expect("it can still be read") {
        found.extend_from_slice(&piece.into_bytes().expect("they are still there"));
    }
    assert!(found == bytes);
    assert_eq!(refused(bench.store.stat(&bench.all, OBJECT).await), ErrorKind::NotFound);
}

/// A label decides where an object is listed and who may touch it.
pub async fn a_new_label_moves_an_object_to_the_other_container(subject: &dyn Subject) {
    let bench = Bench::with_object(subject).await;
    bench.write(0, "moved").await;
    let there = proof(subject, THERE, Rights::ALL);
    let insert_only = proof(subject, THERE, Rights::READ);
    assert_eq!(refused(bench.store.relabel(&bench.all, &insert_only, OBJECT).await), ErrorKind::Denied);
    bench.store.relabel(&bench.all, &there, OBJECT).await.expect("both sides allow it");
    assert!(bench.store.list(&bench.all, None).await.expect("it can be listed").objects.is_empty());
    let listed = bench.store.list(&there, None).await.expect("it can be listed");
    assert_eq!(
        listed.objects.iter().map(|stat| (stat.id, stat.container)).collect::<Vec<_>>(),
        [(OBJECT, THERE)]
    );
    let found = read(&*bench.store, &there, OBJECT, Range::ALL).await.expect("it can be read");
    assert_eq!(&found[..], b"moved");
    assert!(bench.store.stat(&bench.all, OBJECT).await.is_err());
    assert!(bench.store.relabel(&bench.all, &there, OBJECT).await.is_err());
}

/// Every operation on what is not there says so.
pub async fn what_is_missing_is_not_found(subject: &dyn Subject) {
    let bench = Bench::of(subject);
    let (store, all) = (&bench.store, &bench.all);
    let mut bytes = BytesSource::new("x");
    let answers = [
        refused(store.read(all, OBJECT, Range::ALL).await.map(drop)),
        refused(store.write(all, OBJECT, WriteAt::End, &mut bytes).await),
        refused(store.shape(all, OBJECT, Shape::Truncate(0)).await),
        refused(store.stat(all, OBJECT).await),
        refused(store.sync(all, OBJECT).await),
        refused(store.seal(all, OBJECT).await),
        refused(store.remove(all, OBJECT).await),
    ];
    assert_eq!(answers, [ErrorKind::NotFound; 7]);
}
