//! The node's log: what is written of its doings, how, and where.
//!
//! A line is written when it happens, by whoever it happens to, with one call of the machine: so what a
//! node said before it was killed is there. Each line of work for a request ends with its trace, the
//! same that the answer to the request shows.

mod line;
mod rolling;

use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use tracing_subscriber::filter::{Directive, ParseError};
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, reload};
use weft_core::{Error, Result};

use crate::progress::Beside;
use line::Line;
use rolling::Rolling;

/// How a line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Text,
    /// One object of JSON a line.
    Json,
}

/// What is logged, how and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logging {
    /// What: see `tracing_subscriber::EnvFilter`.
    pub filter: String,
    /// How.
    pub format: Format,
    /// The file; stderr without one.
    pub file: Option<PathBuf>,
    /// Bytes in the file after which another is begun.
    pub bytes: u64,
    /// Files before it that are kept.
    pub kept: u32,
}

/// The log of this process, for whoever changes it while it is written.
pub struct Log {
    filter: Box<dyn Fn(&str) + Send + Sync>,
    file: Option<Arc<Mutex<Rolling>>>,
}

impl Log {
    /// Starts it. Lines for stderr go beside what is shown there.
    pub fn start(beside: Beside, logging: &Logging) -> Result<Self> {
        let unread = |e: ParseError| Error::invalid("what is to be logged cannot be read").caused_by(e);
        // The library of HTTP/2 shows paths that it refuses, and with them secrets of links.
        let quiet: Directive = "h2=off".parse().map_err(unread)?;
        let parsed = move |text: &str| {
            EnvFilter::builder().parse(text).map(|filter| filter.add_directive(quiet.clone()))
        };
        let filter = parsed(&logging.filter).map_err(unread)?;
        let rolling = |path: &PathBuf| Rolling::open(path, logging.bytes, logging.kept);
        let file = logging.file.as_ref().map(rolling).transpose()?;
        let file = file.map(|file| Arc::new(Mutex::new(file)));
        let to = To { beside, file: file.clone() };
        let (filter, handle) = reload::Layer::new(filter);
        let lines = fmt::layer().with_writer(to).with_ansi(false);
        let log = tracing_subscriber::registry().with(filter);
        match logging.format {
            Format::Text => log.with(lines.map_event_format(Line::text)).init(),
            Format::Json => log.with(lines.json().flatten_event(true).map_event_format(Line::json)).init(),
        }
        let filter = Box::new(move |text: &str| {
            // It was read with the configuration; and there is a log as long as there is a process.
            if let Ok(filter) = parsed(text) {
                let _ = handle.reload(filter);
            }
        });
        Ok(Self { filter, file })
    }

    /// Changes what is logged.
    pub fn change(&self, filter: &str) {
        (self.filter)(filter);
    }

    /// Goes on in the file of the log's name: somebody may have put another there.
    pub fn reopen(&self) {
        let Some(file) = &self.file else { return };
        let reopened = file.lock().unwrap_or_else(PoisonError::into_inner).reopen();
        if let Err(error) = reopened {
            tracing::warn!(%error, "the log's file cannot be opened again: it goes on in the one before");
        }
    }
}

/// Where lines go.
struct To {
    beside: Beside,
    file: Option<Arc<Mutex<Rolling>>>,
}

/// Takes one line.
struct Taker<'t>(&'t To);

impl<'t> MakeWriter<'t> for To {
    type Writer = Taker<'t>;

    fn make_writer(&'t self) -> Taker<'t> {
        Taker(self)
    }
}

impl Write for Taker<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if let Some(file) = &self.0.file
            && file.lock().unwrap_or_else(PoisonError::into_inner).write(bytes).is_ok()
        {
            return Ok(bytes.len());
        }
        // What the file does not take is said where somebody may see it.
        self.0.beside.print(|| std::io::stderr().write_all(bytes)).map(|()| bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
