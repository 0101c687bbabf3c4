//! Which file an object's bytes are of: the store knows no names.

use std::collections::{HashMap, HashSet};

use weft_core::attr::Kind;
use weft_core::form::Call;
use weft_core::{FileId, Name, ObjectId, RelPath, Result, VolumeId};
use weft_kv::Space;

use super::super::table::inodes::{self, Layout};
use super::super::view::View;
use super::super::{Config, Managed, SCHEMA, Volume};

/// The paths of files, by the objects that hold their bytes.
pub type PathsOfObjects = HashMap<ObjectId, Vec<RelPath>>;

impl Managed {
    /// Returns the paths of the files whose bytes these objects hold: so that what the
    /// store finds wrong can be said of a file. Goes over every inode; needs what
    /// [`Managed::check`] needs.
    pub fn paths_of_objects(&self, call: &Call, objects: &HashSet<ObjectId>) -> Result<PathsOfObjects> {
        self.volume.look(call, |view| {
            super::need_maintain(view)?;
            view.paths_of_objects(objects)
        })
    }
}

/// The same of a volume that nobody has open.
pub async fn paths_at_rest(config: Config, objects: &HashSet<ObjectId>) -> Result<PathsOfObjects> {
    let space = Space::open(config.engine.clone(), config.space, &SCHEMA).await?;
    let volume = Volume::assemble(config, space)?;
    volume.look(&volume.own_call(), |view| view.paths_of_objects(objects))
}

impl View<'_> {
    fn paths_of_objects(&self, objects: &HashSet<ObjectId>) -> Result<PathsOfObjects> {
        let mut paths = HashMap::new();
        for row in inodes::all(self.read) {
            let (serial, inode) = row?;
            let Layout::Whole { object, .. } = inode.layout else { continue };
            if objects.contains(&object) {
                let found = self.paths_of(&self.node_at(serial)?)?;
                paths.insert(object, found.iter().map(|names| joined(names)).collect::<Result<_>>()?);
            }
        }
        Ok(paths)
    }
}

/// An entry of the tree that leads to another volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Junction {
    /// The entry.
    pub id: FileId,
    /// Where it is.
    pub at: RelPath,
    /// The volume.
    pub volume: VolumeId,
}

impl Managed {
    /// Returns every junction. Goes over every inode; needs what [`Managed::check`] needs.
    pub fn junctions(&self, call: &Call) -> Result<Vec<Junction>> {
        self.volume.look(call, |view| {
            super::need_maintain(view)?;
            view.junctions()
        })
    }
}

/// Returns every junction of a volume that nobody has open.
pub async fn junctions_at_rest(config: Config) -> Result<Vec<Junction>> {
    let space = Space::open(config.engine.clone(), config.space, &SCHEMA).await?;
    let volume = Volume::assemble(config, space)?;
    volume.look(&volume.own_call(), |view| view.junctions())
}

impl View<'_> {
    fn junctions(&self) -> Result<Vec<Junction>> {
        let mut junctions = Vec::new();
        for row in inodes::all(self.read) {
            let (serial, inode) = row?;
            if inode.kind != Kind::Reference {
                continue;
            }
            let node = self.node_at(serial)?;
            if let (Some(volume), [path, ..]) = (self.joined(&node)?, &self.paths_of(&node)?[..]) {
                junctions.push(Junction { id: node.id, at: joined(path)?, volume });
            }
        }
        Ok(junctions)
    }
}

fn joined(names: &[Name]) -> Result<RelPath> {
    names.iter().try_fold(RelPath::EMPTY, |path, name| path.join(name))
}
