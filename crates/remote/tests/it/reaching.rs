//! Who is spoken to, and what is said to whom.

use weft_core::ErrorKind;
use weft_remote::{Fields, From, Reach};

use crate::{kind, reaching, remote, secret};
use weft_conformance::scripted::{Scripted, say};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

fn redirect(to: &str) -> Vec<weft_conformance::scripted::Step> {
    vec![say(format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n"))]
}

#[tokio::test]
async fn nobody_inside_is_spoken_to_whatever_the_address_is_written_as() {
    let server = Scripted::open(vec![vec![say(OK)]]).await;
    let port = server.address.port();
    let remote = reaching(Reach::public(Vec::new()));
    for host in
        ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "2130706433", "0x7f.1", "127.1"]
    {
        let url = format!("http://{host}:{port}/secret").parse().expect("an address");
        let error =
            remote.download(&url, &Fields::new(), From::default(), false).await.err().expect("refused");
        assert_eq!(error.kind(), ErrorKind::Denied, "{host}: {error}");
        assert!(
            !error.to_string().contains("127.0.0.1:") || host == "127.0.0.1",
            "what it resolved to is told: {error}"
        );
    }
    assert_eq!(server.heads(), Vec::<String>::new());
}

#[tokio::test]
async fn a_redirect_is_looked_at_like_an_address() {
    // Named by the operator, 127.0.0.1 may be spoken to; where it leads, may not.
    let inside = Scripted::open(vec![vec![say(OK)]]).await;
    let one = "127.0.0.1".parse().expect("a network");
    let remote = reaching(Reach::public(vec![one]));
    for to in [
        format!("http://127.0.0.2:{}/", inside.address.port()),
        format!("http://localhost.:{}@127.0.0.2/", inside.address.port()),
        "file:///etc/passwd".to_owned(),
        "gopher://127.0.0.1/".to_owned(),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "/a b".to_owned(),
    ] {
        let server = Scripted::open(vec![redirect(&to)]).await;
        let url = server.url("/f");
        let done = remote.download(&url, &Fields::new(), From::default(), false).await;
        assert!(matches!(kind(done), ErrorKind::Denied | ErrorKind::Corrupt), "{to}");
    }
    assert_eq!(inside.heads(), Vec::<String>::new());
}

#[tokio::test]
async fn redirects_end() {
    let server = Scripted::open(vec![redirect("/again")]).await;
    let done = remote().download(&server.url("/f"), &Fields::new(), From::default(), false).await;
    assert_eq!(kind(done), ErrorKind::Loop);
    assert_eq!(server.heads().len(), weft_core::limits::REMOTE_REDIRECTS_MAX + 1);
}

#[tokio::test]
async fn what_proves_who_asks_is_never_said_to_another_server() {
    let other = Scripted::open(vec![vec![say(OK)]]).await;
    let server = Scripted::open(vec![redirect("/here"), redirect(&other.url::<String>("/there"))]).await;
    let opened = remote().download(&server.url("/f"), &secret(), From::default(), false).await;
    opened.expect("it is followed");
    let says =
        |heads: Vec<String>| heads.iter().map(|head| head.contains("Bearer secret")).collect::<Vec<_>>();
    assert_eq!((says(server.heads()), says(other.heads())), (vec![true, true], vec![false]));
}
