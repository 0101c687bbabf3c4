//! What a managed volume promises, over the embedded engine on a simulated disk.

#![allow(clippy::disallowed_methods, reason = "laws are tried on a real runtime too")]

mod crash;
mod disk_store;
mod in_place;
mod laws;
mod mending;
mod site;
mod slow;
mod suite;
mod together;
mod unsteady_store;
mod workload;
