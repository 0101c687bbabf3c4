//! What is asked of other servers, against ones that say what a test makes them say.

mod downloads;
mod reaching;
mod removals;
mod uploads;

use weft_core::{ErrorKind, Result};
use weft_remote::{Fields, Network, Reach, Remote, Roots};
use weft_sys::Sys;

/// What speaks to servers on this machine.
fn remote() -> Remote {
    let loopback: Network = "127.0.0.0/8".parse().expect("a network");
    reaching(Reach::public(vec![loopback]))
}

fn reaching(reach: Reach) -> Remote {
    Remote::new(Sys::real(), reach, &Roots::default()).expect("TLS can be set up")
}

fn kind<T>(done: Result<T>) -> ErrorKind {
    done.err().expect("it fails").kind()
}

/// What proves who asks.
fn secret() -> Fields {
    let mut fields = Fields::new();
    fields.insert("authorization", "Bearer secret".parse().expect("a value"));
    fields
}

/// Lets a minute of waiting pass at once, where nothing else goes on.
fn waits_pass() {
    tokio::time::pause();
}
