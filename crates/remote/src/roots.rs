//! Whom a server must be vouched for by.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;
use weft_core::{Error, Result};

/// Whom a server must be vouched for by: the authorities that the machine believes, and some more.
#[derive(Clone, Debug, Default)]
pub struct Roots {
    /// A file of certificates in PEM, or a directory of them named by their hashes, as grids and OpenSSL keep them.
    pub also: Option<PathBuf>,
}

impl Roots {
    pub(crate) fn connector(&self) -> Result<TlsConnector> {
        let mut store = RootCertStore::empty();
        // What of the machine's own cannot be read is as if it were not there.
        let (good, _) = store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if let Some(path) = &self.also {
            let (added, _) = store.add_parsable_certificates(read(path)?);
            if added == 0 && good == 0 {
                return Err(none(path));
            }
        }
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
            .map_err(|error| Error::internal("TLS cannot be set up").caused_by(error))?;
        let mut config = config.with_root_certificates(store).with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsConnector::from(Arc::new(config)))
    }
}

fn read(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let (file, directory) = if path.is_dir() { (None, Some(path)) } else { (Some(path), None) };
    let read = rustls_native_certs::load_certs_from_paths(file, directory);
    match read.errors.into_iter().next() {
        _ if !read.certs.is_empty() => Ok(read.certs),
        Some(error) => Err(none(path).caused_by(error)),
        None => Err(none(path)),
    }
}

fn none(path: &Path) -> Error {
    Error::invalid("there are no certificates of authorities")
        .about(path.display())
        .hint("name a file of certificates in PEM, or a directory of them named by their hashes")
}
