//! The repository's own checks and chores: `cargo xtask NAME`.
//!
//! Rules that only people enforce rot, so the ones a program can check are here.
//! `check-layers` holds the table of crates, of the edges allowed between them and
//! of the libraries that have one home (`layers/table.rs`); `tidy` reads every file
//! git knows and applies the house rules (`tidy/`). Both print
//! `path:line: rule: what is wrong` and fail if there is anything to print.
//!
//! Each rule is a pure function from a [`tree::Tree`] (paths and bytes) to findings,
//! so its unit test plants the fault in a tree of two lines and sees it found. Only
//! [`tree::Tree::load`] and this file touch the machine.
//!
//! The rules read Rust as text with comments and strings blanked (`source.rs`), not
//! as a syntax tree: enough for what they look for, and `xtask` builds in seconds.
//! What a compiler lint can say (`unwrap`, `unsafe`, printing, forbidden clocks) is
//! said by the lint too; here it cannot be switched off by an attribute.
//!
//! `ratchet.txt` lists the exceptions that existed when a rule came. It may only
//! shrink.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people at a terminal")]

mod deb;
mod finding;
mod layers;
mod source;
mod tidy;
mod tree;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use finding::Finding;
use tree::Tree;

const USAGE: &str = "usage: cargo xtask check-layers | tidy | generate | bench NAME [--full] | deb [PROGRAM]";

/// The peers of the benches and what counts and loads them.
const BENCH_PACKAGES: &str = "gcc libc6-dev nginx-light wrk strace libsqlite3-dev fuse3 linux-perf \
    xrootd-server xrootd-plugins postgresql libpq-dev iperf3 apache2-bin rsync bindfs mergerfs sshfs openssh-sftp-server rclone \
    davfs2 s3fs libfuse3-dev g++ dpkg-dev pkg-config";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let root = root();
    let outcome = match words[..] {
        ["check-layers"] => check(&root, "check-layers", layers::check),
        ["tidy"] => check(&root, "tidy", tidy::check),
        ["generate"] => generate(&root),
        ["deb", ref rest @ ..] => deb::make(&root, rest),
        ["bench", ref rest @ ..] if !rest.is_empty() => bench(&root, rest),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the repository's root: the folder above this package.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("a package of the workspace lies below its root").to_owned()
}

fn check(root: &Path, name: &str, rule: fn(&Tree) -> Vec<Finding>) -> Result<bool, String> {
    let tree = Tree::load(root)?;
    let findings = rule(&tree);
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => println!("{name}: ok, {} files", tree.files().len()),
        found => println!("{name}: {found} findings"),
    }
    Ok(findings.is_empty())
}

/// Writes every generated part of the repository; `tidy` fails while one is stale.
fn generate(root: &Path) -> Result<bool, String> {
    let tree = Tree::load(root)?;
    for (path, text) in tidy::generated(&tree) {
        if tree.text(&path) != Some(text.as_str()) {
            std::fs::write(root.join(&path), text).map_err(|e| format!("cannot write {path}: {e}"))?;
            println!("wrote {path}");
        }
    }
    Ok(true)
}

/// Runs a bench of `bench/` as it would be shipped: figures of another build say little. Whoever tries
/// one thing after another runs the package with `--release`, which is built sooner.
fn bench(root: &Path, words: &[&str]) -> Result<bool, String> {
    let cargo = |words: &[&str]| {
        let status = Command::new(env!("CARGO")).current_dir(root).args(words).status();
        status.map(|status| status.success()).map_err(|e| format!("cannot run cargo: {e}"))
    };
    // What cannot be installed here is reported by the bench that needs it.
    let install = format!(". xtask/machine.sh; packages {BENCH_PACKAGES}");
    Command::new("bash").current_dir(root).args(["-c", &install]).status().map_err(|e| e.to_string())?;
    let built = cargo(&["build", "--profile", "dist", "--package", "weft", "--package", "weft-bench"])?;
    let run = ["run", "--profile", "dist", "--quiet", "--package", "weft-bench", "--"];
    Ok(built && cargo(&[&run, words].concat())?)
}
