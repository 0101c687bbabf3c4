//! What `weft cp` says: what would be copied, what failed, what it all came to.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fmt::Display;
use std::process::ExitCode;

use serde_json::json;
use weft_client::copy::Outcome;
use weft_core::{Error, Result};

use crate::context::Context;
use crate::output::{self, note, out};
use crate::progress::Beside;
use crate::{failure, show};

/// What is said of one run.
pub struct Report<'a> {
    context: &'a Context,
    dry_run: bool,
    tally: RefCell<Tally>,
}

/// What the copies came to so far.
#[derive(Default)]
struct Tally {
    began: bool,
    copied: u64,
    bytes: u64,
    resumed: u64,
    unchanged: u64,
    /// Names given to files that were copied under another.
    linked: u64,
    /// Names that went because the source lacks them.
    removed: u64,
    failed: u64,
    /// Of those copied, what came and went as a stream.
    streamed: u64,
    /// The first failure's.
    code: Option<ExitCode>,
    /// Whether it is a copy that is to be like its source.
    alike: bool,
    /// Whether what the source lacks was kept because not all was read.
    kept: bool,
    /// The command that copies what is in the source.
    contents: Option<String>,
    /// The command that goes on, if it is not the same.
    repeat: Option<String>,
    /// How to print beside what is shown.
    beside: Beside,
}

impl<'a> Report<'a> {
    /// Makes one that has nothing to say yet.
    pub fn new(context: &'a Context, dry_run: bool) -> Self {
        Self { context, dry_run, tally: RefCell::default() }
    }

    /// Says that the copy of a source begins, to a name that is new or not.
    pub fn began(&self, source: &OsStr, target: &OsStr, is_new: bool) {
        let mut tally = self.tally.borrow_mut();
        tally.began = true;
        tally.contents = is_new.then(|| {
            let mut contents = source.to_os_string();
            contents.push(if source.as_encoded_bytes().ends_with(b"/") { "." } else { "/." });
            format!("weft cp -r {} {}", show::argument(&contents), show::argument(target))
        });
    }

    /// Says that a copy begins that is to be like its source, and that the same command repeats.
    pub fn began_alike(&self) {
        let mut tally = self.tally.borrow_mut();
        (tally.began, tally.alike) = (true, true);
    }

    /// Says that the source is a directory that is copied by its name. To a new name, the same
    /// command would copy into it the next time: what is in the directory goes there each time.
    pub fn directory(&self) {
        let mut tally = self.tally.borrow_mut();
        tally.repeat = tally.contents.take();
    }

    /// Prints beside something else from now on.
    pub fn beside(&self, beside: Beside) {
        self.tally.borrow_mut().beside = beside;
    }

    /// Says that something would be copied.
    pub fn would(&self, what: impl Display) -> Result<()> {
        if self.context.json() {
            out!("{}", json!({ "would_copy": what.to_string() }))
        } else {
            out!("{what}")
        }
    }

    /// Says that something would be removed.
    pub fn would_remove(&self, what: impl Display) -> Result<()> {
        if self.context.json() {
            out!("{}", json!({ "would_remove": what.to_string() }))
        } else {
            out!("remove {what}")
        }
    }

    /// Counts a name that was given to a file copied under another.
    pub fn linked(&self) {
        self.tally.borrow_mut().linked += 1;
    }

    /// Counts a name that went.
    pub fn removed(&self) {
        self.tally.borrow_mut().removed += 1;
    }

    /// Returns how much failed so far.
    pub fn failures(&self) -> u64 {
        self.tally.borrow().failed
    }

    /// Says that what the source lacks was kept: not all of the source was read.
    pub fn kept_for_failures(&self) {
        self.tally.borrow_mut().kept = true;
    }

    /// Counts a file.
    pub fn add(&self, outcome: Outcome) {
        let mut tally = self.tally.borrow_mut();
        match outcome {
            Outcome::Copied { bytes, resumed } => {
                tally.copied += 1;
                tally.bytes += bytes;
                tally.resumed += resumed;
            }
            Outcome::Unchanged => tally.unchanged += 1,
        }
    }

    /// Counts what came or went as a stream: of it alone nothing is said.
    pub fn add_stream(&self, bytes: u64) {
        self.add(Outcome::Copied { bytes, resumed: 0 });
        self.tally.borrow_mut().streamed += 1;
    }

    /// Says that something was not copied.
    pub fn fail(&self, error: &Error) {
        let beside = self.tally.borrow().beside.clone();
        let code = beside.print(|| failure::report(error, self.context.json()));
        let mut tally = self.tally.borrow_mut();
        tally.failed += 1;
        tally.code.get_or_insert(code);
    }

    /// Says what it all came to, given how it ended.
    pub fn end(self, done: Result<()>) -> Result<ExitCode> {
        let json = self.context.json();
        let mut tally = self.tally.into_inner();
        let goes_on = tally.repeat.as_ref().map_or_else(
            || "the same command goes on where it stopped".to_owned(),
            |command| format!("{command} goes on where it stopped"),
        );
        if let Err(error) = done {
            if json && tally.began && !self.dry_run && !output::seen_enough(&error) {
                tally.failed += 1;
                out!("{}", tally.json())?;
            }
            let plain = error.advice().is_none() && tally.began;
            return Err(if plain { error.hint(goes_on) } else { error });
        }
        if json && !self.dry_run {
            out!("{}", tally.json())?;
        } else if !self.dry_run && !tally.says_itself() {
            note!("{}", tally.text());
            if tally.kept {
                let kept =
                    if tally.removed == 0 { "nothing was removed" } else { "nothing more was removed" };
                note!("{kept}: not all of the source was copied");
            }
            if tally.failed > 0 && tally.repeat.is_some() {
                note!("hint: {goes_on}");
            }
        }
        Ok(tally.code.unwrap_or(ExitCode::SUCCESS))
    }
}

impl Tally {
    /// Whether all there is to say was said: one failure, or nothing but streams.
    fn says_itself(&self) -> bool {
        let files = self.copied + self.unchanged;
        (files == 0 && self.failed == 1 && !self.alike)
            || (files == self.streamed && files > 0 && self.failed == 0)
    }

    fn text(&self) -> String {
        let mut text = format!("copied {} files, {}", self.copied, show::size(self.bytes));
        if self.unchanged > 0 {
            text.push_str(&format!("; {} were there already", self.unchanged));
        }
        if self.linked > 0 {
            text.push_str(&format!("; {} more names made", self.linked));
        }
        if self.removed > 0 {
            text.push_str(&format!("; {} removed", self.removed));
        }
        if self.resumed > 0 {
            text.push_str(&format!("; {} did not have to be sent again", show::size(self.resumed)));
        }
        if self.failed > 0 {
            text.push_str(&format!("; {} failed", self.failed));
        }
        text
    }

    fn json(&self) -> serde_json::Value {
        let mut tally = json!({
            "copied": self.copied,
            "bytes": self.bytes,
            "resumed_bytes": self.resumed,
            "unchanged": self.unchanged,
            "failed": self.failed,
        });
        if self.alike {
            tally["linked"] = self.linked.into();
            tally["removed"] = self.removed.into();
        }
        tally
    }
}
