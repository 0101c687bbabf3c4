//! HTTPS: curl for speed, since it is what people use; connections of our own for many of them.

use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::http;
use crate::Result;
use crate::machine;

/// The suite that both sides are measured with.
pub const SUITE: &str = "TLS_AES_128_GCM_SHA256";

/// A connection that is secured.
pub type Secured = StreamOwned<ClientConnection, TcpStream>;

/// Fetches a file of so many bytes by a version of HTTP (1.1 or 2) over each of some connections at once; returns
/// MB/s of all.
pub fn get_rate(
    version: &str,
    port: u16,
    certificate: &Path,
    header: &str,
    path: &str,
    bytes: u64,
    connections: usize,
) -> Result<f64> {
    let curl = machine::program("curl", "curl")?;
    let begun = Instant::now();
    let fetches = (0..connections).map(|_| {
        let mut command = Command::new(&curl);
        command.args([
            "-sSf",
            "-o",
            "/dev/null",
            "-w",
            "%{size_download} %{http_version}",
            "--tlsv1.3",
            "--tls13-ciphers",
            SUITE,
            &format!("--http{version}"),
        ]);
        command.arg("--cacert").arg(certificate).args(["-H", header]);
        command.arg(format!("https://localhost:{port}{path}")).stdin(Stdio::null()).stdout(Stdio::piped());
        command.spawn()
    });
    let fetches = fetches.collect::<std::io::Result<Vec<_>>>()?;
    let whole = format!("{bytes} {version}");
    for fetch in fetches {
        let done = fetch.wait_with_output()?;
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        if !done.status.success() || said.trim() != whole {
            return Err(format!("curl fetched {said}, not {whole}: {}", done.status).into());
        }
    }
    Ok(connections as f64 * bytes as f64 / 1e6 / begun.elapsed().as_secs_f64())
}

/// Trusts one certificate.
pub fn trusting(certificate: &Path) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate)?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
}

/// A secured connection with one answered request.
pub fn asked(client: &Arc<ClientConfig>, port: u16, headers: &str, path: &str) -> Result<Secured> {
    let session = ClientConnection::new(client.clone(), ServerName::try_from("localhost")?)?;
    http::answered(StreamOwned::new(session, http::connected(port)?), headers, path)
}
