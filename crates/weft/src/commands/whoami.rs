//! `weft whoami`

use weft_core::proof::{Caller, Confines, Scope};
use weft_core::service::Identity;
use weft_core::{Result, Rights, Time, limits};

use crate::context::Context;
use crate::output::out;
use crate::{paths, show};

pub fn run(context: &Context) -> Result<()> {
    context.wait(async {
        let client = context.client().await?;
        let identity = client.remote().who_am_i(client.caller()).await?;
        let scopes = scopes(client.caller());
        if context.json() {
            return out!("{}", json(&identity, scopes));
        }
        out!("{}", identity.name.seen_from(client.domain()))?;
        for line in narrowed(&identity, scopes) {
            out!("  {line}")?;
        }
        Ok(())
    })
}

/// Returns the rights by path that a credential has, if they differ by path: the node is not asked, since the
/// credential itself says so.
fn scopes(caller: &Caller) -> Option<&[Scope]> {
    match &caller.claims().confines {
        Confines::Scopes(scopes) => Some(scopes),
        Confines::Everywhere | Confines::Within(_) => None,
    }
}

fn json(identity: &Identity, scopes: Option<&[Scope]>) -> serde_json::Value {
    let shown = |scope: &Scope| serde_json::json!({ "path": paths::show(&scope.path), "rights": scope.rights.to_string() });
    // Nobody has no credential.
    let known = !identity.name.is_anyone();
    let Identity { credential, issued, expires, limits, .. } = identity;
    let from = (limits.from > Time::EPOCH).then(|| limits.from.seconds());
    serde_json::json!({
        "caller": identity.name.to_string(),
        "credential": known.then(|| credential.to_string()),
        "issued": known.then(|| issued.seconds()),
        "from": from.filter(|_| known),
        "expires": known.then(|| expires.seconds()),
        "rights": known.then(|| limits.rights.to_string()),
        "paths": limits.paths.iter().map(paths::show).collect::<Vec<_>>(),
        "hosts": limits.hosts.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "scopes": scopes.map(|scopes| scopes.iter().map(shown).collect::<Vec<_>>()),
    })
}

/// Says in words, a line each, what the credential carries less than a login gives.
fn narrowed(identity: &Identity, scopes: Option<&[Scope]>) -> Vec<String> {
    let Identity { issued, expires, limits, .. } = identity;
    let mut lines = Vec::new();
    if limits.rights != Rights::ALL && scopes.is_none() {
        lines.push(format!("only these rights: {}", limits.rights));
    }
    for Scope { path, rights } in scopes.unwrap_or_default() {
        lines.push(format!("at and below {}: {}", paths::show(path), *rights & limits.rights));
    }
    if !limits.paths.is_empty() {
        let paths: Vec<_> = limits.paths.iter().map(paths::show).collect();
        lines.push(format!("only below {}", paths.join(", ")));
    }
    if !limits.hosts.is_empty() {
        let hosts: Vec<_> = limits.hosts.iter().map(ToString::to_string).collect();
        lines.push(format!("only from {}", hosts.join(", ")));
    }
    if limits.from > *issued {
        lines.push(format!("only from {} UTC on", show::time(limits.from)));
    }
    let shorter = expires.since(*issued) < limits::CREDENTIAL_LIFE;
    if !identity.name.is_anyone() && (shorter || !lines.is_empty()) {
        lines.push(format!("until {} UTC", show::time(*expires)));
    }
    lines
}
