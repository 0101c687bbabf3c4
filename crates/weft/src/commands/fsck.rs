//! `weft fsck`

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use weft_core::service::{CheckReport, Node, Severity};
use weft_core::{Clock, Result};

use crate::context::Context;
use crate::node::{Chore, NodeDirectory, Upkeep, check};
use crate::output::out;
use crate::{progress, show};

/// Options of `weft fsck`.
#[derive(Args)]
pub struct FsckArgs {
    /// The directory of a node that does not run
    dir: Option<PathBuf>,
    /// Only say what is wrong and what would be done
    #[arg(long)]
    dry_run: bool,
    /// Check a node while it runs; nothing is changed
    #[arg(long, conflicts_with_all = ["dir", "dry_run"])]
    online: bool,
}

/// Exits with 0 if nothing is wrong, or everything that was is mended; with 1 otherwise.
pub fn run(context: &Context, args: &FsckArgs) -> Result<ExitCode> {
    let shown = progress::waiting(context, "checking");
    let report = if args.online {
        context.wait(async {
            let client = context.client().await?;
            client.remote().check(client.caller()).await
        })?
    } else {
        let dir = context.directory(args.dir.clone())?;
        context.wait(async {
            let directory = NodeDirectory::take(&dir, false, "fsck")?;
            let directory = if args.dry_run { directory.shadowed() } else { directory };
            let report = check::check(context.sys(), &directory, !args.dry_run).await?;
            if !args.dry_run && report.findings.iter().all(|finding| finding.severity < Severity::Loss) {
                Upkeep::open(directory.path()).did(Chore::Check, context.sys().now());
            }
            directory.release()?;
            Ok(report)
        })?
    };
    drop(shown);
    print(context, &report)?;
    let mended = !args.online && !args.dry_run;
    let bad = |severity| severity == Severity::Loss || (severity == Severity::Repairable && !mended);
    let failed = report.findings.iter().any(|finding| bad(finding.severity));
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn print(context: &Context, report: &CheckReport) -> Result<()> {
    for finding in &report.findings {
        let severity = match finding.severity {
            Severity::Note => "note",
            Severity::Repairable => "wrong",
            Severity::Loss => "LOST",
        };
        if context.json() {
            out!(
                "{}",
                serde_json::json!({
                    "severity": severity,
                    "structure": finding.structure,
                    "detail": finding.detail,
                    "repair": finding.repair,
                    "object": finding.object.map(|object| object.to_string()),
                })
            )?;
        } else {
            out!("{severity:5} {}", show::finding(finding))?;
        }
    }
    let wrong = report.findings.iter().filter(|finding| finding.severity > Severity::Note).count();
    if context.json() {
        out!("{}", serde_json::json!({ "inodes": report.inodes, "objects": report.objects, "wrong": wrong }))
    } else {
        out!(
            "{} inodes, {} objects: {wrong} {} wrong",
            report.inodes,
            report.objects,
            if wrong == 1 { "thing" } else { "things" }
        )
    }
}
