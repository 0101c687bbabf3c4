//! What the node shares: rows, entries of the tree and served directories, kept in step.
//!
//! A share is made in three commits: its row, the entry of the tree, the row again with the entry. One
//! that was cut off has a row without an entry, or an entry that is gone, and ends at the next start.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::join_all;
use weft_auth::Auth;
use weft_core::acl::{Acl, AclEntry, Who};
use weft_core::form::{At, Call, FileSystem, Origin, Want};
use weft_core::proof::Caller;
use weft_core::service::Share;
use weft_core::{Error, ErrorKind, FileId, RelPath, Result, Rights, VolumeId};
use weft_kv::Engine;
use weft_sys::Sys;
use weft_sys::mounts::Spot;
use weft_volume::export::{Export, Shared, Shares, SharesConfig};
use weft_volume::managed::Managed;
use weft_volume::tree::{ManagedAnchor, Tree};

use super::{SHARES_SPACE, call_of};

/// The shares of a node.
pub struct NodeShares {
    sys: Sys,
    auth: Arc<Auth>,
    root: Managed,
    tree: Arc<Tree>,
    shares: Shares,
    served: Mutex<BTreeMap<VolumeId, Export>>,
    /// Where the node keeps its own.
    data: PathBuf,
    /// Held while something is shared, or no more.
    changing: tokio::sync::Mutex<()>,
}

impl NodeShares {
    /// Serves what was shared before, and ends what was cut off.
    pub async fn open(
        sys: &Sys,
        engine: &Arc<dyn Engine>,
        auth: &Arc<Auth>,
        root: &Managed,
        data: &Path,
    ) -> Result<Self> {
        let config = SharesConfig {
            sys: sys.clone(),
            engine: engine.clone(),
            space: SHARES_SPACE,
            issuer: auth.issuer(),
            groups: auth.memberships(),
            audited: true,
            handles: true,
            first: VolumeId(1),
        };
        let shares = Self {
            sys: sys.clone(),
            auth: auth.clone(),
            root: root.clone(),
            tree: Arc::new(Tree::new(root.clone()).bounding_strangers()),
            shares: Shares::open(config).await?,
            served: Mutex::default(),
            data: data.to_path_buf(),
            changing: tokio::sync::Mutex::default(),
        };
        for shared in shares.shares.all()? {
            match shared.junction.filter(|junction| shares.hangs(*junction)) {
                Some(_) if shared.detached => {}
                Some(junction) => shares.serve(shared.volume, junction)?,
                None => shares.shares.remove(shared.volume).await?,
            }
        }
        Ok(shares)
    }

    /// Returns the tree in which they are seen.
    pub fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    /// Ends uploads that nobody goes on with.
    pub fn sweep(&self) {
        self.served().values().for_each(Export::sweep);
    }

    fn served(&self) -> MutexGuard<'_, BTreeMap<VolumeId, Export>> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether an entry of the tree is there still. What cannot be read is not taken for gone.
    fn hangs(&self, junction: FileId) -> bool {
        !matches!(self.root.places(junction), Err(error) if error.kind() == ErrorKind::Stale)
    }

    fn serve(&self, volume: VolumeId, junction: FileId) -> Result<()> {
        let export = self.shares.export(volume, Arc::new(ManagedAnchor::new(self.root.clone(), junction)))?;
        self.tree.attach(volume, junction, Arc::new(export.clone()))?;
        self.served().insert(volume, export);
        Ok(())
    }

    /// Shares a directory at a name that is free, or again at one where a detached share hangs. What an administrator shares, administrators may use; what
    /// its owner shares, the owner alone, until others are granted something.
    pub async fn share(&self, caller: &Caller, from: Origin, directory: &str, at: &RelPath) -> Result<Share> {
        let limited_to = self.sharing_as(caller, from)?;
        let _alone = self.changing.lock().await;
        let directory = Path::new(directory);
        self.must_not_be_ours(directory)?;
        if let Some((volume, junction)) = self.detached_at(caller, at)? {
            if limited_to.is_some() {
                let detail = "it came from a backup: an administrator says whether it is served again";
                return Err(Error::not_permitted(detail));
            }
            let shared = self.shares.attach(volume, directory).await?;
            self.serve(volume, junction)?;
            return Ok(self.told(shared, None));
        }
        let administrators = limited_to.is_none().then(|| self.auth.administrators().clone());
        let who = administrators.into_iter().chain([caller.name().clone()]);
        let acl = Acl::new(who.map(|who| AclEntry::allow(Who::Caller(who), Rights::ALL)).collect());
        let shared = self.shares.add(directory, caller.name(), acl, limited_to).await?;
        let call = Call { from, ..call_of(&self.sys, caller) };
        let joined = match self.root.join(&call, &At::root(at.clone()), shared.volume).await {
            Ok(junction) => self.shares.joined(shared.volume, junction).await.map(|()| junction),
            Err(error) => Err(error),
        };
        let junction = match joined {
            Ok(junction) => junction,
            Err(error) => {
                self.shares.take_back(shared.volume).await?;
                return Err(error);
            }
        };
        self.serve(shared.volume, junction)?;
        Ok(self.told(Shared { junction: Some(junction), ..shared }, None))
    }

    /// Returns the share at a place, if one that is detached hangs there, and by which entry.
    fn detached_at(&self, caller: &Caller, at: &RelPath) -> Result<Option<(VolumeId, FileId)>> {
        let call = call_of(&self.sys, caller);
        // A place that cannot be come to is told of by making a name there.
        let across = self.root.across(&call, &At::root(at.clone())).ok().flatten();
        let Some(across) = across.filter(|across| across.rest.path.is_empty()) else { return Ok(None) };
        let mut all = self.shares.all()?.into_iter();
        let hangs = |shared: &Shared| shared.detached && shared.junction == Some(across.junction);
        Ok(all.find(hangs).map(|shared| (shared.volume, across.junction)))
    }

    /// Returns which user of the machine a caller's share is limited to: none for an administrator, else
    /// the one who asks.
    fn sharing_as(&self, caller: &Caller, from: Origin) -> Result<Option<u32>> {
        match (self.auth.demand_administrator(caller), from.uid) {
            (Ok(()), _) => Ok(None),
            (Err(_), Some(uid)) => self.auth.demand_somebody(caller).map(|()| Some(uid)),
            (Err(refused), None) => Err(refused),
        }
    }

    /// Whoever reads the node's own directory reads its keys.
    fn must_not_be_ours(&self, directory: &Path) -> Result<()> {
        let data = self.data.canonicalize().unwrap_or_else(|_| self.data.clone());
        let spots = Spot::of(directory).zip(Spot::of(&data));
        let mounted = spots.is_some_and(|(one, other)| one.is_within(&other) || other.is_within(&one));
        if mounted || directory.starts_with(&data) || data.starts_with(directory) {
            let detail = "the node keeps its own data and keys there";
            return Err(Error::not_permitted(detail).hint("share a directory beside or below them"));
        }
        Ok(())
    }

    /// Ends a share: for administrators, and for who made it.
    pub async fn unshare(&self, caller: &Caller, at: &RelPath) -> Result<Share> {
        self.auth.demand_somebody(caller)?;
        let _alone = self.changing.lock().await;
        let call = call_of(&self.sys, caller);
        let address = At::root(at.clone());
        let Some(across) = self.root.across(&call, &address)?.filter(|across| across.rest.path.is_empty())
        else {
            // What is not there is told as such.
            self.tree.walk(&call, &address, Want::default()).await?;
            return Err(Error::invalid("it is no share").hint("weft share"));
        };
        let shared = self.shares.all()?.into_iter().find(|shared| shared.junction == Some(across.junction));
        let Some(shared) = shared else {
            // What was damaged and mended: the entry leads nowhere.
            self.auth.demand_administrator(caller)?;
            self.root.unjoin(&call, across.junction).await?;
            let (at, by, made) = (format!("/{at}"), None, self.sys.clock().now());
            let (directory, away, limited_to) = (String::new(), None, None);
            return Ok(Share { volume: across.volume, at, directory, made, by, away, limited_to });
        };
        if shared.by != *caller.name() {
            self.auth.demand_administrator(caller)?;
        }
        // Whether it answers does not matter any more.
        let was = self.told(shared, None);
        self.root.unjoin(&call, across.junction).await?;
        self.tree.detach(across.volume);
        self.served().remove(&across.volume);
        self.shares.remove(across.volume).await?;
        Ok(was)
    }

    /// Returns what is shared, as far as the caller may know.
    pub async fn all(&self, caller: &Caller) -> Result<Vec<Share>> {
        let administrator = self.auth.demand_administrator(caller).is_ok();
        let call = call_of(&self.sys, caller);
        let all = self.shares.all()?;
        // At once: one that does not answer is waited for as long as one call may.
        let away = join_all(all.iter().map(|shared| self.away(shared))).await;
        let mut told = Vec::new();
        for (shared, away) in all.into_iter().zip(away) {
            let place = self.place(&shared);
            let share = self.told(shared, away);
            if administrator || share.by.as_ref() == Some(caller.name()) {
                told.push(share);
            } else if let Some(place) = place
                && self.may_walk(&call, &place).await
            {
                let away = share.away.map(|_| "it cannot be reached at the moment".to_owned());
                told.push(Share { directory: String::new(), limited_to: None, away, ..share });
            }
        }
        Ok(told)
    }

    async fn may_walk(&self, call: &Call, place: &RelPath) -> bool {
        match self.tree.walk(call, &At::root(place.clone()), Want::default()).await {
            Ok(_) => true,
            Err(error) => error.kind() == ErrorKind::Unavailable,
        }
    }

    /// Returns where in the tree a share is.
    fn place(&self, shared: &Shared) -> Option<RelPath> {
        let places = self.root.places(shared.junction?).ok()?;
        let names = places.into_iter().next()?;
        names.iter().try_fold(RelPath::EMPTY, |path, name| path.join(name)).ok()
    }

    /// Says why a share is not served just now, if it is not.
    async fn away(&self, shared: &Shared) -> Option<String> {
        let export = self.served().get(&shared.volume).cloned();
        match export {
            Some(export) => export.away().await,
            None if shared.detached => {
                Some("it came from a backup, and `weft share DIR PATH` serves it again".to_owned())
            }
            None => Some("it is not served".to_owned()),
        }
    }

    fn told(&self, shared: Shared, away: Option<String>) -> Share {
        Share {
            volume: shared.volume,
            at: self.place(&shared).map(|path| format!("/{path}")).unwrap_or_default(),
            directory: shared.directory.display().to_string(),
            made: shared.made,
            by: Some(shared.by),
            away,
            limited_to: shared.limited_to,
        }
    }
}
