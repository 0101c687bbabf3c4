//! A node's auth on a simulated machine, that can be stopped, killed and started again.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use weft_auth::{Auth, FirstPassword, Founded, Settings};
use weft_core::acl::{Acl, AclEntry, Ask, Decision, Who, decide};
use weft_core::form::{Door, Origin};
use weft_core::proof::{Attenuation, Caller, Objects};
use weft_core::service::{Evidence, NewUser, Secret};
use weft_core::{CallerName, ContainerId, Result, Rights, VolumeId};
use weft_kv::{Ack, Embedded, Engine, Options, Order, SpaceId, Txn, prefix_end};
use weft_sys::{Disk, FlushSite, SimDisk, Sys, simulate};

/// Auth's part of the engine.
pub const SPACE: u8 = 2;
/// The administrator's password.
pub const ROOT_WORD: &str = "correct horse";
/// The uid that made the node.
pub const FOUNDER_UID: u32 = 1000;
/// Where requests come from.
pub const SOCKET: Origin = Origin { door: Door::Native, peer: None, uid: None };

/// A running auth, and what it stands on.
pub struct Scene {
    pub sys: Sys,
    pub disk: SimDisk,
    pub engine: Arc<Embedded>,
    pub auth: Auth,
    pub founded: Option<Founded>,
}

/// Runs a test on a simulated machine.
pub fn scene<T, F: Future<Output = T>>(seed: u64, work: impl FnOnce(Scene) -> F) -> T {
    simulate(seed, |sys| async move { work(Scene::start(&sys, SimDisk::new()).await).await })
}

/// Settings with a given password.
pub fn settings() -> Settings {
    Settings {
        founder_uid: Some(FOUNDER_UID),
        founder_password: FirstPassword::Given(Secret::new(ROOT_WORD)),
        volumes: vec![VolumeId(0), VolumeId(7)],
        ..Settings::default()
    }
}

impl Scene {
    pub async fn start(sys: &Sys, disk: SimDisk) -> Self {
        Self::try_start(sys, disk, settings()).await.expect("it starts")
    }

    pub async fn try_start(sys: &Sys, disk: SimDisk, settings: Settings) -> Result<Self> {
        Self::start_with(sys, disk, settings, Options::default()).await
    }

    pub async fn start_with(sys: &Sys, disk: SimDisk, settings: Settings, kv: Options) -> Result<Self> {
        let engine = Arc::new(Embedded::open(sys.clone(), disk.beneath("kv")?, kv)?);
        let below = disk.beneath("auth")?;
        disk.sync_dir("", FlushSite::KvLogDir)?;
        let (auth, founded) =
            Auth::open(sys.clone(), engine.clone(), SpaceId(SPACE), below, settings).await?;
        Ok(Self { sys: sys.clone(), disk, engine, auth, founded })
    }

    /// Stops it cleanly and starts it again.
    pub async fn restart(self) -> Self {
        self.auth.close().await.expect("it closes");
        let Self { sys, disk, engine, auth, .. } = self;
        drop(auth);
        engine.close().await.expect("it closes");
        Self::start(&sys, disk.kill()).await
    }

    /// Stops it cleanly and starts it again with these settings.
    pub async fn restart_with(self, settings: Settings) -> Self {
        self.auth.close().await.expect("it closes");
        let Self { sys, disk, engine, auth, .. } = self;
        drop(auth);
        engine.close().await.expect("it closes");
        Self::try_start(&sys, disk.kill(), settings).await.expect("it starts")
    }

    /// Ends the process, not the machine, and starts it again.
    pub async fn restart_uncleanly(self) -> Self {
        let Self { sys, disk, engine, auth, .. } = self;
        let disk = disk.kill();
        drop((auth, engine));
        Self::start(&sys, disk).await
    }

    /// Cuts the power and starts it again.
    pub async fn crash(self, seed: u64) -> Self {
        let Self { sys, disk, engine, auth, .. } = self;
        let disk = disk.crash(seed);
        drop((auth, engine));
        Self::start(&sys, disk).await
    }

    /// Starts it from a copy of its disk as of a while ago, as a restore does.
    pub async fn restore(sys: &Sys, disk: SimDisk) -> Self {
        let kv = disk.beneath("kv").expect("it is there");
        let engine = Embedded::open(sys.clone(), kv, Options::default()).expect("it opens");
        let engine: Arc<dyn Engine> = Arc::new(engine);
        weft_auth::after_restore(sys, engine.clone(), SpaceId(SPACE)).await.expect("it can be written");
        engine.close().await.expect("it closes");
        drop(engine);
        Self::start(sys, disk.kill()).await
    }

    pub async fn login(&self, user: &str, password: &str) -> Result<Caller> {
        self.login_from(user, password, None).await
    }

    pub async fn login_from(&self, user: &str, password: &str, peer: Option<IpAddr>) -> Result<Caller> {
        let evidence = Evidence::Password { user: user.to_owned(), password: Secret::new(password) };
        self.auth.authority().authenticate(&evidence, Origin { door: Door::Http, peer, uid: None }).await
    }

    pub async fn token(&self, token: &str) -> Result<Caller> {
        self.auth.authority().authenticate(&Evidence::Token(Secret::new(token)), SOCKET).await
    }

    pub async fn uid(&self, uid: u32) -> Caller {
        self.auth
            .authority()
            .authenticate(&Evidence::SocketUid(uid), SOCKET)
            .await
            .expect("a uid is somebody")
    }

    pub async fn admin(&self) -> Caller {
        let admin = self.uid(FOUNDER_UID).await;
        assert_eq!(admin.name().local(), "admin");
        admin
    }

    pub async fn add_user(&self, name: &str, password: &str) -> CallerName {
        let user = NewUser { name: name.to_owned(), password: Some(Secret::new(password)), uid: None };
        let admin = self.admin().await;
        self.auth.accounts().add_user(&admin, &user).await.expect("it is new").name
    }

    /// Returns an unlimited credential of the caller as a token.
    pub async fn token_of(&self, caller: &Caller) -> String {
        let life = Duration::from_secs(12 * 3600);
        let signed = self.auth.authority().credential(caller, &Attenuation::default(), life).await;
        signed.expect("it may").to_token()
    }

    pub fn name(&self, text: &str) -> CallerName {
        CallerName::parse(text, self.auth.domain()).expect("a good name")
    }

    /// Returns the decision that gives `rights` on a container of volume 0 to the caller.
    pub fn decision(&self, caller: &Caller, rights: Rights) -> Decision {
        self.decision_on(caller, rights, Objects::All, 1)
    }

    pub fn decision_on(&self, caller: &Caller, rights: Rights, objects: Objects, epoch: u64) -> Decision {
        decision_at(&self.sys, caller, rights, objects, epoch)
    }

    pub fn pass(&self, span: Duration) {
        self.sys.sim_clock().expect("it is simulated").step(span);
    }
}

/// A container of volume 0.
pub fn box_0() -> ContainerId {
    ContainerId::new(VolumeId(0), 5)
}

/// Returns the decision that gives the caller `read` on a container of volume 0.
pub fn read_decision(sys: &Sys, caller: &Caller) -> Decision {
    decision_at(sys, caller, Rights::READ, Objects::All, 1)
}

fn decision_at(sys: &Sys, caller: &Caller, rights: Rights, objects: Objects, epoch: u64) -> Decision {
    let who = if caller.is_anyone() { Who::Anyone } else { Who::Caller(caller.name().clone()) };
    let acl = Acl::new(vec![AclEntry::allow(who, rights)]);
    let now = sys.clock().moment();
    decide(&acl, caller, &Ask { container: box_0(), epoch, rights, objects, now, peer: None })
}

/// Returns every row that auth keeps.
pub fn all_rows(engine: &dyn Engine) -> BTreeMap<Bytes, Bytes> {
    let snapshot = engine.snapshot().expect("it runs");
    snapshot.scan(&[SPACE], &prefix_end(&[SPACE]), Order::Rising).collect::<Result<_>>().expect("rows")
}

/// Rewrites the rows as version 1 had them: without checksums, lines of those who lost nothing, and
/// a count of withdrawals.
pub async fn as_version_1(engine: &dyn Engine) {
    let rows = all_rows(engine);
    let act = move |txn: &mut dyn Txn| {
        for (key, value) in &rows {
            match key[1] {
                b's' => {}
                b'w' => txn.delete(key)?,
                b'l' if value[8..] == [0, 0] => txn.delete(key)?,
                _ => txn.put(key, &value[8..])?,
            }
        }
        txn.put(&[0, SPACE], &1_u32.to_be_bytes())
    };
    engine.write(Ack::Durable, Box::new(act)).await.expect("the engine runs");
}
