//! Randomness: the machine's, and one that a seed decides.

use std::sync::{Mutex, PoisonError};

/// Where random bytes come from.
pub trait Random: Send + Sync {
    /// Fills `bytes`.
    fn fill(&self, bytes: &mut [u8]);

    /// Returns 64 random bits.
    fn u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// Returns a number below `end`, which must not be zero.
    fn below(&self, end: u64) -> u64 {
        // The bias is at most `end / 2^64`: nothing for the sizes it is used with.
        ((u128::from(self.u64()) * u128::from(end)) >> 64) as u64
    }
}

/// The machine's cryptographic randomness.
#[derive(Debug, Default)]
pub struct OsRandom;

impl Random for OsRandom {
    fn fill(&self, bytes: &mut [u8]) {
        // Linux's getrandom cannot fail once the machine has booted; nothing that needs a
        // secret could go on without it.
        getrandom::fill(bytes).expect("the kernel hands out randomness");
    }
}

/// Randomness for the simulator: the same seed gives the same bytes. Guessable by anyone.
#[derive(Debug)]
pub struct SeededRandom {
    state: Mutex<u64>,
}

impl SeededRandom {
    /// Makes a source from `seed`.
    pub fn new(seed: u64) -> Self {
        Self { state: Mutex::new(seed) }
    }

    /// SplitMix64: every seed, 0 included, gives a full-period stream.
    fn step(&self) -> u64 {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

impl Random for SeededRandom {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.step().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
        let draw = |seed| {
            let mut bytes = [0; 21];
            SeededRandom::new(seed).fill(&mut bytes);
            bytes
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn below_stays_below_and_reaches_both_ends() {
        let random = SeededRandom::new(1);
        let drawn: Vec<u64> = (0..200).map(|_| random.below(3)).collect();
        assert!((0..3).all(|value| drawn.contains(&value)) && drawn.iter().all(|value| *value < 3));
    }
}
