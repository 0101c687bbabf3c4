//! What a managed volume promises, over the embedded engine on a simulated disk.

mod crash;
mod disk_store;
mod mending;
mod site;
mod suite;
mod workload;
