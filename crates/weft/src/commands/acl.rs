//! `weft acl`

use std::ffi::{OsStr, OsString};

use clap::{Subcommand, ValueEnum};
use weft_client::Client;
use weft_core::acl::{Acl, AclEntry, Condition, Effect, Modes, Who};
use weft_core::form::{At, Protected, Scope};
use weft_core::policy::{AuditReads, Policy, PolicyEdit};
use weft_core::{ContainerId, DomainId, Error, ErrorKind, RelPath, Result, Rights, Time};

use crate::context::Context;
use crate::output::{note, out};
use crate::paths::TreePath;
use crate::{names, progress, show};

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

impl From<ReadsArg> for AuditReads {
    fn from(reads: ReadsArg) -> Self {
        match reads {
            ReadsArg::All => Self::All,
            ReadsArg::Off => Self::Off,
        }
    }
}

/// What to do with ACLs.
#[derive(Subcommand)]
pub enum AclCommand {
    /// Show the policy that governs a path
    Show {
        /// A file or directory
        path: OsString,
    },
    #[command(flatten)]
    Change(AclChange),
}

/// What to change.
#[derive(Subcommand)]
pub enum AclChange {
    /// Change how a container works: mode bits, size limit, audit of reads
    Set {
        /// A file or directory
        path: OsString,
        /// How mode bits narrow the ACL
        #[arg(long)]
        modes: Option<ModesArg>,
        /// Bytes that files may take together; `none` lifts the limit
        #[arg(long, value_name = "BYTES", value_parser = limit)]
        bytes_max: Option<Limit>,
        /// Which reads the audit log records
        #[arg(long)]
        audit_reads: Option<ReadsArg>,
        /// Change the enclosing container instead of making one for the path
        #[arg(long)]
        whole_container: bool,
    },
    /// Give rights: `weft acl grant /pdb alice read`
    Grant(EditArgs),
    /// Take rights out of the entries for somebody, or with --deny out of the negative ones
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
        match command {
            AclCommand::Show { path } => {
                let client = context.client().await?;
                let shown = async {
                    let path = TreePath::read(path)?;
                    path.check_thing(&client).await?;
                    policy(&client, &path).await
                };
                print(context, client.domain(), &shown.await.map_err(|e| e.op("show the ACL of"))?)
            }
            AclCommand::Change(what) => {
                let shown = progress::waiting(context, "changing the ACL");
                let changed = change(&context.client().await?, what).await?;
                // A line goes before another is said.
                drop(shown);
                changed.say(context)
            }
        }
    })
}

async fn change(client: &Client, what: &AclChange) -> Result<Changes> {
    let changed = match what {
        AclChange::Set { path, modes, bytes_max, audit_reads, whole_container } => {
            let edit = PolicyEdit {
                acl: None,
                modes: modes.map(|m| match m {
                    ModesArg::Owner => Modes::Owner,
                    ModesArg::Classes => Modes::Classes,
                }),
                bytes_max: bytes_max.map(|Limit(max)| max),
                audit_reads: audit_reads.map(AuditReads::from),
            };
            set(client, path, *whole_container, edit).await
        }
        AclChange::Grant(args) => {
            let entry = new_entry(client, args).await?;
            edit(client, args, |acl| {
                grant(acl, entry.clone());
                Ok(())
            })
            .await
        }
        AclChange::Revoke(args) => {
            let (entry, home) = (entry(args, client.domain())?, client.domain());
            async {
                let mut changes = edit(client, args, |acl| revoke(acl, &entry, home)).await?;
                changes.left = ways_left(client, &changes, &entry.who).await?;
                Ok(changes)
            }
            .await
        }
    };
    changed.map_err(|e| e.op("change the ACL of"))
}

/// How many bytes files may take together; `None`: as many as there is room for.
#[derive(Clone, Copy)]
pub struct Limit(Option<u64>);

fn limit(text: &str) -> std::result::Result<Limit, &'static str> {
    match text {
        "none" => Ok(Limit(None)),
        digits => {
            digits.parse().map(|max| Limit(Some(max))).map_err(|_| "a limit is a number of bytes or `none`")
        }
    }
}

async fn policy(client: &Client, path: &TreePath) -> Result<Policy> {
    client.fs().policy(&client.call(), &path.at()).await.map_err(|e| e.said_of(path))
}

async fn set(client: &Client, path: &OsStr, whole: bool, edit: PolicyEdit) -> Result<Changes> {
    let path = TreePath::read(path)?;
    path.check_thing(client).await?;
    protect(client, &path, whole, &edit).await
}

async fn protect(client: &Client, path: &TreePath, whole: bool, edit: &PolicyEdit) -> Result<Changes> {
    let scope = if whole { Scope::Container } else { Scope::Subtree };
    let done = client.fs().protect(&client.call(), &path.at(), scope, edit).await;
    let done = done.map_err(|e| e.said_of(path))?.value;
    Ok(Changes { path: path.clone(), done, left: Vec::new() })
}

/// Reads the ACL, changes it, and writes it; anew if somebody else was faster.
async fn edit(client: &Client, args: &EditArgs, change: impl Fn(&mut Acl) -> Result<()>) -> Result<Changes> {
    const TRIES: u32 = 5;
    let path = TreePath::read(&args.path)?;
    path.check_thing(client).await?;
    let mut tried = 0;
    loop {
        tried += 1;
        let mut acl = policy(client, &path).await?.acl;
        change(&mut acl).map_err(|e| e.about(&path).hint(format!("weft acl show {path}")))?;
        let edit = PolicyEdit { acl: Some(acl), ..PolicyEdit::default() };
        match protect(client, &path, args.whole_container, &edit).await {
            Err(e) if e.kind() == ErrorKind::Conflict && tried < TRIES => {}
            outcome => return outcome,
        }
    }
}

fn entry(args: &EditArgs, home: DomainId) -> Result<AclEntry> {
    let time = |seconds: i64| Time::from_unix(seconds, 0);
    let when = [
        args.from.map(|s| Condition::From(time(s))),
        args.until.map(|s| Condition::Until(time(s))),
        args.network.map(Condition::Network),
    ];
    Ok(AclEntry {
        who: Who::parse(&args.who, home)?,
        effect: if args.deny { Effect::Deny } else { Effect::Allow },
        rights: Rights::parse(&args.rights)?,
        when: when.into_iter().flatten().collect(),
    })
}

/// Reads an entry that is to be made: for somebody there is, for a time that is to come.
async fn new_entry(client: &Client, args: &EditArgs) -> Result<AclEntry> {
    let entry = entry(args, client.domain())?;
    if let Who::Caller(name) = &entry.who {
        names::demand_known(client, name).await.map_err(|e| e.op("make an entry for"))?;
    }
    let now = client.sys().clock().now().seconds();
    let (past, empty) =
        (args.until.filter(|end| *end <= now), args.until.filter(|end| args.from >= Some(*end)));
    if past.or(empty).is_some() {
        let detail =
            if past.is_some() { "it would have ended already" } else { "it would end before it begins" };
        let hint = format!("times are seconds since 1970, and now is {now}");
        return Err(Error::invalid(detail).op("make an entry for").about(&args.who).hint(hint));
    }
    Ok(entry)
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

/// Takes rights out of the entries of one effect for somebody, whatever their conditions, or out
/// of those with the conditions that are named. Fails with `NotFound` where they hold none of them.
fn revoke(acl: &mut Acl, entry: &AclEntry, home: DomainId) -> Result<()> {
    let mut found = Rights::NONE;
    let named = |e: &AclEntry| entry.when.is_empty() || e.when == entry.when;
    for there in acl.entries.iter_mut().filter(|e| e.who == entry.who && e.effect == entry.effect) {
        if named(there) {
            found |= there.rights & entry.rights;
            there.rights = there.rights - entry.rights;
        }
    }
    if found.is_empty() {
        let (who, rights) = (entry.who.seen_from(home), entry.rights);
        let does = if entry.effect == Effect::Allow { "gives" } else { "withholds from" };
        return Err(Error::not_found(format!("no such entry {does} {who} any of this: {rights}")));
    }
    acl.entries.retain(|e| !e.rights.is_empty());
    Ok(())
}

/// Returns where above somebody whom a container gives nothing any more may still pass by an entry
/// that gives `traverse` alone, as a grant below adds it. Nothing says who made such an entry, nor
/// what else below needs it, so it stays until somebody takes it away.
async fn ways_left(client: &Client, changes: &Changes, who: &Who) -> Result<Vec<String>> {
    let gives = |policy: &Policy, what: fn(Rights) -> bool| {
        let given = |e: &&AclEntry| e.effect == Effect::Allow && e.who == *who;
        policy.acl.entries.iter().filter(given).any(|e| what(e.rights))
    };
    let now = policy(client, &changes.path).await;
    if now.is_ok_and(|now| gives(&now, |_| true)) {
        return Ok(Vec::new());
    }
    let (mut left, mut looked_at) = (Vec::new(), vec![changes.done.container]);
    let mut here = RelPath::EMPTY;
    for name in changes.path.path.names() {
        let place = At::root(here.clone()).following();
        match client.fs().policy(&client.call(), &place).await {
            Ok(policy) if !looked_at.contains(&policy.container) => {
                looked_at.push(policy.container);
                if gives(&policy, |rights| rights == Rights::TRAVERSE) {
                    left.push(format!("/{here}"));
                }
            }
            // What the caller may not see there, it may not take away either.
            Ok(_) | Err(_) => {}
        }
        here = here.join(&name)?;
    }
    Ok(left)
}

/// What an edit of a policy came to.
struct Changes {
    path: TreePath,
    done: Protected,
    /// Directories above at which an entry that gives `traverse` alone stays.
    left: Vec<String>,
}

impl Changes {
    fn say(&self, context: &Context) -> Result<()> {
        let ids = |ids: &[ContainerId]| ids.iter().map(ContainerId::to_string).collect::<Vec<_>>();
        let (added, untouched) = (ids(&self.done.traverse_added), ids(&self.done.untouched_above));
        if context.json() {
            return out!(
                "{}",
                serde_json::json!({
                    "path": self.path.to_string(),
                    "container": self.done.container.to_string(),
                    "made": self.done.made,
                    "traverse_added": added,
                    "traverse_missing": untouched,
                    "traverse_left": self.left,
                    "members_left": self.done.members_left,
                })
            );
        }
        if self.done.made {
            note!("{} has a container of its own now: {}", self.path, self.done.container);
        }
        if !added.is_empty() {
            note!("`traverse` was added above, so that the path can be reached: {}", added.join(", "));
        }
        if !untouched.is_empty() {
            note!(
                "`traverse` above is not yours to give: who cannot pass there needs it from whoever may \
                 change the ACL of {}",
                untouched.join(", ")
            );
        }
        if !self.left.is_empty() {
            note!(
                "`traverse` above stays, for something else below may need it: an entry at {}; \
                 `weft acl revoke` takes it away there",
                self.left.join(", ")
            );
        }
        if self.done.members_left > 0 {
            note!("{} members are still being moved; until then both ACLs bind them", self.done.members_left);
        }
        Ok(())
    }
}

fn print(context: &Context, home: DomainId, policy: &Policy) -> Result<()> {
    let who = |who: &Who| who.seen_from(home);
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
                    "effect": e.effect.name(),
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
        out!("  {:5} {:24} {}{when}", entry.effect.name(), who(&entry.who), entry.rights)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: DomainId = DomainId([1; 32]);

    fn entry(who: Who, rights: Rights) -> AclEntry {
        AclEntry::allow(who, rights)
    }

    #[test]
    fn granting_again_widens_the_entry_and_revoking_all_removes_it() {
        let mut acl = Acl::default();
        grant(&mut acl, entry(Who::Anyone, Rights::READ));
        grant(&mut acl, entry(Who::Anyone, Rights::LIST));
        assert_eq!(acl.entries, [entry(Who::Anyone, Rights::READ | Rights::LIST)]);
        revoke(&mut acl, &entry(Who::Anyone, Rights::READ), HOME).expect("it is there");
        assert_eq!(acl.entries, [entry(Who::Anyone, Rights::LIST)]);
        revoke(&mut acl, &entry(Who::Anyone, Rights::ALL), HOME).expect("it is there");
        assert!(acl.entries.is_empty());
        let error = revoke(&mut acl, &entry(Who::Anyone, Rights::ALL), HOME).expect_err("nothing is left");
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }

    #[test]
    fn a_negative_entry_is_apart_from_a_positive_one() {
        let mut acl = Acl::default();
        grant(&mut acl, entry(Who::Anyone, Rights::READ));
        grant(&mut acl, AclEntry::deny(Who::Anyone, Rights::WRITE));
        revoke(&mut acl, &entry(Who::Anyone, Rights::ALL), HOME).expect("it is there");
        assert_eq!(acl.entries, [AclEntry::deny(Who::Anyone, Rights::WRITE)]);
    }

    #[test]
    fn conditions_that_are_named_choose_the_entry_that_is_revoked() {
        let until = |end| AclEntry {
            when: vec![Condition::Until(Time::from_unix(end, 0))],
            ..entry(Who::Anyone, Rights::READ)
        };
        let mut acl = Acl::new(vec![until(1), until(2), until(3)]);
        revoke(&mut acl, &until(2), HOME).expect("it is there");
        assert_eq!(acl.entries, [until(1), until(3)]);
        revoke(&mut acl, &until(2), HOME).expect_err("it is gone");
        revoke(&mut acl, &entry(Who::Anyone, Rights::READ), HOME).expect("both");
        assert!(acl.entries.is_empty());
    }
}
