//! The door over the plain in-memory model, by raw sockets and by programs nobody here wrote.

mod house;
mod plain;
mod raw;
