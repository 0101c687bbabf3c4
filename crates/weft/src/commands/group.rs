//! `weft group`

use clap::Subcommand;
use weft_client::Client;
use weft_core::service::{Accounts, GroupEdit, GroupRecord};
use weft_core::{CallerKind, CallerName, DomainId, Error, ErrorKind, Result, limits};

use crate::context::Context;
use crate::output::out;

/// What to do with groups.
#[derive(Subcommand)]
pub enum GroupCommand {
    /// Make a group of your own
    Make {
        /// Its name, without yours
        name: String,
    },
    /// Add members to a group
    Add {
        /// `group:MAKER/NAME`, or `NAME` of one that you made
        group: String,
        /// The members
        #[arg(required = true)]
        members: Vec<String>,
    },
    /// Take members out of a group
    Remove {
        /// `group:MAKER/NAME`, or `NAME` of one that you made
        group: String,
        /// The members
        #[arg(required = true)]
        members: Vec<String>,
    },
    /// Remove a group
    Rm {
        /// `group:MAKER/NAME`, or `NAME` of one that you made
        group: String,
    },
    /// List the groups you own or are in
    Ls,
}

pub fn run(context: &Context, command: &GroupCommand) -> Result<()> {
    context.wait(async {
        let client = context.client().await?;
        let (remote, caller, home) = (client.remote(), client.caller(), client.domain());
        let member = |text: &str| CallerName::parse(text, home).map_err(|e| e.about(text));
        match command {
            GroupCommand::Make { name } => {
                let group = remote.add_group(caller, name).await.map_err(|e| malformed(e, name))?;
                match context.json() {
                    true => out!("{}", json(&group, home))?,
                    false => out!("{}", group.name.seen_from(home))?,
                }
            }
            GroupCommand::Add { group, members } => {
                let group = named(&client, group).await?;
                for text in members {
                    remote.edit_group(caller, &group, &GroupEdit::Add(member(text)?)).await?;
                }
            }
            GroupCommand::Remove { group, members } => {
                let group = named(&client, group).await?;
                for text in members {
                    remote.edit_group(caller, &group, &GroupEdit::Remove(member(text)?)).await?;
                }
            }
            GroupCommand::Rm { group } => remote.remove_group(caller, &named(&client, group).await?).await?,
            GroupCommand::Ls => {
                let mut after: Option<CallerName> = None;
                loop {
                    let groups = remote.groups(caller, after.as_ref()).await?;
                    let Some(last) = groups.last() else { break };
                    after = Some(last.name.clone());
                    for mut group in groups {
                        if group.members.is_empty() {
                            group.members = all_members(&client, &group.name).await?;
                        }
                        if context.json() {
                            out!("{}", json(&group, home))?;
                        } else {
                            let members = members(&group, home).join(" ");
                            out!("{:30} {members}", group.name.seen_from(home))?;
                        }
                    }
                }
            }
        }
        Ok(())
    })
}

/// Asks for the members of a group that has too many to be told with it.
async fn all_members(client: &Client, group: &CallerName) -> Result<Vec<CallerName>> {
    let mut all: Vec<CallerName> = Vec::new();
    loop {
        let after = all.last().map(CallerName::id);
        let page = client.remote().members(client.caller(), group, after).await?;
        let is_last = page.len() < limits::GROUP_MEMBERS_TOLD;
        all.extend(page);
        if is_last || all.len() > limits::GROUP_MEMBERS_MAX {
            return Ok(all);
        }
    }
}

/// Reads the name of a group: a plain one is of a group that the caller made.
async fn named(client: &Client, text: &str) -> Result<CallerName> {
    let home = client.domain();
    let read = if text.contains([':', '/', '@']) {
        CallerName::parse(text, home)
    } else {
        let me = client.remote().who_am_i(client.caller()).await?.name;
        CallerName::new(CallerKind::Group, &format!("{}/{text}", me.local()), home)
    };
    match read {
        Ok(name) if name.kind() == Some(CallerKind::Group) => Ok(name),
        Ok(_) => Err(malformed(Error::invalid("it is no group's name"), text)),
        Err(error) => Err(malformed(error, text)),
    }
}

/// Says how a group's name is written, if that is what is wrong.
fn malformed(error: Error, text: &str) -> Error {
    if error.kind() != ErrorKind::Invalid {
        return error;
    }
    error
        .about(text)
        .hint("a group is `group:MAKER/NAME`, or `NAME` if you made it; `weft group ls` lists them")
}

fn members(group: &GroupRecord, home: DomainId) -> Vec<String> {
    group.members.iter().map(|member| member.seen_from(home)).collect()
}

fn json(group: &GroupRecord, home: DomainId) -> serde_json::Value {
    serde_json::json!({
        "name": group.name.to_string(),
        "owner": group.owner.to_string(),
        "members": members(group, home),
    })
}
