//! Credentials on a client: where they are looked for, and how they are kept.
//!
//! The order is the community's: `BEARER_TOKEN`, the file `BEARER_TOKEN_FILE` names,
//! `$XDG_RUNTIME_DIR/bt_u$UID`, `/tmp/bt_u$UID`, then Weft's own file for the domain.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use weft_core::proof::Signed;
use weft_core::{DomainId, Error, ErrorKind, Result, limits};

/// Returns the credential to use with a domain, if there is one.
///
/// Fails with `NotPermitted` if the first file found could have been read or replaced by
/// others, `Unauthenticated` if what it holds is no credential of ours.
pub fn discover(domain: DomainId) -> Result<Option<Signed>> {
    if let Some(token) = variable("BEARER_TOKEN") {
        return parse(&token, "BEARER_TOKEN").map(Some);
    }
    let uid = rustix::process::geteuid().as_raw();
    if let Some(path) = variable("BEARER_TOKEN_FILE") {
        let path = Path::new(&path);
        let found = read(path)?.ok_or_else(|| {
            Error::not_found("there is no such file").op("read the token in").about(path.display())
        })?;
        return parse(&found, path.display()).map(Some);
    }
    let runtime = variable("XDG_RUNTIME_DIR").map(|dir| Path::new(&dir).join(format!("bt_u{uid}")));
    let shared = PathBuf::from(format!("/tmp/bt_u{uid}"));
    for path in runtime.into_iter().chain([shared]).chain(own_file(domain)) {
        let Some(found) = read(&path)? else { continue };
        match parse(&found, path.display()) {
            // A token of another system under the community's name is not for us.
            Err(_) if own_file(domain).as_ref() != Some(&path) => continue,
            outcome => return outcome.map(Some),
        }
    }
    Ok(None)
}

/// Keeps a credential in Weft's own file for its domain, readable by nobody else.
/// Returns the file.
pub fn keep(domain: DomainId, credential: &Signed) -> Result<PathBuf> {
    let path = own_file(domain).ok_or_else(homeless)?;
    let dir = path.parent().ok_or_else(homeless)?;
    let failed = |e: std::io::Error| {
        Error::new(ErrorKind::Unavailable, "the file cannot be written")
            .op("keep the credential in")
            .about(path.display())
            .caused_by(e)
    };
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
    let fresh = path.with_extension("new");
    let _ = std::fs::remove_file(&fresh);
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh).map_err(failed)?;
    file.write_all(credential.to_token().as_bytes()).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    std::fs::rename(&fresh, &path).map_err(failed)?;
    Ok(path)
}

/// Removes Weft's own file for a domain. Returns whether there was one.
pub fn forget(domain: DomainId) -> Result<bool> {
    let path = own_file(domain).ok_or_else(homeless)?;
    match std::fs::remove_file(&path) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(Error::new(ErrorKind::Unavailable, "the file cannot be removed")
            .about(path.display())
            .caused_by(e)),
    }
}

fn homeless() -> Error {
    Error::new(ErrorKind::Unavailable, "neither XDG_CONFIG_HOME nor HOME says where credentials are kept")
}

fn own_file(domain: DomainId) -> Option<PathBuf> {
    let config = variable("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| variable("HOME").map(|home| Path::new(&home).join(".config")))?;
    Some(config.join("weft").join("credentials").join(domain.to_string()))
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn parse(text: &str, whence: impl std::fmt::Display) -> Result<Signed> {
    Signed::from_token(text.trim()).map_err(|e| e.op("use the token in").about(whence).hint("weft login"))
}

/// Reads a credential file: regular, ours, and closed to everybody else.
fn read(path: &Path) -> Result<Option<String>> {
    let refuse = |detail: &'static str| {
        Err(Error::not_permitted(detail)
            .op("use the token in")
            .about(path.display())
            .hint("chmod 600 it, or remove it"))
    };
    // Checked through the open file, so that nobody can swap it in between.
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32 | rustix::fs::OFlags::NONBLOCK.bits() as i32)
        .open(path);
    let file: File = match opened {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) if e.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            return refuse("it is a symbolic link");
        }
        Err(e) => {
            return Err(Error::new(ErrorKind::Unavailable, "the file cannot be opened")
                .op("use the token in")
                .about(path.display())
                .caused_by(e));
        }
    };
    let failed = |e| {
        Error::new(ErrorKind::Unavailable, "the file cannot be read")
            .op("use the token in")
            .about(path.display())
            .caused_by(e)
    };
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return refuse("it is not a regular file");
    }
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return refuse("it belongs to somebody else");
    }
    if metadata.mode() & 0o077 != 0 {
        return refuse("others can read or replace it");
    }
    let mut text = String::new();
    file.take(2 * limits::PROOF_BYTES_MAX as u64).read_to_string(&mut text).map_err(failed)?;
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn file(dir: &Path, mode: u32) -> PathBuf {
        let path = dir.join("token");
        std::fs::write(&path, "weft1.x").expect("a temporary directory can be written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
        path
    }

    #[test]
    fn a_file_that_others_can_read_or_replace_is_refused() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        for mode in [0o644, 0o640, 0o620, 0o602, 0o601] {
            let refused = read(&file(dir.path(), mode)).expect_err("it must be refused");
            assert_eq!(refused.kind(), ErrorKind::NotPermitted, "{mode:o}");
        }
        assert!(read(&file(dir.path(), 0o600)).expect("it is closed").is_some());
    }

    #[test]
    fn a_link_a_directory_and_a_pipe_are_refused_and_nothing_is_nothing() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(file(dir.path(), 0o600), &link).expect("a link can be made");
        let pipe = dir.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .expect("a pipe can be made");
        for path in [link.as_path(), dir.path(), &pipe] {
            assert_eq!(
                read(path).expect_err("it must be refused").kind(),
                ErrorKind::NotPermitted,
                "{}",
                path.display()
            );
        }
        assert!(read(&dir.path().join("absent")).expect("absence is no error").is_none());
    }
}
