//! HTTP/2 of a real node, plain and over TLS, by clients nobody here wrote.

use weft_conformance::run::have;

use crate::node::{Node, noise};

/// A node where alice may do all below `/d`, with a large file in `big`.
fn scene() -> (Node, String) {
    let node = Node::start();
    let token = node.add_user("alice", "wonder");
    node.run(&["mkdir", "/d"]).ok();
    node.run(&["acl", "grant", "/d", "alice", "all"]).ok();
    node.write("big", noise(3, 40 << 20));
    (node, token)
}

/// Runs a script that knows the node's HTTP as `$U`, its HTTPS as `$S`, its certificate as `$C`, and
/// alice's credential as `$A`.
#[track_caller]
fn sh(node: &Node, token: &str, script: &str) -> String {
    node.sh(&format!(
        "U=http://localhost:{} S=https://localhost:{} C={} A='Authorization: Bearer {token}'\n{script}",
        node.address().port(),
        node.https_port(),
        node.data().join("tls/cert.pem").display(),
    ))
}

#[test]
fn curl_brings_and_fetches_over_http_2_with_and_without_tls() {
    if !have("http2::curl", &["curl", "cmp"]) {
        return;
    }
    let (node, token) = scene();
    sh(
        &node,
        &token,
        r#"for how in "--http2-prior-knowledge $U" "--http2 --cacert $C $S"; do
            get="curl -sSf ${how% *}" url="${how##* }/d"
            $get -H "$A" -T big -w '%{http_version}\n' "$url/big" | grep -qx 2
            $get -H "$A" -T - "$url/piped" < big
            $get -u alice:wonder "$url/big" -o whole; cmp big whole
            head -c 12345678 big > part; $get -H "$A" -C - "$url/piped" -o part; cmp big part
            $get -H "$A" "$url/" | grep -q piped
            $get -H "$A" -I "$url/big" | grep -qi '^content-length: 41943040'
            $get -H "$A" -X MKCOL "$url/made"
            $get -H "$A" -X PROPFIND -H 'Depth: 1' "$url/" | grep -q made
            $get -H "$A" -X MOVE -H "Destination: $url/moved" "$url/made"
            $get -H "$A" -X DELETE "$url/moved"
        done"#,
    );
    let versions = sh(
        &node,
        &token,
        r#"curl -s -o /dev/null -w '%{http_version} %{http_code}\n' --http1.1 --cacert "$C" "$S/d/"
        curl -s -o /dev/null -w '%{http_version} %{http_code}\n' --http2 --cacert "$C" "$S/d/"
        curl -s -o /dev/null -w '%{http_version} %{http_code}\n' --http2 "$U/d/""#,
    );
    assert_eq!(versions, "1.1 401\n2 401\n1.1 401\n", "an upgrade that is only wished for is not made");
}

#[test]
fn h2load_asks_thousands_of_times_over_many_streams_and_is_answered_each_time() {
    if !have("http2::h2load", &["h2load", "curl"]) {
        return;
    }
    let (node, token) = scene();
    let said = sh(
        &node,
        &token,
        r#"head -c 1000 big > small; curl -sSf -H "$A" -T small "$U/d/small"
        for url in "$U" "$S"; do h2load -n 3000 -c 4 -m 40 -H "$A" "$url/d/small"; done"#,
    );
    let told: Vec<&str> = said.lines().filter(|line| line.starts_with("requests:")).collect();
    assert_eq!(told.len(), 2, "{said}");
    for line in told {
        assert!(line.contains("3000 succeeded, 0 failed, 0 errored"), "{said}");
    }
    assert_eq!(said.matches("status codes: 3000 2xx").count(), 2, "{said}");
    assert!(
        said.contains("Application protocol: h2\n") && said.contains("Application protocol: h2c"),
        "{said}"
    );
}
