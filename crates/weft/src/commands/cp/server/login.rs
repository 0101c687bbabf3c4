//! What lets somebody in at a server. Never an argument, which everybody on the machine could read.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use data_encoding::BASE64;
use weft_core::{Error, Result};
use weft_remote::{Fields, HeaderName, HeaderValue, Url};
use weft_sys::fault;

/// Bytes of such a file.
const BYTES_MAX: u64 = 64 << 10;

/// Returns what is sent to a server: the token of a file, else what `~/.netrc` says of the host, else nothing.
pub fn fields(token: Option<&Path>, url: &Url) -> Result<Fields> {
    let text = match token {
        Some(path) => Some(format!("Bearer {}", read(path)?.trim())),
        None => match netrc().filter(|path| path.exists()) {
            Some(path) => found(&read(&path)?, url.host()).map(|(name, password)| {
                format!("Basic {}", BASE64.encode(format!("{name}:{password}").as_bytes()))
            }),
            None => None,
        },
    };
    let mut fields = Fields::new();
    if let Some(text) = text {
        let value = HeaderValue::from_str(&text);
        let mut value = value.map_err(|_| Error::invalid("what proves who asks holds more than one line"))?;
        value.set_sensitive(true);
        fields.insert(HeaderName::from_static("authorization"), value);
    }
    Ok(fields)
}

fn netrc() -> Option<PathBuf> {
    let named = std::env::var_os("NETRC").map(PathBuf::from);
    named.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".netrc")))
}

/// Reads a file that is closed to others.
fn read(path: &Path) -> Result<String> {
    let failed = |error| fault::error(error, "read", path.display());
    let there = std::fs::metadata(path).map_err(failed)?;
    if !there.is_file() || there.len() > BYTES_MAX {
        return Err(Error::invalid("it is no file that holds what proves who asks").about(path.display()));
    }
    if there.mode() & 0o077 != 0 {
        return Err(Error::denied("others can read it").about(path.display()).hint("close it: chmod 600"));
    }
    std::fs::read_to_string(path).map_err(failed)
}

/// Returns the name and password that a netrc says of a host, or of all that it does not name.
fn found(text: &str, host: &str) -> Option<(String, String)> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let mut words = lines.flat_map(str::split_whitespace);
    let (mut is_meant, mut name, mut password) = (false, None, None);
    while let Some(word) = words.next() {
        match word {
            "machine" | "default" => {
                if is_meant && password.is_some() {
                    break;
                }
                is_meant =
                    word == "default" || words.next().is_some_and(|own| own.eq_ignore_ascii_case(host));
                (name, password) = (None, None);
            }
            "login" => name = words.next(),
            "password" => password = words.next(),
            "account" => _ = words.next(),
            _ => {}
        }
    }
    is_meant.then(|| Some((name?.to_owned(), password?.to_owned()))).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_netrc_is_read_as_other_programs_read_it() {
        let text = "# mine\nmachine a login x password 1\nmachine b\n  login y\n  password 2\ndefault login z password 3\n";
        let of = |text, host| found(text, host).map(|(name, password)| format!("{name}:{password}"));
        assert_eq!(of(text, "a").as_deref(), Some("x:1"));
        assert_eq!(of(text, "B").as_deref(), Some("y:2"));
        assert_eq!(of(text, "c").as_deref(), Some("z:3"));
        assert_eq!(of("machine a login x password 1", "b"), None);
        assert_eq!(of("machine a password 1", "a"), None);
        assert_eq!(of("machine", "a"), None);
    }
}
