//! Programs nobody here wrote, over the in-memory `Model`: fsx here, others by what they do.
//! All but trees of real files run over a real node as well (`crates/weft/tests/it/programs.rs` and `suites.rs`, which
//! has dbench and CPython's own tests besides).

mod builds;
mod databases;
mod editors;
mod fio;
mod trees;

use std::ffi::OsStr;
use std::fs;
use std::process::{Command, Output};
use std::thread;

use weft_conformance::run::{self, brought, full};

use crate::bed::{Bed, can_mount};

/// Everything fsx can do here, its own default and what is ours to prove: mappings
/// beside writes, holes, copies within the file.
const FSX_CONFIG: &str = include_str!("fsx.toml");

/// Runs a command, and fails with what it said unless it succeeds.
fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        text.chars().rev().take(3000).collect::<Vec<_>>().into_iter().rev().collect::<String>()
    };
    let said = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{}\n{}", output.status, said.0, said.1);
    output
}

/// Runs a script in the mount, with some settings, as the tests of the program do over a real node. `$OUT` is an empty
/// directory elsewhere, `$OTHER` another mount of the same.
fn script(bed: &Bed, text: &str, settings: &[(&str, &OsStr)]) {
    let (out, other) = (tempfile::tempdir().expect("a directory of its own"), bed.mount_again("alice", 2));
    let mut sh = Command::new("sh");
    sh.args(["-euxc", text]).current_dir(bed.path()).env("OUT", out.path()).env("OTHER", other.join(""));
    succeed(sh.envs(settings.iter().copied()));
}

/// Returns whether these programs are there and mounts can be made; otherwise counts the test as
/// not run.
fn have(test: &str, programs: &[&str]) -> bool {
    run::have(test, programs) && can_mount(test)
}

/// Counts and seeds of fsx: more of both with `./test --full`.
fn fsx_rounds() -> (u32, Vec<u32>) {
    if full() { (200_000, (1..=5).collect()) } else { (5_000, vec![1, 7, 42]) }
}

#[test]
fn fsx_finds_no_difference_in_its_operations_with_mappings() {
    if !can_mount("fsx") {
        return;
    }
    let Some(fsx) = brought("fsx", "bin/fsx") else { return };
    let artifacts = tempfile::tempdir().expect("a directory of its own");
    let config = artifacts.path().join("fsx.toml");
    fs::write(&config, FSX_CONFIG).expect("written");
    let (count, seeds) = fsx_rounds();
    let run = |seed: u32| {
        let (bed, artifacts) = (Bed::new(), artifacts.path().join(seed.to_string()));
        fs::create_dir(&artifacts).expect("it is ours");
        let mut command = Command::new(&fsx);
        command.arg("-f").arg(&config).arg("-P").arg(&artifacts);
        command.args(["-N", &count.to_string(), "-S", &seed.to_string()]).arg(bed.join("file"));
        succeed(&mut command);
    };
    thread::scope(|scope| {
        for seed in seeds {
            scope.spawn(move || run(seed));
        }
    });
}
