//! What a confined credential leaves of a share: what lies at or below its paths, or at or below the
//! one thing that a link is for. Paths are those of the tree, in which the share has a place.

use weft_core::acl::Subject;
use weft_core::proof::Within;
use weft_core::{FileId, Name, RelPath, Result, Rights};

use super::known::join;
use super::policies::is_within;
use super::view::{Node, View};

impl View<'_> {
    pub(super) fn within_paths(&self, path: &[u8]) -> Rights {
        self.within(path, &self.call.caller.subject())
    }

    /// Returns what a confined credential leaves: of paths everything at and below them and the way
    /// there, of one thing everything at and below it, nothing elsewhere.
    pub(super) fn within(&self, path: &[u8], who: &Subject<'_>) -> Rights {
        match who.within() {
            Some(within) if !self.lies_within(path, within) => Rights::NONE,
            _ => self.within_paths_of(path, who),
        }
    }

    fn lies_within(&self, path: &[u8], within: &Within) -> bool {
        if within.root.volume() != self.volume.id {
            return self.volume.anchor.above().is_ok_and(|above| above.contains(&within.root));
        }
        if within.root == FileId::root_of(self.volume.id) {
            return true;
        }
        // Looked for once for each look at the share: all of a listing is asked against it.
        let root = self.confined_to.get_or_init(|| self.place_of(within));
        root.as_ref().is_some_and(|root| is_within(path, root))
    }

    /// Returns where the one thing lies now, if it has a name and is as it must be.
    fn place_of(&self, within: &Within) -> Option<Vec<u8>> {
        let node = self.node(within.root).ok().filter(|node| node.facts.links > 0)?;
        let same = within.version.is_none_or(|version| self.attr(&node).version == version);
        same.then_some(node.path)
    }

    /// Returns what a path of the tree is in the share.
    pub(super) fn below_places(&self, path: &RelPath) -> Option<Vec<u8>> {
        let names: Vec<Name> = path.names().collect();
        let places = self.volume.anchor.places().unwrap_or_default();
        let rest = places.iter().find_map(|place| names.strip_prefix(&place[..]))?;
        Some(rest.iter().fold(Vec::new(), |path, name| join(&path, name.as_bytes())))
    }

    /// Fails with `Denied` where somebody who is confined by path could do more with something if it had, or were at,
    /// another path: scopes do not add up.
    pub(super) fn must_gain_nothing(&self, node: &Node, to: &[u8]) -> Result<()> {
        let who = self.call.caller.subject();
        if !who.is_confined_by_path() {
            return Ok(());
        }
        who.must_gain_nothing(&self.in_tree(&node.path), &self.in_tree(to), node.is_directory())
    }

    fn within_paths_of(&self, path: &[u8], who: &Subject<'_>) -> Rights {
        if !who.is_confined_by_path() {
            return Rights::ALL;
        }
        self.in_tree(path).iter().fold(Rights::NONE, |left, path| left | who.left_at(path))
    }

    /// Returns where a path of the share is in the tree: once for each place that the share has there.
    fn in_tree(&self, path: &[u8]) -> Vec<Vec<Name>> {
        let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        let names: Vec<Name> = names.filter_map(|name| Name::new(name.to_vec()).ok()).collect();
        let places = self.volume.anchor.places().unwrap_or_default();
        places.into_iter().map(|place| [&place[..], &names[..]].concat()).collect()
    }
}
