//! By which names the kernel came to directories.
//!
//! Where one may not be passed any more its own name is dropped ([`crate::passing`]). That takes the name, which only who asked for
//! it knows: a change of rights is told of by the file alone.
//!
//! What a process before this one learnt is not known here, and believed for as long as any name is.

use std::collections::HashMap;

use bytes::Bytes;
use weft_core::ContainerId;

use super::Nodes;

/// A directory, and a name in it.
pub(crate) type Way = (u64, Bytes);

/// The last way to each directory.
#[derive(Default)]
pub(super) struct Ways {
    by_node: HashMap<u64, Way>,
    by_way: HashMap<Way, u64>,
}

impl Ways {
    fn set(&mut self, node: u64, way: Way) {
        if self.by_node.get(&node) == Some(&way) {
            return;
        }
        self.forget(node);
        if let Some(other) = self.by_way.insert(way.clone(), node) {
            self.by_node.remove(&other);
        }
        self.by_node.insert(node, way);
    }

    pub(super) fn forget(&mut self, node: u64) {
        if let Some(way) = self.by_node.remove(&node) {
            self.by_way.remove(&way);
        }
    }
}

impl Nodes {
    /// Notes that the kernel is told of a directory under a name.
    pub(crate) fn came_by(&self, node: u64, way: Way) {
        let mut table = self.lock();
        if table.nodes.contains_key(&node) {
            table.ways.set(node, way);
        }
    }

    /// Notes that a directory may have changed its name, or two places, through this mount: the kernel is not told of that.
    pub(crate) fn renamed(&self, from: &Way, to: &Way, exchanged: bool) {
        let ways = &mut self.lock().ways;
        let (moved, other) = (ways.by_way.get(from).copied(), ways.by_way.get(to).copied());
        if let Some(node) = other {
            ways.forget(node);
        }
        if let Some(node) = moved {
            ways.set(node, to.clone());
        }
        if let Some(node) = other.filter(|_| exchanged) {
            ways.set(node, from.clone());
        }
    }

    /// Returns the directories of a container, or of all, that the kernel came to by names.
    pub(crate) fn came_to(&self, container: Option<ContainerId>) -> Vec<u64> {
        let table = self.lock();
        let of = |number: &u64| table.nodes.get(number).and_then(|node| node.container);
        let here =
            |number: &&u64| container.is_none_or(|container| of(number).is_none_or(|of| of == container));
        table.ways.by_node.keys().filter(here).copied().collect()
    }

    /// Returns the topmost directory of each container that the kernel came to: with its name go all below.
    pub(crate) fn tops(&self) -> Vec<u64> {
        let table = self.lock();
        let of = |number: &u64| table.nodes.get(number).and_then(|node| node.container);
        let ways = table.ways.by_node.iter();
        ways.filter(|(number, (above, _))| of(number) != of(above)).map(|(number, _)| *number).collect()
    }

    /// Returns by which name the kernel came to a directory last, if that is known.
    pub(crate) fn way_to(&self, node: u64) -> Option<Way> {
        self.lock().ways.by_node.get(&node).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(name: &'static str) -> Way {
        (1, Bytes::from_static(name.as_bytes()))
    }

    #[test]
    fn a_directory_has_one_way_and_a_way_one_directory() {
        let mut ways = Ways::default();
        ways.set(2, way("a"));
        ways.set(2, way("b"));
        ways.set(3, way("b"));
        assert_eq!(ways.by_node, HashMap::from([(3, way("b"))]));
        assert_eq!(ways.by_way, HashMap::from([(way("b"), 3)]));
        ways.forget(3);
        assert!(ways.by_node.is_empty() && ways.by_way.is_empty());
    }
}
