//! Bounds and paces of the scrubber, and of what it found.

use std::time::Duration;

/// How long after its beginning a round of the scrubber is followed by another.
pub const SCRUB_EVERY: Duration = Duration::from_secs(7 * 24 * 3600);
/// How long a store is left alone by the scrubber after a start.
pub const SCRUB_AFTER_START: Duration = Duration::from_secs(60);
/// How long the scrubber rests when there is nothing to do, and after a failure.
pub const SCRUB_REST: Duration = Duration::from_secs(60);
/// How often the scrubber records where it is. What it did since is done again after a crash.
pub const SCRUB_NOTE_EVERY: Duration = Duration::from_secs(30);
/// Bytes that an object costs the scrubber beside its own: to find and open one takes a disk as long as
/// reading so many.
pub const SCRUB_OBJECT_BYTES: u64 = 64 << 10;
/// How many times slower the scrubber is where somebody used the store since its last step.
pub const SCRUB_SLOWER_IN_USE: u32 = 4;
/// Bytes in a second below which the scrubber is not set: at this a terabyte takes half a year.
pub const SCRUB_BYTES_PER_SECOND_MIN: u64 = 64 << 10;
/// Damaged objects that a scrubber remembers by name; more are counted.
pub const SCRUB_DAMAGED_MAX: usize = 1000;
/// Damaged blocks of one object that a scrubber remembers by number; more are counted.
pub const SCRUB_BLOCKS_MAX: usize = 128;
/// Blocks that wait for a scrubber to look at them out of their turn. Who finds no room is looked at in its turn.
pub const SCRUB_AGAIN_MAX: usize = 1024;
/// How long the names of damaged files are told as they were found out.
pub const DAMAGED_NAMES_KEPT: Duration = Duration::from_secs(600);
/// Damaged files that `weft status` names; `weft scrub status` tells all that are remembered.
pub const STATUS_DAMAGED_MAX: usize = 10;
