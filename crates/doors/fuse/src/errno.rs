//! Every kind of error as the number a program on the mount sees. The one table.

use rustix::io::Errno;
use weft_core::{Error, ErrorKind};

/// Why a request of the kernel is not answered with what it asked for.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The file system said why.
    Refused(Error),
    /// It said why, and the manual page of the call gives that outcome a number of its own.
    Shown(Error, Errno),
    /// The door itself refuses: what was asked has no meaning below it.
    Door(Errno),
}

impl Failure {
    /// Returns the number the kernel passes on.
    pub(crate) fn errno(&self) -> Errno {
        match self {
            Self::Refused(error) => of_kind(error.kind()),
            Self::Shown(_, errno) | Self::Door(errno) => *errno,
        }
    }

    /// Returns why, if anybody said so.
    pub(crate) fn error(&self) -> Option<&Error> {
        match self {
            Self::Refused(error) | Self::Shown(error, _) => Some(error),
            Self::Door(_) => None,
        }
    }

    /// Returns this failure shown as `errno` if it is of `kind`: for the few calls
    /// whose manual page gives one outcome a number of its own.
    pub(crate) fn shown(self, kind: ErrorKind, errno: Errno) -> Self {
        match self {
            Self::Refused(error) if error.kind() == kind => Self::Shown(error, errno),
            other => other,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Self::Door(errno)
    }
}

/// Returns the number for a kind. No catch-all arm: a new kind has to be decided on.
pub fn of_kind(kind: ErrorKind) -> Errno {
    match kind {
        ErrorKind::NotFound => Errno::NOENT,
        ErrorKind::Exists => Errno::EXIST,
        ErrorKind::Denied | ErrorKind::Unauthenticated => Errno::ACCESS,
        ErrorKind::NotPermitted => Errno::PERM,
        ErrorKind::Invalid => Errno::INVAL,
        ErrorKind::Conflict | ErrorKind::Busy => Errno::BUSY,
        ErrorKind::Precondition => Errno::CANCELED,
        ErrorKind::NotEmpty => Errno::NOTEMPTY,
        ErrorKind::NotDirectory => Errno::NOTDIR,
        ErrorKind::IsDirectory => Errno::ISDIR,
        ErrorKind::CrossVolume => Errno::XDEV,
        ErrorKind::TooLong => Errno::NAMETOOLONG,
        ErrorKind::TooLarge => Errno::FBIG,
        ErrorKind::TooManyLinks => Errno::MLINK,
        ErrorKind::Loop => Errno::LOOP,
        ErrorKind::ReadOnly => Errno::ROFS,
        ErrorKind::NoAttribute => Errno::NODATA,
        ErrorKind::NoSpace => Errno::NOSPC,
        ErrorKind::NoQuota => Errno::DQUOT,
        ErrorKind::Locked => Errno::AGAIN,
        ErrorKind::Deadlock => Errno::DEADLK,
        ErrorKind::Stale => Errno::STALE,
        ErrorKind::Expired => Errno::KEYEXPIRED,
        ErrorKind::Revoked => Errno::KEYREVOKED,
        ErrorKind::Deadline => Errno::TIMEDOUT,
        ErrorKind::Unavailable => Errno::HOSTDOWN,
        ErrorKind::Unsupported => Errno::OPNOTSUPP,
        ErrorKind::Corrupt => Errno::BADMSG,
        ErrorKind::Internal => Errno::IO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What programs see, by hand. Printed whole when it differs.
    const TABLE: &str = "\
not-found        No such file or directory
exists           File exists
denied           Permission denied
not-permitted    Operation not permitted
unauthenticated  Permission denied
invalid          Invalid argument
conflict         Device or resource busy
precondition     Operation canceled
not-empty        Directory not empty
not-directory    Not a directory
is-directory     Is a directory
cross-volume     Invalid cross-device link
too-long         File name too long
too-large        File too large
too-many-links   Too many links
loop             Too many levels of symbolic links
read-only        Read-only file system
no-attribute     No data available
no-space         No space left on device
no-quota         Disk quota exceeded
locked           Resource temporarily unavailable
busy             Device or resource busy
deadlock         Resource deadlock avoided
stale            Stale file handle
expired          Key has expired
revoked          Key has been revoked
deadline         Connection timed out
unavailable      Host is down
unsupported      Operation not supported
corrupt          Bad message
internal         Input/output error
";

    #[test]
    fn each_kind_has_the_number_its_manual_page_says() {
        let mut table = String::new();
        for kind in ErrorKind::ALL {
            let text = std::io::Error::from(of_kind(kind)).to_string();
            let text = text.split(" (os error").next().unwrap_or_default();
            table += &format!("{:<16} {text}\n", kind.name());
        }
        println!("{table}");
        assert_eq!(table, TABLE);
    }
}
