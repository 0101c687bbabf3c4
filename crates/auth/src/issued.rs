//! The exchange: a verified token of an issuer for a credential of this domain.

use std::sync::Arc;

use weft_core::proof::{Attenuation, Caller, Confines, EvidenceKind, Scope};
use weft_core::service::Secret;
use weft_core::{
    CallerId, CallerKind, CallerName, Clock, CredentialId, Error, ErrorKind, Result, Rights, limits,
};
use weft_kv::Read;

use crate::home::{Home, Mint};
use crate::issuers::{Admitted, Issuers};
use crate::tables::{self, Line};

/// What turns tokens of issuers into callers.
pub(crate) struct IssuedTokens {
    home: Arc<Home>,
    issuers: Arc<Issuers>,
}

/// Whom other people's evidence acts for.
pub(crate) struct Found {
    pub(crate) caller: Caller,
    /// Whether that was found out only now.
    pub(crate) is_news: bool,
    /// How the log has it.
    pub(crate) said: String,
}

impl IssuedTokens {
    pub(crate) fn new(home: Arc<Home>, issuers: Arc<Issuers>) -> Self {
        Self { home, issuers }
    }

    /// Returns whom a token lets its holder act for. Fails as [`Issuers::admit`] does, and with `Revoked` where the user
    /// that it acts for may not log in, or what that user held was ended since it was made.
    pub(crate) async fn caller_of(&self, token: &Secret) -> Result<Found> {
        let home = &self.home;
        let remembered = home.remembered.issued(token, home.steady.tick());
        if let Some(caller) = remembered.filter(|caller| home.live(caller).is_ok()) {
            return Ok(Found { said: said_of(&caller), caller, is_news: false });
        }
        let admitted = self.issuers.admit(token, home.steady.now()).await?;
        let said = admitted.said.clone();
        let _gate = home.gate.read().await;
        // Its keys may have taken a while to come, and the issuer may be gone since.
        self.issuers.check_taken(&[admitted.mark])?;
        let caller = self.mint(token, admitted)?;
        home.live(&caller)?;
        home.remembered.keep_issued(token, &caller, home.steady.tick());
        let id = parent_of(home, token, caller.name().id());
        Ok(Found { said: format!("{said}, as {id}"), caller, is_news: true })
    }

    /// Fails with `Revoked` where a credential came of a token of an issuer that is no longer taken.
    pub(crate) fn check_still(&self, caller: &Caller) -> Result<()> {
        self.issuers.check_still(caller.claims())
    }

    fn mint(&self, token: &Secret, admitted: Admitted) -> Result<Caller> {
        let home = &self.home;
        let user = CallerName::user(&admitted.user, home.domain.id)?;
        let rows = home.space.snapshot()?;
        self.check_user(&rows, &user, &admitted)?;
        let issued = home.steady.stamp();
        let mint = Mint {
            parents: vec![admitted.mark, parent_of(home, token, user.id())],
            delegates: vec![CallerName::new(CallerKind::Issuer, &admitted.delegate, home.domain.id)?],
            limits: Attenuation { rights: all_of(&admitted.scopes), ..Attenuation::NONE },
            issued,
            // Its issuer has another clock: the allowance for that is as for any credential.
            expires: issued.plus(limits::CREDENTIAL_LIFE).min(admitted.expires),
            confines: Confines::Scopes(admitted.scopes),
            ..home.login(EvidenceKind::Issuer)
        };
        home.mint(&rows, &user, mint)
    }

    /// Checks that the user may log in, and has not ended all that there was when the token was made.
    fn check_user(&self, rows: &impl Read, user: &CallerName, admitted: &Admitted) -> Result<()> {
        let line: Line = tables::read(rows, &tables::line_key(user.id()))?.unwrap_or_default();
        if !self.home.user(rows, user)?.is_some_and(|row| row.enabled) {
            let error = Error::new(ErrorKind::Revoked, "the user that the token acts for may not log in");
            return Err(error.about(user.local()));
        }
        if line.revoked.is_some_and(|at| admitted.made <= at) {
            let error =
                Error::new(ErrorKind::Revoked, "what the user held that the token acts for was ended");
            return Err(error.hint("get another one from the issuer"));
        }
        Ok(())
    }
}

/// Returns every right that scopes give anywhere.
fn all_of(scopes: &[Scope]) -> Rights {
    scopes.iter().fold(Rights::NONE, |all, scope| all | scope.rights)
}

/// Says what a token that is remembered was: its delegate has issuer and subject.
fn said_of(caller: &Caller) -> String {
    caller.claims().delegates.first().map_or_else(String::new, |name| format!("issuer {}", name.local()))
}

/// Returns what ends a token here: by what was signed, since whoever has one signature of ECDSA can make another.
fn parent_of(home: &Home, token: &Secret, caller: CallerId) -> CredentialId {
    let signed = token.expose().rsplit_once('.').map_or(token.expose(), |(signed, _)| signed);
    home.parent_of_evidence(b"issued", signed.as_bytes(), caller)
}
