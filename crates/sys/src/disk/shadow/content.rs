//! The bytes of one file, as far as they differ from what lies below.

use std::collections::BTreeMap;
use std::sync::Arc;

use weft_core::form::Seek;
use weft_core::limits::SHADOW_FILE_BYTES_MAX;
use weft_core::{Error, ErrorKind, Result};

use crate::disk::{DiskFile, FileSize};

/// Bytes that are kept together.
const PAGE: u64 = 4096;

/// A file below, and what was changed of it.
#[derive(Default)]
pub(super) struct Content {
    below: Option<Arc<dyn DiskFile>>,
    /// How much of the file below still shows where there is no page.
    shows: u64,
    pages: BTreeMap<u64, Box<[u8]>>,
    len: u64,
}

impl Content {
    pub(super) fn over(below: Arc<dyn DiskFile>) -> Result<Self> {
        let len = below.len()?;
        Ok(Self { below: Some(below), shows: len, pages: BTreeMap::new(), len })
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn size(&self) -> Result<FileSize> {
        let below = self.below.as_ref().map_or(Ok(0), |below| below.measure().map(|size| size.used))?;
        Ok(FileSize { len: self.len, used: below + self.pages.len() as u64 * PAGE })
    }

    pub(super) fn read(&self, bytes: &mut [u8], at: u64) -> Result<usize> {
        let length = self.len.saturating_sub(at).min(bytes.len() as u64);
        let bytes = &mut bytes[..length as usize];
        bytes.fill(0);
        let shown = self.shows.saturating_sub(at).min(length);
        if let Some(below) = self.below.as_ref().filter(|_| shown > 0) {
            below.read(&mut bytes[..shown as usize], at)?;
        }
        for (page, held) in self.pages.range(at / PAGE..(at + length).div_ceil(PAGE)) {
            let start = page * PAGE;
            let (from, to) = (start.max(at), (start + PAGE).min(at + length));
            bytes[(from - at) as usize..(to - at) as usize]
                .copy_from_slice(&held[(from - start) as usize..(to - start) as usize]);
        }
        Ok(bytes.len())
    }

    pub(super) fn write(&mut self, bytes: &[u8], at: u64) -> Result<()> {
        let end = at + bytes.len() as u64;
        self.len = self.len.max(end);
        let mut from = at;
        while from < end {
            let (start, to) = (from / PAGE * PAGE, (from / PAGE * PAGE + PAGE).min(end));
            let page = self.page(from / PAGE)?;
            page[(from - start) as usize..(to - start) as usize]
                .copy_from_slice(&bytes[(from - at) as usize..(to - at) as usize]);
            from = to;
        }
        Ok(())
    }

    /// Returns a page to be changed.
    fn page(&mut self, page: u64) -> Result<&mut [u8]> {
        if !self.pages.contains_key(&page) {
            if self.pages.len() as u64 * PAGE >= SHADOW_FILE_BYTES_MAX {
                let detail = "what would be changed of the file is more than is kept in memory";
                return Err(Error::new(ErrorKind::NoSpace, detail));
            }
            let mut bytes = vec![0; PAGE as usize];
            self.read(&mut bytes, page * PAGE)?;
            self.pages.insert(page, bytes.into());
        }
        Ok(self.pages.get_mut(&page).expect("it was put there above"))
    }

    pub(super) fn set_len(&mut self, len: u64) -> Result<()> {
        if len < self.len {
            self.clear(len, (len.next_multiple_of(PAGE) - len).min(self.len - len))?;
            drop(self.pages.split_off(&len.div_ceil(PAGE)));
            self.shows = self.shows.min(len);
        }
        self.len = len;
        Ok(())
    }

    /// Makes a range read as zeros.
    pub(super) fn clear(&mut self, at: u64, len: u64) -> Result<()> {
        let end = at.saturating_add(len).min(self.len);
        let mut from = at;
        while from < end {
            let to = (from / PAGE * PAGE + PAGE).min(end);
            let start = from / PAGE * PAGE;
            self.page(from / PAGE)?[(from - start) as usize..(to - start) as usize].fill(0);
            from = to;
        }
        Ok(())
    }

    pub(super) fn seek(&self, at: u64, what: Seek) -> Result<Option<u64>> {
        if at >= self.len {
            return Ok(None);
        }
        match what {
            Seek::Data => self.next_data(at),
            Seek::Hole => self.next_hole(at).map(Some),
        }
    }

    fn seek_below(&self, at: u64, what: Seek) -> Result<Option<u64>> {
        match self.below.as_ref().filter(|_| at < self.shows) {
            Some(below) => Ok(below.seek(at, what)?.filter(|found| *found < self.shows)),
            None => Ok(None),
        }
    }

    fn next_data(&self, at: u64) -> Result<Option<u64>> {
        let page = self.pages.range(at / PAGE..).next().map(|(page, _)| (page * PAGE).max(at));
        let next = self.seek_below(at, Seek::Data)?.into_iter().chain(page).min();
        Ok(next.filter(|next| *next < self.len))
    }

    fn next_hole(&self, mut at: u64) -> Result<u64> {
        while at < self.len {
            if self.pages.contains_key(&(at / PAGE)) {
                at = (at / PAGE + 1) * PAGE;
                continue;
            }
            match self.seek_below(at, Seek::Data)? {
                Some(data) if data == at => {
                    at = self.seek_below(at, Seek::Hole)?.unwrap_or(self.shows);
                }
                _ => return Ok(at),
            }
        }
        Ok(self.len)
    }
}
