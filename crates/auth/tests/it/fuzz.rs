//! Parsers of what others hand in: valid → mutated → no panic, nothing believed.
//!
//! `WEFT_FUZZ_SECONDS` says for how long each runs (2 by default). A failure prints its seed.

use weft_auth::{FirstPassword, Settings};
use weft_core::acl::Circumstance;
use weft_core::proof::{Caller, Granted, KeyCertificate, Purpose, Signed, Trust};
use weft_core::service::{AuditFilter, AuditVerdict};
use weft_core::{ErrorKind, Rights, Tick};
use weft_sys::{Disk, Open, Random, SeededRandom, SimDisk, Sys, simulate};

use crate::scene::{Scene, scene, settings};

/// Runs `one` with seed after seed until the time is over.
#[expect(clippy::print_stdout, reason = "a failing run must be repeatable")]
fn for_a_while(mut one: impl FnMut(u64)) {
    let seconds = std::env::var("WEFT_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2);
    let real = Sys::real();
    let end = Tick(real.clock().tick().0 + seconds * 1_000_000_000);
    let start = real.random().u64();
    let mut runs = 0;
    while real.clock().tick() < end {
        // Half the seeds are the same each time.
        one(if runs % 2 == 0 { runs } else { start.wrapping_add(runs) });
        runs += 1;
    }
    println!("{runs} runs, new seeds from {start}");
}

/// Flips, cuts, repeats and inserts bytes.
fn mutated(valid: &[u8], random: &dyn Random) -> Vec<u8> {
    let mut bytes = valid.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() as u64 + 1) as usize;
        match random.below(6) {
            0 | 1 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            2 if at < bytes.len() => bytes[at] = [0, 0x7f, 0x80, 0xff][random.below(4) as usize],
            3 => bytes.truncate(at),
            4 => {
                let end = (at + random.below(40) as usize).min(bytes.len());
                let part = bytes[at.min(end)..end].to_vec();
                bytes.splice(at..at, part);
            }
            _ => bytes.insert(at, random.u64() as u8),
        }
    }
    bytes
}

#[test]
fn no_mutated_credential_or_capability_is_believed_and_none_panics() {
    scene(91, |node| async move {
        let admin = node.admin().await;
        let granted = node.auth.issuer().issue(&node.decision(&admin, Rights::READ)).expect("allowed");
        let (trust, revocations) = (node.auth.trust(), node.auth.revocations());
        let at = Circumstance { now: node.sys.clock().moment(), peer: None };
        let valid = [admin.signed().expect("it has one").clone(), granted.capability().clone()];
        for_a_while(|seed| {
            let random = SeededRandom::new(seed);
            let original = &valid[random.below(2) as usize];
            let token = mutated(original.to_token().as_bytes(), &random);
            let Ok(signed) = Signed::from_token(&String::from_utf8_lossy(&token)) else { return };
            if signed == *original {
                return;
            }
            let error = Caller::verify(&signed, &trust, &revocations, at.now).expect_err("not ours");
            assert_eq!(error.kind(), ErrorKind::Unauthenticated, "seed {seed}");
            let error = Granted::verify(&signed, &trust, &revocations, &admin, &at).expect_err("not ours");
            assert_eq!(error.kind(), ErrorKind::Unauthenticated, "seed {seed}");
        });
    });
}

#[test]
fn no_mutated_certificate_makes_another_key_trusted() {
    scene(92, |node| async move {
        let certificates = node.auth.certificates().expect("rows");
        for_a_while(|seed| {
            let random = SeededRandom::new(seed);
            let original = &certificates[random.below(certificates.len() as u64) as usize];
            let bytes = mutated(&postcard::to_stdvec(original).expect("plain data"), &random);
            let Ok(read) = postcard::from_bytes::<KeyCertificate>(&bytes) else { return };
            let mut trust = Trust::none();
            trust.add_domain(node.auth.domain());
            if trust.add(&read).is_ok() {
                // The signer's id is a hint here: what counts is the root key, and what it said.
                let said = |certificate: &KeyCertificate| certificate.statement.claims().to_vec();
                assert_eq!((read.root, said(&read)), (original.root, said(original)), "seed {seed}");
            }
        });
    });
}

/// A node starts over any audit file, records go on, and what was done to it does not pass unseen.
#[test]
fn a_node_starts_over_any_mutated_audit_file_and_the_log_goes_on() {
    let settings = || Settings { founder_password: FirstPassword::None, ..settings() };
    for_a_while(|seed| {
        simulate(seed, |sys| async move {
            let node = Scene::try_start(&sys, SimDisk::new(), settings()).await.expect("it starts");
            for _ in 0..3 {
                node.admin().await;
                node.auth.rotate(&node.admin().await, Purpose::Audit).await.expect("it may");
                node.auth.close().await.expect("it can");
            }
            let Scene { engine, disk, auth, .. } = node;
            drop(auth);
            weft_kv::Engine::close(&*engine).await.expect("it can");
            let disk = disk.kill();
            let name = "auth/audit/0000000000000001.audit";
            let file = disk.open(name, Open::Write).expect("it is there");
            let mut bytes = vec![0; file.len().expect("a length") as usize];
            file.read_exact_at(&mut bytes, 0).expect("bytes");
            let changed = mutated(&bytes, sys.random());
            file.set_len(0).and_then(|()| file.write_at(&changed, 0)).expect("room");
            // What follows a whole log, as after a torn write, is cut off: then nothing is lost.
            let unseen = changed.starts_with(&bytes);
            let node = Scene::try_start(&sys, disk, settings()).await.expect("it starts");
            let admin = node.admin().await;
            let page = node.auth.audit().records(&admin, &AuditFilter::default()).await.expect("it may");
            assert!(page.records.iter().any(|(_, record)| record.operation == "login"));
            let verdict = node.auth.audit().verify(&admin).await.expect("it may");
            assert_eq!(matches!(verdict, AuditVerdict::Whole { .. }), unseen, "seed {seed}: {verdict:?}");
        });
    });
}
