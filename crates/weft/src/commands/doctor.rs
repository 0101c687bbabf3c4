//! `weft doctor`: the usual mistakes, and what to do about each.
//!
//! It looks at what is on this machine: the directory, the configuration, the machine's limits; and it asks
//! the node if that runs. It changes nothing. A check is one function from what there is to findings; what a
//! check cannot look at is a finding too, or silence would pass for health.

mod directory;
mod machine;
mod node;
mod settings;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use weft_core::{OneLine, Result};

use crate::config::{Config, Layers, Place};
use crate::context::Context;
use crate::output::out;

/// Options of `weft doctor`.
#[derive(Args)]
pub struct DoctorArgs {
    /// The node's directory
    dir: Option<PathBuf>,
    /// The configuration [default: $WEFT_CONFIG, or weft.toml in the node's directory]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// A node does not start, or does not do its work.
    Wrong,
    /// It does now, and may not soon, or not for everybody.
    Doubtful,
}

impl Weight {
    fn name(self) -> &'static str {
        match self {
            Self::Wrong => "wrong",
            Self::Doubtful => "doubtful",
        }
    }
}

/// Something that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// How bad it is.
    pub weight: Weight,
    /// What is wrong.
    pub what: String,
    /// Why that matters.
    pub why: &'static str,
    /// What mends it: a command, where there is one.
    pub mend: String,
}

impl Trouble {
    /// Something that keeps a node from its work.
    pub fn wrong(what: impl Into<String>, why: &'static str, mend: impl Into<String>) -> Self {
        Self { weight: Weight::Wrong, what: what.into(), why, mend: mend.into() }
    }

    /// Something that may do so.
    pub fn doubtful(what: impl Into<String>, why: &'static str, mend: impl Into<String>) -> Self {
        Self { weight: Weight::Doubtful, what: what.into(), why, mend: mend.into() }
    }
}

/// Exits with 1 if anything is wrong; with 0 if something is doubtful or nothing was found.
pub fn run(context: &Context, args: &DoctorArgs) -> Result<ExitCode> {
    let dir = context.directory(args.dir.clone())?;
    let layers = Layers::gather(&Place::of(args.config.clone(), &dir), &Vec::new());
    let config = layers.map(|layers| Config::of(&layers));
    let mut found = directory::check(&dir);
    found.extend(settings::check(&config));
    let good = config.as_ref().ok().and_then(|config| config.as_ref().ok());
    let (runs, of_node) = node::check(context, &dir)?;
    found.extend(of_node);
    found.extend(machine::check(&dir, good, runs));
    found.sort_by_key(|trouble| trouble.weight);
    tell(context, &found, runs)?;
    let bad = found.iter().any(|trouble| trouble.weight == Weight::Wrong);
    Ok(if bad { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn tell(context: &Context, found: &[Trouble], runs: bool) -> Result<()> {
    if context.json() {
        let told = found.iter().map(|trouble| {
            let Trouble { weight, what, why, mend } = trouble;
            json!({"weight": weight.name(), "what": what, "why": why, "mend": mend})
        });
        return out!("{}", json!({"running": runs, "troubles": told.collect::<Vec<_>>()}));
    }
    for Trouble { weight, what, why, mend } in found {
        out!("{}: {}\n  why:  {why}\n  mend: {}", weight.name(), OneLine(what), OneLine(mend))?;
    }
    let state = if runs { "the node runs" } else { "the node does not run" };
    match found.len() {
        0 => out!("nothing is wrong; {state}")?,
        count => out!("{count} found; {state}")?,
    }
    Ok(())
}
