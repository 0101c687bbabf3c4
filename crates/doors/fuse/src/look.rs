//! Looking again and again at open files of a volume whose changes nobody tells of: those of a share, which programs of
//! the node's machine change as well.
//!
//! Of such a volume the kernel is given names and attributes to keep for no time, so that each access asks, and each open
//! drops the pages. Of a file that stays open it keeps pages, and reads and mappings of those ask nobody: so what is open
//! is looked at once a second ([`limits::MOUNT_UNWATCHED_LOOK`]), and pages are dropped that are of another version, or may
//! not be seen any more. While nothing of the kind is open, nobody looks.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tokio::sync::watch;
use weft_core::attr::Version;
use weft_core::form::{At, Call, Want};
use weft_core::{FileId, Result, Rights, VolumeId, limits};

use crate::door::Door;

/// What the kernel keeps of an open file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shows {
    /// May be shown still; the file has this version.
    Still(Version),
    /// Is of another version than the file's now.
    Another,
    /// May not be seen any more.
    NoMore,
}

impl Door {
    /// Returns whether what the kernel keeps of an open file may go on being shown: the right is there, and the bytes are
    /// not of another version, of whose making nobody was told. Fails as [`weft_core::form::FileSystem::walk`] does.
    pub(crate) async fn shows_still(
        &self,
        (node, file): (u64, FileId),
        opened_with: Rights,
        call: &Call,
    ) -> Result<Shows> {
        let want = Want { attr: true, rights: true };
        let needed = opened_with & (Rights::READ | Rights::EXECUTE);
        let walked = self.fs.walk(call, &At::id(file), want).await?;
        let may = walked.rights.is_some_and(|rights| rights.intersects(needed) || needed.is_empty());
        Ok(match (may, may && self.mounted.nodes.told(node, &walked.attr)) {
            (false, _) => Shows::NoMore,
            (true, true) => Shows::Another,
            (true, false) => Shows::Still(walked.attr.version),
        })
    }

    /// Has the kernel drop the pages of an open file that do not show it any more.
    pub(crate) fn drop_shown(&self, node: u64, shows: Shows) {
        self.mounted.drop_kept(node, true);
        if shows == Shows::Another {
            self.mounted.nodes.dropped(node);
        }
    }

    fn unwatched_open(&self) -> Vec<(u64, FileId, Rights)> {
        let mut open = self.handles.each_node();
        open.retain(|(_, file, _)| !self.is_watched(file.volume()));
        open
    }
}

/// Looks at what is open at a door, until it is shut.
pub(crate) async fn look_at_unwatched(door: Arc<Door>, mut ended: watch::Receiver<bool>) {
    let mut seen = Seen::default();
    let look = async {
        loop {
            let open = door.unwatched_open();
            if open.is_empty() {
                door.opened_unwatched.notified().await;
            }
            look(&door, open, &mut seen).await;
            tokio::time::sleep(limits::MOUNT_UNWATCHED_LOOK).await;
        }
    };
    tokio::select! {
        () = look => {}
        _ = ended.wait_for(|ended| *ended) => {}
    }
}

async fn look(door: &Arc<Door>, open: Vec<(u64, FileId, Rights)>, seen: &mut Seen) {
    // Whoever does not answer for one file is not asked for each.
    let mut silent: HashSet<VolumeId> = HashSet::new();
    let mut gone = Vec::new();
    seen.keep(&open);
    for (node, file, rights) in open {
        let volume = file.volume();
        let call = door.call_within(limits::MOUNT_UNWATCHED_LOOK);
        let shows = match silent.contains(&volume) {
            true => Shows::NoMore,
            // What may still be seen nobody knows; a read of it asks.
            false => door.shows_still((node, file), rights, &call).await.unwrap_or(Shows::NoMore),
        };
        if call.until.passed(&*door.mounted.clock) {
            silent.insert(volume);
        }
        match shows {
            Shows::Still(version) if !seen.may_be_older(node, version) => {}
            shows => gone.push((node, shows)),
        }
    }
    if gone.is_empty() {
        return;
    }
    let door = door.clone();
    // A runtime that stops takes the mount with it.
    let _ = tokio::task::spawn_blocking(move || {
        gone.into_iter().for_each(|(node, shows)| door.drop_shown(node, shows));
    })
    .await;
}

/// What earlier looks have found: the version of each open file, and how often in a row.
#[derive(Default)]
struct Seen(HashMap<u64, (Version, u32)>);

/// Two changes within one tick of the disk's clock look like one: the pages may be from between them, also after a look
/// that came between them. Not after another a second later.
const LOOKS_OF_A_NEW_VERSION: u32 = 2;

impl Seen {
    fn keep(&mut self, open: &[(u64, FileId, Rights)]) {
        let open: HashSet<u64> = open.iter().map(|(node, ..)| *node).collect();
        self.0.retain(|node, _| open.contains(node));
    }

    /// Notes what a look has found. Returns whether the kernel's pages may be older all the same.
    fn may_be_older(&mut self, node: u64, version: Version) -> bool {
        let (seen, looks) = self.0.entry(node).or_insert((version, 0));
        if *seen != version {
            (*seen, *looks) = (version, 0);
        }
        *looks = looks.saturating_add(1);
        *looks <= LOOKS_OF_A_NEW_VERSION
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_a_version_that_was_seen_twice_are_believed() {
        let mut seen = Seen::default();
        let mut looks = |version| seen.may_be_older(7, Version(version));
        assert_eq!([1, 1, 1, 1].map(&mut looks), [true, true, false, false]);
        assert_eq!([2, 1, 1, 1].map(&mut looks), [true, true, true, false]);
        seen.keep(&[]);
        assert!(seen.may_be_older(7, Version(1)), "it was opened anew");
    }
}
