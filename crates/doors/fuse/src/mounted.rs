//! What the doors of one mount have in common: the kernel's end of it, and what the kernel knows.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use weft_core::attr::Attr;
use weft_core::{CallerId, Clock, FileId};

use crate::abi::init;
use crate::ahead::AheadRoom;
use crate::buffers::Buffers;
use crate::device::Device;
use crate::fresh::Fresh;
use crate::nodes::Nodes;
use crate::pipes::Pipes;
use crate::remembered::Remembered;
use crate::room::Room;
use crate::takeover::TakenOver;
use crate::{Login, OVERFLOW_ID};

/// What every door of a mount uses.
pub(crate) struct Mounted {
    pub device: Device,
    pub nodes: Nodes,
    pub fresh: Fresh,
    pub room: Room,
    pub buffers: Arc<Buffers>,
    pub pipes: Arc<Pipes>,
    pub ahead_room: AheadRoom,
    /// The last number that an open file was given, at whichever door.
    pub last_handle: Arc<AtomicU64>,
    pub owners: Owners,
    pub clock: Arc<dyn Clock>,
    /// How long one call may take.
    pub patience: Duration,
    /// The directory that is the mount's root.
    pub root: FileId,
    /// Whether the kernel can be had to send appends as they were made.
    pub appends_whole: bool,
    /// Whether several users of the machine use the mount, so that the kernel, which keeps things for all, may keep
    /// nothing that one of them is told.
    pub is_shared: bool,
    /// What the next process goes on with if this one dies.
    pub remembered: Arc<Remembered>,
    /// What became of the processes before this one, if there were any.
    pub taken: Option<TakenOver>,
    /// Where users of a shared mount say who they are.
    pub login: Option<Login>,
}

impl Mounted {
    /// Has the kernel drop what it keeps of a node, and drops what was read of it ahead. May wait, as
    /// [`Device::expire_node`] does.
    pub(crate) fn drop_kept(&self, node: u64, pages: bool) {
        if pages {
            self.nodes.moved(node);
        }
        self.fresh.drop_node(node);
        self.nodes.listing_is_old(node);
        let up_to = pages.then(|| self.nodes.stale_up_to(node));
        self.expire_node(node, pages.then_some(0));
        if let Some(up_to) = up_to {
            self.nodes.dropped(node, up_to);
        }
    }

    /// The same of attributes and, from a byte on, pages that the kernel alone keeps.
    pub(crate) fn expire_node(&self, node: u64, pages_from: Option<u64>) {
        if !self.device.expire_node(node, pages_from) {
            self.nodes.is_unheard_of(node);
        }
    }

    /// Makes it, of a root, of what the kernel and we can do, and of what is remembered.
    pub(crate) fn new(
        device: Device,
        (agreed, remembered, taken): (u64, Arc<Remembered>, Option<TakenOver>),
        root: &Attr,
        room: Room,
        (clock, patience): (Arc<dyn Clock>, Duration),
    ) -> Self {
        Self {
            nodes: Nodes::new(root, &remembered),
            fresh: Fresh::default(),
            root: root.id,
            buffers: Arc::new(Buffers::new(room.buffers)),
            pipes: Arc::default(),
            ahead_room: AheadRoom::new(room.windows),
            room,
            last_handle: Arc::default(),
            owners: Owners::default(),
            appends_whole: agreed & init::DIRECT_IO_ALLOW_MMAP != 0,
            is_shared: false,
            login: None,
            remembered,
            taken,
            device,
            clock,
            patience,
        }
    }
}

/// By which ids of this machine callers are shown: those who use the mount, the first of those who are one caller.
#[derive(Default)]
pub(crate) struct Owners(RwLock<HashMap<CallerId, Vec<Ids>>>);

/// A user's ids on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ids {
    pub uid: u32,
    pub gid: u32,
}

impl Owners {
    /// Has what is a caller's be shown as a user's, if it is not shown as another's already.
    pub(crate) fn show(&self, caller: CallerId, ids: Ids) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).entry(caller).or_default().push(ids);
    }

    /// Has it not be shown as that user's any more.
    pub(crate) fn hide(&self, caller: CallerId, ids: Ids) {
        let mut callers = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let Some(users) = callers.get_mut(&caller) else { return };
        if let Some(place) = users.iter().rposition(|shown| *shown == ids) {
            users.remove(place);
        }
        if users.is_empty() {
            callers.remove(&caller);
        }
    }

    /// Returns the uid an owner is shown as (request-form law 17).
    pub(crate) fn uid(&self, owner: CallerId) -> u32 {
        self.ids(owner).map_or(OVERFLOW_ID, |ids| ids.uid)
    }

    /// Returns the gid that stands for a user of the mount alone; `None` if others have it as well.
    pub(crate) fn gid(&self, group: CallerId) -> Option<u32> {
        let gid = self.ids(group)?.gid;
        (self.of_gid(gid) == Some(group)).then_some(gid)
    }

    /// Returns who uses the mount under a uid.
    pub(crate) fn of_uid(&self, uid: u32) -> Option<CallerId> {
        self.only(uid, |ids| ids.uid)
    }

    /// Returns who uses the mount under a gid: `None` if nobody does, or more than one.
    pub(crate) fn of_gid(&self, gid: u32) -> Option<CallerId> {
        self.only(gid, |ids| ids.gid)
    }

    fn ids(&self, caller: CallerId) -> Option<Ids> {
        let callers = self.0.read().unwrap_or_else(PoisonError::into_inner);
        callers.get(&caller).and_then(|users| users.first()).copied()
    }

    /// Returns the only one of an id. The one that stands for everybody who is not shown stands for nobody.
    fn only(&self, id: u32, which: impl Fn(&Ids) -> u32) -> Option<CallerId> {
        let callers = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut found = callers.iter().filter(|(_, users)| users.iter().any(|ids| which(ids) == id));
        let only = found.next().filter(|_| found.next().is_none() && id != OVERFLOW_ID);
        only.map(|(caller, _)| *caller)
    }
}
