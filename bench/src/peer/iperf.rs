//! iperf3: what one stream over loopback can carry when nobody asks what the bytes are.

use std::process::Command;
use std::time::Duration;

use super::Server;
use crate::Result;
use crate::machine;

/// Starts its server.
pub fn start() -> Result<Server> {
    let port = machine::free_port()?;
    let mut command = Command::new(machine::program("iperf3", "iperf3")?);
    Server::start(command.args(["--server", "--bind", "127.0.0.1", "--port", &port.to_string()]), port)
}

/// How often it is asked: it has room for one client, and may still be busy with the one before, such as whoever
/// looked whether it listens.
const TRIES: u32 = 10;
const BETWEEN_TRIES: Duration = Duration::from_millis(200);

/// Returns the megabytes (10⁶) per second that `bytes` took over one stream to the client.
pub fn rate(server: &Server, bytes: u64) -> Result<f64> {
    let mut tried = 1;
    loop {
        match attempt(server, bytes) {
            Err(_) if tried < TRIES => std::thread::sleep(BETWEEN_TRIES),
            done => return done,
        }
        tried += 1;
    }
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
