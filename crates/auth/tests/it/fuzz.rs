//! Parsers of what others hand in: valid → mutated → no panic, nothing believed.
//!
//! `WEFT_FUZZ_SECONDS` says for how long each runs. A failure prints its seed.

use weft_auth::{FirstPassword, Settings};
use weft_conformance::fuzz;
use weft_core::acl::Circumstance;
use weft_core::proof::{Caller, Granted, KeyCertificate, Purpose, Signed, Trust};
use weft_core::service::{AuditFilter, AuditVerdict};
use weft_core::{ErrorKind, Rights};
use weft_sys::{Disk, Open, Random, SeededRandom, SimDisk, simulate};

use crate::scene::{Scene, scene, settings};

/// Mutates once to four times.
fn mutated(valid: &[u8], random: &dyn Random) -> Vec<u8> {
    let roll = &mut |sides| random.below(sides);
    (0..=roll(4)).fold(valid.to_vec(), |bytes, _| fuzz::mutated(&bytes, roll))
}

#[test]
fn no_mutated_credential_or_capability_is_believed_and_none_panics() {
    scene(91, |node| async move {
        let admin = node.admin().await;
        let granted = node.auth.issuer().issue(&node.decision(&admin, Rights::READ)).expect("allowed");
        let (trust, revocations) = (node.auth.trust(), node.auth.revocations());
        let at = Circumstance { now: node.sys.clock().moment(), peer: None };
        let valid = [admin.signed().expect("it has one").clone(), granted.capability().clone()];
        fuzz::for_a_while("token", |seed| {
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
        fuzz::for_a_while("certificate", |seed| {
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
    fuzz::for_a_while("audit file", |seed| {
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
