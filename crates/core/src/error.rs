//! The one error of Weft: what failed, to what, for whom, why, and what to do.
//!
//! Kinds are few and append-only; each door maps them to its protocol in one
//! exhaustive table. Nobody ever matches on the text.

mod kind;

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

pub use kind::{Actor, ErrorKind, Retry};

/// The result of everything that can fail in Weft.
pub type Result<T> = std::result::Result<T, Error>;

/// What failed. Boxed inside, so that `Result<T>` stays small on the hot path.
pub struct Error(Box<Parts>);

struct Parts {
    kind: ErrorKind,
    op: &'static str,
    about: Option<String>,
    caller: Option<String>,
    detail: Cow<'static, str>,
    hint: Option<String>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// Makes an error. `detail` is a lower-case phrase without a full stop that
    /// says what was found wrong; it never repeats the kind.
    pub fn new(kind: ErrorKind, detail: impl Into<Cow<'static, str>>) -> Self {
        let detail = detail.into();
        Self(Box::new(Parts { kind, op: "", about: None, caller: None, detail, hint: None, source: None }))
    }

    /// Names the operation that failed, unless a place nearer the cause named it.
    #[must_use]
    pub fn op(mut self, op: &'static str) -> Self {
        if self.0.op.is_empty() {
            self.0.op = op;
        }
        self
    }

    /// Names the path or id it was about, unless a place nearer the cause did.
    #[must_use]
    pub fn about(mut self, what: impl fmt::Display) -> Self {
        if self.0.about.is_none() {
            self.0.about = Some(what.to_string());
        }
        self
    }

    /// Names what it was about in the words of whoever asked, whatever a place nearer the
    /// cause called it: people know paths, not ids.
    #[must_use]
    pub fn said_of(mut self, what: impl fmt::Display) -> Self {
        self.0.about = Some(what.to_string());
        self
    }

    /// Says the same of nothing yet: what it was about down there (a path of the machine, an id
    /// that means nothing above) stays with its cause, and whoever knows more names it anew.
    #[must_use]
    pub fn unplaced(self) -> Self {
        if self.0.about.is_none() {
            return self;
        }
        let mut above = Self::from(ErrorReport { about: None, ..ErrorReport::from(&self) });
        (above.0.op, above.0.caller) = (self.0.op, self.0.caller.clone());
        above.caused_by(self)
    }

    /// Names the caller for whom it failed.
    #[must_use]
    pub fn caller(mut self, who: impl fmt::Display) -> Self {
        self.0.caller = Some(who.to_string());
        self
    }

    /// Says what the reader can do about it, as one command or short phrase.
    #[must_use]
    pub fn hint(mut self, hint: impl fmt::Display) -> Self {
        self.0.hint = Some(hint.to_string());
        self
    }

    /// Chains what was found below. It is never printed inside this error's text.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Returns why it failed.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the operation that failed, or an empty string.
    pub fn operation(&self) -> &'static str {
        self.0.op
    }

    /// Returns the path or id it was about.
    pub fn subject(&self) -> Option<&str> {
        self.0.about.as_deref()
    }

    /// Returns what was found wrong.
    pub fn detail(&self) -> &str {
        &self.0.detail
    }

    /// Returns what the reader can do about it.
    pub fn advice(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// Returns what was found below, the nearest first.
    pub fn causes(&self) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
        std::iter::successors(std::error::Error::source(self), |cause| cause.source())
    }

    /// Returns the caller for whom it failed.
    pub fn for_caller(&self) -> Option<&str> {
        self.0.caller.as_deref()
    }
}

macro_rules! shorthand {
    ($($(#[$doc:meta])* $name:ident => $kind:ident),* $(,)?) => {
        impl Error { $( $(#[$doc])* pub fn $name(detail: impl Into<Cow<'static, str>>) -> Self { Self::new(ErrorKind::$kind, detail) } )* }
    };
}

shorthand! {
    /// Shorthand for [`ErrorKind::NotFound`].
    not_found => NotFound,
    /// Shorthand for [`ErrorKind::Exists`].
    exists => Exists,
    /// Shorthand for [`ErrorKind::Denied`].
    denied => Denied,
    /// Shorthand for [`ErrorKind::NotPermitted`].
    not_permitted => NotPermitted,
    /// Shorthand for [`ErrorKind::Invalid`].
    invalid => Invalid,
    /// Shorthand for [`ErrorKind::Stale`].
    stale => Stale,
    /// Shorthand for [`ErrorKind::Unsupported`].
    unsupported => Unsupported,
    /// Shorthand for [`ErrorKind::Corrupt`].
    corrupt => Corrupt,
    /// Shorthand for [`ErrorKind::Internal`].
    internal => Internal,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.op.is_empty() {
            write!(f, "cannot {}", self.0.op)?;
            if let Some(about) = &self.0.about {
                write!(f, " {about}")?;
            }
            f.write_str(": ")?;
        } else if let Some(about) = &self.0.about {
            write!(f, "{about}: ")?;
        }
        f.write_str(&self.0.detail)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} [{}]", self.0.kind)?;
        self.causes().try_for_each(|cause| write!(f, "; because {cause}"))
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|s| s as _)
    }
}

/// What of an [`Error`] crosses a process boundary: not what was being done, for whom, nor its causes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorReport {
    /// Why it failed.
    pub kind: ErrorKind,
    /// The path or id it was about.
    pub about: Option<String>,
    /// What was found wrong.
    pub detail: String,
    /// What the reader can do about it.
    pub hint: Option<String>,
}

impl From<&Error> for ErrorReport {
    fn from(error: &Error) -> Self {
        Self {
            kind: error.kind(),
            about: error.0.about.clone(),
            detail: error.detail().to_owned(),
            hint: error.0.hint.clone(),
        }
    }
}

impl From<ErrorReport> for Error {
    fn from(report: ErrorReport) -> Self {
        let mut error = Self::new(report.kind, report.detail);
        error.0.about = report.about;
        error.0.hint = report.hint;
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_says_what_was_attempted_on_what_and_why() {
        let error = Error::exists("the name is taken").op("make").about("/bio/run7");
        assert_eq!(error.to_string(), "cannot make /bio/run7: the name is taken");
    }

    #[test]
    fn what_was_found_below_can_be_said_in_other_words_and_is_kept_as_the_cause() {
        let below = Error::corrupt("damaged").op("read").about("/machine/file").hint("look").caller("ada");
        let error = below.unplaced().about("/bio/run7");
        assert_eq!(error.to_string(), "cannot read /bio/run7: damaged");
        assert_eq!((error.advice(), error.for_caller()), (Some("look"), Some("ada")));
        assert!(format!("{error:?}").contains("/machine/file"), "{error:?}");
    }

    #[test]
    fn the_place_nearest_the_cause_names_operation_and_subject() {
        let error = Error::stale("gone").op("read").about("a").op("copy").about("b");
        assert_eq!(error.to_string(), "cannot read a: gone");
    }
}
