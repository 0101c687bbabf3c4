//! Certificates: one of a node's own, and what can be read in any.

use std::fmt::Write;
use std::net::IpAddr;
use std::time::Duration;

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose};
use sha2::{Digest, Sha256};
use weft_core::{Error, Result, Time, limits};
use x509_cert::Certificate;
use x509_cert::der::Encode;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// How far clocks of clients may be behind for a certificate that was just made.
const BEFORE: Duration = Duration::from_secs(3600);

/// A certificate and its key, in PEM.
pub struct Own {
    /// The certificate, its own authority.
    pub chain: String,
    /// The key.
    pub key: String,
}

/// What a certificate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// SHA-256 of the whole, as `openssl x509 -fingerprint -sha256` shows it.
    pub fingerprint: String,
    /// When it ends.
    pub until: Time,
    /// The hosts that it is for: names, and addresses as text.
    pub hosts: Vec<String>,
}

/// Makes a certificate for these hosts, names or addresses, that proves itself and no other.
pub fn make(hosts: &[String], now: Time) -> Result<Own> {
    let failed = |error| Error::internal("no certificate could be made").caused_by(error);
    let key = KeyPair::generate().map_err(failed)?;
    let mut params = CertificateParams::new(hosts).map_err(failed)?;
    let name = hosts.first().map_or("weft", String::as_str);
    params.distinguished_name.push(DnType::CommonName, name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let since = Duration::from_secs(u64::try_from(now.seconds()).unwrap_or(0));
    params.not_before = epoch + since.saturating_sub(BEFORE);
    params.not_after = epoch + since + limits::TLS_OWN_LIFE;
    let made = params.self_signed(&key).map_err(failed)?;
    Ok(Own { chain: made.pem(), key: key.serialize_pem() })
}

/// Reads the first certificate of a chain in PEM.
pub fn read(chain: &[u8]) -> Result<Said> {
    let failed = |error| Error::invalid("the certificate cannot be read").caused_by(error);
    let read = Certificate::load_pem_chain(chain).map_err(failed)?;
    let first = read.first().ok_or_else(|| Error::invalid("there is no certificate"))?;
    let inner = first.tbs_certificate();
    let until = inner.validity().not_after.to_unix_duration().as_secs();
    let names = inner.get_extension::<SubjectAltName>().map_err(failed)?;
    let hosts = names.map(|(_, names)| names.0.iter().filter_map(host).collect()).unwrap_or_default();
    Ok(Said {
        fingerprint: fingerprint(&first.to_der().map_err(failed)?),
        until: Time::from_unix(i64::try_from(until).unwrap_or(i64::MAX), 0),
        hosts,
    })
}

fn host(name: &GeneralName) -> Option<String> {
    match name {
        GeneralName::DnsName(name) => Some(name.as_str().to_owned()),
        GeneralName::IpAddress(bytes) => {
            let bytes = bytes.as_bytes();
            let address = match (<[u8; 4]>::try_from(bytes), <[u8; 16]>::try_from(bytes)) {
                (Ok(four), _) => IpAddr::from(four),
                (_, Ok(sixteen)) => IpAddr::from(sixteen),
                _ => return None,
            };
            Some(address.to_string())
        }
        _ => None,
    }
}

fn fingerprint(der: &[u8]) -> String {
    let mut text = String::new();
    for (at, byte) in Sha256::digest(der).iter().enumerate() {
        let colon = if at == 0 { "" } else { ":" };
        let _ = write!(text, "{colon}{byte:02X}");
    }
    text
}
