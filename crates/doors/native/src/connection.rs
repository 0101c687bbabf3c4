//! One connection: its reader, its writer, and the calls between them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use weft_core::form::{Piece, Stopped};
use weft_core::{Deadline, Error, ErrorKind, ErrorReport, Result, VolumeId, limits};
use weft_rpc::{
    CallBody, CallHeader, Frame, FrameReader, FrameWriter, LENT_SINCE, Line, ToClient, ToServer, VERSION,
    VERSION_OLDEST, Welcome,
};
use weft_sys::net::{Passing, Socket};
use weft_sys::{Pump, Sys, Task, trace};

use crate::Services;
use crate::calls::{Calling, Counted};
use crate::held::{Held, Part, busy, take};
use crate::lend::lent_with;
use crate::peer::Peer;
use crate::upload::{Arrived, Intake};

/// How often an open connection's sessions are renewed.
const RENEW_EVERY: Duration = Duration::from_secs(30);

/// Returns the whole answer to a connection beyond those that its uid may have.
pub fn too_many_connections() -> Bytes {
    let busy = Error::new(ErrorKind::Busy, "your uid has as many connections to the node open as it may")
        .hint("close some, or try again later");
    let refused = ToClient::Refused(ErrorReport::from(&busy));
    weft_rpc::encode(&Frame::new(0, &refused, Bytes::new())).into()
}

/// Serves one connection to its end. `uid` is who the kernel says is at the other end.
/// Fails with why the client was cut off; a client that goes away is no failure.
pub async fn serve(services: Arc<Services>, line: impl Line, uid: u32) -> Result<()> {
    serve_over(services, line, None, uid).await
}

/// The same for a process of the node's own uid on this machine: files are lent to it, and it may lend memory.
pub async fn serve_own(services: Arc<Services>, socket: Socket, uid: u32) -> Result<()> {
    let (socket, lends) = socket.lending();
    let (socket, borrows) = socket.borrowing();
    serve_over(services, socket, Some((lends, borrows)), uid).await
}

async fn serve_over(
    services: Arc<Services>,
    line: impl Line,
    passing: Option<(Arc<Passing>, Arc<Passing>)>,
    uid: u32,
) -> Result<()> {
    let (from, to) = tokio::io::split(line);
    let (lends, borrows) = passing.unzip();
    let held = services.uids.of(uid);
    let (stuck, is_stuck) = oneshot::channel();
    let write = |queue| write_all(services.sys.clone(), to, queue, stuck);
    let (mut replies, writer) = Replies::new(services.sys.clone(), held.clone(), write);
    replies.lend_by(lends);
    let mut connection = Connection {
        services: services.clone(),
        peer: Peer::new(uid),
        replies: replies.clone(),
        streams: Arc::default(),
        held,
        borrows,
    };
    let outcome = tokio::select! {
        outcome = connection.run(FrameReader::new(from)) => outcome,
        Ok(error) = is_stuck => Err(error),
    };
    if let Err(error) = &outcome {
        let refused = Frame::new(0, &ToClient::Refused(error.into()), Bytes::new());
        let _ = replies.send(refused).await;
    }
    // Calls that change something run to their end; only nobody hears of it.
    drop((connection, replies));
    let last = Deadline::within(services.sys.clock(), limits::CALL_DEADLINE);
    let _ = services.sys.within(last, writer).await;
    outcome
}

/// The way back to the client. Cloning shares the queue.
#[derive(Clone)]
pub(crate) struct Replies {
    sys: Sys,
    out: mpsc::Sender<Leaving>,
    /// Writes what is put there.
    writer: Pump,
    /// For bytes of downloads that wait to be written here.
    room: Arc<Semaphore>,
    held: Arc<Held>,
    /// By which files are lent, if they are.
    lends: Option<Arc<Passing>>,
}

/// Room for bytes of a download, until they have been written.
pub(crate) struct Room {
    _here: Part,
    _of_uid: Part,
}

/// A frame in the queue.
pub(crate) struct Leaving {
    pub(crate) frame: Frame,
    bytes: Option<LeavingBytes>,
}

/// What goes with bytes of a download: their room, and what ends the right to them.
struct LeavingBytes {
    _room: Room,
    /// Files that go along.
    lent: Option<(Arc<Passing>, Vec<OwnedFd>)>,
    stopped: Stopped,
    /// What is sent in their place once it has ended.
    instead: fn(ErrorReport) -> ToClient,
}

impl Leaving {
    /// Asks once more, as the bytes leave: what waited here while its right ended stays here.
    fn checked(mut self) -> Self {
        if let Some(bytes) = &mut self.bytes
            && let Some(why) = (&mut bytes.stopped).now_or_never()
        {
            let message = (bytes.instead)((&why).into());
            self = Self { frame: Frame::new(self.frame.stream, &message, Bytes::new()), bytes: None };
        }
        self
    }
}

impl Replies {
    /// Makes the way back over one connection, and the task that writes what is queued.
    pub(crate) fn new<Writes: Future<Output = ()> + Send + 'static>(
        sys: Sys,
        held: Arc<Held>,
        write: impl FnOnce(mpsc::Receiver<Leaving>) -> Writes,
    ) -> (Self, Task<()>) {
        let (out, queue) = mpsc::channel(limits::RPC_QUEUE_FRAMES);
        let room = Arc::new(Semaphore::new(limits::RPC_OUT_BYTES));
        let (writer, task) = Pump::new(&sys, write(queue));
        (Self { sys, out, writer, room, held, lends: None }, task)
    }

    pub(crate) fn sys(&self) -> &Sys {
        &self.sys
    }

    /// Writes a frame here, if nothing is in its way; otherwise queues it, waiting for room for as long as a transfer may
    /// stand still.
    pub(crate) async fn send(&self, frame: Frame) -> Result<()> {
        self.bring(Leaving { frame, bytes: None }).await
    }

    /// Waits for room for so many bytes of a download: before they are read, so that few wait.
    pub(crate) async fn room(&self, bytes: usize) -> Result<Room> {
        let idle = Deadline::within(self.sys.clock(), limits::TRANSFER_IDLE);
        let room = async {
            let here = take(&self.room, bytes).await?;
            Ok(Room { _here: here, _of_uid: self.held.outgoing(bytes).await? })
        };
        self.sys.within(idle, room).await
    }

    /// Queues bytes of a download. If `stopped` has ended when they leave, `instead` goes.
    pub(crate) async fn send_bytes(
        &self,
        frame: Frame,
        room: Room,
        stopped: Stopped,
        instead: fn(ErrorReport) -> ToClient,
    ) -> Result<()> {
        let bytes = LeavingBytes { _room: room, lent: None, stopped, instead };
        self.queue(Leaving { frame, bytes: Some(bytes) }).await
    }

    /// Sets by which files may be lent, if they may.
    pub(crate) fn lend_by(&mut self, lends: Option<Arc<Passing>>) {
        self.lends = lends;
    }

    /// Returns by which files may be lent, if they may.
    pub(crate) fn lends(&self) -> Option<&Arc<Passing>> {
        self.lends.as_ref()
    }

    /// Queues an answer with files that are lent, as [`Self::send_bytes`] does one with bytes.
    pub(crate) async fn send_lent(
        &self,
        frame: Frame,
        lent: (Arc<Passing>, Vec<OwnedFd>),
        room: Room,
        stopped: Stopped,
        instead: fn(ErrorReport) -> ToClient,
    ) -> Result<()> {
        let bytes = LeavingBytes { _room: room, lent: Some(lent), stopped, instead };
        self.bring(Leaving { frame, bytes: Some(bytes) }).await
    }

    /// Writes what is short on the spot, which saves two wakes, unless something waits to be written. What is long is left to the
    /// writer, and the next piece of it read meanwhile.
    async fn bring(&self, leaving: Leaving) -> Result<()> {
        let is_empty = self.out.capacity() == self.out.max_capacity();
        match self.out.try_reserve().ok().filter(|_| is_empty) {
            Some(place) => {
                self.writer.bring(|| place.send(leaving));
                Ok(())
            }
            None => self.queue(leaving).await,
        }
    }

    async fn queue(&self, leaving: Leaving) -> Result<()> {
        let gone = |_| Error::new(ErrorKind::Unavailable, "the client went away");
        let idle = Deadline::within(self.sys.clock(), limits::TRANSFER_IDLE);
        self.sys.within(idle, async { self.out.send(leaving).await.map_err(gone) }).await
    }
}

/// Writes what is queued, and says so if the client does not take it. That the line broke, the
/// reader meets as well, after what was sent before.
pub(crate) async fn write_all(
    sys: Sys,
    to: impl AsyncWrite + Unpin,
    mut queue: mpsc::Receiver<Leaving>,
    stuck: oneshot::Sender<Error>,
) {
    let mut frames = FrameWriter::new(to);
    while let Some(leaving) = queue.recv().await {
        let until = Deadline::within(sys.clock(), limits::RPC_FRAME_WITHIN);
        match sys.within(until, write_waiting(&mut frames, leaving, &mut queue)).await {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Deadline => {
                let _ = stuck.send(Error::new(ErrorKind::Deadline, "the client does not take its answers"));
                return;
            }
            Err(_) => return,
        }
    }
}

/// Writes a frame, and answers that wait behind it. Bytes of a download end it: what follows them waits
/// for its own look at the right.
async fn write_waiting(
    frames: &mut FrameWriter<impl AsyncWrite + Unpin>,
    first: Leaving,
    queue: &mut mpsc::Receiver<Leaving>,
) -> Result<()> {
    let mut next = Some(first);
    while let Some(leaving) = next {
        if leaving.bytes.is_some() {
            frames.flush().await?;
        }
        let mut leaving = leaving.checked();
        if let Some((passing, descriptors)) = leaving.bytes.as_mut().and_then(|bytes| bytes.lent.take()) {
            descriptors.into_iter().for_each(|descriptor| passing.add(descriptor));
        }
        frames.add(&leaving.frame).await?;
        if leaving.bytes.is_some() {
            // Their room is theirs until they are written.
            return frames.flush().await;
        }
        next = if frames.is_flushed() { None } else { queue.try_recv().ok() };
    }
    frames.flush().await
}

/// What the reader can still do for a call under way.
struct Stream {
    /// For a call that takes bytes.
    data: Option<Intake>,
    credit: mpsc::Sender<u32>,
    task: Option<Task<()>>,
    may_abandon: bool,
    /// Taken away when nobody waits for the answer any more.
    waited_for: Option<watch::Sender<()>>,
}

type Streams = Arc<Mutex<HashMap<u32, Stream>>>;

/// Credits a call may have unread from the client. One that sends more is cut off.
const CREDITS_MAX: usize = 256;

struct Connection {
    services: Arc<Services>,
    peer: Peer,
    replies: Replies,
    streams: Streams,
    held: Arc<Held>,
    /// By which memory comes along, if it may.
    borrows: Option<Arc<Passing>>,
}

/// What came with a call.
struct Brought {
    payload: Bytes,
    part: Part,
    lent: Option<Piece>,
}

/// Waits for the next frame, and for room for it. There is no hurry before it begins; then it has
/// [`limits::RPC_FRAME_WITHIN`].
async fn arrive(
    sys: &Sys,
    held: &Held,
    frames: &mut FrameReader<impl AsyncRead + Unpin>,
) -> Result<Option<(Frame, Part)>> {
    let Some(head) = frames.head().await? else { return Ok(None) };
    let patience = Deadline::within(sys.clock(), limits::TRANSFER_IDLE);
    let part = sys.within(patience, held.incoming(head.cost())).await.map_err(busy)?;
    let until = Deadline::within(sys.clock(), limits::RPC_FRAME_WITHIN);
    Ok(Some((sys.within(until, frames.rest(head)).await?, part)))
}

impl Connection {
    async fn run(&mut self, mut frames: FrameReader<impl AsyncRead + Unpin>) -> Result<()> {
        let (sys, held) = (self.services.sys.clone(), self.held.clone());
        let until = Deadline::within(sys.clock(), limits::CALL_DEADLINE);
        let Some((first, _)) = sys.within(until, arrive(&sys, &held, &mut frames)).await? else {
            return Ok(());
        };
        self.greet(&first).await?;
        let mut renew = sys.clock().tick().plus(RENEW_EVERY);
        loop {
            // Not cancelled by the timer: the future is kept until it has an answer.
            let mut next = std::pin::pin!(arrive(&sys, &held, &mut frames));
            let arrived = loop {
                tokio::select! {
                    biased;
                    arrived = &mut next => break arrived?,
                    () = sys.sleep_until(renew) => {
                        self.peer.renew(&self.services);
                        renew = sys.clock().tick().plus(RENEW_EVERY);
                    }
                }
            };
            let Some((frame, part)) = arrived else { return Ok(()) };
            self.take(frame, part).await?;
        }
    }

    async fn greet(&mut self, frame: &Frame) -> Result<()> {
        let ToServer::Hello { oldest, newest } = frame.message()? else {
            return Err(Error::invalid("the client did not say hello"));
        };
        if oldest > VERSION || newest < VERSION_OLDEST {
            let detail =
                format!("the node speaks versions {VERSION_OLDEST} to {VERSION} of the native protocol");
            return Err(Error::new(ErrorKind::Unsupported, detail)
                .hint("install the same version of weft on both ends"));
        }
        if newest < LENT_SINCE {
            self.replies.lend_by(None);
        }
        let welcome = Welcome {
            version: VERSION.min(newest),
            domain: self.services.domain,
            certificates: (self.services.certificates)()?,
            supports: self.services.fs.supports(VolumeId(0)),
        };
        self.replies.send(Frame::new(0, &ToClient::Welcome(Box::new(welcome)), Bytes::new())).await
    }

    async fn take(&mut self, frame: Frame, part: Part) -> Result<()> {
        match frame.message()? {
            ToServer::Hello { .. } => Err(Error::invalid("the client said hello twice")),
            ToServer::Present { number, credential } => {
                self.peer.present(&self.services, number, &credential).await
            }
            ToServer::Forget { number } => {
                self.peer.forget(number);
                Ok(())
            }
            ToServer::Begin { session, credential, resume } => {
                let outcome = self.peer.begin(&self.services, session, credential, resume).await;
                self.replies.send(Frame::new(0, &ToClient::Begun { session, outcome }, Bytes::new())).await
            }
            ToServer::End { session } => {
                self.peer.end(&self.services, session);
                Ok(())
            }
            ToServer::Drop { session, file } => {
                self.peer.drop_file(session, file);
                Ok(())
            }
            ToServer::Call { header, body } => {
                let lent = lent_with(&body, self.borrows.as_deref())?;
                self.start(frame.stream, &header, body, Brought { payload: frame.payload, part, lent }).await
            }
            ToServer::Data { end } => {
                self.pass(frame.stream, Arrived::Bytes { bytes: frame.payload, end, part: Some(part) })
            }
            ToServer::Abort(report) => self.pass(frame.stream, Arrived::Aborted(report)),
            ToServer::Credit(bytes) => {
                let unread = |stream: &Stream| stream.credit.try_send(bytes);
                let sent = lock(&self.streams).get(&frame.stream).map(unread);
                if matches!(sent, Some(Err(mpsc::error::TrySendError::Full(_)))) {
                    return Err(Error::invalid("the client sent credit without end"));
                }
                Ok(())
            }
            ToServer::Cancel => {
                self.cancel(frame.stream);
                Ok(())
            }
        }
    }

    async fn start(
        &mut self,
        stream: u32,
        header: &CallHeader,
        body: CallBody,
        brought: Brought,
    ) -> Result<()> {
        let refused = {
            let streams = lock(&self.streams);
            if stream == 0 || streams.contains_key(&stream) {
                return Err(Error::invalid("the client used a call's number twice"));
            }
            streams.len() >= limits::RPC_CALLS_MAX
        };
        if refused {
            let busy = Error::new(ErrorKind::Busy, "too many calls are under way on this connection");
            Counted::new(&self.services, &body).ended(Some(&busy));
            return self.replies.send(reply(stream, &busy)).await;
        }
        let (call, opens) = match self.peer.call(&self.services, header, needs_session(&body)).await {
            Ok(found) => found,
            Err(error) => {
                Counted::new(&self.services, &body).ended(Some(&error));
                return self.replies.send(reply(stream, &error)).await;
            }
        };
        let takes = taken(&body);
        let (data, inflow) = (takes == Some(Taken::After)).then(Intake::new).unzip();
        let (credit, credited) = mpsc::channel(CREDITS_MAX);
        let (waited_for, given_up) = watch::channel(());
        let may_abandon = abandonable(&body);
        let entry = Stream { data, credit, task: None, may_abandon, waited_for: Some(waited_for) };
        lock(&self.streams).insert(stream, entry);
        let calling = Calling {
            services: self.services.clone(),
            replies: self.replies.clone(),
            stream,
            call,
            opens,
            payload: if takes == Some(Taken::With) { brought.payload } else { Bytes::new() },
            lent: brought.lent,
            part: Some(brought.part),
            held: self.held.clone(),
            inflow,
            given_up,
            credited,
        };
        let (streams, trace) = (self.streams.clone(), calling.call.trace);
        let task = self.services.sys.spawn(async move {
            trace::traced(trace, calling.run(body)).await;
            lock(&streams).remove(&stream);
        });
        if let Some(stream) = lock(&self.streams).get_mut(&stream) {
            stream.task = Some(task);
        }
        Ok(())
    }

    /// Hands upload bytes on. Those for a call that has ended meanwhile are dropped.
    fn pass(&self, stream: u32, arrived: Arrived) -> Result<()> {
        match lock(&self.streams).get(&stream).map(|stream| &stream.data) {
            Some(Some(intake)) => intake.pass(arrived),
            Some(None) => Err(Error::invalid("the client sent bytes to a call that takes none")),
            None => Ok(()),
        }
    }

    /// Nobody waits for the stream any more: a change is still made to its end, waiting (for
    /// changes, for a lock) and reading stop.
    fn cancel(&self, stream: u32) {
        let mut streams = lock(&self.streams);
        let Entry::Occupied(mut entry) = streams.entry(stream) else { return };
        entry.get_mut().waited_for = None;
        if entry.get().may_abandon
            && let Some(task) = entry.remove().task
        {
            task.abort();
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        for (_, stream) in lock(&self.streams).drain() {
            if let (true, Some(task)) = (stream.may_abandon, stream.task) {
                task.abort();
            }
        }
    }
}

/// Whether a call may leave something in a session: opens, locks, answers to replay.
fn needs_session(body: &CallBody) -> bool {
    match body {
        CallBody::Authority(_)
        | CallBody::Accounts(_)
        | CallBody::Node(_)
        | CallBody::Audit(_)
        | CallBody::Links(_)
        | CallBody::Tokens(_)
        | CallBody::Supports(_) => false,
        CallBody::Request(_)
        | CallBody::Batch(_)
        | CallBody::Open(..)
        | CallBody::File(..)
        | CallBody::Stage(..)
        | CallBody::Staged(_)
        | CallBody::OnStage(..)
        | CallBody::Lock(..)
        | CallBody::Test(..)
        | CallBody::Unlock(..)
        | CallBody::Put(..)
        | CallBody::PutAll(_) => true,
    }
}

/// Where the bytes are that a call takes.
#[derive(PartialEq, Eq)]
enum Taken {
    /// They came with it.
    With,
    /// They follow, as they are asked for.
    After,
}

/// Returns where the bytes are that a call takes. What others send is not kept.
fn taken(body: &CallBody) -> Option<Taken> {
    use weft_rpc::{FileAsk, StageAsk};
    match body {
        CallBody::File(_, FileAsk::Write { whole, .. })
        | CallBody::OnStage(_, StageAsk::Put { whole, .. }) => {
            Some(if *whole { Taken::With } else { Taken::After })
        }
        CallBody::Put(..) | CallBody::PutAll(_) => Some(Taken::With),
        _ => None,
    }
}

/// Whether dropping the call in the middle leaves nothing half done and nothing held.
fn abandonable(body: &CallBody) -> bool {
    use weft_core::form::Request;
    use weft_rpc::FileAsk::{Digests, Lend, Read};
    matches!(
        body,
        CallBody::Request(Request::Watch { .. }) | CallBody::File(_, Read(_) | Lend(_) | Digests(_))
    )
}

fn reply(stream: u32, error: &Error) -> Frame {
    Frame::new(stream, &ToClient::Reply(Box::new(Err(ErrorReport::from(error)))), Bytes::new())
}

fn lock(streams: &Mutex<HashMap<u32, Stream>>) -> MutexGuard<'_, HashMap<u32, Stream>> {
    // Every change leaves the table whole, so a panic elsewhere cannot spoil it.
    streams.lock().unwrap_or_else(PoisonError::into_inner)
}
