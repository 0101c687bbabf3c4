//! The suites over TLS: run a second time, by this program itself, with every house secured.

use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, OnceLock};

use weft_conformance::TestTls;
use weft_doors_http::protocols;
use weft_doors_listener::{Files, Identity};

/// Set where houses are secured.
const SECURED: &str = "WEFT_HOUSES_SECURED";
/// What is run over TLS. The others look at the machine, or speak through programs; those are
/// tried over TLS on a real node.
const SUITES: [&str; 6] = ["conditions::", "framing::", "identity::", "listing::", "plain::", "stalled::"];
/// What of these speaks past the suites' client.
const SKIPPED: [&str; 2] = ["who_has_too_many_connections", "idle_connections"];

/// Returns what houses are secured with, if they are.
pub fn tls() -> Option<&'static TestTls> {
    static TLS: OnceLock<Option<TestTls>> = OnceLock::new();
    TLS.get_or_init(|| std::env::var_os(SECURED).map(|_| TestTls::new())).as_ref()
}

/// Returns it as a listener takes it.
pub fn identity(tls: &TestTls) -> Arc<Identity> {
    let dir = tempfile::tempdir().expect("a directory");
    let files = Files { chain: dir.path().join("cert"), key: dir.path().join("key") };
    std::fs::write(&files.chain, &tls.chain).expect("it is written");
    std::fs::write(&files.key, &tls.key).expect("it is written");
    std::fs::set_permissions(&files.key, PermissionsExt::from_mode(0o600)).expect("it is ours");
    Identity::load(files, protocols(true)).expect("it is good")
}

#[test]
fn the_suites_hold_over_tls() {
    let mut again = std::process::Command::new(std::env::current_exe().expect("it is a file"));
    again.args(SUITES).env(SECURED, "1");
    for skipped in SKIPPED {
        again.args(["--skip", skipped]);
    }
    let done = again.output().expect("it runs");
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{said}\n{}", String::from_utf8_lossy(&done.stderr));
    let passed = said.lines().filter(|line| line.ends_with("... ok")).count();
    assert!(passed >= 35, "{passed} of them were run: {said}");
}
