//! What the machine's refusals mean: the one table from `errno` to [`ErrorKind`].

use std::fmt::Display;
use std::io;

use rustix::io::Errno;
use weft_core::{Error, ErrorKind};

/// Returns the error for what the machine answered to `op` on `about`, with the answer chained.
pub fn error(cause: io::Error, op: &'static str, about: impl Display) -> Error {
    let (kind, detail) = meaning(&cause);
    let error = Error::new(kind, detail).op(op).about(about);
    let error = match kind {
        ErrorKind::NoSpace => error.hint("free space on this disk, or move the node to a larger one"),
        ErrorKind::Unavailable => error.hint("look at the machine's log: a disk may be failing"),
        _ => error,
    };
    error.caused_by(cause)
}

/// Returns what `cause` means and how to say it.
pub fn meaning(cause: &io::Error) -> (ErrorKind, &'static str) {
    match Errno::from_io_error(cause) {
        Some(errno) => errno_meaning(errno),
        None => io_kind_meaning(cause.kind()),
    }
}

fn errno_meaning(errno: Errno) -> (ErrorKind, &'static str) {
    match errno {
        Errno::NOENT => (ErrorKind::NotFound, "there is no such file"),
        Errno::EXIST => (ErrorKind::Exists, "the name is taken"),
        Errno::ACCESS => (ErrorKind::Denied, "the machine refuses this to the user it runs as"),
        Errno::PERM => (ErrorKind::NotPermitted, "the machine permits this to the owner only"),
        Errno::INVAL | Errno::BADF | Errno::FAULT => {
            (ErrorKind::Invalid, "the machine calls the request malformed")
        }
        Errno::NOTEMPTY => (ErrorKind::NotEmpty, "the directory is not empty"),
        Errno::NOTDIR => (ErrorKind::NotDirectory, "a part of the path is not a directory"),
        Errno::ISDIR => (ErrorKind::IsDirectory, "it is a directory"),
        Errno::XDEV => (
            ErrorKind::CrossVolume,
            "the two names are on different file systems, or the path leaves its root",
        ),
        Errno::NAMETOOLONG => (ErrorKind::TooLong, "the name is longer than the file system takes"),
        Errno::FBIG | Errno::OVERFLOW => {
            (ErrorKind::TooLarge, "the file would be larger than the file system takes")
        }
        Errno::MLINK => (ErrorKind::TooManyLinks, "the file has as many names as the file system takes"),
        Errno::LOOP => (ErrorKind::Loop, "too many symbolic links"),
        Errno::ROFS => (ErrorKind::ReadOnly, "the file system is mounted read-only"),
        Errno::NODATA => (ErrorKind::NoAttribute, "there is no such attribute"),
        Errno::NOSPC => (ErrorKind::NoSpace, "the disk is full"),
        Errno::DQUOT => (ErrorKind::NoSpace, "the disk quota of the user it runs as is used up"),
        Errno::AGAIN | Errno::BUSY | Errno::TXTBSY => (ErrorKind::Busy, "the machine is busy with it"),
        Errno::MFILE => (ErrorKind::Busy, "the process has as many files open as it may"),
        Errno::NFILE => (ErrorKind::Busy, "the machine has as many files open as it can"),
        Errno::NOMEM | Errno::NOBUFS => (ErrorKind::Busy, "the machine is out of memory"),
        Errno::DEADLK => (ErrorKind::Deadlock, "waiting for the lock would wait for ever"),
        Errno::STALE => (ErrorKind::Stale, "the file behind the handle is gone"),
        Errno::TIMEDOUT => (ErrorKind::Deadline, "the machine gave up waiting"),
        Errno::OPNOTSUPP | Errno::NOSYS => {
            (ErrorKind::Unsupported, "the file system or kernel cannot do this")
        }
        Errno::IO | Errno::NXIO | Errno::NODEV => {
            (ErrorKind::Unavailable, "the disk reports an input/output error")
        }
        Errno::PIPE | Errno::CONNRESET | Errno::CONNABORTED | Errno::NOTCONN => {
            (ErrorKind::Unavailable, "the other side closed the connection")
        }
        Errno::CONNREFUSED | Errno::HOSTUNREACH | Errno::NETUNREACH => {
            (ErrorKind::Unavailable, "the other side cannot be reached")
        }
        Errno::ADDRINUSE => (ErrorKind::Busy, "the address is in use"),
        Errno::ADDRNOTAVAIL => (ErrorKind::Invalid, "the address is not one of this machine's"),
        Errno::INTR => (ErrorKind::Busy, "the machine was interrupted"),
        _ => (ErrorKind::Internal, "the machine gave an unexpected answer"),
    }
}

/// For errors that Rust or the simulator made without an errno.
fn io_kind_meaning(kind: io::ErrorKind) -> (ErrorKind, &'static str) {
    match kind {
        io::ErrorKind::UnexpectedEof => (ErrorKind::Corrupt, "the file ends before its bytes do"),
        io::ErrorKind::TimedOut => (ErrorKind::Deadline, "no answer in time"),
        io::ErrorKind::WouldBlock => (ErrorKind::Busy, "the machine is busy with it"),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted => {
            (ErrorKind::Unavailable, "the other side closed the connection")
        }
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
            (ErrorKind::Invalid, "the request is malformed")
        }
        _ => (ErrorKind::Internal, "the machine gave an unexpected answer"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_and_a_used_up_quota_are_no_space_and_say_which() {
        for (errno, text) in [(Errno::NOSPC, "the disk is full"), (Errno::DQUOT, "quota")] {
            let error = error(errno.into(), "write", "log-1");
            assert_eq!(error.kind(), ErrorKind::NoSpace);
            assert!(error.detail().contains(text) && error.advice().is_some(), "{error:?}");
        }
    }

    #[test]
    fn nothing_is_said_of_the_node_where_a_client_may_be_what_was_refused() {
        for number in 1..134 {
            let (_, detail) = meaning(&io::Error::from_raw_os_error(number));
            assert!(!detail.contains("node"), "{number}: {detail}");
        }
        assert_eq!(
            error(Errno::ACCESS.into(), "read", "/f").to_string(),
            "cannot read /f: the machine refuses this to the user it runs as"
        );
    }

    #[test]
    fn a_failing_disk_is_unavailable_and_too_many_files_is_busy() {
        assert_eq!(error(Errno::IO.into(), "read", "x").kind(), ErrorKind::Unavailable);
        assert_eq!(error(Errno::MFILE.into(), "open", "x").kind(), ErrorKind::Busy);
    }
}
