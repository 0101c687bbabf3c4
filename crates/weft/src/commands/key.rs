//! `weft key`

use std::path::PathBuf;

use clap::Subcommand;
use serde_json::json;
use weft_core::proof::Purpose;
use weft_core::service::{KeyRecord, Keys, Node};
use weft_core::{Error, Result};

use crate::context::Context;
use crate::output::out;
use crate::show;

/// What to do with the domain's keys.
#[derive(Subcommand)]
pub enum KeyCommand {
    /// List the keys that sign, or signed, and say where the root key is
    Ls,
    /// Have new keys sign from now on
    Rotate {
        /// Where the root key was put away, on the node's machine [default: where the first start left it]
        #[arg(long, value_name = "FILE")]
        root_key: Option<PathBuf>,
        /// End at once what was signed by old keys: everybody logs in again
        #[arg(long)]
        revoke_old: bool,
    },
}

pub fn run(context: &Context, command: &KeyCommand) -> Result<()> {
    context.wait(async {
        let client = context.client().await?;
        let (node, caller) = (client.remote(), client.caller());
        let keys = match command {
            KeyCommand::Ls => node.keys(caller).await?,
            KeyCommand::Rotate { root_key, revoke_old } => {
                let path = root_key.as_ref().map(std::path::absolute).transpose();
                let path = path.map_err(|e| Error::invalid("not a path").caused_by(e))?;
                let path = path.map(|path| path.to_string_lossy().into_owned());
                node.rotate_keys(caller, path.as_deref(), *revoke_old).await?
            }
        };
        print(context, &keys)
    })
}

fn print(context: &Context, keys: &Keys) -> Result<()> {
    if context.json() {
        let all: Vec<_> = keys.keys.iter().map(record).collect();
        return out!("{}", json!({ "root": keys.root, "keys": all }));
    }
    match &keys.root {
        Some(path) => out!("root        {path}: move it to a safe place; only `weft key rotate` needs it")?,
        None => out!("root        put away; `weft key rotate --root-key FILE` takes it from there")?,
    }
    for key in &keys.keys {
        let (made, until) = (show::time(key.made), show::time(key.until));
        out!(
            "{:11} {} {}, made {made} UTC, believed until {until} UTC",
            word(key.purpose),
            key.id,
            state(key)
        )?;
    }
    Ok(())
}

fn record(key: &KeyRecord) -> serde_json::Value {
    json!({
        "id": key.id.to_string(),
        "purpose": word(key.purpose),
        "state": state(key),
        "made": key.made.seconds(),
        "until": key.until.seconds(),
    })
}

fn state(key: &KeyRecord) -> &'static str {
    match (key.current, key.ended) {
        (true, _) => "signs",
        (false, false) => "old",
        (false, true) => "ended",
    }
}

fn word(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Certificate => "root",
        Purpose::Credential => "credential",
        Purpose::Capability => "capability",
        Purpose::Audit => "audit",
    }
}
