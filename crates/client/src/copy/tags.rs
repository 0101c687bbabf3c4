//! User attributes of a copy, made those of its source.

use std::collections::BTreeMap;

use bytes::Bytes;
use weft_core::attr::{TagEdit, TagMust, TagName};
use weft_core::form::{Ack, At, Call, Guard};
use weft_core::{FileId, Result};
use weft_sys::local::Tags;

use super::Attributes;
use crate::Client;

/// Returns the user attributes of a file of the tree.
pub(super) async fn tags_of(client: &Client, at: &At) -> Result<BTreeMap<Vec<u8>, Bytes>> {
    let (fs, mut all, mut from) = (client.fs(), BTreeMap::new(), None);
    loop {
        let page = fs.tags(&client.call(), at, from).await?;
        all.extend(page.tags.into_iter().map(|(name, value)| (name.as_bytes().to_vec(), value)));
        from = page.next;
        if from.is_none() {
            return Ok(all);
        }
    }
}

/// Gives a file or directory of the tree the user attributes of its source, and under
/// [`Attributes::Match`] takes all others away. What was made a moment ago has none yet, and is not
/// asked. The change is applied, and durable with what is synced after it.
pub async fn match_tags(
    client: &Client,
    id: FileId,
    wanted: &Tags,
    is_new: bool,
    attributes: Attributes,
) -> Result<()> {
    let nothing = match attributes {
        Attributes::Leave => true,
        Attributes::Add => wanted.is_empty(),
        Attributes::Match => wanted.is_empty() && is_new,
    };
    if nothing {
        return Ok(());
    }
    let there = if is_new { BTreeMap::new() } else { tags_of(client, &At::id(id)).await? };
    let edits = edits(&there, wanted, attributes == Attributes::Match)?;
    if edits.is_empty() {
        return Ok(());
    }
    let applied = Call { ack: Ack::Applied, ..client.call() };
    client.fs().tag(&applied, &At::id(id), &edits, &Guard::NONE).await.map(drop)
}

fn edits(there: &BTreeMap<Vec<u8>, Bytes>, wanted: &Tags, removes: bool) -> Result<Vec<TagEdit>> {
    let mut edits = Vec::new();
    for name in there.keys().filter(|_| removes) {
        if !wanted.iter().any(|(own, _)| own == name) {
            edits.push(TagEdit::Remove(TagName::new(name.clone())?));
        }
    }
    for (name, value) in wanted {
        if there.get(name).is_none_or(|held| held != value) {
            let (name, value) = (TagName::new(name.clone())?, Bytes::from(value.clone()));
            edits.push(TagEdit::Put { name, value, must: TagMust::Any });
        }
    }
    Ok(edits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_edited_and_only_a_match_removes() {
        let there = BTreeMap::from([
            (b"a".to_vec(), Bytes::from_static(b"1")),
            (b"b".to_vec(), Bytes::from_static(b"2")),
            (b"c".to_vec(), Bytes::from_static(b"3")),
        ]);
        let wanted = vec![(b"a".to_vec(), b"1".to_vec()), (b"b".to_vec(), b"4".to_vec())];
        let name = |text: &'static [u8]| TagName::new(text).expect("a name");
        let put = TagEdit::Put { name: name(b"b"), value: Bytes::from_static(b"4"), must: TagMust::Any };
        assert_eq!(edits(&there, &wanted, false).expect("good names"), std::slice::from_ref(&put));
        assert_eq!(edits(&there, &wanted, true).expect("good names"), [TagEdit::Remove(name(b"c")), put]);
    }
}
