//! Digests of whole files: RFC 9530's fields, and the older ones that grid tools still send.

use adler2::Adler32;
use data_encoding::{BASE64, HEXLOWER, HEXLOWER_PERMISSIVE};
use md5::{Digest as _, Md5};
use sha2::{Sha256, Sha512};
use weft_core::limits;

use super::accept::weight;
use super::{Refusal, members, trim};

/// A digest this door can make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
    /// MD5: finds accidents, proves nothing.
    Md5,
    /// Adler-32: finds accidents, proves nothing.
    Adler32,
}

impl Algorithm {
    /// Every one, the strongest first.
    pub const ALL: [Self; 4] = [Self::Sha512, Self::Sha256, Self::Md5, Self::Adler32];

    /// Returns its key in Repr-Digest.
    pub fn key(self) -> &'static str {
        match self {
            Self::Sha256 => "sha-256",
            Self::Sha512 => "sha-512",
            Self::Md5 => "md5",
            Self::Adler32 => "adler",
        }
    }

    /// Returns its name in Digest.
    pub fn old_name(self) -> &'static str {
        match self {
            Self::Adler32 => "adler32",
            other => other.key(),
        }
    }

    fn by(name: &str, name_of: fn(Self) -> &'static str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| name_of(*one).eq_ignore_ascii_case(name))
    }

    fn bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha512 => 64,
            Self::Md5 => 16,
            Self::Adler32 => 4,
        }
    }
}

/// A digest's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// Made how.
    pub algorithm: Algorithm,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Value {
    /// Writes it as Repr-Digest does.
    pub fn to_field(&self) -> String {
        format!("{}=:{}:", self.algorithm.key(), BASE64.encode(&self.bytes))
    }

    /// Writes it as Digest does: Adler-32 in hexadecimal, as the grid community sends it.
    pub fn to_old_field(&self) -> String {
        let text = match self.algorithm {
            Algorithm::Adler32 => HEXLOWER.encode(&self.bytes),
            _ => BASE64.encode(&self.bytes),
        };
        format!("{}={text}", self.algorithm.old_name())
    }
}

/// Makes digests of bytes that come in pieces.
#[derive(Clone)]
pub enum Sum {
    /// SHA-256.
    Sha256(Sha256),
    /// SHA-512.
    Sha512(Sha512),
    /// MD5.
    Md5(Md5),
    /// Adler-32.
    Adler32(Adler32),
}

impl Sum {
    /// Begins.
    pub fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Sha256 => Self::Sha256(Sha256::new()),
            Algorithm::Sha512 => Self::Sha512(Sha512::new()),
            Algorithm::Md5 => Self::Md5(Md5::new()),
            Algorithm::Adler32 => Self::Adler32(Adler32::new()),
        }
    }

    /// Takes the next bytes in.
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(sum) => sum.update(bytes),
            Self::Sha512(sum) => sum.update(bytes),
            Self::Md5(sum) => sum.update(bytes),
            Self::Adler32(sum) => sum.write_slice(bytes),
        }
    }

    /// Ends.
    pub fn finish(self) -> Value {
        let (algorithm, bytes) = match self {
            Self::Sha256(sum) => (Algorithm::Sha256, sum.finalize().to_vec()),
            Self::Sha512(sum) => (Algorithm::Sha512, sum.finalize().to_vec()),
            Self::Md5(sum) => (Algorithm::Md5, sum.finalize().to_vec()),
            Self::Adler32(sum) => (Algorithm::Adler32, sum.checksum().to_be_bytes().to_vec()),
        };
        Value { algorithm, bytes }
    }
}

/// Reads Want-Repr-Digest: the algorithm that is wanted most and can be made. Of equals the
/// strongest.
pub fn wanted(field: &str) -> Option<Algorithm> {
    best(members(field).take(limits::HTTP_MEMBERS_MAX).filter_map(|member| {
        let (key, weight) = member.split_once('=').unwrap_or((member, "1"));
        let weight = trim(weight.split(';').next()?).parse::<u16>().ok().filter(|weight| *weight <= 10)?;
        Some((Algorithm::by(trim(key), Algorithm::key)?, weight))
    }))
}

/// Reads Want-Digest, the older form.
pub fn wanted_old(field: &str) -> Option<Algorithm> {
    best(members(field).take(limits::HTTP_MEMBERS_MAX).filter_map(|member| {
        let (name, parameters) = member.split_once(';').unwrap_or((member, ""));
        Some((Algorithm::by(trim(name), Algorithm::old_name)?, weight(parameters)))
    }))
}

fn best(wanted: impl Iterator<Item = (Algorithm, u16)>) -> Option<Algorithm> {
    let rank = |one: Algorithm| Algorithm::ALL.into_iter().rev().position(|other| other == one);
    let acceptable = wanted.filter(|(_, weight)| *weight > 0);
    acceptable.max_by_key(|(algorithm, weight)| (*weight, rank(*algorithm))).map(|(algorithm, _)| algorithm)
}

/// Reads Repr-Digest or Content-Digest: the values whose algorithm is known here. Others say
/// nothing to this door and are passed over.
pub fn values(field: &str) -> Result<Vec<Value>, Refusal> {
    parse_values(field, Algorithm::key, |_, text| {
        // Parameters may follow the closing colon.
        let coded = text.strip_prefix(':')?.split_once(':')?.0;
        BASE64.decode(coded.as_bytes()).ok()
    })
}

/// Reads Digest, the older form.
pub fn values_old(field: &str) -> Result<Vec<Value>, Refusal> {
    parse_values(field, Algorithm::old_name, |algorithm, text| match algorithm {
        Algorithm::Adler32 => HEXLOWER_PERMISSIVE.decode(format!("{text:0>8}").as_bytes()).ok(),
        _ => BASE64.decode(text.as_bytes()).ok(),
    })
}

/// Reads Content-MD5.
pub fn value_md5(field: &str) -> Result<Value, Refusal> {
    let bytes = BASE64.decode(field.as_bytes()).ok().filter(|bytes| bytes.len() == 16).ok_or(BAD)?;
    Ok(Value { algorithm: Algorithm::Md5, bytes })
}

const BAD: Refusal = Refusal::malformed("a digest is malformed");

fn parse_values(
    field: &str,
    name_of: fn(Algorithm) -> &'static str,
    decode: impl Fn(Algorithm, &str) -> Option<Vec<u8>>,
) -> Result<Vec<Value>, Refusal> {
    let mut values = Vec::new();
    for (count, member) in members(field).enumerate() {
        let (name, text) = member.split_once('=').ok_or(BAD)?;
        if count >= limits::HTTP_MEMBERS_MAX {
            return Err(Refusal::malformed("there are more digests than the limit"));
        }
        let Some(algorithm) = Algorithm::by(trim(name), name_of) else { continue };
        let bytes = decode(algorithm, trim(text)).filter(|bytes| bytes.len() == algorithm.bytes());
        values.push(Value { algorithm, bytes: bytes.ok_or(BAD)? });
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(algorithm: Algorithm, bytes: &[u8]) -> Value {
        let mut sum = Sum::new(algorithm);
        bytes.chunks(3).for_each(|chunk| sum.update(chunk));
        sum.finish()
    }

    #[test]
    fn values_are_those_of_other_programs() {
        for (algorithm, field, old) in [
            (Algorithm::Adler32, "adler=:BiwCFQ==:", "adler32=062c0215"),
            (Algorithm::Md5, "md5=:XUFAKrxLKna5cZ2REBfFkg==:", "md5=XUFAKrxLKna5cZ2REBfFkg=="),
            (
                Algorithm::Sha256,
                "sha-256=:LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=:",
                "sha-256=LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=",
            ),
        ] {
            let value = digest(algorithm, b"hello");
            assert_eq!((value.to_field().as_str(), value.to_old_field().as_str()), (field, old));
            assert_eq!(values(field).expect("good"), values_old(old).expect("good"));
            assert_eq!(values_old(old).expect("good"), [value]);
        }
        let wide = digest(Algorithm::Sha512, b"hello");
        assert_eq!(values(&wide.to_field()).expect("good"), [wide]);
    }

    #[test]
    fn the_most_wanted_known_algorithm_is_chosen() {
        for (field, chosen) in [
            ("sha-256=1, md5=10", Some(Algorithm::Md5)),
            ("sha-256=10, sha-512=10", Some(Algorithm::Sha512)),
            ("sha-256=0", None),
            ("crc32c=10, adler=1", Some(Algorithm::Adler32)),
            ("sha-256=11", None),
            ("sha-256", Some(Algorithm::Sha256)),
            ("", None),
        ] {
            assert_eq!(wanted(field), chosen, "{field}");
        }
        for (field, chosen) in [
            ("adler32", Some(Algorithm::Adler32)),
            ("ADLER32;q=0.5, MD5;q=0.8", Some(Algorithm::Md5)),
            ("SHA-256, unixcksum", Some(Algorithm::Sha256)),
            ("sha;q=1, md5;q=0", None),
        ] {
            assert_eq!(wanted_old(field), chosen, "{field}");
        }
    }

    #[test]
    fn malformed_values_are_refused_and_unknown_ones_passed_over() {
        assert_eq!(values("crc32c=:AAAA:").expect("unknown"), []);
        for bad in ["sha-256", "sha-256=x", "sha-256=:AAAA:", "md5=::", "md5=:!:"] {
            assert!(values(bad).is_err(), "{bad}");
        }
        for bad in ["md5=AAAA", "adler32=xyz", "adler32=123456789", "md5"] {
            assert!(values_old(bad).is_err(), "{bad}");
        }
        assert_eq!(
            values_old("adler32=11").expect("leading zeros may be left out")[0].bytes,
            [0, 0, 0, 0x11]
        );
    }
}
