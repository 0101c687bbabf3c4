//! Other signatures that are as good as one of ECDSA: whoever has one can make them, without a key.

use x509_cert::Certificate;
use x509_cert::der::{Decode, Encode};

/// The order of P-256.
const ORDER: [u8; 32] = [
    0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xbc, 0xe6, 0xfa,
    0xad, 0xa7, 0x17, 0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63, 0x25, 0x51,
];

/// Returns the twin of a signature of P-256, 32 bytes each of r and s: r, and the order less s.
pub fn signature(signature: &[u8]) -> Vec<u8> {
    let (r, s) = signature.split_at(32);
    let (mut twin, mut borrowed) = (ORDER, 0);
    for (digit, less) in twin.iter_mut().zip(s).rev() {
        let left = i16::from(*digit) - i16::from(*less) - borrowed;
        (*digit, borrowed) = (left.rem_euclid(256) as u8, i16::from(left < 0));
    }
    [r, &twin].concat()
}

/// Returns a certificate that says the same under the twin of its signature.
pub fn certificate(der: &[u8]) -> Vec<u8> {
    let was = Certificate::from_der(der).expect("a certificate");
    let twin = signature(&fixed(was.signature().raw_bytes()));
    let (r, s) = twin.split_at(32);
    let signed = tagged(0x30, &[integer(r), integer(s)].concat());
    let bits = tagged(0x03, &[&[0], &signed[..]].concat());
    let inner = was.tbs_certificate().to_der().expect("it was read");
    let algorithm = was.signature_algorithm().to_der().expect("it was read");
    tagged(0x30, &[inner, algorithm, bits].concat())
}

/// Returns r and s of a DER signature, 32 bytes each.
fn fixed(der: &[u8]) -> Vec<u8> {
    let r = usize::from(der[3]);
    let (one, other) = (&der[4..4 + r], &der[6 + r..]);
    let padded = |number: &[u8]| {
        let number = &number[number.len().saturating_sub(32)..];
        [&vec![0; 32 - number.len()][..], number].concat()
    };
    [padded(one), padded(other)].concat()
}

fn integer(number: &[u8]) -> Vec<u8> {
    let start = number.iter().position(|byte| *byte != 0).unwrap_or(number.len() - 1);
    let number = &number[start..];
    let sign: &[u8] = if number[0] >= 0x80 { &[0] } else { &[] };
    tagged(0x02, &[sign, number].concat())
}

fn tagged(tag: u8, bytes: &[u8]) -> Vec<u8> {
    let length = match bytes.len() {
        few @ 0..=0x7f => vec![few as u8],
        some @ 0x80..=0xff => vec![0x81, some as u8],
        many => vec![0x82, (many >> 8) as u8, many as u8],
    };
    [&[tag], &length[..], bytes].concat()
}
