//! Saying in a file where a node answers.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use weft_core::{Error, Result};
use weft_sys::{Sys, fault};

/// Writes the addresses of a node that answers to a file, whole or not at all. What it is written to
/// before it gets its name is nobody else's: others may write to the directory too.
pub fn write_ready(sys: &Sys, file: &Path, addresses: &[(String, String)]) -> Result<()> {
    let object: serde_json::Map<String, serde_json::Value> =
        addresses.iter().map(|(door, address)| (door.clone(), address.clone().into())).collect();
    let name =
        file.file_name().ok_or_else(|| Error::invalid("it is no file's name").about(file.display()))?;
    let mut fresh = std::ffi::OsString::from(".");
    fresh.push(name);
    fresh.push(format!(".{:016x}", sys.random().u64()));
    let fresh = file.with_file_name(fresh);
    let failed = |e| fault::error(e, "write", file.display());
    let mut out = File::options().write(true).create_new(true).mode(0o600).open(&fresh).map_err(failed)?;
    let text = format!("{}\n", serde_json::Value::Object(object));
    let written = out.write_all(text.as_bytes()).and_then(|()| fs::rename(&fresh, file));
    written.map_err(|e| {
        // It says nothing yet; what it could not be is told.
        let _ = fs::remove_file(&fresh);
        failed(e)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    #[test]
    fn saying_where_a_node_answers_writes_to_no_file_that_is_there_and_through_no_link() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = |name: &str| dir.path().join(name);
        fs::write(path("victim"), "mine").expect("it is written");
        symlink(path("victim"), path("ready.new")).expect("a link");
        symlink(path("victim"), path("ready.json")).expect("a link");
        fs::write(path("other.new"), "mine too").expect("it is written");
        let sys = Sys::real();
        let addresses = [("http".to_owned(), "http://127.0.0.1:1".to_owned())];
        for name in ["ready", "ready.json", "other.txt"] {
            write_ready(&sys, &path(name), &addresses).expect("it is said");
            let said = fs::read_to_string(path(name)).expect("it is there");
            assert_eq!(said, "{\"http\":\"http://127.0.0.1:1\"}\n");
            let meta = fs::symlink_metadata(path(name)).expect("it is there");
            assert_eq!((meta.is_file(), meta.mode() & 0o7777), (true, 0o600), "{name}");
        }
        for (name, text) in [("victim", "mine"), ("ready.new", "mine"), ("other.new", "mine too")] {
            assert_eq!(fs::read_to_string(path(name)).expect("it is there"), text, "{name}");
        }
        fs::create_dir(path("full")).expect("it is made");
        fs::write(path("full/it"), "").expect("it is written");
        write_ready(&sys, &path("full"), &addresses).expect_err("a directory is there");
        assert_eq!(fs::read_dir(dir.path()).expect("it is there").count(), 7, "and leaves nothing behind");
    }
}
