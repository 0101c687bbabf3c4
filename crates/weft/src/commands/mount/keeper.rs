//! The process of `weft mount` that outlives the one that serves: it keeps the kernel's end of the mount and what that one
//! remembers, and starts another in its place if it dies.
//!
//! ```text
//!  keeper ── starts ──▶ a process that serves ── dies
//!     │ ◀── what is to be kept ──┘                 └──▶ starts another, with what is kept
//!     └─ waits, speaks to no node, and has next to no memory
//! ```
//!
//! It ends with the mount, with a process that ends by itself, and after [`limits::MOUNT_DEATHS_MAX`] deaths one upon the
//! other: with it goes the last descriptor of the kernel's end, so that every call on the mount fails at once (`ENOTCONN`)
//! instead of waiting for nobody. Killed itself, it leaves a process that serves on until the mount ends.
//!
//! A process that is there and does not go on, stopped or hung, would have every program wait for as long: one that has not
//! said for [`limits::MOUNT_SILENT_MAX`] that it lives is killed, and so is one that takes too long to take over.
//!
//! The next process runs the program of this one, whatever lies at its path by now: both mean the same by what is kept.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::signal::unix::{Signal, SignalKind, signal};
use weft_core::{Clock, Error, ErrorKind, Result, limits};
use weft_sys::mounts::Served;
use weft_sys::{fault, handing, process};

use super::{MountArgs, forget_log, hand};
use crate::context::Context;
use crate::output::note;
use crate::service;

/// The code that a process ends with whose main thread panicked.
const PANICKED: i32 = 101;

/// How often in a row a process may fail to say that it lives.
const SILENT_TIMES: u32 = 3;

/// How long one that then does not must have served to count as the first.
const SERVED_BEFORE_SILENCE: Duration = limits::MOUNT_SILENT_MAX.saturating_mul(10);

/// Serves a mount by processes one after the other.
pub fn run(context: &Context, args: &MountArgs) -> Result<ExitCode> {
    let (line, dir, by_helper) = (args.line(context)?, &*args.dir, args.by_helper);
    // Where a helper mounts, nobody looks before something is mounted: it has looked.
    let dir = if by_helper { Ok(dir.to_owned()) } else { dir.canonicalize() };
    let dir = &*dir.map_err(|e| fault::error(e, "mount at", "the directory"))?;
    let helper = by_helper.then(|| io::stdin().as_fd().try_clone_to_owned()).transpose();
    let helper = helper.map_err(|e| fault::error(e, "use", "standard input"))?;
    context.wait(async {
        let listen = |kind| signal(kind).map_err(|e| fault::error(e, "listen for", "signals"));
        let signals = Signals {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            child: listen(SignalKind::child())?,
        };
        Keeper {
            context,
            dir,
            line,
            helper,
            signals,
            kept: None,
            served: None,
            deaths: Deaths::default(),
            lingering: Vec::new(),
            is_ending: false,
        }
        .keep()
        .await
    })
}

struct Keeper<'a> {
    context: &'a Context,
    dir: &'a Path,
    /// The arguments of a process that serves.
    line: Vec<OsString>,
    /// Who mounts, until somebody has asked.
    helper: Option<OwnedFd>,
    signals: Signals,
    /// The kernel's end, and what is remembered; none before the mount stands, or where it cannot be taken over.
    kept: Option<[OwnedFd; 2]>,
    /// As what the kernel knows the mount, wherever it is by now.
    served: Option<Served>,
    deaths: Deaths,
    /// Processes that died and of which a thread waits in the kernel for what the next one does.
    lingering: Vec<Child>,
    /// Whether somebody asked for the end.
    is_ending: bool,
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    child: Signal,
}

/// How a process that served ended.
struct Ended {
    status: ExitStatus,
    /// For how long the mount stood with it, if it did.
    stood: Option<Duration>,
    /// Whether it was killed for not going on.
    was_silent: bool,
}

/// What is known of a process that serves.
struct Serving {
    /// Since when the mount stands with it, if it does.
    stood_since: Option<Instant>,
    silence: Silence,
    /// How often it says that it lives.
    lives_every: Duration,
}

/// For how long a process has not said that it lives, counted while this one goes on: what stops both of them, a machine
/// that sleeps or a shell's Ctrl-Z, is no fault of the other's.
struct Silence {
    /// How long it may last; none for a process that mounts, whom somebody waits for who can end it.
    max: Option<Duration>,
    counted: Duration,
    looked: Instant,
}

/// What comes after it.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// This one's end, with its code.
    End(u8),
    /// Another, after a rest.
    Another(Duration),
    /// None: it cannot be, for this reason.
    GiveUp(&'static str),
}

/// The processes that died, and served for nothing worth counting.
#[derive(Default)]
struct Deaths {
    in_a_row: u32,
    times: u64,
}

impl Keeper<'_> {
    async fn keep(mut self) -> Result<ExitCode> {
        let mut taken: Option<hand::Taken> = None;
        loop {
            let ended = match self.serve(taken.clone()).await {
                Ok(ended) => ended,
                Err(error) => {
                    self.without_another(error).await?;
                    continue;
                }
            };
            let (next, how) = (self.next(&ended), how(&ended));
            match next {
                Next::End(code) => {
                    match code {
                        0 => forget_log(),
                        // It says itself why it does not go on.
                        _ => self.abort(),
                    }
                    return Ok(ExitCode::from(code));
                }
                Next::GiveUp(_) if self.is_ending => return self.end_unserved(),
                Next::GiveUp(why) => {
                    self.abort();
                    let error = Error::new(ErrorKind::Unavailable, format!("its process {how}, and {why}"));
                    let hint = format!("weft umount --lazy {}; then mount again", self.dir.display());
                    return Err(error.op("go on with the mount at").about(self.dir.display()).hint(hint));
                }
                Next::Another(rest) => {
                    note!("the mount's process {how}: another takes over");
                    let at = self.context.sys().now();
                    taken = Some(hand::Taken { times: self.deaths.times, at, because: how });
                    if !self.rest(rest).await {
                        return self.end_unserved();
                    }
                }
            }
        }
    }

    /// No process could be started, for want of memory, say. Rests, or fails with that if there is nothing to go on with, or it
    /// was so often enough.
    async fn without_another(&mut self, error: Error) -> Result<()> {
        if self.kept.is_none() {
            return Err(error);
        }
        match self.deaths.rest() {
            Some(rest) if self.rest(rest.max(limits::MOUNT_DEATH_REST)).await => {
                note!("no other process takes the mount over yet: {error}");
                Ok(())
            }
            _ => {
                self.abort();
                Err(error)
            }
        }
    }

    /// Ends a mount that nobody serves just now.
    fn end_unserved(&self) -> Result<ExitCode> {
        if self.served.is_some() && Served::at(self.dir) == self.served {
            weft_doors_fuse::take_away(self.dir, true)?;
        }
        self.abort();
        Ok(ExitCode::SUCCESS)
    }

    fn next(&mut self, ended: &Ended) -> Next {
        self.deaths.next(ended, self.kept.is_some(), self.is_ending)
    }

    /// Rests before another begins. Returns whether nobody asked for the end meanwhile.
    async fn rest(&mut self, rest: Duration) -> bool {
        tokio::select! {
            () = self.context.sys().sleep(rest) => true,
            _ = self.signals.terminate.recv() => false,
            _ = self.signals.interrupt.recv() => false,
        }
    }

    /// Has calls on the mount fail, if it stands: what lingers has the kernel's end as well. Where the machine does not let
    /// us, they fail once that has gone. As long as one of them holds it, its number is no other mount's.
    fn abort(&self) {
        if (self.kept.is_some() || !self.lingering.is_empty())
            && let Some(served) = self.served
            && let Err(error) = served.abort()
        {
            tracing::debug!(%error, "the mount ends with the last process that has it open");
        }
    }

    /// Starts a process that serves, and waits for its end.
    async fn serve(&mut self, taken: Option<hand::Taken>) -> Result<Ended> {
        let failed = |e| fault::error(e, "start", "the process that serves the mount");
        let (ours, theirs) = handing::pair().map_err(failed)?;
        let lives_every = lives_every(service::lives_every());
        let begin = hand::Begin { lives_every, taken };
        let helper = self.helper.take();
        let with: Vec<_> = match (&self.kept, &helper) {
            (Some(kept), _) => kept.iter().map(AsFd::as_fd).collect(),
            (None, helper) => helper.iter().map(AsFd::as_fd).collect(),
        };
        handing::send(&ours, begin.to_text()?.as_bytes(), &with).map_err(failed)?;
        let mut child = self.command(theirs).spawn().map_err(failed)?;
        drop(helper);
        let ours = std::os::unix::net::UnixDatagram::from(ours);
        ours.set_nonblocking(true).map_err(failed)?;
        let socket = UnixDatagram::from_std(ours).map_err(failed)?;
        let takes_over = self.kept.is_some().then_some(2 * limits::MOUNT_TAKEN_OVER_WITHIN);
        let mut serving = Serving { stood_since: None, silence: Silence::begin(takes_over), lives_every };
        let (mut hears, mut was_silent) = (true, false);
        let status = loop {
            if let Some(status) = child.try_wait().map_err(failed)? {
                break status;
            }
            if process::lingers(&child).is_some() {
                break self.bury(child).await.map_err(failed)?;
            }
            if takes_over.is_some() && serving.stood_since.is_none() {
                // It has a time of its own for that, and does not say that it lives before.
                service::lives();
            }
            self.lingering.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
            tokio::select! {
                _ = self.signals.child.recv() => {}
                // Of one that cannot go, nobody tells.
                () = self.context.sys().sleep(limits::MOUNT_DEATH_WATCH) => {}
                Ok(()) = socket.readable(), if hears => hears = self.hear(&socket, &mut serving),
                _ = self.signals.terminate.recv() => self.end(&child),
                _ = self.signals.interrupt.recv() => self.end(&child),
            }
            if serving.silence.is_too_long(Instant::now()) {
                was_silent = true;
                child.kill().map_err(failed)?;
            }
        };
        // What it said last is there still.
        self.hear(&socket, &mut serving);
        Ok(Ended { status, stood: serving.stood_since.map(|since| since.elapsed()), was_silent })
    }

    /// Waits until a process that died is gone, or nothing is left of it but threads that wait in the kernel:
    /// for pages that are being written, say, which only the next process does.
    async fn bury(&mut self, mut child: Child) -> io::Result<ExitStatus> {
        let mut lingers = 0;
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            match process::lingers(&child) {
                Some(status) if lingers >= limits::MOUNT_DEATH_LOOKS => {
                    self.lingering.push(child);
                    return Ok(status);
                }
                Some(_) => lingers += 1,
                None => lingers = 0,
            }
            self.context.sys().sleep(limits::MOUNT_DEATH_LOOK).await;
        }
    }

    /// Asks a process that serves to end. It takes the mount away.
    fn end(&mut self, child: &Child) {
        self.is_ending = true;
        process::ask_to_end(child);
    }

    /// Takes in whatever the process has said. Returns whether it may say more.
    fn hear(&mut self, socket: &UnixDatagram, serving: &mut Serving) -> bool {
        loop {
            let mut said = [0; 8];
            let heard = socket.try_io(Interest::READABLE, || handing::receive(socket, &mut said, true));
            let (size, with) = match heard {
                Ok(heard) => heard,
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            };
            match &said[..size] {
                // It is about to be gone: a signal says so.
                [] => return false,
                hand::STANDS => {
                    serving.stood_since.get_or_insert_with(Instant::now);
                    serving.silence = Silence::begin(Some(SILENT_TIMES * serving.lives_every));
                    self.served = self.served.or_else(|| Served::at(self.dir));
                    if let Ok(kept) = <[OwnedFd; 2]>::try_from(with) {
                        self.kept = Some(kept);
                    }
                    service::ready();
                }
                hand::LIVES => {
                    serving.silence.counted = Duration::ZERO;
                    service::lives();
                }
                hand::ENDS => {
                    self.is_ending = true;
                    service::stopping();
                }
                _ => {}
            }
        }
    }

    fn command(&self, theirs: OwnedFd) -> Command {
        // Not its path, where a newer program may lie, or none.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("weft").args(&self.line).stdin(Stdio::from(theirs));
        // What is told a service manager, this process tells: it knows no other.
        command.env_remove("NOTIFY_SOCKET").env_remove("WATCHDOG_USEC").env_remove("WATCHDOG_PID");
        command
    }
}

impl Silence {
    fn begin(max: Option<Duration>) -> Self {
        Self { max, counted: Duration::ZERO, looked: Instant::now() }
    }

    /// Counts what has passed since the last look. Returns whether it lasts too long.
    fn is_too_long(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.looked);
        self.looked = now;
        // More is time in which nobody looked.
        self.counted += passed.min(2 * limits::MOUNT_DEATH_WATCH);
        self.max.is_some_and(|max| self.counted > max)
    }
}

/// Returns how often a process is to say that it lives: often enough that one that does not is replaced before a service
/// manager loses patience with both.
fn lives_every(manager: Option<Duration>) -> Duration {
    let most = limits::MOUNT_SILENT_MAX / SILENT_TIMES;
    manager.map_or(most, |manager| most.min(manager / SILENT_TIMES))
}

impl Deaths {
    /// Decides what comes after a process that ended so.
    fn next(&mut self, ended: &Ended, is_kept: bool, is_ending: bool) -> Next {
        let code = ended.status.code();
        if let Some(code) = code.filter(|code| *code != PANICKED) {
            // It has said itself why.
            return Next::End(u8::try_from(code).unwrap_or(1));
        }
        if is_ending {
            return Next::GiveUp("it was about to end");
        }
        if !is_kept {
            return Next::GiveUp("nobody can go on with it");
        }
        self.times += 1;
        // What hangs again as soon as it is served again would otherwise be served for ever.
        let well = if ended.was_silent { SERVED_BEFORE_SILENCE } else { limits::MOUNT_SERVED_WELL };
        if ended.stood.is_some_and(|stood| stood >= well) {
            self.in_a_row = 0;
        }
        self.rest().map_or(Next::GiveUp("so did those before it"), Next::Another)
    }

    /// Counts one that died or did not begin. Returns for how long to rest before the next; `None` after so many.
    fn rest(&mut self) -> Option<Duration> {
        self.in_a_row += 1;
        let doubled = self.in_a_row.checked_sub(2).map(|times| limits::MOUNT_DEATH_REST * 2_u32.pow(times));
        (self.in_a_row <= limits::MOUNT_DEATHS_MAX).then(|| doubled.unwrap_or_default())
    }
}

/// Says how a process ended.
fn how(ended: &Ended) -> String {
    match (ended.status.signal(), ended.status.code()) {
        _ if ended.was_silent => String::from("did not go on and was killed"),
        (Some(signal), _) => format!("was ended by signal {signal}"),
        (None, Some(PANICKED)) => String::from("panicked"),
        (None, code) => format!("ended with code {}", code.unwrap_or(-1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Option<Duration> = Some(limits::MOUNT_SERVED_WELL);
    const SHORT: Option<Duration> = Some(Duration::from_millis(1));

    fn killed(stood: Option<Duration>) -> Ended {
        Ended { status: ExitStatus::from_raw(9), stood, was_silent: false }
    }

    fn ended(code: i32, stood: Option<Duration>) -> Ended {
        Ended { status: ExitStatus::from_raw(code << 8), ..killed(stood) }
    }

    #[test]
    fn a_process_that_dies_is_followed_by_another_unless_so_many_died_at_once() {
        let mut deaths = Deaths::default();
        for _ in 0..3 * limits::MOUNT_DEATHS_MAX {
            assert_eq!(deaths.next(&killed(LONG), true, false), Next::Another(Duration::ZERO));
        }
        let mut rests = Vec::new();
        loop {
            match deaths.next(&ended(PANICKED, SHORT), true, false) {
                Next::Another(rest) => rests.push(rest),
                Next::GiveUp(_) => break,
                Next::End(code) => panic!("it ended with {code}"),
            }
        }
        let rest = limits::MOUNT_DEATH_REST;
        assert_eq!(rests, [rest, 2 * rest, 4 * rest]);
        assert_eq!(deaths.times, u64::from(4 * limits::MOUNT_DEATHS_MAX));
        assert!(
            matches!(deaths.next(&killed(None), true, false), Next::GiveUp(_)),
            "nor one that never stood"
        );
    }

    #[test]
    fn one_that_hangs_again_and_again_is_given_up_though_it_served_for_a_while() {
        let silent = |stood| Ended { was_silent: true, ..killed(Some(stood)) };
        let mut deaths = Deaths::default();
        for _ in 0..3 * limits::MOUNT_DEATHS_MAX {
            let next = deaths.next(&silent(SERVED_BEFORE_SILENCE), true, false);
            assert_eq!(next, Next::Another(Duration::ZERO));
        }
        let another =
            |_: &u32| matches!(deaths.next(&silent(limits::MOUNT_SILENT_MAX), true, false), Next::Another(_));
        assert_eq!((1..10).take_while(another).count() as u32 + 1, limits::MOUNT_DEATHS_MAX);
    }

    #[test]
    fn only_silence_that_this_process_was_awake_in_counts() {
        let mut silence = Silence::begin(Some(Duration::from_secs(3)));
        let mut now = silence.looked + Duration::from_secs(10_000);
        assert!(!silence.is_too_long(now), "it slept as well");
        let mut looks = 0;
        while !silence.is_too_long(now) {
            now += limits::MOUNT_DEATH_WATCH;
            looks += 1;
        }
        assert!((13..=15).contains(&looks), "{looks}");
        silence.counted = Duration::ZERO;
        assert!(!silence.is_too_long(now + limits::MOUNT_DEATH_WATCH));
        let mut endless = Silence::begin(None);
        assert!((1..100_u32).all(|n| !endless.is_too_long(now + n * Duration::from_secs(1))));
    }

    #[test]
    fn a_service_manager_hears_of_silence_only_after_the_keeper_did_something() {
        for manager in [1, 10, 30, 600].map(Duration::from_secs) {
            // It is told half as often as it asks for.
            assert!(lives_every(Some(manager / 2)) * SILENT_TIMES <= manager / 2);
        }
        assert_eq!(lives_every(None) * SILENT_TIMES, limits::MOUNT_SILENT_MAX);
    }

    #[test]
    fn one_that_ends_by_itself_is_followed_by_none() {
        for (ended, is_kept, is_ending, next) in [
            (ended(0, LONG), true, false, Next::End(0)),
            (ended(3, LONG), true, false, Next::End(3)),
            (ended(4, LONG), false, false, Next::End(4)),
            (ended(0, LONG), true, true, Next::End(0)),
            (killed(LONG), false, false, Next::GiveUp("nobody can go on with it")),
            (killed(LONG), true, true, Next::GiveUp("it was about to end")),
        ] {
            let status = ended.status;
            assert_eq!(Deaths::default().next(&ended, is_kept, is_ending), next, "{status}");
        }
    }
}
