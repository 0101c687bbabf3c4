//! What a command writes: data to standard output, notes to standard error.
//!
//! Standard output that nobody reads any more (`weft ls | head`) ends a command early and quietly,
//! through the same errors as everything else. By `SIGPIPE` it would end as well when the node
//! closes its socket, which has to be said.

use std::fmt::{self, Arguments, Display, Formatter};
use std::io::{self, Write};

use weft_core::{Error, Result};
use weft_sys::fault;

/// Writes a line of data, as `println!` does, and returns why it could not be written.
macro_rules! out {
    ($($text:tt)*) => { $crate::output::line(::core::format_args!($($text)*)) };
}

/// Writes a line for people, as `eprintln!` does. Where it cannot be written, nobody is there to be
/// told.
macro_rules! note {
    () => { $crate::output::note!("") };
    ($($text:tt)*) => { $crate::output::aside(::core::format_args!($($text)*)) };
}

pub(crate) use {note, out};

/// Why nothing more can be written to standard output.
#[derive(Debug)]
struct Unwritten(io::Error);

impl std::error::Error for Unwritten {}

impl Display for Unwritten {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Writes a line to standard output.
pub fn line(text: Arguments<'_>) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_fmt(text).and_then(|()| out.write_all(b"\n")).map_err(unwritten)
}

/// Writes bytes to standard output.
pub fn bytes(bytes: &[u8]) -> Result<()> {
    io::stdout().lock().write_all(bytes).map_err(unwritten)
}

/// Hands on what standard output still keeps.
pub fn flush() -> Result<()> {
    io::stdout().lock().flush().map_err(unwritten)
}

/// Writes a line to standard error.
pub fn aside(text: Arguments<'_>) {
    let mut out = io::stderr().lock();
    let _ = out.write_fmt(text).and_then(|()| out.write_all(b"\n"));
}

/// Asks a person for something, on the line that they answer on.
pub fn prompt(what: &str) {
    let _ = write!(io::stderr().lock(), "{what}: ");
}

/// Returns whether a command ended because nobody reads its output any more.
pub fn seen_enough(error: &Error) -> bool {
    unwritable(error).is_some_and(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

/// Returns whether standard output is what failed: whatever else is written there fails too.
pub fn is_lost(error: &Error) -> bool {
    unwritable(error).is_some()
}

fn unwritable(error: &Error) -> Option<&io::Error> {
    std::error::Error::source(error)?.downcast_ref::<Unwritten>().map(|unwritten| &unwritten.0)
}

fn unwritten(cause: io::Error) -> Error {
    let (kind, detail) = fault::meaning(&cause);
    Error::new(kind, detail)
        .op("write")
        .about("standard output")
        .hint("look at where it goes")
        .caused_by(Unwritten(cause))
}
