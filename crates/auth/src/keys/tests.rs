use weft_sys::SeededRandom;

use super::*;

#[test]
fn a_key_file_reads_back_as_its_key_for_its_purpose_and_with_any_bit_flipped_not_at_all() {
    let key = file::make(&SeededRandom::new(1));
    let bytes = file::encode(Purpose::Audit, &key);
    let read = file::decode(Purpose::Audit, &*bytes).expect("just written");
    assert_eq!(read.to_bytes(), key.to_bytes());
    assert!(file::decode(Purpose::Credential, &*bytes).is_err(), "it is for something else");
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.to_vec();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(file::decode(Purpose::Audit, &damaged).is_err(), "bit {bit}");
    }
    for cut in 0..bytes.len() {
        assert!(file::decode(Purpose::Audit, &bytes[..cut]).is_err(), "cut at {cut}");
    }
    assert!(file::decode(Purpose::Audit, &[&bytes[..], &[0]].concat()).is_err(), "and nothing behind it");
}

#[test]
fn what_is_signed_is_bounded() {
    let key = file::make(&SeededRandom::new(1));
    let error = sign(&key, Purpose::Credential, &vec![7_u8; limits::PROOF_BYTES_MAX + 1]);
    assert_eq!(error.expect_err("too large").kind(), ErrorKind::TooLarge);
}
