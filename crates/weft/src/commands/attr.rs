//! `weft attr`

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;

use bytes::Bytes;
use clap::Subcommand;
use weft_client::Client;
use weft_core::attr::{TagEdit, TagMust, TagName};
use weft_core::form::{At, Guard};
use weft_core::{Error, ErrorKind, Result, Shown, limits};
use weft_sys::fault;

use crate::context::Context;
use crate::output::{self, out};
use crate::paths::TreePath;

/// What to do with user attributes.
#[derive(Subcommand)]
pub enum AttrCommand {
    /// Print the value of an attribute
    Get {
        /// Of what
        path: OsString,
        /// The attribute, without `user.`
        name: OsString,
    },
    /// Give an attribute a value
    Set {
        /// To what
        path: OsString,
        /// The attribute, without `user.`
        name: OsString,
        /// The value; `-` is standard input
        #[arg(allow_hyphen_values = true)]
        value: OsString,
    },
    /// List attributes and their values
    Ls {
        /// Of what
        path: OsString,
    },
    /// Remove an attribute
    Rm {
        /// From what
        path: OsString,
        /// The attribute, without `user.`
        name: OsString,
    },
}

pub fn run(context: &Context, command: &AttrCommand) -> Result<()> {
    context.wait(async {
        let client = context.client().await?;
        match command {
            AttrCommand::Get { path, name } => get(context, &client, path, name).await,
            AttrCommand::Set { path, name, value } => {
                let value = if value == "-" { input()? } else { Bytes::copy_from_slice(value.as_bytes()) };
                edit(&client, path, TagEdit::Put { name: named(name)?, value, must: TagMust::Any }).await
            }
            AttrCommand::Ls { path } => list(context, &client, path).await,
            AttrCommand::Rm { path, name } => edit(&client, path, TagEdit::Remove(named(name)?)).await,
        }
    })
}

/// Finds an attribute of something. `None` if it has none of that name.
pub async fn find(client: &Client, at: &At, wanted: &[u8]) -> Result<Option<Bytes>> {
    let mut from = None;
    loop {
        let page = client.fs().tags(&client.call(), at, from).await?;
        let found = page.tags.into_iter().find(|(name, _)| name.as_bytes() == wanted);
        from = page.next;
        if found.is_some() || from.is_none() {
            return Ok(found.map(|(_, value)| value));
        }
    }
}

async fn get(context: &Context, client: &Client, text: &OsStr, name: &OsStr) -> Result<()> {
    let path = TreePath::read(text)?;
    let name = named(name)?;
    let value = find(client, &path.at(), name.as_bytes()).await.map_err(|e| e.op("read").about(&path))?;
    let Some(value) = value else {
        let detail = format!("it has no attribute {}", Shown(name.as_bytes()));
        return Err(Error::new(ErrorKind::NoAttribute, detail).op("read").about(&path));
    };
    if context.json() {
        return out!("{}", json(&path, name.as_bytes(), &value));
    }
    output::bytes(&value)?;
    output::bytes(b"\n")
}

async fn list(context: &Context, client: &Client, text: &OsStr) -> Result<()> {
    let (path, mut from) = (TreePath::read(text)?, None);
    loop {
        let page = client.fs().tags(&client.call(), &path.at(), from).await;
        let page = page.map_err(|e| e.op("list attributes of").about(&path))?;
        for (name, value) in page.tags {
            if context.json() {
                out!("{}", json(&path, name.as_bytes(), &value))?;
            } else {
                out!("{}={}", Shown(name.as_bytes()), Shown(&value))?;
            }
        }
        from = page.next;
        if from.is_none() {
            return Ok(());
        }
    }
}

async fn edit(client: &Client, text: &OsStr, edit: TagEdit) -> Result<()> {
    let path = TreePath::read(text)?;
    path.check_thing(client).await?;
    let done = client.fs().tag(&client.call(), &path.at(), &[edit], &Guard::NONE).await;
    done.map(drop).map_err(|e| e.op("change attributes of").about(&path))
}

/// Reads a name as it is typed.
pub fn named(name: &OsStr) -> Result<TagName> {
    TagName::new(Bytes::copy_from_slice(name.as_bytes()))
        .map_err(|e| e.op("use").about(name.to_string_lossy()))
}

/// Reads a value from standard input: no more than one may have, and a byte to tell.
fn input() -> Result<Bytes> {
    let mut value = Vec::new();
    let mut input = std::io::stdin().lock().take(limits::TAG_VALUE_BYTES_MAX as u64 + 1);
    input.read_to_end(&mut value).map_err(|e| fault::error(e, "read", "standard input"))?;
    Ok(value.into())
}

fn json(path: &TreePath, name: &[u8], value: &[u8]) -> serde_json::Value {
    serde_json::json!({
        "path": path.to_string(),
        "name": Shown(name).to_string(),
        "value": Shown(value).to_string(),
    })
}
