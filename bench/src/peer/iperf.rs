//! iperf3: what one stream over loopback can carry when nobody asks what the bytes are.

use std::process::Command;
use std::time::Duration;

use super::Server;
use crate::Result;
use crate::machine;

/// Starts its server, and does not look whether it listens: it has room for one client, and whoever looks is one.
pub fn start() -> Result<Server> {
    let port = machine::free_port()?;
    let mut command = Command::new(machine::program("iperf3", "iperf3")?);
    let mut server =
        Server::spawn(command.args(["--server", "--bind", "127.0.0.1", "--port", &port.to_string()]))?;
    server.port = port;
    Ok(server)
}

/// How often it is asked that does not listen yet, or is still busy with the client before.
const TRIES: u32 = 10;
const BETWEEN_TRIES: Duration = Duration::from_millis(200);
const NOT_YET: [&str; 2] = ["unable to connect", "the server is busy"];

/// Returns the megabytes (10⁶) per second that `bytes` took over one stream to the client.
pub fn rate(server: &Server, bytes: u64) -> Result<f64> {
    for _ in 1..TRIES {
        match attempt(server, bytes) {
            Err(why) if NOT_YET.iter().any(|words| why.to_string().contains(words)) => {
                std::thread::sleep(BETWEEN_TRIES);
            }
            done => return done,
        }
    }
    attempt(server, bytes)
}

fn attempt(server: &Server, bytes: u64) -> Result<f64> {
    let (port, bytes) = (server.port.to_string(), bytes.to_string());
    let words = ["--client", "127.0.0.1", "--reverse", "--json", "--port", &port, "--bytes", &bytes];
    let done = Command::new(machine::program("iperf3", "iperf3")?).args(words).output()?;
    let said: serde_json::Value = serde_json::from_slice(&done.stdout)?;
    match said["end"]["sum_received"]["bits_per_second"].as_f64() {
        Some(bits) => Ok(bits / 8e6),
        None => Err(format!("iperf3: {}", said["error"].as_str().unwrap_or("no figure")).into()),
    }
}
