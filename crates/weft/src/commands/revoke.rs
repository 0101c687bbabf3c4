//! `weft revoke`

use std::ffi::OsString;

use clap::{ArgGroup, Args};
use weft_client::Client;
use weft_core::service::Revoke;
use weft_core::{CallerName, CredentialId, Error, ErrorKind, Result};

use crate::context::Context;
use crate::paths::TreePath;

/// Options of `weft revoke`: exactly one says what.
#[derive(Args)]
#[command(group(ArgGroup::new("what").required(true)))]
pub struct RevokeArgs {
    /// Every credential this caller has now
    #[arg(long, group = "what")]
    caller: Option<String>,
    /// One credential, by its id, and what was derived from it
    #[arg(long, group = "what", value_name = "ID")]
    credential: Option<CredentialId>,
    /// Every capability issued so far for the container that governs this path
    #[arg(long, group = "what", value_name = "PATH")]
    container: Option<OsString>,
    /// Also what the node does not know: of another domain, or of a user made after the backup
    /// that the node was restored from
    #[arg(long, conflicts_with = "container")]
    unknown: bool,
}

pub fn run(context: &Context, args: &RevokeArgs) -> Result<()> {
    context.wait(async {
        let client = context.client().await?;
        let what = what(&client, args).await.map_err(|e| e.op("revoke"))?;
        let done = client.remote().revoke(client.caller(), what).await;
        done.map_err(|error| {
            let error = error.op("revoke");
            let unknown = error.kind() == ErrorKind::NotFound && args.container.is_none();
            let hint = "nothing was revoked: look for a slip of the pen; `--unknown` revokes what another \
                        domain made, or what was made after the backup that the node was restored from";
            if unknown { error.hint(hint) } else { error }
        })
    })
}

async fn what(client: &Client, args: &RevokeArgs) -> Result<Revoke> {
    if let Some(caller) = &args.caller {
        let name = CallerName::parse(caller, client.domain()).map_err(|e| e.about(caller))?;
        return Ok(if args.unknown { Revoke::AnyCaller(name) } else { Revoke::Caller(name) });
    }
    if let Some(id) = args.credential {
        return Ok(if args.unknown { Revoke::AnyCredential(id) } else { Revoke::Credential(id) });
    }
    let path = args.container.as_ref().ok_or_else(|| Error::invalid("nothing was named"))?;
    Ok(Revoke::Container(TreePath::read(path)?.look_up(client).await?.container))
}
