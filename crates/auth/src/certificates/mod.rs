//! Certificates that other people's authorities signed, as evidence: of the key that the other end of a connection holds.
//!
//! **Problem.** Partners, and machines of the grid, hold certificates and no account here. The handshake of TLS proves
//! that the other end holds the key of what it shows. It does not say who that is.
//!
//! **Shape.** The handshake looks at no more than that. Everything else is looked at here, by the authorities that the
//! operator named, each time that somebody is not known yet:
//!
//! ```text
//!   chain ─ bounds ─ no proxy ─▶ path to an authority that was set ─▶ times, usage, constraints, lists of revoked ones
//!                                            │
//!                                subject ────┴──▶ user of this domain, till the first of the path ends
//! ```
//!
//! So a refusal is an answer that says why, and a record in the audit log, where a handshake that fails is an alert
//! that few programs show. What is set may change while connections live: nothing is believed because it was once.
//!
//! **Ways to get it wrong.** Taking a subject that another authority was set for: an authority's subjects are its own.
//! Comparing subjects as they are written: `CN=a,O=b` and the same as two values must differ, so both are written by
//! one function that escapes. Believing an authority whose own certificate has run out: the library does not look.

mod authority;
mod subject;

use std::sync::Arc;

use weft_core::service::CertificateChain;
use weft_core::{Error, ErrorKind, Result, Time, limits};

use crate::issuers::ActsFor;
use authority::ClientAuthority;
pub use subject::subject_of;
pub(crate) use subject::{Fingerprint, fingerprint, signed_part};

/// An authority whose certificates are taken of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAuthoritySettings {
    /// What it is called here: letters, digits, `_` and `-`.
    pub name: String,
    /// Its certificates: PEM. What they have signed is believed.
    pub certificates: Vec<u8>,
    /// What it has revoked: lists in PEM. If there are any, what none of them speaks of is not taken.
    pub revoked: Option<Vec<u8>>,
    /// For whom its certificates act: subjects are written as [`subject_of`] returns them.
    pub acts_for: ActsFor,
}

/// Fails, with the reason, unless the certificates and lists of an authority can be used.
pub fn check_client_authority(settings: &ClientAuthoritySettings) -> Result<()> {
    ClientAuthority::read(settings).map(drop)
}

/// The authorities whose certificates are taken.
#[derive(Default)]
pub(crate) struct ClientAuthorities(Vec<ClientAuthority>);

/// What a certificate comes to here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    /// What its authority is called.
    pub(crate) authority: String,
    /// The user that it acts for, as the settings have it.
    pub(crate) user: String,
    /// Until when it can be believed.
    pub(crate) until: Time,
}

impl ClientAuthorities {
    /// Makes them of settings. Fails with `Invalid` where certificates or lists cannot be used.
    pub(crate) fn new(settings: &[ClientAuthoritySettings]) -> Result<Self> {
        settings.iter().map(ClientAuthority::read).collect::<Result<_>>().map(Self)
    }

    /// Returns the names by which a handshake may ask for certificates of theirs: DER, without its outermost head.
    pub(crate) fn hints(&self) -> Vec<Vec<u8>> {
        self.0.iter().flat_map(ClientAuthority::names).collect()
    }

    /// Returns what a certificate comes to. Fails with `Unauthenticated`, `Expired` or `Revoked`, with `NotPermitted`
    /// where it is good and its subject is nobody here, and with `Unavailable` where a list of revoked ones has run out.
    pub(crate) fn admit(&self, chain: &CertificateChain, now: Time) -> Result<Admitted> {
        check_bounds(chain)?;
        let own = subject::read(&chain.own)?;
        subject::check_no_proxy(&own)?;
        let mut refused = None;
        for authority in &self.0 {
            match authority.verify(chain, now) {
                Ok(until) => return authority.admitted(&subject::said(&own), until),
                // Of several reasons the one of who knows the certificate counts.
                Err(error) if refused.is_none() || !authority::is_unknown(&error) => refused = Some(error),
                Err(_) => {}
            }
        }
        let nobody = || Error::new(ErrorKind::Unauthenticated, "certificates of clients are not taken here");
        Err(refused.map_or_else(nobody, authority::refusal))
    }
}

/// Checks what comes before any of it is read.
fn check_bounds(chain: &CertificateChain) -> Result<()> {
    let bytes: usize = chain.others.iter().map(|other| other.len()).sum::<usize>() + chain.own.len();
    if chain.others.len() >= limits::CLIENT_CHAIN_MAX || bytes > limits::CLIENT_CHAIN_BYTES_MAX {
        return Err(Error::new(
            ErrorKind::Unauthenticated,
            "there are too many certificates, or too large ones",
        ));
    }
    Ok(())
}

/// Says whose a certificate is, as far as that can be read: for the log, of what nobody has verified.
pub(crate) fn claimed(chain: &CertificateChain) -> String {
    let subject = check_bounds(chain).and_then(|()| subject::read(&chain.own)).map(|own| subject::said(&own));
    let subject = subject.map_or_else(|_| "-".to_owned(), |text| shown(&text));
    format!("subject `{subject}`, sha256 {}", subject::hex(&fingerprint(chain)))
}

/// Returns the text of a stranger as a log has it.
fn shown(text: &str) -> String {
    let some: String = text.chars().take(limits::ISSUED_TEXT_SHOWN).collect();
    some.escape_debug().to_string()
}

/// Returns the local name of a certificate as a delegate: who vouches for it, and which it is.
pub(crate) fn delegate(authority: &str, fingerprint: &Fingerprint) -> String {
    format!("{authority}.{}", subject::hex(fingerprint))
}

/// A chain that several may hold.
pub(crate) type Chain = Arc<CertificateChain>;
