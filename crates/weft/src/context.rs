//! What every command is given: which node, how to answer, and a runtime to wait on.

use std::ffi::OsString;
use std::future::Future;
use std::path::PathBuf;

use clap::Args;
use weft_client::{Client, Place};
use weft_core::{Error, ErrorKind, Result};
use weft_sys::Sys;

/// Options of every command.
#[derive(Args, Clone)]
pub struct GlobalArgs {
    /// The node's directory [default: $WEFT_NODE, $XDG_DATA_HOME/weft or ~/.local/share/weft]
    #[arg(long, global = true, value_name = "DIR")]
    pub node: Option<PathBuf>,
    /// Print JSON, one document or one line an item
    #[arg(long, global = true)]
    pub json: bool,
}

/// Returns whether a command line that may be malformed asks for JSON: options end at `--`.
pub fn asks_for_json(args: impl Iterator<Item = OsString>) -> bool {
    args.skip(1).take_while(|arg| arg != "--").any(|arg| arg == "--json")
}

/// What a command works with.
pub struct Context {
    args: GlobalArgs,
    sys: Sys,
}

impl Context {
    /// Makes the context of one run.
    pub fn new(args: GlobalArgs) -> Self {
        Self { args, sys: Sys::real() }
    }

    /// Makes the context of a command within this one: what it is not told itself is as here.
    pub fn within(&self, args: GlobalArgs) -> Self {
        let node = args.node.or_else(|| self.args.node.clone());
        Self { args: GlobalArgs { node, json: args.json || self.args.json }, sys: self.sys.clone() }
    }

    /// Returns whether to answer in JSON.
    pub fn json(&self) -> bool {
        self.args.json
    }

    /// Returns the machine.
    pub fn sys(&self) -> &Sys {
        &self.sys
    }

    /// Returns the node's directory: `given`, `--node`, `WEFT_NODE`, or the usual place. A variable
    /// that is set to nothing counts as not set.
    pub fn directory(&self, given: Option<PathBuf>) -> Result<PathBuf> {
        let variable = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let usual = || {
            variable("XDG_DATA_HOME")
                .or_else(|| variable("HOME").map(|home| home.join(".local/share")))
                .map(|d| d.join("weft"))
        };
        let named = given.or_else(|| self.args.node.clone()).or_else(|| variable("WEFT_NODE"));
        named.or_else(usual).ok_or_else(|| {
            Error::new(ErrorKind::Invalid, "nothing says where the node's directory is")
                .hint("give --node DIR or set WEFT_NODE")
        })
    }

    /// Returns the node that commands speak to.
    pub fn place(&self) -> Result<Place> {
        self.directory(None).map(Place::of_directory)
    }

    /// Connects to the node with the credential that is found.
    pub async fn client(&self) -> Result<Client> {
        Client::connect(&self.sys, &self.place()?).await
    }

    /// Runs a command's work on a small runtime.
    pub fn wait<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime
            .map_err(|e| Error::new(ErrorKind::Unavailable, "no runtime could be made").caused_by(e))?;
        let done = runtime.block_on(work);
        // A thread that still waits for somebody else (a read of standard input, say) keeps nobody.
        runtime.shutdown_background();
        done
    }
}
