//! What a node stands on, without its doors, on one simulated disk: engine, keys and audit log,
//! object files.

use std::sync::Arc;

use weft_auth::{Auth, Settings};
use weft_core::form::{Door, Origin};
use weft_core::proof::Caller;
use weft_core::service::{AuditFilter, AuditRecord, AuditVerdict, Evidence, Issuer, Memberships};
use weft_core::{CallerName, ErrorKind, Result, VolumeId, limits};
use weft_kv::{Embedded, Engine, SpaceId};
use weft_store::Directory;
use weft_sys::{Disk, FlushSite, SimDisk, Sys, Task};
use weft_volume::managed::{AUDITS, Config, Managed};

/// Whose the machine is.
const UID: u32 = 1000;
/// Where its user asks from.
pub const HERE: Origin = Origin { door: Door::Native, peer: None, uid: Some(UID) };

/// Small, so that the log is cut and folded often.
const OPTIONS: weft_kv::Options = weft_kv::Options {
    segment_bytes: 256 << 10,
    fold_bytes: 128 << 10,
    overlay_bytes_max: 1 << 20,
    cache_bytes: 1 << 20,
    company_wait: limits::KV_COMPANY_WAIT,
    flush_at_once: limits::KV_FLUSH_AT_ONCE,
    flush_aside: 2,
    flush_aside_from: limits::KV_FLUSH_ASIDE_FROM,
};

/// The parts below a volume.
pub struct Machine {
    pub sys: Sys,
    pub engine: Arc<dyn Engine>,
    pub auth: Arc<Auth>,
    pub store: Arc<Directory>,
    follower: Task<()>,
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

impl Machine {
    pub async fn start(sys: &Sys, disk: &SimDisk) -> Self {
        Self::try_start(sys, disk).await.expect("its parts open")
    }

    /// Starts on a disk whose power may go off meanwhile.
    pub async fn try_start(sys: &Sys, disk: &SimDisk) -> Result<Self> {
        let part = |name| -> Result<_> {
            let part = disk.beneath(name)?;
            disk.sync_dir("", FlushSite::KvLogDir)?;
            Ok(part)
        };
        let (meta, auth, objects) = (part("meta")?, part("auth")?, part("objects")?);
        let engine: Arc<dyn Engine> = Arc::new(Embedded::open(sys.clone(), meta, OPTIONS)?);
        let settings = Settings { founder_uid: Some(UID), volumes: vec![VolumeId(0)], ..Settings::default() };
        let opened = Auth::open(sys.clone(), engine.clone(), SpaceId(b'a'), auth, settings);
        let auth = Arc::new(opened.await?.0);
        let options =
            weft_store::Options { records_flushed_by_caller: true, ..weft_store::Options::default() };
        let store = Arc::new(Directory::open(sys.clone(), objects, engine.clone(), options).await?);
        let (log, notes) = (auth.audit_log(), engine.notes(AUDITS)?);
        let follower = sys.spawn(async move {
            // It ends with the disk.
            let _ = log.follow(notes).await;
        });
        Ok(Self { sys: sys.clone(), engine, auth, store, follower })
    }

    /// Opens the volume, or makes it for somebody; who signs for it is given.
    pub async fn volume(
        &self,
        issuer: Arc<dyn Issuer>,
        groups: Arc<dyn Memberships>,
        node: Arc<dyn Fn() -> Caller + Send + Sync>,
        make: Option<CallerName>,
    ) -> Managed {
        let config = self.config(issuer, groups, node);
        let volume = match make {
            Some(owner) => Managed::create(config, owner).await,
            None => Managed::open(config).await,
        };
        volume.expect("the volume opens")
    }

    /// Returns what the volume stands on, where this machine's own keys sign for it.
    pub fn own_config(&self) -> Config {
        let auth = self.auth.clone();
        let node = Arc::new(move || auth.node_caller().unwrap_or_else(|_| Caller::anyone()));
        self.config(self.auth.issuer(), self.auth.memberships(), node)
    }

    fn config(
        &self,
        issuer: Arc<dyn Issuer>,
        groups: Arc<dyn Memberships>,
        node: Arc<dyn Fn() -> Caller + Send + Sync>,
    ) -> Config {
        Config {
            sys: self.sys.clone(),
            engine: self.engine.clone(),
            space: SpaceId(b'v'),
            issuer,
            groups,
            store: self.store.clone(),
            volume: VolumeId(0),
            node,
            audited: true,
            watched_flush_rest: limits::WATCHED_FLUSH_REST,
        }
    }

    /// Returns its user, who may do everything.
    pub async fn admin(&self) -> Caller {
        let evidence = Evidence::SocketUid(UID);
        self.auth.authority().authenticate(&evidence, HERE).await.expect("it is they")
    }

    /// Returns every record of a write that the log has, once all of them are in it. Fails with what
    /// is wrong with the log unless it is whole.
    pub async fn audited(&self) -> std::result::Result<Vec<AuditRecord>, AuditVerdict> {
        self.engine.flush().await.expect("the disk is on");
        if let Some(last) = self.engine.last_note(AUDITS).expect("it can be read") {
            self.auth.audit_log().copied(last).await.expect("in time");
        }
        let admin = self.admin().await;
        let verdict = self.auth.audit().verify(&admin).await.expect("it may");
        if !matches!(verdict, AuditVerdict::Whole { .. }) {
            return Err(verdict);
        }
        let (mut records, mut filter) = (Vec::new(), AuditFilter::default());
        loop {
            let page = self.auth.audit().records(&admin, &filter).await.expect("it may");
            records.extend(page.records.into_iter().map(|(_, record)| record));
            match page.next {
                Some(next) => filter.after = next,
                None => break,
            }
        }
        records.retain(|record| record.trace.0 > 0);
        Ok(records)
    }
}

/// Returns the kind of the error that came, if one did.
pub fn kind<T>(answer: Result<T>) -> Option<ErrorKind> {
    answer.err().map(|error| error.kind())
}
