//! `weft group`

use clap::Subcommand;
use weft_core::service::{Accounts, GroupEdit};
use weft_core::{CallerName, Result};

use crate::context::Context;
use crate::output::out;

/// What to do with groups. A group's name carries its maker's: `group:alice/team`.
#[derive(Subcommand)]
pub enum GroupCommand {
    /// Make a group of your own
    Make {
        /// Its name, without yours
        name: String,
    },
    /// Add members to a group
    Add {
        /// The group
        group: String,
        /// The members
        #[arg(required = true)]
        members: Vec<String>,
    },
    /// Take members out of a group
    Remove {
        /// The group
        group: String,
        /// The members
        #[arg(required = true)]
        members: Vec<String>,
    },
    /// Remove a group
    Rm {
        /// The group
        group: String,
    },
    /// List the groups you own or are in
    Ls,
}

pub fn run(context: &Context, command: &GroupCommand) -> Result<()> {
    context.wait(async {
        let client = context.client().await?;
        let (remote, caller, home) = (client.remote(), client.caller(), client.domain());
        let name = |text: &str| CallerName::parse(text, home);
        match command {
            GroupCommand::Make { name } => {
                let group = remote.add_group(caller, name).await?;
                out!("{}", group.name.seen_from(home))?;
            }
            GroupCommand::Add { group, members } => {
                for member in members {
                    remote.edit_group(caller, &name(group)?, &GroupEdit::Add(name(member)?)).await?;
                }
            }
            GroupCommand::Remove { group, members } => {
                for member in members {
                    remote.edit_group(caller, &name(group)?, &GroupEdit::Remove(name(member)?)).await?;
                }
            }
            GroupCommand::Rm { group } => remote.remove_group(caller, &name(group)?).await?,
            GroupCommand::Ls => {
                let mut after: Option<CallerName> = None;
                loop {
                    let groups = remote.groups(caller, after.as_ref()).await?;
                    let Some(last) = groups.last() else { break };
                    after = Some(last.name.clone());
                    for group in &groups {
                        let members: Vec<_> = group.members.iter().map(|m| m.seen_from(home)).collect();
                        if context.json() {
                            out!(
                                "{}",
                                serde_json::json!({
                                    "name": group.name.to_string(),
                                    "owner": group.owner.to_string(),
                                    "members": members,
                                })
                            )?;
                        } else {
                            out!("{:30} {}", group.name.seen_from(home), members.join(" "))?;
                        }
                    }
                }
            }
        }
        Ok(())
    })
}
