//! Looking again and again at open files of a volume whose changes nobody tells of: those of a share, which programs of
//! the node's machine change as well.
//!
//! Of such a volume the kernel is given names and attributes to keep for no time, so that each access asks, and each open
//! drops the pages. Of a file that stays open it keeps pages, and reads and mappings of those ask nobody: so each that the
//! kernel was given pages of is looked at once a second ([`limits::MOUNT_UNWATCHED_LOOK`]), and pages go that are of
//! another version, or may not be seen any more. What they are filled with again is looked at again; where nothing was
//! filled, nobody looks, so that a file that may not be seen is not asked for in vain for ever.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use weft_core::attr::Version;
use weft_core::form::{At, Call, Want};
use weft_core::{ErrorKind, FileId, Result, Rights, limits};

use crate::door::Door;
use crate::nodes::Told;

/// Open files of which the kernel may keep pages, though nobody tells of their changes.
#[derive(Default)]
pub(crate) struct Unwatched {
    nodes: Mutex<HashSet<u64>>,
    came: Notify,
}

impl Unwatched {
    /// The kernel is given pages of a node.
    pub(crate) fn shows(&self, node: u64) {
        if self.lock().insert(node) {
            self.came.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<u64>> {
        // Every change leaves the set whole, so a panic elsewhere cannot spoil it.
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

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
        Ok(match may.then(|| self.mounted.nodes.told(node, &walked.attr)) {
            None => Shows::NoMore,
            Some(Told::Stale) => Shows::Another,
            Some(Told::Shown | Told::Going(_)) => Shows::Still(walked.attr.version),
        })
    }

    /// Has the kernel show nothing more of open files that may not be read any more, of those nodes that are asked for. Of
    /// what nobody tells, [`look_at_unwatched`] does. A node that does not answer leaves the rest as it is: nobody says that
    /// a right ended.
    pub(crate) async fn end_unseen(self: &Arc<Self>, which: impl Fn(u64) -> bool, patience: Duration) {
        let mut open = self.handles.each_node();
        open.retain(|(node, file, _)| which(*node) && self.is_watched(file.volume()));
        for some in open.chunks(limits::MOUNT_LOOKS_AT_ONCE) {
            let (mut gone, mut away) = (Vec::new(), false);
            let mut looks = looks(self, some, patience);
            while let Some(looked) = looks.join_next().await {
                match looked {
                    Ok((_, Ok(Shows::Still(_)))) | Err(_) => {}
                    Ok((_, Err(error))) if is_away(error.kind()) => away = true,
                    Ok((node, _)) => gone.push(node),
                }
            }
            if !gone.is_empty() {
                self.mounted.fresh.drop_all();
                let drop = |door: &Self| gone.into_iter().for_each(|node| door.mounted.drop_kept(node, true));
                self.tell_kernel(drop).await;
            }
            if away {
                return;
            }
        }
    }

    /// Returns the files that are to be looked at, and forgets those that are not open any more.
    fn shown_unwatched(&self) -> Vec<Open> {
        let mut shown = self.unwatched.lock();
        let mut open = self.handles.each_node();
        open.retain(|(node, ..)| shown.contains(node));
        *shown = open.iter().map(|(node, ..)| *node).collect();
        open
    }

    /// Has the kernel drop the pages, without waiting: it may have some to write back first. What it is given from now on
    /// is looked at again.
    fn drop_unwatched(self: &Arc<Self>, node: u64) {
        self.unwatched.lock().remove(&node);
        let door = self.clone();
        tokio::task::spawn_blocking(move || door.mounted.drop_kept(node, true));
    }
}

/// An open file: its node, which it is, and the rights it was opened with.
type Open = (u64, FileId, Rights);

/// Looks at what is open at a door, until it is shut.
pub(crate) async fn look_at_unwatched(door: Arc<Door>, mut ended: watch::Receiver<bool>) {
    let mut seen = Seen::default();
    let look = async {
        loop {
            let open = door.shown_unwatched();
            seen.keep(&open);
            if open.is_empty() {
                door.unwatched.came.notified().await;
            }
            for some in open.chunks(limits::MOUNT_LOOKS_AT_ONCE) {
                look_at(&door, some, &mut seen).await;
            }
            tokio::time::sleep(limits::MOUNT_UNWATCHED_LOOK).await;
        }
    };
    tokio::select! {
        () = look => {}
        _ = ended.wait_for(|ended| *ended) => {}
    }
}

/// Begins to look at some, all at once.
fn looks(door: &Arc<Door>, files: &[Open], patience: Duration) -> JoinSet<(u64, Result<Shows>)> {
    let mut looks = JoinSet::new();
    for (node, file, rights) in files.iter().copied() {
        let door = door.clone();
        looks.spawn(async move {
            let call = door.call_within(patience);
            (node, door.shows_still((node, file), rights, &call).await)
        });
    }
    looks
}

async fn look_at(door: &Arc<Door>, files: &[Open], seen: &mut Seen) {
    let mut looks = looks(door, files, limits::MOUNT_UNWATCHED_LOOK);
    while let Some(looked) = looks.join_next().await {
        // A panic was printed, and the next look is a second away.
        let Ok((node, shows)) = looked else { continue };
        if seen.is_to_go(node, shows, Instant::now()) {
            door.drop_unwatched(node);
        }
    }
}

/// What earlier looks have found of each file.
#[derive(Default)]
struct Seen(HashMap<u64, Found>);

struct Found {
    /// The version of the last look that was answered, and how many in a row have found it.
    version: Option<Version>,
    looks: u32,
    /// When a look was answered last.
    answered: Instant,
}

/// Two changes within one tick of the disk's clock look like one: the pages may be from between them, also after a look
/// that came between them. Not after another a second later.
const LOOKS_OF_A_NEW_VERSION: u32 = 2;

impl Seen {
    fn keep(&mut self, open: &[Open]) {
        let open: HashSet<u64> = open.iter().map(|(node, ..)| *node).collect();
        self.0.retain(|node, _| open.contains(node));
    }

    /// Notes what came of a look. Returns whether the kernel's pages are to go.
    fn is_to_go(&mut self, node: u64, shows: Result<Shows>, now: Instant) -> bool {
        let found = self.0.entry(node).or_insert(Found { version: None, looks: 0, answered: now });
        let shows = match shows {
            Ok(shows) => shows,
            Err(error) if refuses(error.kind()) => Shows::NoMore,
            // What may be shown nobody knows. A node that is slow does not get quicker by being asked for all of it again.
            Err(_) => return now - found.answered >= limits::CALL_DEADLINE,
        };
        found.answered = now;
        match shows {
            Shows::Still(version) => found.may_be_older(version),
            Shows::Another | Shows::NoMore => true,
        }
    }
}

impl Found {
    /// Notes the version that a look has found. Returns whether the kernel's pages may be older all the same.
    fn may_be_older(&mut self, version: Version) -> bool {
        if self.version.replace(version) != Some(version) {
            self.looks = 0;
        }
        self.looks = self.looks.saturating_add(1);
        self.looks <= LOOKS_OF_A_NEW_VERSION
    }
}

/// Whether a failure says that nobody answered.
pub(crate) fn is_away(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Unavailable | ErrorKind::Deadline)
}

/// Whether a failure says that the file may not be seen, or is gone.
pub(crate) fn refuses(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Denied
            | ErrorKind::NotPermitted
            | ErrorKind::Unauthenticated
            | ErrorKind::NotFound
            | ErrorKind::Stale
            | ErrorKind::Expired
            | ErrorKind::Revoked
    )
}

#[cfg(test)]
mod tests {
    use weft_core::Error;

    use super::*;

    const STILL: Shows = Shows::Still(Version(1));

    #[test]
    fn pages_of_a_version_that_was_seen_twice_are_believed() {
        let (mut seen, now) = (Seen::default(), Instant::now());
        let mut goes = |version| seen.is_to_go(7, Ok(Shows::Still(Version(version))), now);
        assert_eq!([1, 1, 1, 1].map(&mut goes), [true, true, false, false]);
        assert_eq!([2, 1, 1, 1].map(&mut goes), [true, true, true, false]);
        seen.keep(&[]);
        assert!(seen.is_to_go(7, Ok(STILL), now), "it was opened anew");
    }

    #[test]
    fn pages_of_which_nobody_says_anything_are_kept_for_as_long_as_a_call_may_take_and_no_longer() {
        let (mut seen, now) = (Seen::default(), Instant::now());
        let mut goes = |shows, after| seen.is_to_go(7, shows, now + after);
        let away = || Err(Error::new(ErrorKind::Unavailable, "it is away"));
        for _ in 0..3 {
            goes(Ok(STILL), Duration::ZERO);
        }
        let deadline = limits::CALL_DEADLINE;
        assert!(!goes(away(), deadline / 2));
        assert!(!goes(Ok(STILL), deadline / 2));
        assert!(!goes(away(), deadline));
        assert!(goes(away(), deadline + deadline / 2));
        for refused in [Error::denied("no"), Error::not_found("hidden"), Error::new(ErrorKind::Stale, "gone")]
        {
            assert!(goes(Err(refused), deadline));
        }
    }
}
