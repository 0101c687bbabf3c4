//! The peers we write ourselves, in C so that nothing of ours is in them: compiled when
//! first used, kept below `target`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::machine;

/// Returns the program built from `bench/peers/NAME.c`.
pub fn program(name: &str, libraries: &[&str]) -> Result<PathBuf> {
    build(name, name, libraries)
}

/// Returns the shared library built from `bench/peers/NAME.c`.
pub fn library(name: &str) -> Result<PathBuf> {
    build(name, &format!("{name}.so"), &["-shared", "-fPIC", "-ldl"])
}

fn build(name: &str, made: &str, more: &[&str]) -> Result<PathBuf> {
    let source = machine::root().join(format!("bench/peers/{name}.c"));
    let folder = machine::root().join("target/bench/peers");
    let made = folder.join(made);
    if newer(&made, &source) {
        return Ok(made);
    }
    std::fs::create_dir_all(&folder)?;
    // Two benches may build at once: the name appears when the file is whole.
    let part = made.with_extension(format!("{}.part", std::process::id()));
    let done = Command::new("cc")
        .args(["-O2", "-Wall", "-Wextra", "-pthread", "-o"])
        .arg(&part)
        .arg(&source)
        .args(more)
        .output()?;
    if !done.status.success() {
        return Err(
            format!("cannot build {}: {}", source.display(), String::from_utf8_lossy(&done.stderr)).into()
        );
    }
    std::fs::rename(&part, &made)?;
    Ok(made)
}

fn newer(made: &Path, source: &Path) -> bool {
    let changed = |file: &Path| file.metadata().and_then(|metadata| metadata.modified()).ok();
    changed(made).is_some_and(|made| changed(source).is_some_and(|source| made > source))
}
