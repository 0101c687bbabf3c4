//! Laws of rights that end while bytes are on their way, and of acts that take several steps.

use weft_conformance::file_system::site::*;
use weft_core::attr::{SetAttr, SetTime};
use weft_core::form::{At, BytesSource, ChangeKind, ChangeSeq, Range, Replace, StageHint, Want, WriteAt};
use weft_core::proof::{Attenuation, CredentialClaims};
use weft_core::{ErrorKind, RelPath, Rights, Time, limits};
use weft_sys::{SimDisk, simulate};

use super::crash::volume_on;
use super::in_place::{published, unsteady_on};
use super::slow::{rest, slow};
use super::unsteady_store::Op;

#[test]
fn bytes_that_came_before_a_right_was_withdrawn_are_not_written_after_it() {
    simulate(1, |sys| async move {
        let (volume, _) = volume_on(&sys, &SimDisk::new(), 1, true).await;
        let site = Site::of(&volume);
        site.dir("d").await;
        site.seal("d").await;
        let alice = site.user("alice");
        for (n, at) in [WriteAt::Offset(0), WriteAt::End].into_iter().enumerate() {
            let id = site.file(&format!("d/{n}"), b"as it was").await;
            site.allow("d", &alice, Rights::WRITE | Rights::APPEND | Rights::READ).await;
            let (fs, call) = (site.fs.clone(), site.call_of(&alice, 2));
            let (pieces, mut source) = slow();
            let write = sys.spawn(async move {
                let file = fs.file(&call, id, Rights::WRITE | Rights::APPEND).await?;
                file.write(&call, at, &mut source).await
            });
            pieces.send(vec![1; 100]).expect("it is pulled");
            rest().await;
            site.forbid("d", &alice).await;
            rest().await;
            drop(pieces);
            assert_eq!(write.await.works().fails(), ErrorKind::Revoked, "{at:?}");
            assert_eq!(site.read(id).await[..], *b"as it was", "{at:?}");
        }
    });
}

#[test]
fn a_transfer_ends_when_its_file_leaves_the_paths_of_its_credential() {
    simulate(2, |sys| async move {
        let (volume, _) = volume_on(&sys, &SimDisk::new(), 1, true).await;
        let site = Site::of(&volume);
        for dir in ["top", "top/d", "top/e"] {
            site.dir(dir).await;
        }
        let alice = site.user("alice");
        site.allow("top", &alice, Rights::READ | Rights::TRAVERSE).await;
        let limits = Attenuation { paths: vec![at("top/d").path], ..Attenuation::default() };
        let claims = CredentialClaims { limits, ..volume.domain.claims("alice") };
        let narrow = site.call_of(&volume.domain.caller_with(&claims), 2);
        let wide = site.call_of(&alice, 3);
        for (from, to) in [("top/d/f", "top/e/f"), ("top/d/g", "top/g")] {
            let id = published(&site, from, &pattern(3 << 20, 1)).await;
            let mut sources = Vec::new();
            for call in [&narrow, &wide] {
                let file = site.fs.file(call, id, Rights::READ).await.works();
                let mut source = file.read(call, Range::ALL).await.works();
                source.next(1000).await.works().expect("there is more");
                sources.push(source);
            }
            let go = site.fs.rename(&site.call(), &at(from), &at(to), Replace::Never, &free()).await;
            go.works();
            assert_eq!(sources[0].next(1000).await.fails(), ErrorKind::Revoked, "{to}");
            assert!(sources[1].next(1000).await.works().is_some(), "{to}");
        }
    });
}

#[test]
fn a_credential_that_ends_while_a_stage_is_published_publishes_nothing() {
    simulate(4, |sys| async move {
        let (volume, store) = unsteady_on(&sys, &SimDisk::new()).await;
        let site = Site::of(&volume);
        site.dir("d").await;
        let claims = volume.domain.claims("alice");
        let alice = volume.domain.caller_with(&claims);
        site.allow("d", &alice, Rights::INSERT | Rights::TRAVERSE | Rights::READ).await;
        let call = site.call_of(&alice, 2).durable();
        let stage = site.fs.stage(&call, &at("d/f"), &StageHint::default()).await.works();
        stage.put(&call, 1, 0, &mut BytesSource::new(pattern(100_000, 1))).await.works();
        let go_on = store.hold(Op::Sealed);
        let publishing =
            sys.spawn(async move { stage.publish(&call, &[], &SetAttr::default(), &free()).await });
        rest().await;
        volume.domain.revocations().end_credential(claims.id, claims.expires);
        drop(go_on);
        assert_eq!(publishing.await.works().fails(), ErrorKind::Revoked);
        let found = site.fs.walk(&site.call(), &at("d/f"), Want::default()).await;
        assert_eq!(found.fails(), ErrorKind::NotFound);
    });
}

#[test]
fn attributes_are_set_with_the_size_or_not_at_all() {
    simulate(3, |sys| async move {
        let (volume, store) = unsteady_on(&sys, &SimDisk::new()).await;
        let site = Site::of(&volume);
        let id = published(&site, "f", &pattern(100_000, 1)).await;
        let object = store.last(Op::Sync);
        let before = site.attr(id).await;
        let then = Time::from_nanos(1_000_000_000);
        let set = SetAttr {
            mode: Some(0o600),
            mtime: Some(SetTime::At(then)),
            size: Some(150_000),
            ..SetAttr::default()
        };
        store.fail(Op::Shape, object);
        site.fs.set(&site.call(), &at("f"), &set, &free()).await.fails();
        let after = site.attr(id).await;
        assert_eq!((after.mode, after.mtime == then), (before.mode, false), "it was refused");
        store.recover();
        let told = site.fs.watch(&site.call(), &at(""), ChangeSeq(0)).await.works().next;
        let answer = site.fs.set(&site.call(), &at("f"), &set, &free()).await.works();
        let after = site.attr(id).await;
        assert_eq!((after.mode, after.mtime, after.size), (0o600, then, 150_000));
        assert_eq!((answer.value.mode, answer.value.size), (0o600, 150_000));
        let changes = site.fs.watch(&site.call(), &at(""), told).await.works().changes;
        assert_eq!(changes.last().map(|change| change.kind), Some(ChangeKind::Attr), "{changes:?}");
    });
}

#[test]
fn directories_lie_no_deeper_than_a_path_can_say() {
    simulate(4, |sys| async move {
        let (volume, _) = volume_on(&sys, &SimDisk::new(), 1, true).await;
        let site = Site::of(&volume);
        let below = |dir, name: &str| At { path: RelPath::try_from(name).unwrap(), ..At::id(dir) };
        let none = SetAttr::default();
        let mut dir = site.dir("d").await;
        for _ in 1..limits::PATH_DEPTH_MAX {
            let made =
                site.fs.make(&site.call(), &below(dir, "d"), weft_core::form::New::Directory, &none).await;
            dir = made.works().value.id;
        }
        let make = site.fs.make(&site.call(), &below(dir, "d"), weft_core::form::New::Directory, &none).await;
        assert_eq!(make.fails(), ErrorKind::TooLong);
        site.dir("x").await;
        site.file("f", b"").await;
        let rename =
            async |from, to: At| site.fs.rename(&site.call(), &at(from), &to, Replace::Never, &free()).await;
        assert_eq!(rename("x", below(dir, "x")).await.fails(), ErrorKind::TooLong);
        rename("f", below(dir, "f")).await.works();
        site.fs.make(&site.call(), &below(dir, "g"), new_file(), &none).await.works();
    });
}

#[test]
fn a_store_that_fails_for_a_while_keeps_no_file_from_being_settled() {
    simulate(5, |sys| async move {
        let (volume, store) = unsteady_on(&sys, &SimDisk::new()).await;
        let site = Site::of(&volume);
        let id = published(&site, "f", &pattern(100_000, 1)).await;
        let object = store.last(Op::Sync);
        let sealed = store.asked(Op::Seal, object);
        store.fail_as(Op::Sync, object, ErrorKind::Unavailable);
        site.write(id, 0, b"in place").await;
        sys.sleep(limits::OBJECT_IDLE * 3).await;
        assert_eq!(store.asked(Op::Seal, object), sealed);
        store.recover();
        sys.sleep(limits::OBJECT_IDLE * 6).await;
        assert!(store.asked(Op::Seal, object) > sealed, "nobody came back to it");
    });
}
