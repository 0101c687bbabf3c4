//! `weft completion`

use clap::{Args, CommandFactory, ValueEnum};
use clap_complete::{Shell, generate};
use weft_core::Result;

use crate::output;

/// Options of `weft completion`.
#[derive(Args)]
pub struct CompletionArgs {
    /// Whose
    shell: ShellArg,
}

/// Shells that complete words.
#[derive(Clone, Copy, ValueEnum)]
enum ShellArg {
    Bash,
    Zsh,
    Fish,
}

pub fn run(args: &CompletionArgs) -> Result<()> {
    let shell = match args.shell {
        ShellArg::Bash => Shell::Bash,
        ShellArg::Zsh => Shell::Zsh,
        ShellArg::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    generate(shell, &mut crate::Cli::command(), "weft", &mut script);
    output::bytes(&script)?;
    output::flush()
}
