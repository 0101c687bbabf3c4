//! `weft login` and `weft logout`

use std::io::{BufRead, IsTerminal, Read};
use std::time::Duration;

use clap::Args;
use weft_client::{Client, credential};
use weft_core::acl::Network;
use weft_core::proof::Attenuation;
use weft_core::service::{Evidence, Secret};
use weft_core::{Error, ErrorKind, Result, Rights, limits};
use weft_sys::process;

use crate::context::Context;
use crate::output::{self, note, out};
use crate::paths::tree_path;

/// Options of `weft login`.
#[derive(Args)]
pub struct LoginArgs {
    /// The user [default: whoever owns this process's uid on the node]
    user: Option<String>,
    /// Read the password from standard input
    #[arg(long)]
    password_stdin: bool,
    /// How long the credential should live, in seconds
    #[arg(long, value_name = "SECONDS")]
    life: Option<u64>,
    /// Narrow the credential to these rights
    #[arg(long, value_name = "RIGHTS")]
    rights: Option<String>,
    /// Narrow the credential to what lies below this path (may be given again)
    #[arg(long, value_name = "PATH")]
    path: Vec<std::ffi::OsString>,
    /// Narrow the credential to callers in this network (may be given again)
    #[arg(long, value_name = "NETWORK")]
    host: Vec<Network>,
    /// Print the credential instead of keeping it
    #[arg(long)]
    print: bool,
}

impl LoginArgs {
    fn limits(&self) -> Result<Attenuation> {
        Ok(Attenuation {
            rights: self.rights.as_deref().map_or(Ok(Rights::ALL), Rights::parse)?,
            paths: self.path.iter().map(|p| tree_path(p)).collect::<Result<_>>()?,
            hosts: self.host.clone(),
            ..Attenuation::default()
        })
    }
}

pub fn run(context: &Context, args: &LoginArgs) -> Result<()> {
    context.wait(async {
        let client = Client::connect_as_self(context.sys(), &context.place()?).await?;
        let life = args.life.map_or(limits::CREDENTIAL_LIFE, Duration::from_secs);
        let limits = args.limits()?;
        let signed = match &args.user {
            Some(user) => {
                let password = read_password(args.password_stdin)?;
                let evidence = Evidence::Password { user: user.clone(), password };
                client.remote().login(evidence, limits, life).await?
            }
            None => client.remote().login_here(limits, life).await?,
        };
        if args.print {
            out!("{}", signed.to_token())?;
            return Ok(());
        }
        let file = credential::keep(client.domain(), &signed)?;
        note!("logged in; the credential is kept in {}", file.display());
        Ok(())
    })
}

pub fn logout(context: &Context) -> Result<()> {
    context.wait(async {
        let client = Client::connect_as_self(context.sys(), &context.place()?).await?;
        if !credential::forget(client.domain())? {
            note!("there was no credential to forget");
        }
        Ok(())
    })
}

/// Reads a password: one line from standard input, or asked for on the terminal
/// without showing it.
pub fn read_password(from_stdin: bool) -> Result<Secret> {
    let failed = |e| Error::new(ErrorKind::Invalid, "the password cannot be read").caused_by(e);
    if !from_stdin && std::io::stdin().is_terminal() {
        return ask_password("password").map_err(failed);
    }
    let mut line = String::new();
    std::io::stdin()
        .lock()
        .take(limits::PASSWORD_BYTES_MAX as u64 + 1)
        .read_line(&mut line)
        .map_err(failed)?;
    let password = line.trim_end_matches(['\r', '\n']);
    if password.is_empty() {
        return Err(Error::invalid("the password is empty"));
    }
    Ok(Secret::new(password))
}

/// Reads a new password, and before it the present one of whoever changes their own; from
/// standard input one that stands alone is the new one.
pub fn read_new_password(from_stdin: bool, own: bool) -> Result<(Option<Secret>, Secret)> {
    if !own {
        return Ok((None, read_password(from_stdin)?));
    }
    let failed = |e| Error::new(ErrorKind::Invalid, "the password cannot be read").caused_by(e);
    if !from_stdin && std::io::stdin().is_terminal() {
        let old = ask_password("present password (none: enter)").map_err(failed)?;
        let new = ask_password("new password").map_err(failed)?;
        return Ok(((!old.expose().is_empty()).then_some(old), new));
    }
    let first = read_password(true)?;
    match read_password(true) {
        Ok(second) => Ok((Some(first), second)),
        Err(_) => Ok((None, first)),
    }
}

fn ask_password(what: &str) -> std::io::Result<Secret> {
    output::prompt(what);
    let line = process::read_hidden_line();
    note!();
    Ok(Secret::new(line?.trim_end_matches(['\r', '\n'])))
}
