//! Laws of a container's size limit while bytes are staged.

use std::sync::Arc;

use weft_conformance::file_system::Subject;
use weft_conformance::file_system::site::*;
use weft_core::attr::SetAttr;
use weft_core::form::{
    BytesSource, Expect, Guard, OpenHow, Replace, Scope, Stage, StageHint, VersionIs, WriteAt,
};
use weft_core::policy::PolicyEdit;
use weft_core::{ErrorKind, Rights, limits};
use weft_sys::{SimDisk, simulate};

use super::crash::volume_on;
use super::in_place::unsteady_on;
use super::site::Volume;
use super::slow::{rest, slow};
use super::unsteady_store::Op;

const LIMIT: u64 = 1_000_000;

/// Makes a directory whose container has a limit.
async fn limited(site: &Site<'_>) {
    site.dir("d").await;
    site.seal("d").await;
    let edit = PolicyEdit { bytes_max: Some(Some(LIMIT)), ..PolicyEdit::default() };
    site.fs.protect(&site.call(), &at("d"), Scope::Container, &edit).await.works();
}

async fn used(site: &Site<'_>) -> u64 {
    site.fs.policy(&site.call(), &at("d")).await.works().bytes_used
}

async fn stage(site: &Site<'_>, path: &str) -> Arc<dyn Stage> {
    site.fs.stage(&site.call(), &at(path), &StageHint::default()).await.works()
}

async fn put(site: &Site<'_>, stage: &Arc<dyn Stage>, number: u32, length: usize) -> Result<(), ErrorKind> {
    let mut bytes = BytesSource::new(pattern(length, 1));
    stage.put(&site.call(), number, 0, &mut bytes).await.map(drop).map_err(|error| error.kind())
}

async fn clean(volume: &Volume) {
    let call = volume.domain.call(&volume.domain.caller("node:n1"), 0);
    let report = volume.running().managed.check(&call).await.works();
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
}

#[test]
fn staged_bytes_are_charged_as_they_come_whatever_becomes_of_them() {
    simulate(1, |sys| async move {
        let (volume, _) = volume_on(&sys, &SimDisk::new(), 1, true).await;
        let site = Site::of(&volume);
        limited(&site).await;
        let (first, second, third) =
            (stage(&site, "d/a").await, stage(&site, "d/b").await, stage(&site, "d/c").await);
        assert_eq!(put(&site, &first, 1, 600_000).await, Ok(()));
        assert_eq!(used(&site).await, 600_000);
        assert_eq!(put(&site, &second, 1, 600_000).await, Err(ErrorKind::NoSpace));
        assert_eq!(put(&site, &second, 1, 300_000).await, Ok(()));
        // A part begun again takes the place of what it had.
        assert_eq!(put(&site, &first, 1, 700_000).await, Ok(()));
        assert_eq!(put(&site, &third, 1, 5_000).await, Err(ErrorKind::NoSpace));
        assert_eq!(used(&site).await, 1_000_000);
        clean(&volume).await;
        second.discard(&site.call()).await.works();
        assert_eq!(used(&site).await, 700_000);
        first.publish(&site.call(), &[], &SetAttr::default(), &free()).await.works();
        assert_eq!(used(&site).await, 700_000);
        // What replaces a file may be as large as what it replaces and what is left.
        let again = stage(&site, "d/a").await;
        assert_eq!(put(&site, &again, 1, 600_000).await, Ok(()));
        assert_eq!(put(&site, &again, 2, 300_000).await, Ok(()));
        assert_eq!(put(&site, &again, 3, 300_000).await, Err(ErrorKind::NoSpace));
        drop((first, second, third));
        sys.sleep(limits::STAGE_LIFE * 2).await;
        let site = Site::of(&volume);
        let node = volume.domain().call(&volume.domain().caller("node:n1"), 0);
        volume.running().managed.sweep(&node).await.works();
        assert_eq!(used(&site).await, 700_000, "what was left alone is no longer charged");
        clean(&volume).await;
    });
}

#[test]
fn what_waits_in_memory_is_charged_when_it_is_published_and_not_past_the_limit() {
    simulate(3, |sys| async move {
        let (volume, _) = volume_on(&sys, &SimDisk::new(), 1, true).await;
        let site = Site::of(&volume);
        limited(&site).await;
        let brief = async |path| {
            let hint = StageHint { brief: true, ..StageHint::default() };
            site.fs.stage(&site.call(), &at(path), &hint).await.works()
        };
        let (first, second) = (brief("d/a").await, brief("d/b").await);
        assert_eq!(put(&site, &first, 1, 4000).await, Ok(()));
        assert_eq!(put(&site, &second, 1, 4000).await, Ok(()));
        assert_eq!(used(&site).await, 0);
        let most = stage(&site, "d/c").await;
        assert_eq!(put(&site, &most, 1, LIMIT as usize - 5000).await, Ok(()));
        let publish = async |stage: &Arc<dyn Stage>| {
            let done = stage.publish(&site.call(), &[], &SetAttr::default(), &free()).await;
            done.map(drop).map_err(|error| error.kind())
        };
        assert_eq!(publish(&first).await, Ok(()));
        assert_eq!(publish(&second).await, Err(ErrorKind::NoSpace));
        assert_eq!(used(&site).await, LIMIT - 1000);
        let third = brief("d/e").await;
        assert_eq!(put(&site, &third, 1, 2000).await, Err(ErrorKind::NoSpace));
        most.discard(&site.call()).await.works();
        assert_eq!(publish(&second).await, Ok(()));
        assert_eq!(used(&site).await, 8000);
        clean(&volume).await;
    });
}

#[test]
fn uploads_at_once_do_not_pass_the_limit_together() {
    simulate(2, |sys| async move {
        let (volume, _) = volume_on(&sys, &SimDisk::new(), 1, true).await;
        let site = Site::of(&volume);
        limited(&site).await;
        let mut coming = Vec::new();
        for n in 0..4 {
            let stage = stage(&site, &format!("d/{n}")).await;
            let (pieces, mut source) = slow();
            let call = site.call();
            coming.push((pieces, sys.spawn(async move { stage.put(&call, 1, 0, &mut source).await })));
        }
        for _ in 0..3 {
            for (pieces, _) in &coming {
                let _ = pieces.send(pattern(100_000, 1));
                rest().await;
            }
        }
        let mut refused = 0;
        for (pieces, put) in coming {
            drop(pieces);
            match put.await.works() {
                Ok(part) => assert_eq!(part.bytes, 300_000),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::NoSpace);
                    refused += 1;
                }
            }
        }
        assert_eq!(refused, 2);
        assert_eq!(used(&site).await, LIMIT, "what came before a refusal is kept");
        clean(&volume).await;
    });
}

#[test]
fn writers_at_once_do_not_pass_the_limit_together() {
    simulate(3, |sys| async move {
        let (volume, store) = unsteady_on(&sys, &SimDisk::new()).await;
        let site = Site::of(&volume);
        limited(&site).await;
        let mut files = Vec::new();
        for n in 0..4 {
            files.push(site.file(&format!("d/{n}"), &pattern(100_000, 1)).await);
        }
        let go_on = store.hold(Op::Write);
        let mut writers = Vec::new();
        for id in files {
            let (fs, call) = (site.fs.clone(), site.call());
            writers.push(sys.spawn(async move {
                let file = fs.file(&call, id, Rights::WRITE).await?;
                let mut bytes = BytesSource::new(pattern(300_000, 2));
                file.write(&call, WriteAt::Offset(100_000), &mut bytes).await
            }));
            rest().await;
        }
        drop(go_on);
        let mut refused = 0;
        for writer in writers {
            if let Err(error) = writer.await.works() {
                assert_eq!(error.kind(), ErrorKind::NoSpace);
                refused += 1;
            }
        }
        assert_eq!((refused, used(&site).await), (2, LIMIT));
        // What has landed waits for nobody: what is freed may be written.
        site.fs.remove(&site.call(), &at("d/0"), Expect::Any, &free()).await.works();
        let more = site.file("d/more", b"").await;
        site.write(more, 0, &pattern(50_000, 3)).await;
        clean(&volume).await;
    });
}

#[test]
fn a_brief_stage_whose_first_bytes_take_long_goes_on() {
    simulate(4, |sys| async move {
        let (volume, _) = volume_on(&sys, &SimDisk::new(), 1, true).await;
        let site = Site::of(&volume);
        let (call, hint) = (site.call(), StageHint { brief: true, ..StageHint::default() });
        let stage = site.fs.stage(&call, &at("f"), &hint).await.works();
        let (pieces, mut source) = slow();
        let (upload, stage_put) = (stage.clone(), call.clone());
        let put = sys.spawn(async move { upload.put(&stage_put, 1, 0, &mut source).await });
        pieces.send(pattern(100, 1)).expect("it is waited for");
        rest().await;
        sys.sleep(limits::CALL_DEADLINE * 2).await;
        pieces.send(pattern(20_000, 2)).expect("it is waited for");
        drop(pieces);
        assert_eq!(put.await.works().works().bytes, 20_100);
        let published = stage.publish(&site.call(), &[], &SetAttr::default(), &free()).await.works();
        assert!(site.read(published.value.id).await[..] == [pattern(100, 1), pattern(20_000, 2)].concat());
    });
}

#[test]
fn what_only_a_brief_stage_knows_of_stays_while_it_lives_and_goes_with_it() {
    simulate(7, |sys| async move {
        let (volume, store) = volume_on(&sys, &SimDisk::new(), 1, true).await;
        let site = Site::of(&volume);
        let begun = async |path| {
            let hint = StageHint { brief: true, length: Some(20_000) };
            let stage = site.fs.stage(&site.call(), &at(path), &hint).await.works();
            assert_eq!(put(&site, &stage, 1, 20_000).await, Ok(()));
            stage
        };
        let (published, discarded, dropped) = (begun("a").await, begun("b").await, begun("c").await);
        let guard = Guard { version: Some(VersionIs::Present), ctime: None };
        let refused = async |stage: &Arc<dyn Stage>| {
            stage.publish(&site.call(), &[], &SetAttr::default(), &guard).await.fails();
        };
        let listed = site.fs.stages(&site.call(), &at(""), None).await.works();
        assert_eq!((listed.stages, store.objects().len()), (vec![], 3), "no row says that they are there");
        let node = volume.domain().call(&volume.domain().caller("node:n1"), 0);
        volume.running().managed.sweep(&node).await.works();
        assert_eq!(store.objects().len(), 3);
        discarded.discard(&site.call()).await.works();
        refused(&dropped).await;
        drop(dropped);
        rest().await;
        assert_eq!(store.objects().len(), 1);
        refused(&published).await;
        rest().await;
        let entry = published.publish(&site.call(), &[], &SetAttr::default(), &free()).await.works();
        drop(published);
        rest().await;
        assert!(site.read(entry.value.id).await[..] == pattern(20_000, 1));
        assert_eq!(store.objects().len(), 1);
        clean(&volume).await;
    });
}

#[test]
fn a_container_that_a_brief_stages_object_is_labelled_with_stays_for_as_long() {
    simulate(8, |sys| async move {
        let (volume, _) = volume_on(&sys, &SimDisk::new(), 1, true).await;
        let site = Site::of(&volume);
        site.dir("d").await;
        site.seal("d").await;
        site.dir("d/sub").await;
        let hint = StageHint { brief: true, length: Some(20_000) };
        let stage = site.fs.stage(&site.call(), &at("d/sub/f"), &hint).await.works();
        assert_eq!(put(&site, &stage, 1, 20_000).await, Ok(()));
        site.fs.rename(&site.call(), &at("d/sub"), &at("e"), Replace::Any, &free()).await.works();
        site.fs.remove(&site.call(), &at("d"), Expect::Any, &free()).await.works();
        rest().await;
        let node = volume.domain().call(&volume.domain().caller("node:n1"), 0);
        let sweep = async || volume.running().managed.sweep(&node).await.works().containers;
        assert_eq!(sweep().await, 0, "the object has its label");
        let entry = stage.publish(&site.call(), &[], &SetAttr::default(), &free()).await.works();
        drop(stage);
        assert!(site.read(entry.value.id).await[..] == pattern(20_000, 1));
        rest().await;
        assert_eq!(sweep().await, 1, "once it has another");
        assert!(site.read(entry.value.id).await[..] == pattern(20_000, 1));
        clean(&volume).await;
    });
}

#[test]
fn what_a_small_upload_replaces_goes_at_once() {
    simulate(5, |sys| async move {
        let (volume, store) = volume_on(&sys, &SimDisk::new(), 1, true).await;
        let site = Site::of(&volume);
        site.file("f", &pattern(1 << 20, 1)).await;
        rest().await;
        let before = store.objects().len();
        let hint = StageHint { brief: true, ..StageHint::default() };
        let stage = site.fs.stage(&site.call(), &at("f"), &hint).await.works();
        assert_eq!(put(&site, &stage, 1, 100).await, Ok(()));
        stage.publish(&site.call(), &[], &SetAttr::default(), &free()).await.works();
        rest().await;
        assert_eq!((before, store.objects().len()), (1, 0));
    });
}

#[test]
fn what_a_file_had_that_is_cut_to_nothing_goes_at_once() {
    simulate(6, |sys| async move {
        let (volume, store) = volume_on(&sys, &SimDisk::new(), 1, true).await;
        let site = Site::of(&volume);
        for name in ["set", "opened"] {
            site.file(name, &pattern(1 << 20, 1)).await;
        }
        rest().await;
        assert_eq!(store.objects().len(), 2);
        let none = SetAttr { size: Some(0), ..SetAttr::default() };
        site.fs.set(&site.call(), &at("set"), &none, &free()).await.works();
        rest().await;
        assert_eq!(store.objects().len(), 1, "the other's");
        let how = OpenHow { need: Rights::WRITE, truncate: true, ..OpenHow::default() };
        site.fs.open(&site.call(), &at("opened"), &how).await.works();
        rest().await;
        assert_eq!(store.objects().len(), 0);
    });
}
