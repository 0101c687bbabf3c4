//! HTTPS of a real node: the certificate it makes, the one it is given, and clients nobody here wrote.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use weft_conformance::run::{have, python_with};

use crate::node::{Node, noise};

const LIBRARIES: &str = include_str!("../../../doors/http/tests/it/libraries.py");

/// A node where alice may do all below `/d`, and a large file in `big`.
fn scene(mut node: Node) -> (Node, String) {
    node.up();
    let token = node.add_user("alice", "wonder");
    node.run(&["mkdir", "/d"]).ok();
    node.run(&["acl", "grant", "/d", "alice", "all"]).ok();
    node.write("big", noise(3, 40 << 20));
    (node, token)
}

/// Runs a script that knows HTTPS of the node as `$U`, its own certificate as `$C`, and alice's
/// credential as `$T`.
#[track_caller]
fn sh(node: &Node, token: &str, script: &str) -> String {
    let names = format!(
        "P={} U=https://localhost:$P/d T={token} A=\"Authorization: Bearer $T\" C={}",
        node.https_port(),
        node.data().join("tls/cert.pem").display()
    );
    node.sh(&format!("{names}\n{script}"))
}

/// Makes `NAME.pem` and `NAME.key` beside the node.
fn make_certificate(node: &Node, name: &str) {
    node.sh(&format!(
        "umask 077; openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 \
         -subj /CN={name} -addext subjectAltName=DNS:localhost -keyout {name}.key -out {name}.pem 2>&1"
    ));
}

/// Returns the fingerprint of the certificate that a new connection is shown, asked for by openssl.
fn shown(node: &Node) -> String {
    let line = node.sh(&format!(
        "openssl s_client -connect 127.0.0.1:{} < /dev/null 2> /dev/null \
         | openssl x509 -noout -fingerprint -sha256",
        node.https_port()
    ));
    line.trim().rsplit('=').next().expect("a fingerprint").to_owned()
}

#[test]
fn the_nodes_own_certificate_is_closed_to_others_told_to_people_and_kept() {
    if !have("https::own", &["openssl"]) {
        return;
    }
    let mut node = Node::start();
    let mode = |name: &str| fs::metadata(node.data().join(name)).expect("it is there").mode() & 0o777;
    assert_eq!((mode("tls"), mode("tls/key.pem"), mode("tls/cert.pem")), (0o700, 0o600, 0o600));
    let first = shown(&node);
    assert!(node.log().contains(&first), "{first} is not in what people read:\n{}", node.log());
    assert!(node.log().contains(&format!("curl --cacert {}/tls/cert.pem https://", node.data().display())));
    node.stop();
    node.up();
    assert_eq!(shown(&node), first, "a new certificate at every start tells nobody anything");
    node.stop();
    // A host that it is not for.
    node.start_with(&["--host", "files.example.org"]);
    node.up();
    let second = shown(&node);
    assert_ne!(second, first);
    let names = node.sh("openssl x509 -noout -ext subjectAltName -in data/tls/cert.pem");
    assert!(names.contains("files.example.org") && names.contains("127.0.0.1"), "{names}");
    node.stop();
    // One that cannot be used any more.
    fs::write(node.data().join("tls/key.pem"), "").expect("written");
    node.up();
    assert_ne!(shown(&node), second);
}

#[test]
fn curl_wget_and_python_bring_and_fetch_over_tls_what_they_trust() {
    if !have("https::clients", &["curl", "wget", "cmp"]) {
        return;
    }
    let (node, token) = scene(Node::unstarted());
    sh(
        &node,
        &token,
        r#"curl -sSf --cacert "$C" -H "$A" -T big "$U/big"
        curl -sSf --cacert "$C" -H "$A" -T - "$U/piped" < big
        curl -sSf --cacert "$C" -u alice:wonder "$U/big" -o whole; cmp big whole
        curl -sSf --cacert "$C" -H "$A" "https://127.0.0.1:$P/d/piped" -o whole; cmp big whole
        head -c 12345678 big > part; curl -sSf --cacert "$C" -H "$A" -C - "$U/big" -o part; cmp big part
        head -c 7777777 big > again; wget -q --ca-certificate="$C" --header "$A" -c -O again "$U/big"
        cmp big again
        curl -sSf --cacert "$C" -H "$A" "$U/" | grep -q piped"#,
    );
    // Who does not know the certificate hears nothing, and neither does who speaks plainly.
    let strange = sh(&node, &token, r#"curl -s "$U/big" > /dev/null || echo "refused $?""#);
    assert_eq!(strange.trim(), "refused 60");
    let plain = sh(&node, &token, r#"curl -s "http://localhost:$P/d/big" > /dev/null || echo "refused $?""#);
    assert!(plain.trim().starts_with("refused"), "{plain}");
    let Some(python) = python_with("https::python", "httpx, requests") else { return };
    let certificate = node.data().join("tls/cert.pem");
    let url = format!("https://localhost:{}/d", node.https_port());
    let mut command = node.as_user(python);
    command.args(["-c", LIBRARIES, &url, "alice", "wonder"]).arg(certificate);
    let said = command.output().expect("it runs");
    let (out, err) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    assert_eq!(out.trim(), "good", "{err}");
}

#[test]
fn grid_tools_speak_tls_1_3() {
    if !have("https::grid", &["davix-get", "davix-put", "gfal-copy", "gfal-sum", "openssl", "cmp"]) {
        return;
    }
    let (node, token) = scene(Node::unstarted());
    // They look for authorities in a directory, by the hash of their names.
    let script = r#"mkdir -p ca; cp "$C" ca/node.pem; openssl rehash ca
        export GFAL_PYTHONBIN=/usr/bin/python3 BEARER_TOKEN=$T X509_CERT_DIR=$PWD/ca
        davix-put --capath ca -H "$A" big "$U/davix" > /dev/null
        davix-get --capath ca -H "$A" "$U/davix" davix > /dev/null; cmp big davix
        gfal-copy -f -K ADLER32 "file://$PWD/big" "$U/gfal" > /dev/null
        gfal-copy -f -K ADLER32 "$U/gfal" "file://$PWD/gfal" > /dev/null; cmp big gfal
        davix-get -H "$A" "$U/davix" strange > said 2>&1 || echo refused"#;
    assert_eq!(sh(&node, &token, script).trim(), "refused");
}

#[test]
fn another_certificate_is_taken_up_under_a_download_and_a_bad_one_is_not() {
    if !have("https::reload", &["curl", "openssl", "cmp"]) {
        return;
    }
    let mut node = Node::unstarted();
    for name in ["one", "two", "three"] {
        make_certificate(&node, name);
    }
    let put = |node: &Node, name: &str| node.sh(&format!("cp {name}.pem now.pem; cp {name}.key now.key"));
    put(&node, "one");
    let (certificate, key) = (node.path("now.pem"), node.path("now.key"));
    node.start_with(&["--tls-cert".as_ref(), certificate.as_os_str(), "--tls-key".as_ref(), key.as_os_str()]);
    node.allow("the certificate could not be renewed");
    let (node, token) = scene(node);
    assert!(!node.data().join("tls").exists(), "nobody asked for one");
    let first = shown(&node);
    sh(&node, &token, r#"curl -sSf --cacert one.pem -H "$A" -T big "$U/big""#);
    let hangup = || {
        kill_process(Pid::from_raw(node.pid() as i32).expect("an id"), Signal::HUP).expect("it runs");
    };
    let taken_up = |old: &str, within: u64| {
        let until = Instant::now() + Duration::from_secs(within);
        while shown(&node) == old {
            assert!(Instant::now() < until, "it is still shown:\n{}", node.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    std::thread::scope(|scope| {
        let download = scope.spawn(|| {
            let script =
                r#"curl -sSf --limit-rate 10M --cacert one.pem -H "$A" "$U/big" -o slow; cmp big slow"#;
            sh(&node, &token, script);
        });
        while fs::metadata(node.path("slow")).map_or(0, |slow| slow.len()) < 1 << 20 {
            std::thread::sleep(Duration::from_millis(5));
        }
        put(&node, "two");
        hangup();
        taken_up(&first, 5);
        assert!(!download.is_finished(), "it was to be under way");
        download.join().expect("it is whole");
    });
    let second = shown(&node);
    sh(&node, &token, r#"curl -sSf --cacert two.pem -H "$A" "$U/big" -o new; cmp big new"#);
    node.sh("cp three.pem now.pem");
    hangup();
    let until = Instant::now() + Duration::from_secs(5);
    while !node.log().contains("the certificate could not be renewed") {
        assert!(Instant::now() < until, "{}", node.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(shown(&node), second, "what was stays");
    // Without being asked it looks every few seconds.
    put(&node, "three");
    taken_up(&second, 30);
}

#[test]
fn what_cannot_be_served_fails_the_start_and_says_why() {
    if !have("https::refused", &["openssl"]) {
        return;
    }
    let mut node = Node::unstarted();
    for name in ["one", "two"] {
        make_certificate(&node, name);
    }
    let refused = |node: &mut Node, certificate: &str, key: &str, code: i32, words: &[&str]| {
        let (certificate, key) = (node.path(certificate), node.path(key));
        node.start_with(&[
            "--tls-cert".as_ref(),
            certificate.as_os_str(),
            "--tls-key".as_ref(),
            key.as_os_str(),
        ]);
        let Err(said) = node.try_up() else { panic!("it was to fail: {words:?}") };
        said.fails(code, words);
    };
    refused(&mut node, "one.pem", "two.key", 1, &["certificate", "one.pem"]);
    refused(&mut node, "one.pem", "none.key", 1, &["none.key"]);
    fs::set_permissions(node.path("one.key"), PermissionsExt::from_mode(0o644)).expect("it is ours");
    refused(&mut node, "one.pem", "one.key", 3, &["others can read", "one.key", "chmod 600"]);
    node.start_with(&["--tls-cert", "one.pem"]);
    let Err(said) = node.try_up() else { panic!("a certificate without its key") };
    said.fails(2, &["--tls-key"]);
    node.start_with(&["--https", "nowhere"]);
    let Err(said) = node.try_up() else { panic!("no address") };
    said.fails(2, &["off"]);
    node.start_with(&["--https", "off"]);
    node.up();
    assert!(node.ready().get("https").is_none());
    assert!(!node.data().join("tls").exists());
}
