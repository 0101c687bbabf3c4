//! The store against its contract, against crashes, and against everything that can go wrong.

mod backup;
mod check;
mod contract;
mod crash;
mod faults;
mod node;
mod scrub;
mod upkeep;
