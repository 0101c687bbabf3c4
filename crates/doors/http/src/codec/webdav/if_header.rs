//! The `If` field (RFC 4918, 10.4): lists of conditions, one of which must hold.

use weft_core::limits;
use weft_core::name_locks::LockToken;

use super::fields::{Pointed, pointed};
use crate::codec::{Refusal, trim};

/// The field, read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct If {
    /// The lists: the field holds if one of them does.
    pub lists: Vec<List>,
}

/// Conditions of one resource, all of which must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// The resource; the request's own if none is named.
    pub of: Option<Pointed>,
    /// The conditions: at least one.
    pub conditions: Vec<Condition>,
}

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Whether it must not be so.
    pub not: bool,
    /// What it says of the resource.
    pub state: State,
}

/// What a condition says of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It is locked, and this is the lock's token. `None`: a token that is no lock's here.
    Locked(Option<LockToken>),
    /// It has this entity tag: whether that is weak, and the tag with its quotes.
    Tag(bool, String),
}

const MALFORMED: Refusal = Refusal::malformed("If is malformed");

impl If {
    /// Reads the field's value.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let mut rest = trim(text);
        let (mut lists, mut of) = (Vec::new(), None);
        // Either every list has its resource named before it, or none has (10.4.2).
        let is_tagged = rest.starts_with('<');
        let mut is_named = false;
        while !rest.is_empty() {
            if rest.starts_with('<') {
                if !is_tagged || is_named {
                    return Err(MALFORMED);
                }
                let (address, after) = until(&rest[1..], '>')?;
                (of, rest, is_named) = (Some(pointed(address)?), trim(after), true);
                continue;
            }
            let (conditions, after) = conditions(rest.strip_prefix('(').ok_or(MALFORMED)?)?;
            if lists.len() >= limits::DAV_IF_LISTS_MAX {
                return Err(Refusal::malformed("If has more lists than its limit"));
            }
            lists.push(List { of: of.clone(), conditions });
            (rest, is_named) = (trim(after), false);
        }
        if lists.is_empty() || is_named { Err(MALFORMED) } else { Ok(Self { lists }) }
    }

    /// Returns every token that it names: they count as shown, whatever the lists come to (10.4.1).
    pub fn tokens(&self) -> Vec<LockToken> {
        let conditions = self.lists.iter().flat_map(|list| &list.conditions);
        let token = |condition: &Condition| match condition.state {
            State::Locked(token) => token,
            State::Tag(..) => None,
        };
        conditions.filter_map(token).collect()
    }
}

/// Reads conditions up to the end of their list.
fn conditions(text: &str) -> Result<(Vec<Condition>, &str), Refusal> {
    let mut rest = trim(text);
    let mut conditions = Vec::new();
    loop {
        if let Some(after) = rest.strip_prefix(')') {
            return if conditions.is_empty() { Err(MALFORMED) } else { Ok((conditions, after)) };
        }
        let negated = rest.get(..3).filter(|word| word.eq_ignore_ascii_case("not"));
        if negated.is_some() {
            rest = trim(&rest[3..]);
        }
        let state = match rest.as_bytes().first() {
            Some(b'<') => {
                let (token, after) = until(&rest[1..], '>')?;
                rest = after;
                State::Locked(LockToken::parse(token))
            }
            Some(b'[') => {
                let (tag, after) = tag(trim(&rest[1..]))?;
                rest = trim(after).strip_prefix(']').ok_or(MALFORMED)?;
                tag
            }
            _ => return Err(MALFORMED),
        };
        conditions.push(Condition { not: negated.is_some(), state });
        rest = trim(rest);
    }
}

fn tag(text: &str) -> Result<(State, &str), Refusal> {
    let (weak, quoted) = match text.strip_prefix("W/") {
        Some(quoted) => (true, quoted),
        None => (false, text),
    };
    let inner = quoted.strip_prefix('"').ok_or(MALFORMED)?;
    let (inner, after) = until(inner, '"')?;
    Ok((State::Tag(weak, format!("\"{inner}\"")), after))
}

fn until(text: &str, end: char) -> Result<(&str, &str), Refusal> {
    text.split_once(end).ok_or(MALFORMED)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "urn:uuid:01234567-89ab-4def-8123-456789abcdef";

    fn read(text: &str) -> Option<If> {
        If::parse(&text.replace('T', TOKEN)).ok()
    }

    #[test]
    fn lists_are_of_the_request_or_of_what_is_named() {
        let token = LockToken::parse(TOKEN);
        let locked = |not| Condition { not, state: State::Locked(token) };
        let tagged = Condition { not: false, state: State::Tag(false, "\"a)b\"".to_owned()) };
        let one =
            |of: Option<&str>, conditions| List { of: of.map(|of| pointed(of).expect("good")), conditions };
        for (text, lists) in [
            ("(<T>)", vec![one(None, vec![locked(false)])]),
            ("(Not <T> [\"a)b\"])", vec![one(None, vec![locked(true), tagged.clone()])]),
            ("(<T>) ([\"a)b\"])", vec![one(None, vec![locked(false)]), one(None, vec![tagged.clone()])]),
            (
                "</x> (<T>)(not<T>)",
                vec![one(Some("/x"), vec![locked(false)]), one(Some("/x"), vec![locked(true)])],
            ),
            (
                "<http://h/x> (<T>) </y> (<T>)",
                vec![one(Some("http://h/x"), vec![locked(false)]), one(Some("/y"), vec![locked(false)])],
            ),
            ("(<DAV:no-lock>)", vec![one(None, vec![Condition { not: false, state: State::Locked(None) }])]),
        ] {
            assert_eq!(read(text), Some(If { lists }), "{text}");
        }
        assert_eq!(read("(Not <T>)").expect("good").tokens(), [token.expect("a token")]);
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        for bad in [
            &"(<T>)".repeat(limits::DAV_IF_LISTS_MAX + 1),
            "",
            "()",
            "(",
            "(<T>",
            "<T>",
            "</x>",
            "(<T>) </x> (<T>)",
            "</x> </y> (<T>)",
            "(x)",
            "([a])",
            "([\"a\"",
            "(<T>) x",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
