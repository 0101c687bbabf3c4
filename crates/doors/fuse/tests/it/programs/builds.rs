//! Builds: a real C project, a crate.

use std::fs;
use std::process::Command;

use weft_conformance::run::brought;

use super::{have, succeed};
use crate::bed::Bed;

#[test]
fn a_c_project_is_configured_and_built_and_its_product_works() {
    if !have("make", &["make", "cc", "rsync"]) {
        return;
    }
    let Some(source) = brought("make", "src/bzip2") else { return };
    let bed = Bed::new();
    let build = bed.join("bzip2");
    succeed(Command::new("cp").arg("-rp").arg(&source).arg(&build));
    // Two rounds: the second has nothing to do, by the times the mount shows.
    let make = || {
        succeed(Command::new("make").args(["-j2", "libbz2.a", "bzip2", "bzip2recover"]).current_dir(&build))
    };
    make();
    let again = String::from_utf8_lossy(&make().stdout).into_owned();
    assert!(!again.contains("-c "), "the second make compiled again:\n{again}");
    // What was built runs from the mount, on files there.
    succeed(Command::new("./bzip2").args(["-k", "-9", "manual.html"]).current_dir(&build));
    succeed(Command::new("./bzip2").args(["-d", "-f", "manual.html.bz2"]).current_dir(&build));
    let made = fs::read(build.join("manual.html")).expect("read");
    assert_eq!(made, fs::read(source.join("manual.html")).expect("read"));
}

/// A crate of a library with a build script, a program and a test, without dependencies.
const CRATE: [(&str, &str); 5] = [
    ("Cargo.toml", "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n[workspace]\n"),
    (
        "build.rs",
        "fn main() {\n    let out = std::path::Path::new(&std::env::var(\"OUT_DIR\").unwrap()).join(\"made.rs\");\n    \
         std::fs::write(out, \"pub const MADE: u32 = 40;\").unwrap();\n    println!(\"cargo:rerun-if-changed=build.rs\");\n}\n",
    ),
    (
        "src/lib.rs",
        "include!(concat!(env!(\"OUT_DIR\"), \"/made.rs\"));\npub fn answer() -> u32 { MADE + 2 }\n",
    ),
    ("src/main.rs", "fn main() { println!(\"{}\", small::answer()); }\n"),
    ("tests/it.rs", "#[test]\nfn it_is_42() { assert_eq!(small::answer(), 42); }\n"),
];

#[test]
fn cargo_builds_and_tests_a_crate_and_knows_what_is_fresh() {
    if !have("cargo build", &["cargo", "cc"]) {
        return;
    }
    let bed = Bed::new();
    for (name, text) in CRATE {
        let file = bed.join("small").join(name);
        fs::create_dir_all(file.parent().expect("a directory")).expect("made");
        fs::write(file, text).expect("written");
    }
    let cargo = |arguments: &[&str]| {
        let mut command = Command::new("cargo");
        // Whoever runs this test has settings of their own; incremental builds link and lock files.
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("CARGO_")) {
            if name != "CARGO_HOME" {
                command.env_remove(name);
            }
        }
        command.env("CARGO_INCREMENTAL", "1").env_remove("RUSTFLAGS").current_dir(bed.join("small"));
        String::from_utf8_lossy(&succeed(command.args(arguments).arg("--offline")).stderr).into_owned()
    };
    assert!(cargo(&["build", "-v"]).contains("Compiling small"));
    let again = cargo(&["build", "-v"]);
    assert!(again.contains("Fresh small") && !again.contains("Running"), "built twice:\n{again}");
    assert_eq!(succeed(&mut Command::new(bed.join("small/target/debug/small"))).stdout, b"42\n");
    // A change is seen, by its time, and only what it touches is built.
    let library = bed.join("small/src/lib.rs");
    let changed = fs::read_to_string(&library).expect("read").replace("MADE + 2", "2 + MADE");
    fs::write(library, changed).expect("written");
    assert!(cargo(&["test", "-q"]).is_empty());
    assert!(cargo(&["build", "-v"]).contains("Fresh small"));
}
