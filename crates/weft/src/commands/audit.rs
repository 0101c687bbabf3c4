//! `weft audit`

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;
use weft_client::Client;
use weft_core::form::{At, Scope};
use weft_core::policy::PolicyEdit;
use weft_core::service::{AuditFilter, AuditOutcome, AuditRecord, AuditSubject, AuditVerdict};
use weft_core::{CallerName, FileId, Name, OneLine, Result, Time};

use crate::commands::acl::ReadsArg;
use crate::context::Context;
use crate::output::out;
use crate::paths::TreePath;
use crate::{progress, show};

/// Options of `weft audit`.
#[derive(Args)]
pub struct AuditArgs {
    /// Records about the container that governs this path [default: all, for administrators]
    path: Option<OsString>,
    /// Only records about the path itself
    #[arg(long, requires = "path")]
    only: bool,
    /// Only records of what this caller did
    #[arg(long, value_name = "CALLER")]
    by: Option<String>,
    /// Only records from this time on (seconds since 1970)
    #[arg(long, value_name = "SECONDS")]
    from: Option<i64>,
    /// Say which reads of the container are recorded from now on
    #[arg(long, requires = "path")]
    reads: Option<ReadsArg>,
    /// Verify that nothing in the log was changed
    #[arg(long, conflicts_with_all = ["path", "by", "from"])]
    verify: bool,
}

pub fn run(context: &Context, args: &AuditArgs) -> Result<ExitCode> {
    context.wait(async {
        if args.verify {
            return verify(context).await;
        }
        let client = context.client().await?;
        if let (Some(path), Some(reads)) = (&args.path, args.reads) {
            return set_reads(&client, path, reads).await;
        }
        let mut filter = filter(&client, args).await?;
        loop {
            let page = client.remote().audit_records(client.caller(), filter.clone()).await?;
            for (position, record) in &page.records {
                print(context, &client, *position, record)?;
            }
            match page.next {
                Some(next) => filter.after = next,
                None => return Ok(ExitCode::SUCCESS),
            }
        }
    })
}

async fn filter(client: &Client, args: &AuditArgs) -> Result<AuditFilter> {
    let mut filter = AuditFilter {
        caller: args.by.as_deref().map(|by| CallerName::parse(by, client.domain())).transpose()?,
        from: args.from.map(|seconds| Time::from_unix(seconds, 0)),
        ..AuditFilter::default()
    };
    if let Some(path) = &args.path {
        let found = async { TreePath::read(path)?.look_up(client).await };
        let attr = found.await.map_err(|e| e.op("audit"))?;
        filter.container = Some(attr.container);
        filter.member = Some(attr.id);
        filter.object = args.only.then_some(attr.id);
    }
    Ok(filter)
}

async fn set_reads(client: &Client, path: &OsString, reads: ReadsArg) -> Result<ExitCode> {
    let edit = PolicyEdit { audit_reads: Some(reads.into()), ..PolicyEdit::default() };
    let changed = async {
        let path = TreePath::read(path)?;
        path.check_thing(client).await?;
        let changed = client.fs().protect(&client.call(), &path.at(), Scope::Container, &edit).await;
        changed.map_err(|e| e.said_of(&path))
    };
    changed.await.map(|_| ExitCode::SUCCESS).map_err(|e| e.op("change the audit of"))
}

async fn verify(context: &Context) -> Result<ExitCode> {
    let shown = progress::waiting(context, "verifying");
    let client = context.client().await?;
    let verdict = client.remote().audit_verify(client.caller()).await?;
    drop(shown);
    match verdict {
        AuditVerdict::Whole { records } => {
            if context.json() {
                out!("{}", serde_json::json!({ "whole": true, "records": records }))?;
            } else {
                out!("the log is whole: {records} records")?;
            }
            Ok(ExitCode::SUCCESS)
        }
        AuditVerdict::Broken { file, offset, detail } => {
            if context.json() {
                out!(
                    "{}",
                    serde_json::json!({ "whole": false, "file": file, "offset": offset, "detail": detail })
                )?;
            } else {
                out!("the log was changed: {file} at byte {offset}: {detail}")?;
            }
            Ok(ExitCode::FAILURE)
        }
    }
}

fn print(context: &Context, client: &Client, position: u64, record: &AuditRecord) -> Result<()> {
    let outcome = match &record.outcome {
        AuditOutcome::Done => "done",
        AuditOutcome::Failed(kind) => kind.name(),
    };
    let about = &record.about;
    let door = record.from.door.name();
    if context.json() {
        return out!(
            "{}",
            serde_json::json!({
                "position": position,
                "at": record.at.seconds(),
                "caller": record.caller.to_string(),
                "credential": record.credential.to_string(),
                "delegates": record.delegates.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "door": door,
                "peer": record.from.peer.map(|p| p.to_string()),
                "trace": record.trace.to_string(),
                "operation": record.operation,
                "object": about.object.map(|o| o.to_string()),
                "other": about.other.map(|o| o.to_string()),
                "container": about.container.map(|c| c.to_string()),
                "containers": about.container.iter().chain(&about.also).map(ToString::to_string).collect::<Vec<_>>(),
                "place": place(&about.place),
                "to": place(&about.to),
                "outcome": outcome,
                "because": record.because,
                "bytes": record.bytes,
            })
        );
    }
    let peer = record.from.peer.map_or_else(|| "here".into(), |p| p.to_string());
    let object = about.object.map_or_else(|| "-".into(), |o| o.to_string());
    let mut who = record.caller.seen_from(client.domain());
    for delegate in &record.delegates {
        who = format!("{who} by {}", delegate.seen_from(client.domain()));
    }
    out!(
        "{} {who:12} {door:6} {peer:15} {:8} {object:12} {outcome:12} {} {}",
        show::time(record.at),
        OneLine(&record.operation).to_string(),
        places(about),
        OneLine(&record.because)
    )
}

/// Returns a name and the id of its directory.
fn place(place: &Option<(FileId, Name)>) -> Option<serde_json::Value> {
    let (dir, name) = place.as_ref()?;
    Some(serde_json::json!({ "dir": dir.to_string(), "name": name.to_string() }))
}

/// Returns where it was, as far as names were told: for a rename, from where to where.
fn places(about: &AuditSubject) -> String {
    let said = |(dir, name): &(FileId, Name)| At::name(*dir, name.clone()).to_string();
    let place = about.place.as_ref().map_or_else(|| "-".to_owned(), said);
    about.to.as_ref().map_or_else(|| place.clone(), |to| format!("{place} -> {}", said(to)))
}
