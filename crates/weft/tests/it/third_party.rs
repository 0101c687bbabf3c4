//! Third-party copies between a real node and XRootD's server, asked for by programs of the grids.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use weft_conformance::run::have;

use crate::node::{Node, give, noise, wait};

/// Where Debian keeps what XRootD loads.
const XROOTD_HTTP: &str = "libXrdHttp.so";
const XROOTD_TPC: &str = "libXrdHttpTPC.so";

/// An authority, and a certificate of it for this machine, for all servers of a test.
const AUTHORITY: &str = r#"umask 077; mkdir -p certs; chmod 755 certs
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/O=Grid/CN=Test CA" \
        -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign -keyout ca.key -out ca.pem 2> /dev/null
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /O=Grid/CN=localhost -keyout host.key -out host.csr 2> /dev/null
    printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\n' > ext
    openssl x509 -req -in host.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ext -out host.pem 2> /dev/null
    cp ca.pem "certs/$(openssl x509 -noout -hash -in ca.pem).0"; chmod 644 ca.pem host.pem certs/*"#;

/// XRootD's server, over HTTP and HTTPS on one port.
struct Xrootd {
    child: Child,
    port: u16,
    root: PathBuf,
}

impl Xrootd {
    fn start(node: &Node) -> Self {
        let (root, admin) = (node.make_dir("xrootd"), node.make_dir("xrootd.admin"));
        let (own, port) = (free_port(), free_port());
        let (shown, admin_shown) = (root.display(), admin.display());
        let place = node.path("");
        let place = place.display();
        let text = format!(
            "all.export {shown}\nall.adminpath {admin_shown}\nall.pidpath {admin_shown}\nxrd.port {own}\nxrd.network nodnr\n\
             xrd.protocol http:{port} {XROOTD_HTTP}\nhttp.listingdeny no\nhttp.desthttps no\nhttp.selfhttps2http no\n\
             xrootd.chksum adler32\nhttp.exthandler xrdtpc {XROOTD_TPC}\nxrd.tls {place}/host.pem {place}/host.key\n\
             xrd.tlsca certdir {place}/certs\n"
        );
        let config = node.write("xrootd.cfg", text);
        let mut command = node.as_user("xrootd");
        command
            .arg("-c")
            .arg(config)
            .arg("-l")
            .arg(admin.join("log"))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command.spawn().expect("xrootd starts");
        let server = Self { child, port, root };
        let begun = Instant::now();
        while TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).is_err() {
            let log = fs::read_to_string(admin.join("log")).unwrap_or_default();
            assert!(begun.elapsed() < Duration::from_secs(60), "xrootd does not answer: {log}");
            std::thread::sleep(Duration::from_millis(50));
        }
        server
    }

    fn file(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }
}

impl Drop for Xrootd {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        wait(&mut self.child);
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.local_addr().expect("it is bound").port()
}

struct Scene {
    node: Node,
    xrootd: Xrootd,
    token: String,
    bytes: Vec<u8>,
}

impl Scene {
    /// A node that may speak to this machine, XRootD beside it, and a large file on each: `big` on XRootD, `/d/big` here.
    fn open() -> Self {
        Self::speaking("on")
    }

    /// The same where HTTP/2 is offered or not: XRootD's server is left behind by it where it pushes (decision 019).
    fn speaking(http2: &str) -> Self {
        let mut node = Node::unstarted();
        node.sh(AUTHORITY);
        let place = node.path("");
        let place = place.display();
        let config = node.write(
            "weft.toml",
            format!(
                "[http]\nthird-party-to = [\"127.0.0.1\", \"::1\"]\nthird-party-authorities = \"{place}/certs\"\n\
                 [https]\ncertificate = \"{place}/host.pem\"\nkey = \"{place}/host.key\"\nhttp2 = \"{http2}\"\n"
            ),
        );
        node.start_with(&["--config".as_ref(), config.as_os_str()]);
        node.up();
        let token = node.add_user("alice", "wonder");
        node.run(&["mkdir", "/d"]).ok();
        node.run(&["acl", "grant", "/d", "alice", "all"]).ok();
        let xrootd = Xrootd::start(&node);
        let bytes = noise(5, 40 << 20);
        fs::write(xrootd.file("big"), &bytes).expect("it is written");
        give(&xrootd.file("big"));
        node.write("big", &bytes);
        let scene = Self { node, xrootd, token, bytes };
        scene.sh(r#"curl -sSf --cacert ca.pem -H "$A" -T big "$U/big""#);
        scene
    }

    /// Runs a script that knows HTTPS of the node as `$U`, XRootD's as `$X`, and alice's credential as `$T`.
    #[track_caller]
    fn sh(&self, script: &str) -> String {
        let names = format!(
            "U=https://localhost:{}/d X=https://localhost:{}/{} T={} A=\"Authorization: Bearer $T\"\n\
             export GFAL_PYTHONBIN=/usr/bin/python3 BEARER_TOKEN=$T X509_CERT_DIR=$PWD/certs",
            self.node.https_port(),
            self.xrootd.port,
            self.xrootd.root.display(),
            self.token
        );
        self.node.sh(&format!("{names}\n{script}"))
    }

    #[track_caller]
    fn assert_kept_here(&self, name: &str) {
        let script = format!(r#"curl -sSf --cacert ca.pem -H "$A" "$U/{name}" -o kept; cmp big kept"#);
        self.sh(&script);
    }

    #[track_caller]
    fn assert_kept_there(&self, name: &str) {
        assert!(fs::read(self.xrootd.file(name)).expect("it is there") == self.bytes, "{name}");
    }
}

fn programs(test: &str, more: &[&str]) -> bool {
    have(test, &[&["xrootd", "curl", "openssl", "cmp"], more].concat())
}

#[test]
fn curl_has_a_node_pull_from_xrootd_and_push_to_it() {
    if !programs("third_party::curl", &[]) {
        return;
    }
    let scene = Scene::open();
    let said = scene.sh(r#"copy() { curl -sS --fail-with-body --cacert ca.pem -H "$A" -X COPY "$@"; }
        copy -H "Source: $X/big" -H "RequireChecksumVerification: true" -H "Credential: none" "$U/pulled"
        copy -H "Destination: $X/pushed" -H "RequireChecksumVerification: true" -H "Overwrite: T" "$U/big"
        copy -H "Destination: $X/pushed" -H "Overwrite: F" "$U/big" || echo "refused $?""#);
    let ends: Vec<&str> =
        said.lines().filter(|line| line.starts_with("success") || line.starts_with("refused")).collect();
    assert_eq!(ends, ["success: Created", "success: Created", "refused 22"], "{said}");
    scene.assert_kept_here("pulled");
    scene.assert_kept_there("pushed");
}

/// Has XRootD's server copy.
const COPY: &str =
    r#"curl -sSf --cacert ca.pem -X COPY -H "TransferHeaderAuthorization: Bearer $T" -H "Credential: none""#;

#[test]
fn xrootd_pulls_from_a_node_whichever_http_is_offered() {
    if !programs("third_party::xrootd_pulls", &[]) {
        return;
    }
    for http2 in ["on", "off"] {
        let scene = Scene::speaking(http2);
        let said = scene.sh(&format!(r#"{COPY} -H "Source: $U/big" "$X/theirs""#));
        assert_eq!(said.matches("success: ").count(), 1, "{said}");
        scene.assert_kept_there("theirs");
    }
}

#[test]
fn xrootd_pushes_to_a_node_that_does_not_offer_http_2() {
    if !programs("third_party::xrootd_pushes", &[]) {
        return;
    }
    let scene = Scene::speaking("off");
    let said = scene.sh(&format!(r#"{COPY} -H "Destination: $U/given" "$X/big""#));
    assert_eq!(said.matches("success: ").count(), 1, "{said}");
    scene.assert_kept_here("given");
}

#[test]
fn gfal_copies_between_a_node_and_xrootd_without_touching_a_byte() {
    if !programs("third_party::gfal", &["gfal-copy"]) {
        return;
    }
    let scene = Scene::speaking("off");
    let said = scene.sh(r#"D=$(echo "$U" | sed s/https/davs/) Y=$(echo "$X" | sed s/https/davs/)
        go() { gfal-copy -f -vv -n 2 -K ADLER32 --copy-mode "$@" 2>&1; }
        for mode in pull push; do
            go $mode "$Y/big" "$D/in-$mode"
            go $mode "$D/big" "$Y/out-$mode"
        done"#);
    for mode in ["pull", "push"] {
        assert_eq!(said.matches(&format!("using mode 3rd {mode}")).count(), 2, "{said}");
        scene.assert_kept_here(&format!("in-{mode}"));
        scene.assert_kept_there(&format!("out-{mode}"));
    }
    assert!(!scene.node.log().contains(&scene.token), "a credential is in the log");
}

#[test]
fn a_node_speaks_to_nobody_inside_unless_its_operator_says_so() {
    if !programs("third_party::inside", &[]) {
        return;
    }
    let mut node = Node::start();
    let token = node.add_user("alice", "wonder");
    node.run(&["mkdir", "/d"]).ok();
    node.run(&["acl", "grant", "/d", "alice", "all"]).ok();
    let inside = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = inside.local_addr().expect("it is bound").port();
    inside.set_nonblocking(true).expect("it can be");
    for host in ["127.0.0.1", "localhost", "[::ffff:7f00:1]", "2130706433", "0.0.0.0"] {
        let source = format!("Source: http://{host}:{port}/f");
        let said = node.http(Some(&token)).ask("COPY", "/d/f", &[&source], b"");
        assert_eq!(said.status, 403, "{host}");
    }
    assert!(inside.accept().is_err(), "somebody came");
    node.stop();
}
