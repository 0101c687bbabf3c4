//! Tokens of an issuer, from a real one over HTTPS, as programs and operators meet them.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use weft_conformance::run::have;

use crate::http::Http;
use crate::node::{Node, noise, python, wait};

const ISSUER: &str = include_str!("guides/issuer.py");

/// An authority, and a certificate of it for this machine, for the issuer and the node.
const AUTHORITY: &str = r#"umask 077; mkdir -p certs issuer/www; chmod 755 certs
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/O=Grid/CN=Test CA" \
        -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign -keyout ca.key -out ca.pem 2> /dev/null
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /O=Grid/CN=localhost -keyout host.key -out host.csr 2> /dev/null
    printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\n' > ext
    openssl x509 -req -in host.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ext -out host.pem 2> /dev/null
    cp ca.pem "certs/$(openssl x509 -noout -hash -in ca.pem).0"; chmod 644 ca.pem host.pem certs/*"#;

const AUDIENCE: &str = "https://node.example.net";

struct Scene {
    node: Node,
    issuer: Child,
    port: u16,
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.quench();
    }
}

impl Scene {
    /// A node that takes tokens of an issuer for the user `cms`, below `/cms`, which is that user's.
    fn open() -> Self {
        let node = Node::unstarted();
        node.sh(AUTHORITY);
        node.write("issuer.py", ISSUER);
        node.sh(&format!("{} issuer.py key issuer k1", python()));
        let (issuer, port) = serve(&node, 0);
        let mut scene = Self { node, issuer, port };
        scene.configure("");
        scene.node.up();
        scene.node.add_user("cms", "word");
        scene.node.run(&["mkdir", "-p", "/cms/in", "/other"]).ok();
        scene.node.run(&["acl", "grant", "/cms", "cms", "write"]).ok();
        scene.node.run(&["acl", "grant", "/other", "cms", "write"]).ok();
        scene
    }

    fn url(&self) -> String {
        format!("https://localhost:{}/", self.port)
    }

    fn configure(&mut self, more: &str) {
        let place = self.node.path("");
        let place = place.display();
        let text = format!(
            "hosts = [\"node.example.net\"]\n[http]\nthird-party-to = [\"127.0.0.1\", \"::1\"]\n\
             third-party-authorities = \"{place}/certs\"\n[https]\ncertificate = \"{place}/host.pem\"\nkey = \"{place}/host.key\"\n\
             [issuers.cms]\nurl = \"{}\"\nuser = \"cms\"\nbase = \"/cms\"\n{more}",
            self.url()
        );
        let config = self.node.write("weft.toml", text);
        self.node.start_with(&["--config".as_ref(), config.as_os_str()]);
    }

    fn claims(&self, scope: &str) -> Value {
        let now = now();
        json!({
            "iss": self.url(), "sub": "a1b2", "jti": "job-7", "aud": AUDIENCE, "wlcg.ver": "1.0",
            "iat": now, "nbf": now, "exp": now + 3600, "scope": scope,
        })
    }

    fn signed(&self, claims: &Value) -> String {
        let script = format!("{} issuer.py token issuer k1 '{claims}'", python());
        self.node.sh(&script).trim().to_owned()
    }

    fn token(&self, scope: &str) -> String {
        self.signed(&self.claims(scope))
    }

    fn http(&self, token: &str) -> Http {
        self.node.http(Some(token))
    }

    /// Ends the issuer.
    fn quench(&mut self) {
        // It may have ended already.
        let _ = self.issuer.kill();
        wait(&mut self.issuer);
    }

    /// What the issuer was asked for so far.
    fn asked(&self) -> String {
        std::fs::read_to_string(self.node.path("issuer/asked")).unwrap_or_default()
    }
}

fn serve(node: &Node, port: u16) -> (Child, u16) {
    let mut command = node.as_user(python());
    command.args(["issuer.py", "serve", "issuer", "https://localhost:PORT/", "host.pem", "host.key"]);
    let mut child = command
        .arg(port.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("it says its port");
    (child, line.trim().parse().expect("a port"))
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

fn can(test: &str) -> bool {
    have(test, &["openssl", python()])
}

#[test]
fn a_token_does_at_its_paths_what_its_scopes_say_and_nothing_beside() {
    if !can("issuers::scopes") {
        return;
    }
    let scene = Scene::open();
    let own = scene.http(&scene.node.token());
    assert_eq!(own.put("/cms/f", b"held").status, 201);
    assert_eq!(own.put("/cms/in/there", b"held").status, 201);
    assert_eq!(own.put("/other/f", b"held").status, 201);
    let http = scene.http(&scene.token("storage.read:/ storage.create:/in"));
    assert_eq!(http.get("/cms/f").body, b"held");
    assert_eq!(http.put("/cms/in/new", b"made").status, 201);
    assert_eq!(http.get("/cms/in/new").body, b"made");
    for (what, status) in [
        ("replacing", http.put("/cms/in/there", b"changed").status),
        ("replacing what it made", http.put("/cms/in/new", b"changed").status),
        ("making elsewhere", http.put("/cms/new", b"made").status),
        ("removing", http.delete("/cms/in/new").status),
    ] {
        assert_eq!(status, 403, "{what}");
    }
    for (what, status) in [
        ("outside the base, though its user may", http.get("/other/f").status),
        ("by a way that leads out", http.get("/cms/%2e%2e/other/f").status),
        ("making outside", http.put("/other/new", b"made").status),
    ] {
        assert!(matches!(status, 400 | 403 | 404 | 409), "{what}: {status}");
    }
    let modify = scene.http(&scene.token("storage.modify:/in"));
    assert_eq!(modify.put("/cms/in/there", b"changed").status, 204);
    assert_eq!(modify.get("/cms/in/there").status, 403, "changing is not reading");
    assert_eq!(modify.delete("/cms/in/there").status, 204);
    // Less than its scopes, where its user may less.
    scene.node.run(&["acl", "revoke", "/cms", "cms", "insert"]).ok();
    assert_eq!(http.put("/cms/in/late", b"made").status, 403);
    for (why, claims) in [
        ("another audience", json!({"aud": "https://elsewhere"})),
        ("run out", json!({"exp": now() - 3600})),
        ("no profile", json!({"wlcg.ver": "9"})),
        ("another issuer", json!({"iss": "https://localhost/"})),
    ] {
        let mut all = scene.claims("storage.read:/");
        all.as_object_mut().expect("an object").extend(claims.as_object().expect("an object").clone());
        let answer = scene.http(&scene.signed(&all)).get("/cms/f");
        assert_eq!(answer.status, 401, "{why}");
    }
    let mut forged = scene.token("storage.read:/");
    forged.truncate(forged.len() - 8);
    assert_eq!(scene.http(&forged).get("/cms/f").status, 401);
    let nothing = scene.http(&scene.token("openid")).get("/cms/f");
    assert_eq!(nothing.status, 403);
    assert_eq!(scene.asked().lines().count(), 2, "its two documents, once: {}", scene.asked());
}

#[test]
fn programs_show_a_token_as_they_show_others() {
    if !can("issuers::programs")
        || !have("issuers::programs", &["curl", "rclone", "gfal-copy", "davix-get", "cmp"])
    {
        return;
    }
    let scene = Scene::open();
    scene.node.write("big", noise(7, 5 << 20));
    let token = scene.token("storage.read:/ storage.create:/in storage.modify:/in/mine");
    let script = format!(
        r#"U=https://localhost:{} T={token}; unset BEARER_TOKEN
        export GFAL_PYTHONBIN=/usr/bin/python3 X509_CERT_DIR=$PWD/certs
        curl -sSf --cacert ca.pem -H "Authorization: Bearer $T" -T big "$U/cms/in/curl"
        curl -sSf --cacert ca.pem -H "Authorization: Bearer $T" "$U/cms/in/curl" -o whole; cmp big whole
        rclone --config /dev/null --ca-cert ca.pem --webdav-url "$U/cms" --webdav-bearer-token "$T" lsf :webdav:in
        rclone --config /dev/null --ca-cert ca.pem --webdav-url "$U/cms" --webdav-bearer-token "$T" cat :webdav:in/curl | cmp big
        BEARER_TOKEN=$T gfal-copy -K ADLER32 "file://$PWD/big" "$U/cms/in/gfal" > /dev/null
        BEARER_TOKEN=$T gfal-copy -f "$U/cms/in/gfal" "file://$PWD/copy" > /dev/null; cmp big copy
        davix-get --capath certs -H "Authorization: Bearer $T" "$U/cms/in/gfal" davix > /dev/null; cmp big davix"#,
        scene.node.https_port()
    );
    assert_eq!(scene.node.sh(&script), "curl\n");
    let listed = scene.node.run_with(&token, &["ls", "/cms/in"]).ok();
    assert_eq!(listed, "curl\ngfal\n");
    let said = scene.node.run_with(&token, &["whoami", "--json"]).json().remove(0);
    assert!(said["caller"].as_str().expect("a name").starts_with("cms@"), "{said}");
    let scopes: Vec<_> =
        said["scopes"].as_array().expect("some").iter().map(|scope| scope["path"].clone()).collect();
    assert_eq!(scopes, ["/cms", "/cms/in", "/cms/in/mine"], "{said}");
    let told = scene.node.run_with(&token, &["whoami"]).ok();
    assert!(
        told.starts_with("cms\n  at and below /cms: ") && told.contains("\n  at and below /cms/in: "),
        "{told}"
    );
    scene.node.run_with(&token, &["rm", "/cms/in/curl"]).fails(3, &["error:"]);
    scene.node.run_with(&token, &["token", "create", "mine"]).fails(3, &["not narrowed"]);
    let why = scene.node.run_with(&token, &["why", "/cms/in/curl", "=write"]);
    assert_eq!(why.code, 3, "{}{}", why.out, why.err);
    assert!(why.out.contains("issuer") || why.out.contains("credential"), "{}", why.out);
    // A login keeps what the token gives.
    let kept = scene.node.run_with(&scene.token("storage.read:/in"), &["ls", "/cms"]);
    assert_ne!(kept.code, 0, "only what is below");
    let log = scene.node.run(&["audit"]).ok();
    assert!(log.contains("issuer cms, subject `a1b2`, token `job-7`"), "{log}");
    assert!(!log.contains(&token[..40]) && !scene.node.log().contains(&token[..40]), "no token is logged");
}

#[test]
fn an_issuer_that_is_away_lets_in_nobody_new_and_keeps_those_it_let_in() {
    if !can("issuers::away") {
        return;
    }
    let mut scene = Scene::open();
    scene.node.allow("an issuer's keys cannot be had");
    scene.quench();
    let token = scene.token("storage.read:/");
    assert_eq!(scene.http(&token).get("/cms/").status, 503);
    let status = scene.node.run(&["status"]);
    assert!(status.out.contains("the keys of the issuer `cms` cannot be had"), "{}", status.out);
    scene.node.stop();
    let (issuer, port) = serve(&scene.node, scene.port);
    (scene.issuer, scene.port) = (issuer, port);
    scene.node.up();
    assert_eq!(scene.http(&token).get("/cms/").status, 200);
    scene.quench();
    assert_eq!(
        scene.http(&scene.token("storage.read:/")).get("/cms/").status,
        200,
        "by the keys that are here"
    );
    scene.node.stop();
    // Who sends on elsewhere is believed nothing.
    let (issuer, _) = serve(&scene.node, scene.port);
    scene.issuer = issuer;
    scene.node.write("issuer/moved", "");
    scene.node.write("issuer/www/elsewhere", "{}");
    scene.node.up();
    assert_eq!(scene.http(&token).get("/cms/").status, 503);
    assert!(!scene.asked().contains("/elsewhere"), "{}", scene.asked());
}

#[test]
fn what_runs_by_a_token_ends_with_it_and_with_its_user() {
    if !can("issuers::ends") || !have("issuers::ends", &["curl"]) {
        return;
    }
    let scene = Scene::open();
    let own = scene.http(&scene.node.token());
    assert_eq!(own.put("/cms/big", &noise(7, 64 << 20)).status, 201);
    let mut claims = scene.claims("storage.read:/");
    // It has run out by what clocks may differ by, but for a moment.
    claims["exp"] = json!(now() - 55);
    let download = |token: &str| {
        let mut curl = scene.node.as_user("curl");
        curl.args([
            "-s",
            "--limit-rate",
            "2M",
            "-o",
            "part",
            "-H",
            &format!("Authorization: Bearer {token}"),
        ]);
        curl.arg(format!("http://{}/cms/big", scene.node.address()));
        curl.spawn().expect("it starts")
    };
    let begun = SystemTime::now();
    let mut running = download(&scene.signed(&claims));
    assert!(!wait(&mut running).success(), "it runs on though its token has run out");
    assert!(begun.elapsed().expect("later") < Duration::from_secs(20));
    std::fs::remove_file(scene.node.path("part")).expect("it had begun");
    let mut running = download(&scene.token("storage.read:/"));
    crate::node::soon("it has begun", || {
        std::fs::metadata(scene.node.path("part")).is_ok_and(|part| part.len() > 1 << 20)
    });
    scene.node.run(&["user", "disable", "cms"]).ok();
    assert!(!wait(&mut running).success(), "it runs on though its user may not log in");
    assert_eq!(scene.http(&scene.token("storage.read:/")).get("/cms/big").status, 401);
}

#[test]
fn keys_from_a_file_need_no_issuer_and_must_be_the_operators() {
    if !can("issuers::file") {
        return;
    }
    let mut scene = Scene::open();
    let token = scene.token("storage.read:/");
    scene.node.stop();
    scene.quench();
    let keys = scene.node.path("issuer/www/jwks");
    std::fs::set_permissions(&keys, PermissionsExt::from_mode(0o644)).expect("it is there");
    scene.configure(&format!("keys = \"{}\"\n", keys.display()));
    scene.node.up();
    assert_eq!(scene.http(&token).get("/cms/").status, 200);
    scene.node.stop();
    std::fs::set_permissions(&keys, PermissionsExt::from_mode(0o666)).expect("it is there");
    let said = scene.node.try_up().expect_err("anybody could put a key there");
    assert!(said.err.contains("others can change the keys"), "{}", said.err);
    std::fs::set_permissions(&keys, PermissionsExt::from_mode(0o644)).expect("it is there");
    std::fs::write(&keys, "{\"keys\": []}").expect("written");
    let said = scene.node.try_up().expect_err("there is no key");
    assert!(said.err.contains("the keys of an issuer cannot be used"), "{}", said.err);
    // One that is no longer set lets nobody in.
    let config = scene.node.write("weft.toml", "");
    scene.node.start_with(&["--config".as_ref(), config.as_os_str()]);
    scene.node.up();
    assert_eq!(scene.http(&token).get("/cms/").status, 401);
}

#[test]
fn an_issuer_is_taken_up_and_dropped_on_sighup_and_what_it_let_in_ends_with_it() {
    if !can("issuers::sighup") || !have("issuers::sighup", &["curl"]) {
        return;
    }
    let mut scene = Scene::open();
    let config = |more: &str| {
        let text = std::fs::read_to_string(scene.node.path("weft.toml")).expect("it is there");
        let (before, _) = text.split_once("[issuers.cms]").expect("it has one");
        format!("{before}{more}")
    };
    let (with, without) = (config("[issuers.cms]\n"), config(""));
    let with = format!("{with}url = \"{}\"\nuser = \"cms\"\nbase = \"/cms\"\n", scene.url());
    let hang_up = |scene: &Scene, text: &str| {
        scene.node.write("weft.toml", text);
        let pid = rustix::process::Pid::from_raw(scene.node.pid() as i32).expect("an id");
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).expect("it runs");
    };
    let own = scene.http(&scene.node.token());
    assert_eq!(own.put("/cms/big", &noise(7, 64 << 20)).status, 201);
    let token = scene.token("storage.read:/");
    let mut curl = scene.node.as_user("curl");
    curl.args(["-s", "--limit-rate", "2M", "-o", "part", "-H", &format!("Authorization: Bearer {token}")]);
    let mut running =
        curl.arg(format!("http://{}/cms/big", scene.node.address())).spawn().expect("it starts");
    crate::node::soon("it has begun", || {
        std::fs::metadata(scene.node.path("part")).is_ok_and(|part| part.len() > 1 << 20)
    });
    hang_up(&scene, &format!("log = \"debug\"\n{with}"));
    crate::node::soon("it was read", || scene.node.log().contains("the configuration was read again"));
    assert!(running.try_wait().expect("it is ours").is_none(), "nothing of the issuer changed");
    hang_up(&scene, &without);
    assert!(!wait(&mut running).success(), "it runs on though its issuer is gone");
    assert_eq!(scene.http(&token).get("/cms/big").status, 401);
    hang_up(&scene, &with);
    crate::node::soon("it is taken again", || scene.http(&token).get("/cms/").status == 200);
    scene.node.allow("the configuration has a mistake");
    hang_up(&scene, &format!("{with}wrong = \"x\"\n"));
    crate::node::soon("it is told", || scene.node.log().contains("unknown field"));
    assert_eq!(scene.http(&token).get("/cms/").status, 200, "and what was stays");
}
