//! The native protocol: what nodes and their own clients speak.
//!
//! One connection carries many calls at once, each with a number of its own (its
//! *stream*). A message is small and typed; bytes ride behind it, uncopied.
//!
//! ```text
//!   frame:   body length u32 | payload length u32 | stream u32 | body (postcard) | payload
//!
//!   client                               server
//!   Hello ─────────────────────────────▶
//!            ◀───────────────────────── Welcome: version, domain, certificates
//!   Present 2 = credential ────────────▶            (no answer: pipelined)
//!   Begin 1 = session ─────────────────▶ ─▶ Begun
//!   Call #7 (as 2, in 1): read 0-4M ───▶
//!            ◀──────── Reply #7, then Data #7 … while the client gives credit
//!   Call #8: write ────────────────────▶
//!            ◀──────── Grant #8: so many bytes    (the server says how much, and when)
//!   Data #8 ───────────────────────────▶
//! ```
//!
//! A `Caller` never travels (request-form law 19): the server verifies each
//! credential itself and knows it by the number it was presented under. Times travel
//! as what is left of them.
//!
//! Chosen against: HTTP/2 (its flow control knows nothing of our pulls), one
//! connection a call (a mount has thousands). How to get it wrong: let a stalled
//! stream hold up the others; so nothing is sent that the other end has not given room
//! for, and whoever sends more is cut off.
//!
//! Servers live in `doors/native`; here are messages, framing and the stubs.

mod connection;
mod frame;
mod lent;
mod message;
mod remote;
mod source;
mod streams;

pub use connection::{Connection, Line};
pub use frame::{Frame, FrameHead, FrameReader, FrameWriter, encode, write_frame};
pub use message::{
    AccountsAsk, Answer, AuditAsk, AuthorityAsk, CallBody, CallHeader, FileAsk, FileRef, LEND_SINCE,
    LENT_SINCE, Lent, LinksAsk, NodeAsk, Put, StageAsk, ToClient, ToServer, TokensAsk, VERSION,
    VERSION_OLDEST, Welcome,
};
pub use remote::{As, Remote};
