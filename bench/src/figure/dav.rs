//! `dav.propfind`: what is known of everything in a directory, asked for by WebDAV.

use std::fs::File;

use super::Size;
use crate::Result;
use crate::count::{count, family};
use crate::load::http;
use crate::node::{Node, make_directory, share};
use crate::peer::apache;
use crate::place::{Place, noise};
use crate::report::{Better, Report};
use crate::rounds::alternate;

/// What a program that copies asks for; without a body everything is asked for.
const NAMED: &str = "<?xml version=\"1.0\"?><d:propfind xmlns:d=\"DAV:\"><d:prop><d:getlastmodified/><d:getcontentlength/>\
    <d:resourcetype/><d:getetag/></d:prop></d:propfind>";

/// `dav.propfind`: `Depth: 1` of files that Weft manages and of a directory that it serves in place, beside Apache
/// over that directory. Ours knows its caller by a credential, looks at the rights of each file and writes the audit.
pub fn propfind(report: &mut Report, size: Size) -> Result<()> {
    let entries: usize = size.pick(100, 10_000, 10_000);
    let place = Place::new()?;
    let folder = place.folder("shared")?;
    for n in 0..entries {
        File::create(folder.join(format!("entry-{n:05}")))?;
    }
    let node = Node::start(place.path())?;
    let line = format!("{}\r\n", node.header());
    make_directory(node.folder(), "/bench/managed")?;
    http::put_many(node.port(), &line, "/bench/managed/entry-", &noise(64), entries, 4)?;
    share(node.folder(), &folder, "/bench/shared")?;
    let Some(server) = report.peer("dav.propfind", apache::start(place.path(), &folder))? else {
        return Ok(());
    };
    for (kind, body) in [("all", ""), ("named", NAMED)] {
        let theirs = || http::propfind_rate(server.port, "", "/", body, entries);
        for where_at in ["managed", "shared"] {
            let path = format!("/bench/{where_at}/");
            let ours = || http::propfind_rate(node.port(), &line, &path, body, entries);
            let sides = alternate(size.rounds(), ours, theirs)?;
            report.compare(
                &format!("dav.propfind.{kind}.{where_at}"),
                "entries/s",
                Better::More,
                "apache",
                &sides,
            );
        }
    }
    let counted =
        |port, headers: &str, path: &str| http::propfind_rate(port, headers, path, "", entries).map(drop);
    let ours =
        count(&[node.pid()], place.path(), entries as u64, || counted(node.port(), &line, "/bench/managed/"));
    report.counts("dav.propfind", "weft", ours)?;
    let theirs = count(&family(server.pid()), place.path(), entries as u64, || counted(server.port, "", "/"));
    report.counts("dav.propfind", "apache", theirs)
}
