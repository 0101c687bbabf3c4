//! HTTP/2 over TLS, by curl: one run, and so one connection, for all that somebody asks.

use std::fmt::Write;
use std::fs;

use super::http::Question;
use super::world::Person;
use super::{Answers, Cell};
use crate::http::Answer;
use crate::node::Node;

/// How often what was lost is asked again. Curl 7.88 loses an answer that is whole before the body has gone, if the
/// stream is then reset without an error, as RFC 9113 has it (8.1): about every other one. It was a refusal, and so
/// changed nothing.
const TRIES: usize = 64;

/// Asks things in somebody's name.
pub fn ask(node: &Node, who: &Person, cells: &[Cell]) -> Answers {
    let (mut came, mut left) = (Answers::new(), cells.to_vec());
    for _ in 0..TRIES {
        let answered = ask_once(node, who, &left);
        came.extend(answered);
        left.retain(|cell| !came.contains_key(cell));
        if left.is_empty() {
            return came;
        }
    }
    came.extend(left.into_iter().map(|cell| (cell, "lost".to_owned())));
    came
}

/// Asks each thing, and returns what was not lost.
fn ask_once(node: &Node, who: &Person, cells: &[Cell]) -> Answers {
    let place = format!("secured-{}", who.id);
    // Where no body comes none is written: an earlier one's would be taken for it.
    let _ = fs::remove_dir_all(node.path(&place));
    node.make_dir(&place);
    let asked: Vec<(Cell, Option<Question>)> = cells.iter().map(|cell| (*cell, who.question(cell))).collect();
    let (mut config, mut came) = (String::new(), Answers::new());
    let mut questions = Vec::new();
    for (cell, question) in asked {
        let Some(question) = question else {
            came.insert(cell, "not-offered".to_owned());
            continue;
        };
        let separator = if questions.is_empty() { "" } else { "next\n" };
        let body = format!("{place}/{}", questions.len());
        config.push_str(separator);
        config.push_str(&written(node, who, &question, &body));
        questions.push((cell, question, body));
    }
    let said = node.feed_command(node.as_user("curl").args(["--config", "-"]), config.as_bytes());
    let mut lines = said.out.lines();
    for (cell, question, body) in questions {
        let (status, version) = lines.next().and_then(|line| line.split_once(' ')).unwrap_or_default();
        if status == "000" && said.err.contains("curl: (92) ") {
            continue;
        }
        let body = fs::read(node.path(body)).unwrap_or_default();
        let answer = Answer { status: status.parse().unwrap_or(0), head: String::new(), body, whole: true };
        let by_other = || format!("status {status} by version `{version}`: {}", said.err);
        came.insert(cell, if version == "2" { question.judge(&answer, &cell) } else { by_other() });
    }
    came
}

/// Returns what curl is told of a request.
fn written(node: &Node, who: &Person, question: &Question, answer: &str) -> String {
    let mut text = String::new();
    let mut set = |name: &str, value: &str| {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"");
        writeln!(text, "{name} = \"{value}\"").expect("it is a string");
    };
    set("url", &format!("https://localhost:{}{}", node.https_port(), question.target));
    set("request", question.method);
    set("cacert", &node.data().join("tls/cert.pem").display().to_string());
    set("output", answer);
    set("write-out", r"%{http_code} %{http_version}\n");
    for (name, value) in who.shown_to_curl() {
        set(name, &value);
    }
    for field in &question.fields {
        set("header", field);
    }
    if !question.body.is_empty() {
        // Else it names a type, and waits until the node wants the body.
        set("header", "Content-Type:");
        set("header", "Expect:");
        let body = format!("{answer}.body");
        node.write(&body, question.body);
        set("data-binary", &format!("@{body}"));
    }
    text.push_str("http2\nsilent\nshow-error\npath-as-is\n");
    text
}
