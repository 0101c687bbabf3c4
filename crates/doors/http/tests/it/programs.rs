//! Programs nobody here wrote. Where one is missing its test is counted as not run.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use weft_conformance::run::{have, python_with};

use crate::house::{House, PASSWORD};

/// Runs a program to its end, at most a minute, away from the runtime's threads.
async fn run(program: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.arg("60").arg(program).args(arguments);
    run_command(command).await
}

async fn run_command(mut command: Command) -> Output {
    command.env_remove("http_proxy").env("no_proxy", "*").env("HOME", "/nonexistent").stdin(Stdio::null());
    let shown = format!("{command:?}");
    let done = tokio::task::spawn_blocking(move || command.output()).await.expect("it runs");
    let output = done.expect("`timeout` is installed");
    assert_ne!(output.status.code(), Some(127), "{shown}: the program is not there");
    output
}

/// Runs a program that must succeed. Returns what it wrote.
async fn good(program: &str, arguments: &[&str]) -> String {
    let output = run(program, arguments).await;
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} {arguments:?}: {:?}\n{said}\n{complained}", output.status);
    said.into_owned()
}

fn content(bytes: usize) -> Vec<u8> {
    let mut state = 1_u32;
    (0..bytes)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .collect()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary directories have plain names")
}

fn user() -> String {
    format!("alice:{PASSWORD}")
}

struct Work {
    dir: tempfile::TempDir,
}

impl Work {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a directory") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> String {
        std::fs::write(self.path(name), bytes).expect("it is written");
        text(&self.path(name)).to_owned()
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).expect("it is there")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curl_puts_gets_resumes_and_respects_conditions() {
    if !have("programs::curl", &["curl"]) {
        return;
    }
    let (house, work, user) = (House::open().await, Work::new(), user());
    let bytes = content(3_000_000);
    let (source, target) = (work.file("source", &bytes), work.path("target"));
    let url = house.url("/f");
    good("curl", &["-sSf", "-u", &user, "-T", &source, &url]).await;
    assert!(house.read("f").await.is_some_and(|kept| kept == bytes));
    good("curl", &["-sSf", "-u", &user, "-o", text(&target), &url]).await;
    assert!(work.read("target") == bytes);
    std::fs::write(&target, &bytes[..1_234_567]).expect("half of it");
    good("curl", &["-sSf", "-u", &user, "-C", "-", "-o", text(&target), &url]).await;
    assert!(work.read("target") == bytes, "a resumed download is whole");
    let ranged = run("curl", &["-sSf", "-u", &user, "-r", "10-19,30-39", &url]).await;
    assert!(ranged.stdout.windows(10).any(|ten| ten == &bytes[30..40]));
    let chunked =
        format!("head -c 100000 {source} | curl -sSf -u '{user}' --upload-file - {}", house.url("/piped"));
    good("sh", &["-c", &chunked]).await;
    assert!(house.read("piped").await.is_some_and(|kept| kept == bytes[..100_000]));
    let code = ["-s", "-o", "/dev/null", "-w", "%{http_code}", "-u", &user];
    for (more, status) in [
        (&["-H", "If-None-Match: *", "-T", &source][..], "412"),
        (&["-H", "Expect: 100-continue", "-H", "If-Match: \"x\"", "-T", &source], "412"),
        (&["-z", "1 Jan 2037"], "304"),
        (&["-X", "DELETE", "-H", "If-Match: \"x\""], "412"),
        (&["-X", "DELETE"], "204"),
        (&[], "404"),
    ] {
        assert_eq!(good("curl", &[&code[..], more, &[&url]].concat()).await, status, "{more:?}");
    }
    let wrong = good("curl", &["-s", "-o", "/dev/null", "-w", "%{http_code}", "-u", "alice:no", &url]).await;
    assert_eq!(wrong, "401");
    let after = good("curl", &["-sSf", "--anyauth", "-u", &user, &house.url("/?format=json")]).await;
    assert!(after.contains("\"./piped\""), "{after}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wget_continues_and_starts_where_it_is_told() {
    if !have("programs::wget", &["wget"]) {
        return;
    }
    let (house, work) = (House::open().await, Work::new());
    let bytes = content(2_000_000);
    house.put("public/f", bytes.clone()).await;
    let (url, target) = (house.url("/public/f"), work.path("f"));
    std::fs::write(&target, &bytes[..777_777]).expect("a part of it");
    good("wget", &["-q", "-c", "-O", text(&target), &url]).await;
    assert!(work.read("f") == bytes);
    good("wget", &["-q", "--start-pos=1000000", "-O", text(&work.path("tail")), &url]).await;
    assert!(work.read("tail") == bytes[1_000_000..]);
    house.put("secret", "for alice").await;
    let secret =
        good("wget", &["-qO-", "--user=alice", &format!("--password={PASSWORD}"), &house.url("/secret")])
            .await;
    assert_eq!(secret, "for alice", "wget asks without a password first and then answers the 401");
    let tree = work.path("tree");
    house.make_directory("public/d").await;
    house.put("public/d/x y", "deep").await;
    let into = format!("--directory-prefix={}", text(&tree));
    good("wget", &["-q", "-r", "-np", "-nH", "-e", "robots=off", &into, &house.url("/public/d/")]).await;
    let copied = std::fs::read(tree.join("public/d/x y")).expect("listings lead to the files");
    assert_eq!(copied, b"deep");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aria2_fetches_a_file_in_sixteen_segments() {
    if !have("programs::aria2", &["aria2c"]) {
        return;
    }
    let (house, work) = (House::open().await, Work::new());
    let bytes = content(40_000_000);
    house.put("public/f", bytes.clone()).await;
    let dir = format!("--dir={}", text(work.dir.path()));
    let options = ["--no-conf", "-q", "-x16", "-s16", "-k1M", "--file-allocation=none", &dir, "-o", "f"];
    good("aria2c", &[&options[..], &[&house.url("/public/f")]].concat()).await;
    assert!(work.read("f") == bytes);
}

const PYTHON: &str = include_str!("libraries.py");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pythons_two_libraries_use_it() {
    let Some(python) = python_with("programs::python", "httpx, requests") else { return };
    let house = House::open().await;
    let said = good(python, &["-c", PYTHON, &house.url(""), "alice", PASSWORD]).await;
    assert_eq!(said.trim(), "good");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrk_meets_no_error() {
    if !have("programs::wrk", &["wrk"]) {
        return;
    }
    let house = House::open().await;
    house.put("public/1k", content(1024)).await;
    let said = good("wrk", &["-c16", "-t2", "-d1s", &house.url("/public/1k")]).await;
    println!("{said}");
    assert!(
        said.contains("Requests/sec") && !said.contains("Socket errors") && !said.contains("Non-2xx"),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grid_tools_copy_both_ways_and_compare_digests() {
    if !have("programs::grid", &["davix-get", "davix-put", "gfal-sum", "gfal-copy"]) {
        return;
    }
    let (house, work) = (House::open().await, Work::new());
    let bytes = content(1_500_000);
    house.put("public/f", bytes.clone()).await;
    let url = house.url("/public/f");
    good("davix-get", &[&url, text(&work.path("davix"))]).await;
    assert!(work.read("davix") == bytes);
    let source = work.file("source", &bytes);
    // Its own --userlogin answers no challenge to a PUT, whoever the server is.
    let bearer = format!("Authorization: Bearer {}", house.token());
    good("davix-put", &["-H", &bearer, &source, &house.url("/put")]).await;
    assert!(house.read("put").await.is_some_and(|kept| kept == bytes));
    let gfal = async |program: &str, arguments: &[&str]| {
        let mut command = Command::new("timeout");
        // Where another python3 comes first in the path, the tool must be told which is its own.
        command.env("GFAL_PYTHONBIN", "/usr/bin/python3").env("BEARER_TOKEN", house.token());
        command.arg("60").arg(program).args(arguments);
        let output = run_command(command).await;
        let all =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{program} {arguments:?}: {all}");
        all
    };
    for algorithm in ["ADLER32", "MD5"] {
        let sum = gfal("gfal-sum", &[&url, algorithm]).await;
        let expected = match algorithm {
            "ADLER32" => format!("{:08x}", adler2::adler32_slice(&bytes)),
            _ => data_encoding::HEXLOWER.encode(&<md5::Md5 as md5::Digest>::digest(&bytes)),
        };
        assert!(sum.contains(&expected), "{algorithm}: {sum} is not {expected}");
    }
    let copy = format!("file://{}", text(&work.path("gfal")));
    gfal("gfal-copy", &["-f", "-K", "ADLER32", &url, &copy]).await;
    assert!(work.read("gfal") == bytes);
    gfal("gfal-copy", &["-f", "-K", "ADLER32", &format!("file://{source}"), &house.url("/gfal")]).await;
    assert!(house.read("gfal").await.is_some_and(|kept| kept == bytes));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_door_answers_while_a_hundred_programs_ask_at_once() {
    if !have("programs::hundred", &["curl"]) {
        return;
    }
    let house = House::open().await;
    house.put("public/f", "content").await;
    let list = format!("url = {}\noutput = /dev/null\n", house.url("/public/f")).repeat(100);
    let work = Work::new();
    let config = work.file("list", list.as_bytes());
    good("curl", &["-sSf", "--parallel", "--parallel-max", "100", "-K", &config]).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// Of each suite, how many of its tests there are: all pass, none is skipped.
const LITMUS: [(&str, usize); 5] =
    [("basic", 16), ("copymove", 13), ("props", 30), ("locks", 41), ("http", 4)];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn litmus_passes_every_suite() {
    if !have("programs::litmus", &["litmus"]) {
        return;
    }
    let (house, work) = (House::open().await, Work::new());
    house.make_directory("litmus").await;
    let mut command = Command::new("timeout");
    command.current_dir(work.dir.path()).args(["60", "litmus", "-k"]);
    command.arg(house.url("/litmus/")).args(["alice", PASSWORD]);
    let output = run_command(command).await;
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    for (suite, tests) in LITMUS {
        let summary = format!("summary for `{suite}': of {tests} tests run: {tests} passed, 0 failed.");
        assert!(said.contains(&summary), "{summary}\n{said}");
    }
    assert!(!said.contains("SKIPPED") && !said.contains("WARNING"), "{said}");
}
