//! `weft whoami`

use weft_core::Result;

use crate::context::Context;
use crate::output::out;

pub fn run(context: &Context) -> Result<()> {
    context.wait(async {
        let client = context.client().await?;
        let identity = client.remote().who_am_i(client.caller()).await?;
        if context.json() {
            // Nobody has no credential.
            let known = !identity.name.is_anyone();
            out!(
                "{}",
                serde_json::json!({
                    "caller": identity.name.to_string(),
                    "credential": known.then(|| identity.credential.to_string()),
                    "expires": known.then(|| identity.expires.seconds()),
                })
            )?;
        } else {
            out!("{}", identity.name.seen_from(client.domain()))?;
        }
        Ok(())
    })
}
