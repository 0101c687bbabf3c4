//! The bytes of one simulated file, with every version of a sector since the last flush.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use weft_core::form::Seek;

use crate::disk::FileSize;
use crate::random::Random;

/// Bytes that reach the disk together or not at all.
pub(super) const SECTOR: u64 = 512;

type Sector = Arc<[u8; SECTOR as usize]>;

static ZERO: LazyLock<Sector> = LazyLock::new(|| Arc::new([0; SECTOR as usize]));

/// What a file holds, and what it held.
#[derive(Clone, Default)]
pub(super) struct Content {
    sectors: BTreeMap<u64, Sector>,
    len: u64,
    /// Changes since the last flush.
    changes: u64,
    /// Replaced sectors, oldest first, each with the change that replaced it.
    replaced: BTreeMap<u64, Vec<(u64, Option<Sector>)>>,
    /// Replaced lengths, in the same way.
    lens: Vec<(u64, u64)>,
    /// Sectors that a failed flush left unflushable, with what the disk holds instead.
    lost: BTreeMap<u64, Option<Sector>>,
}

/// Which of the unflushed changes a power cut keeps.
enum Keep {
    /// The first so many, in order.
    UpTo(u64),
    /// Any version of each sector.
    Any,
}

impl Content {
    pub(super) fn size(&self) -> FileSize {
        FileSize { len: self.len, used: self.occupied() }
    }

    /// Finds the next sector that is, or is not, there.
    pub(super) fn seek(&self, at: u64, what: Seek) -> Option<u64> {
        if at >= self.len {
            return None;
        }
        let start = at / SECTOR;
        let found = match what {
            Seek::Data => self.sectors.range(start..).next().map(|(sector, _)| *sector)?,
            Seek::Hole => (start..).find(|sector| !self.sectors.contains_key(sector))?,
        };
        match (what, (found * SECTOR).max(at)) {
            (Seek::Data, found) => (found < self.len).then_some(found),
            (Seek::Hole, found) => Some(found.min(self.len)),
        }
    }

    /// Returns how many bytes of the disk it occupies.
    pub(super) fn occupied(&self) -> u64 {
        self.sectors.len() as u64 * SECTOR
    }

    /// Returns how many bytes of the disk a write of the range would newly occupy.
    pub(super) fn wanted(&self, at: u64, len: u64) -> u64 {
        sectors_of(at, len).filter(|sector| !self.sectors.contains_key(sector)).count() as u64 * SECTOR
    }

    pub(super) fn read(&self, bytes: &mut [u8], at: u64) -> usize {
        let end = self.len.min(at.saturating_add(bytes.len() as u64));
        if at >= end {
            return 0;
        }
        let mut done = 0;
        while at + (done as u64) < end {
            let (sector, within) = place(at + done as u64);
            let take = (SECTOR as usize - within).min((end - at) as usize - done);
            let target = &mut bytes[done..done + take];
            match self.sectors.get(&sector) {
                Some(held) => target.copy_from_slice(&held[within..within + take]),
                None => target.fill(0),
            }
            done += take;
        }
        done
    }

    pub(super) fn write(&mut self, bytes: &[u8], at: u64) {
        self.changes += 1;
        let mut done = 0;
        while done < bytes.len() {
            let (sector, within) = place(at + done as u64);
            let take = (SECTOR as usize - within).min(bytes.len() - done);
            self.patch(sector, within, &bytes[done..done + take]);
            done += take;
        }
        self.grow(at + bytes.len() as u64);
    }

    fn patch(&mut self, sector: u64, within: usize, bytes: &[u8]) {
        let old = self.sectors.get(&sector).unwrap_or(&ZERO);
        let new = if bytes.len() == SECTOR as usize && bytes.iter().all(|byte| *byte == 0) {
            ZERO.clone()
        } else {
            let mut copy = **old;
            copy[within..within + bytes.len()].copy_from_slice(bytes);
            Arc::new(copy)
        };
        self.replace(sector, Some(new));
    }

    fn replace(&mut self, sector: u64, new: Option<Sector>) {
        let old = match new {
            Some(new) => self.sectors.insert(sector, new),
            None => self.sectors.remove(&sector),
        };
        let old = self.lost.remove(&sector).unwrap_or(old);
        self.replaced.entry(sector).or_default().push((self.changes, old));
    }

    fn grow(&mut self, end: u64) {
        if end > self.len {
            self.lens.push((self.changes, self.len));
            self.len = end;
        }
    }

    pub(super) fn set_len(&mut self, len: u64) {
        self.changes += 1;
        if len < self.len {
            self.zero(len, self.len - len);
        }
        self.lens.push((self.changes, self.len));
        self.len = len;
    }

    pub(super) fn punch(&mut self, at: u64, len: u64) {
        self.changes += 1;
        let len = len.min(self.len.saturating_sub(at));
        self.zero(at, len);
    }

    /// Zeroes a range, giving back the sectors that lie wholly inside it.
    fn zero(&mut self, at: u64, len: u64) {
        if len == 0 {
            return;
        }
        let (first, last) = (at / SECTOR, (at + len - 1) / SECTOR);
        let held: Vec<u64> = self.sectors.range(first..=last).map(|(sector, _)| *sector).collect();
        for sector in held {
            let from = at.max(sector * SECTOR);
            let to = (at + len).min((sector + 1) * SECTOR);
            // The tail of the last sector is zero anyway, so that sector goes whole.
            if from == sector * SECTOR && (to == (sector + 1) * SECTOR || to >= self.len) {
                self.replace(sector, None);
            } else {
                self.patch(sector, (from % SECTOR) as usize, &vec![0; (to - from) as usize]);
            }
        }
    }

    pub(super) fn allocate(&mut self, at: u64, len: u64) {
        self.reserve(at, len);
        self.grow(at + len);
    }

    pub(super) fn reserve(&mut self, at: u64, len: u64) {
        self.changes += 1;
        for sector in sectors_of(at, len) {
            self.sectors.entry(sector).or_insert_with(|| ZERO.clone());
        }
    }

    pub(super) fn flushed(&mut self) {
        self.changes = 0;
        self.replaced.clear();
        self.lens.clear();
    }

    /// The kernel calls the pages clean although the disk has the old bytes.
    pub(super) fn flush_failed(&mut self) {
        for (sector, versions) in std::mem::take(&mut self.replaced) {
            let oldest = versions.into_iter().next().and_then(|(_, old)| old);
            self.lost.entry(sector).or_insert(oldest);
        }
        self.changes = 0;
        // Lengths are the file system's journal's; the next flush that succeeds brings them.
        self.lens.iter_mut().for_each(|(change, _)| *change = 1);
    }

    pub(super) fn flip(&mut self, byte: u64, bit: u8) {
        let (sector, within) = place(byte);
        let held = self.sectors.entry(sector).or_insert_with(|| ZERO.clone());
        Arc::make_mut(held)[within] ^= 1 << (bit % 8);
    }

    /// Returns what the disk holds after a power cut.
    pub(super) fn survivor(&self, random: &dyn Random) -> Self {
        let keep = match random.below(4) {
            0 => Keep::UpTo(0),
            1 => Keep::UpTo(self.changes),
            2 => Keep::UpTo(random.below(self.changes + 1)),
            _ => Keep::Any,
        };
        let mut sectors = self.sectors.clone();
        for (sector, old) in &self.lost {
            if random.below(2) == 0 {
                set(&mut sectors, *sector, old.clone());
            }
        }
        for (sector, versions) in &self.replaced {
            if let Some((_, old)) = versions.get(keep.pick(versions, random)) {
                set(&mut sectors, *sector, old.clone());
            }
        }
        let len = self.lens.get(keep.pick(&self.lens, random)).map_or(self.len, |(_, old)| *old);
        let mut survivor = Self { sectors, len, ..Self::default() };
        survivor.cut_to_len();
        survivor
    }

    fn cut_to_len(&mut self) {
        let (last, within) = place(self.len);
        self.sectors.split_off(&if within == 0 { last } else { last + 1 });
        if within > 0
            && let Some(held) = self.sectors.get_mut(&last)
        {
            Arc::make_mut(held)[within..].fill(0);
        }
    }
}

impl Keep {
    /// Returns which replaced version survives; past the end means the newest.
    fn pick<T>(&self, versions: &[(u64, T)], random: &dyn Random) -> usize {
        match self {
            Self::UpTo(kept) => versions.partition_point(|(change, _)| change <= kept),
            Self::Any => random.below(versions.len() as u64 + 1) as usize,
        }
    }
}

fn set(sectors: &mut BTreeMap<u64, Sector>, sector: u64, held: Option<Sector>) {
    match held {
        Some(held) => sectors.insert(sector, held),
        None => sectors.remove(&sector),
    };
}

fn place(byte: u64) -> (u64, usize) {
    (byte / SECTOR, (byte % SECTOR) as usize)
}

fn sectors_of(at: u64, len: u64) -> std::ops::Range<u64> {
    at / SECTOR..(at + len).div_ceil(SECTOR)
}
