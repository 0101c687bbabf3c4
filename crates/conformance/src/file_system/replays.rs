//! Laws of `once`: the same request of a session gets its first answer again.

use bytes::Bytes;
use weft_core::attr::{SetAttr, TagEdit, TagMust, TagName};
use weft_core::form::{At, BytesSource, Expect, New, Replace, Reply, Request, Scope, StageHint, Want};
use weft_core::policy::PolicyEdit;
use weft_core::{ErrorKind, FileId, SessionId, limits};

use super::Subject;
use super::site::*;

/// Making again with the same request id answers the same, and makes once.
pub async fn a_make_sent_again_is_made_once(subject: &dyn Subject) {
    let site = Site::of(subject);
    let make = || {
        let site = &site;
        async move { site.fs.make(&site.once(7), &at("f"), new_file(), &SetAttr::default()).await }
    };
    let first = make().await.works();
    assert_eq!(make().await.works(), first);
    site.fs.remove(&site.call(), &at("f"), Expect::Any, &free()).await.works();
    assert_eq!(make().await.works(), first, "the answer stays what it was");
    assert_eq!(site.find("f").await.fails(), ErrorKind::NotFound);
}

/// Removing again with the same request id does not remove what came after.
pub async fn a_remove_sent_again_spares_what_came_after(subject: &dyn Subject) {
    let site = Site::of(subject);
    site.file("f", b"old").await;
    let first = site.fs.remove(&site.once(1), &at("f"), Expect::Any, &free()).await.works();
    let new = site.file("f", b"new").await;
    let again = site.fs.remove(&site.once(1), &at("f"), Expect::Any, &free()).await.works();
    assert_eq!(first, again);
    assert_eq!(site.find("f").await.works(), new);
}

/// Each other kind of change is made once too.
pub async fn every_kind_of_change_is_made_once(subject: &dyn Subject) {
    let site = Site::of(subject);
    let id = site.file("f", b"bytes").await;
    site.dir("d").await;
    let change = || {
        let site = &site;
        async move { site.attr(id).await.change }
    };
    macro_rules! twice {
        ($what:literal, $once:expr, $act:expr) => {
            let first = $act(site.once($once)).await.works();
            let counted = change().await;
            let again = $act(site.once($once)).await.works();
            assert_eq!(first, again, $what);
            assert_eq!(change().await, counted, concat!($what, " was done twice"));
        };
    }
    let (fs, none) = (&site.fs, &free());
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    twice!("set", 1, async |c| fs.set(&c, &at("f"), &set, none).await);
    if site.supports().tags {
        let name = TagName::new("t").works();
        let tag = [TagEdit::Put { name, value: Bytes::new(), must: TagMust::BeNew }];
        twice!("tag", 2, async |c| fs.tag(&c, &at("f"), &tag, none).await);
    }
    if site.supports().links {
        twice!("link", 3, async |c| fs.link(&c, &at("f"), &at("g")).await);
    }
    twice!("rename", 4, async |c| fs.rename(&c, &at("f"), &at("h"), Replace::Any, none).await);
    let edit = PolicyEdit { bytes_max: Some(Some(1 << 30)), ..PolicyEdit::default() };
    twice!("protect", 5, async |c| fs.protect(&c, &at("d"), Scope::Subtree, &edit).await);
    let stage = fs.stage(&site.call(), &at("h"), &StageHint::default()).await.works();
    stage.put(&site.call(), 1, 0, &mut BytesSource::new(&b"published"[..])).await.works();
    twice!("publish", 6, async |c| stage.publish(&c, &[], &SetAttr::default(), none).await);
    assert_eq!(site.read(site.find("h").await.works()).await, &b"published"[..]);
}

/// The same request id with another request is `Invalid` and does nothing.
pub async fn an_id_used_for_another_request_is_invalid(subject: &dyn Subject) {
    let site = Site::of(subject);
    let none = SetAttr::default();
    site.fs.make(&site.once(7), &at("f"), new_file(), &none).await.works();
    let others = [
        site.fs.make(&site.once(7), &at("g"), new_file(), &none).await.fails(),
        site.fs.make(&site.once(7), &at("f"), New::Directory, &none).await.fails(),
        site.fs.remove(&site.once(7), &at("f"), Expect::Any, &free()).await.fails(),
    ];
    assert_eq!(others, [ErrorKind::Invalid; 3]);
    assert_eq!(site.names(FileId::ROOT).await, [name("f")]);
}

/// Request ids belong to their session.
pub async fn another_sessions_ids_are_its_own(subject: &dyn Subject) {
    let site = Site::of(subject);
    let none = SetAttr::default();
    site.fs.make(&site.once(7), &at("f"), new_file(), &none).await.works();
    let mut other = site.once(7);
    other.session = SessionId(2);
    site.fs.make(&other, &at("g"), new_file(), &none).await.works();
    let again = site.fs.make(&other, &at("g"), new_file(), &none).await;
    again.works();
}

/// The last answers of a session are kept, [`limits::ONCE_RING`] of them.
pub async fn as_many_answers_are_kept_as_there_is_room_for(subject: &dyn Subject) {
    let site = Site::of(subject);
    let make = |n: u64| {
        let site = &site;
        async move {
            let place = at(&n.to_string());
            site.fs.make(&site.once(n), &place, new_file(), &SetAttr::default()).await
        }
    };
    let mut first = Vec::new();
    let room = limits::ONCE_RING as u64;
    for n in 1..=room {
        first.push(make(n).await.works());
    }
    for n in [1, 2, room / 2, room] {
        assert_eq!(make(n).await.works(), first[n as usize - 1]);
    }
}

/// A request that failed changed nothing, and may be made again.
pub async fn a_failed_request_may_be_made_again(subject: &dyn Subject) {
    let site = Site::of(subject);
    let make = || {
        let site = &site;
        async move { site.fs.make(&site.once(9), &at("d/f"), new_file(), &SetAttr::default()).await }
    };
    assert_eq!(make().await.fails(), ErrorKind::NotFound);
    assert_eq!(make().await.fails(), ErrorKind::NotFound);
}

/// A batch answers in order, goes on after a failure, and each change in it is made once.
pub async fn a_batch_answers_in_order_and_is_made_once(subject: &dyn Subject) {
    let site = Site::of(subject);
    let make = |path: &str| Request::Make { at: at(path), new: New::Directory, set: SetAttr::default() };
    let requests = vec![
        make("d"),
        make("d/e"),
        make("d/e"),
        Request::Walk { at: at("d/e"), want: Want::default() },
        make("f"),
    ];
    let replies = site.fs.batch(&site.once(1), requests.clone()).await;
    assert_eq!(replies.len(), 5);
    assert!(matches!(&replies[0], Ok(Reply::Make(made)) if made.value.name == name("d")));
    assert!(matches!(&replies[2], Err(error) if error.kind() == ErrorKind::Exists));
    assert!(matches!(&replies[3], Ok(Reply::Walk(_))));
    assert!(replies[4].is_ok(), "a later one is made although an earlier one failed");
    let again = site.fs.batch(&site.once(1), requests).await;
    for place in [0, 1, 4] {
        assert_eq!(replies[place].as_ref().ok(), again[place].as_ref().ok(), "request {place}");
    }
    let many = vec![Request::Walk { at: At::id(FileId::ROOT), want: Want::default() }; 257];
    let replies = site.fs.batch(&site.call(), many).await;
    assert!(replies.into_iter().any(|reply| reply.map_err(|e| e.kind()) == Err(ErrorKind::TooLarge)));
}
