//! Names of one file, which a copy that is to be like its source has as well.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::rc::Rc;

use bytes::Bytes;
use weft_core::attr::Attr;
use weft_core::form::{Ack, At, Call, Expect, Guard, Replace};
use weft_core::{Error, ErrorKind, FileId, Name, Result};
use weft_sys::{Folder, Seen};

use super::Job;
use super::clearing::stands_there;

/// Whether a name was made one of a file's.
pub enum Linked {
    /// It was made now.
    New,
    /// It is one already.
    Already,
    /// It cannot be: the two are under different policies.
    Apart,
}

impl Job<'_> {
    /// Whether a file of several names in the tree may be written for one that was seen: that has several as
    /// well, and no other file of the source was written there.
    pub fn is_one_file(&self, there: FileId, seen: &Seen) -> bool {
        seen.links > 1 && *self.linked.borrow_mut().entry(there).or_insert(seen.inode) == seen.inode
    }

    /// Gives the file that has one name in the tree another, in place of whatever has that.
    pub async fn link(&self, first: (FileId, &Name), to: (FileId, &Name)) -> Result<Linked> {
        let (fs, at) = (self.client.fs(), At::name(to.0, to.1.clone()));
        let file = self.there((Some(first.0), first.1)).await?;
        let file = file.ok_or_else(|| Error::not_found("its first name is not there"))?;
        let there: Option<Attr> = self.there((Some(to.0), to.1)).await?;
        if there.is_some_and(|there| there.id == file.id) {
            return Ok(Linked::Already);
        }
        let applied = Call { ack: Ack::Applied, ..self.client.call() };
        let source = At::id(file.id);
        let made = match there {
            None => fs.link(&applied, &source, &at).await.map(drop),
            Some(there) => {
                if there.kind == weft_core::attr::Kind::Directory {
                    self.clear_for(&at, &there).await?;
                }
                // Beside it first, so that the name always stands for one of the two.
                let beside = At::name(to.0, Name::new(Bytes::from(self.beside()))?);
                match fs.link(&applied, &source, &beside).await {
                    Ok(_) => {
                        let renamed = fs.rename(&applied, &beside, &at, Replace::Any, &Guard::NONE).await;
                        if renamed.is_err() {
                            // What matters is why.
                            let _ = fs.remove(&applied, &beside, Expect::NotDirectory, &Guard::NONE).await;
                        }
                        renamed.map(drop)
                    }
                    Err(e) => Err(e),
                }
            }
        };
        match made {
            Ok(()) => {
                self.touch(to.0);
                Ok(Linked::New)
            }
            Err(e) if e.kind() == ErrorKind::CrossVolume => Ok(Linked::Apart),
            Err(e) => Err(e),
        }
    }

    /// A name that nobody else makes, until it is the other's a moment later.
    pub fn beside(&self) -> String {
        format!(".{:016x}.weft-link", self.client.sys().random().u64())
    }

    /// The same for a file of this machine.
    pub fn link_local(&self, first: (&Folder, &OsStr), to: (&Folder, &OsStr)) -> Result<Linked> {
        let file = first.0.look(first.1)?.ok_or_else(|| Error::not_found("its first name is not there"))?;
        let there = to.0.look(to.1)?;
        if there.is_some_and(|there| there.inode == file.inode) {
            return Ok(Linked::Already);
        }
        if there.is_none() {
            to.0.link(first.0, first.1, to.1)?;
            return Ok(Linked::New);
        }
        if there.is_some_and(|there| there.sort == weft_sys::Sort::Directory) {
            return Err(stands_there());
        }
        let beside = OsString::from(self.beside());
        to.0.link(first.0, first.1, &beside)?;
        if let Err(e) = to.0.rename(&beside, to.1) {
            // What matters is why.
            let _ = to.0.remove(&beside);
            return Err(e);
        }
        Ok(Linked::New)
    }
}

/// Another name of a file that was found before, on this machine.
pub struct LocalLink {
    /// The directory of the first name, below the top, and that.
    pub first: (PathBuf, OsString),
    /// The directory of the other, and that.
    pub folder: Rc<Folder>,
    pub name: OsString,
    /// The path of that below the top.
    pub below: PathBuf,
}
