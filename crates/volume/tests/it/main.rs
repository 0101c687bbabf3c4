//! What a managed volume promises, over the embedded engine on a simulated disk.

mod site;
mod suite;
