//! What a door proves itself by: files that may change while it runs.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    state: Mutex<State>,
}

struct State {
    /// The files as they were last looked at, whether or not they were good.
    seen: Stamps,
    /// Of which authorities clients are asked for a certificate, if they are asked for any.
    clients: Option<Vec<Vec<u8>>>,
}

/// What tells one state of each file from another.
type Stamps = Vec<Option<(u64, u64, i64, i64)>>;

impl Identity {
    /// Reads the files. The protocols are what the door speaks, the best first. Fails if they
    /// cannot be used, or others can read the key.
    pub fn load(files: Files, protocols: &'static [&'static [u8]]) -> Result<Arc<Self>> {
        // Looked at before they are read: what changes meanwhile is read again.
        let state = Mutex::new(State { seen: files.stamps(), clients: None });
        let now = ArcSwap::from_pointee(files.read(protocols, None)?);
        Ok(Arc::new(Self { files, protocols, now, state }))
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
        let mut state = self.state();
        let stamps = self.files.stamps();
        if state.seen == stamps && !anyway {
            return Ok(false);
        }
        state.seen = stamps;
        self.now.store(Arc::new(self.files.read(self.protocols, state.clients.as_deref())?));
        Ok(true)
    }

    /// Asks clients for a certificate from now on, of authorities of these names (DER, without the outermost head), or
    /// for none. Nobody needs to have one. If the files cannot be used just now, the next look at them does it.
    pub fn ask_clients(&self, clients: Option<Vec<Vec<u8>>>) -> Result<()> {
        let mut state = self.state();
        if state.clients == clients {
            return Ok(());
        }
        let stamps = self.files.stamps();
        *state = State { seen: Vec::new(), clients };
        self.now.store(Arc::new(self.files.read(self.protocols, state.clients.as_deref())?));
        state.seen = stamps;
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change leaves it whole, so a panic elsewhere cannot spoil it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Files {
    fn read(&self, protocols: &[&[u8]], clients: Option<&[Vec<u8>]>) -> Result<Tls> {
        let (chain, key) = (read_public(&self.chain)?, read_secret(&self.key)?);
        let settings = TlsSettings { chain: &chain, key: key.as_bytes(), protocols, clients };
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
