//! `weft mount` and `weft umount`

pub mod fstab;
pub mod handing;
mod logins;
pub mod mountpoint;
pub mod said;

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use weft_client::steady::{Lost, Steady};
use weft_client::tree;
use weft_client::{Client, Place};
use weft_core::proof::{Attenuation, Caller, Confines};
use weft_core::{Clock, Error, ErrorKind, RequestId, Result, SessionId, limits};
use weft_doors_fuse::{Away, CallSource, LocalUser, MountSettings, Mounter, Without, mount};
use weft_sys::{Sys, fault, process};

use crate::commands::detached::{self, LOG_FILE};
use crate::context::Context;
use crate::output::{note, out};
use crate::paths::TreePath;
use crate::progress;
use crate::service;
use logins::Logins;

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
    /// Have it mounted by whoever is at the other end of standard input
    #[arg(long, hide = true, conflicts_with_all = ["daemon", "read_only", "noexec"])]
    by_helper: bool,
}

impl MountArgs {
    /// Returns who mounts.
    fn mounter(&self) -> Result<Mounter> {
        if self.by_helper {
            let input = std::io::stdin().as_fd().try_clone_to_owned();
            return Ok(Mounter::Helper(UnixStream::from(
                input.map_err(|e| fault::error(e, "use", "standard input"))?,
            )));
        }
        Ok(Mounter::Fusermount(Without { writing: self.read_only, programs: self.noexec }))
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
    if !args.by_helper {
        // Before anything is in the background, where nobody hears of it. A helper has looked itself.
        mountpoint::check(&args.dir)?;
    }
    if args.daemon {
        let (log, path) = make_log(context.sys(), process::uid())?;
        return detached::run(context, log, &path);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|e| Error::new(ErrorKind::Unavailable, "no runtime could be made").caused_by(e))?;
    runtime.block_on(serve(context, args))?;
    forget_log();
    Ok(ExitCode::SUCCESS)
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

async fn serve(context: &Context, args: &MountArgs) -> Result<()> {
    // Files that a node lends take descriptors here.
    weft_sys::net::raise_descriptor_limit();
    let shown = progress::waiting(context, "mounting");
    let place = context.place()?;
    let path = find(context, &place, args).await.map_err(|e| e.op("mount"))?;
    let client = Client::connect(context.sys(), &place).await?;
    let caller = client.fresh_caller().await?;
    if args.shared && caller.is_narrowed() {
        let refused = Error::not_permitted("a shared mount does not narrow what others do on it");
        return Err(refused
            .op("mount")
            .hint("mount with a credential that is not narrowed, or without --shared"));
    }
    let (own, calls) = line_of(&client, &place, caller, (process::uid(), process::gid())).await?;
    let logins = if args.shared { Some(Arc::new(Logins::open(context.sys(), &place)?)) } else { None };
    let others = match &logins {
        Some(logins) => Some(logins.others().await?),
        None => None,
    };
    let settings = MountSettings {
        mountpoint: args.dir.clone(),
        mounter: args.mounter()?,
        name: String::from("weft"),
        root: path.at(),
        own,
        others,
        clock: Arc::new(context.sys().clone()),
        patience: limits::CALL_DEADLINE,
    };
    // Before there is a mount: a signal that ends the process by itself would leave it behind, dead.
    let listen = |kind| signal(kind).map_err(|e| fault::error(e, "listen for", "signals"));
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    let mounted = Arc::new(mount(settings).await.map_err(|e| e.op("mount").said_of(&path))?);
    drop(shown);
    let _ = out!("ready");
    service::ready();
    let _lives = service::live(context.sys());
    let admitting = async {
        match &logins {
            Some(logins) => logins.admit_to(&mounted).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = mounted.wait() => return Ok(()),
        () = admitting => {}
        () = calls.stay_fresh(context, &place) => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    service::stopping();
    match mounted.unmount().await {
        Err(e) if e.kind() == ErrorKind::Busy => mounted.unmount_lazily().await,
        outcome => outcome,
    }
}

/// Begins a session for a caller over a line that outlives its connection. Returns the user of this machine that the
/// caller is, and in whose name the calls are.
async fn line_of(
    client: &Client,
    place: &Place,
    caller: Caller,
    (uid, gid): (u32, u32),
) -> Result<(LocalUser, Arc<MountCalls>)> {
    let steady = Steady::new(client.remote().clone(), place, client.session());
    let calls = Arc::new(MountCalls::new(caller, client.session()));
    steady.begin(&calls.who().0).await?;
    let line = steady.clone();
    let away = Box::new(move || line.lost().map(|Lost { since, because }| Away { since, because }));
    Ok((LocalUser { fs: Arc::new(steady), calls: calls.clone(), uid, gid, away }, calls))
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
    marks: AtomicU64,
}

impl MountCalls {
    fn new(caller: Caller, session: SessionId) -> Self {
        Self { caller: RwLock::new(caller), session, marks: AtomicU64::new(1) }
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

    fn once(&self) -> Option<RequestId> {
        Some(RequestId(self.marks.fetch_add(1, Ordering::Relaxed)))
    }
}

pub fn umount(args: &UmountArgs) -> Result<()> {
    let refused = |error: Error| Err(error.op("unmount").about(args.dir.display()));
    if !mountpoint::is_mounted(&args.dir)? {
        return refused(Error::invalid("it is not a mount of weft"));
    }
    let mut command = std::process::Command::new("fusermount3");
    // What it says is looked at.
    command.env("LC_ALL", "C");
    command.arg(if args.lazy { "-uz" } else { "-u" }).arg("--").arg(&args.dir);
    let output = command
        .output()
        .map_err(|e| fault::error(e, "run", "fusermount3").hint("install the package fuse3"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if said.contains("busy") {
        let hint = format!("close what is open there, or `weft umount --lazy {}`", args.dir.display());
        return refused(Error::new(ErrorKind::Busy, "it is in use").hint(hint));
    }
    refused(Error::not_permitted(said))
}

#[cfg(test)]
mod tests {
    use weft_conformance::{HandClock, TestDomain};
    use weft_core::proof::{CredentialClaims, Scope};
    use weft_core::{Rights, VolumeId};

    use super::*;

    #[test]
    fn a_mount_stays_who_it_is_and_never_comes_to_reach_further() {
        let clock = Arc::new(HandClock::default());
        let domain = TestDomain::new(5, clock, &[VolumeId(0)]);
        let with = |user: &str, limits: Attenuation| {
            domain.caller_with(&CredentialClaims { limits, ..domain.claims(user) })
        };
        let path = |path: &str| vec![path.try_into().expect("a path")];
        let below = Attenuation { paths: path("a"), ..Attenuation::NONE };
        let calls = MountCalls::new(with("alice", below.clone()), SessionId(1));
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
        let calls = MountCalls::new(with(scoped("a")), SessionId(1));
        for further in [Confines::Everywhere, scoped("b"), scoped("a/b")] {
            assert_eq!(calls.renew(with(further)).expect_err("others").kind(), ErrorKind::NotPermitted);
        }
        calls.renew(with(scoped("a"))).expect("the same");
        let calls = MountCalls::new(with(Confines::Everywhere), SessionId(1));
        calls.renew(with(scoped("a"))).expect("no further than before");
    }
}
