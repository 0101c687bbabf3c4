//! What the parts of auth share: the home domain, its tables, keys and clock, and the minting of
//! credentials.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::RwLock;
use weft_core::form::{Door, Origin};
use weft_core::proof::{
    Attenuation, Caller, Confines, CredentialClaims, EvidenceKind, Purpose, Revocations, Signed,
};
use weft_core::service::{AuditOutcome, AuditRecord, AuditSubject, Memberships};
use weft_core::{
    CallerId, CallerKind, CallerName, Clock, CredentialId, Error, ErrorKind, Result, Rights, Time, TraceId,
    limits,
};
use weft_kv::{Ack, Read, Space, SpaceTxn, Txn};
use weft_sys::Sys;

use crate::audit::AuditLog;
use crate::keys::KeyRing;
use crate::password::PasswordHash;
use crate::remembered::Remembered;
use crate::steady::Steady;
use crate::tables::{self, Domain, Line, UserRow};

/// What the mark in an id says that the id is of: a credential of ours,
const CREDENTIAL: &[u8] = b"credential";
/// or evidence that credentials came of.
const EVIDENCE: &[u8] = b"evidence";

/// The home domain.
pub(crate) struct Home {
    pub(crate) sys: Sys,
    pub(crate) space: Space,
    pub(crate) domain: Domain,
    pub(crate) keys: Arc<KeyRing>,
    pub(crate) steady: Arc<Steady>,
    pub(crate) revocations: Arc<Revocations>,
    pub(crate) remembered: Remembered,
    pub(crate) audit: Arc<AuditLog>,
    /// Held shared while something is minted, and alone while identities change. So whatever was
    /// minted before a change has an earlier stamp than it, and whatever comes later has seen it.
    pub(crate) gate: RwLock<()>,
}

/// What a new credential is to say, beyond what the tables say of its caller.
pub(crate) struct Mint {
    pub(crate) evidence: EvidenceKind,
    pub(crate) parents: Vec<CredentialId>,
    pub(crate) delegates: Vec<CallerName>,
    pub(crate) attributes: Vec<(String, String)>,
    pub(crate) limits: Attenuation,
    pub(crate) issued: Time,
    pub(crate) expires: Time,
    pub(crate) confines: Confines,
}

impl Memberships for Home {
    fn groups_of(&self, name: &CallerName) -> Result<Vec<CallerId>> {
        let mut groups = tables::groups_of(&self.space.snapshot()?, name.id())?;
        groups.sort_unstable();
        Ok(groups)
    }
}

impl Home {
    /// Returns what a login is to say.
    pub(crate) fn login(&self, evidence: EvidenceKind) -> Mint {
        let issued = self.steady.stamp();
        Mint {
            evidence,
            parents: Vec::new(),
            delegates: Vec::new(),
            attributes: Vec::new(),
            limits: Attenuation::default(),
            issued,
            expires: issued.plus(limits::CREDENTIAL_LIFE),
            confines: Confines::Everywhere,
        }
    }

    /// Signs a credential for one of the domain's own callers, and verifies it. The gate must be
    /// held.
    pub(crate) fn mint(&self, rows: &impl Read, caller: &CallerName, mint: Mint) -> Result<Caller> {
        if caller.domain() != Some(self.domain.id) {
            return Err(Error::not_permitted("a domain vouches only for its own callers"));
        }
        let line: Line = tables::read(rows, &tables::line_key(caller.id()))?.unwrap_or_default();
        let claims = CredentialClaims {
            id: self.fresh_id(caller.id()),
            parents: mint.parents,
            caller: caller.clone(),
            groups: tables::groups_of(rows, caller.id())?,
            membership: line.membership,
            evidence: mint.evidence,
            delegates: mint.delegates,
            attributes: mint.attributes,
            limits: mint.limits,
            issued: mint.issued,
            expires: mint.expires,
            confines: mint.confines,
        };
        self.verify(&self.keys.sign(Purpose::Credential, &claims)?)
    }

    /// Verifies a credential now.
    pub(crate) fn verify(&self, credential: &Signed) -> Result<Caller> {
        Caller::verify(credential, &self.keys.trust(), &self.revocations, self.steady.moment())
    }

    /// Returns an id whose lower half says for whom it was made, to this domain only: so a
    /// caller can revoke its own credentials though none of them is kept anywhere.
    fn fresh_id(&self, caller: CallerId) -> CredentialId {
        self.marked_id(CREDENTIAL, self.sys.random().u64(), caller)
    }

    fn marked_id(&self, of: &[u8], high: u64, caller: CallerId) -> CredentialId {
        CredentialId(u128::from(high) << 64 | u128::from(self.mark_of(of, high, caller)))
    }

    /// Returns the parent of every credential that other people's evidence is exchanged for, by what the evidence is:
    /// revoking it ends the evidence here, whoever shows it again.
    pub(crate) fn parent_of_evidence(&self, sort: &[u8], evidence: &[u8], caller: CallerId) -> CredentialId {
        let mut hasher = blake3::Hasher::new_keyed(&self.domain.mark);
        hasher.update(sort);
        hasher.update(evidence);
        let hash = hasher.finalize();
        let (high, _) = hash.as_bytes().split_first_chunk().expect("a hash has more than eight bytes");
        self.marked_id(EVIDENCE, u64::from_be_bytes(*high), caller)
    }

    fn mark_of(&self, of: &[u8], high: u64, caller: CallerId) -> u64 {
        let mut hasher = blake3::Hasher::new_keyed(&self.domain.mark);
        hasher.update(of);
        hasher.update(&high.to_be_bytes());
        hasher.update(&caller.0.to_be_bytes());
        let hash = hasher.finalize();
        let (low, _) = hash.as_bytes().split_first_chunk().expect("a hash has more than eight bytes");
        u64::from_be_bytes(*low)
    }

    /// Returns the parent of every credential that repeats a password instead of a login: it
    /// ends when the password is changed, whoever still holds what came of it.
    pub(crate) fn parent_of_repeats(&self, password: &PasswordHash) -> CredentialId {
        let mut hasher = blake3::Hasher::new_keyed(&self.domain.mark);
        hasher.update(b"password");
        hasher.update(password.salt());
        let hash = hasher.finalize();
        let (id, _) = hash.as_bytes().split_first_chunk().expect("a hash has more than sixteen bytes");
        CredentialId(u128::from_be_bytes(*id))
    }

    /// Returns whether this domain made a credential of this id for the caller, or took evidence of it.
    pub(crate) fn made_for(&self, id: CredentialId, caller: CallerId) -> bool {
        self.is_own(id, caller) || self.is_marked(EVIDENCE, id, caller)
    }

    /// Returns whether this domain itself made a credential of this id for the caller.
    pub(crate) fn is_own(&self, id: CredentialId, caller: CallerId) -> bool {
        self.is_marked(CREDENTIAL, id, caller)
    }

    fn is_marked(&self, of: &[u8], id: CredentialId, caller: CallerId) -> bool {
        self.mark_of(of, (id.0 >> 64) as u64, caller) == id.0 as u64
    }

    /// Checks that the caller's lease still runs.
    pub(crate) fn live(&self, caller: &Caller) -> Result<()> {
        caller.live(self.steady.moment())
    }

    /// Returns whether the caller is an administrator, by a credential that was not narrowed.
    pub(crate) fn is_administrator(&self, caller: &Caller) -> bool {
        caller.is_or_is_in(self.domain.administrators.id()) && is_whole(caller, self.steady.moment().wall)
    }

    /// Fails with `NotPermitted` unless the caller is an administrator, by a credential that was
    /// not narrowed.
    pub(crate) fn demand_administrator(&self, caller: &Caller) -> Result<()> {
        self.live(caller)?;
        if self.is_administrator(caller) {
            return Ok(());
        }
        let error = if caller.is_anyone() {
            Error::new(ErrorKind::Unauthenticated, "this is for administrators").hint("weft login")
        } else {
            Error::not_permitted(
                "this is for administrators, with a credential that is not narrowed and no token",
            )
        };
        Err(error.caller(caller.name()))
    }

    /// Fails with `NotPermitted`, or `Unauthenticated` for nobody, unless the caller's credential was not
    /// narrowed.
    pub(crate) fn demand_somebody(&self, caller: &Caller) -> Result<()> {
        self.live(caller)?;
        let error = if caller.is_anyone() {
            Error::new(ErrorKind::Unauthenticated, "nobody is known at this uid").hint("weft login")
        } else if is_whole(caller, self.steady.moment().wall) {
            return Ok(());
        } else {
            Error::not_permitted("this takes a credential that is not narrowed and no token")
                .hint("weft login")
        };
        Err(error.caller(caller.name()))
    }

    /// Returns the row of one of the domain's users.
    pub(crate) fn user(&self, rows: &impl Read, name: &CallerName) -> Result<Option<UserRow>> {
        if name.kind() != Some(CallerKind::User) || name.domain() != Some(self.domain.id) {
            return Ok(None);
        }
        tables::read(rows, &tables::user_key(name.local()))
    }

    /// Runs a change to its end, whether or not its caller still waits for the answer: what is on
    /// disk must also take effect.
    pub(crate) async fn to_the_end<T: Send + 'static>(
        &self,
        change: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.sys.spawn(change).await?
    }

    /// Ends a credential and what came of it; remembered until `until`.
    pub(crate) async fn end_credential(&self, id: CredentialId, until: Time) -> Result<()> {
        let _gate = self.gate.write().await;
        let act = move |txn: &mut SpaceTxn<'_>| tables::withdraw(txn, id, until);
        self.space.write(Ack::Durable, act).await?;
        self.revocations.end_credential(id, until);
        Ok(())
    }

    /// Ends everything a caller holds.
    pub(crate) async fn end_caller(&self, name: &CallerName) -> Result<()> {
        if matches!(name.kind(), None | Some(CallerKind::Group)) {
            return Err(Error::invalid("only a user, a node or a job holds credentials"));
        }
        let _gate = self.gate.write().await;
        let (id, at) = (name.id(), self.steady.stamp());
        let act = move |txn: &mut SpaceTxn<'_>| revoke_line(txn, id, at);
        self.space.write(Ack::Durable, act).await?;
        self.revocations.end_caller(id, at);
        self.remembered.forget(id);
        Ok(())
    }

    /// Records something that happened to identities.
    pub(crate) async fn tell(
        &self,
        caller: &Caller,
        from: Option<Origin>,
        operation: &str,
        outcome: AuditOutcome,
        because: String,
    ) {
        let record = AuditRecord {
            at: self.steady.now(),
            caller: caller.name().clone(),
            credential: caller.credential(),
            delegates: caller.claims().delegates.clone(),
            from: from.unwrap_or(Origin { door: Door::Node, peer: None, uid: None }),
            trace: TraceId(0),
            operation: operation.to_owned(),
            about: AuditSubject::default(),
            outcome,
            because,
            bytes: 0,
        };
        self.audit.add(record).await;
    }
}

impl Home {
    /// Records a change of identities, or its refusal, and returns its answer: of a change that
    /// was made, once the record is on disk.
    pub(crate) async fn tell_edit<T>(
        &self,
        caller: &Caller,
        operation: &str,
        answer: Result<T>,
        of: String,
    ) -> Result<T> {
        let outcome = match &answer {
            Ok(_) => AuditOutcome::Done,
            Err(error) => AuditOutcome::Failed(error.kind()),
        };
        self.tell(caller, None, operation, outcome, of).await;
        let made = answer?;
        self.recorded().await?;
        Ok(made)
    }

    /// Waits until what was recorded is on disk, before something that was done is answered.
    pub(crate) async fn recorded(&self) -> Result<()> {
        self.audit.flush().await.map_err(|error| {
            Error::new(error.kind(), "it is done, but the audit log does not take the record of it")
                .hint("weft status")
                .caused_by(error)
        })
    }
}

/// Moves a caller's line so that what it holds is over.
pub(crate) fn revoke_line(txn: &mut impl Txn, id: CallerId, at: Time) -> Result<()> {
    let mut line: Line = tables::read(txn, &tables::line_key(id))?.unwrap_or_default();
    line.revoked = line.revoked.max(Some(at));
    tables::write(txn, &tables::line_key(id), &line)
}

/// Returns whether a credential carries everything its caller may do, from anywhere, by now. What came of a
/// token or a certificate never does: what its holder made so, another token or a link, would outlive it.
pub(crate) fn is_whole(caller: &Caller, now: Time) -> bool {
    let limits = caller.limits();
    let is_token = |name: &CallerName| {
        matches!(name.kind(), Some(CallerKind::Token | CallerKind::Issuer | CallerKind::Certificate))
    };
    let by_token = caller.claims().delegates.iter().any(is_token);
    !by_token
        && limits.rights == Rights::ALL
        && !caller.is_confined()
        && limits.hosts.is_empty()
        && limits.from <= now
}

/// Returns when a credential must end for what it carries to end at `expires`: the allowance for others'
/// clocks would lengthen it, and this node's own clock is the only one that it is judged by.
pub(crate) fn sooner(expires: Time) -> Time {
    let skew = i64::try_from(limits::CLOCK_SKEW_MAX.as_nanos()).unwrap_or(i64::MAX);
    Time::from_nanos(expires.nanos().saturating_sub(skew))
}

/// Returns the shorter of a wanted life and the longest there is.
pub(crate) fn life_within(life: Duration) -> Duration {
    life.min(limits::CREDENTIAL_LIFE)
}
