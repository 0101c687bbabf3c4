//! What a confined credential leaves of the volume: what lies at or below its paths, or at or below
//! the one thing that a link is for.

use weft_core::acl::Subject;
use weft_core::proof::Within;
use weft_core::{FileId, Name, Result, Rights};

use super::view::{Node, View};

impl View<'_> {
    pub(super) fn within_paths(&self, node: &Node) -> Result<Rights> {
        self.within(node, &self.call.caller.subject())
    }

    /// Returns what a confined credential leaves: of paths everything at and below them and the way
    /// there, of one thing everything at and below it, nothing elsewhere.
    pub(super) fn within(&self, node: &Node, who: &Subject<'_>) -> Result<Rights> {
        match who.within() {
            Some(within) if !self.lies_within(node, within)? => Ok(Rights::NONE),
            _ => self.within_paths_of(node, who),
        }
    }

    /// Returns whether something is the one thing, as it must be, or lies below it. By ids: it counts
    /// where that is now, not where it was.
    fn lies_within(&self, node: &Node, within: &Within) -> Result<bool> {
        if node.id == within.root {
            let same = match within.version {
                Some(version) => self.attr(node)?.version == version,
                None => true,
            };
            return Ok(same && node.inode.links > 0);
        }
        for parent in self.parents(node)? {
            if self.lineage(&parent)?.iter().any(|dir| dir.id == within.root) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Fails with `Denied` where somebody who is confined by path could do more with something if it had, or were at,
    /// another name: scopes do not add up.
    pub(super) fn must_gain_nothing(&self, node: &Node, (dir, name): (&Node, &Name)) -> Result<()> {
        let who = self.call.caller.subject();
        if !who.is_confined_by_path() {
            return Ok(());
        }
        let mut to = self.paths_of(dir)?;
        to.iter_mut().for_each(|path| path.push(name.clone()));
        who.must_gain_nothing(&self.paths_of(node)?, &to, node.inode.is_directory())
    }

    fn within_paths_of(&self, node: &Node, who: &Subject<'_>) -> Result<Rights> {
        if !who.is_confined_by_path() {
            return Ok(Rights::ALL);
        }
        Ok(self.paths_of(node)?.iter().fold(Rights::NONE, |left, path| left | who.left_at(path)))
    }

    /// Returns the directories above something, up to the root.
    pub(super) fn ids_above(&self, node: &Node) -> Result<Vec<FileId>> {
        let mut above = Vec::new();
        for parent in self.parents(node)? {
            above.extend(self.lineage(&parent)?.iter().map(|dir| dir.id));
        }
        Ok(above)
    }
}
