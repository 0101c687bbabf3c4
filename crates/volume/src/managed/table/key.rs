//! Keys: a table's byte, then ids big-endian, so that byte order is the order wanted.

use weft_kv::prefix_end;

/// Every table. Numbers are on disk for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Table {
    /// What the volume is: one row.
    Volume = 0x01,
    /// The end of the numbers leased so far: one counter.
    Numbers = 0x02,
    /// How many inodes there are: one counter.
    Files = 0x03,
    /// inode → its row.
    Inode = 0x10,
    /// directory, field → what changes with its names.
    Tally = 0x11,
    /// inode → the bytes of a small file.
    Inline = 0x12,
    /// inode → where a symbolic link or reference leads.
    Target = 0x13,
    /// inode, name → a user attribute.
    Tag = 0x14,
    /// directory, name → entry.
    Entry = 0x20,
    /// directory, cookie → entry.
    Cookie = 0x21,
    /// inode, directory, cookie → name.
    BackLink = 0x22,
    /// container → version and epoch.
    Head = 0x30,
    /// container → the rest of its policy.
    Policy = 0x31,
    /// container → counter of bytes.
    Used = 0x32,
    /// container left → where its members go.
    Split = 0x33,
    /// container left, directory → how far it has been moved.
    SplitQueue = 0x34,
    /// container that is a drop-box → what it takes.
    DropBox = 0x35,
    /// stage → what it is.
    Stage = 0x40,
    /// stage, number → part.
    Part = 0x41,
    /// directory, caller, stage: which stages there are.
    StageAt = 0x42,
    /// inode without names, kept for those who have it open.
    Orphan = 0x50,
    /// object that nothing refers to any more → the container it is labelled with.
    Garbage = 0x51,
    /// inode whose object still carries another container's label.
    Relabel = 0x52,
    /// inode whose object is being written in place.
    Writing = 0x53,
    /// session → how many answers it was given.
    OnceHead = 0x60,
    /// session, place in the ring → request.
    OnceSlot = 0x61,
    /// session, request → answer.
    Once = 0x62,
    /// session that holds or held locks.
    Locker = 0x63,
}

impl Table {
    /// Every table: checks go over this.
    pub(crate) const ALL: [Self; 28] = [
        Self::Volume,
        Self::Numbers,
        Self::Files,
        Self::Inode,
        Self::Tally,
        Self::Inline,
        Self::Target,
        Self::Tag,
        Self::Entry,
        Self::Cookie,
        Self::BackLink,
        Self::Head,
        Self::Policy,
        Self::Used,
        Self::Split,
        Self::SplitQueue,
        Self::DropBox,
        Self::Stage,
        Self::Part,
        Self::StageAt,
        Self::Orphan,
        Self::Garbage,
        Self::Relabel,
        Self::Writing,
        Self::OnceHead,
        Self::OnceSlot,
        Self::Once,
        Self::Locker,
    ];

    /// What people call one of its rows.
    pub(crate) fn what(self) -> &'static str {
        match self {
            Self::Volume => "volume",
            Self::Numbers => "counter of numbers",
            Self::Files => "counter of files",
            Self::Inode => "inode",
            Self::Tally => "directory tally",
            Self::Inline => "inline bytes",
            Self::Target => "link target",
            Self::Tag => "user attribute",
            Self::Entry => "entry",
            Self::Cookie => "entry by cookie",
            Self::BackLink => "back link",
            Self::Head => "container",
            Self::Policy => "container policy",
            Self::Used => "bytes used",
            Self::Split => "split",
            Self::SplitQueue => "split queue",
            Self::DropBox => "drop-box",
            Self::Stage => "stage",
            Self::Part => "part of a stage",
            Self::StageAt => "stage by directory",
            Self::Orphan => "orphan",
            Self::Garbage => "object to remove",
            Self::Relabel => "label",
            Self::Writing => "written file",
            Self::OnceHead => "replay ring",
            Self::OnceSlot => "replay slot",
            Self::Once => "kept answer",
            Self::Locker => "lock holder",
        }
    }
}

/// A key, built on the stack.
#[derive(Clone)]
pub(crate) struct Key {
    bytes: [u8; Self::MAX],
    len: usize,
}

impl Key {
    /// A table, two ids and a name.
    const MAX: usize = 1 + 8 + 16 + weft_core::limits::NAME_BYTES_MAX;

    pub(crate) fn of(table: Table) -> Self {
        let mut bytes = [0; Self::MAX];
        bytes[0] = table as u8;
        Self { bytes, len: 1 }
    }

    pub(crate) fn bytes(mut self, more: &[u8]) -> Self {
        self.bytes[self.len..self.len + more.len()].copy_from_slice(more);
        self.len += more.len();
        self
    }

    pub(crate) fn u8(self, value: u8) -> Self {
        self.bytes(&[value])
    }

    pub(crate) fn u32(self, value: u32) -> Self {
        self.bytes(&value.to_be_bytes())
    }

    pub(crate) fn u64(self, value: u64) -> Self {
        self.bytes(&value.to_be_bytes())
    }

    pub(crate) fn u128(self, value: u128) -> Self {
        self.bytes(&value.to_be_bytes())
    }

    /// Returns the first key after every key that starts with this one.
    pub(crate) fn end(&self) -> Vec<u8> {
        prefix_end(self)
    }

    /// Returns the first key after this one.
    pub(crate) fn next(&self) -> Vec<u8> {
        let mut next = Vec::with_capacity(self.len + 1);
        next.extend_from_slice(self);
        next.push(0);
        next
    }
}

impl std::ops::Deref for Key {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Takes the fields of a key apart again, from the left. A key that is too short gives
/// `None`: whoever scans says which structure is broken.
pub(crate) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// Starts after the table's byte.
    pub(crate) fn of(key: &'a [u8]) -> Self {
        Self(key.get(1..).unwrap_or_default())
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*first))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_be_bytes(*first))
    }

    pub(crate) fn u128(&mut self) -> Option<u128> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u128::from_be_bytes(*first))
    }
}
