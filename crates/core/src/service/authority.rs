//! Evidence in, callers out.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::links::Portion;
use crate::caller::CallerName;
use crate::error::Result;
use crate::form::Origin;
use crate::id::{CallerId, CapabilityId, ContainerId, CredentialId, FileId};
use crate::proof::{Attenuation, Caller, Signed};
use crate::rights::Rights;
use crate::time::Time;

/// Text that must not be shown: it prints as `…` and is wiped when it is dropped.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Takes the text over.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the text, for the one place that must compare or hash it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.0).into_bytes();
        bytes.fill(0);
        // Reading it back keeps the compiler from dropping the writes.
        std::hint::black_box(&bytes);
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// A certificate that the other end of a connection showed as it shook hands, having proved that it holds the key, and
/// those that it sent along: all in DER, none of them believed or even read yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateChain {
    /// Its own.
    pub own: Bytes,
    /// Those that may lead from that to an authority, in the order in which they came.
    pub others: Vec<Bytes>,
}

/// What a door hands over so that someone else says who is asking.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Evidence {
    /// Nothing: `anyone`.
    None,
    /// A user's password.
    Password {
        /// The user's local name, or a full one.
        user: String,
        /// The password.
        password: Secret,
    },
    /// The text form of a credential.
    Token(Secret),
    /// The uid at the other end of the node's own Unix socket, as the kernel said it.
    SocketUid(u32),
    /// The secret of a link: proves nobody, and lets its holder act for the link's maker as far as the
    /// link goes.
    Link(Secret),
    /// A certificate of the connection. Only the handshake says that its key is held, so it never travels: who could
    /// send it as evidence would need no key.
    #[serde(skip)]
    Certificate(Arc<CertificateChain>),
}

/// What a node knows a caller as.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The name.
    pub name: CallerName,
    /// The credential its calls are made on; zero for `anyone`.
    pub credential: CredentialId,
    /// When that was made.
    pub issued: Time,
    /// When that ends.
    pub expires: Time,
    /// What that was narrowed to.
    pub limits: Attenuation,
}

impl From<&Caller> for Identity {
    fn from(caller: &Caller) -> Self {
        let claims = caller.claims();
        Self {
            name: caller.name().clone(),
            credential: caller.credential(),
            issued: claims.issued,
            expires: claims.expires,
            limits: claims.limits.clone(),
        }
    }
}

/// What to revoke.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Revoke {
    /// One credential that this domain has made for somebody it knows, and what was derived
    /// from it.
    Credential(CredentialId),
    /// Every credential that a caller whom this domain knows has now.
    Caller(CallerName),
    /// Some rights of one capability.
    Capability(CapabilityId, Rights),
    /// Every capability of a container issued so far.
    Container(ContainerId),
    /// One credential, whoever made it: another domain, or this one for a user whom it does not
    /// know any more since it was restored from a backup.
    AnyCredential(CredentialId),
    /// Every credential that a caller has now, known here or not.
    AnyCaller(CallerName),
}

/// In words, as the audit log keeps them.
impl fmt::Display for Revoke {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Credential(id) | Self::AnyCredential(id) => write!(f, "credential {id}"),
            Self::Caller(name) | Self::AnyCaller(name) => write!(f, "all that {name} holds"),
            Self::Capability(id, rights) => write!(f, "{rights} of capability {id}"),
            Self::Container(id) => write!(f, "all capabilities of container {id}"),
        }
    }
}

/// Turns evidence into callers and credentials, and takes them back.
#[async_trait]
pub trait Authority: Send + Sync {
    /// Returns the caller that the evidence proves. Repeating it is cheap (a password
    /// is remembered as a keyed hash for at most 5 minutes). `Unauthenticated` if it
    /// proves nothing, without saying which part was wrong; `Busy` if too many
    /// passwords are being checked.
    async fn authenticate(&self, evidence: &Evidence, from: Origin) -> Result<Caller>;

    /// Logs in: exchanges evidence for a credential of its own, narrowed by `limits`, for
    /// at most `life`. Revoking it ends no other login's, and each login is recorded.
    async fn login(
        &self,
        evidence: &Evidence,
        limits: &Attenuation,
        life: Duration,
        from: Origin,
    ) -> Result<Signed> {
        let caller = self.authenticate(evidence, from).await?;
        self.credential(&caller, limits, life).await
    }

    /// Returns a credential for the caller, narrowed by `limits`, for at most `life`. It
    /// never reaches further or lives longer than the one the caller came with.
    async fn credential(&self, caller: &Caller, limits: &Attenuation, life: Duration) -> Result<Signed>;

    /// Counts a use of the link that a caller came by, durably if the link has a limit: before the first
    /// byte of a file goes out. What goes on where the same machine broke off, so does not hold the first byte,
    /// is no use of its own for `limits::LINK_RESUMED_WITHIN` of the last, as long as all of it is at most
    /// `limits::LINK_RESUMED_LENGTHS` times the file. `Expired` once it is used up. Who came by no link is not
    /// counted.
    async fn count_use(&self, caller: &Caller, from: Origin, file: FileId, portion: Portion) -> Result<()> {
        let _ = (caller, from, file, portion);
        Ok(())
    }

    /// Returns the name behind an id, if this domain has seen it.
    async fn name_of(&self, id: CallerId) -> Result<Option<CallerName>>;

    /// Withdraws. A caller may revoke its own credentials; the administrator anybody's;
    /// a container's capabilities whoever may change its ACL (the volume checks that).
    /// `NotFound` for a caller or a credential that the domain does not know: a slip of the
    /// pen must not leave alive what was to end.
    async fn revoke(&self, caller: &Caller, what: &Revoke) -> Result<()>;
}
