//! The machine: ports, limits, what a mount needs.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use weft_core::limits;
use weft_sys::process;

use super::Trouble;
use crate::config::Config;

pub fn check(dir: &Path, config: Option<&Config>, runs: bool) -> Vec<Trouble> {
    let mut found = Vec::new();
    if let Some(config) = config.filter(|_| !runs) {
        found.extend(ports(config));
    }
    found.extend(descriptors(process::descriptors_allowed()));
    found.extend(fuse());
    if let Err(error) = weft_sys::net::check_local_path(&dir.join("node.sock")) {
        let mend = "choose a directory with a shorter path";
        found.push(Trouble::wrong(error.to_string(), "commands and mounts reach the node by it", mend));
    }
    found
}

/// Addresses that cannot be listened on: taken, not this machine's, or not this user's.
fn ports(config: &Config) -> Vec<Trouble> {
    let settings = config.settings();
    let https = settings.https.map(|https| ("https.listen", https.address));
    let monitor = settings.monitor.map(|address| ("monitor.listen", address));
    let all = [Some(("http.listen", settings.http)), https, monitor];
    all.into_iter().flatten().filter_map(|(name, address)| port(name, address)).collect()
}

fn port(name: &str, address: SocketAddr) -> Option<Trouble> {
    const WHY: &str = "a node that cannot listen where it should does not start";
    // Given back at once.
    let error = TcpListener::bind(address).err()?;
    Some(match error.kind() {
        ErrorKind::AddrInUse => {
            let mend =
                format!("ss -ltnp 'sport = :{}' says who has it; else set {name} to another", address.port());
            Trouble::wrong(format!("{address} ({name}) is taken"), WHY, mend)
        }
        ErrorKind::AddrNotAvailable => {
            let mend = format!("ip address lists this machine's; set {name} to one of them");
            Trouble::wrong(format!("{address} ({name}) is no address of this machine"), WHY, mend)
        }
        ErrorKind::PermissionDenied => {
            let unit = ["AmbientCapabilities", "CapabilityBoundingSet"]
                .map(|setting| format!("{setting}=CAP_NET_BIND_SERVICE"));
            let mend = format!("set {name} to a port from 1024 on; or, in the unit, {}", unit.join(" and "));
            Trouble::wrong(format!("{address} ({name}) is a port for root"), WHY, mend)
        }
        _ => Trouble::wrong(
            format!("{address} ({name}) cannot be listened on: {error}"),
            WHY,
            format!("set {name} to another"),
        ),
    })
}

fn descriptors(allowed: u64) -> Option<Trouble> {
    // A connection each, and files beside them.
    let wanted = (limits::CONNECTIONS_MAX + limits::STORE_FILES_OPEN_MAX) as u64;
    (allowed < wanted).then(|| {
        let what = format!("a process may have {allowed} files and sockets open here");
        let mend = "LimitNOFILE=65536 in the unit; ulimit -Hn 65536; `nofile` in /etc/security/limits.conf";
        Trouble::doubtful(what, "connections beyond that are not let in, and files cannot be opened", mend)
    })
}

fn fuse() -> Vec<Trouble> {
    const WHY: &str = "`weft mount` does not work on this machine; all else does";
    let mut found = Vec::new();
    if !Path::new("/dev/fuse").exists() {
        let mend = "modprobe fuse; in a container: --device /dev/fuse --cap-add SYS_ADMIN";
        found.push(Trouble::doubtful("there is no /dev/fuse", WHY, mend));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|dir| dir.join("fusermount3").exists()) {
        found.push(Trouble::doubtful("there is no fusermount3", WHY, "apt install fuse3"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_descriptors_are_found_and_enough_are_not() {
        assert_eq!(descriptors(65_536), None);
        assert!(descriptors(1024).is_some_and(|found| found.what.contains("1024")));
    }

    #[test]
    fn a_port_that_is_taken_or_not_ours_is_found_and_a_free_one_is_not() {
        let taken = TcpListener::bind("127.0.0.1:0").expect("one is free");
        let address = taken.local_addr().expect("it has one");
        assert!(port("http.listen", address).is_some_and(|found| found.what.contains("is taken")));
        drop(taken);
        assert_eq!(port("http.listen", address), None);
        let foreign = "192.0.2.1:9".parse().expect("an address");
        assert!(port("http.listen", foreign).is_some_and(|found| found.what.contains("no address")));
    }
}
