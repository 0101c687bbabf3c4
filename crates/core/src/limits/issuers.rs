//! Bounds of tokens that other people's issuers signed, and of what is asked of those.

use std::time::Duration;

use super::CALL_DEADLINE;

/// Bytes in a token of an issuer.
pub const ISSUED_BYTES_MAX: usize = 16 << 10;
/// Paths that such a token may speak of.
pub const SCOPES_MAX: usize = 64;
/// Groups that it may say.
pub const ISSUED_GROUPS_MAX: usize = 256;
/// Bytes in the name of such a group.
pub const ISSUED_GROUP_BYTES_MAX: usize = 255;
/// Letters of what it says itself that are told in logs.
pub const ISSUED_TEXT_SHOWN: usize = 128;
/// How long a token of an issuer is not verified again: a key that the issuer no longer shows lets in for so much longer.
pub const ISSUED_REMEMBERED: Duration = Duration::from_secs(3600);
/// How long a token of an issuer may still last when it is shown: what is withdrawn of it is kept for so long.
pub const ISSUED_LIFE_MAX: Duration = super::REVOCATION_KEPT;
/// Issuers whose tokens a node takes.
pub const ISSUERS_MAX: usize = 64;
/// Subjects, or groups, that one issuer, or one authority of clients, may be given users for.
pub const ISSUER_SUBJECTS_MAX: usize = 10_000;
/// Bytes in what an issuer says of itself, and in its keys.
pub const ISSUER_DOCUMENT_BYTES_MAX: usize = 256 << 10;
/// Keys that one issuer may have.
pub const ISSUER_KEYS_MAX: usize = 64;
/// Age from which an issuer's keys are fetched again beside.
pub const ISSUER_KEYS_RENEW: Duration = Duration::from_secs(3600);
/// Age from which they are fetched before they are used.
pub const ISSUER_KEYS_KEPT: Duration = Duration::from_secs(6 * 3600);
/// Age from which they are not used at all, though no others can be had.
pub const ISSUER_KEYS_STALE: Duration = Duration::from_secs(24 * 3600);
/// How long an issuer is left alone after it was asked for its keys.
pub const ISSUER_FETCH_REST: Duration = Duration::from_secs(60);
/// How long fetching them may take.
pub const ISSUER_FETCH_WITHIN: Duration = Duration::from_secs(15);
/// How long a token waits for the keys of its issuer.
pub const ISSUER_WAIT: Duration = Duration::from_secs(20);
/// Tokens that wait for the keys of one issuer.
pub const ISSUER_WAITERS_MAX: usize = 256;

const _: () = assert!(ISSUER_FETCH_WITHIN.as_secs() < ISSUER_WAIT.as_secs());
const _: () = assert!(ISSUER_WAIT.as_secs() < CALL_DEADLINE.as_secs());
const _: () = assert!(ISSUER_KEYS_RENEW.as_secs() < ISSUER_KEYS_KEPT.as_secs());
const _: () = assert!(ISSUER_KEYS_KEPT.as_secs() < ISSUER_KEYS_STALE.as_secs());
