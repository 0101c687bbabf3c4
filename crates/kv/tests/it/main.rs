//! The engine against its contract, a plain model, crashes, faults and a real disk.

// The load comes from outside the simulation: threads of the test and a process that is killed.
#![allow(clippy::disallowed_methods, clippy::print_stdout)]

mod aside;
mod contract;
mod crash;
mod disk;
mod faults;
mod full;
mod model;
