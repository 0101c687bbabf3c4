//! Bounds of certificates that clients show, and of those that vouch for them.

use super::{TLS_FILE_BYTES_MAX, TLS_HANDSHAKE_BYTES_MAX};

/// Certificates that a client may show at once: its own, and those that lead to an authority.
pub const CLIENT_CHAIN_MAX: usize = 8;
/// Bytes in all of them.
pub const CLIENT_CHAIN_BYTES_MAX: usize = 16 << 10;
/// Authorities of clients, by the names that the operator gave them.
pub const CLIENT_AUTHORITIES_MAX: usize = 64;
/// Bytes in a subject, as text.
pub const CLIENT_SUBJECT_BYTES_MAX: usize = 1024;
/// Bytes in a file of an authority's certificates.
pub const CLIENT_AUTHORITY_BYTES_MAX: u64 = TLS_FILE_BYTES_MAX;
/// Bytes in a file of what authorities have revoked: large ones have a hundred thousand entries of 40 bytes.
pub const CLIENT_REVOKED_BYTES_MAX: u64 = 16 << 20;
/// Bytes in the names of authorities that a handshake tells clients; where there are more, none is told.
pub const CLIENT_HINTS_BYTES_MAX: usize = 16 << 10;
/// Certificates that are let in at once: beyond that the first of them is looked at anew.
pub const CERTIFICATES_LET_IN_MAX: usize = 4096;

const _: () = assert!(CLIENT_CHAIN_BYTES_MAX < TLS_HANDSHAKE_BYTES_MAX);
