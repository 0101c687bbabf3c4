//! What the scrubber found, by the names of files.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use weft_core::proof::Caller;
use weft_core::service::{Damage, Scrub};
use weft_core::{ObjectId, Result, Tick, limits};
use weft_store::Directory;
use weft_sys::Sys;
use weft_volume::managed::{Managed, PathsOfObjects};

use super::call_of;
use crate::{paths, show};

/// The paths of damaged objects, found out anew when there are others, or after a while: that goes over every
/// file there is, and monitors ask often.
pub struct Named {
    known: Mutex<Option<Known>>,
}

struct Known {
    objects: HashSet<ObjectId>,
    paths: PathsOfObjects,
    until: Tick,
}

impl Named {
    /// Begins with none.
    pub fn new() -> Self {
        Self { known: Mutex::default() }
    }

    /// Returns how far the scrubber is, with the names of the files that it found damaged.
    pub fn scrub(&self, sys: &Sys, caller: &Caller, store: &Directory, volume: &Managed) -> Result<Scrub> {
        let mut scrub = store.scrub()?;
        let objects: HashSet<_> = scrub.damaged.iter().map(|damage| damage.object).collect();
        if objects.is_empty() {
            return Ok(scrub);
        }
        // Whoever else asks meanwhile waits, and need not look for itself.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let now = sys.clock().tick();
        let known = match known.take().filter(|known| known.objects == objects && known.until > now) {
            Some(still) => known.insert(still),
            None => {
                let paths = volume.paths_of_objects(&call_of(sys, caller), &objects)?;
                known.insert(Known { objects, paths, until: now.plus(limits::DAMAGED_NAMES_KEPT) })
            }
        };
        for damage in &mut scrub.damaged {
            let found = known.paths.get(&damage.object).into_iter().flatten();
            damage.files = found.map(paths::show).collect();
        }
        Ok(scrub)
    }
}

/// Says what is damaged, a line each, as many as `weft status` has room for.
pub fn lines(scrub: &Scrub) -> Vec<String> {
    let mut lines: Vec<_> = scrub.damaged.iter().take(limits::STATUS_DAMAGED_MAX).map(line).collect();
    let more = scrub.damaged.len() as u64 - lines.len() as u64 + scrub.beyond;
    if more > 0 {
        lines.push(format!("{more} more files are damaged: weft scrub status"));
    }
    lines
}

fn line(damage: &Damage) -> String {
    let files = match &damage.files[..] {
        [] => format!("object {}", damage.object),
        files => files.join(" and "),
    };
    format!("{files}: {}; restore it from a backup", show::damage(damage))
}
