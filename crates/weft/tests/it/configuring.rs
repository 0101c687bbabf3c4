//! A node's configuration: what wins, what is told, what a running node takes up.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

use crate::http::Http;
use crate::node::{Node, soon};

/// Waits until the node's log holds a text that was not in its first `after` bytes.
fn logged(node: &Node, after: usize, text: &str) {
    soon(text, || node.log()[after..].contains(text));
}

fn reload(node: &Node) -> usize {
    let before = node.log().len();
    kill_process(Pid::from_raw(node.pid() as i32).expect("an id"), Signal::HUP).expect("it runs");
    before
}

#[test]
fn a_node_runs_as_its_files_say_and_the_command_line_wins() {
    let mut node = Node::unstarted();
    fs::create_dir_all(node.path("etc/weft.toml.d")).expect("made");
    let file = node.write("etc/weft.toml", "hosts = [\"files.example\"]\n[http]\nlisten = \"127.0.0.1:1\"\n");
    node.write("etc/weft.toml.d/10-tls.toml", "https.listen = \"off\"\n");
    let file = file.to_str().expect("plain").to_owned();
    node.start_with(&["--config", &file]);
    node.up();
    assert!(node.ready()["https"].is_null(), "it is off");
    let asked =
        |host: &str| Http::new(node.address(), None).ask("GET", &format!("http://{host}/"), &[], b"").status;
    assert_eq!((asked("files.example"), asked("other.example")), (401, 421));
    let shown = node.run(&["config", "show", "--effective", "--config", &file]).ok();
    for line in [
        format!("http.listen 127.0.0.1:1 {file}:3"),
        format!("https.listen off {file}.d/10-tls.toml:1"),
        format!("hosts files.example {file}:1"),
        "log info default".to_owned(),
    ] {
        let is_it = |shown: &str| shown.split_whitespace().eq(line.split(' '));
        assert!(shown.lines().any(is_it), "{line}\n{shown}");
    }
    let set = node.run(&["config", "show", "--json", "--config", &file]).json();
    assert_eq!(set.len(), 3, "what nobody set is not shown: {set:?}");
    assert_eq!(node.run(&["config", "check", "--config", &file]).ok(), "no mistakes\n");
}

#[test]
fn the_example_names_everything_and_changes_nothing() {
    let node = Node::unstarted();
    let example = node.run(&["config", "example"]).ok();
    let file = node.write("weft.toml", &example);
    let file = file.to_str().expect("plain");
    assert_eq!(node.run(&["config", "show", "--config", file]).ok(), "");
    let all = node.run(&["config", "show", "--effective", "--json", "--config", file]).json();
    for setting in all {
        let name = setting["key"].as_str().expect("a name");
        let names = |after: &str| example.contains(&format!("\n#{name}{after}"));
        assert!(names(" = ") || names(".NAME.url = "), "{name}");
    }
    // As somebody would begin: with a line that says something.
    let said = example.replace("#log = \"info\"", "log = \"warn\"");
    node.write("weft.toml", said);
    assert!(node.run(&["config", "show", "--config", file]).ok().starts_with("log "));
}

#[test]
fn a_mistake_is_told_with_its_line_before_anything_is_made() {
    let node = Node::unstarted();
    let file = node.write("weft.toml", "[http]\nlisten = \"nowhere\"\nlissten = \"127.0.0.1:1\"\n");
    let file = file.to_str().expect("plain");
    let lines = [format!("{file}:2: `http.listen`"), format!("{file}:3: there is no setting `http.lissten`")];
    let words: Vec<&str> = lines.iter().map(String::as_str).collect();
    let data = node.path("untouched");
    let up = ["up", data.to_str().expect("plain"), "--config", file];
    node.run(&up).fails(1, &words).fails(1, &["error:", "2 mistakes", "weft config check"]);
    assert!(!data.exists(), "nothing was made");
    let said = node.run(&["config", "check", "--config", file]);
    assert_eq!(said.code, 1);
    assert!(lines.iter().all(|line| said.out.contains(line)), "{}", said.out);
    let told = node.run(&["config", "check", "--json", "--config", file]);
    let told: serde_json::Value = serde_json::from_str(&told.out).expect("one document");
    assert_eq!(told["mistakes"].as_array().map(Vec::len), Some(2));
    node.run(&["up", "--config", "/none/weft.toml"]).fails(1, &["error:", "/none/weft.toml"]);
}

#[test]
fn a_node_that_runs_takes_up_what_it_can_and_keeps_what_it_has_where_a_file_is_broken() {
    let mut node = Node::start();
    let file = node.data().join("weft.toml");
    let say = |text: &str| {
        fs::write(&file, text).expect("written");
        crate::node::give(&file);
    };
    say("log = \"debug\"\nhosts = [\"new.example\"]\n");
    let after = reload(&node);
    logged(&node, after, "the configuration was read again");
    logged(&node, after, "waits for the next start key=\"hosts\"");
    assert_eq!(Http::new(node.address(), None).ask("GET", "/x", &[], b"").status, 401);
    logged(&node, after, "DEBUG");
    // Half of it: as an editor that is interrupted leaves it.
    say("log = \"deb");
    node.allow("the configuration has a mistake");
    node.allow("a changed setting waits");
    let after = reload(&node);
    logged(&node, after, "weft.toml:1");
    assert_eq!(Http::new(node.address(), None).ask("GET", "/x", &[], b"").status, 401, "it goes on");
    logged(&node, after, "DEBUG");
    node.run(&["status"]).ok();
}
