//! MinIO, which keeps objects in a directory of one disk: what s3fs shows.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Server;
use crate::Result;
use crate::machine;

/// The bucket that it has.
pub const BUCKET: &str = "bench";
/// Who it lets in.
pub const USER: &str = "bench-user";
/// By which word.
pub const PASSWORD: &str = "bench-password";

/// Returns whether this machine has it. No distribution does, and to build it takes a network, Go and minutes.
pub fn is_here() -> bool {
    binary().is_ok()
}

fn binary() -> Result<PathBuf> {
    machine::program_by("minio", "go install github.com/minio/minio@latest, and put its directory into PATH")
}

/// Starts it over `root`.
pub fn start(root: &Path) -> Result<Server> {
    let binary = binary()?;
    // A directory is a bucket to it.
    std::fs::create_dir_all(root.join(BUCKET))?;
    let port = machine::free_port()?;
    let mut command = Command::new(binary);
    command.args(["server", "--quiet", "--address", &format!("127.0.0.1:{port}")]).arg(root);
    command.args(["--console-address", "127.0.0.1:0"]);
    command.envs([("MINIO_ROOT_USER", USER), ("MINIO_ROOT_PASSWORD", PASSWORD), ("MINIO_UPDATE", "off")]);
    Server::start(command.stderr(Stdio::null()), port)
}
