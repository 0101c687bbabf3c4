//! Reading the audit log: frame by frame, one frame in memory.

use std::sync::Arc;

use weft_core::proof::Trust;
use weft_core::service::{AuditFilter, AuditPage, AuditRecord, AuditVerdict};
use weft_core::{DomainId, ErrorKind, Result, limits};
use weft_sys::{Disk, DiskFile, Open};

use super::chain::{Extent, KnownHead, name_of};
use super::frame::{self, Body, Fault, Frame, Link, MAGIC};
use super::size_of_record;

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

/// Finds records. Returns at most [`limits::AUDIT_PAGE_MAX`] of [`limits::AUDIT_PAGE_BYTES`], having looked through about
/// [`limits::AUDIT_SCAN_BYTES`] at most: a page with few or none may still say where to go on.
pub(super) fn find(disk: &dyn Disk, extent: &Extent, filter: &AuditFilter) -> Result<AuditPage> {
    let start = extent.files.partition_point(|mark| mark.first <= filter.after.saturating_add(1));
    let mut page = AuditPage { records: Vec::new(), next: None };
    let (mut scanned, mut bytes) = (0, 0);
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
                    bytes += size_of_record(&record);
                    page.records.push((position, record));
                    if page.records.len() == limits::AUDIT_PAGE_MAX || bytes >= limits::AUDIT_PAGE_BYTES {
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
    filter.container.is_none_or(|container| record.about.is_about_container(container))
        && filter.object.is_none_or(|object| record.about.is_about(object))
        && filter.caller.as_ref().is_none_or(|caller| record.caller == *caller)
        && filter.from.is_none_or(|from| record.at >= from)
        && filter.until.is_none_or(|until| record.at < until)
}

/// Something that does not match, and where.
struct Broken {
    file: u64,
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
    let state = State { known: extent.known, link: [0; 32], next: 1, notes: 0, records: 0, end: 0 };
    let mut walk = Walk { disk, trust, domain, state };
    let last = extent.files.last().map_or(0, |mark| mark.number);
    for number in 1..=last {
        let broken = match walk.file(number, (number == last).then_some(extent.end)) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Some(Broken { file: number, at: 0, fault: Fault::Wrong("the file is missing") })
            }
            walked => walked?,
        };
        if let Some(Broken { file, at, fault }) = broken {
            let detail = fault.detail().to_owned();
            return Ok(AuditVerdict::Broken { file: name_of(file), offset: at, detail });
        }
    }
    match walk.state.known {
        Some(known) => Ok(AuditVerdict::Broken {
            file: name_of(known.file),
            offset: walk.state.end,
            detail: "the log ends before its last head".to_owned(),
        }),
        None => Ok(AuditVerdict::Whole { records: walk.state.records }),
    }
}

/// Where verification stands.
#[derive(Clone, Copy)]
struct State {
    /// The head that must still come.
    known: Option<KnownHead>,
    link: Link,
    next: u64,
    notes: u64,
    records: u64,
    /// Where the last file ended.
    end: u64,
}

struct Walk<'a> {
    disk: &'a dyn Disk,
    trust: &'a Trust,
    domain: DomainId,
    state: State,
}

impl Walk<'_> {
    /// Walks one file. Signatures cost most, so only its last is checked: it covers all before.
    /// If that one is wrong, all are checked, to name the first.
    fn file(&mut self, number: u64, end: Option<u64>) -> Result<Option<Broken>> {
        let before = self.state;
        let broken = self.frames(number, end, false)?;
        if broken.as_ref().is_some_and(|broken| broken.fault == UNSIGNED) {
            self.state = before;
            return self.frames(number, end, true);
        }
        Ok(broken)
    }

    fn frames(&mut self, number: u64, end: Option<u64>, every: bool) -> Result<Option<Broken>> {
        let mut reader = FileReader::open(self.disk, number, None)?;
        let mut last: Option<(u64, Frame)> = None;
        loop {
            let frame = match reader.next(Some(&self.state.link))? {
                None => break,
                Some(Ok(frame)) => frame,
                // The live end moves on while this walks; at rest a crash may have cut it.
                Some(Err(_)) if end.is_some_and(|end| reader.offset() >= end) && self.has_head() => break,
                Some(Err(_)) if last.is_none() && self.follows_another(number)? => {
                    let fault = Fault::Wrong("the file ends before its last batch");
                    return Ok(Some(Broken { file: number - 1, at: self.state.end, fault }));
                }
                Some(Err(fault)) => return Ok(Some(Broken { file: number, at: reader.offset(), fault })),
            };
            let at = reader.offset() - frame.bytes;
            if let Err(fault) = self.step(&frame, number, last.is_none(), every) {
                return Ok(Some(Broken { file: number, at, fault }));
            }
            last = Some((at, frame));
        }
        self.state.end = reader.offset();
        let Some((at, frame)) = last else {
            if end.is_some() && number > 1 && self.has_head() {
                // A crash kept its opening from being flushed.
                return Ok(None);
            }
            return Ok(Some(Broken { file: number, at: 0, fault: Fault::Wrong("the file is empty") }));
        };
        let unsigned = frame.check_head(self.trust, number).is_err();
        Ok(unsigned.then_some(Broken { file: number, at, fault: UNSIGNED }))
    }

    /// Whether the last head that is remembered was met: what follows may never have counted.
    fn has_head(&self) -> bool {
        self.state.known.is_none()
    }

    /// Whether a file begins well, but after something else than the file before it ends with: so
    /// that one was cut.
    fn follows_another(&self, number: u64) -> Result<bool> {
        let opening = FileReader::open(self.disk, number, None)?.next(None)?;
        let Some(Ok(Frame { body: Body::Opening { previous, .. }, .. })) = opening else { return Ok(false) };
        Ok(number > 1 && previous != self.state.link)
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
        let state = &mut self.state;
        match &frame.body {
            Body::Opening { domain, number: says, next, .. } => {
                if !opening || *domain != self.domain || *says != number || *next != state.next {
                    return Err(Fault::Wrong("the file does not follow the one before"));
                }
            }
            Body::Records { first, records, .. } => {
                if opening || *first != state.next {
                    return Err(Fault::Wrong("a batch does not follow the one before"));
                }
                state.records += records.len() as u64;
            }
        }
        if frame.body.notes() < state.notes {
            return Err(Fault::Wrong("a batch counts notes backwards"));
        }
        (state.link, state.next, state.notes) = (frame.link, frame.body.next(), frame.body.notes());
        if state.known.is_some_and(|known| known.file == number && known.link == frame.link) {
            state.known = None;
        }
        Ok(())
    }
}

/// The fault of a head whose signature does not hold.
const UNSIGNED: Fault = Fault::Wrong("a batch's head is not signed by the domain");
