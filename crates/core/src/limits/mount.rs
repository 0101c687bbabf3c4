//! Bounds and paces of a mount.

use std::time::Duration;

use super::{
    LOCKS_PER_SESSION_MAX, ONCE_RING, PIECE_BYTES_MAX, PIECE_PART_BYTES, PROOF_BYTES_MAX, RPC_ANSWER_GRACE,
    RPC_CALLS_MAX, RPC_LENT_BYTES_MAX, SESSION_OPENS_MAX,
};

/// Threads that take the kernel's requests on a mount.
pub const MOUNT_READERS_MAX: usize = 8;
/// Bytes in one write of a mount; reads and readahead come in as many.
pub const MOUNT_WRITE_BYTES_MAX: usize = PIECE_BYTES_MAX;
/// Bytes of a write from which on its buffer is handed over instead of copied.
pub const MOUNT_HANDOVER_BYTES: usize = 32 << 10;
/// The fewest bytes that a mount can be told to hold at most of what programs read and write.
pub const MOUNT_MEMORY_MIN: u64 = 64 << 20;
/// How many it holds at most if nobody says.
pub const MOUNT_MEMORY_USUAL: u64 = 512 << 20;
/// Buffers of [`MOUNT_WRITE_BYTES_MAX`] that a mount keeps for reuse.
pub const MOUNT_BUFFERS_KEPT: usize = 16;
/// Bytes of a file that is read from end to end that a mount asks its node for at once where they take memory: as many
/// as are checked together.
pub const MOUNT_AHEAD_BYTES: usize = PIECE_BYTES_MAX;
/// The same at most, twice as many each time, while it is lent the files that they lie in.
pub const MOUNT_AHEAD_LENT_BYTES: usize = RPC_LENT_BYTES_MAX;
/// Bytes of a read from which on it may be one of many: the kernel's own read-ahead asks for 128 KiB.
pub const MOUNT_AHEAD_FROM: usize = 64 << 10;
/// Pipes by which a mount answers with pages of files that it was lent, kept for reuse.
pub const MOUNT_PIPES_KEPT: usize = MOUNT_READERS_MAX;
/// Room of each: for one answer to the kernel's own read-ahead, of which two parts of a page may be the first and last, and its
/// header. Any user may have as much, of which a machine gives each user 64 MiB.
pub const MOUNT_PIPE_BYTES: usize = 2 * PIECE_PART_BYTES;
/// How long what was read ahead may be given to a program, if nothing is heard of it.
pub const MOUNT_AHEAD_KEPT: Duration = Duration::from_secs(1);
/// Stretches of files that a mount keeps, of all that are open: [`MOUNT_AHEAD_BYTES`] in memory, or more as an open
/// file that was lent, of which a process may have a thousand.
pub const MOUNT_AHEAD_WINDOWS: usize = 64;
/// Requests of a mount that wait for their answer, waits for locks and for the disk apart.
pub const MOUNT_CALLS_MAX: usize = 320;
/// Programs of a mount whose bytes a node brings to its disk at one moment; others wait for theirs.
pub const MOUNT_SYNCS_MAX: usize = 48;
/// Programs of a mount that wait for a lock; one more is refused. Each is a call on the mount's
/// one connection, and whoever holds the lock needs room to give it up.
pub const MOUNT_LOCK_WAITS_MAX: usize = 512;
/// Locks that a user's line is asked to give up at one moment.
pub const MOUNT_UNLOCKS_AT_ONCE: usize = 16;
/// How long a mount rests before it tries again to give up a lock that nobody holds any more.
pub const MOUNT_UNLOCK_REST: Duration = Duration::from_secs(1);
/// How long an unmount waits for the kernel to let go: it does at once, unless another mount
/// namespace has a copy of the mount.
pub const MOUNT_END_WAIT: Duration = Duration::from_secs(5);
/// How long an unmount that failed waits to hear that somebody else's did not.
pub const MOUNT_END_HEARD: Duration = Duration::from_millis(500);
/// How often what unmounts is started, if a signal ends it: that of who ends a service, with all of its processes.
pub const MOUNT_END_TRIES: usize = 10;
/// How long the next of these waits, for that signal to have gone to all.
pub const MOUNT_END_REST: Duration = Duration::from_millis(20);
/// Bytes of one `copy_file_range`: who asks for more is told how many it were, and asks again.
pub const MOUNT_COPY_BYTES_MAX: u64 = 64 << 20;
/// How long a program may wait for bytes to be on the disk.
pub const MOUNT_SYNC_WITHIN: Duration = Duration::from_secs(600);
/// Readahead and other requests nobody waits for that the kernel may have under way.
pub const MOUNT_BACKGROUND_MAX: u16 = 64;
/// How long a call goes on for a program that was interrupted: signals that are no
/// wish to stop must not fail a call that is about to end.
pub const MOUNT_INTERRUPT_GRACE: Duration = Duration::from_secs(2);
/// How long a mount believes names and attributes without being told of changes.
pub const MOUNT_BELIEVED: Duration = Duration::from_secs(1);
/// The same while it is told.
pub const MOUNT_BELIEVED_WATCHED: Duration = Duration::from_secs(30);
/// The same of a volume that has no feed: local programs change what is exported, and nobody tells.
pub const MOUNT_BELIEVED_UNWATCHED: Duration = Duration::ZERO;
/// Open files or directories that a mount looks at at one moment, for each of the five reasons that it has to.
pub const MOUNT_LOOKS_AT_ONCE: usize = 16;
/// How often a mount looks at open files of such a volume, and for how long it waits to be answered.
pub const MOUNT_UNWATCHED_LOOK: Duration = Duration::from_secs(1);
/// The same in a mount that several users share: what one of them was told, the kernel would show to all.
pub const MOUNT_BELIEVED_SHARED: Duration = Duration::ZERO;
/// How long the kernel shows a directory's listing that it keeps, while the mount is told of changes: less than it believes the
/// attributes that came along, so that who walks a tree again is not left to ask for each. As often is looked whether what is
/// open may be read still, which ends by the clock as well.
pub const MOUNT_LISTING_KEPT: Duration = Duration::from_secs(20);
/// How long after it was answered the kernel may be given an answer again that it did not keep: the second of two questions
/// that one system call asks, or what one asks right after another.
pub const MOUNT_ASKED_AGAIN_WITHIN: Duration = Duration::from_millis(100);
/// Entries of a directory that opening it brings along.
pub const MOUNT_OPENED_ENTRIES_MAX: u32 = 64;
/// Users of a machine who use one shared mount as who they are, beside the one who serves it. Each takes a connection to the node.
pub const MOUNT_USERS_MAX: usize = 256;
/// Uids that use one shared mount as one and the same caller.
pub const MOUNT_UIDS_OF_ONE: usize = 4;
/// Users who can say at one moment who they are; others wait.
pub const MOUNT_LOGINS_AT_ONCE: usize = 16;
/// The same of one uid.
pub const MOUNT_LOGINS_OF_ONE: usize = 2;
/// How long a user may take to say so.
pub const MOUNT_LOGIN_LINE_WITHIN: Duration = Duration::from_secs(2);
/// How often a mount looks whose credential has run out.
pub const MOUNT_LOGIN_SWEEP: Duration = Duration::from_secs(60);
/// How long saying so may take, the node's answer included, for who waits for it.
pub const MOUNT_LOGIN_WITHIN: Duration = Duration::from_secs(30);
/// Bytes of the line in which a user says so.
pub const MOUNT_LOGIN_BYTES_MAX: usize = 2 * PROOF_BYTES_MAX;
/// Answers that a node keeps, of all sessions, for calls on open files that may come again: half a KiB each, at most.
pub const REPEATS_KEPT_MAX: usize = 128 << 10;
/// How long a mount rests between two pages of changes, so that its own come together.
pub const MOUNT_WATCH_REST: Duration = Duration::from_millis(5);
/// How long who is told of other bytes of a file waits for older pages to go that are being dropped for somebody else.
pub const MOUNT_PAGES_GO_WITHIN: Duration = Duration::from_secs(1);
/// How long a mount looks whether the kernel was shown what a change came to, before it is told of it.
pub const MOUNT_LOOK_WITHIN: Duration = Duration::from_millis(100);
/// How long after a change came that the kernel was shown already it is told of it all the same.
pub const MOUNT_TOLD_AGAIN_AFTER: Duration = Duration::from_millis(500);
/// For how long it is told again, each time so much later, of what it does not know yet: the answer that brings it may be on its way.
pub const MOUNT_TOLD_AGAIN_WITHIN: Duration = Duration::from_secs(10);
/// How long a mount rests after changes were refused it, and at least between two times it drops all.
pub const MOUNT_DROP_REST: Duration = Duration::from_millis(500);
/// Refusals a mount's watcher has not dealt with yet; more of them say nothing new.
pub const MOUNT_REFUSALS_MAX: usize = 64;
/// Files of a mount of which it is known what failed last.
pub const MOUNT_FAILURES_KEPT: usize = 256;
/// ACLs that a mount has shown and may be given back edited.
pub const MOUNT_EDITIONS_KEPT: usize = 256;
/// How long a mount that is asked how it is waits for its node.
pub const MOUNT_ANSWERS_WITHIN: Duration = Duration::from_secs(1);
/// How long is waited for a mount to say how it is.
pub const MOUNT_TELLS_WITHIN: Duration = Duration::from_secs(10);

/// Nodes that are remembered for the next process of a mount: more files than a kernel keeps in 16 GiB.
pub const MOUNT_NODES_REMEMBERED: usize = 1 << 24;
/// Open files that are: twice what a session may hold, since some are never closed whose opening a process died over.
pub const MOUNT_OPENS_REMEMBERED: usize = 2 * SESSION_OPENS_MAX;
/// Locks, and those who may hold some, that are.
pub const MOUNT_LOCKS_REMEMBERED: usize = 2 * LOCKS_PER_SESSION_MAX;
/// Bytes of what the next process of a mount proves itself by: a credential and a session, as text.
pub const MOUNT_PAPERS_BYTES_MAX: usize = 8 * PROOF_BYTES_MAX;
/// How long the next process of a mount tries to reach the node, and all that it begins with: as long as a call may wait
/// that was made of the one before.
pub const MOUNT_TAKEN_OVER_WITHIN: Duration = super::CALL_DEADLINE;
/// Processes of a mount one after the other that die before they have served for [`MOUNT_SERVED_WELL`]: then it is given
/// up.
pub const MOUNT_DEATHS_MAX: u32 = 4;
/// How long a process of a mount serves until its death counts as the first.
pub const MOUNT_SERVED_WELL: Duration = Duration::from_secs(1);
/// How long a mount rests before it starts another process in the place of one that died again: twice as long each time.
pub const MOUNT_DEATH_REST: Duration = Duration::from_millis(50);

/// How long the process that serves a mount may not say that it lives until it is killed and another takes over: as long as a
/// call may take, and never so long that a service manager which asks for it loses patience first.
pub const MOUNT_SILENT_MAX: Duration = super::CALL_DEADLINE;
/// How often the process that serves a mount is looked at, in case it died and cannot go.
pub const MOUNT_DEATH_WATCH: Duration = Duration::from_millis(200);
/// How often is looked whether one that died has gone.
pub const MOUNT_DEATH_LOOK: Duration = Duration::from_millis(5);
/// How often in a row its threads are seen to wait for the kernel alone until nobody waits for them.
pub const MOUNT_DEATH_LOOKS: u32 = 4;

const _: () = assert!(MOUNT_LISTING_KEPT.as_secs() < MOUNT_BELIEVED_WATCHED.as_secs());
const _: () = assert!(
    MOUNT_ANSWERS_WITHIN.as_secs() + RPC_ANSWER_GRACE.as_secs() + MOUNT_INTERRUPT_GRACE.as_secs()
        < MOUNT_TELLS_WITHIN.as_secs()
);
const _: () =
    assert!(MOUNT_HANDOVER_BYTES < MOUNT_WRITE_BYTES_MAX && MOUNT_WRITE_BYTES_MAX <= PIECE_BYTES_MAX);
// Beside calls and waits: what readers have just begun, locks given up, looks; the rest is for the watch and what is read ahead.
const _: () = assert!(
    MOUNT_CALLS_MAX
        + MOUNT_SYNCS_MAX
        + MOUNT_LOCK_WAITS_MAX
        + MOUNT_READERS_MAX
        + MOUNT_UNLOCKS_AT_ONCE
        + 5 * MOUNT_LOOKS_AT_ONCE
        < RPC_CALLS_MAX
);
const _: () = assert!(2 * (MOUNT_CALLS_MAX + MOUNT_READERS_MAX) <= ONCE_RING);
