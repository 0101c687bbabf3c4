//! Whom others vouch for: an issuer of tokens, whose keys the node has from a file, and an authority of
//! certificates. Both are openssl's.

use std::time::{SystemTime, UNIX_EPOCH};

use super::right_at;
use crate::node::{Node, python};

const ISSUER: &str = include_str!("../../guides/issuer.py");

/// What is needed on this machine.
pub fn programs() -> [&'static str; 2] {
    ["openssl", python()]
}

/// The user that the issuer's tokens act for, and that of the authority's certificates.
pub const USERS: [&str; 2] = ["ian", "cora"];

/// Where the certificate and its key lie beside the node.
pub const CERTIFICATE: [(&str, &str); 2] = [("cert", "cora.pem"), ("key", "cora.key")];

const MAKE: &str = r#"umask 022; mkdir -p issuer/www
    P="-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
    openssl req -x509 $P -days 2 -subj "/O=Grid/CN=CA" -addext basicConstraints=critical,CA:TRUE \
        -addext keyUsage=critical,keyCertSign,cRLSign -keyout ca.key -out ca.pem 2> /dev/null
    openssl req $P -subj /O=Grid/CN=Cora -keyout cora.key -out cora.csr 2> /dev/null
    echo extendedKeyUsage=clientAuth > ext
    openssl x509 -req -in cora.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ext -out cora.pem 2> /dev/null"#;

const URL: &str = "https://issuer.example.org/";

/// Has a node that is not started yet believe them. What the issuer's tokens reach begins at `/issuer`.
pub fn furnish(node: &mut Node) {
    node.write("issuer.py", ISSUER);
    node.sh(&format!("{MAKE}\n{} issuer.py key issuer k1", python()));
    let [ian, cora] = USERS;
    let place = node.path("");
    let place = place.display();
    let text = format!(
        "hosts = [\"node.example.net\"]\n\
         [issuers.cms]\nurl = \"{URL}\"\nuser = \"{ian}\"\nbase = \"/issuer\"\nkeys = \"{place}/issuer/www/jwks\"\n\
         [https.client-authorities.grid]\ncertificates = \"{place}/ca.pem\"\nuser = \"{cora}\"\n"
    );
    let config = node.write("weft.toml", text);
    node.start_with(&["--config".as_ref(), config.as_os_str()]);
}

/// Returns the scopes of a token that gives a right, if scopes give that, and what its operation at some
/// door needs as well; or one that gives others.
pub fn scopes(name: &str, side: &str) -> &'static str {
    match (right_at(name), side) {
        ("list" | "traverse" | "attr-read", "with") => "storage.read:/",
        ("read" | "insert", "with") => "storage.read:/ storage.create:/",
        ("read" | "list", _) => "storage.modify:/",
        // Whoever may do something at a path may look there.
        ("traverse" | "attr-read", _) => "storage.read:/elsewhere",
        ("insert", _) => "storage.read:/",
        ("write" | "append" | "remove" | "rename" | "attr-write" | "lock", "without") => {
            "storage.read:/ storage.create:/"
        }
        _ => "storage.read:/ storage.modify:/",
    }
}

/// Returns a token of the issuer.
pub fn token(node: &Node, scopes: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let claims = serde_json::json!({
        "iss": URL, "sub": "a1b2", "aud": "https://node.example.net", "wlcg.ver": "1.0",
        "iat": now, "nbf": now, "exp": now + 3600, "scope": scopes,
    });
    node.sh(&format!("{} issuer.py token issuer k1 '{claims}'", python())).trim().to_owned()
}
