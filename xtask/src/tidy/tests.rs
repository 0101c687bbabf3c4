//! Each test plants one fault in a small tree and sees it found.

use super::*;

/// Returns `rule path:line` of what `check` finds.
fn findings(files: &[(&str, &str)]) -> Vec<String> {
    brief(&Tree::of(files))
}

fn brief(tree: &Tree) -> Vec<String> {
    check(tree).into_iter().map(|f| format!("{} {}:{}", f.rule, f.path, f.line)).collect()
}

const NONE: [&str; 0] = [];

#[test]
fn a_tidy_tree_has_no_findings() {
    let found = findings(&[
        ("crates/kv/src/log.rs", "/// Metadata of a log.\npub struct Metadata;\n\nfn f() {}\n"),
        ("notes.txt", "see target/work/x\n"),
    ]);
    assert_eq!(found, NONE);
}

#[test]
fn long_files_and_functions_are_found() {
    let file = "\n".repeat(801).replace('\n', "x\n");
    assert_eq!(findings(&[("a/b.py", &file)]), ["file-lines a/b.py:0"]);
    let function = format!("\nfn f() {{\n{}}}\n", "    g();\n".repeat(99));
    assert_eq!(findings(&[("a/b.rs", &function)]), ["function-lines a/b.rs:2"]);
    let shorter = format!("fn f() {{\n{}}}\n", "    g();\n".repeat(98));
    assert_eq!(findings(&[("a/b.rs", &shorter)]), NONE);
}

#[test]
fn big_blobs_are_found_and_lock_files_are_not() {
    let blob = "x".repeat((200 << 10) + 1) + "\n";
    assert_eq!(findings(&[("a.bin", &blob), ("Cargo.lock", &blob)]), ["blob a.bin:0"]);
}

#[test]
fn empty_names_are_found_as_file_module_and_type() {
    assert_eq!(
        findings(&[("crates/kv/src/util.rs", "\n")]).first().map(String::as_str),
        Some("name crates/kv/src/util.rs:0")
    );
    assert_eq!(findings(&[("a.rs", "mod helper;\n")]), ["name a.rs:1"]);
    assert_eq!(findings(&[("a.rs", "struct Manager;\nstruct LockManager;\ntrait FileInfo {}\n")]).len(), 3);
    assert_eq!(findings(&[("a.rs", "enum Seek { Data, Hole }\nstruct Metadata;\n")]), NONE);
}

#[test]
fn blanks_at_line_ends_and_missing_line_ends_are_found() {
    assert_eq!(findings(&[("a.md", "x \ny\n")]), ["whitespace a.md:1"]);
    assert_eq!(findings(&[("a.md", "x\r\n")]), ["whitespace a.md:1"]);
    assert_eq!(findings(&[("a.md", "x")]), ["whitespace a.md:0"]);
    assert_eq!(findings(&[("a.md", "x\n\n")]), ["whitespace a.md:0"]);
    assert_eq!(findings(&[("a/corpus/b", "x ")]), NONE);
}

#[test]
fn open_ends_are_found_unless_they_name_an_issue() {
    let fix = concat!("// FIX", "ME later\n");
    assert_eq!(findings(&[("a.rs", fix)]), ["open-end a.rs:1"]);
    let bare = concat!("// TO", "DO later\n");
    assert_eq!(findings(&[("a.rs", bare)]), ["open-end a.rs:1"]);
    let word = concat!("// TO", "DO(later)\n");
    assert_eq!(findings(&[("a.rs", word)]), ["open-end a.rs:1"]);
    let named = concat!("// TO", "DO(#12) later\n");
    assert_eq!(findings(&[("a.rs", named)]), NONE);
}

#[test]
fn paths_of_one_machine_and_registry_hosts_are_found() {
    let path = concat!("x = \"/ro", "ot/x\"\n");
    assert_eq!(findings(&[("a.toml", path)]), ["place a.toml:1"]);
    let host = concat!("curl https://pypi", ".org/x\n");
    assert_eq!(findings(&[("a.sh", host), ("Cargo.lock", host)]), ["place a.sh:1"]);
    assert_eq!(findings(&[("a.sh", "cat $dir/root/x\n")]), NONE);
}

#[test]
fn unwrap_is_found_in_product_code_only() {
    let source = "fn f() {\n    a.unwrap();\n    b\n        .unwrap_err();\n    c.expect(\"\");\n    d.unwrap_or(1);\n}\n";
    let found = findings(&[("crates/kv/src/a.rs", source)]);
    assert_eq!(
        found,
        ["unwrap crates/kv/src/a.rs:2", "unwrap crates/kv/src/a.rs:4", "unwrap crates/kv/src/a.rs:5"]
    );
    let tests = "#[cfg(test)]\nmod tests {\n    fn f() { a.unwrap(); }\n}\n";
    assert_eq!(findings(&[("crates/kv/src/a.rs", tests), ("crates/kv/tests/it/main.rs", source)]), NONE);
}

#[test]
fn a_crate_without_an_essay_is_found() {
    let manifest = "[lints]\nworkspace = true\n";
    let found = findings(&[("crates/x/Cargo.toml", manifest), ("crates/x/src/lib.rs", "//! One line.\n")]);
    assert_eq!(found, ["essay crates/x/src/lib.rs:0"]);
    let essay = "//! Line.\n".repeat(6);
    assert_eq!(findings(&[("crates/x/Cargo.toml", manifest), ("crates/x/src/lib.rs", &essay)]), NONE);
}

#[test]
fn dependencies_stand_in_the_workspace_table_with_a_reason_and_a_user() {
    let lints = "\n[lints]\nworkspace = true\n";
    let versioned = format!("[dependencies]\nserde = \"1\"\n{lints}");
    assert_eq!(findings(&[("crates/x/Cargo.toml", &versioned)]), ["dependency crates/x/Cargo.toml:2"]);
    let own_table = format!("[dependencies.serde]\nversion = \"1\"\n{lints}");
    assert_eq!(findings(&[("crates/x/Cargo.toml", &own_table)]), ["dependency crates/x/Cargo.toml:1"]);
    let features =
        format!("[dev-dependencies]\nserde = {{ workspace = true, features = [\"rc\"] }}\n{lints}");
    assert_eq!(findings(&[("crates/x/Cargo.toml", &features)]), ["dependency crates/x/Cargo.toml:2"]);
    assert_eq!(findings(&[("crates/x/Cargo.toml", "[package]\n")]), ["dependency crates/x/Cargo.toml:0"]);

    let root = "[workspace.dependencies]\nweft-core = { path = \"crates/core\" }\nserde = \"1\" # why\n";
    let user = format!("[dependencies]\nserde.workspace = true\n{lints}");
    let reason = "| `serde` | why |\n";
    let whole =
        [("Cargo.toml", root), ("crates/x/Cargo.toml", &user), ("docs/decisions/dependencies.md", reason)];
    assert_eq!(findings(&whole), NONE);
    assert_eq!(findings(&whole[..2]), ["dependency Cargo.toml:3"]);
    assert_eq!(findings(&[whole[0], whole[2]]), ["dependency Cargo.toml:3"]);
    assert_eq!(findings(&whole[2..]), ["dependency docs/decisions/dependencies.md:0"]);
}

#[test]
fn a_copy_of_law_six_is_found() {
    let manifest = "[lints]\nworkspace = true\n";
    let found = findings(&[
        ("crates/kv/Cargo.toml", manifest),
        ("crates/kv/clippy.toml", "x = 1\n"),
        ("xtask/law-six.clippy.toml", "\n"),
    ]);
    assert!(found.contains(&"law-six crates/kv/clippy.toml:0".to_owned()), "{found:?}");
}

#[test]
fn a_stale_crate_map_is_found_and_generating_mends_it() {
    let stale = format!("# Map\n{MAP_START}old\n{MAP_END}tail\n");
    let tree = Tree::of(&[(MAP, &stale)]);
    assert_eq!(brief(&tree), [format!("generated {MAP}:0")]);
    let (path, text) = generated(&tree).remove(0);
    assert_eq!(findings(&[(path.as_str(), text.as_str())]), NONE);
    assert_eq!(findings(&[(MAP, "no markers\n")]), [format!("generated {MAP}:0")]);
}

#[test]
fn the_ratchet_excuses_old_breaches_only_and_only_shrinks() {
    let excuse = "# why\nopen-end a.rs\n";
    let breach = concat!("// FIX", "ME\n");
    let mut tree = Tree::of(&[("a.rs", breach), (RATCHET, excuse)]);
    assert_eq!(brief(&tree), NONE, "the first ratchet there ever was may list what it finds");
    tree.ratchet_before = vec![excuse.to_owned()];
    assert_eq!(brief(&tree), NONE);
    tree.ratchet_before = vec!["# nothing\n".to_owned()];
    assert_eq!(brief(&tree), [format!("ratchet {RATCHET}:2")]);
    assert_eq!(findings(&[("a.rs", "\n"), (RATCHET, excuse)]).last(), Some(&format!("ratchet {RATCHET}:2")));
}
