//! What the shell completes: the first word by the commands there are, others by names of the tree.

use std::ffi::OsStr;

use rustyline::completion::{Completer, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context as Line, Helper};
use weft_core::attr::Kind;
use weft_core::form::{Cursor, PageMax, Want};
use weft_core::{Result, Shown};

use crate::context::Context;
use crate::paths::TreePath;

/// What marks a path of the tree where both kinds are possible.
const MARK: &str = "weft:";

/// Completes words.
pub struct Words<'a> {
    context: &'a Context,
    verbs: Vec<String>,
}

impl<'a> Words<'a> {
    /// Knows the commands, and asks the node for names.
    pub fn new(context: &'a Context) -> Self {
        Self { context, verbs: super::verbs() }
    }

    /// Returns what a path may go on with: names of the tree as they are typed.
    fn paths(&self, word: &str) -> Result<Vec<Pair>> {
        let Some(typed) =
            shlex::split(word).and_then(|words| words.into_iter().next().or(Some(String::new())))
        else {
            return Ok(Vec::new());
        };
        let (mark, path) = match typed.strip_prefix(MARK) {
            Some(path) => (MARK, path),
            None => ("", typed.as_str()),
        };
        let (dir, begun) = path.rfind('/').map_or(("", path), |at| path.split_at(at + 1));
        let dir_path = TreePath::read(OsStr::new(if dir.is_empty() { "./" } else { dir }))?;
        let page = self.context.wait(async {
            let client = self.context.client().await?;
            let want = Want { attr: false, rights: false };
            client.fs().list(&client.call(), &dir_path.at(), Cursor::ByName, PageMax::MAX, want).await
        })?;
        let mut pairs = Vec::new();
        for entry in page.entries {
            // What is no text cannot be typed here.
            let Ok(name) = std::str::from_utf8(entry.name.as_bytes()) else { continue };
            if !name.starts_with(begun) || name.contains(char::is_control) {
                continue;
            }
            let slash = if entry.kind == Kind::Directory { "/" } else { "" };
            let replacement = format!("{mark}{}{}{slash}", escaped(dir), escaped(name));
            pairs.push(Pair { display: format!("{}{slash}", Shown(name.as_bytes())), replacement });
        }
        Ok(pairs)
    }
}

/// Returns where the word that is typed begins: behind the last blank that is not taken literally.
fn word_at(line: &str) -> usize {
    let (mut begin, mut escaped, mut quote) = (0, false, None);
    for (at, letter) in line.char_indices() {
        match (quote, letter) {
            _ if escaped => escaped = false,
            (None | Some('"'), '\\') => escaped = true,
            (Some(open), _) if open == letter => quote = None,
            (None, '\'' | '"') => quote = Some(letter),
            (None, ' ' | '\t') => begin = at + 1,
            _ => {}
        }
    }
    begin
}

/// Returns a name as it is typed without quotes.
fn escaped(name: &str) -> String {
    let mut typed = String::new();
    for letter in name.chars() {
        if letter.is_ascii() && !letter.is_ascii_alphanumeric() && !"/._-+,:@%=".contains(letter) {
            typed.push('\\');
        }
        typed.push(letter);
    }
    typed
}

impl Completer for Words<'_> {
    type Candidate = Pair;

    fn complete(&self, line: &str, at: usize, _: &Line<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let begin = word_at(&line[..at]);
        let word = &line[begin..at];
        if line[..begin].trim().is_empty() {
            let begun = self.verbs.iter().filter(|verb| verb.starts_with(word));
            let pair = |verb: &String| Pair { display: verb.clone(), replacement: format!("{verb} ") };
            return Ok((begin, begun.map(pair).collect()));
        }
        // Where the node does not answer, nothing is completed.
        Ok((begin, self.paths(word).unwrap_or_default()))
    }
}

impl Hinter for Words<'_> {
    type Hint = String;
}

impl Highlighter for Words<'_> {}
impl Validator for Words<'_> {}
impl Helper for Words<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_begins_behind_the_last_blank_that_means_one() {
        for (line, word) in [
            ("ls /a", "/a"),
            ("ls ", ""),
            (r"ls a\ b", r"a\ b"),
            (r#"cp "a b"#, r#""a b"#),
            ("ls 'a b' c", "c"),
        ] {
            assert_eq!(&line[word_at(line)..], word, "{line}");
        }
    }

    #[test]
    fn what_is_completed_is_one_word_of_the_same_name() {
        for name in
            ["plain.txt", "two words", "it's", "a\"b", "back\\slash", "$HOME", "#1", "ä b", "*?[]", "~x"]
        {
            assert_eq!(shlex::split(&escaped(name)), Some(vec![name.to_owned()]), "{name}");
        }
    }
}
