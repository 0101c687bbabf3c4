//! Tokens: long-lived credentials for programs.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::authority::Secret;
use crate::caller::CallerName;
use crate::error::Result;
use crate::id::{CallerId, TokenId};
use crate::proof::{Attenuation, Caller};
use crate::time::Time;

/// How a token starts, so that a leaked one can be recognised for what it is.
pub const TOKEN_PREFIX: &str = "weft_";

/// A token to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewToken {
    /// What its owner calls it: 1 to `limits::TOKEN_NAME_BYTES_MAX` letters, digits, `.`, `_` and `-`.
    pub name: String,
    /// What it is narrowed to.
    pub limits: Attenuation,
    /// How long it lasts, from a second to `limits::TOKEN_LIFE_MAX`.
    pub life: Duration,
}

/// A token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRecord {
    /// Its id: not its secret, and nothing can be done with it.
    pub id: TokenId,
    /// What its owner calls it.
    pub name: String,
    /// Who made it, as whom its holder acts.
    pub by: CallerName,
    /// What it is narrowed to.
    pub limits: Attenuation,
    /// When it was made.
    pub made: Time,
    /// When it ends.
    pub expires: Time,
    /// When it was used last, to within `limits::TOKEN_REMEMBERED`.
    pub last: Option<Time>,
    /// Why it works no more, if it does not.
    pub ended: Option<String>,
}

/// A token that was made, with its secret, which is told this once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenGrant {
    /// The token.
    pub record: TokenRecord,
    /// Its secret.
    pub secret: Secret,
}

/// Whose tokens to list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TokensOf {
    /// The caller's own.
    Caller,
    /// One user's, for administrators.
    User(CallerName),
    /// Everybody's, for administrators.
    Everybody,
}

/// Makes, lists and ends the tokens by which programs act for users.
#[async_trait]
pub trait Tokens: Send + Sync {
    /// Makes a token for the caller. Its holder may do at most what the token is narrowed to, and of that
    /// what the caller may when it is used; it makes no tokens and links, and administers nothing.
    ///
    /// Takes a credential that is not narrowed (`NotPermitted`). `Invalid` for a name, a life or rights
    /// that are none, `Exists` for the name of a token that works, `TooLarge` for more than
    /// `limits::TOKENS_OWNED_MAX`.
    async fn make_token(&self, caller: &Caller, new: &NewToken) -> Result<TokenGrant>;

    /// Returns tokens, those that ended lately too, in the order of their makers' ids and theirs, after
    /// one of them; at most 1 000.
    async fn tokens(
        &self,
        caller: &Caller,
        of: &TokensOf,
        after: Option<(CallerId, TokenId)>,
    ) -> Result<Vec<TokenRecord>>;

    /// Ends a token, and what is being done by it. For its maker and administrators; `NotFound` for
    /// others.
    async fn end_token(&self, caller: &Caller, id: TokenId) -> Result<TokenRecord>;
}
