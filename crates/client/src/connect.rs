//! Finding a node and proving who one is to it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use weft_core::attr::Changed;
use weft_core::form::{Ack, At, Call, Door, Entry, FileSystem, Origin, Whole, Wire};
use weft_core::proof::{Attenuation, Caller, Revocations, Signed, Trust};
use weft_core::service::Evidence;
use weft_core::{Deadline, DomainId, Error, ErrorKind, Result, SessionId, TraceId, limits};
use weft_rpc::{As, Connection, Remote};
use weft_sys::Sys;
use weft_sys::net::Socket;

use crate::credential::{self, Found};
use crate::together::Together;

/// Where a node is: its directory, in which its socket lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place(PathBuf);

impl Place {
    /// The node whose data lie in `dir`.
    pub fn of_directory(dir: impl Into<PathBuf>) -> Self {
        Self(dir.into())
    }

    /// Returns the directory.
    pub fn directory(&self) -> &Path {
        &self.0
    }

    /// Returns the path of the node's socket.
    pub fn socket(&self) -> PathBuf {
        self.0.join("node.sock")
    }
}

/// A connection to a node, as one caller, in one session.
pub struct Client {
    remote: Arc<Remote>,
    caller: Caller,
    session: SessionId,
    traces: AtomicU64,
    together: Arc<Together>,
}

impl Client {
    /// Connects with the credential that [`credential::discover`] finds, or as the uid
    /// of this process if there is none.
    ///
    /// Fails with `Unavailable` if nothing listens there.
    pub async fn connect(sys: &Sys, place: &Place) -> Result<Self> {
        let mut client = Self::over(dial(sys, place).await?, None)?;
        if let Some(found) = credential::discover(client.domain())? {
            client.caller = client.proved(found).await?;
        }
        Ok(client)
    }

    /// Returns the caller that something found proves: of a token, with the credential that the node
    /// gives for it.
    async fn proved(&self, found: Found) -> Result<Caller> {
        let signed = match found {
            Found::Credential(signed) => signed,
            Found::Token(token) => {
                let evidence = Evidence::Token(token);
                let signed = self.remote.login(evidence, Attenuation::NONE, limits::CREDENTIAL_LIFE).await;
                signed.map_err(|e| e.op("use the token").hint("weft token ls shows those that work"))?
            }
        };
        verify(self.remote.connection(), &signed)
    }

    /// Connects as the uid of this process, whatever credentials lie about.
    pub async fn connect_as_self(sys: &Sys, place: &Place) -> Result<Self> {
        Self::over(dial(sys, place).await?, None)
    }

    /// Connects for somebody else, with their credential, or as anyone: whoever the uid of this process is to the
    /// node, they are not.
    ///
    /// Fails with `Unavailable` if nothing listens there, and as the node's keys have it for the credential.
    pub async fn connect_for(sys: &Sys, place: &Place, credential: Option<&Signed>) -> Result<Self> {
        Self::speaking(dial(sys, place).await?, credential, As::Anyone)
    }

    /// Speaks over a connection that is open already, with a credential or without.
    pub fn over(connection: Connection, credential: Option<&Signed>) -> Result<Self> {
        Self::speaking(connection, credential, As::Connection)
    }

    fn speaking(connection: Connection, credential: Option<&Signed>, speaks_as: As) -> Result<Self> {
        let caller = credential.map_or(Ok(Caller::anyone()), |signed| verify(&connection, signed))?;
        let sys = connection.sys().clone();
        let session = SessionId(u128::from(sys.clock().tick().0) << 32 | u128::from(std::process::id()));
        let traces = AtomicU64::new(sys.clock().now().nanos() as u64);
        let remote = Arc::new(Remote::new(connection, speaks_as));
        Ok(Self { remote, caller, session, traces, together: Arc::default() })
    }

    /// Returns the node.
    pub fn remote(&self) -> &Arc<Remote> {
        &self.remote
    }

    /// Returns the tree of names.
    pub fn fs(&self) -> Arc<dyn FileSystem> {
        self.remote.clone()
    }

    /// Returns the node's domain.
    pub fn domain(&self) -> DomainId {
        self.remote.connection().welcome().domain
    }

    /// Returns the system.
    pub fn sys(&self) -> &Sys {
        self.remote.connection().sys()
    }

    /// Returns as whom calls are made: `anyone` stands for the uid of this process.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Returns the caller that calls should be made as from now on, with a credential as
    /// fresh as can be had: the one that is found now, or one the node gives to the uid
    /// of this process.
    pub async fn fresh_caller(&self) -> Result<Caller> {
        if let Some(found) = credential::discover(self.domain())? {
            return self.proved(found).await;
        }
        let signed =
            self.remote.credential(&Caller::anyone(), Attenuation::default(), limits::CREDENTIAL_LIFE).await;
        match signed {
            Ok(signed) => verify(self.remote.connection(), &signed),
            // Whoever is nobody to the node stays nobody.
            Err(e)
                if matches!(
                    e.kind(),
                    ErrorKind::Unauthenticated | ErrorKind::NotPermitted | ErrorKind::Denied
                ) =>
            {
                Ok(Caller::anyone())
            }
            Err(e) => Err(e),
        }
    }

    /// Verifies a credential by the keys that the node showed, and returns what it says.
    pub fn verify(&self, signed: &Signed) -> Result<Caller> {
        verify(self.remote.connection(), signed)
    }

    /// Makes bytes, [`limits::PIECE_BYTES_MAX`] at most, the file at an address, durably: see
    /// [`Remote::put`]. Others that are made at the same time go to the node together with it.
    pub async fn put(&self, at: At, bytes: Bytes, whole: Whole) -> Result<Changed<Entry>> {
        let call = self.call_within(limits::publish_within(bytes.len() as u64));
        self.together.put(&self.remote, &call, (at, bytes, whole)).await
    }

    /// Returns the session that calls belong to.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Returns a call with the usual deadline, durable when it is answered.
    pub fn call(&self) -> Call {
        self.call_within(limits::CALL_DEADLINE)
    }

    /// Returns a call with a deadline of its own.
    pub fn call_within(&self, span: Duration) -> Call {
        Call {
            caller: self.caller.clone(),
            session: self.session,
            until: Deadline::within(self.sys().clock(), span),
            trace: TraceId(self.traces.fetch_add(1, Ordering::Relaxed)),
            from: Origin { door: Door::Native, peer: None, uid: None },
            once: None,
            ack: Ack::Durable,
            wire: Wire::Private,
        }
    }
}

/// How long a node may take to say welcome.
const WELCOME_WITHIN: Duration = Duration::from_secs(10);

async fn dial(sys: &Sys, place: &Place) -> Result<Connection> {
    let socket = place.socket();
    let line = Socket::connect_local(&socket).await.map_err(|cause| {
        let hint = format!("weft up {}", place.directory().display());
        Error::new(ErrorKind::Unavailable, "no node answers there")
            .op("reach the node at")
            .about(place.directory().display())
            .hint(hint)
            .caused_by(cause)
    })?;
    Connection::open_local(sys, line, Deadline::within(sys.clock(), WELCOME_WITHIN)).await
}

/// Verifies our own credential by the keys the node showed: one that has run out is
/// said so before anything is asked.
fn verify(connection: &Connection, signed: &Signed) -> Result<Caller> {
    let welcome = connection.welcome();
    let mut trust = Trust::none();
    trust.add_domain(welcome.domain);
    for certificate in &welcome.certificates {
        trust.add(certificate)?;
    }
    Caller::verify(signed, &trust, &Revocations::new(), connection.sys().clock().moment()).map_err(|e| {
        Error::new(e.kind(), "the stored credential is not valid here").hint("weft login").caused_by(e)
    })
}
