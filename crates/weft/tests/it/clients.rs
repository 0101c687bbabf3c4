//! HTTP clients nobody here wrote, over a real node: what they bring lies on disk, and they get the
//! same bytes back. (`doors/http` has them over a model, with more of what they can do.)

use std::fs;

use weft_conformance::run::{have, python_with};

use crate::node::{Node, noise};
use crate::trees::gather;

const LIBRARIES: &str = include_str!("../../../doors/http/tests/it/libraries.py");

/// A node where alice may do all below `/d`, real files in `tree` and a large one in `big`.
fn scene() -> (Node, String) {
    let node = Node::start();
    let token = node.add_user("alice", "wonder");
    node.run(&["mkdir", "/d"]).ok();
    node.run(&["acl", "grant", "/d", "alice", "all"]).ok();
    let tree = node.make_dir("tree");
    gather(&tree, 60);
    node.write("big", noise(3, 40 << 20));
    (node, token)
}

/// Runs a script that knows the node as `$U` and alice's credential as `$T`.
#[track_caller]
fn sh(node: &Node, token: &str, script: &str) -> String {
    node.sh(&format!("U=http://{}/d T={token} A=\"Authorization: Bearer $T\"\n{script}", node.address()))
}

/// Fails unless what the clients brought is still there after a restart, through another door.
fn assert_kept(node: &mut Node, names: &[&str], bytes: &[u8]) {
    node.stop();
    node.up();
    for name in names {
        node.run(&["cp", &format!("weft:/d/{name}"), "kept"]).ok();
        assert!(fs::read(node.path("kept")).expect("copied") == bytes, "{name}");
        fs::remove_file(node.path("kept")).expect("it is there");
    }
}

#[test]
fn what_curl_brings_wget_and_aria2_fetch_byte_by_byte_and_wrk_meets_no_error() {
    if !have("clients::plain", &["curl", "wget", "aria2c", "wrk", "diff", "cmp"]) {
        return;
    }
    let (mut node, token) = scene();
    sh(
        &node,
        &token,
        r#"put() { curl -sSf -H "$A" "$@"; }
        put -X MKCOL "$U/tree"
        cd tree
        find . -name '*.html' -delete # wget would follow what they link to
        find . -mindepth 1 -type d | cut -c3- | while read -r dir; do put -X MKCOL "$U/tree/$dir"; done
        find . -type f | cut -c3- | while read -r file; do put -T "$file" "$U/tree/$file"; done
        cd ..
        put -T big "$U/big"
        put -T - "$U/piped" < big
        curl -sSf -u alice:wonder "$U/big" -o whole; cmp big whole
        head -c 12345678 big > part; curl -sSf -H "$A" -C - "$U/big" -o part; cmp big part
        wget -q -r -l inf -np -nH --cut-dirs=1 -R 'index.html*' -e robots=off --header "$A" -P wget "$U/tree/"
        diff -r tree wget/tree
        head -c 7777777 big > again; wget -q -c --header "$A" -O again "$U/big"; cmp big again
        aria2c --no-conf -q -x16 -s16 -k1M --file-allocation=none --header "$A" -o segments "$U/big"
        cmp big segments"#,
    );
    // Without the credential there is nothing.
    let refused = sh(&node, &token, r#"curl -s -o /dev/null -w '%{http_code}' "$U/big""#);
    assert_eq!(refused, "401");
    let script = r#"head -c 1024 big | curl -sSf -H "$A" -T - "$U/1k"; wrk -c16 -t2 -d1s -H "$A" "$U/1k""#;
    let said = sh(&node, &token, script);
    println!("{said}");
    let good = said.contains("Requests/sec") && !said.contains("Socket errors");
    assert!(good && !said.contains("Non-2xx"), "{said}");
    assert_kept(&mut node, &["big", "piped"], &noise(3, 40 << 20));
}

fn adler32(bytes: &[u8]) -> u32 {
    let sums = |(a, b): (u32, u32), byte: &u8| {
        ((a + u32::from(*byte)) % 65_521, (a + b + u32::from(*byte)) % 65_521)
    };
    let (a, b) = bytes.iter().fold((1, 0), sums);
    b << 16 | a
}

#[test]
fn pythons_two_libraries_use_a_node() {
    let Some(python) = python_with("clients::python", "httpx, requests") else { return };
    let (node, _) = scene();
    let url = format!("http://{}/d", node.address());
    let said =
        node.as_user(python).args(["-c", LIBRARIES, &url, "alice", "wonder"]).output().expect("it runs");
    let (out, err) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    assert_eq!(out.trim(), "good", "{err}");
}

#[test]
fn grid_tools_copy_both_ways_and_the_digests_are_those_of_the_bytes() {
    if !have("clients::grid", &["davix-get", "davix-put", "gfal-sum", "gfal-copy", "cmp"]) {
        return;
    }
    let (mut node, token) = scene();
    // Where another python3 comes first in the path, gfal must be told which is its own.
    let said = sh(
        &node,
        &token,
        r#"export GFAL_PYTHONBIN=/usr/bin/python3 BEARER_TOKEN=$T
        davix-put -H "$A" big "$U/davix" > /dev/null
        davix-get -H "$A" -H "Want-Digest: adler32" --trace header "$U/davix" davix 2>&1; cmp big davix
        gfal-copy -f -K ADLER32 "file://$PWD/big" "$U/gfal" > /dev/null
        gfal-copy -f -K ADLER32 "$U/gfal" "file://$PWD/gfal" > /dev/null; cmp big gfal
        echo; echo "ADLER32 $(gfal-sum "$U/davix" ADLER32)"; echo "MD5 $(gfal-sum "$U/gfal" MD5)"
        echo "own $(md5sum < big | cut -d ' ' -f 1)""#,
    );
    let bytes = noise(3, 40 << 20);
    let line = |name: &str| {
        let line = said.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{said}"));
        line.rsplit(' ').next().expect("something").to_owned()
    };
    assert_eq!(line("MD5 "), line("own "));
    assert_eq!(line("ADLER32 "), format!("{:08x}", adler32(&bytes)));
    assert_eq!(line("< Digest: adler32="), format!("adler32={}", line("ADLER32 ")), "what davix was told");
    assert_kept(&mut node, &["davix", "gfal"], &bytes);
}
