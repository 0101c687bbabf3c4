//! Laws of opens: what they carry, what they keep alive, what they see.

use weft_core::attr::SetAttr;
use weft_core::form::{At, Expect, Guard, Make, OpenHow, Range, StageHint, Want, WriteAt};
use weft_core::{ErrorKind, Rights, SessionId};

use super::Subject;
use super::site::*;

fn making(exclusive: bool, mode: u16) -> OpenHow {
    let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
    OpenHow { make: Some(Make { exclusive, set }), ..how(Rights::READ | Rights::WRITE) }
}

/// An open makes what is not there, tells so, and carries its rights whatever the mode.
pub async fn an_open_that_makes_carries_its_rights_whatever_the_mode(subject: &dyn Subject) {
    let site = Site::of(subject);
    let opened = site.fs.open(&site.call(), &at("f"), &making(false, 0o000)).await.works();
    assert!(opened.made && opened.parent.is_some());
    write_to(&*opened.file, &site.call(), WriteAt::Offset(0), b"bytes").await.works();
    let read = read_of(&*opened.file, &site.call(), Range::ALL).await.works();
    assert_eq!(read, &b"bytes"[..]);
    let again = site.fs.open(&site.call(), &at("f"), &how(Rights::READ)).await.map(|o| o.made);
    assert_eq!(again.fails(), ErrorKind::Denied, "a later open is bound by the mode");
}

/// An open finds what is there, unless it must make it.
pub async fn an_exclusive_open_refuses_what_is_there(subject: &dyn Subject) {
    let site = Site::of(subject);
    let id = site.file("f", b"old").await;
    let found = site.fs.open(&site.call(), &at("f"), &making(false, 0o600)).await.works();
    assert!(!found.made && found.parent.is_none() && found.file.id() == id);
    let exclusive = site.fs.open(&site.call(), &at("f"), &making(true, 0o600)).await.map(|o| o.made);
    assert_eq!(exclusive.fails(), ErrorKind::Exists);
    let none = site.fs.open(&site.call(), &at("none"), &how(Rights::READ)).await.map(|o| o.made);
    assert_eq!(none.fails(), ErrorKind::NotFound);
}

/// A truncating open cuts the file to nothing, and needs `write` for it.
pub async fn a_truncating_open_needs_write(subject: &dyn Subject) {
    let site = Site::of(subject);
    let id = site.file("f", b"old bytes").await;
    let reader = site.user("reader");
    site.allow("f", &reader, Rights::READ).await;
    let cut = OpenHow { truncate: true, ..how(Rights::READ) };
    let refused = site.fs.open(&site.call_of(&reader, 2), &at("f"), &cut).await.map(|o| o.attr);
    assert_eq!(refused.fails(), ErrorKind::Denied);
    assert_eq!(site.attr(id).await.size, 9);
    let opened = site.fs.open(&site.call(), &at("f"), &cut).await.works();
    assert_eq!(opened.attr.size, 0);
}

/// An open carries only the rights it asked for.
pub async fn an_open_carries_only_what_it_asked_for(subject: &dyn Subject) {
    let site = Site::of(subject);
    site.file("f", b"bytes").await;
    let reading = site.open("f", Rights::READ).await.file;
    let write = write_to(&*reading, &site.call(), WriteAt::Offset(0), b"x").await;
    assert_eq!(write.fails(), ErrorKind::Denied);
    let writing = site.open("f", Rights::WRITE).await.file;
    let read = read_of(&*writing, &site.call(), Range::ALL).await;
    assert_eq!(read.fails(), ErrorKind::Denied);
    let odd = site.fs.open(&site.call(), &at("f"), &how(Rights::ACL_WRITE)).await.map(|o| o.attr);
    assert_eq!(odd.fails(), ErrorKind::Invalid);
}

/// An unlinked file lives while it is open, and by its id too; then it is `Stale`.
pub async fn an_open_unlinked_file_lives_until_it_is_closed(subject: &dyn Subject) {
    let site = Site::of(subject);
    let id = site.file("f", b"still here").await;
    let first = site.open("f", Rights::READ | Rights::WRITE).await.file;
    let second = site.open("f", Rights::READ).await.file;
    let gone = site.fs.remove(&site.call(), &at("f"), Expect::Any, &free()).await.works();
    assert_eq!(gone.file.after.map(|attr| attr.links), Some(0));
    assert_eq!(first.attr(&site.call()).await.works().links, 0);
    write_to(&*first, &site.call(), WriteAt::End, b", and written").await.works();
    let read = read_of(&*second, &site.call(), Range::ALL).await.works();
    assert_eq!(read, &b"still here, and written"[..]);
    assert_eq!(site.attr(id).await.links, 0, "its id still finds it");
    first.close(&site.call()).await.works();
    assert_eq!(site.attr(id).await.links, 0, "the other open still holds it");
    second.close(&site.call()).await.works();
    let walked = site.fs.walk(&site.call(), &At::id(id), Want::default()).await;
    assert_eq!(walked.fails(), ErrorKind::Stale);
}

/// A file that a rename replaces while it is open lives on like an unlinked one.
pub async fn a_replaced_file_lives_while_it_is_open(subject: &dyn Subject) {
    let site = Site::of(subject);
    site.file("old", b"old").await;
    site.file("new", b"new").await;
    let open = site.open("old", Rights::READ).await.file;
    let how = weft_core::form::Replace::Any;
    site.fs.rename(&site.call(), &at("new"), &at("old"), how, &free()).await.works();
    assert_eq!(read_of(&*open, &site.call(), Range::ALL).await.works(), &b"old"[..]);
}

/// Dropping an open gives up its hold.
pub async fn a_dropped_open_lets_go(subject: &dyn Subject) {
    let site = Site::of(subject);
    let id = site.file("f", b"").await;
    let open = site.open("f", Rights::READ).await.file;
    site.fs.remove(&site.call(), &at("f"), Expect::Any, &free()).await.works();
    drop(open);
    let mut left = 100;
    while site.fs.walk(&site.call(), &At::id(id), Want::default()).await.is_ok() {
        // An implementation may let go behind the caller's back, but soon.
        left -= 1;
        assert!(left > 0, "a dropped open holds its file for ever");
        tokio::task::yield_now().await;
    }
}

/// A session's end closes its opens and no others'.
pub async fn a_sessions_end_closes_its_opens_only(subject: &dyn Subject) {
    let site = Site::of(subject);
    let id = site.file("f", b"bytes").await;
    let (one, two) = (site.call_of(&site.admin, 11), site.call_of(&site.admin, 12));
    let first = site.fs.open(&one, &at("f"), &how(Rights::READ)).await.works().file;
    let second = site.fs.open(&two, &at("f"), &how(Rights::READ)).await.works().file;
    site.fs.remove(&site.call(), &at("f"), Expect::Any, &free()).await.works();
    subject.end_session(SessionId(11));
    assert_eq!(read_of(&*first, &two, Range::ALL).await.fails(), ErrorKind::Stale);
    assert_eq!(read_of(&*second, &two, Range::ALL).await.works(), &b"bytes"[..]);
    subject.end_session(SessionId(12));
    let walked = site.fs.walk(&site.call(), &At::id(id), Want::default()).await;
    assert_eq!(walked.fails(), ErrorKind::Stale);
}

/// A closed file does nothing more.
pub async fn a_closed_file_is_stale(subject: &dyn Subject) {
    let site = Site::of(subject);
    site.file("f", b"bytes").await;
    let file = site.open("f", Rights::READ | Rights::WRITE).await.file;
    file.close(&site.call()).await.works();
    assert_eq!(read_of(&*file, &site.call(), Range::ALL).await.fails(), ErrorKind::Stale);
    let write = write_to(&*file, &site.call(), WriteAt::End, b"x").await;
    assert_eq!(write.fails(), ErrorKind::Stale);
}

/// An open pinned to a version reads that version or `Conflict`; never a mixture.
pub async fn a_pinned_open_never_mixes_versions(subject: &dyn Subject) {
    let site = Site::of(subject);
    let old = pattern(3 << 20, 1);
    let id = site.file("f", &old).await;
    let opened = site.fs.open(&site.call(), &at("f"), &pinned()).await.works();
    let mut source = opened.file.read(&site.call(), Range::ALL).await.works();
    let first = source.next(1000).await.works().map(|piece| piece.into_bytes().works());
    assert!(first.is_some_and(|bytes| old.starts_with(&bytes)));
    site.write(id, 0, &pattern(3 << 20, 2)).await;
    let read = read_of(&*opened.file, &site.call(), Range::ALL).await;
    match read {
        Ok(bytes) => assert!(bytes == old, "one version or none"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict),
    }
    let mut rest = 1000;
    loop {
        match source.next(1 << 20).await {
            Ok(None) => break,
            Ok(Some(piece)) => {
                let bytes = piece.into_bytes().works();
                assert!(bytes == old[rest..rest + bytes.len()], "one version or none");
                rest += bytes.len();
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Conflict);
                break;
            }
        }
    }
}

/// Publishing over a file leaves a pinned open the bytes it was opened on.
pub async fn a_pinned_open_outlives_a_publish(subject: &dyn Subject) {
    let site = Site::of(subject);
    site.file("f", b"the old bytes").await;
    let opened = site.fs.open(&site.call(), &at("f"), &pinned()).await.works();
    let free_open = site.open("f", Rights::READ).await.file;
    let stage = site.fs.stage(&site.call(), &at("f"), &StageHint::default()).await.works();
    let mut bytes = weft_core::form::BytesSource::new(&b"new"[..]);
    stage.put(&site.call(), 1, 0, &mut bytes).await.works();
    stage.publish(&site.call(), &[], &SetAttr::default(), &Guard::NONE).await.works();
    let pinned = opened.file.attr(&site.call()).await.works();
    assert_eq!(
        (pinned.size, pinned.version),
        (13, opened.attr.version),
        "attributes are of the pinned version"
    );
    let read = read_of(&*opened.file, &site.call(), Range::ALL).await.works();
    assert_eq!(read, &b"the old bytes"[..]);
    if site.supports().publish_keeps_id {
        let read = read_of(&*free_open, &site.call(), Range::ALL).await.works();
        assert_eq!(read, &b"new"[..], "an open without a pin sees what is there now");
    }
}

/// A file by id without an open sees every change and dies with the file.
pub async fn a_file_by_id_sees_changes_and_dies_with_the_file(subject: &dyn Subject) {
    let site = Site::of(subject);
    let id = site.file("f", b"one").await;
    let file = site.fs.file(&site.call(), id, Rights::READ).await.works();
    assert_eq!(file.id(), id);
    assert_eq!(read_of(&*file, &site.call(), Range::ALL).await.works(), &b"one"[..]);
    site.write(id, 0, b"two").await;
    assert_eq!(read_of(&*file, &site.call(), Range::ALL).await.works(), &b"two"[..]);
    site.fs.remove(&site.call(), &at("f"), Expect::Any, &free()).await.works();
    assert_eq!(read_of(&*file, &site.call(), Range::ALL).await.fails(), ErrorKind::Stale);
    let again = site.fs.file(&site.call(), id, Rights::READ).await.map(|f| f.id());
    assert_eq!(again.fails(), ErrorKind::Stale);
}
