//! Rules about lines of text.

use crate::finding::Finding;
use crate::source;
use crate::tree::{File, Tree};

/// Lines of the essay that opens a crate.
const ESSAY_LINES_MIN: usize = 6;
/// A screen.
const ESSAY_LINES_MAX: usize = 60;
/// Whose exact bytes matter: fuzz corpora and recorded snapshots.
const EXACT: &[&str] = &["/corpus/", "/snapshots/"];
/// Paths of somebody's machine. Split, so that this file does not name them.
const MACHINE: &[&str] =
    &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/Us", "ers/")];
/// Hosts of package registries and mirrors.
const HOSTS: &[&str] = &[
    concat!("crates", ".io"),
    concat!("pypi", ".org"),
    concat!("pythonhosted", ".org"),
    concat!("debian", ".org"),
    concat!("ubuntu", ".com"),
    concat!("npmjs", ".org"),
    concat!("golang", ".org"),
    concat!("maven", ".org"),
];

/// No line ends in a blank, and a text ends with one line end.
pub fn whitespace(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (file, text) in texts(tree) {
        let blanks = text.split('\n').enumerate().filter(|(_, line)| line.ends_with([' ', '\t', '\r']));
        found.extend(
            blanks.map(|(at, _)| Finding::line(&file.path, at + 1, "whitespace", "the line ends in a blank")),
        );
        if !text.is_empty() && (!text.ends_with('\n') || text.ends_with("\n\n")) {
            found.push(Finding::file(&file.path, "whitespace", "the file must end with one line end"));
        }
    }
    found
}

/// No open ends: nothing marked to be fixed, and what is to be done names its issue.
pub fn open_ends(tree: &Tree) -> Vec<Finding> {
    const FIX: &str = concat!("FIX", "ME");
    const LATER: &str = concat!("TO", "DO");
    let mut found = Vec::new();
    for (file, text) in texts(tree).filter(|(file, _)| file.extension() != "md") {
        for (at, line) in text.lines().enumerate() {
            if line.contains(FIX) {
                found.push(Finding::line(&file.path, at + 1, "open-end", format!("{FIX} cannot merge")));
            }
            let unnamed =
                line.match_indices(LATER).any(|(start, _)| !names_issue(&line[start + LATER.len()..]));
            if unnamed {
                found.push(Finding::line(&file.path, at + 1, "open-end", format!("write {LATER}(#issue)")));
            }
        }
    }
    found
}

/// Whether `rest` begins with an issue's number in brackets: `(#12)`.
fn names_issue(rest: &str) -> bool {
    let inside = rest.strip_prefix("(#").and_then(|rest| rest.split_once(')'));
    inside.is_some_and(|(number, _)| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// No path of one machine, no registry's host. Cargo's own lock file is exempt.
pub fn places(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (file, text) in texts(tree).filter(|(file, _)| file.path != "Cargo.lock") {
        for (at, line) in text.lines().enumerate() {
            if let Some(path) = MACHINE.iter().find(|path| absolute(line, path)) {
                found.push(Finding::line(
                    &file.path,
                    at + 1,
                    "place",
                    format!("{path} is a path of one machine"),
                ));
            }
            if let Some(host) = HOSTS.iter().find(|host| line.contains(*host)) {
                found.push(Finding::line(
                    &file.path,
                    at + 1,
                    "place",
                    format!("{host} is a registry's host"),
                ));
            }
        }
    }
    found
}

/// Whether `line` has `path` where a path begins, not inside a longer one.
fn absolute(line: &str, path: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.}>$~*".contains(&byte);
    line.match_indices(path).any(|(at, _)| at == 0 || !inside(line.as_bytes()[at - 1]))
}

/// Product code does not unwrap, and an `expect` says why it holds.
pub fn unwraps(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.rust().filter(|(path, _)| is_product(path)) {
        let code = source::product(&source::code(text));
        for (at, word) in source::words(&code) {
            let called = code[..at].trim_end().ends_with('.') && code[at + word.len()..].starts_with('(');
            let line = source::line_of(&code, at);
            if called && matches!(word, "unwrap" | "unwrap_err") {
                found.push(Finding::line(
                    path,
                    line,
                    "unwrap",
                    "return the error, or `expect(\"why this holds\")`",
                ));
            }
            let bare = word == "expect" && text[at + word.len()..].starts_with("(\"\")");
            if called && bare {
                found.push(Finding::line(path, line, "unwrap", "an `expect` says why it holds"));
            }
        }
    }
    found
}

fn is_product(path: &str) -> bool {
    let tests = ["/tests/", "/benches/", "/examples/", "/fuzz/"];
    path.starts_with("crates/")
        && !path.ends_with("/tests.rs")
        && !tests.iter().any(|part| path.contains(part))
}

/// Every crate opens with an essay of at most a screen.
pub fn essays(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (manifest, _) in tree.manifests() {
        let folder = manifest.trim_end_matches("Cargo.toml");
        let roots = ["src/lib.rs", "src/main.rs"].map(|root| format!("{folder}{root}"));
        let Some((path, text)) = roots.iter().find_map(|root| Some((root, tree.text(root)?))) else {
            continue;
        };
        let lines = text.lines().take_while(|line| line.starts_with("//!")).count();
        if !(ESSAY_LINES_MIN..=ESSAY_LINES_MAX).contains(&lines) {
            let what = format!(
                "opens with an essay of {lines} lines; {ESSAY_LINES_MIN} to {ESSAY_LINES_MAX} say the problem, the shape, what was rejected and how to get it wrong"
            );
            found.push(Finding::file(path, "essay", what));
        }
    }
    found
}

fn texts(tree: &Tree) -> impl Iterator<Item = (&File, &str)> {
    let exact = |file: &&File| !EXACT.iter().any(|part| file.path.contains(part));
    tree.files().iter().filter(exact).filter_map(|file| Some((file, file.text()?)))
}
