//! The node's directory: whose it is, who else can look into it, how full its disk is.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use weft_core::limits;
use weft_sys::{Disk, RealDisk};

use super::Trouble;
use crate::node::Format;
use crate::show;

/// What only the node may look into.
const CLOSED: [&str; 5] = ["meta", "auth", "auth/keys", "objects", "tls"];
/// Files looked at in one directory of keys.
const KEYS_MAX: usize = 1000;
/// How full a disk may be before it is worth a word: a twentieth is free.
const FREE_SHARE: u64 = 20;

pub fn check(dir: &Path) -> Vec<Trouble> {
    let metadata = match std::fs::metadata(dir) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let why = "there is no node yet, or it is somewhere else";
            let what = format!("{} is not there", dir.display());
            return vec![Trouble::wrong(what, why, "weft up, or say where it is: --node DIR, WEFT_NODE")];
        }
        Err(error) => return vec![unreadable(dir, &error)],
    };
    if !metadata.is_dir() {
        let what = format!("{} is no directory", dir.display());
        return vec![Trouble::wrong(what, "a node keeps everything in one", "name another: --node DIR")];
    }
    let mut found = owner(dir, &metadata);
    for name in CLOSED {
        found.extend(closed(&dir.join(name), metadata.uid()));
    }
    found.extend(keys(&dir.join("auth/keys"), metadata.uid()));
    found.extend(metadata_there(dir));
    found.extend(format(dir));
    found.extend(space(dir));
    found.extend(clock(dir, SystemTime::now()));
    found
}

fn unreadable(path: &Path, error: &std::io::Error) -> Trouble {
    let what = format!("{} cannot be looked at: {error}", path.display());
    Trouble::doubtful(what, "what is wrong there is not found", "run this as the node's user, or as root")
}

fn owner(dir: &Path, metadata: &Metadata) -> Vec<Trouble> {
    let mut found = Vec::new();
    if metadata.mode() & 0o066 != 0 {
        let what =
            format!("others can list or change {} (mode {:o})", dir.display(), metadata.mode() & 0o7777);
        let why = "they could put files in the node's place";
        found.push(Trouble::wrong(what, why, format!("chmod 711 {}", shown(dir))));
    }
    if metadata.uid() == 0 {
        let why = "a node needs no rights of root, and one that is taken over would have them";
        let mend = format!("make a user for it: useradd -r weft; chown -R weft: {}", shown(dir));
        found.push(Trouble::doubtful(format!("{} belongs to root", dir.display()), why, mend));
    }
    found
}

/// A part of the node that is open to others, or is somebody else's.
fn closed(path: &Path, owner: u32) -> Vec<Trouble> {
    let metadata = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => return vec![unreadable(path, &error)],
    };
    let mut found = Vec::new();
    if metadata.mode() & 0o077 != 0 && !metadata.is_symlink() {
        let what = format!("{} is open to others (mode {:o})", path.display(), metadata.mode() & 0o7777);
        let why = "files and keys can be read past every policy";
        found.push(Trouble::wrong(what, why, format!("chmod go= {}", shown(path))));
    }
    if metadata.uid() != owner {
        let what =
            format!("{} belongs to uid {}, the node's directory to {owner}", path.display(), metadata.uid());
        let mend = format!("chown -R {owner} {}", shown(path));
        found.push(Trouble::wrong(what, "the node cannot use what is another's", mend));
    }
    found
}

fn keys(dir: &Path, owner: u32) -> Vec<Trouble> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten().take(KEYS_MAX);
    entries.flat_map(|entry| closed(&entry.path(), owner)).collect()
}

/// Keys without metadata: a start would be refused.
fn metadata_there(dir: &Path) -> Option<Trouble> {
    let has = |name: &str| dir.join(name).exists();
    (has("auth/keys") && !has("meta/tree")).then(|| {
        let what = format!("{} has keys of a node and no metadata", dir.display());
        let mend = "put `meta` back; else weft restore BACKUP OTHERDIR";
        Trouble::wrong(what, "without it nobody knows which file is where", mend)
    })
}

/// What a newer program wrote, or what does not say.
fn format(dir: &Path) -> Option<Trouble> {
    let read = RealDisk::open(dir).and_then(|disk| Format::read(&disk));
    let error = read.and_then(|format| format.check("use the node's directory", dir)).err()?;
    let why = "this program would not start it, nor check it";
    let mend = error.advice().unwrap_or("look at the file `format` there").to_owned();
    Some(Trouble::wrong(error.detail().to_owned(), why, mend))
}

fn space(dir: &Path) -> Option<Trouble> {
    let space = match RealDisk::open(dir).and_then(|disk| disk.space()) {
        Ok(space) => space,
        Err(error) => {
            let what = format!("it cannot be told how full the disk of {} is: {error}", dir.display());
            return Some(Trouble::doubtful(
                what,
                "a full disk refuses uploads",
                format!("df {}", shown(dir)),
            ));
        }
    };
    let mend = format!("remove what is not needed: du -x {}; or give the disk more room", shown(dir));
    let what = format!("{} of {} are free", show::size(space.free), show::size(space.total));
    if space.free < limits::READY_BYTES_FREE {
        let why = "uploads and changes are refused, and the node says that it is not ready";
        return Some(Trouble::wrong(format!("the disk is full: {what}"), why, mend));
    }
    (space.free < space.total / FREE_SHARE).then(|| {
        Trouble::doubtful(format!("the disk is nearly full: {what}"), "a full one refuses uploads", mend)
    })
}

/// A clock that is behind what was written here, or behind this program.
fn clock(dir: &Path, now: SystemTime) -> Option<Trouble> {
    const MEND: &str = "timedatectl set-ntp true, or set the clock: date -s";
    const WHY: &str =
        "credentials, links and certificates end by the clock, and audit records are dated by it";
    // When this was written; no node ran before.
    let written = SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000);
    if now < written {
        return Some(Trouble::wrong("the clock shows a time before this program was made", WHY, MEND));
    }
    let latest = ["meta", "auth", "lock.holder", "node.sock"]
        .into_iter()
        .filter_map(|name| std::fs::symlink_metadata(dir.join(name)).ok()?.modified().ok());
    let ahead = latest.max()?.duration_since(now).ok()?;
    (ahead > limits::CLOCK_SKEW_MAX).then(|| {
        let what = format!("the clock was set back: something here was written {} s later", ahead.as_secs());
        Trouble::wrong(what, WHY, MEND)
    })
}

fn shown(path: &Path) -> String {
    show::argument(path.as_os_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_behind_what_was_written_is_found_and_a_little_is_not() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("meta")).expect("made");
        let now = SystemTime::now();
        assert_eq!(clock(dir.path(), now), None);
        assert_eq!(clock(dir.path(), now - Duration::from_secs(30)), None);
        let found = clock(dir.path(), now - Duration::from_secs(3600)).expect("an hour is much");
        assert!(found.what.contains("set back"), "{found:?}");
        let found = clock(dir.path(), SystemTime::UNIX_EPOCH).expect("1970 is not now");
        assert!(found.what.contains("before this program"), "{found:?}");
    }
}
