//! Volumes joined into one name space.
//!
//! **Problem.** One path may lead through several volumes, and nobody who makes a request should
//! have to know which. But rights, transactions and feeds are each volume's own.
//!
//! **Shape.** A [`Tree`] is a root volume and the members that are joined to it. A junction, an
//! entry of the root volume, names the member whose root is seen in its place. A request goes to
//! the volume of its id; one to the root that crosses a junction is refused there as
//! `Unavailable`, and is made again at the member with what is left of its address.
//!
//! ```text
//!   /a/b         root                         paths that cross nothing cost nothing more
//!   /a/share/x   root ─▶ Unavailable ─▶ Managed::across ─▶ member: root_of(1)/x
//!   id 1.5.0     member, at once
//! ```
//!
//! **Rejected.** Asking before each request whether its address crosses a junction: a walk more for
//! all, and still the junction could be moved before the request is made. Junctions kept beside the
//! tree, by path: they would not move with the directories that they are in.
//!
//! **Ways to get it wrong.** Let the root answer for a junction's own inode: its owner, mode and
//! policy are not those of what lies there. Forget what was asked on the way: `traverse` is asked
//! again, by `across`, before a member is asked anything. Take a member's root for a directory of
//! the root volume in `rename`: two volumes have no transaction in common.

mod ends;
mod file_system;
mod witness;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use weft_core::acl::AclEntry;
use weft_core::form::{At, Call, FileSystem};
use weft_core::service::SessionWatcher;
use weft_core::{ContainerId, Error, ErrorKind, FileId, Name, Result, VolumeId, limits};

use crate::audited::Witness;
use crate::managed::{Managed, unserved};

/// A volume that can be joined to another. Its root is [`FileId::root_of`] its number.
pub trait Member: FileSystem + Witness + SessionWatcher {}

impl Member for Managed {}

/// What a member is told of the place it hangs at.
#[async_trait]
pub trait Anchor: Send + Sync {
    /// Returns the paths from the root of the tree to the member's root as they are now: credentials
    /// that are limited to paths are limited to such. `Stale` if it hangs nowhere any more.
    fn places(&self) -> Result<Vec<Vec<Name>>>;

    /// Returns the directories above the member's root as they are now, up to the root of the tree: a
    /// credential may be confined to what lies below one of them. `Stale` if it hangs nowhere any more.
    fn above(&self) -> Result<Vec<FileId>>;

    /// Lets whoever was given something in the member pass the containers above it, as far as the
    /// caller may change those. Returns the containers that were changed, and those that are not the
    /// caller's to change.
    async fn let_pass(
        &self,
        call: &Call,
        gained: &[AclEntry],
    ) -> Result<(Vec<ContainerId>, Vec<ContainerId>)>;
}

/// A junction of a managed volume, as what hangs there is told of it.
#[derive(Clone)]
pub struct ManagedAnchor {
    above: Managed,
    junction: FileId,
}

impl ManagedAnchor {
    /// Speaks for a junction of a volume.
    pub fn new(above: Managed, junction: FileId) -> Self {
        Self { above, junction }
    }
}

#[async_trait]
impl Anchor for ManagedAnchor {
    fn places(&self) -> Result<Vec<Vec<Name>>> {
        self.above.places(self.junction)
    }

    fn above(&self) -> Result<Vec<FileId>> {
        self.above.ids_above(self.junction)
    }

    async fn let_pass(
        &self,
        call: &Call,
        gained: &[AclEntry],
    ) -> Result<(Vec<ContainerId>, Vec<ContainerId>)> {
        self.above.let_pass(call, self.junction, gained).await
    }
}

/// A root volume and those that are joined to it.
pub struct Tree {
    root: Managed,
    /// Read whole and let go of at once: no request waits for another that holds it.
    members: RwLock<Arc<Members>>,
    /// Whether policies may let those who proved nothing change anything but drop-boxes.
    strangers_change: bool,
}

type Members = BTreeMap<VolumeId, Joined>;

/// A member, and the junction where it is seen.
#[derive(Clone)]
struct Joined {
    volume: VolumeId,
    junction: FileId,
    member: Arc<dyn Member>,
}

impl Joined {
    fn root(&self) -> FileId {
        FileId::root_of(self.volume)
    }
}

impl Tree {
    /// Makes a tree of one volume, number 0.
    pub fn new(root: Managed) -> Self {
        Self { root, members: RwLock::default(), strangers_change: true }
    }

    /// Refuses from now on every policy, of any volume, by which those who proved nothing could change
    /// anything but a drop-box. This is where all edits of policy on a node pass.
    #[must_use]
    pub fn bounding_strangers(self) -> Self {
        Self { strangers_change: false, ..self }
    }

    /// Shows a member at a junction of the root volume from now on. `Exists` if a volume of this
    /// number is shown already, `TooLarge` beyond [`limits::MEMBERS_MAX`].
    pub fn attach(&self, volume: VolumeId, junction: FileId, member: Arc<dyn Member>) -> Result<()> {
        if is_root(volume) {
            return Err(Error::invalid("the root of the tree is not joined to anything"));
        }
        let mut members = self.members.write().unwrap_or_else(PoisonError::into_inner);
        if members.contains_key(&volume) {
            return Err(Error::exists("the volume is in the tree already").about(volume));
        }
        if members.len() >= limits::MEMBERS_MAX {
            return Err(Error::new(ErrorKind::TooLarge, "at most 1024 volumes are joined to one tree"));
        }
        Arc::make_mut(&mut members).insert(volume, Joined { volume, junction, member });
        Ok(())
    }

    /// Shows a member no more. Calls under way there end by themselves; its junction stays, and is
    /// `Unavailable`. Returns whether it was shown.
    pub fn detach(&self, volume: VolumeId) -> bool {
        let mut members = self.members.write().unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut members).remove(&volume).is_some()
    }

    fn members(&self) -> Arc<Members> {
        self.members.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the member that ids of a volume belong to; none for the root. `Stale` if there is no
    /// such volume in the tree.
    fn member_of(&self, volume: VolumeId) -> Result<Option<Joined>> {
        if is_root(volume) {
            return Ok(None);
        }
        match self.members().get(&volume) {
            Some(joined) => Ok(Some(joined.clone())),
            None => Err(Error::stale("its volume is not in the tree")),
        }
    }

    /// Returns the member that is seen at a junction.
    fn member_at(&self, junction: FileId) -> Option<Joined> {
        self.members().values().find(|joined| joined.junction == junction).cloned()
    }

    /// Returns where an address of the root volume goes on beyond a junction, if it does.
    /// `Unavailable` if nobody serves what is there.
    fn beyond(&self, call: &Call, at: &At) -> Result<Option<(Joined, At)>> {
        let Some(across) = self.root.across(call, at)? else { return Ok(None) };
        match self.member_at(across.junction) {
            Some(joined) if joined.volume == across.volume => Ok(Some((joined, across.rest))),
            _ => Err(unserved().op("look up").about(at)),
        }
    }
}

fn is_root(volume: VolumeId) -> bool {
    volume == FileId::ROOT.volume()
}
