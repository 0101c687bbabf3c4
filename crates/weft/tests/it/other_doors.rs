//! What is changed by any other door of the node is seen in a mount at once.
//!
//! The mount's kernel knows all there is to know of a directory, has a file of it open and mapped, and would go on
//! believing it for half a minute. Then something is changed elsewhere, and what the kernel shows must follow.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weft_conformance::run::have;

use crate::http::Http;
use crate::node::{Node, python, signal, wait};

const EYES: &str = include_str!("../python/eyes.py");

/// How long a mount may show what was: far less than the 30 s for which it believes what it is told, and more than
/// a busy machine takes to be told.
const AT_ONCE: Duration = Duration::from_secs(5);

/// Waits until something is so, but not until a mount would ask of itself. Fails with what was wrong the last time.
#[track_caller]
pub fn at_once(what: &str, mut is_so: impl FnMut() -> Result<(), String>) {
    let until = Instant::now() + AT_ONCE;
    while let Err(wrong) = is_so() {
        assert!(Instant::now() < until, "{what}: not seen at once: {wrong}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A program that looks at a directory as whoever mounted it, whom alone the kernel lets look.
pub struct Eyes {
    child: Child,
    told: ChildStdin,
    says: BufReader<ChildStdout>,
}

impl Eyes {
    pub fn at(node: &Node, directory: &Path) -> Self {
        let mut command = node.as_user(python());
        command.arg("-c").arg(EYES).arg(directory).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python starts");
        let told = child.stdin.take().expect("piped");
        let says = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, told, says }
    }

    /// Tells it what to do. Returns what it says of that; nothing if that was its end.
    pub fn ask_for_life(&mut self, what: &str) -> Option<Value> {
        // Whether it takes it is seen by whether it answers.
        let _ = writeln!(self.told, "{what}");
        let mut line = String::new();
        self.says.read_line(&mut line).expect("text");
        (!line.is_empty()).then(|| serde_json::from_str(&line).expect("JSON"))
    }

    /// The same; fails if it ends.
    #[track_caller]
    pub fn ask(&mut self, what: &str) -> Value {
        self.ask_for_life(what).unwrap_or_else(|| panic!("it ended of `{what}`: {}", self.end()))
    }

    /// Waits until it has ended.
    pub fn end(&mut self) -> ExitStatus {
        wait(&mut self.child)
    }
}

impl Drop for Eyes {
    fn drop(&mut self) {
        signal(&self.child, rustix::process::Signal::KILL);
        let _ = self.child.wait();
    }
}

/// A change: by what, how, and what a look shows otherwise than before.
type Change = (&'static str, fn(&Place), &'static [(&'static str, &'static str)]);

/// A directory of its own for each change: `f` and `g` with text, and `d` with `in`.
struct Place<'a> {
    node: &'a Node,
    http: &'a Http,
    path: String,
}

impl<'a> Place<'a> {
    fn make(node: &'a Node, http: &'a Http, path: String) -> Self {
        let place = Self { node, http, path };
        place.http("MKCOL", "", &[], "");
        place.http("MKCOL", "d/", &[], "");
        for (name, text) in [("f", "before"), ("g", "other"), ("d/in", "inside")] {
            place.http("PUT", name, &[], text);
        }
        place
    }

    /// Returns the path of a name in it.
    fn at(&self, name: &str) -> String {
        format!("{}/{name}", self.path)
    }

    #[track_caller]
    fn http(&self, method: &str, name: &str, fields: &[&str], body: &str) -> String {
        let answer = self.http.ask(method, &self.at(name), fields, body.as_bytes());
        assert!((200..300).contains(&answer.status), "{method} {name}: {}", answer.text());
        answer.head
    }

    /// Sends what names another place as well.
    #[track_caller]
    fn http_to(&self, method: &str, name: &str, to: &str) {
        self.http(method, name, &[&format!("Destination: {}", self.at(to))], "");
    }

    /// Uploads a file in two parts (tus).
    #[track_caller]
    fn upload(&self, name: &str, parts: [&str; 2]) {
        const TUS: &str = "Tus-Resumable: 1.0.0";
        let length = format!("Upload-Length: {}", parts.concat().len());
        let named = format!("Upload-Metadata: filename {}", data_encoding::BASE64.encode(name.as_bytes()));
        let begun = self.http("POST", "", &[TUS, &length, &named], "");
        let address = begun.lines().find_map(|line| line.strip_prefix("Location: ")).expect("an address");
        for (at, part) in [(0, parts[0]), (parts[0].len(), parts[1])] {
            let offset = format!("Upload-Offset: {at}");
            let fields = [TUS, "Content-Type: application/offset+octet-stream", &offset];
            let answer = self.http.ask("PATCH", address, &fields, part.as_bytes());
            assert_eq!(answer.status, 204, "{}", answer.text());
        }
    }

    /// Runs a command of `weft`; what begins with a slash in it is a name here.
    #[track_caller]
    fn weft(&self, command: &str, input: &str) {
        let place = |word: &str| word.replacen('/', &format!("{}/", self.path), 1);
        let args: Vec<_> = command.split(' ').map(place).collect();
        self.node.feed(&args, input.as_bytes()).ok();
    }

    /// Runs a script where a share's files are.
    #[track_caller]
    fn on_the_machine(&self, script: &str) {
        self.node.sh(&format!("cd .{}; {script}", self.path));
    }

    /// Runs a script in another mount of the same tree.
    #[track_caller]
    fn elsewhere(&self, script: &str) {
        self.node.sh(&format!("cd other{}; {script}", self.path));
    }

    /// Returns the names and bytes that are there, by the node's own word.
    fn tree(&self, directory: &str) -> Value {
        let listing = self.http.bytes(&format!("{}?format=json", self.at(directory)));
        let listing: Value = serde_json::from_slice(&listing).expect("JSON");
        let entries = listing["entries"].as_array().expect("entries").iter().map(|entry| {
            let name = entry["name"].as_str().expect("a name");
            let path = format!("{directory}{name}");
            let holds = match entry["kind"] == "directory" {
                true => self.tree(&format!("{path}/")),
                false => String::from_utf8(self.http.bytes(&self.at(&path))).expect("text").into(),
            };
            (name.to_owned(), holds)
        });
        Value::Object(entries.collect())
    }
}

/// Names in the directory came or went.
const CAME: (&str, &str) = ("names", "newer");
/// What is held was written.
const WRITTEN: (&str, &str) = ("time", "newer");

type Look = BTreeMap<String, String>;

fn look(eyes: &mut Eyes) -> Look {
    serde_json::from_value(eyes.ask("look")).expect("texts")
}

/// Fails unless a question is soon answered as `shows` says.
#[track_caller]
fn is_shown(eyes: &mut Eyes, question: &str, change: &str, shows: &Look) {
    at_once(change, || {
        let seen: Look = serde_json::from_value(eyes.ask(question)).expect("texts");
        let stale: Vec<_> = seen.iter().filter(|(what, how)| shows.get(*what) != Some(how)).collect();
        if stale.is_empty() { Ok(()) } else { Err(format!("{stale:?} in {shows:?}")) }
    });
}

/// What a look shows before anything is changed.
fn before() -> Look {
    let shows = json!({
        "f": "6 bytes", "g": "5 bytes", "d": "directory", "d/in": "6 bytes", "none": "nothing", "none/in": "nothing",
        "held": "before", "read": "before", "mapped": "before", "mode": "644", "links": "1",
        "time": "as before", "names": "as before",
    });
    serde_json::from_value(shows).expect("texts")
}

/// Fails unless each change is seen at once in a mount whose kernel knows how all was before.
fn all_are_seen(test: &str, changes: &[Change]) {
    if have(test, &["fusermount3", python()]) {
        all_are_seen_in(Node::start(), "", changes);
    }
}

/// The same below a path.
fn all_are_seen_in(mut node: Node, path: &str, changes: &[Change]) {
    let (mount, other) = (node.mount("mnt"), node.mount("other"));
    let http = node.http(Some(&node.token()));
    for (number, (door, change, otherwise)) in changes.iter().enumerate() {
        let place = Place::make(&node, &http, format!("{path}/{number}"));
        let mut eyes = Eyes::at(&node, &mount.join(&place.path[1..]));
        assert_eq!(eyes.ask("hold f"), "held");
        eyes.ask("tree");
        // Once for the mount to be asked, and once of what the kernel knows.
        for _ in 0..2 {
            assert_eq!(look(&mut eyes), before(), "{door}: before");
        }
        change(&place);
        let mut shows = before();
        shows.extend(otherwise.iter().map(|(what, how)| ((*what).to_owned(), (*how).to_owned())));
        shows.insert("read".to_owned(), shows["mapped"].clone());
        // Bytes first: to be asked for attributes can tell a mount that the bytes are others.
        is_shown(&mut eyes, "mapped", door, &shows);
        is_shown(&mut eyes, "look", door, &shows);
        assert_eq!(eyes.ask("tree"), place.tree(""), "{door}: what is opened after");
    }
    for mount in [mount, other] {
        node.unmount(&mount);
    }
}

#[test]
fn what_is_changed_over_http_is_seen_in_a_mount_at_once() {
    all_are_seen(
        "other_doors::http",
        &[
            ("PUT of a new file", |p| drop(p.http("PUT", "none", &[], "put")), &[("none", "3 bytes"), CAME]),
            (
                "PUT over a file",
                |p| drop(p.http("PUT", "f", &[], "put")),
                &[("f", "3 bytes"), ("held", "put"), ("mapped", "put"), WRITTEN],
            ),
            (
                "DELETE of a file",
                |p| drop(p.http("DELETE", "f", &[], "")),
                &[("f", "nothing"), ("links", "0"), CAME],
            ),
            (
                "DELETE of a tree",
                |p| drop(p.http("DELETE", "d/", &[], "")),
                &[("d", "nothing"), ("d/in", "nothing"), CAME],
            ),
            (
                "MOVE of a file",
                |p| p.http_to("MOVE", "f", "none"),
                &[("f", "nothing"), ("none", "6 bytes"), CAME],
            ),
            (
                "MOVE of a file onto another",
                |p| p.http_to("MOVE", "f", "g"),
                &[("f", "nothing"), ("g", "6 bytes"), CAME],
            ),
            (
                "MOVE of a tree",
                |p| p.http_to("MOVE", "d/", "none"),
                &[("d", "nothing"), ("d/in", "nothing"), ("none", "directory"), ("none/in", "6 bytes"), CAME],
            ),
            (
                "COPY of a file onto another",
                |p| p.http_to("COPY", "g", "f"),
                &[("f", "5 bytes"), ("held", "other"), ("mapped", "other"), WRITTEN],
            ),
            ("MKCOL", |p| drop(p.http("MKCOL", "none", &[], "")), &[("none", "directory"), CAME]),
        ],
    );
}

#[test]
fn what_is_uploaded_in_parts_is_seen_in_a_mount_at_once_when_it_is_whole() {
    all_are_seen(
        "other_doors::uploads",
        &[
            ("an upload of a new file", |p| p.upload("none", ["in ", "parts"]), &[("none", "8 bytes"), CAME]),
            (
                "an upload over a file",
                |p| p.upload("f", ["in ", "parts"]),
                &[("f", "8 bytes"), ("held", "in parts"), ("mapped", "in par"), WRITTEN],
            ),
        ],
    );
}

#[test]
fn what_commands_change_is_seen_in_a_mount_at_once() {
    all_are_seen(
        "other_doors::commands",
        &[
            ("cp to a new name", |p| p.weft("cp - weft:/none", "copied"), &[("none", "6 bytes"), CAME]),
            (
                "cp over a file",
                |p| p.weft("cp - weft:/f", "copied over"),
                &[("f", "11 bytes"), ("held", "copied over"), ("mapped", "copied"), WRITTEN],
            ),
            ("mv", |p| p.weft("mv /f /none", ""), &[("f", "nothing"), ("none", "6 bytes"), CAME]),
            ("mv onto another", |p| p.weft("mv /f /g", ""), &[("f", "nothing"), ("g", "6 bytes"), CAME]),
            (
                "mv into a directory",
                |p| p.weft("mv /g /d/in", ""),
                &[("g", "nothing"), ("d/in", "5 bytes"), CAME],
            ),
            ("rm", |p| p.weft("rm /f", ""), &[("f", "nothing"), ("links", "0"), CAME]),
            ("rm -r", |p| p.weft("rm -r /d", ""), &[("d", "nothing"), ("d/in", "nothing"), CAME]),
            ("mkdir", |p| p.weft("mkdir /none", ""), &[("none", "directory"), CAME]),
            ("touch", |p| p.weft("touch /f", ""), &[WRITTEN]),
            ("ln", |p| p.weft("ln /f /none", ""), &[("none", "6 bytes"), ("links", "2"), CAME]),
        ],
    );
}

#[test]
fn what_is_changed_in_another_mount_is_seen_in_a_mount_at_once() {
    all_are_seen(
        "other_doors::mounts",
        &[
            (
                "a write in place",
                |p| p.elsewhere("printf B | dd of=f conv=notrunc status=none"),
                &[("held", "Before"), ("mapped", "Before"), WRITTEN],
            ),
            (
                "an append",
                |p| p.elsewhere("printf ' and after' >> f"),
                &[("f", "16 bytes"), ("held", "before and after"), ("mapped", "before"), WRITTEN],
            ),
            (
                "truncate",
                |p| p.elsewhere("truncate -s 2 f"),
                &[("f", "2 bytes"), ("held", "be"), ("mapped", "be"), WRITTEN],
            ),
            ("chmod", |p| p.elsewhere("chmod 600 f"), &[("mode", "600")]),
            ("a time that is set", |p| p.elsewhere("touch -d @1 f"), &[("time", "older")]),
            ("unlink", |p| p.elsewhere("rm f"), &[("f", "nothing"), ("links", "0"), CAME]),
            ("rename", |p| p.elsewhere("mv f none"), &[("f", "nothing"), ("none", "6 bytes"), CAME]),
            ("rename onto another", |p| p.elsewhere("mv f g"), &[("f", "nothing"), ("g", "6 bytes"), CAME]),
            ("link", |p| p.elsewhere("ln f none"), &[("none", "6 bytes"), ("links", "2"), CAME]),
            ("mkdir", |p| p.elsewhere("mkdir none"), &[("none", "directory"), CAME]),
            ("rmdir", |p| p.elsewhere("rm -r d"), &[("d", "nothing"), ("d/in", "nothing"), CAME]),
            ("a new file", |p| p.elsewhere("echo text > none"), &[("none", "5 bytes"), CAME]),
        ],
    );
}

/// What takes a file's place is another file there; what is written into it is not.
#[test]
fn what_is_written_into_an_open_file_of_a_share_is_seen_in_a_mount_at_once() {
    if !have("other_doors::share", &["fusermount3", python()]) {
        return;
    }
    let node = Node::start();
    node.make_dir("share");
    node.run(&["share", "share", "/share"]).ok();
    const CHANGES: [Change; 4] = [
        (
            "a write in place of a program of the machine",
            |p| p.on_the_machine("printf B | dd of=f conv=notrunc status=none"),
            &[("held", "Before"), ("mapped", "Before"), WRITTEN],
        ),
        (
            "truncate of a program of the machine",
            |p| p.on_the_machine("truncate -s 2 f"),
            &[("f", "2 bytes"), ("held", "be"), ("mapped", "be"), WRITTEN],
        ),
        (
            "a write in place in another mount",
            |p| p.elsewhere("printf B | dd of=f conv=notrunc status=none"),
            &[("held", "Before"), ("mapped", "Before"), WRITTEN],
        ),
        (
            "truncate in another mount",
            |p| p.elsewhere("truncate -s 2 f"),
            &[("f", "2 bytes"), ("held", "be"), ("mapped", "be"), WRITTEN],
        ),
    ];
    all_are_seen_in(node, "/share", &CHANGES);
}

/// A right, and what a question is answered with it and without.
type Right = (&'static str, &'static [(&'static str, &'static str, &'static str)]);

const RIGHTS: [Right; 3] = [
    ("r", &[("open f", "opened", "EACCES"), ("read f 0", "1", "EACCES"), ("stat f", "6 bytes", "6 bytes")]),
    ("list", &[("list", "3", "EACCES"), ("stat f", "6 bytes", "6 bytes"), ("open f", "opened", "opened")]),
    (
        "read",
        &[("stat f", "6 bytes", "nothing"), ("stat d/in", "6 bytes", "nothing"), ("list", "3", "EACCES")],
    ),
];

/// What is mapped is not looked at here: it faults (`withdrawn`).
#[test]
fn rights_that_are_withdrawn_and_given_are_seen_in_a_mount_at_once() {
    if !have("other_doors::rights", &["fusermount3", python()]) {
        return;
    }
    let mut node = Node::start();
    Place::make(&node, &node.http(Some(&node.token())), "/1".into());
    node.add_user("bob", "builder");
    node.run(&["acl", "grant", "/1", "bob", "read"]).ok();
    let mount = mount_as(&mut node, "bob", "builder");
    let mut eyes = Eyes::at(&node, &mount.join("1"));
    assert_eq!(eyes.ask("hold f"), "held");
    for (rights, questions) in RIGHTS {
        for act in ["grant", "revoke", "grant"] {
            node.run(&["acl", act, "/1", "bob", rights]).ok();
            for (question, with, without) in questions {
                let right = if act == "grant" { with } else { without };
                at_once(&format!("{act} {rights}, {question}"), || match eyes.ask(question) {
                    Value::String(said) if said == *right => Ok(()),
                    said => Err(format!("{said} instead of {right}")),
                });
            }
        }
    }
    node.unmount(&mount);
}

/// Mounts the root as a user whose password is known.
pub fn mount_as(node: &mut Node, user: &str, password: &str) -> PathBuf {
    // A mount acts by the credential that is kept.
    node.feed(&["login", user, "--password-stdin"], password.as_bytes()).ok();
    let mount = node.mount(user);
    node.run(&["logout"]).ok();
    mount
}
