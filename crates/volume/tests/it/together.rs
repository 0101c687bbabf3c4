//! Laws of what happens at once: slow writers beside others and beside the node's work.

use std::sync::Arc;

use weft_conformance::file_system::Subject;
use weft_conformance::file_system::site::*;
use weft_core::attr::SetAttr;
use weft_core::form::{BytesSource, Call, Source, Stage, StageHint};
use weft_core::{ErrorKind, Result};

use super::site::Volume;
use super::slow::{rest, slow};

fn puts(
    stage: &Arc<dyn Stage>,
    call: Call,
    offset: u64,
    mut source: impl Source + 'static,
) -> tokio::task::JoinHandle<Result<weft_core::form::Part>> {
    let stage = stage.clone();
    tokio::spawn(async move { stage.put(&call, 1, offset, &mut source).await })
}

#[tokio::test]
async fn a_put_that_waited_goes_on_only_where_the_part_ends_by_then() {
    let volume = Volume::fresh(1).await;
    let site = Site::of(&volume);
    let stage = site.fs.stage(&site.call(), &at("f"), &StageHint::default()).await.works();
    stage.put(&site.call(), 1, 0, &mut BytesSource::new(pattern(100_000, 1))).await.works();
    let (pieces, source) = slow();
    let again = puts(&stage, site.call(), 0, source);
    rest().await;
    let on = puts(&stage, site.call(), 100_000, BytesSource::new(pattern(50_000, 2)));
    rest().await;
    pieces.send(pattern(30_000, 3)).expect("it is pulled");
    drop(pieces);
    again.await.expect("it ends").works();
    assert_eq!(on.await.expect("it ends").fails(), ErrorKind::Invalid, "the part was begun again");
    let published = stage.publish(&site.call(), &[], &SetAttr::default(), &free()).await.works();
    let node = volume.domain().caller("node:n1");
    volume.running().managed.sweep(&site.call_of(&node, 9)).await.works();
    assert!(site.read(published.value.id).await[..] == pattern(30_000, 3));
}

#[tokio::test]
async fn what_is_published_is_no_longer_written_as_a_part() {
    let volume = Volume::fresh(1).await;
    let site = Site::of(&volume);
    let stage = site.fs.stage(&site.call(), &at("f"), &StageHint::default()).await.works();
    stage.put(&site.call(), 1, 0, &mut BytesSource::new(pattern(100_000, 1))).await.works();
    let (pieces, source) = slow();
    let on = puts(&stage, site.call(), 100_000, source);
    rest().await;
    let (publishing, call) = (stage.clone(), site.call());
    let published =
        tokio::spawn(async move { publishing.publish(&call, &[], &SetAttr::default(), &free()).await });
    rest().await;
    pieces.send(pattern(50_000, 2)).expect("it is pulled");
    drop(pieces);
    let (on, published) = (on.await.expect("it ends"), published.await.expect("it ends").works());
    let read = site.read(published.value.id).await;
    assert_eq!(on.works().bytes, 150_000);
    assert!(read[..] == [pattern(100_000, 1), pattern(50_000, 2)].concat(), "what was put is there");
}
