//! The log: segments of preallocated, recycled space that commits are appended to.
//!
//! A segment is written full of zeroes when it is made, so that an append changes no metadata of
//! the file system and its flush is one write to the disk. The next segment's header is flushed
//! before the seal that points to it, and the seal before the first record after it: so at every
//! moment the chain of segments on the disk has one end, and a missing link is damage, not an end.
//!
//! The last part of each segment is a reserve. While the disk is too full for another segment only
//! the first few bytes after an opening go there: so a node that ends on a full disk starts again.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use weft_core::limits::{KV_LOG_RESERVE_SHARE, KV_LOG_SPARES_MAX, KV_OPENING_BYTES};
use weft_core::{Error, ErrorKind, Result};
use weft_sys::{Disk, DiskFile, FlushSite, Open, Sys};

use super::record::{ALIGN, Check, HEAD_BYTES, HEADER_BYTES, Head, Header, RecordKind, decode_changes};

const SEAL_PAYLOAD_BYTES: usize = 24;
const SEAL_BYTES: u64 = (HEAD_BYTES + SEAL_PAYLOAD_BYTES) as u64;
static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

/// The log of one engine, open at its end.
pub(super) struct Log {
    disk: Arc<dyn Disk>,
    sys: Sys,
    identity: u64,
    segment_bytes: u64,
    current: Segment,
    /// Where the next record goes, and the check it must carry on from.
    end: u64,
    previous: Check,
    /// Earlier segments whose commits are not all in the tree, oldest first.
    full: VecDeque<Segment>,
    spares: Vec<Segment>,
    next_slot: u64,
    next_number: u64,
    appended: u64,
    flushed: u64,
    /// How many bytes of a segment's reserve this opening may still fill.
    opening_bytes: u64,
}

struct Segment {
    slot: u64,
    file: Arc<dyn DiskFile>,
    header: Header,
}

/// Why an append did not happen.
pub(super) enum AppendError {
    /// Nothing was written that counts; a later append may succeed.
    Clean(Error),
    /// The end of the log is in doubt; only opening it again settles it.
    Doubtful(Error),
}

fn slot_name(slot: u64) -> String {
    format!("log-{slot:04}")
}

impl Log {
    /// Makes the log of a new engine whose next commit is `first`. Whatever an attempt that did
    /// not finish left behind goes; commits do not.
    pub(super) fn make(
        disk: Arc<dyn Disk>,
        sys: Sys,
        identity: u64,
        first: u64,
        segment_bytes: u64,
    ) -> Result<()> {
        for segment in segments(&*disk)? {
            if segment.first_record()?.is_some() {
                return Err(Error::corrupt("there is a metadata log but no metadata tree")
                    .about(slot_name(segment.slot))
                    .hint("restore the metadata from a backup"));
            }
            disk.remove(&slot_name(segment.slot))?;
        }
        let header = Header { number: 1, salt: salt(&sys), first, identity, bytes: segment_bytes };
        make_segment(&*disk, 1, header).map(drop)
    }

    /// Opens the log after a tree that ends with commit `applied`, and calls `each` with every
    /// change of every later commit, in order. What was read is flushed before this returns.
    pub(super) fn open(
        disk: Arc<dyn Disk>,
        sys: Sys,
        identity: u64,
        applied: u64,
        segment_bytes: u64,
        each: &mut dyn FnMut(u64, Bytes, Option<Bytes>),
    ) -> Result<Self> {
        let mut others = segments(&*disk)?;
        let next_slot = others.iter().map(|segment| segment.slot + 1).max().unwrap_or(1);
        let next_number = others.iter().map(|segment| segment.header.number + 1).max().unwrap_or(1);
        if let Some(foreign) =
            others.iter().find(|other| other.header.number > 0 && other.header.identity != identity)
        {
            return Err(Error::corrupt("a segment of the metadata log belongs to another tree")
                .about(slot_name(foreign.slot)));
        }
        let start = others
            .iter()
            .enumerate()
            .filter(|(_, segment)| segment.header.number > 0 && segment.header.first <= applied + 1)
            .max_by_key(|(_, segment)| segment.header.number)
            .map(|(place, _)| place);
        let Some(start) = start else {
            return Err(
                Error::corrupt("the metadata log is missing").hint("restore the metadata from a backup")
            );
        };
        let mut current = others.swap_remove(start);
        let mut full = VecDeque::new();
        let mut unsettled: Vec<(Arc<dyn DiskFile>, Bytes)> = Vec::new();
        let mut next = current.header.first;
        let (end, previous) = loop {
            let read = current.replay(&mut next, applied, each)?;
            let Some((number, salt)) = read.sealed else {
                let leftover = current.expect_end(&read, next)?;
                unsettled.push((current.file.clone(), read.without(leftover)));
                break (read.end, read.previous);
            };
            let follows = |other: &Segment| other.header.number == number && other.header.salt == salt;
            let Some(place) = others.iter().position(follows) else {
                return Err(Error::corrupt(format!("segment {number} of the metadata log is missing"))
                    .hint("restore the metadata from a backup"));
            };
            // Of several full segments, all but the last were flushed before the next was begun.
            unsettled = vec![(current.file.clone(), read.bytes)];
            full.push_back(std::mem::replace(&mut current, others.swap_remove(place)));
            if current.header.first != next {
                return Err(
                    current.damaged(HEADER_BYTES as u64, "it does not carry on where the one before ends")
                );
            }
        };
        for other in &mut others {
            if other.header.number > current.header.number {
                if other.first_record()?.is_some() {
                    return Err(current.damaged(end, "it ends although a later segment goes on"));
                }
                // Made when the last process ended, and nothing points to it. It must not be taken
                // for the log's end at a later start.
                other.forget()?;
            }
        }
        let appended = (next - 1).max(applied);
        let log = Self {
            disk,
            sys,
            identity,
            segment_bytes,
            current,
            end,
            previous,
            full,
            spares: others,
            next_slot,
            next_number,
            appended,
            flushed: appended,
            opening_bytes: KV_OPENING_BYTES,
        };
        unsettled.iter().try_for_each(|(file, bytes)| settle(&**file, bytes))?;
        // The last segment may have been made by a process that died before its name was flushed.
        log.disk.sync_dir("", FlushSite::KvLogRecover)?;
        Ok(log)
    }

    /// Returns the last commit appended.
    pub(super) fn appended(&self) -> u64 {
        self.appended
    }

    /// Returns the last commit that is on the disk for sure.
    pub(super) fn flushed(&self) -> u64 {
        self.flushed
    }

    /// Returns how long the segments are that are full and may hold commits that are not in the
    /// tree.
    pub(super) fn full_bytes(&self) -> u64 {
        self.full.iter().map(|segment| segment.header.bytes).sum()
    }

    /// Appends `count` commits. `record` begins with room for a head, which is filled in, and is
    /// written with one call.
    pub(super) fn append(
        &mut self,
        record: &mut Vec<u8>,
        count: u64,
    ) -> std::result::Result<(), AppendError> {
        let len = record.len() - HEAD_BYTES;
        record.resize(record.len().next_multiple_of(ALIGN as usize), 0);
        self.make_room(record.len() as u64)?;
        let head = Head {
            kind: RecordKind::Group,
            len: u32::try_from(len).expect("a batch is bounded far below 4 GiB"),
            first: self.appended + 1,
            count,
            flushed: self.flushed,
            previous: self.previous,
        };
        let check = self.write(head, record)?;
        self.previous = check;
        self.end += record.len() as u64;
        self.sys.metrics().kv_log.add((), record.len() as u64);
        self.appended += count;
        Ok(())
    }

    /// Completes `record` with its head and writes it at the end.
    fn write(&self, head: Head, record: &mut [u8]) -> std::result::Result<Check, AppendError> {
        let (front, rest) =
            record.split_first_chunk_mut::<HEAD_BYTES>().expect("records have room for a head");
        let check = head.encode(&self.current.header.salt, front, &rest[..head.len as usize]);
        self.current.file.write_at(record, self.end).map_err(|error| match error.kind() {
            // Half a record never passes its check, and the next append writes over it.
            ErrorKind::NoSpace => AppendError::Clean(error),
            _ => AppendError::Doubtful(error),
        })?;
        Ok(check)
    }

    /// Returns the file whose flush makes everything appended durable, if something is not. What flushes it says so with
    /// [`Self::flushed_to`]; until then nothing may be appended that does not fit ([`Self::fits`]), nor flushed.
    pub(super) fn unflushed(&self) -> Option<Arc<dyn DiskFile>> {
        (self.flushed < self.appended).then(|| self.current.file.clone())
    }

    /// Learns that everything up to a commit was flushed.
    pub(super) fn flushed_to(&mut self, commit: u64) {
        self.flushed = self.flushed.max(commit);
    }

    /// Makes everything appended durable. After an error the log must not be written again.
    pub(super) fn flush(&mut self) -> Result<()> {
        if self.flushed < self.appended {
            self.current.file.sync(FlushSite::KvLogAppend)?;
            self.flushed = self.appended;
        }
        Ok(())
    }

    /// Returns whether a record of ordinary size goes into the present segment, so that no other
    /// has to be made, or begun, for it.
    pub(super) fn has_room(&self) -> bool {
        let left = self.current.header.bytes.saturating_sub(self.end);
        2 * self.segment_bytes / KV_LOG_RESERVE_SHARE + SEAL_BYTES <= left
    }

    /// Returns whether a record of so many bytes goes into the present segment.
    pub(super) fn fits(&self, record: usize) -> bool {
        self.takes(record.next_multiple_of(ALIGN as usize) as u64)
    }

    /// Returns whether so many bytes and a seal go into the present segment, and leave its reserve alone.
    fn takes(&self, bytes: u64) -> bool {
        let left = self.current.header.bytes.saturating_sub(self.end);
        bytes + SEAL_BYTES + self.segment_bytes / KV_LOG_RESERVE_SHARE <= left
    }

    /// Goes on to the next segment if a record of `bytes` and a seal do not fit any more.
    fn make_room(&mut self, bytes: u64) -> std::result::Result<(), AppendError> {
        if self.takes(bytes) {
            return Ok(());
        }
        let (needed, reserve) = (bytes + SEAL_BYTES, self.segment_bytes / KV_LOG_RESERVE_SHARE);
        let left = self.current.header.bytes.saturating_sub(self.end);
        let next = match self.next_segment((HEADER_BYTES as u64 + needed + reserve).max(self.segment_bytes)) {
            Err(AppendError::Clean(_)) if needed <= left && bytes <= self.opening_bytes => {
                self.opening_bytes -= bytes;
                return Ok(());
            }
            next => next?,
        };
        self.seal(&next.header)?;
        self.previous = next.header.salt;
        self.end = HEADER_BYTES as u64;
        self.full.push_back(std::mem::replace(&mut self.current, next));
        Ok(())
    }

    fn next_segment(&mut self, needed: u64) -> std::result::Result<Segment, AppendError> {
        let (number, first) = (self.next_number, self.appended + 1);
        let header = |bytes| Header { number, salt: salt(&self.sys), first, identity: self.identity, bytes };
        let segment = match self.spares.iter().position(|spare| spare.header.bytes >= needed) {
            Some(place) => {
                let header = header(self.spares[place].header.bytes);
                let spare = self.spares.swap_remove(place);
                let written = spare.file.write_at(&header.encode(), 0);
                written
                    .and_then(|()| spare.file.sync(FlushSite::KvLogMake))
                    .map_err(AppendError::Doubtful)?;
                Segment { header, ..spare }
            }
            None => {
                let made = make_segment(&*self.disk, self.next_slot, header(needed))?;
                self.next_slot += 1;
                made
            }
        };
        self.next_number += 1;
        Ok(segment)
    }

    fn seal(&mut self, next: &Header) -> std::result::Result<(), AppendError> {
        let mut record = vec![0; HEAD_BYTES];
        record.extend_from_slice(&next.number.to_le_bytes());
        record.extend_from_slice(&next.salt);
        let head = Head {
            kind: RecordKind::Seal,
            len: SEAL_PAYLOAD_BYTES as u32,
            first: self.appended + 1,
            count: 0,
            flushed: self.flushed,
            previous: self.previous,
        };
        let doubtful = |error| match error {
            AppendError::Clean(error) | AppendError::Doubtful(error) => AppendError::Doubtful(error),
        };
        self.write(head, &mut record).map_err(doubtful)?;
        self.current.file.sync(FlushSite::KvLogSeal).map_err(AppendError::Doubtful)?;
        self.flushed = self.appended;
        Ok(())
    }

    /// Lets go of segments whose commits are all in the tree, which ends with `applied`. A few
    /// are kept for reuse.
    pub(super) fn release(&mut self, applied: u64) -> Result<()> {
        loop {
            let after = self.full.get(1).unwrap_or(&self.current).header.first;
            if after > applied + 1 {
                return Ok(());
            }
            let Some(done) = self.full.pop_front() else { return Ok(()) };
            if self.spares.len() < KV_LOG_SPARES_MAX && done.header.bytes == self.segment_bytes {
                self.spares.push(done);
            } else {
                self.disk.remove(&slot_name(done.slot))?;
            }
        }
    }
}

/// Writes a segment once more as it was read and flushes it: after a failed flush the machine may
/// show bytes that are not on the disk and that it would not write again.
fn settle(file: &dyn DiskFile, bytes: &[u8]) -> Result<()> {
    file.write_at(bytes, 0)?;
    file.sync(FlushSite::KvLogRecover)
}

impl From<Error> for AppendError {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::NoSpace | ErrorKind::Busy => Self::Clean(error),
            _ => Self::Doubtful(error),
        }
    }
}

fn salt(sys: &Sys) -> Check {
    let mut salt = Check::default();
    sys.random().fill(&mut salt);
    salt
}

/// Makes a segment full of zeroes, headed `header`, durably.
fn make_segment(disk: &dyn Disk, slot: u64, header: Header) -> Result<Segment> {
    let name = slot_name(slot);
    let file = disk.open(&name, Open::MakeNew)?;
    let mut at = 0;
    while at < header.bytes {
        let len = (header.bytes - at).min(ZEROES.len() as u64);
        if let Err(error) = file.write_at(&ZEROES[..len as usize], at) {
            disk.remove(&name)?;
            return Err(error);
        }
        at += len;
    }
    // From here on the file may count as a segment: a failure leaves the log in doubt.
    let in_doubt =
        |error: Error| Error::new(ErrorKind::Unavailable, "a log segment was made in part").caused_by(error);
    file.write_at(&header.encode(), 0).map_err(in_doubt)?;
    file.sync(FlushSite::KvLogMake).map_err(in_doubt)?;
    disk.sync_dir("", FlushSite::KvLogDir).map_err(in_doubt)?;
    Ok(Segment { slot, file, header })
}

/// Returns every segment file there is. One without a readable header has number 0: it is a
/// spare at best, and missed if a seal points to it.
fn segments(disk: &dyn Disk) -> Result<Vec<Segment>> {
    let mut slots = Vec::new();
    disk.list("", &mut |name, _| {
        slots.extend(name.strip_prefix("log-").and_then(|slot| slot.parse::<u64>().ok()));
        ControlFlow::Continue(())
    })?;
    slots.sort_unstable();
    let open = |slot| {
        let file = disk.open(&slot_name(slot), Open::Write)?;
        let len = file.len()?;
        let mut bytes = [0; HEADER_BYTES];
        let read = file.read(&mut bytes, 0)?;
        let header = Header::decode(&bytes).filter(|header| read == HEADER_BYTES && header.bytes <= len);
        let unused = Header { number: 0, salt: Check::default(), first: 0, identity: 0, bytes: len };
        Ok(Segment { slot, file, header: header.unwrap_or(unused) })
    };
    slots.into_iter().map(open).collect()
}

/// What reading a segment found.
struct Replayed {
    end: u64,
    previous: Check,
    /// The segment that a seal points to.
    sealed: Option<(u64, Check)>,
    bytes: Bytes,
}

impl Replayed {
    /// Returns the segment as it was read, with nothing where records are left over behind a torn
    /// one. If what is written next is, byte for byte, what was torn, they would carry on from it:
    /// changes that were seen to be lost would be there again.
    fn without(&self, leftover: usize) -> Bytes {
        let end = self.end as usize;
        if leftover <= end {
            return self.bytes.slice(..end);
        }
        let mut bytes = self.bytes[..end].to_vec();
        bytes.resize(leftover, 0);
        bytes.into()
    }
}

impl Segment {
    /// Makes a segment that is not in use one without a header, durably.
    fn forget(&mut self) -> Result<()> {
        settle(&*self.file, &[0; HEADER_BYTES])?;
        self.header.number = 0;
        Ok(())
    }

    fn read(&self) -> Result<Bytes> {
        let mut bytes = vec![0; self.header.bytes as usize];
        self.file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes.into())
    }

    /// Returns the segment's first record's head, if it has a record.
    fn first_record(&self) -> Result<Option<Head>> {
        if self.header.number == 0 {
            return Ok(None);
        }
        let bytes = self.read()?;
        Ok(Head::decode(&self.header.salt, &bytes[HEADER_BYTES..]).map(|(head, ..)| head))
    }

    /// Reads every record in order from commit `next`, which moves on with them, up to a seal or
    /// to the first that is not whole.
    fn replay(
        &self,
        next: &mut u64,
        applied: u64,
        each: &mut dyn FnMut(u64, Bytes, Option<Bytes>),
    ) -> Result<Replayed> {
        let bytes = self.read()?;
        let salt = &self.header.salt;
        let (mut end, mut previous) = (HEADER_BYTES as u64, *salt);
        while let Some((head, check, payload)) = Head::decode(salt, &bytes[end as usize..]) {
            if head.previous != previous {
                // Left over from before a torn tail.
                break;
            }
            if head.first != *next {
                return Err(self.damaged(end, "a record is out of order"));
            }
            let payload = bytes.slice_ref(payload);
            previous = check;
            let at = end;
            end += head.span();
            match head.kind {
                RecordKind::Seal => {
                    let sealed = sealed(&payload).ok_or_else(|| self.damaged(at, "a seal makes no sense"))?;
                    return Ok(Replayed { end, previous, sealed: Some(sealed), bytes });
                }
                RecordKind::Group => {
                    let first = head.first;
                    decode_changes(&payload, head.count, |commit, key, value| {
                        if first + commit > applied {
                            each(first + commit, key, value);
                        }
                    })
                    .map_err(|error| error.about(format!("{} at byte {at}", slot_name(self.slot))))?;
                    *next += head.count;
                }
            }
        }
        Ok(Replayed { end, previous, sealed: None, bytes })
    }

    /// Tells a torn tail from damage: if any later record of this use of the segment was written
    /// when commit `next` had been flushed, then the log does not end here. Returns where the last
    /// whole record that is left over ends; zero if there is none.
    fn expect_end(&self, read: &Replayed, next: u64) -> Result<usize> {
        let mut leftover = 0;
        let places = (read.end as usize..read.bytes.len()).step_by(ALIGN as usize);
        for place in places {
            let later = Head::decode(&self.header.salt, &read.bytes[place..]);
            if later.as_ref().is_some_and(|(head, ..)| head.flushed >= next) {
                return Err(self.damaged(read.end, "a record that was flushed does not match its checksum"));
            }
            leftover = later.map_or(leftover, |(head, ..)| place + head.span() as usize);
        }
        Ok(leftover)
    }

    fn damaged(&self, at: u64, what: &'static str) -> Error {
        Error::corrupt(what)
            .about(format!("{} of the metadata log at byte {at}", slot_name(self.slot)))
            .hint("restore the metadata from a backup")
    }
}

fn sealed(payload: &[u8]) -> Option<(u64, Check)> {
    let (number, salt) = payload.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*number), salt.try_into().ok()?))
}
