//! `weft user`

use clap::Subcommand;
use weft_client::Client;
use weft_core::service::{Accounts, NewUser, UserEdit, UserRecord};
use weft_core::{CallerName, Result};

use crate::commands::login::{read_new_password, read_password};
use crate::context::Context;
use crate::output::out;

/// What to do with users.
#[derive(Subcommand)]
pub enum UserCommand {
    /// Add a user
    Add {
        /// The user's name
        name: String,
        /// Read the first password from standard input
        #[arg(long)]
        password_stdin: bool,
        /// Add a user who cannot log in by password
        #[arg(long, conflicts_with = "password_stdin")]
        no_password: bool,
        /// The uid that is this user on the node's own machine
        #[arg(long)]
        uid: Option<u32>,
    },
    /// Set a user's password
    Passwd {
        /// The user's name [default: yourself]
        name: Option<String>,
        /// Read the password from standard input; your own present one, if you have one,
        /// on the line before it
        #[arg(long)]
        password_stdin: bool,
    },
    /// Let a user log in again
    Enable {
        /// The user's name
        name: String,
    },
    /// End what a user holds, and let it log in no more
    Disable {
        /// The user's name
        name: String,
    },
    /// Say which uid is this user on the node's own machine
    Uid {
        /// The user's name
        name: String,
        /// The uid; none to forget it
        uid: Option<u32>,
    },
    /// List users
    Ls,
}

pub fn run(context: &Context, command: &UserCommand) -> Result<()> {
    context.wait(async {
        let client = context.client().await?;
        let edit = async |name: &str, edit: UserEdit| {
            let name = CallerName::parse(name, client.domain())?;
            client.remote().edit_user(client.caller(), &name, &edit).await.map(drop)
        };
        match command {
            UserCommand::Add { name, password_stdin, no_password, uid } => {
                let password = if *no_password { None } else { Some(read_password(*password_stdin)?) };
                let user = NewUser { name: name.clone(), password, uid: *uid };
                client.remote().add_user(client.caller(), &user).await.map(drop)
            }
            UserCommand::Passwd { name, password_stdin } => {
                let me = client.remote().who_am_i(client.caller()).await?.name;
                let name = match name {
                    Some(name) => CallerName::parse(name, client.domain())?,
                    None => me.clone(),
                };
                let (old, new) = read_new_password(*password_stdin, name == me)?;
                edit(&name.to_string(), UserEdit::Password { new, old }).await
            }
            UserCommand::Enable { name } => edit(name, UserEdit::Enabled(true)).await,
            UserCommand::Disable { name } => edit(name, UserEdit::Enabled(false)).await,
            UserCommand::Uid { name, uid } => edit(name, UserEdit::Uid(*uid)).await,
            UserCommand::Ls => list(context, &client).await,
        }
    })
}

async fn list(context: &Context, client: &Client) -> Result<()> {
    let mut after: Option<CallerName> = None;
    loop {
        let users = client.remote().users(client.caller(), after.as_ref()).await?;
        let Some(last) = users.last() else { return Ok(()) };
        after = Some(last.name.clone());
        for user in &users {
            print(context, client, user)?;
        }
    }
}

fn print(context: &Context, client: &Client, user: &UserRecord) -> Result<()> {
    if context.json() {
        return out!(
            "{}",
            serde_json::json!({
                "name": user.name.to_string(),
                "enabled": user.enabled,
                "uid": user.uid,
                "has_password": user.has_password,
                "added": user.added.seconds(),
            })
        );
    }
    let uid = user.uid.map_or(String::from("-"), |uid| uid.to_string());
    let state = if user.enabled { "enabled" } else { "disabled" };
    out!("{:20} uid {uid:8} {state}", user.name.seen_from(client.domain()))
}
