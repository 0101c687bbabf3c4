//! Other people's HTTP servers, seen from here: their files are read, written and listed.
//!
//! **Problem.** A node that copies to and from addresses which its callers name, and a command that brings a site in,
//! speak to servers nobody here runs. These may be slow, change a file while it is read, say one length and send
//! another, or send whoever follows them somewhere else: to the node's own machine, to a network that only the node can
//! reach, with a credential that is not theirs.
//!
//! **Shape.** One request is one connection, made to an address that was looked at:
//!
//! ```text
//!   Url ─▶ names ─▶ addresses ─▶ Reach: may this one be spoken to? ─▶ connect to that one ─▶ TLS ─▶ hyper
//!    ▲                                                                                              │
//!    └──────── a redirect: counted, looked at anew, without what was meant for the server before ◀──┘
//!
//!   download: length, version pinned ─▶ pieces ─ broke off ─▶ Range + If-Match, where it was
//!   upload:   leave (100-continue) ─▶ pieces ─▶ the answer that says they are kept
//!   listing:  PROPFIND ─▶ entries, and whether these are all
//!   remove:   DELETE of what was named, and of nothing that it leads to
//!   document: a small file, whole, from that server alone
//! ```
//!
//! Every wait has a deadline (`limits::REMOTE_…`). hyper frames the messages; who is spoken to, for how long and with what, is
//! decided here. Proxies that the environment names are not asked: what is looked at is where the bytes go.
//!
//! Rejected: reqwest (its pool and its resolver decide where a connection goes); a pool of our own (a transfer is long beside its
//! connection, and an address that was good may not be so any more); several ranges at once (the mover shares by transfer).
//!
//! **Ways to get it wrong.** Looking at a name and connecting to it later: it may mean another address by then. Taking the end of
//! a connection for the end of a file, or what a listing happens to name for all there is. Telling a caller what an address inside turned out to be.

mod connect;
mod document;
mod download;
mod listing;
mod network;
mod reach;
mod remove;
mod roots;
mod send;
mod upload;
mod url;

use std::sync::Arc;

use hyper::header::HeaderMap;
use weft_core::Result;
use weft_sys::Sys;

pub use download::{Download, From, Said};
pub use hyper::header::{HeaderName, HeaderValue};
pub use hyper::{Method, StatusCode};
pub use listing::{Depth, Entry, Listing};
pub use network::Network;
pub use reach::Reach;
pub use roots::Roots;
pub use upload::{Put, Stored};
pub use url::Url;

/// Fields that a request carries.
pub type Fields = HeaderMap;

/// What speaks to other servers.
#[derive(Clone)]
pub struct Remote {
    inner: Arc<Inner>,
}

struct Inner {
    sys: Sys,
    reach: Reach,
    tls: tokio_rustls::TlsConnector,
}

impl Remote {
    /// Makes it: `reach` says which addresses it speaks to, `roots` whom it believes who they are.
    pub fn new(sys: Sys, reach: Reach, roots: &Roots) -> Result<Self> {
        let tls = roots.connector()?;
        Ok(Self { inner: Arc::new(Inner { sys, reach, tls }) })
    }

    fn sys(&self) -> &Sys {
        &self.inner.sys
    }
}
