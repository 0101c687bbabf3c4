//! What is read of a certificate itself: its subject as text, whether it is a proxy, which one it is.

use data_encoding::HEXLOWER;
use weft_core::service::CertificateChain;
use weft_core::{Error, ErrorKind, Result, Time, limits};
use x509_cert::Certificate;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::der::{Decode, Encode};
use x509_cert::name::Name;

/// SHA-256 of a certificate, as `openssl x509 -fingerprint -sha256` shows it.
pub(crate) type Fingerprint = [u8; 32];

/// What marks a proxy certificate (RFC 3820), and what marked one in the drafts of it that the grid still has.
const PROXY: [ObjectIdentifier; 2] = [
    ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.1.14"),
    ObjectIdentifier::new_unwrap("1.3.6.1.4.1.3536.1.222"),
];
/// What the subject of the oldest proxies ends with, which nothing else marks.
const LEGACY: [&str; 2] = ["CN=proxy", "CN=limited proxy"];

/// Returns which certificate the first of a chain is.
pub(crate) fn fingerprint(chain: &CertificateChain) -> Fingerprint {
    let hash = ring::digest::digest(&ring::digest::SHA256, &chain.own);
    hash.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// Returns what the authority has signed of the first certificate of a chain: another signature of the same is no other
/// certificate, and whoever has one of ECDSA can make another. Fails with `Unauthenticated`.
pub(crate) fn signed_part(chain: &CertificateChain) -> Result<Vec<u8>> {
    let certificate = read(&chain.own)?;
    certificate.tbs_certificate().to_der().map_err(unreadable)
}

pub(crate) fn hex(fingerprint: &Fingerprint) -> String {
    HEXLOWER.encode(fingerprint)
}

/// Reads a certificate. Fails with `Unauthenticated`.
pub(super) fn read(der: &[u8]) -> Result<Certificate> {
    Certificate::from_der(der).map_err(unreadable)
}

fn unreadable(error: x509_cert::der::Error) -> Error {
    Error::new(ErrorKind::Unauthenticated, "the certificate cannot be read").caused_by(error)
}

/// Returns when a certificate ends.
pub(super) fn ends(certificate: &Certificate) -> Time {
    let seconds = certificate.tbs_certificate().validity().not_after.to_unix_duration().as_secs();
    Time::from_unix(i64::try_from(seconds).unwrap_or(i64::MAX), 0)
}

/// Returns a certificate's subject as text, the last of its parts first (RFC 4514). Two subjects have one text only if
/// their parts have the same texts.
pub(super) fn said(certificate: &Certificate) -> String {
    certificate.tbs_certificate().subject().to_string()
}

/// Fails for a certificate by which somebody lets another act for them.
pub(super) fn check_no_proxy(certificate: &Certificate) -> Result<()> {
    let inner = certificate.tbs_certificate();
    let marked =
        inner.extensions().is_some_and(|all| all.iter().any(|extension| PROXY.contains(&extension.extn_id)));
    let (subject, issuer) = (inner.subject().to_string(), inner.issuer().to_string());
    let old = LEGACY.iter().any(|end| subject.strip_prefix(end) == Some(&format!(",{issuer}")));
    if marked || old {
        let error = Error::new(ErrorKind::Unauthenticated, "it is a proxy certificate: those are not taken");
        return Err(error.hint("show the certificate that the proxy was made of"));
    }
    Ok(())
}

/// Returns a subject that somebody wrote as it is compared with those of certificates. Fails with `Invalid`.
pub fn subject_of(text: &str) -> Result<String> {
    let wrong = || {
        Error::invalid("it is no subject")
            .hint("as `openssl x509 -noout -subject -nameopt RFC2253` shows it: CN=Alice,O=Lab,C=NL")
    };
    let plain = |name: &Name| name.to_string();
    if text.is_empty() || text.len() > limits::CLIENT_SUBJECT_BYTES_MAX {
        return Err(wrong());
    }
    let said = text.parse::<Name>().map(|name| plain(&name)).map_err(|_| wrong())?;
    // What is not read as it was written is read as somebody else's.
    match said.parse::<Name>() {
        Ok(again) if plain(&again) == said => Ok(said),
        _ => Err(wrong()),
    }
}
