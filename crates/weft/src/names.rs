//! Names of callers, as the node knows them: asked for a page at a time.

use std::collections::HashMap;

use weft_client::Client;
use weft_core::{CallerId, Result, limits};

/// Names that were asked for. Bounded: when it is full it begins anew.
pub struct Names<'a> {
    client: &'a Client,
    known: HashMap<CallerId, String>,
}

impl<'a> Names<'a> {
    /// Makes one that knows nobody.
    pub fn new(client: &'a Client) -> Self {
        Self { client, known: HashMap::new() }
    }

    /// Asks for those of these that are not known yet, in one call for each page of them.
    pub async fn ask(&mut self, ids: impl Iterator<Item = CallerId>) -> Result<()> {
        let mut wanted: Vec<CallerId> = ids.filter(|id| !self.known.contains_key(id)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        if self.known.len() + wanted.len() > limits::NAMES_KEPT_MAX {
            self.known.clear();
        }
        for page in wanted.chunks(limits::PAGE_ENTRIES_MAX as usize) {
            let found = self.client.remote().names_of(self.client.caller(), page.to_vec()).await?;
            for (id, name) in page.iter().zip(found) {
                // Whom the node does not know is shown by id.
                let shown = name.map_or_else(|| id.to_string(), |n| n.seen_from(self.client.domain()));
                self.known.insert(*id, shown);
            }
        }
        Ok(())
    }

    /// Returns a name.
    pub async fn of(&mut self, id: CallerId) -> Result<String> {
        self.ask(std::iter::once(id)).await?;
        Ok(self.known.get(&id).cloned().unwrap_or_else(|| id.to_string()))
    }
}
