//! PostgreSQL over a Unix socket: durable as it comes, its cache as large as SQLite's.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::{Server, program};
use crate::Result;
use crate::machine::{self, Missing};

/// Where Debian and Ubuntu keep its versions.
const VERSIONS: &str = "/usr/lib/postgresql";
/// What the program that measures it is compiled with.
const HEADER: &str = "/usr/include/postgresql/libpq-fe.h";
/// How long it may take to answer for the first time.
const READY_MAX: Duration = Duration::from_secs(30);

/// A running server, and the program that measures it.
pub struct Postgres {
    _server: Server,
    program: PathBuf,
    folder: PathBuf,
}

impl Postgres {
    /// Makes a cluster below `place` and starts it.
    pub fn start(place: &Path) -> Result<Self> {
        let programs = programs()?;
        let program = program::program("postgres_meta", &["-lpq", "-I/usr/include/postgresql"])?;
        let folder = place.join("postgres");
        std::fs::create_dir_all(&folder)?;
        let user = user_of_its_own()?;
        if let Some((uid, gid)) = user {
            chown(&folder, Some(uid), Some(gid))?;
        }
        let run = |name: &str| {
            let mut command = Command::new(programs.join(name));
            command.current_dir(&folder).arg("-D").arg(folder.join("data"));
            if let Some((uid, gid)) = user {
                command.uid(uid).gid(gid);
            }
            command
        };
        let made = run("initdb").args(["-U", "weft", "-A", "trust", "--no-sync"]).output()?;
        if !made.status.success() {
            return Err(format!("initdb: {}", String::from_utf8_lossy(&made.stderr)).into());
        }
        let socket = format!("unix_socket_directories={}", folder.display());
        let mut command = run("postgres");
        command.args(["-c", "listen_addresses=", "-c", "shared_buffers=256MB", "-c", &socket]);
        let mut server = Server::spawn(command.stderr(std::fs::File::create(place.join("postgres.log"))?))?;
        let until = Instant::now() + READY_MAX;
        let ready = || Command::new(programs.join("pg_isready")).arg("-q").arg("-h").arg(&folder).status();
        while !ready()?.success() {
            if server.ended() || Instant::now() > until {
                return Err("PostgreSQL did not come up".into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(Self { _server: server, program, folder })
    }

    /// Returns the program that measures it, told where it is.
    pub fn measure(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(&self.folder);
        command
    }
}

/// Returns the folder of the newest version's programs.
fn programs() -> Result<PathBuf> {
    let missing = || Missing("PostgreSQL is not installed: apt-get install postgresql libpq-dev".to_owned());
    if !Path::new(HEADER).is_file() {
        return Err(missing().into());
    }
    let versions = std::fs::read_dir(VERSIONS).map_err(|_| missing())?;
    let folders = versions.filter_map(|version| Some(version.ok()?.path().join("bin")));
    Ok(folders.filter(|folder| folder.join("initdb").is_file()).max().ok_or_else(missing)?)
}

/// Returns whom it is to run as: it refuses to be root's, and its package brings a user.
fn user_of_its_own() -> Result<Option<(u32, u32)>> {
    if !machine::is_root() {
        return Ok(None);
    }
    let users = std::fs::read_to_string("/etc/passwd")?;
    let found = users.lines().find_map(|line| {
        let mut fields = line.strip_prefix("postgres:")?.split(':').skip(1);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    });
    Ok(Some(found.ok_or_else(|| Missing("there is no user postgres".to_owned()))?))
}
