//! WebDAV (RFC 4918): what it adds to files and listings.
//!
//! ```text
//!  Propfind ─▶ propfind ─▶ properties ─▶ multistatus, page by page
//!  Proppatch ─▶ proppatch ─▶ fs.tag · fs.set           dead properties are attributes (`dead`)
//!  Copy Move ─▶ transfer ─▶ fs.rename │ tree (stage · publish)
//!  Lock Unlock ─▶ locking ─▶ NameLocks                  a lock is of a name
//!  PUT Delete Mkcol … ─▶ hold: `If` judged, tokens shown, a permit as long as the change is made
//! ```
//!
//! Every change holds a permit of [`NameLocks`](weft_core::service::NameLocks) while it is made, so
//! no lock is granted in the middle of one. What a request may is decided below, name by name, as for any
//! other door; a tree is copied and removed as its caller.
//!
//! **Ways to get it wrong.** Walking into a share while a tree is removed: what lies in another volume
//! is never descended into. Putting what a client sent into an answer: XML is written anew
//! (`codec::webdav::xml`). Answering `Depth: infinity`: a million names for one request.

pub mod dead;
pub mod hold;
pub mod locking;
pub mod multistatus;
mod properties;
pub mod propfind;
pub mod proppatch;
pub mod transfer;
pub mod tree;

/// What RFC 4918 calls the compliance of a resource.
pub const CLASSES: &str = "1, 2, 3";
