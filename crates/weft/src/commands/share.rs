//! `weft share` and `weft unshare`

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;
use weft_core::form::{Door, Origin};
use weft_core::service::{Node, Share};
use weft_core::{CallerName, Clock, Error, ErrorKind, OneLine, RelPath, Result};
use weft_sys::fault;

use crate::context::Context;
use crate::output::{note, out};
use crate::paths::TreePath;
use crate::show;

/// Options of `weft share`.
#[derive(Args)]
pub struct ShareArgs {
    /// A directory of the node's machine [default: list what is shared]
    #[arg(value_name = "DIR", requires = "path")]
    directory: Option<PathBuf>,
    /// The name it is to have in the tree
    path: Option<OsString>,
}

/// Options of `weft unshare`.
#[derive(Args)]
pub struct UnshareArgs {
    /// Where it is shared
    path: OsString,
}

pub fn share(context: &Context, args: &ShareArgs) -> Result<()> {
    let (Some(directory), Some(path)) = (&args.directory, &args.path) else { return list(context) };
    context.wait(async {
        let at = named(path).map_err(|e| e.op("share at"))?;
        let directory = absolute(directory)?;
        let client = context.client().await?;
        // From which user's program it is asked, the node is told by the machine.
        let here = Origin { door: Door::Native, peer: None, uid: None };
        let asked = context.sys().now();
        let shared = client.remote().share(client.caller(), here, &directory, &at).await;
        let shared = shared.map_err(|e| e.op("share").said_of(&directory))?;
        if context.json() {
            return out!("{}", json(&shared));
        }
        out!(
            "{} is shared at {}: its files are served where they are",
            OneLine(&shared.directory),
            shared.at
        )?;
        let path = show::argument(shared.at.as_ref());
        if shared.made < asked {
            note!("who was granted something there before the node was restored has it again");
            note!("hint: weft acl show {path}");
            return Ok(());
        }
        match shared.limited_to {
            None => note!("only administrators may use it yet"),
            Some(uid) => {
                note!("only you may use it yet, and nobody may do more there than user {uid} of the machine")
            }
        }
        note!("hint: weft acl grant {path} WHO read");
        Ok(())
    })
}

pub fn unshare(context: &Context, args: &UnshareArgs) -> Result<()> {
    context.wait(async {
        let at = named(&args.path).map_err(|e| e.op("unshare"))?;
        let client = context.client().await?;
        let was = client.remote().unshare(client.caller(), &at).await;
        let was = was.map_err(|e| e.op("unshare").said_of(format!("/{at}")))?;
        if context.json() {
            return out!("{}", json(&was));
        }
        let directory = known(&was.directory).unwrap_or(&was.at);
        out!("{} is not shared any more; nothing in it was touched", OneLine(directory))
    })
}

fn list(context: &Context) -> Result<()> {
    context.wait(async {
        let client = context.client().await?;
        for share in client.remote().shares(client.caller()).await.map_err(|e| e.op("list shares"))? {
            if context.json() {
                out!("{}", json(&share))?;
            } else {
                let (at, directory) =
                    (known(&share.at).unwrap_or("-"), known(&share.directory).unwrap_or("-"));
                let by = share.by.as_ref().map(CallerName::local).unwrap_or("-");
                out!("{at:24} {:32} {by:12} {}", OneLine(directory).to_string(), state(&share))?;
            }
        }
        Ok(())
    })
}

/// Reads the place of a share in the tree. The root is none: it is there already, and stays.
fn named(text: &OsString) -> Result<RelPath> {
    let path = TreePath::read(text)?;
    path.name()?;
    Ok(path.path)
}

/// Returns a directory as the node is to know it: from the root of the machine, whatever symbolic
/// links lead to it now. The node is on the same machine, elsewhere than here.
fn absolute(directory: &Path) -> Result<String> {
    let failed = |e| fault::error(e, "share", directory.display());
    let refused = |kind, detail| Err(Error::new(kind, detail).op("share").about(directory.display()));
    let found = directory.canonicalize().map_err(failed)?;
    if !found.metadata().map_err(failed)?.is_dir() {
        return refused(ErrorKind::NotDirectory, "only a directory can be shared");
    }
    match found.into_os_string().into_string() {
        Ok(found) => Ok(found),
        Err(_) => refused(ErrorKind::Invalid, "its path is not UTF-8, which cannot be shared yet"),
    }
}

/// What is shown of a share beside its places.
fn state(share: &Share) -> String {
    let lost = share.at.is_empty().then(|| "its place in the tree has gone".to_owned());
    let away = share.away.as_ref().map(|away| format!("away: {}", OneLine(away)));
    let served = || match share.limited_to {
        Some(uid) => format!("served as uid {uid}"),
        None => "served".to_owned(),
    };
    away.or(lost).unwrap_or_else(served)
}

/// What is empty was not told.
fn known(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

fn json(share: &Share) -> serde_json::Value {
    serde_json::json!({
        "path": known(&share.at),
        "directory": known(&share.directory),
        "volume": share.volume.0,
        "made": share.made.seconds(),
        "by": share.by.as_ref().map(ToString::to_string),
        "away": share.away,
        "limited_to": share.limited_to,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use weft_core::{Time, VolumeId};

    use super::*;

    #[test]
    fn a_share_says_whether_it_is_served_and_if_not_why() {
        let served = Share {
            volume: VolumeId(3),
            at: "/data".into(),
            directory: "/srv/data".into(),
            made: Time::from_unix(7, 0),
            by: None,
            away: None,
            limited_to: None,
        };
        let owned = Share { limited_to: Some(1001), ..served.clone() };
        let away = Share { away: Some("it is not\nthere".into()), ..served.clone() };
        let lost = Share { at: String::new(), directory: String::new(), ..served.clone() };
        let states = [&served, &owned, &away, &lost].map(state);
        let said =
            ["served", "served as uid 1001", "away: it is not\\x0athere", "its place in the tree has gone"];
        assert_eq!(states, said);
        let shown = json(&served);
        assert_eq!(
            (&shown["path"], &shown["volume"], &shown["made"]),
            (&"/data".into(), &3.into(), &7.into())
        );
        let shown = json(&lost);
        assert!(shown["path"].is_null() && shown["directory"].is_null() && shown["by"].is_null(), "{shown}");
    }

    #[test]
    fn the_node_is_given_a_directory_that_is_there_from_the_root_on_and_in_utf_8() {
        let place = tempfile::tempdir().expect("a directory of its own");
        let path = |name: &[u8]| place.path().join(std::ffi::OsStr::from_bytes(name));
        let made = path(b"made");
        std::fs::create_dir(&made).expect("made");
        std::fs::create_dir(path(b"odd\xff")).expect("made");
        std::fs::write(path(b"file"), "").expect("written");
        std::os::unix::fs::symlink("made", path(b"link")).expect("linked");
        let given = absolute(&path(b"link/../link")).expect("it is there");
        assert_eq!(Path::new(&given), made.canonicalize().expect("it is there"));
        let kind = |name: &[u8]| absolute(&path(name)).expect_err("it cannot be shared").kind();
        let kinds = [&b"none"[..], b"file", b"odd\xff"].map(kind);
        assert_eq!(kinds, [ErrorKind::NotFound, ErrorKind::NotDirectory, ErrorKind::Invalid]);
    }
}
