//! Each test plants one bad edge in a small workspace and sees it found.

use serde_json::json;

use super::*;

/// Package, folder, and `(dependency, kind)` pairs.
type Package<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);

/// A workspace; a dependency whose name starts with `weft` is a path.
fn workspace(packages: &[Package<'_>]) -> Value {
    let dependency = |(name, kind): &(&str, &str)| {
        let kind = (*kind != "normal").then_some(*kind);
        let path = (name.starts_with("weft") || *name == "xtask").then(|| format!("/r/{name}"));
        json!({ "name": name, "kind": kind, "path": path })
    };
    let package = |(name, folder, dependencies): &Package<'_>| {
        let dependencies: Vec<_> = dependencies.iter().map(dependency).collect();
        json!({ "name": name, "manifest_path": format!("/r/{folder}/Cargo.toml"), "dependencies": dependencies })
    };
    let packages: Vec<_> = packages.iter().map(package).collect();
    json!({ "workspace_root": "/r", "packages": packages })
}

fn findings(packages: &[Package<'_>]) -> Vec<String> {
    let mut tree = Tree::default();
    tree.metadata = workspace(packages);
    check(&tree).into_iter().map(|finding| finding.to_string()).collect()
}

#[test]
fn edges_of_the_table_pass() {
    let found = findings(&[
        ("weft-kv", "crates/kv", &[("weft-core", "normal"), ("weft-sys", "normal"), ("redb", "normal")]),
        ("weft-client", "crates/client", &[("weft-rpc", "normal"), ("weft-conformance", "dev")]),
        ("weft", "crates/weft", &[("weft-doors-http", "normal"), ("tempfile", "dev")]),
    ]);
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn a_door_cannot_reach_a_store() {
    let found = findings(&[("weft-doors-http", "crates/doors/http", &[("weft-store", "normal")])]);
    assert_eq!(
        found,
        [
            "crates/doors/http/Cargo.toml: layers: weft-doors-http may not use weft-store: the edge is not in the table"
        ]
    );
}

#[test]
fn a_dev_edge_obeys_the_table_too() {
    assert_eq!(findings(&[("weft-core", "crates/core", &[("weft-sys", "dev")])]).len(), 1);
}

#[test]
fn conformance_never_reaches_the_product() {
    assert_eq!(findings(&[("weft-kv", "crates/kv", &[("weft-conformance", "normal")])]).len(), 1);
    assert_eq!(findings(&[("weft", "crates/weft", &[("weft-conformance", "normal")])]).len(), 1);
    assert_eq!(findings(&[("weft", "crates/weft", &[("weft-conformance", "build")])]).len(), 1);
}

#[test]
fn nobody_depends_on_a_program() {
    assert_eq!(findings(&[("weft-bench", "bench", &[("weft", "normal")])]).len(), 1);
    assert_eq!(findings(&[("weft", "crates/weft", &[("xtask", "dev")])]).len(), 1);
}

#[test]
fn what_client_draws_in_by_others_counts() {
    let found = findings(&[
        ("weft-client", "crates/client", &[("weft-rpc", "normal")]),
        ("weft-rpc", "crates/rpc", &[("weft-mover", "normal")]),
    ]);
    assert!(found.iter().any(|line| line.contains("client draws in weft-mover")), "{found:?}");
}

#[test]
fn a_library_with_a_home_is_used_nowhere_else() {
    assert_eq!(findings(&[("weft-store", "crates/store", &[("redb", "normal")])]).len(), 1);
    assert_eq!(findings(&[("weft-volume", "crates/volume", &[("getrandom", "normal")])]).len(), 1);
    assert_eq!(findings(&[("weft-core", "crates/core", &[("tokio", "normal")])]).len(), 1);
}

#[test]
fn a_crate_outside_the_table_or_its_folder_is_found() {
    assert_eq!(findings(&[("weft-extra", "crates/extra", &[])]).len(), 1);
    assert_eq!(findings(&[("weft-kv", "crates/store", &[])]).len(), 1);
}

#[test]
fn unsafe_is_found_outside_its_places_even_behind_an_attribute() {
    let tree = Tree::of(&[
        ("crates/kv/src/a.rs", "// unsafe in words is fine\nfn f() { unsafe { g() } }"),
        ("crates/kv/src/b.rs", "#![allow(unsafe_code)]"),
        ("crates/sys/src/a.rs", "fn f() { unsafe { g() } }"),
    ]);
    let found: Vec<_> = check(&tree).into_iter().map(|f| (f.path, f.line, f.rule)).collect();
    assert_eq!(
        found,
        [("crates/kv/src/a.rs".to_owned(), 2, "unsafe"), ("crates/kv/src/b.rs".to_owned(), 1, "unsafe")]
    );
}

#[test]
fn serving_words_are_found_in_what_programs_link() {
    let tree = Tree::of(&[
        ("crates/client/src/a.rs", "use weft_sys::Listener;\n#[cfg(test)]\nmod tests { struct Listener; }"),
        ("crates/doors/http/src/a.rs", "use weft_sys::Listener;"),
    ]);
    let found: Vec<_> = check(&tree).into_iter().map(|f| (f.path, f.line)).collect();
    assert_eq!(found, [("crates/client/src/a.rs".to_owned(), 1)]);
}

#[test]
fn every_edge_of_the_table_leads_to_a_crate_of_the_table_and_none_in_a_circle() {
    for one in CRATES {
        for to in one.may.iter().filter(|to| **to != "*") {
            assert!(row(to).is_some(), "{} may use {to}, which is no crate", one.package);
        }
    }
    let edges: Vec<Edge> = CRATES
        .iter()
        .flat_map(|one| one.may.iter().map(|to| (one.package, *to)))
        .map(|(from, to)| Edge { from: from.to_owned(), to: to.to_owned(), dev: false, ours: true })
        .collect();
    for one in CRATES {
        assert!(!closure(&edges, one.package).contains(one.package), "{} reaches itself", one.package);
    }
}
