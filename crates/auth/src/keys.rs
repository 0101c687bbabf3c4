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
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use ed25519_dalek::{Signer, SigningKey};
use serde::Serialize;
use weft_core::proof::{CertificateClaims, KeyCertificate, Purpose, Signed, Trust};
use weft_core::service::Finding;
use weft_core::{DomainId, Error, ErrorKind, KeyId, Result, Time, VolumeId, limits};
use weft_kv::{Ack, Read, Space};
use weft_sys::disk::Entry;
use weft_sys::{Disk, Sys};

use crate::tables::{self, KeyRow};

/// What signing keys are for, in the order they are made.
const SIGNING: [Purpose; 3] = [Purpose::Credential, Purpose::Capability, Purpose::Audit];

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

/// Where the root key lies when it was put away: a file that nobody but the node's user can read.
#[derive(Clone)]
pub struct RootFile {
    /// The directory.
    pub disk: Arc<dyn Disk>,
    /// The file's name in it.
    pub name: String,
}

/// The keys that sign now.
struct Current {
    credential: SigningKey,
    capability: SigningKey,
    audit: SigningKey,
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
    fn read_from(from: &RootFile) -> Result<Self> {
        let found = file::read(&*from.disk, Purpose::Certificate, &from.name)?;
        let missing = || Error::new(ErrorKind::Unavailable, "there is no such file on the node's machine");
        found.map(Self).ok_or_else(|| missing().op("read the root key from").about(&from.name))
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
        }
        let mut rows = key_rows(&space.snapshot()?)?;
        let lent = if replace { Vec::new() } else { lend(&sys, &*disk, &mut rows, &volumes)? };
        let current = |purpose| match lent.iter().find(|(of, _)| *of == purpose) {
            Some((_, key)) => Ok(SigningKey::clone(key)),
            None => read_current(&*disk, &rows, purpose),
        };
        let keys = Current {
            credential: current(Purpose::Credential)?,
            capability: current(Purpose::Capability)?,
            audit: current(Purpose::Audit)?,
        };
        let trust = trust_of(domain, &rows)?;
        Ok(Self {
            sys,
            disk,
            space,
            domain,
            volumes,
            current: ArcSwap::from_pointee(keys),
            trust: ArcSwap::from_pointee(trust),
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

    /// Replaces the key for `purpose`. What the old one signed stays believed. `Unavailable`
    /// without the root key.
    /// The root key is where it was made, unless `from` says where else.
    pub(crate) async fn rotate(&self, purpose: Purpose, from: Option<&RootFile>) -> Result<KeyId> {
        if purpose == Purpose::Certificate {
            return Err(Error::unsupported("a root key is not replaced: it is the domain"));
        }
        let root = match from {
            Some(from) => Root::read_from(from)?,
            None => Root::read(&*self.disk)?.ok_or_else(root_missing)?,
        };
        if root.domain() != self.domain {
            let about = from.map_or(file::ROOT, |from| &from.name);
            return Err(Error::invalid("the root key there is another domain's").about(about));
        }
        let made = root.certify(&self.sys, &*self.disk, purpose, &self.volumes)?;
        drop(root);
        let id = made.id;
        replace(&self.space, &*self.disk, made).await?;
        self.reload()?;
        Ok(id)
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
        let current = |purpose| read_current(&*self.disk, &rows, purpose);
        let keys = Current {
            credential: current(Purpose::Credential)?,
            capability: current(Purpose::Capability)?,
            audit: current(Purpose::Audit)?,
        };
        // First what is believed, so that nothing is signed that would not be.
        self.trust.store(Arc::new(trust_of(self.domain, &rows)?));
        self.current.store(Arc::new(keys));
        Ok(())
    }
}

fn root_missing() -> Error {
    Error::new(ErrorKind::Unavailable, "the domain's root key is not here")
        .op("certify a key with")
        .about(file::ROOT)
        .hint("weft key rotate --root-key FILE takes it from where it was put away; a start wants it back as root.key")
}

async fn renew_if_needed(
    sys: &Sys,
    disk: &dyn Disk,
    space: &Space,
    purpose: Purpose,
    volumes: &[VolumeId],
) -> Result<()> {
    match root_if_needed(sys, disk, &key_rows(&space.snapshot()?)?, purpose, volumes)? {
        Some(root) => replace(space, disk, root.certify(sys, disk, purpose, volumes)?).await,
        None => Ok(()),
    }
}

/// Returns the root key if another key for `purpose` is to be made. Without it, one that runs out
/// will do for now, and one that is missing or insufficient is an error.
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
        None if there && speaks => {
            tracing::warn!(
                ?purpose,
                days = left.as_secs() / 86_400,
                "a signing key runs out: put root.key back"
            );
            Ok(None)
        }
        None => Err(root_missing()),
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

/// Makes a new key the current one of its purpose and destroys the secret halves of those before.
async fn replace(space: &Space, disk: &dyn Disk, made: Certified) -> Result<()> {
    let Certified { id, row } = made;
    let purpose = row.purpose;
    let act = move |txn: &mut weft_kv::SpaceTxn<'_>| {
        let mut old = Vec::new();
        for (other, mut before) in key_rows(txn)? {
            if before.purpose == purpose && before.current {
                before.current = false;
                tables::write(txn, &tables::key_key(other), &before)?;
                old.push(other);
            }
        }
        tables::write(txn, &tables::key_key(id), &row)?;
        Ok(old)
    };
    let (old, _) = space.write(Ack::Durable, act).await?;
    old.into_iter().try_for_each(|old| file::remove(disk, &file::name_of(purpose, old)))
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
    let key = file::read(disk, purpose, &file::name_of(purpose, *id))?.ok_or_else(root_missing)?;
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
