//! The other side: programs started for a comparison and ended with it.

pub mod apache;
pub mod iperf;
pub mod minio;
pub mod mounts;
pub mod nginx;
pub mod postgres;
pub mod program;
pub mod xrootd;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::Result;

/// How long a server may take to end when it is asked to.
const STOP_MAX: Duration = Duration::from_secs(5);

/// A running server. Dropping it ends it.
pub struct Server {
    process: Child,
    /// The loopback port it listens on.
    pub port: u16,
}

impl Server {
    /// Starts `command`, which will listen on `port`, in the foreground.
    pub fn start(command: &mut Command, port: u16) -> Result<Self> {
        let mut server = Self::spawn(command)?;
        server.port = port;
        crate::machine::await_port(port).map_err(|why| match server.ended() {
            true => format!("{command:?} ended: {why}").into(),
            false => why,
        })?;
        Ok(server)
    }

    /// Starts `command`, whose port will be known later.
    pub fn spawn(command: &mut Command) -> Result<Self> {
        Ok(Self { process: command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?, port: 0 })
    }

    /// Whether the process is gone.
    pub fn ended(&mut self) -> bool {
        !matches!(self.process.try_wait(), Ok(None))
    }

    /// Ends it as a power cut would: no chance to tidy up.
    pub fn kill(&mut self) -> Result<()> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }

    /// Returns the process's id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let asked = kill_process(Pid::from_child(&self.process), Signal::TERM);
        let until = Instant::now() + STOP_MAX;
        while asked.is_ok() && Instant::now() < until && matches!(self.process.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        // Both fail only if it is gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
