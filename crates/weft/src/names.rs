//! Names of callers, as the node knows them: asked for a page at a time.

use std::collections::HashMap;

use weft_client::Client;
use weft_core::{CallerId, CallerKind, CallerName, Error, Result, limits};

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

/// Fails with `NotFound` if the node's own domain has no such user or group. Whom another domain
/// has it cannot know, nor which of its own nodes and jobs are to come.
pub async fn demand_known(client: &Client, name: &CallerName) -> Result<()> {
    let (what, list) = match name.kind() {
        Some(CallerKind::User) => ("user", "weft user ls"),
        Some(CallerKind::Group) => ("group", "weft group ls"),
        _ => return Ok(()),
    };
    if name.domain() != Some(client.domain()) {
        return Ok(());
    }
    let found = client.remote().names_of(client.caller(), vec![name.id()]).await?;
    if found.into_iter().flatten().next().is_some() {
        return Ok(());
    }
    Err(Error::not_found(format!("the domain has no such {what}"))
        .about(name.seen_from(client.domain()))
        .hint(list))
}
