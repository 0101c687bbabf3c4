//! What a browser may do on a page.

use std::sync::LazyLock;

use data_encoding::BASE64;
use sha2::{Digest, Sha256};

/// How the page looks.
pub const STYLE: &str = include_str!("page.css");
/// What it does.
pub const SCRIPT: &str = include_str!("page.js");

/// The fields that every page carries. It runs one script and has one style, each named by its hash: nothing that a
/// name, a file or a message brings along runs or loads anything.
pub static RULES: LazyLock<String> = LazyLock::new(|| {
    let (script, style) = (hash(SCRIPT), hash(STYLE));
    format!(
        "Vary: Accept, Authorization, Cookie\r\nX-Content-Type-Options: nosniff\r\n\
         Content-Security-Policy: default-src 'none'; script-src '{script}'; style-src '{style}'; img-src 'self'; \
         connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'\r\n"
    )
});

fn hash(text: &str) -> String {
    format!("sha256-{}", BASE64.encode(&Sha256::digest(text)))
}
