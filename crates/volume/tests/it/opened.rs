//! What a request opened in a share it reads as it found it; whatever is asked later looks anew.

use std::fs;
use std::time::Duration;

use weft_conformance::file_system::site::{Outcome, Site as Laws, at, free, how, pattern, read_of, write_to};
use weft_conformance::run::open_below;
use weft_core::form::{
    At, Call, Door, Expect, OpenHow, Opened, Origin, Piece, Pin, Range, Replace, Scope, WriteAt,
};
use weft_core::policy::PolicyEdit;
use weft_core::{ErrorKind, Rights, limits};

use super::export::Site;

/// A share, and a directory beside it on the same disk.
async fn fresh() -> (Site, tempfile::TempDir) {
    let site = Site::fresh(1).await;
    let beside = tempfile::tempdir_in(site.home.path().parent().expect("it lies somewhere"));
    (site, beside.expect("a directory"))
}

/// A call through a door that tells requests apart itself.
fn request(laws: &Laws<'_>) -> Call {
    let call = laws.call();
    Call { from: Origin { door: Door::Http, ..call.from }, ..call }
}

async fn open(laws: &Laws<'_>, call: &Call) -> Opened {
    laws.fs.open(call, &at("f"), &how(Rights::READ)).await.works()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_left_a_share_is_read_by_no_later_request_however_it_was_opened() {
    let (site, beside) = fresh().await;
    let laws = Laws::of(&site);
    let (inside, outside) = (site.home.path().join("f"), beside.path().join("f"));
    fs::write(&inside, b"bytes").expect("written");

    let call = request(&laws);
    let opened = open(&laws, &call).await;
    fs::rename(&inside, &outside).expect("moved");
    let another = read_of(&*opened.file, &laws.call(), Range::ALL).await;
    assert_eq!(another.fails(), ErrorKind::Stale, "another request");
    fs::rename(&outside, &inside).expect("moved");

    let opened = open(&laws, &call).await;
    fs::rename(&inside, &outside).expect("moved");
    assert_eq!(
        read_of(&*opened.file, &call, Range::ALL).await.works()[..],
        *b"bytes",
        "the one that opened it"
    );
    let again = read_of(&*opened.file, &call, Range::ALL).await;
    assert_eq!(again.fails(), ErrorKind::Stale, "the same once more");
    fs::rename(&outside, &inside).expect("moved");

    let opened = open(&laws, &call).await;
    fs::rename(&inside, &outside).expect("moved");
    site.clock.step(Duration::from_secs(2));
    let late = read_of(&*opened.file, &call, Range::ALL).await;
    assert_eq!(late.fails(), ErrorKind::Stale, "the same, later");
    fs::rename(&outside, &inside).expect("moved");

    let native = laws.call();
    let opened = open(&laws, &native).await;
    fs::rename(&inside, &outside).expect("moved");
    let chosen = read_of(&*opened.file, &native, Range::ALL).await;
    assert_eq!(chosen.fails(), ErrorKind::Stale, "of native clients, who choose their traces");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_right_that_is_withdrawn_between_opening_and_reading_reads_nothing() {
    let (site, _beside) = fresh().await;
    let laws = Laws::of(&site);
    fs::write(site.home.path().join("f"), b"bytes").expect("written");
    let alice = laws.user("alice");
    laws.allow("f", &alice, Rights::READ).await;
    let call = Call { from: request(&laws).from, ..laws.call_of(&alice, 2) };
    let opened = open(&laws, &call).await;
    laws.forbid("f", &alice).await;
    let read = read_of(&*opened.file, &call, Range::ALL).await;
    assert_eq!(read.fails(), ErrorKind::Denied);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_pulled_of_one_version_is_a_copy_of_it() {
    let (site, _beside) = fresh().await;
    let laws = Laws::of(&site);
    let (path, bytes) = (site.home.path().join("f"), pattern(100_000, 1));
    fs::write(&path, &bytes).expect("written");
    let call = request(&laws);
    let pinned = OpenHow { pin: Pin::Version, ..how(Rights::READ) };
    let opened = laws.fs.open(&call, &at("f"), &pinned).await.works();
    let mut source = opened.file.read(&call, Range::ALL).await.works();
    let piece = source.next(bytes.len()).await.works().expect("there is more");
    fs::write(&path, pattern(100_000, 2)).expect("written in place");
    assert!(piece.into_bytes().works()[..] == bytes[..], "it is on its way already");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_one_version_pages_are_sent_only_if_more_follows_than_may_be_unread() {
    const MIB: usize = 1 << 20;
    const UNREAD: usize = 3 * MIB;
    let (site, _beside) = fresh().await;
    let laws = Laws::of(&site);
    let (path, bytes) = (site.home.path().join("f"), pattern(8 * MIB + 1, 1));
    fs::write(&path, &bytes).expect("written");
    let call = request(&laws);
    let pinned = OpenHow { pin: Pin::Version, ..how(Rights::READ) };
    let opened = laws.fs.open(&call, &at("f"), &pinned).await.works();
    let source = async || opened.file.read(&call, Range::ALL).await.works();
    let (mut sent, mut to_send) = (Vec::new(), source().await);
    while let Some(piece) = to_send.next_to_send(MIB, UNREAD as u64).await.works() {
        let follows = bytes.len() - sent.len() - piece.length();
        let are_pages = matches!(piece, Piece::File { .. });
        assert_eq!(are_pages, follows >= UNREAD + MIB, "{piece:?}, {follows} follow");
        sent.extend_from_slice(&piece.into_bytes().works());
    }
    assert!(sent == bytes);
    let mut pulled = source().await;
    while let Some(piece) = pulled.next(MIB).await.works() {
        assert!(matches!(piece, Piece::Bytes(_)), "{piece:?} for who may keep it");
    }
    // Whoever has been sent pages is told of a change before the last piece.
    for until in [MIB, 6 * MIB, 8 * MIB] {
        let opened = laws.fs.open(&call, &at("f"), &pinned).await.works();
        let (mut sent, mut to_send) = (0, opened.file.read(&call, Range::ALL).await.works());
        while sent < until {
            let piece = to_send.next_to_send(MIB, UNREAD as u64).await.works();
            sent += piece.expect("there is more").length();
        }
        fs::write(&path, &bytes).expect("written");
        assert_eq!(to_send.next_to_send(MIB, UNREAD as u64).await.fails(), ErrorKind::Conflict, "{until}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_read_a_moment_ago_is_read_again_as_it_is_now_and_let_go_with_the_root() {
    let (site, _beside) = fresh().await;
    let laws = Laws::of(&site);
    let alice = laws.user("alice");
    laws.allow("", &alice, Rights::READ | Rights::TRAVERSE).await;
    let call = Call { from: request(&laws).from, ..laws.call_of(&alice, 2) };
    let pinned = OpenHow { pin: Pin::Version, ..how(Rights::READ) };
    let path = site.home.path().join("f");
    let open = async || laws.fs.open(&call, &at("f"), &pinned).await;
    let once = async || {
        let opened = open().await?;
        let bytes = read_of(&*opened.file, &call, Range::ALL).await?;
        opened.file.close(&call).await?;
        Ok((bytes, opened.attr.version))
    };
    // The first look may be at a file too young to be kept, and the next is the first that counts.
    let read = async || {
        let read = once().await.works();
        assert_eq!((once().await.works(), once().await.works()), (read.clone(), read.clone()));
        let kept = open_below(&path);
        assert!(kept > 0, "it is kept");
        let again = open().await.works();
        assert_eq!(open_below(&path), kept, "and not opened anew");
        let native = Call { from: laws.call().from, ..call.clone() };
        let own = laws.fs.open(&native, &at("f"), &pinned).await.works();
        assert!(open_below(&path) > kept, "but for who may hold on to it");
        own.file.close(&native).await.works();
        again.file.close(&call).await.works();
        read
    };
    fs::write(&path, b"first").expect("written");
    let (bytes, first) = read().await;
    assert_eq!(bytes[..], *b"first");
    fs::write(&path, b"second").expect("written in place");
    let (bytes, second) = read().await;
    assert!(bytes[..] == *b"second" && second != first);
    fs::write(site.home.path().join("new"), b"third").expect("written");
    fs::rename(site.home.path().join("new"), &path).expect("another file has the name");
    let (bytes, third) = read().await;
    assert!(bytes[..] == *b"third" && third != second);
    laws.forbid("", &alice).await;
    assert_eq!(open().await.fails(), ErrorKind::NotFound, "nothing is shown to who may not read it any more");
    laws.allow("", &alice, Rights::TRAVERSE).await;
    assert_eq!(open().await.fails(), ErrorKind::Denied);
    laws.allow("", &alice, Rights::READ).await;
    read().await;
    laws.allow("", &alice, Rights::WRITE).await;
    let emptied = OpenHow { truncate: true, ..pinned.clone() };
    if let Ok(opened) = laws.fs.open(&call, &at("f"), &emptied).await {
        assert_eq!(opened.attr.size, 0, "it is not taken for a read");
        opened.file.close(&call).await.works();
    }
    fs::write(&path, b"fourth").expect("written");
    read().await;
    let opened = open().await.works();
    laws.forbid("", &alice).await;
    let late = read_of(&*opened.file, &call, Range::ALL).await;
    assert!(late.is_err(), "though its bytes were read when it was opened");
    opened.file.close(&call).await.works();
    drop(opened);
    laws.allow("", &alice, Rights::READ | Rights::TRAVERSE).await;
    read().await;
    fs::remove_file(&path).expect("removed");
    assert_eq!(once().await.fails(), ErrorKind::NotFound);

    let home = site.home.path();
    assert!(open_below(home) > 2, "the root, and what was removed");
    for _ in 0..2000 {
        site.clock.step(Duration::from_secs(2));
        if open_below(home) == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{} descriptors are open still", open_below(home));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_reads_or_a_native_client_does_or_that_is_not_of_one_version_is_not_kept_open() {
    let (site, _beside) = fresh().await;
    let laws = Laws::of(&site);
    let path = site.home.path().join("f");
    fs::write(&path, b"bytes").expect("written");
    let of = |pin: Pin| OpenHow { pin, ..how(Rights::READ) };
    let cases = [
        ("nobody reads it", request(&laws), of(Pin::Version), false),
        ("a native client", laws.call(), of(Pin::Version), true),
        ("no one version", request(&laws), of(Pin::None), true),
    ];
    for (what, call, how, reads) in cases {
        for _ in 0..5 {
            let opened = laws.fs.open(&call, &at("f"), &how).await.works();
            if reads {
                assert_eq!(read_of(&*opened.file, &call, Range::ALL).await.works()[..], *b"bytes");
            }
            opened.file.close(&call).await.works();
        }
        assert_eq!(open_below(&path), 0, "{what}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_open_a_hundred_times_costs_the_node_few_descriptors() {
    let (site, _beside) = fresh().await;
    let laws = Laws::of(&site);
    let path = site.home.path().canonicalize().expect("it is there").join("f");
    fs::write(&path, b"bytes").expect("written");
    let mut opens = Vec::new();
    for number in 0..100_u8 {
        let reads = laws.open("f", Rights::READ).await;
        let writes = laws.open("f", Rights::READ | Rights::WRITE).await;
        write_to(&*writes.file, &laws.call(), WriteAt::Offset(0), &[number]).await.works();
        assert_eq!(
            read_of(&*reads.file, &laws.call(), Range::ALL).await.works()[..],
            [&[number], &b"ytes"[..]].concat()
        );
        opens.extend([reads, writes]);
    }
    // One holds the inode, and what is not needed is closed on another thread.
    let most = 2 * limits::EXPORT_DESCRIPTORS_OF_FILE + 1;
    let few = async {
        while open_below(&path) > most {
            tokio::task::yield_now().await
        }
    };
    tokio::time::timeout(Duration::from_secs(10), few).await.expect("few are left");
    assert_eq!(open_below(&path), most);

    // What some close stays open for the others.
    for opened in opens.drain(..150) {
        opened.file.close(&laws.call()).await.works();
    }
    fs::remove_file(&path).expect("removed");
    for opened in &opens {
        opened.file.sync(&laws.call(), Range::ALL).await.works();
        assert_eq!(read_of(&*opened.file, &laws.call(), Range::ALL).await.works()[..], b"cytes"[..]);
    }
    for opened in opens {
        opened.file.close(&laws.call()).await.works();
    }
    assert_eq!(open_below(&path), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_lost_its_last_name_is_governed_as_it_was_under_that() {
    let (site, _beside) = fresh().await;
    let laws = Laws::of(&site);
    for dir in ["public", "secret"] {
        laws.dir(dir).await;
    }
    let alice = laws.user("alice");
    laws.allow("public", &alice, Rights::READ | Rights::TRAVERSE).await;
    laws.allow("secret", &laws.user("bob"), Rights::READ).await;
    fs::write(site.home.path().join("public/f"), b"bytes").expect("written");
    let call = laws.call_of(&alice, 2);
    let opened = laws.fs.open(&call, &at("public/f"), &how(Rights::READ)).await.works();
    let read = async || read_of(&*opened.file, &call, Range::ALL).await;
    read().await.works();
    let [from, to] = ["public/f", "secret/f"].map(at);
    laws.fs.rename(&laws.call(), &from, &to, Replace::Never, &free()).await.works();
    let while_named = read().await.fails();
    laws.fs.remove(&laws.call(), &to, Expect::Any, &free()).await.works();
    assert_eq!(read().await.fails(), while_named);
    // Whatever comes to where it was, and goes from there.
    laws.dir("secret/f").await;
    laws.fs.rename(&laws.call(), &to, &at("public/d"), Replace::Never, &free()).await.works();
    assert_eq!(read().await.fails(), while_named);
    laws.allow("secret", &alice, Rights::READ | Rights::TRAVERSE).await;
    read().await.works();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_was_replaced_is_not_governed_by_what_governs_the_one_in_its_place() {
    let (site, _beside) = fresh().await;
    let laws = Laws::of(&site);
    laws.dir("d").await;
    let alice = laws.user("alice");
    laws.allow("d", &alice, Rights::READ | Rights::TRAVERSE).await;
    for name in ["f", "g"] {
        fs::write(site.home.path().join("d").join(name), b"bytes").expect("written");
    }
    let call = laws.call_of(&alice, 2);
    let opened = laws.fs.open(&call, &at("d/f"), &how(Rights::READ)).await.works();
    let read = async || read_of(&*opened.file, &call, Range::ALL).await;
    laws.seal("d/f").await;
    let sealed = read().await.fails();
    laws.allow("d/g", &alice, Rights::READ).await;
    laws.fs.rename(&laws.call(), &at("d/g"), &at("d/f"), Replace::Any, &free()).await.works();
    laws.find_as(&call, "d/f").await.works();
    assert_eq!(read().await.fails(), sealed);
    let (file, edit) = (At::id(opened.file.id()), PolicyEdit::default());
    let protected = laws.fs.protect(&laws.call(), &file, Scope::Container, &edit).await;
    assert_eq!(protected.fails(), ErrorKind::NotFound, "what governs it may be bound nowhere");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_without_a_name_goes_along_with_the_directory_it_was_in() {
    let (site, _beside) = fresh().await;
    let laws = Laws::of(&site);
    laws.dir("d").await;
    laws.dir("d/sub").await;
    let alice = laws.user("alice");
    laws.allow("d", &alice, Rights::READ | Rights::TRAVERSE).await;
    fs::write(site.home.path().join("d/sub/f"), b"bytes").expect("written");
    let call = laws.call_of(&alice, 2);
    let opened = laws.fs.open(&call, &at("d/sub/f"), &how(Rights::READ)).await.works();
    let read = async || read_of(&*opened.file, &call, Range::ALL).await;
    laws.fs.remove(&laws.call(), &at("d/sub/f"), Expect::Any, &free()).await.works();
    read().await.works();
    laws.seal("d/sub").await;
    let sealed = read().await.fails();
    laws.fs.rename(&laws.call(), &at("d/sub"), &at("d/other"), Replace::Never, &free()).await.works();
    assert_eq!(read().await.fails(), sealed);
}
