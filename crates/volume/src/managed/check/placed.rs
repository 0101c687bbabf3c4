//! Containers: what lies below a container's root is its own, or on its way to it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use weft_core::{ContainerId, FileId, Result};

use super::super::table::containers;
use super::super::table::entries;
use super::super::table::inodes;
use super::super::table::key::{Key, Table};
use super::super::table::splits::{self, Split};
use super::{Checker, Fix};

/// Directories with members that no split will come to, by the container these are in and
/// the one they belong to.
type Strays = BTreeMap<(ContainerId, ContainerId), BTreeSet<u64>>;

/// What is known of places so far.
struct Places {
    splits: Vec<(ContainerId, Split)>,
    roots: HashMap<ContainerId, Option<u64>>,
    governors: HashMap<u64, Option<ContainerId>>,
}

impl Checker<'_> {
    /// Finds members that another place's policy would govern for ever, and has a split
    /// fetch them.
    pub(super) fn placed(&mut self) -> Result<()> {
        for ((from, into), dirs) in self.strays()? {
            let Some(rules) = containers::find_rules(self.read, into)? else { continue };
            let split = Split { root: rules.root, into };
            let key = Key::of(Table::Split).u64(from.0).u64(into.0);
            let mut fixes = vec![super::rows::put_row(key, &split)?];
            for dir in &dirs {
                let (key, value) = splits::queued(&split, *dir)?;
                fixes.push(Fix::Put(key, value));
            }
            let detail = format!("what lies in {} directories of {into} is still in {from}", dirs.len());
            self.found.mendable("split", detail, "begun again", fixes);
        }
        Ok(())
    }

    fn strays(&self) -> Result<Strays> {
        let splits = splits::all(self.read)?;
        let mut places = Places { splits, roots: HashMap::new(), governors: HashMap::new() };
        let (mut strays, mut found) = (Strays::new(), 0);
        let mut above: Option<(u64, ContainerId)> = None;
        for row in entries::all(self.read) {
            let (dir, _, link) = row?;
            let into = match above {
                Some((known, container)) if known == dir => container,
                _ => inodes::load(self.read, dir)?.container,
            };
            above = Some((dir, into));
            let from = inodes::load(self.read, link.inode)?.container;
            if from == into
                || self.root_of(&mut places, from)? == Some(link.inode)
                // A directory that lags behind itself is found by its own name.
                || self.governor(&mut places, dir)? != Some(into)
                || self.will_be_fetched(&places, from, into, dir, link.cookie)?
            {
                continue;
            }
            found += usize::from(strays.entry((from, into)).or_default().insert(dir));
            if found > super::FINDINGS_MAX {
                break;
            }
        }
        Ok(strays)
    }

    fn root_of(&self, places: &mut Places, container: ContainerId) -> Result<Option<u64>> {
        if let Some(known) = places.roots.get(&container) {
            return Ok(*known);
        }
        let root = containers::find_rules(self.read, container)?.map(|rules| rules.root);
        places.roots.insert(container, root);
        Ok(root)
    }

    /// The container of the nearest directory, from this one upwards, that is a container's
    /// root. `None` if there is none.
    fn governor(&self, places: &mut Places, dir: u64) -> Result<Option<ContainerId>> {
        if let Some(known) = places.governors.get(&dir) {
            return Ok(*known);
        }
        let mut at = dir;
        let mut governor = None;
        for _ in 0..super::super::DEPTH_MAX {
            let inode = inodes::load(self.read, at)?;
            if self.root_of(places, inode.container)? == Some(at) {
                governor = Some(inode.container);
                break;
            }
            if at == FileId::ROOT.serial() {
                break;
            }
            at = inode.parent;
        }
        places.governors.insert(dir, governor);
        Ok(governor)
    }

    /// Whether a split under way has yet to come to an entry.
    fn will_be_fetched(
        &self,
        places: &Places,
        from: ContainerId,
        into: ContainerId,
        dir: u64,
        cookie: u64,
    ) -> Result<bool> {
        if splits::moved_in(self.read, into, dir)?.is_none_or(|moved| moved >= cookie) {
            return Ok(false);
        }
        for (left, _) in places.splits.iter().filter(|(_, split)| split.into == into) {
            if splits::with_lagging(self.read, *left)?.contains(&from) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
