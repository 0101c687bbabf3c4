//! The pure rules, attacked from outside: what decides, and what proves.

mod acl;
mod proof;
mod text;
