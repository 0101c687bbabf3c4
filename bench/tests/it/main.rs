//! Every bench runs in its small size, so that none rots; none is judged by a time.

use std::process::{Command, Output};

fn small(name: &str) -> Output {
    let mut bench = Command::new(env!("CARGO_BIN_EXE_weft-bench"));
    bench.args([name, "--small"]).output().expect("the bench was built with its test")
}

/// Returns what the bench said; fails unless it measured all of `figures` and counted
/// what it set out to count. A figure of which it reported what the machine lacks is not asked for.
fn measured(name: &str, figures: &[&str]) -> String {
    let done = small(name);
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{said}{}", String::from_utf8_lossy(&done.stderr));
    for figure in figures.iter().filter(|figure| !lacking(&said, figure)) {
        assert!(said.contains(&format!("{figure}  ")), "no {figure} in:\n{said}");
    }
    assert!(!said.contains("not counted"), "{said}");
    assert!(said.contains("machine: ") && said.contains("\nlimits: loopback.1 "), "{said}");
    said.into_owned()
}

/// Whether the bench reported that it could not measure a figure here, or the whole bench.
fn lacking(said: &str, figure: &str) -> bool {
    let reported =
        said.lines().filter_map(|line| line.trim().strip_prefix("note: ")?.split_once(" not measured"));
    reported.into_iter().any(|(what, _)| figure.starts_with(what))
}

/// As [`measured`]; each side's system calls, flushes and copies must stand beside the ratio.
fn counted(name: &str, figures: &[&str]) {
    let said = measured(name, figures);
    // PostgreSQL works in processes that each of its connections begins: it is not counted.
    for figure in figures.iter().filter(|figure| !figure.ends_with(".postgres")) {
        for side in
            ["weft", "sqlite"].into_iter().filter(|side| !lacking(&said, &format!("{figure} of {side}")))
        {
            assert!(
                said.contains(&format!(
                    "
  {figure} {side}: "
                )),
                "nothing counted of {side} in:
{said}"
            );
        }
    }
}

#[test]
fn limits_in_small() {
    measured(
        "limits",
        &[
            "limits.loopback.4",
            "limits.memcpy",
            "limits.sendfile",
            "limits.flush.append",
            "limits.flush.new_file",
        ],
    );
}

#[test]
fn an_unknown_name_is_a_usage_error() {
    let done = small("no-such-bench");
    assert_eq!(done.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&done.stderr).contains("limits"));
}

#[test]
fn the_metadata_engine_beside_sqlite_in_small() {
    counted("kv.create", &["kv.create.one.1", "kv.create.many.64.grouped"]);
    counted("kv.lookup", &["kv.lookup.one.2", "kv.lookup.one.1280.1"]);
    counted("kv.list", &["kv.list.many", "kv.list.one.1280"]);
    counted("kv.rename", &["kv.rename.16", "kv.rename.16.postgres"]);
}

#[test]
fn the_request_form_beside_sqlite_in_small() {
    counted("meta.create", &["meta.create.one.1", "meta.create.many.64.grouped"]);
    counted("meta.lookup", &["meta.lookup.one.2", "meta.lookup.one.1280.1"]);
    counted("meta.list", &["meta.list.many", "meta.list.one.1280"]);
    counted("meta.rename", &["meta.rename.16", "meta.rename.16.postgres"]);
}

#[test]
fn the_http_peers_in_small() {
    measured("http.peers", &["http.peers.get.1g.4.nginx", "http.peers.put.small.put.c"]);
}

#[test]
fn the_http_door_beside_its_peers_in_small() {
    measured(
        "http.get.1g",
        &["http.get.1g.first_touch", "http.get.1g.4.nginx", "http.get.1g.4.xrootd", "http.get.1g.1.iperf3"],
    );
    measured("http.get.1g.tls", &["http.get.1g.tls.1", "http.get.1g.tls.4", "http.get.1g.tls.h2.4"]);
    measured("http.get.170k", &["http.get.170k"]);
    measured("http.get.1k", &["http.get.1k"]);
    measured("http.put.1g", &["http.put.1g.put.c", "http.put.1g.nginx-synced"]);
    measured("http.put.small", &["http.put.small.put.c"]);
}

#[test]
fn a_directory_served_in_place_beside_its_peers_in_small() {
    measured("http.export.get.1g", &["http.export.get.1g.first_touch", "http.export.get.1g.4.nginx"]);
    measured("http.export.get.170k", &["http.export.get.170k"]);
    measured("http.export.get.1k", &["http.export.get.1k"]);
    measured("http.export.put.1g", &["http.export.put.1g.put.c", "http.export.put.1g.nginx-synced"]);
    measured("http.export.put.small", &["http.export.put.small.put.c"]);
    measured("share.list", &["share.list.500", "share.list.first", "share.list.memory"]);
}

#[test]
fn whole_trees_and_listings_beside_what_people_use_in_small() {
    measured("dav.propfind", &["dav.propfind.all.managed", "dav.propfind.named.shared"]);
    measured("import.src", &["import.src", "import.src.unflushed"]);
    measured("import.pdb", &["import.pdb"]);
}

#[test]
fn a_node_at_rest_and_after_a_kill_in_small() {
    let said = measured("idle", &["idle.memory.weft", "idle.connection.50", "idle.connection.tls.50"]);
    for side in
        ["weft", "nginx"].into_iter().filter(|side| !lacking(&said, &format!("idle.second of {side}")))
    {
        assert!(said.contains(&format!("\n  idle.second {side}: ")), "{said}");
    }
    measured("start", &["start.small.0_files", "start.filled.640_files"]);
}

#[test]
fn a_mount_beside_its_peers_in_small() {
    measured("mount.read", &["mount.read.bindfs", "mount.read.rclone", "mount.random.bare"]);
    measured("mount.write", &["mount.write.bindfs", "mount.write.bare"]);
    measured("mount.names", &["mount.create.bindfs", "mount.create.bare", "mount.stat.bare"]);
    measured("mount.tree", &["mount.untar.bindfs", "mount.untar.bare"]);
    measured("mount.walk", &["mount.find.bindfs", "mount.du.bare", "mount.du.warm.bare"]);
    measured("mount.clone", &["mount.clone.bare"]);
    measured("mount.memory", &["mount.sparse", "mount.memory", "mount.memory.keeper", "mount.memory.node"]);
}

#[test]
fn metadata_beside_readers_that_have_stopped_in_small() {
    measured("meta.stalled", &["meta.stalled.stat", "meta.stalled.list", "meta.stalled.create"]);
}

#[test]
fn the_acl_of_a_large_container_in_small() {
    measured("acl", &["acl.640_objects"]);
}
