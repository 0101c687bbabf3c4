//! Laws of symbolic links: resolved inside the tree, never out of it, never for ever.

use bytes::Bytes;
use weft_core::attr::{Kind, SetAttr};
use weft_core::form::{At, New, Want};
use weft_core::{ErrorKind, FileId};

use super::Subject;
use super::site::*;

/// Relative, absolute and dotted targets lead where they say, the root being the tree's.
pub async fn links_inside_a_path_are_followed(subject: &dyn Subject) {
    let site = Site::of(subject);
    site.dir("d").await;
    site.dir("d/e").await;
    let file = site.file("d/e/f", b"").await;
    for (path, target) in [
        ("relative", "d/e"),
        ("absolute", "/d/e"),
        ("dotted", "./d/../d/./e/."),
        ("above", "../../d/e"),
        ("slash", "d/e/"),
        ("double", "d//e"),
        ("chain", "relative"),
    ] {
        site.symlink(path, target).await;
        assert_eq!(site.find(&format!("{path}/f")).await.works(), file, "{target}");
    }
    site.symlink("d/up", "../d/e/f").await;
    let followed = site.fs.walk(&site.call(), &at("d/up").following(), Want::default()).await.works();
    assert_eq!(followed.attr.id, file);
}

/// The link at the end is meant itself unless it is to be followed.
pub async fn the_last_link_is_followed_only_on_demand(subject: &dyn Subject) {
    let site = Site::of(subject);
    let file = site.file("f", b"").await;
    let link = site.symlink("l", "f").await;
    let walk = |at: At| {
        let site = &site;
        async move { site.fs.walk(&site.call(), &at, Want::default()).await.works().attr }
    };
    let itself = walk(at("l")).await;
    assert_eq!((itself.id, itself.kind, itself.size), (link, Kind::Symlink, 1));
    assert_eq!(walk(at("l").following()).await.id, file);
    assert_eq!(walk(At::id(link).following()).await.id, file);
}

/// Circles, and more than 40 links on the way, are `Loop`; 40 are not.
pub async fn too_many_links_are_a_loop(subject: &dyn Subject) {
    let site = Site::of(subject);
    let file = site.file("f", b"").await;
    site.symlink("a", "b").await;
    site.symlink("b", "a").await;
    site.symlink("self", "self").await;
    for path in ["a", "self"] {
        let walked = site.fs.walk(&site.call(), &at(path).following(), Want::default()).await;
        assert_eq!(walked.fails(), ErrorKind::Loop, "{path}");
    }
    assert_eq!(site.find("self/x").await.fails(), ErrorKind::Loop);
    site.symlink("1", "f").await;
    for n in 2..=41 {
        site.symlink(&n.to_string(), &(n - 1).to_string()).await;
    }
    let forty = site.fs.walk(&site.call(), &at("40").following(), Want::default()).await.works();
    assert_eq!(forty.attr.id, file);
    let more = site.fs.walk(&site.call(), &at("41").following(), Want::default()).await;
    assert_eq!(more.fails(), ErrorKind::Loop);
}

/// A link that leads nowhere is there itself; following it finds nothing.
pub async fn a_dangling_link_is_not_found_when_followed(subject: &dyn Subject) {
    let site = Site::of(subject);
    site.symlink("l", "none").await;
    site.find("l").await.works();
    let walked = site.fs.walk(&site.call(), &at("l").following(), Want::default()).await;
    assert_eq!(walked.fails(), ErrorKind::NotFound);
    assert_eq!(site.find("l/x").await.fails(), ErrorKind::NotFound);
}

/// A link through a file is `NotDirectory`.
pub async fn a_link_to_a_file_is_no_directory(subject: &dyn Subject) {
    let site = Site::of(subject);
    site.file("f", b"").await;
    site.symlink("l", "f").await;
    site.symlink("slash", "f/").await;
    assert_eq!(site.find("l/x").await.fails(), ErrorKind::NotDirectory);
    let walked = site.fs.walk(&site.call(), &at("slash").following(), Want::default()).await;
    assert_eq!(walked.fails(), ErrorKind::NotDirectory);
}

/// A target has 1 to 4 095 bytes without NUL, and is kept as it is.
pub async fn targets_keep_their_bytes_within_their_limit(subject: &dyn Subject) {
    let site = Site::of(subject);
    let make = |path: &'static str, target: Vec<u8>| {
        let site = &site;
        let new = New::Symlink(Bytes::from(target));
        async move { site.fs.make(&site.call(), &at(path), new, &SetAttr::default()).await }
    };
    make("longest", vec![0xfe; 4095]).await.works();
    assert_eq!(make("x", vec![b'x'; 4096]).await.fails(), ErrorKind::TooLong);
    assert_eq!(make("x", Vec::new()).await.fails(), ErrorKind::Invalid);
    assert_eq!(make("x", b"a\0b".to_vec()).await.fails(), ErrorKind::Invalid);
    assert_eq!(site.names(FileId::ROOT).await.len(), 1);
    let target = site.fs.target(&site.call(), &at("longest")).await.works();
    assert_eq!(target, weft_core::form::LinkTarget::Symlink(Bytes::from(vec![0xfe; 4095])));
}
