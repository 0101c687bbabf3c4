//! Caps: lines of a file, lines of a function, bytes of a blob.

use crate::finding::Finding;
use crate::source;
use crate::tree::Tree;

/// Lines of one source file.
const FILE_LINES_MAX: usize = 800;
/// Lines of one function, from `fn` to its closing brace.
const FUNCTION_LINES_MAX: usize = 100;
/// Bytes of one file in the repository.
const BLOB_BYTES_MAX: usize = 200 << 10;
/// What people read and change, by extension.
const SOURCES: &[&str] = &["rs", "py", "c", "h", "sh", "js", "ts", "css", "html"];

/// No source file is longer than its cap.
pub fn files(tree: &Tree) -> Vec<Finding> {
    let sources = tree.files().iter().filter(|file| SOURCES.contains(&file.extension()));
    let counted = sources.filter_map(|file| Some((file, file.text()?.lines().count())));
    let long = counted.filter(|(_, lines)| *lines > FILE_LINES_MAX);
    long.map(|(file, lines)| {
        Finding::file(
            &file.path,
            "file-lines",
            format!("{lines} lines; the cap is {FILE_LINES_MAX}: split it"),
        )
    })
    .collect()
}

/// No function is longer than its cap.
pub fn functions(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.rust() {
        for function in source::functions(&source::code(text)) {
            if function.lines > FUNCTION_LINES_MAX {
                let what = format!(
                    "{} has {} lines; the cap is {FUNCTION_LINES_MAX}",
                    function.name, function.lines
                );
                found.push(Finding::line(path, function.line, "function-lines", what));
            }
        }
    }
    found
}

/// No file is so big that history should not carry it. Lock files are exempt.
pub fn blobs(tree: &Tree) -> Vec<Finding> {
    let big =
        tree.files().iter().filter(|file| file.bytes.len() > BLOB_BYTES_MAX && file.extension() != "lock");
    big.map(|file| {
        let what = format!("{} bytes; the cap is {BLOB_BYTES_MAX}: generate or fetch it", file.bytes.len());
        Finding::file(&file.path, "blob", what)
    })
    .collect()
}
