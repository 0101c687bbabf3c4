//! Handing a credential over to a shared mount, and taking it back: what `weft login --mount` says to the mount's
//! process, and how that is written.
//!
//! ```text
//!   login TOKEN      ─▶ ok NAME          one line each way; whose uid it is, the kernel says
//!   logout           ─▶ ok               no KIND: why, of what is refused
//! ```
//!
//! How to get it wrong: show a credential to somebody else's socket. Where it is, the mount says; that its process is of
//! the user who serves the mount, the kernel says, of both.

use std::path::{Path, PathBuf};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weft_core::proof::Signed;
use weft_core::service::Secret;
use weft_core::{DomainId, Error, ErrorKind, OneLine, Result, limits};
use weft_sys::mounts;
use weft_sys::net::{Peer, Socket};
use weft_sys::{fault, local};

use super::mountpoint;
use super::said::{Said as Lines, lines};

/// What a user says to a shared mount.
pub enum Said {
    /// That they are who a credential says, which the mount may use.
    Login(Secret),
    /// That they are anyone from now on.
    Logout,
}

/// Hands a credential of a domain over to the shared mount that a path lies in. Returns the uid that serves the mount,
/// which can use the credential as well.
///
/// `Unsupported` if the mount is not shared, `Conflict` if it is of another domain, and as its process has it.
pub async fn log_in(dir: &Path, domain: DomainId, credential: &Signed) -> Result<u32> {
    say(dir, Some(domain), &Said::Login(Secret::new(credential.to_token()))).await
}

/// Has the shared mount that a path lies in forget this process's user, and close what they have open there.
pub async fn log_out(dir: &Path) -> Result<()> {
    say(dir, None, &Said::Logout).await.map(drop)
}

async fn say(dir: &Path, domain: Option<DomainId>, said: &Said) -> Result<u32> {
    let talk = async {
        let (mut socket, uid) = reach(dir, domain).await?;
        let failed = |e| fault::error(e, "speak to", "the mount's process");
        socket.write_all(written(said).as_bytes()).await.map_err(failed)?;
        let answer = read_line(&mut socket).await?;
        read_answer(&answer).map(|_| uid)
    };
    let late = |_| Error::new(ErrorKind::Deadline, "the mount's process does not answer");
    tokio::time::timeout(limits::MOUNT_LOGIN_WITHIN, talk).await.map_err(late)?
}

/// Connects to the process of a mount, which is to be of a domain if one is named. Returns its uid too.
async fn reach(dir: &Path, domain: Option<DomainId>) -> Result<(Socket, u32)> {
    let dir = dir.to_owned();
    // A mount whose process is stopped does not answer.
    let look = tokio::task::spawn_blocking(move || look(&dir)).await;
    let (root, said) = look.map_err(|e| Error::internal("looking was stopped").caused_by(e))??;
    let value = |key: &str| said.iter().find(|(named, _)| named == key).map(|(_, value)| value);
    let Some(path) = value("login") else {
        let alone = Error::new(ErrorKind::Unsupported, "the mount is of one user");
        return Err(alone.hint("it would have to be mounted with --shared"));
    };
    if domain.is_some_and(|domain| value("domain") != Some(&domain.to_string())) {
        let other = Error::new(ErrorKind::Conflict, "the mount is of another domain than the credential");
        return Err(other.hint("name the mount's node: --node DIR"));
    }
    let socket = Socket::connect_local(Path::new(path)).await;
    let socket = socket.map_err(|e| fault::error(e, "reach the mount's process at", path))?;
    match (socket.peer(), mounts::served_by(&root)) {
        (Peer::Uid(uid), Some(serves)) if uid == serves => Ok((socket, uid)),
        _ => Err(Error::not_permitted("somebody else listens where the mount's process should").about(path)),
    }
}

/// Returns the mount that a path lies in, and what it says of itself.
fn look(dir: &Path) -> Result<(PathBuf, Lines)> {
    let root = mountpoint::around(dir)?.ok_or_else(|| Error::invalid("it is in no mount of weft"))?;
    let standing = local::tag_at(&root, b"weft.mount");
    let standing = standing.map_err(|e| fault::error(e, "look at", root.display()))?;
    Ok((root, lines(&standing.unwrap_or_default())))
}

/// Writes what a user says.
fn written(said: &Said) -> String {
    match said {
        Said::Login(token) => format!("login {}\n", token.expose()),
        Said::Logout => String::from("logout\n"),
    }
}

/// Reads what a user says.
pub fn read(line: &str) -> Result<Said> {
    match line.split_once(' ') {
        Some(("login", token)) => Ok(Said::Login(Secret::new(token))),
        None if line == "logout" => Ok(Said::Logout),
        _ => Err(Error::invalid("neither `login TOKEN` nor `logout`")),
    }
}

/// Writes the answer.
pub fn answer(outcome: &Result<String>) -> String {
    match outcome {
        Ok(name) => format!("ok {name}\n"),
        Err(error) => format!("no {}: {}\n", error.kind().name(), OneLine(&error.to_string())),
    }
}

fn read_answer(line: &str) -> Result<String> {
    if let Some(name) = line.strip_prefix("ok") {
        return Ok(name.trim_start().to_owned());
    }
    let refused = line.strip_prefix("no ").and_then(|line| line.split_once(": "));
    let (kind, because) = refused.unwrap_or(("", line));
    let named = ErrorKind::ALL.into_iter().find(|known| known.name() == kind);
    let kind = named.unwrap_or(ErrorKind::Unavailable);
    Err(Error::new(kind, because.to_owned()))
}

/// Reads a line of at most [`limits::MOUNT_LOGIN_BYTES_MAX`], without its end. The caller sets the deadline.
pub async fn read_line(socket: &mut Socket) -> Result<String> {
    let failed = |e| fault::error(e, "read from", "the other end");
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        if line.len() > limits::MOUNT_LOGIN_BYTES_MAX {
            return Err(Error::new(ErrorKind::TooLarge, "the line is too long"));
        }
        if socket.read_buf(&mut line).await.map_err(failed)? == 0 {
            return Err(Error::invalid("the line has no end"));
        }
    }
    line.pop();
    String::from_utf8(line).map_err(|_| Error::invalid("the line is no text"))
}

#[cfg(test)]
mod tests {
    use weft_conformance::fuzz::fuzz;

    use super::*;

    #[test]
    fn what_is_said_is_what_is_heard_and_an_answer_what_was_answered() {
        match read(written(&Said::Login(Secret::new("weft1.abc"))).trim_end()) {
            Ok(Said::Login(token)) => assert_eq!(token.expose(), "weft1.abc"),
            _ => panic!("a login"),
        }
        assert!(matches!(read(written(&Said::Logout).trim_end()), Ok(Said::Logout)));
        let told = |outcome: Result<String>| read_answer(answer(&outcome).trim_end());
        assert_eq!(told(Ok("alice@x".into())).expect("ok"), "alice@x");
        let refused = told(Err(Error::new(ErrorKind::Revoked, "two\nlines"))).expect_err("refused");
        assert_eq!(
            (refused.kind(), refused.detail().contains('\n')),
            (ErrorKind::Revoked, false),
            "{refused}"
        );
    }

    #[test]
    fn any_line_is_heard_as_one_of_the_two_or_refused() {
        let make = |dice: &mut weft_conformance::file_system::site::Dice| {
            let words = ["login ", "logout", "login", " ", "weft1.x", "\u{0}", "ok ", "no ", "denied: "];
            (0..dice.roll(4)).map(|_| *dice.pick(&words)).collect::<String>().into_bytes()
        };
        fuzz("login line", make, |bytes| {
            let Ok(line) = std::str::from_utf8(bytes) else { return };
            match read(line) {
                Ok(Said::Login(token)) => assert_eq!(format!("login {}", token.expose()), line),
                Ok(Said::Logout) => assert_eq!(line, "logout"),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Invalid),
            }
            // Whatever the other end says, it is an answer or an error.
            let _ = read_answer(line);
        });
    }
}
