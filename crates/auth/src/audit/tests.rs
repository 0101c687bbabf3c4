use ed25519_dalek::{Signer, SigningKey};
use weft_conformance::fuzz::fuzz_within;
use weft_core::proof::{CertificateClaims, KeyCertificate, Purpose, Signed, Trust};
use weft_core::{DomainId, KeyId, Time};
use weft_sys::{Disk, Open, SimDisk};

use super::frame::{Body, Fault, Head, Link, MAGIC, decode, encode};
use super::*;

const OURS: u8 = 7;

fn sign(head: &Head) -> Result<Signed> {
    sign_with(OURS, Purpose::Audit, head)
}

fn sign_with<T: serde::Serialize>(key: u8, purpose: Purpose, head: &T) -> Result<Signed> {
    let key = SigningKey::from_bytes(&[key; 32]);
    let claims = postcard::to_stdvec(head).expect("plain data");
    let signature = key.sign(&purpose.message(&claims)).to_bytes();
    Ok(Signed::assemble(claims, KeyId::of_public_key(key.verifying_key().as_bytes()), signature))
}

fn batch(texts: &[&str]) -> Body {
    let clock = Sys::simulated(1);
    let record = |text: &&str| own_record(clock.clock(), text, AuditOutcome::Done, text.repeat(3));
    Body::Records { first: 5, notes: 2, records: texts.iter().map(record).collect() }
}

#[test]
fn a_frame_reads_back_and_leads_to_the_next() {
    let before: Link = [3; 32];
    let body = batch(&["read", "write"]);
    let (bytes, link) = encode(&body, &before, 1, Time::EPOCH, sign).expect("it fits");
    let Ok(frame) = decode(&bytes, Some(&before)) else { panic!("just written") };
    assert_eq!((&frame.body, frame.link, frame.bytes), (&body, link, bytes.len() as u64));
    assert!(decode(&bytes, Some(&[4; 32])).is_err(), "it follows one frame only");
    assert!(decode(&bytes, None).is_err(), "and begins no file");
    for short in 0..bytes.len() {
        assert!(matches!(decode(&bytes[..short], Some(&before)), Err(Fault::Short(_))), "{short}");
    }
}

#[test]
fn lengths_beyond_the_bound_are_refused_before_anything_is_read_for_them() {
    let mut bytes = vec![0xff; 64];
    assert_eq!(decode(&bytes, Some(&[0; 32])).err(), Some(Fault::Wrong("a batch is longer than any may be")));
    bytes[..8].copy_from_slice(&[0; 8]);
    assert!(decode(&bytes, Some(&[0; 32])).is_err());
}

/// Valid → mutated → no panic, never more than a frame asked for, and what is read is what was
/// written.
#[test]
fn no_mutated_frame_is_taken_for_another() {
    let before: Link = [9; 32];
    let body = batch(&["read", "refused", "login"]);
    let (valid, _) = encode(&body, &before, 1, Time::EPOCH, sign).expect("it fits");
    // A list may be begun as if it were as long as it says, up to a mebibyte.
    fuzz_within(
        (2 << 20, 64),
        "audit frame",
        |_| valid.clone(),
        |bytes| match decode(bytes, Some(&before)) {
            Ok(frame) => assert_eq!(frame.body, body),
            Err(Fault::Short(wanted)) => assert!(wanted <= limits::AUDIT_FRAME_BYTES_MAX),
            Err(Fault::Wrong(_)) => {}
        },
    );
}

/// Makes the trust of a domain whose root key is `root` and whose audit key is [`OURS`].
fn trust_of(root: u8) -> (DomainId, Trust) {
    let public = |key: u8| SigningKey::from_bytes(&[key; 32]).verifying_key().to_bytes();
    let (from, until) = (Time::EPOCH, Time::MAX);
    let claims =
        CertificateClaims { key: public(OURS), purpose: Purpose::Audit, volumes: Vec::new(), from, until };
    let statement = sign_with(root, Purpose::Certificate, &claims).expect("plain data");
    let domain = DomainId::of_root_key(&public(root));
    let mut trust = Trust::none();
    trust.add_domain(domain);
    trust.add(&KeyCertificate { root: public(root), statement }).expect("the root key signed it");
    (domain, trust)
}

/// Writes a log of an opening and two batches, whose hashes all match, signed by `keys` in turn.
/// Returns where each frame starts, and the end.
fn write_log(disk: &SimDisk, domain: DomainId, keys: [u8; 3]) -> Vec<u64> {
    let opening = Body::Opening { domain, number: 1, previous: [0; 32], next: 1, notes: 0 };
    let batch = |first| {
        let Body::Records { records, .. } = batch(&["read"]) else { unreachable!("a batch") };
        Body::Records { first, notes: 0, records }
    };
    let (mut log, mut link, mut starts) = (MAGIC.to_vec(), [0; 32], Vec::new());
    for (body, key) in [opening, batch(1), batch(2)].iter().zip(keys) {
        starts.push(log.len() as u64);
        let sign = |head: &Head| sign_with(key, Purpose::Audit, head);
        let (bytes, next) = encode(body, &link, 1, Time::EPOCH, sign).expect("it fits");
        log.extend(bytes);
        link = next;
    }
    starts.push(log.len() as u64);
    let file = disk.open(&chain::name_of(1), Open::Make).expect("room");
    file.set_len(0).and_then(|()| file.write_at(&log, 0)).expect("room");
    starts
}

#[test]
fn a_log_whose_hashes_match_but_that_the_domain_did_not_sign_is_broken_where_that_begins() {
    let (domain, trust) = trust_of(1);
    let disk = SimDisk::new();
    let verdict = |keys| {
        let starts = write_log(&disk, domain, keys);
        let files = vec![chain::FileMark { number: 1, first: 1 }];
        let extent = chain::Extent { files, end: starts[3], known: None };
        (starts, read::verify(&disk, &extent, &trust, domain).expect("it can be read"))
    };
    assert_eq!(verdict([OURS; 3]).1, AuditVerdict::Whole { records: 2 });
    for (keys, place) in [([OURS, OURS, 9], 2), ([OURS, 9, 9], 1), ([9, 9, 9], 0)] {
        let (starts, AuditVerdict::Broken { offset, detail, .. }) = verdict(keys) else {
            panic!("signed by another key and nobody noticed")
        };
        assert_eq!((offset, detail.contains("signed")), (starts[place], true), "{detail}");
    }
}
