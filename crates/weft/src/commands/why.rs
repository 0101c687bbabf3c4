//! `weft why`

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;
use weft_core::attr::Kind;
use weft_core::{CallerName, ErrorKind, Result, Rights};

use crate::context::Context;
use crate::failure;
use crate::names;
use crate::output::out;
use crate::paths::TreePath;

/// Options of `weft why`.
#[derive(Args)]
pub struct WhyArgs {
    /// A file or directory
    path: OsString,
    /// The rights to explain; `=read` is that right alone, `read` the set of that name
    /// [default: `list` of a directory, `=read` of anything else]
    rights: Option<String>,
    /// Explain it for somebody else
    #[arg(long = "for", value_name = "CALLER")]
    who: Option<String>,
}

/// What is explained where nobody says which rights: those without which there is nothing to see.
fn usual(kind: Option<Kind>) -> Rights {
    match kind {
        Some(Kind::Directory) => Rights::LIST,
        Some(_) => Rights::READ,
        None => Rights::LIST | Rights::READ,
    }
}

/// Exits with 0 if it is allowed and 3 if it is refused, so that scripts can ask.
pub fn run(context: &Context, args: &WhyArgs) -> Result<ExitCode> {
    context.wait(async {
        let client = context.client().await?;
        let who = args.who.as_deref().map(|w| CallerName::parse(w, client.domain())).transpose()?;
        if let Some(who) = &who {
            names::demand_known(&client, who).await.map_err(|e| e.op("explain it for"))?;
        }
        let path = TreePath::read(&args.path).map_err(|e| e.op("explain"))?;
        let kind = match path.look_up(&client).await {
            Ok(attr) => Some(attr.kind),
            Err(error) if error.kind() == ErrorKind::NotDirectory => return Err(error.op("explain")),
            // Why it cannot be looked at is what is asked.
            Err(_) => None,
        };
        let need = args.rights.as_deref().map_or_else(|| Ok(usual(kind)), Rights::parse)?;
        let why = client.fs().why(&client.call(), &path.at(), need, who).await;
        let why = why.map_err(|e| e.op("explain").said_of(&path))?;
        if context.json() {
            let steps: Vec<_> = why
                .steps
                .iter()
                .map(|step| {
                    serde_json::json!({
                        "place": step.place,
                        "container": step.container.to_string(),
                        "needed": step.needed.to_string(),
                        "allowed": step.allowed.to_string(),
                        "because": step.because,
                    })
                })
                .collect();
            out!(
                "{}",
                serde_json::json!({
                    "allowed": why.allowed,
                    "caller": why.caller.to_string(),
                    "needed": need.to_string(),
                    "evidence": why.evidence,
                    "steps": steps,
                })
            )?;
        } else {
            let home = format!("@{}", client.domain());
            let verdict = if why.allowed { "allowed" } else { "refused" };
            out!("{verdict}: {need} for {} ({})", why.caller.seen_from(client.domain()), why.evidence)?;
            for step in &why.steps {
                out!(
                    "  {} in container {}: {} of {}",
                    step.place,
                    step.container,
                    step.allowed,
                    step.needed
                )?;
                for because in &step.because {
                    // Those of the node's own domain are written without it here.
                    out!("    {}", because.replace(&home, ""))?;
                }
            }
        }
        Ok(if why.allowed {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(failure::exit_code(ErrorKind::Denied))
        })
    })
}
