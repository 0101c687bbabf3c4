//! How a command ends: what is said of an error, and the exit code.

use std::process::ExitCode;

use clap::error::ErrorKind as ErrorKindOfUsage;
use weft_client::Client;
use weft_core::{Error, ErrorKind, OneLine, Result};

use crate::context::Context;
use crate::output::{self, note};
use crate::progress::Count;

/// What failed of the several things a command was asked to do. Each failure is said at once and
/// the others are done all the same; the exit code is that of the first.
pub struct Failures<'a> {
    context: &'a Context,
    client: &'a Client,
    count: Option<&'a Count>,
    first: Option<u8>,
}

impl<'a> Failures<'a> {
    /// Nothing has failed yet.
    pub fn none(context: &'a Context, client: &'a Client) -> Self {
        Self { context, client, count: None, first: None }
    }

    /// Says failures beside something that is counted meanwhile.
    #[must_use]
    pub fn beside(self, count: &'a Count) -> Self {
        Self { count: Some(count), ..self }
    }

    /// Takes what became of one of them. Fails only with what the others cannot go on after:
    /// the node is gone, or standard output is.
    pub fn take(&mut self, outcome: Result<()>) -> Result<()> {
        let Err(error) = outcome else { return Ok(()) };
        if ends_all(&error, self.client) {
            return Err(error);
        }
        self.first.get_or_insert(exit_code(error.kind()));
        let tell = || say(&error, self.context.json());
        self.count.map_or_else(tell, |count| count.beside(tell));
        Ok(())
    }

    /// Returns the command's exit code.
    pub fn exit(&self) -> ExitCode {
        self.first.map_or(ExitCode::SUCCESS, ExitCode::from)
    }
}

/// Returns whether nothing else can be done either: the node is gone, or standard output is.
pub fn ends_all(error: &Error, client: &Client) -> bool {
    output::is_lost(error) || client.remote().connection().ended().is_some()
}

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
    say(error, json);
    ExitCode::from(exit_code(error.kind()))
}

/// Says that the command line cannot be understood; returns the exit code. Help and the version
/// are as `clap` shows them, JSON or not.
pub fn usage(error: &clap::Error, json: bool) -> ExitCode {
    if !error.use_stderr() || !json {
        // Where it cannot be printed, nobody is there to be told.
        let _ = error.print();
        return ExitCode::from(if error.use_stderr() { EXIT_USAGE } else { 0 });
    }
    let text = error.render().to_string();
    let detail = match error.kind() {
        // What it renders then is the whole help.
        ErrorKindOfUsage::DisplayHelpOnMissingArgumentOrSubcommand => "no command is given",
        _ => text.split("\n\nUsage:").next().unwrap_or(&text).trim_start_matches("error: ").trim(),
    };
    note!("{}", serde_json::json!({ "error": "usage", "detail": detail, "hint": "weft --help" }));
    ExitCode::from(EXIT_USAGE)
}

const EXIT_USAGE: u8 = 2;

fn say(error: &Error, json: bool) {
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
        // Names of this machine's files are in it as they are.
        note!("error: {}", OneLine(&error.to_string()));
        for cause in error.causes() {
            note!("  because: {}", OneLine(&cause.to_string()));
        }
        if let Some(hint) = error.advice() {
            note!("hint: {}", OneLine(hint));
        }
    }
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
