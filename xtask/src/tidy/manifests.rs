//! Rules about `Cargo.toml` and `clippy.toml`.

use std::collections::BTreeSet;

use crate::finding::Finding;
use crate::tree::Tree;

/// Where each dependency's reason stands.
const REASONS: &str = "docs/decisions/dependencies.md";
/// The lints of rule 6 of `docs/ARCHITECTURE.md`, once; each crate it binds links to it.
const LAW_SIX: &str = "xtask/law-six.clippy.toml";
/// The crates in which clock, randomness, disk, network and tasks come through `sys`.
const LAW_SIX_CRATES: &[&str] = &["kv", "auth", "store", "mover", "volume", "rpc", "grid", "lots"];

/// A line of a dependency table.
struct Line<'a> {
    number: usize,
    section: &'a str,
    name: &'a str,
    rest: &'a str,
}

/// Members take versions, features and lints from the workspace.
pub fn tables(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.manifests() {
        for line in dependencies(text).filter(|line| line.section != "workspace.dependencies") {
            let rest = line.rest.replace(' ', "");
            if rest != ".workspace=true" && !rest.starts_with("={workspace=true") {
                let what = format!("{} has its version here: `{0}.workspace = true`", line.name);
                found.push(Finding::line(path, line.number, "dependency", what));
            }
            if rest.contains("features") {
                let what = format!("{} has features here: give them once, in the workspace", line.name);
                found.push(Finding::line(path, line.number, "dependency", what));
            }
        }
        if !text.contains("[lints]\nworkspace = true") {
            found.push(Finding::file(path, "dependency", "the workspace's lints are not taken"));
        }
    }
    found
}

/// Every dependency of the workspace is used, and its reason is written down; no
/// reason stands for what is gone.
pub fn reasons(tree: &Tree) -> Vec<Finding> {
    let root = tree.text("Cargo.toml").unwrap_or_default();
    let table = dependencies(root).filter(|line| line.section == "workspace.dependencies");
    let table: Vec<Line<'_>> = table.filter(|line| !line.rest.contains("path")).collect();
    let used: BTreeSet<&str> =
        tree.manifests().flat_map(|(_, text)| dependencies(text)).map(|line| line.name).collect();
    let text = tree.text(REASONS).unwrap_or_default();
    let reasons: Vec<&str> =
        text.lines().filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0)).collect();
    let mut found = Vec::new();
    for line in &table {
        if !reasons.contains(&line.name) {
            let what = format!("{} has no line in {REASONS}", line.name);
            found.push(Finding::line("Cargo.toml", line.number, "dependency", what));
        }
        if !used.contains(line.name) {
            let what = format!("no crate uses {}", line.name);
            found.push(Finding::line("Cargo.toml", line.number, "dependency", what));
        }
    }
    for reason in reasons.iter().filter(|reason| !table.iter().any(|line| line.name == **reason)) {
        found.push(Finding::file(REASONS, "dependency", format!("{reason} is no dependency any more")));
    }
    found
}

/// Each crate that rule 6 binds links to the one list of forbidden calls.
pub fn law_six(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for name in LAW_SIX_CRATES {
        if tree.file(&format!("crates/{name}/Cargo.toml")).is_none() {
            continue;
        }
        let path = format!("crates/{name}/clippy.toml");
        let linked = tree.file(&path).is_some_and(|file| {
            file.symlink && file.bytes.strip_prefix(b"../../") == Some(LAW_SIX.as_bytes())
        });
        if !linked {
            found.push(Finding::file(
                &path,
                "law-six",
                format!("must be a symbolic link to ../../{LAW_SIX}"),
            ));
        }
    }
    if !found.is_empty() && tree.file(LAW_SIX).is_none() {
        found.push(Finding::file(LAW_SIX, "law-six", "the list of forbidden calls is gone"));
    }
    found
}

/// Returns the lines of every dependency table of a manifest. Reads the one form
/// the house uses: one dependency a line, or a table of its own.
fn dependencies(text: &str) -> impl Iterator<Item = Line<'_>> {
    let mut section = "";
    text.lines().enumerate().filter_map(move |(at, line)| {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_end_matches(']');
            let (_, name) = section.split_once("dependencies.")?;
            return Some(Line { number: at + 1, section, name, rest: "" });
        }
        let end = line.find(['.', '=', ' '])?;
        let (name, rest) = line.split_at(end);
        section.ends_with("dependencies").then_some(Line { number: at + 1, section, name, rest })
    })
}
