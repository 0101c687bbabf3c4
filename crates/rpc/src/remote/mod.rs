//! The stubs: core's traits, spoken over a [`Connection`].

mod file;
mod file_system;
mod services;
mod stage;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use weft_core::attr::{Attr, Changed};
use weft_core::form::{Ack, At, Call, Entry, OpenFile, Supports, Whole, Wire, put_whole};
use weft_core::proof::Caller;
use weft_core::service::SessionGrant;
use weft_core::{
    CredentialId, Deadline, Error, ErrorKind, FileId, Result, SessionId, TraceId, VolumeId, limits,
};

use crate::connection::Connection;
use crate::message::{Answer, CallBody, CallHeader, FileAsk, FileRef, Put, ToServer};
use file::{OpenFiles, RemoteFile};

/// Takes the one answer that fits out of an [`Answer`].
macro_rules! take {
    ($answer:expr, $pattern:pat => $value:expr) => {
        match $answer {
            $pattern => Ok($value),
            _ => Err(crate::remote::unexpected()),
        }
    };
}
use take;

/// Whom a call is made as when its own caller has no credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum As {
    /// The uid at the other end of the socket: for a person's own commands.
    Connection,
    /// Anyone: for whoever passes other callers' requests on.
    Anyone,
}

/// A node at the other end of a connection: every service trait of core. Calls carry
/// their own callers and sessions; both are presented once and then go by number.
pub struct Remote(Arc<Shared>);

pub(crate) struct Shared {
    connection: Connection,
    default: As,
    numbers: Mutex<Numbers>,
    /// What volumes other than the root's can do, as far as it was asked.
    volumes: Mutex<HashMap<VolumeId, Supports>>,
    open: Mutex<OpenFiles>,
}

struct Numbers {
    credentials: HashMap<CredentialId, u32>,
    /// Bytes of their claims.
    presented: usize,
    sessions: HashMap<SessionId, u32>,
    /// The server's ids of sessions, and ours.
    local: HashMap<SessionId, SessionId>,
}

/// The versions since which a file, and several, may come in one message: an older node would take
/// it for nonsense, and hang up.
const PUT_SINCE: u16 = 5;
const PUT_ALL_SINCE: u16 = 8;

const NUMBER_CONNECTION: u32 = 0;
const NUMBER_ANYONE: u32 = 1;

impl Remote {
    /// Speaks over a connection.
    pub fn new(connection: Connection, default: As) -> Self {
        let numbers = Numbers {
            credentials: HashMap::new(),
            presented: 0,
            sessions: HashMap::new(),
            local: HashMap::new(),
        };
        let (numbers, volumes, open) = (Mutex::new(numbers), Mutex::default(), Mutex::default());
        Self(Arc::new(Shared { connection, default, numbers, volumes, open }))
    }

    /// Returns the connection.
    pub fn connection(&self) -> &Connection {
        &self.0.connection
    }

    /// Returns whom calls are made as whose own caller has no credential.
    pub fn speaks_as(&self) -> As {
        self.0.default
    }

    /// Takes a session of an earlier connection up again: calls in `local` go on in it.
    pub async fn resume(
        &self,
        caller: &Caller,
        local: SessionId,
        grant: SessionGrant,
    ) -> Result<SessionGrant> {
        let until = self.0.soon();
        let credential = self.0.credential(caller, until).await?;
        self.0.begin(credential, local, Some(grant), until).await.map(|(_, grant)| grant)
    }

    /// Returns the file that an earlier connection of the call's session left open under a number
    /// ([`OpenFile::kept_as`](weft_core::form::OpenFile::kept_as)), and what it is like if that can be learnt.
    ///
    /// `Stale` if nothing, or another file, is open there: that one stays so. `Unavailable` and `Deadline` if nobody knows.
    pub async fn held(
        &self,
        call: &Call,
        id: FileId,
        number: u64,
    ) -> Result<(Arc<dyn OpenFile>, Option<Attr>)> {
        let stale = || Error::stale("the file is not open in this session");
        let number = u32::try_from(number).map_err(|_| stale())?;
        let header = self.0.header(call).await?;
        let session = header.session;
        let body = CallBody::File(FileRef::Open(number), FileAsk::Attr);
        let attr = match self.0.connection.call(header, body, Bytes::new(), call.until).await {
            Ok((Answer::Attr(attr), _)) if attr.id == id => Some(attr),
            Ok(_) => return Err(stale()),
            Err(e) if matches!(e.kind(), ErrorKind::Stale | ErrorKind::Unavailable | ErrorKind::Deadline) => {
                return Err(e);
            }
            // It is open, and of what may be seen of it by now something is lacking.
            Err(_) => None,
        };
        self.0.learn(call, id.volume()).await;
        Ok((RemoteFile::open(&self.0, id, (session, number)), attr))
    }

    /// Begins the session that calls in `local` belong to, and returns what resumes it.
    pub async fn begin(&self, caller: &Caller, local: SessionId) -> Result<SessionGrant> {
        let until = self.0.soon();
        let credential = self.0.credential(caller, until).await?;
        self.0.begin(credential, local, None, until).await.map(|(_, grant)| grant)
    }

    /// Makes bytes, [`limits::PIECE_BYTES_MAX`] at most, the file at an address, in one message: see
    /// [`put_whole`]. What the node has got is compared with what was sent.
    pub async fn put(&self, call: &Call, at: &At, bytes: Bytes, whole: Whole) -> Result<Changed<Entry>> {
        if self.0.connection.welcome().version < PUT_SINCE {
            return put_whole(self, call, at, bytes, &whole).await;
        }
        let header = self.0.header(call).await?;
        let body = CallBody::Put(at.clone(), Box::new(whole));
        let (answer, _) = self.0.connection.call(header, body, bytes, call.until).await?;
        take!(answer, Answer::Published(changed) => changed)
    }

    /// Returns whether several files may go to the node in one message.
    pub fn takes_several(&self) -> bool {
        self.0.connection.welcome().version >= PUT_ALL_SINCE
    }

    /// Makes several files as [`Self::put`] makes one, in one message: [`limits::PUTS_TOGETHER_MAX`] at
    /// most, of [`limits::PIECE_BYTES_MAX`] together. One that fails does not keep the others from being
    /// made. Fails as a whole where nobody knows what became of them.
    pub async fn put_all(
        &self,
        call: &Call,
        files: Vec<(At, Bytes, Whole)>,
    ) -> Result<Vec<Result<Changed<Entry>>>> {
        let (mut payload, mut puts) = (BytesMut::new(), Vec::with_capacity(files.len()));
        for (at, bytes, whole) in files {
            payload.extend_from_slice(&bytes);
            let bytes = u32::try_from(bytes.len()).map_err(|_| too_much_together())?;
            puts.push(Put { at, bytes, whole });
        }
        let asked = puts.len();
        let header = self.0.header(call).await?;
        let answered = self.0.connection.call(header, CallBody::PutAll(puts), payload.freeze(), call.until);
        let (answer, _) = answered.await?;
        let made = take!(answer, Answer::PublishedAll(made) => made)?;
        if made.len() != asked {
            return Err(unexpected());
        }
        Ok(made.into_iter().map(|made| made.map_err(Error::from)).collect())
    }

    /// Ends a session: its opens and locks end too.
    pub async fn end(&self, local: SessionId) -> Result<()> {
        let session = {
            let mut numbers = self.0.numbers();
            numbers.local.retain(|_, known| *known != local);
            numbers.sessions.remove(&local)
        };
        match session {
            Some(session) => self.0.connection.tell(&ToServer::End { session }, self.0.soon()).await,
            None => Ok(()),
        }
    }
}

impl Shared {
    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        // Every change leaves the maps whole, so a panic elsewhere cannot spoil them.
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what a volume can do: [`Supports::NOTHING`] of one that was not asked for yet.
    fn supports(&self, volume: VolumeId) -> Supports {
        if volume == FileId::ROOT.volume() {
            return self.connection.welcome().supports;
        }
        self.volumes().get(&volume).copied().unwrap_or(Supports::NOTHING)
    }

    /// Asks what a volume can do, unless that is known: once for a connection, when a call has come
    /// to the volume. A question that fails is asked again by the next call that does.
    async fn learn(&self, call: &Call, volume: VolumeId) {
        if volume == FileId::ROOT.volume() || self.volumes().contains_key(&volume) {
            return;
        }
        if let Ok(Answer::Supports(supports)) = self.call(call, CallBody::Supports(volume)).await {
            self.volumes().insert(volume, supports);
        }
    }

    fn open(&self) -> MutexGuard<'_, OpenFiles> {
        // Every change leaves the map whole, so a panic elsewhere cannot spoil it.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn volumes(&self) -> MutexGuard<'_, HashMap<VolumeId, Supports>> {
        // Every change leaves the map whole, so a panic elsewhere cannot spoil it.
        self.volumes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns by when what nobody gave a deadline is answered.
    fn soon(&self) -> Deadline {
        Deadline::within(self.connection.sys().clock(), limits::CALL_DEADLINE)
    }

    /// Returns the number a caller goes by, presenting its credential if it is new.
    async fn credential(&self, caller: &Caller, until: Deadline) -> Result<u32> {
        let Some(signed) = caller.signed() else {
            return Ok(match self.default {
                As::Connection => NUMBER_CONNECTION,
                As::Anyone => NUMBER_ANYONE,
            });
        };
        let (number, forgotten) = {
            let mut numbers = self.numbers();
            if let Some(number) = numbers.credentials.get(&caller.credential()) {
                return Ok(*number);
            }
            // Presenting them again costs less than remembering who was used last.
            let full = numbers.credentials.len() >= limits::RPC_NUMBERS_MAX / 2
                || numbers.presented + signed.claims().len() > limits::RPC_PRESENTED_BYTES_MAX / 2;
            let mut forgotten = Vec::new();
            if full {
                forgotten.extend(numbers.credentials.drain().map(|(_, number)| number));
                numbers.presented = 0;
            }
            let number = self.connection.number();
            (number, forgotten)
        };
        for number in forgotten {
            self.connection.tell(&ToServer::Forget { number }, until).await?;
        }
        let presented = ToServer::Present { number, credential: signed.clone() };
        self.connection.tell(&presented, until).await?;
        let kept = {
            let mut numbers = self.numbers();
            let kept = *numbers.credentials.entry(caller.credential()).or_insert(number);
            numbers.presented += if kept == number { signed.claims().len() } else { 0 };
            kept
        };
        if kept != number {
            // Another call presented it at the same time.
            self.connection.tell(&ToServer::Forget { number }, until).await?;
        }
        Ok(kept)
    }

    /// Returns the number a session goes by, beginning it if it is new.
    async fn session(&self, credential: u32, session: SessionId, until: Deadline) -> Result<u32> {
        let known = self.numbers().sessions.get(&session).copied();
        match known {
            Some(number) => Ok(number),
            None => self.begin(credential, session, None, until).await.map(|(number, _)| number),
        }
    }

    async fn begin(
        &self,
        credential: u32,
        local: SessionId,
        resume: Option<SessionGrant>,
        until: Deadline,
    ) -> Result<(u32, SessionGrant)> {
        let number = {
            let numbers = self.numbers();
            if numbers.sessions.len() >= limits::RPC_NUMBERS_MAX {
                return Err(Error::new(ErrorKind::Busy, "too many sessions on one connection"));
            }
            self.connection.number()
        };
        let grant = self.connection.begin(number, credential, resume, until).await?;
        let mut numbers = self.numbers();
        numbers.local.insert(grant.id, local);
        // Of two calls that began it at once, the first to be answered decides.
        let number = *numbers.sessions.entry(local).or_insert(number);
        Ok((number, grant))
    }

    async fn header(&self, call: &Call) -> Result<CallHeader> {
        let credential = self.credential(&call.caller, call.until).await?;
        let session = self.session(credential, call.session, call.until).await?;
        self.header_in(call, session).await
    }

    async fn header_in(&self, call: &Call, session: u32) -> Result<CallHeader> {
        let credential = self.credential(&call.caller, call.until).await?;
        let left = call.until.left(self.connection.sys().clock());
        let left_ms = u32::try_from(left.as_millis()).unwrap_or(u32::MAX);
        let Call { once, ack, wire, trace, .. } = *call;
        Ok(CallHeader { credential, session, once, ack, wire, trace, left_ms })
    }

    async fn call(&self, call: &Call, body: CallBody) -> Result<Answer> {
        let header = self.header(call).await?;
        self.connection.call(header, body, Bytes::new(), call.until).await.map(|(answer, _)| answer)
    }

    /// Makes a call that belongs to no session: of the authority, accounts or node.
    async fn call_as(&self, caller: &Caller, body: CallBody, within: Duration) -> Result<Answer> {
        let until = Deadline::within(self.connection.sys().clock(), within);
        let credential = self.credential(caller, until).await?;
        let (ack, wire) = (Ack::Durable, Wire::Private);
        let left_ms = u32::try_from(within.as_millis()).unwrap_or(u32::MAX);
        let header = CallHeader { credential, session: 0, once: None, ack, wire, trace: TraceId(0), left_ms };
        self.connection.call(header, body, Bytes::new(), until).await.map(|(answer, _)| answer)
    }
}

fn too_much_together() -> Error {
    Error::new(ErrorKind::TooLarge, "more than goes into one message")
}

fn unexpected() -> Error {
    Error::invalid("the node answered with something else than was asked for")
}
