//! Rust sources as the rules see them: comments and literals blanked, every byte
//! and line in its place.

/// Returns `text` with comments, strings and character literals overwritten by
/// spaces. Lines stay where they are.
pub fn code(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = literal_end(&bytes, at);
        if end > at {
            blank(&mut bytes[at..end]);
            at = end;
        } else {
            at = next_token(&bytes, at);
        }
    }
    String::from_utf8(bytes).expect("only whole literals were overwritten, and with ASCII")
}

/// Returns `code` with every item under `#[cfg(test)]` overwritten by spaces.
pub fn product(code: &str) -> String {
    let mut bytes = code.as_bytes().to_vec();
    let mut from = 0;
    while let Some(found) = code[from..].find("#[cfg(test)]") {
        let start = from + found;
        let end = item_end(code.as_bytes(), start);
        blank(&mut bytes[start..end]);
        from = end;
    }
    String::from_utf8(bytes).expect("items begin and end at ASCII")
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The line of its `fn`, from 1.
    pub line: usize,
    /// Lines from its `fn` to its closing brace.
    pub lines: usize,
}

/// Returns the functions with bodies in blanked code, closures left out.
pub fn functions(code: &str) -> Vec<Function> {
    let bytes = code.as_bytes();
    let mut found = Vec::new();
    for (start, word) in words(code) {
        if word != "fn" {
            continue;
        }
        let Some((_, name)) = words(&code[start + 2..]).next() else { continue };
        let named = code[start + 2..].trim_start().starts_with(name);
        let end = item_end(bytes, start);
        if named && end > start && bytes[end - 1] == b'}' {
            let line = line_of(code, start);
            found.push(Function { name: name.to_owned(), line, lines: line_of(code, end - 1) - line + 1 });
        }
    }
    found
}

/// Returns the identifiers and keywords of blanked code with their byte positions.
pub fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + code[at..].find(is_word)?;
        at = code[start..].find(|c| !is_word(c)).map_or(code.len(), |length| start + length);
        Some((start, &code[start..at]))
    })
}

/// Returns the line, from 1, of the byte at `position`.
pub fn line_of(text: &str, position: usize) -> usize {
    text.as_bytes()[..position].iter().filter(|byte| **byte == b'\n').count() + 1
}

fn blank(bytes: &mut [u8]) {
    for byte in bytes {
        if *byte != b'\n' {
            *byte = b' ';
        }
    }
}

/// Returns where the comment or literal that starts at `at` ends, or `at`.
fn literal_end(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    match rest {
        [b'/', b'/', ..] => at + rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()),
        [b'/', b'*', ..] => at + block_comment(rest),
        [b'"', ..] => at + quoted(rest),
        [b'b' | b'c', b'"', ..] => at + 1 + quoted(&rest[1..]),
        [b'r', b'"' | b'#', ..] => at + raw(rest, 1),
        [b'b' | b'c', b'r', b'"' | b'#', ..] => at + raw(rest, 2),
        [b'\'', ..] => at + character(rest),
        _ => at,
    }
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] if depth == 1 => return at + 2,
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
    }
    rest.len()
}

fn quoted(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// `rest[hashes_at..]` is `#…#"` of a raw string; zero if it is no raw string
/// (`r#type` is an identifier).
fn raw(rest: &[u8], hashes_at: usize) -> usize {
    let hashes = rest[hashes_at..].iter().take_while(|byte| **byte == b'#').count();
    let open = hashes_at + hashes;
    if rest.get(open) != Some(&b'"') {
        return 0;
    }
    let close: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    let body = &rest[open + 1..];
    let length = body.windows(close.len()).position(|window| window == close);
    length.map_or(rest.len(), |length| open + 1 + length + close.len())
}

/// Zero for a lifetime.
fn character(rest: &[u8]) -> usize {
    match rest {
        [_, b'\\', _, tail @ ..] => {
            3 + tail.iter().position(|byte| *byte == b'\'').map_or(tail.len(), |length| length + 1)
        }
        [_, first, ..] => {
            let width = 1 + first.leading_ones().saturating_sub(1) as usize;
            if rest.get(1 + width) == Some(&b'\'') { width + 2 } else { 0 }
        }
        _ => 0,
    }
}

/// Returns the position after the identifier, number or single byte at `at`: a
/// letter inside a word must not be taken for a string's prefix.
fn next_token(bytes: &[u8], at: usize) -> usize {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_' || *byte >= 0x80;
    let length = bytes[at..].iter().take_while(|byte| is_word(byte)).count();
    at + length.max(1)
}

/// Returns the position after the item that starts at `at`: after its first `;`
/// outside brackets, or after the `}` that closes its first brace.
fn item_end(bytes: &[u8], at: usize) -> usize {
    let (mut round, mut braces) = (0_i32, 0_i32);
    for (place, byte) in bytes.iter().enumerate().skip(at) {
        match byte {
            b'(' | b'[' => round += 1,
            b')' | b']' => round -= 1,
            b'{' => braces += 1,
            b'}' if braces <= 1 => return place + 1,
            b'}' => braces -= 1,
            b';' if round == 0 && braces == 0 => return place + 1,
            _ => {}
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_strings_and_characters_are_blanked_and_lifetimes_kept() {
        let text = "let a = \"unsafe {\"; // unsafe\nlet b = r#\"un\"safe\"#; /* a /* b */ c */ fn f<'a>(x: &'a u8) { '{'; '\\''; 'ü' }";
        let code = code(text);
        assert_eq!(code.len(), text.len());
        assert!(!code.contains("safe") && !code.contains('c') && !code.contains('ü'), "{code}");
        assert!(code.contains("fn f<'a>(x: &'a u8) {") && code.ends_with('}'), "{code}");
        assert_eq!(code.matches('{').count(), 1);
    }

    #[test]
    fn a_raw_identifier_is_no_string() {
        assert_eq!(code("let r#type = x;"), "let r#type = x;");
    }

    #[test]
    fn items_under_cfg_test_are_no_product() {
        let code = "fn a() {}\n#[cfg(test)]\nmod tests { fn b() { x[1]; } }\nfn c() {}\n#[cfg(test)]\nmod more;\nfn d() {}";
        let product = product(code);
        assert!(product.contains("fn a") && product.contains("fn c") && product.contains("fn d"));
        assert!(!product.contains("fn b") && !product.contains("mod"));
    }

    #[test]
    fn functions_are_measured_from_fn_to_closing_brace() {
        let code = "trait T { fn none(&self, x: [u8; 3]); }\nfn two() -> [u8; 2]\n{\n  if x { y }\n}\ntype F = fn(u8);\nfn one() {}";
        let found: Vec<_> = functions(code).into_iter().map(|f| (f.name, f.line, f.lines)).collect();
        assert_eq!(found, [("two".to_owned(), 2, 4), ("one".to_owned(), 7, 1)]);
    }
}
