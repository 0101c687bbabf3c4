//! The audit log: a queue in front of chained files.
//!
//! ```text
//!   add(record) ──┐
//!                 ├─▶ queue ─▶ one writer: batches ─▶ frame (hash of the one before, signed head) ─▶ flush
//!   follow(notes)─┘                                                └─▶ acknowledge notes · remember the head
//! ```
//!
//! A record of a read or a refusal is on disk within a second of [`AuditLog::add`]. A record of a
//! write travels as a note of its commit and is copied here; the position of the last note copied
//! stands in the same frame as the records, so after a crash each is there exactly once, as long as
//! the log and the metadata are of the same history. (Whoever restores older metadata starts a new
//! log, or the notes counted twice would be skipped.)
//!
//! Nothing is ever removed. A disk that refuses to take a batch is asked again every second while
//! the queue fills; then callers wait; then, after [`limits::AUDIT_WAIT`], records are counted as
//! lost and the log says how many, once it can.

mod chain;
mod frame;
mod read;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot, watch};
use weft_core::form::{Door, Origin};
use weft_core::proof::{Caller, Trust};
use weft_core::service::{
    Audit, AuditFilter, AuditOutcome, AuditPage, AuditRecord, AuditSubject, AuditVerdict,
};
use weft_core::{
    CallerName, Clock, CredentialId, Deadline, DomainId, Error, ErrorKind, OneLine, Result, TraceId, limits,
};
use weft_kv::{Ack, Following, Note, NotePosition, Notes, Space, SpaceTxn};
use weft_sys::{Disk, Sys, Task};

pub(crate) use self::chain::KnownHead;
pub(crate) use self::frame::MAGIC;

use self::chain::Chain;
use crate::home::Home;
use crate::keys::KeyRing;
use crate::steady::Steady;
use crate::tables;

/// Pages of notes that may be on their way to the disk at once.
const PAGES_UNDER_WAY: usize = 4;

/// What waits for the writer.
enum Item {
    Record(Box<AuditRecord>),
    /// Records that came as notes, up to a position; told once they are on disk.
    Notes(Vec<AuditRecord>, u64, oneshot::Sender<()>),
    /// Told once everything before it is on disk.
    Flush(oneshot::Sender<()>),
}

/// The audit log of a node.
pub struct AuditLog {
    sys: Sys,
    steady: Arc<Steady>,
    queue: mpsc::Sender<Item>,
    lost: Arc<AtomicU64>,
    /// The last note that is in the log.
    copied: watch::Receiver<u64>,
    disk: Arc<dyn Disk>,
    chain: Arc<Mutex<Chain>>,
    keys: Arc<KeyRing>,
    domain: DomainId,
}

/// Appends batches, for as long as the log is there.
struct Writer {
    sys: Sys,
    steady: Arc<Steady>,
    space: Space,
    queue: mpsc::Receiver<Item>,
    lost: Arc<AtomicU64>,
    copied: watch::Sender<u64>,
    chain: Arc<Mutex<Chain>>,
}

/// Items that are written together.
#[derive(Default)]
struct Batch {
    records: Vec<AuditRecord>,
    bytes: usize,
    notes: Option<u64>,
    told: Vec<oneshot::Sender<()>>,
    /// Somebody waits, so it does not wait for company.
    urgent: bool,
}

impl Batch {
    fn add(&mut self, item: Item) {
        match item {
            Item::Record(record) => {
                self.bytes += size_of_record(&record);
                self.records.push(*record);
            }
            Item::Notes(records, upto, told) => {
                self.bytes += records.iter().map(size_of_record).sum::<usize>();
                self.urgent |= records.len() * 2 >= limits::KV_NOTES_PAGE_MAX;
                self.records.extend(records);
                self.notes = Some(upto);
                self.told.push(told);
            }
            Item::Flush(told) => {
                self.told.push(told);
                self.urgent = true;
            }
        }
    }

    fn is_full(&self) -> bool {
        self.records.len() >= limits::AUDIT_BATCH_MAX || self.bytes >= limits::AUDIT_BATCH_BYTES
    }
}

/// About how many bytes a record takes: its texts and what is fixed.
fn size_of_record(record: &AuditRecord) -> usize {
    let name = |name: &CallerName| name.local().len() + 64;
    let delegates: usize = record.delegates.iter().map(name).sum();
    let places = [&record.about.place, &record.about.to].into_iter().flatten();
    let places: usize = places.map(|(_, name)| name.as_bytes().len() + 16).sum();
    let texts = record.operation.len() + record.because.len();
    176 + name(&record.caller) + delegates + texts + places + 10 * record.about.also.len()
}

fn lock(chain: &Mutex<Chain>) -> MutexGuard<'_, Chain> {
    chain.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AuditLog {
    /// Takes up the log below `disk`, and starts its writer.
    pub(crate) fn open(
        sys: Sys,
        disk: Arc<dyn Disk>,
        space: Space,
        keys: Arc<KeyRing>,
        steady: Arc<Steady>,
        domain: DomainId,
    ) -> Result<(Self, Task<()>)> {
        let known = tables::read(&space.snapshot()?, &tables::audit_head_key())?;
        let chain = Chain::open(disk.clone(), keys.clone(), steady.clone(), domain, known)?;
        let (copying, copied) = watch::channel(chain.notes());
        let chain = Arc::new(Mutex::new(chain));
        let (queue, items) = mpsc::channel(limits::AUDIT_QUEUE_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let writer = Writer {
            sys: sys.clone(),
            steady: steady.clone(),
            space,
            queue: items,
            lost: lost.clone(),
            copied: copying,
            chain: chain.clone(),
        };
        let task = sys.spawn(writer.run());
        Ok((Self { sys, steady, queue, lost, copied, disk, chain, keys, domain }, task))
    }

    /// Records something. Never waits unless the queue is full.
    pub async fn add(&self, mut record: AuditRecord) {
        fit(&mut record);
        let Err(full) = self.queue.try_send(Item::Record(Box::new(record))) else { return };
        let mpsc::error::TrySendError::Full(item) = full else {
            self.count_lost();
            return;
        };
        Box::pin(self.wait_with(item)).await;
    }

    /// Waits for a place in the queue, and counts the record as lost if there is none in time.
    async fn wait_with(&self, item: Item) {
        let deadline = Deadline::within(self.sys.clock(), limits::AUDIT_WAIT);
        let send = async {
            self.queue.send(item).await.map_err(|_| Error::new(ErrorKind::Unavailable, "the log is closed"))
        };
        if self.sys.within(deadline, send).await.is_err() && self.count_lost() == 0 {
            tracing::error!("the audit log takes no records: some are lost");
        }
    }

    /// Counts a record as lost, and returns how many were before.
    fn count_lost(&self) -> u64 {
        self.sys.metrics().auth_audit_lost.count(());
        self.lost.fetch_add(1, Ordering::AcqRel)
    }

    /// Waits until everything added so far is on disk.
    pub async fn flush(&self) -> Result<()> {
        let closed = || Error::new(ErrorKind::Unavailable, "the audit log is closed");
        let (tell, told) = oneshot::channel();
        let deadline = Deadline::within(self.sys.clock(), limits::CALL_DEADLINE);
        let flushed = async {
            self.queue.send(Item::Flush(tell)).await.map_err(|_| closed())?;
            told.await.map_err(|_| closed())
        };
        self.sys.within(deadline, flushed).await
    }

    /// Waits until the notes up to a position are in the log: those of writes that somebody
    /// has been told of, once the engine was flushed.
    pub async fn copied(&self, upto: NotePosition) -> Result<()> {
        let deadline = Deadline::within(self.sys.clock(), limits::CALL_DEADLINE);
        let mut copied = self.copied.clone();
        let closed = |_| Error::new(ErrorKind::Unavailable, "the audit log is closed");
        let caught_up = async { copied.wait_for(|last| *last >= upto.0).await.map(drop).map_err(closed) };
        self.sys.within(deadline, caught_up).await.map_err(|error| match error.kind() {
            ErrorKind::Deadline => Error::new(ErrorKind::Deadline, "the log lacks the latest writes yet")
                .op("read the audit log")
                .hint("try again; if it stays so, look at the node's log"),
            _ => error,
        })
    }

    /// Copies records that come as notes (each the `postcard` form of an [`AuditRecord`]), in
    /// order, and acknowledges them once they are on disk. Runs until the engine is closed; fails
    /// if this log is closed before.
    pub async fn follow(&self, notes: Box<dyn Notes>) -> Result<()> {
        let mut notes = Following::new(self.sys.clone(), notes);
        let mut copied = lock(&self.chain).notes();
        let mut under_way: VecDeque<(u64, oneshot::Receiver<()>)> = VecDeque::new();
        loop {
            let room = under_way.len() < PAGES_UNDER_WAY;
            tokio::select! {
                page = notes.next(), if room => {
                    let Some(page) = page else { return Ok(()) };
                    let Some(last) = page.last().map(|note| note.position) else { continue };
                    if last.0 <= copied {
                        notes.ack(last).await;
                        continue;
                    }
                    for chunk in self.chunks_of(page.iter().filter(|note| note.position.0 > copied)) {
                        under_way.push_back(self.send_notes(chunk).await?);
                    }
                    copied = last.0;
                }
                done = oldest(&mut under_way), if !under_way.is_empty() => {
                    let upto = done?;
                    under_way.pop_front();
                    notes.ack(NotePosition(upto)).await;
                }
            }
        }
    }

    /// Cuts notes into runs that fit a batch: records and the position of the last.
    fn chunks_of<'n>(&self, notes: impl Iterator<Item = &'n Note>) -> Vec<(Vec<AuditRecord>, u64)> {
        let mut chunks: Vec<(Vec<AuditRecord>, u64)> = Vec::new();
        let mut bytes = usize::MAX;
        for note in notes {
            let record = self.record_of(note);
            if bytes >= limits::AUDIT_BATCH_BYTES {
                chunks.push((Vec::new(), 0));
                bytes = 0;
            }
            bytes += size_of_record(&record);
            if let Some((records, upto)) = chunks.last_mut() {
                records.push(record);
                *upto = note.position.0;
            }
        }
        chunks
    }

    async fn send_notes(
        &self,
        (records, upto): (Vec<AuditRecord>, u64),
    ) -> Result<(u64, oneshot::Receiver<()>)> {
        let (tell, told) = oneshot::channel();
        let closed = |_| Error::new(ErrorKind::Unavailable, "the audit log is closed");
        self.queue.send(Item::Notes(records, upto, tell)).await.map_err(closed)?;
        Ok((upto, told))
    }

    /// Reads a note. One that is no record is recorded as that: nothing is skipped in silence.
    fn record_of(&self, note: &Note) -> AuditRecord {
        postcard::from_bytes::<AuditRecord>(&note.bytes).map_or_else(
            |_| {
                tracing::error!(position = note.position.0, "a note of a write is no audit record");
                let outcome = AuditOutcome::Failed(ErrorKind::Corrupt);
                own_record(&*self.steady, "audit-note", outcome, "the note is no audit record".to_owned())
            },
            |mut record| {
                fit(&mut record);
                record
            },
        )
    }

    /// Returns records that the filter wants, everything added before this call included.
    pub(crate) async fn find(&self, filter: &AuditFilter) -> Result<AuditPage> {
        self.flush().await?;
        let (disk, filter) = (self.disk.clone(), filter.clone());
        let extent = lock(&self.chain).extent();
        self.sys.blocking(move || read::find(&*disk, &extent, &filter)).await?
    }

    /// Verifies the whole log.
    pub(crate) async fn verify_all(&self) -> Result<AuditVerdict> {
        self.flush().await?;
        let (disk, trust, domain) = (self.disk.clone(), self.keys.trust(), self.domain);
        let extent = lock(&self.chain).extent();
        self.sys.blocking(move || read::verify(&*disk, &extent, &trust, domain)).await?
    }
}

/// Verifies a log that nobody writes to. What a crash left of a batch that nobody was told is
/// there, after the last head that is remembered, is no damage.
pub(crate) fn verify_at_rest(
    disk: &dyn Disk,
    known: Option<KnownHead>,
    trust: &Trust,
    domain: DomainId,
) -> Result<AuditVerdict> {
    let extent = chain::extent_at_rest(disk, known)?;
    read::verify(disk, &extent, trust, domain)
}

async fn oldest(under_way: &mut VecDeque<(u64, oneshot::Receiver<()>)>) -> Result<u64> {
    let Some((upto, told)) = under_way.front_mut() else { return std::future::pending().await };
    told.await.map_err(|_| Error::new(ErrorKind::Unavailable, "the audit log is closed"))?;
    Ok(*upto)
}

/// Brings a record to its bounds.
fn fit(record: &mut AuditRecord) {
    cut(&mut record.operation);
    cut(&mut record.because);
    record.delegates.truncate(limits::DELEGATES_MAX);
    record.about.also.truncate(limits::AUDIT_CONTAINERS_MAX);
}

/// Puts a text on one line, whatever a caller wrote into it, and cuts it to its bound, between
/// characters.
fn cut(text: &mut String) {
    if text.contains(char::is_control) {
        *text = OneLine(text).to_string();
    }
    text.truncate(text.floor_char_boundary(limits::AUDIT_TEXT_BYTES_MAX));
}

/// Makes a record of something the log itself has to say.
fn own_record(clock: &dyn Clock, operation: &str, outcome: AuditOutcome, because: String) -> AuditRecord {
    AuditRecord {
        at: clock.now(),
        caller: CallerName::ANYONE,
        credential: CredentialId(0),
        delegates: Vec::new(),
        from: Origin { door: Door::Node, peer: None, uid: None },
        trace: TraceId(0),
        operation: operation.to_owned(),
        about: AuditSubject::default(),
        outcome,
        because,
        bytes: 0,
    }
}

impl Writer {
    async fn run(mut self) {
        while let Some(item) = self.queue.recv().await {
            let mut batch = Batch::default();
            batch.add(item);
            self.gather(&mut batch).await;
            let lost = self.lost.swap(0, Ordering::AcqRel);
            if lost > 0 {
                let outcome = AuditOutcome::Failed(ErrorKind::Busy);
                let record = own_record(&*self.steady, "audit-lost", outcome, format!("{lost} records"));
                batch.records.push(record);
            }
            if batch.records.is_empty() && batch.notes.is_none() {
                batch.tell();
                continue;
            }
            self.write(batch).await;
        }
    }

    /// Waits for company, no longer than [`limits::AUDIT_DELAY`], and not at all once somebody
    /// waits for the batch.
    async fn gather(&mut self, batch: &mut Batch) {
        let until = self.sys.clock().tick().plus(limits::AUDIT_DELAY);
        while !batch.is_full() {
            match self.queue.try_recv() {
                Ok(item) => batch.add(item),
                Err(_) if batch.urgent => return,
                Err(_) => tokio::select! {
                    item = self.queue.recv() => match item {
                        Some(item) => batch.add(item),
                        None => return,
                    },
                    () = self.sys.sleep_until(until) => return,
                },
            }
        }
    }

    /// Writes a batch, as often as it takes.
    async fn write(&self, mut batch: Batch) {
        let mut failures = 0_u64;
        loop {
            let (chain, records, notes) = (self.chain.clone(), batch.records.clone(), batch.notes);
            let written = self
                .sys
                .blocking(move || lock(&chain).append(records, notes))
                .await
                .and_then(|written| written);
            match written {
                Ok(head) => {
                    // Before anybody is told: who closes the engine has waited for this.
                    self.remember(head).await;
                    if let Some(notes) = notes {
                        self.copied.send_replace(notes);
                    }
                    batch.tell();
                    return;
                }
                Err(error) => {
                    if failures == 0 {
                        tracing::error!(?error, "the audit log cannot be written: it tries again");
                    }
                    failures += 1;
                    self.sys.sleep(limits::AUDIT_RETRY).await;
                }
            }
        }
    }

    /// Keeps the head where a cut of the log does not reach it.
    async fn remember(&self, head: KnownHead) {
        let act = move |txn: &mut SpaceTxn<'_>| tables::write(txn, &tables::audit_head_key(), &head);
        if let Err(error) = self.space.write(Ack::Applied, act).await {
            tracing::warn!(?error, "the audit log's head is not remembered: a cut would not be noticed");
        }
    }
}

impl Batch {
    fn tell(&mut self) {
        for told in self.told.drain(..) {
            // Whoever asked may have stopped waiting.
            let _ = told.send(());
        }
    }
}

/// The log as others see it.
pub(crate) struct ChainedAudit {
    home: Arc<Home>,
}

impl ChainedAudit {
    pub(crate) fn new(home: Arc<Home>) -> Self {
        Self { home }
    }
}

#[async_trait]
impl Audit for ChainedAudit {
    async fn record(&self, record: AuditRecord) {
        self.home.audit.add(record).await;
    }

    async fn records(&self, caller: &Caller, filter: &AuditFilter) -> Result<AuditPage> {
        if filter.container.is_none() {
            self.home.demand_administrator(caller).map_err(|error| error.op("read the audit log"))?;
        }
        self.home.live(caller)?;
        self.home.audit.find(filter).await
    }

    async fn verify(&self, caller: &Caller) -> Result<AuditVerdict> {
        self.home.demand_administrator(caller).map_err(|error| error.op("verify the audit log"))?;
        self.home.audit.verify_all().await
    }
}
