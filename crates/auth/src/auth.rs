//! The parts of auth, put together.

use std::path::Path;
use std::sync::Arc;

use tokio::sync::RwLock;
use weft_core::proof::{Caller, EvidenceKind, KeyCertificate, Purpose, Revocations, Trust};
use weft_core::service::{
    Accounts, Audit, AuditOutcome, Authority, Finding, Issuer, Memberships, Secret, Sessions, Tokens,
};
use weft_core::{CallerKind, CallerName, Clock, DomainId, Error, KeyId, Result, Time, VolumeId, limits};
use weft_kv::{Ack, Engine, Order, Read, Space, SpaceId, SpaceTxn};
use weft_sys::{Disk, FlushSite, Sys, Task};

use crate::accounts::{TableAccounts, add_member, put_new_group, put_new_user};
use crate::audit::{AuditLog, ChainedAudit};
use crate::authority::{self, HomeAuthority};
use crate::certificates::{ClientAuthorities, ClientAuthoritySettings};
use crate::certified::Certified;
use crate::check;
use crate::checks::Checks;
use crate::home::Home;
use crate::issuer::SigningIssuer;
use crate::issuers::{Documents, IssuerSettings, Issuers};
use crate::keys::{self, KeyRing, KeyState, RootKey};
use crate::links::{self, TableLinks};
use crate::password::{PasswordHash, random_password};
use crate::remembered::Remembered;
use crate::sessions::MemSessions;
use crate::steady::Steady;
use crate::tables::{self, Domain, SCHEMA, UserRow};
use crate::tokens::{self, TableTokens};

/// Where keys lie, below the directory that auth is given.
pub(crate) const KEYS: &str = "keys";
/// Where the audit log lies.
pub(crate) const AUDIT: &str = "audit";

/// The administrator's password at birth.
#[derive(Clone, Debug)]
pub enum FirstPassword {
    /// None: the administrator comes by the node's socket.
    None,
    /// This one.
    Given(Secret),
    /// A random one, told once, in [`Founded`].
    Random,
}

/// What a node is to be. Those of the founder count at the first start only.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The first administrator's local name.
    pub founder: String,
    /// The uid that made the node: the administrator on the node's own socket.
    pub founder_uid: Option<u32>,
    /// The first administrator's password.
    pub founder_password: FirstPassword,
    /// The volumes this node issues capabilities for. Adding one later needs the root key.
    pub volumes: Vec<VolumeId>,
    /// The node's local name, for what it does by itself.
    pub node: String,
    /// Whether a signing key that is missing or runs out is replaced. Else one is lent in its place
    /// until this is closed, and nothing says that there was one: for whoever only looks.
    pub replace_keys: bool,
    /// Issuers whose tokens are taken.
    pub issuers: Vec<IssuerSettings>,
    /// What fetches their keys.
    pub documents: Option<Arc<dyn Documents>>,
    /// Authorities whose certificates are taken of clients.
    pub client_authorities: Vec<ClientAuthoritySettings>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            founder: "admin".to_owned(),
            founder_uid: None,
            founder_password: FirstPassword::None,
            volumes: vec![VolumeId(0)],
            node: "node".to_owned(),
            replace_keys: true,
            issuers: Vec::new(),
            documents: None,
            client_authorities: Vec::new(),
        }
    }
}

/// What a first start made.
#[derive(Clone, Debug)]
pub struct Founded {
    /// The domain.
    pub domain: DomainId,
    /// The first administrator.
    pub administrator: CallerName,
    /// The password, if a random one was asked for. It is nowhere else.
    pub password: Option<Secret>,
    /// The root key's file, below the directory that auth was given.
    pub root_key: String,
}

/// The home domain's authority, and what else a node needs to know who is asking.
pub struct Auth {
    home: Arc<Home>,
    authority: Arc<HomeAuthority>,
    accounts: Arc<TableAccounts>,
    issuer: Arc<SigningIssuer>,
    links: Arc<TableLinks>,
    issuers: Arc<Issuers>,
    certified: Arc<Certified>,
    sessions: Arc<MemSessions>,
    audit: Arc<ChainedAudit>,
    node: CallerName,
    node_caller: std::sync::Mutex<Option<Caller>>,
    tasks: Vec<Task<()>>,
}

impl Auth {
    /// Opens auth's part of a node, making the domain at the first start. `disk` is auth's own
    /// directory: it must be closed to others, and so must the keys in it.
    ///
    /// Fails with `NotPermitted` if others could read the keys, with `Unavailable` if a signing
    /// key must be made and the root key is away, with `Corrupt` if tables and keys are damaged
    /// or not of one domain.
    pub async fn open(
        sys: Sys,
        engine: Arc<dyn Engine>,
        space: SpaceId,
        disk: Arc<dyn Disk>,
        settings: Settings,
    ) -> Result<(Self, Option<Founded>)> {
        let space = Space::open(engine, space, &SCHEMA).await?;
        let (keys_disk, audit_disk) = (disk.beneath(KEYS)?, disk.beneath(AUDIT)?);
        disk.sync_dir("", FlushSite::AuthKeyDir)?;
        let founded = match tables::read::<Domain>(&space.snapshot()?, &tables::domain_key())? {
            Some(_) => None,
            None => {
                demand_nothing(&space.snapshot()?)?;
                Some(found(&sys, &space, &*keys_disk, &settings).await?)
            }
        };
        let domain: Domain = tables::read(&space.snapshot()?, &tables::domain_key())?
            .ok_or_else(|| Error::internal("the domain that was made is not there"))?;
        let start = count_start(&space).await?;
        let volumes = settings.volumes.clone();
        let keys =
            KeyRing::open(sys.clone(), keys_disk, space.clone(), domain.id, volumes, settings.replace_keys);
        let keys = Arc::new(keys.await?);
        let auth = Self::assemble(sys, space, audit_disk, domain, keys, start, &settings)?;
        Ok((auth, founded))
    }

    fn assemble(
        sys: Sys,
        space: Space,
        audit_disk: Arc<dyn Disk>,
        domain: Domain,
        keys: Arc<KeyRing>,
        start: u64,
        settings: &Settings,
    ) -> Result<Self> {
        let revocations = Arc::new(Revocations::new());
        let latest = authority::reload(&space, &revocations)?;
        let steady = Arc::new(Steady::new(sys.clone(), latest));
        let (audit, writer) =
            AuditLog::open(sys.clone(), audit_disk, space.clone(), keys.clone(), steady.clone(), domain.id)?;
        let node = CallerName::new(CallerKind::Node, &settings.node, domain.id)?;
        let start_short = u32::try_from(start).map_err(|_| Error::internal("too many starts"))?;
        let sessions = Arc::new(MemSessions::new(sys.clone(), &domain.mark, start_short));
        let issuer = Arc::new(SigningIssuer::new(
            keys.clone(),
            steady.clone(),
            revocations.clone(),
            sys.metrics().clone(),
            start,
        ));
        let home = Arc::new(Home {
            remembered: Remembered::new(sys.random()),
            sys,
            space,
            domain,
            keys,
            steady,
            revocations,
            audit: Arc::new(audit),
            gate: RwLock::new(()),
        });
        let checks = Arc::new(Checks::new(home.sys.clone(), home.steady.clone()));
        let documents = settings.documents.as_ref();
        let issuers = Arc::new(Issuers::new(&home.sys, &settings.issuers, documents, &home.domain.mark)?);
        let authorities = ClientAuthorities::new(&settings.client_authorities)?;
        let certified = Arc::new(Certified::new(home.clone(), authorities));
        let links = Arc::new(TableLinks::new(home.clone()));
        let tasks = vec![writer, sessions.sweep(), sweep(&home)];
        Ok(Self {
            authority: Arc::new(HomeAuthority::new(
                home.clone(),
                issuer.clone(),
                checks.clone(),
                links.clone(),
                issuers.clone(),
                certified.clone(),
            )),
            issuers,
            certified,
            accounts: Arc::new(TableAccounts::new(home.clone(), checks)),
            audit: Arc::new(ChainedAudit::new(home.clone())),
            issuer,
            links,
            sessions,
            node,
            node_caller: std::sync::Mutex::default(),
            home,
            tasks,
        })
    }

    /// Returns the home domain.
    pub fn domain(&self) -> DomainId {
        self.home.domain.id
    }

    /// Returns the group whose members are the administrators: a root ACL names it.
    pub fn administrators(&self) -> &CallerName {
        &self.home.domain.administrators
    }

    /// Checks that the caller may run the domain: an administrator, by a credential that still
    /// runs and was not narrowed. Fails with `NotPermitted` or `Unauthenticated`.
    pub fn demand_administrator(&self, caller: &Caller) -> Result<()> {
        self.home.demand_administrator(caller)
    }

    /// Checks that the caller is somebody, by a credential that still runs and was not narrowed. Fails with
    /// `NotPermitted` or `Unauthenticated`.
    pub fn demand_somebody(&self, caller: &Caller) -> Result<()> {
        self.home.demand_somebody(caller)
    }

    /// Checks the tables, the keys and the audit log while they are used. For administrators.
    pub async fn check(&self, caller: &Caller) -> Result<Vec<Finding>> {
        self.home.demand_administrator(caller)?;
        let home = self.home.clone();
        let look = move || -> Result<Vec<Finding>> {
            let mut findings = check::of_tables(&home.sys, &home.space.snapshot()?)?;
            findings.extend(home.keys.check()?);
            Ok(findings)
        };
        let mut findings = self.home.sys.blocking(look).await??;
        findings.extend(check::of_audit(self.home.audit.verify_all().await?));
        Ok(findings)
    }

    /// Returns the role that turns evidence into callers.
    pub fn authority(&self) -> Arc<dyn Authority> {
        self.authority.clone()
    }

    /// Returns the role that keeps users and groups.
    pub fn accounts(&self) -> Arc<dyn Accounts> {
        self.accounts.clone()
    }

    /// Takes these issuers in the place of those that there were. What came of the tokens of one that is gone, or is
    /// another now, ends at once; of one that stays as it was, nothing does. Fails with `Invalid`, and changes nothing,
    /// where one of them cannot be used.
    pub async fn change_issuers(&self, settings: &[IssuerSettings]) -> Result<()> {
        // Whoever is let in by those that there were is in by then, and is found.
        let _gate = self.home.gate.write().await;
        for gone in self.issuers.change(settings)? {
            self.home.revocations.end_leases_of(gone);
        }
        Ok(())
    }

    /// Says which issuers' keys cannot be had.
    pub fn issuer_troubles(&self) -> Vec<String> {
        self.issuers.troubles()
    }

    /// Takes other authorities of clients, or other lists of what those have revoked, in the place of those that there
    /// were. Whoever would not be let in any more as they were is out at once. Fails with `Invalid`, and changes nothing,
    /// where one of them cannot be used.
    pub async fn change_client_authorities(&self, settings: Vec<ClientAuthoritySettings>) -> Result<()> {
        let made = self.home.sys.blocking(move || ClientAuthorities::new(&settings)).await??;
        self.certified.change(made).await
    }

    /// Returns the names by which a handshake may ask for certificates of clients: DER, without its outermost head. None
    /// where no such authority is set.
    pub fn client_hints(&self) -> Vec<Vec<u8>> {
        self.certified.hints()
    }

    /// Returns the links for people without an account.
    pub fn links(&self) -> Arc<TableLinks> {
        self.links.clone()
    }

    /// Returns the role that keeps programs' tokens.
    pub fn tokens(&self) -> Arc<dyn Tokens> {
        Arc::new(TableTokens::new(self.home.clone()))
    }

    /// Returns the role that knows who is in which groups.
    pub fn memberships(&self) -> Arc<dyn Memberships> {
        self.home.clone()
    }

    /// Returns the role that signs capabilities.
    pub fn issuer(&self) -> Arc<dyn Issuer> {
        self.issuer.clone()
    }

    /// Returns the role that keeps sessions.
    pub fn sessions(&self) -> Arc<dyn Sessions> {
        self.sessions.clone()
    }

    /// Returns how many sessions there are.
    pub fn session_count(&self) -> u64 {
        self.sessions.count()
    }

    /// Returns the role that keeps the audit log.
    pub fn audit(&self) -> Arc<dyn Audit> {
        self.audit.clone()
    }

    /// Returns the audit log itself: what follows the notes of writes.
    pub fn audit_log(&self) -> Arc<AuditLog> {
        self.home.audit.clone()
    }

    /// Returns what is believed now. A later rotation makes another value.
    pub fn trust(&self) -> Arc<Trust> {
        self.home.keys.trust()
    }

    /// Returns the certificates by which others verify what this domain signs.
    pub fn certificates(&self) -> Result<Vec<KeyCertificate>> {
        self.home.keys.certificates()
    }

    /// Returns what is withdrawn.
    pub fn revocations(&self) -> Arc<Revocations> {
        self.home.revocations.clone()
    }

    /// Returns proof of being this node, for what it does by itself: scrub, sweep, repair.
    pub fn node_caller(&self) -> Result<Caller> {
        let mut kept = self.node_caller.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let now = self.home.steady.moment();
        let fresh = |caller: &&Caller| {
            caller.live(now).is_ok() && caller.claims().expires.since(now.wall) > limits::CREDENTIAL_LIFE / 2
        };
        if let Some(caller) = kept.as_ref().filter(fresh) {
            return Ok(caller.clone());
        }
        let login = self.home.login(EvidenceKind::NodeKey);
        let caller = self.home.mint(&self.home.space.snapshot()?, &self.node, login)?;
        *kept = Some(caller.clone());
        Ok(caller)
    }

    /// Returns the domain's signing keys. Administrators only.
    pub fn keys(&self, caller: &Caller) -> Result<Vec<KeyState>> {
        self.home.demand_administrator(caller)?;
        self.home.keys.states()
    }

    /// Returns where the root key lies below the directory that auth was given, if it was not put away.
    /// Administrators only.
    pub fn root_key(&self, caller: &Caller) -> Result<Option<String>> {
        self.home.demand_administrator(caller)?;
        Ok(self.home.keys.root_here().map(|name| format!("{KEYS}/{name}")))
    }

    /// Replaces the key for `purpose`: new things are signed by the new one, what the old one
    /// signed stays good until it runs out by itself, and the old one's secret is destroyed.
    /// Administrators only. `Unavailable` while the root key is away.
    pub async fn rotate(&self, caller: &Caller, purpose: Purpose) -> Result<KeyId> {
        self.rotate_by(caller, purpose, None).await
    }

    /// Does the same by a root key that was put away.
    pub async fn rotate_by(&self, caller: &Caller, purpose: Purpose, root: Option<RootKey>) -> Result<KeyId> {
        self.home.demand_administrator(caller)?;
        let (home, caller) = (self.home.clone(), caller.clone());
        let change = async move {
            // Before the gate is held: whoever logs in would wait for the file with us.
            let root = match root {
                Some(root) => Ok(root),
                None => home.keys.root(None).await,
            };
            let _gate = home.gate.write().await;
            let answer = match root {
                Ok(root) => home.keys.rotate(purpose, &root).await,
                Err(error) => Err(error),
            };
            let answer = answer.map_err(|error| error.op("rotate a key"));
            home.tell_edit(&caller, "rotate-key", answer, format!("{purpose:?}")).await
        };
        self.home.to_the_end(change).await
    }

    /// Reads the root key from where it was put away: a plain file, of the node's user, that nobody else can read.
    /// Administrators only. `Unavailable` if there is none, `NotPermitted` if it is another file than that,
    /// `Invalid` if it is another domain's, `Deadline` if it cannot be read in [`limits::ROOT_KEY_WAIT`].
    pub async fn root_at(&self, caller: &Caller, path: &Path) -> Result<RootKey> {
        self.home.demand_administrator(caller)?;
        let root = self.home.keys.root(Some(path.to_owned())).await;
        if let Err(error) = &root {
            let failed = AuditOutcome::Failed(error.kind());
            self.home.tell(caller, None, "rotate-key", failed, "the root key".to_owned()).await;
        }
        root
    }

    /// Returns when the first of the keys that sign now runs out.
    pub fn keys_until(&self) -> Time {
        self.home.keys.until()
    }

    /// Stops believing a key that was rotated out, at once: what it signed is dead, and every
    /// live proof must be shown again. Administrators only. `Conflict` if it signs now.
    pub async fn end_key(&self, caller: &Caller, key: KeyId) -> Result<()> {
        self.home.demand_administrator(caller)?;
        let (home, caller) = (self.home.clone(), caller.clone());
        let change = async move {
            let _gate = home.gate.write().await;
            let answer = home.keys.end(key).await.map_err(|error| error.op("end a key"));
            if answer.is_ok() {
                home.revocations.end_leases();
            }
            home.tell_edit(&caller, "end-key", answer, key.to_string()).await
        };
        self.home.to_the_end(change).await
    }

    /// Does so with every key that was rotated out, but for those of the audit log, whose past rests on them. The
    /// caller's own proof may be dead after that.
    pub async fn end_old_keys(&self, caller: &Caller) -> Result<()> {
        self.home.demand_administrator(caller)?;
        let (home, caller) = (self.home.clone(), caller.clone());
        let change = async move {
            let _gate = home.gate.write().await;
            for key in home.keys.states()? {
                if key.current || key.ended || key.purpose == Purpose::Audit {
                    continue;
                }
                let answer = home.keys.end(key.id).await.map_err(|error| error.op("end a key"));
                if answer.is_ok() {
                    home.revocations.end_leases();
                }
                home.tell_edit(&caller, "end-key", answer, key.id.to_string()).await?;
            }
            Ok(())
        };
        self.home.to_the_end(change).await
    }

    /// Brings what was recorded to disk. Called before the metadata engine is closed.
    pub async fn close(&self) -> Result<()> {
        self.home.audit.flush().await
    }
}

impl Drop for Auth {
    fn drop(&mut self) {
        self.tasks.iter().for_each(Task::abort);
    }
}

/// Forgets now and then what has run out.
fn sweep(home: &Arc<Home>) -> Task<()> {
    let (sys, weak) = (home.sys.clone(), Arc::downgrade(home));
    home.sys.spawn(async move {
        loop {
            sys.sleep(limits::AUTH_SWEEP).await;
            let Some(home) = weak.upgrade() else { return };
            let forget = async {
                authority::forget_run_out(&home).await?;
                links::forget_ended(&home).await?;
                tokens::forget_ended(&home).await
            };
            if let Err(error) = forget.await {
                tracing::warn!(?error, "what has run out of auth's tables is still there");
            }
            if let Err(error) = renew_keys(&home).await {
                tracing::warn!(?error, "signing keys that run out could not be replaced");
            }
        }
    })
}

/// Replaces signing keys that run out, if the root key is in its place.
async fn renew_keys(home: &Arc<Home>) -> Result<()> {
    let ending = home.keys.ending()?;
    if ending.is_empty() || home.keys.root_here().is_none() {
        return Ok(());
    }
    let root = home.keys.root(None).await?;
    let _gate = home.gate.write().await;
    for purpose in ending {
        let key = home.keys.rotate(purpose, &root).await?;
        tracing::info!(op = "renew a key", ?purpose, id = %key, "a signing key was about to run out and is replaced");
    }
    Ok(())
}

/// Fails with `Corrupt` if the tables hold anything: then the domain was there, and is not made
/// anew over what was its own.
fn demand_nothing(rows: &impl Read) -> Result<()> {
    match rows.scan(&[], &[], Order::Rising).next() {
        None => Ok(()),
        Some(_) => Err(Error::corrupt("the tables name no domain, and hold rows of one").hint("weft fsck")),
    }
}

/// Counts this start, durably, and returns its number: no two starts have the same.
async fn count_start(space: &Space) -> Result<u64> {
    let act = |txn: &mut SpaceTxn<'_>| {
        // Begun with the domain. Without it an earlier start's number would be given again.
        let gone = || Error::corrupt("the count of starts is not there").hint("weft fsck");
        let start = tables::read::<u64>(txn, &tables::starts_key())?.ok_or_else(gone)? + 1;
        tables::write(txn, &tables::starts_key(), &start)?;
        Ok(start)
    };
    let (start, _) = space.write(Ack::Durable, act).await?;
    Ok(start)
}

/// Makes a domain. Keys first, then everything that names them in one transaction: cut off
/// between the two, it is made again around the same root key.
async fn found(sys: &Sys, space: &Space, keys_disk: &dyn Disk, settings: &Settings) -> Result<Founded> {
    let root = keys::found_root(sys, keys_disk)?;
    let id = root.domain();
    let founder = CallerName::user(&settings.founder, id)?;
    let administrators =
        CallerName::new(CallerKind::Group, &format!("{}/administrators", settings.founder), id)?;
    let (password, told) = match &settings.founder_password {
        FirstPassword::None => (None, None),
        FirstPassword::Given(password) => (Some(password.clone()), None),
        FirstPassword::Random => {
            let password = random_password(sys.random());
            (Some(password.clone()), Some(password))
        }
    };
    let password = password.map(|password| PasswordHash::make(&password, sys.random())).transpose()?;
    let certified = root.certify_all(sys, keys_disk, &settings.volumes)?;
    drop(root);
    let mut mark = [0; 32];
    sys.random().fill(&mut mark);
    let domain = Domain { id, founder: founder.clone(), administrators, mark };
    let added: Time = sys.clock().now();
    let row = UserRow { password, uid: settings.founder_uid, enabled: true, added };
    let act = move |txn: &mut SpaceTxn<'_>| {
        if txn.get(&tables::domain_key())?.is_some() {
            return Err(Error::exists("the domain was made meanwhile"));
        }
        tables::write(txn, &tables::domain_key(), &domain)?;
        tables::write(txn, &tables::starts_key(), &0_u64)?;
        for key in &certified {
            tables::write(txn, &tables::key_key(key.id), &key.row)?;
        }
        put_new_user(txn, &domain.founder, &row)?;
        put_new_group(txn, &domain.administrators, &domain.founder)?;
        add_member(txn, &domain, &domain.administrators, &domain.founder)?;
        Ok(())
    };
    space.write(Ack::Durable, act).await?;
    Ok(Founded { domain: id, administrator: founder, password: told, root_key: format!("{KEYS}/root.key") })
}

/// Sees to auth's tables after metadata was restored from a backup, durably and before the next
/// opening. That begins a new audit log: the one kept beside the later metadata counts notes that
/// will be counted again. And its number is above that of every start since the backup, so that
/// no capability or session of those is taken for one of its own.
pub async fn after_restore(sys: &Sys, engine: Arc<dyn Engine>, space: SpaceId) -> Result<()> {
    let space = Space::open(engine, space, &SCHEMA).await?;
    let by_clock = starts_by_clock(sys);
    let act = move |txn: &mut SpaceTxn<'_>| {
        let starts = tables::read::<u64>(txn, &tables::starts_key())?.unwrap_or(0);
        let past = starts.saturating_add(limits::RESTORE_STARTS_GAP.into()).max(by_clock);
        tables::write(txn, &tables::starts_key(), &past)?;
        weft_kv::Txn::delete(txn, &tables::audit_head_key())
    };
    space.write(Ack::Durable, act).await.map(drop)
}

/// Returns a count of starts that none has come to: a node does not start every second. That of
/// another restore of the same backup is behind it too.
pub(crate) fn starts_by_clock(sys: &Sys) -> u64 {
    u32::try_from(sys.clock().now().seconds()).unwrap_or(0).into()
}
