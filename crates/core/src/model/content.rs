//! The bytes of one file: blocks in a map, absent ones are holes.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::error::{Error, ErrorKind, Result};
use crate::form::{Seek, Shape};
use crate::limits;

/// Bytes in one block: the granularity of holes.
const BLOCK_BYTES: u64 = 64 << 10;

/// Bytes with holes. Cloning is cheap and shares the blocks until one side writes.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    size: u64,
    /// By number. A block may be shorter than [`BLOCK_BYTES`]: the rest is zeros.
    blocks: Arc<BTreeMap<u64, Arc<Vec<u8>>>>,
}

impl Content {
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Returns the bytes of storage taken: every block there is, as far as the file
    /// reaches into it; reserved ones beyond the end in full.
    pub(super) fn used(&self) -> u64 {
        let reached = self.size % BLOCK_BYTES;
        let cut = reached != 0 && self.blocks.contains_key(&(self.size / BLOCK_BYTES));
        self.blocks.len() as u64 * BLOCK_BYTES - if cut { BLOCK_BYTES - reached } else { 0 }
    }

    /// Returns up to `length` bytes at an offset; fewer only at the end.
    pub(super) fn read(&self, at: u64, length: usize) -> Bytes {
        let length = length.min(usize::try_from(self.size.saturating_sub(at)).unwrap_or(usize::MAX));
        let mut out = vec![0; length];
        for (number, within, from, count) in spans(at, length as u64) {
            if let Some(block) = self.blocks.get(&number) {
                let end = (within + count).min(block.len());
                if within < end {
                    out[from..from + end - within].copy_from_slice(&block[within..end]);
                }
            }
        }
        out.into()
    }

    /// Writes bytes at an offset, extending the file if they reach beyond its end.
    pub(super) fn write(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        let end = end_of(at, bytes.len() as u64)?;
        let blocks = Arc::make_mut(&mut self.blocks);
        for (number, within, from, count) in spans(at, bytes.len() as u64) {
            let block = Arc::make_mut(blocks.entry(number).or_default());
            if block.len() < within + count {
                block.resize(within + count, 0);
            }
            block[within..within + count].copy_from_slice(&bytes[from..from + count]);
        }
        if !bytes.is_empty() {
            self.size = self.size.max(end);
        }
        Ok(())
    }

    pub(super) fn shape(&mut self, shape: Shape) -> Result<()> {
        match shape {
            Shape::Truncate(size) => self.truncate(size),
            Shape::Allocate { at, length, keep_size } => self.allocate(at, length, keep_size),
            Shape::Punch { at, length } => {
                end_of(at, length)?;
                self.punch(at, length);
                Ok(())
            }
            Shape::Zero { at, length, keep_size } => {
                let end = end_of(at, length)?;
                self.punch(at, length);
                if !keep_size {
                    self.size = self.size.max(end);
                }
                Ok(())
            }
        }
    }

    pub(super) fn truncate(&mut self, size: u64) -> Result<()> {
        end_of(size, 0)?;
        if size < self.size {
            let blocks = Arc::make_mut(&mut self.blocks);
            blocks.split_off(&size.div_ceil(BLOCK_BYTES));
            if let Some(block) = blocks.get_mut(&(size / BLOCK_BYTES)) {
                Arc::make_mut(block).truncate((size % BLOCK_BYTES) as usize);
            }
        }
        self.size = size;
        Ok(())
    }

    fn allocate(&mut self, at: u64, length: u64, keep_size: bool) -> Result<()> {
        let end = end_of(at, length)?;
        if length == 0 {
            return Err(Error::invalid("a range to allocate has at least one byte"));
        }
        let (first, last) = (at / BLOCK_BYTES, (end - 1) / BLOCK_BYTES);
        if last - first > limits::MODEL_BLOCKS_MAX {
            return Err(Error::new(ErrorKind::NoSpace, "more bytes are asked for than memory may hold"));
        }
        let blocks = Arc::make_mut(&mut self.blocks);
        for number in first..=last {
            blocks.entry(number).or_default();
        }
        if !keep_size {
            self.size = self.size.max(end);
        }
        Ok(())
    }

    /// Drops whole blocks and clears the edges; the size stays.
    fn punch(&mut self, at: u64, length: u64) {
        if length == 0 {
            return;
        }
        let end = at + length;
        let blocks = Arc::make_mut(&mut self.blocks);
        let whole = at.div_ceil(BLOCK_BYTES)..end / BLOCK_BYTES;
        if whole.start < whole.end {
            let gone: Vec<u64> = blocks.range(whole).map(|(number, _)| *number).collect();
            for number in gone {
                blocks.remove(&number);
            }
        }
        for number in [at / BLOCK_BYTES, (end - 1) / BLOCK_BYTES] {
            if let Some(block) = blocks.get_mut(&number) {
                let start = number * BLOCK_BYTES;
                let from = at.saturating_sub(start) as usize;
                let to = ((end - start).min(BLOCK_BYTES) as usize).min(block.len());
                if from < to {
                    Arc::make_mut(block)[from..to].fill(0);
                }
            }
        }
    }

    /// Finds data or a hole, by whole blocks.
    pub(super) fn seek(&self, offset: u64, what: Seek) -> Result<u64> {
        if offset >= self.size {
            return Err(Error::not_found("the offset is at or beyond the end"));
        }
        let first = offset / BLOCK_BYTES;
        match what {
            Seek::Data => self
                .blocks
                .range(first..)
                .next()
                .map(|(number, _)| offset.max(number * BLOCK_BYTES))
                .filter(|at| *at < self.size)
                .ok_or_else(|| Error::not_found("there is no data beyond the offset")),
            Seek::Hole => {
                let present = self.blocks.range(first..).zip(first..).take_while(|((n, _), i)| *n == i);
                let hole = first + present.count() as u64;
                Ok(offset.max(hole * BLOCK_BYTES).min(self.size))
            }
        }
    }
}

fn end_of(at: u64, length: u64) -> Result<u64> {
    at.checked_add(length)
        .filter(|end| *end <= limits::FILE_BYTES_MAX)
        .ok_or_else(|| Error::new(ErrorKind::TooLarge, "a file has at most 2^62 bytes"))
}

/// Cuts a range into blocks: number, first byte within the block, first byte within
/// the range, count.
fn spans(at: u64, length: u64) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let end = at + length;
    let mut next = at;
    std::iter::from_fn(move || {
        if next >= end {
            return None;
        }
        let number = next / BLOCK_BYTES;
        let stop = end.min((number + 1) * BLOCK_BYTES);
        let span = (number, (next % BLOCK_BYTES) as usize, (next - at) as usize, (stop - next) as usize);
        next = stop;
        Some(span)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small steps over a few block borders, compared with a plain vector.
    #[test]
    fn content_is_what_a_plain_vector_would_be() {
        let (mut content, mut plain) = (Content::default(), Vec::<u8>::new());
        let mut dice = 7_u64;
        let mut roll = |sides: u64| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (dice >> 33) % sides
        };
        for step in 0..2_000 {
            let (at, length) = (roll(4 * BLOCK_BYTES), roll(2 * BLOCK_BYTES) + 1);
            let end = (at + length) as usize;
            match roll(5) {
                0 => {
                    content.write(at, &vec![step as u8; length as usize]).expect("within bounds");
                    plain.resize(plain.len().max(end), 0);
                    plain[at as usize..end].fill(step as u8);
                }
                1 => {
                    content.shape(Shape::Truncate(at)).expect("within bounds");
                    plain.resize(at as usize, 0);
                }
                2 => {
                    content.shape(Shape::Punch { at, length }).expect("within bounds");
                    let stop = end.min(plain.len());
                    plain.get_mut(at as usize..stop).into_iter().for_each(|p| p.fill(0));
                }
                3 => {
                    content.shape(Shape::Allocate { at, length, keep_size: true }).expect("within bounds");
                }
                _ => {
                    content.shape(Shape::Zero { at, length, keep_size: false }).expect("within bounds");
                    plain.resize(plain.len().max(end), 0);
                    plain[at as usize..end].fill(0);
                }
            }
            assert_eq!(content.size(), plain.len() as u64);
            assert!(content.read(0, usize::MAX) == plain, "step {step}");
            assert_eq!(
                content.read(at, 100)[..],
                plain[plain.len().min(at as usize)..plain.len().min(at as usize + 100)]
            );
        }
    }

    #[test]
    fn holes_are_found_and_take_no_space() {
        let mut content = Content::default();
        content.write(3 * BLOCK_BYTES, b"data").expect("within bounds");
        assert_eq!(content.used(), 4);
        assert_eq!(content.seek(0, Seek::Data).expect("data"), 3 * BLOCK_BYTES);
        assert_eq!(content.seek(5, Seek::Hole).expect("a hole"), 5);
        assert_eq!(content.seek(3 * BLOCK_BYTES, Seek::Hole).expect("the end"), 3 * BLOCK_BYTES + 4);
        assert_eq!(content.seek(content.size(), Seek::Hole).map_err(|e| e.kind()), Err(ErrorKind::NotFound));
    }
}
