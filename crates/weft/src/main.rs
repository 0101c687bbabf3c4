//! The one binary: a node, and every command that speaks to one.
//!
//! `commands/` has one file a command; `node/` wires a node out of the crates. Data
//! go to stdout, everything else to stderr; exit codes are in `failure.rs`.

// Talking to people is what this crate is for.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod commands;
mod context;
mod failure;
mod node;
mod paths;
mod progress;
mod show;

use std::process::ExitCode;

use clap::Parser;

use crate::commands::Command;
use crate::context::{Context, GlobalArgs};

/// One file system woven across organisations
#[derive(Parser)]
#[command(name = "weft", version, arg_required_else_help = true, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    global: GlobalArgs,
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let context = Context::new(cli.global);
    match commands::run(&context, cli.command) {
        Ok(code) => code,
        Err(error) => failure::report(&error, context.json()),
    }
}
