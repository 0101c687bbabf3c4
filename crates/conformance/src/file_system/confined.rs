//! Laws of credentials that are confined to one thing by its id, as those of links are.

use weft_core::attr::{SetAttr, Version};
use weft_core::form::{At, BytesSource, Cursor, Expect, PageMax, Range, Replace, StageHint, Want};
use weft_core::proof::{Caller, Confines, Scope, Within};
use weft_core::{ErrorKind, FileId, RelPath, Result, Rights};

use super::Subject;
use super::rights::refused;
use super::site::*;

fn confined(subject: &dyn Subject, root: FileId, version: Option<Version>, hint: &str) -> Caller {
    let mut claims = subject.domain().claims(super::ADMINISTRATOR);
    claims.confines = Confines::Within(Within { root, version, hint: RelPath::try_from(hint).works() });
    subject.domain().caller_with(&claims)
}

/// The address of a path below an id.
fn below(root: FileId, path: &str) -> At {
    At { path: RelPath::try_from(path).works(), ..At::id(root) }.following()
}

async fn reading(site: &Site<'_>, call: &weft_core::form::Call, at: &At) -> Result<bytes::Bytes> {
    let opened = site.fs.open(call, at, &how(Rights::READ)).await?;
    let bytes = read_of(&*opened.file, call, Range::ALL).await?;
    opened.file.close(call).await?;
    Ok(bytes)
}

/// A credential confined to a directory reaches that and what lies below, by path from it and by id;
/// nothing above or beside it, not by the way there, not by links, not by changing names.
pub async fn a_credential_confined_to_a_directory_reaches_nothing_above_it(subject: &dyn Subject) {
    let site = Site::of(subject);
    for dir in ["top", "top/in", "top/in/deep", "top/out"] {
        site.dir(dir).await;
    }
    let inner = site.file("top/in/deep/f", b"inner").await;
    let outer = site.file("top/out/f", b"outer").await;
    site.symlink("top/in/escape", "../out").await;
    site.symlink("top/in/inward", "deep/f").await;
    let [top, root] = [site.find("top").await.works(), site.find("top/in").await.works()];
    let call = site.call_of(&confined(subject, root, None, "top/in"), 2);
    for at in [below(root, "deep/f"), below(root, "inward"), At::id(inner)] {
        assert_eq!(reading(&site, &call, &at).await.works(), &b"inner"[..], "{at}");
    }
    site.fs.make(&call, &below(root, "new"), new_file(), &SetAttr::default()).await.works();
    let listed =
        site.fs.list(&call, &At::id(root), Cursor::Start, PageMax::MAX, Want::default()).await.works();
    assert_eq!(listed.entries.len(), 4);
    let elsewhere = [at("top/in/deep/f"), at("top/out/f"), below(root, "escape/f"), At::id(outer)];
    for at in &elsewhere {
        refused(reading(&site, &call, at).await, &at.to_string());
    }
    refused(site.fs.file(&call, outer, Rights::READ).await.map(drop), "an id beside it");
    for above in [At::id(top), at(""), at("top/in")] {
        let listed = site.fs.list(&call, &above, Cursor::Start, PageMax::MAX, Want::default()).await;
        refused(listed.map(drop), "listing above");
    }
    let any = Replace::Any;
    let out = site.fs.rename(&call, &below(root, "deep/f"), &at("top/out/g"), any, &free()).await;
    refused(out, "renaming out");
    let within = site.fs.rename(&call, &At::name(top, name("out")), &below(root, "g"), any, &free()).await;
    refused(within, "renaming in");
    refused(site.fs.remove(&call, &at("top/in"), Expect::Directory, &free()).await, "removing it from above");
    assert_eq!(site.read(outer).await, &b"outer"[..]);
}

/// What it is confined to is an id: it follows that to other places, and not what has its name then. What
/// leaves the directory is out of reach for whoever has it open, too.
pub async fn a_confined_credential_follows_the_id_and_not_the_name(subject: &dyn Subject) {
    let site = Site::of(subject);
    for dir in ["in", "other"] {
        site.dir(dir).await;
    }
    let [file, one] = [site.file("f", b"bytes").await, site.file("in/one", b"one").await];
    let root = site.find("in").await.works();
    let to_file = site.call_of(&confined(subject, file, None, "f"), 2);
    let to_dir = site.call_of(&confined(subject, root, None, "in"), 3);
    let open = site.fs.file(&to_dir, one, Rights::READ).await.works();
    site.fs.rename(&site.call(), &at("f"), &at("other/g"), Replace::Any, &free()).await.works();
    site.file("f", b"another").await;
    assert_eq!(reading(&site, &to_file, &At::id(file)).await.works(), &b"bytes"[..]);
    refused(reading(&site, &to_file, &at("f")).await, "what has its name");
    site.fs.rename(&site.call(), &at("in"), &at("other/in"), Replace::Any, &free()).await.works();
    assert_eq!(reading(&site, &to_dir, &below(root, "one")).await.works(), &b"one"[..]);
    read_of(&*open, &to_dir, Range::ALL).await.works();
    site.fs.rename(&site.call(), &at("other/in/one"), &at("other/one"), Replace::Any, &free()).await.works();
    refused(read_of(&*open, &to_dir, Range::ALL).await, "it has left");
    refused(reading(&site, &to_dir, &At::id(one)).await, "it has left");
}

/// A credential for one version of a file ends with it.
pub async fn a_credential_for_one_version_ends_with_it(subject: &dyn Subject) {
    let site = Site::of(subject);
    let file = site.file("f", b"bytes").await;
    let opened = site.fs.open(&site.call(), &at("f"), &pinned()).await.works();
    opened.file.close(&site.call()).await.works();
    let call = site.call_of(&confined(subject, file, Some(opened.attr.version), "f"), 2);
    assert_eq!(reading(&site, &call, &At::id(file)).await.works(), &b"bytes"[..]);
    site.write(file, 0, b"other").await;
    refused(reading(&site, &call, &At::id(file)).await, "another version");
}

/// What has no name any more is out of reach of a credential that was confined to it, though somebody has
/// it open still.
pub async fn what_was_removed_is_out_of_a_confined_credentials_reach(subject: &dyn Subject) {
    let site = Site::of(subject);
    let file = site.file("f", b"bytes").await;
    let call = site.call_of(&confined(subject, file, None, "f"), 2);
    let opened = site.open("f", Rights::READ).await;
    site.fs.remove(&site.call(), &at("f"), Expect::NotDirectory, &free()).await.works();
    assert_eq!(read_of(&*opened.file, &site.call(), Range::ALL).await.works(), &b"bytes"[..]);
    let answer = reading(&site, &call, &At::id(file)).await.map(drop).map_err(|error| error.kind());
    let gone = matches!(answer, Err(ErrorKind::Denied | ErrorKind::NotFound | ErrorKind::Stale));
    assert!(gone, "{answer:?}");
}

fn scoped(subject: &dyn Subject, scopes: &[(&str, Rights)]) -> Caller {
    let mut claims = subject.domain().claims(super::ADMINISTRATOR);
    let scope =
        |(path, rights): &(&str, Rights)| Scope { path: RelPath::try_from(*path).works(), rights: *rights };
    claims.confines = Confines::Scopes(scopes.iter().map(scope).collect());
    subject.domain().caller_with(&claims)
}

async fn published(site: &Site<'_>, call: &weft_core::form::Call, path: &str) -> Result<()> {
    let stage = site.fs.stage(call, &at(path), &StageHint::default()).await?;
    stage.put(call, 1, 0, &mut BytesSource::new(&b"anew"[..])).await?;
    stage.publish(call, &[], &SetAttr::default(), &free()).await.map(drop)
}

/// A credential with scopes may do at each path what the scopes say that reach there, by path and by id, and never
/// what another path's scope says.
pub async fn a_credential_with_scopes_may_at_each_path_what_those_say(subject: &dyn Subject) {
    let site = Site::of(subject);
    for dir in ["top", "top/read", "top/read/both", "top/make", "top/reading", "out"] {
        site.dir(dir).await;
    }
    let mut ids = Vec::new();
    for (path, is_read) in [
        ("top/read/f", true),
        ("top/read/both/f", true),
        ("top/make/f", false),
        ("top/reading/f", false),
        ("top/f", false),
        ("out/f", false),
    ] {
        ids.push((path, site.file(path, b"held").await, is_read));
    }
    let look = Rights::TRAVERSE | Rights::ATTR_READ;
    let scopes = [
        ("top/read", look | Rights::READ | Rights::LIST),
        ("top/read/both", look | Rights::INSERT),
        ("top/make", look | Rights::INSERT),
    ];
    let call = site.call_of(&scoped(subject, &scopes), 2);
    for (path, id, is_read) in &ids {
        for at in [at(path), At::id(*id)] {
            match is_read {
                true => assert_eq!(reading(&site, &call, &at).await.works(), &b"held"[..], "{at}"),
                false => refused(reading(&site, &call, &at).await, &format!("reading {at}")),
            }
        }
        // Making is not replacing, and what may be read may not be changed.
        refused(published(&site, &call, path).await, &format!("replacing {path}"));
        refused(site.fs.remove(&call, &at(path), Expect::Any, &free()).await, &format!("removing {path}"));
        let opened = site.fs.open(&call, &at(path), &how(Rights::WRITE)).await;
        refused(opened.map(drop), &format!("writing {path}"));
        let to = at("top/make/moved");
        refused(
            site.fs.rename(&call, &at(path), &to, Replace::Any, &free()).await.map(drop),
            &format!("moving {path}"),
        );
    }
    for (path, is_made) in [
        ("top/make/new", true),
        ("top/read/both/new", true),
        ("top/read/new", false),
        ("top/new", false),
        ("top/reading/new", false),
        ("out/new", false),
        ("new", false),
    ] {
        match is_made {
            true => published(&site, &call, path).await.works(),
            false => refused(published(&site, &call, path).await, &format!("making {path}")),
        }
    }
    for (path, is_listed) in [
        ("top/read", true),
        ("top/read/both", true),
        ("top/make", false),
        ("top", false),
        ("", false),
        ("out", false),
    ] {
        let listed = site.fs.list(&call, &at(path), Cursor::Start, PageMax::MAX, Want::default()).await;
        match is_listed {
            true => drop(listed.works()),
            false => refused(listed.map(drop), &format!("listing {path}")),
        }
    }
    let none = site.call_of(&scoped(subject, &[]), 3);
    refused(reading(&site, &none, &at("top/read/f")).await, "no scope, no right");
}

/// What a credential with scopes may do at one place it cannot do with what is at another by giving that a name there,
/// or moving it, or a directory that it is in: scopes do not add up.
pub async fn scopes_do_not_add_up_by_another_name(subject: &dyn Subject) {
    let site = Site::of(subject);
    for dir in ["w", "w/d", "ro", "both"] {
        site.dir(dir).await;
    }
    let [file, below] = [site.file("w/f", b"held").await, site.file("w/d/f", b"held").await];
    site.file("ro/f", b"shown").await;
    let look = Rights::TRAVERSE | Rights::ATTR_READ;
    let change = look | Rights::ATTR_WRITE | Rights::INSERT | Rights::REMOVE | Rights::RENAME | Rights::WRITE;
    let read = look | Rights::READ | Rights::LIST;
    let taking = read | Rights::INSERT | Rights::REMOVE | Rights::RENAME | Rights::ATTR_WRITE;
    let call = site.call_of(&scoped(subject, &[("w", change), ("ro", taking), ("both", read | change)]), 2);
    if site.supports().links {
        let linked = site.fs.link(&call, &at("w/f"), &at("ro/g")).await;
        assert_eq!(linked.map(drop).map_err(|e| e.kind()), Err(ErrorKind::Denied), "another name");
        site.fs.link(&call, &at("w/f"), &at("w/g")).await.works();
    }
    for (from, to, how) in [
        ("w/f", "ro/new", Replace::Any),
        ("w/f", "ro/f", Replace::Any),
        ("w/d", "ro/d", Replace::Any),
        ("ro/f", "w/f", Replace::Exchange),
    ] {
        let moved = site.fs.rename(&call, &at(from), &at(to), how, &free()).await;
        assert_eq!(moved.map(drop).map_err(|e| e.kind()), Err(ErrorKind::Denied), "{from} to {to}");
    }
    for id in [file, below] {
        refused(reading(&site, &call, &At::id(id)).await, "it stayed where it was");
    }
    // Where nothing is gained, nothing is refused.
    site.fs.rename(&call, &at("w/d"), &at("w/e"), Replace::Any, &free()).await.works();
    site.fs.rename(&call, &at("w/f"), &at("w/h"), Replace::Any, &free()).await.works();
}
