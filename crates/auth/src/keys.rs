//! The domain's keys: one root that certifies, one key each that signs credentials, capabilities
//! and audit heads.
//!
//! The root key is read when something is to be certified and is in memory for that moment only;
//! its file can be taken away, and the node runs on. A signing key that was replaced is believed
//! until its certificate ends or [`KeyRing::end`] says otherwise; its secret half is destroyed at
//! once, so nobody can sign with it any more.

pub(crate) mod file;

#[cfg(test)]
mod tests;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use ed25519_dalek::{Signer, SigningKey};
use serde::Serialize;
use weft_core::proof::{CertificateClaims, KeyCertificate, Purpose, Signed, Trust};
use weft_core::service::Finding;
use weft_core::{Deadline, DomainId, Error, ErrorKind, KeyId, Result, Time, VolumeId, limits};
use weft_kv::{Ack, Read, Space};
use weft_sys::disk::Entry;
use weft_sys::{Disk, Sys};

use self::file::SIGNING;
use crate::tables::{self, KeyRow};

/// What is known of a signing key, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyState {
    /// Its id.
    pub id: KeyId,
    /// What it signs, or signed.
    pub purpose: Purpose,
    /// Whether it signs now.
    pub current: bool,
    /// Whether what it signed is no longer believed.
    pub ended: bool,
    /// When it was made.
    pub made: Time,
    /// Until when it is believed, if it is not ended.
    pub until: Time,
}

/// The domain's root key, as it was read for making keys; gone from memory with the last of these.
#[derive(Clone)]
pub struct RootKey(Arc<Root>);

/// The keys that sign now.
struct Current {
    credential: SigningKey,
    capability: SigningKey,
    audit: SigningKey,
    /// When the first of them runs out.
    until: Time,
}

/// Keys on disk and in memory, and what is believed of keys.
pub(crate) struct KeyRing {
    sys: Sys,
    disk: Arc<dyn Disk>,
    space: Space,
    domain: DomainId,
    volumes: Vec<VolumeId>,
    current: ArcSwap<Current>,
    trust: ArcSwap<Trust>,
    /// Held while a root key's file is read: one that does not answer keeps one thread, not all there are.
    reading: Arc<tokio::sync::Semaphore>,
}

/// A key made and certified, not yet in the tables.
pub(crate) struct Certified {
    pub(crate) id: KeyId,
    pub(crate) row: KeyRow,
}

/// Makes the root key, or finds the one that an interrupted first start left. An existing root
/// key is never replaced: it *is* the domain.
pub(crate) fn found_root(sys: &Sys, disk: &dyn Disk) -> Result<Root> {
    file::check_all(disk, true)?;
    if let Some(root) = Root::read(disk)? {
        return Ok(root);
    }
    let key = file::make(sys.random());
    file::keep(disk, Purpose::Certificate, &key)?;
    Ok(Root(key))
}

/// The root key, for as long as something is being certified.
pub(crate) struct Root(SigningKey);

impl Root {
    pub(crate) fn read(disk: &dyn Disk) -> Result<Option<Self>> {
        Ok(file::read(disk, Purpose::Certificate, file::ROOT)?.map(Self))
    }

    /// Reads it from where it was put away.
    fn read_from(from: &Path) -> Result<Self> {
        let missing = || {
            Error::new(ErrorKind::Unavailable, "there is no such file on the node's machine")
                .op(READ_ROOT)
                .about(from.display())
                .hint("a service may not see /home (ProtectHome=): copy it elsewhere for the moment")
        };
        file::read_put_away(from)?.map(Self).ok_or_else(missing)
    }

    /// Returns the domain that this key is the root of.
    pub(crate) fn domain(&self) -> DomainId {
        DomainId::of_root_key(self.0.verifying_key().as_bytes())
    }

    /// Makes a signing key, keeps it and certifies it from now on.
    pub(crate) fn certify(
        &self,
        sys: &Sys,
        disk: &dyn Disk,
        purpose: Purpose,
        volumes: &[VolumeId],
    ) -> Result<Certified> {
        let key = file::make(sys.random());
        file::keep(disk, purpose, &key)?;
        let now = sys.clock().now();
        self.certified(now, &key, purpose, volumes, now)
    }

    /// Certifies a key, to be believed since `from`.
    fn certified(
        &self,
        now: Time,
        key: &SigningKey,
        purpose: Purpose,
        volumes: &[VolumeId],
        from: Time,
    ) -> Result<Certified> {
        let claims = CertificateClaims {
            key: key.verifying_key().to_bytes(),
            purpose,
            volumes: if purpose == Purpose::Capability { volumes.to_vec() } else { Vec::new() },
            from,
            until: now.plus(limits::KEY_LIFE),
        };
        let certificate = KeyCertificate {
            root: self.0.verifying_key().to_bytes(),
            statement: sign(&self.0, Purpose::Certificate, &claims)?,
        };
        let row = KeyRow { purpose, certificate, current: true, ended: false, made: now };
        Ok(Certified { id: file::id_of(key), row })
    }

    /// Makes one key for each purpose.
    pub(crate) fn certify_all(
        &self,
        sys: &Sys,
        disk: &dyn Disk,
        volumes: &[VolumeId],
    ) -> Result<Vec<Certified>> {
        SIGNING.into_iter().map(|purpose| self.certify(sys, disk, purpose, volumes)).collect()
    }
}

const READ_ROOT: &str = "read the root key from";

fn sign<T: Serialize>(key: &SigningKey, purpose: Purpose, claims: &T) -> Result<Signed> {
    let claims = tables::encode(claims)?;
    if claims.len() > limits::PROOF_BYTES_MAX {
        return Err(Error::new(ErrorKind::TooLarge, "what is to be signed is larger than a proof may be"));
    }
    let signature = key.sign(&purpose.message(&claims)).to_bytes();
    Ok(Signed::assemble(claims, file::id_of(key), signature))
}

impl KeyRing {
    /// Reads the keys of a domain that exists. A current key that is missing, is about to run
    /// out or does not speak for all of `volumes` is replaced if the root key is there; if it
    /// is not, a missing or insufficient one is an error. Unless `replace`, nothing is written: the
    /// new one is known to this ring only.
    pub(crate) async fn open(
        sys: Sys,
        disk: Arc<dyn Disk>,
        space: Space,
        domain: DomainId,
        volumes: Vec<VolumeId>,
        replace: bool,
    ) -> Result<Self> {
        file::check_all(&*disk, replace)?;
        if replace {
            for purpose in SIGNING {
                renew_if_needed(&sys, &*disk, &space, purpose, &volumes).await?;
            }
            forget_replaced(&*disk, &key_rows(&space.snapshot()?)?)?;
        }
        let mut rows = key_rows(&space.snapshot()?)?;
        let lent = if replace { Vec::new() } else { lend(&sys, &*disk, &mut rows, &volumes)? };
        let current = |purpose| match lent.iter().find(|(of, _)| *of == purpose) {
            Some((_, key)) => Ok(SigningKey::clone(key)),
            None => read_current(&*disk, &rows, purpose),
        };
        let keys = Current::of(&rows, current)?;
        keys.tell_end(&sys);
        let trust = trust_of(domain, &rows)?;
        Ok(Self {
            sys,
            disk,
            space,
            domain,
            volumes,
            current: ArcSwap::from_pointee(keys),
            trust: ArcSwap::from_pointee(trust),
            reading: Arc::new(tokio::sync::Semaphore::new(1)),
        })
    }

    /// Returns what is believed now.
    pub(crate) fn trust(&self) -> Arc<Trust> {
        self.trust.load_full()
    }

    /// Returns the volumes this node issues capabilities for.
    pub(crate) fn volumes(&self) -> &[VolumeId] {
        &self.volumes
    }

    /// Signs claims with the current key for `purpose`.
    pub(crate) fn sign<T: Serialize>(&self, purpose: Purpose, claims: &T) -> Result<Signed> {
        let current = self.current.load();
        let key = match purpose {
            Purpose::Credential => &current.credential,
            Purpose::Capability => &current.capability,
            Purpose::Audit => &current.audit,
            Purpose::Certificate => {
                return Err(Error::internal("certificates are signed by the root key only"));
            }
        };
        sign(key, purpose, claims)
    }

    /// Returns the keys there are and were.
    pub(crate) fn states(&self) -> Result<Vec<KeyState>> {
        let rows = key_rows(&self.space.snapshot()?)?;
        let state = |(id, row): (KeyId, KeyRow)| {
            let claims: CertificateClaims = tables::decode(row.certificate.statement.claims())?;
            let KeyRow { purpose, current, ended, made, .. } = row;
            Ok(KeyState { id, purpose, current, ended, made, until: claims.until })
        };
        rows.into_iter().map(state).collect()
    }

    /// Returns the name of the root key's file, if it is where it was made.
    pub(crate) fn root_here(&self) -> Option<&'static str> {
        self.disk.measure(file::ROOT).is_ok().then_some(file::ROOT)
    }

    /// Returns the certificates of every key that is still believed: what others need to
    /// verify what this domain signs.
    pub(crate) fn certificates(&self) -> Result<Vec<KeyCertificate>> {
        let rows = key_rows(&self.space.snapshot()?)?;
        Ok(rows.into_iter().filter(|(_, row)| !row.ended).map(|(_, row)| row.certificate).collect())
    }

    /// Looks at the files of the keys.
    pub(crate) fn check(&self) -> Result<Vec<Finding>> {
        crate::check::of_keys(&*self.disk, self.domain, &key_rows(&self.space.snapshot()?)?)
    }

    /// Reads the domain's root key, from where it was put away or else from its own place. Wherever it lies, nobody
    /// else waits for it.
    pub(crate) async fn root(&self, from: Option<PathBuf>) -> Result<RootKey> {
        let about = from.as_ref().map_or(file::ROOT.to_owned(), |from| from.display().to_string());
        let (disk, reading) = (self.disk.clone(), self.reading.clone());
        let read = async move {
            let turn = reading.acquire_owned().await;
            let read = self.sys.blocking(move || {
                let _turn = turn;
                match from {
                    Some(from) => Root::read_from(&from),
                    None => Root::read(&*disk)?.ok_or_else(root_missing),
                }
            });
            read.await?
        };
        let deadline = Deadline::within(self.sys.clock(), limits::ROOT_KEY_WAIT);
        let root = self.sys.within(deadline, read).await.map_err(|error| match error.kind() {
            ErrorKind::Deadline => Error::new(ErrorKind::Deadline, "it could not be read in time")
                .op(READ_ROOT)
                .about(&about)
                .hint("the disk that it lies on does not answer: copy it to another"),
            _ => error,
        })?;
        if root.domain() != self.domain {
            return Err(Error::invalid("the root key there is another domain's").about(about));
        }
        Ok(RootKey(Arc::new(root)))
    }

    /// Replaces the key for `purpose`. What the old one signed stays believed.
    pub(crate) async fn rotate(&self, purpose: Purpose, root: &RootKey) -> Result<KeyId> {
        if purpose == Purpose::Certificate {
            return Err(Error::unsupported("a root key is not replaced: it is the domain"));
        }
        let made = root.0.certify(&self.sys, &*self.disk, purpose, &self.volumes)?;
        let id = made.id;
        let old = replace(&self.space, made).await?;
        // Before anything else may fail: the old key is not one to sign with any more.
        self.reload()?;
        file::forget(&*self.disk, &old)?;
        Ok(id)
    }

    /// Returns when the first of the keys that sign now runs out.
    pub(crate) fn until(&self) -> Time {
        self.current.load().until
    }

    /// Returns what has a key that is to be replaced by now.
    pub(crate) fn ending(&self) -> Result<Vec<Purpose>> {
        let (rows, now) = (key_rows(&self.space.snapshot()?)?, self.sys.clock().now());
        let mut ending = Vec::new();
        for purpose in SIGNING {
            let Some((_, row)) = current_row(&rows, purpose) else { continue };
            if end_of(row)?.since(now) <= limits::KEY_RENEW {
                ending.push(purpose);
            }
        }
        Ok(ending)
    }

    /// Stops believing a key that does not sign any more.
    pub(crate) async fn end(&self, id: KeyId) -> Result<()> {
        let act = move |txn: &mut weft_kv::SpaceTxn<'_>| {
            let mut row: KeyRow = tables::read(txn, &tables::key_key(id))?
                .ok_or_else(|| Error::not_found("the domain has no such key"))?;
            if row.current {
                return Err(Error::new(ErrorKind::Conflict, "the key is in use").hint("rotate it first"));
            }
            if row.purpose == Purpose::Audit {
                let detail = "the audit log's past rests on its old keys";
                return Err(Error::unsupported(detail).hint("rotating it is enough: its secret is gone"));
            }
            row.ended = true;
            tables::write(txn, &tables::key_key(id), &row)
        };
        self.space.write(Ack::Durable, act).await?;
        self.reload()
    }

    fn reload(&self) -> Result<()> {
        let rows = key_rows(&self.space.snapshot()?)?;
        let keys = Current::of(&rows, |purpose| read_current(&*self.disk, &rows, purpose))?;
        keys.tell_end(&self.sys);
        // First what is believed, so that nothing is signed that would not be.
        self.trust.store(Arc::new(trust_of(self.domain, &rows)?));
        self.current.store(Arc::new(keys));
        Ok(())
    }
}

impl Current {
    fn of(rows: &[(KeyId, KeyRow)], key: impl Fn(Purpose) -> Result<SigningKey>) -> Result<Self> {
        let mut until = Time::MAX;
        for (_, row) in rows.iter().filter(|(_, row)| row.current) {
            until = until.min(end_of(row)?);
        }
        Ok(Self {
            credential: key(Purpose::Credential)?,
            capability: key(Purpose::Capability)?,
            audit: key(Purpose::Audit)?,
            until,
        })
    }

    /// Tells monitors when the first of them runs out.
    fn tell_end(&self, sys: &Sys) {
        let seconds = u64::try_from(self.until.seconds()).unwrap_or(0);
        sys.metrics().auth_key_end.set((), seconds.saturating_mul(1_000_000));
    }
}

fn end_of(row: &KeyRow) -> Result<Time> {
    let claims: CertificateClaims = tables::decode(row.certificate.statement.claims())?;
    Ok(claims.until)
}

fn root_missing() -> Error {
    Error::new(ErrorKind::Unavailable, "the domain's root key is not here")
        .op("certify a key with")
        .about(file::ROOT)
        .hint(
            "weft key rotate --root-key FILE takes it from where it was put away; or put it back as root.key",
        )
}

/// The same at a start, when there is nobody yet whom a command could ask.
fn root_wanted(detail: &'static str) -> Error {
    Error::new(ErrorKind::Unavailable, detail).op("certify a key with").about(file::ROOT).hint(
        "put root.key back in its place, auth/keys/root.key, and start again; then it may be put away again",
    )
}

async fn renew_if_needed(
    sys: &Sys,
    disk: &dyn Disk,
    space: &Space,
    purpose: Purpose,
    volumes: &[VolumeId],
) -> Result<()> {
    match root_if_needed(sys, disk, &key_rows(&space.snapshot()?)?, purpose, volumes)? {
        Some(root) => replace(space, root.certify(sys, disk, purpose, volumes)?).await.map(drop),
        None => Ok(()),
    }
}

/// Removes the secrets of keys that were replaced: a start cut off after that was recorded left them.
fn forget_replaced(disk: &dyn Disk, rows: &[(KeyId, KeyRow)]) -> Result<()> {
    let old = rows.iter().filter(|(_, row)| !row.current);
    let old: Vec<_> = old.map(|(id, row)| file::name_of(row.purpose, *id)).collect();
    file::forget(disk, &old)
}

/// Returns the root key if another key for `purpose` is to be made. Without it, one that runs out
/// will do for now, and one that is missing, insufficient or has run out is an error.
fn root_if_needed(
    sys: &Sys,
    disk: &dyn Disk,
    rows: &[(KeyId, KeyRow)],
    purpose: Purpose,
    volumes: &[VolumeId],
) -> Result<Option<Root>> {
    let (mut there, mut speaks, mut left) = (false, false, Duration::ZERO);
    // There is none where its row was lost for good.
    if let Some((id, row)) = current_row(rows, purpose) {
        let claims: CertificateClaims = tables::decode(row.certificate.statement.claims())?;
        there = file::read(disk, purpose, &file::name_of(purpose, *id))?.is_some();
        speaks = purpose != Purpose::Capability || volumes.iter().all(|v| claims.volumes.contains(v));
        left = claims.until.since(sys.clock().now());
    }
    if there && speaks && left > limits::KEY_RENEW {
        return Ok(None);
    }
    match Root::read(disk)? {
        Some(root) => Ok(Some(root)),
        // Nobody would believe what it signs: better told now than at every login.
        None if there && speaks && left.is_zero() => {
            Err(root_wanted("a signing key has run out, and the domain's root key is not here"))
        }
        None if there && speaks => {
            tracing::warn!(
                ?purpose,
                days = left.as_secs() / 86_400,
                "a signing key runs out: put root.key back"
            );
            Ok(None)
        }
        None => Err(root_wanted(
            "a signing key must be made, and the domain's root key is not here to certify it",
        )),
    }
}

/// Makes the keys that [`renew_if_needed`] would, puts them in place of the old ones into `rows`,
/// and writes nothing.
fn lend(
    sys: &Sys,
    disk: &dyn Disk,
    rows: &mut Vec<(KeyId, KeyRow)>,
    volumes: &[VolumeId],
) -> Result<Vec<(Purpose, SigningKey)>> {
    let mut lent = Vec::new();
    for purpose in SIGNING {
        let Some(root) = root_if_needed(sys, disk, rows, purpose, volumes)? else { continue };
        let key = file::make(sys.random());
        let now = sys.clock().now();
        let Certified { id, row } = root.certified(now, &key, purpose, volumes, now)?;
        rows.iter_mut().filter(|(_, row)| row.purpose == purpose).for_each(|(_, row)| row.current = false);
        rows.push((id, row));
        lent.push((purpose, key));
    }
    Ok(lent)
}

/// Makes a new key the current one of its purpose. Returns the files of those before, whose secrets are to go.
async fn replace(space: &Space, made: Certified) -> Result<Vec<String>> {
    let Certified { id, row } = made;
    let purpose = row.purpose;
    let act = move |txn: &mut weft_kv::SpaceTxn<'_>| {
        let mut old = Vec::new();
        for (other, mut before) in key_rows(txn)? {
            if before.purpose == purpose && before.current {
                before.current = false;
                tables::write(txn, &tables::key_key(other), &before)?;
                old.push(file::name_of(purpose, other));
            }
        }
        tables::write(txn, &tables::key_key(id), &row)?;
        Ok(old)
    };
    space.write(Ack::Durable, act).await.map(|(old, _)| old)
}

pub(crate) fn key_rows(rows: &(impl Read + ?Sized)) -> Result<Vec<(KeyId, KeyRow)>> {
    let mut found = Vec::new();
    tables::each_below(rows, b"k", |rest, value| {
        found.push((KeyId(tables::id_of(rest)?), tables::decode(value)?));
        Ok(true)
    })?;
    Ok(found)
}

fn current_row(rows: &[(KeyId, KeyRow)], purpose: Purpose) -> Option<&(KeyId, KeyRow)> {
    rows.iter().find(|(_, row)| row.current && row.purpose == purpose)
}

/// Returns what has no key that signs it now.
pub(crate) fn lacking(rows: &[(KeyId, KeyRow)]) -> impl Iterator<Item = Purpose> {
    SIGNING.into_iter().filter(|purpose| current_row(rows, *purpose).is_none())
}

/// Certifies again each key that lies here, that no row knows, and that is the only such one for
/// something that has no key. Since when it was believed is lost with its row: so since ever.
/// None without the domain's root key.
pub(crate) fn certify_again(
    sys: &Sys,
    disk: &dyn Disk,
    domain: DomainId,
    rows: &[(KeyId, KeyRow)],
    volumes: &[VolumeId],
) -> Result<Vec<Certified>> {
    let mut again = Vec::new();
    // A root key that cannot be read is named with the files.
    let root = Root::read(disk).ok().flatten().filter(|root| root.domain() == domain);
    for purpose in lacking(rows) {
        let strays = strays(disk, purpose, rows)?;
        if let (Some(root), [key]) = (&root, &strays[..]) {
            again.push(root.certified(sys.clock().now(), key, purpose, volumes, Time::EPOCH)?);
        }
    }
    Ok(again)
}

/// Returns the keys for a purpose that lie here and that no row knows.
fn strays(disk: &dyn Disk, purpose: Purpose, rows: &[(KeyId, KeyRow)]) -> Result<Vec<SigningKey>> {
    let mut names = Vec::new();
    disk.list("", &mut |name, entry| {
        names.extend((entry == Entry::File).then(|| name.to_owned()));
        ControlFlow::Continue(())
    })?;
    let stray = |name: &String| {
        let key = file::read(disk, purpose, name).ok()??;
        let id = file::id_of(&key);
        let is_own = file::name_of(purpose, id) == *name;
        (is_own && rows.iter().all(|(known, _)| *known != id)).then_some(key)
    };
    Ok(names.iter().filter_map(stray).collect())
}

fn read_current(disk: &dyn Disk, rows: &[(KeyId, KeyRow)], purpose: Purpose) -> Result<SigningKey> {
    let none = || Error::corrupt(format!("the domain has no key for {purpose:?}"));
    let (id, _) = current_row(rows, purpose).ok_or_else(none)?;
    let key = file::read(disk, purpose, &file::name_of(purpose, *id))?.ok_or_else(|| {
        root_wanted("the file of a signing key is not there, nor the root key to make another")
    })?;
    if file::id_of(&key) != *id {
        return Err(Error::corrupt("the key in the file is another one").about(file::name_of(purpose, *id)));
    }
    Ok(key)
}

pub(crate) fn trust_of(domain: DomainId, rows: &[(KeyId, KeyRow)]) -> Result<Trust> {
    let mut trust = Trust::none();
    trust.add_domain(domain);
    for (_, row) in rows.iter().filter(|(_, row)| !row.ended) {
        trust.add(&row.certificate)?;
    }
    Ok(trust)
}
