//! What a rule found.

use std::fmt;

/// One breach of one rule at one place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file, relative to the repository's root.
    pub path: String,
    /// The line, from 1; 0 where the whole file is meant.
    pub line: usize,
    /// The rule's name, as in `ratchet.txt`.
    pub rule: &'static str,
    /// What is wrong and what to do, in one phrase.
    pub what: String,
}

impl Finding {
    /// Makes a finding about a whole file.
    pub fn file(path: &str, rule: &'static str, what: impl Into<String>) -> Self {
        Self::line(path, 0, rule, what)
    }

    /// Makes a finding about one line, counted from 1.
    pub fn line(path: &str, line: usize, rule: &'static str, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, rule, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}: {}", self.path, self.rule, self.what),
            line => write!(f, "{}:{line}: {}: {}", self.path, self.rule, self.what),
        }
    }
}
