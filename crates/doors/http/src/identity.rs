//! Who asks on a connection: proved once, remembered as long as the proof lives.

use std::sync::Arc;

use subtle::ConstantTimeEq;
use weft_core::form::{Ack, Call, Origin, Wire};
use weft_core::proof::Caller;
use weft_core::service::{CertificateChain, Evidence, Secret};
use weft_core::{CallerName, Deadline, Error, ErrorKind, Moment, Result, SessionId, Tick, TraceId, limits};

use crate::Http;
use crate::codec::credentials;
use crate::page::login::is_over;

/// What a connection knows of who speaks on it. A server in front may send requests of many.
pub struct Identity {
    /// What the bytes travel under.
    wire: Wire,
    /// What the other end showed as it shook hands.
    certificate: Option<Arc<CertificateChain>>,
    proved: Option<Proved>,
    session: Option<Session>,
}

/// What a request shows to say who asks.
#[derive(Clone, Copy, Debug)]
pub enum Shown<'h> {
    /// Nothing.
    Nothing,
    /// An Authorization field.
    Field(&'h str),
    /// The token of a login of the page.
    Cookie(&'h str),
    /// A certificate of the connection.
    Certificate(&'h Arc<CertificateChain>),
}

impl<'h> Shown<'h> {
    /// Returns what counts of what was sent: whoever says something in so many words means that, and a login that
    /// somebody made here goes before what a browser shows everywhere.
    pub fn of(
        field: Option<&'h str>,
        cookie: Option<&'h str>,
        certificate: Option<&'h Arc<CertificateChain>>,
    ) -> Self {
        match (field, cookie, certificate) {
            (Some(field), _, _) => Self::Field(field),
            (None, Some(cookie), _) => Self::Cookie(cookie),
            (None, None, Some(certificate)) => Self::Certificate(certificate),
            (None, None, None) => Self::Nothing,
        }
    }

    fn evidence(self) -> Option<Evidence> {
        match self {
            Self::Nothing => Some(Evidence::None),
            Self::Field(field) => credentials::evidence(field),
            Self::Cookie(token) => Some(Evidence::Token(Secret::new(token))),
            Self::Certificate(chain) => Some(Evidence::Certificate(chain.clone())),
        }
    }
}

/// The same, kept.
enum Kept {
    Nothing,
    Field(Secret),
    Cookie(Secret),
    /// The one of the connection: there is no other.
    Certificate,
}

impl Kept {
    fn of(shown: Shown<'_>) -> Self {
        match shown {
            Shown::Nothing => Self::Nothing,
            Shown::Field(text) => Self::Field(Secret::new(text)),
            Shown::Cookie(text) => Self::Cookie(Secret::new(text)),
            Shown::Certificate(_) => Self::Certificate,
        }
    }

    fn is(&self, shown: Shown<'_>) -> bool {
        match (self, shown) {
            (Self::Nothing, Shown::Nothing) | (Self::Certificate, Shown::Certificate(_)) => true,
            (Self::Field(known), Shown::Field(text)) | (Self::Cookie(known), Shown::Cookie(text)) => {
                is_same(known.expose().as_bytes(), text.as_bytes())
            }
            _ => false,
        }
    }
}

struct Proved {
    /// What proved it.
    by: Kept,
    caller: Caller,
    /// When a password has to be shown again; none for what is as good as the caller's lease.
    until: Option<Tick>,
}

struct Session {
    id: SessionId,
    caller: Caller,
    renewed: Tick,
}

impl Identity {
    /// Begins with nobody, on a connection whose other end showed a certificate, or none.
    pub fn new(wire: Wire, certificate: Option<Arc<CertificateChain>>) -> Self {
        Self { wire, certificate, proved: None, session: None }
    }

    /// Returns what the other end of the connection showed as it shook hands.
    pub fn certificate(&self) -> Option<Arc<CertificateChain>> {
        self.certificate.clone()
    }

    /// Returns what accompanies a request that shows this.
    pub async fn call(
        &mut self,
        http: &Http,
        shown: Shown<'_>,
        from: Origin,
        trace: TraceId,
    ) -> Result<Call> {
        let clock = http.services.sys.clock();
        let caller = match self.remembered(shown, clock.moment()) {
            Some(caller) => caller,
            None => Box::pin(self.prove(http, shown, from)).await?,
        };
        self.call_of(http, caller, from, trace)
    }

    /// Returns what accompanies a request that brings evidence of its own, which is not remembered here.
    pub async fn call_by(
        &mut self,
        http: &Http,
        evidence: &Evidence,
        from: Origin,
        trace: TraceId,
    ) -> Result<Call> {
        let services = &http.services;
        let deadline = Deadline::within(services.sys.clock(), limits::CALL_DEADLINE);
        let caller = services.sys.within(deadline, services.authority.authenticate(evidence, from)).await?;
        self.call_of(http, caller, from, trace)
    }

    fn call_of(&mut self, http: &Http, caller: Caller, from: Origin, trace: TraceId) -> Result<Call> {
        let clock = http.services.sys.clock();
        let session = self.session(http, &caller, from)?;
        Ok(Call {
            caller,
            session,
            until: Deadline::within(clock, limits::CALL_DEADLINE),
            trace,
            from,
            once: None,
            ack: Ack::Applied,
            wire: self.wire,
        })
    }

    fn remembered(&self, shown: Shown<'_>, now: Moment) -> Option<Caller> {
        let proved = self.proved.as_ref().filter(|proved| proved.by.is(shown))?;
        let holds = proved.until.is_none_or(|until| now.tick < until) && proved.caller.live(now).is_ok();
        holds.then(|| proved.caller.clone())
    }

    async fn prove(&mut self, http: &Http, shown: Shown<'_>, from: Origin) -> Result<Caller> {
        self.proved = None;
        let evidence = shown.evidence().ok_or_else(|| {
            Error::new(ErrorKind::Unauthenticated, "the Authorization field proves nothing")
        })?;
        let services = &http.services;
        let authenticated = |evidence| async move {
            let deadline = Deadline::within(services.sys.clock(), limits::CALL_DEADLINE);
            services.sys.within(deadline, services.authority.authenticate(evidence, from)).await
        };
        let caller = match authenticated(&evidence).await {
            // A login of the page that is over is none: what everybody may see is still shown.
            Err(error) if matches!(shown, Shown::Cookie(_)) && is_over(&error) => {
                return authenticated(&Evidence::None).await;
            }
            caller => caller?,
        };
        let until = match evidence {
            Evidence::Password { .. } => Some(repeated_until(&caller, services.sys.clock().moment())),
            _ => None,
        };
        self.proved = Some(Proved { by: Kept::of(shown), caller: caller.clone(), until });
        Ok(caller)
    }

    /// Returns the connection's session for a caller, begun or renewed where that is due.
    fn session(&mut self, http: &Http, caller: &Caller, from: Origin) -> Result<SessionId> {
        let sessions = &http.services.sessions;
        let now = http.services.sys.clock().tick();
        if let Some(session) = &mut self.session {
            let same = session.caller.credential() == caller.credential();
            if same && now.since(session.renewed) < limits::SESSION_IDLE / 4 {
                return Ok(session.id);
            }
            if same && sessions.renew(session.id).is_ok() {
                session.renewed = now;
                return Ok(session.id);
            }
            sessions.end(session.id);
            self.session = None;
        }
        let id = sessions.begin(caller, from)?.id;
        self.session = Some(Session { id, caller: caller.clone(), renewed: now });
        Ok(id)
    }

    /// Returns who spoke last, for logs.
    pub fn name(&self) -> &CallerName {
        self.proved.as_ref().map_or(&CallerName::ANYONE, |proved| proved.caller.name())
    }

    /// Ends the session, if one was begun.
    pub fn leave(&mut self, http: &Http) {
        if let Some(session) = self.session.take() {
            http.services.sessions.end(session.id);
        }
    }
}

/// Returns until when a password that proved the caller need not be looked at again: from when it
/// was checked, which may be a while ago on another connection.
fn repeated_until(caller: &Caller, now: Moment) -> Tick {
    let age = now.wall.since(caller.claims().issued);
    now.tick.plus(limits::PASSWORD_REMEMBERED.saturating_sub(age))
}

/// Compares secrets, in a time that only their length tells of: eight bytes in each step.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let ((words, rest), (others, left)) = (one.as_chunks::<8>(), other.as_chunks::<8>());
    let mut same = rest.ct_eq(left);
    if words.len() != others.len() {
        return false;
    }
    for (word, other) in words.iter().zip(others) {
        same &= u64::from_ne_bytes(*word).ct_eq(&u64::from_ne_bytes(*other));
    }
    same.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_secret_is_the_same() {
        let secret = b"Bearer weft1.0123456789abcdef-tail";
        for length in 0..=secret.len() {
            let known = &secret[..length];
            assert!(is_same(known, known));
            for at in 0..length {
                let mut other = known.to_vec();
                other[at] ^= 1;
                assert!(!is_same(known, &other), "{length}: byte {at}");
                assert!(!is_same(known, &known[..at]), "{length}: cut to {at}");
                assert!(!is_same(&known[..at], known), "{at}: longer, {length}");
            }
        }
    }
}
