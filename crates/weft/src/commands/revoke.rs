//! `weft revoke`

use std::ffi::OsString;

use clap::Args;
use weft_core::form::Want;
use weft_core::service::Revoke;
use weft_core::{CallerName, CredentialId, Result};

use crate::context::Context;
use crate::paths;

/// Options of `weft revoke`: exactly one.
#[derive(Args)]
#[group(required = true, multiple = false)]
pub struct RevokeArgs {
    /// Every credential this caller has now
    #[arg(long)]
    caller: Option<String>,
    /// One credential, by its id, and what was derived from it
    #[arg(long, value_name = "ID")]
    credential: Option<CredentialId>,
    /// Every capability issued so far for the container that governs this path
    #[arg(long, value_name = "PATH")]
    container: Option<OsString>,
}

pub fn run(context: &Context, args: &RevokeArgs) -> Result<()> {
    context.wait(async {
        let client = context.client().await?;
        let what = match (&args.caller, args.credential, &args.container) {
            (Some(caller), _, _) => Revoke::Caller(CallerName::parse(caller, client.domain())?),
            (_, Some(credential), _) => Revoke::Credential(credential),
            (_, _, Some(path)) => {
                let walked = client.fs().walk(&client.call(), &paths::at(path)?, Want::default()).await;
                Revoke::Container(
                    walked.map_err(|e| e.op("revoke").about(path.to_string_lossy()))?.attr.container,
                )
            }
            _ => return Err(weft_core::Error::invalid("nothing was named")),
        };
        client.remote().revoke(client.caller(), what).await
    })
}
