//! One authority: its certificates, what it has revoked, and the path that leads from a client's certificate to it.

use std::time::Duration;

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, TrustAnchor, UnixTime};
use webpki::{
    ALL_VERIFICATION_ALGS, CertRevocationList, EndEntityCert, ExpirationPolicy, KeyUsage,
    OwnedCertRevocationList, RevocationOptionsBuilder, VerifiedPath,
};
use weft_core::service::CertificateChain;
use weft_core::{Error, ErrorKind, Result, Time};

use super::{Admitted, ClientAuthoritySettings, subject};
use crate::issuers::ActsFor;

/// An authority that can be asked.
pub(super) struct ClientAuthority {
    name: String,
    acts_for: ActsFor,
    anchors: Vec<TrustAnchor<'static>>,
    /// When each of those ends.
    ends: Vec<Time>,
    revoked: Vec<CertRevocationList<'static>>,
}

impl ClientAuthority {
    pub(super) fn read(settings: &ClientAuthoritySettings) -> Result<Self> {
        let failed = |what: &'static str| move |error| Error::invalid(what).caused_by(error);
        let certificates: Vec<CertificateDer<'_>> = CertificateDer::pem_slice_iter(&settings.certificates)
            .collect::<std::result::Result<_, _>>()
            .map_err(|error| Error::invalid("the certificates are not PEM").caused_by(error))?;
        if certificates.is_empty() {
            return Err(Error::invalid("there is no certificate in it"));
        }
        let (mut anchors, mut ends) = (Vec::new(), Vec::new());
        for certificate in &certificates {
            let anchor = webpki::anchor_from_trusted_cert(certificate);
            anchors.push(anchor.map_err(failed("a certificate is no authority's"))?.to_owned());
            ends.push(subject::ends(&subject::read(certificate)?));
        }
        let lists = settings.revoked.as_deref().unwrap_or_default();
        let lists: Vec<CertificateRevocationListDer<'_>> =
            CertificateRevocationListDer::pem_slice_iter(lists)
                .collect::<std::result::Result<_, _>>()
                .map_err(|error| {
                    Error::invalid("the lists of revoked certificates are not PEM").caused_by(error)
                })?;
        if lists.is_empty() && settings.revoked.is_some() {
            return Err(Error::invalid("there is no list of revoked certificates in it"));
        }
        let revoked = lists.iter().map(|list| OwnedCertRevocationList::from_der(list).map(Into::into));
        let revoked = revoked
            .collect::<std::result::Result<_, webpki::Error>>()
            .map_err(failed("a list of revoked certificates cannot be used"))?;
        let (name, acts_for) = (settings.name.clone(), settings.acts_for.clone());
        Ok(Self { name, acts_for, anchors, ends, revoked })
    }

    /// Returns the names of its certificates: DER, without its outermost head.
    pub(super) fn names(&self) -> impl Iterator<Item = Vec<u8>> + '_ {
        self.anchors.iter().map(|anchor| anchor.subject.as_ref().to_vec())
    }

    /// Verifies a certificate. Returns until when it can be believed.
    pub(super) fn verify(
        &self,
        chain: &CertificateChain,
        now: Time,
    ) -> std::result::Result<Time, webpki::Error> {
        let der = |bytes: &'_ [u8]| CertificateDer::from(bytes.to_vec());
        let (own, others) =
            (der(&chain.own), chain.others.iter().map(|other| der(other)).collect::<Vec<_>>());
        let end = EndEntityCert::try_from(&own)?;
        let lists: Vec<&CertRevocationList<'_>> = self.revoked.iter().collect();
        let revocation = RevocationOptionsBuilder::new(&lists)
            .ok()
            .map(|builder| builder.with_expiration_policy(ExpirationPolicy::Enforce).build());
        let seconds = u64::try_from(now.seconds()).unwrap_or(0);
        let at = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let lasts = |path: &VerifiedPath<'_>| match self.until(path)? {
            until if until < now => Err(webpki::Error::CertExpired {
                time: at,
                not_after: UnixTime::since_unix_epoch(Duration::from_secs(until.seconds().unsigned_abs())),
            }),
            until => Ok(until),
        };
        let path = end.verify_for_usage(
            ALL_VERIFICATION_ALGS,
            &self.anchors,
            &others,
            at,
            KeyUsage::client_auth(),
            revocation,
            Some(&|path| lasts(path).map(drop)),
        )?;
        lasts(&path)
    }

    /// Returns when the first certificate of a path ends, the authority's own among them.
    fn until(&self, path: &VerifiedPath<'_>) -> std::result::Result<Time, webpki::Error> {
        let ends = |der: CertificateDer<'_>| match subject::read(&der) {
            Ok(certificate) => Ok(subject::ends(&certificate)),
            Err(_) => Err(webpki::Error::BadDer),
        };
        let mut until = ends(path.end_entity().der())?;
        for certificate in path.intermediate_certificates() {
            until = until.min(ends(certificate.der())?);
        }
        let of_anchor = self.anchors.iter().zip(&self.ends).filter(|(anchor, _)| *anchor == path.anchor());
        // Of one authority with one key that is there twice, the certificate that lasts longer.
        Ok(of_anchor.map(|(_, ends)| *ends).max().map_or(until, |ends| until.min(ends)))
    }

    /// Returns what a certificate that was verified comes to.
    pub(super) fn admitted(&self, subject: &str, until: Time) -> Result<Admitted> {
        let user = match &self.acts_for {
            ActsFor::User(user) => Some(user),
            ActsFor::Subjects(users) => users.get(subject),
        };
        let nobody = || {
            let error = Error::not_permitted("the certificate's subject stands for nobody here");
            error.about(format!("`{}`, of `{}`", super::shown(subject), self.name))
        };
        let user = user.ok_or_else(nobody)?.clone();
        Ok(Admitted { authority: self.name.clone(), user, until })
    }
}

/// Returns whether a certificate is just none of an authority's.
pub(super) fn is_unknown(error: &webpki::Error) -> bool {
    matches!(error, webpki::Error::UnknownIssuer)
}

/// Returns what a certificate is refused with.
pub(super) fn refusal(error: webpki::Error) -> Error {
    use webpki::Error as Why;
    let (kind, detail) = match &error {
        Why::CertExpired { .. } => {
            (ErrorKind::Expired, "the certificate, or one that vouches for it, has run out")
        }
        Why::CertRevoked => (ErrorKind::Revoked, "its authority has revoked the certificate"),
        Why::CrlExpired { .. } => {
            (ErrorKind::Unavailable, "the list of what the certificate's authority has revoked has run out")
        }
        Why::UnknownRevocationStatus => {
            (ErrorKind::Unauthenticated, "no list here says whether the certificate was revoked")
        }
        Why::CertNotValidYet { .. } => (ErrorKind::Unauthenticated, "the certificate is not valid yet"),
        Why::UnknownIssuer => {
            (ErrorKind::Unauthenticated, "the certificate is of no authority that is taken here")
        }
        Why::RequiredEkuNotFoundContext(_) | Why::EmptyEkuExtension => {
            (ErrorKind::Unauthenticated, "the certificate is not one for clients")
        }
        Why::CaUsedAsEndEntity => (ErrorKind::Unauthenticated, "the certificate is an authority's own"),
        Why::EndEntityUsedAsCa | Why::PathLenConstraintViolated => {
            (ErrorKind::Unauthenticated, "the certificate was signed by one that may sign none")
        }
        Why::NameConstraintViolation => {
            (ErrorKind::Unauthenticated, "the certificate's authority may not vouch for such a name")
        }
        Why::MaximumPathDepthExceeded => (ErrorKind::Unauthenticated, "the way to its authority is too long"),
        Why::UnsupportedCriticalExtension => {
            (ErrorKind::Unauthenticated, "the certificate demands something that is not known here")
        }
        Why::InvalidSignatureForPublicKey => (ErrorKind::Unauthenticated, "its authority has not signed it"),
        _ => (ErrorKind::Unauthenticated, "the certificate cannot be believed"),
    };
    Error::new(kind, detail).caused_by(error)
}
