//! A real browser, driven as its users would: WebKitGTK through W3C WebDriver, on a display of its own.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use weft_conformance::run::have;

use crate::node::soon;

/// How the protocol names an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A browser with one window.
pub struct Browser {
    port: u16,
    session: String,
    processes: Vec<Child>,
}

impl Browser {
    /// Starts one that takes any certificate; `None` if there is none on this machine, which is noted.
    pub fn start(test: &str) -> Option<Self> {
        if !have(test, &["curl", "Xvfb", "WebKitWebDriver"]) {
            return None;
        }
        let mut display = Command::new("Xvfb");
        display.args(["-displayfd", "1", "-screen", "0", "1200x900x24", "-nolisten", "tcp"]);
        let mut display = quiet(&mut display).stdout(Stdio::piped()).spawn().expect("Xvfb starts");
        let mut number = String::new();
        let said = display.stdout.take().expect("it is piped");
        BufReader::new(said).read_line(&mut number).expect("Xvfb says its number");
        // The driver takes no port 0. Should somebody take this one in between, it does not answer, and that is seen.
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let port = free.local_addr().expect("it has one").port();
        drop(free);
        let mut driver = Command::new("WebKitWebDriver");
        driver.args([&format!("--port={port}"), "--host=127.0.0.1"]);
        driver.env("DISPLAY", format!(":{}", number.trim())).env_remove("http_proxy");
        let driver = quiet(&mut driver).spawn().expect("the driver starts");
        let mut own = Self { port, session: String::new(), processes: vec![driver, display] };
        soon("the driver answers", || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
        let wanted = json!({"capabilities": {"alwaysMatch": {"acceptInsecureCerts": true,
            "unhandledPromptBehavior": "ignore"}}});
        let begun = own.call("POST", "/session", &wanted);
        own.session = begun["sessionId"].as_str().expect("a session").to_owned();
        Some(own)
    }

    /// Asks the driver; returns the value it answers, or what is wrong.
    fn try_call(&self, method: &str, path: &str, body: &Value) -> Result<Value, Value> {
        let mut curl = Command::new("curl");
        curl.args(["-s", "-m", "60", "--noproxy", "*", "-X", method]);
        if method == "POST" {
            curl.args(["-H", "Content-Type: application/json", "-d", &body.to_string()]);
        }
        let output = curl.arg(format!("http://127.0.0.1:{}{path}", self.port)).output().expect("curl runs");
        let answer: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stdout)));
        let value = answer["value"].clone();
        if value["error"].is_string() { Err(value) } else { Ok(value) }
    }

    #[track_caller]
    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        self.try_call(method, path, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    #[track_caller]
    fn ask(&self, path: &str, body: &Value) -> Value {
        self.call("POST", &format!("/session/{}{path}", self.session), body)
    }

    /// Goes to an address, and waits until it is shown.
    #[track_caller]
    pub fn open(&self, url: &str) {
        self.ask("/url", &json!({"url": url}));
    }

    /// Runs a script in the page, as its own would run.
    #[track_caller]
    pub fn run(&self, script: &str) -> Value {
        self.ask("/execute/sync", &json!({"script": script, "args": []}))
    }

    /// Waits until a script's value is true: pages change under its feet meanwhile.
    #[track_caller]
    pub fn wait_for(&self, script: &str) {
        let body = json!({"script": format!("return !!({script})"), "args": []});
        let path = format!("/session/{}/execute/sync", self.session);
        soon(script, || self.try_call("POST", &path, &body) == Ok(Value::Bool(true)));
    }

    #[track_caller]
    fn element(&self, css: &str) -> String {
        let found = self.ask("/element", &json!({"using": "css selector", "value": css}));
        found[ELEMENT].as_str().expect("an element").to_owned()
    }

    /// Clicks on what a selector finds first.
    #[track_caller]
    pub fn click(&self, css: &str) {
        self.ask(&format!("/element/{}/click", self.element(css)), &json!({}));
    }

    /// Types into a field; of one for files, chooses one.
    #[track_caller]
    pub fn type_into(&self, css: &str, text: &str) {
        self.ask(&format!("/element/{}/value", self.element(css)), &json!({"text": text}));
    }

    /// Chooses a file.
    #[track_caller]
    pub fn choose(&self, css: &str, file: &Path) {
        self.type_into(css, file.to_str().expect("a plain path"));
    }

    /// Answers what the page asks in a window of its own. Returns the question.
    #[track_caller]
    pub fn answer(&self, text: Option<&str>) -> String {
        let path = format!("/session/{}/alert/text", self.session);
        soon("the page asks", || self.try_call("GET", &path, &Value::Null).is_ok());
        let question = self.call("GET", &path, &Value::Null).as_str().unwrap_or_default().to_owned();
        if let Some(text) = text {
            self.ask("/alert/text", &json!({"text": text}));
        }
        self.ask("/alert/accept", &json!({}));
        question
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            // With its session the browser ends.
            let _ = self.try_call("DELETE", &format!("/session/{}", self.session), &Value::Null);
        }
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn quiet(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null())
}
