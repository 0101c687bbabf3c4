//! `weft status DIR`: how a mount is.
//!
//! Its process says so, by two attributes of the mount's root; it asks its node for a second. One that
//! is stopped or dead says nothing: this ends in time whatever the mount does.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Map, Value, json};
use tokio::time::Instant;
use weft_core::{Error, ErrorKind, Result, limits};
use weft_sys::{fault, local};

use crate::commands::mount::mountpoint;
use crate::commands::mount::said::{Said, lines};
use crate::context::Context;
use crate::output::out;

const LIST: &str = "`findmnt -t fuse.weft` lists the mounts of weft on this machine";

/// How a mount is.
#[derive(Debug)]
enum State {
    /// Its process says how it is, and what failed last if anything did.
    Serves { standing: Said, failure: Option<Said> },
    /// Its process has ended.
    Dead,
    /// Its process does not say anything in time.
    Silent,
}

/// Exits with 0 if the mount is served and its node answers, and with 1 if not.
pub fn run(context: &Context, dir: &Path) -> Result<ExitCode> {
    let (at, state) = context.wait(look(dir.to_owned())).map_err(|e| e.op("look at").about(dir.display()))?;
    if context.json() {
        out!("{}", state.json(&at))?;
    } else {
        state.print(&at)?;
    }
    Ok(if state.is_well() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn look(dir: PathBuf) -> Result<(PathBuf, State)> {
    let until = Instant::now() + limits::MOUNT_TELLS_WITHIN;
    let found = in_time(until, move || mountpoint::around(&dir)).await.unwrap_or_else(|| {
        Err(Error::new(ErrorKind::Deadline, "something else on the way there does not answer").hint(LIST))
    })?;
    let at = found.ok_or_else(|| Error::invalid("it is in no mount of weft").hint(LIST))?;
    let root = at.clone();
    let state = in_time(until, move || ask(&root)).await.unwrap_or(Ok(State::Silent))?;
    Ok((at, state))
}

/// Returns what comes of something that may wait for a mount; `None` if it takes too long.
async fn in_time<T: Send + 'static>(until: Instant, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let done = tokio::time::timeout_at(until, tokio::task::spawn_blocking(work)).await;
    done.ok()?.ok()
}

/// Asks a mount's process.
fn ask(root: &Path) -> Result<State> {
    match local::tag_at(root, b"weft.mount") {
        Ok(Some(standing)) => {
            let failure = local::tag_at(root, b"weft.why").ok().flatten();
            Ok(State::Serves { standing: lines(&standing), failure: failure.as_deref().map(lines) })
        }
        Ok(None) => {
            Err(Error::new(ErrorKind::Unsupported, "it does not say how it is; its weft may be older"))
        }
        Err(error) if is_dead(&error) => Ok(State::Dead),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(Error::denied("it is another user's mount, or lies below what may not be passed"))
        }
        Err(error) => Err(fault::error(error, "look at", root.display())),
    }
}

fn is_dead(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotConnected | io::ErrorKind::ConnectionAborted)
}

impl State {
    fn is_well(&self) -> bool {
        match self {
            Self::Serves { standing, .. } => {
                standing.iter().any(|(key, value)| key == "node" && value == "answers")
            }
            Self::Dead | Self::Silent => false,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Serves { .. } => "served",
            Self::Dead => "dead",
            Self::Silent => "silent",
        }
    }

    fn json(&self, at: &Path) -> Value {
        let object = |said: &Said| -> Value {
            said.iter().map(|(key, value)| (key.clone(), Value::from(&**value))).collect::<Map<_, _>>().into()
        };
        let (standing, failure) = match self {
            Self::Serves { standing, failure } => (object(standing), failure.as_ref().map(object)),
            Self::Dead | Self::Silent => (Value::Null, None),
        };
        json!({ "at": at.to_string_lossy(), "mount": self.name(), "standing": standing, "failure": failure })
    }

    fn print(&self, at: &Path) -> Result<()> {
        out!("mount      {}", at.display())?;
        match self {
            Self::Serves { standing, failure } => {
                print(standing)?;
                match failure {
                    Some(failure) => print(failure),
                    None => out!("failed     nothing so far"),
                }
            }
            Self::Dead => {
                out!("served     no: its process has ended")?;
                out!("hint       weft umount --lazy {}; then mount again", at.display())
            }
            Self::Silent => {
                out!(
                    "served     not in {} s: its process is stopped, or waits for a node that hangs",
                    limits::MOUNT_TELLS_WITHIN.as_secs()
                )?;
                out!("hint       look at the process `weft mount`; weft umount --lazy {}", at.display())
            }
        }
    }
}

fn print(said: &Said) -> Result<()> {
    said.iter().try_for_each(|(key, value)| out!("{key:10} {value}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serves(said: &str) -> State {
        State::Serves { standing: lines(said.as_bytes()), failure: None }
    }

    #[test]
    fn a_mount_is_well_if_it_is_served_and_its_node_answers() {
        assert!(serves("for: alice\npid: 7\nnode: answers\n").is_well());
        for state in [
            serves("for: alice\nnode: does not answer\naway-since: then\n"),
            serves("for: node: answers\n"),
            State::Dead,
            State::Silent,
        ] {
            assert!(!state.is_well(), "{state:?}");
        }
    }
}
