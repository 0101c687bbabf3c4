//! `weft shell`: the commands without their first word, in a directory of the tree.

use std::ffi::OsString;
use std::io::{BufRead, IsTerminal, Read};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser};
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{CompletionType, Config, Editor};
use weft_core::attr::Kind;
use weft_core::{Error, ErrorKind, Result, limits};
use weft_sys::fault;

use crate::context::Context;
use crate::output::{self, note, out};
use crate::paths::{self, TreePath};
use crate::{Cli, failure};

mod complete;

use complete::Words;

/// Options of `weft shell`.
#[derive(Args)]
pub struct ShellArgs {
    /// Go on after a command that failed, where commands are not typed but read
    #[arg(short, long)]
    keep_going: bool,
}

pub const HELP: &str = "\
A line is a command without `weft`, its words as a shell takes them (quotes, backslashes, # for remarks; no variables, patterns
or pipes). Paths of the tree may begin where one is: `cd docs`, `cat a`, `cp x weft:y`. Beside the commands there are `cd`, `pwd` and `exit`.

Read from a pipe or a file it prompts for nothing and ends at the first command that fails, with its exit code.";

/// What a line comes to.
enum Done {
    Next(ExitCode),
    End,
}

pub fn run(context: &Context, args: &ShellArgs) -> Result<ExitCode> {
    // That there is a node at all is known before the first line.
    context.wait(async { context.client().await.map(drop) })?;
    paths::begin_at_root();
    if std::io::stdin().is_terminal() { typed(context) } else { read(context, args.keep_going) }
}

/// Carries out lines that a person types.
fn typed(context: &Context) -> Result<ExitCode> {
    let unusable =
        |e: ReadlineError| Error::new(ErrorKind::Unavailable, "the terminal cannot be used").caused_by(e);
    let config = Config::builder()
        .max_history_size(limits::SHELL_HISTORY_MAX)
        .and_then(|config| config.history_ignore_dups(true))
        .map_err(unusable)?
        .history_ignore_space(true)
        .completion_type(CompletionType::List)
        .build();
    let mut editor: Editor<Words<'_>, FileHistory> = Editor::with_config(config).map_err(unusable)?;
    editor.set_helper(Some(Words::new(context)));
    let history = history();
    if let Some(history) = &history {
        // The first time there is none.
        let _ = editor.load_history(history);
    }
    let ended = loop {
        match editor.readline(&format!("weft:/{}> ", paths::base().unwrap_or_default())) {
            Ok(line) => {
                // A line that is not kept is carried out all the same.
                let _ = editor.add_history_entry(line.as_str());
                if let Done::End = carry_out(context, &line) {
                    break Ok(ExitCode::SUCCESS);
                }
            }
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => break Ok(ExitCode::SUCCESS),
            Err(e) => break Err(unusable(e)),
        }
    };
    if let Some(history) = &history
        && let Err(e) = keep(&mut editor, history)
    {
        note!("warning: the history is not kept: {e}");
    }
    ended
}

/// Keeps what was typed, in a file that nobody else reads.
fn keep(editor: &mut Editor<Words<'_>, FileHistory>, path: &PathBuf) -> std::result::Result<(), String> {
    use std::os::unix::fs::OpenOptionsExt;
    if let Some(above) = path.parent() {
        std::fs::create_dir_all(above).map_err(|e| e.to_string())?;
    }
    // Made for this user alone before anything stands in it.
    let made = std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(path);
    made.map_err(|e| e.to_string())?;
    editor.save_history(path).map_err(|e| e.to_string())
}

/// Returns where what was typed is kept, if there is such a place.
fn history() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|v: &OsString| !v.is_empty()).map(PathBuf::from);
    let state = variable("XDG_STATE_HOME").or_else(|| variable("HOME").map(|home| home.join(".local/state")));
    state.map(|state| state.join("weft/history"))
}

/// Carries out lines that come from a pipe or a file.
fn read(context: &Context, keep_going: bool) -> Result<ExitCode> {
    let failed = |e| fault::error(e, "read", "standard input");
    let mut first = ExitCode::SUCCESS;
    loop {
        let mut line = Vec::new();
        // Not locked while a command runs: that may read it, too.
        let mut input = std::io::stdin().lock().take(limits::SHELL_LINE_BYTES_MAX as u64);
        if input.read_until(b'\n', &mut line).map_err(failed)? == 0 {
            return Ok(first);
        }
        if line.len() == limits::SHELL_LINE_BYTES_MAX {
            return Err(Error::new(ErrorKind::TooLong, "a line has at most 1 MiB"));
        }
        let line = String::from_utf8(line).map_err(|_| Error::invalid("a line is not UTF-8"))?;
        match carry_out(context, &line) {
            Done::End => return Ok(first),
            Done::Next(code) if code == ExitCode::SUCCESS => {}
            Done::Next(code) if !keep_going => return Ok(code),
            Done::Next(code) if first == ExitCode::SUCCESS => first = code,
            Done::Next(_) => {}
        }
    }
}

/// Carries a line out, and says what is wrong with it.
fn carry_out(context: &Context, line: &str) -> Done {
    match command(context, line) {
        Ok(done) => done,
        Err(error) => Done::Next(failure::report(&error, context.json())),
    }
}

fn command(context: &Context, line: &str) -> Result<Done> {
    let words = shlex::split(line).ok_or_else(|| Error::invalid("a quote or a backslash is left open"))?;
    let done = match &words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Ok(ExitCode::SUCCESS),
        ["exit" | "quit"] => return Ok(Done::End),
        ["pwd"] => out!("/{}", paths::base().unwrap_or_default()).map(|()| ExitCode::SUCCESS),
        ["cd"] => change_directory(context, "/"),
        ["cd", to] => change_directory(context, to),
        ["shell", ..] => Err(Error::invalid("this is one already")),
        _ => other(context, &words),
    };
    output::flush()?;
    done.map(Done::Next)
}

fn change_directory(context: &Context, to: &str) -> Result<ExitCode> {
    let path = TreePath::read(to.as_ref())?;
    context.wait(async {
        let client = context.client().await?;
        let found = path.look_up(&client).await.map_err(|e| e.op("go to"))?;
        if found.kind == Kind::Directory {
            return Ok(());
        }
        Err(Error::new(ErrorKind::NotDirectory, "it is not a directory").op("go to").about(&path))
    })?;
    paths::begin_at(path.path);
    Ok(ExitCode::SUCCESS)
}

/// Runs what is a command outside as well.
fn other(context: &Context, words: &[String]) -> Result<ExitCode> {
    let parsed = Cli::try_parse_from(std::iter::once("weft").chain(words.iter().map(String::as_str)));
    match parsed {
        Ok(cli) => super::run(&context.within(cli.global), cli.command),
        Err(error) => Ok(failure::usage(&error, context.json())),
    }
}

/// Returns the words that a line may begin with.
fn verbs() -> Vec<String> {
    let cli = Cli::command();
    let commands = cli.get_subcommands().map(|command| command.get_name().to_owned());
    commands.filter(|name| name != "shell").chain(["cd", "pwd", "exit"].map(str::to_owned)).collect()
}
