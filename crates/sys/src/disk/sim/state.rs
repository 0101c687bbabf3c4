//! The tree of a simulated disk: names now, names on the platter, and what lies between.

use std::collections::{BTreeMap, BTreeSet};

use rustix::io::{Errno, Result};

use super::content::{Content, SECTOR};
use super::{Boundary, Faults, SimCounts};
use crate::disk::{Entry, FlushSite, Open};
use crate::random::{Random, SeededRandom};

/// Everything on a simulated disk.
pub(super) struct State {
    nodes: BTreeMap<u64, Node>,
    next_node: u64,
    /// Changes of names that no `sync_dir` has covered, oldest first.
    unsynced: Vec<Renaming>,
    pub(super) faults: Faults,
    pub(super) counts: SimCounts,
    pub(super) locks: BTreeSet<u64>,
    pub(super) halted: bool,
    pub(super) cut_at: Option<Boundary>,
    /// Bytes of file content on the disk.
    pub(super) used: u64,
    /// Bytes, each of a file, that no read gets past.
    pub(super) unreadable: BTreeSet<(u64, u64)>,
}

#[derive(Clone)]
enum Node {
    File { content: Content, names: u64 },
    Directory { now: BTreeMap<String, u64>, durable: BTreeMap<String, u64> },
}

/// One atomic change of names.
#[derive(Clone)]
struct Renaming {
    parts: Vec<Part>,
}

#[derive(Clone)]
struct Part {
    dir: u64,
    name: String,
    old: Option<u64>,
    new: Option<u64>,
}

impl State {
    pub(super) const ROOT: u64 = 0;

    pub(super) fn new() -> Self {
        Self {
            nodes: BTreeMap::from([(Self::ROOT, Node::directory())]),
            next_node: 1,
            unsynced: Vec::new(),
            faults: Faults::default(),
            counts: SimCounts::default(),
            locks: BTreeSet::new(),
            halted: false,
            cut_at: None,
            used: 0,
            unreadable: BTreeSet::new(),
        }
    }

    pub(super) fn alive(&self) -> Result<()> {
        if self.halted { Err(Errno::IO) } else { Ok(()) }
    }

    /// Counts one change; fails if the power is off or goes off with it.
    pub(super) fn begin_change(&mut self, boundary: Boundary) -> Result<()> {
        self.alive()?;
        self.counts.changes += 1;
        if due(&mut self.faults.halt) {
            self.halted = true;
            self.cut_at = Some(boundary);
            return Err(Errno::IO);
        }
        Ok(())
    }

    /// Counts one flush. Returns whether to do it.
    pub(super) fn begin_flush(&mut self, site: FlushSite) -> Result<bool> {
        *self.counts.flushes.entry(site).or_default() += 1;
        if due(&mut self.faults.fail_flush) {
            return Err(Errno::IO);
        }
        Ok(!self.faults.ignore.contains(&site))
    }

    fn directory(&self, node: u64) -> Result<&BTreeMap<String, u64>> {
        match self.nodes.get(&node) {
            Some(Node::Directory { now, .. }) => Ok(now),
            Some(Node::File { .. }) => Err(Errno::NOTDIR),
            None => Err(Errno::NOENT),
        }
    }

    pub(super) fn content(&mut self, node: u64) -> Result<&mut Content> {
        match self.nodes.get_mut(&node) {
            Some(Node::File { content, .. }) => Ok(content),
            Some(Node::Directory { .. }) => Err(Errno::ISDIR),
            None => Err(Errno::NOENT),
        }
    }

    pub(super) fn find(&self, root: u64, path: &str) -> Result<u64> {
        self.alive()?;
        let mut node = root;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            node = *self.directory(node)?.get(name).ok_or(Errno::NOENT)?;
        }
        Ok(node)
    }

    /// Splits a path into its directory's node and its last name.
    fn parent<'a>(&self, root: u64, path: &'a str) -> Result<(u64, &'a str)> {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        match name {
            "" | "." | ".." => Err(Errno::INVAL),
            name => Ok((self.find(root, dir)?, name)),
        }
    }

    pub(super) fn open(&mut self, root: u64, path: &str, how: Open) -> Result<u64> {
        let (dir, name) = self.parent(root, path)?;
        match (self.directory(dir)?.get(name).copied(), how) {
            (Some(_), Open::MakeNew) => Err(Errno::EXIST),
            (Some(node), _) => self.content(node).map(|_| node),
            (None, Open::Make | Open::MakeNew) => {
                self.begin_change(Boundary::Change("make"))?;
                let node = self.add(Node::File { content: Content::default(), names: 1 });
                self.enter(vec![Part { dir, name: name.to_owned(), old: None, new: Some(node) }]);
                Ok(node)
            }
            (None, _) => Err(Errno::NOENT),
        }
    }

    pub(super) fn make_dir(&mut self, root: u64, path: &str) -> Result<()> {
        let (dir, name) = self.parent(root, path)?;
        if self.directory(dir)?.contains_key(name) {
            return Err(Errno::EXIST);
        }
        let node = self.add(Node::directory());
        self.enter(vec![Part { dir, name: name.to_owned(), old: None, new: Some(node) }]);
        Ok(())
    }

    fn add(&mut self, node: Node) -> u64 {
        let id = self.next_node;
        self.next_node += 1;
        self.nodes.insert(id, node);
        id
    }

    /// Makes a change of names visible, and remembers it until it is flushed.
    fn enter(&mut self, parts: Vec<Part>) {
        for part in &parts {
            if let Some(Node::Directory { now, .. }) = self.nodes.get_mut(&part.dir) {
                set(now, &part.name, part.new);
            }
        }
        self.unsynced.push(Renaming { parts });
    }

    pub(super) fn list(&self, root: u64, dir: &str) -> Result<Vec<(String, Entry)>> {
        let node = self.find(root, dir)?;
        let kind = |node| match self.nodes.get(node) {
            Some(Node::File { .. }) => Entry::File,
            Some(Node::Directory { .. }) => Entry::Directory,
            None => Entry::Other,
        };
        Ok(self.directory(node)?.iter().map(|(name, node)| (name.clone(), kind(node))).collect())
    }

    pub(super) fn rename(&mut self, root: u64, from: &str, to: &str) -> Result<()> {
        let node = self.find(root, from)?;
        let (from_dir, from_name) = self.parent(root, from)?;
        let (to_dir, to_name) = self.parent(root, to)?;
        let old = self.directory(to_dir)?.get(to_name).copied();
        match old.map(|old| &self.nodes[&old]) {
            Some(Node::Directory { .. }) => return Err(Errno::ISDIR),
            Some(Node::File { .. }) if old == Some(node) => return Ok(()),
            Some(Node::File { .. }) => self.forget_name(old),
            None => {}
        }
        self.enter(vec![
            Part { dir: from_dir, name: from_name.to_owned(), old: Some(node), new: None },
            Part { dir: to_dir, name: to_name.to_owned(), old, new: Some(node) },
        ]);
        Ok(())
    }

    pub(super) fn link(&mut self, root: u64, from: &str, to: &str) -> Result<()> {
        let node = self.find(root, from)?;
        let (dir, name) = self.parent(root, to)?;
        if self.directory(dir)?.contains_key(name) {
            return Err(Errno::EXIST);
        }
        match self.nodes.get_mut(&node) {
            Some(Node::File { names, .. }) => *names += 1,
            _ => return Err(Errno::PERM),
        }
        self.enter(vec![Part { dir, name: name.to_owned(), old: None, new: Some(node) }]);
        Ok(())
    }

    pub(super) fn remove(&mut self, root: u64, path: &str, directory: bool) -> Result<()> {
        let node = self.find(root, path)?;
        let (dir, name) = self.parent(root, path)?;
        match (&self.nodes[&node], directory) {
            (Node::Directory { .. }, false) => return Err(Errno::ISDIR),
            (Node::File { .. }, true) => return Err(Errno::NOTDIR),
            (Node::Directory { now, .. }, true) if !now.is_empty() => return Err(Errno::NOTEMPTY),
            (Node::Directory { .. }, true) => {}
            (Node::File { .. }, false) => self.forget_name(Some(node)),
        }
        self.enter(vec![Part { dir, name: name.to_owned(), old: Some(node), new: None }]);
        Ok(())
    }

    /// Counts one name of a file less; with the last its space is free.
    fn forget_name(&mut self, node: Option<u64>) {
        if let Some(Node::File { content, names }) = node.and_then(|node| self.nodes.get_mut(&node)) {
            *names -= 1;
            if *names == 0 {
                self.used = self.used.saturating_sub(content.occupied());
            }
        }
    }

    pub(super) fn sync_dir(&mut self, dir: u64) {
        let pending = std::mem::take(&mut self.unsynced);
        for renaming in pending {
            if renaming.parts.iter().any(|part| part.dir == dir) {
                renaming.parts.iter().for_each(|part| self.settle(part));
            } else {
                self.unsynced.push(renaming);
            }
        }
    }

    fn settle(&mut self, part: &Part) {
        if let Some(Node::Directory { durable, .. }) = self.nodes.get_mut(&part.dir) {
            set(durable, &part.name, part.new);
        }
    }

    pub(super) fn read(&mut self, node: u64, bytes: &mut [u8], at: u64) -> Result<usize> {
        self.alive()?;
        self.counts.reads += 1;
        let asked = (node, at)..(node, at.saturating_add(bytes.len() as u64));
        if due(&mut self.faults.fail_read) || self.unreadable.range(asked).next().is_some() {
            return Err(Errno::IO);
        }
        Ok(self.content(node)?.read(bytes, at))
    }

    pub(super) fn write(&mut self, node: u64, bytes: &[u8], at: u64) -> Result<()> {
        self.counts.writes += 1;
        self.counts.bytes += bytes.len() as u64;
        if due(&mut self.faults.fail_write) {
            self.content(node)?.write(&bytes[..bytes.len() / 2], at);
            return Err(Errno::IO);
        }
        // Like the kernel, write what fits and then refuse.
        let fits = self.fitting(node, at, bytes.len() as u64)?;
        self.occupying(node, |content| content.write(&bytes[..fits as usize], at))?;
        if fits < bytes.len() as u64 { Err(Errno::NOSPC) } else { Ok(()) }
    }

    /// Returns how many of the `len` bytes at `at` there is room for.
    fn fitting(&mut self, node: u64, at: u64, len: u64) -> Result<u64> {
        let Some(capacity) = self.faults.capacity else { return Ok(len) };
        let free = capacity.saturating_sub(self.used);
        let content = self.content(node)?;
        if content.wanted(at, len) <= free {
            return Ok(len);
        }
        let mut fits = 0;
        while fits < len && content.wanted(at, fits + 1) <= free {
            fits = (fits + SECTOR - (at + fits) % SECTOR).min(len);
        }
        Ok(fits)
    }

    pub(super) fn set_len(&mut self, node: u64, len: u64) -> Result<()> {
        self.occupying(node, |content| content.set_len(len))
    }

    pub(super) fn allocate(&mut self, node: u64, at: u64, len: u64) -> Result<()> {
        if self.fitting(node, at, len)? < len {
            return Err(Errno::NOSPC);
        }
        self.occupying(node, |content| content.allocate(at, len))
    }

    pub(super) fn reserve(&mut self, node: u64, at: u64, len: u64) -> Result<()> {
        if self.fitting(node, at, len)? < len {
            return Err(Errno::NOSPC);
        }
        self.occupying(node, |content| content.reserve(at, len))
    }

    pub(super) fn punch(&mut self, node: u64, at: u64, len: u64) -> Result<()> {
        self.occupying(node, |content| content.punch(at, len))
    }

    /// Changes a file's content and keeps count of the space it takes.
    fn occupying(&mut self, node: u64, act: impl FnOnce(&mut Content)) -> Result<()> {
        let content = self.content(node)?;
        let before = content.occupied();
        act(content);
        let after = content.occupied();
        self.used = (self.used + after).saturating_sub(before);
        Ok(())
    }

    /// Returns the disk after the process died and the machine did not.
    pub(super) fn after_kill(&self) -> Self {
        Self { nodes: self.nodes.clone(), unsynced: self.unsynced.clone(), used: self.used, ..self.reborn() }
    }

    fn reborn(&self) -> Self {
        let faults = Faults { halt: None, ..self.faults.clone() };
        Self { next_node: self.next_node, faults, counts: self.counts.clone(), ..Self::new() }
    }

    /// Returns the disk after the power went off.
    pub(super) fn after_power_cut(&self, seed: u64) -> Self {
        let random = SeededRandom::new(seed);
        let mut cut = Self { nodes: self.nodes.clone(), ..self.reborn() };
        for renaming in surviving(&self.unsynced, &random) {
            // A change that builds on one that was lost is lost with it.
            if renaming.parts.iter().all(|part| cut.durable(part) == part.old) {
                renaming.parts.iter().for_each(|part| cut.settle(part));
            }
        }
        for node in cut.nodes.values_mut() {
            match node {
                Node::File { content, names } => {
                    *content = content.survivor(&random);
                    *names = 0;
                }
                Node::Directory { now, durable } => now.clone_from(durable),
            }
        }
        cut.drop_unnamed();
        cut
    }

    fn durable(&self, part: &Part) -> Option<u64> {
        match self.nodes.get(&part.dir) {
            Some(Node::Directory { durable, .. }) => durable.get(&part.name).copied(),
            _ => None,
        }
    }

    /// Drops what no name reaches, and counts names and space anew.
    fn drop_unnamed(&mut self) {
        let mut named = BTreeMap::from([(Self::ROOT, 1_u64)]);
        let mut ahead = vec![Self::ROOT];
        while let Some(node) = ahead.pop() {
            let children: Vec<u64> =
                self.directory(node).map(|now| now.values().copied().collect()).unwrap_or_default();
            for child in children {
                *named.entry(child).or_default() += 1;
                ahead.push(child);
            }
        }
        self.nodes.retain(|node, _| named.contains_key(node));
        self.used = 0;
        for (id, node) in &mut self.nodes {
            if let Node::File { content, names } = node {
                *names = named[id];
                self.used += content.occupied();
            }
        }
    }
}

impl Node {
    fn directory() -> Self {
        Self::Directory { now: BTreeMap::new(), durable: BTreeMap::new() }
    }
}

/// Returns which unflushed changes of names survive: none, all, the first few, or any.
fn surviving<'a>(unsynced: &'a [Renaming], random: &SeededRandom) -> Vec<&'a Renaming> {
    match random.below(4) {
        0 => Vec::new(),
        1 => unsynced.iter().collect(),
        2 => unsynced.iter().take(random.below(unsynced.len() as u64 + 1) as usize).collect(),
        _ => unsynced.iter().filter(|_| random.below(2) == 0).collect(),
    }
}

/// Counts one event down. Returns whether it is the one to fail.
fn due(countdown: &mut Option<u64>) -> bool {
    match countdown {
        Some(left @ 2..) => {
            *left -= 1;
            false
        }
        Some(_) => {
            *countdown = None;
            true
        }
        None => false,
    }
}

fn set(names: &mut BTreeMap<String, u64>, name: &str, node: Option<u64>) {
    match node {
        Some(node) => names.insert(name.to_owned(), node),
        None => names.remove(name),
    };
}
