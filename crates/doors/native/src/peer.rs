//! Whom and what a connection has presented: callers and sessions by number.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use weft_core::form::{Call, Door, Origin};
use weft_core::proof::{Caller, Signed};
use weft_core::service::{Evidence, Secret, SessionGrant};
use weft_core::{Deadline, Error, ErrorKind, ErrorReport, Result, SessionId, limits};
use weft_rpc::CallHeader;

use crate::Services;
use crate::sessions::OpenTable;

const NUMBER_CONNECTION: u32 = 0;
const NUMBER_ANYONE: u32 = 1;

/// The other end.
pub(crate) struct Peer {
    uid: u32,
    /// Where all of it comes from: the Unix socket knows the uid, no address.
    origin: Origin,
    presented: HashMap<u32, Presented>,
    presented_bytes: usize,
    sessions: HashMap<u32, std::result::Result<Begun, ErrorReport>>,
}

/// What was presented under a number, and who that was when it was last asked.
struct Presented {
    evidence: Evidence,
    /// Bytes of the credential, if it is one.
    bytes: usize,
    caller: std::result::Result<Caller, ErrorReport>,
}

struct Begun {
    id: SessionId,
    opens: Arc<OpenTable>,
    /// Who called in it last.
    caller: Caller,
}

impl Peer {
    pub(crate) fn new(uid: u32) -> Self {
        let anyone = Presented { evidence: Evidence::None, bytes: 0, caller: Ok(Caller::anyone()) };
        let origin = Origin { door: Door::Native, peer: None, uid: Some(uid) };
        let presented = HashMap::from([(NUMBER_ANYONE, anyone)]);
        Self { uid, origin, presented, presented_bytes: 0, sessions: HashMap::new() }
    }

    pub(crate) async fn present(
        &mut self,
        services: &Services,
        number: u32,
        credential: &Signed,
    ) -> Result<()> {
        if number <= NUMBER_ANYONE || self.presented.len() >= limits::RPC_NUMBERS_MAX {
            return Err(Error::invalid("the number cannot be presented under"));
        }
        self.forget(number);
        let bytes = credential.claims().len();
        if self.presented_bytes + bytes > limits::RPC_PRESENTED_BYTES_MAX {
            return Err(Error::invalid("the client presented more credentials than a connection holds"));
        }
        let evidence = Evidence::Token(Secret::new(credential.to_token()));
        let caller = services.authority.authenticate(&evidence, self.origin).await.map_err(|e| (&e).into());
        self.presented.insert(number, Presented { evidence, bytes, caller });
        self.presented_bytes += bytes;
        Ok(())
    }

    pub(crate) fn forget(&mut self, number: u32) {
        if number > NUMBER_ANYONE
            && let Some(presented) = self.presented.remove(&number)
        {
            self.presented_bytes -= presented.bytes;
        }
    }

    pub(crate) async fn begin(
        &mut self,
        services: &Services,
        number: u32,
        credential: u32,
        resume: Option<SessionGrant>,
    ) -> std::result::Result<SessionGrant, ErrorReport> {
        let begun = self.begun(services, credential, resume).await.map_err(|e| ErrorReport::from(&e));
        let outcome = begun.as_ref().map(|(grant, _)| grant.clone()).map_err(Clone::clone);
        // What the number named is out of reach: it would count against its caller for nothing.
        if let Some(Ok(before)) = self.sessions.remove(&number)
            && outcome.as_ref().map_or(true, |grant| grant.id != before.id)
        {
            services.sessions.end(before.id);
        }
        if self.sessions.len() < limits::RPC_NUMBERS_MAX {
            let begun = begun.map(|(grant, caller)| Begun {
                id: grant.id,
                opens: services.opens.of(grant.id),
                caller,
            });
            self.sessions.insert(number, begun);
        }
        outcome
    }

    async fn begun(
        &mut self,
        services: &Services,
        credential: u32,
        resume: Option<SessionGrant>,
    ) -> Result<(SessionGrant, Caller)> {
        if self.sessions.len() >= limits::RPC_NUMBERS_MAX {
            return Err(Error::new(ErrorKind::Busy, "too many sessions on one connection"));
        }
        let caller = self.caller(services, credential).await?;
        let grant = match resume {
            None => services.sessions.begin(&caller, self.origin)?,
            Some(grant) => services.sessions.resume(&caller, &grant, self.origin).map(|()| grant)?,
        };
        Ok((grant, caller))
    }

    pub(crate) fn end(&mut self, services: &Services, number: u32) {
        if let Some(Ok(begun)) = self.sessions.remove(&number) {
            services.sessions.end(begun.id);
        }
    }

    pub(crate) fn drop_file(&self, session: u32, file: u32) {
        if let Some(Ok(begun)) = self.sessions.get(&session) {
            drop(begun.opens.drop_file(file));
        }
    }

    /// Keeps the sessions alive: an open connection is use. Those of who was revoked are left to end, and their locks
    /// and opens with them.
    pub(crate) fn renew(&self, services: &Services) {
        let now = services.sys.clock().moment();
        let revoked = |caller: &Caller| caller.live(now).is_err_and(|why| why.kind() == ErrorKind::Revoked);
        for begun in self.sessions.values().flatten().filter(|begun| !revoked(&begun.caller)) {
            // One that has ended is found out by its next call.
            let _ = services.sessions.renew(begun.id);
        }
    }

    /// Rebuilds what accompanies a call from what was verified here. Without a session
    /// (0) only calls can be made that leave nothing in one.
    pub(crate) async fn call(
        &mut self,
        services: &Services,
        header: &CallHeader,
        in_session: bool,
    ) -> Result<(Call, Arc<OpenTable>)> {
        let caller = self.caller(services, header.credential).await?;
        let (session, opens) = match (header.session, self.sessions.get_mut(&header.session)) {
            (_, Some(Ok(begun))) => match services.sessions.renew(begun.id) {
                Ok(()) => {
                    begun.caller = caller.clone();
                    (begun.id, begun.opens.clone())
                }
                Err(_) if !in_session => (SessionId(0), Arc::default()),
                Err(ended) => return Err(ended),
            },
            (_, Some(Err(report))) => return Err(report.clone().into()),
            (0, None) if !in_session => (SessionId(0), Arc::default()),
            (_, None) => return Err(Error::stale("there is no such session on this connection")),
        };
        let until = Deadline::within(services.sys.clock(), Duration::from_millis(header.left_ms.into()));
        let (once, ack, wire, trace) = (header.once, header.ack, header.wire, header.trace);
        Ok((Call { caller, session, until, trace, from: self.origin, once, ack, wire }, opens))
    }

    /// Returns the caller behind a number. One whose proof has ended is asked for
    /// again: its groups may have changed, its password not.
    async fn caller(&mut self, services: &Services, number: u32) -> Result<Caller> {
        let uid = self.uid;
        let presented = match number {
            NUMBER_CONNECTION => self.presented.entry(number).or_insert_with(|| Presented {
                evidence: Evidence::SocketUid(uid),
                bytes: 0,
                caller: Err((&Error::stale("not asked yet")).into()),
            }),
            _ => self
                .presented
                .get_mut(&number)
                .ok_or_else(|| Error::invalid("nothing was presented under the number"))?,
        };
        let live =
            presented.caller.as_ref().is_ok_and(|caller| caller.live(services.sys.clock().moment()).is_ok());
        if !live {
            let asked = services.authority.authenticate(&presented.evidence, self.origin).await;
            presented.caller = asked.map_err(|e| (&e).into());
        }
        presented.caller.clone().map_err(Error::from)
    }
}
