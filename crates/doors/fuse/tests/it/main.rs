//! The mount against real programs and system calls, over the in-memory `Model`.
//!
//! Needs FUSE: `/dev/fuse` open to the user and `fusermount3` installed (Debian: fuse3).
//! The test of unprivileged use needs root besides, to become somebody else. Where they
//! are missing, a test adds its line to the file named by `WEFT_NOT_RUN` and returns; it
//! fails if that is not set.

mod asked_again;
mod bed;
mod compare;
mod consistency;
mod ended;
mod faults;
mod faulty;
mod listings;
mod locks;
mod narrowed;
mod overtaken;
mod posix;
mod programs;
mod raw;
mod shared;
mod sharing;
mod told;
mod two_mounts;
mod unprivileged;
mod unwatched;
