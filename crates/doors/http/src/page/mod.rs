//! The page: what people see who have nothing but a browser.
//!
//! **Problem.** Somebody who is given a name and a password, or only an address, must be able to look
//! around, read, and bring and change files, with nothing installed and nothing loaded from elsewhere.
//!
//! **Shape.** Every directory is a page, and so is what is known of each name (`?page=about`). What is
//! shown is made here, and can be read without a script. What changes anything is asked for by a small
//! script, with the same methods that every other client uses (`PUT`, `MKCOL`, `MOVE`, `DELETE`): the page has no
//! way in of its own, so no rule is there twice. The one thing that is its own is a login, since
//! a browser forgets a password it was asked for only when it ends. Ways to what is no part of the tree are buttons, so that whoever
//! fetches all that a page links to gets the tree and nothing else:
//!
//! ```text
//!  POST ?page=login  ─▶ Authority.login ─▶ a credential, in a cookie that no script can read
//!  each request      ─▶ cookie ─▶ Evidence::Token, unless there is an Authorization
//!  a change          ─▶ cookie, and the page's guard in a field that no other site can send
//!  POST ?page=logout ─▶ that credential is revoked, the cookie dropped
//! ```
//!
//! and what no method of HTTP does: links are made, listed and ended by forms (`links`), as the commands do it.
//!
//! **Ways to get it wrong.** Letting a cookie alone change something: what a foreign site makes a
//! browser send carries it. Letting a file act for its reader: files share the origin with the page, so
//! they are shown in a sandbox (`get`) and the page runs one script alone, named by its hash. Sending who
//! logged in to where a query says: a login leads to the path it was asked at. Writing a name as it is:
//! names are any bytes, and everything that is written passes `frame::escape`.

pub mod about;
pub mod drop;
mod forms;
mod frame;
pub mod guard;
pub mod links;
pub mod listing;
pub mod login;
mod preview;
pub mod problem;
mod rules;
pub mod sorted;

pub use forms::post;
pub use rules::RULES;

use weft_core::Result;

use crate::codec::head::Head;
use crate::codec::target::parameter;

/// The media type of all of them.
pub const MEDIA: &str = "text/html; charset=utf-8";

/// A page that is asked for by the query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// What is known of a name.
    About,
    /// Where one says who one is.
    Login,
    /// Where that ends.
    Logout,
    /// The links that one has made.
    Links,
    /// A new one.
    Link,
    /// The end of one.
    Unlink,
}

/// Returns whether a request is for the page where one says who one is.
pub fn is_login(head: &Head) -> bool {
    matches!(Page::asked(head.query()), Ok(Some(Page::Login)))
}

impl Page {
    /// Returns the page that a query asks for. `Invalid` for one that there is not.
    pub fn asked(query: Option<&[u8]>) -> Result<Option<Self>> {
        let Some(name) = parameter(query, "page")? else { return Ok(None) };
        match name.as_slice() {
            b"about" => Ok(Some(Self::About)),
            b"login" => Ok(Some(Self::Login)),
            b"logout" => Ok(Some(Self::Logout)),
            b"links" => Ok(Some(Self::Links)),
            b"link" => Ok(Some(Self::Link)),
            b"unlink" => Ok(Some(Self::Unlink)),
            _ => {
                Err(weft_core::Error::invalid("there is no such page; `page` is `about`, `links` or `login`"))
            }
        }
    }
}
