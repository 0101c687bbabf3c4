//! Where ids were last seen.

use std::sync::Arc;

use quick_cache::sync::Cache;
use weft_core::{FileId, VolumeId, limits};
use weft_sys::beneath::Facts;
use weft_sys::folder::Sort;

use super::policies::is_within;
use super::rename::Move;

/// As many ids as fit, with their paths.
pub(super) struct Known {
    volume: VolumeId,
    paths: Cache<FileId, Paths>,
}

/// Where something was seen, last first: of one that has several names, some of them.
pub(super) type Paths = Arc<[Arc<[u8]>]>;

/// As many names of one file are remembered.
const NAMES_MAX: usize = 8;

impl Known {
    pub(super) fn new(volume: VolumeId) -> Self {
        Self { volume, paths: Cache::new(limits::EXPORT_PATHS_KNOWN) }
    }

    /// Returns the id of an inode. A number that has more than 48 bits is folded: what tells it from
    /// others of the same folded number is the generation, of which the rest of it is part.
    pub(super) fn id_of(&self, facts: &Facts) -> FileId {
        let high = facts.inode >> 48;
        let generation = facts.generation ^ (high as u32).wrapping_mul(0x9e37_79b9);
        FileId::new(self.volume, facts.inode & FileId::SERIAL_MAX, generation)
    }

    /// Notes where an id was seen.
    pub(super) fn see(&self, id: FileId, path: &[u8], facts: &Facts) {
        let known = self.paths.peek(&id).unwrap_or_default();
        if known.first().is_some_and(|first| **first == *path) {
            return;
        }
        let several = facts.links > 1 && facts.sort != Sort::Directory;
        let most = if several { NAMES_MAX - 1 } else { 0 };
        let others = known.iter().filter(|known| ***known != *path).take(most).cloned();
        self.paths.insert(id, std::iter::once(path.into()).chain(others).collect());
    }

    /// Returns where an id was seen.
    pub(super) fn paths(&self, id: FileId) -> Paths {
        self.paths.get(&id).unwrap_or_default()
    }

    /// Notes that some things lie elsewhere now, with what lies below them. Only where that may be anything
    /// does it look at all that is known.
    pub(super) fn moved(&self, places: &[Move]) {
        let touched = |path: &[u8]| places.iter().find(|place| is_within(path, &place.from));
        let touches = |paths: &Paths| paths.iter().any(|path| touched(path).is_some());
        let known: Vec<_> = match places.iter().any(|place| place.is_directory) {
            true => self.paths.iter().filter(|(_, paths)| touches(paths)).collect(),
            false => {
                places.iter().filter_map(|place| Some((place.id, self.paths.peek(&place.id)?))).collect()
            }
        };
        for (id, paths) in known {
            let there = |path: &Arc<[u8]>| match touched(path) {
                Some(place) => moved(path, &place.from, &place.to).into(),
                None => path.clone(),
            };
            self.paths.insert(id, paths.iter().map(there).collect());
        }
    }
}

/// Returns the path that something at or below `from` has once that is at `to`.
pub(super) fn moved(path: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    [to, &path[from.len()..]].concat()
}

/// Returns the path of a name in a directory.
pub(super) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() }
}

/// Returns the directory that a path lies in; none for the root.
pub(super) fn above(path: &[u8]) -> Option<&[u8]> {
    if path.is_empty() {
        return None;
    }
    Some(path.iter().rposition(|byte| *byte == b'/').map_or(&[], |slash| &path[..slash]))
}
