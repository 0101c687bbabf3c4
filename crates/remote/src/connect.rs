//! From an address to a connection: names, a look at each address, TLS.

use std::net::{IpAddr, SocketAddr};

use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use weft_core::{Deadline, Error, ErrorKind, Result, limits};
use weft_sys::Task;
use weft_sys::net::{self, Socket};

use crate::upload::Outgoing;
use crate::{Remote, Url, url};

/// Addresses of this machine that are looked at.
const OWN_ADDRESSES_MAX: usize = 1024;

/// A connection to another server, for one request.
pub(crate) struct Line {
    pub sender: SendRequest<Outgoing>,
    /// Who is at the other end.
    pub address: IpAddr,
    task: Task<()>,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Remote {
    /// Connects to the server of an address. `Denied` if none of its addresses may be spoken to.
    pub(crate) async fn connect(&self, url: &Url) -> Result<Line> {
        let until = Deadline::within(self.sys().clock(), limits::REMOTE_CONNECT_WITHIN);
        let line = async {
            let socket = self.socket(url).await?;
            let address =
                socket.peer().ip().ok_or_else(|| Error::internal("it was connected to an address"))?;
            match url.is_secure() {
                false => self.spoken(socket, address).await,
                true => self.spoken(self.secured(url, socket).await?, address).await,
            }
        };
        self.sys().within(until, line).await.map_err(|error| match error.kind() {
            ErrorKind::Deadline => Error::new(ErrorKind::Deadline, "the server did not answer in time"),
            _ => error,
        })
    }

    /// Connects to the first address that may be spoken to and takes the connection: what was looked at is what is connected to.
    async fn socket(&self, url: &Url) -> Result<Socket> {
        let mut failed = None;
        for address in self.addresses(url).await? {
            match Socket::connect(address).await {
                Ok(socket) => return Ok(socket),
                Err(error) => failed = Some(error),
            }
        }
        let unavailable = Error::new(ErrorKind::Unavailable, "the server cannot be connected to");
        Err(match failed {
            Some(error) => unavailable.caused_by(error),
            None => unavailable,
        })
    }

    async fn addresses(&self, url: &Url) -> Result<Vec<SocketAddr>> {
        let found = match url::literal(url.host()) {
            Some(address) => vec![SocketAddr::new(address, url.port())],
            None => {
                net::resolve(url.host(), url.port(), limits::REMOTE_ADDRESSES_MAX).await.map_err(|error| {
                    Error::new(ErrorKind::Unavailable, "the address of the server cannot be found")
                        .caused_by(error)
                })?
            }
        };
        let own = || net::own_addresses(OWN_ADDRESSES_MAX);
        let admitted = |address: &SocketAddr| self.inner.reach.admits(address.ip(), own);
        let admitted: Vec<SocketAddr> = found.into_iter().filter(admitted).collect();
        if admitted.is_empty() {
            let why = "the server is at no address that this node speaks to";
            let hint = "the node's operator can allow its network: `http.third-party-to`";
            return Err(Error::denied(why).hint(hint));
        }
        Ok(admitted)
    }

    async fn secured(
        &self,
        url: &Url,
        socket: Socket,
    ) -> Result<impl AsyncRead + AsyncWrite + Send + Unpin + 'static> {
        let name = ServerName::try_from(url.host().to_owned())
            .map_err(|error| Error::invalid("no certificate can be for that host").caused_by(error))?;
        self.inner.tls.connect(name, socket).await.map_err(|error| {
            let why = format!("the server's TLS cannot be trusted: {error}");
            Error::new(ErrorKind::Unavailable, why).hint("an authority of its own must be made known here")
        })
    }

    async fn spoken(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        address: IpAddr,
    ) -> Result<Line> {
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(limits::REMOTE_BUFFER_BYTES)
            .max_headers(limits::REMOTE_FIELDS_MAX)
            // Names are of any case, but not to XRootD: it takes an upload with `content-length` for an empty one.
            .title_case_headers(true)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| Error::new(ErrorKind::Unavailable, "the connection ended").caused_by(error))?;
        // Why it ends is told to whoever waits for an answer on it.
        let task = self.sys().spawn(async move { drop(connection.await) });
        Ok(Line { sender, address, task })
    }
}
