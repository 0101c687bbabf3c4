//! `weft whoami`

use weft_core::Result;

use crate::context::Context;

pub fn run(context: &Context) -> Result<()> {
    context.wait(async {
        let client = context.client().await?;
        let name = client.remote().who_am_i(client.caller()).await?;
        let claims = client.caller().claims();
        if context.json() {
            let expires = client.caller().signed().map(|_| claims.expires.seconds());
            println!("{}", serde_json::json!({ "caller": name.to_string(), "expires": expires }));
        } else {
            println!("{}", name.seen_from(client.domain()));
        }
        Ok(())
    })
}
