//! Reading the audit log: frame by frame, one frame in memory.

use std::sync::Arc;

use weft_core::proof::Trust;
use weft_core::service::{AuditFilter, AuditPage, AuditRecord, AuditVerdict};
use weft_core::{DomainId, ErrorKind, Result, limits};
use weft_sys::{Disk, DiskFile, Open};

use super::chain::{Extent, KnownHead, name_of};
use super::frame::{self, Body, Fault, Frame, Link, MAGIC};

/// Bytes read at once: most batches fit.
const READ_BYTES: usize = 64 << 10;

/// Reads the frames of one file.
pub(super) struct FileReader {
    file: Arc<dyn DiskFile>,
    at: u64,
    end: u64,
    buffer: Vec<u8>,
}

impl FileReader {
    /// Opens a file, to be read up to `end` or to its length.
    pub(super) fn open(disk: &dyn Disk, number: u64, end: Option<u64>) -> Result<Self> {
        let file = disk.open(&name_of(number), Open::Read)?;
        let end = match end {
            Some(end) => end,
            None => file.len()?,
        };
        Ok(Self { file, at: 0, end, buffer: Vec::new() })
    }

    /// Returns where the next frame starts.
    pub(super) fn offset(&self) -> u64 {
        self.at
    }

    /// Reads the next frame, which follows `previous` (the opening, if there is none). `None` at
    /// the end. After a fault the reader stays where it is.
    pub(super) fn next(
        &mut self,
        previous: Option<&Link>,
    ) -> Result<Option<std::result::Result<Frame, Fault>>> {
        if self.at == 0 {
            let mut magic = [0; MAGIC.len()];
            let read = self.file.read(&mut magic, 0)?;
            if read < MAGIC.len() || magic != *MAGIC {
                return Ok(Some(Err(Fault::Wrong("the file does not begin as an audit file does"))));
            }
            self.at = MAGIC.len() as u64;
        }
        let left = self.end.saturating_sub(self.at);
        if left == 0 {
            return Ok(None);
        }
        let mut want = READ_BYTES;
        loop {
            let room = usize::try_from(left).unwrap_or(usize::MAX).min(want);
            self.buffer.resize(room, 0);
            let read = self.file.read(&mut self.buffer, self.at)?;
            match frame::decode(&self.buffer[..read], previous) {
                // `decode` asks for no more than a frame may have.
                Err(Fault::Short(needed)) if read == room && (room as u64) < left => {
                    want = needed.max(want + 1)
                }
                Ok(frame) => {
                    self.at += frame.bytes;
                    return Ok(Some(Ok(frame)));
                }
                Err(fault) => return Ok(Some(Err(fault))),
            }
        }
    }
}

/// Finds records. Returns at most [`limits::AUDIT_PAGE_MAX`], having looked through about
/// [`limits::AUDIT_SCAN_BYTES`] at most: a page with few or none may still say where to go on.
pub(super) fn find(disk: &dyn Disk, extent: &Extent, filter: &AuditFilter) -> Result<AuditPage> {
    let start = extent.files.partition_point(|mark| mark.first <= filter.after.saturating_add(1));
    let mut page = AuditPage { records: Vec::new(), next: None };
    let mut scanned = 0;
    for (place, mark) in extent.files.iter().enumerate().skip(start.saturating_sub(1)) {
        let end = (place + 1 == extent.files.len()).then_some(extent.end);
        let mut reader = FileReader::open(disk, mark.number, end)?;
        let mut link = None;
        loop {
            let frame = match reader.next(link.as_ref())? {
                None => break,
                Some(Ok(frame)) => frame,
                Some(Err(fault)) => {
                    // What follows it in this file cannot be told from forgery; `verify` names it.
                    let (file, at) = (name_of(mark.number), reader.offset());
                    tracing::error!(file, at, ?fault, "a part of the audit log cannot be read");
                    break;
                }
            };
            link = Some(frame.link);
            scanned += frame.bytes;
            let Body::Records { first, records, .. } = frame.body else { continue };
            let last = (first + records.len() as u64).saturating_sub(1);
            for (position, record) in (first..).zip(records) {
                if position > filter.after && wanted(filter, &record) {
                    page.records.push((position, record));
                    if page.records.len() == limits::AUDIT_PAGE_MAX {
                        page.next = Some(position);
                        return Ok(page);
                    }
                }
            }
            if scanned >= limits::AUDIT_SCAN_BYTES && last > filter.after {
                page.next = Some(last);
                return Ok(page);
            }
        }
    }
    Ok(page)
}

fn wanted(filter: &AuditFilter, record: &AuditRecord) -> bool {
    filter.container.is_none_or(|container| record.container == Some(container))
        && filter.object.is_none_or(|object| record.object == Some(object))
        && filter.caller.as_ref().is_none_or(|caller| record.caller == *caller)
        && filter.from.is_none_or(|from| record.at >= from)
        && filter.until.is_none_or(|until| record.at < until)
}

/// Where verification stands.
struct Walk<'a> {
    disk: &'a dyn Disk,
    trust: &'a Trust,
    domain: DomainId,
    known: Option<KnownHead>,
    link: Link,
    next: u64,
    notes: u64,
    records: u64,
}

/// Something that does not match, and where.
struct Broken {
    at: u64,
    fault: Fault,
}

/// Verifies the log from its first byte to its last.
pub(super) fn verify(
    disk: &dyn Disk,
    extent: &Extent,
    trust: &Trust,
    domain: DomainId,
) -> Result<AuditVerdict> {
    let mut walk =
        Walk { disk, trust, domain, known: extent.known, link: [0; 32], next: 1, notes: 0, records: 0 };
    let last = extent.files.last().map_or(0, |mark| mark.number);
    for number in 1..=last {
        let broken = match walk.file(number, (number == last).then_some(extent.end)) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Some(Broken { at: 0, fault: Fault::Wrong("the file is missing") })
            }
            walked => walked?,
        };
        if let Some(Broken { at, fault }) = broken {
            let detail = fault.detail().to_owned();
            return Ok(AuditVerdict::Broken { file: name_of(number), offset: at, detail });
        }
    }
    match walk.known {
        Some(known) => Ok(AuditVerdict::Broken {
            file: name_of(known.file),
            offset: extent.end,
            detail: "the log ends before its last head".to_owned(),
        }),
        None => Ok(AuditVerdict::Whole { records: walk.records }),
    }
}

impl Walk<'_> {
    /// Walks one file. Signatures cost most, so only its last is checked: it covers all before.
    /// If that one is wrong, all are checked, to name the first.
    fn file(&mut self, number: u64, end: Option<u64>) -> Result<Option<Broken>> {
        let before = (self.link, self.next, self.notes, self.records, self.known);
        let broken = self.frames(number, end, false)?;
        if broken.as_ref().is_some_and(|broken| broken.fault == UNSIGNED) {
            (self.link, self.next, self.notes, self.records, self.known) = before;
            return self.frames(number, end, true);
        }
        Ok(broken)
    }

    fn frames(&mut self, number: u64, end: Option<u64>, every: bool) -> Result<Option<Broken>> {
        let mut reader = FileReader::open(self.disk, number, None)?;
        let mut last: Option<(u64, Frame)> = None;
        loop {
            let at = reader.offset();
            let frame = match reader.next(Some(&self.link))? {
                None => break,
                Some(Ok(frame)) => frame,
                // The live end moves on while this walks.
                Some(Err(_)) if end.is_some_and(|end| at >= end) => break,
                Some(Err(fault)) => return Ok(Some(Broken { at, fault })),
            };
            if let Err(fault) = self.step(&frame, number, last.is_none(), every) {
                return Ok(Some(Broken { at, fault }));
            }
            last = Some((at, frame));
        }
        match last {
            None => Ok(Some(Broken { at: 0, fault: Fault::Wrong("the file is empty") })),
            Some((at, frame)) => {
                Ok(frame.check_head(self.trust, number).err().map(|_| Broken { at, fault: UNSIGNED }))
            }
        }
    }

    fn step(
        &mut self,
        frame: &Frame,
        number: u64,
        opening: bool,
        every: bool,
    ) -> std::result::Result<(), Fault> {
        if every {
            frame.check_head(self.trust, number)?;
        }
        match &frame.body {
            Body::Opening { domain, number: says, .. } => {
                if !opening || *domain != self.domain || *says != number || frame.body.next() != self.next {
                    return Err(Fault::Wrong("the file does not follow the one before"));
                }
            }
            Body::Records { first, records, .. } => {
                if opening || *first != self.next {
                    return Err(Fault::Wrong("a batch does not follow the one before"));
                }
                self.records += records.len() as u64;
            }
        }
        if frame.body.notes() < self.notes {
            return Err(Fault::Wrong("a batch counts notes backwards"));
        }
        (self.link, self.next, self.notes) = (frame.link, frame.body.next(), frame.body.notes());
        if self.known.is_some_and(|known| known.file == number && known.link == frame.link) {
            self.known = None;
        }
        Ok(())
    }
}

/// The fault of a head whose signature does not hold.
const UNSIGNED: Fault = Fault::Wrong("a batch's head is not signed by the domain");
