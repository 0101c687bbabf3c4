//! What WebDAV adds to HTTP's messages (RFC 4918): fields, and bodies in XML.

pub mod fields;
pub mod if_header;
pub mod request;
pub mod xml;

#[cfg(test)]
mod fuzz;
