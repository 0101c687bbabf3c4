//! The shared model of Weft, and nothing else.

pub mod error;
pub mod limits;
pub mod time;

pub use error::{Error, ErrorKind, ErrorReport, Result};
pub use time::{Clock, Deadline, Tick, Time};
