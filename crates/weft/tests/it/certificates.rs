//! Certificates of clients over HTTPS, as programs and operators meet them. The authority is openssl's.

use std::process::Child;
use std::time::{Duration, SystemTime};

use rustix::process::Signal;
use weft_conformance::run::{have, python_with};

use crate::node::{Node, noise, soon, wait};

/// An authority that keeps a list of what it has signed and revoked.
const AUTHORITY: &str = concat!(
    include_str!("authority.sh"),
    r#"
    for ca in ca other; do
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/O=Grid/CN=Test CA" \
            -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign \
            -keyout $ca.key -out $ca.pem 2> /dev/null
    done
    openssl ca -config ca.cnf -cert ca.pem -keyfile ca.key -gencrl -out none.crl 2> /dev/null"#
);

/// Makes `NAME.pem` and `NAME.key`, by the authority `CA`, for a usage, until an end.
const MAKE: &str = r#"umask 077
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "$SUBJECT" -keyout "$NAME.key" -out "$NAME.csr" 2> /dev/null
    openssl ca -batch -notext -config ca.cnf -cert $CA.pem -keyfile $CA.key -in "$NAME.csr" -out "$NAME.pem" \
        -extensions $USAGE -startdate "$(date -u -d '1 hour ago' +%Y%m%d%H%M%SZ)" \
        -enddate "$(date -u -d "$END" +%Y%m%d%H%M%SZ)" 2> "$NAME.said" || { cat "$NAME.said"; exit 1; }"#;

struct Scene {
    node: Node,
    bob: String,
}

impl Scene {
    /// A node that takes certificates of an authority for alice, who may do all below `/d`, as bob may.
    fn open(http2: &str) -> Self {
        let node = Node::unstarted();
        node.sh(AUTHORITY);
        let mut scene = Self { node, bob: String::new() };
        for name in ["Alice", "Eve"] {
            scene.make(name, "ca", "client", "1 day");
        }
        scene.write(http2, "none.crl");
        let config = scene.node.path("weft.toml");
        scene.node.start_with(&["--config".as_ref(), config.as_os_str()]);
        scene.node.up();
        scene.node.add_user("alice", "wonder");
        scene.bob = scene.node.add_user("bob", "builder");
        scene.node.run(&["mkdir", "/d", "/public"]).ok();
        scene.node.run(&["acl", "grant", "/d", "alice", "all"]).ok();
        scene.node.run(&["acl", "grant", "/d", "bob", "read,write"]).ok();
        scene.node.run(&["acl", "grant", "/public", "anyone", "read"]).ok();
        scene.node.write("big", noise(7, 8 << 20));
        scene
    }

    fn write(&self, http2: &str, list: &str) {
        let place = self.node.path("");
        let place = place.display();
        let text = format!(
            "[https]\nhttp2 = \"{http2}\"\n[https.client-authorities.grid]\ncertificates = \"{place}/ca.pem\"\n\
             revoked = \"{place}/{list}\"\n[https.client-authorities.grid.users]\n\"CN=Alice,O=Grid\" = \"alice\"\n"
        );
        self.node.write("weft.toml", text);
    }

    fn make(&self, name: &str, ca: &str, usage: &str, end: &str) {
        self.make_for(name, &format!("/O=Grid/CN={name}"), ca, usage, end);
    }

    fn make_for(&self, name: &str, subject: &str, ca: &str, usage: &str, end: &str) {
        let names = format!("NAME='{name}' SUBJECT='{subject}' CA={ca} USAGE={usage} END='{end}'");
        self.node.sh(&format!("{names}\n{MAKE}"));
    }

    /// Runs a script that knows HTTPS of the node as `$U`, its own certificate as `$C`, and how curl is alice.
    #[track_caller]
    fn sh(&self, script: &str) -> String {
        let names = format!(
            "P={} U=https://localhost:$P C={} BOB={}; ALICE=\"--cert Alice.pem --key Alice.key\"; \
             get() {{ curl -s --cacert \"$C\" -o said -w '%{{http_code}}\\n' \"$@\"; }}",
            self.node.https_port(),
            self.node.data().join("tls/cert.pem").display(),
            self.bob,
        );
        self.node.sh(&format!("{names}\n{script}"))
    }

    fn hang_up(&self) {
        let pid = rustix::process::Pid::from_raw(self.node.pid() as i32).expect("an id");
        rustix::process::kill_process(pid, Signal::HUP).expect("it runs");
    }

    /// Begins a download by a certificate that lasts a minute if nothing ends it.
    fn download(&self, name: &str) -> Child {
        let mut curl = self.node.as_user("curl");
        curl.args(["-sf", "--limit-rate", "1M", "--cacert"]).arg(self.node.data().join("tls/cert.pem"));
        let part = format!("{name}.part");
        // What an earlier one left is none of this one's.
        let _ = std::fs::remove_file(self.node.path(&part));
        curl.args(["--cert", &format!("{name}.pem"), "--key", &format!("{name}.key"), "-o", &part]);
        curl.arg(format!("https://localhost:{}/d/big", self.node.https_port()));
        let running = curl.spawn().expect("it starts");
        soon("it has begun", || {
            std::fs::metadata(self.node.path(&part)).is_ok_and(|part| part.len() > 1 << 20)
        });
        running
    }
}

fn can(test: &str) -> bool {
    have(test, &["openssl", "curl"])
}

#[test]
fn programs_show_a_certificate_and_are_whom_the_operator_says() {
    let programs = ["curl", "wget", "rclone", "gfal-copy", "davix-get", "davix-put", "cmp"];
    if !can("certificates::programs") || !have("certificates::programs", &programs) {
        return;
    }
    let scene = Scene::open("on");
    let script = r#"export GFAL_PYTHONBIN=/usr/bin/python3 X509_CERT_DIR=$PWD/certs; unset BEARER_TOKEN X509_USER_PROXY
        mkdir certs; cp "$C" certs/node.pem; openssl rehash certs
        get $ALICE -T big "$U/d/curl"; get --http1.1 $ALICE "$U/d/curl"; cmp big said
        get --http2 $ALICE -w '%{http_version}\n' "$U/d/curl"; cmp big said
        wget -q --ca-certificate="$C" --certificate=Alice.pem --private-key=Alice.key "$U/d/curl" -O wget; cmp big wget
        R="rclone --config /dev/null --ca-cert $C --client-cert Alice.pem --client-key Alice.key --webdav-url $U/d"
        $R copyto big :webdav:rclone; $R cat :webdav:rclone | cmp big
        davix-put --capath certs --cert Alice.pem --key Alice.key big "$U/d/davix" > /dev/null
        davix-get --capath certs --cert Alice.pem --key Alice.key "$U/d/davix" davix > /dev/null; cmp big davix
        export X509_USER_CERT=$PWD/Alice.pem X509_USER_KEY=$PWD/Alice.key
        gfal-copy "file://$PWD/big" "$U/d/gfal" > /dev/null; gfal-copy "$U/d/gfal" "file://$PWD/gfal" > /dev/null; cmp big gfal
        openssl x509 -noout -fingerprint -sha256 -in Alice.pem"#;
    let said = scene.sh(script);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[..3], ["201", "200", "2"], "{said}");
    let listed = scene.node.run(&["ls", "/d"]).ok();
    assert_eq!(listed, "curl\ndavix\ngfal\nrclone\n");
    assert!(scene.node.run(&["stat", "/d/curl"]).ok().contains("alice"));
    let fingerprint = lines[3].rsplit('=').next().expect("a fingerprint").replace(':', "").to_lowercase();
    let log = scene.node.run(&["audit"]).ok();
    assert!(
        log.contains(&format!("certificate grid, subject `CN=Alice,O=Grid`, sha256 {fingerprint}")),
        "{log}"
    );
    assert!(log.contains(&format!("certificate:grid.{fingerprint}")), "each act names it: {log}");

    let Some(python) = python_with("certificates::python", "requests") else { return };
    let script = format!(
        "import requests\ns = requests.Session()\ns.trust_env = False\ns.verify = '{}'\n\
         s.cert = ('Alice.pem', 'Alice.key')\nu = 'https://localhost:{}/d/python'\n\
         print(s.put(u, data=b'held').status_code, s.get(u).content, s.delete(u).status_code)",
        scene.node.data().join("tls/cert.pem").display(),
        scene.node.https_port()
    );
    let said = scene.node.as_user(python).args(["-c", &script]).output().expect("it runs");
    assert_eq!(String::from_utf8_lossy(&said.stdout).trim(), "201 b'held' 204", "{said:?}");
}

#[test]
fn what_a_request_says_counts_before_the_certificate_and_a_wrong_one_is_refused_with_the_reason() {
    if !can("certificates::which") {
        return;
    }
    let scene = Scene::open("on");
    scene.make_for("stranger", "/O=Grid/CN=Alice", "other", "client", "1 day");
    scene.make_for("server", "/O=Grid/CN=Alice", "ca", "server", "1 day");
    scene.make_for("ended", "/O=Grid/CN=Alice", "ca", "client", "1 minute ago");
    let script = r#"get $ALICE -T ca.cnf "$U/d/mine"
        get $ALICE -H "Authorization: Bearer $BOB" -T ca.cnf "$U/d/theirs"
        get $ALICE -H "Authorization: Bearer weft1.wrong" "$U/d/mine"; get $ALICE -u alice:wrong "$U/d/mine"
        get "$U/d/mine"; get "$U/public/"
        for bad in stranger server ended; do
            get --cert $bad.pem --key $bad.key "$U/public/"; cat said
            get --cert $bad.pem --key $bad.key -H "Authorization: Bearer $BOB" "$U/d/mine"
        done
        get --cert Eve.pem --key Eve.key "$U/d/mine"; cat said"#;
    let said = scene.sh(script);
    let statuses: Vec<&str> = said.lines().filter(|line| line.len() == 3).collect();
    let expected =
        ["201", "201", "401", "401", "401", "200", "401", "200", "401", "200", "401", "200", "403"];
    assert_eq!(statuses, expected, "{said}");
    for why in
        ["has not signed it", "not one for clients", "has run out", "stands for nobody here", "CN=Eve,O=Grid"]
    {
        assert!(said.contains(why), "{why}: {said}");
    }
    let owner = |path| scene.node.run(&["stat", path]).ok();
    assert!(owner("/d/mine").contains("alice") && owner("/d/theirs").contains("bob"));
    let log = scene.node.run(&["audit"]).ok();
    assert!(log.contains("certificate: the certificate, or one that vouches for it, has run out"), "{log}");
    // Who has a browser that shows the wrong one can still say who they are.
    let script = r#"B="--cert ended.pem --key ended.key"
        get $B "$U/?page=login"
        get $B -c jar -d 'user=alice&password=wonder' "$U/?page=login"; get $B -b jar "$U/d/mine"
        get $B -H 'Accept: text/html' "$U/d/mine"; grep -o 'has run out' said
        get $ALICE -H 'Accept: text/html' "$U/d/"; grep -o '>alice<' said"#;
    assert_eq!(scene.sh(script), "200\n303\n200\n401\nhas run out\n200\n>alice<\n");
}

#[test]
fn no_page_of_another_site_changes_anything_by_a_certificate_that_a_browser_shows() {
    if !can("certificates::foreign") {
        return;
    }
    let scene = Scene::open("on");
    let script = r#"O="https://localhost:$P"
        for v in --http1.1 --http2; do
            get $v $ALICE -T ca.cnf "$U/d/f"; get $v $ALICE -H "Origin: $O" -T ca.cnf "$U/d/f"
            for foreign in https://evil.example null "http://localhost:$P.evil.example" https://localhost; do
                get $v $ALICE -H "Origin: $foreign" -X PUT "$U/d/f"
                get $v $ALICE -H "Origin: $foreign" -X DELETE "$U/d/f"
                get $v $ALICE -H "Origin: $foreign" -X MOVE -H "Destination: $U/d/g" "$U/d/f"
            done
            get $v $ALICE -H "Origin: https://evil.example" "$U/d/f"
            get $v $ALICE -d 'days=1' "$U/d/f?page=link"; get $v $ALICE -H 'Origin: null' -d 'days=1' "$U/d/f?page=link"
            get $v $ALICE -H "Origin: https://evil.example" -H "Authorization: Bearer $BOB" -T ca.cnf "$U/d/f"
        done"#;
    let said = scene.sh(script);
    let once = ["201", "204"].into_iter().chain(["403"; 12]).chain(["200", "403", "403", "204"]);
    let again = once.clone().map(|status| if status == "201" { "204" } else { status });
    assert_eq!(said.lines().collect::<Vec<_>>(), once.chain(again).collect::<Vec<_>>());
    assert_eq!(scene.node.run(&["ls", "/d"]).ok(), "f\n");
}

#[test]
fn nobody_is_asked_for_a_certificate_unless_an_authority_is_set() {
    if !can("certificates::asked") {
        return;
    }
    let scene = Scene::open("on");
    let asked = || {
        let script = r#"openssl s_client -connect localhost:$P < /dev/null 2> /dev/null | grep -A1 'certificate CA names'"#;
        scene.sh(script)
    };
    assert!(
        asked().contains("O = Grid, CN = Test CA") || asked().contains("O=Grid, CN=Test CA"),
        "{}",
        asked()
    );
    scene.node.write("weft.toml", "");
    scene.hang_up();
    soon("nobody is asked any more", || asked().contains("No client certificate CA names sent"));
    assert_eq!(scene.sh(r#"get $ALICE "$U/public/"; get $ALICE "$U/d/""#), "200\n401\n", "it is not shown");
    scene.write("on", "none.crl");
    scene.hang_up();
    soon("they are asked again", || asked().contains("Test CA"));
    assert_eq!(scene.sh(r#"get $ALICE "$U/d/""#), "200\n");
}

#[test]
fn what_runs_by_a_certificate_ends_with_it_with_its_user_and_with_its_authority() {
    if !can("certificates::ends") {
        return;
    }
    let mut scene = Scene::open("on");
    scene.node.allow("the authorities of clients cannot be used");
    for name in ["two", "three"] {
        scene.make_for(name, "/O=Grid/CN=Alice", "ca", "client", "1 day");
    }
    scene.node.write("big", noise(7, 64 << 20));
    scene.sh(r#"get $ALICE -T big "$U/d/big""#);
    scene.make_for("short", "/O=Grid/CN=Alice", "ca", "client", "8 seconds");
    let begun = SystemTime::now();
    let mut running = scene.download("short");
    assert!(!wait(&mut running).success(), "it runs on though its certificate has run out");
    assert!(begun.elapsed().expect("later") < Duration::from_secs(20));

    let (mut lost, mut kept) = (scene.download("two"), scene.download("Alice"));
    let revoke = r#"openssl ca -config ca.cnf -cert ca.pem -keyfile ca.key -revoke two.pem 2> /dev/null
        openssl ca -config ca.cnf -cert ca.pem -keyfile ca.key -gencrl -out fresh.crl 2> /dev/null
        chmod 644 fresh.crl; mv fresh.crl none.crl"#;
    scene.node.sh(revoke);
    // Nobody tells it: it looks every few seconds.
    assert!(!wait(&mut lost).success(), "it runs on though its certificate was revoked");
    assert_eq!(kept.try_wait().expect("it is ours"), None, "and nobody else's does");
    let status =
        |name: &str| scene.sh(&format!(r#"get --cert {name}.pem --key {name}.key "$U/d/big" -r 0-9"#));
    assert_eq!((status("two").as_str(), status("Alice").as_str()), ("401\n", "206\n"));

    // What cannot be used changes nothing.
    scene.node.write("ca.pem.good", std::fs::read(scene.node.path("ca.pem")).expect("it is there"));
    scene.node.sh("echo garbage > ca.pem");
    scene.hang_up();
    soon("it is told", || scene.node.log().contains("the authorities of clients cannot be used"));
    assert_eq!(status("three"), "206\n");
    assert_eq!(kept.try_wait().expect("it is ours"), None);
    scene.node.sh("cp ca.pem.good ca.pem");

    scene.node.run(&["user", "disable", "alice"]).ok();
    assert!(!wait(&mut kept).success(), "it runs on though its user may not log in");
    assert_eq!(status("Alice"), "401\n");
    scene.node.run(&["user", "enable", "alice"]).ok();
    let mut running = scene.download("Alice");
    scene.node.write("weft.toml", "");
    scene.hang_up();
    assert!(!wait(&mut running).success(), "it runs on though nobody vouches for it");
}

#[test]
fn an_authority_that_others_could_change_or_that_is_none_stops_the_start() {
    if !can("certificates::start") {
        return;
    }
    let mut scene = Scene::open("off");
    scene.node.stop();
    for (script, why) in [
        ("chmod 666 ca.pem", "others can change the certificates of an authority"),
        ("chmod 644 ca.pem; cp ca.pem kept; cat ca.key > ca.pem", "there is no certificate in it"),
        ("rm ca.pem; mkfifo ca.pem", "not a regular file"),
        (
            "rm ca.pem; mv kept ca.pem; chmod 622 none.crl",
            "others can change the certificates that an authority has revoked",
        ),
        ("chmod 644 none.crl; echo > none.crl", "there is no list of revoked certificates"),
        ("cat ca.key > none.crl", "there is no list of revoked certificates"),
        ("rm none.crl", "none.crl"),
    ] {
        scene.node.sh(script);
        let said = scene.node.try_up().expect_err(why);
        assert!(said.err.contains(why), "{script}: {}", said.err);
    }
}
