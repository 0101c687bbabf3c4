use ed25519_dalek::{Signer, SigningKey};
use weft_core::proof::{Purpose, Signed};
use weft_core::{KeyId, Time};
use weft_sys::{Random, SeededRandom};

use super::frame::{Body, Fault, Head, Link, MAGIC, decode, encode};
use super::*;

fn sign(head: &Head) -> Result<Signed> {
    let key = SigningKey::from_bytes(&[7; 32]);
    let claims = postcard::to_stdvec(head).expect("plain data");
    let signature = key.sign(&Purpose::Audit.message(&claims)).to_bytes();
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
    for seed in 0..20_000 {
        let random = SeededRandom::new(seed);
        let mut bytes = [MAGIC.as_slice(), &valid].concat();
        for _ in 0..=random.below(3) {
            let at = random.below(bytes.len() as u64) as usize;
            match random.below(3) {
                0 => bytes[at] ^= 1 << random.below(8),
                1 => bytes.truncate(at.max(MAGIC.len())),
                _ => bytes.insert(at, random.u64() as u8),
            }
        }
        match decode(&bytes[MAGIC.len().min(bytes.len())..], Some(&before)) {
            Ok(frame) => assert_eq!(frame.body, body, "seed {seed}"),
            Err(Fault::Short(wanted)) => assert!(wanted <= limits::AUDIT_FRAME_BYTES_MAX, "seed {seed}"),
            Err(Fault::Wrong(_)) => {}
        }
    }
}
