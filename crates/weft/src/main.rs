//! The one binary: a node, and every command that speaks to one.
//!
//! `commands/` has one file a command: it reads arguments, asks through the client, and
//! shows what came back. `node/` wires a node out of the crates and decides nothing.
//!
//! Data go to stdout, everything else to stderr, so that output can be piped whatever
//! is said beside it; `--json` everywhere; exit codes are in `failure.rs`.
//!
//! How to get it wrong: put a rule here that another client would then lack. What holds
//! for a command holds for every program that links `client`.

mod commands;
mod config;
mod context;
mod failure;
mod log;
mod names;
mod node;
mod output;
mod paths;
mod progress;
mod service;
mod show;
mod sizes;
mod spans;

use std::process::ExitCode;

use clap::Parser;

use crate::commands::Command;
use crate::commands::mount::fstab;
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
    if fstab::is_called(std::env::args_os().next().as_deref()) {
        return fstab::run(std::env::args_os());
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return failure::usage(&error, context::asks_for_json(std::env::args_os())),
    };
    let context = Context::new(cli.global);
    match commands::run(&context, cli.command) {
        Ok(code) => code,
        Err(error) => failure::report(&error, context.json()),
    }
}
