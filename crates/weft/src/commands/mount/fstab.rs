//! `mount.weft` and `mount.fuse.weft`: this program under the names that mount(8) looks for, for a line of
//! `/etc/fstab`, for `mount -t weft`, and through it for systemd and automount(8).
//!
//! ```text
//!  mount(8), root ─▶ mount.weft, root ─▶ weft mount, as setuid=NAME ─▶ serves until umount
//!                         └─ mount(2) once that is ready, and ends once it stands
//! ```
//!
//! Root mounts and the user serves: so a place below `/mnt`, or one that an automount makes, needs not be the user's, and
//! nothing that speaks to a node runs as root. Who is not root has `fusermount3` mount, as with `weft mount`.
//!
//! How to get it wrong: leave the group of processes before the mount stands, and look at its place. An
//! automount waits for the mount there, whoever is not of the group that it let through.

mod options;

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use clap::{CommandFactory, Parser};
use weft_core::{Error, ErrorKind, Result, Shown};
use weft_doors_fuse::{Handover, Without};
use weft_sys::users::{self, Account};
use weft_sys::{Sys, fault, process};

use super::{make_log, mountpoint};
use crate::commands::detached::{self, Starting};
use crate::failure;
use crate::output::note;
use crate::paths::TreePath;

use options::Options;

/// What mount(8) calls for a type is called `mount.TYPE`.
const NAMES: [&str; 2] = ["mount.weft", "mount.fuse.weft"];

/// Exit codes of mount(8): what was asked is wrong, or may not be asked.
const MISUSED: u8 = 1;
/// It was not mounted.
const FAILED: u8 = 32;

/// Where programs lie, for a process that has nothing of who called.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Mount a directory of the tree, as mount(8) asks for it
///
/// It is called for lines of /etc/fstab whose type is `weft`, and returns once the mount stands. `umount DIR` ends it.
#[derive(Parser)]
#[command(name = "mount.weft", version, max_term_width = 100, after_long_help = options::manual())]
struct Asked {
    /// The directory of the tree, with `weft:` before it
    source: OsString,
    /// Where to mount it: an empty directory
    dir: PathBuf,
    /// What else is asked for, with commas between
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<OsString>,
    /// Pass over options that are not known
    #[arg(short = 's')]
    sloppy: bool,
    /// Look whether all is well, and mount nothing
    #[arg(short = 'f')]
    fake: bool,
    /// Write nothing to /etc/mtab, which it never does
    #[arg(short = 'n')]
    no_mtab: bool,
    /// Say what is done
    #[arg(short = 'v')]
    verbose: bool,
    /// A namespace to mount in: refused
    #[arg(short = 'N', value_name = "NAMESPACE")]
    namespace: Option<OsString>,
    /// The type that mount(8) was asked for
    #[arg(short = 't', value_name = "TYPE")]
    kind: Option<OsString>,
}

/// Returns whether this program is called by a name that mount(8) uses.
pub fn is_called(name: Option<&OsStr>) -> bool {
    let last = name.map(Path::new).and_then(Path::file_name);
    last.is_some_and(|last| NAMES.iter().any(|name| last == *name))
}

/// Returns what the manual is made of.
pub fn command() -> clap::Command {
    Asked::command()
}

/// Does what mount(8) asks for.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let asked = match Asked::try_parse_from(args) {
        Ok(asked) => asked,
        Err(error) => {
            let asked_for_help = !error.use_stderr();
            failure::usage(&error, false);
            return if asked_for_help { ExitCode::SUCCESS } else { ExitCode::from(MISUSED) };
        }
    };
    match mount(&asked) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { code, errors }) => {
            for error in errors {
                failure::report(&error, false);
            }
            ExitCode::from(code)
        }
    }
}

/// Why nothing was mounted, and how mount(8) says that.
struct Failure {
    code: u8,
    /// None where the reason has been said.
    errors: Vec<Error>,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { code: FAILED, errors: vec![error] }
    }
}

fn misused(error: Error) -> Failure {
    Failure { code: MISUSED, errors: vec![error] }
}

fn mount(asked: &Asked) -> std::result::Result<(), Failure> {
    if let Some(namespace) = &asked.namespace {
        let refused = Error::new(ErrorKind::Unsupported, "it mounts where it is run");
        let refused = refused.op("mount in the namespace").about(Shown(namespace.as_bytes()));
        return Err(misused(refused.hint("nsenter --mount=FILE mount …")));
    }
    check_source(&asked.source).map_err(misused)?;
    let (options, strange) =
        Options::read(&asked.options, asked.sloppy).map_err(|errors| Failure { code: MISUSED, errors })?;
    if asked.verbose && !strange.is_empty() {
        note!("mount.weft: not known, passed over: {}", strange.join(", "));
    }
    let named = options.user.as_deref();
    let account = for_whom(named, process::uid(), users::account).map_err(misused)?;
    mountpoint::check(&asked.dir)?;
    if asked.fake {
        return Ok(());
    }
    let pid = start(asked, &options, account.as_ref())?;
    if asked.verbose {
        let (source, dir) = (Shown(asked.source.as_bytes()), asked.dir.display());
        note!("mount.weft: {source} mounted on {dir}, pid {pid}");
    }
    Ok(())
}

/// Fails unless it is a path of the tree, said to be one: mount(8) takes a path without `weft:` for one of this machine.
fn check_source(source: &OsStr) -> Result<()> {
    if !source.as_bytes().starts_with(b"weft:/") {
        let refused = Error::invalid("what is mounted starts with `weft:/`");
        return Err(refused.op("mount").about(Shown(source.as_bytes())).hint("weft:/ is the whole tree"));
    }
    TreePath::read(source).map(drop)
}

/// Returns the account that a mount is for; `None` if it is for whoever asks, who is not root.
fn for_whom(
    named: Option<&OsStr>,
    caller: u32,
    look_up: impl FnOnce(&OsStr) -> Result<Option<Account>>,
) -> Result<Option<Account>> {
    let Some(name) = named else {
        if caller != 0 {
            return Ok(None);
        }
        let refused = Error::not_permitted("nothing says for whom");
        let hint = "add setuid=NAME to its options; setuid=root for root itself";
        return Err(refused.op("mount as root").hint(hint));
    };
    let shown = || Shown(name.as_bytes());
    let Some(account) = look_up(name).map_err(|e| e.op("mount for").about(shown()))? else {
        return Err(Error::not_found("this machine has no such user").op("mount for").about(shown()));
    };
    match caller {
        0 => Ok(Some(account)),
        caller if caller == account.uid => Ok(None),
        _ => Err(Error::not_permitted("only root mounts for somebody else").op("mount for").about(shown())),
    }
}

/// Starts what serves the mount, mounts for it if it is somebody else's, and returns its number once the mount stands.
fn start(asked: &Asked, options: &Options, account: Option<&Account>) -> std::result::Result<u32, Failure> {
    let failed = |e| fault::error(e, "mount at", asked.dir.display());
    let dir = asked.dir.canonicalize().map_err(failed)?;
    let mut command = command_to_serve(asked, options, &dir)?;
    let mut handover = None;
    match account {
        None => without(&mut command, options.without),
        Some(account) => {
            let (ours, theirs) = UnixStream::pair().map_err(failed)?;
            become_user(&mut command, account);
            command.arg("--by-helper").stdin(OwnedFd::from(theirs));
            handover = Some((handover_to(account, asked, options, &dir), ours));
        }
    }
    if options.shared {
        command.arg("--shared");
    }
    if let Some(mib) = options.memory {
        command.arg(format!("--memory={mib}"));
    }
    if let Some(file) = &options.token_file {
        command.env_remove("BEARER_TOKEN").env("BEARER_TOKEN_FILE", file);
    }
    let uid = account.map_or_else(process::uid, |account| account.uid);
    let (log, log_path) = make_log(&Sys::real(), uid)?;
    let starting = Starting::begin(&mut command, log, &log_path);
    // With it goes our copy of the other end: whoever waits for a process that has gone hears so.
    drop(command);
    let stood = starting.map_err(Failure::from).and_then(|starting| wait(starting, handover));
    if stood.is_err() {
        // What it held has been said.
        let _ = std::fs::remove_file(&log_path);
    }
    stood
}

fn command_to_serve(asked: &Asked, options: &Options, dir: &Path) -> Result<Command> {
    let mut command = detached::this_program()?;
    // Under its own name, whatever it is called here.
    command.arg0("weft").arg("mount").stdin(Stdio::null());
    if let Some(node) = &options.node {
        command.arg("--node").arg(node);
    }
    // Neither can be taken for an option: the one begins with `weft:`, the other with `/`.
    command.args([&asked.source, dir.as_os_str()]);
    Ok(command)
}

fn without(command: &mut Command, without: Without) {
    if without.writing {
        command.arg("--read-only");
    }
    if without.programs {
        command.arg("--noexec");
    }
}

fn handover_to(account: &Account, asked: &Asked, options: &Options, dir: &Path) -> Handover {
    Handover {
        mountpoint: dir.to_owned(),
        source: asked.source.clone(),
        uid: account.uid,
        gid: account.gid,
        without: options.without,
        shared: options.shared,
    }
}

/// Has a command run as a user and with nothing of root's: neither its variables nor its groups.
fn become_user(command: &mut Command, account: &Account) {
    command.env_clear().env("PATH", PATH).env("HOME", &account.home);
    command.env("USER", &account.name).env("LOGNAME", &account.name);
    command.uid(account.uid).gid(account.gid).current_dir("/");
}

/// Waits until the mount stands; mounts for the process if that is asked for.
fn wait(
    mut starting: Starting,
    handover: Option<(Handover, UnixStream)>,
) -> std::result::Result<u32, Failure> {
    let mut handed = None;
    if let Some((handover, process)) = handover {
        // The process hears by the end of the line that it is not mounted, and ends.
        if handover.serve(&process)? {
            handed = Some(handover);
        }
    }
    let Some(status) = starting.wait()? else { return Ok(starting.pid()) };
    if let Some(handover) = handed
        && mountpoint::is_mounted(&handover.mountpoint)?
    {
        handover.take_back()?;
    }
    if starting.repeat()? > 0 {
        return Err(Failure { code: FAILED, errors: Vec::new() });
    }
    let detail = format!("it ended before it was ready ({status})");
    Err(Error::new(ErrorKind::Unavailable, detail).op("start").about("a process in the background").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_helper_under_the_names_of_helpers_only() {
        for (name, is_helper) in [
            (Some("mount.weft"), true),
            (Some("/sbin/mount.weft"), true),
            (Some("./mount.fuse.weft"), true),
            (Some("weft"), false),
            (Some("/mount.weft/weft"), false),
            (Some("mount.weft2"), false),
            (Some("mount.fuse"), false),
            (Some("Mount.weft"), false),
            (Some(""), false),
            (Some("/"), false),
            (None, false),
        ] {
            assert_eq!(is_called(name.map(OsStr::new)), is_helper, "{name:?}");
        }
    }

    #[test]
    fn words_of_mount_are_taken_wherever_they_stand() {
        let parsed = |words: &[&str]| {
            let words = std::iter::once("mount.weft").chain(words.iter().copied());
            Asked::try_parse_from(words).map_err(|error| error.kind())
        };
        for words in [
            &["weft:/", "/m", "-o", "ro,noexec"][..],
            &["weft:/", "/m", "-sfnv", "-o", "ro,noexec"],
            &["weft:/", "/m", "-n", "-oro,noexec", "-t", "fuse.weft"],
            &["-o", "ro", "-v", "weft:/", "-o", "noexec", "/m"],
        ] {
            let asked = parsed(words).unwrap_or_else(|kind| panic!("{words:?}: {kind}"));
            let (options, _) = Options::read(&asked.options, false).expect("known");
            assert!(options.without.writing && options.without.programs, "{words:?}");
            assert_eq!((asked.source.to_str(), asked.dir.to_str()), (Some("weft:/"), Some("/m")));
        }
        for words in [
            &[][..],
            &["weft:/"],
            &["weft:/", "/m", "more"],
            &["weft:/", "/m", "-q"],
            &["weft:/", "/m", "-o"],
        ] {
            assert!(parsed(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn only_a_path_of_the_tree_is_mounted() {
        for (source, is_one) in [
            ("weft:/", true),
            ("weft:/a b/c", true),
            ("weft:/a/", true),
            ("/a", false),
            ("weft:", false),
            ("weft:a", false),
            ("weft://a", false),
            ("weft:/a/../b", false),
            ("host:/a", false),
            ("", false),
        ] {
            assert_eq!(check_source(OsStr::new(source)).is_ok(), is_one, "{source}");
        }
    }

    #[test]
    fn root_mounts_for_somebody_it_names_and_others_for_themselves() {
        let alice = Account { name: "alice".into(), uid: 1000, gid: 1000, home: "/srv/alice".into() };
        let list = |name: &OsStr| Ok((name == "alice" || name == "1000").then(|| alice.clone()));
        let whom = |named: Option<&str>, caller| {
            for_whom(named.map(OsStr::new), caller, list).map_err(|error| error.kind())
        };
        for (named, caller, wanted) in [
            (None, 0, Err(ErrorKind::NotPermitted)),
            (None, 1000, Ok(None)),
            (Some("alice"), 0, Ok(Some(alice.clone()))),
            (Some("1000"), 0, Ok(Some(alice.clone()))),
            (Some("alice"), 1000, Ok(None)),
            (Some("alice"), 1001, Err(ErrorKind::NotPermitted)),
            (Some("bob"), 0, Err(ErrorKind::NotFound)),
            (Some("bob"), 1000, Err(ErrorKind::NotFound)),
        ] {
            assert_eq!(whom(named, caller), wanted, "{named:?} by {caller}");
        }
    }
}
