//! Parsers of what others hand in: valid → mutated → no panic, bounded memory, nothing believed.
//!
//! `WEFT_FUZZ_SECONDS` says for how long each runs. A failure prints its seed.

use std::cell::Cell;

use weft_auth::{FirstPassword, Settings};
use weft_conformance::file_system::site::Dice;
use weft_conformance::fuzz::fuzz_within;
use weft_core::acl::Circumstance;
use weft_core::proof::{Caller, Granted, KeyCertificate, Purpose, Signed, Trust};
use weft_core::service::{AuditFilter, AuditVerdict};
use weft_core::{ErrorKind, Rights};
use weft_kv::Options;
use weft_sys::memory::most_taken;
use weft_sys::{Disk, Open, SimDisk, Sys, simulate};

use crate::scene::{Scene, scene, settings};

/// What reading may take of memory: a list may be begun as if it were as long as it says, up to a
/// mebibyte.
const MEMORY_MAX: (usize, usize) = (2 << 20, 64);

#[test]
fn no_mutated_credential_or_capability_is_believed_and_none_panics() {
    scene(91, |node| async move {
        let admin = node.admin().await;
        let granted = node.auth.issuer().issue(&node.decision(&admin, Rights::READ)).expect("allowed");
        let (trust, revocations) = (node.auth.trust(), node.auth.revocations());
        let at = Circumstance { now: node.sys.clock().moment(), peer: None };
        let valid = [admin.signed().expect("it has one").clone(), granted.capability().clone()];
        let make = |dice: &mut Dice| dice.pick(&valid).to_token().into_bytes();
        fuzz_within(MEMORY_MAX, "token", make, |token| {
            let Ok(signed) = Signed::from_token(&String::from_utf8_lossy(token)) else { return };
            assert_eq!(Signed::from_token(&signed.to_token()).expect("it was just read"), signed);
            if valid.contains(&signed) {
                return;
            }
            let error = Caller::verify(&signed, &trust, &revocations, at.now).expect_err("not ours");
            assert_eq!(error.kind(), ErrorKind::Unauthenticated);
            let error = Granted::verify(&signed, &trust, &revocations, &admin, &at).expect_err("not ours");
            assert_eq!(error.kind(), ErrorKind::Unauthenticated);
        });
    });
}

#[test]
fn no_mutated_certificate_makes_another_key_trusted() {
    scene(92, |node| async move {
        let certificates = node.auth.certificates().expect("rows");
        let make = |dice: &mut Dice| postcard::to_stdvec(dice.pick(&certificates)).expect("plain data");
        fuzz_within(MEMORY_MAX, "certificate", make, |bytes| {
            let Ok(read) = postcard::from_bytes::<KeyCertificate>(bytes) else { return };
            let again = postcard::to_stdvec(&read).expect("plain data");
            assert_eq!(postcard::from_bytes::<KeyCertificate>(&again).expect("just written"), read);
            let mut trust = Trust::none();
            trust.add_domain(node.auth.domain());
            if trust.add(&read).is_ok() {
                // The signer's id is a hint here: what counts is the root key, and what it said.
                let said = |certificate: &KeyCertificate| certificate.statement.claims().to_vec();
                let ours = |one: &KeyCertificate| (read.root, said(&read)) == (one.root, said(one));
                assert!(certificates.iter().any(ours), "another key is trusted");
            }
        });
    });
}

/// The file that is mutated.
const FILE: &str = "auth/audit/0000000000000001.audit";

/// Returns the disk of a node with an audit log of several files, and the first of them.
fn logged() -> (SimDisk, Vec<u8>) {
    simulate(93, |sys| async move {
        let node = start(&sys, SimDisk::new()).await;
        for _ in 0..3 {
            node.admin().await;
            node.auth.rotate(&node.admin().await, Purpose::Audit).await.expect("it may");
            node.auth.close().await.expect("it can");
        }
        let Scene { engine, disk, auth, .. } = node;
        drop(auth);
        weft_kv::Engine::close(&*engine).await.expect("it can");
        let disk = disk.kill();
        let file = disk.open(FILE, Open::Read).expect("it is there");
        let mut bytes = vec![0; file.len().expect("a length") as usize];
        file.read_exact_at(&mut bytes, 0).expect("bytes");
        (disk, bytes)
    })
}

/// Starts a node whose engine is so small that what the log takes of memory stands out.
async fn start(sys: &Sys, disk: SimDisk) -> Scene {
    let settings = Settings { founder_password: FirstPassword::None, ..settings() };
    let kv = Options {
        segment_bytes: 64 << 10,
        fold_bytes: 32 << 10,
        overlay_bytes_max: 256 << 10,
        cache_bytes: 256 << 10,
        ..Options::default()
    };
    Scene::start_with(sys, disk, settings, kv).await.expect("it starts")
}

/// Starts a node over a disk whose audit file is this, and returns whether the log is whole.
fn starts_over(disk: &SimDisk, changed: &[u8]) -> bool {
    // Everything on it was flushed before it was closed.
    let disk = disk.crashed_copy(0);
    let file = disk.open(FILE, Open::Write).expect("it is there");
    file.set_len(0).and_then(|()| file.write_at(changed, 0)).expect("room");
    simulate(94, |sys| async move {
        let node = start(&sys, disk).await;
        let admin = node.admin().await;
        let page = node.auth.audit().records(&admin, &AuditFilter::default()).await.expect("it may");
        assert!(page.records.iter().any(|(_, record)| record.operation == "login"));
        let verdict = node.auth.audit().verify(&admin).await.expect("it may");
        matches!(verdict, AuditVerdict::Whole { .. })
    })
}

/// A node starts over any audit file, records go on, and what was done to it does not pass unseen.
#[test]
fn a_node_starts_over_any_mutated_audit_file_and_the_log_goes_on() {
    let (disk, bytes) = logged();
    // What a start and two readings of the whole log take anyway.
    let (whole, usual) = most_taken(|| starts_over(&disk, &bytes));
    assert!(whole);
    let runs = Cell::new(0);
    fuzz_within(
        (usual + MEMORY_MAX.0, MEMORY_MAX.1),
        "audit file",
        |_| bytes.clone(),
        |changed| {
            // What follows a whole log, as after a torn write, is cut off: then nothing is lost.
            let unseen = changed.starts_with(&bytes);
            assert_eq!(starts_over(&disk, changed), unseen);
            runs.set(runs.get() + 1);
        },
    );
    println!("a start over a whole log takes {usual} bytes; {} were changed", runs.get());
}

/// How a file begins is bytes like others: a changed one is damage, whatever it then says it is.
#[test]
fn a_node_starts_over_an_audit_file_that_begins_as_another_would() {
    let (disk, bytes) = logged();
    let digit = bytes.iter().position(u8::is_ascii_digit).expect("it names its version");
    for (at, to) in [(0, b'W'), (digit, b'1'), (digit, b'3'), (digit, b'9')] {
        let mut changed = bytes.to_vec();
        changed[at] = to;
        assert!(!starts_over(&disk, &changed), "byte {at} as {to}");
    }
}
