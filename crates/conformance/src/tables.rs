//! Tables that are checked in and say what must come of what: each kind of damage, and what is found
//! of it and done about it.

use std::fs;

/// Writes all that a run found to a file, for people to read.
pub fn keep(found: &str, file: &str) {
    fs::write(file, found).expect("written");
}

/// Compares what a run found with a table: with its lines, but those that begin with `#`. `file` is
/// where all that was found lies.
#[track_caller]
pub fn must_be(table: &str, found: &str, file: &str) {
    let lines = table.lines().filter(|line| !line.starts_with('#'));
    let expected = lines.fold(String::new(), |text, line| text + line + "\n");
    if found == expected {
        return;
    }
    let differs = found.lines().zip(expected.lines()).position(|(found, expected)| found != expected);
    let place = differs.unwrap_or(found.lines().count().min(expected.lines().count()));
    let near =
        |text: &str| text.lines().skip(place.saturating_sub(3)).take(12).collect::<Vec<_>>().join("\n");
    panic!("expected:\n{}\n\nfound:\n{}\n\nall of it: {file}", near(&expected), near(found));
}

#[cfg(test)]
mod tests {
    use super::must_be;

    const TABLE: &str = "# who\none, cut\n  mended\ntwo, cut\n  lost\n";

    #[test]
    fn what_is_as_the_table_says_passes() {
        must_be(TABLE, "one, cut\n  mended\ntwo, cut\n  lost\n", "nowhere");
    }

    #[test]
    fn a_line_that_differs_is_missing_or_is_too_many_is_found() {
        for found in [
            "one, cut\n  lost\ntwo, cut\n  lost\n",
            "one, cut\n  mended\ntwo, cut\n",
            "one, cut\n  mended\ntwo, cut\n  lost\n  lost\n",
            "one, cut\n  mended\ntwo, cut\n  lost",
        ] {
            let compared = std::panic::catch_unwind(|| must_be(TABLE, found, "nowhere"));
            assert!(compared.is_err(), "{found}");
        }
    }
}
