//! What a server is told to remove.

use bytes::Bytes;
use hyper::{Method, StatusCode};
use weft_core::{Error, ErrorKind, Result};

use crate::send::{Ask, refused};
use crate::{Fields, Remote, Url};

impl Remote {
    /// Removes a file, or a directory with all that is in it. `NotFound` if nothing is there, `Conflict` if some of it
    /// stayed. A redirect is not followed: what lies elsewhere nobody asked to remove.
    pub async fn remove(&self, url: &Url, passed: &Fields) -> Result<()> {
        let ask =
            Ask { method: Method::DELETE, url: url.clone(), own: Fields::new(), passed: passed.clone() };
        let (_line, head, _body) = self.ask_once(&ask, Bytes::new()).await?;
        let error = match head.status {
            // It tells of each that stayed.
            StatusCode::MULTI_STATUS => {
                Error::new(ErrorKind::Conflict, "the server did not remove all that is in it")
            }
            status if status.is_success() => return Ok(()),
            status if status.is_redirection() => {
                Error::denied("the server sends on to another place, where nothing is removed")
                    .hint("name the address that it leads to")
            }
            status => refused(status),
        };
        Err(error.about(url))
    }
}
