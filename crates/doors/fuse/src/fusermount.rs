//! `fusermount3`, which mounts and unmounts for whoever owns the directory.
//!
//! Mounting goes through it, also for root: one way, which is the one that an ordinary user has. Only a helper of mount(8)
//! mounts itself (`mounter`), and unmounting is `fusermount3`'s then as well.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use weft_core::{Error, ErrorKind, Result, limits};

use crate::mounter::{self, Without};

/// Mounts at a directory. `name` stands in the first column of the mount table. Returns the kernel's end, and the directory's
/// path without links.
pub(crate) fn mount(
    mountpoint: &Path,
    name: &str,
    without: Without,
    shared: bool,
) -> Result<(OwnedFd, PathBuf)> {
    let mountpoint = mountpoint.canonicalize().map_err(|error| missing(mountpoint, error))?;
    let (ours, theirs) = UnixStream::pair()
        .map_err(|error| Error::new(ErrorKind::Unavailable, "no socket to be had").caused_by(error))?;
    let name: String = name.chars().filter(|c| !matches!(c, ',' | '\\') && !c.is_control()).collect();
    let others = if shared { ",allow_other" } else { "" };
    // The socket is the child's standard input: no descriptor is left open for others.
    let mut child = fusermount3()
        .arg("-o")
        .arg(format!("nosuid,nodev{}{others},fsname={name},subtype=weft", without.words()))
        .arg("--")
        .arg(&mountpoint)
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| no_program(error).about(mountpoint.display()))?;
    let fd = mounter::receive(&ours);
    let mut said = String::new();
    if let Some(stderr) = child.stderr.as_mut() {
        // What it says only makes the error's text.
        let _ = stderr.read_to_string(&mut said);
    }
    let _ = child.wait();
    let fd = fd.ok_or_else(|| refused("mount", &mountpoint, &said))?;
    Ok((fd, mountpoint))
}

/// Takes a mount away. `lazy`ly: now for all who come, later for those who hold files open. Blocks for as long as
/// `fusermount3` takes, and rests between its tries.
///
/// `Busy` if it is in use, `NotPermitted` if it is somebody else's or none, `Unavailable` without `fusermount3`.
pub fn take_away(mountpoint: &Path, lazy: bool) -> Result<()> {
    let mut done = unmount(mountpoint, lazy)?;
    // Who ends a service ends all of its processes: the one that serves the mount, and the one that takes it away for that.
    for _ in 1..limits::MOUNT_END_TRIES {
        if done.status.signal().is_none() {
            break;
        }
        std::thread::sleep(limits::MOUNT_END_REST);
        done = unmount(mountpoint, lazy)?;
    }
    if done.status.success() {
        return Ok(());
    }
    Err(refused("unmount", mountpoint, &String::from_utf8_lossy(&done.stderr)))
}

fn unmount(mountpoint: &Path, lazy: bool) -> Result<Output> {
    fusermount3()
        .arg(if lazy { "-uz" } else { "-u" })
        .arg("--")
        .arg(mountpoint)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| no_program(error).about(mountpoint.display()))
}

fn fusermount3() -> Command {
    let mut command = Command::new("fusermount3");
    // What it says is looked at.
    command.env("LC_ALL", "C");
    command
}

fn missing(mountpoint: &Path, error: std::io::Error) -> Error {
    let kind = match error.kind() {
        std::io::ErrorKind::NotADirectory => ErrorKind::NotDirectory,
        std::io::ErrorKind::PermissionDenied => ErrorKind::Denied,
        _ => ErrorKind::NotFound,
    };
    let error = Error::new(kind, "the directory cannot be used").op("mount").caused_by(error);
    error.about(mountpoint.display())
}

fn no_program(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "fusermount3 cannot be started")
        .hint("apt install fuse3")
        .caused_by(error)
}

fn refused(op: &'static str, mountpoint: &Path, said: &str) -> Error {
    let said = said.trim().lines().last().unwrap_or("fusermount3 gave no reason").to_owned();
    let kind = if said.contains("busy") { ErrorKind::Busy } else { ErrorKind::NotPermitted };
    let error = Error::new(kind, said).op(op).about(mountpoint.display());
    match error.detail().contains("user_allow_other") {
        true => error.hint("an administrator adds the line `user_allow_other` to /etc/fuse.conf"),
        false => error,
    }
}
