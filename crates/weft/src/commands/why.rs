//! `weft why`

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;
use weft_core::{CallerName, Result, Rights};

use crate::context::Context;
use crate::output::out;
use crate::paths;

/// Options of `weft why`.
#[derive(Args)]
pub struct WhyArgs {
    /// A file or directory
    path: OsString,
    /// The rights to explain; `=read` is that right alone, `read` the set of that name
    #[arg(default_value = "=read")]
    rights: String,
    /// Explain it for somebody else
    #[arg(long = "for", value_name = "CALLER")]
    who: Option<String>,
}

/// Exits with 0 if it is allowed and 3 if it is refused, so that scripts can ask.
pub fn run(context: &Context, args: &WhyArgs) -> Result<ExitCode> {
    context.wait(async {
        let client = context.client().await?;
        let who = args.who.as_deref().map(|w| CallerName::parse(w, client.domain())).transpose()?;
        let (at, need) = (paths::at(&args.path)?, Rights::parse(&args.rights)?);
        let why = client.fs().why(&client.call(), &at, need, who).await;
        let why = why.map_err(|e| e.op("explain").about(args.path.to_string_lossy()))?;
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
                    "evidence": why.evidence,
                    "steps": steps,
                })
            )?;
        } else {
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
                    out!("    {because}")?;
                }
            }
        }
        Ok(if why.allowed { ExitCode::SUCCESS } else { ExitCode::from(3) })
    })
}
