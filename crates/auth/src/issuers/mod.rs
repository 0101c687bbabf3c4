//! Tokens that other people's issuers signed, as evidence: by the profiles of the WLCG and of SciTokens.
//!
//! **Problem.** A site's jobs and transfers come with tokens of an experiment's issuer. Such a token names somebody whom
//! this domain does not know, and says itself what may be done where: it must never come to more here than the operator
//! gave the issuer.
//!
//! **Shape.** Everything is checked once, and exchanged for a credential of this domain:
//!
//! ```text
//!   text ─ size ─▶ Token, unbelieved ─ iss ─▶ issuer that was set ─▶ its keys ─ signature ─▶ claims
//!                                     times, audience, profile, subject ─▶ user of this domain
//!                                     scopes, below the issuer's base ───▶ rights by path
//!   credential = what that user may do ∩ those rights, until the token ends
//! ```
//!
//! The credential names the issuer and the token among its parents, so that either ends what came of it, and the subject as
//! a delegate, which makes it nobody's way to tokens, links, groups or administration.
//!
//! **Ways to get it wrong.** Believing `alg`: a key says what it is for, and no secret of ours is a key. Joining the
//! rights of several scopes: each holds at its own path. Asking the network for what a stranger writes: only
//! addresses that the operator set are asked, and for a key that is not there once a minute.

mod jws;
mod keys;
mod published;
mod scope;

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use weft_core::proof::{CredentialClaims, Scope};
use weft_core::service::Secret;
use weft_core::{CallerKind, CredentialId, Error, ErrorKind, RelPath, Result, Time, limits};
use weft_sys::Sys;

use jws::Token;
pub use jws::is_group;
pub(crate) use jws::is_meant;
use keys::KeySet;
pub use published::Documents;
use published::PublishedKeys;
use scope::Profile;

/// An issuer whose tokens are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuerSettings {
    /// What it is called here: letters, digits, `_` and `-`.
    pub name: String,
    /// Its address, exactly as its tokens have it.
    pub url: String,
    /// For whom its tokens must be.
    pub audiences: Vec<String>,
    /// Where the paths of its tokens begin.
    pub base: RelPath,
    /// For whom its tokens act.
    pub acts_for: ActsFor,
    /// For whom those act that say groups and nothing of what they may do: a user for each group, by its whole name.
    pub groups: BTreeMap<String, String>,
    /// Its keys, if they are not to be fetched: the text of a set of them.
    pub keys: Option<Vec<u8>>,
}

/// For whom an issuer's tokens act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActsFor {
    /// All for one user.
    User(String),
    /// Each subject for a user of its own, and others for nobody.
    Subjects(BTreeMap<String, String>),
}

/// Fails, with the reason, unless a text is a set of keys of which one is taken.
pub fn check_keys(text: &[u8]) -> Result<()> {
    KeySet::read(text).map(drop)
}

/// The issuers whose tokens are taken.
pub(crate) struct Issuers {
    sys: Sys,
    documents: Option<Arc<dyn Documents>>,
    /// The domain's secret for marks.
    mark: [u8; 32],
    set: ArcSwap<Vec<Issuer>>,
}

#[derive(Clone)]
struct Issuer {
    settings: IssuerSettings,
    keys: Keys,
    /// What ends with these settings: the parent of all that its tokens gave.
    mark: CredentialId,
}

#[derive(Clone)]
enum Keys {
    Given(Arc<KeySet>),
    Published(Arc<PublishedKeys>),
}

/// What a token comes to here.
pub(crate) struct Admitted {
    /// The user that it acts for, as the settings have it.
    pub(crate) user: String,
    /// Its issuer and subject, as the local name of a delegate.
    pub(crate) delegate: String,
    /// The same for the log, with the token's own id.
    pub(crate) said: String,
    /// Its issuer's mark.
    pub(crate) mark: CredentialId,
    /// What it may do, and where.
    pub(crate) scopes: Vec<Scope>,
    /// When it was made.
    pub(crate) made: Time,
    /// When it ends.
    pub(crate) expires: Time,
}

impl Issuers {
    /// Makes them of settings. `mark` is the domain's secret for such things. Fails with `Invalid` where keys
    /// that are given are none, or nobody is there to fetch others.
    pub(crate) fn new(
        sys: &Sys,
        settings: &[IssuerSettings],
        documents: Option<&Arc<dyn Documents>>,
        mark: &[u8; 32],
    ) -> Result<Self> {
        let none = ArcSwap::from_pointee(Vec::new());
        let issuers = Self { sys: sys.clone(), documents: documents.cloned(), mark: *mark, set: none };
        issuers.change(settings)?;
        Ok(issuers)
    }

    /// Takes these in the place of those that there are. What stays as it was keeps its keys. Returns the marks of those
    /// that are gone, or are others now: what came of their tokens is to end. Fails, and changes nothing, as
    /// [`Issuers::new`] does.
    pub(crate) fn change(&self, settings: &[IssuerSettings]) -> Result<Vec<CredentialId>> {
        let before = self.set.load_full();
        let made = settings.iter().map(|one| self.made(one, &before)).collect::<Result<Vec<_>>>()?;
        let is_gone = |mark: &CredentialId| made.iter().all(|issuer| issuer.mark != *mark);
        let gone = before.iter().map(|issuer| issuer.mark).filter(is_gone).collect();
        self.set.store(Arc::new(made));
        Ok(gone)
    }

    fn made(&self, settings: &IssuerSettings, before: &[Issuer]) -> Result<Issuer> {
        let mark = mark_of(&self.mark, settings);
        if let Some(same) = before.iter().find(|issuer| issuer.mark == mark) {
            return Ok(same.clone());
        }
        let keys = match (&settings.keys, &self.documents) {
            (Some(text), _) => Keys::Given(Arc::new(KeySet::read(text)?)),
            (None, Some(documents)) => {
                let (sys, url) = (self.sys.clone(), settings.url.clone());
                Keys::Published(PublishedKeys::new(sys, url, documents.clone()))
            }
            (None, None) => {
                return Err(Error::invalid("nobody fetches the keys of the issuer").about(&settings.name));
            }
        };
        Ok(Issuer { settings: settings.clone(), keys, mark })
    }

    /// Verifies a token and returns what it comes to. Fails with `Unauthenticated`, `Expired`, `NotPermitted` where
    /// it is good and gives nothing here, and `Unavailable` or `Busy` where its issuer's keys cannot be had.
    pub(crate) async fn admit(&self, text: &Secret, now: Time) -> Result<Admitted> {
        let token = Token::read(text.expose())?;
        let set = self.set.load_full();
        let issuer = set.iter().find(|issuer| issuer.settings.url == token.claims.iss).ok_or_else(|| {
            Error::new(ErrorKind::Unauthenticated, "the token's issuer is none of those that are taken here")
        })?;
        if !issuer.keys.of(&token).await?.verify(&token) {
            return Err(Error::new(ErrorKind::Unauthenticated, "no key of its issuer has signed the token"));
        }
        token.claims.check_times(now)?;
        token.claims.check_audience(&issuer.settings.audiences)?;
        issuer.admitted(&token)
    }

    /// Fails with `Revoked` where a credential came of a token of an issuer that is no longer taken as it was then.
    pub(crate) fn check_still(&self, claims: &CredentialClaims) -> Result<()> {
        if !claims.delegates.iter().any(|name| name.kind() == Some(CallerKind::Issuer)) {
            return Ok(());
        }
        self.check_taken(&claims.parents)
    }

    /// Fails with `Revoked` unless one of these marks is of an issuer whose tokens are taken.
    pub(crate) fn check_taken(&self, marks: &[CredentialId]) -> Result<()> {
        if self.set.load().iter().any(|issuer| marks.contains(&issuer.mark)) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Revoked, "tokens of that issuer are no longer taken as they were"))
    }

    /// Says what does not work as it should.
    pub(crate) fn troubles(&self) -> Vec<String> {
        let of = |issuer: &Issuer| {
            let Keys::Published(keys) = &issuer.keys else { return None };
            Some(format!(
                "the keys of the issuer `{}` cannot be had; {}",
                issuer.settings.name,
                keys.trouble()?
            ))
        };
        self.set.load().iter().filter_map(of).collect()
    }
}

impl Keys {
    async fn of(&self, token: &Token<'_>) -> Result<Arc<KeySet>> {
        match self {
            Self::Given(keys) => Ok(keys.clone()),
            Self::Published(keys) => keys.keys(|keys| keys.has_key_of(token)).await,
        }
    }
}

impl Issuer {
    fn admitted(&self, token: &Token<'_>) -> Result<Admitted> {
        let (claims, settings) = (&token.claims, &self.settings);
        let profile = claims.profile()?;
        let groups = claims.groups(profile)?;
        let (user, scopes, by) = match groups.is_empty() || scope::says_anything(profile, &claims.scope) {
            true => {
                let scopes = self.scopes_of(profile, &claims.scope)?;
                (self.user_of(&claims.sub)?, scopes, String::new())
            }
            false => {
                let (group, user) = self.first_of(groups)?;
                let scopes = vec![scope::of_member(&settings.base)];
                (user, scopes, format!(", group `{}`", group.escape_debug()))
            }
        };
        let id = claims.jti.as_deref().unwrap_or("-");
        let shown = |text: &str| text.chars().take(limits::ISSUED_TEXT_SHOWN).collect::<String>();
        let said = format!(
            "issuer {}, subject `{}`, token `{}`{by}",
            settings.name,
            shown(&claims.sub).escape_debug(),
            shown(id).escape_debug()
        );
        Ok(Admitted {
            user: user.clone(),
            delegate: delegate(&settings.name, &claims.sub),
            said,
            mark: self.mark,
            scopes,
            made: claims.made(),
            expires: claims.expires(),
        })
    }

    /// Returns what a token may do, by what it says of that.
    fn scopes_of(&self, profile: Profile, said: &str) -> Result<Vec<Scope>> {
        let scopes = scope::scopes(profile, said, &self.settings.base)?;
        if scopes.is_empty() {
            return Err(Error::not_permitted("the token carries no right to files"));
        }
        Ok(scopes)
    }

    /// Returns the user that a subject stands for.
    fn user_of(&self, subject: &str) -> Result<&String> {
        let user = match &self.settings.acts_for {
            ActsFor::User(user) => Some(user),
            ActsFor::Subjects(users) => users.get(subject),
        };
        user.ok_or_else(|| Error::not_permitted("the token's subject stands for nobody here"))
    }

    /// Returns the first of a token's groups that stands for somebody, and for whom: their order is what its holder
    /// asked the issuer for. A group below one of the table is not that one.
    fn first_of<'a>(&'a self, groups: &'a [String]) -> Result<(&'a String, &'a String)> {
        let known = |group: &'a String| Some((group, self.settings.groups.get(group)?));
        let nobody = || Error::not_permitted("none of the token's groups stands for anybody here");
        groups.iter().find_map(known).ok_or_else(nobody)
    }
}

/// Returns issuer and subject as a name can have them: it is read by people, and nothing is decided by it.
fn delegate(name: &str, subject: &str) -> String {
    let plain = |letter: char| match letter {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '_' | '-' => letter,
        _ => '_',
    };
    let subject: String = subject.chars().map(plain).collect();
    format!("{name}.{subject}").chars().take(limits::CALLER_NAME_BYTES_MAX).collect()
}

/// Returns the id that all credentials which came of an issuer have for a parent. Other settings of it make another: what
/// was given under the old ones does not outlive the change that brings the new.
fn mark_of(mark: &[u8; 32], settings: &IssuerSettings) -> CredentialId {
    let mut hasher = blake3::Hasher::new_keyed(mark);
    hasher.update(b"issuer");
    let mut part = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_be_bytes());
        hasher.update(bytes);
    };
    part(settings.name.as_bytes());
    part(settings.url.as_bytes());
    part(settings.base.as_bytes());
    match &settings.acts_for {
        ActsFor::User(user) => part(user.as_bytes()),
        ActsFor::Subjects(users) => users.iter().for_each(|(subject, user)| {
            part(subject.as_bytes());
            part(user.as_bytes());
        }),
    }
    settings.audiences.iter().for_each(|audience| part(audience.as_bytes()));
    settings.groups.iter().for_each(|(group, user)| {
        part(b"group");
        part(group.as_bytes());
        part(user.as_bytes());
    });
    part(settings.keys.as_deref().unwrap_or_default());
    let hash = hasher.finalize();
    let (id, _) = hash.as_bytes().split_first_chunk().expect("a hash has more than sixteen bytes");
    CredentialId(u128::from_be_bytes(*id))
}
