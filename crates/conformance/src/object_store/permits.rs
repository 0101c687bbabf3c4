//! Laws of proofs: what each operation demands, and that it is demanded for every piece.

use std::time::Duration;

use weft_core::form::{BytesSource, Range, Seek, Shape, WriteAt};
use weft_core::limits::{CLOCK_SKEW_MAX, PIECE_BYTES_MAX};
use weft_core::proof::{Caller, Granted};
use weft_core::service::Issuer;
use weft_core::{Error, ErrorKind, ObjectId, Result, Rights};

use super::Subject;
use super::bench::{BLOCK, Bench, HERE, OBJECT, THERE, fed, pattern, proof, refused};

/// What can be asked of an object, and which rights are each enough.
const DEMANDS: &[(&str, &[Rights])] = &[
    ("read", &[Rights::READ]),
    ("digests", &[Rights::READ]),
    ("write", &[Rights::WRITE]),
    ("append", &[Rights::APPEND, Rights::WRITE]),
    ("shape", &[Rights::WRITE]),
    ("seek", &[Rights::READ, Rights::WRITE]),
    ("stat", &[Rights::ATTR_READ, Rights::READ, Rights::WRITE]),
    ("sync", &[Rights::WRITE, Rights::APPEND, Rights::READ]),
    ("seal", &[Rights::WRITE, Rights::APPEND]),
    ("list", &[Rights::LIST, Rights::MAINTAIN]),
    ("make", &[Rights::INSERT]),
    ("relabel", &[Rights::REMOVE]),
    ("remove", &[Rights::REMOVE]),
];

async fn ask(bench: &Bench<'_>, what: &str, with: &Granted) -> Result<()> {
    let (store, object) = (&bench.store, OBJECT);
    let mut bytes = BytesSource::new("more");
    match what {
        "read" => store.read(with, object, Range::ALL).await.map(drop),
        "digests" => store.digests(with, object, 0).await.map(drop),
        "write" => store.write(with, object, WriteAt::Offset(0), &mut bytes).await.map(drop),
        "append" => store.write(with, object, WriteAt::End, &mut bytes).await.map(drop),
        "shape" => store.shape(with, object, Shape::Truncate(3)).await.map(drop),
        "seek" => store.seek(with, object, 0, Seek::Data).await.map(drop),
        "stat" => store.stat(with, object).await.map(drop),
        "sync" => store.sync(with, object).await.map(drop),
        "seal" => store.seal(with, object).await.map(drop),
        "list" => store.list(with, None).await.map(drop),
        "make" => {
            let made = store.make(with, ObjectId(99), None).await;
            if made.is_ok() {
                store.remove(&bench.all, ObjectId(99)).await?;
            }
            made
        }
        "relabel" => {
            let there = proof(bench.subject, THERE, Rights::ALL);
            let moved = store.relabel(with, &there, object).await;
            if moved.is_ok() {
                store.relabel(&there, &bench.all, object).await?;
            }
            moved
        }
        "remove" => {
            let removed = store.remove(with, object).await;
            if removed.is_ok() {
                store.make(&bench.all, object, None).await?;
                bench.write(0, "here").await;
            }
            removed
        }
        other => panic!("no such operation: {other}"),
    }
}

/// Each right alone opens what it should and nothing else.
pub async fn each_operation_demands_its_right(subject: &dyn Subject) {
    let bench = Bench::with_object(subject).await;
    bench.write(0, "here").await;
    for (_, right) in Rights::ALL.each() {
        let with = bench.proof(right);
        for (what, enough) in DEMANDS {
            let answer = ask(&bench, what, &with).await;
            match enough.contains(&right) {
                true => answer.unwrap_or_else(|error| panic!("{what} with {right}: {error:?}")),
                false => assert_eq!(refused(answer), ErrorKind::Denied, "{what} with {right}"),
            }
        }
    }
}

/// Every right on another container is none here, and tells nothing of what is here.
pub async fn a_proof_for_one_container_opens_no_other(subject: &dyn Subject) {
    let bench = Bench::with_object(subject).await;
    bench.write(0, "here").await;
    let foreign = proof(subject, THERE, Rights::ALL);
    for (what, _) in DEMANDS.iter().filter(|(what, _)| !matches!(*what, "list" | "make")) {
        let kind = refused(ask(&bench, what, &foreign).await);
        assert!(matches!(kind, ErrorKind::NotFound | ErrorKind::Denied), "{what}: {kind}");
        if subject.hides_existence() {
            assert_eq!(kind, ErrorKind::NotFound, "{what}: as if it were not there");
        }
    }
    bench.expect(b"here").await;
}

/// A proof that names an object is enough to make it, use it and remove it, and for no other.
pub async fn a_proof_for_one_object_makes_reads_and_removes_just_that(subject: &dyn Subject) {
    let bench = Bench::of(subject);
    let exact = bench.proof_on(OBJECT, Rights::READ | Rights::WRITE);
    assert_eq!(refused(bench.store.make(&exact, ObjectId(1), None).await), ErrorKind::Denied);
    bench.store.make(&exact, OBJECT, None).await.expect("it names the object");
    bench.store.make(&bench.all, ObjectId(1), None).await.expect("a fresh id");
    assert_eq!(refused(bench.store.stat(&exact, ObjectId(1)).await), ErrorKind::Denied);
    assert_eq!(refused(bench.store.list(&exact, None).await), ErrorKind::Denied);
    bench.store.stat(&exact, OBJECT).await.expect("it names the object");
    let reading = bench.proof_on(OBJECT, Rights::READ | Rights::REMOVE | Rights::INSERT);
    assert_eq!(
        refused(bench.store.remove(&reading, OBJECT).await),
        ErrorKind::Denied,
        "only `write` will do"
    );
    bench.store.remove(&exact, OBJECT).await.expect("it names the object");
}

/// Withdrawal reaches a read that is under way: at the next piece, and whoever waits hears.
pub async fn a_withdrawn_right_stops_a_read_within_a_piece(subject: &dyn Subject) {
    let bench = Bench::with_object(subject).await;
    bench.write(0, pattern(1, 3 * BLOCK as usize)).await;
    bench.store.seal(&bench.all, OBJECT).await.expect("it can be sealed");
    let reader = bench.proof(Rights::READ);
    let mut source = bench.store.read(&reader, OBJECT, Range::ALL).await.expect("a source");
    let first = source.next(PIECE_BYTES_MAX).await.expect("it can be read").expect("there are bytes");
    assert!(first.length() <= PIECE_BYTES_MAX);
    let stopped = source.stopped();
    subject.domain().withdraw(&reader, Rights::READ);
    assert_eq!(stopped.await.kind(), ErrorKind::Revoked);
    assert_eq!(refused(source.next(1).await), ErrorKind::Revoked);
    assert_eq!(source.stopped().await.kind(), ErrorKind::Revoked, "also for who asks later");
    assert!(matches!(source.next(1).await, Ok(None) | Err(_)), "after an error there is nothing more");
}

/// Withdrawal reaches a write at its next piece.
pub async fn a_withdrawn_right_stops_a_write_within_a_piece(subject: &dyn Subject) {
    let bench = Bench::with_object(subject).await;
    let writer = bench.proof(Rights::WRITE);
    let (feed, mut source) = fed();
    feed.send(Ok("first".into())).expect("it listens");
    let writing = bench.store.write(&writer, OBJECT, WriteAt::Offset(0), &mut source);
    let withdrawing = async {
        // Not before the first piece has landed.
        while bench.store.stat(&bench.all, OBJECT).await.expect("it is there").size < 5 {
            subject.pass(Duration::from_millis(1)).await;
        }
        subject.domain().withdraw(&writer, Rights::WRITE);
        feed.send(Ok("second".into()))
    };
    let (answer, _) = futures_util::join!(writing, withdrawing);
    assert_eq!(refused(answer), ErrorKind::Revoked);
    bench.expect(b"first").await;
}

/// Who waits for a source that sends nothing is let go when the right goes.
pub async fn a_withdrawn_right_ends_the_wait_for_a_source(subject: &dyn Subject) {
    let bench = Bench::with_object(subject).await;
    let writer = bench.proof(Rights::WRITE);
    let (feed, mut source) = fed();
    let writing = bench.store.write(&writer, OBJECT, WriteAt::Offset(0), &mut source);
    let withdrawing = async {
        subject.pass(Duration::from_millis(1)).await;
        subject.domain().withdraw(&writer, Rights::WRITE);
        subject.pass(Duration::from_secs(5)).await;
        // A store that waits on hears this, which is not what it should answer.
        feed.send(Err(Error::new(ErrorKind::Deadline, "the sender stopped")))
    };
    let (answer, _) = futures_util::join!(writing, withdrawing);
    let expected = if subject.stops_waiting() { ErrorKind::Revoked } else { ErrorKind::Deadline };
    assert_eq!(refused(answer), expected);
}

/// A proof that somebody was handed ends with each credential in the line it came from, under
/// a read that is under way as well.
pub async fn a_proof_handed_on_ends_with_a_credential_behind_it(subject: &dyn Subject) {
    let bench = Bench::with_object(subject).await;
    bench.write(0, pattern(1, 100)).await;
    let domain = subject.domain();
    let login = domain.claims("ada");
    let mut narrowed = domain.claims("ada");
    narrowed.parents = vec![login.id];
    let asked = domain.granted(&domain.caller_with(&narrowed), HERE, Rights::READ);
    let at = weft_core::acl::Circumstance { now: domain.clock().moment(), peer: None };
    let show =
        || Granted::verify(asked.capability(), domain.trust(), domain.revocations(), &Caller::anyone(), &at);
    let handed_on = show().expect("it may be handed on");
    let mut source = bench.store.read(&handed_on, OBJECT, Range::ALL).await.expect("a source");
    source.next(10).await.expect("it can be read").expect("there are bytes");
    let stopped = source.stopped();
    domain.revocations().end_credential(login.id, narrowed.expires);
    assert_eq!(refused(source.next(10).await), ErrorKind::Revoked);
    assert_eq!(refused(bench.store.read(&handed_on, OBJECT, Range::ALL).await), ErrorKind::Revoked);
    assert_eq!(refused(show()), ErrorKind::Revoked);
    assert_eq!(stopped.await.kind(), ErrorKind::Revoked);
}

/// A proof that runs out ends what was begun with it.
pub async fn an_expired_proof_stops_a_read(subject: &dyn Subject) {
    let bench = Bench::with_object(subject).await;
    bench.write(0, pattern(1, 100)).await;
    let domain = subject.domain();
    let caller = domain.caller("ada");
    let mut claims = bench.all.claims().clone();
    claims.expires = domain.clock().now().plus(Duration::from_secs(5));
    let at = weft_core::acl::Circumstance { now: domain.clock().moment(), peer: None };
    let signed = domain.capability(&claims);
    let short =
        Granted::verify(&signed, domain.trust(), domain.revocations(), &caller, &at).expect("it runs");
    let mut source = bench.store.read(&short, OBJECT, Range::ALL).await.expect("a source");
    source.next(10).await.expect("it can be read").expect("there are bytes");
    subject.pass(Duration::from_secs(6) + CLOCK_SKEW_MAX).await;
    if domain.clock().now() < claims.expires.plus(CLOCK_SKEW_MAX) {
        // A real clock is not waited for; others show it.
        return;
    }
    assert_eq!(refused(source.next(10).await), ErrorKind::Expired);
}

/// A label counts for every piece: who could read the old container does not follow.
pub async fn a_relabelled_object_is_lost_to_old_proofs(subject: &dyn Subject) {
    let bench = Bench::with_object(subject).await;
    bench.write(0, pattern(1, 100)).await;
    let there = proof(subject, THERE, Rights::ALL);
    bench.store.relabel(&bench.all, &there, OBJECT).await.expect("both sides allow it");
    assert!(bench.store.read(&bench.all, OBJECT, Range::ALL).await.is_err());
    let late = bench.try_write(WriteAt::Offset(0), "x").await;
    assert!(late.is_err());
}
