//! Small files on their way to a node. Those that are ready at the same time leave in one message, and
//! while messages are under way more gather: who sends many waits for few answers, who sends one waits for
//! nobody.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::oneshot;
use weft_core::attr::Changed;
use weft_core::form::{At, Call, Entry, Whole};
use weft_core::{Deadline, Error, ErrorReport, Result, limits};
use weft_rpc::Remote;

/// Messages under way at once: while the node makes the files of one, the next is filled.
const MESSAGES_AT_ONCE: usize = 2;

/// The files that wait, and who carries them.
#[derive(Default)]
pub(crate) struct Together(Mutex<State>);

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    /// Carriers at work: each has a message under way.
    carriers: usize,
}

/// A file that waits to be sent.
struct Waiting {
    call: Call,
    at: At,
    bytes: Bytes,
    whole: Whole,
    made: oneshot::Sender<Result<Changed<Entry>>>,
}

impl Together {
    /// Makes bytes, [`limits::PIECE_BYTES_MAX`] at most, the file at an address: see [`Remote::put`].
    pub(crate) async fn put(
        self: &Arc<Self>,
        remote: &Arc<Remote>,
        call: &Call,
        (at, bytes, whole): (At, Bytes, Whole),
    ) -> Result<Changed<Entry>> {
        if bytes.len() > limits::PUT_TOGETHER_BYTES_MAX || !remote.takes_several() {
            return remote.put(call, &at, bytes, whole).await;
        }
        let (made, answer) = oneshot::channel();
        self.state().waiting.push_back(Waiting { call: call.clone(), at, bytes, whole, made });
        // Others that are ready now come along.
        tokio::task::yield_now().await;
        if self.begins_to_carry() {
            let (own, remote) = (self.clone(), remote.clone());
            let sys = remote.connection().sys().clone();
            drop(sys.spawn(async move { own.carry(&remote).await }));
        }
        answer.await.map_err(|_| Error::internal("a file was given up on its way"))?
    }

    /// Returns whether somebody more is to carry, who then must.
    fn begins_to_carry(&self) -> bool {
        let mut state = self.state();
        let begins = !state.waiting.is_empty() && state.carriers < MESSAGES_AT_ONCE;
        state.carriers += usize::from(begins);
        begins
    }

    /// Carries what waits until nothing does.
    async fn carry(&self, remote: &Remote) {
        let mut carries = Carries { all: self, has_ended: false };
        while let Some(load) = self.load() {
            deliver(remote, load).await;
        }
        carries.has_ended = true;
    }

    /// Takes what goes into the next message. Whoever finds nothing carries no more.
    fn load(&self) -> Option<Vec<Waiting>> {
        let mut state = self.state();
        let mut room = limits::PIECE_BYTES_MAX;
        let mut load = Vec::new();
        // Of one that nobody waits for any more nothing is to be made.
        state.waiting.retain(|file| !file.made.is_closed());
        while load.len() < limits::PUTS_TOGETHER_MAX
            && let Some(file) = state.waiting.pop_front_if(|file| file.bytes.len() <= room)
        {
            room -= file.bytes.len();
            load.push(file);
        }
        if load.is_empty() {
            state.carriers -= 1;
            return None;
        }
        Some(load)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change leaves it whole, so a panic elsewhere cannot spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One who carries. Should it be lost under way, whoever comes next takes its place.
struct Carries<'a> {
    all: &'a Together,
    has_ended: bool,
}

impl Drop for Carries<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.all.state().carriers -= 1;
        }
    }
}

/// Sends files in one message, and says to each what became of it.
async fn deliver(remote: &Remote, load: Vec<Waiting>) {
    let Some(call) = load.first().map(|file| file.call.clone()) else { return };
    let (mut files, mut waiting, mut largest) = (Vec::new(), Vec::new(), 0);
    for Waiting { at, bytes, whole, made, .. } in load {
        largest = largest.max(bytes.len() as u64);
        files.push((at, bytes, whole));
        waiting.push(made);
    }
    // Their time begins now: whatever they waited for had its own.
    let until = Deadline::within(remote.connection().sys().clock(), limits::publish_within(largest));
    match remote.put_all(&Call { until, ..call }, files).await {
        Ok(made) => waiting.into_iter().zip(made).for_each(|(waits, made)| _ = waits.send(made)),
        Err(error) => {
            let report = ErrorReport::from(&error);
            waiting.into_iter().for_each(|waits| _ = waits.send(Err(report.clone().into())));
        }
    }
}
