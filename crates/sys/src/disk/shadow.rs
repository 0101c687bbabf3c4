//! A disk with changes that are kept in memory only: whoever is given one may do with it what it
//! does with any other, and what lies below stays as it is, byte for byte.
//!
//! For looking at what a program that has to write would find and do. Nothing is ever flushed:
//! there is nothing to lose. Two names below of one file are taken for two files.

mod content;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use weft_core::form::{OpenedFile, Seek};
use weft_core::{Error, ErrorKind, Result};

use self::content::Content;
use super::{Disk, DiskFile, DiskLock, DiskSpace, Entry, FileSize, FlushSite, Open};

/// A disk, or the part of one below a directory, whose changes are in memory. Clones are the same.
#[derive(Clone)]
pub struct ShadowDisk {
    below: Arc<dyn Disk>,
    state: Arc<Mutex<State>>,
    /// Where this part begins: empty, or a path that ends with a slash.
    prefix: String,
}

/// What became of names, by their whole paths.
#[derive(Default)]
struct State {
    changed: BTreeMap<String, Node>,
    /// Files that somebody may have open and nobody has changed.
    opened: BTreeMap<String, Weak<Mutex<Shadowed>>>,
    /// How many of them there may be before those that were closed are forgotten.
    opened_max: usize,
}

#[derive(Clone)]
enum Node {
    File(Arc<Mutex<Shadowed>>),
    Directory,
    Gone,
}

/// A file, whatever its name is now.
struct Shadowed {
    content: Content,
    /// Its path below, as long as neither its bytes nor its name were changed.
    unchanged: Option<String>,
}

impl ShadowDisk {
    /// Keeps all changes of what is `below` in memory.
    pub fn new(below: Arc<dyn Disk>) -> Self {
        Self { below, state: Arc::default(), prefix: String::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn whole(&self, path: &str) -> String {
        format!("{}{path}", self.prefix).trim_end_matches('/').to_owned()
    }

    /// Returns the file of this path, wherever it lies.
    fn find(&self, state: &mut State, path: &str) -> Result<Arc<Mutex<Shadowed>>> {
        match state.changed.get(path) {
            Some(Node::File(file)) => return Ok(file.clone()),
            Some(Node::Directory) => return Err(refused(ErrorKind::IsDirectory, "it is a directory", path)),
            Some(Node::Gone) => return Err(absent(path)),
            None => {}
        }
        if let Some(file) = state.opened.get(path).and_then(Weak::upgrade) {
            return Ok(file);
        }
        let content = Content::over(self.below.open(path, Open::Read)?)?;
        let file = Arc::new(Mutex::new(Shadowed { content, unchanged: Some(path.to_owned()) }));
        if state.opened.len() >= state.opened_max {
            state.opened.retain(|_, file| file.strong_count() > 0);
            state.opened_max = 2 * state.opened.len() + 64;
        }
        state.opened.insert(path.to_owned(), Arc::downgrade(&file));
        Ok(file)
    }

    /// Returns what a path names, or nothing.
    fn kind(&self, state: &mut State, path: &str) -> Result<Option<Entry>> {
        match state.changed.get(path) {
            Some(Node::File(_)) => Ok(Some(Entry::File)),
            Some(Node::Directory) => Ok(Some(Entry::Directory)),
            Some(Node::Gone) => Ok(None),
            None => {
                let (dir, own) = path.rsplit_once('/').unwrap_or(("", path));
                let mut found = None;
                let listed = self.below.list(dir, &mut |name, entry| {
                    if name == own {
                        found = Some(entry);
                        return ControlFlow::Break(());
                    }
                    ControlFlow::Continue(())
                });
                match listed {
                    Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
                    _ => Ok(found),
                }
            }
        }
    }

    /// Says what has a name from now on. Whoever has open what had it goes on with that.
    fn name(&self, state: &mut State, path: String, node: Node) {
        if let Some(file) = state.opened.remove(&path).and_then(|file| file.upgrade()) {
            lock(&file).unchanged = None;
        }
        state.changed.insert(path, node);
    }

    /// Fails unless the directory of a new name is there.
    fn has_parent(&self, state: &mut State, path: &str) -> Result<()> {
        match path.rsplit_once('/').map(|(dir, _)| self.kind(state, dir)).transpose()? {
            None | Some(Some(Entry::Directory)) => Ok(()),
            Some(_) => Err(absent(path)),
        }
    }

    fn drop_name(&self, path: &str, kind: Entry) -> Result<()> {
        let path = self.whole(path);
        let state = &mut *self.state();
        match self.kind(state, &path)? {
            None => return Err(absent(&path)),
            Some(found) if (found == Entry::Directory) != (kind == Entry::Directory) => {
                return Err(refused(ErrorKind::Invalid, "it is something else", &path));
            }
            Some(_) => {}
        }
        self.name(state, path, Node::Gone);
        Ok(())
    }
}

fn lock(file: &Mutex<Shadowed>) -> MutexGuard<'_, Shadowed> {
    file.lock().unwrap_or_else(PoisonError::into_inner)
}

fn refused(kind: ErrorKind, detail: &'static str, path: &str) -> Error {
    Error::new(kind, detail).about(path)
}

fn absent(path: &str) -> Error {
    refused(ErrorKind::NotFound, "there is no such file", path)
}

impl Disk for ShadowDisk {
    fn open(&self, path: &str, how: Open) -> Result<Arc<dyn DiskFile>> {
        let path = self.whole(path);
        let mut state = self.state();
        let file = match (self.find(&mut state, &path), how) {
            (Ok(_), Open::MakeNew) => return Err(refused(ErrorKind::Exists, "the name is taken", &path)),
            (Err(error), Open::Make | Open::MakeNew) if error.kind() == ErrorKind::NotFound => {
                self.has_parent(&mut state, &path)?;
                let made = Arc::new(Mutex::new(Shadowed { content: Content::default(), unchanged: None }));
                self.name(&mut state, path.clone(), Node::File(made.clone()));
                made
            }
            (found, _) => found?,
        };
        Ok(Arc::new(ShadowFile { disk: self.clone(), file, path, writable: how != Open::Read }))
    }

    fn make_dir(&self, path: &str) -> Result<()> {
        let path = self.whole(path);
        let mut state = self.state();
        if self.kind(&mut state, &path)?.is_some() {
            return Err(refused(ErrorKind::Exists, "the name is taken", &path));
        }
        self.has_parent(&mut state, &path)?;
        self.name(&mut state, path, Node::Directory);
        Ok(())
    }

    fn list(&self, dir: &str, each: &mut dyn FnMut(&str, Entry) -> ControlFlow<()>) -> Result<()> {
        let dir = self.whole(dir);
        let prefix = if dir.is_empty() { String::new() } else { format!("{dir}/") };
        let mut names = BTreeMap::new();
        let mut state = self.state();
        let is_new = matches!(state.changed.get(&dir), Some(Node::Directory));
        let listed = self.below.list(&dir, &mut |name, entry| {
            names.insert(name.to_owned(), entry);
            ControlFlow::Continue(())
        });
        match listed {
            Err(error) if error.kind() == ErrorKind::NotFound && is_new => {}
            listed => listed?,
        }
        for (path, node) in state.changed.range_mut(prefix.clone()..) {
            let Some(name) = path.strip_prefix(&prefix) else { break };
            if name.is_empty() || name.contains('/') {
                continue;
            }
            match node {
                Node::File(_) => names.insert(name.to_owned(), Entry::File),
                Node::Directory => names.insert(name.to_owned(), Entry::Directory),
                Node::Gone => names.remove(name),
            };
        }
        // Whoever is shown a name may ask for more of it.
        drop(state);
        for (name, entry) in names {
            if each(&name, entry).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn measure(&self, path: &str) -> Result<FileSize> {
        let path = self.whole(path);
        let mut state = self.state();
        if !state.changed.contains_key(&path) && !state.opened.contains_key(&path) {
            return self.below.measure(&path);
        }
        lock(&*self.find(&mut state, &path)?).content.size()
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (self.whole(from), self.whole(to));
        let mut state = self.state();
        let file = self.find(&mut state, &from)?;
        self.has_parent(&mut state, &to)?;
        if matches!(state.changed.get(&to), Some(Node::File(there)) if Arc::ptr_eq(there, &file)) {
            return Ok(());
        }
        self.name(&mut state, from, Node::Gone);
        self.name(&mut state, to, Node::File(file));
        Ok(())
    }

    fn link(&self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (self.whole(from), self.whole(to));
        let mut state = self.state();
        let file = self.find(&mut state, &from)?;
        if self.kind(&mut state, &to)?.is_some() {
            return Err(refused(ErrorKind::Exists, "the name is taken", &to));
        }
        self.has_parent(&mut state, &to)?;
        self.name(&mut state, from, Node::File(file.clone()));
        self.name(&mut state, to, Node::File(file));
        Ok(())
    }

    fn remove(&self, path: &str) -> Result<()> {
        self.drop_name(path, Entry::File)
    }

    fn remove_dir(&self, path: &str) -> Result<()> {
        let mut is_empty = true;
        self.list(path, &mut |_, _| {
            is_empty = false;
            ControlFlow::Break(())
        })?;
        match is_empty {
            true => self.drop_name(path, Entry::Directory),
            false => Err(refused(ErrorKind::NotEmpty, "the directory is not empty", path)),
        }
    }

    fn sync_dir(&self, _dir: &str, _site: FlushSite) -> Result<()> {
        Ok(())
    }

    /// Takes the lock below: it keeps others away from what is looked at.
    fn lock(&self, path: &str) -> Result<Box<dyn DiskLock>> {
        self.below.lock(&self.whole(path))
    }

    fn is_private(&self, path: &str) -> Result<bool> {
        let path = self.whole(path);
        match self.state().changed.get(&path) {
            Some(Node::Gone) => Err(absent(&path)),
            Some(_) => Ok(true),
            None => self.below.is_private(&path),
        }
    }

    fn space(&self) -> Result<DiskSpace> {
        self.below.space()
    }

    fn beneath(&self, dir: &str) -> Result<Arc<dyn Disk>> {
        match self.make_dir(dir) {
            Err(error) if error.kind() != ErrorKind::Exists => Err(error),
            _ => Ok(Arc::new(Self { prefix: format!("{}/", self.whole(dir)), ..self.clone() })),
        }
    }
}

struct ShadowFile {
    disk: ShadowDisk,
    file: Arc<Mutex<Shadowed>>,
    path: String,
    writable: bool,
}

impl ShadowFile {
    fn content<T>(&self, act: impl FnOnce(&Content) -> Result<T>) -> Result<T> {
        act(&lock(&self.file).content)
    }

    fn change(&self, act: impl FnOnce(&mut Content) -> Result<()>) -> Result<()> {
        if !self.writable {
            return Err(refused(ErrorKind::Invalid, "it was opened to be read", &self.path));
        }
        // The names before the bytes, as everywhere here.
        let mut state = self.disk.state();
        let mut file = lock(&self.file);
        if let Some(path) = file.unchanged.take() {
            state.opened.remove(&path);
            state.changed.insert(path, Node::File(self.file.clone()));
        }
        drop(state);
        act(&mut file.content)
    }
}

impl DiskFile for ShadowFile {
    fn read(&self, bytes: &mut [u8], at: u64) -> Result<usize> {
        self.content(|content| content.read(bytes, at))
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> Result<()> {
        self.change(|content| content.write(bytes, at))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.change(|content| content.set_len(len))
    }

    fn allocate(&self, at: u64, len: u64) -> Result<()> {
        let end = at.saturating_add(len);
        self.change(|content| if end > content.len() { content.set_len(end) } else { Ok(()) })
    }

    fn reserve(&self, _at: u64, _len: u64) -> Result<()> {
        Ok(())
    }

    fn punch(&self, at: u64, len: u64) -> Result<()> {
        self.change(|content| content.clear(at, len))
    }

    fn len(&self) -> Result<u64> {
        self.content(|content| Ok(content.len()))
    }

    fn measure(&self) -> Result<FileSize> {
        self.content(Content::size)
    }

    fn seek(&self, at: u64, what: Seek) -> Result<Option<u64>> {
        self.content(|content| content.seek(at, what))
    }

    fn resident(&self, _at: u64, _len: u64) -> bool {
        false
    }

    fn sync(&self, _site: FlushSite) -> Result<()> {
        Ok(())
    }
}

impl OpenedFile for ShadowFile {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> std::io::Result<usize> {
        self.read(buffer, at).map_err(std::io::Error::other)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

#[cfg(test)]
mod tests;
