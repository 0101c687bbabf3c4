//! The client's end of a connection: many calls at once over one line.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use weft_core::form::{Piece, Source};
use weft_core::proof::Caller;
use weft_core::service::SessionGrant;
use weft_core::{Deadline, Error, ErrorKind, ErrorReport, Result, Time, limits};
use weft_sys::net::{Passing, Peer, Socket};
use weft_sys::shared_buffer::is_lent_memory;
use weft_sys::{Pump, Sys, Task, process};

use crate::frame::{Frame, FrameReader, FrameWriter, write_frame};
use crate::lent;
use crate::message::{
    Answer, CallBody, CallHeader, LEND_SINCE, Lent, ToClient, ToServer, VERSION, VERSION_OLDEST,
    WRITE_LENT_SINCE, Welcome,
};
use crate::source::RemoteSource;
use crate::streams::{Closed, Incoming, Leaving, Lendable, Streams, Waiting, lock, opened};

/// Anything bytes go both ways over: a Unix socket now, TLS later.
pub trait Line: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Line for T {}

/// A connection to a node. Cloning shares it. When the last clone is dropped, or the
/// line breaks, it ends and every call under way fails with `Unavailable`.
#[derive(Clone)]
pub struct Connection(Arc<Shared>);

struct Shared {
    sys: Sys,
    out: mpsc::Sender<Leaving>,
    /// Writes what is put there.
    writer: Pump,
    /// Turns to lend memory to the server, if it takes any.
    lends: Option<Arc<Semaphore>>,
    streams: Arc<Mutex<Streams>>,
    welcome: Welcome,
    reader: Task<()>,
    /// The next number to present something under: one row for all who share the line.
    numbers: AtomicU32,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// The ways of descriptors over a local socket.
struct Ways {
    borrows: Arc<Passing>,
    lends: Arc<Passing>,
}

/// Numbers below mean the connection itself and anyone.
const NUMBERS_FROM: u32 = 2;

/// Frames that one stream may hold unread. A server that sends more than it was given
/// room for fails that stream.
const STREAM_FRAMES: usize = 1024;

impl Connection {
    /// Greets the server over a fresh line. Fails with `Unsupported` if the two have no
    /// version in common, `Unavailable` or `Deadline` if there is no answer.
    pub async fn open(sys: &Sys, line: impl Line, until: Deadline) -> Result<Self> {
        Self::open_over(sys, line, None, until).await
    }

    /// The same over a socket of this machine, by which a server of this process's uid may lend files and be lent memory.
    /// A file of another's could be one that never answers.
    pub async fn open_local(sys: &Sys, socket: Socket, until: Deadline) -> Result<Self> {
        if socket.peer() != Peer::Uid(process::uid()) {
            return Self::open_over(sys, socket, None, until).await;
        }
        let (socket, borrows) = socket.borrowing();
        let (socket, lends) = socket.lending();
        Self::open_over(sys, socket, Some(Ways { borrows, lends }), until).await
    }

    async fn open_over(sys: &Sys, line: impl Line, ways: Option<Ways>, until: Deadline) -> Result<Self> {
        let (from, mut to) = tokio::io::split(line);
        let mut frames = FrameReader::new(from);
        let hello = ToServer::Hello { oldest: VERSION_OLDEST, newest: VERSION };
        let greet = async {
            write_frame(&mut to, &Frame::new(0, &hello, Bytes::new())).await?;
            let frame = frames.next().await?.ok_or_else(closed)?;
            match frame.message()? {
                ToClient::Welcome(welcome) => Ok(*welcome),
                ToClient::Refused(report) => Err(report.into()),
                _ => Err(Error::invalid("the server did not say welcome")),
            }
        };
        let welcome = sys.within(until, greet).await?;
        let (out, queue) = mpsc::channel(limits::RPC_QUEUE_FRAMES);
        let streams = Arc::<Mutex<Streams>>::default();
        let (borrows, lending) = ways.map(|ways| (ways.borrows, ways.lends)).unzip();
        let lends = lending.is_some() && welcome.version >= WRITE_LENT_SINCE;
        let lends = lends.then(|| Arc::new(Semaphore::new(limits::RPC_LENT_AT_ONCE)));
        let (writer, _) = Pump::new(sys, write_all(sys.clone(), to, queue, streams.clone(), lending));
        let deliver = Deliver { streams: streams.clone(), out: out.clone(), borrows };
        let reader = sys.spawn(read_all(sys.clone(), frames, deliver));
        let numbers = AtomicU32::new(NUMBERS_FROM);
        Ok(Self(Arc::new(Shared { sys: sys.clone(), out, writer, lends, streams, welcome, reader, numbers })))
    }

    /// Returns what the server said of itself.
    pub fn welcome(&self) -> &Welcome {
        &self.0.welcome
    }

    /// Returns the system it runs on.
    pub fn sys(&self) -> &Sys {
        &self.0.sys
    }

    /// Returns why the connection ended, if it has.
    pub fn ended(&self) -> Option<Error> {
        self.streams().closed.clone().map(|closed| closed.why.into())
    }

    /// Returns when that was.
    pub fn ended_at(&self) -> Option<Time> {
        self.streams().closed.as_ref().map(|closed| closed.since)
    }

    /// Returns a number that nothing was presented under on this connection.
    pub(crate) fn number(&self) -> u32 {
        self.0.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a message that belongs to no call, if the server takes it before `until`.
    pub async fn tell(&self, message: &ToServer, until: Deadline) -> Result<()> {
        self.0.sys.within(until, self.send(Frame::new(0, message, Bytes::new()))).await
    }

    /// Sends a message that belongs to no call without waiting: for what is said while something
    /// is being dropped. It goes when there is room.
    pub fn tell_soon(&self, message: &ToServer) {
        let frame = Frame::new(0, message, Bytes::new());
        let queued = self.0.writer.bring(|| self.0.out.try_send(Leaving::Told(frame)));
        if let Err(TrySendError::Full(Leaving::Told(frame))) = queued {
            self.streams().tell_soon(&self.0.out, frame);
        }
    }

    /// Begins or resumes a session under a number of our choice.
    pub async fn begin(
        &self,
        session: u32,
        credential: u32,
        resume: Option<SessionGrant>,
        until: Deadline,
    ) -> Result<SessionGrant> {
        let (send, answer) = oneshot::channel();
        self.streams().sessions.insert(session, send);
        let begun = async {
            self.send(Frame::new(0, &ToServer::Begin { session, credential, resume }, Bytes::new())).await?;
            answer.await.map_err(|_| self.why())?
        };
        let outcome = self.0.sys.within(heard_by(until), begun).await;
        // Nobody waits for an answer that has not come by now.
        self.streams().sessions.remove(&session);
        outcome
    }

    /// Makes a call and waits for its answer and the bytes that came with it.
    pub async fn call(
        &self,
        header: CallHeader,
        body: CallBody,
        payload: Bytes,
        until: Deadline,
    ) -> Result<(Answer, Bytes)> {
        let answered = async {
            let (answer, came) = self.start(header, body, payload).await?.reply().await?;
            Ok((answer, came.bytes))
        };
        self.0.sys.within(heard_by(until), answered).await
    }

    /// Returns whether the server can be asked for files instead of their bytes.
    pub(crate) fn borrows(&self) -> bool {
        self.0.lends.is_some() && self.0.welcome.version >= LEND_SINCE
    }

    /// Returns the memory that all bytes of a write lie in, if it can be lent to the server now.
    pub(crate) fn lendable(&self, pieces: &[Piece]) -> Option<Lendable> {
        let [Piece::File { file, at, length }] = pieces else { return None };
        let turn = self.0.lends.clone().filter(|_| *length as u64 >= limits::RPC_LEND_FROM)?;
        let memory = file.descriptor().filter(|file| is_lent_memory(*file, at + *length as u64))?;
        let turn = turn.try_acquire_owned().ok()?;
        Some(Lendable { memory: memory.try_clone_to_owned().ok()?, from: *at, length: *length as u32, turn })
    }

    /// Makes a call that memory goes along with, and waits for its answer.
    pub(crate) async fn call_lending(
        &self,
        header: CallHeader,
        body: CallBody,
        lendable: Lendable,
        until: Deadline,
    ) -> Result<Answer> {
        let answered = async {
            let mut stream = self.start_with(header, body, Bytes::new(), Some(lendable)).await?;
            stream.reply().await.map(|(answer, _)| answer)
        };
        self.0.sys.within(heard_by(until), answered).await
    }

    /// Makes a call that is answered with bytes, for as long as `caller` lasts.
    pub async fn call_reading(
        &self,
        caller: &Caller,
        header: CallHeader,
        body: CallBody,
        until: Deadline,
    ) -> Result<RemoteSource> {
        let begun = async {
            let mut stream = self.start(header, body, Bytes::new()).await?;
            match stream.reply().await? {
                (Answer::Reading { length, whole }, came) => {
                    Ok(RemoteSource::new(stream, caller.clone(), length, whole, came.bytes))
                }
                (Answer::Lent(parts), came) => {
                    let pieces = lent::pieces(&parts, came.bytes, came.descriptors)?;
                    Ok(RemoteSource::lent(stream, caller.clone(), pieces))
                }
                _ => Err(unexpected()),
            }
        };
        self.0.sys.within(heard_by(until), begun).await
    }

    /// Makes a call whose bytes the server pulls as it has room. It ends by `until`, and
    /// earlier if for [`limits::RPC_STALL`] the server neither asks for more nor answers.
    pub async fn call_writing(
        &self,
        header: CallHeader,
        body: CallBody,
        data: &mut dyn Source,
        until: Deadline,
    ) -> Result<Answer> {
        let sys = &self.0.sys;
        let step_by = || heard_by(until).min(Deadline::within(sys.clock(), limits::RPC_STALL));
        let stream = sys.within(step_by(), self.start(header, body, Bytes::new())).await?;
        let mut sending = Sending { stream, room: 0, ended: false };
        loop {
            if let Some(reply) = sys.within(step_by(), sending.step(data)).await? {
                return sending.stream.finish(reply);
            }
        }
    }

    async fn start(&self, header: CallHeader, body: CallBody, payload: Bytes) -> Result<Stream> {
        self.start_with(header, body, payload, None).await
    }

    async fn start_with(
        &self,
        header: CallHeader,
        body: CallBody,
        payload: Bytes,
        lent: Option<Lendable>,
    ) -> Result<Stream> {
        let (messages, incoming) = mpsc::channel(STREAM_FRAMES);
        let (failed, failure) = watch::channel(None);
        let opens_in = matches!(body, CallBody::Open(..)).then_some(header.session);
        let frame = Frame::new(0, &ToServer::Call { header, body }, payload);
        let number = {
            let mut streams = self.streams();
            streams.may_begin()?;
            streams.begin(frame, lent, Waiting { messages, failed })
        };
        let stream = Stream { connection: self.clone(), number, incoming, failure, opens_in, done: false };
        stream.connection.queue(Leaving::Call(number)).await?;
        Ok(stream)
    }

    async fn send(&self, frame: Frame) -> Result<()> {
        self.queue(Leaving::Told(frame)).await
    }

    async fn queue(&self, leaving: Leaving) -> Result<()> {
        // Written here and now, if the line takes it: whoever calls would only wait for the writer to wake.
        match self.0.writer.bring(|| self.0.out.try_send(leaving)) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(leaving)) => self.0.out.send(leaving).await.map_err(|_| self.why()),
            Err(TrySendError::Closed(_)) => Err(self.why()),
        }
    }

    fn why(&self) -> Error {
        self.ended().unwrap_or_else(closed)
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        lock(&self.0.streams)
    }
}

/// One call under way. Dropping it before its end tells the server that nobody waits.
pub(crate) struct Stream {
    connection: Connection,
    number: u32,
    incoming: mpsc::Receiver<Incoming>,
    failure: watch::Receiver<Option<ErrorReport>>,
    /// The session it opens a file in, if that is what it does.
    opens_in: Option<u32>,
    done: bool,
}

impl Stream {
    pub(crate) async fn next(&mut self) -> Result<Incoming> {
        self.incoming.recv().await.ok_or_else(|| self.connection.why())
    }

    pub(crate) async fn send(&self, message: &ToServer, payload: Bytes) -> Result<()> {
        self.connection.send(Frame::new(self.number, message, payload)).await
    }

    /// Returns why the server ended the stream early, if it has: known before what was
    /// sent earlier has been taken.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.failure.borrow().clone().map(Error::from)
    }

    /// Returns a future that ends when the server ends the stream early.
    pub(crate) fn failing(&self) -> impl Future<Output = Error> + Send + 'static {
        let mut failure = self.failure.clone();
        async move {
            let failed = failure.wait_for(Option::is_some).await.ok().and_then(|report| report.clone());
            match failed {
                Some(report) => report.into(),
                // The stream has ended as it should: nothing will stop it any more.
                None => std::future::pending().await,
            }
        }
    }

    /// Says that everything was received: there is nothing left to cancel.
    pub(crate) fn set_done(&mut self) {
        self.done = true;
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    async fn reply(&mut self) -> Result<(Answer, Came)> {
        let incoming = self.next().await?;
        match incoming.message {
            ToClient::Reply(reply) => {
                let follows = matches!(&*reply, Ok(Answer::Reading { whole: false, .. }));
                self.done = !follows;
                let came = Came { bytes: incoming.payload, descriptors: incoming.descriptors };
                (*reply).map(|answer| (answer, came)).map_err(Error::from)
            }
            _ => Err(unexpected()),
        }
    }

    fn finish(&mut self, reply: std::result::Result<Answer, ErrorReport>) -> Result<Answer> {
        self.done = true;
        reply.map_err(Error::from)
    }
}

/// What came with an answer.
struct Came {
    bytes: Bytes,
    descriptors: Vec<OwnedFd>,
}

/// An upload: how much the server has room for, and whether all was sent.
struct Sending {
    stream: Stream,
    room: u32,
    ended: bool,
}

impl Sending {
    /// Takes what comes first: a message of the server, or bytes it has room for. Returns
    /// the answer if that was it.
    async fn step(
        &mut self,
        data: &mut dyn Source,
    ) -> Result<Option<std::result::Result<Answer, ErrorReport>>> {
        let may_pull = self.room > 0 && !self.ended;
        tokio::select! {
            biased;
            incoming = self.stream.next() => match incoming?.message {
                ToClient::Grant(bytes) => self.room = self.room.saturating_add(bytes),
                ToClient::Reply(reply) => return Ok(Some(*reply)),
                _ => return Err(unexpected()),
            },
            piece = data.next((self.room as usize).min(limits::PIECE_BYTES_MAX)), if may_pull => {
                self.pass(piece.and_then(|piece| piece.map(Piece::into_bytes).transpose())).await?;
            }
        }
        Ok(None)
    }

    async fn pass(&mut self, piece: Result<Option<Bytes>>) -> Result<()> {
        let (message, payload) = match piece {
            Ok(Some(bytes)) => (ToServer::Data { end: false }, bytes),
            Ok(None) => (ToServer::Data { end: true }, Bytes::new()),
            Err(error) => {
                self.stream.send(&ToServer::Abort((&error).into()), Bytes::new()).await?;
                return Err(error);
            }
        };
        self.room -= payload.len() as u32;
        self.ended = payload.is_empty();
        self.stream.send(&message, payload).await
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // They go after the lock.
        let (ended, unread);
        let mut streams = lock(&self.connection.0.streams);
        ended = streams.end(self.number);
        if self.done || streams.closed.is_some() {
            return;
        }
        // It may have been answered, and nobody looked.
        unread = self.incoming.try_recv().ok();
        let answer = unread.as_ref().map(|incoming| &incoming.message);
        streams.give_up((self.number, self.opens_in), &ended, answer, &self.connection.0.out);
    }
}

/// The server is the first to find that a deadline has passed: what waits for something
/// to happen then answers, and so does not fail.
fn heard_by(until: Deadline) -> Deadline {
    Deadline(until.0.plus(limits::RPC_ANSWER_GRACE))
}

fn unexpected() -> Error {
    Error::invalid("the server answered with something else than was asked for")
}

fn closed() -> Error {
    Error::new(ErrorKind::Unavailable, "the node closed the connection").hint("weft status")
}

async fn write_all(
    sys: Sys,
    to: impl AsyncWrite + Unpin,
    mut queue: mpsc::Receiver<Leaving>,
    streams: Arc<Mutex<Streams>>,
    lends: Option<Arc<Passing>>,
) {
    let mut frames = FrameWriter::new(to);
    while let Some(leaving) = queue.recv().await {
        if write_waiting(&mut frames, leaving, &mut queue, (&streams, lends.as_deref())).await.is_err() {
            // The reader meets the same end, and says why to those who wait. Whoever fails to
            // send meanwhile must find that the line has ended.
            let found = || Closed { why: (&closed()).into(), since: sys.clock().now() };
            lock(&streams).closed.get_or_insert_with(found);
            return;
        }
    }
}

/// Writes a frame and all that wait behind it.
async fn write_waiting(
    frames: &mut FrameWriter<impl AsyncWrite + Unpin>,
    first: Leaving,
    queue: &mut mpsc::Receiver<Leaving>,
    (streams, lends): (&Mutex<Streams>, Option<&Passing>),
) -> Result<()> {
    let mut next = Some(first);
    while let Some(leaving) = next {
        let (goes, unsaid) = lock(streams).leave(leaving);
        if let Some((frame, memory)) = goes {
            let goes_along = memory.zip(lends).map(|(memory, lends)| lends.add(memory));
            frames.add(&frame).await?;
            // More than go with one byte would come too late.
            if goes_along.is_some() {
                frames.flush().await?;
            }
        }
        for unsaid in unsaid {
            frames.add(&unsaid).await?;
        }
        next = queue.try_recv().ok();
    }
    frames.flush().await
}

async fn read_all(sys: Sys, mut frames: FrameReader<impl AsyncRead + Unpin>, deliver: Deliver) {
    let why = loop {
        match frames.next().await {
            Ok(Some(frame)) => {
                if let Err(error) = deliver.deliver(&frame) {
                    break error;
                }
            }
            Ok(None) => break closed(),
            Err(error) => break error,
        }
    };
    let heard = lock(&deliver.streams).close(&why, sys.clock().now());
    drop(heard);
}

/// Brings what is read to those who wait for it.
struct Deliver {
    streams: Arc<Mutex<Streams>>,
    out: mpsc::Sender<Leaving>,
    borrows: Option<Arc<Passing>>,
}

impl Deliver {
    /// Takes the descriptors that belong to a message, whether or not somebody waits for it.
    fn descriptors(&self, message: &ToClient) -> Result<Vec<OwnedFd>> {
        let ToClient::Reply(reply) = message else { return Ok(Vec::new()) };
        let Ok(Answer::Lent(parts)) = &**reply else { return Ok(Vec::new()) };
        let missing = || Error::invalid("the server said that it lent files, and did not");
        let borrows = self.borrows.as_ref().ok_or_else(missing)?;
        (0..Lent::descriptors(parts)).map(|_| borrows.take().ok_or_else(missing)).collect()
    }

    fn deliver(&self, frame: &Frame) -> Result<()> {
        match frame.message()? {
            ToClient::Begun { session, outcome } => {
                let waiting = lock(&self.streams).sessions.remove(&session);
                if let Some(waiting) = waiting {
                    let _ = waiting.send(outcome.map_err(Error::from));
                }
                Ok(())
            }
            ToClient::Refused(report) => Err(report.into()),
            message => {
                let descriptors = self.descriptors(&message)?;
                let payload = frame.payload.clone();
                self.hand_on(frame.stream, Incoming { message, payload, descriptors });
                Ok(())
            }
        }
    }

    /// Hands a message to who waits for it, if somebody does. Not under the lock: whoever is woken may be dropped there
    /// and then, by a runtime that ends, and take the lock for that.
    fn hand_on(&self, stream: u32, incoming: Incoming) {
        let opened = opened(&incoming.message);
        let waiting = lock(&self.streams).waiting_for(stream, &incoming.message);
        if let Some(waiting) = waiting {
            if let ToClient::Failed(report) = &incoming.message {
                waiting.failed.send_replace(Some(report.clone()));
            }
            if waiting.messages.try_send(incoming).is_err() {
                // More than it was given room for, or nobody waits: its channel ends.
                let ended = lock(&self.streams).end(stream);
                drop(ended);
            }
        }
        // After that: who gave it up before finds it here, who does so now finds it there.
        lock(&self.streams).give_back(stream, opened, &self.out);
    }
}
