//! The engine against its contract, a plain model, crashes, faults and a real disk.

mod contract;
mod crash;
mod disk;
mod faults;
mod model;
