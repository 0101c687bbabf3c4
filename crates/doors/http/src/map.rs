//! Errors to statuses: the one table, and what the act changes about it.

use weft_core::ErrorKind;

use crate::status::Status;

/// What a request was about, where it changes what an error means in HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Reading.
    Read,
    /// Making something at a path: a missing directory on the way is a conflict, as in WebDAV.
    Make,
    /// Removing.
    Remove,
}

/// Returns the status an error is answered with.
pub fn status(kind: ErrorKind, act: Act) -> Status {
    match (kind, act) {
        (ErrorKind::NotFound | ErrorKind::Stale, Act::Make) => Status::CONFLICT,
        // Below a file there is nothing.
        (ErrorKind::NotDirectory, Act::Read | Act::Remove) => Status::NOT_FOUND,
        (kind, _) => plain(kind),
    }
}

fn plain(kind: ErrorKind) -> Status {
    match kind {
        ErrorKind::NotFound => Status::NOT_FOUND,
        ErrorKind::Exists => Status::CONFLICT,
        ErrorKind::Denied => Status::FORBIDDEN,
        ErrorKind::NotPermitted => Status::FORBIDDEN,
        ErrorKind::Unauthenticated => Status::UNAUTHORIZED,
        ErrorKind::Invalid => Status::BAD_REQUEST,
        ErrorKind::Conflict => Status::CONFLICT,
        ErrorKind::Precondition => Status::PRECONDITION_FAILED,
        ErrorKind::NotEmpty => Status::CONFLICT,
        ErrorKind::NotDirectory => Status::CONFLICT,
        ErrorKind::IsDirectory => Status::CONFLICT,
        ErrorKind::CrossVolume => Status::CONFLICT,
        ErrorKind::TooLong => Status::TARGET_TOO_LONG,
        ErrorKind::TooLarge => Status::TOO_LARGE,
        ErrorKind::TooManyLinks => Status::CONFLICT,
        ErrorKind::Loop => Status::LOOP,
        ErrorKind::ReadOnly => Status::FORBIDDEN,
        ErrorKind::NoAttribute => Status::NOT_FOUND,
        ErrorKind::NoSpace => Status::NO_SPACE,
        ErrorKind::NoQuota => Status::NO_SPACE,
        ErrorKind::Locked => Status::LOCKED,
        ErrorKind::Busy => Status::UNAVAILABLE,
        ErrorKind::Deadlock => Status::CONFLICT,
        ErrorKind::Stale => Status::NOT_FOUND,
        ErrorKind::Expired => Status::UNAUTHORIZED,
        ErrorKind::Revoked => Status::UNAUTHORIZED,
        ErrorKind::Deadline => Status::GATEWAY_TIMEOUT,
        ErrorKind::Unavailable => Status::UNAVAILABLE,
        ErrorKind::Unsupported => Status::NOT_IMPLEMENTED,
        ErrorKind::Corrupt => Status::INTERNAL,
        ErrorKind::Internal => Status::INTERNAL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
not-found        404 409 404
exists           409 409 409
denied           403 403 403
not-permitted    403 403 403
unauthenticated  401 401 401
invalid          400 400 400
conflict         409 409 409
precondition     412 412 412
not-empty        409 409 409
not-directory    404 409 404
is-directory     409 409 409
cross-volume     409 409 409
too-long         414 414 414
too-large        413 413 413
too-many-links   409 409 409
loop             508 508 508
read-only        403 403 403
no-attribute     404 404 404
no-space         507 507 507
no-quota         507 507 507
locked           423 423 423
busy             503 503 503
deadlock         409 409 409
stale            404 409 404
expired          401 401 401
revoked          401 401 401
deadline         504 504 504
unavailable      503 503 503
unsupported      501 501 501
corrupt          500 500 500
internal         500 500 500
";

    /// The table as people read it: kind, then its status for a read, a make and a removal.
    #[test]
    fn every_kind_has_the_status_written_down_here() {
        let line = |kind: ErrorKind| {
            let [read, make, remove] =
                [Act::Read, Act::Make, Act::Remove].map(|act| status(kind, act).code());
            format!("{:<16} {read} {make} {remove}\n", kind.name())
        };
        let printed: String = ErrorKind::ALL.into_iter().map(line).collect();
        println!("{printed}");
        assert_eq!(printed, TABLE);
    }
}
