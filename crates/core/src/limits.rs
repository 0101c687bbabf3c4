//! Every bound that others can reach, named, in one place. A queue, batch, listing, path, retry or
//! wait of theirs without a line here is a defect; what only paces a part's own work may stand there.
//!
//! Relations between bounds are checked at compile time at the end of the file.

use std::time::Duration;

mod certificates;
mod issuers;
mod mount;
mod scrub;

pub use certificates::*;
pub use issuers::*;
pub use mount::*;
pub use scrub::*;

/// Bytes in one name (POSIX `NAME_MAX`).
pub const NAME_BYTES_MAX: usize = 255;
/// Bytes in a path as a caller gives it: doors refuse longer ones before parsing.
pub const PATH_BYTES_MAX: usize = 16 << 10;
/// Names in a path below its base, and directories made one below the other.
pub const PATH_DEPTH_MAX: usize = 1024;
/// Bytes in a symbolic link's target (POSIX `PATH_MAX` less the NUL).
pub const LINK_TARGET_BYTES_MAX: usize = 4095;
/// Symbolic links followed while one path is resolved (as Linux does).
pub const LINK_STEPS_MAX: usize = 40;
/// Names one file may have (as ext4; doors show it as `LINK_MAX`).
pub const LINKS_MAX: u32 = 65_000;
/// Bytes in one file.
pub const FILE_BYTES_MAX: u64 = 1 << 62;
/// Bytes a file may have and still live inline in metadata: its row then fills a leaf of 16 KiB.
pub const INLINE_BYTES_MAX: u64 = 15 << 10;
/// Bytes that a file may announce and still be published in one transaction, with no row of a stage.
pub const BRIEF_BYTES_MAX: u64 = 1 << 20;

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

/// Rules of what one copy leaves out.
pub const RULES_MAX: usize = 10_000;
/// Files of one copy under way at once: enough to share flushes and to fill messages.
pub const COPIES_AT_ONCE_MAX: usize = 256;
/// Bytes that those files may have together, unless one alone has more.
pub const COPIES_AT_ONCE_BYTES: u64 = 16 << 20;
/// Files of at most [`PIECE_BYTES_MAX`] together that may come in one message.
pub const PUTS_TOGETHER_MAX: usize = 64;
/// Bytes of a file beyond which it goes alone: putting it beside others costs more than a message.
pub const PUT_TOGETHER_BYTES_MAX: usize = 64 << 10;
/// Files of one copy that were found and have not begun: each keeps its directory open.
pub const COPIES_WAITING_MAX: usize = 256;
/// Lines of the shell's history.
pub const SHELL_HISTORY_MAX: usize = 1000;
/// Bytes in one line that the shell reads.
pub const SHELL_LINE_BYTES_MAX: usize = 1 << 20;

/// Entries in one ACL.
pub const ACL_ENTRIES_MAX: usize = 256;
/// Conditions on one ACL entry.
pub const ACL_CONDITIONS_MAX: usize = 8;
/// Members that a container split moves in one transaction.
pub const SPLIT_MEMBERS_MAX: usize = 10_000;
/// Times that a subtree of more is looked through again because files were linked or renamed meanwhile.
pub const SPLIT_SURVEYS_MAX: u32 = 8;
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
pub const PROOF_BYTES_MAX: usize = 24 << 10;
/// Bytes in a password.
pub const PASSWORD_BYTES_MAX: usize = 1024;
/// How far two clocks may differ before an expiry is judged wrongly.
pub const CLOCK_SKEW_MAX: Duration = Duration::from_secs(60);
/// How long a credential from a login lives.
pub const CREDENTIAL_LIFE: Duration = Duration::from_secs(12 * 3600);
/// How long a capability issued on a node lives.
pub const CAPABILITY_LIFE: Duration = Duration::from_secs(3600);

/// Answers kept for replay, per session (request-form law 8): more than a mount has calls under
/// way, or one that was made would be forgotten before it can be asked for again.
pub const ONCE_RING: usize = 1024;
/// Sessions a node keeps.
pub const SESSIONS_MAX: usize = 65_536;
/// Sessions of them that one caller has, and `anyone` at one address or uid: every connection over
/// HTTP may be one of theirs.
pub const SESSIONS_PER_CALLER_MAX: usize = CONNECTIONS_MAX;
/// How long a session lives without use.
pub const SESSION_IDLE: Duration = Duration::from_secs(120);
/// How long after a restart sessions may reclaim opens and locks.
pub const SESSION_GRACE: Duration = Duration::from_secs(30);
/// Opens one session may hold.
pub const SESSION_OPENS_MAX: usize = 65_536;
/// Opens that all sessions of one uid on a local socket hold.
pub const OPENS_PER_UID_MAX: usize = 4 * SESSION_OPENS_MAX;
/// Locks one file may carry.
pub const LOCKS_PER_FILE_MAX: usize = 4096;
/// Locks one session may have, over all files.
pub const LOCKS_PER_SESSION_MAX: usize = 16_384;
/// Bytes that name a lock's owner.
pub const LOCK_OWNER_BYTES_MAX: usize = 1024;
/// How long one slice of a lock wait lasts before it must be renewed.
pub const LOCK_WAIT_SLICE: Duration = Duration::from_secs(30);
/// Locks of names at one time.
pub const NAME_LOCKS_MAX: usize = 16_384;
/// Locks of names that one caller holds at one time.
pub const NAME_LOCKS_EACH_MAX: usize = 1024;
/// Shared locks of one name at one time: each is told to whoever asks what is known below it.
pub const NAME_LOCKS_SHARED_MAX: usize = 8;
/// What a client says of the owner of a lock of a name.
pub const NAME_LOCK_OWNER_BYTES_MAX: usize = 1024;
/// For how long a lock of a name is granted at most: clients refresh it.
pub const NAME_LOCK_LASTS_MAX: Duration = Duration::from_secs(3600);
/// For how long it is granted if nothing was said of that.
pub const NAME_LOCK_LASTS: Duration = Duration::from_secs(600);
/// Changes a volume keeps for watchers.
pub const CHANGES_KEPT: usize = 65_536;
/// Bytes that these may take: the way from the root is kept with each.
pub const CHANGES_BYTES_KEPT: usize = 64 << 20;
/// Names of one file at whose directories a change of it is told.
pub const NAMES_TOLD_MAX: usize = 64;
/// Directories above these names that are kept with the change; a name that has more is not told.
pub const CHANGE_WITHIN_MAX: usize = 4 * PATH_DEPTH_MAX;
/// Changes in one page.
pub const CHANGES_PAGE_MAX: usize = 1024;

/// Parts in one stage (as S3's multipart upload).
pub const STAGE_PARTS_MAX: u32 = 10_000;
/// How long an abandoned stage is kept before the sweep takes it.
pub const STAGE_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);
/// How long nobody may have worked on a stage that is given up because the disk is full.
pub const FULL_STAGE_IDLE: Duration = Duration::from_secs(120);
/// Bytes of such stages that are given up for a write whose length nobody knows.
pub const FULL_GIVE_UP_BYTES: u64 = 64 << 20;
/// How long an upload waits on a full disk for what was removed to leave it.
pub const FULL_ROOM_WAIT: Duration = Duration::from_secs(3);
/// How often it looks.
pub const FULL_ROOM_LOOK: Duration = Duration::from_millis(50);

/// How often a node looks for what abandoned uploads and crashes left behind.
pub const SWEEP_EVERY: Duration = Duration::from_secs(3600);

/// Bytes in one piece of a transfer: rights and seals are re-checked per piece.
pub const PIECE_BYTES_MAX: usize = 1 << 20;
/// Bytes of a piece that are read and written in one go where they go through this process: less than a processor's own
/// second-level cache.
pub const PIECE_PART_BYTES: usize = 128 << 10;
/// Bytes covered by one checksum of an object.
pub const SEAL_BLOCK_BYTES: u64 = 1 << 20;
/// Digests of blocks in one answer.
pub const BLOCK_DIGESTS_MAX: usize = 1024;
/// Blocks that are read for one such answer, because none was made of them when they were written.
pub const BLOCK_DIGESTS_MADE_MAX: u64 = 16;
/// Blocks that a store hashes at once for such answers, whoever asks.
pub const BLOCK_DIGESTS_AT_ONCE: usize = 4;
/// How long a transfer may make no progress.
pub const TRANSFER_IDLE: Duration = Duration::from_secs(60);
/// Bytes that a sender must bring before it has been waited for as long as that, and so again and
/// again: less is no progress, however often a byte comes.
pub const TRANSFER_PROGRESS_BYTES: u64 = 1 << 10;
/// How long publishing a large file may take: its bytes must come to disk before it.
pub const PUBLISH_WITHIN: Duration = Duration::from_secs(15 * 60);
/// Returns how long publishing a file of so many bytes may take.
pub const fn publish_within(bytes: u64) -> Duration {
    if bytes > INLINE_BYTES_MAX { PUBLISH_WITHIN } else { CALL_DEADLINE }
}
/// How long one part or file may take in all; what ends a stalled one is [`TRANSFER_IDLE`].
pub const TRANSFER_WITHIN: Duration = Duration::from_secs(7 * 24 * 3600);
/// How long a backup, a check or a verification of the log may take.
pub const UPKEEP_WITHIN: Duration = Duration::from_secs(24 * 3600);
/// How long one small request may take.
pub const CALL_DEADLINE: Duration = Duration::from_secs(30);
/// How long after an applied change it is on disk at the latest (request-form law 13).
pub const APPLIED_FLUSH_DELAY: Duration = Duration::from_secs(5);
/// How long the flushes rest that are made because somebody waits to be told of changes: at least, and at most, however
/// long one takes.
pub const WATCHED_FLUSH_REST: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(50));
/// The part of the time that such flushes take, between these two: who commits meanwhile waits, or takes two wakes more.
pub const WATCHED_FLUSH_SHARE: u32 = 40;

/// Transfers under way on one node; the next is `Busy`.
pub const TRANSFERS_MAX: usize = 65_536;
/// Transfers that push or pull a piece at the same time; the others wait in order. Waiting
/// for a slow socket takes no slot.
pub const TRANSFER_SLOTS: usize = 64;
/// Bytes of a transfer that may go inline, without a slot and without being listed.
pub const TRANSFER_INLINE_BYTES: u64 = 64 << 10;
/// Inline transfers at the same time; the next takes a slot.
pub const TRANSFERS_INLINE_MAX: usize = 256;
/// Bytes of one buffer that an upload is received into.
pub const INBOUND_BUFFER_BYTES: usize = 1 << 20;
/// Uploads over one door that have such buffers, two each at most: others make do with small ones.
pub const INBOUND_BUFFERED_MAX: usize = 128;
/// How long an upload that was fast waits for half a buffer, and at most twice as long, before it
/// takes what is there.
pub const INBOUND_GATHER: Duration = Duration::from_millis(20);

/// Redirects that one request to another server follows.
pub const REMOTE_REDIRECTS_MAX: usize = 5;
/// Addresses of one host that are tried, one after the other.
pub const REMOTE_ADDRESSES_MAX: usize = 8;
/// How long it may take to find a host's addresses and to connect to one of them, TLS included.
pub const REMOTE_CONNECT_WITHIN: Duration = Duration::from_secs(20);
/// How long another server may take to begin its answer: it may have to sum a file up first.
pub const REMOTE_ANSWER_WITHIN: Duration = Duration::from_secs(120);
/// How long nothing may come from another server, or be taken by it, within a transfer.
pub const REMOTE_IDLE: Duration = Duration::from_secs(60);
/// How long leave to send a file is waited for before it is sent anyway: not every server gives it.
pub const REMOTE_LEAVE_WITHIN: Duration = Duration::from_secs(2);
/// Bytes that are read at once from another server, and more than any head of its answers may have.
pub const REMOTE_BUFFER_BYTES: usize = 256 << 10;
/// Fields in the head of such an answer.
pub const REMOTE_FIELDS_MAX: usize = 100;
/// How often a download that broke off goes on without [`REMOTE_RESUME_BYTES`] in between.
pub const REMOTE_RESUMES_MAX: u32 = 4;
/// Bytes after which a download that broke off before counts as one that goes well.
pub const REMOTE_RESUME_BYTES: u64 = 1 << 20;
/// How long it rests before it goes on, and twice as long each further time.
pub const REMOTE_RESUME_REST: Duration = Duration::from_millis(500);
/// Bytes of one listing of another server's directory.
pub const REMOTE_LISTING_BYTES_MAX: usize = 64 << 20;
/// Third-party copies under way on one node; the next is `Busy`.
pub const THIRD_PARTY_MAX: usize = 64;
/// Those of them of one caller.
pub const THIRD_PARTY_PER_CALLER_MAX: usize = 16;
/// How long a third-party copy is waited for before its answer begins, so that what fails at once is told by a status.
pub const THIRD_PARTY_PROMPT: Duration = Duration::from_secs(1);
/// How often whoever asked for a third-party copy is told how far it is.
pub const THIRD_PARTY_MARKER_EVERY: Duration = Duration::from_secs(5);
/// Fields that a third-party copy passes on.
pub const THIRD_PARTY_FIELDS_MAX: usize = 16;

/// Connections one door holds; the next waits in the kernel's queue.
pub const CONNECTIONS_MAX: usize = 16_384;
/// Connections of them that one remote address holds (of IPv6, one network of 64 bits); the next
/// is turned away with an answer.
pub const CONNECTIONS_PER_PEER_MAX: usize = 2048;
/// The same of one address of the loopback: a server in front of the door speaks for many.
pub const CONNECTIONS_PER_LOOPBACK_MAX: usize = 12_288;
/// Connections of them that one uid holds on a local socket.
pub const CONNECTIONS_PER_UID_MAX: usize = 1024;
/// Connections that are being turned away with an answer at the same time; more are just closed.
pub const TURNED_AWAY_MAX: usize = 256;
/// How long the answer to one that is turned away may take to be taken.
pub const TURNED_AWAY_LINGER: Duration = Duration::from_secs(2);
/// After how long one that was turned away is told to try again.
pub const TURNED_AWAY_RETRY: Duration = Duration::from_secs(5);
/// How long a connection may take to bring the head of a request once it has begun.
pub const HEAD_DEADLINE: Duration = Duration::from_secs(20);
/// How long a connection may stay open without a request.
pub const CONNECTION_IDLE: Duration = Duration::from_secs(75);
/// How long requests under way may go on when a door closes.
pub const DRAIN_DEADLINE: Duration = Duration::from_secs(20);

/// How long a stopped process waits for threads that a dead disk may hold. What was acknowledged is on
/// disk before that.
pub const THREADS_END_WITHIN: Duration = Duration::from_secs(10);
/// Bytes that a file of the log may be said to have, at least.
pub const LOG_BYTES_MIN: u64 = 64 << 10;
/// Files of the log that are kept, at most.
pub const LOG_FILES_MAX: u32 = 1000;
/// Connections of monitors at the same time.
pub const MONITOR_CONNECTIONS_MAX: usize = 64;
/// Free bytes below which a node says that it is not ready: what is being written still has room.
pub const READY_BYTES_FREE: u64 = 64 << 20;
/// Bytes of plaintext in one TLS record, at most (RFC 8446, 5.1).
pub const TLS_RECORD_BYTES: usize = 16 << 10;
/// Bytes that are encrypted at once on one connection, of which that many at most wait here, as
/// ciphertext, until the kernel takes them.
pub const TLS_BATCH_BYTES: usize = 64 << 10;
/// Bytes that a client may send before its TLS handshake is done: a chain of certificates fits.
pub const TLS_HANDSHAKE_BYTES_MAX: usize = 20 << 10;
/// How long a TLS handshake may take.
pub const TLS_HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// Bytes of a file that holds certificates or a key.
pub const TLS_FILE_BYTES_MAX: u64 = 1 << 20;
/// How often a node looks whether those files changed, and whether its own certificate ends soon.
pub const TLS_LOOK_EVERY: Duration = Duration::from_secs(10);
/// How long a certificate that a node makes for itself holds: what browsers take at most, less a day.
pub const TLS_OWN_LIFE: Duration = Duration::from_secs(397 * 24 * 3600);
/// How long before its end it is made anew.
pub const TLS_OWN_RENEW: Duration = Duration::from_secs(30 * 24 * 3600);
/// Hosts that it is for.
pub const TLS_OWN_HOSTS_MAX: usize = 64;
/// Bytes of an HTTP request's target.
pub const HTTP_TARGET_BYTES_MAX: usize = 16 << 10;
/// Bytes of an HTTP request's head, target included.
pub const HTTP_HEAD_BYTES_MAX: usize = 32 << 10;
/// Header fields of one HTTP request.
pub const HTTP_FIELDS_MAX: usize = 100;
/// Bytes of one chunk's size line, extensions included, and of all trailers together.
pub const HTTP_CHUNK_LINE_BYTES_MAX: usize = 4 << 10;
/// Ranges of one HTTP request; more are answered with the whole file.
pub const HTTP_RANGES_MAX: usize = 64;
/// Members of one conditional or digest header.
pub const HTTP_MEMBERS_MAX: usize = 64;
/// Bytes of a refused upload that are read and dropped so that its connection can go on.
pub const HTTP_DRAIN_BYTES_MAX: u64 = 256 << 10;
/// How long a connection that ends after a refusal is still read from, so that the refusal arrives.
pub const HTTP_LINGER: Duration = Duration::from_secs(2);
/// Bytes of an upload that is gone on with which are brought to disk before more are taken.
pub const UPLOAD_SLICE_BYTES: u64 = 32 << 20;
/// How long such bytes come before they are brought to disk although they are fewer.
pub const UPLOAD_SLICE_WITHIN: Duration = Duration::from_secs(5);
/// Bytes of what is said of such an upload.
pub const UPLOAD_METADATA_BYTES_MAX: usize = 4 << 10;
/// Such uploads that are worked on at once; the next is `Busy`.
pub const UPLOADS_AT_ONCE_MAX: usize = 4096;
/// Such uploads that became files, and are remembered for whoever did not hear of it.
pub const UPLOADS_PUBLISHED_KEPT: usize = 4096;
/// Streams of one HTTP/2 connection that are answered at once.
pub const HTTP2_STREAMS_MAX: usize = 64;
/// Those of all connections of a door: each takes two descriptors.
pub const HTTP2_STREAMS_ALL_MAX: usize = 1024;
/// Those of them from one machine.
pub const HTTP2_STREAMS_PER_PEER_MAX: usize = 256;
/// Callers that a connection remembers from streams that have ended: each has a session.
pub const HTTP2_KNOWN_MAX: usize = 2;
/// Bytes of a stream that may come before any of them are taken.
pub const HTTP2_STREAM_WINDOW_BYTES: u32 = 256 << 10;
/// Bytes of a stream's answer that wait for its client to take them.
pub const HTTP2_SEND_BYTES: usize = 64 << 10;
/// Bytes that may come so on all streams of a connection together.
pub const HTTP2_WINDOW_BYTES: u32 = 1 << 20;
/// Entries of one page of an HTTP listing.
pub const HTTP_PAGE_ENTRIES: u32 = 1000;
/// Entries of a directory that a page shows in an order in which it is not kept.
pub const HTTP_SORTED_MAX: usize = 1000;
/// A form that a page sends.
pub const HTTP_FORM_BYTES_MAX: usize = 8 << 10;
/// What a page shows of a text.
pub const HTTP_PREVIEW_BYTES: u64 = 64 << 10;
/// The XML of a WebDAV request.
pub const DAV_XML_BYTES_MAX: usize = 256 << 10;
/// How deep the elements of such XML lie within each other.
pub const DAV_XML_DEPTH_MAX: usize = 32;
/// Elements of such XML.
pub const DAV_XML_ELEMENTS_MAX: usize = 1024;
/// Prefixes that are bound at one place of such XML.
pub const DAV_XML_BINDINGS_MAX: usize = 32;
/// Properties that one WebDAV request names.
pub const DAV_PROPERTIES_MAX: usize = 128;
/// Lists of conditions in one `If`.
pub const DAV_IF_LISTS_MAX: usize = 32;
/// Members of a tree that are told, each for itself, to have failed.
pub const DAV_FAILURES_MAX: usize = 100;
/// Entries of one page, where a WebDAV request goes over a directory to copy or remove it.
pub const DAV_TREE_PAGE: u32 = 256;
/// A file of configuration.
pub const CONFIG_BYTES_MAX: u64 = 1 << 20;
/// Files of configuration beside the one.
pub const CONFIG_PIECES_MAX: usize = 1000;
/// Digests of whole files remembered, by file and version.
pub const DIGESTS_KEPT: usize = 16_384;
/// Digests of whole files kept that were begun and are not finished.
pub const DIGESTS_BEGUN: usize = 1024;
/// Pieces taken into digests at the same time.
pub const DIGESTS_AT_ONCE: usize = 2;
/// How long an answer waits for the digests that were asked for with it, before it goes without.
pub const DIGEST_WITHIN: Duration = Duration::from_secs(20);

/// Numbers that a volume leases at once; a restart leaves the rest of a lease unused.
pub const NUMBERS_LEASED: u32 = 65_536;
/// Numbers that a restore leaves out at least, and at most twice that many: more than any volume
/// gave away since its backup, and few enough for hundreds of restores.
pub const RESTORE_NUMBERS_GAP: u64 = 1 << 38;
/// Starts of a node that a restore leaves out at least: more than it had since its backup.
pub const RESTORE_STARTS_GAP: u32 = 1024;
/// Directories on one way from a place to the root of its volume.
pub const TREE_DEPTH_MAX: usize = 65_536;
/// Volumes that are joined to one tree.
pub const MEMBERS_MAX: usize = 1024;
/// Policies of containers kept parsed.
pub const POLICIES_CACHED: usize = 4096;
/// Capabilities of this node's own calls kept for reuse.
pub const CAPABILITIES_CACHED: usize = 16_384;
/// How long an object that was written in place rests before it is sealed.
pub const OBJECT_IDLE: Duration = Duration::from_secs(5);
/// Bytes of an append that are waited for before it goes to the end of its file. A longer one has
/// the end to itself until its last byte; nothing else of the file waits for it.
pub const APPEND_HELD_BYTES: usize = 256 << 10;
/// How long such an append may bring nothing while other appends wait for it.
pub const APPEND_WAIT: Duration = Duration::from_secs(10);
/// How often bytes are moved into an object for one write or change of extent, while others make
/// the file small again.
pub const PROMOTIONS_MAX: usize = 64;
/// How long a volume's upkeep rests after it could not do something.
pub const TIDY_RETRY: Duration = Duration::from_secs(1);
/// The same at most: it rests twice as long each time something fails again.
pub const TIDY_RETRY_MAX: Duration = Duration::from_secs(600);
/// Things that failed and are left alone until then; beyond them they are tried each time.
pub const TIDY_STUCK_MAX: usize = 65_536;
/// Epochs one container may begin: an issuer keeps the bits above for its own.
pub const EPOCH_MAX: u64 = (1 << 40) - 1;
/// Parts of stages whose hash so far is kept in memory.
pub const STAGE_TAILS_MAX: usize = 4096;
/// How long answers are kept for replay after a session's last one.
pub const REPLAY_LIFE: Duration = Duration::from_secs(3600);

/// Volumes that a node's key speaks for: the root, and one for each share that was ever made.
pub const NODE_VOLUMES: u16 = 256;
/// Places of one share with policies of their own, at most: all are in memory.
pub const EXPORT_CONTAINERS_MAX: usize = 10_000;
/// Ids of one share whose paths are known at once: some 100 bytes each.
pub const EXPORT_PATHS_KNOWN: usize = 131_072;
/// Bytes of names that are kept for the next pages of listings in the order of names, for one share; a
/// single reading keeps half of that.
pub const EXPORT_AHEAD_BYTES: usize = 24 << 20;
/// Listings in the order of names that read directories of one share at once.
pub const EXPORT_READINGS: usize = 2;
/// New files of one share that their makers can find again by what they gave them.
pub const EXPORT_VERIFIERS_KEPT: usize = 4096;
/// Uploads under way on one share.
pub const EXPORT_STAGES_MAX: usize = 65_536;
/// Opens of one file of a share that have a descriptor of the machine to themselves, of those that write and of those
/// that only read; more share these.
pub const EXPORT_DESCRIPTORS_OF_FILE: usize = 16;
/// Looks at one share that may wait for the machine at once.
pub const EXPORT_THREADS: usize = 16;
/// How long a shared directory is held after it was opened: as long, its disk cannot be unmounted.
pub const EXPORT_ROOT_HELD: Duration = Duration::from_secs(1);
/// How long a shared directory may take to answer: less than a call has, so that whoever asked hears which
/// it was that did not.
pub const EXPORT_LOOK: Duration = Duration::from_secs(20);
/// The same while one that did not answer is still waited for.
pub const EXPORT_PROBE: Duration = Duration::from_secs(1);

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
/// How long a durable transaction waits for others that came lately, to share its flush.
pub const KV_COMPANY_WAIT: Duration = Duration::from_millis(1);
/// Who shares its flush with nobody flushes itself while that takes less: two wakes take 100 µs.
pub const KV_FLUSH_AT_ONCE: Duration = Duration::from_micros(500);
/// A flush that so many wait for is worth a thread of its own, while the next commits are made.
pub const KV_FLUSH_ASIDE: usize = 16;
/// So is one that takes this long, whoever waits for it: two wakes take a twentieth of that.
pub const KV_FLUSH_ASIDE_FROM: Duration = Duration::from_millis(2);
/// Flushes until it is tried again whether more would come, after nobody did; doubled each time.
pub const KV_COMPANY_REST: (u32, u32) = (64, 4096);
/// Bytes in one segment of the metadata log (one larger transaction gets a larger one).
pub const KV_LOG_SEGMENT_BYTES: u64 = 4 << 20;
/// The part of each log segment that only openings may fill while the disk has no room for another
/// segment: one in so many bytes.
pub const KV_LOG_RESERVE_SHARE: u64 = 16;
/// Bytes of that part that each opening may fill: a node notes its start, and then answers.
pub const KV_OPENING_BYTES: u64 = 1 << 10;
/// Log segments kept for reuse.
pub const KV_LOG_SPARES_MAX: usize = 8;
/// Bytes changed in memory after which they are folded into the metadata tree.
pub const KV_FOLD_BYTES: usize = 16 << 20;
/// A fold is due as well once the log since the last is so many times as long: a row that is
/// written over and over takes no memory, but the log, and time at a start.
pub const KV_FOLD_LOG_SHARE: u64 = 4;
/// Bytes changed in memory after which writers wait for the fold. A start replays twice as much at most.
pub const KV_OVERLAY_BYTES_MAX: usize = 32 << 20;
/// Bytes of one file that may differ, in memory, from the disk that is looked at and left as it is.
pub const SHADOW_FILE_BYTES_MAX: u64 = 1 << 30;
/// How long a fold that failed rests before it is tried again.
pub const KV_FOLD_RETRY: Duration = Duration::from_secs(1);
/// Bytes of the metadata tree kept in memory where nobody says how much there is; half of it are rows.
pub const KV_TREE_CACHE_BYTES: usize = 128 << 20;
/// The share of its memory that a node keeps the metadata tree in, once that is so large: one part of
/// so many, within the two bounds below.
pub const KV_TREE_CACHE_SHARE: u64 = 16;
/// Bytes of the metadata tree that a node keeps in memory on the smallest machine.
pub const KV_TREE_CACHE_BYTES_MIN: u64 = 32 << 20;
/// Bytes of the metadata tree that a node keeps in memory on the largest machine.
pub const KV_TREE_CACHE_BYTES_MAX: u64 = 4 << 30;
/// Rows behind one that is read from the metadata tree that are kept in memory with it.
pub const KV_ROWS_AHEAD: usize = 4;
/// Notes of one kind kept for a subscriber that does not acknowledge them.
pub const KV_NOTES_KEPT_MAX: u64 = 1 << 20;
/// How long whoever follows notes rests after a failed read before it tries again.
pub const KV_NOTES_RETRY: Duration = Duration::from_secs(1);
/// Notes handed over at once.
pub const KV_NOTES_PAGE_MAX: usize = 256;

/// Bytes in one message of the native protocol, without the bytes behind it: a page
/// of 4 096 entries with long names and attributes fits.
pub const RPC_BODY_BYTES_MAX: usize = 4 << 20;
/// Bytes of one transfer that may be on their way before the receiver asks for more:
/// one piece, since what is on its way cannot be taken back when a right ends.
pub const RPC_WINDOW_BYTES: u32 = 1 << 20;
/// How long a client waits for a node that neither asks for more of an upload nor answers.
/// Longer than [`TRANSFER_IDLE`]: the node finds out first, and says why.
pub const RPC_STALL: Duration = Duration::from_secs(75);
/// How long after a call's deadline its answer may still arrive.
pub const RPC_ANSWER_GRACE: Duration = Duration::from_secs(1);
/// Calls one connection may have under way; more are answered `Busy`.
pub const RPC_CALLS_MAX: usize = 1024;
/// Frames that wait to be written to one connection.
pub const RPC_QUEUE_FRAMES: usize = 64;
/// How long one frame may take to come once it has begun, and to be taken.
pub const RPC_FRAME_WITHIN: Duration = Duration::from_secs(60);
/// Bytes of frames that all connections of one uid have brought and that nobody is done with.
pub const RPC_UID_IN_BYTES: usize = 256 << 20;
/// Bytes of memory that one byte of a message may become when it is read.
pub const RPC_DECODED_BYTES: usize = 16;
/// Bytes of a read from which on a process of the node's own uid is lent the file: fewer cost less to copy.
pub const RPC_LEND_FROM: u64 = 64 << 10;
/// Bytes of files that are lent at once at most: each piece of them is checked as it is lent, and read after all are.
pub const RPC_LENT_BYTES_MAX: usize = 4 * PIECE_BYTES_MAX;
/// Parts of one answer that lends, of which the last may be bytes that go along.
pub const RPC_LENT_PARTS_MAX: usize = 17;
/// Writes of one connection whose memory is lent to the node at the same time: what is beyond them is sent.
pub const RPC_LENT_AT_ONCE: usize = 64;
/// Bytes of downloads that wait to be written to one connection: pieces read at the same time.
pub const RPC_OUT_BYTES: usize = 8 << 20;
/// The same for all connections of one uid.
pub const RPC_UID_OUT_BYTES: usize = 256 << 20;
/// How long a client that came back over a new connection tries to take its locks back and to
/// open its files again.
pub const RECLAIM_WITHIN: Duration = SESSION_GRACE;
/// Files that such a client opens again at the same time.
pub const REOPENS_AT_ONCE: usize = 64;
/// Connections lost under one call after which it is not made over another: it may be what ends them.
pub const RECONNECTS_MAX: usize = 8;
/// Credentials, and sessions, one connection may have presented.
pub const RPC_NUMBERS_MAX: usize = 4096;
/// Bytes of these credentials, by their claims.
pub const RPC_PRESENTED_BYTES_MAX: usize = 1 << 20;

/// Groups of one user of the machine that are looked at: as many as a process may be in.
pub const MACHINE_GROUPS_MAX: usize = 65_536;
/// How long what the machine says of a user's groups is believed: it may be asked over a network.
pub const MACHINE_GROUPS_KEPT: Duration = Duration::from_secs(60);

/// Directories of its machine that one node shares: a list of them fits one message.
pub const SHARES_MAX: usize = 128;
/// Those of them that were shared by owners of the directories, who are no administrators.
pub const SHARES_OF_OWNERS_MAX: usize = 64;
/// Volumes that those may take: a volume's number is never given twice, and some are kept for administrators.
pub const VOLUMES_OF_OWNERS: u16 = 192;

/// Groups a user of this domain may be in: a credential that names them all still fits [`PROOF_BYTES_MAX`].
pub const MEMBERSHIPS_MAX: usize = 1000;
/// Members of one group.
pub const GROUP_MEMBERS_MAX: usize = 100_000;
/// Members that are told with their group; of a group that has more they are asked for, so many at a time.
pub const GROUP_MEMBERS_TOLD: usize = 1000;
/// Groups one user may own.
pub const GROUPS_OWNED_MAX: usize = 1024;
/// Users or groups in one page of a listing.
pub const ACCOUNTS_PAGE_MAX: usize = 1000;
/// Members in one page of groups, after which it ends early.
pub const GROUPS_PAGE_MEMBERS: usize = 20_000;
/// Credentials in the line from a login's to the one narrowed from it most.
pub const LINEAGE_MAX: usize = 16;
/// How long a token lasts if its maker does not say.
pub const TOKEN_LIFE: Duration = Duration::from_secs(90 * 24 * 3600);
/// How long a token may last.
pub const TOKEN_LIFE_MAX: Duration = Duration::from_secs(366 * 24 * 3600);
/// Bytes in what its owner calls a token.
pub const TOKEN_NAME_BYTES_MAX: usize = 64;
/// Tokens one user may have, with those that ended lately.
pub const TOKENS_OWNED_MAX: usize = 256;
/// How long a token that ended is still listed.
pub const TOKEN_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// How long it is not looked at again what a token's row says: when it was used last is no nearer than this.
pub const TOKEN_REMEMBERED: Duration = Duration::from_secs(3600);
/// How long a link lasts if its maker does not say.
pub const LINK_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);
/// How long a link may last.
pub const LINK_LIFE_MAX: Duration = Duration::from_secs(366 * 24 * 3600);
/// Links one user may have, with those that ended lately.
pub const LINKS_OWNED_MAX: usize = 1000;
/// How long a link that ended is still listed.
pub const LINK_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// How long after the last of its requests a download by a link may go on without being counted anew.
pub const LINK_RESUMED_WITHIN: Duration = Duration::from_secs(3600);
/// How often as much as the whole file may go out so for each use: lines break more than once.
pub const LINK_RESUMED_LENGTHS: u64 = 3;
/// Downloads by links that may go on so; when there are more the oldest half is counted anew.
pub const LINK_RESUMES_MAX: usize = 4096;
/// The longest time that the rate of a drop-box is for.
pub const DROP_RATE_PER_MAX: Duration = Duration::from_secs(31 * 24 * 3600);
/// Bytes of a drop that must have come before each such time is over: it takes room that others need.
pub const DROP_PACE_BYTES: u64 = 256 << 10;
/// The time that those are for.
pub const DROP_PACE_WITHIN: Duration = Duration::from_secs(60);
/// How long an abandoned stage of somebody who has proved nothing is kept.
pub const DROP_STAGE_LIFE: Duration = Duration::from_secs(3 * 24 * 3600);
/// Drop-boxes of a node.
pub const DROP_BOXES_MAX: usize = 1000;
/// How long the root key's word for a signing key holds.
pub const KEY_LIFE: Duration = Duration::from_secs(2 * 365 * 24 * 3600);
/// How long before its end a signing key is replaced if the root key is in its place, and else told as about to run
/// out.
pub const KEY_RENEW: Duration = Duration::from_secs(60 * 24 * 3600);
/// How long the withdrawal of another domain's credential is remembered: longer than any lives.
pub const REVOCATION_KEPT: Duration = Duration::from_secs(366 * 24 * 3600);
/// How long the file of a root key may take to be read: it may lie on a disk that does not answer.
pub const ROOT_KEY_WAIT: Duration = Duration::from_secs(10);
/// Rows of auth that one transaction takes to another version of its tables.
pub const AUTH_STEP_ROWS: usize = 1000;
/// How often what has run out is forgotten.
pub const AUTH_SWEEP: Duration = Duration::from_secs(600);
/// KiB of memory one password check takes (argon2id, as OWASP has it).
pub const PASSWORD_MEMORY_KIB: u32 = 19 * 1024;
/// Passes over that memory.
pub const PASSWORD_PASSES: u32 = 2;
/// KiB and passes that a stored password may ask for; what asks for more is corrupt.
pub const PASSWORD_COST_MAX: (u32, u32) = (64 * 1024, 8);
/// Passwords checked at once: together they take at most this many times that memory.
pub const PASSWORD_CHECKS_MAX: usize = 4;
/// Password checks that wait for their turn; more are `Busy`.
pub const PASSWORD_WAITERS_MAX: usize = 1024;
/// Those of them that come from one address or one local uid.
pub const PASSWORD_WAITERS_PER_PEER_MAX: usize = 64;
/// How long a password check waits for its turn before it is `Busy`.
pub const PASSWORD_WAIT: Duration = Duration::from_secs(10);
/// How long a password that was right is remembered, as a keyed hash.
pub const PASSWORD_REMEMBERED: Duration = Duration::from_secs(300);
/// Callers remembered for each sort of evidence.
pub const CALLERS_CACHED_MAX: usize = 16_384;
/// Wrong passwords in a row, for one user from one address, that cost nothing.
pub const PASSWORD_FAILURES_FREE: u32 = 8;
/// Wrong passwords in a row from one address, for any users, that cost nothing.
pub const PASSWORD_FAILURES_PEER: u32 = 64;
/// How long the next try waits after more than that, and each further one behind the one before.
pub const PASSWORD_FAILURE_DELAY: Duration = Duration::from_secs(1);
/// Tries for one user from one place that wait so; more are `Busy`.
pub const PASSWORD_TRIES_WAITING_MAX: u32 = 8;
/// After how long without a wrong password they are forgotten.
pub const PASSWORD_FAILURES_KEPT: Duration = Duration::from_secs(300);
/// Users and addresses whose wrong passwords are counted.
pub const PASSWORD_FAILURES_TABLE: usize = 4096;
/// Capabilities an issuer remembers so as not to sign them again.
pub const CAPABILITIES_CACHED_MAX: usize = 16_384;
/// Starts of a node after which a session from before them is no longer taken up.
pub const SESSION_BOOTS_MAX: u32 = 16;
/// How often sessions that nobody uses are looked for.
pub const SESSION_SWEEP: Duration = Duration::from_secs(5);
/// Who may be told of the end of sessions.
pub const SESSION_WATCHERS_MAX: usize = 64;

/// Audit records that wait to be written.
pub const AUDIT_QUEUE_MAX: usize = 8192;
/// How long audit records wait for company before they are written.
pub const AUDIT_DELAY: Duration = Duration::from_millis(500);
/// How often reads through files that stay open are recorded: with [`AUDIT_DELAY`] and the writing
/// itself, within a second.
pub const AUDIT_READS_EVERY: Duration = Duration::from_millis(250);
/// Records in one batch.
pub const AUDIT_BATCH_MAX: usize = 1024;
/// Bytes of records in one batch, after which no further record joins it.
pub const AUDIT_BATCH_BYTES: usize = 256 << 10;
/// Bytes in one audit record's texts; longer ones are cut.
pub const AUDIT_TEXT_BYTES_MAX: usize = 1 << 10;
/// Containers that an audit record is about besides the first: all on the way to a policy that is
/// changed, and those of the places of a rename.
pub const AUDIT_CONTAINERS_MAX: usize = CONTAINER_DEPTH_MAX + 4;
/// Bytes in one frame of an audit file: a full batch, its signed head and one large record fit.
pub const AUDIT_FRAME_BYTES_MAX: usize = 1 << 20;
/// Bytes in one audit file after which the next is begun.
pub const AUDIT_FILE_BYTES: u64 = 32 << 20;
/// Audit records in one page.
pub const AUDIT_PAGE_MAX: usize = 1000;
/// Bytes of records in one page, after which no further record joins it.
pub const AUDIT_PAGE_BYTES: usize = 1 << 20;
/// Bytes of audit files looked through for one page.
pub const AUDIT_SCAN_BYTES: u64 = 64 << 20;
/// How long a record waits for room in the queue before it is counted as lost.
pub const AUDIT_WAIT: Duration = Duration::from_secs(30);
/// How long the audit log rests after a failed write before it tries again.
pub const AUDIT_RETRY: Duration = Duration::from_secs(1);

/// Names of callers that a listing keeps, so as not to ask for them again.
pub const NAMES_KEPT_MAX: usize = 16_384;
/// Names that a refusal lists.
pub const REFUSAL_NAMES_MAX: usize = 16;

/// Bytes that all files of the in-memory model may take.
pub const MODEL_BYTES_MAX: u64 = 64 << 30;
/// Blocks of 64 KiB that one allocation in the in-memory model may reserve.
pub const MODEL_BLOCKS_MAX: u64 = MODEL_BYTES_MAX >> 16;

/// Object files a store keeps open beyond those in use.
pub const STORE_FILES_OPEN_MAX: usize = 512;
/// Objects open for writing; the one idle longest is sealed to make room for another.
pub const STORE_WRITING_MAX: usize = 256;
/// Empty files a store makes ready at once, so that their names share one flush.
pub const STORE_SPARES: u64 = 64;
/// Spare files below which more are made ready.
pub const STORE_SPARES_LOW: usize = 16;
/// Object files in one directory of a store.
pub const STORE_DIR_FILES: u64 = 4096;
/// How long an object rests after a write before what changed is sealed.
pub const STORE_SEAL_IDLE: Duration = Duration::from_secs(5);
/// Blocks hashed before others get their turn.
pub const STORE_SEAL_BLOCKS: usize = 64;
/// Blocks whose seals are recorded in one metadata transaction.
pub const STORE_SEAL_TXN_BLOCKS: usize = 64 << 10;
/// Groups of seals that one open object keeps in memory (each covers 64 MiB).
pub const STORE_SEAL_GROUPS_MAX: usize = 256;
/// How long the file of a removed object may stay, so that many go with one flush.
pub const STORE_REAP_DELAY: Duration = Duration::from_secs(1);
/// Files of removed objects that go with one flush.
pub const STORE_REAP_MAX: usize = 1024;
/// Bytes in one stretch of an object, or of an upload, that goes to the disk as soon as its last byte is written, so
/// that a flush at the end does not find all of it left to do.
pub const STORE_STRETCH_BYTES: u64 = 8 << 20;
/// Bytes that are read, hashed or written without handing the work to another thread, but where they end a stretch.
pub const STORE_INLINE_BYTES: u64 = 64 << 10;
/// How often a block that does not match its seal is read again before it is called corrupt:
/// somebody may be writing it.
pub const STORE_READ_TRIES: u32 = 3;
/// How long the store's own work rests after a failure.
pub const STORE_RETRY: Duration = Duration::from_secs(1);
/// Findings one check of a store reports; what is beyond is counted.
pub const STORE_FINDINGS_MAX: usize = 10_000;

const _: () = assert!(TAG_VALUE_BYTES_MAX < TAGS_BYTES_MAX);
const _: () = assert!(NAME_BYTES_MAX < PATH_BYTES_MAX);
const _: () = assert!(PIECE_BYTES_MAX as u64 == SEAL_BLOCK_BYTES);
const _: () = assert!(INLINE_BYTES_MAX < SEAL_BLOCK_BYTES);
const _: () = assert!(BLOCK_DIGESTS_MADE_MAX as usize <= BLOCK_DIGESTS_MAX);
const _: () = assert!(40 * BLOCK_DIGESTS_MAX < RPC_BODY_BYTES_MAX);
const _: () = assert!(LOCK_WAIT_SLICE.as_secs() <= CALL_DEADLINE.as_secs());
const _: () = assert!(
    NAME_BYTES_MAX + 64 < KV_KEY_BYTES_MAX && KV_KEY_BYTES_MAX + KV_VALUE_BYTES_MAX < KV_TXN_BYTES_MAX
);
const _: () = assert!(2 * TLS_OWN_RENEW.as_secs() < TLS_OWN_LIFE.as_secs());
const _: () = assert!(TLS_BATCH_BYTES.is_multiple_of(TLS_RECORD_BYTES) && TLS_BATCH_BYTES <= PIECE_BYTES_MAX);
const _: () = assert!(HTTP_TARGET_BYTES_MAX < HTTP_HEAD_BYTES_MAX && PATH_BYTES_MAX <= HTTP_TARGET_BYTES_MAX);
const _: () = assert!(
    CONNECTIONS_PER_UID_MAX <= CONNECTIONS_PER_PEER_MAX
        && CONNECTIONS_PER_PEER_MAX + CONNECTIONS_PER_LOOPBACK_MAX < CONNECTIONS_MAX
);
const _: () = assert!(2 * SESSIONS_PER_CALLER_MAX <= SESSIONS_MAX);
const _: () = assert!(
    PASSWORD_FAILURE_DELAY.as_secs() * PASSWORD_TRIES_WAITING_MAX as u64 + PASSWORD_WAIT.as_secs()
        < CALL_DEADLINE.as_secs()
);
const _: () = assert!(DIGEST_WITHIN.as_secs() < CALL_DEADLINE.as_secs());
const _: () = assert!(PASSWORD_WAITERS_PER_PEER_MAX < PASSWORD_WAITERS_MAX);
const _: () = assert!(TRANSFER_IDLE.as_secs() < RPC_STALL.as_secs());
const _: () = assert!(RPC_BODY_BYTES_MAX * RPC_DECODED_BYTES + PIECE_BYTES_MAX < RPC_UID_IN_BYTES);
const _: () = assert!(PIECE_BYTES_MAX <= RPC_OUT_BYTES && RPC_OUT_BYTES <= RPC_UID_OUT_BYTES);
const _: () = assert!(2 * PROOF_BYTES_MAX <= RPC_PRESENTED_BYTES_MAX);
const _: () = assert!(INBOUND_BUFFER_BYTES <= PIECE_BYTES_MAX);
const _: () = assert!(KV_FOLD_BYTES < KV_OVERLAY_BYTES_MAX);
const _: () = assert!(8 * KV_OVERLAY_BYTES_MAX as u64 <= SHADOW_FILE_BYTES_MAX);
const _: () = assert!(MEMBERSHIPS_MAX <= CALLER_GROUPS_MAX && MEMBERSHIPS_MAX * 19 + 4096 < PROOF_BYTES_MAX);
const _: () = assert!(AUDIT_BATCH_BYTES + 32 * AUDIT_TEXT_BYTES_MAX < AUDIT_FRAME_BYTES_MAX);
const _: () = assert!(AUDIT_PAGE_BYTES + 32 * AUDIT_TEXT_BYTES_MAX < RPC_BODY_BYTES_MAX);
// Where a share is, and its directory and reason, which are no longer than the system lets paths be.
const _: () = assert!(SHARES_MAX * (PATH_BYTES_MAX + 3 * 4096) < RPC_BODY_BYTES_MAX);
const _: () = assert!(PASSWORD_MEMORY_KIB <= PASSWORD_COST_MAX.0 && PASSWORD_PASSES <= PASSWORD_COST_MAX.1);
const _: () =
    assert!(STORE_WRITING_MAX < STORE_FILES_OPEN_MAX && STORE_DIR_FILES.is_multiple_of(STORE_SPARES));
const _: () = assert!(STORE_SEAL_TXN_BLOCKS * 64 < KV_TXN_BYTES_MAX);
