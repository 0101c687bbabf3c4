//! `weft acl`

use std::ffi::OsString;

use clap::{Subcommand, ValueEnum};
use weft_client::Client;
use weft_core::acl::{Acl, AclEntry, Condition, Effect, Modes, Who};
use weft_core::form::Scope;
use weft_core::policy::{AuditReads, Policy, PolicyEdit};
use weft_core::{CallerName, ContainerId, DomainId, Error, ErrorKind, Result, Rights, Time};

use crate::context::Context;
use crate::output::{note, out};
use crate::{paths, show};

/// How mode bits are read.
#[derive(Clone, Copy, ValueEnum)]
pub enum ModesArg {
    /// Only the owner's bits count, for everybody
    Owner,
    /// Owner's, group's or others' bits, as POSIX says
    Classes,
}

/// Which reads the audit log records.
#[derive(Clone, Copy, ValueEnum)]
pub enum ReadsArg {
    /// Every read
    All,
    /// No read
    Off,
}

/// What to do with ACLs.
#[derive(Subcommand)]
pub enum AclCommand {
    /// Show the policy that governs a path
    Show {
        /// A file or directory
        path: OsString,
    },
    /// Change how a container works: mode bits, size limit, audit of reads
    Set {
        /// A file or directory
        path: OsString,
        /// How mode bits narrow the ACL
        #[arg(long)]
        modes: Option<ModesArg>,
        /// Bytes that files may take together; `none` lifts the limit
        #[arg(long, value_name = "BYTES")]
        bytes_max: Option<String>,
        /// Which reads the audit log records
        #[arg(long)]
        audit_reads: Option<ReadsArg>,
        /// Change the enclosing container instead of making one for the path
        #[arg(long)]
        whole_container: bool,
    },
    /// Give rights: `weft acl grant /pdb alice read`
    Grant(EditArgs),
    /// Take an entry's rights away, or with --deny withhold them from whoever has them
    Revoke(EditArgs),
}

/// Options of `weft acl grant` and `weft acl revoke`.
#[derive(clap::Args)]
pub struct EditArgs {
    /// A file or directory
    path: OsString,
    /// A user, `group:MAKER/NAME`, `node:NAME`, `domain:ID`, or `anyone`
    who: String,
    /// `read`, `write`, `all`, single rights such as `insert`, or AFS letters
    #[arg(default_value = "all")]
    rights: String,
    /// Edit the enclosing container instead of making one for the path
    #[arg(long)]
    whole_container: bool,
    /// Make the entry negative: it wins over what any other gives
    #[arg(long)]
    deny: bool,
    /// Only from this time on (seconds since 1970)
    #[arg(long, value_name = "SECONDS")]
    from: Option<i64>,
    /// Only until this time (seconds since 1970)
    #[arg(long, value_name = "SECONDS")]
    until: Option<i64>,
    /// Only from this network
    #[arg(long, value_name = "NETWORK")]
    network: Option<weft_core::acl::Network>,
}

pub fn run(context: &Context, command: &AclCommand) -> Result<()> {
    context.wait(async {
        let client = context.client().await?;
        match command {
            AclCommand::Show { path } => {
                let policy = policy(&client, path).await?;
                print(context, client.domain(), &policy)?;
                Ok(())
            }
            AclCommand::Set { path, modes, bytes_max, audit_reads, whole_container } => {
                let edit = PolicyEdit {
                    acl: None,
                    modes: modes.map(|m| match m {
                        ModesArg::Owner => Modes::Owner,
                        ModesArg::Classes => Modes::Classes,
                    }),
                    bytes_max: bytes_max.as_deref().map(limit).transpose()?,
                    audit_reads: audit_reads.map(|r| match r {
                        ReadsArg::All => AuditReads::All,
                        ReadsArg::Off => AuditReads::Off,
                    }),
                };
                protect(&client, path, *whole_container, edit).await
            }
            AclCommand::Grant(args) => edit(&client, args, grant).await,
            AclCommand::Revoke(args) => edit(&client, args, revoke).await,
        }
    })
}

fn limit(text: &str) -> Result<Option<u64>> {
    match text {
        "none" => Ok(None),
        digits => {
            digits.parse().map(Some).map_err(|_| Error::invalid("a limit is a number of bytes or `none`"))
        }
    }
}

async fn policy(client: &Client, path: &OsString) -> Result<Policy> {
    let at = paths::at(path)?;
    client
        .fs()
        .policy(&client.call(), &at)
        .await
        .map_err(|e| e.op("show the ACL of").about(path.to_string_lossy()))
}

/// Reads the ACL, changes it, and writes it; anew if somebody else was faster.
async fn edit(client: &Client, args: &EditArgs, change: fn(&mut Acl, AclEntry)) -> Result<()> {
    const TRIES: u32 = 5;
    let mut tried = 0;
    loop {
        tried += 1;
        let mut acl = policy(client, &args.path).await?.acl;
        change(&mut acl, entry(args, client.domain())?);
        let outcome = protect(
            client,
            &args.path,
            args.whole_container,
            PolicyEdit { acl: Some(acl), ..PolicyEdit::default() },
        )
        .await;
        match outcome {
            Err(e) if e.kind() == ErrorKind::Conflict && tried < TRIES => {}
            outcome => return outcome,
        }
    }
}

fn entry(args: &EditArgs, home: DomainId) -> Result<AclEntry> {
    let who = match args.who.strip_prefix("domain:") {
        Some(domain) => Who::Domain(domain.parse()?),
        None if args.who == "anyone" => Who::Anyone,
        None => Who::Caller(CallerName::parse(&args.who, home)?),
    };
    let time = |seconds: i64| Time::from_unix(seconds, 0);
    let when = [
        args.from.map(|s| Condition::From(time(s))),
        args.until.map(|s| Condition::Until(time(s))),
        args.network.map(Condition::Network),
    ];
    let effect = if args.deny { Effect::Deny } else { Effect::Allow };
    Ok(AclEntry {
        who,
        effect,
        rights: Rights::parse(&args.rights)?,
        when: when.into_iter().flatten().collect(),
    })
}

fn grant(acl: &mut Acl, entry: AclEntry) {
    let same = acl
        .entries
        .iter_mut()
        .find(|e| e.who == entry.who && e.effect == entry.effect && e.when == entry.when);
    match same {
        Some(there) => there.rights |= entry.rights,
        None => acl.entries.push(entry),
    }
}

fn revoke(acl: &mut Acl, entry: AclEntry) {
    for there in acl.entries.iter_mut().filter(|e| e.who == entry.who && e.effect == entry.effect) {
        there.rights = there.rights - entry.rights;
    }
    acl.entries.retain(|e| !e.rights.is_empty());
}

async fn protect(client: &Client, path: &OsString, whole: bool, edit: PolicyEdit) -> Result<()> {
    let scope = if whole { Scope::Container } else { Scope::Subtree };
    let changed = client.fs().protect(&client.call(), &paths::at(path)?, scope, &edit).await;
    let done = changed.map_err(|e| e.op("change the ACL of").about(path.to_string_lossy()))?.value;
    if done.made {
        note!("{} has a container of its own now: {}", path.to_string_lossy(), done.container);
    }
    if !done.traverse_added.is_empty() {
        let above: Vec<_> = done.traverse_added.iter().map(ContainerId::to_string).collect();
        note!("`traverse` was added above, so that the path can be reached: {}", above.join(", "));
    }
    if !done.untouched_above.is_empty() {
        let above: Vec<_> = done.untouched_above.iter().map(ContainerId::to_string).collect();
        note!(
            "`traverse` above is not yours to give: who cannot pass there needs it from whoever may \
             change the ACL of {}",
            above.join(", ")
        );
    }
    if done.members_left > 0 {
        note!("{} members are still being moved; until then both ACLs bind them", done.members_left);
    }
    Ok(())
}

fn print(context: &Context, home: DomainId, policy: &Policy) -> Result<()> {
    let who = |who: &Who| match who {
        Who::Caller(name) => name.seen_from(home),
        Who::Domain(domain) => format!("domain:{domain}"),
        Who::Anyone => "anyone".into(),
    };
    let effect = |effect: Effect| if effect == Effect::Allow { "allow" } else { "deny" };
    let modes = if policy.modes == Modes::Owner { "owner" } else { "classes" };
    let reads = if policy.audit_reads == AuditReads::All { "all" } else { "off" };
    if context.json() {
        let entries: Vec<_> = policy
            .acl
            .entries
            .iter()
            .map(|e| {
                serde_json::json!({
                    "who": who(&e.who),
                    "effect": effect(e.effect),
                    "rights": e.rights.to_string(),
                    "when": e.when.iter().map(ToString::to_string).collect::<Vec<_>>(),
                })
            })
            .collect();
        return out!(
            "{}",
            serde_json::json!({
                "container": policy.container.to_string(),
                "version": policy.acl.version,
                "entries": entries,
                "modes": modes,
                "bytes_max": policy.bytes_max,
                "bytes_used": policy.bytes_used,
                "audit_reads": reads,
            })
        );
    }
    out!(
        "container {} (version {}), modes {modes}, audited reads {reads}",
        policy.container,
        policy.acl.version
    )?;
    let max = policy.bytes_max.map_or(String::from("no limit"), |max| format!("limit {}", show::size(max)));
    out!("holds {}, {max}", show::size(policy.bytes_used))?;
    for entry in &policy.acl.entries {
        let when: Vec<_> = entry.when.iter().map(ToString::to_string).collect();
        let when = if when.is_empty() { String::new() } else { format!(" when {}", when.join(" and ")) };
        out!("  {:5} {:24} {}{when}", effect(entry.effect), who(&entry.who), entry.rights)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(who: Who, rights: Rights) -> AclEntry {
        AclEntry::allow(who, rights)
    }

    #[test]
    fn granting_again_widens_the_entry_and_revoking_all_removes_it() {
        let mut acl = Acl::default();
        grant(&mut acl, entry(Who::Anyone, Rights::READ));
        grant(&mut acl, entry(Who::Anyone, Rights::LIST));
        assert_eq!(acl.entries, [entry(Who::Anyone, Rights::READ | Rights::LIST)]);
        revoke(&mut acl, entry(Who::Anyone, Rights::READ));
        assert_eq!(acl.entries, [entry(Who::Anyone, Rights::LIST)]);
        revoke(&mut acl, entry(Who::Anyone, Rights::ALL));
        assert!(acl.entries.is_empty());
    }

    #[test]
    fn a_negative_entry_is_apart_from_a_positive_one() {
        let mut acl = Acl::default();
        grant(&mut acl, entry(Who::Anyone, Rights::READ));
        grant(&mut acl, AclEntry::deny(Who::Anyone, Rights::WRITE));
        revoke(&mut acl, entry(Who::Anyone, Rights::ALL));
        assert_eq!(acl.entries, [AclEntry::deny(Who::Anyone, Rights::WRITE)]);
    }
}
