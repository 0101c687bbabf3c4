//! File systems over things: names in a metadata engine and bytes in a store.
//!
//! A volume is a [`FileSystem`](weft_core::form::FileSystem): [`managed::Managed`] keeps
//! names, policies, locks and stages in `kv` and larger files' bytes in an
//! [`ObjectStore`](weft_core::service::ObjectStore). [`tree::Tree`] joins
//! others to one of them. What it must never know: protocols, keys, a concrete store or issuer.

pub mod audited;
pub mod export;
mod granted;
mod locks;
pub mod managed;
pub mod name_locks;
pub mod tree;
