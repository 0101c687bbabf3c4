//! `weft shell`, from a pipe and at a terminal.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::node::{Node, python, weft};

#[test]
fn lines_from_a_pipe_are_carried_out_where_one_is() {
    let node = Node::start();
    node.write("f", "of this machine\n");
    let lines = "\
        # a remark, and an empty line\n\n\
        mkdir '/a b' /a\\ b/c\n\
        cd '/a b'\n\
        pwd\n\
        cp f weft:c/f\n\
        cat c/f\n\
        cd c\n\
        ls\n\
        cd ..\n\
        cd ../..\n\
        pwd\n\
        ls --json -d 'a b'\n\
        exit\n\
        ls /none\n";
    let said = node.feed(&["shell"], lines.as_bytes());
    assert_eq!(said.code, 0, "{}", said.err);
    let out: Vec<&str> = said.out.lines().collect();
    assert_eq!(out[..4], ["/a b", "of this machine", "f", "/"], "{}", said.out);
    assert!(out[4].contains("\"path\":\"/a b\"") && out.len() == 5, "{}", said.out);
    // `cp` says what it did on stderr, and nothing prompts.
    assert!(!said.err.contains("weft:/"), "{}", said.err);
}

#[test]
fn the_first_failure_ends_it_with_its_code_unless_told_otherwise() {
    let node = Node::start();
    let lines = b"cat /none\nmkdir /made\n";
    node.feed(&["shell"], lines).fails(1, &["/none"]);
    assert_eq!(node.run(&["ls", "/"]).ok(), "");
    node.feed(&["shell", "--keep-going"], lines).fails(1, &["/none"]);
    assert_eq!(node.run(&["ls", "/"]).ok(), "made/\n");
    for (line, code, words) in [
        (&b"nonsense\n"[..], 2, "nonsense"),
        (b"ls 'open\n", 1, "left open"),
        (b"cd /made/none\n", 1, "/made/none"),
        (b"shell\n", 1, "one already"),
        (b"\xff\n", 1, "UTF-8"),
    ] {
        node.feed(&["shell"], line).fails(code, &[words]);
    }
    let said = node.feed(&["shell", "--json"], b"cat /none\n").fails(1, &["not-found"]);
    assert!(said.err.starts_with('{'), "{}", said.err);
}

/// Types lines one after another, each once there is a prompt, and prints what was shown. A prompt of the
/// line before is shown again with each key: only one in a row of its own asks for the next.
const TYPING: &str = r#"
import os, pty, select, sys, time
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], [sys.argv[1], "shell"])
shown, until = b"", time.monotonic() + 60
def read():
    global shown
    ready = select.select([terminal], [], [], max(0, until - time.monotonic()))[0]
    if not ready:
        sys.exit("nothing more came: %r" % shown)
    try:
        more = os.read(terminal, 4096)
    except OSError:
        more = b""
    shown += more
    return more
seen = 0
for line in sys.argv[2:]:
    while b"> " not in shown[seen:].rpartition(b"\n")[2] or seen and b"\n" not in shown[seen:]:
        read() or sys.exit("it ended: %r" % shown)
    seen = len(shown)
    for word in line.encode().decode("unicode_escape").split("|"):
        os.write(terminal, word.encode())
while read():
    pass
sys.stdout.buffer.write(shown)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"#;

/// At a terminal there are a prompt, completion of verbs and names, and a history that nobody else reads.
#[test]
fn at_a_terminal_it_prompts_completes_and_remembers() {
    let node = Node::start();
    node.run(&["mkdir", "/documents"]).ok();
    node.feed(&["cp", "-", "weft:/documents/letter"], b"dear reader\n").ok();
    let script = node.write("type.py", TYPING);
    let mut command = node.as_user(python());
    command.arg(script).arg(weft()).args(["cd doc\\t\\r", "pw\\t\\r", "cat let\\t\\r", "exit\\r"]);
    let said = node.feed_command(command.env("TERM", "xterm"), b"").ok();
    assert!(said.contains("weft:/documents> ") && said.contains("dear reader"), "{said}");
    let history = node.path("home/.local/state/weft/history");
    let kept = fs::read_to_string(&history).expect("kept");
    assert!(kept.contains("cd documents/") && kept.contains("cat letter"), "{kept}");
    assert_eq!(fs::metadata(&history).expect("there").permissions().mode() & 0o777, 0o600);
}
