//! `weft manual`: what a package ships beside the program, written from the same description of the
//! command line that reads it, and the reference of `docs/`.

mod reference;

use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory};
use clap_complete::{Shell, generate_to};
use weft_core::Result;
use weft_sys::fault;

use crate::commands::mount::fstab;

/// Options of `weft manual`.
#[derive(Args)]
pub struct ManualArgs {
    /// Where to: `man/`, `completions/` and `reference/*.md` are made there
    dir: PathBuf,
}

pub fn run(args: &ManualArgs) -> Result<()> {
    let made = |name: &str| -> Result<PathBuf> {
        let dir = args.dir.join(name);
        std::fs::create_dir_all(&dir).map_err(|error| fault::error(error, "make", dir.display()))?;
        Ok(dir)
    };
    pages(&made("man")?)?;
    let written = made("reference")?;
    for (name, text) in reference::pages() {
        let page = written.join(name);
        std::fs::write(&page, text).map_err(|error| fault::error(error, "write", page.display()))?;
    }
    let completions = made("completions")?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut crate::Cli::command(), "weft", &completions)
            .map_err(|error| fault::error(error, "write to", completions.display()))?;
    }
    Ok(())
}

/// A page for the program, one for each command, and one for what mount(8) calls.
fn pages(dir: &Path) -> Result<()> {
    let failed = |error| fault::error(error, "write to", dir.display());
    let command = crate::Cli::command().disable_help_subcommand(true);
    clap_mangen::generate_to(command, dir).map_err(failed)?;
    let mut page = Vec::new();
    clap_mangen::Man::new(fstab::command()).section("8").render(&mut page).map_err(failed)?;
    std::fs::write(dir.join("mount.weft.8"), page).map_err(failed)
}
