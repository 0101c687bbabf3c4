//! What the kernel gets, as bytes.

use std::time::Duration;

use bytes::BufMut;

use super::request::Init;
use super::{DIRENT_BYTES, ENTRY_BYTES, MAJOR, MINOR, mode};

/// Attributes as the kernel keeps them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AttrOut {
    pub inode: u64,
    pub size: u64,
    pub blocks: u64,
    /// Access, modification and change time: seconds since 1970 and nanoseconds.
    pub times: [(i64, u32); 3],
    pub mode: u32,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
}

/// Bytes in one block of `stat`'s count.
pub(crate) const STAT_BLOCK_BYTES: u64 = 512;
/// The size the kernel tells programs to read and write in.
const IO_BYTES: u32 = 4096;

fn put_attr(out: &mut Vec<u8>, attr: &AttrOut) {
    for number in [attr.inode, attr.size, attr.blocks] {
        out.put_u64_ne(number);
    }
    for (seconds, _) in attr.times {
        out.put_i64_ne(seconds);
    }
    for (_, nanos) in attr.times {
        out.put_u32_ne(nanos);
    }
    for number in [attr.mode, attr.links, attr.uid, attr.gid, 0, IO_BYTES, 0] {
        out.put_u32_ne(number);
    }
}

/// A node, and for how long its name and its attributes may be believed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryOut {
    pub node: u64,
    pub generation: u64,
    pub name_valid: Duration,
    pub attr_valid: Duration,
    pub attr: AttrOut,
}

impl EntryOut {
    /// Says that there is nothing of that name, for as long as may be believed.
    pub(crate) fn nothing(valid: Duration) -> Self {
        let attr = AttrOut::default();
        Self { node: 0, generation: 0, name_valid: valid, attr_valid: Duration::ZERO, attr }
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.put_u64_ne(self.node);
        out.put_u64_ne(self.generation);
        out.put_u64_ne(self.name_valid.as_secs());
        out.put_u64_ne(self.attr_valid.as_secs());
        out.put_u32_ne(self.name_valid.subsec_nanos());
        out.put_u32_ne(self.attr_valid.subsec_nanos());
        put_attr(out, &self.attr);
    }
}

/// Attributes, and for how long they may be believed.
pub(crate) fn attr(valid: Duration, attr: &AttrOut) -> Vec<u8> {
    let mut out = Vec::with_capacity(ENTRY_BYTES);
    out.put_u64_ne(valid.as_secs());
    out.put_u32_ne(valid.subsec_nanos());
    out.put_u32_ne(0);
    put_attr(&mut out, attr);
    out
}

pub(crate) fn entry(entry: &EntryOut) -> Vec<u8> {
    let mut out = Vec::with_capacity(ENTRY_BYTES);
    entry.put(&mut out);
    out
}

pub(crate) fn put_open(out: &mut Vec<u8>, handle: u64, flags: u32) {
    out.put_u64_ne(handle);
    out.put_u32_ne(flags);
    out.put_u32_ne(0);
}

pub(crate) fn open(handle: u64, flags: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(16);
    put_open(&mut out, handle, flags);
    out
}

/// How much was written, or how long an attribute is.
pub(crate) fn size(size: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(8);
    out.put_u32_ne(size);
    out.put_u32_ne(0);
    out
}

pub(crate) fn offset(at: u64) -> Vec<u8> {
    at.to_ne_bytes().to_vec()
}

pub(crate) fn lock(start: u64, end: u64, kind: u32, pid: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(24);
    out.put_u64_ne(start);
    out.put_u64_ne(end);
    out.put_u32_ne(kind);
    out.put_u32_ne(pid);
    out
}

/// Space in blocks of `block` bytes.
pub(crate) fn statfs(
    block: u32,
    total: u64,
    free: u64,
    files: u64,
    files_free: u64,
    name_max: u32,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(80);
    for number in [total, free, free, files, files_free] {
        out.put_u64_ne(number);
    }
    for number in [block, name_max, block, 0] {
        out.put_u32_ne(number);
    }
    out.put_bytes(0, 24);
    out
}

/// What the door agrees to.
pub(crate) struct Agreed {
    pub flags: u64,
    pub readahead_max: u32,
    pub write_max: u32,
    pub background_max: u16,
    pub pages_max: u16,
}

/// The answer to INIT. The kernel takes the lower of the two minor numbers.
pub(crate) fn init(asked: &Init, agreed: &Agreed) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    out.put_u32_ne(MAJOR);
    out.put_u32_ne(MINOR.min(asked.minor));
    out.put_u32_ne(agreed.readahead_max);
    out.put_u32_ne(agreed.flags as u32);
    out.put_u16_ne(agreed.background_max);
    out.put_u16_ne(agreed.background_max / 4 * 3);
    out.put_u32_ne(agreed.write_max);
    out.put_u32_ne(1); // times are kept to the nanosecond
    out.put_u16_ne(agreed.pages_max);
    out.put_u16_ne(0);
    out.put_u32_ne((agreed.flags >> 32) as u32);
    out.put_bytes(0, 28);
    out
}

/// One page of a listing, filled up to what the kernel has room for.
pub(crate) struct Listing {
    bytes: Vec<u8>,
    room: usize,
    attributes: bool,
}

impl Listing {
    /// Begins a page of at most `room` bytes, with attributes or without.
    pub(crate) fn new(room: usize, attributes: bool) -> Self {
        Self { bytes: Vec::with_capacity(room), room, attributes }
    }

    /// Returns how many entries fit at most.
    pub(crate) fn entries_max(&self) -> usize {
        self.room / self.length_of(b"a")
    }

    /// Returns how many entries of these names fit beside what is there.
    pub(crate) fn fitting<'n>(&self, names: impl Iterator<Item = &'n [u8]>) -> usize {
        let mut length = self.bytes.len();
        let fits = |name: &&[u8]| {
            length += self.length_of(name);
            length <= self.room
        };
        names.take_while(fits).count()
    }

    fn length_of(&self, name: &[u8]) -> usize {
        self.before() + (DIRENT_BYTES + name.len()).next_multiple_of(8)
    }

    /// Returns how many bytes of an entry come before its name and where it lies.
    fn before(&self) -> usize {
        if self.attributes { ENTRY_BYTES } else { 0 }
    }

    /// Adds an entry. `next` is where a listing goes on after it. Returns whether it
    /// fitted.
    pub(crate) fn add(
        &mut self,
        entry: Option<&EntryOut>,
        inode: u64,
        kind: u32,
        name: &[u8],
        next: u64,
    ) -> bool {
        let end = self.bytes.len() + self.length_of(name);
        if end > self.room {
            return false;
        }
        match entry {
            Some(entry) if self.attributes => entry.put(&mut self.bytes),
            _ => self.bytes.put_bytes(0, self.before()),
        }
        self.bytes.put_u64_ne(inode);
        self.bytes.put_u64_ne(next);
        self.bytes.put_u32_ne(name.len() as u32);
        self.bytes.put_u32_ne((kind & mode::TYPE) >> 12);
        self.bytes.put_slice(name);
        self.bytes.resize(end, 0);
        true
    }

    /// Returns the page.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_have_the_lengths_the_kernel_checks() {
        let attr_out = AttrOut::default();
        assert_eq!(attr(Duration::ZERO, &attr_out).len(), 104);
        assert_eq!(entry(&EntryOut::nothing(Duration::ZERO)).len(), ENTRY_BYTES);
        assert_eq!(open(1, 0).len(), 16);
        assert_eq!(statfs(4096, 1, 1, 1, 1, 255).len(), 80);
        assert_eq!(lock(0, 1, 0, 0).len(), 24);
        let asked = Init { major: 7, minor: 31, readahead_max: 0, flags: 0 };
        let agreed = Agreed { flags: 0, readahead_max: 0, write_max: 0, background_max: 4, pages_max: 0 };
        assert_eq!(init(&asked, &agreed).len(), 64);
    }

    #[test]
    fn a_page_never_exceeds_its_room_and_entries_are_aligned() {
        for room in [0, 31, 32, 100, 4096] {
            let mut page = Listing::new(room, false);
            while page.add(None, 1, mode::FILE, b"some name", 7) {}
            assert_eq!(page.fitting([&b"some name"[..]].into_iter()), 0);
            let bytes = page.into_bytes();
            assert!(bytes.len() <= room && bytes.len().is_multiple_of(8));
        }
    }

    #[test]
    fn as_many_entries_fit_as_can_be_added() {
        let names = [&b"a"[..], b"a longer name", b"another", b"b"];
        for (room, attributes) in (0..1000).flat_map(|room| [(room, false), (room, true)]) {
            let mut page = Listing::new(room, attributes);
            page.add(None, 1, mode::DIRECTORY, b".", 1);
            let fitting = page.fitting(names.into_iter());
            let out = attributes.then(|| EntryOut::nothing(Duration::ZERO));
            let added =
                names.iter().take_while(|name| page.add(out.as_ref(), 1, mode::FILE, name, 7)).count();
            assert_eq!(fitting, added, "in {room} bytes, attributes {attributes}");
        }
    }
}
