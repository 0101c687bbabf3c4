//! The native protocol, both ends of it, over a line in memory.

mod attacks;
mod borrowed;
mod bounds;
mod given_up;
mod lent;
mod services;
mod silent;
mod slow;
mod suite;
mod whole;

use std::sync::Arc;
use std::time::Duration;

use weft_conformance::{TestAuthority, TestDomain, TestSessions};
use weft_core::form::{Door, Origin, Supports};
use weft_core::model::Model;
use weft_core::service::{Secret, SessionGrant, Sessions};
use weft_core::{Deadline, DomainId, SessionId, VolumeId};
use weft_doors_native::{OpenTables, Services, Uids, serve};
use weft_rpc::{As, Connection, Remote, ToClient, Welcome};
use weft_sys::Sys;

/// The administrator of every test's tree, and a password that is known.
const ADMINISTRATOR: &str = weft_conformance::file_system::ADMINISTRATOR;

/// As whom every client is known, if nothing else is said.
const UID: u32 = 1000;

/// From where a client asks: what it says of that nobody believes.
const HERE: Origin = Origin { door: Door::Native, peer: None, uid: Some(0) };

/// How a server answers who greets it that speaks versions up to one.
fn welcome(domain: DomainId, version: u16, supports: Supports) -> ToClient {
    ToClient::Welcome(Box::new(Welcome { version, domain, certificates: Vec::new(), supports }))
}

/// How it answers who begins a session under a number.
fn begun(session: u32) -> ToClient {
    let grant = SessionGrant { id: SessionId(1), secret: Secret::new("") };
    ToClient::Begun { session, outcome: Ok(grant) }
}

/// A server over the plain model, and a client of it.
struct World {
    sys: Sys,
    domain: Arc<TestDomain>,
    sessions: Arc<TestSessions>,
    services: Arc<Services>,
    model: Arc<Model>,
}

impl World {
    fn new() -> Self {
        Self::on(Sys::real())
    }

    fn on(sys: Sys) -> Self {
        let domain = TestDomain::new(3, Arc::new(sys.clone()), &[VolumeId(0)]);
        let model = Model::with_timer(
            Arc::new(sys.clone()),
            Arc::new(sys.clone()),
            domain.clone(),
            &domain.name(ADMINISTRATOR),
        );
        let sessions = Arc::<TestSessions>::default();
        let opens = Arc::<OpenTables>::default();
        sessions.watch(model.clone());
        sessions.watch(opens.clone());
        let home = services::Home::new(domain.clone());
        let services = Arc::new(Services {
            sys: sys.clone(),
            fs: model.clone(),
            authority: TestAuthority::new(domain.clone(), &[("alice", "correct")]),
            accounts: home.clone(),
            sessions: sessions.clone(),
            audit: home.clone(),
            node: home.clone(),
            links: home.clone(),
            tokens: home,
            domain: domain.id(),
            certificates: Arc::new(|| Ok(Vec::new())),
            opens,
            uids: Uids::default(),
        });
        Self { sys, domain, sessions, services, model }
    }

    /// Returns the client's end of a line whose other end is served as uid [`UID`].
    fn line(&self) -> tokio::io::DuplexStream {
        self.line_of(UID)
    }

    /// The same of some uid.
    fn line_of(&self, uid: u32) -> tokio::io::DuplexStream {
        let (here, there) = tokio::io::duplex(256 << 10);
        let services = self.services.clone();
        drop(self.sys.spawn(async move { serve(services, there, uid).await }));
        here
    }

    async fn connect(&self) -> Connection {
        let until = Deadline::within(self.sys.clock(), Duration::from_secs(10));
        Connection::open(&self.sys, self.line(), until).await.expect("the server says welcome")
    }

    async fn remote(&self) -> Arc<Remote> {
        Arc::new(Remote::new(self.connect().await, As::Anyone))
    }
}
