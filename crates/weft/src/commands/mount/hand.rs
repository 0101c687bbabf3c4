//! What the keeper of a mount and the process that serves it say to each other, and what one such process leaves to the next.
//!
//! ```text
//!  keeper ── Begin: how often to say that it lives; whom it comes after ──▶ process     beside it: who mounts, or what is kept
//!         ◀── stands, beside it what is to be kept; lives …; ends ─────────
//! ```

use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weft_client::steady::{OpenNote, OpenNotes};
use weft_core::proof::{Caller, Signed};
use weft_core::service::{SessionGrant, SessionSecret};
use weft_core::{Error, ErrorKind, FileId, Result, Rights, SessionId, Time};
use weft_doors_fuse::{OpenedAs, Remembered};
use weft_sys::{Sys, Task, handing};

use super::MountCalls;

/// The mount stands.
pub const STANDS: &[u8] = b"stands";
/// The process that serves it goes on.
pub const LIVES: &[u8] = b"lives";
/// It is about to end.
pub const ENDS: &[u8] = b"ends";

/// Bytes of the first message, at most.
const BEGIN_BYTES_MAX: usize = 4096;

/// What a process that serves begins with.
#[derive(Debug, PartialEq, Eq)]
pub struct Begin {
    /// How often it says that it lives, to the millisecond.
    pub lives_every: Duration,
    /// Whom it comes after, if it is not the first.
    pub taken: Option<Taken>,
}

/// Those that served before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// How many they were.
    pub times: u64,
    /// When the last of them ended.
    pub at: Time,
    /// How it did.
    pub because: String,
}

/// The same as text.
#[derive(Serialize, Deserialize)]
struct Written {
    lives_every_ms: u64,
    taken: Option<WrittenTaken>,
}

#[derive(Serialize, Deserialize)]
struct WrittenTaken {
    times: u64,
    at: (i64, u32),
    because: String,
}

impl Begin {
    /// Returns it as it is sent.
    pub fn to_text(&self) -> Result<String> {
        let taken = self.taken.as_ref().map(|taken| WrittenTaken {
            times: taken.times,
            at: (taken.at.seconds(), taken.at.subsec_nanos()),
            because: taken.because.clone(),
        });
        let lives_every_ms = u64::try_from(self.lives_every.as_millis()).unwrap_or(u64::MAX);
        serde_json::to_string(&Written { lives_every_ms, taken })
            .map_err(|e| Error::internal("it cannot be written").caused_by(e))
    }

    fn of_text(text: &[u8]) -> Result<Self> {
        let Written { lives_every_ms, taken } =
            serde_json::from_slice(text).map_err(|e| no_keeper().caused_by(e))?;
        let taken = taken.map(|WrittenTaken { times, at: (seconds, nanos), because }| Taken {
            times,
            at: Time::from_unix(seconds, nanos),
            because,
        });
        Ok(Self { lives_every: Duration::from_millis(lives_every_ms), taken })
    }
}

/// The way to the keeper. Where it is gone, nobody is told, and the mount is served on.
#[derive(Clone)]
pub struct ToKeeper(Arc<OwnedFd>);

impl ToKeeper {
    /// Takes what the keeper says first, and what came with it. Does not wait: it was said before this process began.
    pub fn begin() -> Result<(Self, Begin, Vec<OwnedFd>)> {
        let input = io::stdin();
        if input.is_terminal() {
            return Err(no_keeper());
        }
        let socket = input.as_fd().try_clone_to_owned().map_err(|e| no_keeper().caused_by(e))?;
        let mut text = [0; BEGIN_BYTES_MAX];
        let (size, with) =
            handing::receive(&socket, &mut text, true).map_err(|e| no_keeper().caused_by(e))?;
        let begin = Begin::of_text(&text[..size])?;
        Ok((Self(Arc::new(socket)), begin, with))
    }

    /// Says that the mount stands, and hands over what is to be kept of it.
    pub fn stands(&self, kept: Option<[BorrowedFd<'_>; 2]>) {
        self.say(STANDS, kept.as_ref().map_or(&[], |kept| &kept[..]));
    }

    /// Says that the mount is about to end.
    pub fn ends(&self) {
        self.say(ENDS, &[]);
    }

    /// Says now and then that this process goes on: from a task, so where tasks do not, it does not.
    pub fn live(&self, sys: &Sys, every: Duration) -> Task<()> {
        let (own, keeper) = (sys.clone(), self.clone());
        sys.spawn(async move {
            loop {
                keeper.say(LIVES, &[]);
                own.sleep(every).await;
            }
        })
    }

    fn say(&self, word: &[u8], with: &[BorrowedFd<'_>]) {
        if let Err(error) = handing::send(&*self.0, word, with) {
            tracing::debug!(%error, "the mount has no keeper");
        }
    }
}

fn no_keeper() -> Error {
    Error::invalid("no keeper of a mount is at the other end of standard input")
}

/// What the next process proves itself by. It lies in memory that has no name, and never on a disk.
pub struct Papers {
    /// The session, as this machine's processes call it.
    pub session: SessionId,
    /// What takes it up.
    pub grant: SessionGrant,
    /// The credential that was used last; none for `anyone`.
    pub credential: Option<Signed>,
}

#[derive(Serialize, Deserialize)]
struct WrittenPapers {
    session: String,
    grant: String,
    secret: SessionSecret,
    credential: Option<SessionSecret>,
}

impl Papers {
    /// Returns those of a caller in a session.
    pub fn of(caller: &Caller, session: SessionId, grant: SessionGrant) -> Self {
        Self { session, grant, credential: caller.signed().cloned() }
    }

    /// Keeps them in the place of those before.
    pub fn keep(&self, remembered: &Remembered) -> Result<()> {
        let written = WrittenPapers {
            session: self.session.0.to_string(),
            grant: self.grant.id.0.to_string(),
            secret: self.grant.secret.clone(),
            credential: self.credential.as_ref().map(|signed| SessionSecret::new(signed.to_token())),
        };
        let text = serde_json::to_vec(&written);
        remembered.keep_papers(&text.map_err(|e| Error::internal("it cannot be written").caused_by(e))?)
    }

    /// Reads those that were kept last. `Unavailable` if none can be read.
    pub fn read(remembered: &Remembered) -> Result<Self> {
        let unread =
            || Error::new(ErrorKind::Unavailable, "what the process before proved itself by cannot be read");
        let WrittenPapers { session, grant, secret, credential } =
            serde_json::from_slice(&remembered.papers()).map_err(|_| unread())?;
        let id = |text: String| text.parse().map(SessionId).map_err(|_| unread());
        Ok(Self {
            session: id(session)?,
            grant: SessionGrant { id: id(grant)?, secret },
            credential: credential.map(|text| Signed::from_token(text.expose())).transpose()?,
        })
    }
}

/// The memory of a mount, as its client keeps open files and its session there.
pub struct Notes {
    /// The memory.
    pub remembered: Arc<Remembered>,
    /// In whose name the mount calls.
    pub calls: Arc<MountCalls>,
}

impl OpenNotes for Notes {
    fn life(&self) -> u32 {
        self.remembered.life()
    }

    fn begin_life(&self, life: u32) {
        self.remembered.begin_life(life);
    }

    fn is_in(&self, grant: &SessionGrant) {
        self.calls.is_in(grant.clone());
    }

    fn add(&self, note: &OpenNote) -> Option<u64> {
        let OpenNote { file, need, life, number } = *note;
        self.remembered.keep_open(file, need, OpenedAs { life, number })
    }

    fn set(&self, kept: u64, life: u32, number: u32) {
        self.remembered.keep_opened(kept, OpenedAs { life, number });
    }

    fn remove(&self, kept: u64) {
        self.remembered.forget_open(kept);
    }

    fn list(&self) -> Vec<(u64, OpenNote)> {
        let note = |(kept, file, need, OpenedAs { life, number }): (u64, FileId, Rights, OpenedAs)| {
            (kept, OpenNote { file, need, life, number })
        };
        self.remembered.opens().into_iter().map(note).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_begins_with_is_read_as_it_was_said() {
        let taken = Taken { times: 3, at: Time::from_unix(5, 7), because: "was ended by signal 9".into() };
        for begin in [
            Begin { lives_every: Duration::ZERO, taken: None },
            Begin { lives_every: Duration::from_millis(1500), taken: Some(taken) },
        ] {
            assert_eq!(Begin::of_text(begin.to_text().expect("text").as_bytes()).expect("read"), begin);
        }
        for odd in [&b""[..], b"{", b"stands", b"\xff"] {
            assert_eq!(Begin::of_text(odd).expect_err("odd").kind(), ErrorKind::Invalid);
        }
    }

    #[test]
    fn papers_are_read_as_they_were_kept_and_none_are_not() {
        let remembered = Remembered::new().expect("memory");
        assert_eq!(Papers::read(&remembered).err().map(|e| e.kind()), Some(ErrorKind::Unavailable));
        let grant = SessionGrant { id: SessionId(u128::MAX), secret: SessionSecret::new("s") };
        Papers::of(&Caller::anyone(), SessionId(6), grant.clone()).keep(&remembered).expect("kept");
        let papers = Papers::read(&remembered).expect("read");
        assert_eq!((papers.session, papers.grant, papers.credential), (SessionId(6), grant, None));
    }
}
