//! Junctions: entries that lead to the root of another volume.
//!
//! What lies at one and beyond it is the other volume's. So here every request about that is
//! `Unavailable`, and whoever holds the volumes together (`crate::tree`) asks [`Managed::across`]
//! and makes the request again where it belongs. Only the entry itself is this volume's: it can be
//! renamed, and it is made and removed by [`Managed::join`] and [`Managed::unjoin`] alone.

use weft_core::acl::AclEntry;
use weft_core::attr::{Kind, SetAttr};
use weft_core::form::{At, Call, LinkTarget, New, Reference, Why};
use weft_core::{CallerName, ContainerId, Error, ErrorKind, FileId, Name, RelPath, Result, Rights, VolumeId};

use super::Managed;
use super::act::{Act, fingerprint};
use super::locate::{Led, Step};
use super::table::{entries, inodes};
use super::view::{Node, View};

/// Where an address leaves a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Across {
    /// The volume it goes on in.
    pub volume: VolumeId,
    /// The junction that it crosses.
    pub junction: FileId,
    /// What is left of it, from that volume's root on; empty if it ends at the junction.
    pub rest: At,
}

impl Managed {
    /// Makes a junction to a volume's root at a free name, durably. Needs `insert`. Returns the
    /// junction's id. `Invalid` for the volume itself.
    pub async fn join(&self, call: &Call, at: &At, volume: VolumeId) -> Result<FileId> {
        let refused = |e: Error| e.op("share at").about(at);
        if volume == self.volume.id {
            return Err(refused(Error::invalid("a volume is not joined to itself")));
        }
        let (call, place) = (call.clone().durable(), at.clone());
        let print = fingerprint(&call, &("join", at, volume))?;
        let number = self.volume.number().await?;
        let new = New::Reference(Reference::Volume(volume));
        let joined = self.volume.change(&call, move |act| {
            act.once(&print, |act| {
                let made = act.make_any(&place, &new, &SetAttr::default(), number)?;
                Ok(made.value.id)
            })
        });
        joined.await.map_err(refused)
    }

    /// Removes a junction, durably. Needs `remove` on its directory, or that the caller made it. `Stale` if
    /// it is gone, `Invalid` for anything else.
    pub async fn unjoin(&self, call: &Call, junction: FileId) -> Result<()> {
        let call = call.clone().durable();
        let print = fingerprint(&call, &("unjoin", junction))?;
        let gone = self.volume.change(&call, move |act| act.once(&print, |act| act.unjoin(junction)));
        gone.await.map_err(|e| e.op("unshare").about(junction))?;
        self.volume.names_have_changed();
        self.volume.ended(None);
        Ok(())
    }

    /// Returns where an address leaves the volume, if it does: at a junction that is in its way, or
    /// at its end. Rights on the way are asked for as by any request. `Unsupported` if a symbolic
    /// link goes up again beyond the junction.
    pub fn across(&self, call: &Call, at: &At) -> Result<Option<Across>> {
        self.volume.look(call, |view| view.across(at)).map_err(|e| e.op("look up").about(at))
    }

    /// Does the same for the record of a refusal, however late.
    pub(crate) fn across_whenever(&self, call: &Call, at: &At) -> Result<Option<Across>> {
        self.volume.look_whenever(call, |view| view.across(at))
    }

    /// Explains the way of an address that leaves the volume, up to where it does.
    pub(crate) fn why_may_pass(&self, call: &Call, at: &At, who: Option<&CallerName>) -> Result<Why> {
        let why = self.volume.look(call, |view| view.why_may_pass(at, who));
        why.map_err(|e| e.op("explain").about(at))
    }

    /// Returns the paths from the root to a junction as they are now: one, as it has one name. `Stale`
    /// if it is gone.
    pub fn places(&self, junction: FileId) -> Result<Vec<Vec<Name>>> {
        self.volume.look_whenever(&self.volume.own_call(), |view| view.paths_of(&view.node(junction)?))
    }

    /// Returns the directories above a junction as it hangs now, up to the root. `Stale` if it is gone.
    pub fn ids_above(&self, junction: FileId) -> Result<Vec<FileId>> {
        self.volume.look_whenever(&self.volume.own_call(), |view| view.ids_above(&view.node(junction)?))
    }

    /// Returns the directory that a junction is in. `Stale` if it is gone.
    pub(crate) fn directory_of(&self, junction: FileId) -> Result<FileId> {
        self.volume.look_whenever(&self.volume.own_call(), |view| {
            let (dir, _) = view.named_in(&view.node(junction)?)?;
            Ok(dir.id)
        })
    }

    /// Lets whoever was given something beyond a junction pass the containers above it, durably, as
    /// far as the caller may change those. Returns the containers that were changed, and those that
    /// are not the caller's to change.
    pub async fn let_pass(
        &self,
        call: &Call,
        junction: FileId,
        gained: &[AclEntry],
    ) -> Result<(Vec<ContainerId>, Vec<ContainerId>)> {
        let (volume, again, gained) = (self.volume.clone(), call.clone().durable(), gained.to_vec());
        let work = async move {
            let done =
                volume.change_whenever(&again, again.ack, move |act| act.let_pass(junction, &gained)).await?;
            volume.policy_has_changed(&[]);
            Ok(done)
        };
        self.volume.undropped(call, work).await.map_err(|e| e.op("protect").about(junction))
    }
}

impl View<'_> {
    /// Returns the volume that an inode leads to, if it is a junction.
    pub(super) fn joined(&self, node: &Node) -> Result<Option<VolumeId>> {
        if node.inode.kind != Kind::Reference {
            return Ok(None);
        }
        Ok(match inodes::target(self.read, node.serial())? {
            LinkTarget::Reference(Reference::Volume(volume)) => Some(volume),
            _ => None,
        })
    }

    /// Checks that what is asked about is here, and not the root of another volume.
    pub(super) fn must_be_here(&self, node: &Node) -> Result<()> {
        if self.joined(node)?.is_some() { Err(self.not_here(node)) } else { Ok(()) }
    }

    /// Refuses what is about another volume, to whoever may know that there is one.
    pub(super) fn not_here(&self, junction: &Node) -> Error {
        match self.may_know(junction) {
            Ok(true) => unserved(),
            Ok(false) => self.veiled(junction, Rights::TRAVERSE),
            Err(error) => error,
        }
    }

    /// Checks that a request may take away an inode's name.
    pub(super) fn must_not_end(&self, node: &Node) -> Result<()> {
        if self.joined(node)?.is_none() {
            return Ok(());
        }
        Err(Error::not_permitted("it is a share, which is taken back and not removed")
            .hint("weft unshare PATH"))
    }

    fn across(&self, at: &At) -> Result<Option<Across>> {
        let (place, steps) = match self.lead(at)? {
            Led::To(place) => (place, Vec::new()),
            Led::Beyond(place, steps) => (place, steps),
        };
        let Some(node) = place.node else { return Ok(None) };
        let Some(volume) = self.joined(&node)? else { return Ok(None) };
        if !self.may_know(&node)? {
            return Err(self.not_here(&node));
        }
        let rest = At { base: FileId::root_of(volume), path: path_of(&steps)?, follow: at.follow };
        Ok(Some(Across { volume, junction: node.id, rest }))
    }

    /// Returns the directory and name of what has one name.
    fn named_in(&self, node: &Node) -> Result<(Node, Name)> {
        let back = entries::name_of(self.read, node.serial())?;
        let back = back.ok_or_else(|| Error::stale("it has no name left").about(node.id))?;
        Ok((self.node_at(back.parent)?, back.name))
    }
}

impl Act<'_, '_> {
    fn unjoin(&mut self, junction: FileId) -> Result<()> {
        let view = self.view();
        let node = view.node(junction)?;
        let (dir, name) = view.named_in(&node)?;
        let own = node.inode.owner == self.call.caller.name().id() && !view.has(&dir, Rights::REMOVE)?;
        if !own {
            view.need(&dir, Rights::REMOVE)?;
        }
        if view.joined(&node)?.is_none() {
            return Err(Error::invalid("it is not a share"));
        }
        let link = entries::find(self.txn, dir.serial(), &name)?;
        let link = link.ok_or_else(|| Error::corrupt("a name leads nowhere").hint("weft fsck"))?;
        let because = own.then_some("whoever made a share may end it");
        self.remove_name((&dir, &name), node, &link, because).map(drop)
    }
}

/// Returns the path that steps take, if they only go down.
fn path_of(steps: &[Step]) -> Result<RelPath> {
    let mut bytes = Vec::new();
    for step in steps {
        let name = match step {
            Step::Into(name) => name,
            Step::Here => continue,
            Step::Up => {
                return Err(Error::unsupported("a symbolic link leads into a share and up again"));
            }
        };
        if !bytes.is_empty() {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(name.as_bytes());
    }
    RelPath::new(bytes)
}

/// What is said of another volume where nobody serves it.
pub(crate) fn unserved() -> Error {
    Error::new(ErrorKind::Unavailable, "the share is not served")
}
