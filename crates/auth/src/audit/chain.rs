//! The audit log on disk: files that are only ever appended to, each batch flushed before it
//! counts.

use std::ops::ControlFlow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use weft_core::proof::Purpose;
use weft_core::service::AuditRecord;
use weft_core::{Clock, DomainId, Error, Result, limits};
use weft_sys::disk::Entry;
use weft_sys::{Disk, DiskFile, FlushSite, Open};

use super::frame::{self, Body, Link, MAGIC};
use super::read::FileReader;
use crate::keys::KeyRing;
use crate::steady::Steady;

/// Where the log stood when it was last written, as the tables remember it: a log that ends before
/// this has been cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KnownHead {
    pub(super) file: u64,
    pub(super) next: u64,
    pub(super) link: Link,
}

/// A file of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileMark {
    pub(super) number: u64,
    /// The position of its first record.
    pub(super) first: u64,
}

/// What a reader may read: these files, the last one up to `end`.
#[derive(Clone, Debug)]
pub(super) struct Extent {
    pub(super) files: Vec<FileMark>,
    pub(super) end: u64,
    pub(super) known: Option<KnownHead>,
}

/// The end of the log, where batches are added.
pub(super) struct Chain {
    disk: Arc<dyn Disk>,
    keys: Arc<KeyRing>,
    clock: Arc<Steady>,
    domain: DomainId,
    file: Option<Arc<dyn DiskFile>>,
    files: Vec<FileMark>,
    end: u64,
    link: Link,
    next: u64,
    notes: u64,
    known: Option<KnownHead>,
}

/// Returns the name of a file of the log.
pub(super) fn name_of(number: u64) -> String {
    format!("{number:016}.audit")
}

/// The numbers of the files there are, in order.
fn numbers(disk: &dyn Disk) -> Result<Vec<u64>> {
    let mut numbers = Vec::new();
    disk.list("", &mut |name, entry| {
        let number = name.strip_suffix(".audit").filter(|_| entry == Entry::File);
        numbers.extend(number.and_then(|number| number.parse::<u64>().ok()));
        ControlFlow::Continue(())
    })?;
    numbers.sort_unstable();
    Ok(numbers)
}

/// Returns what there is of a log that nobody writes to.
pub(super) fn extent_at_rest(disk: &dyn Disk, known: Option<KnownHead>) -> Result<Extent> {
    let last = numbers(disk)?.pop().max(known.map(|known| known.file));
    let files = last.map(|number| FileMark { number, first: 0 }).into_iter().collect();
    Ok(Extent { files, end: 0, known })
}

impl Chain {
    /// Takes up the log where it ends. What a crash left of a batch that nobody was told is there
    /// is cut off; what is damaged before the known head is left as it lies, for `verify` to name,
    /// and a new file is begun after it.
    pub(super) fn open(
        disk: Arc<dyn Disk>,
        keys: Arc<KeyRing>,
        clock: Arc<Steady>,
        domain: DomainId,
        known: Option<KnownHead>,
    ) -> Result<Self> {
        let mut chain = Self {
            disk,
            keys,
            clock,
            domain,
            file: None,
            files: Vec::new(),
            end: 0,
            link: [0; 32],
            next: 1,
            notes: 0,
            known,
        };
        let mut numbers = numbers(&*chain.disk)?;
        while let Some(number) = numbers.pop() {
            if chain.take_up(number)? {
                break;
            }
        }
        for number in &numbers {
            chain.mark(*number)?;
        }
        chain.files.sort_unstable_by_key(|mark| mark.number);
        if chain.file.is_none() {
            chain.begin_after_loss()?;
        }
        Ok(chain)
    }

    /// Remembers where an earlier file starts. One that does not say is left to `verify`.
    fn mark(&mut self, number: u64) -> Result<()> {
        let mut reader = FileReader::open(&*self.disk, number, None)?;
        match reader.next(None)? {
            Some(Ok(frame)) => self.files.push(FileMark { number, first: frame.body.next() }),
            _ => tracing::error!(file = name_of(number), "a file of the audit log cannot be read"),
        }
        Ok(())
    }

    /// Reads a last file to its end and goes on there. Returns `false` if nothing in it counts:
    /// the file before is then the last.
    fn take_up(&mut self, number: u64) -> Result<bool> {
        let mut reader = FileReader::open(&*self.disk, number, None)?;
        let mut link = None;
        let fault = loop {
            match reader.next(link.as_ref())? {
                Some(Ok(frame)) => {
                    if link.is_none() {
                        self.files.push(FileMark { number, first: frame.body.next() });
                    }
                    (self.next, self.notes) = (frame.body.next(), frame.body.notes());
                    (self.link, link) = (frame.link, Some(frame.link));
                }
                Some(Err(fault)) => break Some(fault),
                None => break None,
            }
        };
        let covers = self.known.is_none_or(|known| {
            known.file < number || (known.file == number && link.is_some() && known.next <= self.next)
        });
        match (fault, covers) {
            (None, true) if link.is_some() => {
                self.file = Some(self.disk.open(&name_of(number), Open::Write)?);
            }
            (_, true) if link.is_none() => {
                // Its opening was never flushed, so nothing was ever recorded in it.
                self.disk.remove(&name_of(number))?;
                return Ok(false);
            }
            (_, true) => {
                let file = self.disk.open(&name_of(number), Open::Write)?;
                file.set_len(reader.offset())?;
                file.sync(FlushSite::AuditBatch)?;
                self.file = Some(file);
            }
            (fault, false) => {
                let (file, at) = (name_of(number), reader.offset());
                tracing::error!(file, at, ?fault, "the audit log is damaged: it goes on in a new file");
                return Ok(true);
            }
        }
        self.end = reader.offset();
        Ok(true)
    }

    /// Begins the first file, or one after a part of the log that was lost.
    fn begin_after_loss(&mut self) -> Result<()> {
        let last = self.files.last().map_or(0, |mark| mark.number);
        let mut number = last + 1;
        if let Some(known) = self.known {
            number = number.max(known.file + 1);
            if self.next < known.next {
                (self.next, self.link) = (known.next, known.link);
            }
        }
        self.begin(number)
    }

    fn begin(&mut self, number: u64) -> Result<()> {
        let body = Body::Opening {
            domain: self.domain,
            number,
            previous: self.link,
            next: self.next,
            notes: self.notes,
        };
        let (bytes, link) = self.encode(&body, number)?;
        let file = self.disk.open(&name_of(number), Open::Make)?;
        // A try that failed may have left something.
        file.set_len(0)?;
        file.write_at(MAGIC, 0)?;
        file.write_at(&bytes, MAGIC.len() as u64)?;
        file.sync(FlushSite::AuditBatch)?;
        self.disk.sync_dir("", FlushSite::AuditDir)?;
        self.files.push(FileMark { number, first: self.next });
        (self.file, self.link) = (Some(file), link);
        self.end = (MAGIC.len() + bytes.len()) as u64;
        Ok(())
    }

    fn encode(&self, body: &Body, file: u64) -> Result<(Vec<u8>, Link)> {
        frame::encode(body, &self.link, file, self.clock.now(), |head| self.keys.sign(Purpose::Audit, head))
    }

    fn number(&self) -> u64 {
        self.files.last().map_or(0, |mark| mark.number)
    }

    /// Appends a batch and flushes it. After an error nothing of it counts, and the same batch
    /// is to be tried again: it then lies over what the first try left, is as long, and is
    /// flushed anew.
    pub(super) fn append(&mut self, records: Vec<AuditRecord>, notes: Option<u64>) -> Result<KnownHead> {
        if self.end >= limits::AUDIT_FILE_BYTES {
            self.begin(self.number() + 1)?;
        }
        let notes = notes.unwrap_or(self.notes).max(self.notes);
        let body = Body::Records { first: self.next, notes, records };
        let (bytes, link) = self.encode(&body, self.number())?;
        let file = self.file.as_ref().ok_or_else(|| Error::internal("the audit log has no file"))?;
        file.write_at(&bytes, self.end)?;
        file.sync(FlushSite::AuditBatch)?;
        self.end += bytes.len() as u64;
        (self.link, self.next, self.notes) = (link, body.next(), notes);
        let head = KnownHead { file: self.number(), next: self.next, link: self.link };
        self.known = Some(head);
        Ok(head)
    }

    /// Returns what is on disk.
    pub(super) fn extent(&self) -> Extent {
        Extent { files: self.files.clone(), end: self.end, known: self.known }
    }

    /// Returns the last note that was copied.
    pub(super) fn notes(&self) -> u64 {
        self.notes
    }
}
