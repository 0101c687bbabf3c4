//! What makes load: as little of it as possible, so that the servers are measured.

pub mod http;
pub mod tls;
pub mod wrk;
