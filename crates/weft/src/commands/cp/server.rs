//! Servers that speak HTTP as the other side: files, and directories where they speak WebDAV.

mod checked;
mod clearing;
mod give;
mod login;
mod take;

use std::path::PathBuf;

use clap::Args;
use weft_client::copy::Progress;
use weft_core::{Error, ErrorKind, RelPath, Result};
use weft_remote::{Depth, Fields, Reach, Remote, Roots, Url};

use super::{Job, interrupted};
use crate::context::Context;
use crate::paths::Ending;

pub(super) use give::give;
pub(super) use take::take;

/// Files that are copied at once: enough to hide the way to the server.
const AT_ONCE: usize = 8;

/// How servers are spoken to.
#[derive(Args, Clone, Debug, Default)]
pub struct ServerOptions {
    /// A file with the bearer token that a server asks for; without one, what ~/.netrc says of its host
    #[arg(long, value_name = "FILE")]
    server_token: Option<PathBuf>,
    /// A PEM file, or a directory of them, of authorities that may vouch for servers, besides the machine's
    #[arg(long, value_name = "FILE")]
    server_authorities: Option<PathBuf>,
}

/// Where copies go on a server.
pub struct ServerGoal {
    /// The address: of a directory they go into, or of the one file.
    pub url: Url,
    /// Whether it is a directory.
    pub is_directory: bool,
}

/// A server, and what lets the caller in.
struct Server {
    remote: Remote,
    passed: Fields,
}

impl ServerOptions {
    fn server(&self, context: &Context, url: &Url) -> Result<Server> {
        let roots = Roots { also: self.server_authorities.clone() };
        let remote = Remote::new(context.sys().clone(), Reach::anywhere(), &roots)?;
        Ok(Server { remote, passed: login::fields(self.server_token.as_deref(), url)? })
    }
}

impl Server {
    /// Returns whether a server has a directory there; none if there is nothing, or it does not say.
    async fn is_directory(&self, url: &Url) -> Result<Option<bool>> {
        match self.remote.list(url, &self.passed, Depth::Itself).await {
            Ok(found) => Ok(found.entries.first().map(|found| found.is_directory)),
            // Plain servers do not know the question, or ask whoever puts it to go.
            Err(error) => match error.kind() {
                ErrorKind::Unsupported | ErrorKind::NotFound | ErrorKind::Denied => Ok(None),
                _ => Err(error),
            },
        }
    }
}

impl ServerGoal {
    /// Finds the target. One that ends in `/` is a directory.
    pub async fn find(job: &Job<'_>, url: &Url, ending: Ending) -> Result<Self> {
        let is_directory = match ending {
            Ending::Name => {
                let server = job.wanted.server.server(job.context, url)?;
                server.is_directory(url).await? == Some(true)
            }
            _ => true,
        };
        Ok(Self { url: if is_directory { url.directory() } else { url.clone() }, is_directory })
    }
}

/// Returns the address of a path below a directory.
fn below(top: &Url, path: &RelPath) -> Url {
    path.names().fold(top.clone(), |url, name| url.join(name.as_bytes()))
}

/// Waits for the other side, but not beyond what stops all that is under way.
async fn unless_stopped<T>(shared: &Progress, work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::select! {
        biased;
        () = shared.until_stopped() => Err(interrupted()),
        done = work => done,
    }
}

/// The error of a file whose bytes are not those that a server speaks of.
fn differs() -> Error {
    Error::corrupt("the bytes that were moved are not those that the server says it has")
}
