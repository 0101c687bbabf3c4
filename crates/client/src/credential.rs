//! Credentials on a client: where they are looked for, and how they are kept.
//!
//! The order is the community's: `BEARER_TOKEN`, the file `BEARER_TOKEN_FILE` names,
//! `$XDG_RUNTIME_DIR/bt_u$UID`, `/tmp/bt_u$UID`, then Weft's own file for the domain.

use std::ffi::OsString;
use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use weft_core::proof::Signed;
use weft_core::service::{Secret, TOKEN_PREFIX};
use weft_core::{DomainId, Error, ErrorKind, Result, limits};
use weft_sys::process;

/// What was found to prove who one is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A credential.
    Credential(Signed),
    /// A token, which the node gives a credential for.
    Token(Secret),
}

/// Returns what to show to a domain, if there is something.
///
/// Fails with `NotPermitted` if the first file found is the user's and could have been read or replaced by
/// others, `Unauthenticated` if what it holds is no credential and no token of ours.
pub fn discover(domain: DomainId) -> Result<Option<Found>> {
    if let Some(token) = variable("BEARER_TOKEN") {
        // What is no text is no token; passing it over would make one somebody else.
        let token = token.to_string_lossy();
        return of_issuer(&token).map_or_else(|| parse(&token, "BEARER_TOKEN"), Ok).map(Some);
    }
    let uid = process::uid();
    if let Some(path) = variable("BEARER_TOKEN_FILE") {
        let path = Path::new(&path);
        let found = read(path)?.ok_or_else(|| {
            Error::not_found("there is no such file").op("read the token in").about(path.display())
        })?;
        return of_issuer(&found).map_or_else(|| parse(&found, path.display()), Ok).map(Some);
    }
    let runtime = variable("XDG_RUNTIME_DIR").map(|dir| Path::new(&dir).join(format!("bt_u{uid}")));
    let shared = PathBuf::from(format!("/tmp/bt_u{uid}"));
    for path in runtime.into_iter().chain([shared]) {
        if let Some(found) = under_the_communitys_name(&path)? {
            return Ok(Some(found));
        }
    }
    let own = own_file(domain).map(|path| read(&path).map(|text| (path, text))).transpose()?;
    match own {
        Some((path, Some(text))) => parse(&text, path.display()).map(Some),
        _ => Ok(None),
    }
}

/// Returns what is for us in a file that every system of the community looks at: a token of another one is not,
/// nor is what somebody else put there, who could otherwise keep a user from all commands.
fn under_the_communitys_name(path: &Path) -> Result<Option<Found>> {
    if std::fs::symlink_metadata(path).is_ok_and(|file| file.uid() != process::uid()) {
        return Ok(None);
    }
    match read(path) {
        Ok(text) => Ok(text.and_then(|text| parse(&text, path.display()).ok())),
        // Not text.
        Err(error) if error.kind() == ErrorKind::Invalid => Ok(None),
        Err(error) => Err(error),
    }
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

/// Returns a variable that is set to something: paths need not be text.
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

fn read(path: &Path) -> Result<Option<String>> {
    process::read_private(path, 2 * limits::PROOF_BYTES_MAX as u64)
}

/// Returns a token of an issuer, which the node gives a credential for if it takes that issuer's. Only where somebody
/// says to show it: what lies about under the community's name may be meant for others.
fn of_issuer(text: &str) -> Option<Found> {
    let text = text.trim();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_meant = text.starts_with("ey") && text.bytes().filter(|byte| *byte == b'.').count() == 2;
    let is_token = is_meant && text.len() <= limits::ISSUED_BYTES_MAX && text.bytes().all(is_plain);
    is_token.then(|| Found::Token(Secret::new(text)))
}

fn parse(text: &str, whence: impl std::fmt::Display) -> Result<Found> {
    let text = text.trim();
    let is_plain = |rest: &str| rest.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if text.len() <= limits::PASSWORD_BYTES_MAX && text.strip_prefix(TOKEN_PREFIX).is_some_and(is_plain) {
        return Ok(Found::Token(Secret::new(text)));
    }
    let signed = Signed::from_token(text);
    signed.map(Found::Credential).map_err(|e| e.op("use the token in").about(whence).hint("weft login"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_token_of_an_issuer_is_told_from_ours_by_how_it_is_written() {
        let long = format!("ey{}.b.c", "a".repeat(limits::ISSUED_BYTES_MAX));
        for (text, is_one) in [
            ("eyJh.eyJp.c2ln", true),
            (" eyJh.eyJp.c-_n\n", true),
            ("weft1.abc", false),
            ("weft_abcdefghij234567", false),
            ("eyJh.eyJp", false),
            ("eyJh.eyJp.c2ln.x", false),
            ("eyJh.ey p.c2ln", false),
            ("xyJh.eyJp.c2ln", false),
            (long.as_str(), false),
        ] {
            let found = of_issuer(text);
            assert_eq!(found.is_some(), is_one, "{text}");
            assert!(found.is_none_or(|found| found == Found::Token(Secret::new(text.trim()))));
        }
    }

    use std::os::unix::fs::PermissionsExt;

    use weft_conformance::file_system::site::Dice;
    use weft_conformance::fuzz::fuzz;
    use weft_core::KeyId;

    use super::*;

    #[test]
    fn a_mutated_credential_file_is_refused_or_the_credential_that_was_kept() {
        let place = tempfile::tempdir().expect("a directory of its own");
        let path = place.path().join("kept");
        let make = |dice: &mut Dice| {
            let claims = vec![dice.roll(256) as u8; dice.roll(400) as usize];
            let signed =
                Signed::assemble(claims, KeyId(dice.roll(1 << 60).into()), [dice.roll(256) as u8; 64]);
            let (before, after) = (*dice.pick(&["", " ", "\n"]), *dice.pick(&["", "\n", "\r\n"]));
            let token = if dice.roll(3) == 0 { "weft_abcdefghij234567".into() } else { signed.to_token() };
            format!("{before}{token}{after}").into_bytes()
        };
        fuzz("credential file", make, |bytes| {
            std::fs::write(&path, bytes).expect("it is ours");
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("it is ours");
            match read(&path) {
                Ok(Some(text)) => {
                    assert_eq!(text.as_bytes(), bytes);
                    match parse(&text, "a test") {
                        Ok(Found::Credential(signed)) => {
                            let again = parse(&signed.to_token(), "a test").expect("just made");
                            assert_eq!(again, Found::Credential(signed));
                        }
                        Ok(Found::Token(token)) => assert_eq!(token.expose(), text.trim()),
                        Err(error) => assert_eq!(error.kind(), ErrorKind::Unauthenticated),
                    }
                }
                Ok(None) => panic!("it is there"),
                // Not text.
                Err(error) => assert!(std::str::from_utf8(bytes).is_err(), "{error:?}"),
            }
        });
    }

    #[test]
    fn a_file_far_too_large_for_a_credential_is_not_read_into_memory() {
        let place = tempfile::tempdir().expect("a directory of its own");
        let path = place.path().join("kept");
        std::fs::write(&path, vec![b'a'; 8 << 20]).expect("it is ours");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("it is ours");
        let (read, most) = weft_sys::memory::most_taken(|| read(&path));
        assert!(parse(&read.expect("it is private").expect("it is there"), "a test").is_err());
        assert!(most < 1 << 20, "{most} bytes");
    }
}
