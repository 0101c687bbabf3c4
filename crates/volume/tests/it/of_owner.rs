//! A directory that its owner shared: through it nobody does more than the machine would let that owner do,
//! whatever the node could, and what is made there is the owner's. The node is root in these tests.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use weft_conformance::file_system::site::{Outcome, Site as Laws, at, free, how};
use weft_conformance::run::not_run;
use weft_core::attr::{Kind, SetAttr, TagEdit, TagMust, TagName};
use weft_core::form::{At, BytesSource, Cursor, Expect, New, PageMax, Replace, StageHint, Want, WriteAt};
use weft_core::{Error, ErrorKind, Result, Rights};

use super::export::{SOMEBODY, Site};

const OTHER: u32 = SOMEBODY + 1;

/// A share of somebody's; none where these tests are not root.
async fn fresh(test: &str, seed: u64) -> Option<Site> {
    if weft_sys::process::uid() != 0 {
        not_run(test, "only root can make files of somebody else");
        return None;
    }
    Some(Site::of_owner(seed).await)
}

/// Makes a file, or with no bytes a directory, of some user and mode.
fn put(path: &Path, bytes: Option<&str>, uid: u32, mode: u32) {
    match bytes {
        Some(bytes) => fs::write(path, bytes).expect("written"),
        None => fs::create_dir(path).expect("made"),
    }
    chown(path, Some(uid), Some(uid)).expect("root may");
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("root may");
}

async fn reading(laws: &Laws<'_>, path: &str) -> Result<()> {
    laws.fs.open(&laws.call(), &at(path), &how(Rights::READ)).await.map(drop)
}

async fn writing(laws: &Laws<'_>, path: &str) -> Result<()> {
    laws.fs.open(&laws.call(), &at(path), &how(Rights::WRITE)).await.map(drop)
}

async fn publishing(laws: &Laws<'_>, path: &str) -> Result<()> {
    let stage = laws.fs.stage(&laws.call(), &at(path), &StageHint::default()).await?;
    stage.put(&laws.call(), 1, 0, &mut BytesSource::new(&b"new"[..])).await?;
    stage.publish(&laws.call(), &[], &SetAttr::default(), &free()).await.map(drop)
}

fn refused(outcome: Result<()>) -> Error {
    let error = outcome.expect_err("the machine lets the owner not");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.detail().contains("the user who shared the directory"), "{error}");
    error
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_owner_may_not_read_write_or_name_nobody_may() {
    let Some(site) = fresh("of_owner::bits", 1).await else { return };
    let (laws, home) = (Laws::of(&site), site.home.path());
    put(&home.join("own"), Some("own"), SOMEBODY, 0o600);
    put(&home.join("secret"), Some("of another"), OTHER, 0o600);
    put(&home.join("shown"), Some("of another"), OTHER, 0o644);
    put(&home.join("unreadable"), Some("own"), SOMEBODY, 0o300);
    reading(&laws, "own").await.works();
    writing(&laws, "own").await.works();
    reading(&laws, "shown").await.works();
    for outcome in [
        reading(&laws, "secret").await,
        writing(&laws, "shown").await,
        reading(&laws, "unreadable").await,
        publishing(&laws, "shown").await,
    ] {
        refused(outcome);
    }
    // By its id it is the same file.
    let id = laws.find("secret").await.works();
    refused(laws.fs.file(&laws.call(), id, Rights::READ).await.map(drop));
    let mode = SetAttr { mode: Some(0o666), ..SetAttr::default() };
    refused(laws.fs.set(&laws.call(), &at("shown"), &mode, &free()).await.map(drop));
    let tag = TagEdit::Put { name: TagName::new("a").works(), value: "1".into(), must: TagMust::Any };
    refused(laws.fs.tag(&laws.call(), &at("shown"), &[tag], &free()).await.map(drop));
    refused(laws.fs.tags(&laws.call(), &at("secret"), None).await.map(drop));
    refused(laws.fs.link(&laws.call(), &at("shown"), &at("link")).await.map(drop));
    // A directory of another's: seen, and nothing is made, taken or put there.
    put(&home.join("theirs"), None, OTHER, 0o755);
    put(&home.join("theirs/f"), Some("theirs"), SOMEBODY, 0o644);
    refused(
        laws.fs.make(&laws.call(), &at("theirs/new"), New::Directory, &SetAttr::default()).await.map(drop),
    );
    refused(laws.fs.remove(&laws.call(), &at("theirs/f"), Expect::Any, &free()).await.map(drop));
    refused(publishing(&laws, "theirs/f").await);
    refused(laws.fs.rename(&laws.call(), &at("theirs/f"), &at("f"), Replace::Any, &free()).await.map(drop));
    refused(
        laws.fs.rename(&laws.call(), &at("own"), &at("theirs/own"), Replace::Any, &free()).await.map(drop),
    );
    // Moved elsewhere, a directory itself is written.
    laws.dir("d").await;
    refused(
        laws.fs.rename(&laws.call(), &at("theirs"), &at("d/theirs"), Replace::Any, &free()).await.map(drop),
    );
    laws.fs.rename(&laws.call(), &at("theirs"), &at("ours"), Replace::Any, &free()).await.works();
    // Of a sticky directory, names are their owners'.
    put(&home.join("common"), None, OTHER, 0o1777);
    put(&home.join("common/f"), Some("theirs"), OTHER, 0o666);
    refused(laws.fs.remove(&laws.call(), &at("common/f"), Expect::Any, &free()).await.map(drop));
    refused(publishing(&laws, "common/f").await);
    refused(laws.fs.rename(&laws.call(), &at("own"), &at("common/f"), Replace::Any, &free()).await.map(drop));
    writing(&laws, "common/f").await.works();
    let made = laws.fs.make(&laws.call(), &at("common/g"), New::Directory, &SetAttr::default()).await;
    made.works();
    laws.fs.remove(&laws.call(), &at("common/g"), Expect::Any, &free()).await.works();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_that_the_owner_may_not_search_hides_what_is_below() {
    let Some(site) = fresh("of_owner::search", 2).await else { return };
    let (laws, home) = (Laws::of(&site), site.home.path());
    put(&home.join("closed"), None, OTHER, 0o744);
    put(&home.join("closed/f"), Some("below"), SOMEBODY, 0o666);
    put(&home.join("open"), None, OTHER, 0o711);
    put(&home.join("open/f"), Some("below"), SOMEBODY, 0o666);
    reading(&laws, "open/f").await.works();
    let id = laws.find("open/f").await.works();
    let list = async |path: &str| {
        let (call, dir) = (laws.call(), at(path));
        laws.fs.list(&call, &dir, Cursor::Start, PageMax::new(9), Want::default()).await.map(drop)
    };
    for path in ["closed/f", "closed/none"] {
        assert_eq!(laws.find(path).await.fails(), ErrorKind::NotFound, "{path}");
        assert_eq!(reading(&laws, path).await.fails(), ErrorKind::NotFound, "{path}");
    }
    refused(list("closed").await);
    refused(list("open").await);
    list("").await.works();
    fs::set_permissions(home.join("open"), fs::Permissions::from_mode(0o700)).expect("root may");
    assert_eq!(laws.find("open/f").await.fails(), ErrorKind::NotFound);
    assert_eq!(laws.fs.walk(&laws.call(), &At::id(id), Want::default()).await.fails(), ErrorKind::Stale);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_made_belongs_to_the_owner() {
    let Some(site) = fresh("of_owner::made", 3).await else { return };
    let (laws, home) = (Laws::of(&site), site.home.path());
    put(&home.join("group"), None, SOMEBODY, 0o2770);
    chown(home.join("group"), None, Some(OTHER)).expect("root may");
    fs::set_permissions(home.join("group"), fs::Permissions::from_mode(0o2770)).expect("root may");
    let kinds = [New::File { verifier: None }, New::Directory, New::Fifo, New::Symlink(b"f".to_vec().into())];
    for (name, new) in ["f", "d", "p", "l"].into_iter().zip(kinds) {
        laws.make(name, new).await;
    }
    publishing(&laws, "staged").await.works();
    publishing(&laws, "staged").await.works();
    publishing(&laws, "group/staged").await.works();
    for name in ["f", "d", "p", "l", "staged", "group/staged"] {
        let there = fs::symlink_metadata(home.join(name)).expect("made");
        assert_eq!(there.uid(), SOMEBODY, "{name}");
        let group = if name.starts_with("group/") { OTHER } else { SOMEBODY };
        assert_eq!(there.gid(), group, "{name}");
        let shown = laws.fs.walk(&laws.call(), &at(name), Want::default()).await.works().attr;
        assert_eq!(
            shown.owner,
            laws.attr(laws.find("").await.works()).await.owner,
            "{name}: as who shared it"
        );
    }
    let opened = laws.fs.open(&laws.call(), &at("f"), &how(Rights::WRITE)).await.works();
    let mut bytes = BytesSource::new(&b"theirs"[..]);
    opened.file.write(&laws.call(), WriteAt::Offset(0), &mut bytes).await.works();
    // Files there would be of a group that the owner is not known to be in.
    let set = |mode| SetAttr { mode: Some(mode), ..SetAttr::default() };
    put(&home.join("other"), None, SOMEBODY, 0o755);
    chown(home.join("other"), None, Some(OTHER)).expect("root may");
    let given = laws.fs.set(&laws.call(), &at("other"), &set(0o2755), &free()).await;
    assert_eq!(given.fails(), ErrorKind::NotPermitted);
    laws.fs.set(&laws.call(), &at("other"), &set(0o700), &free()).await.works();
    assert_eq!(laws.attr(laws.find("p").await.works()).await.kind, Kind::Fifo);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_access_list_of_the_machine_leaves_a_file_to_its_owner() {
    let Some(site) = fresh("of_owner::acl", 4).await else { return };
    let (laws, home) = (Laws::of(&site), site.home.path());
    put(&home.join("listed"), Some("listed"), OTHER, 0o644);
    reading(&laws, "listed").await.works();
    // Owner, one user, group, mask, others: as `setfacl -m u:7:r` writes it.
    let mut list = vec![2, 0, 0, 0];
    for (tag, bits, id) in
        [(1_u16, 6_u16, u32::MAX), (2, 4, 7), (4, 4, u32::MAX), (16, 4, u32::MAX), (32, 4, u32::MAX)]
    {
        list.extend_from_slice(&tag.to_le_bytes());
        list.extend_from_slice(&bits.to_le_bytes());
        list.extend_from_slice(&id.to_le_bytes());
    }
    let top = weft_sys::Beneath::open(&home.canonicalize().expect("there")).expect("it opens");
    let set = |name: &[u8]| top.find(name)?.set_tag(b"system.posix_acl_access", Some(&list));
    if set(b"listed").is_err() {
        return not_run("of_owner::acl", "the file system keeps no access lists");
    }
    refused(reading(&laws, "listed").await);
    put(&home.join("own"), Some("own"), SOMEBODY, 0o600);
    set(b"own").expect("as above");
    reading(&laws, "own").await.works();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_that_is_given_away_is_shared_no_more() {
    let Some(site) = fresh("of_owner::away", 5).await else { return };
    let (laws, home) = (Laws::of(&site), site.home.path());
    put(&home.join("f"), Some("f"), SOMEBODY, 0o644);
    let opened = laws.fs.open(&laws.call(), &at("f"), &how(Rights::READ)).await.works();
    chown(home, Some(OTHER), None).expect("root may");
    assert_eq!(reading(&laws, "f").await.fails(), ErrorKind::Unavailable);
    assert_eq!(opened.file.attr(&laws.call()).await.fails(), ErrorKind::Unavailable);
    let why = site.export().away().await.expect("it is said why");
    assert!(why.contains("belongs to another user"), "{why}");
    chown(home, Some(SOMEBODY), None).expect("root may");
    reading(&laws, "f").await.works();
}
