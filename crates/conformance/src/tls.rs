//! Both sides of TLS for a test: a server with a certificate of its own, and a client that trusts it.

use std::io;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use weft_sys::net::{Socket, Tls, TlsSettings};

/// What one test secures its sockets with.
pub struct TestTls {
    /// The server's side.
    pub server: Tls,
    /// Its certificate, in PEM, which is its own authority.
    pub chain: String,
    /// Its key, in PEM.
    pub key: String,
    connector: TlsConnector,
}

impl TestTls {
    /// Makes the two sides, for a server that is called `localhost` and speaks HTTP.
    ///
    /// # Panics
    ///
    /// If a certificate cannot be made.
    pub fn new() -> Self {
        let own = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]);
        let own = own.expect("a certificate can be made");
        let (chain, key) = (own.cert.pem(), own.signing_key.serialize_pem());
        let protocols: &[&[u8]] = &[b"http/1.1"];
        let settings = TlsSettings { chain: chain.as_bytes(), key: key.as_bytes(), protocols, clients: None };
        let server = Tls::server(&settings).expect("they belong together");
        let mut roots = RootCertStore::empty();
        roots.add(own.cert.der().clone()).expect("it was just made");
        let mut config =
            ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_protocol_versions(&[&rustls::version::TLS13])
                .expect("it is supported")
                .with_root_certificates(roots)
                .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Self { server, chain, key, connector: TlsConnector::from(Arc::new(config)) }
    }

    /// Shakes hands as the client.
    pub async fn connect<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) -> io::Result<TlsStream<S>> {
        self.connector.connect(ServerName::try_from("localhost").expect("a name"), stream).await
    }

    /// Returns a secured socket and the client at its other end.
    ///
    /// # Panics
    ///
    /// If they cannot shake hands.
    pub async fn pair(&self) -> (Socket, TlsStream<Socket>) {
        let (here, there) = Socket::pair().expect("the machine has sockets");
        let (here, there) = tokio::join!(here.secured(&self.server), self.connect(there));
        (here.expect("they shake hands"), there.expect("they shake hands"))
    }
}

impl Default for TestTls {
    fn default() -> Self {
        Self::new()
    }
}
