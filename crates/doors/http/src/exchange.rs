//! One request and its answer.

use std::borrow::Cow;
use std::cell::RefCell;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};

use bytes::BytesMut;
use tokio::io::AsyncReadExt;
use weft_core::attr::Attr;
use weft_core::form::{At, Call, Door, Origin, Source, Stopped, Want};
use weft_core::metrics::{Outcome, Way, Work};
use weft_core::{Error, ErrorKind, Name, Result, Rights, Tick, Time, TraceId, limits};
use weft_doors_listener::Shutdown;
use weft_mover::{Class, Outbound};
use weft_remote::Url;
use weft_sys::net::{More, Socket};

use crate::answer::{Answer, Problem};
use crate::body::{Body, Failure, Progress, Pulse};
use crate::codec::condition::format_date;
use crate::codec::head::{Field, Head, Method};
use crate::codec::target::Path;
use crate::codec::{accept, cookie};
use crate::connection::{Connection, Front};
use crate::identity::{Identity, Shown};
use crate::link::{self, Followed};
use crate::map::Act;
use crate::status::Status;
use crate::{Http, get, page, put, remove, third_party, tus, webdav};

/// What this door can be asked.
pub const ALLOW: &str =
    "GET, HEAD, PUT, DELETE, MKCOL, OPTIONS, PROPFIND, PROPPATCH, COPY, MOVE, LOCK, UNLOCK";
/// The same of a name that is a directory's: no file is put there.
pub const ALLOW_DIRECTORY: &str =
    "GET, HEAD, DELETE, MKCOL, OPTIONS, PROPFIND, PROPPATCH, COPY, MOVE, LOCK, UNLOCK";
/// The same of a name that is taken: nothing more is made there.
pub const ALLOW_TAKEN: &str =
    "GET, HEAD, PUT, DELETE, OPTIONS, PROPFIND, PROPPATCH, COPY, MOVE, LOCK, UNLOCK";

/// What becomes of the connection after an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// It waits for the next request.
    KeepAlive,
    /// It ends.
    Close,
    /// It ends once the answer has arrived: bytes may still be coming.
    Linger,
    /// It is cut: what was sent is not whole.
    Reset,
}

/// How an exchange can fail.
pub enum Failed {
    /// With an answer that says why.
    Problem(Box<Problem>),
    /// In the middle of an answer, or because nobody is there to hear one.
    Broken(Error),
}

impl Failed {
    /// Tells it in a way that suits who sent the request.
    fn told_to(self, head: &Head) -> Self {
        match self {
            Self::Problem(problem)
                if accept::wants_page(head.all(Field::Accept).ok().flatten().as_deref()) =>
            {
                Self::Problem(Box::new(problem.for_people()))
            }
            other => other,
        }
    }
}

impl<T: Into<Problem>> From<T> for Failed {
    fn from(problem: T) -> Self {
        Self::Problem(Box::new(problem.into()))
    }
}

/// The outcome of the parts of an exchange.
pub type Served<T = ()> = std::result::Result<T, Failed>;

/// The connection while one request is answered on it.
pub struct Talk<'c> {
    pub http: &'c Http,
    pub socket: &'c mut Socket,
    buffer: &'c mut BytesMut,
    front: Option<Front>,
    pub progress: Progress,
    pub trace: TraceId,
    is_1_1: bool,
    /// Whether the answer's body is left out.
    pub is_head: bool,
    keep_alive: bool,
    /// The answer's status once it was begun.
    status: Option<Status>,
    sent: u64,
    /// When the request was there.
    begun: Tick,
    /// How the exchange ended, once it has.
    outcome: Outcome,
}

/// A request whose caller is known.
pub struct Exchange<'t, 'c> {
    pub talk: &'t mut Talk<'c>,
    pub head: &'t Head,
    pub path: Path,
    pub call: Call,
    /// What was shown to say who asks.
    pub shown: Shown<'t>,
    /// Where the path begins, if the request came by a link; else at the root.
    pub linked: Option<Followed>,
}

/// Serves a request. Returns what becomes of the connection.
pub async fn run(connection: &mut Connection, head: Head, shutdown: &Shutdown, trace: TraceId) -> After {
    let http = connection.http.clone();
    let origin = connection.origin;
    let mut talk = Talk {
        http: &http,
        socket: &mut connection.socket,
        buffer: &mut connection.buffer,
        front: connection.front,
        progress: Progress::new(&head),
        trace,
        is_1_1: head.is_1_1,
        is_head: head.method == Method::Head,
        keep_alive: head.keep_alive && !shutdown.requested(),
        status: None,
        sent: 0,
        begun: http.services.sys.clock().tick(),
        outcome: Outcome::Done,
    };
    let served = serve(&mut talk, &head, &mut connection.identity, origin).await;
    let after = talk.conclude(served.map_err(|failed| failed.told_to(&head))).await;
    talk.count_request(work_of(&head));
    tracing::debug!(
        door = "http",
        op = head.method.name(),
        path = %link::shown(&head.path()).escape_ascii(),
        status = talk.status.map(Status::code),
        bytes = talk.sent,
        caller = %connection.identity.name(),
        trace = %talk.trace,
        "request"
    );
    after
}

/// Answers what is no request.
pub async fn refuse(connection: &mut Connection, problem: Problem) -> After {
    let http = connection.http.clone();
    let mut talk = Talk {
        http: &http,
        socket: &mut connection.socket,
        buffer: &mut connection.buffer,
        front: connection.front,
        progress: Progress::none(),
        trace: http.next_trace(),
        is_1_1: true,
        is_head: false,
        keep_alive: false,
        status: None,
        sent: 0,
        begun: http.services.sys.clock().tick(),
        outcome: Outcome::Done,
    };
    tracing::debug!(door = "http", status = problem.status.code(), trace = %talk.trace, "refused");
    let after = talk.conclude(Err(problem.into())).await;
    talk.count_request(Work::Other);
    match after {
        After::Reset => After::Reset,
        _ => After::Linger,
    }
}

/// Returns what sort of work a method is.
fn work_of(head: &Head) -> Work {
    match head.method {
        Method::Get => Work::Read,
        Method::Head | Method::Options | Method::Propfind => Work::Look,
        Method::Put | Method::Patch => Work::Write,
        Method::Post if head.has(Field::TusResumable) => Work::Write,
        Method::Delete | Method::Mkcol | Method::Proppatch | Method::Copy | Method::Move => Work::Change,
        Method::Lock | Method::Unlock => Work::Lock,
        Method::Post => Work::Rights,
        Method::Other => Work::Other,
    }
}

async fn serve(talk: &mut Talk<'_>, head: &Head, identity: &mut Identity, origin: Origin) -> Served {
    let own = || talk.own_ip();
    if (head.is_1_1 || !head.host().is_empty()) && !talk.http.hosts.admits(head.host(), own) {
        let why = "this door does not answer for that host; its operator can add the name";
        return Err(Problem::new(Status::MISDIRECTED, ErrorKind::Invalid, why).into());
    }
    if head.method == Method::Options {
        let allow = |answer: &mut Answer| {
            answer.field("Allow", format_args!("{ALLOW}, POST, PATCH")).field("DAV", webdav::CLASSES);
            tus::offer(answer.fixed("MS-Author-Via: DAV\r\n"));
        };
        return Box::pin(talk.reply(Status::NO_CONTENT, allow, None)).await;
    }
    let asked = tus::asked(head)?;
    // Only uploads are patched.
    if head.method == Method::Other || (head.method == Method::Patch && asked.is_none()) {
        let problem = Problem::new(
            Status::METHOD_NOT_ALLOWED,
            ErrorKind::Unsupported,
            "this door does not know the method, or not for this",
        );
        return Err(problem.with("Allow", ALLOW).into());
    }
    let raw = head.path();
    if let Some(target) = link::target(&raw) {
        return Box::pin(link::serve(talk, head, identity, origin, target)).await;
    }
    let path = Path::decode(raw).map_err(|error| Problem::of(&error, Act::Read))?;
    let cookie = cookie::of(head)?;
    // Whoever says who they are is heard, whatever their browser shows.
    let certificate = identity.certificate().filter(|_| !page::is_login(head));
    let shown = Shown::of(head.one(Field::Authorization)?, cookie.as_deref(), certificate.as_ref());
    if !head.method.is_safe() && head.method != Method::Post {
        page::guard::check(head, shown)?;
    }
    let call = identity.call(talk.http, shown, origin, talk.trace).await;
    let call = call.map_err(|error| Problem::of(&error, Act::Read))?;
    let exchange = Exchange { talk, head, path, call, shown, linked: None };
    if let Some(asked) = asked {
        return Box::pin(tus::serve(exchange, asked)).await;
    }
    match head.method {
        // What a read is not made of is boxed: room for it would be copied about with each read.
        Method::Get | Method::Head => get::serve(exchange).await,
        Method::Post => Box::pin(page::post(exchange)).await,
        Method::Put => Box::pin(put::serve(exchange)).await,
        Method::Mkcol => Box::pin(put::make_directory(exchange)).await,
        Method::Propfind => Box::pin(webdav::propfind::serve(exchange)).await,
        Method::Proppatch => Box::pin(webdav::proppatch::serve(exchange)).await,
        Method::Copy if third_party::is_asked(&exchange)? => Box::pin(third_party::serve(exchange)).await,
        Method::Copy | Method::Move => Box::pin(webdav::transfer::serve(exchange)).await,
        Method::Lock => Box::pin(webdav::locking::lock(exchange)).await,
        Method::Unlock => Box::pin(webdav::locking::unlock(exchange)).await,
        Method::Delete | Method::Patch | Method::Options | Method::Other => {
            Box::pin(remove::serve(exchange)).await
        }
    }
}

impl<'c> Talk<'c> {
    /// Returns the head of an answer, its connection's end decided: a body that will stay unread,
    /// or is too long to read for nothing, ends it.
    pub fn answer(&mut self, status: Status) -> Answer {
        let too_long = self.progress.left().is_some_and(|left| left > limits::HTTP_DRAIN_BYTES_MAX);
        if self.progress.awaits_leave || self.progress.failure.is_some() || too_long {
            self.keep_alive = false;
        }
        self.status = Some(status);
        let mut answer =
            with_date(self.http.services.sys.clock().now(), |date| Answer::new(status, date, self.trace));
        if !self.keep_alive {
            answer.fixed("Connection: close\r\n");
        } else if !self.is_1_1 {
            answer.fixed("Connection: keep-alive\r\n");
        }
        answer
    }

    /// Returns whether nobody on the way can read along.
    pub fn is_secured(&self) -> bool {
        self.front.map_or_else(|| self.socket.is_secured(), |front| front.is_secured)
    }

    /// Returns whether whoever asks came by TLS, to this door or to the server in front of it.
    pub fn is_reached_securely(&self) -> bool {
        self.is_secured() || self.http.public.as_ref().is_some_and(Url::is_secure)
    }

    /// Returns the address of this door as whoever asks knows it, without a path.
    pub fn origin(&self, head: &Head) -> String {
        if let Some(public) = &self.http.public {
            return public.origin();
        }
        let scheme = if self.is_secured() { "https" } else { "http" };
        format!("{scheme}://{}", String::from_utf8_lossy(head.host()))
    }

    /// Returns the address that the connection came to.
    pub fn own_address(&self) -> Option<SocketAddr> {
        self.front.map_or_else(|| self.socket.own_address(), |front| front.own)
    }

    /// Returns the host of that.
    pub fn own_ip(&self) -> Option<IpAddr> {
        self.own_address().map(|own| own.ip())
    }

    /// Waits until the other end is gone. What it sends meanwhile waits for its turn.
    pub async fn gone(&mut self) {
        while self.buffer.len() < limits::HTTP_HEAD_BYTES_MAX {
            if !matches!(self.socket.read_buf(self.buffer).await, Ok(1..)) {
                return;
            }
        }
        std::future::pending().await
    }

    /// Returns the head of an answer whose length nobody knows yet, and whether its body goes in
    /// chunks: to who takes none, the end of the connection is its end.
    pub fn begin_stream(&mut self, status: Status, fill: impl FnOnce(&mut Answer)) -> (Vec<u8>, bool) {
        let chunked = self.is_1_1;
        if !chunked {
            self.keep_alive = false;
        }
        let mut answer = self.answer(status);
        fill(&mut answer);
        if chunked {
            answer.fixed("Transfer-Encoding: chunked\r\n");
        }
        (answer.end(), chunked)
    }

    /// Sends a whole answer: head, and a body of a media type if there is one.
    pub async fn reply(
        &mut self,
        status: Status,
        fill: impl FnOnce(&mut Answer),
        body: Option<(&'static str, Vec<u8>)>,
    ) -> Served {
        let mut answer = self.answer(status);
        fill(&mut answer);
        let body = match body {
            Some((media, body)) => {
                answer.field("Content-Type", media).field("Content-Length", body.len());
                body
            }
            None if status == Status::NO_CONTENT || status == Status::NOT_MODIFIED => Vec::new(),
            None => {
                answer.field("Content-Length", 0);
                Vec::new()
            }
        };
        let mut bytes = answer.end();
        if !self.is_head {
            bytes.extend_from_slice(&body);
        }
        let class = Class::door(Door::Http);
        let mut outbound = self.http.services.mover.outbound(class, self.socket, None);
        let done = outbound.send_bytes(&bytes, More::Ends).await;
        self.sent += outbound.sent();
        done.map_err(Failed::Broken)
    }

    /// Returns the body of the request.
    pub fn body(&mut self) -> Body<'_> {
        let sys = &self.http.services.sys;
        let (room, pulse) = (&self.http.room, Pulse::default());
        Body { progress: &mut self.progress, socket: self.socket, buffer: self.buffer, sys, room, pulse }
    }

    fn way(&self) -> Way {
        if self.is_secured() { Way::Https } else { Way::Http }
    }

    fn count_request(&self, work: Work) {
        let sys = &self.http.services.sys;
        sys.metrics().doors_requests.count((self.way(), work, self.outcome));
        sys.metrics().doors_took.took((self.way(), work), sys.clock().tick().since(self.begun));
    }

    /// Counts bytes that were sent for the log.
    pub fn count(&mut self, sent: u64) {
        self.sent += sent;
    }

    /// Brings an exchange to its end: tells what went wrong where that can still be told.
    async fn conclude(&mut self, served: Served) -> After {
        let served = match served {
            Err(Failed::Problem(problem)) if self.status.is_none() => {
                self.outcome = Outcome::of(problem.kind);
                self.http.services.sys.metrics().doors_errors.count((self.way(), problem.kind));
                Box::pin(self.tell(*problem)).await
            }
            other => other,
        };
        if served.is_err() {
            self.outcome = Outcome::Broken;
        }
        match served {
            Ok(()) => self.end().await,
            Err(Failed::Problem(problem)) => {
                tracing::debug!(trace = %self.trace, ?problem, "an answer broke off");
                After::Reset
            }
            Err(Failed::Broken(error)) => {
                tracing::debug!(trace = %self.trace, %error, "a connection broke off");
                if self.status.is_some() { After::Reset } else { After::Close }
            }
        }
    }

    async fn tell(&mut self, problem: Problem) -> Served {
        if problem.closes {
            self.keep_alive = false;
        }
        let (media, body) = problem.body(self.trace);
        let fields = |answer: &mut Answer| {
            for (name, value) in &problem.fields {
                answer.field(name, value);
            }
            answer.fixed("Cache-Control: no-store\r\n");
            match problem.is_page() {
                true => answer.fixed(&page::RULES),
                false => answer.fixed("X-Content-Type-Options: nosniff\r\n"),
            };
            if problem.is_page() && problem.status == Status::UNAUTHORIZED {
                // A login is sent from here: the browser says of which origin it is.
                answer.fixed("Referrer-Policy: same-origin\r\n");
            }
        };
        self.reply(problem.status, fields, Some((media, body))).await
    }

    /// Ends an answered exchange: a rest of the body is read and dropped if that is little.
    async fn end(&mut self) -> After {
        if self.progress.is_done() && self.keep_alive {
            return After::KeepAlive;
        }
        if self.keep_alive {
            return if Box::pin(self.drained()).await { After::KeepAlive } else { After::Linger };
        }
        if self.progress.is_done() && self.buffer.is_empty() { After::Close } else { After::Linger }
    }

    /// Reads and drops the rest of the body, if that is little and comes soon.
    async fn drained(&mut self) -> bool {
        let sys = &self.http.services.sys;
        let mut body = self.body();
        tokio::select! {
            biased;
            done = body.drain(limits::HTTP_DRAIN_BYTES_MAX) => done,
            () = sys.sleep(limits::HTTP_LINGER) => false,
        }
    }
}

impl Exchange<'_, '_> {
    /// Returns where the request's path leads, a link at its end followed.
    pub fn at(&self) -> At {
        match &self.linked {
            Some(linked) => linked.at(&self.path.path),
            None => At::root(self.path.path.clone()).following(),
        }
    }

    /// Returns a path, beginning where the request's does, as a target.
    pub fn encode(&self, path: &Path) -> String {
        self.linked.as_ref().map_or_else(|| path.encode(), |linked| linked.encode(path))
    }

    /// Returns the name of what is asked for; none for the root.
    pub fn name(&self) -> Option<Name> {
        match &self.linked {
            Some(linked) => linked.name(&self.path),
            None => self.path.path.split_last().map(|(_, name)| name),
        }
    }

    /// Returns what is there, or `None` if nothing is.
    pub async fn found(&self, at: &At) -> Result<Option<Attr>> {
        match self.within(self.talk.http.services.fs.walk(&self.call, at, Want::default())).await {
            Ok(walked) => Ok(Some(walked.attr)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Waits for an answer of the file system, until the call's deadline.
    pub async fn within<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        self.talk.http.services.sys.within(self.call.until, work).await
    }

    /// Gives the call a new deadline: a transfer lies between the parts of an exchange.
    pub fn renew(&mut self) {
        let clock = self.talk.http.services.sys.clock();
        self.call.until = weft_core::Deadline::within(clock, limits::CALL_DEADLINE);
    }

    /// Returns the problem of an error. Who has not said who they are is asked to, unless they may
    /// know that the answer is no.
    pub async fn problem(&self, error: &Error, act: Act) -> Problem {
        if self.linked.is_some() {
            return link::problem(error);
        }
        let hides = match error.kind() {
            ErrorKind::Denied | ErrorKind::NotPermitted => true,
            ErrorKind::NotFound | ErrorKind::NotDirectory | ErrorKind::Stale => !self.may_know().await,
            _ => false,
        };
        if hides && self.call.caller.is_anyone() { Problem::who_asks() } else { Problem::of(error, act) }
    }

    /// Returns whether the caller may know which names the path's directory holds.
    async fn may_know(&self) -> bool {
        if !self.call.caller.is_anyone() {
            return true;
        }
        let Some((parent, _)) = self.path.path.split_last() else { return false };
        let at = At::root(parent).following();
        let want = Want { rights: true, attr: false };
        let walked = self.within(self.talk.http.services.fs.walk(&self.call, &at, want)).await;
        walked.is_ok_and(|walked| {
            walked.rights.is_some_and(|rights| rights.intersects(Rights::LIST | Rights::TRAVERSE))
        })
    }

    /// Sends the head of an answer and a source after it.
    pub async fn send(&mut self, head: &[u8], source: &mut dyn Source, length: u64) -> Served {
        let http = self.talk.http;
        let class = Class::of(&self.call);
        let mut outbound = http.services.mover.outbound(class, self.talk.socket, Some(length));
        let done = keeping_session(http, &self.call, pin!(outbound.send(head, source, More::Ends))).await;
        let sent = outbound.sent();
        drop(outbound);
        self.sent_or_not(done, sent)
    }

    /// Returns a transfer to this connection.
    pub fn outbound(&self, length: Option<u64>) -> Outbound<'_> {
        self.talk.http.services.mover.outbound(Class::of(&self.call), self.talk.socket, length)
    }

    /// Judges a transfer that ended: an error before the first byte can still be told.
    pub fn sent_or_not(&mut self, done: Result<()>, sent: u64) -> Served {
        self.talk.count(sent);
        match done {
            Ok(()) => Ok(()),
            Err(error) if sent > 0 => Err(Failed::Broken(error)),
            Err(error) => {
                self.talk.status = None;
                if self.linked.is_some() {
                    return Err(link::problem(&error).closing().into());
                }
                let error = error.said_of(At::root(self.path.path.clone()));
                Err(Problem::of(&error, Act::Read).closing().into())
            }
        }
    }

    /// Returns a future that ends when the caller's credential is withdrawn.
    pub fn withdrawn(&self) -> Stopped {
        let withdrawn = self.call.caller.withdrawn();
        Box::pin(async move {
            withdrawn.await;
            Error::new(ErrorKind::Revoked, "the credential was revoked")
        })
    }

    /// Returns what went wrong with an upload: its own framing, its connection, or `error`.
    pub async fn upload_failed(&mut self, error: Error) -> Failed {
        self.renew();
        match self.talk.progress.failure {
            Some(Failure::Refused(refusal)) => Problem::from(refusal).closing().into(),
            Some(Failure::Gone) => Failed::Broken(error),
            None if error.kind() == ErrorKind::Deadline => {
                let why = Cow::Owned(error.to_string());
                Problem::new(Status::TIMEOUT, ErrorKind::Deadline, why).closing().into()
            }
            None => self.problem(&error, Act::Make).await.into(),
        }
    }
}

/// Does work that may take long, and keeps the call's session alive meanwhile.
pub async fn keeping_session<T>(http: &Http, call: &Call, mut work: Pin<&mut impl Future<Output = T>>) -> T {
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = http.services.sys.sleep(limits::SESSION_IDLE / 3) => {
                // A session that has ended shows at the next call; the transfer itself goes on.
                let _ = http.services.sessions.renew(call.session);
            }
        }
    }
}

/// Shows the date: written once a second on each thread.
fn with_date<T>(now: Time, use_it: impl FnOnce(&str) -> T) -> T {
    thread_local! {
        static LAST: RefCell<(i64, String)> = const { RefCell::new((i64::MIN, String::new())) };
    }
    LAST.with_borrow_mut(|(second, text)| {
        if *second != now.seconds() {
            (*second, *text) = (now.seconds(), format_date(now));
        }
        use_it(text)
    })
}
