//! Commands that go on in the background: their parent waits until they say that they are ready.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitCode, ExitStatus, Stdio};

use weft_core::{Error, ErrorKind, Result};
use weft_sys::fault;

use crate::context::Context;
use crate::output::{note, out};
use crate::progress;

/// Where a detached process is told that its log lies.
pub const LOG_FILE: &str = "WEFT_LOG_FILE";

/// Bytes of what a process said while it started that are shown to whoever detached it.
const SAID_BYTES_MAX: u64 = 16 << 10;

/// Runs this program again, without `--daemon`, detached from the terminal; `log` takes
/// its stderr. Returns once it prints `ready`, or has ended: with its exit code then. What it
/// said until then is said here too, not only in its log.
pub fn run(context: &Context, log: File, log_path: &Path) -> Result<ExitCode> {
    let args = std::env::args_os().skip(1).filter(|arg| arg != "--daemon");
    let mut command = this_program()?;
    command.args(args).stdin(Stdio::null());
    let mut starting = Starting::begin(&mut command, log, log_path)?;
    let shown = progress::waiting(context, "starting");
    let ended = starting.wait()?;
    drop(shown);
    let log = log_path.display();
    match (&ended, context.json()) {
        (Some(_), _) => {}
        (None, true) => {
            out!("{}", serde_json::json!({ "pid": starting.pid(), "log": log.to_string() }))?;
        }
        (None, false) => note!("runs in the background, pid {}; log in {log}", starting.pid()),
    }
    starting.repeat()?;
    match ended {
        None => Ok(ExitCode::SUCCESS),
        Some(status) => match status.code().and_then(|code| u8::try_from(code).ok()) {
            Some(code) if code != 0 => Ok(ExitCode::from(code)),
            _ => Err(Error::new(ErrorKind::Unavailable, format!("it ended before it was ready ({status})"))
                .op("start")
                .about("a process in the background")
                .hint(format!("tail {log}"))),
        },
    }
}

/// Returns what runs this program.
pub fn this_program() -> Result<Command> {
    Ok(Command::new(std::env::current_exe().map_err(failed)?))
}

/// A process in the background that has not said yet that it is ready.
pub struct Starting {
    child: Child,
    out: BufReader<ChildStdout>,
    said: File,
}

impl Starting {
    /// Starts a command detached from the terminal; `log`, which lies at `log_path`, takes its stderr.
    pub fn begin(command: &mut Command, log: File, log_path: &Path) -> Result<Self> {
        let mut said = File::open(log_path).map_err(failed)?;
        said.seek(SeekFrom::End(0)).map_err(failed)?;
        command.stdout(Stdio::piped()).stderr(log).env(LOG_FILE, PathBuf::from(log_path));
        // Its own process group: a Ctrl-C meant for this terminal is not meant for it.
        command.process_group(0);
        let mut child = command.spawn().map_err(failed)?;
        let out = child.stdout.take().ok_or_else(|| Error::internal("the child's output is a pipe"))?;
        Ok(Self { child, out: BufReader::new(out), said })
    }

    /// Returns the number of the process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it prints `ready`, or has ended: returns how, then.
    pub fn wait(&mut self) -> Result<Option<ExitStatus>> {
        let mut line = String::new();
        self.out.read_line(&mut line).map_err(failed)?;
        if line.trim() == "ready" {
            return Ok(None);
        }
        self.child.wait().map(Some).map_err(failed)
    }

    /// Says here what it has said. Returns how many bytes that is.
    pub fn repeat(self) -> Result<u64> {
        std::io::copy(&mut self.said.take(SAID_BYTES_MAX), &mut std::io::stderr()).map_err(failed)
    }
}

fn failed(error: std::io::Error) -> Error {
    fault::error(error, "start", "a process in the background")
}
