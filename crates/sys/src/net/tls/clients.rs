//! Certificates of clients: asked for, and proved to be held. Who they are is not decided here.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use weft_core::limits::{CLIENT_CHAIN_BYTES_MAX, CLIENT_CHAIN_MAX, CLIENT_HINTS_BYTES_MAX};

/// Asks for a certificate, lets in whoever has none, and sees that the key of one is held: nothing else is judged in
/// the handshake, where a refusal is an alert that few programs show and that no log has the reason of.
#[derive(Debug)]
struct Asked {
    hints: Vec<DistinguishedName>,
    algorithms: WebPkiSupportedAlgorithms,
}

/// Returns what asks clients for a certificate, of the authorities of these names if they fit into a handshake.
pub(super) fn asked(hints: &[Vec<u8>]) -> Arc<dyn ClientCertVerifier> {
    let bytes: usize = hints.iter().map(|hint| hint.len() + 8).sum();
    let hints = if bytes > CLIENT_HINTS_BYTES_MAX { &[] } else { hints };
    let hints = hints.iter().map(|hint| DistinguishedName::in_sequence(hint)).collect();
    let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms;
    Arc::new(Asked { hints, algorithms })
}

impl ClientCertVerifier for Asked {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    /// Bounds what is kept with a connection, and says nothing else: see [`CertificateChain`].
    ///
    /// [`CertificateChain`]: weft_core::service::CertificateChain
    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let bytes = own.len() + others.iter().map(|other| other.len()).sum::<usize>();
        if others.len() >= CLIENT_CHAIN_MAX || bytes > CLIENT_CHAIN_BYTES_MAX {
            return Err(Error::InvalidCertificate(CertificateError::BadEncoding));
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not spoken".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, own, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
