//! `weft config`

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;
use weft_core::{ErrorKind, Result};

use crate::config::{Config, Kind, Layers, Mistake, Origin, Place, Setting};
use crate::context::Context;
use crate::failure;
use crate::output::{note, out};

/// What to do with the configuration.
#[derive(Subcommand)]
pub enum ConfigCommand {
    /// Show what is set, as `weft up` would find it here and now
    Show(ShowArgs),
    /// Find mistakes without starting anything
    Check(WhereArgs),
    /// Print a file with everything that can be set, to begin with
    Example,
}

/// Where the configuration is.
#[derive(Args)]
pub struct WhereArgs {
    /// The file [default: $WEFT_CONFIG, or weft.toml in the node's directory]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Options of `weft config show`.
#[derive(Args)]
pub struct ShowArgs {
    #[command(flatten)]
    place: WhereArgs,
    /// Show what nobody set as well, and what another place overruled
    #[arg(long)]
    effective: bool,
}

impl WhereArgs {
    fn layers(&self, context: &Context) -> Result<Layers> {
        let place = Place::of(self.config.clone(), &context.directory(None)?);
        Layers::gather(&place, &Vec::new())
    }
}

pub fn run(context: &Context, command: &ConfigCommand) -> Result<ExitCode> {
    match command {
        ConfigCommand::Show(args) => show(context, args),
        ConfigCommand::Check(args) => check(context, args),
        ConfigCommand::Example => example(),
    }
}

/// Prints every setting, with what it is for, as comments: so that the file changes nothing yet.
fn example() -> Result<ExitCode> {
    out!("# How a Weft node runs. What is commented out is as it would be anyway.")?;
    for setting in Setting::ALL {
        let about = setting.about();
        let flag = about.flag.map(|flag| format!(", {flag}")).unwrap_or_default();
        let live = if about.live { "taken up on SIGHUP" } else { "needs a restart" };
        out!("\n# {}\n# ({}{flag}; {live})", about.meaning, about.variable)?;
        let value = match (about.kind, about.default) {
            (Kind::Tables, _) => {
                out!("#{0}.NAME.url = \"https://…\"\n#{0}.NAME.user = \"USER\"", about.name)?;
                continue;
            }
            (Kind::List, _) => "[]".to_owned(),
            (Kind::Text, "") => "\"FILE\"".to_owned(),
            (Kind::Text, default) => format!("\"{default}\""),
        };
        out!("#{} = {value}", about.name)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Exits with 1 if there is a mistake, and tells all of them.
fn check(context: &Context, args: &WhereArgs) -> Result<ExitCode> {
    let mistakes = Config::of(&args.layers(context)?).err().unwrap_or_default();
    if context.json() {
        let told = mistakes.iter().map(|one| json!({"where": one.origin.to_string(), "why": one.why}));
        out!("{}", json!({"mistakes": told.collect::<Vec<_>>()}))?;
    } else if mistakes.is_empty() {
        out!("no mistakes")?;
    } else {
        mistakes.iter().try_for_each(|mistake| out!("{mistake}"))?;
    }
    Ok(if mistakes.is_empty() { ExitCode::SUCCESS } else { wrong() })
}

fn show(context: &Context, args: &ShowArgs) -> Result<ExitCode> {
    let layers = args.place.layers(context)?;
    let width = Setting::ALL.iter().map(|key| key.about().name.len()).max().unwrap_or_default();
    for key in Setting::ALL {
        let set = layers.effective(key);
        if set.origin == Origin::Default && !args.effective {
            continue;
        }
        let about = key.about();
        let overruled: Vec<String> = layers.overruled(key).map(|set| set.origin.to_string()).collect();
        if context.json() {
            out!(
                "{}",
                json!({
                    "key": about.name,
                    "value": set.values,
                    "origin": set.origin.to_string(),
                    "overruled": overruled,
                    "needs_restart": !about.live,
                })
            )?;
            continue;
        }
        out!("{:width$} {:28} {}", about.name, shown(&set.values), set.origin)?;
        if args.effective {
            overruled.iter().try_for_each(|origin| out!("{:width$} {:28} overrules {origin}", "", ""))?;
        }
    }
    let mistakes = Config::of(&layers).err().unwrap_or_default();
    tell(&mistakes);
    Ok(if mistakes.is_empty() { ExitCode::SUCCESS } else { wrong() })
}

fn shown(values: &[String]) -> String {
    if values.is_empty() { "-".to_owned() } else { values.join(", ") }
}

/// Tells people what is wrong, a line each.
pub fn tell(mistakes: &[Mistake]) {
    mistakes.iter().for_each(|mistake| note!("{mistake}"));
}

fn wrong() -> ExitCode {
    ExitCode::from(failure::exit_code(ErrorKind::Invalid))
}
