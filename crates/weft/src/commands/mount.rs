//! `weft mount` and `weft umount`
//!
//! A mount is two processes: one serves it, and its keeper, which starts another in its place if it dies (`keeper`).

pub mod fstab;
mod hand;
pub mod handing;
mod keeper;
mod logins;
pub mod mountpoint;
pub mod said;

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use weft_client::steady::{Lost, Steady};
use weft_client::tree;
use weft_client::{Client, Place};
use weft_core::form::{At, Call};
use weft_core::proof::{Attenuation, Caller, Confines};
use weft_core::service::SessionGrant;
use weft_core::{Clock, Deadline, Error, ErrorKind, RequestId, Result, SessionId, limits};
use weft_doors_fuse::{
    Away, CallSource, LocalUser, Mount, MountSettings, Mounter, Opened, Remembered, Taken, TakenOver,
    Without, mount, remembered_locks, take_away,
};
use weft_sys::{Sys, fault, process};

use crate::commands::detached::{self, LOG_FILE};
use crate::context::Context;
use crate::output::{note, out};
use crate::paths::TreePath;
use crate::progress;
use hand::{Notes, Papers, ToKeeper};
use logins::Logins;

/// MiB of memory that a mount is given, and at least is.
const MEMORY_MIB: u64 = limits::MOUNT_MEMORY_USUAL >> 20;
const MEMORY_MIB_MIN: u64 = limits::MOUNT_MEMORY_MIN >> 20;

/// Options of `weft mount`.
#[derive(Args)]
pub struct MountArgs {
    /// The directory of the tree to mount
    path: OsString,
    /// An empty directory of this machine
    dir: PathBuf,
    /// Go on in the background once the mount stands
    #[arg(long)]
    daemon: bool,
    /// Let nothing be changed there
    #[arg(long)]
    read_only: bool,
    /// Let no programs be run that lie there
    #[arg(long)]
    noexec: bool,
    /// Let all users of this machine in, each as who they said they are by `weft login --mount DIR`, others as anyone
    #[arg(long)]
    shared: bool,
    /// Hold at most so many MiB of what programs read and write; with fewer, fewer calls go on at once
    #[arg(long, value_name = "MIB", default_value_t = MEMORY_MIB, value_parser = clap::value_parser!(u64).range(MEMORY_MIB_MIN..))]
    memory: u64,
    /// Have it mounted by whoever is at the other end of standard input
    #[arg(long, hide = true, conflicts_with_all = ["daemon", "read_only", "noexec"])]
    by_helper: bool,
    /// Serve it for the keeper at the other end of standard input
    #[arg(long, hide = true, conflicts_with_all = ["daemon", "by_helper"])]
    by_keeper: bool,
}

impl MountArgs {
    /// Returns the arguments of a process that serves the mount for a keeper.
    fn line(&self, context: &Context) -> Result<Vec<OsString>> {
        let mut line =
            vec!["--node".into(), context.directory(None)?.into(), "mount".into(), "--by-keeper".into()];
        let flags = [("--read-only", self.read_only), ("--noexec", self.noexec), ("--shared", self.shared)];
        line.extend(flags.into_iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag.into()));
        line.push(format!("--memory={}", self.memory).into());
        if context.json() {
            line.push("--json".into());
        }
        line.extend(["--".into(), self.path.clone(), self.dir.clone().into()]);
        Ok(line)
    }

    /// Returns who mounts: whoever is at the other end of the socket, if there is one.
    fn mounter(&self, helper: Option<OwnedFd>) -> Mounter {
        match helper {
            Some(helper) => Mounter::Helper(UnixStream::from(helper)),
            None => Mounter::Fusermount(Without { writing: self.read_only, programs: self.noexec }),
        }
    }
}

/// Options of `weft umount`.
#[derive(Args)]
pub struct UmountArgs {
    /// Where it is mounted
    dir: PathBuf,
    /// Take it away even while it is used
    #[arg(long)]
    lazy: bool,
}

pub fn run(context: &Context, args: &MountArgs) -> Result<ExitCode> {
    if args.by_keeper {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime
            .map_err(|e| Error::new(ErrorKind::Unavailable, "no runtime could be made").caused_by(e))?;
        return runtime.block_on(serve(context, args)).map(|()| ExitCode::SUCCESS);
    }
    if !args.by_helper {
        // Before anything is in the background, where nobody hears of it. A helper has looked itself.
        mountpoint::check(&args.dir)?;
    }
    if args.daemon {
        let (log, path) = make_log(context.sys(), process::uid())?;
        return detached::run(context, log, &path);
    }
    keeper::run(context, args)
}

/// Makes the log of a mount in the background, which a user reads. Returns where it is, too.
fn make_log(sys: &Sys, uid: u32) -> Result<(File, PathBuf)> {
    // The number of a process comes again.
    let name = format!("weft-mount-{uid}-{}-{}.log", sys.now().seconds(), std::process::id());
    let path = std::env::temp_dir().join(name);
    let failed = |e| fault::error(e, "write", path.display());
    let log = File::options().create_new(true).append(true).mode(0o600).open(&path).map_err(failed)?;
    // Its user removes it.
    if uid != process::uid() {
        std::os::unix::fs::fchown(&log, Some(uid), None).map_err(failed)?;
    }
    Ok((log, path))
}

/// Removes the log of a mount that ended well and had nothing to say.
fn forget_log() {
    let Some(log) = std::env::var_os(LOG_FILE) else { return };
    if std::fs::metadata(&log).is_ok_and(|found| found.len() == 0) {
        // It is in nobody's way.
        let _ = std::fs::remove_file(&log);
    }
}

/// What a process that serves has of its mount before it is mounted, or taken over.
struct Beginning {
    steady: Steady,
    calls: Arc<MountCalls>,
    remembered: Arc<Remembered>,
    root: At,
    mounter: Mounter,
}

/// What a process that serves has of it.
struct Standing {
    mounted: Arc<Mount>,
    calls: Arc<MountCalls>,
    /// Of a mount that is shared.
    logins: Option<Arc<Logins>>,
}

async fn serve(context: &Context, args: &MountArgs) -> Result<()> {
    // Files that a node lends take descriptors here.
    weft_sys::net::raise_descriptor_limit();
    let (keeper, begin, with) = ToKeeper::begin()?;
    // Before there is a mount: a signal that ends the process by itself would leave it behind, dead.
    let listen = |kind| signal(kind).map_err(|e| fault::error(e, "listen for", "signals"));
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    let place = context.place()?;
    let mounting = async {
        Ok::<_, Error>(match begin.taken {
            None => {
                let shown = progress::waiting(context, "mounting");
                let path = find(context, &place, args).await.map_err(|e| e.op("mount"))?;
                let first = first(context, &place, args, (path.at(), with.into_iter().next())).await?;
                let mounted = stand(context, args, first, &keeper).await;
                drop(shown);
                let mounted = mounted.map_err(|e| e.op("mount").said_of(&path))?;
                let _ = out!("ready");
                mounted
            }
            Some(taken) => {
                let within = Deadline::within(context.sys(), limits::MOUNT_TAKEN_OVER_WITHIN);
                let next = context.sys().within(within, next(context, &place, &taken, &with)).await?;
                stand(context, args, next, &keeper).await?
            }
        })
    };
    let mounted = tokio::select! {
        mounted = mounting => mounted?,
        _ = terminate.recv() => return give_up(args),
        _ = interrupt.recv() => return give_up(args),
    };
    let Standing { mounted, calls, logins } = mounted;
    let admitting = async {
        match &logins {
            Some(logins) => logins.admit_to(&mounted).await,
            None => std::future::pending().await,
        }
    };
    let _lives = keeper.live(context.sys(), begin.lives_every);
    tokio::select! {
        () = mounted.wait() => return Ok(()),
        () = admitting => {}
        () = calls.stay_fresh(context, &place) => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    keeper.ends();
    match mounted.unmount().await {
        Err(e) if e.kind() == ErrorKind::Busy => mounted.unmount_lazily().await,
        outcome => outcome,
    }
}

/// Ends before the mount stands with this process, at somebody's wish.
fn give_up(args: &MountArgs) -> Result<()> {
    if mountpoint::is_mounted(&args.dir)? {
        take_away(&args.dir, true)?;
    }
    Ok(())
}

/// Mounts, or takes over, and hands to the keeper what is to be kept.
async fn stand(context: &Context, args: &MountArgs, begin: Beginning, keeper: &ToKeeper) -> Result<Standing> {
    let Beginning { steady, calls, remembered, root, mounter } = begin;
    let place = context.place()?;
    let logins = if args.shared { Some(Arc::new(Logins::open(context.sys(), &place)?)) } else { None };
    let others = match &logins {
        Some(logins) => Some(logins.others().await?),
        None => None,
    };
    let settings = MountSettings {
        mountpoint: args.dir.clone(),
        mounter,
        name: String::from("weft"),
        root,
        own: local_user(steady, &calls, (process::uid(), process::gid())),
        others,
        remembered: remembered.clone(),
        clock: Arc::new(context.sys().clone()),
        patience: limits::CALL_DEADLINE,
        memory: args.memory.saturating_mul(1 << 20),
    };
    let mounted = Arc::new(mount(settings).await?);
    if mounted.kept().is_none() && !args.shared {
        note!("this kernel is older than Linux 6.9: should this process die, so does the mount");
    }
    keeper.stands(mounted.kept().map(|device| [device, remembered.descriptor()]));
    Ok(Standing { mounted, calls, logins })
}

/// Begins a session of its own, for a mount that is to be made.
async fn first(
    context: &Context,
    place: &Place,
    args: &MountArgs,
    (root, helper): (At, Option<OwnedFd>),
) -> Result<Beginning> {
    let remembered = Arc::new(Remembered::new()?);
    let client = Client::connect(context.sys(), place).await?;
    let caller = client.fresh_caller().await?;
    if args.shared && caller.is_narrowed() {
        let refused = Error::not_permitted("a shared mount does not narrow what others do on it");
        return Err(refused.hint("mount with a credential that is not narrowed, or without --shared"));
    }
    let calls = Arc::new(MountCalls::new(caller, client.session(), Some(remembered.clone())));
    let notes = Arc::new(Notes { remembered: remembered.clone(), calls: calls.clone() });
    let steady = Steady::keeping(client.remote().clone(), place, client.session(), notes);
    steady.begin(&calls.who().0).await?;
    Ok(Beginning { steady, calls, remembered, root, mounter: args.mounter(helper) })
}

/// Goes on in the session of the process before, as who that was, with what it had open and locked. A node may be about to
/// come back, or break the line while it goes: whoever calls this has a deadline.
async fn next(context: &Context, place: &Place, taken: &hand::Taken, with: &[OwnedFd]) -> Result<Beginning> {
    loop {
        match go_on(context, place, taken, with).await {
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                context.sys().sleep(limits::MOUNT_DEATH_REST).await;
            }
            outcome => return outcome,
        }
    }
}

async fn go_on(context: &Context, place: &Place, taken: &hand::Taken, with: &[OwnedFd]) -> Result<Beginning> {
    let [device, memory] = with else {
        return Err(Error::internal("the keeper hands over the mount and what is remembered of it"));
    };
    let own = |fd: &OwnedFd| fd.try_clone().map_err(|e| fault::error(e, "take over", "the mount"));
    let (device, remembered) = (own(device)?, Arc::new(Remembered::of(own(memory)?)?));
    let papers = Papers::read(&remembered)?;
    let client = Client::connect(context.sys(), place).await?;
    let Papers { session, grant, credential } = papers;
    let before = credential.map_or(Ok(Caller::anyone()), |signed| client.verify(&signed))?;
    let calls = Arc::new(MountCalls::new(before, session, Some(remembered.clone())));
    calls.is_in(grant.clone());
    match client.fresh_caller().await.and_then(|caller| calls.renew(caller)) {
        Ok(()) => {}
        Err(error) => note!("the mount's credential could not be renewed: {error}"),
    }
    let notes = Arc::new(Notes { remembered: remembered.clone(), calls: calls.clone() });
    let steady = Steady::keeping(client.remote().clone(), place, session, notes);
    let call = Call { caller: calls.who().0, session, ..client.call_within(limits::RECLAIM_WITHIN) };
    let taken_up = steady.take_up(&call, &grant, remembered_locks(&remembered)).await?;
    let files = taken_up.into_iter().map(|(kept, (file, attr))| (kept, Opened { file, attr })).collect();
    let hand::Taken { times, at, because } = taken.clone();
    let told = TakenOver { times, at, because };
    let root = At::id(remembered.root());
    let mounter = Mounter::Taken(Taken { device, files, told });
    Ok(Beginning { steady, calls, remembered, root, mounter })
}

/// Begins a session for a caller over a line that outlives its connection. Returns the user of this machine that the
/// caller is, and in whose name the calls are.
async fn line_of(
    client: &Client,
    place: &Place,
    caller: Caller,
    ids: (u32, u32),
) -> Result<(LocalUser, Arc<MountCalls>)> {
    let steady = Steady::new(client.remote().clone(), place, client.session());
    let calls = Arc::new(MountCalls::new(caller, client.session(), None));
    steady.begin(&calls.who().0).await?;
    Ok((local_user(steady, &calls, ids), calls))
}

fn local_user(steady: Steady, calls: &Arc<MountCalls>, (uid, gid): (u32, u32)) -> LocalUser {
    let line = steady.clone();
    let away = Box::new(move || line.lost().map(|Lost { since, because }| Away { since, because }));
    LocalUser { fs: Arc::new(steady), calls: calls.clone(), uid, gid, away }
}

/// Reads the path that is to be mounted, and looks at what is there. Over a line of its own: a call
/// over the mount's would begin its session in another name than the mount takes it up again in.
async fn find(context: &Context, place: &Place, args: &MountArgs) -> Result<TreePath> {
    let path = TreePath::read(&args.path)?;
    let client = Client::connect(context.sys(), place).await?;
    match path.look_up(&client).await {
        Err(error) => Err(tree::unlisted(&client, &path.at(), error, &path.to_string()).await),
        Ok(_) => Ok(path),
    }
}

/// In whose name the mount calls: one caller, whose credential is renewed in time.
struct MountCalls {
    caller: RwLock<Caller>,
    session: SessionId,
    /// What takes the session up, for the process after this one; `None` until it has begun.
    grant: Mutex<Option<SessionGrant>>,
    /// Where that process finds it; `None` if nobody is to go on as this caller.
    remembered: Option<Arc<Remembered>>,
}

impl MountCalls {
    fn new(caller: Caller, session: SessionId, remembered: Option<Arc<Remembered>>) -> Self {
        Self { caller: RwLock::new(caller), session, grant: Mutex::default(), remembered }
    }

    /// Notes what takes the session up from now on.
    fn is_in(&self, grant: SessionGrant) {
        *self.grant.lock().unwrap_or_else(PoisonError::into_inner) = Some(grant);
        self.keep_papers();
    }

    /// Keeps what the next process proves itself by.
    fn keep_papers(&self) {
        let grant = self.grant.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some(grant), Some(remembered)) = (&*grant, &self.remembered) else { return };
        if let Err(error) = Papers::of(&self.who().0, self.session, grant.clone()).keep(remembered) {
            note!("another process could not go on with the mount: {error}");
        }
    }

    /// Renews the credential for as long as the mount stands. One that cannot be renewed
    /// runs out, and then says so at every call.
    async fn stay_fresh(&self, context: &Context, place: &Place) {
        loop {
            context.sys().sleep(limits::CREDENTIAL_LIFE / 4).await;
            let fresh = async { Client::connect(context.sys(), place).await?.fresh_caller().await };
            match fresh.await.and_then(|caller| self.renew(caller)) {
                Ok(()) => {}
                Err(error) => note!("the mount's credential could not be renewed: {error}"),
            }
        }
    }
}

impl MountCalls {
    /// Takes a credential in place of the one there is. One of somebody else, or that reaches
    /// further, was not meant for this mount: another login in the same account must not change
    /// what programs on it may do.
    fn renew(&self, fresh: Caller) -> Result<()> {
        let mut caller = self.caller.write().unwrap_or_else(PoisonError::into_inner);
        if fresh.name() != caller.name() {
            let other = Error::not_permitted("the credential that is found now is somebody else's");
            return Err(other.about(fresh.name().to_string()).hint("mount again"));
        }
        let (held, found) = (caller.limits(), fresh.limits());
        // From when on it may be used does not matter: it is used now.
        let within = |both: Attenuation| Attenuation { from: found.from, ..both } == *found;
        let (held_to, found_to) = (&caller.claims().confines, &fresh.claims().confines);
        let as_confined = *held_to == Confines::Everywhere || held_to == found_to;
        if !as_confined || !held.narrowed(found).is_ok_and(within) {
            return Err(
                Error::not_permitted("the credential that is found now reaches further").hint("mount again")
            );
        }
        *caller = fresh;
        drop(caller);
        self.keep_papers();
        Ok(())
    }

    /// Takes the credential that somebody hands over themselves in place of the one before, whatever it reaches to.
    /// Returns whether it is of the same caller; another's session is not theirs.
    fn replace(&self, fresh: Caller) -> bool {
        let mut caller = self.caller.write().unwrap_or_else(PoisonError::into_inner);
        let same = fresh.name() == caller.name();
        if same {
            *caller = fresh;
        }
        same
    }
}

impl CallSource for MountCalls {
    fn who(&self) -> (Caller, SessionId) {
        (self.caller.read().unwrap_or_else(PoisonError::into_inner).clone(), self.session)
    }

    fn once(&self, mark: u64) -> Option<RequestId> {
        Some(RequestId(mark))
    }
}

pub fn umount(args: &UmountArgs) -> Result<()> {
    if !mountpoint::is_mounted(&args.dir)? {
        let refused = Error::invalid("it is not a mount of weft");
        return Err(refused.op("unmount").about(args.dir.display()));
    }
    take_away(&args.dir, args.lazy).map_err(|error| match error.kind() {
        ErrorKind::Busy => Error::new(ErrorKind::Busy, "it is in use")
            .op("unmount")
            .about(args.dir.display())
            .hint(format!("close what is open there, or `weft umount --lazy {}`", args.dir.display())),
        _ => error,
    })
}

#[cfg(test)]
mod tests {
    use weft_conformance::{HandClock, TestDomain};
    use weft_core::proof::{CredentialClaims, Scope};
    use weft_core::service::SessionSecret;
    use weft_core::{Rights, VolumeId};

    use super::*;

    fn calls_of(caller: Caller) -> MountCalls {
        let remembered = Arc::new(Remembered::new().expect("memory"));
        let calls = MountCalls::new(caller, SessionId(1), Some(remembered));
        calls.is_in(SessionGrant { id: SessionId(1), secret: SessionSecret::new("s") });
        calls
    }

    #[test]
    fn a_mount_stays_who_it_is_and_never_comes_to_reach_further() {
        let clock = Arc::new(HandClock::default());
        let domain = TestDomain::new(5, clock, &[VolumeId(0)]);
        let with = |user: &str, limits: Attenuation| {
            domain.caller_with(&CredentialClaims { limits, ..domain.claims(user) })
        };
        let path = |path: &str| vec![path.try_into().expect("a path")];
        let below = Attenuation { paths: path("a"), ..Attenuation::NONE };
        let calls = calls_of(with("alice", below.clone()));
        let further = [Attenuation::NONE, Attenuation { paths: path("b"), ..Attenuation::NONE }];
        for limits in further {
            assert_eq!(
                calls.renew(with("alice", limits)).expect_err("further").kind(),
                ErrorKind::NotPermitted
            );
        }
        for other in [with("admin", below.clone()), Caller::anyone()] {
            assert_eq!(calls.renew(other).expect_err("somebody else").kind(), ErrorKind::NotPermitted);
        }
        assert_eq!(calls.who().0.limits(), &below);
        let narrower = Attenuation { rights: Rights::READ, paths: path("a/b"), ..Attenuation::NONE };
        for limits in [below, narrower.clone()] {
            calls.renew(with("alice", limits)).expect("no further than before");
        }
        assert_eq!(calls.who().0.limits(), &narrower);
    }

    #[test]
    fn a_mount_by_scopes_stays_with_those_scopes() {
        let clock = Arc::new(HandClock::default());
        let domain = TestDomain::new(6, clock, &[VolumeId(0)]);
        let with =
            |confines: Confines| domain.caller_with(&CredentialClaims { confines, ..domain.claims("alice") });
        let scoped = |path: &str| {
            let path = path.try_into().expect("a path");
            Confines::Scopes(vec![Scope { path, rights: Rights::READ }])
        };
        let calls = calls_of(with(scoped("a")));
        for further in [Confines::Everywhere, scoped("b"), scoped("a/b")] {
            assert_eq!(calls.renew(with(further)).expect_err("others").kind(), ErrorKind::NotPermitted);
        }
        calls.renew(with(scoped("a"))).expect("the same");
        let calls = calls_of(with(Confines::Everywhere));
        calls.renew(with(scoped("a"))).expect("no further than before");
    }
}
