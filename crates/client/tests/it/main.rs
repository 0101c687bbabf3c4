//! The client against a node in this process, which goes away and comes back as told.

mod kept;
mod node;
mod restarts;
