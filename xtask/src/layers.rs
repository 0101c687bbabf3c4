//! `cargo xtask check-layers`: the laws that are edges.
//!
//! Every dependency of a member on a member must stand in the table; a library with
//! a home is used nowhere else; `core` stays pure; what `client` draws in holds no
//! server code; `unsafe` stays in its three places.

mod table;

use std::collections::BTreeSet;

use serde_json::Value;

use crate::finding::Finding;
use crate::source;
use crate::tree::Tree;
use table::{ALL, CRATES, Crate, DEV_ONLY, HOMES, LINKED, NOT_IN_CORE, PROGRAMS, SERVER_WORDS, TEST_TOOLS};

/// One line of a `[dependencies]` table, as cargo understands it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Edge {
    from: String,
    to: String,
    dev: bool,
    /// Whether `to` is a package of this repository.
    ours: bool,
}

/// Returns every breach of the layers.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let packages = packages(&tree.metadata);
    let edges = edges(&tree.metadata);
    let mut found = known(&packages);
    found.extend(edges.iter().filter_map(forbidden));
    found.extend(client_closure(&edges));
    found.extend(tree.rust().flat_map(|(path, text)| unsafe_outside(path, text)));
    found.extend(tree.rust().flat_map(|(path, text)| server_words(path, text)));
    found
}

/// Returns the crate map of `docs/ARCHITECTURE.md`: the crates that exist, as a
/// table in Markdown.
pub fn crate_map(tree: &Tree) -> String {
    let packages = packages(&tree.metadata);
    let mut map = String::from("| Crate | Holds | Must never know | May use |\n|---|---|---|---|\n");
    for one in CRATES.iter().filter(|one| packages.iter().any(|(name, _)| name == one.package)) {
        let may = match one.may {
            [] => "–".to_owned(),
            ["*"] => "all".to_owned(),
            some => some.iter().map(|name| name.trim_start_matches("weft-")).collect::<Vec<_>>().join(", "),
        };
        map += &format!("| `{}` | {} | {} | {may} |\n", one.folder, one.holds, one.never);
    }
    map
}

fn row(package: &str) -> Option<&'static Crate> {
    CRATES.iter().find(|one| one.package == package)
}

/// Returns each member's package name and folder.
fn packages(metadata: &Value) -> Vec<(String, String)> {
    let root = text(&metadata["workspace_root"]);
    let folder = |package: &Value| {
        let manifest = text(&package["manifest_path"]);
        manifest.trim_start_matches(&root).trim_matches('/').trim_end_matches("/Cargo.toml").to_owned()
    };
    let members = metadata["packages"].as_array().into_iter().flatten();
    members.map(|package| (text(&package["name"]), folder(package))).collect()
}

fn edges(metadata: &Value) -> Vec<Edge> {
    let mut edges = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            edges.push(Edge {
                from: text(&package["name"]),
                to: text(&dependency["name"]),
                dev: dependency["kind"] == "dev",
                ours: dependency["path"].is_string(),
            });
        }
    }
    edges
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Every member stands in the table, in the folder the table says.
fn known(packages: &[(String, String)]) -> Vec<Finding> {
    let mut found = Vec::new();
    for (package, folder) in packages {
        let manifest = format!("{folder}/Cargo.toml");
        match row(package) {
            Some(one) if one.folder == folder => {}
            Some(one) => found.push(Finding::file(
                &manifest,
                "layers",
                format!("package {package} belongs in {}", one.folder),
            )),
            None => found.push(Finding::file(
                &manifest,
                "layers",
                format!("package {package} is not in xtask/src/layers/table.rs"),
            )),
        }
    }
    found
}

fn forbidden(edge: &Edge) -> Option<Finding> {
    let from = row(&edge.from)?;
    let why = match edge.ours {
        true => forbidden_inside(from, edge),
        false => forbidden_outside(from, edge),
    }?;
    let manifest = format!("{}/Cargo.toml", from.folder);
    Some(Finding::file(&manifest, "layers", format!("{} may not use {}: {why}", edge.from, edge.to)))
}

fn forbidden_inside(from: &Crate, edge: &Edge) -> Option<&'static str> {
    let to = edge.to.as_str();
    if PROGRAMS.contains(&to) {
        return Some("nobody depends on a program");
    }
    if DEV_ONLY.contains(&to) {
        let allowed = edge.dev && from.package != "xtask" || TEST_TOOLS.contains(&from.package);
        return (!allowed).then_some("it is for tests only");
    }
    let listed = from.may == ALL || from.may.contains(&to);
    (!listed).then_some("the edge is not in the table")
}

fn forbidden_outside(from: &Crate, edge: &Edge) -> Option<&'static str> {
    if edge.dev {
        return None;
    }
    let to = edge.to.as_str();
    if from.package == "weft-core" && NOT_IN_CORE.contains(&to) {
        return Some("core is pure");
    }
    let (_, homes) = HOMES.iter().find(|(name, _)| *name == to)?;
    (!homes.contains(&from.package)).then_some("that library has another home")
}

/// What programs link draws in `core`, `sys`, `rpc` and nothing else of ours.
fn client_closure(edges: &[Edge]) -> Vec<Finding> {
    let allowed = row(LINKED).map_or(&[][..], |one| one.may);
    let drawn = closure(edges, LINKED);
    let extra = drawn.iter().filter(|name| !allowed.contains(&name.as_str()));
    let manifest = "crates/client/Cargo.toml";
    extra
        .map(|name| {
            Finding::file(manifest, "layers", format!("client draws in {name}: it holds no server code"))
        })
        .collect()
}

/// Returns the packages of ours that `package` draws in, itself left out.
fn closure(edges: &[Edge], package: &str) -> BTreeSet<String> {
    let mut drawn = BTreeSet::new();
    let mut open = vec![package.to_owned()];
    while let Some(from) = open.pop() {
        for edge in edges.iter().filter(|edge| edge.from == from && edge.ours && !edge.dev) {
            if drawn.insert(edge.to.clone()) {
                open.push(edge.to.clone());
            }
        }
    }
    drawn
}

fn unsafe_outside(path: &str, text: &str) -> Vec<Finding> {
    if table::UNSAFE.iter().any(|home| path.starts_with(home)) {
        return Vec::new();
    }
    let code = source::code(text);
    let hits = source::words(&code).filter(|(_, word)| matches!(*word, "unsafe" | "unsafe_code"));
    hits.map(|(at, _)| {
        let what = format!("only {} may hold unsafe code", table::UNSAFE.join(", "));
        Finding::line(path, source::line_of(&code, at), "unsafe", what)
    })
    .collect()
}

fn server_words(path: &str, text: &str) -> Vec<Finding> {
    if !["crates/client/src/", "crates/rpc/src/"].iter().any(|linked| path.starts_with(linked)) {
        return Vec::new();
    }
    if path.ends_with("/tests.rs") {
        return Vec::new();
    }
    let code = source::product(&source::code(text));
    let hits = source::words(&code).filter(|(_, word)| SERVER_WORDS.contains(word));
    hits.map(|(at, word)| {
        let what = format!("{word}: what programs link holds no server code");
        Finding::line(path, source::line_of(&code, at), "layers", what)
    })
    .collect()
}

#[cfg(test)]
mod tests;
