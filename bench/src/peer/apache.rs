//! Apache with its module for WebDAV: the server that most people who speak it have.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::Server;
use crate::Result;
use crate::machine;

/// Where Debian and Ubuntu keep its modules.
const MODULES: &str = "/usr/lib/apache2/modules";

/// Starts Apache over `root`, which everybody may change by WebDAV.
pub fn start(place: &Path, root: &Path) -> Result<Server> {
    let binary = machine::program("apache2", "apache2-bin")?;
    let port = machine::free_port()?;
    let own = place.join(format!("apache-{port}"));
    let locks = own.join("locks");
    std::fs::create_dir_all(&locks)?;
    // Its own user's: without it nothing is written.
    std::fs::set_permissions(&locks, Permissions::from_mode(0o777))?;
    let file = own.join("conf");
    let (kept, root) = (own.display(), root.display());
    let mut text = String::new();
    for module in ["mpm_event", "authz_core", "dav", "dav_fs"] {
        text += &format!("LoadModule {module}_module {MODULES}/mod_{module}.so\n");
    }
    text += &format!(
        "ServerName localhost\nListen 127.0.0.1:{port}\nPidFile {kept}/pid\nErrorLog {kept}/log\nDefaultRuntimeDir {kept}\n\
         DocumentRoot {root}\nDavLockDB {kept}/locks/db\n<Directory {root}>\nDav On\nRequire all granted\n</Directory>\n"
    );
    if machine::is_root() {
        // It refuses to be root.
        text += "User nobody\nGroup nogroup\n";
    }
    std::fs::write(&file, text)?;
    let mut command = Command::new(binary);
    command.arg("-DFOREGROUND").arg("-f").arg(&file).stderr(Stdio::null());
    Server::start(&mut command, port)
}
