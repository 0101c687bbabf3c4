//! The door over the plain in-memory model, by raw sockets and by programs nobody here wrote. What
//! is missing of those is counted in the file named by `WEFT_NOT_RUN`.

mod beside;
mod conditions;
mod framing;
mod front;
mod house;
mod http2;
mod identity;
mod listing;
mod page;
mod plain;
mod programs;
mod raw;
mod secured;
mod stalled;
mod system_calls;
mod third_party;
mod tus;
mod webdav;
