//! A node in small: the model, two users, and the door on a port of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use weft_conformance::{TestAuthority, TestDomain, TestNameLocks, TestSessions};
use weft_core::acl::{AclEntry, Who};
use weft_core::attr::SetAttr;
use weft_core::form::{At, BytesSource, Call, FileSystem, Guard, New, Scope, StageHint};
use weft_core::model::Model;
use weft_core::policy::PolicyEdit;
use weft_core::service::{Authority, Revoke};
use weft_core::{Clock, RelPath, Rights, Tick, Time, VolumeId};
use weft_doors_http::{Http, Services, Settings};
use weft_doors_listener::{Bounds, Listener, Stopper, shutdown};
use weft_mover::Mover;
use weft_remote::{Reach, Remote, Roots};
use weft_sys::Sys;

use crate::secured;

/// The clock of a system, for those who want one of their own.
struct SysClock(Sys);

impl Clock for SysClock {
    fn now(&self) -> Time {
        self.0.clock().now()
    }
    fn tick(&self) -> Tick {
        self.0.clock().tick()
    }
}

/// What speaks to other servers: those of 127.0.0.1, and no others of this machine.
fn remote(sys: &Sys) -> Remote {
    let loopback = "127.0.0.1".parse().expect("a network");
    let reach = Reach::public(vec![loopback]);
    Remote::new(sys.clone(), reach, &Roots::default()).expect("TLS can be set up")
}

pub struct House {
    pub address: SocketAddr,
    pub fs: Arc<Model>,
    pub domain: Arc<TestDomain>,
    pub sessions: Arc<TestSessions>,
    pub mover: Arc<Mover>,
    authority: Arc<TestAuthority>,
    stopper: Option<Stopper>,
    serving: tokio::task::JoinHandle<()>,
}

/// Alice's password.
pub const PASSWORD: &str = "correct horse";

impl House {
    /// Opens a house: alice owns everything, anyone may read below `/public`, add to `/drop`
    /// and so, since a grant reaches up, pass through `/`, but not through `/private`.
    pub async fn open() -> Self {
        Self::with(Bounds::default()).await
    }

    pub async fn with(bounds: Bounds) -> Self {
        Self::on(Sys::real(), bounds).await
    }

    /// Opens a house on a system, whose clock may be moved by hand.
    pub async fn on(sys: Sys, bounds: Bounds) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SysClock(sys.clone()));
        let domain = TestDomain::new(7, clock.clone(), &[VolumeId(0)]);
        let fs = Model::new(clock, domain.clone(), &domain.name("alice"));
        let sessions = Arc::new(TestSessions::default());
        let authority = TestAuthority::new(domain.clone(), &[("alice", PASSWORD), ("bob", "b")]);
        let mover = Arc::new(Mover::new(sys.clone()));
        let services = Services {
            sys: sys.clone(),
            authority: authority.clone(),
            sessions: sessions.clone(),
            fs: fs.clone(),
            locks: Arc::new(TestNameLocks::default()),
            links: None,
            mover: mover.clone(),
            remote: Some(remote(&sys)),
        };
        let http = Http::new(&Settings::default(), services);
        let port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = Listener::bind(sys, port, bounds).await.expect("a port is free");
        let listener = match secured::tls() {
            None => listener,
            Some(tls) => listener.secured(secured::identity(tls)),
        };
        let address = listener.address().expect("it is a port");
        let (stopper, shutdown) = shutdown();
        let serving = tokio::spawn(http.serve(listener, shutdown));
        let house = Self { address, fs, domain, sessions, mover, authority, stopper: Some(stopper), serving };
        for name in ["public", "drop", "private"] {
            house.make_directory(name).await;
        }
        let read = Rights::READ | Rights::LIST | Rights::TRAVERSE | Rights::ATTR_READ;
        house.protect("private", Who::Caller(house.domain.name("alice")), Rights::ALL).await;
        house.protect("public", Who::Anyone, read).await;
        house.protect("drop", Who::Anyone, Rights::INSERT | Rights::TRAVERSE).await;
        house
    }

    /// Takes something back, as the administrator.
    pub async fn authority_revoke(&self, what: &Revoke) {
        let alice = self.domain.caller("alice");
        self.authority.revoke(&alice, what).await.expect("it is revoked");
    }

    /// Gives a user another password, and ends nothing: what is remembered must run out.
    pub fn set_password(&self, user: &str, password: &str) {
        self.authority.set_password(user, password);
    }

    /// Returns a call by a user of this house.
    pub fn call(&self, user: &str) -> Call {
        self.domain.call(&self.domain.caller(user), 1)
    }

    /// Returns a token that is alice's credential.
    pub fn token(&self) -> String {
        self.domain.credential(&self.domain.claims("alice")).to_token()
    }

    pub async fn make_directory(&self, path: &str) {
        let made = self.fs.make(&self.call("alice"), &at(path), New::Directory, &SetAttr::default()).await;
        made.expect("the directory is made");
    }

    /// Gives a subtree a policy of its own.
    pub async fn protect(&self, path: &str, who: Who, rights: Rights) {
        let call = self.call("alice");
        let mut acl = self.fs.policy(&call, &at(path)).await.expect("alice may see it").acl;
        acl.entries.push(AclEntry::allow(who, rights));
        let edit = PolicyEdit { acl: Some(acl), ..PolicyEdit::default() };
        let done = self.fs.protect(&call, &at(path), Scope::Subtree, &edit).await;
        done.expect("the policy is set");
    }

    /// Sets how many bytes the files of a container may take together.
    pub async fn limit(&self, path: &str, bytes: u64) {
        let edit = PolicyEdit { bytes_max: Some(Some(bytes)), ..PolicyEdit::default() };
        let done = self.fs.protect(&self.call("alice"), &at(path), Scope::Container, &edit).await;
        done.expect("the limit is set");
    }

    /// Puts a file there, past the door.
    pub async fn put(&self, path: &str, bytes: impl Into<Bytes>) {
        let call = self.call("alice");
        let bytes = bytes.into();
        let hint = StageHint { length: Some(bytes.len() as u64), ..StageHint::default() };
        let stage = self.fs.stage(&call, &at(path), &hint).await.expect("a stage");
        stage.put(&call, 1, 0, &mut BytesSource::new(bytes)).await.expect("it is staged");
        stage.publish(&call, &[], &SetAttr::default(), &Guard::NONE).await.expect("it is published");
    }

    /// Returns how many stages there are below the root.
    pub async fn stages(&self) -> usize {
        let stages = self.fs.stages(&self.call("alice"), &at(""), None).await;
        stages.expect("alice may ask").stages.len()
    }

    /// Returns a file's bytes, past the door; `None` if there is nothing.
    pub async fn read(&self, path: &str) -> Option<Bytes> {
        let call = self.call("alice");
        let how = weft_core::form::OpenHow { need: Rights::READ, ..Default::default() };
        let opened = self.fs.open(&call, &at(path), &how).await.ok()?;
        let mut source = opened.file.read(&call, weft_core::form::Range::ALL).await.expect("it is read");
        Some(weft_core::form::collect(&mut *source, 1 << 30).await.expect("it is read"))
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Stops the door; returns once everybody has left.
    pub async fn stop(&mut self) {
        self.stopper.take();
        let stopped = tokio::time::timeout(Duration::from_secs(30), &mut self.serving).await;
        stopped.expect("it stops in time").expect("it did not panic");
    }
}

pub fn at(path: &str) -> At {
    At::root(RelPath::try_from(path).expect("tests use good paths"))
}
