//! Where copies go: found once, whatever is copied there.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use weft_core::attr::Kind;
use weft_core::form::{At, LinkTarget, Want};
use weft_core::{Error, ErrorKind, FileId, Name, RelPath, Result, Shown, limits};
use weft_sys::{Folder, fault};

use super::Job;
use super::server::ServerGoal;
use crate::paths::{Ending, Side};

/// Where copies go.
pub enum Goal {
    /// Into the tree.
    Tree(TreeGoal),
    /// To this machine.
    Local(LocalGoal),
    /// To a server that speaks HTTP.
    Server(ServerGoal),
}

/// Where copies go in the tree.
pub enum TreeGoal {
    /// Into a directory, each under its own name.
    Into { dir: FileId, path: RelPath },
    /// To a name in a directory, which may be taken by something else than a directory. The path
    /// is that of the name.
    Name { dir: FileId, name: Name, path: RelPath, is_new: bool },
}

/// Where copies go on this machine.
pub enum LocalGoal {
    /// Into a directory, each under its own name.
    Into(Folder),
    /// To a name in a directory, which may be taken by a regular file.
    Name { folder: Folder, name: OsString, is_new: bool },
    /// Into something that is written to as it is: a pipe, a device.
    Stream(PathBuf),
}

/// The path of something that is copied, where it goes: shown as all names are.
#[derive(Clone)]
pub struct Target(Vec<u8>);

impl Target {
    /// Takes a path of this machine.
    pub fn local(path: &Path) -> Self {
        Self(path.as_os_str().as_bytes().to_vec())
    }

    /// Takes a path of the tree.
    pub fn tree(path: &RelPath) -> Self {
        Self([b"/", path.as_bytes()].concat())
    }

    /// Returns the path some names below.
    pub fn below(&self, names: impl AsRef<[u8]>) -> Self {
        let names = names.as_ref();
        let joint: &[u8] = match self.0.last() {
            None | Some(b'/') => b"",
            Some(_) if names.is_empty() => b"",
            Some(_) => b"/",
        };
        Self([&self.0, joint, names].concat())
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Shown(&self.0).fmt(f)
    }
}

impl Goal {
    /// Finds the target. It must be a directory for several sources, and where it is written as one.
    pub async fn find(job: &Job<'_>, target: &Side, several: bool) -> Result<Self> {
        let goal = match target {
            Side::Tree(path, ending) => Self::Tree(TreeGoal::find(job, path, *ending).await?),
            Side::Local(path, ending) => Self::Local(LocalGoal::find(path, *ending)?),
            Side::Server(url, ending) => Self::Server(ServerGoal::find(job, url, *ending).await?),
            Side::Standard => return Err(Error::invalid("use `weft cat` to write to standard output")),
        };
        let into = matches!(goal, Self::Tree(TreeGoal::Into { .. }) | Self::Local(LocalGoal::Into(_)))
            || matches!(&goal, Self::Server(goal) if goal.is_directory);
        if several && !into {
            let refused = "several things can only be copied into a directory";
            return Err(Error::new(ErrorKind::NotDirectory, refused));
        }
        Ok(goal)
    }

    /// Returns whether nothing has that name yet.
    pub fn is_new(&self) -> bool {
        matches!(
            self,
            Self::Tree(TreeGoal::Name { is_new: true, .. })
                | Self::Local(LocalGoal::Name { is_new: true, .. })
        )
    }
}

impl TreeGoal {
    async fn find(job: &Job<'_>, path: &RelPath, ending: Ending) -> Result<Self> {
        let (fs, call) = (job.client.fs(), job.client.call());
        let found = fs.walk(&call, &At::root(path.clone()).following(), Want::default()).await;
        let is_new = match found {
            Ok(walked) if walked.attr.kind == Kind::Directory => {
                return Ok(Self::Into { dir: walked.attr.id, path: path.clone() });
            }
            Ok(_) if ending != Ending::Name => return Err(not_a_directory()),
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            Err(_) if ending != Ending::Name => return Err(no_such_directory()),
            found => found.is_err(),
        };
        let path = followed_in_tree(job, path.clone()).await?;
        let (parent, name) = path.split_last().ok_or_else(|| Error::invalid("the root has no name"))?;
        let walked = fs.walk(&call, &At::root(parent).following(), Want::default()).await?;
        Ok(Self::Name { dir: walked.attr.id, name, path, is_new })
    }

    /// Returns the directory and name that something with a name of its own goes to.
    pub fn spot(&self, own: Option<&OsStr>) -> Result<(FileId, Name)> {
        match self {
            Self::Into { dir, .. } => {
                Ok((*dir, Name::new(Bytes::copy_from_slice(own.ok_or_else(nameless)?.as_bytes()))?))
            }
            Self::Name { dir, name, .. } => Ok((*dir, name.clone())),
        }
    }

    /// Returns the path that something with a name of its own goes to; without one, the path that
    /// what is in it goes below.
    pub fn target(&self, own: Option<&OsStr>) -> Target {
        match self {
            Self::Into { path, .. } => Target::tree(path).below(own.map_or(b"".as_slice(), OsStr::as_bytes)),
            Self::Name { path, .. } => Target::tree(path),
        }
    }
}

impl LocalGoal {
    fn find(path: &Path, ending: Ending) -> Result<Self> {
        let failed = |e: io::Error| fault::error(e, "write", path.display());
        let is_new = match std::fs::metadata(path) {
            Ok(there) if there.is_dir() => return Folder::open(path).map(Self::Into),
            Ok(_) if ending != Ending::Name => return Err(not_a_directory()),
            Ok(there) if !there.is_file() => return Ok(Self::Stream(path.to_path_buf())),
            Err(e) if e.kind() == io::ErrorKind::NotADirectory && ending != Ending::Name => {
                return Err(not_a_directory());
            }
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed(e)),
            Err(_) if ending != Ending::Name => return Err(no_such_directory()),
            there => there.is_err(),
        };
        let path = followed(path).map_err(failed)?;
        let name = path.file_name().ok_or_else(nameless)?.to_os_string();
        let folder = Folder::open(path.parent().unwrap_or(Path::new("")))?;
        Ok(Self::Name { folder, name, is_new })
    }
}

/// Returns where symbolic links of the tree lead, to a file that may not be there.
async fn followed_in_tree(job: &Job<'_>, mut path: RelPath) -> Result<RelPath> {
    let (fs, call) = (job.client.fs(), job.client.call());
    for _ in 0..limits::LINK_STEPS_MAX {
        let at = At::root(path.clone());
        match fs.walk(&call, &at, Want::default()).await {
            Ok(walked) if walked.attr.kind == Kind::Symlink => {}
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            _ => return Ok(path),
        }
        let LinkTarget::Symlink(target) = fs.target(&call, &at).await? else { return Ok(path) };
        let above = path.split_last().map_or(RelPath::EMPTY, |(above, _)| above);
        path = match target.strip_prefix(b"/") {
            Some(from_root) => RelPath::new(target.slice_ref(from_root)),
            None if above.is_empty() => RelPath::new(target),
            None => RelPath::new(Bytes::from([above.as_bytes(), b"/", &target].concat())),
        }
        .map_err(|e| Error::invalid("the link does not say where it leads by names alone").caused_by(e))?;
    }
    Err(Error::new(ErrorKind::Loop, "too many symbolic links"))
}

/// Returns where symbolic links lead, to a file that may not be there.
fn followed(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_path_buf();
    for _ in 0..limits::LINK_STEPS_MAX {
        let target = match std::fs::read_link(&path) {
            Ok(target) => target,
            Err(e) if matches!(e.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::NotFound) => {
                return Ok(path);
            }
            Err(e) => return Err(e),
        };
        // What it says is said from where it stands.
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    Err(io::Error::other("too many symbolic links"))
}

/// What is written as a directory, or is to be one, is none.
pub fn not_a_directory() -> Error {
    Error::new(ErrorKind::NotDirectory, "it is not a directory")
}

fn no_such_directory() -> Error {
    Error::not_found("there is no such directory").hint("make it first, or name it without the slash")
}

/// What has no name of its own needs one.
pub fn nameless() -> Error {
    Error::invalid("the source has no name of its own").hint("name the target")
}
