//! `weft login` and `weft logout`

use std::io::{BufRead, IsTerminal, Read};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use weft_client::{Client, credential};
use weft_core::acl::Network;
use weft_core::proof::{Attenuation, Signed};
use weft_core::service::{Evidence, Secret};
use weft_core::{Error, ErrorKind, Result, Rights, limits};
use weft_sys::process;

use crate::commands::mount::handing;
use crate::context::Context;
use crate::output::{self, note, out};
use crate::paths::tree_path;
use crate::show;

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
    /// Hand the credential over to the shared mount at DIR instead of keeping it
    #[arg(long, value_name = "DIR", conflicts_with = "print")]
    mount: Option<PathBuf>,
}

/// Options of `weft logout`.
#[derive(Args)]
pub struct LogoutArgs {
    /// Be anyone on the shared mount at DIR, instead of forgetting the credential that is kept
    #[arg(long, value_name = "DIR")]
    mount: Option<PathBuf>,
}

/// What became of a credential.
enum Put {
    Printed,
    Kept(PathBuf),
    HandedOver { dir: PathBuf, uid: u32 },
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
        let signed = prove(&client, args).await.map_err(|e| refused(e, args.user.as_deref()))?;
        let claims = client.verify(&signed)?.claims().clone();
        let wanted = args.life.map(Duration::from_secs);
        let shortened = wanted.is_some_and(|wanted| claims.expires.since(claims.issued) < wanted);
        let put = put(&client, args, &signed).await?;
        if context.json() {
            let (file, handed) = match &put {
                Put::Kept(file) => (Some(file.display().to_string()), None),
                Put::HandedOver { dir, uid } => {
                    (None, Some(serde_json::json!({ "mount": dir.display().to_string(), "uid": uid })))
                }
                Put::Printed => (None, None),
            };
            return out!(
                "{}",
                serde_json::json!({
                    "caller": claims.caller.to_string(),
                    "credential": claims.id.to_string(),
                    "expires": claims.expires.seconds(),
                    "shortened": shortened,
                    "path": file,
                    "handed_to": handed,
                    "token": args.print.then(|| signed.to_token()),
                })
            );
        }
        match put {
            Put::Printed => out!("{}", signed.to_token())?,
            Put::Kept(file) => note!("logged in; the credential is kept in {}", file.display()),
            Put::HandedOver { dir, uid } => {
                let name = &claims.caller;
                note!(
                    "{} knows you as {name} now; its process, which is of uid {uid}, holds the credential",
                    dir.display()
                );
            }
        }
        if shortened {
            let longest = limits::CREDENTIAL_LIFE.as_secs();
            let end = show::time(claims.expires);
            note!("it ends at {end} UTC: the node lets a credential live for at most {longest} seconds");
        }
        Ok(())
    })
}

async fn put(client: &Client, args: &LoginArgs, signed: &Signed) -> Result<Put> {
    if args.print {
        return Ok(Put::Printed);
    }
    let Some(dir) = &args.mount else { return credential::keep(client.domain(), signed).map(Put::Kept) };
    let uid = handing::log_in(dir, client.domain(), signed)
        .await
        .map_err(|e| e.op("log in at").about(dir.display()))?;
    Ok(Put::HandedOver { dir: dir.clone(), uid })
}

async fn prove(client: &Client, args: &LoginArgs) -> Result<Signed> {
    let life = args.life.map_or(limits::CREDENTIAL_LIFE, Duration::from_secs);
    let limits = args.limits()?;
    let Some(user) = &args.user else { return client.remote().login_here(limits, life).await };
    let password = read_password(args.password_stdin)?;
    let evidence = Evidence::Password { user: user.clone(), password };
    client.remote().login(evidence, limits, life).await
}

/// Says what else there is to do for whoever could not log in: not to log in.
fn refused(error: Error, user: Option<&str>) -> Error {
    match (error.kind(), user) {
        (ErrorKind::Unauthenticated, None) => {
            error.op("log in").hint("no user has this uid: `weft login USER` asks for a password")
        }
        (ErrorKind::Unauthenticated, Some(user)) => {
            let hint = format!("an administrator sets another password: weft user passwd {user}");
            error.op("log in as").about(user).hint(hint)
        }
        _ => error,
    }
}

pub fn logout(context: &Context, args: &LogoutArgs) -> Result<()> {
    context.wait(async {
        if let Some(dir) = &args.mount {
            handing::log_out(dir).await.map_err(|e| e.op("log out at").about(dir.display()))?;
            return if context.json() {
                out!("{}", serde_json::json!({ "forgotten": true }))
            } else {
                Ok(())
            };
        }
        let client = Client::connect_as_self(context.sys(), &context.place()?).await?;
        let forgotten = credential::forget(client.domain())?;
        if context.json() {
            return out!("{}", serde_json::json!({ "forgotten": forgotten }));
        }
        if !forgotten {
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
