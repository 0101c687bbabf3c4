//! A node over the in-memory model that can be taken down, lose its memory, and cut the
//! line instead of answering.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tempfile::TempDir;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use weft_client::Place;
use weft_client::steady::{OpenNotes, Steady};
use weft_conformance::TestDomain;
use weft_core::form::{At, BytesSource, Call, FileSystem, Lock, OpenFile, Wait, collect, dispatch};
use weft_core::model::Model;
use weft_core::proof::Caller;
use weft_core::service::{Secret, SessionGrant, SessionWatcher};
use weft_core::{Deadline, Error, ErrorKind, ErrorReport, Result, SessionId, VolumeId, limits};
use weft_rpc::{
    Answer, As, CallBody, CallHeader, Connection, FileAsk, FileRef, Frame, FrameReader, Remote, ToClient,
    ToServer, VERSION, Welcome, write_frame,
};
use weft_sys::Sys;

/// The session that the steady client of a test calls in.
pub const SESSION: u128 = 7;

/// A node, and who owns all of its tree.
pub struct Node {
    pub model: Arc<Model>,
    pub alice: Caller,
    pub sys: Sys,
    domain: Arc<TestDomain>,
    place: Place,
    state: Arc<Mutex<State>>,
    dir: TempDir,
}

/// A call that is carried out and not answered, and what is done instead.
struct Cut {
    which: fn(&CallBody) -> bool,
    then: Box<dyn FnOnce() + Send>,
}

#[derive(Default)]
struct State {
    last: u64,
    sessions: HashMap<SessionId, Session>,
    tasks: Vec<AbortHandle>,
    cut: Option<Cut>,
    busy: usize,
}

/// What a session has, as far as a restart takes it away.
#[derive(Default)]
struct Session {
    /// The last number of a file: it counts from 1 after a restart.
    last: u32,
    opens: HashMap<u32, Arc<dyn OpenFile>>,
    locks: Vec<(At, Lock)>,
}

/// One line to a client.
#[derive(Clone)]
struct Line {
    state: Arc<Mutex<State>>,
    model: Arc<Model>,
    sys: Sys,
    caller: Caller,
    domain: Arc<TestDomain>,
    out: mpsc::Sender<Frame>,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Node {
    pub fn up() -> Self {
        let sys = Sys::real();
        let domain = TestDomain::new(3, Arc::new(sys.clone()), &[VolumeId(0)]);
        let (clock, timer) = (Arc::new(sys.clone()), Arc::new(sys.clone()));
        let model = Model::with_timer(clock, timer, domain.clone(), &domain.name("alice"));
        let dir = tempfile::tempdir().expect("a directory of its own");
        let (alice, place) = (domain.caller("alice"), Place::of_directory(dir.path()));
        let node = Self { model, alice, sys, domain, place, state: Arc::default(), dir };
        node.come_back();
        node
    }

    /// Returns a client of the node that outlives its lines, and the first of them.
    pub async fn steady(&self) -> (Steady, Connection) {
        let connection = self.line().await;
        let remote = Arc::new(Remote::new(connection.clone(), As::Connection));
        let steady = Steady::new(remote, &self.place, SessionId(SESSION));
        steady.begin(&self.alice).await.expect("a session");
        (steady, connection)
    }

    /// Returns one that keeps what it has open, and has not begun a session.
    pub async fn keeping(&self, notes: Arc<dyn OpenNotes>) -> Steady {
        let remote = Arc::new(Remote::new(self.line().await, As::Connection));
        Steady::keeping(remote, &self.place, SessionId(SESSION), notes)
    }

    async fn line(&self) -> Connection {
        let line = UnixStream::connect(self.place.socket()).await.expect("it listens");
        let until = Deadline::within(self.sys.clock(), Duration::from_secs(10));
        Connection::open(&self.sys, line, until).await.expect("it says welcome")
    }

    /// Returns a call of the steady client.
    pub fn call(&self) -> Call {
        self.domain.call(&self.alice, SESSION)
    }

    /// Returns a call of somebody else, past the node.
    pub fn other(&self) -> Call {
        self.domain.call(&self.alice, 99)
    }

    /// Says that the next call that `which` picks is carried out, that `then` comes next,
    /// and that every line is cut before it is answered.
    pub fn cut_at(&self, which: fn(&CallBody) -> bool, then: impl FnOnce() + Send + 'static) {
        lock(&self.state).cut = Some(Cut { which, then: Box::new(then) });
    }

    /// Says that so many calls about locks are refused because the node is busy.
    pub fn be_busy(&self, count: usize) {
        lock(&self.state).busy = count;
    }

    /// Stops to listen and cuts every line.
    pub fn go_away(&self) {
        let _ = std::fs::remove_file(self.dir.path().join("node.sock"));
        lock(&self.state).tasks.drain(..).for_each(|task| task.abort());
    }

    /// Listens again.
    pub fn come_back(&self) {
        let listener = UnixListener::bind(self.place.socket()).expect("it was given back");
        let (state, model, sys) = (self.state.clone(), self.model.clone(), self.sys.clone());
        let (caller, domain) = (self.alice.clone(), self.domain.clone());
        let accept = tokio::spawn(async move {
            while let Ok((line, _)) = listener.accept().await {
                let (out, queue) = mpsc::channel(limits::RPC_QUEUE_FRAMES);
                let (state, model, sys) = (state.clone(), model.clone(), sys.clone());
                let (caller, domain) = (caller.clone(), domain.clone());
                let served = Line { state: state.clone(), model, sys, caller, domain, out };
                let task = tokio::spawn(served.serve(line, queue));
                lock(&state).tasks.push(task.abort_handle());
            }
        });
        lock(&self.state).tasks.push(accept.abort_handle());
    }

    /// Goes away and comes back as a process that was killed does: sessions stay, what was
    /// open and locked in them does not.
    pub async fn restart(&self) {
        self.go_away();
        self.forget().await;
        self.come_back();
    }

    /// Forgets what was open and locked.
    pub async fn forget(&self) {
        let held: Vec<_> = {
            let mut state = lock(&self.state);
            let each = state.sessions.iter_mut();
            each.map(|(id, session)| (*id, std::mem::take(session))).collect()
        };
        for (id, session) in held {
            for (at, lock) in session.locks {
                let call = self.domain.call(&self.alice, id.0);
                self.model.unlock(&call, &at, &lock).await.expect("given up");
            }
        }
    }

    /// Ends every session, when that is called.
    pub fn end_sessions(&self) -> impl FnOnce() + Send + 'static {
        let (state, model) = (self.state.clone(), self.model.clone());
        move || {
            let ended: Vec<_> = lock(&state).sessions.drain().collect();
            ended.iter().for_each(|(id, _)| model.ended(*id));
        }
    }
}

impl Line {
    async fn serve(self, line: UnixStream, mut queue: mpsc::Receiver<Frame>) {
        let (from, mut to) = line.into_split();
        let write = async {
            while let Some(frame) = queue.recv().await {
                write_frame(&mut to, &frame).await?;
            }
            Ok::<_, Error>(())
        };
        // A line that ends is no failure of a test by itself.
        let _ = tokio::join!(write, self.read(FrameReader::new(from)));
    }

    async fn read(self, mut frames: FrameReader<tokio::net::unix::OwnedReadHalf>) -> Result<()> {
        let mut sessions = HashMap::new();
        while let Some(frame) = frames.next().await? {
            match frame.message()? {
                ToServer::Hello { .. } => {
                    let (domain, supports) = (self.domain.id(), self.model.supports(VolumeId(0)));
                    let welcome = Welcome { version: VERSION, domain, certificates: Vec::new(), supports };
                    self.send(0, &ToClient::Welcome(Box::new(welcome)), Bytes::new()).await;
                }
                ToServer::Begin { session, resume, .. } => {
                    let outcome = self.begin(resume);
                    if let Ok(grant) = &outcome {
                        sessions.insert(session, grant.id);
                    }
                    let outcome = outcome.map_err(|e| ErrorReport::from(&e));
                    self.send(0, &ToClient::Begun { session, outcome }, Bytes::new()).await;
                }
                ToServer::Drop { session, file } => drop(self.drop_file(sessions[&session], file)),
                ToServer::Call { header, body } => {
                    let (line, id) = (self.clone(), sessions[&header.session]);
                    let task = tokio::spawn(line.carry_out(frame.stream, id, header, body, frame.payload));
                    lock(&self.state).tasks.push(task.abort_handle());
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn begin(&self, resume: Option<SessionGrant>) -> Result<SessionGrant> {
        let mut state = lock(&self.state);
        if let Some(grant) = resume {
            let known = state.sessions.contains_key(&grant.id);
            return if known { Ok(grant) } else { Err(Error::stale("the session has ended")) };
        }
        state.last += 1;
        let id = SessionId(1 << 64 | u128::from(state.last));
        state.sessions.insert(id, Session::default());
        Ok(SessionGrant { id, secret: Secret::new("secret") })
    }

    async fn carry_out(self, stream: u32, id: SessionId, header: CallHeader, body: CallBody, bytes: Bytes) {
        let mut call = self.domain.call(&self.caller, id.0);
        (call.once, call.ack) = (header.once, header.ack);
        call.until = Deadline::within(self.sys.clock(), Duration::from_millis(header.left_ms.into()));
        let cut = {
            let mut state = lock(&self.state);
            let hit = state.cut.as_ref().is_some_and(|cut| (cut.which)(&body));
            if hit { state.cut.take() } else { None }
        };
        let outcome = self.answer(&call, body, bytes).await;
        if let Some(Cut { then, .. }) = cut {
            then();
            // This task is one of them, and ends at its next wait.
            lock(&self.state).tasks.iter().skip(1).for_each(|task| task.abort());
            return;
        }
        let (answer, payload) = match outcome {
            Ok((answer, payload)) => (Ok(answer), payload),
            Err(error) => (Err(ErrorReport::from(&error)), Bytes::new()),
        };
        self.send(stream, &ToClient::Reply(Box::new(answer)), payload).await;
    }

    async fn send(&self, stream: u32, message: &ToClient, payload: Bytes) {
        // The client may have gone.
        let _ = self.out.send(Frame::new(stream, message, payload)).await;
    }

    async fn answer(&self, call: &Call, body: CallBody, bytes: Bytes) -> Result<(Answer, Bytes)> {
        let answer = match body {
            CallBody::Request(request) => Answer::Reply(dispatch(&*self.model, call, request).await?),
            CallBody::Open(at, how) => {
                let opened = self.model.open(call, &at, &how).await?;
                let mut state = lock(&self.state);
                let session = state.sessions.entry(call.session).or_default();
                session.last += 1;
                let file = session.last;
                session.opens.insert(file, opened.file);
                Answer::Opened { file, attr: opened.attr, made: opened.made, parent: opened.parent }
            }
            CallBody::File(FileRef::Open(file), ask) => return self.on_file(call, file, ask, bytes).await,
            CallBody::Lock(at, wanted, _) => {
                self.check_busy()?;
                self.model.lock(call, &at, &wanted, Wait::No).await?;
                lock(&self.state).sessions.entry(call.session).or_default().locks.push((at, wanted));
                Answer::Locked(1000)
            }
            CallBody::Unlock(at, lock) => {
                self.check_busy()?;
                self.model.unlock(call, &at, &lock).await?;
                Answer::Done
            }
            _ => return Err(Error::new(ErrorKind::Unsupported, "no test asks for it")),
        };
        Ok((answer, Bytes::new()))
    }

    async fn on_file(&self, call: &Call, file: u32, ask: FileAsk, bytes: Bytes) -> Result<(Answer, Bytes)> {
        let open = {
            let state = lock(&self.state);
            let found = state.sessions.get(&call.session).and_then(|session| session.opens.get(&file));
            found.cloned().ok_or_else(|| Error::stale("the file is not open in this session"))?
        };
        let answer = match ask {
            FileAsk::Read(range) => {
                let mut source = open.read(call, range).await?;
                let read = collect(&mut *source, limits::PIECE_BYTES_MAX).await?;
                let length = Some(read.len() as u64);
                return Ok((Answer::Reading { length, whole: true }, read));
            }
            FileAsk::Write { at, .. } => {
                Answer::Written(open.write(call, at, &mut BytesSource::new(bytes)).await?)
            }
            FileAsk::Attr => Answer::Attr(open.attr(call).await?),
            FileAsk::Sync(range) => Answer::Verifier(open.sync(call, range).await?),
            FileAsk::Close => {
                drop(self.drop_file(call.session, file));
                Answer::Done
            }
            _ => return Err(Error::new(ErrorKind::Unsupported, "no test asks for it")),
        };
        Ok((answer, Bytes::new()))
    }

    fn check_busy(&self) -> Result<()> {
        let mut state = lock(&self.state);
        let busy = state.busy > 0;
        state.busy = state.busy.saturating_sub(1);
        if busy { Err(Error::new(ErrorKind::Busy, "too much is under way")) } else { Ok(()) }
    }

    fn drop_file(&self, session: SessionId, file: u32) -> Option<Arc<dyn OpenFile>> {
        lock(&self.state).sessions.get_mut(&session)?.opens.remove(&file)
    }
}
