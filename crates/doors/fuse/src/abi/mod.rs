//! The kernel's side of the mount: numbers and layouts of `<linux/fuse.h>`, protocol
//! 7.31 and what was added up to 7.45 that the door uses.
//!
//! [`request`] reads what the kernel sends, [`reply`] writes what it gets. Nothing
//! here knows what a request means.

pub(crate) mod reply;
pub(crate) mod request;

/// The protocol's major number: another one is another protocol.
pub(crate) const MAJOR: u32 = 7;
/// The newest minor number the door knows the layouts of.
pub(crate) const MINOR: u32 = 45;
/// The oldest one it speaks: Linux 5.4 and later.
pub(crate) const MINOR_MIN: u32 = 31;

/// The node that is always known: the root of the mount.
pub(crate) const ROOT_NODE: u64 = 1;
/// Bytes of the header before each request.
pub(crate) const IN_HEADER_BYTES: usize = 40;
/// Bytes of the header before each reply.
pub(crate) const OUT_HEADER_BYTES: usize = 16;
/// Set in the number of a request that is sent once more.
pub(crate) const UNIQUE_RESEND: u64 = 1 << 63;
/// Bytes between the header of a write and its data.
pub(crate) const WRITE_IN_BYTES: usize = 40;
/// Bytes of one directory entry before its name.
pub(crate) const DIRENT_BYTES: usize = 24;
/// Bytes of the entry that precedes each directory entry of a listing with attributes.
pub(crate) const ENTRY_BYTES: usize = 128;

/// What kind of request it is.
pub(crate) mod opcode {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const FLUSH: u32 = 25;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const GETLK: u32 = 31;
    pub(crate) const SETLK: u32 = 32;
    pub(crate) const SETLKW: u32 = 33;
    pub(crate) const ACCESS: u32 = 34;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const LSEEK: u32 = 46;
    pub(crate) const COPY_FILE_RANGE: u32 = 47;

    /// Returns what a request is called in `<linux/fuse.h>`, as manuals and traces know it.
    pub(crate) fn name(opcode: u32) -> &'static str {
        match opcode {
            LOOKUP => "lookup",
            GETATTR => "getattr",
            SETATTR => "setattr",
            READLINK => "readlink",
            SYMLINK => "symlink",
            MKNOD => "mknod",
            MKDIR => "mkdir",
            UNLINK => "unlink",
            RMDIR => "rmdir",
            RENAME | RENAME2 => "rename",
            LINK => "link",
            OPEN => "open",
            READ => "read",
            WRITE => "write",
            STATFS => "statfs",
            RELEASE => "release",
            FSYNC => "fsync",
            SETXATTR => "setxattr",
            GETXATTR => "getxattr",
            LISTXATTR => "listxattr",
            REMOVEXATTR => "removexattr",
            FLUSH => "flush",
            OPENDIR => "opendir",
            READDIR | READDIRPLUS => "readdir",
            RELEASEDIR => "releasedir",
            FSYNCDIR => "fsyncdir",
            GETLK => "getlk",
            SETLK | SETLKW => "setlk",
            ACCESS => "access",
            CREATE => "create",
            FALLOCATE => "fallocate",
            LSEEK => "lseek",
            COPY_FILE_RANGE => "copy_file_range",
            _ => "request",
        }
    }

    /// Whether a request has bytes be brought to the disk, which may take long.
    pub(crate) fn syncs(opcode: u32) -> bool {
        matches!(opcode, FSYNC | FSYNCDIR)
    }

    /// Whether a request changes something, so that it must not be made a second time because
    /// it seemed not to have been made.
    pub(crate) fn changes(opcode: u32) -> bool {
        matches!(
            opcode,
            SETATTR
                | SYMLINK
                | MKNOD
                | MKDIR
                | UNLINK
                | RMDIR
                | RENAME
                | RENAME2
                | LINK
                | OPEN
                | CREATE
                | WRITE
                | SETXATTR
                | REMOVEXATTR
                | SETLK
                | FALLOCATE
                | COPY_FILE_RANGE
        )
    }
}

/// What both sides can do, agreed on when the mount begins.
pub(crate) mod init {
    pub(crate) const ASYNC_READ: u64 = 1 << 0;
    pub(crate) const POSIX_LOCKS: u64 = 1 << 1;
    pub(crate) const ATOMIC_O_TRUNC: u64 = 1 << 3;
    pub(crate) const BIG_WRITES: u64 = 1 << 5;
    pub(crate) const FLOCK_LOCKS: u64 = 1 << 10;
    pub(crate) const AUTO_INVAL_DATA: u64 = 1 << 12;
    pub(crate) const DO_READDIRPLUS: u64 = 1 << 13;
    pub(crate) const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub(crate) const ASYNC_DIO: u64 = 1 << 15;
    pub(crate) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(crate) const MAX_PAGES: u64 = 1 << 22;
    pub(crate) const CACHE_SYMLINKS: u64 = 1 << 23;
    pub(crate) const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    pub(crate) const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub(crate) const INIT_EXT: u64 = 1 << 30;
    /// Since Linux 6.6; before, what was opened with [`super::fopen::DIRECT_IO`] could not be mapped and shared.
    pub(crate) const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    /// Since Linux 6.9: what was read and not answered can be had once more.
    pub(crate) const HAS_RESEND: u64 = 1 << 39;
}

/// What a reply to an open tells the kernel.
pub(crate) mod fopen {
    pub(crate) const DIRECT_IO: u32 = 1 << 0;
    pub(crate) const KEEP_CACHE: u32 = 1 << 1;
    /// Since Linux 4.20: what a directory is listed to hold may be kept.
    pub(crate) const CACHE_DIR: u32 = 1 << 3;
}

/// Which fields of a SETATTR count.
pub(crate) mod fattr {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const FH: u32 = 1 << 6;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    pub(crate) const KILL_SUIDGID: u32 = 1 << 11;
}

/// Marks on single requests.
pub(crate) mod mark {
    /// GETATTR names an open file.
    pub(crate) const GETATTR_FH: u32 = 1 << 0;
    /// WRITE comes from the page cache, long after the program's own call.
    pub(crate) const WRITE_CACHE: u32 = 1 << 0;
    /// WRITE must clear set-id bits.
    pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
    /// OPEN that cuts the file must clear set-id bits.
    pub(crate) const OPEN_KILL_SUIDGID: u32 = 1 << 0;
    /// SETLK speaks of `flock`, not of `fcntl`.
    pub(crate) const LK_FLOCK: u32 = 1 << 0;
}

/// What the door tells the kernel on its own account.
pub(crate) mod notify {
    pub(crate) const INVAL_INODE: i32 = 2;
    pub(crate) const INVAL_ENTRY: i32 = 3;
    pub(crate) const RESEND: i32 = 7;
}

/// Flags of `open(2)` as they travel; these numbers are the same on every Linux machine we build for.
pub(crate) mod open {
    pub(crate) const ACCESS_MODE: u32 = 0o3;
    pub(crate) const WRITE_ONLY: u32 = 0o1;
    pub(crate) const READ_WRITE: u32 = 0o2;
    pub(crate) const EXCLUSIVE: u32 = 0o200;
    pub(crate) const TRUNCATE: u32 = 0o1000;
    pub(crate) const APPEND: u32 = 0o2000;
    /// Past the page cache. Another bit on each sort of machine.
    pub(crate) const DIRECT: u32 = rustix::fs::OFlags::DIRECT.bits();
    /// The kernel opens the file to run it.
    pub(crate) const EXECUTE: u32 = 0x20;
}

/// File types within a mode.
pub(crate) mod mode {
    pub(crate) const TYPE: u32 = 0o170_000;
    pub(crate) const FIFO: u32 = 0o010_000;
    pub(crate) const DIRECTORY: u32 = 0o040_000;
    pub(crate) const FILE: u32 = 0o100_000;
    pub(crate) const SYMLINK: u32 = 0o120_000;
    pub(crate) const PERMISSIONS: u32 = 0o7777;
    pub(crate) const SET_UID: u32 = 0o4000;
    pub(crate) const SET_GID: u32 = 0o2000;
    pub(crate) const GROUP_EXECUTE: u32 = 0o10;
    /// Whoever may pass a directory, by its mode.
    pub(crate) const SEARCH: u32 = 0o111;
}

/// The three kinds of `fcntl` lock.
pub(crate) mod lock {
    pub(crate) const READ: u32 = 0;
    pub(crate) const WRITE: u32 = 1;
    pub(crate) const UNLOCK: u32 = 2;
    /// The end of a range that has none.
    pub(crate) const TO_THE_END: u64 = i64::MAX as u64;
}
