//! What laws are written with: a subject, its administrator, and short ways to make
//! requests of it.

use std::sync::Arc;

use bytes::Bytes;
use weft_core::acl::{AclEntry, Who};
use weft_core::attr::{Attr, SetAttr};
use weft_core::form::{
    At, BytesSource, Call, Cursor, Entry, FileSystem, Guard, New, OpenFile, OpenHow, Opened, PageMax, Pin,
    Protected, Range, Scope, Supports, Want, WriteAt, Written, collect,
};
use weft_core::policy::PolicyEdit;
use weft_core::proof::Caller;
use weft_core::{ErrorKind, FileId, Name, RelPath, RequestId, Result, Rights, VolumeId};

use super::{ADMINISTRATOR, Subject};

/// A result in a law: it works, or fails with the kind the law says.
pub trait Outcome<T> {
    /// Returns the value; the law fails if there is none.
    fn works(self) -> T;

    /// Returns the kind of the error; the law fails if there is none.
    fn fails(self) -> ErrorKind;
}

impl<T> Outcome<T> for Result<T> {
    #[track_caller]
    fn works(self) -> T {
        match self {
            Ok(value) => value,
            Err(error) => panic!("the law needs this to work: {error:?}"),
        }
    }

    #[track_caller]
    fn fails(self) -> ErrorKind {
        match self {
            Ok(_) => panic!("the law needs this to fail"),
            Err(error) => error.kind(),
        }
    }
}

/// A subject with its administrator at work on it.
pub struct Site<'a> {
    /// The subject.
    pub subject: &'a dyn Subject,
    /// Its file system.
    pub fs: Arc<dyn FileSystem>,
    /// Who may do everything.
    pub admin: Caller,
}

impl<'a> Site<'a> {
    /// Goes to work on a subject.
    pub fn of(subject: &'a dyn Subject) -> Self {
        let admin = subject.domain().caller(ADMINISTRATOR);
        Self { subject, fs: subject.fs(), admin }
    }

    /// Returns what the subject declares.
    pub fn supports(&self) -> Supports {
        self.fs.supports(VolumeId(0))
    }

    /// Says that a law was not tried because the subject declares that it cannot keep it.
    #[allow(clippy::print_stderr)]
    pub fn unsupported(&self, what: &str) {
        eprintln!("not tried: the subject declares no support for {what}");
    }

    /// Returns a call by the administrator in session 1.
    pub fn call(&self) -> Call {
        self.call_of(&self.admin, 1)
    }

    /// Returns a call by a caller in a session.
    pub fn call_of(&self, caller: &Caller, session: u128) -> Call {
        self.subject.domain().call(caller, session)
    }

    /// Returns a call by the administrator that is to be made once.
    pub fn once(&self, id: u64) -> Call {
        Call { once: Some(RequestId(id)), ..self.call() }
    }

    /// Returns a user, who has no right anywhere yet.
    pub fn user(&self, name: &str) -> Caller {
        self.subject.domain().caller(name)
    }

    /// Makes a directory and returns its id.
    pub async fn dir(&self, path: &str) -> FileId {
        self.make(path, New::Directory).await
    }

    /// Makes something and returns its id.
    pub async fn make(&self, path: &str, new: New) -> FileId {
        self.fs.make(&self.call(), &at(path), new, &SetAttr::default()).await.works().value.id
    }

    /// Makes a file of these bytes and returns its id.
    pub async fn file(&self, path: &str, bytes: &[u8]) -> FileId {
        let id = self.make(path, New::File { verifier: None }).await;
        if !bytes.is_empty() {
            self.write(id, 0, bytes).await;
        }
        id
    }

    /// Makes a symbolic link.
    pub async fn symlink(&self, path: &str, target: &str) -> FileId {
        self.make(path, New::Symlink(Bytes::copy_from_slice(target.as_bytes()))).await
    }

    /// Writes into a file.
    pub async fn write(&self, id: FileId, offset: u64, bytes: &[u8]) -> Written {
        let file = self.fs.file(&self.call(), id, Rights::WRITE).await.works();
        write_to(&*file, &self.call(), WriteAt::Offset(offset), bytes).await.works()
    }

    /// Returns a file's bytes.
    pub async fn read(&self, id: FileId) -> Bytes {
        let file = self.fs.file(&self.call(), id, Rights::READ).await.works();
        read_of(&*file, &self.call(), Range::ALL).await.works()
    }

    /// Opens by path with these rights and no pin.
    pub async fn open(&self, path: &str, need: Rights) -> Opened {
        self.fs.open(&self.call(), &at(path), &how(need)).await.works()
    }

    /// Returns attributes by id.
    pub async fn attr(&self, id: FileId) -> Attr {
        self.fs.walk(&self.call(), &At::id(id), Want::default()).await.works().attr
    }

    /// Returns attributes with a version that lasts until something changes: where versions are made of times, one of
    /// the present moment is for that moment only, and a pinned open waits it out.
    pub async fn lasting(&self, id: FileId) -> Attr {
        let how = OpenHow { need: Rights::READ, pin: Pin::Version, ..OpenHow::default() };
        let opened = self.fs.open(&self.call(), &At::id(id), &how).await.works();
        opened.file.close(&self.call()).await.works();
        opened.attr
    }

    /// Returns what a path leads to for the administrator.
    pub async fn find(&self, path: &str) -> Result<FileId> {
        self.fs.walk(&self.call(), &at(path), Want::default()).await.map(|walked| walked.attr.id)
    }

    /// Returns what a path leads to in somebody's call.
    pub async fn find_as(&self, call: &Call, path: &str) -> Result<FileId> {
        self.fs.walk(call, &at(path), Want::default()).await.map(|walked| walked.attr.id)
    }

    /// Returns every entry of a directory in stored order, by pages of `page`.
    pub async fn scan(&self, dir: FileId, page: u32) -> Vec<Entry> {
        self.scan_from(dir, Cursor::Start, page).await
    }

    /// Returns every entry of a directory from a cursor on.
    pub async fn scan_from(&self, dir: FileId, from: Cursor, page: u32) -> Vec<Entry> {
        let mut entries = Vec::new();
        let mut from = Some(from);
        while let Some(cursor) = from {
            let max = PageMax::new(page);
            let got = self.fs.list(&self.call(), &At::id(dir), cursor, max, Want::default()).await.works();
            assert!(got.entries.len() <= max.entries(), "a page holds no more than was asked for");
            assert!(
                got.next.is_none() || !got.entries.is_empty(),
                "a page that is not the last holds something"
            );
            entries.extend(got.entries);
            from = got.next;
        }
        entries
    }

    /// Returns every name of a directory.
    pub async fn names(&self, dir: FileId) -> Vec<Name> {
        self.scan(dir, 1000).await.into_iter().map(|entry| entry.name).collect()
    }

    /// Adds entries to the policy over a place, which becomes a container of its own.
    pub async fn grant(&self, path: &str, entries: Vec<AclEntry>) -> Protected {
        self.edit(path, Scope::Subtree, |all| all.extend(entries)).await
    }

    /// Makes a place a container that nobody but the administrator has any right on:
    /// a split alone would take over those who may pass the enclosing one.
    pub async fn seal(&self, path: &str) -> Protected {
        let admin = who(&self.admin);
        self.edit(path, Scope::Subtree, |all| all.retain(|entry| entry.who == admin)).await
    }

    /// Edits the ACL over a place.
    pub async fn edit(&self, path: &str, scope: Scope, edit: impl FnOnce(&mut Vec<AclEntry>)) -> Protected {
        let mut acl = self.fs.policy(&self.call(), &at(path)).await.works().acl;
        edit(&mut acl.entries);
        let edit = PolicyEdit { acl: Some(acl), ..PolicyEdit::default() };
        self.fs.protect(&self.call(), &at(path), scope, &edit).await.works().value
    }

    /// Gives a user rights on a place and what is below it.
    pub async fn allow(&self, path: &str, user: &Caller, rights: Rights) -> Protected {
        self.grant(path, vec![AclEntry::allow(who(user), rights)]).await
    }

    /// Takes away everything a place's ACL says of a user.
    pub async fn forbid(&self, path: &str, user: &Caller) -> Protected {
        let who = who(user);
        self.edit(path, Scope::Container, |all| all.retain(|entry| entry.who != who)).await
    }
}

/// Returns the ACL subject that is one caller.
pub fn who(caller: &Caller) -> Who {
    if caller.is_anyone() { Who::Anyone } else { Who::Caller(caller.name().clone()) }
}

/// Returns the address of a path from the root.
pub fn at(path: &str) -> At {
    At::root(RelPath::try_from(path).works())
}

/// Returns a name.
pub fn name(text: &str) -> Name {
    Name::try_from(text).works()
}

/// Returns a way to open with some rights, without a pin.
pub fn how(need: Rights) -> OpenHow {
    OpenHow { need, ..OpenHow::default() }
}

/// Returns a way to open for reading, pinned to one version.
pub fn pinned() -> OpenHow {
    OpenHow { need: Rights::READ, pin: Pin::Version, ..OpenHow::default() }
}

/// Returns a new, empty file.
pub fn new_file() -> New {
    New::File { verifier: None }
}

/// Returns no condition.
pub fn free() -> Guard {
    Guard::NONE
}

/// Writes bytes to an open file.
pub async fn write_to(file: &dyn OpenFile, call: &Call, at: WriteAt, bytes: &[u8]) -> Result<Written> {
    file.write(call, at, &mut BytesSource::new(Bytes::copy_from_slice(bytes))).await
}

/// Reads a range of an open file.
pub async fn read_of(file: &dyn OpenFile, call: &Call, range: Range) -> Result<Bytes> {
    let mut source = file.read(call, range).await?;
    collect(&mut *source, 1 << 30).await
}

/// Returns bytes that differ from place to place.
pub fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|i| (i as u64).wrapping_mul(0x9E37_79B9).to_le_bytes()[2] ^ seed).collect()
}

/// Numbers that a seed decides.
pub struct Dice(u64);

impl Dice {
    /// Takes the seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5851_F42D_4C95_7F2D)
    }

    /// Returns a number below `sides`, which is not 0.
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % sides
    }

    /// Returns one of some things.
    pub fn pick<'t, T>(&mut self, things: &'t [T]) -> &'t T {
        &things[self.roll(things.len() as u64) as usize]
    }
}
