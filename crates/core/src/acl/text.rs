//! An ACL as text, for whoever edits it whole:
//!
//! ```text
//!   edition 5f1c0f7c90d4a1e2b6f3c1d2e3f4a5b6
//!   allow alice all
//!   deny group:bob/team@DOMAIN write when until 1767225600 and network 10.0.0.0/8
//! ```
//!
//! The first line is put there by whoever shows the text, and tells which ACL was edited. What is
//! written reads back as the same entries, times to the second. Words are set apart by white space, so
//! the name and value of a condition on an attribute have theirs as `%20`, and whatever else is no plain
//! letter, digit or sign in the same way.

use std::fmt::Write;
use std::str::SplitAsciiWhitespace;

use super::{Acl, AclEntry, Condition, Effect, Who};
use crate::error::{Error, Result};
use crate::id::DomainId;
use crate::rights::Rights;
use crate::time::Time;

/// What the text of an ACL says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edited {
    /// Which ACL was edited, if the text says it: what stood there when it was read.
    pub edition: Option<u128>,
    /// The entries, in their order.
    pub entries: Vec<AclEntry>,
}

impl Acl {
    /// Returns the ACL as text, as someone of `home` reads it; without a home all names are whole.
    pub fn text(&self, edition: u128, home: Option<DomainId>) -> String {
        let mut text = format!("edition {edition:032x}\n");
        for entry in &self.entries {
            let who = home.map_or_else(|| entry.who.to_string(), |home| entry.who.seen_from(home));
            // Writing to a string does not fail.
            let _ = write!(text, "{} {who} {}", entry.effect.name(), entry.rights);
            for (place, condition) in entry.when.iter().enumerate() {
                let word = if place == 0 { "when" } else { "and" };
                let _ = write!(text, " {word} {}", said(condition));
            }
            text.push('\n');
        }
        text
    }
}

impl Edited {
    /// Reads the text of an ACL as someone of `home` writes it. Empty lines say nothing. Fails with
    /// `Invalid`, and names the line.
    pub fn read(text: &str, home: DomainId) -> Result<Self> {
        let mut edited = Self { edition: None, entries: Vec::new() };
        for (number, line) in (1..).zip(text.lines()) {
            edited.take(line, home).map_err(|error| {
                let hint = "a line is `allow WHO RIGHTS` or `deny WHO RIGHTS`, then perhaps `when CONDITION`";
                let detail = error.detail().to_owned();
                Error::invalid(format!("line {number}: {detail}")).hint(error.advice().unwrap_or(hint))
            })?;
        }
        Ok(edited)
    }

    fn take(&mut self, line: &str, home: DomainId) -> Result<()> {
        let mut words = line.split_ascii_whitespace();
        let effect = match words.next() {
            None => return Ok(()),
            Some("edition") if self.edition.is_none() => {
                let edition = u128::from_str_radix(next(&mut words, "which edition")?, 16);
                self.edition = Some(edition.map_err(|_| Error::invalid("the edition is none"))?);
                return end(&mut words);
            }
            Some("allow") => Effect::Allow,
            Some("deny") => Effect::Deny,
            Some(_) => return Err(Error::invalid("it begins with neither `allow` nor `deny`")),
        };
        let who = Who::parse(next(&mut words, "whom it speaks of")?, home)?;
        let rights = Rights::parse(next(&mut words, "rights")?)?;
        let when = conditions(&mut words)?;
        self.entries.push(AclEntry { who, effect, rights, when });
        Ok(())
    }
}

fn next<'a>(words: &mut SplitAsciiWhitespace<'a>, what: &str) -> Result<&'a str> {
    words.next().ok_or_else(|| Error::invalid(format!("it ends before it says {what}")))
}

fn time(words: &mut SplitAsciiWhitespace<'_>) -> Result<Time> {
    let bad = || Error::invalid("a time is a number of seconds since 1970");
    let seconds = next(words, "a time")?.parse().map_err(|_| bad())?;
    // Later than the last time there is would be that one.
    Some(Time::from_unix(seconds, 0)).filter(|time| time.seconds() == seconds).ok_or_else(bad)
}

fn end(words: &mut SplitAsciiWhitespace<'_>) -> Result<()> {
    words.next().map_or(Ok(()), |word| Err(Error::invalid(format!("`{word}` is more than it may say"))))
}

fn conditions(words: &mut SplitAsciiWhitespace<'_>) -> Result<Vec<Condition>> {
    let mut when = Vec::new();
    while let Some(word) = words.next() {
        if word != if when.is_empty() { "when" } else { "and" } {
            return Err(Error::invalid(format!("`{word}` is more than it may say")));
        }
        when.push(condition(words)?);
    }
    Ok(when)
}

fn condition(words: &mut SplitAsciiWhitespace<'_>) -> Result<Condition> {
    let word = next(words, "a condition")?;
    Ok(match word {
        "from" => Condition::From(time(words)?),
        "until" => Condition::Until(time(words)?),
        "network" => Condition::Network(next(words, "a network")?.parse()?),
        "organisation" => Condition::Organisation(next(words, "a domain")?.parse()?),
        "attribute" => {
            let (name, value) = next(words, "an attribute")?
                .split_once('=')
                .ok_or_else(|| Error::invalid("an attribute is NAME=VALUE"))?;
            Condition::Attribute { name: plain(name)?, value: plain(value)? }
        }
        _ => return Err(Error::invalid(format!("`{word}` is no condition"))),
    })
}

/// Shows a condition in two words.
fn said(condition: &Condition) -> String {
    match condition {
        Condition::Attribute { name, value } => format!("attribute {}={}", coded(name), coded(value)),
        other => other.to_string(),
    }
}

fn coded(text: &str) -> String {
    let mut coded = String::with_capacity(text.len());
    for byte in text.bytes() {
        // Shells and `setfattr` have a use for some.
        if byte.is_ascii_graphic() && !matches!(byte, b'%' | b'=' | b'\\' | b'"' | b'\'') {
            coded.push(char::from(byte));
        } else {
            let _ = write!(coded, "%{byte:02x}");
        }
    }
    coded
}

fn plain(coded: &str) -> Result<String> {
    let bad = || Error::invalid("a `%` is followed by two hexadecimal digits of UTF-8");
    let (mut bytes, mut rest) = (Vec::with_capacity(coded.len()), coded.as_bytes());
    while let [first, after @ ..] = rest {
        let escaped = *first == b'%';
        bytes.push(if escaped { code(after).ok_or_else(bad)? } else { *first });
        rest = if escaped { &after[2..] } else { after };
    }
    String::from_utf8(bytes).map_err(|_| bad())
}

/// Returns the byte that two hexadecimal digits stand for.
fn code(digits: &[u8]) -> Option<u8> {
    let digits = digits.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caller::CallerName;

    const HOME: DomainId = DomainId([1; 32]);
    const OTHER: DomainId = DomainId([2; 32]);

    fn name(text: &str) -> Who {
        Who::Caller(CallerName::parse(text, HOME).expect("a name"))
    }

    #[test]
    fn what_is_written_reads_back_as_the_same() {
        let attribute =
            |name: &str, value: &str| Condition::Attribute { name: name.into(), value: value.into() };
        let entries = vec![
            AclEntry::allow(name("alice"), Rights::ALL),
            AclEntry::deny(name(&format!("group:bob/team@{OTHER}")), Rights::WRITE | Rights::READ),
            AclEntry::allow(Who::Anyone, Rights::NONE),
            AclEntry {
                when: vec![
                    Condition::From(Time::from_unix(-5, 0)),
                    Condition::Until(Time::from_unix(7, 0)),
                    Condition::Network("fe80::/10".parse().expect("a network")),
                    Condition::Organisation(OTHER),
                    attribute("unit and=so", "a % b\\101\nallow \"anyone\" all\u{e9}"),
                    attribute("", ""),
                ],
                ..AclEntry::allow(Who::Domain(OTHER), Rights::READING)
            },
        ];
        let acl = Acl { version: 7, entries };
        for home in [Some(HOME), Some(OTHER), None] {
            let text = acl.text(7, home);
            assert!(!text.contains(['\\', '"']), "{text}");
            assert_eq!(text.lines().count(), 5, "{text}");
            let edited = Edited::read(&text, home.unwrap_or(HOME)).expect(&text);
            assert_eq!(edited, Edited { edition: Some(7), entries: acl.entries.clone() }, "{text}");
        }
    }

    #[test]
    fn what_is_no_acl_is_refused_by_its_line() {
        let lines = [
            "permit alice read",
            "allow",
            "allow alice",
            "allow alice fly",
            "allow a/b read",
            "allow alice read soon",
            "allow alice read when",
            "allow alice read when noon",
            "allow alice read when until tomorrow",
            "allow alice read when until 7 when from 5",
            "allow alice read when until 7 and",
            "allow alice read when attribute unit",
            "allow alice read when attribute unit=%f",
            "allow alice read when attribute unit=%ff",
            "allow alice read when attribute unit=%+1",
            "allow alice read when until 9223372036854775807",
            "edition",
            "edition none",
            "edition 7 8",
            "edition 7",
        ];
        for line in lines {
            let error = Edited::read(&format!("edition 3\n\n{line}\n"), HOME).expect_err(line);
            assert!(error.detail().starts_with("line 3: "), "{line}: {error}");
            assert!(error.advice().is_some(), "{line}");
        }
        let nothing = Edited { edition: None, entries: Vec::new() };
        assert_eq!(Edited::read("\n \n", HOME).expect("nothing is said"), nothing);
    }
}
