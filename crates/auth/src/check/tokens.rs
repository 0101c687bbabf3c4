//! Tokens, and what their secrets find them by, which are of no use one without the other.

use std::collections::BTreeSet;

use weft_core::{CallerId, Result, TokenId};
use weft_kv::{Order, Read, prefix_end};

use super::{Fix, Looker};
use crate::tables::{self, TokenUse};

impl Looker<'_> {
    /// A token that no secret finds, or what finds none, is removed: nobody then gets in by it.
    pub(super) fn tokens(&mut self) -> Result<()> {
        let (mut tokens, mut used) = (BTreeSet::new(), BTreeSet::new());
        tables::each_below(self.rows, b"o", |rest, _| {
            let (owner, id) = tables::pair_of(rest)?;
            tokens.insert((TokenId(id), CallerId(owner)));
            Ok(true)
        })?;
        for row in self.rows.scan(b"p", &prefix_end(b"p"), Order::Rising) {
            let (key, value) = row?;
            let row: TokenUse = tables::opened(&key, &value)?;
            used.insert((TokenId(tables::id_of(&key[1..])?), row.by));
        }
        for (id, owner) in tokens.difference(&used) {
            let fix = Fix::Delete(tables::token_key(*owner, *id));
            let detail = format!("{id}: its secret does not find it");
            self.found.mendable("token", detail, "removed; it works no more", [fix]);
        }
        for (id, _) in used.difference(&tokens) {
            let fix = Fix::Delete(tables::token_use_key(*id));
            self.found.mendable("use of a token", format!("{id}: the token is not there"), "removed", [fix]);
        }
        Ok(())
    }
}
