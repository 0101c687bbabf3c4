//! How much a mount holds at once of what programs read and write, by the memory that it is given.
//!
//! ```text
//!  memory = three pieces for each thread that reads requests + buffers kept for reuse + windows read ahead
//!         + two pieces for each call that waits
//! ```
//!
//! Beside it come a few MiB whatever it does, what is known of each file that the kernel remembers, and memory that a node
//! which answers nobody was lent by calls that ended since: [`limits::RPC_LENT_AT_ONCE`] pieces.

use weft_core::limits;

/// Each in pieces of [`limits::PIECE_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Calls that wait for their answer. Each was given a piece, or is about to be, and has it there a second time where
    /// that waits to be sent to a node that it cannot be lent.
    pub calls: usize,
    /// Windows read ahead.
    pub windows: usize,
    /// Buffers that are kept for reuse.
    pub buffers: usize,
}

/// Pieces of a thread that reads requests: the buffer that it reads into, and a call that it begins.
const READER_PIECES: usize = 3;

impl Room {
    /// Divides so many bytes, [`limits::MOUNT_MEMORY_MIN`] at least. What is more than can be used is not.
    pub(crate) fn of(memory: u64) -> Self {
        let pieces = memory.max(limits::MOUNT_MEMORY_MIN) as usize / limits::PIECE_BYTES_MAX;
        let windows = (pieces / 8).min(limits::MOUNT_AHEAD_WINDOWS);
        let buffers = (pieces / 16).min(limits::MOUNT_BUFFERS_KEPT);
        let calls = (pieces - windows - buffers - READER_PIECES * limits::MOUNT_READERS_MAX) / 2;
        Self { calls: calls.min(limits::MOUNT_CALLS_MAX), windows, buffers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_held_fits_into_what_is_given_and_most_of_that_is_used() {
        const MIB: u64 = 1 << 20;
        for memory in [limits::MOUNT_MEMORY_MIN, 65 * MIB, 100 * MIB, limits::MOUNT_MEMORY_USUAL] {
            let Room { calls, windows, buffers } = Room::of(memory);
            let readers = READER_PIECES * limits::MOUNT_READERS_MAX;
            let held = (2 * calls + windows + buffers + readers) * limits::PIECE_BYTES_MAX;
            assert!(held as u64 <= memory && held as u64 + 2 * MIB > memory, "{memory}: {held}");
            assert!(calls > limits::MOUNT_READERS_MAX && windows > 0 && buffers > 0);
        }
        assert_eq!(Room::of(0), Room::of(limits::MOUNT_MEMORY_MIN));
        let most = Room {
            calls: limits::MOUNT_CALLS_MAX,
            windows: limits::MOUNT_AHEAD_WINDOWS,
            buffers: limits::MOUNT_BUFFERS_KEPT,
        };
        assert_eq!(Room::of(u64::MAX), most);
    }
}
