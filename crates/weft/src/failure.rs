//! How a command ends: what is said of an error, and the exit code.

use std::process::ExitCode;

use weft_core::{Error, ErrorKind};

use crate::output::{self, note};

/// Exit codes, fixed for scripts: 0 done, 1 failed, 2 usage, 3 denied, 4 unavailable.
pub fn exit_code(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Denied
        | ErrorKind::NotPermitted
        | ErrorKind::Unauthenticated
        | ErrorKind::Revoked
        | ErrorKind::Expired => 3,
        ErrorKind::Unavailable | ErrorKind::Deadline | ErrorKind::Busy => 4,
        ErrorKind::NotFound
        | ErrorKind::Exists
        | ErrorKind::Invalid
        | ErrorKind::Conflict
        | ErrorKind::Precondition
        | ErrorKind::NotEmpty
        | ErrorKind::NotDirectory
        | ErrorKind::IsDirectory
        | ErrorKind::CrossVolume
        | ErrorKind::TooLong
        | ErrorKind::TooLarge
        | ErrorKind::TooManyLinks
        | ErrorKind::Loop
        | ErrorKind::ReadOnly
        | ErrorKind::NoAttribute
        | ErrorKind::NoSpace
        | ErrorKind::NoQuota
        | ErrorKind::Locked
        | ErrorKind::Deadlock
        | ErrorKind::Stale
        | ErrorKind::Unsupported
        | ErrorKind::Corrupt
        | ErrorKind::Internal => 1,
    }
}

/// Says what failed, why, and what to do; returns the exit code.
pub fn report(error: &Error, json: bool) -> ExitCode {
    if output::seen_enough(error) {
        return ExitCode::SUCCESS;
    }
    if json {
        let line = serde_json::json!({
            "error": error.kind().name(),
            "operation": error.operation(),
            "about": error.subject(),
            "detail": error.detail(),
            "hint": error.advice(),
        });
        note!("{line}");
    } else {
        note!("error: {error}");
        let mut below = std::error::Error::source(error);
        while let Some(cause) = below {
            note!("  because: {cause}");
            below = cause.source();
        }
        if let Some(hint) = error.advice() {
            note!("hint: {hint}");
        }
    }
    ExitCode::from(exit_code(error.kind()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_code_and_refusals_have_their_own() {
        for kind in ErrorKind::ALL {
            assert!((1..=4).contains(&exit_code(kind)) && exit_code(kind) != 2, "{kind}");
        }
        assert_eq!(
            [ErrorKind::Denied, ErrorKind::Unavailable, ErrorKind::NotFound].map(exit_code),
            [3, 4, 1]
        );
    }
}
