//! A node's directory: whose it is, who has it, and what lies where.

use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weft_core::{Error, ErrorKind, Result};
use weft_kv::{Embedded, Engine, Options};
use weft_sys::disk::DiskLock;
use weft_sys::{Disk, RealDisk, ShadowDisk, Sys, fault, process};

use super::format::{self, Format};

const LOCK: &str = "lock";
const HOLDER: &str = "lock.holder";
const META: &str = "meta";
const SOCKET: &str = "node.sock";
/// Where the node's own certificate lies.
pub const TLS: &str = "tls";
/// What lies in a node's directory, or in one that may become a node's: what a start makes, were
/// it cut off anywhere, and what a new file system has.
const OWN: [&str; 11] =
    [LOCK, HOLDER, META, "auth", "objects", TLS, SOCKET, "log", "lost+found", format::FILE, format::MAKING];
/// What only a node has. Any of them marks one, so that a damaged node is still known for one.
const MARKS: [&str; 3] = ["auth/keys", "meta/tree", "objects/objects"];

/// A node's directory, ours as long as this lives.
pub struct NodeDirectory {
    path: PathBuf,
    disk: Arc<dyn Disk>,
    /// Nothing here is to be changed.
    is_shadow: bool,
    /// What was made so that it could be taken: the lock, and directories, the innermost first.
    made: Vec<PathBuf>,
    _lock: Box<dyn DiskLock>,
}

impl NodeDirectory {
    /// Fails unless a directory is a node's or, with `make`, may become one: nothing is there, or
    /// an empty directory, or what a first start that was cut off left. Changes nothing.
    pub fn look(path: &Path, make: bool) -> Result<()> {
        let refused = |error: Error| Err(error.op("use the node's directory").about(path.display()));
        let failed = |e| fault::error(e, "use the node's directory", path.display());
        let metadata = match std::fs::metadata(path) {
            Err(e) if make && e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            found => found.map_err(failed)?,
        };
        if !metadata.is_dir() {
            return refused(Error::new(ErrorKind::NotDirectory, "it is not a directory"));
        }
        if metadata.uid() != process::uid() {
            return refused(Error::not_permitted("it belongs to somebody else"));
        }
        if MARKS.iter().any(|mark| path.join(mark).exists()) {
            return Format::read(&RealDisk::open(path)?)?.check("use the node's directory", path);
        }
        if !make {
            return refused(Error::not_found("there is no node"));
        }
        for entry in std::fs::read_dir(path).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            if !OWN.iter().any(|own| name == *own) {
                let detail = format!("it is not empty and is no node's: it holds {name:?}");
                return refused(Error::new(ErrorKind::NotEmpty, detail).hint("choose an empty directory"));
            }
        }
        Ok(())
    }

    /// Takes a directory for this process, making it if `make` says so. What is neither a
    /// node's nor may become one is refused as it is: see [`NodeDirectory::look`].
    ///
    /// Fails with `Busy` if another process has it, and says which; with `NotFound` if it
    /// is not there; with `NotPermitted` if it belongs to somebody else.
    ///
    /// Fails with `Unsupported` if a newer program wrote it; nothing is touched then.
    pub fn take(path: &Path, make: bool, doing: &str) -> Result<Self> {
        Self::look(path, make)?;
        Self::take_any(path, make, doing)
    }

    /// Takes a directory of whatever program, to look whether somebody has it.
    pub fn take_any(path: &Path, make: bool, doing: &str) -> Result<Self> {
        if make {
            Self::make(path)?;
        }
        let path =
            path.canonicalize().map_err(|e| fault::error(e, "use the node's directory", path.display()))?;
        let failed = |e| fault::error(e, "use the node's directory", path.display());
        if make {
            weft_sys::net::check_local_path(&path.join(SOCKET))?;
        }
        let disk = Arc::new(RealDisk::open(&path)?);
        let lock = disk.lock(LOCK).map_err(|e| taken(e, &path))?;
        let holder = format!("weft {doing}, pid {}", std::process::id());
        match write_closed(&path.join(HOLDER), holder.as_bytes()).map_err(failed) {
            // It only tells others who holds the lock: on a full disk the node starts without it.
            Err(error) if error.kind() == ErrorKind::NoSpace => {}
            written => written?,
        }
        Ok(Self { path, disk, is_shadow: false, made: Vec::new(), _lock: lock })
    }

    /// Takes a directory in which nothing is yet, making it if it is not there. Fails as
    /// [`NodeDirectory::take`] does; with `Exists` if anything but a lock that nobody has lies
    /// there: then nothing is put beside it.
    pub fn take_empty(path: &Path, doing: &str) -> Result<Self> {
        let lock = path.join(LOCK);
        let mut made: Vec<_> =
            path.ancestors().take_while(|above| *above != Path::new("") && !above.exists()).collect();
        if !lock.exists() {
            Self::check_empty(path)?;
            made.insert(0, &lock);
        }
        let made: Vec<_> = made.into_iter().map(Path::to_owned).collect();
        // Another may have come to it first: only directories that are empty still are taken away.
        let unmade = |_: &Error| made.iter().for_each(|dir| drop(std::fs::remove_dir(dir)));
        let taken = Self::take(path, true, doing).inspect_err(unmade)?;
        let directory = Self { made, ..taken };
        // Whoever has it is told before what they put there is.
        match Self::check_empty(path) {
            Ok(()) => Ok(directory),
            Err(error) => directory.release().and(Err(error)),
        }
    }

    /// Makes a directory through which others reach a node's socket and nothing else. One that is
    /// there is closed as far, and stays closed where it is closed to them altogether.
    pub fn make(path: &Path) -> Result<()> {
        let is_new = !path.exists();
        let made = DirBuilder::new().recursive(true).create(path);
        made.map_err(|e| fault::error(e, "make", path.display()))?;
        let failed = |e| fault::error(e, "use the node's directory", path.display());
        // A new one has the bits that the umask leaves: of no meaning here.
        let mode = if is_new { !0 } else { path.metadata().map_err(failed)?.permissions().mode() };
        let socket_only = Permissions::from_mode(0o700 | mode & 0o011);
        std::fs::set_permissions(path, socket_only).map_err(failed)
    }

    /// Keeps in memory what is changed of any part from now on, and the directory as it is.
    #[must_use]
    pub fn shadowed(self) -> Self {
        Self { disk: Arc::new(ShadowDisk::new(self.disk)), is_shadow: true, ..self }
    }

    /// Fails with `Exists` if anything lies at a path but what [`NodeDirectory::take`] makes.
    fn check_empty(path: &Path) -> Result<()> {
        let failed = |e| fault::error(e, "restore to", path.display());
        let entries = match std::fs::read_dir(path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(failed)?,
        };
        for entry in entries {
            let name = entry.map_err(failed)?.file_name();
            if name != LOCK && name != HOLDER {
                return Err(Error::exists("the directory is not empty")
                    .op("restore to")
                    .about(path.display())
                    .hint("name a directory that is not there yet; what an interrupted restore left may be removed"));
            }
        }
        Ok(())
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the uid it belongs to.
    pub fn owner(&self) -> u32 {
        process::uid()
    }

    /// Returns whether a node was ever made here.
    pub fn is_founded(&self) -> bool {
        self.path.join("auth").join("keys").exists()
    }

    /// Fails with `Corrupt` if other parts of a node are here and its metadata is not: a start
    /// would make a new, empty node of the same keys, over the old one's objects.
    pub fn check_metadata(&self) -> Result<()> {
        let has = |path: &str| self.path.join(path).exists();
        if has("meta/tree") || !has("auth/keys") && !has("objects/objects") {
            return Ok(());
        }
        Err(Error::corrupt("meta/tree is not there, and keys or objects of a node are")
            .op("use the node's directory")
            .about(self.path.display())
            .hint("put it back, with all of `meta`; else restore a backup to another directory"))
    }

    /// Says, durably, that this program writes the directory from now on.
    pub fn upgrade(&self) -> Result<()> {
        let (found, own) = (Format::read(&*self.disk)?, Format::own());
        // Another may have had it between the look and the lock.
        found.check("use the node's directory", &self.path)?;
        if found == own {
            return Ok(());
        }
        if self.is_founded() && found.number < own.number {
            let (from, to) = (found.number, own.number);
            tracing::info!(
                from,
                to,
                "the node's directory is upgraded: older programs refuse it from now on"
            );
        }
        match own.write(&*self.disk) {
            // It would only name another version of the same format: on a full disk the node starts as well.
            Err(error) if found.number == own.number && error.kind() == ErrorKind::NoSpace => Ok(()),
            written => written,
        }
    }

    /// Returns the part below a name, closed to everybody else.
    pub fn disk(&self, name: &str) -> Result<Arc<dyn Disk>> {
        let below = self.disk.beneath(name)?;
        if self.is_shadow {
            return Ok(below);
        }
        let path = self.path.join(name);
        std::fs::set_permissions(&path, Permissions::from_mode(0o700))
            .map_err(|e| fault::error(e, "close", path.display()))?;
        Ok(below)
    }

    /// Returns where the node's own certificate lies, made and closed to everybody else.
    pub fn tls(&self) -> Result<PathBuf> {
        let path = self.path.join(TLS);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.map_err(|e| fault::error(e, "make", path.display()))?;
        std::fs::set_permissions(&path, Permissions::from_mode(0o700))
            .map_err(|e| fault::error(e, "close", path.display()))?;
        Ok(path)
    }

    /// Opens the metadata engine.
    pub fn engine(&self, sys: &Sys) -> Result<Arc<dyn Engine>> {
        let opened = Embedded::open(sys.clone(), self.disk(META)?, Options::of_machine());
        Ok(Arc::new(opened.map_err(|error| self.of_metadata(error))?))
    }

    /// Checks every byte that the metadata engine stands on, while nobody has it open.
    pub fn check_engine(&self, sys: &Sys) -> Result<()> {
        let checked = Embedded::check(sys, &self.disk(META)?, Options::of_machine());
        checked.map(drop).map_err(|error| self.of_metadata(error))
    }

    fn of_metadata(&self, error: Error) -> Error {
        let error = error.op("open the metadata in").about(self.path.join(META).display());
        match error.kind() {
            ErrorKind::Corrupt | ErrorKind::Internal if error.advice().is_none() => {
                error.hint("restore the metadata from a backup")
            }
            _ => error,
        }
    }

    /// Returns the path of the socket, with what an earlier process left there gone.
    pub fn fresh_socket(&self) -> Result<PathBuf> {
        let socket = self.path.join(SOCKET);
        match std::fs::remove_file(&socket) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(fault::error(e, "remove", socket.display()))
            }
            _ => Ok(socket),
        }
    }

    /// Gives back a directory that was taken empty as it was, whatever was put there since: a
    /// restore that failed can be tried again. What cannot be taken away is in the next one's way,
    /// which says so.
    pub fn give_up(self) -> Result<()> {
        for name in [META, "auth", "objects"] {
            let _ = std::fs::remove_dir_all(self.path.join(name));
        }
        for name in [format::FILE, format::MAKING] {
            let _ = std::fs::remove_file(self.path.join(name));
        }
        self.clear()?;
        for path in &self.made {
            let _ = if path.is_dir() { std::fs::remove_dir(path) } else { std::fs::remove_file(path) };
        }
        Ok(())
    }

    /// Gives the directory back: others see at once that nobody has it.
    pub fn release(self) -> Result<()> {
        self.clear()
    }

    /// Takes away what says who has it.
    fn clear(&self) -> Result<()> {
        for name in [SOCKET, HOLDER] {
            let path = self.path.join(name);
            match std::fs::remove_file(&path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    return Err(fault::error(e, "remove", path.display()));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Writes a file that only we may read.
pub fn write_closed(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    // What an earlier build left there may be open to others.
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(bytes)
}

fn taken(error: Error, path: &Path) -> Error {
    if error.kind() != ErrorKind::Busy {
        return error;
    }
    let holder = std::fs::read_to_string(path.join(HOLDER)).unwrap_or_default();
    let holder = if holder.is_empty() { "another process" } else { &holder };
    Error::new(ErrorKind::Busy, format!("{holder} has it"))
        .op("use the node's directory")
        .about(path.display())
        .hint("weft down")
}
