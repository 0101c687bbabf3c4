//! What failed last, of each file and of the mount as a whole: a program is told a number, and
//! whoever asks afterwards is told the rest.
//!
//! Only what needs a reason is kept. That a name is not there, or is there already, says all there
//! is to say, and happens all the time.

use std::collections::HashMap;
use std::error::Error as _;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use weft_core::{Error, ErrorKind, FileId, OneLine, Time, limits};

use crate::abi::ROOT_NODE;

/// The last failures of one mount, of at most [`limits::MOUNT_FAILURES_KEPT`] files.
#[derive(Default)]
pub(crate) struct Failures(Mutex<Table>);

#[derive(Default)]
struct Table {
    of_nodes: HashMap<u64, Failed>,
    of_mount: Option<Failed>,
}

/// One failure, as often as it came in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Failed {
    what: What,
    since: Time,
    last: Time,
    times: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct What {
    /// What the kernel asked for.
    request: &'static str,
    /// Of which file: `find -inum` finds it.
    inode: u64,
    kind: ErrorKind,
    because: String,
    /// What was being done, where somebody on this side of the line says so.
    step: &'static str,
    causes: Vec<String>,
    hint: Option<String>,
}

impl Failures {
    /// Notes that a request on a node, which is this file, failed.
    pub(crate) fn note(&self, (node, file): (u64, FileId), request: &'static str, error: &Error, now: Time) {
        if !needs_reason(error.kind()) {
            return;
        }
        let what = What::of(file, request, error);
        let mut table = self.lock();
        table.of_mount = Some(Failed::after(table.of_mount.take(), what.clone(), now));
        let before = table.of_nodes.remove(&node);
        if table.of_nodes.len() >= limits::MOUNT_FAILURES_KEPT {
            table.forget_oldest();
        }
        table.of_nodes.insert(node, Failed::after(before, what, now));
    }

    /// Says what failed last of a node, in lines of `key: value`; of the root what failed last
    /// anywhere in the mount.
    pub(crate) fn of(&self, node: u64) -> Option<String> {
        let table = self.lock();
        let failed = if node == ROOT_NODE { table.of_mount.as_ref() } else { table.of_nodes.get(&node) };
        failed.map(Failed::to_string)
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn forget_oldest(&mut self) {
        if let Some(oldest) =
            self.of_nodes.iter().min_by_key(|(_, failed)| failed.last).map(|(node, _)| *node)
        {
            self.of_nodes.remove(&oldest);
        }
    }
}

impl Failed {
    fn after(before: Option<Self>, what: What, now: Time) -> Self {
        match before {
            Some(same) if same.what == what => {
                Self { last: now, times: same.times.saturating_add(1), ..same }
            }
            _ => Self { what, since: now, last: now, times: 1 },
        }
    }
}

impl What {
    fn of(file: FileId, request: &'static str, error: &Error) -> Self {
        let mut causes = Vec::new();
        let mut below = error.source();
        while let Some(cause) = below {
            causes.push(cause.to_string());
            below = cause.source();
        }
        let hint = error.advice().map(str::to_owned);
        // Whoever asks does so at the file: its id says nothing more.
        let itself = error.subject() == Some(&*file.to_string());
        let because = if itself { error.detail().to_owned() } else { error.to_string() };
        let (inode, kind, step) = (file.inode(), error.kind(), error.operation());
        Self { request, inode, kind, because, step, causes, hint }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what: What { request, inode, kind, because, step, causes, hint }, since, last, times } =
            self;
        let mut line = |key: &str, value: &str| writeln!(f, "{key}: {}", OneLine(value));
        line("failed", request)?;
        line("inode", &inode.to_string())?;
        line("kind", kind.name())?;
        line("because", because)?;
        if !causes.is_empty() {
            line("cause", &causes.join("; "))?;
        }
        if !step.is_empty() {
            line("step", step)?;
        }
        if let Some(hint) = hint {
            line("hint", hint)?;
        }
        line("since", &format!("{} UTC", since.civil()))?;
        line("last", &format!("{} UTC", last.civil()))?;
        line("times", &times.to_string())
    }
}

/// Whether a number does not say why. No catch-all arm: a new kind has to be decided on.
fn needs_reason(kind: ErrorKind) -> bool {
    match kind {
        ErrorKind::NotFound
        | ErrorKind::Exists
        | ErrorKind::NotEmpty
        | ErrorKind::NotDirectory
        | ErrorKind::IsDirectory
        | ErrorKind::CrossVolume
        | ErrorKind::TooLong
        | ErrorKind::Loop
        | ErrorKind::NoAttribute
        | ErrorKind::Locked
        | ErrorKind::Deadlock => false,
        ErrorKind::Denied
        | ErrorKind::NotPermitted
        | ErrorKind::Unauthenticated
        | ErrorKind::Invalid
        | ErrorKind::Conflict
        | ErrorKind::Precondition
        | ErrorKind::TooLarge
        | ErrorKind::TooManyLinks
        | ErrorKind::ReadOnly
        | ErrorKind::NoSpace
        | ErrorKind::NoQuota
        | ErrorKind::Busy
        | ErrorKind::Stale
        | ErrorKind::Expired
        | ErrorKind::Revoked
        | ErrorKind::Deadline
        | ErrorKind::Unavailable
        | ErrorKind::Unsupported
        | ErrorKind::Corrupt
        | ErrorKind::Internal => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Time {
        Time::from_unix(seconds, 0)
    }

    fn file(serial: u64) -> FileId {
        FileId::new(FileId::ROOT.volume(), serial, 0)
    }

    #[test]
    fn a_failure_that_comes_again_is_counted_and_another_takes_its_place() {
        let failures = Failures::default();
        let full = || Error::new(ErrorKind::NoSpace, "it\nis full").op("write").hint("remove something");
        failures.note((5, file(55)), "write", &full(), at(0));
        failures.note((5, file(55)), "write", &full(), at(61));
        let said = "failed: write\ninode: 55\nkind: no-space\nbecause: cannot write: it\\x0ais full\nstep: write\n\
                    hint: remove something\nsince: 1970-01-01 00:00:00 UTC\nlast: 1970-01-01 00:01:01 UTC\ntimes: 2\n";
        assert_eq!(failures.of(5).as_deref(), Some(said));
        assert_eq!((failures.of(ROOT_NODE).as_deref(), failures.of(6)), (Some(said), None));
        let lost = Error::new(ErrorKind::Unavailable, "gone").caused_by(Error::corrupt("torn"));
        failures.note((6, file(66)), "read", &lost, at(70));
        assert!(
            failures.of(6).is_some_and(|said| said.contains("cause: torn\n") && said.ends_with("times: 1\n"))
        );
        assert_eq!((failures.of(5).as_deref(), failures.of(ROOT_NODE)), (Some(said), failures.of(6)));
        failures.note((5, file(55)), "lookup", &Error::not_found("no such name"), at(80));
        assert_eq!(failures.of(5).as_deref(), Some(said), "what says all by itself is not kept");
        failures.note((7, file(77)), "read", &Error::denied("no").about(file(77)), at(90));
        assert!(failures.of(7).is_some_and(|said| said.contains("\nbecause: no\n")), "the id is not said");
    }

    #[test]
    fn of_many_files_that_fail_the_latest_are_known() {
        let failures = Failures::default();
        let (first, end) = (ROOT_NODE + 1, ROOT_NODE + 1 + limits::MOUNT_FAILURES_KEPT as u64);
        for (node, time) in (first..=end).zip(0..) {
            failures.note((node, file(node)), "open", &Error::denied("no"), at(time));
        }
        assert_eq!(failures.of(first), None);
        assert!((first + 1..=end).all(|node| failures.of(node).is_some()));
    }
}
