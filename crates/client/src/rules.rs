//! Which files of a tree are left out of a copy: rules as `rsync` writes them.
//!
//! The first rule whose pattern matches decides; what none matches is taken. What lies below a
//! directory that is left out is not looked at. A pattern
//!
//! - with `/` in front matches from the top of the tree, else at the end of a path;
//! - with `/` behind matches directories only;
//! - without any other `/` and without `**` is compared with the last name alone;
//! - knows `*` (any bytes but `/`), `**` (any bytes), `?` (one byte but `/`), `[a-z]`, `[!a-z]` and `\` before
//!   a byte that is to mean itself; `dir/***` is the directory and all that is in it.

use weft_core::{Error, Result, limits};

/// Rules, the first that matches before the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules(Vec<Rule>);

/// What becomes of what a pattern matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is taken.
    Include,
    /// It is left out.
    Exclude,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    verdict: Verdict,
    pattern: Vec<u8>,
    /// From the top.
    anchored: bool,
    directories_only: bool,
    /// Compared with paths, not with names.
    of_paths: bool,
    /// With all that is in it.
    and_below: bool,
}

impl Rules {
    /// Adds a rule behind those there are. Fails with `Invalid` for an empty pattern, and with `TooLong`
    /// for one longer than a path, or for more rules than [`limits::RULES_MAX`].
    pub fn add(&mut self, verdict: Verdict, pattern: &[u8]) -> Result<()> {
        if self.0.len() >= limits::RULES_MAX {
            return Err(Error::new(weft_core::ErrorKind::TooLong, "there are too many rules"));
        }
        self.0.push(Rule::read(verdict, pattern)?);
        Ok(())
    }

    /// Adds the rules of a file: a pattern a line, `+ ` or `- ` before it saying which it is, else it is
    /// `usual`. Empty lines, and those that begin with `#` or `;`, say nothing.
    pub fn add_lines(&mut self, usual: Verdict, text: &[u8]) -> Result<()> {
        for line in text.split(|byte| *byte == b'\n') {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let (verdict, pattern) = match line {
                [] | [b'#' | b';', ..] => continue,
                [b'+', b' ', pattern @ ..] => (Verdict::Include, pattern),
                [b'-', b' ', pattern @ ..] => (Verdict::Exclude, pattern),
                pattern => (usual, pattern),
            };
            self.add(verdict, pattern)?;
        }
        Ok(())
    }

    /// Returns whether something is left out, by its path below the top.
    pub fn leaves_out(&self, path: &[u8], is_directory: bool) -> bool {
        let decided = self.0.iter().find(|rule| rule.matches(path, is_directory));
        decided.is_some_and(|rule| rule.verdict == Verdict::Exclude)
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Rule {
    fn read(verdict: Verdict, text: &[u8]) -> Result<Self> {
        let (text, and_below) = match text.strip_suffix(b"/***") {
            Some(above) => (above, true),
            None => (text, false),
        };
        let (text, anchored) = match text.strip_prefix(b"/") {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let (text, slash) = match text.strip_suffix(b"/") {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        if text.is_empty() {
            return Err(Error::invalid("a pattern matches nothing"));
        }
        if text.len() > limits::PATH_BYTES_MAX {
            return Err(Error::new(weft_core::ErrorKind::TooLong, "a pattern is longer than a path"));
        }
        let of_paths = text.contains(&b'/') || text.windows(2).any(|two| two == b"**");
        let directories_only = slash || and_below;
        Ok(Self { verdict, pattern: text.to_vec(), anchored, directories_only, of_paths, and_below })
    }

    fn matches(&self, path: &[u8], is_directory: bool) -> bool {
        if self.and_below {
            // Itself a directory, or below one that matches.
            let above = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
            if above.map(|(end, _)| &path[..end]).any(|dir| self.matches_itself(dir)) {
                return true;
            }
        }
        (is_directory || !self.directories_only) && self.matches_itself(path)
    }

    fn matches_itself(&self, path: &[u8]) -> bool {
        if self.anchored {
            return glob(&self.pattern, path);
        }
        if !self.of_paths {
            let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
            return glob(&self.pattern, name);
        }
        if self.pattern.starts_with(b"**") {
            // What stands before the first name is a `/`, too.
            return glob(&self.pattern, &[b"/", path].concat());
        }
        // At the end of the path, from any name on.
        let starts = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at + 1);
        std::iter::once(0).chain(starts).any(|at| glob(&self.pattern, &path[at..]))
    }
}

/// What a pattern's next element is.
enum Element<'a> {
    /// These bytes and no others, or the one given.
    One(One<'a>),
    /// Any number of bytes, `/` among them or not.
    Star { slashes: bool },
}

enum One<'a> {
    Byte(u8),
    Any,
    Set { members: &'a [u8], negated: bool },
}

/// Matches all of a text. On a mismatch the last `*`, or else the last `**`, takes one byte more, so
/// the time is bounded by the square of the text's length times the pattern's.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where the pattern goes on behind each, and where in the text.
    let mut star: Option<(usize, usize)> = None;
    let mut wide: Option<(usize, usize)> = None;
    loop {
        match next(&pattern[p..]) {
            None if t == text.len() => return true,
            Some((Element::Star { slashes }, length)) => {
                p += length;
                if slashes {
                    (wide, star) = (Some((p, t)), None);
                } else {
                    star = Some((p, t));
                }
                continue;
            }
            Some((Element::One(one), length)) if t < text.len() && one.takes(text[t]) => {
                (p, t) = (p + length, t + 1);
                continue;
            }
            _ => {}
        }
        match (&mut star, &mut wide) {
            (Some((after, from)), _) if *from < text.len() && text[*from] != b'/' => {
                *from += 1;
                (p, t) = (*after, *from);
            }
            (_, Some((after, from))) if *from < text.len() => {
                *from += 1;
                (p, t) = (*after, *from);
                star = None;
            }
            _ => return false,
        }
    }
}

/// Returns the element at the beginning of a pattern, and its length.
fn next(pattern: &[u8]) -> Option<(Element<'_>, usize)> {
    Some(match pattern {
        [] => return None,
        [b'*', b'*', ..] => {
            let length = pattern.iter().take_while(|byte| **byte == b'*').count();
            (Element::Star { slashes: true }, length)
        }
        [b'*', ..] => (Element::Star { slashes: false }, 1),
        [b'?', ..] => (Element::One(One::Any), 1),
        [b'\\', byte, ..] => (Element::One(One::Byte(*byte)), 2),
        [b'[', rest @ ..] => match set(rest) {
            Some((members, negated, length)) => (Element::One(One::Set { members, negated }), length + 1),
            // One that nothing closes means itself.
            None => (Element::One(One::Byte(b'[')), 1),
        },
        [byte, ..] => (Element::One(One::Byte(*byte)), 1),
    })
}

/// Returns the members of a set behind its `[`, whether it is what is not in them, and its length. A
/// `]` in front is a member.
fn set(rest: &[u8]) -> Option<(&[u8], bool, usize)> {
    let negated = matches!(rest.first(), Some(b'!' | b'^'));
    let begin = usize::from(negated);
    let end = rest.iter().skip(begin + 1).position(|byte| *byte == b']')? + begin + 1;
    Some((&rest[begin..end], negated, end + 1))
}

impl One<'_> {
    fn takes(&self, byte: u8) -> bool {
        match self {
            Self::Byte(own) => *own == byte,
            Self::Any => byte != b'/',
            Self::Set { members, negated } => byte != b'/' && in_set(members, byte) != *negated,
        }
    }
}

fn in_set(members: &[u8], byte: u8) -> bool {
    let mut rest = members;
    loop {
        rest = match rest {
            [] => return false,
            [first, b'-', last, more @ ..] => {
                if (*first..=*last).contains(&byte) {
                    return true;
                }
                more
            }
            [own, more @ ..] => {
                if *own == byte {
                    return true;
                }
                more
            }
        };
    }
}

#[cfg(test)]
mod tests;
