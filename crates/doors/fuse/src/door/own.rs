//! Attributes that Weft itself answers, each under a name of its own.
//!
//! No listing shows them, so that whoever copies a file with its attributes (`cp -a`,
//! `rsync -X`, `tar --xattrs`) does not take them along; `getfattr -n NAME` does show them. What
//! is told of failures and of the mount is known here, whether the node answers or not.

use bytes::Bytes;
use rustix::io::Errno;
use weft_core::acl::{Acl, Edited};
use weft_core::attr::{Attr, TagMust, TagName};
use weft_core::form::{Scope, Want};
use weft_core::policy::PolicyEdit;
use weft_core::{DomainId, Error, OneLine, Rights};

use super::{Door, Outcome, done};
use crate::errno::Failure;

/// One of the names; `user.` stands before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Own {
    /// The ACL of the container that governs the file. Whoever may change it can write it.
    Acl,
    /// That container's id.
    Container,
    /// The file's id.
    Id,
    /// Who the mount acts for, and whether its node answers.
    Mount,
    /// What the mount's caller may do with the file.
    Rights,
    /// What failed last.
    Why,
}

impl Own {
    /// Returns which of the names it is, if any.
    pub(super) fn named(name: &TagName) -> Option<Self> {
        Some(match name.as_bytes() {
            b"weft.acl" => Self::Acl,
            b"weft.container" => Self::Container,
            b"weft.id" => Self::Id,
            b"weft.mount" => Self::Mount,
            b"weft.rights" => Self::Rights,
            b"weft.why" => Self::Why,
            _ => return None,
        })
    }
}

/// Refuses to change what Weft itself says.
pub(super) fn unchangeable() -> Failure {
    Error::not_permitted("this attribute is what Weft itself says of the file").into()
}

impl Door {
    /// Returns an attribute's value as text.
    pub(super) async fn own(&self, node: u64, own: Own) -> Result<String, Failure> {
        Ok(match own {
            Own::Acl => self.acl(node).await?.text(self.home()),
            Own::Container => self.seen(node).await?.0.container.to_string(),
            Own::Id => self.nodes.file(node)?.to_string(),
            Own::Mount => self.standing(),
            Own::Rights => self.seen(node).await?.1.to_string(),
            Own::Why => self.failures.of(node).ok_or(Errno::NODATA)?,
        })
    }

    /// Sets one, each of which is there. All but the ACL are what they are.
    pub(super) async fn set_own(&self, node: u64, own: Own, value: &Bytes, must: TagMust) -> Outcome {
        if own != Own::Acl {
            return Err(unchangeable());
        }
        if must == TagMust::BeNew {
            return Err(Error::exists("there is an ACL already").into());
        }
        let home = self.home().ok_or_else(|| Error::denied("`anyone` changes no ACL"))?;
        let text = std::str::from_utf8(value).map_err(|_| Error::invalid("an ACL is text"))?;
        let Edited { version, entries } = Edited::read(text, home)?;
        let version = match version {
            Some(version) => version,
            None => self.acl(node).await?.version,
        };
        let edit = PolicyEdit { acl: Some(Acl { version, entries }), ..PolicyEdit::default() };
        self.fs.protect(&self.change(), &self.at(node)?, Scope::Subtree, &edit).await?;
        done()
    }

    /// Returns the ACL that governs a node.
    async fn acl(&self, node: u64) -> Result<Acl, Failure> {
        Ok(self.fs.policy(&self.call(), &self.at(node)?).await?.acl)
    }

    async fn seen(&self, node: u64) -> Result<(Attr, Rights), Failure> {
        let want = Want { attr: true, rights: true };
        let walked = self.fs.walk(&self.call(), &self.at(node)?, want).await?;
        Ok((walked.attr, walked.rights.unwrap_or_default()))
    }

    /// Returns the domain whose names need no domain.
    fn home(&self) -> Option<DomainId> {
        self.calls.who().0.name().domain()
    }

    /// Says how the mount is, in lines of `key: value`.
    fn standing(&self) -> String {
        let caller = self.calls.who().0;
        let mut said = format!("for: {}\npid: {}\n", caller.name(), std::process::id());
        said += &match (self.away)() {
            None => String::from("node: answers\n"),
            Some(away) => format!(
                "node: does not answer\naway-since: {} UTC\nsaid: {}\n",
                away.since.civil(),
                OneLine(&away.because)
            ),
        };
        said
    }
}
