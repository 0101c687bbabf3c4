//! Names that say nothing.

use crate::finding::Finding;
use crate::source;
use crate::tree::Tree;

/// Banned as a module, folder or type name, alone or as a type's last word.
const EMPTY: &[&str] = &["util", "utils", "common", "helper", "helpers", "misc", "manager", "info", "data"];
/// Keywords that are followed by the name of a type.
const TYPE_KEYWORDS: &[&str] = &["struct", "enum", "union", "trait", "type"];

/// No module, source file or folder has a name that says nothing.
pub fn modules(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.rust() {
        let parts = path.trim_end_matches(".rs").split('/');
        for part in parts.filter(|part| EMPTY.contains(part)) {
            found.push(Finding::file(path, "name", format!("`{part}` says nothing: name what it holds")));
        }
        let code = source::code(text);
        found.extend(after(&code, &["mod"], |name| EMPTY.contains(&name)).map(|(line, name)| {
            Finding::line(path, line, "name", format!("module `{name}` says nothing: name what it holds"))
        }));
    }
    found
}

/// No type has a name that says nothing, alone or as its last word.
pub fn types(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.rust() {
        let code = source::code(text);
        let empty = |name: &str| EMPTY.contains(&last_word(name).as_str());
        found.extend(after(&code, TYPE_KEYWORDS, empty).map(|(line, name)| {
            Finding::line(path, line, "name", format!("type `{name}` says nothing: name what it is"))
        }));
    }
    found
}

/// Returns line and name wherever one of `keywords` is followed by a name that `bad` rejects.
fn after<'a>(
    code: &'a str,
    keywords: &'a [&str],
    bad: impl Fn(&str) -> bool + 'a,
) -> impl Iterator<Item = (usize, &'a str)> {
    let pairs = source::words(code).zip(source::words(code).skip(1));
    let named = pairs.filter(|((_, keyword), _)| keywords.contains(keyword));
    let bad = named.filter(move |(_, (_, name))| bad(name));
    bad.map(|(_, (at, name))| (source::line_of(code, at), name))
}

/// Returns the last word of a camel-case name in lower case.
fn last_word(name: &str) -> String {
    let start = name.rfind(char::is_uppercase).unwrap_or(0);
    name[start..].to_lowercase()
}
