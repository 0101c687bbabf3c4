//! What the kernel is told of a page of changes by others: at once, or later of what it was shown already.
//!
//! A change may be told of late, when an open has shown it already. Whatever the kernel is told of a node while an answer about
//! it is on its way has the kernel put that answer aside, and go on with the length that it knew before: where that happens to an
//! `fstat`, and again to the read that follows and meets the file's end, a program is given zeros beyond an end that it was told.
//! So a node is told of once a page, and a file that was shown as it is now only a while later ([`Again`]): to be sure, since
//! what is shown is known by its number alone, and an older answer may have come after. Of a node that it does not know the kernel
//! takes no notice: the answer that brings it may be on its way, and show what was before, so that it is told of later as well.
//!
//! ```text
//!   names and nodes, directories at last  ─▶ at once
//!   a file that was opened, other bytes   ─▶ looked at ─▶ another than was shown ─▶ at once
//!                                                     └▶ as it was shown ─▶ later, once
//!   a node that the kernel does not know  ─▶ later, and again while it does not
//! ```

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use weft_core::form::{At, Change, ChangeKind, Want};
use weft_core::{FileId, limits};

use crate::door::Door;
use crate::nodes::Nodes;

/// Nodes that the kernel is told of again.
#[derive(Debug, Default)]
pub(crate) struct Again(HashMap<u64, Later>);

/// When it is, and until when it is once more while it does not know the node.
#[derive(Clone, Copy, Debug)]
struct Later {
    from: Instant,
    until: Instant,
}

impl Again {
    /// Adds nodes. What is added anew waits anew.
    pub(crate) fn add(&mut self, nodes: Vec<u64>, now: Instant) {
        let later = Later {
            from: now + limits::MOUNT_TOLD_AGAIN_AFTER,
            until: now + limits::MOUNT_TOLD_AGAIN_WITHIN,
        };
        self.0.extend(nodes.into_iter().map(|node| (node, later)));
    }

    /// Adds nodes that the kernel did not know, some of them although it was told of them again: those wait on, but not for ever.
    /// What it does not know after so long it was not answered with, or it has forgotten it.
    fn add_unheard_of(&mut self, nodes: Vec<u64>, told: &HashMap<u64, Later>, now: Instant) {
        let (again, anew): (Vec<_>, Vec<_>) = nodes.into_iter().partition(|node| told.contains_key(node));
        self.add(anew, now);
        let from = now + limits::MOUNT_TOLD_AGAIN_AFTER;
        let later = again.into_iter().map(|node| (node, Later { from, ..told[&node] }));
        self.0.extend(later.filter(|(_, later)| later.from <= later.until));
    }

    /// Returns when the kernel is to be told, if of anything.
    pub(crate) fn from(&self) -> Option<Instant> {
        self.0.values().map(|later| later.from).min()
    }

    /// Returns the nodes whose time has come.
    fn take(&mut self, now: Instant) -> HashMap<u64, Later> {
        self.0.extract_if(|_, later| later.from <= now).collect()
    }

    /// Tells the kernel of those whose time has come.
    pub(crate) async fn tell(&mut self, door: &Arc<Door>) {
        let told = self.take(Instant::now());
        let nodes: Vec<u64> = told.keys().copied().collect();
        door.tell_kernel(move |door| nodes.iter().for_each(|node| tell_of(door, *node, true))).await;
        self.add_unheard_of(door.mounted.nodes.take_unheard_of(), &told, Instant::now());
    }

    /// Tells the kernel of a page of changes, but of what it was shown already, which is added.
    pub(crate) async fn tell_others(&mut self, door: &Arc<Door>, changes: Vec<Change>) {
        let looked_at = to_be_looked_at(&changes, &door.mounted.nodes);
        let apart: HashSet<FileId> = looked_at.iter().map(|(_, file)| *file).collect();
        let shown = async {
            let (shown, others) = look(door, looked_at).await;
            if !others.is_empty() {
                let tell = move |door: &Door| others.iter().for_each(|node| tell_of(door, *node, true));
                door.tell_kernel(tell).await;
            }
            shown
        };
        let (shown, ()) = tokio::join!(shown, door.tell_kernel(move |door| tell(door, &changes, &apart)));
        self.add(shown, Instant::now());
    }
}

/// Returns the files, with their nodes, of which the kernel may have been shown what became of them: those that were opened, and of
/// which it has heard since it was told of a change; of which bytes alone changed. Of more than are looked at at one moment, some.
fn to_be_looked_at(changes: &[Change], nodes: &Nodes) -> Vec<(u64, FileId)> {
    let others: HashSet<FileId> =
        changes.iter().filter(|change| change.kind != ChangeKind::Write).map(|change| change.file).collect();
    let written: BTreeSet<FileId> =
        changes.iter().map(|change| change.file).filter(|file| !others.contains(file)).collect();
    let opened =
        |file: FileId| nodes.node(file).filter(|node| nodes.may_be_shown(*node)).map(|node| (node, file));
    written.into_iter().filter_map(opened).take(limits::MOUNT_LOOKS_AT_ONCE).collect()
}

/// Looks at files. Returns the nodes of those that are as they were shown, and of the others.
async fn look(door: &Arc<Door>, files: Vec<(u64, FileId)>) -> (Vec<u64>, Vec<u64>) {
    let mut others: BTreeSet<u64> = files.iter().map(|(node, _)| *node).collect();
    let (mut looks, mut shown) = (JoinSet::new(), Vec::new());
    for (node, file) in files {
        let door = door.clone();
        looks.spawn(async move {
            let call = door.call_within(limits::MOUNT_LOOK_WITHIN);
            (node, door.fs.walk(&call, &At::id(file), Want::default()).await)
        });
    }
    let until = Instant::now() + limits::MOUNT_LOOK_WITHIN;
    // What is not looked at by then may be anything.
    while let Ok(Some(looked)) = timeout_at(until, looks.join_next()).await {
        if let Ok((node, Ok(walked))) = looked
            && door.mounted.nodes.is_still(node, &walked.attr)
        {
            others.remove(&node);
            shown.push(node);
        }
    }
    (shown, others.into_iter().collect())
}

/// Tells the kernel that a node has changed.
fn tell_of(door: &Door, node: u64, pages: bool) {
    door.mounted.nodes.changed_elsewhere(node);
    door.mounted.drop_kept(node, pages);
}

/// Tells the kernel of changes in their order, of each node once, but of files that are told of apart. May wait, as
/// [`crate::device::Device::expire_node`] does.
fn tell(door: &Door, changes: &[Change], apart: &HashSet<FileId>) {
    let (nodes, mut told, mut directories) = (&door.mounted.nodes, HashSet::new(), BTreeSet::new());
    let of_pages = |change: &&Change| matches!(change.kind, ChangeKind::Write | ChangeKind::Policy);
    let pages: HashSet<FileId> = changes.iter().filter(of_pages).map(|change| change.file).collect();
    for change in changes {
        for (directory, name) in change.names() {
            if let Some(node) = nodes.node(*directory) {
                door.mounted.device.expire_name(node, name.as_bytes());
                directories.insert(node);
            }
        }
        if let Some(node) = nodes.node(change.file).filter(|_| !apart.contains(&change.file))
            && told.insert(node)
        {
            // Who has a directory open may list it no more, or finds it elsewhere.
            let pages = pages.contains(&change.file) || nodes.is_open_directory(node);
            tell_of(door, node, pages);
        }
    }
    // After their names, which wait, but on the newest kernels, for who lists a directory just now, whose answer is kept.
    directories.iter().for_each(|node| door.mounted.drop_kept(*node, true));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::tests::{attr, change, nodes};

    #[test]
    fn what_was_shown_is_told_of_again_a_while_after_it_was_the_last_time() {
        let (mut again, begun, while_) = (Again::default(), Instant::now(), limits::MOUNT_TOLD_AGAIN_AFTER);
        assert_eq!(again.from(), None);
        again.add(vec![1, 2], begun);
        again.add(vec![2], begun + while_ / 2);
        assert_eq!(again.from(), Some(begun + while_));
        assert_eq!((taken(&mut again, begun + while_), taken(&mut again, begun + while_)), (vec![1], vec![]));
        assert_eq!(again.from(), Some(begun + while_ * 3 / 2));
        assert_eq!((taken(&mut again, begun + while_ * 2), again.from()), (vec![2], None));
    }

    fn taken(again: &mut Again, now: Instant) -> Vec<u64> {
        again.take(now).into_keys().collect()
    }

    #[test]
    fn of_what_the_kernel_does_not_know_it_is_told_again_and_again_and_at_last_no_more() {
        let (mut again, begun, while_) = (Again::default(), Instant::now(), limits::MOUNT_TOLD_AGAIN_AFTER);
        again.add_unheard_of(vec![1], &HashMap::new(), begun);
        let (mut now, mut times) = (begun, 0_u128);
        while let Some(from) = again.from().filter(|_| times < 1000) {
            assert!(from <= now + while_, "no more than a while lies between");
            now = from;
            let told = again.take(now);
            times += 1;
            again.add_unheard_of(vec![1], &told, now);
        }
        assert_eq!(times, limits::MOUNT_TOLD_AGAIN_WITHIN.as_nanos() / while_.as_nanos());
        again.add_unheard_of(vec![1, 2], &HashMap::new(), now);
        let told = again.take(now + while_);
        again.add_unheard_of(vec![2], &told, now + while_);
        assert_eq!(taken(&mut again, now + while_ * 2), [2], "it knows the other by now");
    }

    #[test]
    fn only_an_opened_file_of_which_bytes_alone_changed_is_looked_at_and_no_more_than_a_few() {
        let nodes = nodes();
        let node = |file| nodes.found(&attr(file, 1, 10)).0;
        let opened = node(2);
        nodes.opened(opened, &attr(2, 1, 10));
        let _seen = node(3);
        let written = |file| change(ChangeKind::Write, file);
        let all = [written(2), written(2), written(3), written(4)];
        assert_eq!(to_be_looked_at(&all, &nodes), [(opened, attr(2, 0, 0).id)]);
        for kind in [ChangeKind::Attr, ChangeKind::Policy, ChangeKind::Remove] {
            assert_eq!(to_be_looked_at(&[written(2), change(kind, 2)], &nodes), [], "{kind:?}");
            assert_eq!(to_be_looked_at(&[change(kind, 2), written(2)], &nodes), [], "{kind:?}");
        }
        nodes.changed_elsewhere(opened);
        assert_eq!(to_be_looked_at(&all, &nodes), [], "it has heard nothing since it was told");
        nodes.told(opened, &attr(2, 2, 10));
        assert_eq!(to_be_looked_at(&all, &nodes).len(), 1);
        let many: Vec<_> = (10..100)
            .map(|file| {
                nodes.opened(node(file), &attr(file, 1, 10));
                written(file)
            })
            .collect();
        assert_eq!(to_be_looked_at(&many, &nodes).len(), limits::MOUNT_LOOKS_AT_ONCE);
    }
}
