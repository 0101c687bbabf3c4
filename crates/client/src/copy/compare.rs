//! Whether a file of this machine and one of the tree hold the same bytes, told by the digests that
//! the node keeps: no bytes of it come.

use std::sync::Arc;

use weft_core::form::{At, OpenHow, OpenedFile, Pin};
use weft_core::{Result, Rights};

use super::Progress;
use super::local::LocalFile;
use super::verified::{BLOCK_BYTES, Digests};
use crate::Client;

/// Returns whether the first `size` bytes of a local file are those of a file of the tree of that size.
pub(super) async fn same_bytes(
    client: &Client,
    at: &At,
    local: &LocalFile,
    size: u64,
    progress: &Progress,
) -> Result<bool> {
    let how = OpenHow { need: Rights::READ, pin: Pin::Version, ..OpenHow::default() };
    let opened = client.fs().open(&client.call(), at, &how).await?;
    let mut same = opened.attr.size == size;
    let mut digests = Digests::new(client, Arc::clone(&opened.file));
    let mut from = 0;
    while same && from < size {
        let mut block = vec![0; BLOCK_BYTES.min(size - from) as usize];
        let read = local.read_at(&mut block, from).map_err(super::local::unreadable)?;
        same =
            read == block.len() && *blake3::hash(&block).as_bytes() == digests.of(from / BLOCK_BYTES).await?;
        from += block.len() as u64;
        // Ctrl-C has a turn; what is compared is counted when the file is through.
        progress.must_go_on()?;
        tokio::task::yield_now().await;
    }
    opened.file.close(&client.call()).await?;
    Ok(same)
}
