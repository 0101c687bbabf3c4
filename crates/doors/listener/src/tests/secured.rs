//! Listening with an identity: who gets in, who does not, and what changes while it runs.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use weft_conformance::TestTls;
use weft_conformance::run::have;
use weft_core::ErrorKind;

use super::*;

const PROTOCOLS: &[&[u8]] = &[b"http/1.1"];

/// Puts an identity's files into a directory, the key closed to others.
fn put(dir: &Path, chain: &str, key: &str) -> Files {
    let files = Files { chain: dir.join("cert.pem"), key: dir.join("key.pem") };
    for (path, text) in [(&files.chain, chain), (&files.key, key)] {
        // A new file, as whoever renews them makes it.
        let fresh = path.with_extension("new");
        std::fs::write(&fresh, text).expect("it is written");
        std::fs::set_permissions(&fresh, PermissionsExt::from_mode(0o600)).expect("it is ours");
        std::fs::rename(&fresh, path).expect("it is ours");
    }
    files
}

struct Scene {
    tls: TestTls,
    dir: tempfile::TempDir,
    identity: Arc<Identity>,
    address: SocketAddr,
    sys: Sys,
    _stopper: Stopper,
}

async fn scene(bounds: Bounds) -> Scene {
    let (tls, dir) = (TestTls::new(), tempfile::tempdir().expect("a directory"));
    let identity = Identity::load(put(dir.path(), &tls.chain, &tls.key), PROTOCOLS).expect("it is good");
    let (listener, address, sys) = listen(bounds).await;
    let (stopper, shutdown) = shutdown();
    let listener = listener.secured(identity.clone());
    tokio::spawn(listener.serve(shutdown, Bytes::from_static(b"no"), echo));
    Scene { tls, dir, identity, address, sys, _stopper: stopper }
}

async fn connect(tls: &TestTls, address: SocketAddr) -> std::io::Result<TlsStream<TcpStream>> {
    tls.connect(TcpStream::connect(address).await?).await
}

async fn echoes(stream: &mut TlsStream<TcpStream>) -> bool {
    stream.write_u8(7).await.is_ok() && stream.read_u8().await.is_ok_and(|byte| byte == 7)
}

#[tokio::test]
async fn guests_are_secured_and_who_says_nothing_is_gone_after_a_while_and_not_before() {
    let scene = scene(Bounds::default()).await;
    let mut guest = connect(&scene.tls, scene.address).await.expect("they shake hands");
    assert!(echoes(&mut guest).await);
    assert_eq!(guest.get_ref().1.alpn_protocol(), Some(PROTOCOLS[0]));
    let mut silent = TcpStream::connect(scene.address).await.expect("it connects");
    let mut plain = TcpStream::connect(scene.address).await.expect("it connects");
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("it is sent");
    let mut answer = Vec::new();
    plain.read_to_end(&mut answer).await.expect("it is closed");
    assert_eq!(answer[..1], [21], "an alert, and nothing of the door: {answer:?}");
    // Its timer stands once it has been waited for.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let clock = scene.sys.sim_clock().expect("it is simulated");
    clock.step(limits::TLS_HANDSHAKE_WITHIN - Duration::from_secs(1));
    let early = tokio::time::timeout(Duration::from_millis(50), silent.read_u8()).await;
    assert!(early.is_err(), "it still has a second");
    clock.step(Duration::from_secs(2));
    let ended = tokio::time::timeout(Duration::from_secs(20), silent.read_u8()).await;
    assert!(ended.expect("it ends").is_err());
    assert!(echoes(&mut guest).await, "who has shaken hands stays");
}

#[tokio::test]
async fn who_is_turned_away_is_told_over_tls() {
    let bounds = Bounds { connections_each: 1, connections_loopback: 1, ..Bounds::default() };
    let scene = scene(bounds).await;
    let mut guest = connect(&scene.tls, scene.address).await.expect("they shake hands");
    assert!(echoes(&mut guest).await);
    let mut other = connect(&scene.tls, scene.address).await.expect("they shake hands");
    let mut answer = Vec::new();
    other.read_to_end(&mut answer).await.expect("the end is said");
    assert_eq!(answer, b"no");
}

#[tokio::test]
async fn new_files_are_taken_without_a_restart_and_bad_ones_are_not() {
    let scene = scene(Bounds::default()).await;
    let mut old = connect(&scene.tls, scene.address).await.expect("they shake hands");
    assert!(echoes(&mut old).await);
    assert!(!scene.identity.refresh(false).expect("they are good"), "nothing changed");
    let next = TestTls::new();
    // A key that belongs to nothing: somebody is in the middle of it.
    put(scene.dir.path(), &next.chain, &scene.tls.key);
    assert_eq!(scene.identity.refresh(false).expect_err("they do not match").kind(), ErrorKind::Invalid);
    assert!(!scene.identity.refresh(false).expect("it was told once"), "nothing changed since");
    connect(&scene.tls, scene.address).await.expect("what was stays");
    put(scene.dir.path(), &next.chain, &next.key);
    assert!(scene.identity.refresh(false).expect("they are good"));
    let mut new = connect(&next, scene.address).await.expect("the new one is shown");
    assert!(echoes(&mut new).await);
    assert!(connect(&scene.tls, scene.address).await.is_err(), "the old one is not shown any more");
    assert!(echoes(&mut old).await, "who is there stays");
    std::fs::remove_file(scene.dir.path().join("cert.pem")).expect("it is ours");
    assert_eq!(scene.identity.refresh(false).expect_err("it is gone").kind(), ErrorKind::NotFound);
    connect(&next, scene.address).await.expect("what was stays");
}

#[test]
fn a_key_that_others_can_read_is_refused_and_a_link_to_one_that_they_cannot_is_followed() {
    let (tls, dir) = (TestTls::new(), tempfile::tempdir().expect("a directory"));
    let files = put(dir.path(), &tls.chain, &tls.key);
    for (mode, good) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false), (0o660, false)] {
        std::fs::set_permissions(&files.key, PermissionsExt::from_mode(mode)).expect("it is ours");
        let loaded = Identity::load(files.clone(), PROTOCOLS).map(drop);
        match loaded {
            Ok(()) => assert!(good, "{mode:o}"),
            Err(error) => {
                assert!(!good && error.kind() == ErrorKind::NotPermitted, "{mode:o}: {error}");
                assert!(error.to_string().contains("others can read"), "{error}");
            }
        }
    }
    std::fs::set_permissions(&files.key, PermissionsExt::from_mode(0o600)).expect("it is ours");
    let link = dir.path().join("newest.pem");
    std::os::unix::fs::symlink(&files.key, &link).expect("it is made");
    Identity::load(Files { key: link, ..files.clone() }, PROTOCOLS).map(drop).expect("it is good");
    for (chain, key) in
        [(dir.path().join("none"), files.key.clone()), (files.chain.clone(), dir.path().join("none"))]
    {
        let loaded = Identity::load(Files { chain, key }, PROTOCOLS).map(drop);
        assert_eq!(loaded.expect_err("there is none").kind(), ErrorKind::NotFound);
    }
}

#[test]
fn a_certificate_of_ones_own_says_what_it_was_made_for() {
    let hosts = ["files.example.org", "localhost", "127.0.0.1", "2001:db8::7"].map(str::to_owned);
    let now = weft_core::Time::from_unix(1_800_000_000, 0);
    let own = certificate::make(&hosts, now).expect("it is made");
    let said = certificate::read(own.chain.as_bytes()).expect("it can be read");
    assert_eq!((said.hosts.as_slice(), said.until), (&hosts[..], now.plus(limits::TLS_OWN_LIFE)));
    assert_eq!(said.fingerprint.len(), 32 * 3 - 1);
    for spoilt in ["", "x", &own.key, &own.chain[..own.chain.len() / 2]] {
        assert_eq!(certificate::read(spoilt.as_bytes()).expect_err("it is none").kind(), ErrorKind::Invalid);
    }
    if !have("secured::openssl", &["openssl"]) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("cert.pem");
    std::fs::write(&path, &own.chain).expect("it is written");
    let mut command = Command::new("openssl");
    command.args(["x509", "-noout", "-fingerprint", "-sha256", "-in"]).arg(&path);
    let shown = command.output().expect("it runs");
    assert!(String::from_utf8_lossy(&shown.stdout).contains(&said.fingerprint), "{shown:?}");
}

/// Runs `openssl s_client`, which sends a byte and ends; returns whether it came to speak, and
/// what it said.
async fn s_client(scene: &Scene, options: &[&str]) -> (bool, String) {
    let mut command = Command::new("timeout");
    command.args(["20", "openssl", "s_client", "-connect", &scene.address.to_string()]);
    command.args(["-servername", "localhost", "-verify_return_error", "-CAfile"]);
    command.arg(scene.dir.path().join("cert.pem")).args(options).stdin(std::process::Stdio::null());
    let done = tokio::task::spawn_blocking(move || command.output()).await.expect("it runs");
    let done = done.expect("`timeout` is installed");
    let said = [done.stdout, done.stderr].concat();
    (done.status.success(), String::from_utf8_lossy(&said).into_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_versions_and_weak_suites_are_refused_and_each_of_the_three_is_spoken() {
    if !have("secured::openssl_versions", &["openssl"]) {
        return;
    }
    let scene = scene(Bounds::default()).await;
    for suite in ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"] {
        let (good, said) = s_client(&scene, &["-tls1_3", "-ciphersuites", suite]).await;
        assert!(good && said.contains(&format!("TLSv1.3, Cipher is {suite}")), "{suite}: {said}");
        assert!(said.contains("Verification: OK"), "{suite}: {said}");
    }
    // The client itself would speak them: at level 0 it forbids nothing.
    let weak =
        ["DEFAULT@SECLEVEL=0", "NULL@SECLEVEL=0", "RC4@SECLEVEL=0", "3DES@SECLEVEL=0", "ALL:@SECLEVEL=0"];
    for version in ["-tls1", "-tls1_1", "-tls1_2"] {
        for suite in weak {
            let (good, said) = s_client(&scene, &[version, "-cipher", suite]).await;
            assert!(!good, "{version} {suite}: {said}");
            // What this build of it does not have was not tried.
            let tried = said.contains("SSL alert number");
            let lacks = said.contains("no cipher match") || said.contains("no ciphers available");
            assert!(tried || lacks, "{version} {suite}: {said}");
            assert!(tried || suite != weak[0], "{version}: {said}");
        }
    }
    for gone in ["-ssl3"] {
        let (good, said) = s_client(&scene, &[gone]).await;
        assert!(!good, "{gone}: {said}");
    }
    let (good, said) = s_client(&scene, &["-tls1_3", "-alpn", "h3,http/1.1"]).await;
    assert!(good && said.contains("ALPN protocol: http/1.1"), "{said}");
    let (good, said) = s_client(&scene, &["-tls1_3", "-alpn", "h3"]).await;
    assert!(!good && said.contains("no application protocol"), "{said}");
}

#[tokio::test]
async fn whoever_comes_again_may_go_on_with_a_ticket_until_the_files_change() {
    let scene = scene(Bounds::default()).await;
    let kind = async |tls: &TestTls| {
        let mut stream = connect(tls, scene.address).await.expect("they shake hands");
        assert!(echoes(&mut stream).await);
        let kind = stream.get_ref().1.handshake_kind().expect("they shook hands");
        format!("{kind:?}")
    };
    assert_eq!(kind(&scene.tls).await, "Full");
    assert_eq!(kind(&scene.tls).await, "Resumed");
    assert!(scene.identity.refresh(true).expect("they are good"));
    assert_eq!(kind(&scene.tls).await, "Full", "a ticket of the time before");
}
