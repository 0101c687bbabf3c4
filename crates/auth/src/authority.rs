//! Evidence in, callers out.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use weft_core::form::Origin;
use weft_core::metrics::{LoginBy, Outcome};
use weft_core::proof::{Attenuation, Caller, CredentialClaims, EvidenceKind, Purpose, Revocations, Signed};
use weft_core::service::{AuditOutcome, Authority, Evidence, Portion, Revoke, Secret};
use weft_core::{
    CallerId, CallerKind, CallerName, Clock, CredentialId, Error, ErrorKind, FileId, Result, Time, TokenId,
    limits,
};
use weft_kv::{Ack, Read, Space, SpaceTxn};

use crate::certificates::{self, Chain};
use crate::certified::Certified;
use crate::checks::{Checks, Place};
use crate::home::{Home, Mint, is_whole, life_within};
use crate::issued::{Found, IssuedTokens};
use crate::issuer::SigningIssuer;
use crate::issuers::{self, Issuers};
use crate::links::TableLinks;
use crate::password::PasswordHash;
use crate::tables::{self, Line, UserRow};
use crate::tokens::{self, TableTokens};

/// The authority of the home domain.
pub(crate) struct HomeAuthority {
    home: Arc<Home>,
    issuer: Arc<SigningIssuer>,
    checks: Arc<Checks>,
    links: Arc<TableLinks>,
    tokens: TableTokens,
    issued: IssuedTokens,
    certified: Arc<Certified>,
    /// What unknown users, and users without a password, are compared with.
    nobody: PasswordHash,
}

/// As what wrong secrets of links are counted: no user is called so.
const LINKS: &str = "link:";
/// As what wrong tokens of issuers are counted.
const ISSUED: &str = "issuer:";
/// As what wrong certificates are counted.
const CERTIFICATES: &str = "certificate:";
/// As what wrong tokens are counted.
const TOKENS: &str = "token:";

/// A caller whose evidence holds, and whether that was found out only now.
struct Proved {
    caller: Caller,
    is_news: bool,
}

impl HomeAuthority {
    pub(crate) fn new(
        home: Arc<Home>,
        issuer: Arc<SigningIssuer>,
        checks: Arc<Checks>,
        links: Arc<TableLinks>,
        issuers: Arc<Issuers>,
        certified: Arc<Certified>,
    ) -> Self {
        let nobody = PasswordHash::nobodys(home.sys.random());
        let tokens = TableTokens::new(home.clone());
        let issued = IssuedTokens::new(home.clone(), issuers);
        Self { home, issuer, checks, links, tokens, issued, certified, nobody }
    }

    async fn by_password(&self, user: &str, password: &Secret, from: Origin) -> Result<Proved> {
        let now = self.home.steady.moment();
        if let Some(caller) = self.home.remembered.password(user, password, now.tick)
            && caller.live(now).is_ok()
        {
            return Ok(Proved { caller, is_news: false });
        }
        if let Some(proved) = self.by_token_as_password(user, password, from).await? {
            return Ok(proved);
        }
        let answer = self.try_password(user, password, from.into()).await;
        self.count_login(LoginBy::Password, &answer);
        if let Err(error) = &answer {
            let because = format!("password for `{}`{}", user.escape_debug(), uid_of(from));
            self.tell_refused(error, from, because).await;
        }
        answer.map(|caller| Proved { caller, is_news: true })
    }

    /// Takes a token of the user's in the place of the password, for programs that have a field for nothing
    /// else. None for what is no token of theirs: it is a wrong password then, and costs what one costs.
    async fn by_token_as_password(
        &self,
        user: &str,
        password: &Secret,
        from: Origin,
    ) -> Result<Option<Proved>> {
        let Some(id) = tokens::id_of(password) else { return Ok(None) };
        match self.tokens.caller_of(id, Some(user)).await {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            answer => self.by_right_token(answer, id, from).await.map(Some),
        }
    }

    /// Counts, and records where it failed, that somebody showed a token that there is.
    async fn by_right_token(
        &self,
        answer: Result<(Caller, bool)>,
        id: TokenId,
        from: Origin,
    ) -> Result<Proved> {
        if !matches!(answer, Ok((_, false))) {
            self.count_login(LoginBy::Token, &answer);
        }
        if let Err(error) = &answer {
            self.tell_refused(error, from, format!("{}{}", token_said(id), uid_of(from))).await;
        }
        answer.map(|(caller, is_news)| Proved { caller, is_news })
    }

    /// Returns whom a token lets its holder act for. A wrong one waits as a wrong password does; a right
    /// one never, whoever guesses from the same place.
    async fn by_own_token(&self, id: TokenId, from: Origin) -> Result<Proved> {
        let answer = self.tokens.caller_of(id, None).await;
        let is_wrong = answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound);
        if !is_wrong {
            return self.by_right_token(answer, id, from).await;
        }
        let wrong = Err(Error::new(ErrorKind::Unauthenticated, "there is no such token"));
        let refused = self.by_right_token(wrong, id, from).await;
        let attempt = self.checks.begin(TOKENS, from.into()).await?;
        attempt.was_wrong(self.home.steady.tick());
        refused
    }

    /// Returns whom a token of an issuer acts for, and how to say so. A wrong one waits as a wrong password does; a
    /// right one never, whoever guesses from the same place.
    async fn by_issued(&self, token: &Secret, from: Origin) -> Result<(Proved, String)> {
        let answer = self.issued.caller_of(token).await;
        self.by_others(answer, (LoginBy::Issuer, ISSUED), from, |error| format!("issuer: {}", error.detail()))
            .await
    }

    /// Returns whom a certificate acts for, and how to say so. A wrong one waits as a wrong password does.
    async fn by_certificate(&self, chain: &Chain, from: Origin) -> Result<(Proved, String)> {
        let answer = self.certified.caller_of(chain).await;
        let refused =
            |error: &Error| format!("certificate: {}; {}", error.detail(), certificates::claimed(chain));
        self.by_others(answer, (LoginBy::Certificate, CERTIFICATES), from, refused).await
    }

    /// Counts, and records where it failed, that somebody showed what others vouch for.
    async fn by_others(
        &self,
        answer: Result<Found>,
        (by, counted): (LoginBy, &str),
        from: Origin,
        refused: impl FnOnce(&Error) -> String,
    ) -> Result<(Proved, String)> {
        if !matches!(&answer, Ok(found) if !found.is_news) {
            self.count_login(by, &answer);
        }
        let error = match answer {
            Ok(found) => {
                let because = format!("{}{}", found.said, uid_of(from));
                return Ok((Proved { caller: found.caller, is_news: found.is_news }, because));
            }
            Err(error) => error,
        };
        self.tell_refused(&error, from, format!("{}{}", refused(&error), uid_of(from))).await;
        if error.kind() == ErrorKind::Unauthenticated {
            let attempt = self.checks.begin(counted, from.into()).await?;
            attempt.was_wrong(self.home.steady.tick());
        }
        Err(error)
    }

    /// Counts evidence that was looked at.
    fn count_login<T>(&self, by: LoginBy, answer: &Result<T>) {
        let outcome = answer.as_ref().map_or_else(|error| Outcome::of(error.kind()), |_| Outcome::Done);
        self.home.sys.metrics().auth_logins.count((by, outcome));
    }

    /// Checks a password once earlier wrong ones have been waited for.
    async fn try_password(&self, user: &str, password: &Secret, place: Place) -> Result<Caller> {
        let attempt = self.checks.begin(user, place).await?;
        let answer = self.check_password(user, password, place).await;
        match &answer {
            Ok(_) => attempt.was_right(),
            Err(error) if error.kind() == ErrorKind::Unauthenticated => {
                attempt.was_wrong(self.home.steady.tick());
            }
            Err(_) => {}
        }
        answer
    }

    /// Checks a password, in its turn. An unknown user costs what a wrong password costs.
    async fn check_password(&self, user: &str, password: &Secret, place: Place) -> Result<Caller> {
        let wrong = || Error::new(ErrorKind::Unauthenticated, "the user or the password is wrong");
        let name = CallerName::parse(user, self.home.domain.id)
            .ok()
            .filter(|name| name.kind() == Some(CallerKind::User));
        let row = match &name {
            Some(name) => self.home.user(&self.home.space.snapshot()?, name)?,
            None => None,
        };
        let stored = row.filter(|row| row.enabled).and_then(|row| row.password);
        let hash = stored.clone().unwrap_or_else(|| self.nobody.clone());

        let turn = self.checks.turn(place).await?;
        let now = self.home.steady.moment();
        if let Some(caller) = self.home.remembered.password(user, password, now.tick)
            && caller.live(now).is_ok()
        {
            return Ok(caller);
        }
        let right = self.checks.compare(turn, hash, password).await?;
        let (Some(name), Some(stored), true) = (name, stored, right) else { return Err(wrong()) };

        let _gate = self.home.gate.read().await;
        let rows = self.home.space.snapshot()?;
        let still = |row: &UserRow| row.enabled && row.password.as_ref() == Some(&stored);
        if !self.home.user(&rows, &name)?.as_ref().is_some_and(still) {
            return Err(wrong());
        }
        let parents = vec![self.home.parent_of_repeats(&stored)];
        let mint = Mint { parents, ..self.home.login(EvidenceKind::Password) };
        let caller = self.home.mint(&rows, &name, mint)?;
        self.home.remembered.keep_password(user, password, &caller, self.home.steady.tick());
        Ok(caller)
    }

    async fn by_uid(&self, uid: u32) -> Result<Proved> {
        let now = self.home.steady.moment();
        if let Some(caller) = self.home.remembered.uid(uid, now.tick)
            && caller.live(now).is_ok()
        {
            return Ok(Proved { caller, is_news: false });
        }
        let caller = {
            let _gate = self.home.gate.read().await;
            let rows = self.home.space.snapshot()?;
            let local: Option<String> = tables::read(&rows, &tables::uid_key(uid))?;
            let name = local.map(|local| CallerName::user(&local, self.home.domain.id)).transpose()?;
            let caller = match name {
                Some(name) if self.home.user(&rows, &name)?.is_some_and(|row| row.enabled) => {
                    self.home.mint(&rows, &name, self.home.login(EvidenceKind::SocketUid))?
                }
                _ => Caller::anyone(),
            };
            self.home.remembered.keep_uid(uid, &caller, now.tick);
            caller
        };
        self.count_login(LoginBy::Uid, &Ok(()));
        Ok(Proved { caller, is_news: true })
    }

    /// Returns whom a password, a token's secret or a uid proves, and how to say so in the log; none for
    /// evidence that is no login.
    async fn proved(&self, evidence: &Evidence, from: Origin) -> Result<Option<(Proved, String)>> {
        Ok(match evidence {
            Evidence::Password { user, password } => {
                let proved = self.by_password(user, password, from).await?;
                let by = said_of(&proved.caller);
                Some((proved, format!("{by}{}", uid_of(from))))
            }
            Evidence::SocketUid(uid) => Some((self.by_uid(*uid).await?, format!("uid {uid}"))),
            Evidence::Token(token) => match tokens::id_of(token) {
                Some(id) => {
                    let proved = self.by_own_token(id, from).await?;
                    Some((proved, format!("{}{}", token_said(id), uid_of(from))))
                }
                None if issuers::is_meant(token.expose()) => Some(self.by_issued(token, from).await?),
                None => None,
            },
            Evidence::Certificate(chain) => Some(self.by_certificate(chain, from).await?),
            Evidence::None | Evidence::Link(_) => None,
        })
    }

    async fn tell_login(&self, caller: &Caller, from: Origin, because: String) {
        if !caller.is_anyone() {
            self.home.tell(caller, Some(from), "login", AuditOutcome::Done, because).await;
        }
    }

    async fn tell_refused(&self, error: &Error, from: Origin, because: String) {
        let refused = AuditOutcome::Failed(error.kind());
        self.home.tell(&Caller::anyone(), Some(from), "login", refused, because).await;
    }

    async fn caller_of(&self, evidence: &Evidence, from: Origin) -> Result<Caller> {
        if let Some((proved, because)) = self.proved(evidence, from).await? {
            if proved.is_news {
                self.tell_login(&proved.caller, from, because).await;
            }
            return Ok(proved.caller);
        }
        match evidence {
            Evidence::Link(secret) => self.by_link(secret, from).await,
            Evidence::Token(token) => {
                let answer = self.by_token(token).await;
                if let Err(error) = &answer {
                    self.tell_refused(error, from, format!("token{}", uid_of(from))).await;
                }
                answer
            }
            _ => Ok(Caller::anyone()),
        }
    }

    /// Makes a credential of its own for whoever has just logged in: what is remembered of
    /// the evidence saves the work of checking it, and lends nothing to what comes of it.
    async fn new_login(&self, caller: &Caller, narrower: &Attenuation, life: Duration) -> Result<Caller> {
        let home = &self.home;
        let _gate = home.gate.read().await;
        check_wanted(home, caller, life)?;
        let mut mint = home.login(caller.claims().evidence);
        mint.limits = mint.limits.narrowed(narrower)?;
        mint.expires = mint.issued.plus(life_within(life));
        home.mint(&home.space.snapshot()?, caller.name(), mint)
    }

    /// Returns whom a link lets its holder act for. A wrong one waits as a wrong password does; a right
    /// one never, whoever guesses from the same place.
    async fn by_link(&self, secret: &Secret, from: Origin) -> Result<Caller> {
        match self.links.caller_of(secret, from).await {
            Ok((caller, is_news)) => {
                if is_news {
                    self.count_login(LoginBy::Link, &Ok(()));
                    let delegate = caller.claims().delegates.first().map_or("", |link| link.local());
                    self.tell_login(&caller, from, format!("link {delegate}")).await;
                }
                Ok(caller)
            }
            Err(error) => {
                self.tell_refused(&error, from, "link".to_owned()).await;
                let outcome = Outcome::of(error.kind());
                self.home.sys.metrics().auth_logins.count((LoginBy::Link, outcome));
                if error.kind() == ErrorKind::NotFound {
                    let attempt = self.checks.begin(LINKS, from.into()).await?;
                    attempt.was_wrong(self.home.steady.tick());
                }
                Err(error)
            }
        }
    }

    async fn by_token(&self, token: &Secret) -> Result<Caller> {
        if let Some(caller) = self.home.remembered.token(token)
            && self.home.live(&caller).is_ok()
        {
            return Ok(caller);
        }
        let signed = Signed::from_token(token.expose())?;
        let caller = {
            let _gate = self.home.gate.read().await;
            match self.home.verify(&signed) {
                Err(error) if error.kind() == ErrorKind::Stale => self.with_present_groups(&signed)?,
                verified => verified?,
            }
        };
        self.issued.check_still(&caller)?;
        self.remember_name(caller.name()).await?;
        self.home.remembered.keep_token(token, &caller);
        Ok(caller)
    }

    /// Makes a credential afresh that was good but for its caller's groups. It ends when the old
    /// one does, and by what ends the old one.
    fn with_present_groups(&self, old: &Signed) -> Result<Caller> {
        let home = &self.home;
        let claims: CredentialClaims =
            home.keys.trust().verify(old, Purpose::Credential, home.steady.now())?;
        let rows = home.space.snapshot()?;
        let is_user = claims.caller.kind() == Some(CallerKind::User);
        if is_user && !home.user(&rows, &claims.caller)?.is_some_and(|row| row.enabled) {
            return Err(Error::new(ErrorKind::Revoked, "the user may not log in any more"));
        }
        let mint = Mint {
            evidence: claims.evidence,
            parents: lineage(&claims)?,
            delegates: claims.delegates,
            attributes: claims.attributes,
            limits: claims.limits,
            issued: claims.issued,
            expires: claims.expires,
            confines: claims.confines,
        };
        home.mint(&rows, &claims.caller, mint)
    }

    /// Keeps the name behind a foreign caller's id, once.
    async fn remember_name(&self, name: &CallerName) -> Result<()> {
        if name.domain() == Some(self.home.domain.id) || self.name_of(name.id()).await?.is_some() {
            return Ok(());
        }
        let name = name.clone();
        let act = move |txn: &mut SpaceTxn<'_>| tables::write(txn, &tables::name_key(name.id()), &name);
        self.home.space.write(Ack::Applied, act).await?;
        Ok(())
    }

    fn may_revoke(&self, caller: &Caller, what: &Revoke) -> bool {
        let own = |id: CallerId| {
            caller.name().id() == id
                && !caller.is_anyone()
                && is_whole(caller, self.home.steady.moment().wall)
        };
        self.home.is_administrator(caller)
            || match what {
                Revoke::Credential(id) | Revoke::AnyCredential(id) => {
                    let itself = *id == caller.credential() && !caller.is_anyone();
                    itself || (own(caller.name().id()) && self.home.made_for(*id, caller.name().id()))
                }
                Revoke::Caller(name) | Revoke::AnyCaller(name) => own(name.id()),
                Revoke::Capability(..) | Revoke::Container(_) => false,
            }
    }
}

/// Returns the ids of a credential and of those it came from. `TooLarge` if it has come too far.
fn lineage(claims: &CredentialClaims) -> Result<Vec<CredentialId>> {
    if claims.parents.len() + 1 >= limits::LINEAGE_MAX {
        return Err(Error::new(ErrorKind::TooLarge, "the credential has been narrowed too often")
            .hint("weft login, and narrow that one"));
    }
    Ok(claims.parents.iter().copied().chain([claims.id]).collect())
}

/// Says from which uid, where there is one.
fn uid_of(from: Origin) -> String {
    from.uid.map_or_else(String::new, |uid| format!(", from uid {uid}"))
}

/// Says what a caller who gave a password proved it by.
fn said_of(caller: &Caller) -> String {
    let claims = caller.claims();
    match (claims.evidence, claims.delegates.first()) {
        (EvidenceKind::Token, Some(token)) => format!("token {}", token.local()),
        _ => "password".to_owned(),
    }
}

fn token_said(id: TokenId) -> String {
    format!("token {id}")
}

/// Checks that a caller may have a credential made that lives so long.
fn check_wanted(home: &Home, caller: &Caller, life: Duration) -> Result<()> {
    home.live(caller)?;
    if caller.is_anyone() {
        return Err(Error::new(ErrorKind::Unauthenticated, "anyone has no credential").hint("weft login"));
    }
    if caller.within().is_some() {
        return Err(Error::not_permitted("a link is followed, and is no login"));
    }
    if life.is_zero() {
        return Err(Error::invalid("a credential lives for some time"));
    }
    Ok(())
}

fn signed_of(made: &Caller) -> Result<Signed> {
    made.signed().cloned().ok_or_else(|| Error::internal("a minted credential is not there"))
}

#[async_trait]
impl Authority for HomeAuthority {
    async fn authenticate(&self, evidence: &Evidence, from: Origin) -> Result<Caller> {
        self.caller_of(evidence, from).await.map_err(|error| error.op("authenticate"))
    }

    async fn login(
        &self,
        evidence: &Evidence,
        narrower: &Attenuation,
        life: Duration,
        from: Origin,
    ) -> Result<Signed> {
        let no_login = match evidence {
            Evidence::Link(_) => Some("a link is followed, and is no login"),
            Evidence::Certificate(_) => Some("a certificate is shown on each connection, and is no login"),
            _ => None,
        };
        if let Some(why) = no_login {
            return Err(Error::not_permitted(why).op("authenticate"));
        }
        let Some((proved, because)) = self.proved(evidence, from).await.map_err(|e| e.op("authenticate"))?
        else {
            let caller = self.authenticate(evidence, from).await?;
            return self.credential(&caller, narrower, life).await;
        };
        if matches!(proved.caller.claims().evidence, EvidenceKind::Token | EvidenceKind::Issuer) {
            // No login of its own: it stays as narrow as the token is, and ends with it.
            if proved.is_news {
                self.tell_login(&proved.caller, from, because).await;
            }
            return self.credential(&proved.caller, narrower, life).await;
        }
        let made = self.new_login(&proved.caller, narrower, life).await?;
        self.tell_login(&made, from, because).await;
        self.home.recorded().await?;
        signed_of(&made)
    }

    async fn credential(&self, caller: &Caller, narrower: &Attenuation, life: Duration) -> Result<Signed> {
        let home = &self.home;
        let _gate = home.gate.read().await;
        check_wanted(home, caller, life)?;
        let claims = caller.claims();
        let issued = home.steady.stamp();
        let mint = Mint {
            evidence: EvidenceKind::Credential,
            parents: lineage(claims)?,
            delegates: claims.delegates.clone(),
            attributes: claims.attributes.clone(),
            limits: claims.limits.narrowed(narrower)?,
            issued,
            expires: issued.plus(life_within(life)).min(claims.expires),
            confines: claims.confines.clone(),
        };
        signed_of(&home.mint(&home.space.snapshot()?, caller.name(), mint)?)
    }

    async fn count_use(&self, caller: &Caller, from: Origin, file: FileId, portion: Portion) -> Result<()> {
        self.links.count_use(caller, from, file, portion).await
    }

    async fn name_of(&self, id: CallerId) -> Result<Option<CallerName>> {
        if id == CallerId::ANYONE {
            return Ok(Some(CallerName::ANYONE));
        }
        tables::read(&self.home.space.snapshot()?, &tables::name_key(id))
    }

    async fn revoke(&self, caller: &Caller, what: &Revoke) -> Result<()> {
        self.home.live(caller)?;
        let refused = (!self.may_revoke(caller, what)).then(|| {
            Error::not_permitted("only its holder or an administrator may revoke it").caller(caller.name())
        });
        let (home, issuer) = (self.home.clone(), self.issuer.clone());
        let (caller, what) = (caller.clone(), what.clone());
        let change = async move {
            let outcome = match refused {
                Some(error) => Err(error),
                None => withdraw(&home, &issuer, &caller, &what).await,
            };
            let outcome = outcome.map_err(|error| error.op("revoke"));
            home.tell_edit(&caller, "revoke", outcome, what.to_string()).await
        };
        self.home.to_the_end(change).await
    }
}

async fn withdraw(home: &Arc<Home>, issuer: &SigningIssuer, caller: &Caller, what: &Revoke) -> Result<()> {
    match what {
        Revoke::Credential(id) => demand_made_here(home, caller, *id).await?,
        Revoke::Caller(name) => demand_known(home, name)?,
        _ => {}
    }
    match what {
        Revoke::Credential(id) | Revoke::AnyCredential(id) => {
            // What others vouch for may last longer than any credential of ours.
            let own = home.is_own(*id, caller.name().id());
            let kept = if own { limits::CREDENTIAL_LIFE } else { limits::REVOCATION_KEPT };
            home.end_credential(*id, home.steady.now().plus(kept).plus(limits::CLOCK_SKEW_MAX)).await?;
        }
        Revoke::Caller(name) | Revoke::AnyCaller(name) => home.end_caller(name).await?,
        Revoke::Capability(id, rights) => issuer.withdraw_by_id(*id, *rights),
        Revoke::Container(container) => issuer.end_container(*container),
    }
    home.sys.metrics().auth_revocations.count(());
    Ok(())
}

/// Fails with `NotFound` unless the domain has seen the caller.
fn demand_known(home: &Home, name: &CallerName) -> Result<()> {
    if home.space.snapshot()?.get(&tables::name_key(name.id()))?.is_some() {
        return Ok(());
    }
    let detail = match name.kind() {
        Some(CallerKind::User) if name.domain() == Some(home.domain.id) => "the domain has no such user",
        _ => "nobody of that name has been here",
    };
    Err(Error::not_found(detail).about(name.seen_from(home.domain.id)))
}

/// Fails with `NotFound` unless the domain has made the credential for somebody it has seen. None
/// is kept anywhere: who of all it was made for is found by asking its id.
async fn demand_made_here(home: &Arc<Home>, caller: &Caller, id: CredentialId) -> Result<()> {
    if id == caller.credential() || home.made_for(id, caller.name().id()) {
        return Ok(());
    }
    let everybody = home.clone();
    let look = move || -> Result<bool> {
        let mut found = false;
        tables::each_below(&everybody.space.snapshot()?, b"n", |rest, _| {
            found = everybody.made_for(id, CallerId(tables::id_of(rest)?));
            Ok(!found)
        })?;
        Ok(found)
    };
    if home.sys.blocking(look).await?? {
        return Ok(());
    }
    Err(Error::not_found("the domain has made no such credential").about(id))
}

/// Takes up what was revoked before the node was started. Returns the latest time in it.
pub(crate) fn reload(space: &Space, revocations: &Revocations) -> Result<Time> {
    let rows = space.snapshot()?;
    let mut latest = Time::EPOCH;
    tables::each_below(&rows, b"c", |rest, value| {
        revocations.end_credential(CredentialId(tables::id_of(rest)?), tables::decode(value)?);
        Ok(true)
    })?;
    tables::each_below(&rows, b"l", |rest, value| {
        let (id, line): (_, Line) = (CallerId(tables::id_of(rest)?), tables::decode(value)?);
        if let Some(at) = line.revoked {
            revocations.end_caller(id, at);
            latest = latest.max(at);
        }
        if line.membership > 0 {
            revocations.change_membership(id, line.membership, || tables::groups_of(&rows, id));
        }
        Ok(true)
    })?;
    Ok(latest)
}

/// Forgets, a page at a time, withdrawals of credentials that have long run out. Rows are kept for
/// one more life, in case the wall clock is set back while the node is down.
pub(crate) async fn forget_run_out(home: &Home) -> Result<()> {
    let now = home.steady.now();
    home.revocations.forget_before(now);
    let mut gone = Vec::new();
    tables::each_below(&home.space.snapshot()?, b"c", |rest, value| {
        if tables::decode::<Time>(value)?.plus(limits::CREDENTIAL_LIFE) < now {
            gone.push(CredentialId(tables::id_of(rest)?));
        }
        Ok(gone.len() < limits::ACCOUNTS_PAGE_MAX)
    })?;
    if gone.is_empty() {
        return Ok(());
    }
    let act = move |txn: &mut SpaceTxn<'_>| gone.iter().try_for_each(|id| tables::forget(txn, *id));
    home.space.write(Ack::Applied, act).await?;
    Ok(())
}
