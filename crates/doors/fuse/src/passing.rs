//! Directories that may not be passed any more though the kernel knows names below them.
//!
//! It passes by names that it keeps and asks nobody. Where a right to pass may have ended, by a policy, a mode, an owner or
//! another place, the directory is looked at, and if it may not be passed its own name is dropped, by which the kernel came to it
//! ([`crate::nodes::Way`]): with that go the names below but for those in use, and who walks there again asks for each.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use weft_core::form::{At, Want};
use weft_core::{Rights, limits};

use crate::door::Door;
use crate::look::refuses;

/// Directories that are to be looked at.
#[derive(Default)]
pub(crate) struct Doubtful {
    nodes: Mutex<HashSet<u64>>,
    came: Notify,
}

impl Doubtful {
    fn add(&self, nodes: impl IntoIterator<Item = u64>) {
        // Every change leaves the set whole, so a panic elsewhere cannot spoil it.
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner).extend(nodes);
        self.came.notify_one();
    }

    fn take(&self) -> HashSet<u64> {
        std::mem::take(&mut self.nodes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Door {
    /// Has directories be looked at that may not be passed any more. Of a shared mount the kernel keeps no names. Waits for
    /// nothing: while a request is answered the kernel may hold what it would have to drop.
    pub(crate) fn doubt_passing(&self, nodes: impl IntoIterator<Item = u64>) {
        if !self.mounted.is_shared {
            self.doubtful.add(nodes);
        }
    }

    /// Returns whether a directory may be passed, as far as its node says.
    async fn may_pass(&self, node: u64) -> bool {
        let Ok(file) = self.mounted.nodes.file(node) else { return true };
        let want = Want { attr: true, rights: true };
        match self.fs.walk(&self.call(), &At::id(file), want).await {
            Ok(walked) => walked.rights.is_some_and(|rights| rights.contains(Rights::TRAVERSE)),
            Err(error) => !refuses(error.kind()),
        }
    }

    async fn drop_name(self: &Arc<Self>, node: u64) {
        if let Some((directory, name)) = self.mounted.nodes.way_to(node) {
            self.tell_kernel(move |door| door.mounted.device.expire_name(directory, &name)).await;
        }
    }
}

/// Looks at the directories that a door doubts, until it is shut.
pub(crate) async fn look_at_doubtful(door: Arc<Door>, mut ended: watch::Receiver<bool>) {
    let look = async {
        loop {
            let doubtful: Vec<u64> = door.doubtful.take().into_iter().collect();
            if doubtful.is_empty() {
                door.doubtful.came.notified().await;
            }
            for some in doubtful.chunks(limits::MOUNT_LOOKS_AT_ONCE) {
                let mut looks = JoinSet::new();
                for node in some.iter().copied() {
                    let door = door.clone();
                    looks.spawn(async move { (!door.may_pass(node).await).then_some(node) });
                }
                while let Some(looked) = looks.join_next().await {
                    // A panic was printed, and the name is believed for as long as any.
                    if let Ok(Some(node)) = looked {
                        door.drop_name(node).await;
                    }
                }
            }
        }
    };
    tokio::select! {
        () = look => {}
        _ = ended.wait_for(|ended| *ended) => {}
    }
}
