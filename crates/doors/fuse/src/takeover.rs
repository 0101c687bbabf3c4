//! Going on with a mount whose process died.
//!
//! ```text
//!   remembered ─▶ nodes, open files, who locks
//!   the kernel sends again what was asked and not answered ─▶ served from here on
//!   all that it keeps of nodes is dropped, and each looked at anew when it is next asked for
//! ```
//!
//! How to get it wrong: have it send again while somebody reads requests here, which would then come twice. Or show pages
//! that are not dropped yet as those of a version (`Nodes::opened`).

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use weft_core::attr::Attr;
use weft_core::form::OpenFile;
use weft_core::{Error, ErrorKind, Result, Time};

use crate::handles::Handles;
use crate::mounted::Mounted;
use crate::nodes::Nodes;
use crate::remembered::{Part, Remembered};

/// A mount that stands and that nobody serves.
pub struct Taken {
    /// The kernel's end of it.
    pub device: OwnedFd,
    /// The files that are open, as the file system has taken them up, by what [`OpenFile::kept_as`] called them.
    pub files: HashMap<u64, Opened>,
    /// What is told of it.
    pub told: TakenOver,
}

/// An open file as it was taken up.
pub struct Opened {
    /// The file.
    pub file: Arc<dyn OpenFile>,
    /// What it is like now; `None` if that could not be learnt.
    pub attr: Option<Attr>,
}

/// What became of the processes before this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenOver {
    /// How many there were.
    pub times: u64,
    /// When the last of them ended.
    pub at: Time,
    /// How it did.
    pub because: String,
}

impl Handles {
    /// Takes up what is remembered to be open, with the file that each is. What a node's pages will be of is the version
    /// that it has now, once those are dropped that it had.
    pub(crate) fn taken_up(
        own: (u64, Arc<AtomicU64>),
        nodes: &Nodes,
        remembered: &Arc<Remembered>,
        files: &HashMap<u64, Opened>,
    ) -> Self {
        let find = |kept_as| Some(files.get(&kept_as)?.file.clone());
        let handles = Self::of_door(own, nodes, remembered, find);
        for (_, fields) in remembered.each(Part::Handles) {
            let [_, node, _, kept_as, ..] = fields;
            if let Some(attr) = files.get(&kept_as).and_then(|opened| opened.attr) {
                nodes.opened(node, &attr);
            }
        }
        handles
    }
}

impl Mounted {
    /// Has whatever was asked of the process before this one be asked of this one, before anything is read. Returns the
    /// nodes of which the kernel may show anything.
    ///
    /// `Unavailable` if it cannot be had: who asked would wait for ever.
    pub(crate) fn take_over(&self) -> Result<Vec<u64>> {
        if !self.device.resend() {
            let error = Error::new(ErrorKind::Unavailable, "the kernel does not send again what was asked");
            return Err(error.op("take over").about(self.device.mountpoint().display()));
        }
        Ok(self.nodes.all(None))
    }

    /// Has the kernel drop all that it keeps of nodes. May wait for what is read of them just now, which is answered here.
    pub(crate) fn drop_unsure(&self, nodes: &[u64]) {
        nodes.iter().for_each(|node| self.drop_kept(*node, true));
    }
}
