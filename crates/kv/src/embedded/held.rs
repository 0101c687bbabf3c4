//! Keys and values as they are held in memory: without an allocation for each.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::ops::Deref;

use bytes::{Bytes, BytesMut};

/// A key. One of ordinary length lies in it: comparing two follows no pointer, and a copy
/// allocates nothing.
#[derive(Clone, Debug)]
pub(super) enum Key {
    Short { len: u8, bytes: [u8; Self::SHORT] },
    Long(Bytes),
}

impl Key {
    /// With the tag and the length, as much as six words hold.
    const SHORT: usize = 46;

    pub(super) fn new(key: &[u8]) -> Self {
        match u8::try_from(key.len()) {
            Ok(len) if key.len() <= Self::SHORT => {
                let mut bytes = [0; Self::SHORT];
                bytes[..key.len()].copy_from_slice(key);
                Self::Short { len, bytes }
            }
            _ => Self::Long(Bytes::copy_from_slice(key)),
        }
    }

    /// Returns the bytes, for whoever keeps them on.
    pub(super) fn into_bytes(self) -> Bytes {
        match self {
            Self::Short { .. } => Bytes::copy_from_slice(&self),
            Self::Long(bytes) => bytes,
        }
    }
}

impl Deref for Key {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Short { len, bytes } => &bytes[..usize::from(*len)],
            Self::Long(bytes) => bytes,
        }
    }
}

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Key {}

/// Memory for values: small ones share a piece, which is free once none of them is held. (At most
/// what was written since the last fold is held: see `KV_FOLD_LOG_SHARE`.)
#[derive(Debug, Default)]
pub(super) struct Values {
    piece: BytesMut,
}

impl Values {
    /// How long a piece is, and the values that share one at most.
    const PIECE_BYTES: usize = 32 << 10;
    const SMALL_BYTES: usize = 512;

    pub(super) fn hold(&mut self, value: &[u8]) -> Bytes {
        if value.len() > Self::SMALL_BYTES {
            return Bytes::copy_from_slice(value);
        }
        if self.piece.capacity() < value.len() {
            self.piece = BytesMut::with_capacity(Self::PIECE_BYTES);
        }
        self.piece.extend_from_slice(value);
        self.piece.split().freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_what_they_were_made_from_and_in_the_order_of_their_bytes() {
        let texts: Vec<Vec<u8>> =
            [0, 1, 7, 45, 46, 47, 300].iter().flat_map(|len| [vec![1; *len], vec![2; *len]]).collect();
        for one in &texts {
            assert_eq!(&*Key::new(one), &one[..]);
            assert_eq!(Key::new(one).into_bytes(), one[..]);
            for other in &texts {
                assert_eq!(Key::new(one).cmp(&Key::new(other)), one.cmp(other));
                assert_eq!(Key::new(one) == Key::new(other), one == other);
            }
        }
        assert_eq!(size_of::<Key>(), 48);
    }

    #[test]
    fn values_are_kept_whatever_comes_after_them() {
        let mut values = Values::default();
        let texts: Vec<Vec<u8>> = (0..2000_usize).map(|at| vec![at as u8; at * 7 % 700]).collect();
        let held: Vec<Bytes> = texts.iter().map(|text| values.hold(text)).collect();
        assert_eq!(held, texts);
    }
}
