//! Tokens: secrets by which programs act for users, narrowed, for as long as months.
//!
//! A token is a row that its secret finds, as a link is. What is signed for its holder is a credential of
//! the usual short life, so a key that is rotated, a change of groups and a disabled user have the effect
//! they have on any. It carries the token's id as a parent, by which all that came of it ends, and the
//! token's name as a delegate, by which it is told from its maker: whoever comes by a token makes no other
//! ways in, changes no policy and administers nothing, so that nothing outlives its end.

use std::sync::Arc;

use async_trait::async_trait;
use weft_core::proof::{Attenuation, Caller, EvidenceKind};
use weft_core::service::{NewToken, Secret, TOKEN_PREFIX, TokenGrant, TokenRecord, Tokens, TokensOf};
use weft_core::{
    CallerId, CallerKind, CallerName, Clock, Error, ErrorKind, Result, Rights, Time, TokenId, limits,
};
use weft_kv::{Ack, Order, Read, SpaceTxn, Txn, prefix_end};
use weft_sys::Random;

use crate::home::{Home, Mint, sooner};
use crate::secret;
use crate::tables::{self, Line, TokenRow, TokenUse};

/// What a token may carry: what was granted with one would outlive it.
const CARRIED: Rights = Rights::from_bits(Rights::ALL.bits() & !Rights::ACL_WRITE.bits());
/// Sets tokens' secrets apart.
const PURPOSE: &str = "weft token id v1";

/// The tokens of the home domain, in its tables.
pub(crate) struct TableTokens {
    home: Arc<Home>,
}

/// Returns the id of the token that a text is; none for what cannot be one.
pub(crate) fn id_of(text: &Secret) -> Option<TokenId> {
    secret::id_of(text.expose().strip_prefix(TOKEN_PREFIX)?, PURPOSE).map(TokenId)
}

fn fresh(random: &dyn Random) -> (TokenId, Secret) {
    let (id, secret) = secret::fresh(random, PURPOSE);
    (TokenId(id), Secret::new(format!("{TOKEN_PREFIX}{}", secret.expose())))
}

impl TableTokens {
    pub(crate) fn new(home: Arc<Home>) -> Self {
        Self { home }
    }

    /// Returns whom a token lets its holder act for, and whether that was found out only now. `NotFound`
    /// for what is no token, or none of the user who is said to show it; `Expired` or `Revoked` for one
    /// that has ended.
    pub(crate) async fn caller_of(&self, id: TokenId, user: Option<&str>) -> Result<(Caller, bool)> {
        let home = &self.home;
        let is_theirs = |owner: &CallerName| match user {
            Some(user) => CallerName::parse(user, home.domain.id).is_ok_and(|user| user == *owner),
            None => true,
        };
        let remembered = home.remembered.by_token(id, home.steady.tick());
        if let Some(caller) = remembered.filter(|caller| home.live(caller).is_ok()) {
            return if is_theirs(caller.name()) { Ok((caller, false)) } else { Err(none_such()) };
        }
        let caller = {
            let _gate = home.gate.read().await;
            let rows = home.space.snapshot()?;
            let (row, _) = find(&rows, id)?.filter(|(row, _)| is_theirs(&row.by)).ok_or_else(none_such)?;
            if let Some((kind, why)) = self.ended(&rows, &row)? {
                return Err(Error::new(kind, why).about(id).hint("weft token create makes another"));
            }
            let caller = self.mint(&rows, id, row)?;
            home.remembered.keep_by_token(id, &caller, home.steady.tick());
            caller
        };
        self.note_use(id).await;
        Ok((caller, true))
    }

    fn mint(&self, rows: &impl Read, id: TokenId, row: TokenRow) -> Result<Caller> {
        let home = &self.home;
        let issued = home.steady.stamp();
        let mint = Mint {
            parents: vec![id.credential()],
            delegates: vec![CallerName::new(CallerKind::Token, &id.to_string(), home.domain.id)?],
            limits: row.limits,
            issued,
            expires: issued.plus(limits::CREDENTIAL_LIFE).min(sooner(row.expires)),
            ..home.login(EvidenceKind::Token)
        };
        home.mint(rows, &row.by, mint)
    }

    /// Returns why a token works no more, if it does not.
    fn ended(&self, rows: &impl Read, row: &TokenRow) -> Result<Option<(ErrorKind, &'static str)>> {
        let line: Line = tables::read(rows, &tables::line_key(row.by.id()))?.unwrap_or_default();
        let enabled = self.home.user(rows, &row.by)?.is_some_and(|user| user.enabled);
        Ok(if row.revoked.is_some() {
            Some((ErrorKind::Revoked, "the token was revoked"))
        } else if !enabled || line.revoked.is_some_and(|at| row.made <= at) {
            Some((ErrorKind::Revoked, "what its owner held was ended"))
        } else if self.home.steady.now() >= row.expires {
            Some((ErrorKind::Expired, "the token has run out"))
        } else {
            None
        })
    }

    /// Writes down when a token was used: now and then, not at each use. It lets nobody in and keeps
    /// nobody out, so a disk that does not take it changes nothing.
    async fn note_use(&self, id: TokenId) {
        let now = self.home.steady.now();
        let act = move |txn: &mut SpaceTxn<'_>| {
            // One that was forgotten meanwhile is not to come back.
            match tables::read::<TokenUse>(txn, &tables::token_use_key(id))? {
                Some(used) => {
                    tables::write(txn, &tables::token_use_key(id), &TokenUse { last: Some(now), ..used })
                }
                None => Ok(()),
            }
        };
        if let Err(error) = self.home.space.write(Ack::Applied, act).await {
            tracing::debug!(%error, "when a token was used is not written down");
        }
    }

    async fn put(&self, caller: &Caller, id: TokenId, new: &NewToken) -> Result<TokenRecord> {
        let home = &self.home;
        home.demand_somebody(caller)?;
        check(new)?;
        let wanted = Attenuation { rights: new.limits.rights & CARRIED, ..new.limits.clone() };
        // One change at a time, so that two tokens cannot be given one name.
        let _gate = home.gate.write().await;
        let rows = home.space.snapshot()?;
        if home.user(&rows, caller.name())?.is_none() {
            let detail = "tokens are made by the domain's users";
            return Err(Error::not_permitted(detail).caller(caller.name()));
        }
        home.live(caller)?;
        self.demand_room(&rows, caller.name(), &new.name)?;
        let made = home.steady.stamp();
        let row = TokenRow {
            by: caller.name().clone(),
            name: new.name.clone(),
            limits: Attenuation::NONE.narrowed(&wanted)?,
            made,
            expires: made.plus(new.life),
            revoked: None,
        };
        let used = TokenUse { by: row.by.id(), last: None };
        let kept = row.clone();
        let act = move |txn: &mut SpaceTxn<'_>| {
            tables::write(txn, &tables::token_key(kept.by.id(), id), &kept)?;
            tables::write(txn, &tables::token_use_key(id), &used)
        };
        home.space.write(Ack::Durable, act).await?;
        Ok(record(id, row, None, None))
    }

    /// Fails unless a user may have one more token, of this name.
    fn demand_room(&self, rows: &impl Read, owner: &CallerName, name: &str) -> Result<()> {
        let mut count = 0;
        let prefix = tables::key(b'o', &[&owner.id().0.to_be_bytes()]);
        for row in rows.scan(&prefix, &prefix_end(&prefix), Order::Rising) {
            let (key, value) = row?;
            count += 1;
            let row: TokenRow = tables::opened(&key, &value)?;
            if row.name == name && self.ended(rows, &row)?.is_none() {
                return Err(Error::exists("you have a token of that name")
                    .about(name)
                    .hint("choose another name, or weft token revoke it first"));
            }
        }
        if count >= limits::TOKENS_OWNED_MAX {
            return Err(Error::new(ErrorKind::TooLarge, "a user has at most 256 tokens")
                .hint("one that has ended is forgotten after a week: weft token ls, weft token revoke"));
        }
        Ok(())
    }

    fn list(
        &self,
        caller: &Caller,
        of: &TokensOf,
        after: Option<(CallerId, TokenId)>,
    ) -> Result<Vec<TokenRecord>> {
        let rows = self.home.space.snapshot()?;
        let prefix = self.listed(&rows, caller, of)?;
        let from = match after {
            // The least key behind it.
            Some((owner, id)) => [tables::token_key(owner, id), vec![0]].concat().max(prefix.clone()),
            None => prefix.clone(),
        };
        let shown = |row: Result<(bytes::Bytes, bytes::Bytes)>| {
            let (key, value) = row?;
            let (_, id) = tables::pair_of(&key[1..])?;
            self.shown(&rows, TokenId(id), tables::opened(&key, &value)?)
        };
        rows.scan(&from, &prefix_end(&prefix), Order::Rising)
            .take(limits::ACCOUNTS_PAGE_MAX)
            .map(shown)
            .collect()
    }

    /// Returns how the keys begin of the tokens that a caller may list.
    fn listed(&self, rows: &impl Read, caller: &Caller, of: &TokensOf) -> Result<Vec<u8>> {
        let of_one = |id: CallerId| tables::key(b'o', &[&id.0.to_be_bytes()]);
        match of {
            TokensOf::Caller => {
                self.home.demand_somebody(caller)?;
                Ok(of_one(caller.name().id()))
            }
            TokensOf::User(name) => {
                self.home.demand_administrator(caller)?;
                let gone = || Error::not_found("the domain has no such user").about(name);
                self.home.user(rows, name)?.ok_or_else(gone)?;
                Ok(of_one(name.id()))
            }
            TokensOf::Everybody => {
                self.home.demand_administrator(caller)?;
                Ok(tables::key(b'o', &[]))
            }
        }
    }

    fn shown(&self, rows: &impl Read, id: TokenId, row: TokenRow) -> Result<TokenRecord> {
        let used: Option<TokenUse> = tables::read(rows, &tables::token_use_key(id))?;
        let used =
            used.ok_or_else(|| Error::corrupt("a token's secret does not find it").hint("weft fsck"))?;
        let ended = self.ended(rows, &row)?;
        Ok(record(id, row, used.last, ended.map(|(_, why)| why)))
    }

    async fn take_back(&self, caller: &Caller, id: TokenId) -> Result<TokenRecord> {
        let home = &self.home;
        home.demand_somebody(caller)?;
        let _gate = home.gate.write().await;
        let rows = home.space.snapshot()?;
        let own = |row: &TokenRow| row.by == *caller.name() || home.is_administrator(caller);
        let (row, used) = find(&rows, id)?.filter(|(row, _)| own(row)).ok_or_else(none_such)?;
        let now = home.steady.now();
        let row = TokenRow { revoked: row.revoked.or(Some(now)), ..row };
        let until = now.plus(limits::CREDENTIAL_LIFE).plus(limits::CLOCK_SKEW_MAX);
        let kept = row.clone();
        let act = move |txn: &mut SpaceTxn<'_>| {
            tables::write(txn, &tables::token_key(kept.by.id(), id), &kept)?;
            tables::withdraw(txn, id.credential(), until)
        };
        home.space.write(Ack::Durable, act).await?;
        home.revocations.end_credential(id.credential(), until);
        Ok(record(id, row, used.last, Some("the token was revoked")))
    }
}

#[async_trait]
impl Tokens for TableTokens {
    async fn make_token(&self, caller: &Caller, new: &NewToken) -> Result<TokenGrant> {
        let (id, secret) = fresh(self.home.sys.random());
        let (this, by, asked) = (Self::new(self.home.clone()), caller.clone(), new.clone());
        let change = async move {
            let said = format!("token {id}: {}", words(&asked));
            let answer = this.put(&by, id, &asked).await.map_err(|error| error.op("make a token"));
            this.home.tell_edit(&by, "make-token", answer, said).await
        };
        let record = self.home.to_the_end(change).await?;
        Ok(TokenGrant { record, secret })
    }

    async fn tokens(
        &self,
        caller: &Caller,
        of: &TokensOf,
        after: Option<(CallerId, TokenId)>,
    ) -> Result<Vec<TokenRecord>> {
        self.list(caller, of, after).map_err(|error| error.op("list tokens"))
    }

    async fn end_token(&self, caller: &Caller, id: TokenId) -> Result<TokenRecord> {
        let (this, by) = (Self::new(self.home.clone()), caller.clone());
        let change = async move {
            let answer = this.take_back(&by, id).await.map_err(|error| error.op("revoke a token"));
            this.home.tell_edit(&by, "revoke-token", answer, format!("token {id}")).await
        };
        self.home.to_the_end(change).await
    }
}

fn none_such() -> Error {
    Error::not_found("there is no such token")
}

/// Finds a token, and when it was used.
fn find(rows: &(impl Read + ?Sized), id: TokenId) -> Result<Option<(TokenRow, TokenUse)>> {
    let Some(used) = tables::read::<TokenUse>(rows, &tables::token_use_key(id))? else { return Ok(None) };
    let row: Option<TokenRow> = tables::read(rows, &tables::token_key(used.by, id))?;
    Ok(row.map(|row| (row, used)))
}

/// Checks what a token is to be.
fn check(new: &NewToken) -> Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let named =
        (1..=limits::TOKEN_NAME_BYTES_MAX).contains(&new.name.len()) && new.name.bytes().all(is_plain);
    if !named {
        return Err(Error::invalid("a token's name is 1 to 64 letters, digits, `.`, `_` and `-`"));
    }
    if new.name.parse::<TokenId>().is_ok() {
        return Err(Error::invalid("the name reads as a token's id"));
    }
    if (new.limits.rights & CARRIED).is_empty() {
        return Err(Error::invalid("a token gives some right, and never `acl-write`"));
    }
    if new.life.is_zero() {
        return Err(Error::invalid("a token lasts for some time"));
    }
    if new.life > limits::TOKEN_LIFE_MAX {
        return Err(Error::invalid("a token lasts for at most 366 days"));
    }
    Ok(())
}

/// Says of a token what its maker chose, for the log. A name that is refused is not to be relied on.
fn words(new: &NewToken) -> String {
    let list = |what: &str, shown: Vec<String>| match shown.is_empty() {
        true => String::new(),
        false => format!(", {what} {}", shown.join(" ")),
    };
    let rights = if new.limits.rights == Rights::ALL { "all".into() } else { new.limits.rights.to_string() };
    let paths = new.limits.paths.iter().map(|path| format!("/{path}").escape_debug().to_string());
    let hosts = new.limits.hosts.iter().map(ToString::to_string);
    format!(
        "`{}`, {rights}{}{}, for {} s",
        new.name.chars().take(limits::TOKEN_NAME_BYTES_MAX).collect::<String>().escape_debug(),
        list("below", paths.take(limits::ATTENUATION_PATHS_MAX).collect()),
        list("from", hosts.take(limits::ATTENUATION_PATHS_MAX).collect()),
        new.life.as_secs()
    )
}

fn record(id: TokenId, row: TokenRow, last: Option<Time>, ended: Option<&str>) -> TokenRecord {
    TokenRecord {
        id,
        name: row.name,
        by: row.by,
        limits: row.limits,
        made: row.made,
        expires: row.expires,
        last,
        ended: ended.map(str::to_owned),
    }
}

/// Forgets, a page at a time, tokens that have ended long ago.
pub(crate) async fn forget_ended(home: &Home) -> Result<()> {
    let long_ago = |at: Time| at.plus(limits::TOKEN_KEPT) < home.steady.now();
    let mut gone = Vec::new();
    tables::each_below(&home.space.snapshot()?, b"o", |rest, value| {
        let row: TokenRow = tables::decode(value)?;
        if long_ago(row.revoked.unwrap_or(row.expires).min(row.expires)) {
            gone.push(tables::pair_of(rest)?);
        }
        Ok(gone.len() < limits::ACCOUNTS_PAGE_MAX)
    })?;
    if gone.is_empty() {
        return Ok(());
    }
    let act = move |txn: &mut SpaceTxn<'_>| {
        gone.iter().try_for_each(|(owner, id)| {
            txn.delete(&tables::token_key(CallerId(*owner), TokenId(*id)))?;
            txn.delete(&tables::token_use_key(TokenId(*id)))
        })
    };
    home.space.write(Ack::Applied, act).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use weft_conformance::file_system::site::Dice;
    use weft_conformance::fuzz::fuzz;

    use super::*;

    #[test]
    fn a_token_reads_as_itself_alone_and_never_as_a_links_secret() {
        let sys = weft_sys::Sys::simulated(7);
        let (id, secret) = fresh(sys.random());
        let text = secret.expose().to_owned();
        assert_eq!((text.len(), id_of(&secret)), (TOKEN_PREFIX.len() + 32, Some(id)));
        assert_ne!(fresh(sys.random()).0, id);
        for other in [text.to_uppercase(), format!("{text} "), text[..36].to_owned(), text[5..].to_owned()] {
            assert_eq!(id_of(&Secret::new(other.clone())), None, "{other}");
        }
        assert_eq!(crate::links::id_of(&secret), None);
        let bare = crate::links::id_of(&Secret::new(&text[5..])).expect("it has the form of one");
        assert_ne!(bare.0, id.0, "the same bits are another link");
    }

    #[test]
    fn a_mutated_token_is_none_or_another() {
        let good = |dice: &mut Dice| {
            let letters: Vec<u8> = (b'a'..=b'z').chain(b'2'..=b'7').collect();
            TOKEN_PREFIX.bytes().chain((0..32).map(|_| *dice.pick(&letters))).collect()
        };
        fuzz("token", good, |bytes| {
            let Ok(text) = std::str::from_utf8(bytes) else { return };
            if let Some(id) = id_of(&Secret::new(text)) {
                assert_eq!(text.len(), TOKEN_PREFIX.len() + 32);
                assert!(secret::tells_nothing(id.0, &text[TOKEN_PREFIX.len()..]));
            }
        });
    }
}
