//! What a door proves itself by: files that may change while it runs.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use weft_core::{Error, ErrorKind, Result, limits};
use weft_sys::net::{Tls, TlsSettings};
use weft_sys::{fault, process};

/// Where a door's certificate lies, and its key.
#[derive(Clone, Debug)]
pub struct Files {
    /// The certificate, and those between it and its authority: PEM.
    pub chain: PathBuf,
    /// The key: PEM, closed to everybody but its owner, who runs this.
    pub key: PathBuf,
}

/// A door's identity. Connections take what it is when they begin.
pub struct Identity {
    files: Files,
    protocols: &'static [&'static [u8]],
    now: ArcSwap<Tls>,
    /// The files as they were last looked at, whether or not they were good.
    seen: Mutex<Stamps>,
}

/// What tells one state of each file from another.
type Stamps = Vec<Option<(u64, u64, i64, i64)>>;

impl Identity {
    /// Reads the files. The protocols are what the door speaks, the best first. Fails if they
    /// cannot be used, or others can read the key.
    pub fn load(files: Files, protocols: &'static [&'static [u8]]) -> Result<Arc<Self>> {
        // Looked at before they are read: what changes meanwhile is read again.
        let seen = Mutex::new(files.stamps());
        let now = ArcSwap::from_pointee(files.read(protocols)?);
        Ok(Arc::new(Self { files, protocols, now, seen }))
    }

    /// Returns what a new connection is secured with.
    pub fn now(&self) -> Arc<Tls> {
        self.now.load_full()
    }

    /// Returns where the files lie.
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// Reads the files again if they changed since they were last looked at; with `anyway`, in any
    /// case. Returns whether there is something new. If they cannot be used, what was stays.
    pub fn refresh(&self, anyway: bool) -> Result<bool> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let stamps = self.files.stamps();
        if *seen == stamps && !anyway {
            return Ok(false);
        }
        *seen = stamps;
        self.now.store(Arc::new(self.files.read(self.protocols)?));
        Ok(true)
    }
}

impl Files {
    fn read(&self, protocols: &[&[u8]]) -> Result<Tls> {
        let (chain, key) = (read_public(&self.chain)?, read_secret(&self.key)?);
        let settings = TlsSettings { chain: &chain, key: key.as_bytes(), protocols };
        let of = |error: Error| error.op("use the certificate in").about(self.chain.display());
        Tls::server(&settings).map_err(of)
    }

    fn stamps(&self) -> Stamps {
        let stamp = |path: &PathBuf| {
            let found = std::fs::metadata(path).ok()?;
            Some((found.dev(), found.ino(), found.mtime(), found.mtime_nsec()))
        };
        [&self.chain, &self.key].into_iter().map(stamp).collect()
    }
}

fn read_public(path: &Path) -> Result<Vec<u8>> {
    const OP: &str = "read the certificate in";
    let failed = |error| fault::error(error, OP, path.display());
    // A pipe put there must not make us wait.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(Error::invalid("it is not a regular file").op(OP).about(path.display()));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(limits::TLS_FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

fn read_secret(path: &Path) -> Result<String> {
    const OP: &str = "read the key in";
    // Tools that renew certificates keep links to the newest.
    let target = path.canonicalize().map_err(|error| fault::error(error, OP, path.display()))?;
    let gone = || Error::new(ErrorKind::NotFound, "it is gone").op(OP).about(path.display());
    process::read_private(&target, limits::TLS_FILE_BYTES_MAX)?.ok_or_else(gone)
}
