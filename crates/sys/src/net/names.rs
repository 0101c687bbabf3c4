//! What the addresses of a host are.

use std::io;
use std::net::SocketAddr;

/// Returns the addresses of a host, by its name or as it writes them, `max` at most. The caller sets the deadline; the machine
/// may go on looking for a while after that.
pub async fn resolve(host: &str, port: u16, max: usize) -> io::Result<Vec<SocketAddr>> {
    Ok(tokio::net::lookup_host((host, port)).await?.take(max).collect())
}
