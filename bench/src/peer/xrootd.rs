//! XRootD's HTTP, read only: on one connection the fastest server here.

use std::path::Path;
use std::process::{Command, Stdio};

use super::Server;
use crate::Result;
use crate::machine;

/// Starts XRootD over `root`. A file's path in the URL is its real path.
pub fn start(place: &Path, root: &Path) -> Result<Server> {
    let binary = machine::program("xrootd", "xrootd-server xrootd-plugins")?;
    let (port, http) = (machine::free_port()?, machine::free_port()?);
    let admin = place.join("xrootd");
    std::fs::create_dir_all(&admin)?;
    let file = place.join("xrootd.cfg");
    let (root, shown) = (root.display(), admin.display());
    let text = format!(
        "all.export {root}\nall.adminpath {shown}\nall.pidpath {shown}\nxrd.port {port}\nxrd.network nodnr\n\
         xrd.protocol http:{http} libXrdHttp.so\n"
    );
    std::fs::write(&file, text)?;
    let mut command = Command::new(binary);
    command.arg("-c").arg(&file).arg("-l").arg(admin.join("log")).stderr(Stdio::null());
    if machine::is_root() {
        // It refuses to be root.
        own(&admin)?;
        command.args(["-R", "nobody"]);
    }
    Server::start(&mut command, http)
}

fn own(folder: &Path) -> Result<()> {
    let status = Command::new("chown").arg("nobody").arg(folder).status()?;
    if status.success() { Ok(()) } else { Err("cannot give xrootd's folder to nobody".into()) }
}
