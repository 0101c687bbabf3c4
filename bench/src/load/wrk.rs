//! wrk: requests per second for small files over kept connections.

use std::process::Command;

use crate::Result;
use crate::machine;

/// Runs wrk for `seconds` over 16 connections; returns requests per second. An answer
/// that is no success is an error, not a fast request.
pub fn rate(port: u16, path: &str, header: Option<&str>, seconds: u64) -> Result<f64> {
    let mut command = Command::new(machine::program("wrk", "wrk")?);
    command.args(["-c16", "-t2", &format!("-d{seconds}s")]);
    if let Some(header) = header {
        command.args(["-H", header]);
    }
    let done = command.arg(format!("http://127.0.0.1:{port}{path}")).output()?;
    let text = String::from_utf8_lossy(&done.stdout);
    read(&text)
        .ok_or_else(|| format!("wrk on {path}: {text}{}", String::from_utf8_lossy(&done.stderr)).into())
}

fn read(text: &str) -> Option<f64> {
    if text.contains("Non-2xx") || text.contains("Socket errors") {
        return None;
    }
    let line = text.lines().find_map(|line| line.trim().strip_prefix("Requests/sec:"))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_requests_are_no_rate() {
        assert_eq!(read("  Requests/sec:   1234.50\n"), Some(1234.5));
        assert_eq!(read("  Non-2xx or 3xx responses: 5\nRequests/sec: 99\n"), None);
    }
}
