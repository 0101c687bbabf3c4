//! Every bound in Weft, named, in one place. A queue, batch, listing, path, retry
//! or wait without a line here is a defect.
//!
//! Relations between bounds are checked at compile time at the end of the file.

use std::time::Duration;

/// Bytes in one name (POSIX `NAME_MAX`).
pub const NAME_BYTES_MAX: usize = 255;
/// Bytes in a path as a caller gives it: doors refuse longer ones before parsing.
pub const PATH_BYTES_MAX: usize = 16 << 10;
/// Names in a path below its base.
pub const PATH_DEPTH_MAX: usize = 1024;
/// Bytes in a symbolic link's target (POSIX `PATH_MAX` less the NUL).
pub const LINK_TARGET_BYTES_MAX: usize = 4095;
/// Symbolic links followed while one path is resolved (as Linux does).
pub const LINK_STEPS_MAX: usize = 40;
/// Names one file may have (as ext4; doors show it as `LINK_MAX`).
pub const LINKS_MAX: u32 = 65_000;
/// Bytes in one file.
pub const FILE_BYTES_MAX: u64 = 1 << 62;
/// Bytes a file may have and still live inline in metadata (`storage.md`).
pub const INLINE_BYTES_MAX: u64 = 8 << 10;

/// Entries in one page of a listing.
pub const PAGE_ENTRIES_MAX: u32 = 4096;
/// Requests in one batch.
pub const BATCH_REQUESTS_MAX: usize = 256;
/// Bytes of user attributes on one file, names and values together.
pub const TAGS_BYTES_MAX: usize = 64 << 10;
/// Bytes in one user attribute's name (Linux `XATTR_NAME_MAX`).
pub const TAG_NAME_BYTES_MAX: usize = 255;
/// Bytes in one user attribute's value.
pub const TAG_VALUE_BYTES_MAX: usize = 60 << 10;

/// Entries in one ACL.
pub const ACL_ENTRIES_MAX: usize = 256;
/// Conditions on one ACL entry.
pub const ACL_CONDITIONS_MAX: usize = 8;
/// Members that a container split moves in one transaction (`security.md`).
pub const SPLIT_MEMBERS_MAX: usize = 10_000;
/// Containers on one volume's path from the root.
pub const CONTAINER_DEPTH_MAX: usize = 64;
/// Groups one caller may be in.
pub const CALLER_GROUPS_MAX: usize = 1024;
/// Bytes in a caller's or group's local name.
pub const CALLER_NAME_BYTES_MAX: usize = 128;
/// Delegates in a credential's chain.
pub const DELEGATES_MAX: usize = 8;
/// Path prefixes in one attenuated credential.
pub const ATTENUATION_PATHS_MAX: usize = 16;
/// Objects named in one object-scoped capability.
pub const CAPABILITY_OBJECTS_MAX: usize = 64;
/// Bytes in an encoded credential or capability.
pub const PROOF_BYTES_MAX: usize = 16 << 10;
/// Bytes in a password.
pub const PASSWORD_BYTES_MAX: usize = 1024;
/// How far two clocks may differ before an expiry is judged wrongly.
pub const CLOCK_SKEW_MAX: Duration = Duration::from_secs(60);
/// How long a credential from a login lives.
pub const CREDENTIAL_LIFE: Duration = Duration::from_secs(12 * 3600);
/// How long a capability issued on a node lives.
pub const CAPABILITY_LIFE: Duration = Duration::from_secs(3600);

/// Answers kept for replay, per session (request-form law 8).
pub const ONCE_RING: usize = 256;
/// Bytes in one kept answer.
pub const ONCE_REPLY_BYTES_MAX: usize = 1 << 10;
/// Sessions a node keeps.
pub const SESSIONS_MAX: usize = 65_536;
/// How long a session lives without use.
pub const SESSION_IDLE: Duration = Duration::from_secs(120);
/// How long after a restart sessions may reclaim opens and locks.
pub const SESSION_GRACE: Duration = Duration::from_secs(30);
/// Opens one session may hold.
pub const SESSION_OPENS_MAX: usize = 65_536;
/// Locks one file may carry.
pub const LOCKS_PER_FILE_MAX: usize = 4096;
/// Bytes that name a lock's owner.
pub const LOCK_OWNER_BYTES_MAX: usize = 1024;
/// How long one slice of a lock wait lasts before it must be renewed.
pub const LOCK_WAIT_SLICE: Duration = Duration::from_secs(30);
/// Changes a volume keeps for watchers.
pub const CHANGES_KEPT: usize = 65_536;
/// Changes in one page.
pub const CHANGES_PAGE_MAX: usize = 1024;

/// Parts in one stage (as S3's multipart upload).
pub const STAGE_PARTS_MAX: u32 = 10_000;
/// How long an abandoned stage is kept before the sweep takes it.
pub const STAGE_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);

/// Bytes in one piece of a transfer: rights and seals are re-checked per piece.
pub const PIECE_BYTES_MAX: usize = 1 << 20;
/// Bytes covered by one checksum of an object.
pub const SEAL_BLOCK_BYTES: u64 = 1 << 20;
/// How long a transfer may make no progress.
pub const TRANSFER_IDLE: Duration = Duration::from_secs(60);
/// How long one small request may take.
pub const CALL_DEADLINE: Duration = Duration::from_secs(30);
/// How long after an applied change it is on disk at the latest (law 13).
pub const APPLIED_FLUSH_DELAY: Duration = Duration::from_secs(5);

/// Bytes in one key of the metadata engine: a name, ids and a prefix.
pub const KV_KEY_BYTES_MAX: usize = 1 << 10;
/// Bytes in one value of the metadata engine.
pub const KV_VALUE_BYTES_MAX: usize = 1 << 20;
/// Bytes that one metadata transaction may write: a split of [`SPLIT_MEMBERS_MAX`] members fits.
pub const KV_TXN_BYTES_MAX: usize = 32 << 20;
/// Metadata transactions that wait for the writer; the next caller waits outside.
pub const KV_QUEUE_MAX: usize = 1024;
/// Metadata transactions that share one flush.
pub const KV_BATCH_MAX: usize = 1024;
/// Bytes of one batch after which no further transaction joins it.
pub const KV_BATCH_BYTES: usize = 1 << 20;
/// Bytes in one segment of the metadata log (one larger transaction gets a larger one).
pub const KV_LOG_SEGMENT_BYTES: u64 = 4 << 20;
/// Log segments kept for reuse.
pub const KV_LOG_SPARES_MAX: usize = 8;
/// Bytes changed in memory after which they are folded into the metadata tree.
pub const KV_FOLD_BYTES: usize = 16 << 20;
/// Bytes changed in memory after which writers wait for the fold.
pub const KV_OVERLAY_BYTES_MAX: usize = 64 << 20;
/// How long a fold that failed rests before it is tried again.
pub const KV_FOLD_RETRY: Duration = Duration::from_secs(1);
/// Bytes of the metadata tree cached in memory.
pub const KV_TREE_CACHE_BYTES: usize = 64 << 20;
/// Notes of one kind kept for a subscriber that does not acknowledge them.
pub const KV_NOTES_KEPT_MAX: u64 = 1 << 20;
/// Notes handed over at once.
pub const KV_NOTES_PAGE_MAX: usize = 256;

const _: () = assert!(TAG_VALUE_BYTES_MAX < TAGS_BYTES_MAX);
const _: () = assert!(NAME_BYTES_MAX < PATH_BYTES_MAX);
const _: () = assert!(PIECE_BYTES_MAX as u64 == SEAL_BLOCK_BYTES);
const _: () = assert!(INLINE_BYTES_MAX < SEAL_BLOCK_BYTES);
const _: () = assert!(LOCK_WAIT_SLICE.as_secs() <= CALL_DEADLINE.as_secs());
const _: () = assert!(
    NAME_BYTES_MAX + 64 < KV_KEY_BYTES_MAX && KV_KEY_BYTES_MAX + KV_VALUE_BYTES_MAX < KV_TXN_BYTES_MAX
);
const _: () = assert!(KV_FOLD_BYTES < KV_OVERLAY_BYTES_MAX);
