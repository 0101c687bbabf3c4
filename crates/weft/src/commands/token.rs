//! `weft token`

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, Subcommand};
use weft_client::Client;
use weft_core::acl::Network;
use weft_core::proof::Attenuation;
use weft_core::service::{NewToken, TokenGrant, TokenRecord, Tokens, TokensOf};
use weft_core::{CallerName, Error, Result, Rights, Time, TokenId, limits};

use crate::context::Context;
use crate::output::{note, out};
use crate::paths::tree_path;
use crate::{show, spans};

/// What to do with tokens.
#[derive(Subcommand)]
pub enum TokenCommand {
    /// Make a token, by which a program acts for you
    #[command(after_help = CREATE_HELP)]
    Create(CreateArgs),
    /// List your tokens, and those that ended lately
    Ls {
        /// This user's, for administrators
        #[arg(long = "for", value_name = "USER")]
        owner: Option<String>,
        /// Everybody's, for administrators
        #[arg(long, conflicts_with = "owner")]
        all: bool,
    },
    /// End tokens, and what is being done by them
    Revoke {
        /// Their names or their ids, as `weft token ls` shows them
        #[arg(required = true, value_name = "NAME|ID")]
        which: Vec<String>,
        /// Whose they are, for administrators [default: yours]
        #[arg(long = "for", value_name = "USER")]
        owner: Option<String>,
    },
}

/// Options of `weft token create`.
#[derive(Args)]
pub struct CreateArgs {
    /// What you call it: letters, digits, `.`, `_` and `-`
    name: String,
    /// How long it lasts: `12h`, `7d`, `2w`; at most 366d
    #[arg(long, value_name = "SPAN", default_value = "90d", value_parser = spans::read)]
    life: Duration,
    /// Narrow it to these rights
    #[arg(long, value_name = "RIGHTS")]
    rights: Option<String>,
    /// Narrow it to what lies below this path (may be given again)
    #[arg(long, value_name = "PATH")]
    path: Vec<OsString>,
    /// Narrow it to callers in this network (may be given again)
    #[arg(long, value_name = "NETWORK")]
    host: Vec<Network>,
}

const CREATE_HELP: &str = "\
Whoever has the token does what you may do, within what it is narrowed to; it makes no tokens and links, changes no policy, and \
administers nothing. It is shown this once. Programs give it as a bearer token, or beside your name in the place of the password. \
`weft token revoke` ends it, and what is being done by it, at once.";

impl CreateArgs {
    fn token(&self) -> Result<NewToken> {
        let limits = Attenuation {
            rights: self.rights.as_deref().map_or(Ok(Rights::ALL), Rights::parse)?,
            paths: self.path.iter().map(|path| tree_path(path)).collect::<Result<_>>()?,
            hosts: self.host.clone(),
            ..Attenuation::NONE
        };
        Ok(NewToken { name: self.name.clone(), limits, life: self.life })
    }
}

pub fn run(context: &Context, command: &TokenCommand) -> Result<()> {
    match command {
        TokenCommand::Create(args) => create(context, args),
        TokenCommand::Ls { owner, all } => list(context, owner.as_deref(), *all),
        TokenCommand::Revoke { which, owner } => revoke(context, which, owner.as_deref()),
    }
}

fn create(context: &Context, args: &CreateArgs) -> Result<()> {
    context.wait(async {
        let new = args.token()?;
        let client = context.client().await?;
        let made = client.remote().make_token(client.caller(), &new).await;
        let made = made.map_err(|error| error.op("make a token"))?;
        if let Err(error) = told(context, &made) {
            // Nobody has it, and nobody can be told it again.
            let _ = client.remote().end_token(client.caller(), made.record.id).await;
            return Err(error);
        }
        if context.json() {
            return Ok(());
        }
        let record = &made.record;
        note!("token {}, {}, until {} UTC", record.name, narrowed(record), show::time(record.expires));
        note!("hint: it is not shown again; a file that holds it is for you alone: chmod 600");
        Ok(())
    })
}

fn told(context: &Context, made: &TokenGrant) -> Result<()> {
    if context.json() {
        let mut json = json(&made.record);
        json["token"] = made.secret.expose().into();
        return out!("{json}");
    }
    out!("{}", made.secret.expose())
}

fn list(context: &Context, owner: Option<&str>, all: bool) -> Result<()> {
    context.wait(async {
        let client = context.client().await?;
        let of = if all { TokensOf::Everybody } else { of(&client, owner)? };
        let by = |token: &TokenRecord| match all {
            true => format!("{:12} ", token.by.seen_from(client.domain())),
            false => String::new(),
        };
        let mut after = None;
        loop {
            let page = client.remote().tokens(client.caller(), &of, after).await;
            let page = page.map_err(|error| error.op("list tokens"))?;
            after = page.last().map(|token| (token.by.id(), token.id));
            for token in &page {
                if context.json() {
                    out!("{}", json(token))?;
                } else {
                    line(token, &by(token))?;
                }
            }
            if page.len() < limits::ACCOUNTS_PAGE_MAX {
                return Ok(());
            }
        }
    })
}

fn revoke(context: &Context, which: &[String], owner: Option<&str>) -> Result<()> {
    context.wait(async {
        let client = context.client().await?;
        for which in which {
            let id = id_of(&client, which, owner).await?;
            let ended = client.remote().end_token(client.caller(), id).await;
            let ended = ended.map_err(|error| error.op("revoke token").about(which).hint("weft token ls"))?;
            if context.json() {
                out!("{}", json(&ended))?;
            }
        }
        Ok(())
    })
}

/// Returns whose tokens are meant.
fn of(client: &Client, owner: Option<&str>) -> Result<TokensOf> {
    let name = |owner| CallerName::parse(owner, client.domain()).map_err(|e| e.about(owner));
    owner.map_or(Ok(TokensOf::Caller), |owner| name(owner).map(TokensOf::User))
}

/// Returns the id that is meant by an id, or by the name of a token that works.
async fn id_of(client: &Client, which: &str, owner: Option<&str>) -> Result<TokenId> {
    if let Ok(id) = which.parse() {
        return Ok(id);
    }
    let list = client.remote().tokens(client.caller(), &of(client, owner)?, None).await;
    let list = list.map_err(|error| error.op("revoke token").about(which))?;
    let found = list.iter().find(|token| token.name == which && token.ended.is_none());
    found.map(|token| token.id).ok_or_else(|| {
        Error::not_found("no token of that name works").op("revoke token").about(which).hint("weft token ls")
    })
}

/// Says what a token is narrowed to.
fn narrowed(token: &TokenRecord) -> String {
    let mut words = match Rights::ALL - token.limits.rights {
        without if without == Rights::ACL_WRITE => vec!["all rights but `acl-write`".to_owned()],
        _ => vec![token.limits.rights.to_string()],
    };
    words.extend(token.limits.paths.iter().map(|path| format!("/{path}")));
    words.extend(token.limits.hosts.iter().map(|host| format!("from {host}")));
    words.join(" ")
}

fn line(token: &TokenRecord, by: &str) -> Result<()> {
    let state = match &token.ended {
        Some(why) => format!("ended: {why}"),
        None => format!("until {} UTC", show::time(token.expires)),
    };
    let used = token.last.map_or_else(|| "never".to_owned(), |at| format!("{} UTC", show::time(at)));
    let narrowed = narrowed(token);
    out!(
        "{} {by}{:16} {}  made {} UTC  {state}  used {used}",
        token.id,
        token.name,
        weft_core::OneLine(&narrowed),
        show::time(token.made)
    )
}

fn json(token: &TokenRecord) -> serde_json::Value {
    serde_json::json!({
        "id": token.id.to_string(),
        "name": token.name,
        "by": token.by.to_string(),
        "rights": token.limits.rights.to_string(),
        "paths": token.limits.paths.iter().map(|path| format!("/{path}")).collect::<Vec<_>>(),
        "hosts": token.limits.hosts.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "made": token.made.seconds(),
        "expires": token.expires.seconds(),
        "last": token.last.map(Time::seconds),
        "ended": token.ended,
    })
}
