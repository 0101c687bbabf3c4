//! Links and the counts of their uses, which are of no use one without the other.

use std::collections::BTreeSet;

use weft_core::{CallerId, LinkId, Result};
use weft_kv::{Order, Read, prefix_end};

use super::{Fix, Looker};
use crate::tables::{self, LinkUses};

impl Looker<'_> {
    /// A link that is not counted, or a count of none, is removed: nobody then reads by it.
    pub(super) fn links(&mut self) -> Result<()> {
        let (mut links, mut counted) = (BTreeSet::new(), BTreeSet::new());
        tables::each_below(self.rows, b"t", |rest, _| {
            let (maker, id) = tables::pair_of(rest)?;
            links.insert((LinkId(id), CallerId(maker)));
            Ok(true)
        })?;
        for row in self.rows.scan(b"q", &prefix_end(b"q"), Order::Rising) {
            let (key, value) = row?;
            let uses: LinkUses = tables::opened(&key, &value)?;
            counted.insert((LinkId(tables::id_of(&key[1..])?), uses.by));
        }
        for (id, maker) in links.difference(&counted) {
            let fix = Fix::Delete(tables::link_key(*maker, *id));
            let detail = format!("{id}: how often it was used is not there");
            self.found.mendable("link", detail, "removed; it works no more", [fix]);
        }
        for (id, _) in counted.difference(&links) {
            let fix = Fix::Delete(tables::link_uses_key(*id));
            self.found.mendable("uses of a link", format!("{id}: the link is not there"), "removed", [fix]);
        }
        Ok(())
    }
}
