//! Who can be named: users, groups, nodes, jobs, and anyone.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::id::{CallerId, DomainId};
use crate::limits;

/// What sort of caller a name names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum CallerKind {
    /// A person's account in a domain: `alice@domain`.
    User,
    /// A group made by a user; its name carries its maker's: `group:alice/team@domain`.
    Group,
    /// A node of a domain: `node:name@domain`.
    Node,
    /// A job with rights of its own: `job:name@domain`.
    Job,
    /// A link for people without an account, `link:ID@domain`: whoever holds it acts for its maker,
    /// and is named so beside them.
    Link,
    /// A token of a program, `token:ID@domain`: whoever holds it acts for its maker, and is named so
    /// beside them.
    Token,
    /// A token of somebody else's issuer, `issuer:NAME.SUBJECT@domain`: whoever holds it acts for a user of
    /// this domain, and is named so beside them.
    Issuer,
    /// A certificate of somebody else's authority, `certificate:NAME.FINGERPRINT@domain`: whoever holds its key acts
    /// for a user of this domain, and is named so beside them.
    Certificate,
}

/// The full name of a caller: a kind, a local name and the domain that vouches for it;
/// or `anyone`, whom no domain vouches for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "NameParts", into = "NameParts")]
pub struct CallerName(Option<Arc<Parts>>);

#[derive(PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Parts {
    domain: DomainId,
    kind: CallerKind,
    local: Box<str>,
    id: CallerId,
}

type NameParts = Option<(DomainId, CallerKind, String)>;

impl CallerName {
    /// Whoever gave no proof of being anyone else.
    pub const ANYONE: Self = Self(None);

    /// Checks and makes a name. Local names are 1 to 128 bytes of letters, digits and
    /// `. _ -`; a group's is `maker/name`. Fails with `Invalid`.
    pub fn new(kind: CallerKind, local: &str, domain: DomainId) -> Result<Self> {
        let word = |w: &str| {
            !w.is_empty() && w.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
        };
        let good = local.len() <= limits::CALLER_NAME_BYTES_MAX
            && match kind {
                CallerKind::Group => {
                    local.split_once('/').is_some_and(|(maker, name)| word(maker) && word(name))
                }
                _ => word(local) && local != "anyone",
            };
        if !good {
            return Err(Error::invalid(
                "not a caller's name: letters, digits, `.`, `_` and `-` (groups: MAKER/NAME)",
            ));
        }
        let id = hash(kind, local, domain);
        Ok(Self(Some(Arc::new(Parts { domain, kind, local: local.into(), id }))))
    }

    /// Makes a user's name.
    pub fn user(local: &str, domain: DomainId) -> Result<Self> {
        Self::new(CallerKind::User, local, domain)
    }

    /// Reads a name as people write it: `alice`, `alice@DOMAIN`, `group:alice/team`,
    /// `node:n1`, `anyone`. Without `@DOMAIN` it is of `home`.
    pub fn parse(text: &str, home: DomainId) -> Result<Self> {
        if text == "anyone" {
            return Ok(Self::ANYONE);
        }
        let (text, domain) = match text.rsplit_once('@') {
            Some((text, domain)) => (text, domain.parse()?),
            None => (text, home),
        };
        let (kind, local) = match text.split_once(':') {
            Some(("group", local)) => (CallerKind::Group, local),
            Some(("node", local)) => (CallerKind::Node, local),
            Some(("job", local)) => (CallerKind::Job, local),
            Some(("link", local)) => (CallerKind::Link, local),
            Some(("token", local)) => (CallerKind::Token, local),
            Some(("issuer", local)) => (CallerKind::Issuer, local),
            Some(("certificate", local)) => (CallerKind::Certificate, local),
            Some(_) => {
                return Err(Error::invalid(
                    "a caller is a user, `group:`, `node:`, `job:`, `link:`, `token:`, `issuer:`, `certificate:` or `anyone`",
                ));
            }
            None => (CallerKind::User, text),
        };
        Self::new(kind, local, domain)
    }

    /// Returns whether this is `anyone`.
    pub fn is_anyone(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the domain that vouches for the caller; none for `anyone`.
    pub fn domain(&self) -> Option<DomainId> {
        self.0.as_ref().map(|p| p.domain)
    }

    /// Returns the kind; none for `anyone`.
    pub fn kind(&self) -> Option<CallerKind> {
        self.0.as_ref().map(|p| p.kind)
    }

    /// Returns the local name; `anyone` for anyone.
    pub fn local(&self) -> &str {
        self.0.as_ref().map_or("anyone", |p| &p.local)
    }

    /// Returns the id that owners, groups and ACL checks compare: a hash of the full
    /// name, so equal names have equal ids on every node.
    pub fn id(&self) -> CallerId {
        self.0.as_ref().map_or(CallerId::ANYONE, |p| p.id)
    }

    /// Shows the name as someone of `home` would write it: the domain only if foreign.
    pub fn seen_from(&self, home: DomainId) -> String {
        match &self.0 {
            Some(parts) if parts.domain == home => format!("{}{}", prefix(parts.kind), parts.local),
            _ => self.to_string(),
        }
    }
}

impl CallerId {
    /// The id of `anyone`.
    pub const ANYONE: Self = Self(0);
}

fn hash(kind: CallerKind, local: &str, domain: DomainId) -> CallerId {
    let mut hasher = blake3::Hasher::new_derive_key("weft caller id v1");
    hasher.update(&domain.0);
    hasher.update(&[kind as u8]);
    hasher.update(local.as_bytes());
    let mut id = [0; 16];
    hasher.finalize_xof().fill(&mut id);
    CallerId(u128::from_be_bytes(id))
}

fn prefix(kind: CallerKind) -> &'static str {
    match kind {
        CallerKind::User => "",
        CallerKind::Group => "group:",
        CallerKind::Node => "node:",
        CallerKind::Job => "job:",
        CallerKind::Link => "link:",
        CallerKind::Token => "token:",
        CallerKind::Issuer => "issuer:",
        CallerKind::Certificate => "certificate:",
    }
}

impl TryFrom<NameParts> for CallerName {
    type Error = Error;
    fn try_from(parts: NameParts) -> Result<Self> {
        match parts {
            None => Ok(Self::ANYONE),
            Some((domain, kind, local)) => Self::new(kind, &local, domain),
        }
    }
}

impl From<CallerName> for NameParts {
    fn from(name: CallerName) -> Self {
        name.0.map(|p| (p.domain, p.kind, p.local.to_string()))
    }
}

impl fmt::Display for CallerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            None => f.write_str("anyone"),
            Some(parts) => write!(f, "{}{}@{}", prefix(parts.kind), parts.local, parts.domain),
        }
    }
}

impl fmt::Debug for CallerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CallerName({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: DomainId = DomainId([1; 32]);

    #[test]
    fn names_read_back_as_they_are_shown() {
        for text in [
            "alice",
            "group:alice/pdb-team",
            "node:n1",
            "job:j-7",
            "link:0f",
            "issuer:cms.a1-b2",
            "certificate:grid.0f",
            "anyone",
        ] {
            let name = CallerName::parse(text, HOME).expect("a good name");
            assert_eq!(name.seen_from(HOME), text);
            assert_eq!(CallerName::parse(&name.to_string(), DomainId([2; 32])).expect("a full name"), name);
        }
    }

    #[test]
    fn malformed_names_are_refused() {
        for text in ["", "a b", "group:team", "group:a/b/c", "x:y", "a/b", "user@nowhere", "node:"] {
            assert!(CallerName::parse(text, HOME).is_err(), "{text}");
        }
        assert!(CallerName::user("anyone", HOME).is_err(), "no account may be called anyone");
    }

    #[test]
    fn ids_differ_by_kind_domain_and_name_and_anyone_is_zero() {
        let names =
            ["alice", "bob", "node:alice", "job:alice"].map(|t| CallerName::parse(t, HOME).expect("good"));
        for (i, a) in names.iter().enumerate() {
            assert!(names.iter().skip(i + 1).all(|b| a.id() != b.id()));
        }
        let foreign = CallerName::user("alice", DomainId([2; 32])).expect("good");
        assert_ne!(foreign.id(), names[0].id());
        assert_eq!(CallerName::ANYONE.id(), CallerId::ANYONE);
    }
}
