//! Listening sockets.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{TcpListener, UnixListener};
use weft_core::{Error, ErrorKind, Result};

use super::Socket;
use crate::fault;

/// A socket that others connect to: a port of this machine, or a local socket's path.
#[derive(Debug)]
pub struct Listener {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Tcp(TcpListener, SocketAddr),
    Local(UnixListener, PathBuf),
}

impl Listener {
    /// Listens on an address. Port 0 lets the machine choose: see [`Listener::address`].
    pub async fn bind(address: SocketAddr) -> Result<Self> {
        let listen = async {
            let listener = TcpListener::bind(address).await?;
            let address = listener.local_addr()?;
            Ok(Self { kind: Kind::Tcp(listener, address) })
        };
        listen.await.map_err(|error| fault::error(error, "listen on", address))
    }

    /// Listens on a local socket with these permission bits. A socket that a process that is gone
    /// left there is replaced; one that answers is `Exists`.
    pub fn bind_local(path: &Path, mode: u32) -> Result<Self> {
        check_local_path(path)?;
        let listen = || {
            if is_socket(path) {
                match std::os::unix::net::UnixStream::connect(path) {
                    Ok(_) => return Err(rustix::io::Errno::EXIST.into()),
                    Err(_) => std::fs::remove_file(path)?,
                }
            }
            let listener = UnixListener::bind(path)?;
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
            Ok(Self { kind: Kind::Local(listener, path.to_owned()) })
        };
        listen().map_err(|error| fault::error(error, "listen on", path.display()))
    }

    /// Returns the address listened on; none for a local socket.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.kind {
            Kind::Tcp(_, address) => Some(*address),
            Kind::Local(..) => None,
        }
    }

    /// Waits for somebody to connect.
    pub async fn accept(&self) -> io::Result<Socket> {
        match &self.kind {
            Kind::Tcp(listener, _) => {
                let (stream, peer) = listener.accept().await?;
                Socket::tcp(stream, peer)
            }
            Kind::Local(listener, _) => Socket::local(listener.accept().await?.0),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Kind::Local(_, path) = &self.kind {
            // Whoever looks for the socket should find nothing rather than nobody.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Bytes of a local socket's path that this machine takes: `sun_path`, less its end.
const LOCAL_PATH_BYTES_MAX: usize = 107;

/// Fails with `TooLong` if a path is longer than a local socket's may be.
pub fn check_local_path(path: &Path) -> Result<()> {
    let bytes = path.as_os_str().len();
    if bytes <= LOCAL_PATH_BYTES_MAX {
        return Ok(());
    }
    let detail = format!("the socket's path has {bytes} bytes, and the machine takes {LOCAL_PATH_BYTES_MAX}");
    Err(Error::new(ErrorKind::TooLong, detail)
        .op("listen on")
        .about(path.display())
        .hint("choose a directory with a shorter path"))
}

fn is_socket(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

/// Lets this process hold as many descriptors as its user may ask for. Returns how many.
pub fn raise_descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum.unwrap_or(u64::MAX),
        Err(_) => limit.current.unwrap_or(u64::MAX),
    }
}
