//! The loop between `/dev/fuse` and the door.
//!
//! A few threads take requests. Each runs the request's future once where it stands: what
//! the file system answers from memory costs no change of thread. What has to wait goes
//! to the runtime, and the thread takes the next request, so that a call that is stuck
//! holds nobody up.
//!
//! Every request is answered: by its outcome, by its deadline, by an interrupt, or by
//! its [`Ticket`] being dropped, whatever panicked or stopped.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use rustix::io::Errno;
use tokio::runtime::Handle as Runtime;
use tokio::sync::{Semaphore, oneshot, watch};
use weft_core::{Error, ErrorKind, limits};

use crate::abi::request::{self, Header, Request, Subject};
use crate::abi::{IN_HEADER_BYTES, opcode};
use crate::buffers::{Buffer, Lent};
use crate::device::Received;
use crate::door::{Beside, Contents, Door, Outcome};
use crate::doors::Doors;
use crate::errno::Failure;
use crate::mounted::Mounted;
use crate::onward;
use crate::pending::Pending;
use crate::signals;

type Work = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// What the threads of one mount share.
pub(crate) struct Session {
    doors: Arc<Doors>,
    runtime: Runtime,
    pending: Pending,
    calls: Arc<Semaphore>,
    syncs: Arc<Semaphore>,
    lock_waits: Arc<Semaphore>,
    /// Says `true` once the kernel has ended the mount. Each thread holds it.
    ended: watch::Sender<bool>,
}

impl Session {
    /// Starts to serve a mount. `ended` is told once it has ended.
    pub(crate) fn start(
        doors: Arc<Doors>,
        runtime: Runtime,
        ended: watch::Sender<bool>,
    ) -> std::io::Result<()> {
        let session = Arc::new(Self {
            calls: Arc::new(Semaphore::new(doors.mounted.room.calls)),
            doors,
            runtime,
            pending: Pending::default(),
            syncs: Arc::new(Semaphore::new(limits::MOUNT_SYNCS_MAX)),
            lock_waits: Arc::new(Semaphore::new(limits::MOUNT_LOCK_WAITS_MAX)),
            ended,
        });
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        for number in 0..cores.clamp(2, limits::MOUNT_READERS_MAX) {
            let session = session.clone();
            let thread = std::thread::Builder::new().name(format!("weft-mount-{number}"));
            thread.spawn(move || session.serve())?;
        }
        Ok(())
    }

    fn serve(self: &Arc<Self>) {
        let _entered = self.runtime.enter();
        let mut buffer = self.mounted().buffers.take();
        while let Received::Request(size) = self.mounted().device.receive(&mut buffer) {
            let Some(header) = Header::read(&buffer[..size]) else {
                tracing::error!(op = "read /dev/fuse", size, "the kernel sent what is no request");
                continue;
            };
            match header.opcode {
                opcode::FORGET | opcode::BATCH_FORGET => {
                    let nodes = &self.mounted().nodes;
                    request::forgotten(&header, &buffer[IN_HEADER_BYTES..size], |node, n| {
                        nodes.forget(node, n)
                    });
                }
                opcode::INTERRUPT => self.interrupt(header.unique, &buffer[IN_HEADER_BYTES..size]),
                opcode::DESTROY => drop(self.mounted().device.answer(header.unique, Ok((&[], &[])))),
                _ => {
                    let (body, lent) = self.body(&header, &mut buffer, size);
                    self.begin(header, body, lent);
                }
            }
        }
        self.ended.send_replace(true);
    }

    /// Returns a request's bytes beyond its header. A large write takes its buffer
    /// along; everything else is small and copied.
    fn body(&self, header: &Header, buffer: &mut Buffer, size: usize) -> (Bytes, Option<Arc<Lent>>) {
        if header.opcode == opcode::WRITE && size >= limits::MOUNT_HANDOVER_BYTES {
            let full = std::mem::replace(buffer, self.mounted().buffers.take());
            let lent = self.mounted().buffers.lend(full, size);
            return (lent.bytes(), Some(lent));
        }
        (Bytes::copy_from_slice(&buffer[IN_HEADER_BYTES..size]), None)
    }

    fn interrupt(&self, unique: u64, body: &[u8]) {
        let Some(whose) = request::interrupted(body) else { return };
        if !self.pending.interrupt(whose) {
            // It is over, and the kernel drops this; or it is about to begin, and the
            // kernel sends the interrupt again.
            self.mounted().device.answer(unique, Err(Errno::AGAIN));
        }
    }

    fn mounted(&self) -> &Mounted {
        &self.doors.mounted
    }

    fn begin(self: &Arc<Self>, header: Header, body: Bytes, lent: Option<Arc<Lent>>) {
        let read = Request::read(header.opcode, body);
        let read = read.and_then(|request| Ok((self.doors.of(header.uid, request.handle())?, request)));
        let (door, request) = match read {
            Ok(read) => read,
            Err(errno) => {
                self.mounted().device.answer(header.unique, Err(errno));
                return;
            }
        };
        let ticket = Ticket::new(self.clone(), door.clone(), header);
        let taken = (header.opcode == opcode::SETLKW).then(Arc::default);
        let beside = Beside { lent, taken: taken.clone() };
        let work = door.handle(header, request, beside);
        let mut work: Work =
            if opcode::syncs(header.opcode) { in_turn(self.syncs.clone(), work) } else { Box::pin(work) };
        let mut context = Context::from_waker(Waker::noop());
        let first = std::panic::catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(&mut context)));
        match first {
            Ok(Poll::Ready(outcome)) => ticket.answer(outcome),
            Ok(Poll::Pending) => match taken {
                Some(taken) => self.wait_for_lock(ticket, work, taken),
                None => self.go_on(ticket, work),
            },
            // The panic was printed; the ticket answers.
            Err(_) => {}
        }
    }

    /// Goes on with a call, on the runtime as soon as what it waits for comes. If too many are under way already, this
    /// thread takes no further request until one has ended: each has a deadline.
    fn go_on(self: &Arc<Self>, ticket: Ticket, work: Work) {
        let permit = match self.calls.clone().try_acquire_owned() {
            _ if opcode::syncs(ticket.header.opcode) => None,
            Ok(permit) => Some(permit),
            Err(_) => self.runtime.block_on(self.calls.clone().acquire_owned()).ok(),
        };
        let interrupted = self.pending.wait(ticket.header.unique);
        // The call carries its deadline; this one is for an implementation that forgets it.
        let (door, header) = (ticket.door.clone(), ticket.header);
        let patience = door.patience(header.opcode) + limits::MOUNT_INTERRUPT_GRACE;
        let wished = stop_wished(ticket.header.opcode, ticket.header.pid, interrupted);
        let rest = async move {
            let given_up = async {
                tokio::select! {
                    () = wished => Failure::Door(Errno::INTR),
                    () = tokio::time::sleep(patience) => {
                        let error = Error::new(ErrorKind::Deadline, "no answer came in time");
                        door.note_failure(&header, &Subject::default(), &error);
                        Failure::Refused(error)
                    }
                }
            };
            tokio::select! {
                biased;
                outcome = work => ticket.answer(outcome),
                failure = given_up => ticket.answer(Err(failure)),
            }
            drop(permit);
        };
        onward::begin(&self.runtime, rest);
    }

    /// Waits for a lock for as long as the program does. One that was taken before an interrupt came is taken.
    fn wait_for_lock(self: &Arc<Self>, ticket: Ticket, mut work: Work, taken: Arc<AtomicBool>) {
        let Ok(permit) = self.lock_waits.clone().try_acquire_owned() else {
            return ticket.answer(Err(Failure::Door(Errno::NOLCK)));
        };
        let interrupted = self.pending.wait(ticket.header.unique);
        let mut ended = self.ended.subscribe();
        let ended = async move { drop(ended.wait_for(|ended| *ended).await) };
        self.runtime.spawn(async move {
            tokio::select! {
                biased;
                outcome = &mut work => ticket.answer(outcome),
                Ok(()) = interrupted => match taken.load(Ordering::Acquire) {
                    true => ticket.answer(work.await),
                    false => ticket.answer(Err(Failure::Door(Errno::INTR))),
                },
                () = ended => {}
            }
            drop(permit);
        });
    }
}

/// Has a sync be asked for once few enough others wait for the disk. One that hangs does so for long: who waits for it is
/// held up by others who do, and nobody else is.
fn in_turn(syncs: Arc<Semaphore>, sync: impl Future<Output = Outcome> + Send + 'static) -> Work {
    Box::pin(async move {
        let _turn = syncs.acquire_owned().await;
        sync.await
    })
}

/// Ends when a call that was interrupted is to be given up. One that changes something goes on
/// for a program that lives on: it would be told that nothing was done, and do it again. So does a sync, which tells once
/// that bytes were lost, but for one that is seen to live: it takes long, and who is killed waits for it.
async fn stop_wished(code: u32, thread: u32, interrupted: oneshot::Receiver<()>) {
    if interrupted.await.is_err() {
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep(limits::MOUNT_INTERRUPT_GRACE).await;
        let goes_on = match signals::is_dying(thread) {
            Some(is_dying) => !is_dying && (opcode::changes(code) || code == opcode::FSYNC),
            None => opcode::changes(code),
        };
        if !goes_on {
            return;
        }
    }
}

/// One request that must be answered. Dropped without, it answers `EIO`.
struct Ticket {
    session: Arc<Session>,
    door: Arc<Door>,
    header: Header,
    answered: bool,
}

impl Ticket {
    fn new(session: Arc<Session>, door: Arc<Door>, header: Header) -> Self {
        session.pending.begin(header.unique);
        Self { session, door, header, answered: false }
    }

    fn answer(mut self, outcome: Outcome) {
        self.answered = true;
        self.session.pending.end(self.header.unique);
        let (door, device) = (&self.door, &self.door.mounted.device);
        match outcome {
            Ok(reply) => {
                let is_taken = match reply.contents {
                    Contents::Memory(pieces) => device.answer(self.header.unique, Ok((&reply.head, &pieces))),
                    Contents::Pipe(piped) => device.answer_piped(self.header.unique, piped),
                };
                if !is_taken {
                    door.undo(reply.undo);
                }
            }
            Err(failure) => {
                if let Some(error) = failure.error() {
                    report(&self.header, error);
                    door.note_refusal(&self.header, error.kind());
                }
                device.answer(self.header.unique, Err(failure.errno()));
            }
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.answered {
            self.session.pending.end(self.header.unique);
            self.door.mounted.device.answer(self.header.unique, Err(Errno::IO));
        }
    }
}

/// Says in the log what a person has to look at, and the rest to whoever debugs.
fn report(header: &Header, error: &Error) {
    let Header { opcode, node, pid, .. } = *header;
    match error.kind() {
        ErrorKind::Internal | ErrorKind::Corrupt => {
            tracing::error!(opcode, node, pid, ?error, "a request of the mount failed");
        }
        ErrorKind::Unavailable | ErrorKind::Deadline => {
            tracing::warn!(opcode, node, pid, ?error, "a request of the mount failed");
        }
        _ => tracing::debug!(opcode, node, pid, ?error, "a request of the mount was refused"),
    }
}
