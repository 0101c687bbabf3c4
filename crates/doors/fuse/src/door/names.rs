//! Requests on names.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rustix::fs::RenameFlags;
use rustix::io::Errno;
use weft_core::attr::{Changed, SetAttr};
use weft_core::form::{At, Entry, Expect, Guard, LinkTarget, New, Reference, Replace, Want};
use weft_core::{ErrorKind, limits};

use super::{Door, Outcome, done, permissions, refuse};
use crate::abi::mode;
use crate::abi::reply::{self, EntryOut};
use crate::errno::Failure;
use crate::fresh::Asking;
use crate::nodes::Way;

impl Door {
    pub(super) async fn lookup(self: &Arc<Self>, node: u64, name: Bytes) -> Outcome {
        let at = self.at_name(node, name.clone())?;
        let fresh = &self.mounted.fresh;
        let told = self.is_told(at.base.volume());
        if told && fresh.was_missing(node, &name, self.mounted.clock.tick()) {
            // Who asks again believes it no longer than that.
            return Ok(reply::entry(&EntryOut::nothing(Duration::ZERO)).into());
        }
        let asking = fresh.ask();
        match self.fs.walk(&self.call(), &at, Want::default()).await {
            Ok(walked) => Ok(self.entry(&walked.attr, (node, name), asking).await),
            // That a name is not there may be believed for a moment only: the right to
            // see it can be granted without anything of it being known here.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if told {
                    fresh.is_missing(asking, (node, name), self.mounted.clock.tick());
                }
                let valid = self.valid(at.base.volume()).min(limits::MOUNT_BELIEVED);
                Ok(reply::entry(&EntryOut::nothing(valid)).into())
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn read_link(&self, node: u64) -> Outcome {
        let text = match self.fs.target(&self.call(), &self.at(node)?).await? {
            LinkTarget::Symlink(text) => text.to_vec(),
            LinkTarget::Reference(to) => reference_text(&to).into_bytes(),
        };
        Ok(text.into())
    }

    pub(super) async fn symlink(self: &Arc<Self>, node: u64, name: Bytes, target: Bytes) -> Outcome {
        self.make(node, name, New::Symlink(target), SetAttr::default()).await
    }

    pub(super) async fn make_node(self: &Arc<Self>, node: u64, name: Bytes, mode: u32) -> Outcome {
        let new = match mode & mode::TYPE {
            0 | mode::FILE => New::File { verifier: None },
            mode::FIFO => New::Fifo,
            _ => return refuse(Errno::PERM),
        };
        self.make(node, name, new, SetAttr { mode: Some(permissions(mode)), ..SetAttr::default() }).await
    }

    pub(super) async fn make_directory(self: &Arc<Self>, node: u64, name: Bytes, mode: u32) -> Outcome {
        let set = SetAttr { mode: Some(permissions(mode)), ..SetAttr::default() };
        self.make(node, name, New::Directory, set).await
    }

    async fn make(self: &Arc<Self>, node: u64, name: Bytes, new: New, set: SetAttr) -> Outcome {
        let at = self.at_name(node, name.clone())?;
        let _unsettled = self.mounted.fresh.unsettle();
        let asking = self.mounted.fresh.ask();
        let made = self.fs.make(&self.change(), &at, new, &set).await?;
        self.made(made, (node, name), asking).await
    }

    pub(super) async fn link(self: &Arc<Self>, file: u64, node: u64, name: Bytes) -> Outcome {
        let (file, to) = (self.at(file)?, self.at_name(node, name.clone())?);
        let _unsettled = self.mounted.fresh.unsettle();
        let asking = self.mounted.fresh.ask();
        let made = self.fs.link(&self.change(), &file, &to).await;
        // The manual page of link(2) has a directory answer EPERM.
        let made = made.map_err(|error| Failure::from(error).shown(ErrorKind::IsDirectory, Errno::PERM))?;
        self.made(made, (node, name), asking).await
    }

    /// Answers with what was made or linked.
    async fn made(self: &Arc<Self>, made: Changed<Entry>, way: Way, asking: Asking) -> Outcome {
        let attr = self.after(&At::id(made.value.id), &made.file).await?;
        Ok(self.entry(&attr, way, asking).await)
    }

    pub(super) async fn unlink(&self, node: u64, name: Bytes) -> Outcome {
        self.remove(node, name, Expect::NotDirectory).await
    }

    pub(super) async fn remove_directory(&self, node: u64, name: Bytes) -> Outcome {
        self.remove(node, name, Expect::Directory).await
    }

    async fn remove(&self, node: u64, name: Bytes, kind: Expect) -> Outcome {
        let at = self.at_name(node, name)?;
        let _unsettled = self.mounted.fresh.unsettle();
        self.fs.remove(&self.change(), &at, kind, &Guard::NONE).await?;
        done()
    }

    pub(super) async fn rename(&self, from: Way, to: Way, flags: u32) -> Outcome {
        let how = match RenameFlags::from_bits(flags) {
            Some(flags) if flags.is_empty() => Replace::Any,
            Some(RenameFlags::NOREPLACE) => Replace::Never,
            Some(RenameFlags::EXCHANGE) => Replace::Exchange,
            _ => return refuse(Errno::INVAL),
        };
        let (at, to_at) = (self.at_name(from.0, from.1.clone())?, self.at_name(to.0, to.1.clone())?);
        let _unsettled = self.mounted.fresh.unsettle();
        let renamed = self.fs.rename(&self.change(), &at, &to_at, how, &Guard::NONE).await;
        if from.0 != to.0 {
            // Below a directory that moved other rights may hold.
            self.mounted.nodes.listings_are_old();
        }
        // A directory moved below itself is EINVAL in the manual page of rename(2).
        renamed.map_err(|error| Failure::from(error).shown(ErrorKind::Loop, Errno::INVAL))?;
        self.mounted.nodes.renamed(&from, &to, how == Replace::Exchange);
        done()
    }
}

/// Returns what a reference reads as: it leads nowhere on this machine.
fn reference_text(to: &Reference) -> String {
    match to {
        Reference::Node(name) => format!("weft:node/{name}"),
        Reference::Group(name) => format!("weft:group/{name}"),
        Reference::Container(id) => format!("weft:container/{id}"),
        Reference::Volume(id) => format!("weft:volume/{id}"),
    }
}
