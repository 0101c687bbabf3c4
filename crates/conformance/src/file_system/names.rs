//! Laws of making, linking, renaming and removing names.

use bytes::Bytes;
use weft_core::attr::{Kind, SetAttr};
use weft_core::form::{At, Expect, LinkTarget, New, Reference, Replace, Want};
use weft_core::{CallerName, ContainerId, ErrorKind, FileId, Name, VolumeId, limits};

use super::Subject;
use super::site::*;

/// Every byte that may be a name by itself is one, unchanged.
pub async fn all_legal_single_bytes_are_names(subject: &dyn Subject) {
    let site = Site::of(subject);
    let legal: Vec<u8> = (1..=255).filter(|b| !matches!(b, b'/' | b'.')).collect();
    assert_eq!(legal.len(), 253);
    for byte in &legal {
        let place = At::name(FileId::ROOT, Name::new(vec![*byte]).works());
        site.fs.make(&site.call(), &place, new_file(), &SetAttr::default()).await.works();
    }
    let mut listed: Vec<u8> = site.names(FileId::ROOT).await.iter().map(|n| n.as_bytes()[0]).collect();
    listed.sort_unstable();
    assert_eq!(listed, legal);
}

/// Names keep their bytes: 255 of them, invalid UTF-8, look-alikes that are distinct.
pub async fn names_keep_their_bytes_and_are_never_normalised(subject: &dyn Subject) {
    let site = Site::of(subject);
    let odd: Vec<Vec<u8>> = vec![
        vec![b'n'; 255],
        vec![0xff; 255],
        b"\xc3\x28 not utf-8 \xf0\x28".to_vec(),
        "e\u{301}".as_bytes().to_vec(),
        "\u{e9}".as_bytes().to_vec(),
        b"A".to_vec(),
        b"a".to_vec(),
        b" ".to_vec(),
        b"..a".to_vec(),
        b"new\nline\\x".to_vec(),
    ];
    let mut ids = Vec::new();
    for bytes in &odd {
        let place = At::name(FileId::ROOT, Name::new(bytes.clone()).works());
        let made = site.fs.make(&site.call(), &place, New::Directory, &SetAttr::default()).await.works();
        assert_eq!(made.value.name.as_bytes(), &bytes[..]);
        ids.push((place, made.value.id));
    }
    for (place, id) in &ids {
        let walked = site.fs.walk(&site.call(), place, Want::default()).await.works();
        assert_eq!(walked.attr.id, *id);
    }
    assert_eq!(site.names(FileId::ROOT).await.len(), odd.len());
}

/// A taken name is `Exists`, whatever has it and whatever is to be made.
pub async fn a_taken_name_is_not_made_again(subject: &dyn Subject) {
    let site = Site::of(subject);
    site.file("file", b"").await;
    site.dir("dir").await;
    site.symlink("link", "nowhere").await;
    for path in ["file", "dir", "link"] {
        for new in [new_file(), New::Directory, New::Fifo, New::Symlink(Bytes::from_static(b"x"))] {
            let answer = site.fs.make(&site.call(), &at(path), new, &SetAttr::default()).await;
            assert_eq!(answer.fails(), ErrorKind::Exists, "{path}");
        }
    }
}

/// Making where no directory is fails, and says what is in the way.
pub async fn making_needs_a_directory_that_is_there(subject: &dyn Subject) {
    let site = Site::of(subject);
    site.file("file", b"").await;
    let make = |path: &'static str| {
        let site = &site;
        async move { site.fs.make(&site.call(), &at(path), new_file(), &SetAttr::default()).await.fails() }
    };
    assert_eq!(make("none/x").await, ErrorKind::NotFound);
    assert_eq!(make("file/x").await, ErrorKind::NotDirectory);
    let gone = site.dir("gone").await;
    site.fs.remove(&site.call(), &at("gone"), Expect::Directory, &free()).await.works();
    let place = At::name(gone, name("x"));
    let answer = site.fs.make(&site.call(), &place, new_file(), &SetAttr::default()).await;
    assert_eq!(answer.fails(), ErrorKind::Stale);
}

/// Each kind of thing is made as what it is and shows it in walks and listings.
pub async fn every_kind_is_made_and_shown(subject: &dyn Subject) {
    let site = Site::of(subject);
    let node = CallerName::parse("node:n1", site.subject.domain().id()).works();
    let kinds = [
        ("file", new_file(), Kind::File),
        ("dir", New::Directory, Kind::Directory),
        ("link", New::Symlink(Bytes::from_static(b"file")), Kind::Symlink),
        ("pipe", New::Fifo, Kind::Fifo),
        ("node", New::Reference(Reference::Node(node.clone())), Kind::Reference),
        ("container", New::Reference(Reference::Container(ContainerId(9))), Kind::Reference),
    ];
    for (path, new, kind) in kinds.clone() {
        let made = site.fs.make(&site.call(), &at(path), new, &SetAttr::default()).await.works();
        assert_eq!(made.value.kind, kind);
        assert!(made.value.cookie > 0, "0 stands for the start");
        let walked = site.fs.walk(&site.call(), &at(path), Want::default()).await.works();
        assert_eq!((walked.attr.kind, walked.attr.id), (kind, made.value.id));
        assert_eq!(walked.parent, Some(FileId::ROOT));
    }
    for entry in site.scan(FileId::ROOT, 100).await {
        let kind = kinds.iter().find(|(path, _, _)| entry.name == name(path)).map(|(_, _, kind)| *kind);
        assert_eq!(Some(entry.kind), kind);
    }
    let link = site.fs.target(&site.call(), &at("link")).await.works();
    assert_eq!(link, LinkTarget::Symlink(Bytes::from_static(b"file")));
    let reference = site.fs.target(&site.call(), &at("node")).await.works();
    assert_eq!(reference, LinkTarget::Reference(Reference::Node(node)));
    assert_eq!(site.fs.target(&site.call(), &at("file")).await.fails(), ErrorKind::Invalid);
}

/// Nobody leads others to a volume of its choice: a junction is not made by a request, whatever
/// rights its caller has, and where it would have come to lie is nothing.
pub async fn a_junction_is_not_made_by_a_request(subject: &dyn Subject) {
    let site = Site::of(subject);
    site.dir("taken").await;
    for path in ["volume", "taken", "none/volume"] {
        let new = New::Reference(Reference::Volume(VolumeId(9)));
        let answer = site.fs.make(&site.call(), &at(path), new, &SetAttr::default()).await;
        assert_eq!(answer.fails(), ErrorKind::NotPermitted, "{path}");
    }
    assert_eq!(site.find("volume").await.fails(), ErrorKind::NotFound);
}

/// Making a file again with the verifier it was made with finds it; another verifier
/// is `Exists`.
pub async fn an_exclusive_verifier_finds_what_it_made(subject: &dyn Subject) {
    let site = Site::of(subject);
    let new = |verifier: &[u8; 8]| New::File { verifier: Some(*verifier) };
    let none = SetAttr::default();
    let first = site.fs.make(&site.call(), &at("f"), new(b"verifier"), &none).await.works();
    let again = site.fs.make(&site.call(), &at("f"), new(b"verifier"), &none).await.works();
    assert_eq!((first.value.id, first.value.cookie), (again.value.id, again.value.cookie));
    let other = site.fs.make(&site.call(), &at("f"), new(b"reifirev"), &none).await;
    assert_eq!(other.fails(), ErrorKind::Exists);
    assert_eq!(site.fs.make(&site.call(), &at("f"), new_file(), &none).await.fails(), ErrorKind::Exists);
}

/// A hard link is the same file; its last name going ends it.
pub async fn hard_links_are_one_file(subject: &dyn Subject) {
    let site = Site::of(subject);
    if !site.supports().links {
        return site.unsupported("hard links");
    }
    let id = site.file("a", b"bytes").await;
    site.dir("d").await;
    let linked = site.fs.link(&site.call(), &at("a"), &at("d/b")).await.works();
    assert_eq!(linked.value.id, id);
    assert_eq!(linked.file.after.map(|attr| attr.links), Some(2));
    let gone = site.fs.remove(&site.call(), &at("a"), Expect::NotDirectory, &free()).await.works();
    assert_eq!(gone.file.after.map(|attr| attr.links), Some(1), "a name went, the file did not");
    assert_eq!(site.read(id).await, &b"bytes"[..]);
    let gone = site.fs.remove(&site.call(), &at("d/b"), Expect::NotDirectory, &free()).await.works();
    assert_eq!(gone.file.after, None, "the change ended it");
    let walked = site.fs.walk(&site.call(), &At::id(id), Want::default()).await;
    assert_eq!(walked.fails(), ErrorKind::Stale);
}

/// A file has at most `LINKS_MAX` names: one more is refused by name, and one less makes room.
pub async fn a_file_has_so_many_names_and_no_more(subject: &dyn Subject) {
    let site = Site::of(subject);
    if !site.supports().links {
        return site.unsupported("hard links");
    }
    let id = site.file("a", b"").await;
    let link = async |to: &str| site.fs.link(&site.call(), &at("a"), &at(to)).await;
    for n in 1..limits::LINKS_MAX {
        link(&format!("n{n}")).await.works();
    }
    assert_eq!(site.attr(id).await.links, limits::LINKS_MAX);
    assert_eq!(link("more").await.fails(), ErrorKind::TooManyLinks);
    assert_eq!(site.find("more").await.fails(), ErrorKind::NotFound);
    // Under another name it is the same file still.
    site.fs.rename(&site.call(), &at("n1"), &at("m1"), Replace::Never, &free()).await.works();
    site.fs.remove(&site.call(), &at("n2"), Expect::NotDirectory, &free()).await.works();
    link("more").await.works();
    assert_eq!(link("again").await.fails(), ErrorKind::TooManyLinks);
}

/// Directories have one name; a taken name is not linked over.
pub async fn a_link_is_refused_for_directories_and_taken_names(subject: &dyn Subject) {
    let site = Site::of(subject);
    if !site.supports().links {
        return site.unsupported("hard links");
    }
    site.dir("d").await;
    site.file("a", b"").await;
    site.file("b", b"").await;
    let link = |from: &'static str, to: &'static str| {
        let site = &site;
        async move { site.fs.link(&site.call(), &at(from), &at(to)).await.fails() }
    };
    assert_eq!(link("d", "e").await, ErrorKind::IsDirectory);
    assert_eq!(link("a", "b").await, ErrorKind::Exists);
    assert_eq!(link("none", "c").await, ErrorKind::NotFound);
    assert_eq!(link("a", "none/c").await, ErrorKind::NotFound);
}

/// `remove` finds what it expects, and an empty directory, or leaves everything.
pub async fn remove_takes_only_what_it_expects(subject: &dyn Subject) {
    let site = Site::of(subject);
    site.dir("d").await;
    site.file("d/f", b"").await;
    let remove = |path: &'static str, expect: Expect| {
        let site = &site;
        async move { site.fs.remove(&site.call(), &at(path), expect, &free()).await }
    };
    assert_eq!(remove("d/f", Expect::Directory).await.fails(), ErrorKind::NotDirectory);
    assert_eq!(remove("d", Expect::NotDirectory).await.fails(), ErrorKind::IsDirectory);
    assert_eq!(remove("d", Expect::Directory).await.fails(), ErrorKind::NotEmpty);
    assert_eq!(remove("d", Expect::Any).await.fails(), ErrorKind::NotEmpty);
    assert_eq!(remove("none", Expect::Any).await.fails(), ErrorKind::NotFound);
    remove("d/f", Expect::Any).await.works();
    remove("d", Expect::Directory).await.works();
    assert!(site.names(FileId::ROOT).await.is_empty());
}

/// A rename keeps the id and moves the name, within and between directories.
pub async fn rename_moves_the_name_and_keeps_the_id(subject: &dyn Subject) {
    let site = Site::of(subject);
    let id = site.file("a", b"bytes").await;
    site.dir("d").await;
    site.fs.rename(&site.call(), &at("a"), &at("d/b"), Replace::Never, &free()).await.works();
    assert_eq!(site.find("a").await.fails(), ErrorKind::NotFound);
    assert_eq!(site.find("d/b").await.works(), id);
    let dir = site.find("d").await.works();
    site.fs.rename(&site.call(), &at("d"), &at("e"), Replace::Any, &free()).await.works();
    assert_eq!(site.find("e").await.works(), dir);
    assert_eq!(site.find("e/b").await.works(), id);
}

/// What a rename may put onto what, as POSIX says.
pub async fn rename_replaces_as_posix_says(subject: &dyn Subject) {
    let site = Site::of(subject);
    for dir in ["dir", "empty", "full", "full/x"] {
        site.dir(dir).await;
    }
    let file = site.file("file", b"new").await;
    let old = site.file("old", b"old").await;
    let rename = |from: &'static str, to: &'static str, how: Replace| {
        let site = &site;
        async move { site.fs.rename(&site.call(), &at(from), &at(to), how, &free()).await }
    };
    assert_eq!(rename("none", "x", Replace::Any).await.fails(), ErrorKind::NotFound);
    assert_eq!(rename("file", "none/x", Replace::Any).await.fails(), ErrorKind::NotFound);
    assert_eq!(rename("file", "old", Replace::Never).await.fails(), ErrorKind::Exists);
    assert_eq!(rename("file", "dir", Replace::Any).await.fails(), ErrorKind::IsDirectory);
    assert_eq!(rename("dir", "file", Replace::Any).await.fails(), ErrorKind::NotDirectory);
    assert_eq!(rename("dir", "full", Replace::Any).await.fails(), ErrorKind::NotEmpty);
    assert_eq!(rename("full", "full/x/y", Replace::Any).await.fails(), ErrorKind::Loop);
    assert_eq!(rename("full", "full/y", Replace::Any).await.fails(), ErrorKind::Loop);
    rename("file", "old", Replace::Any).await.works();
    assert_eq!(site.find("old").await.works(), file);
    let gone = site.fs.walk(&site.call(), &At::id(old), Want::default()).await;
    assert_eq!(gone.fails(), ErrorKind::Stale);
    let dir = site.find("full").await.works();
    rename("full", "empty", Replace::Any).await.works();
    assert_eq!(site.find("empty").await.works(), dir);
    assert_eq!(site.find("full").await.fails(), ErrorKind::NotFound);
}

/// Renaming one name of a file onto another of its names changes nothing.
pub async fn rename_onto_another_name_of_itself_changes_nothing(subject: &dyn Subject) {
    let site = Site::of(subject);
    if !site.supports().links {
        return site.unsupported("hard links");
    }
    let id = site.file("a", b"").await;
    site.fs.link(&site.call(), &at("a"), &at("b")).await.works();
    site.fs.rename(&site.call(), &at("a"), &at("b"), Replace::Any, &free()).await.works();
    assert_eq!(site.find("a").await.works(), id);
    assert_eq!(site.find("b").await.works(), id);
    assert_eq!(site.attr(id).await.links, 2);
}

/// Exchange swaps two names, of any kinds, and needs both.
pub async fn exchange_swaps_two_names(subject: &dyn Subject) {
    let site = Site::of(subject);
    let exchange = |from: &'static str, to: &'static str| {
        let site = &site;
        async move { site.fs.rename(&site.call(), &at(from), &at(to), Replace::Exchange, &free()).await }
    };
    if !site.supports().exchange {
        site.file("a", b"").await;
        site.file("b", b"").await;
        assert_eq!(exchange("a", "b").await.fails(), ErrorKind::Unsupported);
        return;
    }
    let (dir, file) = (site.dir("d").await, site.file("f", b"").await);
    let inner = site.dir("d/inner").await;
    assert_eq!(exchange("d", "none").await.fails(), ErrorKind::NotFound);
    assert_eq!(exchange("d", "d/inner").await.fails(), ErrorKind::Loop);
    assert_eq!(exchange("d/inner", "d").await.fails(), ErrorKind::Loop);
    exchange("d", "f").await.works();
    assert_eq!((site.find("d").await.works(), site.find("f").await.works()), (file, dir));
    exchange("f/inner", "d").await.works();
    assert_eq!((site.find("f/inner").await.works(), site.find("d").await.works()), (file, inner));
    assert_eq!(site.attr(dir).await.links, 2, "its subdirectory left");
    assert_eq!(site.attr(FileId::ROOT).await.links, 4);
}

/// A directory counts its subdirectories as links and its entries as its size.
pub async fn a_directory_counts_its_entries_and_subdirectories(subject: &dyn Subject) {
    let site = Site::of(subject);
    let dir = site.dir("d").await;
    for path in ["d/a", "d/b"] {
        site.dir(path).await;
    }
    site.file("d/f", b"").await;
    let attr = site.attr(dir).await;
    assert_eq!((attr.links, attr.size), (4, 3));
    site.fs.rename(&site.call(), &at("d/a"), &at("a"), Replace::Any, &free()).await.works();
    site.fs.remove(&site.call(), &at("d/f"), Expect::Any, &free()).await.works();
    let attr = site.attr(dir).await;
    assert_eq!((attr.links, attr.size), (3, 1));
    assert_eq!(site.attr(FileId::ROOT).await.links, 4);
}

/// Ids are never used again, and one with another generation is `Stale`.
pub async fn ids_are_never_used_again(subject: &dyn Subject) {
    let site = Site::of(subject);
    let mut seen = Vec::new();
    for _ in 0..50 {
        let id = site.file("f", b"").await;
        assert!(!seen.contains(&id), "an id came again");
        seen.push(id);
        site.fs.remove(&site.call(), &at("f"), Expect::Any, &free()).await.works();
    }
    let id = site.file("f", b"").await;
    let other = FileId::new(id.volume(), id.serial(), id.generation() + 1);
    for gone in seen.iter().chain([&other]) {
        let walked = site.fs.walk(&site.call(), &At::id(*gone), Want::default()).await;
        assert_eq!(walked.fails(), ErrorKind::Stale);
    }
}

/// An address without a name cannot be removed or renamed.
pub async fn the_root_is_neither_removed_nor_renamed(subject: &dyn Subject) {
    let site = Site::of(subject);
    let root = At::id(FileId::ROOT);
    site.fs.remove(&site.call(), &root, Expect::Any, &free()).await.fails();
    site.fs.rename(&site.call(), &root, &at("x"), Replace::Any, &free()).await.fails();
    site.dir("d").await;
    site.fs.rename(&site.call(), &at("d"), &root, Replace::Any, &free()).await.fails();
    assert_eq!(site.names(FileId::ROOT).await, [name("d")]);
}
