//! The store against its contract, against crashes, and against everything that can go wrong.

mod contract;
mod crash;
mod node;
