//! Auth from outside: over the embedded engine, on a simulated disk and clock.

mod accounts;
mod audit;
mod audit_follower;
mod certificates;
mod check;
mod fuzz;
mod issuer;
mod issuers;
mod keys;
mod links;
mod login;
mod mending;
mod named_tokens;
mod restored;
mod scale;
mod scene;
mod sessions;
mod tokens;
mod twins;
