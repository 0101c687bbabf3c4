//! What a managed volume promises, over the embedded engine on a simulated disk.

#![allow(clippy::disallowed_methods, reason = "laws are tried on a real runtime too")]

mod audited;
mod both_sides;
mod crash;
mod disk_store;
mod drop_boxes;
mod export;
mod full;
mod in_place;
mod laws;
mod leases;
mod mending;
mod of_owner;
mod opened;
mod shares_checked;
mod site;
mod slow;
mod space;
mod splits;
mod suite;
mod together;
mod tree;
mod unsteady_engine;
mod unsteady_store;
mod upkeep;
mod watching;
