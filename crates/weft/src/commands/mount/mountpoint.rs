//! What lies where something is to be mounted, or is.

use std::ffi::OsString;
use std::io::ErrorKind as Io;
use std::path::{Component, Path, PathBuf};

use weft_core::{Error, ErrorKind, Result, limits};
use weft_sys::fault;
use weft_sys::mounts::{self, Mounted};

/// The type of our mounts in the machine's table.
const TYPE: &str = "fuse.weft";

/// Fails unless a path is a directory that hides nothing when something is mounted there.
pub fn check(dir: &Path) -> Result<()> {
    let refused = |kind, detail: String| Error::new(kind, detail).op("mount at").about(dir.display());
    let failed = |e| fault::error(e, "mount at", dir.display());
    let entries = match std::fs::read_dir(dir) {
        Err(e) if e.kind() == Io::NotADirectory => {
            return Err(refused(ErrorKind::NotDirectory, "it is not a directory".to_owned()));
        }
        Err(_) if is_mounted(dir)? => {
            let hint = format!("weft umount --lazy {}", dir.display());
            return Err(refused(ErrorKind::Exists, "a dead mount is there".to_owned()).hint(hint));
        }
        entries => entries.map_err(failed)?,
    };
    if is_mounted(dir)? {
        return Err(refused(ErrorKind::Exists, "something of weft is mounted there already".to_owned()));
    }
    if let Some(entry) = entries.into_iter().next() {
        let name = entry.map_err(failed)?.file_name();
        let detail = format!("it is not empty: it holds {name:?}");
        return Err(refused(ErrorKind::NotEmpty, detail).hint("choose an empty directory"));
    }
    Ok(())
}

/// Returns whether something of ours is mounted at a path, be it dead.
pub fn is_mounted(dir: &Path) -> Result<bool> {
    let place = resolved(dir)?;
    Ok(mounts::all()?.iter().any(|(at, kind)| is_ours(kind) && *at == place))
}

/// Returns the mount of ours that a path lies in, be it dead. Goes step by step, and looks at nothing in
/// the first one of ours on the way, which it would wait for: from there on it goes by the words alone.
pub fn around(path: &Path) -> Result<Option<PathBuf>> {
    let failed = |e| fault::error(e, "look at", path.display());
    let mounts = mounts::all()?;
    let mut ahead = parts(&std::path::absolute(path).map_err(failed)?);
    let (mut here, mut links) = (PathBuf::from("/"), 0);
    loop {
        if innermost(&mounts, &here).is_some() {
            for part in ahead.into_iter().rev() {
                match part {
                    Part::Up => drop(here.pop()),
                    Part::Name(name) => here.push(name),
                }
            }
            return Ok(innermost(&mounts, &here));
        }
        let Some(part) = ahead.pop() else { return Ok(None) };
        match part {
            Part::Up => drop(here.pop()),
            Part::Name(name) => match std::fs::read_link(here.join(&name)) {
                Ok(target) if links < limits::LINK_STEPS_MAX => {
                    links += 1;
                    if target.is_absolute() {
                        here = PathBuf::from("/");
                    }
                    ahead.extend(parts(&target));
                }
                // No link, or nothing at all; a mount of ours may be there all the same, dead.
                _ => here.push(name),
            },
        }
    }
}

/// One step of a path.
enum Part {
    Up,
    Name(OsString),
}

/// Returns the steps of a path, the first one last.
fn parts(path: &Path) -> Vec<Part> {
    let step = |part| match part {
        Component::ParentDir => Some(Part::Up),
        Component::Normal(name) => Some(Part::Name(name.to_owned())),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(step).collect()
}

/// Returns the mount that a path without links lies in, if it is of ours. What was mounted later covers
/// what was mounted before at or below the same place.
fn innermost(mounts: &[Mounted], path: &Path) -> Option<PathBuf> {
    let (at, kind) = mounts.iter().rfind(|(at, _)| path.starts_with(at))?;
    is_ours(kind).then(|| at.clone())
}

fn is_ours(kind: &[u8]) -> bool {
    kind == TYPE.as_bytes()
}

/// Returns a path without links. The last name may be of a mount that is dead, where nothing
/// can be looked at.
fn resolved(dir: &Path) -> Result<PathBuf> {
    let failed = |e| fault::error(e, "look at", dir.display());
    if let Ok(place) = dir.canonicalize() {
        return Ok(place);
    }
    let whole = std::path::absolute(dir).map_err(failed)?;
    match (whole.parent().and_then(|parent| parent.canonicalize().ok()), whole.file_name()) {
        (Some(parent), Some(name)) => Ok(parent.join(name)),
        _ => Ok(whole),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_that_a_path_lies_in_is_the_last_that_covers_it() {
        let mounts =
            [("/", false), ("/m", true), ("/m/below", false), ("/a/m", true), ("/a", false), ("/b", true)];
        let kind = |ours| if ours { TYPE } else { "ext4" };
        let mounts = mounts.map(|(at, ours)| (PathBuf::from(at), kind(ours).as_bytes().to_vec()));
        let found = |path: &str| innermost(&mounts, Path::new(path)).map(|at| at.display().to_string());
        assert_eq!(found("/m").as_deref(), Some("/m"));
        assert_eq!(found("/b/c/d").as_deref(), Some("/b"));
        for none in ["/", "/mm", "/m/below/f", "/a/m/f"] {
            assert_eq!(found(none), None, "{none}");
        }
    }
}
