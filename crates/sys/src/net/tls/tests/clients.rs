//! Certificates of clients: asked for, proved to be held, and judged by nobody here.

use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weft_core::limits::{CLIENT_CHAIN_BYTES_MAX, CLIENT_CHAIN_MAX, CLIENT_HINTS_BYTES_MAX};

use super::*;

/// A client that shows this, and tells what it was asked for.
#[derive(Debug)]
struct Shows {
    key: Option<Arc<CertifiedKey>>,
    hints: std::sync::Mutex<Option<usize>>,
}

impl ResolvesClientCert for Shows {
    fn resolve(&self, hints: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        *self.hints.lock().expect("whole") = Some(hints.len());
        self.key.clone()
    }

    fn has_certs(&self) -> bool {
        self.key.is_some()
    }
}

fn made() -> (rcgen::Certificate, rcgen::KeyPair) {
    let made = rcgen::generate_simple_self_signed(["alice".to_owned()]).expect("a certificate");
    (made.cert, made.signing_key)
}

fn certified(certificates: &[&rcgen::Certificate], key: &rcgen::KeyPair) -> Arc<CertifiedKey> {
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let key = rustls::crypto::ring::sign::any_supported_type(&key).expect("a key");
    let chain = certificates.iter().map(|one| one.der().clone()).collect();
    Arc::new(CertifiedKey::new(chain, key))
}

/// Shakes hands. Returns the server's socket, if it came to one, and how many authorities the client was told of.
async fn met(sides: &Sides, key: Option<Arc<CertifiedKey>>) -> (std::io::Result<Socket>, Option<usize>) {
    met_by(sides, Arc::new(Shows { key, hints: std::sync::Mutex::default() })).await
}

/// The same, by one client that may come again.
async fn met_by(sides: &Sides, shows: Arc<Shows>) -> (std::io::Result<Socket>, Option<usize>) {
    let mut client = (*sides.client).clone();
    client.client_auth_cert_resolver = shows.clone();
    client.resumption = sides.client.resumption.clone();
    let (here, there) = Socket::pair().expect("a pair");
    let connector = TlsConnector::from(Arc::new(client));
    let server = async {
        let mut socket = here.secured(&sides.tls).await?;
        socket.write_all(b"x").await?;
        Ok(socket)
    };
    // A client is done before the server is, and hears of a refusal where it reads.
    let client = async {
        if let Ok(mut there) = connector.connect(name(), there).await {
            let _ = there.read_u8().await;
        }
    };
    let (server, ()) = tokio::join!(server, client);
    (server, shows.hints.lock().expect("whole").take())
}

#[tokio::test]
async fn who_shows_a_certificate_has_proved_to_hold_its_key_and_who_has_none_gets_in() {
    let sides = sides_asking(Some(&[]));
    let ((own, key), (other, another)) = (made(), made());
    let (socket, asked) = met(&sides, None).await;
    assert_eq!((socket.expect("nobody needs one").certificate(), asked), (None, Some(0)));
    let (socket, asked) = met(&sides, Some(certified(&[&own, &other], &key))).await;
    let shown = socket.expect("its key is held").certificate().expect("it was shown");
    assert_eq!((&shown.own[..], shown.others.len(), asked), (&own.der()[..], 1, Some(0)));
    assert_eq!(shown.others[0][..], other.der()[..]);
    let (socket, _) = met(&sides, Some(certified(&[&own], &another))).await;
    socket.map(drop).expect_err("somebody else's certificate proves nothing");
    let (socket, _) = met(&super::sides(), Some(certified(&[&own], &key))).await;
    assert_eq!(socket.expect("nobody was asked").certificate(), None);
}

#[tokio::test]
async fn a_connection_that_is_resumed_has_the_certificate_of_the_one_before() {
    let sides = sides_asking(Some(&[]));
    let (own, key) = made();
    let key = Some(certified(&[&own], &key));
    let shows = Arc::new(Shows { key, hints: std::sync::Mutex::default() });
    let (_, asked) = met_by(&sides, shows.clone()).await;
    assert_eq!(asked, Some(0));
    let (socket, asked) = met_by(&sides, shows).await;
    assert_eq!(asked, None, "it was not asked again");
    assert_eq!(socket.expect("they resume").certificate().expect("it is known").own[..], own.der()[..]);
}

#[tokio::test]
async fn what_is_shown_is_bounded_and_too_many_authorities_are_not_told() {
    let (own, key) = made();
    let chain = [&own; CLIENT_CHAIN_MAX + 1];
    for (count, good) in [(CLIENT_CHAIN_MAX, true), (CLIENT_CHAIN_MAX + 1, false)] {
        let (socket, _) = met(&sides_asking(Some(&[])), Some(certified(&chain[..count], &key))).await;
        assert_eq!(socket.is_ok(), good, "{count}");
    }
    let mut large = rcgen::CertificateParams::new(Vec::new()).expect("good");
    large
        .custom_extensions
        .push(rcgen::CustomExtension::from_oid_content(&[2, 5, 29, 99], vec![0; CLIENT_CHAIN_BYTES_MAX]));
    let large = large.self_signed(&key).expect("it is signed");
    met(&sides_asking(Some(&[])), Some(certified(&[&large], &key))).await.0.map(drop).expect_err("too large");
    let hint = vec![vec![0x31; 64]; 3];
    let (_, asked) = met(&sides_asking(Some(&hint)), Some(certified(&[&own], &key))).await;
    assert_eq!(asked, Some(3));
    let hints = vec![vec![0x31; 64]; CLIENT_HINTS_BYTES_MAX / 64];
    let (socket, asked) = met(&sides_asking(Some(&hints)), Some(certified(&[&own], &key))).await;
    assert_eq!(asked, Some(0), "a handshake has no room for them");
    socket.expect("it is asked for one of any");
}
