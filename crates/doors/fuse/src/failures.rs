//! What failed last, of each file and of the mount as a whole: a program is told a number, and
//! whoever asks afterwards is told the rest.
//!
//! Only what needs a reason is kept. That a name is not there, or is there already, says all there
//! is to say, and happens all the time; that what is open is not there any more does not.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use weft_core::{Error, ErrorKind, FileId, OneLine, Shown, Time, limits};

/// The last failures of one mount, of at most [`limits::MOUNT_FAILURES_KEPT`] files.
#[derive(Default)]
pub(crate) struct Failures(Mutex<Table>);

#[derive(Default)]
struct Table {
    of_files: HashMap<FileId, Failed>,
    of_mount: Option<Failed>,
    noted: u64,
}

/// What a program asked for.
pub(crate) struct Asked<'a> {
    /// The kernel's name of the request.
    pub request: &'static str,
    /// What it was asked of, and the other one of a rename, a link or a copy.
    pub files: Vec<FileId>,
    /// The names it gave.
    pub names: &'a [Option<Bytes>; 2],
    /// Whether it was asked of an open file.
    pub open: bool,
}

/// What whoever reads that an open file is not there can do about it.
const OPEN_AND_GONE: &str = "it was open: either a right to it was withdrawn, so that you may not know of it any more, or it is lost; \
     `weft why` of its path says what you may do there";

/// One failure, as often as it came in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Failed {
    what: What,
    since: Time,
    last: Time,
    times: u64,
    /// Which one of all it was the last time.
    number: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct What {
    request: &'static str,
    /// The names that were given; empty for a request without.
    names: String,
    /// Of which file: `find -inum` finds it.
    inode: Option<u64>,
    kind: ErrorKind,
    because: String,
    /// What was being done, where somebody on this side of the line says so.
    step: &'static str,
    causes: Vec<String>,
    hint: Option<String>,
}

impl Failures {
    /// Notes that a request failed, with each file that it was about.
    pub(crate) fn note(&self, asked: &Asked<'_>, error: &Error, now: Time) {
        if !needs_reason(error.kind(), asked.open) {
            return;
        }
        let what = What::of(asked, error);
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.noted += 1;
        let number = table.noted;
        for file in &asked.files {
            let before = table.of_files.remove(file);
            if table.of_files.len() >= limits::MOUNT_FAILURES_KEPT {
                table.forget_oldest();
            }
            table.of_files.insert(*file, Failed::after(before, what.clone(), now, number));
        }
        table.of_mount = Some(Failed::after(table.of_mount.take(), what, now, number));
    }

    /// Says what failed last of a file, in lines of `key: value`.
    pub(crate) fn of(&self, file: FileId) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).of_files.get(&file).map(Failed::to_string)
    }

    /// Says what failed last anywhere in the mount.
    pub(crate) fn of_mount(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).of_mount.as_ref().map(Failed::to_string)
    }
}

impl Table {
    fn forget_oldest(&mut self) {
        let oldest = self.of_files.iter().min_by_key(|(_, failed)| failed.number).map(|(file, _)| *file);
        if let Some(oldest) = oldest {
            self.of_files.remove(&oldest);
        }
    }
}

impl Failed {
    fn after(before: Option<Self>, what: What, now: Time, number: u64) -> Self {
        match before {
            Some(same) if same.what == what => {
                Self { last: now, times: same.times.saturating_add(1), number, ..same }
            }
            _ => Self { what, since: now, last: now, times: 1, number },
        }
    }
}

impl What {
    fn of(asked: &Asked<'_>, error: &Error) -> Self {
        let names: Vec<String> = asked.names.iter().flatten().map(|name| Shown(name).to_string()).collect();
        // Which file it is of is said already; what else it is about is not.
        let subject = error.subject().unwrap_or_default();
        let lost = asked.open && error.kind() == ErrorKind::NotFound;
        let known = names.iter().any(|name| name == subject)
            || asked.files.iter().any(|file| file.to_string() == subject);
        Self {
            request: asked.request,
            names: names.join(" to "),
            inode: asked.files.first().map(|file| file.inode()),
            kind: error.kind(),
            because: if known { error.detail().to_owned() } else { error.to_string() },
            step: error.operation(),
            causes: error.causes().map(ToString::to_string).collect(),
            hint: error.advice().or(lost.then_some(OPEN_AND_GONE)).map(str::to_owned),
        }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, since, last, times, .. } = self;
        let What { request, names, inode, kind, because, step, causes, hint } = what;
        let mut line = |key: &str, value: &str| writeln!(f, "{key}: {}", OneLine(value));
        line("failed", request)?;
        if !names.is_empty() {
            line("name", names)?;
        }
        if let Some(inode) = inode {
            line("inode", &inode.to_string())?;
        }
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

/// Whether a number does not say why, of an open file or of anything else. No catch-all arm: a new kind has to be
/// decided on.
fn needs_reason(kind: ErrorKind, open: bool) -> bool {
    match kind {
        ErrorKind::NotFound => open,
        ErrorKind::Exists
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

    fn note(failures: &Failures, files: &[u64], request: &'static str, error: &Error, seconds: i64) {
        let files = files.iter().map(|serial| file(*serial)).collect();
        failures.note(&Asked { request, files, names: &[None, None], open: false }, error, at(seconds));
    }

    #[test]
    fn a_failure_that_comes_again_is_counted_and_another_takes_its_place() {
        let failures = Failures::default();
        let full = || Error::new(ErrorKind::NoSpace, "it\nis full").op("write").hint("remove something");
        note(&failures, &[55], "write", &full(), 0);
        note(&failures, &[55], "write", &full(), 61);
        let said = "failed: write\ninode: 55\nkind: no-space\nbecause: cannot write: it\\x0ais full\nstep: write\n\
                    hint: remove something\nsince: 1970-01-01 00:00:00 UTC\nlast: 1970-01-01 00:01:01 UTC\ntimes: 2\n";
        assert_eq!(failures.of(file(55)).as_deref(), Some(said));
        assert_eq!((failures.of_mount().as_deref(), failures.of(file(66))), (Some(said), None));
        let lost = Error::new(ErrorKind::Unavailable, "gone").caused_by(Error::corrupt("torn"));
        note(&failures, &[66], "read", &lost, 70);
        let other = failures.of(file(66)).expect("noted");
        assert!(other.contains("cause: torn\n") && other.ends_with("times: 1\n"), "{other}");
        assert_eq!((failures.of(file(55)).as_deref(), failures.of_mount()), (Some(said), Some(other)));
        note(&failures, &[55], "lookup", &Error::not_found("no such name"), 80);
        assert_eq!(failures.of(file(55)).as_deref(), Some(said), "what says all by itself is not kept");
    }

    #[test]
    fn a_failure_of_two_files_is_told_at_both_with_its_names_and_whatever_else_it_is_about() {
        let failures = Failures::default();
        let names = [Some(Bytes::from_static(b"a\n")), Some(Bytes::from_static(b"b"))];
        let told = |about: String| {
            let asked =
                Asked { request: "rename", files: vec![file(5), file(6)], names: &names, open: false };
            failures.note(&asked, &Error::denied("no").about(about), at(0));
            let said = failures.of(file(6)).expect("noted");
            assert_eq!(failures.of(file(5)).as_ref(), Some(&said));
            assert!(said.starts_with("failed: rename\nname: a\\x0a to b\ninode: 5\n"), "{said}");
            said
        };
        for known in [file(5).to_string(), file(6).to_string(), String::from("b")] {
            assert!(told(known).contains("\nbecause: no\n"));
        }
        assert!(told(String::from("another")).contains("\nbecause: another: no\n"));
    }

    #[test]
    fn an_open_file_that_is_not_there_any_more_is_told_with_what_that_may_mean() {
        let failures = Failures::default();
        let asked = |open| Asked { request: "read", files: vec![file(5)], names: &[None, None], open };
        failures.note(&asked(false), &Error::not_found("there is nothing"), at(0));
        assert_eq!(failures.of_mount(), None);
        failures.note(&asked(true), &Error::not_found("there is nothing"), at(0));
        let said = failures.of_mount().expect("noted");
        assert!(said.contains("\nkind: not-found\n") && said.contains("\nhint: it was open: "), "{said}");
    }

    #[test]
    fn of_many_files_that_fail_the_latest_are_known() {
        let failures = Failures::default();
        let end = limits::MOUNT_FAILURES_KEPT as u64;
        // A clock that is set back does not make what is new old.
        for (serial, time) in (0..=end).zip((0..1_000).rev()) {
            note(&failures, &[serial], "open", &Error::denied("no"), time);
        }
        assert_eq!(failures.of(file(0)), None);
        assert!((1..=end).all(|serial| failures.of(file(serial)).is_some()));
    }
}
