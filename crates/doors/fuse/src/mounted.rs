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
use crate::nodes::Nodes;
use crate::remembered::Remembered;
use crate::takeover::TakenOver;
use crate::{Login, OVERFLOW_ID};

/// What every door of a mount uses.
pub(crate) struct Mounted {
    pub device: Device,
    pub nodes: Nodes,
    pub buffers: Arc<Buffers>,
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
        self.device.expire_node(node, pages.then_some(0));
    }

    /// Makes it, of a root, of what the kernel and we can do, and of what is remembered.
    pub(crate) fn new(
        device: Device,
        (agreed, remembered, taken): (u64, Arc<Remembered>, Option<TakenOver>),
        root: &Attr,
        clock: Arc<dyn Clock>,
        patience: Duration,
    ) -> Self {
        Self {
            nodes: Nodes::new(root, &remembered),
            root: root.id,
            buffers: Arc::default(),
            ahead_room: AheadRoom::default(),
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

/// Under which uids of this machine owners are shown: those who use the mount, the first of those who are one owner.
#[derive(Default)]
pub(crate) struct Owners(RwLock<HashMap<CallerId, Vec<u32>>>);

impl Owners {
    /// Has what a caller owns be shown under a uid, if it is not shown under another already.
    pub(crate) fn show(&self, owner: CallerId, uid: u32) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).entry(owner).or_default().push(uid);
    }

    /// Has it not be shown under that uid any more.
    pub(crate) fn hide(&self, owner: CallerId, uid: u32) {
        let mut owners = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let Some(uids) = owners.get_mut(&owner) else { return };
        if let Some(place) = uids.iter().rposition(|shown| *shown == uid) {
            uids.remove(place);
        }
        if uids.is_empty() {
            owners.remove(&owner);
        }
    }

    /// Returns the uid an owner is shown as (request-form law 17).
    pub(crate) fn uid(&self, owner: CallerId) -> u32 {
        let owners = self.0.read().unwrap_or_else(PoisonError::into_inner);
        owners.get(&owner).and_then(|uids| uids.first()).copied().unwrap_or(OVERFLOW_ID)
    }
}
