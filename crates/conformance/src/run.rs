//! What a run of the tests was asked for, and what this machine has for it.

use std::collections::hash_map::RandomState;
use std::ffi::OsStr;
use std::fs::File;
use std::hash::{BuildHasher, Hasher};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns whether the long counts were asked for: `./test --full`.
pub fn full() -> bool {
    std::env::var_os("WEFT_TEST_FULL").is_some()
}

/// Returns the one seed that `WEFT_SEED` asks for.
pub(crate) fn seed() -> Option<u64> {
    number("WEFT_SEED")
}

/// Returns the seed that `WEFT_SEED` asks for, or one that is another in each run, for a test that
/// prints it.
pub fn seed_or_fresh() -> u64 {
    seed().unwrap_or_else(fresh_seed)
}

/// Returns a number that the environment gives.
pub(crate) fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// Returns a seed that is another in each run, with room above to count up from it.
pub(crate) fn fresh_seed() -> u64 {
    RandomState::new().build_hasher().finish() >> 8
}

/// Returns whether these programs are on the path and, for `fusermount3`, whether mounts can be
/// made; otherwise counts the test as not run.
pub fn have(test: &str, programs: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = |name: &&&str| std::env::split_paths(&path).any(|dir| dir.join(name).is_file());
    if let Some(missing) = programs.iter().find(|name| !there(name)) {
        not_run(test, &format!("{missing} is missing; ./test installs it"));
        return false;
    }
    let device = || File::options().read(true).write(true).open("/dev/fuse").is_ok();
    if programs.contains(&"fusermount3") && !device() {
        not_run(test, "no /dev/fuse");
        return false;
    }
    true
}

/// Returns a Python that any user can run and that has these modules (`a, b`); otherwise counts the
/// test as not run.
pub fn python_with(test: &str, modules: &str) -> Option<&'static str> {
    // Where several are installed, the system's is the one its packages are for.
    let has_them = |python: &&str| {
        let found = Command::new(python).args(["-c", &format!("import {modules}")]).output();
        found.is_ok_and(|found| found.status.success())
    };
    let python = ["/usr/bin/python3", "python3"].into_iter().find(has_them);
    if python.is_none() {
        not_run(test, &format!("no python3 has {modules}; ./test installs them"));
    }
    python
}

/// Returns something that `./test` brings and no machine has by itself; otherwise counts the test
/// as not run.
pub fn brought(test: &str, name: &str) -> Option<PathBuf> {
    let there = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools").join(name);
    if there.exists() {
        return Some(there);
    }
    not_run(test, &format!("{name} is missing in target/tools; ./test brings it"));
    None
}

/// Returns how many descriptors of this process are on something at or below a place, also if it was removed there.
pub fn open_below(place: &Path) -> usize {
    let all = std::fs::read_dir("/proc/self/fd").expect("a process sees its own").flatten();
    let is_there = |to: PathBuf| {
        let to = to.as_os_str().as_bytes();
        // So the machine says that it has no name any more, behind the last that it had.
        let named = to.strip_suffix(b" (deleted)").unwrap_or(to);
        Path::new(OsStr::from_bytes(named)).starts_with(place)
    };
    all.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(is_there)).count()
}

/// Counts a test as not run, in the file that `WEFT_NOT_RUN` names. Fails it where nobody counts.
pub fn not_run(test: &str, why: &str) {
    let Some(list) = std::env::var_os("WEFT_NOT_RUN") else { panic!("{test}: {why}") };
    let mut list = File::options().append(true).open(list).expect("the list can be written");
    // Cargo says whose test it runs.
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
    writeln!(list, "{package} {test}: {why}").expect("the list can be written");
}
