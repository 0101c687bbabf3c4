//! What a node shares: the rows, and exports made of them.

use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use weft_core::acl::Acl;
use weft_core::form::Ack;
use weft_core::policy::AuditReads;
use weft_core::service::{Issuer, Memberships};
use weft_core::{CallerName, Deadline, Error, ErrorKind, FileId, Result, Time, VolumeId, limits};
use weft_kv::{Engine, Schema, Space, SpaceId};
use weft_sys::Sys;
use weft_sys::beneath::Facts;
use weft_sys::folder::Sort;

use super::policies::Policies;
use super::table::{self, BoundRow, DETACHED, ShareRow};
use super::{Config, Export, root, user};
use crate::tree::Anchor;

/// The schema of the shares' tables.
pub const SCHEMA: Schema = Schema { version: 1, migrations: &[] };

/// What shares work with.
#[derive(Clone)]
pub struct SharesConfig {
    /// Clock, randomness, tasks.
    pub sys: Sys,
    /// The engine their tables are in.
    pub engine: Arc<dyn Engine>,
    /// Their part of the engine.
    pub space: SpaceId,
    /// Who signs what they decide.
    pub issuer: Arc<dyn Issuer>,
    /// Who knows in which groups somebody is whom a policy is explained for.
    pub groups: Arc<dyn Memberships>,
    /// Whether somebody takes the audit of writes.
    pub audited: bool,
    /// Whether ids are found by handle, where the file system and the process can (`CAP_DAC_READ_SEARCH`).
    pub handles: bool,
    /// The first volume number to give: those before it are taken.
    pub first: VolumeId,
}

/// Everything that is shared.
pub struct Shares {
    config: SharesConfig,
    space: Space,
}

/// A directory that is shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared {
    /// Its volume.
    pub volume: VolumeId,
    /// The directory.
    pub directory: PathBuf,
    /// Who shared it.
    pub by: CallerName,
    /// When.
    pub made: Time,
    /// The entry of the tree that leads to it; none if making it was cut off.
    pub junction: Option<FileId>,
    /// The user of the machine whose rights there limit it, if any do.
    pub limited_to: Option<u32>,
    /// Whether it came from a backup, and is not served until somebody says so.
    pub detached: bool,
}

impl Shared {
    fn of(volume: VolumeId, row: ShareRow) -> Self {
        let directory = PathBuf::from(std::ffi::OsStr::from_bytes(&row.directory));
        let detached = row.stage_owner == DETACHED;
        let ShareRow { by, made, junction, limited_to, .. } = row;
        Self { volume, directory, by, made, junction, limited_to, detached }
    }
}

/// Sees to the shares of a node that was restored, durably and before it is opened: none is served until it is
/// attached again. The node that the backup is of may serve the same directories still, by policies that were changed since, and
/// sweep as left behind what is staged there under the name that both have. Returns what is detached; a row that
/// cannot be read is left to [`check`](super::check()).
pub async fn after_restore(engine: Arc<dyn Engine>, space: SpaceId) -> Result<Vec<Shared>> {
    let space = Space::open(engine, space, &SCHEMA).await?;
    let detach = |txn: &mut weft_kv::SpaceTxn<'_>| {
        let shares = table::readable_shares(txn)?;
        for (volume, row) in &shares {
            table::put_share(txn, *volume, &ShareRow { stage_owner: DETACHED, ..row.clone() })?;
        }
        Ok(shares)
    };
    let shares = space.write(Ack::Durable, detach).await?.0;
    let shares = shares.into_iter().map(|(volume, row)| Shared { detached: true, ..Shared::of(volume, row) });
    Ok(shares.filter(|shared| shared.junction.is_some()).collect())
}

impl Shares {
    /// Opens the tables. Fails as [`Space::open`] does.
    pub async fn open(config: SharesConfig) -> Result<Self> {
        let space = Space::open(config.engine.clone(), config.space, &SCHEMA).await?;
        Ok(Self { config, space })
    }

    /// Returns everything that is shared.
    pub fn all(&self) -> Result<Vec<Shared>> {
        let rows = table::shares(&self.space.snapshot()?)?;
        Ok(rows.into_iter().map(|(volume, row)| Shared::of(volume, row)).collect())
    }

    /// Notes a directory as shared by `by`, under a volume number of its own and with this policy for all
    /// of it. `directory` is an absolute path without symbolic links. What is done through it is limited to
    /// what one user of the machine may do, if there is one in `limited_to`: the directory must be theirs.
    /// Fails with `Invalid` or `NotDirectory` if it is none, `NotPermitted` if it is not, and as the
    /// machine does.
    pub async fn add(
        &self,
        directory: &Path,
        by: &CallerName,
        acl: Acl,
        limited_to: Option<u32>,
    ) -> Result<Shared> {
        acl.check()?;
        let facts = self.look(directory, limited_to).await?;
        let row = ShareRow {
            directory: directory.as_os_str().as_bytes().to_vec(),
            root: (facts.inode, facts.generation),
            stage_owner: self.new_owner(),
            by: by.clone(),
            made: self.config.sys.clock().now(),
            junction: None,
            limited_to,
        };
        let (kept, first) = (row.clone(), self.config.first);
        let write = move |txn: &mut weft_kv::SpaceTxn<'_>| {
            if table::shares(txn)?.len() >= limits::SHARES_MAX {
                return Err(Error::new(ErrorKind::NoQuota, "the node shares as many directories as it may"));
            }
            let volume = table::next_volume(txn, first)?;
            if limited_to.is_some() {
                must_leave_room(&table::shares(txn)?, volume)?;
            }
            table::put_share(txn, volume, &kept)?;
            let bound = BoundRow {
                path: Vec::new(),
                guards: true,
                inode: FileId::root_of(volume),
                serial: 0,
                epoch: 0,
                acl: acl.clone(),
                audit_reads: AuditReads::default(),
            };
            table::put_bound(txn, Policies::root_of(volume), &bound)?;
            Ok(volume)
        };
        let volume = self.space.write(Ack::Durable, write).await?.0;
        Ok(Shared::of(volume, row))
    }

    /// Looks at a directory that is to be shared.
    async fn look(&self, directory: &Path, limited_to: Option<u32>) -> Result<Facts> {
        let shown = directory.display().to_string();
        let plain = |part| matches!(part, Component::RootDir | Component::Normal(_));
        if !directory.is_absolute() || !directory.components().all(plain) {
            let detail = "a directory is shared by its absolute path, without `..`";
            return Err(Error::invalid(detail).about(shown));
        }
        limited_to.map_or(Ok(()), user::must_be_somebody)?;
        let path = directory.to_path_buf();
        let sys = &self.config.sys;
        let user = match limited_to {
            Some(uid) => Some(user::Known::of(uid).now(sys).await),
            None => None,
        };
        let look = move || root::open_for(&path, user.as_ref())?.itself()?.facts();
        let looked =
            sys.within(Deadline::within(sys, limits::EXPORT_LOOK), async { sys.blocking(look).await? });
        let facts = looked.await.map_err(|e| refused(e).about(&shown))?;
        if facts.sort != Sort::Directory {
            return Err(Error::new(ErrorKind::NotDirectory, "only a directory can be shared").about(shown));
        }
        if limited_to.is_some_and(|uid| uid != facts.uid) {
            let detail = "the directory belongs to another user of the machine than the one who asks";
            return Err(Error::not_permitted(detail).about(shown).hint("an administrator may share it"));
        }
        Ok(facts)
    }

    fn new_owner(&self) -> u64 {
        loop {
            let owner = self.config.sys.random().u64();
            if owner != DETACHED {
                return owner;
            }
        }
    }

    /// Has a share that is detached be served again, of this directory, with the policies and the limits that it had.
    /// What is staged there from now on is its own. Fails as [`Shares::add`] does; with `NotFound` if there is
    /// no such share.
    pub async fn attach(&self, volume: VolumeId, directory: &Path) -> Result<Shared> {
        let gone = || Error::not_found("there is no such share");
        let row = table::share(&self.space.snapshot()?, volume)?.ok_or_else(gone)?;
        let facts = self.look(directory, row.limited_to).await?;
        let (path, owner) = (directory.as_os_str().as_bytes().to_vec(), self.new_owner());
        let write = move |txn: &mut weft_kv::SpaceTxn<'_>| {
            let row = table::share(txn, volume)?.ok_or_else(gone)?;
            let (directory, root) = (path.clone(), (facts.inode, facts.generation));
            let row = ShareRow { directory, root, stage_owner: owner, ..row };
            table::put_share(txn, volume, &row)?;
            Ok(row)
        };
        Ok(Shared::of(volume, self.space.write(Ack::Durable, write).await?.0))
    }

    /// Notes where in the tree a share hangs.
    pub async fn joined(&self, volume: VolumeId, junction: FileId) -> Result<()> {
        let write = move |txn: &mut weft_kv::SpaceTxn<'_>| {
            let row = table::share(txn, volume)?.ok_or_else(|| Error::not_found("there is no such share"))?;
            table::put_share(txn, volume, &ShareRow { junction: Some(junction), ..row })
        };
        self.space.write(Ack::Durable, write).await.map(drop)
    }

    /// Ends a share, with its policies. Nothing of the directory is touched.
    pub async fn remove(&self, volume: VolumeId) -> Result<()> {
        self.space.write(Ack::Durable, move |txn| table::erase(txn, volume, true)).await.map(drop)
    }

    /// Takes back a share that was never served: its number is free again.
    pub async fn take_back(&self, volume: VolumeId) -> Result<()> {
        self.space.write(Ack::Durable, move |txn| table::erase(txn, volume, false)).await.map(drop)
    }

    /// Returns a share as a file system. The directory itself is not looked at.
    pub fn export(&self, volume: VolumeId, anchor: Arc<dyn Anchor>) -> Result<Export> {
        let row = table::share(&self.space.snapshot()?, volume)?;
        let row = row.ok_or_else(|| Error::not_found("there is no such share"))?;
        let SharesConfig { sys, issuer, groups, audited, handles, .. } = self.config.clone();
        let space = self.space.clone();
        let config = Config { sys, space, issuer, groups, volume, anchor, audited, handles };
        Export::assemble(config, &row)
    }
}

/// Checks that owners leave administrators some of what the node can share.
fn must_leave_room(shares: &[(VolumeId, ShareRow)], next: VolumeId) -> Result<()> {
    let of_owners = shares.iter().filter(|(_, row)| row.limited_to.is_some()).count();
    if of_owners < limits::SHARES_OF_OWNERS_MAX && next.0 < limits::VOLUMES_OF_OWNERS {
        return Ok(());
    }
    let detail = "the node shares as many directories for their owners as it may";
    Err(Error::new(ErrorKind::NoQuota, detail).hint("an administrator may share it"))
}

/// Says of a path that it may lead over a link: nothing else of it can be a loop.
fn refused(error: Error) -> Error {
    if error.kind() != ErrorKind::Loop {
        return error;
    }
    let detail = "a part of the path is a symbolic link, which could be made to lead elsewhere";
    Error::invalid(detail).hint("share what it leads to").caused_by(error)
}
