//! A small document of another server, read whole.

use bytes::{Bytes, BytesMut};
use hyper::{Method, StatusCode};
use weft_core::{Error, ErrorKind, Result};

use crate::send::{Ask, refused};
use crate::{Fields, Remote, Url};

impl Remote {
    /// Reads a document of at most so many bytes, by TLS, from the server that is named and no other: what sends on
    /// elsewhere is refused. `TooLarge` beyond that, `Unavailable` where it is not given.
    pub async fn document(&self, url: &Url, bytes_max: usize) -> Result<Bytes> {
        self.small(url, bytes_max).await.map_err(|error| error.about(url))
    }

    async fn small(&self, url: &Url, bytes_max: usize) -> Result<Bytes> {
        if !url.is_secure() {
            return Err(Error::denied("what is believed of another server is read by TLS only"));
        }
        let ask = Ask { method: Method::GET, url: url.clone(), own: Fields::new(), passed: Fields::new() };
        let (_line, head, mut body) = self.ask_once(&ask, Bytes::new()).await?;
        if head.status.is_redirection() {
            return Err(Error::denied("the server sends on to another place, which is not followed"));
        }
        if head.status != StatusCode::OK {
            return Err(refused(head.status));
        }
        let mut text = BytesMut::new();
        while let Some(piece) = self.piece(&mut body).await? {
            if text.len() + piece.len() > bytes_max {
                return Err(Error::new(ErrorKind::TooLarge, "the document is longer than its limit"));
            }
            text.extend_from_slice(&piece);
        }
        Ok(text.freeze())
    }
}
