//! Whether a node is well: `weft status` of one that runs, `weft doctor` of one that may not, and what a
//! service manager is told.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use serde_json::Value;

use crate::node::{Node, Said};

/// The one document that a command printed, whether or not it found anything wrong.
#[track_caller]
fn document(said: &Said) -> Value {
    serde_json::from_str(said.out.trim()).unwrap_or_else(|e| panic!("{e}: {}{}", said.out, said.err))
}

#[test]
fn status_tells_shares_upkeep_and_exits_by_whether_the_node_is_well() {
    let mut node = Node::start();
    node.allow("share");
    let dir = node.make_dir("shared");
    let status = document(&node.run(&["status", "--json"]));
    assert_eq!((&status["ready"], &status["degraded"]), (&Value::Bool(true), &serde_json::json!([])));
    assert_eq!(status["backup"], Value::Null);
    assert!(status["doors"]["monitor"].as_str().is_some_and(|url| url.starts_with("http://127.0.0.1:")));
    node.run(&["backup", node.path("copy").to_str().expect("plain")]).ok();
    node.run(&["fsck", "--online"]).ok();
    node.run(&["share", dir.to_str().expect("plain"), "/s"]).ok();
    let status = document(&node.run(&["status", "--json"]));
    for chore in ["backup", "check"] {
        assert!(status[chore].as_i64().is_some_and(|at| at > 1_700_000_000), "{chore}: {status}");
    }
    assert!(status["shares"][0]["bytes_total"].as_u64().is_some_and(|bytes| bytes > 0), "{status}");
    let said = node.run(&["status"]).ok();
    for word in ["share    /s: ", "backup   2", "ready    yes", "open files"] {
        assert!(said.contains(word), "`{word}` is not in: {said}");
    }
    // It is remembered over a restart; and a share whose directory has gone is told of.
    node.stop();
    fs::rename(&dir, node.path("elsewhere")).expect("renamed");
    node.up();
    let said = node.run(&["status"]);
    assert_eq!(said.code, 1, "{}", said.out);
    assert!(said.out.contains("degraded the share at /s is away"), "{}", said.out);
    let status = document(&node.run(&["status", "--json"]));
    assert!(
        status["backup"].is_i64() && status["degraded"].as_array().is_some_and(|all| all.len() == 1),
        "{status}"
    );
    // Whoever is no administrator learns less.
    let token = node.add_user("alice", "wonder");
    let told = document(&node.run_with(&token, &["status", "--json"]));
    assert_eq!(
        (&told["degraded"], &told["backup"], &told["data"]),
        (&serde_json::json!([]), &Value::Null, &"".into())
    );
    node.run(&["unshare", "/s"]).ok();
    assert_eq!(node.run(&["status"]).code, 0);
}

/// What of the troubles that the doctor found in a node has this text; fails unless one has.
#[track_caller]
fn found(node: &Node, args: &[&str], text: &str) -> Value {
    let said = node.run(&[&["doctor", "--json"], args].concat());
    let told = document(&said);
    let all = told["troubles"].as_array().expect("a list").clone();
    let one = all.iter().find(|trouble| trouble["what"].as_str().is_some_and(|what| what.contains(text)));
    let one = one.unwrap_or_else(|| panic!("`{text}` is not in: {told:#}")).clone();
    for field in ["why", "mend"] {
        assert!(one[field].as_str().is_some_and(|text| !text.is_empty()), "{one}");
    }
    let wrong = all.iter().any(|trouble| trouble["weight"] == "wrong");
    assert_eq!(said.code, i32::from(wrong), "{told:#}");
    one
}

/// What the machine that the tests run on lacks is not what is tested here.
fn troubles(node: &Node) -> Vec<Value> {
    let told = document(&node.run(&["doctor", "--json"]));
    let of_machine = |what: &str| {
        ["fusermount3", "/dev/fuse", "nearly full", "files and sockets"]
            .iter()
            .any(|word| what.contains(word))
    };
    let all = told["troubles"].as_array().expect("a list").iter();
    all.filter(|trouble| !of_machine(trouble["what"].as_str().expect("text"))).cloned().collect()
}

#[test]
fn the_doctor_finds_nothing_in_a_node_that_is_well_and_what_was_broken_in_one_that_is_not() {
    let mut node = Node::start();
    assert_eq!(troubles(&node), Vec::<Value>::new(), "it runs");
    // Whatever else it has to say: here, that nothing can be mounted.
    let said = node.command().env("PATH", "/none").arg("doctor").output().expect("it runs");
    let said = String::from_utf8(said.stdout).expect("text");
    assert!(said.contains("there is no fusermount3") && said.ends_with("found; the node runs\n"), "{said}");
    node.stop();
    node.write(
        "data/weft.toml",
        "http.listen = \"127.0.0.1:0\"\nhttps.listen = \"off\"\nmonitor.listen = \"off\"\n",
    );
    assert_eq!(troubles(&node), Vec::<Value>::new(), "it does not run");
    // Others can read its keys.
    let keys = node.data().join("auth/keys");
    let open = |mode| fs::set_permissions(&keys, fs::Permissions::from_mode(mode)).expect("changed");
    open(0o755);
    let trouble = found(&node, &[], "is open to others");
    assert!(trouble["mend"].as_str().is_some_and(|mend| mend.starts_with("chmod go= ")), "{trouble}");
    open(0o700);
    // A port that somebody has.
    let taken = TcpListener::bind("127.0.0.1:0").expect("one is free");
    let address = taken.local_addr().expect("it has one");
    node.write("data/weft.toml", format!("http.listen = \"{address}\"\nhttps.listen = \"off\"\n"));
    let trouble = found(&node, &[], "is taken");
    assert!(
        trouble["mend"].as_str().is_some_and(|mend| mend.contains(&address.port().to_string())),
        "{trouble}"
    );
    // A slip of the pen, with its line.
    node.write("data/weft.toml", "\nhttp.listne = \"127.0.0.1:1\"\n");
    let trouble = found(&node, &[], "weft.toml:2");
    assert_eq!(trouble["weight"], "wrong");
    // A certificate that is not there.
    let text = "https.certificate = \"/none/cert.pem\"\nhttps.key = \"/none/key.pem\"\n";
    node.write("data/weft.toml", text);
    found(&node, &[], "/none/cert.pem cannot be used");
    // Written by a clock that was ahead.
    fs::remove_file(node.data().join("weft.toml")).expect("ours");
    node.sh("touch -d '+2 hours' data/meta");
    found(&node, &[], "the clock was set back");
    node.sh("touch data/meta");
    // Killed, and so a socket is left.
    node.up();
    node.kill();
    let trouble = found(&node, &[], "left its socket");
    assert_eq!(trouble["weight"], "doubtful");
    // Somewhere else.
    let other = node.path("nothing-here");
    found(&node, &[other.to_str().expect("plain")], "is not there");
    assert!(!other.exists(), "it makes nothing");
}

#[test]
fn a_service_manager_hears_that_the_node_is_ready_lives_and_stops() {
    let node = Node::unstarted();
    let socket = node.path("manager");
    let manager = UnixDatagram::bind(&socket).expect("a socket");
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).expect("ours");
    manager.set_read_timeout(Some(Duration::from_secs(60))).expect("a time");
    let mut command = node.command();
    command
        .args(["up", "--http", "127.0.0.1:0"])
        .env("NOTIFY_SOCKET", &socket)
        .env("WATCHDOG_USEC", "200000");
    let mut child = command
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("it starts");
    let mut heard = Vec::new();
    let mut hear_until = |word: &str| {
        while !heard.iter().any(|said: &String| said.contains(word)) {
            let mut said = [0; 4096];
            let length = manager.recv(&mut said).unwrap_or_else(|e| panic!("no {word}: {e}"));
            heard.push(String::from_utf8_lossy(&said[..length]).into_owned());
        }
    };
    hear_until("READY=1");
    node.run(&["status"]).ok();
    hear_until("WATCHDOG=1");
    crate::node::signal(&child, rustix::process::Signal::TERM);
    hear_until("STOPPING=1");
    assert!(crate::node::wait(&mut child).success());
}

#[test]
fn man_pages_and_completions_are_written_for_every_command() {
    let node = Node::unstarted();
    let dir = node.make_dir("manual");
    node.run(&["manual", dir.to_str().expect("plain")]).ok();
    let help = node.run(&["--help"]).ok();
    let commands =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names: Vec<&str> = commands
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(names.len() > 30 && names.contains(&"doctor") && !names.contains(&"manual"), "{names:?}");
    for name in names.into_iter().filter(|name| *name != "help") {
        let page = dir.join(format!("man/weft-{name}.1"));
        let text = fs::read_to_string(&page).unwrap_or_else(|e| panic!("{}: {e}", page.display()));
        assert!(text.contains(".SH NAME") && text.contains(".SH SYNOPSIS"), "{name}");
    }
    assert!(dir.join("man/weft.1").exists() && !dir.join("man/weft-manual.1").exists());
    for name in ["weft.bash", "_weft", "weft.fish"] {
        assert!(
            fs::metadata(dir.join("completions").join(name)).is_ok_and(|file| file.len() > 1000),
            "{name}"
        );
    }
}
