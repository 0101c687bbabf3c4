//! Every command, one file each.

mod acl;
mod attr;
mod audit;
mod backup;
mod cat;
mod completion;
mod config;
mod cp;
mod detached;
mod df;
mod doctor;
mod dropbox;
mod du;
mod find;
mod fsck;
mod group;
mod head;
mod key;
mod link;
mod ln;
mod login;
mod ls;
mod manual;
mod mkdir;
pub mod mount;
mod mv;
mod resolve;
mod revoke;
mod rm;
mod scrub;
mod share;
mod shell;
mod stat;
mod status;
mod token;
mod touch;
mod tree;
mod up;
mod user;
mod whoami;
mod why;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind as Misuse;
use clap::{CommandFactory, Subcommand};
use weft_core::Result;

use crate::context::Context;

/// What to do.
#[derive(Subcommand)]
pub enum Command {
    /// Run a node
    #[command(
        after_help = "What is not said here is taken from the environment, then from weft.toml.d/*.toml, then from weft.toml in the \
        node's directory: `weft config show --effective` tells what comes of it. WEFT_LOG says what of its doings goes to \
        stderr: error, warn, info (as it is), debug, trace. SIGHUP has it read its configuration and its certificate again."
    )]
    Up(up::UpArgs),
    /// Stop a node
    Down,
    /// Mount a directory of the tree
    Mount(mount::MountArgs),
    /// Take a mount away
    Umount(mount::UmountArgs),
    /// Write a consistent copy of a running node
    Backup(backup::BackupArgs),
    /// Check a node's data, and mend them
    Fsck(fsck::FsckArgs),
    /// List the keys of a node's domain, and replace them
    #[command(subcommand)]
    Key(key::KeyCommand),
    /// Have a running node compare everything with what was written
    Scrub(scrub::ScrubArgs),
    /// Make a node from a backup
    Restore(backup::RestoreArgs),
    /// Show how a node is configured, and find mistakes
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Show how a node, or a mount, is: exits with 1 if it is not well
    Status(status::StatusArgs),
    /// Write man pages and completions, for a package
    #[command(hide = true)]
    Manual(manual::ManualArgs),
    /// Look for the usual mistakes on this machine, and say what mends them
    Doctor(doctor::DoctorArgs),
    /// Prove who you are and keep the credential
    #[command(
        after_help = "Commands show the first credential there is: BEARER_TOKEN, the file that BEARER_TOKEN_FILE \
        names, $XDG_RUNTIME_DIR/bt_uUID, /tmp/bt_uUID, what was kept here. Without any, the uid at the node's socket says who it is."
    )]
    Login(login::LoginArgs),
    /// Forget the credential that `login` kept
    Logout(login::LogoutArgs),
    /// Say who you are to the node
    Whoami,
    /// Add, change and list users
    #[command(subcommand)]
    User(user::UserCommand),
    /// Make, change and list groups
    ///
    /// A group's name carries its maker's: `group:alice/team`. To `weft group` alice may write `team`;
    /// everywhere else (`weft acl grant /d group:alice/team read`) it is written in full.
    #[command(subcommand)]
    Group(group::GroupCommand),
    /// List directories
    Ls(ls::LsArgs),
    /// Write files to standard output
    Cat(cat::CatArgs),
    /// Print the beginning of files
    Head(head::HeadArgs),
    /// Print the end of files
    Tail(head::HeadArgs),
    /// Copy files and trees, into, out of and within the tree
    Cp(cp::CpArgs),
    /// Bring a directory of this machine into the tree
    Import(cp::moving::ImportArgs),
    /// Bring a directory of the tree to this machine
    Export(cp::moving::ExportArgs),
    /// Make a directory like another, on the other side
    Sync(cp::moving::SyncArgs),
    /// Rename files and directories
    Mv(mv::MvArgs),
    /// Remove files
    Rm(rm::RmArgs),
    /// Make directories
    Mkdir(mkdir::MkdirArgs),
    /// Remove empty directories
    Rmdir(rm::RmdirArgs),
    /// Make hard and symbolic links
    Ln(ln::LnArgs),
    /// Show everything known of a file
    Stat(stat::StatArgs),
    /// Make files, or set their times to now
    Touch(touch::TouchArgs),
    /// Find files by name, kind, size and user attributes
    Find(find::FindArgs),
    /// Draw what directories hold
    Tree(tree::TreeArgs),
    /// Add up what directories hold
    Du(du::DuArgs),
    /// Tell how much room there is
    Df(df::DfArgs),
    /// Show and change user attributes
    #[command(subcommand)]
    Attr(attr::AttrCommand),
    /// Say what a path leads to, and who keeps it
    Resolve(resolve::ResolveArgs),
    /// Serve a directory of the node's machine in place, or list those that are
    #[command(after_help = SHARE_HELP)]
    Share(share::ShareArgs),
    /// Serve a shared directory no more
    #[command(
        after_help = "Nothing in the directory is touched. Who has a file of it open is told that it has gone."
    )]
    Unshare(share::UnshareArgs),
    /// Make, list and end links for people without an account
    #[command(subcommand)]
    Link(link::LinkCommand),
    /// Make, list and end tokens, by which programs act for you
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Make, list and end directories that people without an account put files into
    #[command(subcommand)]
    Dropbox(dropbox::DropboxCommand),
    /// Show and change who may do what
    #[command(subcommand)]
    Acl(acl::AclCommand),
    /// Explain why something is allowed or refused
    Why(why::WhyArgs),
    /// Show who did what, and verify the log
    Audit(audit::AuditArgs),
    /// Withdraw credentials and capabilities
    Revoke(revoke::RevokeArgs),
    /// Carry out commands line by line, in a directory of the tree
    #[command(after_help = shell::HELP)]
    Shell(shell::ShellArgs),
    /// Write what makes a shell complete the words of this program
    #[command(after_help = COMPLETION_HELP)]
    Completion(completion::CompletionArgs),
}

const SHARE_HELP: &str = "\
The files stay where they are: what local programs change is seen in the tree at once, and what is changed through \
the tree is changed there. Only administrators share, and only they may use it until somebody is let in: weft acl \
grant PATH WHO read. `weft mv` moves it to another place in the tree, `weft unshare` ends it.";

const COMPLETION_HELP: &str = "\
bash: weft completion bash > ~/.local/share/bash-completion/completions/weft
zsh:  weft completion zsh > a directory of $fpath, as _weft
fish: weft completion fish > ~/.config/fish/completions/weft.fish";

/// Runs a command.
pub fn run(context: &Context, command: Command) -> Result<ExitCode> {
    let done = match command {
        Command::Up(args) => return up::up(context, &args),
        Command::Down => up::down(context),
        Command::Mount(args) => return mount::run(context, &args),
        Command::Umount(args) => mount::umount(&args),
        Command::Backup(args) => return backup::backup(context, &args),
        Command::Fsck(args) => return fsck::run(context, &args),
        Command::Scrub(args) => return scrub::run(context, &args),
        Command::Restore(args) => backup::restore(context, &args),
        Command::Config(command) => return config::run(context, &command),
        Command::Status(args) => return status::run(context, &args),
        Command::Manual(args) => manual::run(&args),
        Command::Doctor(args) => return doctor::run(context, &args),
        Command::Login(args) => login::run(context, &args),
        Command::Logout(args) => login::logout(context, &args),
        Command::Whoami => whoami::run(context),
        Command::User(command) => user::run(context, &command),
        Command::Key(command) => key::run(context, &command),
        Command::Group(command) => group::run(context, &command),
        Command::Ls(args) => return ls::run(context, &args),
        Command::Cat(args) => return cat::run(context, &args),
        Command::Head(args) => return head::head(context, &args),
        Command::Tail(args) => return head::tail(context, &args),
        Command::Cp(args) => return cp::run(context, &args),
        Command::Import(args) => return cp::moving::import(context, &args),
        Command::Export(args) => return cp::moving::export(context, &args),
        Command::Sync(args) => return cp::moving::sync(context, &args),
        Command::Mv(args) => return mv::run(context, &args),
        Command::Rm(args) => return rm::run(context, &args),
        Command::Mkdir(args) => return mkdir::run(context, &args),
        Command::Rmdir(args) => return rm::rmdir(context, &args),
        Command::Ln(args) => ln::run(context, &args),
        Command::Stat(args) => return stat::run(context, &args),
        Command::Touch(args) => return touch::run(context, &args),
        Command::Find(args) => return find::run(context, &args),
        Command::Tree(args) => return tree::run(context, &args),
        Command::Df(args) => return df::run(context, &args),
        Command::Attr(command) => attr::run(context, &command),
        Command::Resolve(args) => return resolve::run(context, &args),
        Command::Shell(args) => return shell::run(context, &args),
        Command::Completion(args) => completion::run(&args),
        Command::Du(args) => return du::run(context, &args),
        Command::Share(args) => share::share(context, &args),
        Command::Unshare(args) => share::unshare(context, &args),
        Command::Link(command) => link::run(context, &command),
        Command::Token(command) => token::run(context, &command),
        Command::Dropbox(command) => dropbox::run(context, &command),
        Command::Acl(command) => acl::run(context, &command),
        Command::Why(args) => return why::run(context, &args),
        Command::Audit(args) => return audit::run(context, &args),
        Command::Revoke(args) => revoke::run(context, &args),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// Splits what a command was given into sources and a target, wherever options stand between them.
/// Ends as clap does where there are not both: its own count would be of those between two options.
fn sources_and_target<'a>(
    context: &Context,
    command: &str,
    paths: &'a [OsString],
) -> (&'a [OsString], &'a OsString) {
    if let Some((target, sources)) = paths.split_last()
        && !sources.is_empty()
    {
        return (sources, target);
    }
    let mut cli = crate::Cli::command();
    cli.build();
    let misused = cli.find_subcommand_mut(command).expect("a command names itself");
    let error = misused.error(Misuse::TooFewValues, "a source and a target are needed");
    crate::failure::usage(&error, context.json());
    std::process::exit(error.exit_code())
}
