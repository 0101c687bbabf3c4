//! What the kernel asks, as values. A name or a write's bytes are slices of the
//! request itself: nothing is copied here.

use bytes::{Buf, Bytes};
use rustix::io::Errno;

use super::{IN_HEADER_BYTES, fattr, mark, opcode};

/// What precedes every request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    /// What kind of request.
    pub opcode: u32,
    /// The number that its answer carries.
    pub unique: u64,
    /// The node it is about.
    pub node: u64,
    /// As whom a process asks: the uid that files are opened as.
    pub uid: u32,
    /// The process that asks; 0 if none does.
    pub pid: u32,
}

impl Header {
    /// Reads a header. `None` if the request is shorter than one or says another
    /// length than it has.
    pub(crate) fn read(request: &[u8]) -> Option<Self> {
        let mut fields = request.get(..IN_HEADER_BYTES)?;
        let length = fields.get_u32_ne();
        let opcode = fields.get_u32_ne();
        let unique = fields.get_u64_ne();
        let node = fields.get_u64_ne();
        let uid = fields.get_u32_ne();
        fields.advance(4); // its gid: who somebody is, the uid says
        let pid = fields.get_u32_ne();
        (length as usize == request.len()).then_some(Self { opcode, unique, node, uid, pid })
    }
}

/// What the kernel and the door agree on when the mount begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Init {
    pub major: u32,
    pub minor: u32,
    pub readahead_max: u32,
    pub flags: u64,
}

/// Attributes to set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SetAttrIn {
    pub valid: u32,
    pub handle: Option<u64>,
    pub size: u64,
    pub atime: (u64, u32),
    pub mtime: (u64, u32),
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

/// A lock as the kernel describes it: both ends belong to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockIn {
    pub handle: u64,
    pub owner: u64,
    pub start: u64,
    pub end: u64,
    pub kind: u32,
    pub pid: u32,
    pub flock: bool,
}

/// One request.
#[derive(Debug)]
pub(crate) enum Request {
    Lookup { name: Bytes },
    GetAttr { handle: Option<u64> },
    SetAttr(SetAttrIn),
    ReadLink,
    Symlink { name: Bytes, target: Bytes },
    MakeNode { name: Bytes, mode: u32 },
    MakeDirectory { name: Bytes, mode: u32 },
    Unlink { name: Bytes },
    RemoveDirectory { name: Bytes },
    Rename { name: Bytes, to_node: u64, to_name: Bytes, flags: u32 },
    Link { node: u64, name: Bytes },
    Open { flags: u32, kill_privileges: bool },
    Create { name: Bytes, flags: u32, mode: u32 },
    Read { handle: u64, at: u64, size: u32, flags: u32 },
    Write { handle: u64, at: u64, marks: u32, flags: u32, bytes: Bytes },
    Flush { handle: u64, owner: u64 },
    Release { handle: u64 },
    Sync { handle: u64 },
    OpenDirectory,
    ReadDirectory { at: u64, size: u32, attributes: bool },
    ReleaseDirectory,
    SyncDirectory,
    StatFs,
    SetTag { name: Bytes, value: Bytes, flags: u32 },
    GetTag { name: Bytes, size: u32 },
    ListTags { size: u32 },
    RemoveTag { name: Bytes },
    Access { mask: u32 },
    TestLock(LockIn),
    SetLock { lock: LockIn, wait: bool },
    Allocate { handle: u64, at: u64, length: u64, mode: u32 },
    Seek { handle: u64, at: u64, whence: u32 },
    CopyRange { handle: u64, at: u64, to_handle: u64, to_node: u64, to_at: u64, length: u64 },
}

/// What a request speaks of besides the node that it is of.
#[derive(Debug, Default)]
pub(crate) struct Subject {
    /// The names it gives: the one before, then the one after a rename.
    pub names: [Option<Bytes>; 2],
    /// The other node of a rename, a link or a copy.
    pub other: Option<u64>,
    /// Whether it is of an open file.
    pub open: bool,
}

impl Request {
    /// Reads what follows the header. `ENOSYS` for what the door does not speak, which
    /// tells the kernel not to ask again; `EINVAL` for what is cut short.
    pub(crate) fn read(opcode: u32, body: Bytes) -> Result<Self, Errno> {
        let mut fields = Fields(body);
        Self::read_named(opcode, &mut fields)
            .or_else(|| Self::read_data(opcode, &mut fields))
            .or_else(|| Self::read_rest(opcode, &mut fields))
            .unwrap_or(Err(Errno::NOSYS))
    }

    /// Returns what the request speaks of besides its node.
    pub(crate) fn subject(&self) -> Subject {
        let named = |name: &Bytes| Subject { names: [Some(name.clone()), None], ..Subject::default() };
        match self {
            Self::Lookup { name }
            | Self::Symlink { name, .. }
            | Self::MakeNode { name, .. }
            | Self::MakeDirectory { name, .. }
            | Self::Unlink { name }
            | Self::RemoveDirectory { name }
            | Self::Create { name, .. }
            | Self::SetTag { name, .. }
            | Self::GetTag { name, .. }
            | Self::RemoveTag { name } => named(name),
            Self::Link { node, name } => Subject { other: Some(*node), ..named(name) },
            Self::Rename { name, to_node, to_name, .. } => {
                let names = [Some(name.clone()), Some(to_name.clone())];
                Subject { names, other: Some(*to_node), open: false }
            }
            Self::CopyRange { to_node, .. } => {
                Subject { other: Some(*to_node), open: true, ..Subject::default() }
            }
            // Beyond the end of a file there is nothing to be found, which is no loss.
            Self::Seek { .. } => Subject::default(),
            other => Subject { open: other.handle().is_some(), ..Subject::default() },
        }
    }

    /// Returns the open file that the request is made through, if it is.
    pub(crate) fn handle(&self) -> Option<u64> {
        match self {
            Self::GetAttr { handle } | Self::SetAttr(SetAttrIn { handle, .. }) => *handle,
            Self::Read { handle, .. }
            | Self::Write { handle, .. }
            | Self::Flush { handle, .. }
            | Self::Release { handle }
            | Self::Sync { handle }
            | Self::Allocate { handle, .. }
            | Self::CopyRange { handle, .. }
            | Self::Seek { handle, .. }
            | Self::TestLock(LockIn { handle, .. })
            | Self::SetLock { lock: LockIn { handle, .. }, .. } => Some(*handle),
            _ => None,
        }
    }

    /// Requests on names; `None` for others.
    fn read_named(opcode: u32, fields: &mut Fields) -> Option<Result<Self, Errno>> {
        Some(match opcode {
            opcode::LOOKUP => fields.text().map(|name| Self::Lookup { name }),
            opcode::UNLINK => fields.text().map(|name| Self::Unlink { name }),
            opcode::RMDIR => fields.text().map(|name| Self::RemoveDirectory { name }),
            opcode::SYMLINK => two_texts(fields).map(|(name, target)| Self::Symlink { name, target }),
            opcode::MKNOD => fields.numbers::<4>().and_then(|[mode, ..]| {
                let name = fields.text()?;
                Ok(Self::MakeNode { name, mode })
            }),
            opcode::MKDIR => fields.numbers::<2>().and_then(|[mode, _]| {
                let name = fields.text()?;
                Ok(Self::MakeDirectory { name, mode })
            }),
            opcode::RENAME => fields.u64().and_then(|to_node| rename(fields, to_node, 0)),
            opcode::RENAME2 => fields.u64().and_then(|to_node| {
                let [flags, _] = fields.numbers()?;
                rename(fields, to_node, flags)
            }),
            opcode::LINK => fields.u64().and_then(|node| {
                let name = fields.text()?;
                Ok(Self::Link { node, name })
            }),
            opcode::CREATE => fields.numbers::<4>().and_then(|[flags, mode, ..]| {
                let name = fields.text()?;
                Ok(Self::Create { name, flags, mode })
            }),
            opcode::SETXATTR => fields.numbers::<2>().and_then(|[size, flags]| {
                let (name, value) = (fields.text()?, fields.rest());
                let value = (value.len() == size as usize).then_some(value).ok_or(Errno::INVAL)?;
                Ok(Self::SetTag { name, value, flags })
            }),
            opcode::GETXATTR => fields.numbers::<2>().and_then(|[size, _]| {
                let name = fields.text()?;
                Ok(Self::GetTag { name, size })
            }),
            opcode::LISTXATTR => fields.numbers::<2>().map(|[size, _]| Self::ListTags { size }),
            opcode::REMOVEXATTR => fields.text().map(|name| Self::RemoveTag { name }),
            _ => return None,
        })
    }

    /// Requests on open files and their bytes; `None` for others.
    fn read_data(opcode: u32, fields: &mut Fields) -> Option<Result<Self, Errno>> {
        Some(match opcode {
            opcode::OPEN => fields.numbers::<2>().map(|[flags, marks]| Self::Open {
                flags,
                kill_privileges: marks & mark::OPEN_KILL_SUIDGID != 0,
            }),
            opcode::READ => {
                fields.read_in().map(|(handle, at, size, _, flags)| Self::Read { handle, at, size, flags })
            }
            opcode::WRITE => fields.read_in().and_then(|(handle, at, size, marks, flags)| {
                let bytes = fields.rest();
                let bytes = (bytes.len() == size as usize).then_some(bytes).ok_or(Errno::INVAL)?;
                Ok(Self::Write { handle, at, marks, flags, bytes })
            }),
            opcode::READDIR | opcode::READDIRPLUS => fields.read_in().map(|(_, at, size, ..)| {
                Self::ReadDirectory { at, size, attributes: opcode == opcode::READDIRPLUS }
            }),
            opcode::FLUSH => fields.longs::<3>().map(|[handle, _, owner]| Self::Flush { handle, owner }),
            opcode::RELEASE => fields.u64().map(|handle| Self::Release { handle }),
            opcode::FSYNC => fields.u64().map(|handle| Self::Sync { handle }),
            opcode::FALLOCATE => fields.longs::<3>().and_then(|[handle, at, length]| {
                let [mode, _] = fields.numbers()?;
                Ok(Self::Allocate { handle, at, length, mode })
            }),
            opcode::LSEEK => fields.longs::<2>().and_then(|[handle, at]| {
                let [whence, _] = fields.numbers()?;
                Ok(Self::Seek { handle, at, whence })
            }),
            opcode::COPY_FILE_RANGE => {
                fields.longs::<7>().map(|[handle, at, to_node, to_handle, to_at, length, _]| {
                    Self::CopyRange { handle, at, to_handle, to_node, to_at, length }
                })
            }
            _ => return None,
        })
    }

    /// All other requests the door speaks; `None` for those it does not.
    fn read_rest(opcode: u32, fields: &mut Fields) -> Option<Result<Self, Errno>> {
        Some(match opcode {
            opcode::GETATTR => fields.numbers::<2>().and_then(|[marks, _]| {
                let handle = fields.u64()?;
                Ok(Self::GetAttr { handle: (marks & mark::GETATTR_FH != 0).then_some(handle) })
            }),
            opcode::SETATTR => fields.set_attr().map(Self::SetAttr),
            opcode::READLINK => Ok(Self::ReadLink),
            opcode::OPENDIR => Ok(Self::OpenDirectory),
            opcode::RELEASEDIR => Ok(Self::ReleaseDirectory),
            opcode::FSYNCDIR => Ok(Self::SyncDirectory),
            opcode::STATFS => Ok(Self::StatFs),
            opcode::ACCESS => fields.numbers::<2>().map(|[mask, _]| Self::Access { mask }),
            opcode::GETLK => fields.lock().map(Self::TestLock),
            opcode::SETLK => fields.lock().map(|lock| Self::SetLock { lock, wait: false }),
            opcode::SETLKW => fields.lock().map(|lock| Self::SetLock { lock, wait: true }),
            _ => return None,
        })
    }
}

/// Reads what the kernel says of itself when the mount begins.
pub(crate) fn init(body: Bytes) -> Result<Init, Errno> {
    let mut fields = Fields(body);
    let [major, minor, readahead_max, low] = fields.numbers()?;
    let extended = u64::from(low) & super::init::INIT_EXT != 0;
    let high = if extended { fields.numbers::<1>()?[0] } else { 0 };
    Ok(Init { major, minor, readahead_max, flags: u64::from(high) << 32 | u64::from(low) })
}

/// Reads the number of the request that the kernel no longer waits for.
pub(crate) fn interrupted(body: &[u8]) -> Option<u64> {
    body.get(..8).map(|mut bytes| bytes.get_u64_ne())
}

/// Calls `each` with every node that a FORGET or BATCH_FORGET names, and how many
/// lookups of it the kernel forgets.
pub(crate) fn forgotten(header: &Header, mut body: &[u8], mut each: impl FnMut(u64, u64)) {
    if header.opcode == opcode::FORGET {
        if body.len() >= 8 {
            each(header.node, body.get_u64_ne());
        }
        return;
    }
    if body.len() < 8 {
        return;
    }
    let count = body.get_u32_ne();
    body.advance(4);
    for _ in 0..count {
        if body.len() < 16 {
            return;
        }
        each(body.get_u64_ne(), body.get_u64_ne());
    }
}

fn two_texts(fields: &mut Fields) -> Result<(Bytes, Bytes), Errno> {
    Ok((fields.text()?, fields.text()?))
}

fn rename(fields: &mut Fields, to_node: u64, flags: u32) -> Result<Request, Errno> {
    let (name, to_name) = two_texts(fields)?;
    Ok(Request::Rename { name, to_node, to_name, flags })
}

/// What is left of a request.
struct Fields(Bytes);

impl Fields {
    fn u64(&mut self) -> Result<u64, Errno> {
        self.longs::<1>().map(|[number]| number)
    }

    /// The next `N` numbers of 32 bits.
    fn numbers<const N: usize>(&mut self) -> Result<[u32; N], Errno> {
        if self.0.len() < 4 * N {
            return Err(Errno::INVAL);
        }
        Ok(std::array::from_fn(|_| self.0.get_u32_ne()))
    }

    /// The next `N` numbers of 64 bits.
    fn longs<const N: usize>(&mut self) -> Result<[u64; N], Errno> {
        if self.0.len() < 8 * N {
            return Err(Errno::INVAL);
        }
        Ok(std::array::from_fn(|_| self.0.get_u64_ne()))
    }

    /// The next bytes up to a NUL, which is dropped.
    fn text(&mut self) -> Result<Bytes, Errno> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or(Errno::INVAL)?;
        let text = self.0.split_to(end);
        self.0.advance(1);
        Ok(text)
    }

    fn rest(&mut self) -> Bytes {
        std::mem::take(&mut self.0)
    }

    /// Handle, offset, size, marks and open flags of reads, writes and listings.
    fn read_in(&mut self) -> Result<(u64, u64, u32, u32, u32), Errno> {
        let [handle, at] = self.longs()?;
        let [size, marks] = self.numbers()?;
        let [_owner] = self.longs()?;
        let [flags, _] = self.numbers()?;
        Ok((handle, at, size, marks, flags))
    }

    fn lock(&mut self) -> Result<LockIn, Errno> {
        let [handle, owner, start, end] = self.longs()?;
        let [kind, pid, marks, _] = self.numbers()?;
        Ok(LockIn { handle, owner, start, end, kind, pid, flock: marks & mark::LK_FLOCK != 0 })
    }

    fn set_attr(&mut self) -> Result<SetAttrIn, Errno> {
        let [valid, _] = self.numbers()?;
        let [handle, size, _owner, atime, mtime, _ctime] = self.longs()?;
        let [atime_nanos, mtime_nanos, _, mode, _, uid, gid, _] = self.numbers()?;
        let handle = (valid & fattr::FH != 0).then_some(handle);
        let (atime, mtime) = ((atime, atime_nanos), (mtime, mtime_nanos));
        Ok(SetAttrIn { valid, handle, size, atime, mtime, mode, uid, gid })
    }
}

#[cfg(test)]
mod tests {
    use weft_conformance::file_system::site::Dice;
    use weft_conformance::fuzz::fuzz;

    use super::*;

    /// What follows the header of each request, as the kernel lays it out: numbers of 32 bits (`4`)
    /// and of 64 (`8`), texts that end with a NUL (`t`), and bytes (`b`) after their length, which is
    /// the number `n`.
    const LAYOUTS: &[(u32, &str)] = &[
        (opcode::LOOKUP, "t"),
        (opcode::GETATTR, "448"),
        (opcode::SETATTR, "4488888844444444"),
        (opcode::READLINK, ""),
        (opcode::SYMLINK, "tt"),
        (opcode::MKNOD, "4444t"),
        (opcode::MKDIR, "44t"),
        (opcode::UNLINK, "t"),
        (opcode::RMDIR, "t"),
        (opcode::RENAME, "8tt"),
        (opcode::RENAME2, "844tt"),
        (opcode::LINK, "8t"),
        (opcode::OPEN, "44"),
        (opcode::CREATE, "4444t"),
        (opcode::READ, "8844844"),
        (opcode::WRITE, "88n4844b"),
        (opcode::FLUSH, "888"),
        (opcode::RELEASE, "8448"),
        (opcode::FSYNC, "844"),
        (opcode::OPENDIR, "44"),
        (opcode::READDIR, "8844844"),
        (opcode::READDIRPLUS, "8844844"),
        (opcode::RELEASEDIR, "8448"),
        (opcode::FSYNCDIR, "844"),
        (opcode::STATFS, ""),
        (opcode::SETXATTR, "n4tb"),
        (opcode::GETXATTR, "44t"),
        (opcode::LISTXATTR, "44"),
        (opcode::REMOVEXATTR, "t"),
        (opcode::ACCESS, "44"),
        (opcode::GETLK, "88884444"),
        (opcode::SETLK, "88884444"),
        (opcode::SETLKW, "88884444"),
        (opcode::FALLOCATE, "88844"),
        (opcode::LSEEK, "8844"),
        (opcode::COPY_FILE_RANGE, "8888888"),
    ];

    /// Returns a request as the kernel makes it: its header, what follows, and the texts in it.
    fn valid(dice: &mut Dice, opcode: u32, layout: &str) -> (Vec<u8>, Vec<Vec<u8>>) {
        let payload = vec![dice.roll(256) as u8; dice.roll(200) as usize];
        let (mut body, mut texts) = (Vec::new(), Vec::new());
        for field in layout.chars() {
            match field {
                '4' => body.extend((dice.roll(1 << 32) as u32).to_ne_bytes()),
                '8' => body.extend(dice.roll(u64::MAX).to_ne_bytes()),
                'n' => body.extend((payload.len() as u32).to_ne_bytes()),
                'b' => body.extend(&payload),
                't' => {
                    texts.push(vec![1 + dice.roll(255) as u8; dice.roll(256) as usize]);
                    body.extend(texts.last().expect("just pushed"));
                    body.push(0);
                }
                _ => unreachable!("not a field: {field}"),
            }
        }
        if layout.ends_with('b') {
            texts.push(payload);
        }
        let mut request = (IN_HEADER_BYTES as u32 + body.len() as u32).to_ne_bytes().to_vec();
        request.extend(opcode.to_ne_bytes());
        request.resize(IN_HEADER_BYTES, 7);
        (([request, body].concat()), texts)
    }

    /// Returns the names and bytes that a request carries, in their order.
    fn carried(request: &Request) -> Vec<&Bytes> {
        match request {
            Request::Lookup { name }
            | Request::MakeNode { name, .. }
            | Request::MakeDirectory { name, .. }
            | Request::Unlink { name }
            | Request::RemoveDirectory { name }
            | Request::Link { name, .. }
            | Request::Create { name, .. }
            | Request::GetTag { name, .. }
            | Request::RemoveTag { name } => vec![name],
            Request::Symlink { name, target } => vec![name, target],
            Request::Rename { name, to_name, .. } => vec![name, to_name],
            Request::SetTag { name, value, .. } => vec![name, value],
            Request::Write { bytes, .. } => vec![bytes],
            _ => Vec::new(),
        }
    }

    #[test]
    fn a_request_of_every_kind_is_read_and_mutated_it_is_read_or_refused() {
        let mut kinds = std::collections::BTreeSet::new();
        for (opcode, layout) in LAYOUTS {
            let (request, texts) = valid(&mut Dice::new(1), *opcode, layout);
            assert!(Header::read(&request).is_some_and(|header| header.opcode == *opcode));
            let read = Request::read(*opcode, Bytes::from(request).slice(IN_HEADER_BYTES..));
            let read = read.unwrap_or_else(|error| panic!("opcode {opcode}: {error}"));
            assert_eq!(carried(&read), texts.iter().map(|text| &text[..]).collect::<Vec<_>>(), "{read:?}");
            kinds.insert(*opcode);
        }
        // All that the door speaks: without a body they are cut short, not unknown.
        for opcode in 0..64 {
            let known = !matches!(Request::read(opcode, Bytes::new()), Err(Errno::NOSYS));
            assert_eq!(known, kinds.contains(&opcode), "opcode {opcode}");
        }
        let make = |dice: &mut Dice| {
            let (opcode, layout) = dice.pick(LAYOUTS);
            valid(dice, *opcode, layout).0
        };
        fuzz("request of a kind", make, |bytes| {
            // The body of what has another length than it says is looked at all the same.
            let told = Header::read(bytes).map(|header| header.opcode);
            let opcode = bytes.get(4..8).map(|bytes| u32::from_ne_bytes(bytes.try_into().expect("four")));
            let Some(opcode) = opcode else { return };
            assert!(told.is_none_or(|told| told == opcode));
            let body = Bytes::copy_from_slice(bytes.get(IN_HEADER_BYTES..).unwrap_or_default());
            if let Ok(request) = Request::read(opcode, body.clone()) {
                let total: usize = carried(&request).iter().map(|part| part.len()).sum();
                assert!(total <= body.len(), "no more than came");
            }
        });
    }

    /// The kernel is believed, but whatever comes is read or refused.
    #[test]
    fn any_bytes_of_any_request_are_read_or_refused() {
        let make = |dice: &mut Dice| {
            let numbers = (0..dice.roll(90)).map(|_| *dice.pick(&[0, 1, 7, 0x7f, 0xff]));
            let mut bytes: Vec<u8> = numbers.collect();
            for text in [&b"a name\0"[..], b"another\0", b"rest"] {
                bytes.extend_from_slice(text);
            }
            bytes
        };
        fuzz("request", make, |bytes| {
            for opcode in 0..64 {
                let read = Request::read(opcode, Bytes::copy_from_slice(bytes));
                if let Ok(Request::Write { bytes: payload, .. } | Request::SetTag { value: payload, .. }) =
                    read
                {
                    assert!(payload.len() < bytes.len(), "no more than came");
                }
            }
            let _ = (init(Bytes::copy_from_slice(bytes)), interrupted(bytes), Header::read(bytes));
            let header = Header { opcode: opcode::BATCH_FORGET, unique: 1, node: 1, uid: 0, pid: 0 };
            let mut named = 0;
            forgotten(&header, bytes, |_, _| named += 1);
            assert!(named <= bytes.len() / 16);
        });
    }

    #[test]
    fn a_request_that_says_another_length_is_refused() {
        let mut bytes = vec![0_u8; IN_HEADER_BYTES];
        bytes[..4].copy_from_slice(&40_u32.to_ne_bytes());
        assert!(Header::read(&bytes).is_some());
        bytes.push(0);
        assert!(Header::read(&bytes).is_none());
    }

    #[test]
    fn what_the_door_does_not_speak_is_enosys_and_what_is_cut_short_einval() {
        assert_eq!(Request::read(opcode::INIT, Bytes::new()).err(), Some(Errno::NOSYS));
        assert_eq!(Request::read(opcode::LOOKUP, Bytes::from_static(b"abc")).err(), Some(Errno::INVAL));
        assert_eq!(Request::read(opcode::READ, Bytes::from_static(&[0; 39])).err(), Some(Errno::INVAL));
    }
}
