//! Which file an object's bytes are of: the store knows no names.

use std::collections::{HashMap, HashSet};

use weft_core::form::Call;
use weft_core::{Name, ObjectId, RelPath, Result};

use super::super::Managed;
use super::super::table::inodes::{self, Layout};

impl Managed {
    /// Returns the paths of the files whose bytes these objects hold: so that what the
    /// store finds wrong can be said of a file. Goes over every inode; needs what
    /// [`Managed::check`] needs.
    pub fn paths_of_objects(
        &self,
        call: &Call,
        objects: &HashSet<ObjectId>,
    ) -> Result<HashMap<ObjectId, Vec<RelPath>>> {
        self.volume.look(call, |view| {
            super::need_maintain(view)?;
            let mut paths = HashMap::new();
            for row in inodes::all(view.read) {
                let (serial, inode) = row?;
                let Layout::Whole { object, .. } = inode.layout else { continue };
                if objects.contains(&object) {
                    let found = view.paths_of(&view.node_at(serial)?)?;
                    paths.insert(object, found.iter().map(|names| joined(names)).collect::<Result<_>>()?);
                }
            }
            Ok(paths)
        })
    }
}

fn joined(names: &[Name]) -> Result<RelPath> {
    names.iter().try_fold(RelPath::EMPTY, |path, name| path.join(name))
}
