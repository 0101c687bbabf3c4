//! Credentials: short-lived, signed statements of who a caller is.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::acl::Network;
use crate::attr::Version;
use crate::caller::CallerName;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{CallerId, CredentialId, FileId};
use crate::limits;
use crate::name::RelPath;
use crate::rights::Rights;
use crate::time::Time;

/// How a caller proved who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EvidenceKind {
    /// A password.
    Password,
    /// The peer uid of the node's Unix socket.
    SocketUid,
    /// Another credential: renewed, attenuated or delegated.
    Credential,
    /// A node's own key.
    NodeKey,
    /// The secret of a link, which stands for its maker.
    Link,
    /// The secret of a token, which stands for its maker.
    Token,
    /// A token that somebody else's issuer signed.
    Issuer,
    /// A certificate that somebody else's authority signed.
    Certificate,
}

impl fmt::Display for EvidenceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Password => "password",
            Self::SocketUid => "uid",
            Self::Credential => "credential",
            Self::NodeKey => "node-key",
            Self::Link => "link",
            Self::Token => "token",
            Self::Issuer => "issuer",
            Self::Certificate => "certificate",
        })
    }
}

/// What a credential was narrowed to. Narrowing again only ever takes away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attenuation {
    /// The rights it may carry at most.
    pub rights: Rights,
    /// Paths from the root of the tree, one of which everything touched must lie
    /// within; none means anywhere.
    pub paths: Vec<RelPath>,
    /// Networks, one of which the caller's address must lie in; none means anywhere.
    pub hosts: Vec<Network>,
    /// From when it may be used.
    pub from: Time,
}

impl Default for Attenuation {
    fn default() -> Self {
        Self::NONE
    }
}

impl Attenuation {
    /// Narrowed to nothing less than everything.
    pub const NONE: Self =
        Self { rights: Rights::ALL, paths: Vec::new(), hosts: Vec::new(), from: Time::from_nanos(i64::MIN) };

    /// Returns this and `more` together. Fails with `NotPermitted` where `more` would
    /// reach outside this, or `TooLarge`.
    pub fn narrowed(&self, more: &Self) -> Result<Self> {
        let outside = |what: &'static str| Err(Error::not_permitted(what));
        if !more
            .paths
            .iter()
            .all(|p| self.paths.is_empty() || self.paths.iter().any(|above| p.is_within(above)))
        {
            return outside("the path lies outside what the credential is limited to");
        }
        if !self.hosts.is_empty() && !more.hosts.iter().all(|h| self.hosts.contains(h)) {
            return outside("the network lies outside what the credential is limited to");
        }
        if more.paths.len() > limits::ATTENUATION_PATHS_MAX
            || more.hosts.len() > limits::ATTENUATION_PATHS_MAX
        {
            return Err(Error::new(
                ErrorKind::TooLarge,
                "a credential is limited to at most 16 paths and 16 networks",
            ));
        }
        Ok(Self {
            rights: self.rights & more.rights,
            paths: if more.paths.is_empty() { self.paths.clone() } else { more.paths.clone() },
            hosts: if more.hosts.is_empty() { self.hosts.clone() } else { more.hosts.clone() },
            from: self.from.max(more.from),
        })
    }

    /// Returns whether a caller at this address may use the credential.
    pub fn admits_host(&self, peer: Option<IpAddr>) -> bool {
        self.hosts.is_empty() || peer.is_some_and(|peer| self.hosts.iter().any(|h| h.contains(peer)))
    }
}

/// The one thing that everything touched with a credential must be, or lie below: by its id, wherever
/// that is by then. Nothing is left of what lies above it or beside it, not even the way there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Within {
    /// A file, or a directory with everything below it.
    pub root: FileId,
    /// Of a file, the version that it must still have; none means whichever it has.
    pub version: Option<Version>,
    /// Where in the tree it was when this was written down. Only a hint: a volume that has forgotten
    /// where the id is looks there first, and believes what it finds only if that has the id.
    pub hint: RelPath,
}

/// What may be done at a path and below it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// The path, from the root of the tree.
    pub path: RelPath,
    /// The rights.
    pub rights: Rights,
}

/// What a credential is confined to, beside what it was narrowed to. The first two are, encoded, what an
/// `Option<Within>` is: so they stood before there were scopes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Confines {
    /// Nothing: everywhere.
    #[default]
    Everywhere,
    /// One thing, which a link is for.
    Within(Within),
    /// Rights that differ by path, as tokens of issuers have them. No scope, no right.
    Scopes(Vec<Scope>),
}

/// What a credential says. Signed by a key that the caller's domain certified for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialClaims {
    /// Its id, by which it is revoked and audited.
    pub id: CredentialId,
    /// The credential it was narrowed or renewed from: revoking that ends this too.
    pub parents: Vec<CredentialId>,
    /// Who the caller is.
    pub caller: CallerName,
    /// The groups the caller is in.
    pub groups: Vec<CallerId>,
    /// Rises whenever the caller's groups change; an older one must be presented to
    /// the authority again.
    pub membership: u64,
    /// How the caller proved it.
    pub evidence: EvidenceKind,
    /// Those who act for the caller, first delegate first.
    pub delegates: Vec<CallerName>,
    /// Attributes that conditions of ACL entries may ask for.
    pub attributes: Vec<(String, String)>,
    /// What it was narrowed to.
    pub limits: Attenuation,
    /// When it was made.
    pub issued: Time,
    /// When it ends.
    pub expires: Time,
    /// What it is confined to beside that.
    pub confines: Confines,
}

impl CredentialClaims {
    /// Returns the ids whose revocation ends the credential: its own, and those of the credentials
    /// it came from. None for `anyone`'s, which is nobody's to revoke.
    pub fn lineage(&self) -> impl Iterator<Item = CredentialId> + '_ {
        let own = (!self.caller.is_anyone()).then_some(self.id);
        own.into_iter().chain(self.parents.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::DomainId;

    /// Claims as they were encoded before there were scopes.
    #[derive(Serialize)]
    struct Before {
        id: CredentialId,
        parents: Vec<CredentialId>,
        caller: CallerName,
        groups: Vec<CallerId>,
        membership: u64,
        evidence: EvidenceKind,
        delegates: Vec<CallerName>,
        attributes: Vec<(String, String)>,
        limits: Attenuation,
        issued: Time,
        expires: Time,
        within: Option<Within>,
    }

    fn before(within: Option<Within>) -> Before {
        let name = |text| CallerName::parse(text, DomainId([1; 32])).expect("a name");
        Before {
            id: CredentialId(7),
            parents: vec![CredentialId(8), CredentialId(9)],
            caller: name("alice"),
            groups: vec![CallerId(3)],
            membership: 300,
            evidence: EvidenceKind::Link,
            delegates: vec![name("link:0f")],
            attributes: vec![("a".into(), "b".into())],
            limits: Attenuation::NONE,
            issued: Time::from_unix(1_700_000_000, 5),
            expires: Time::from_unix(1_700_000_900, 0),
            within,
        }
    }

    fn within() -> Within {
        Within { root: FileId::ROOT, version: None, hint: RelPath::try_from("d/e").expect("a path") }
    }

    #[test]
    fn credentials_of_before_there_were_scopes_are_still_read_and_written() {
        for (old, confines) in
            [(before(None), Confines::Everywhere), (before(Some(within())), Confines::Within(within()))]
        {
            let bytes = postcard::to_stdvec(&old).expect("plain data");
            let (claims, rest) =
                postcard::take_from_bytes::<CredentialClaims>(&bytes).expect("it is still read");
            assert!(rest.is_empty());
            assert_eq!(
                (&claims.confines, &claims.caller, claims.expires),
                (&confines, &old.caller, old.expires)
            );
            assert_eq!((claims.membership, &claims.groups, &claims.limits), (300, &old.groups, &old.limits));
            // And by programs of that time, where nothing is said that they do not know.
            assert_eq!(postcard::to_stdvec(&claims).expect("plain data"), bytes);
        }
    }
}
