//! Attributes that Weft itself answers, each under a name of its own.
//!
//! No listing shows them, so that whoever copies a file with its attributes (`cp -a`,
//! `rsync -X`, `tar --xattrs`) does not take them along; `getfattr -n NAME` does show them. Nor is
//! one that such a program brings along from elsewhere taken for more than a copy ([`crate::editions`]).
//! What is told of failures is known here, whether the node answers or not.

use bytes::Bytes;
use rustix::io::Errno;
use weft_core::acl::{Acl, Edited};
use weft_core::attr::{Attr, TagMust, TagName};
use weft_core::form::{Scope, Want};
use weft_core::policy::PolicyEdit;
use weft_core::{DomainId, Error, ErrorKind, OneLine, Rights, limits};

use super::{Door, Outcome, done};
use crate::editions::Shown;
use crate::errno::Failure;
use crate::look::is_away;

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

/// The manual page of setxattr(2) knows no EFBIG.
pub(super) fn too_large(error: Error) -> Failure {
    Failure::from(error).shown(ErrorKind::TooLarge, Errno::TOOBIG)
}

/// Refuses to change what Weft itself says.
pub(super) fn unchangeable() -> Failure {
    Error::not_permitted("this attribute is what Weft itself says of the file").into()
}

impl Door {
    /// Returns an attribute's value as text.
    pub(super) async fn own(&self, node: u64, own: Own) -> Result<String, Failure> {
        Ok(match own {
            Own::Acl => self.acl(node).await?,
            Own::Container => self.seen(node).await?.0.container.to_string(),
            Own::Id => self.mounted.nodes.file(node)?.to_string(),
            Own::Mount => self.standing().await,
            Own::Rights => self.seen(node).await?.1.to_string(),
            Own::Why => self.why(node)?.ok_or(Errno::NODATA)?,
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
        let Edited { edition, entries } = Edited::read(text, home)?;
        let file = self.mounted.nodes.file(node)?;
        let shown = edition.and_then(|mark| self.editions.shown(mark)).filter(|shown| shown.file == file);
        let shown = shown.ok_or_else(|| {
            Error::not_permitted("it has no edition that was read of this file on this mount lately")
                .hint("read the attribute, change its text, and write that")
        })?;
        let at = self.at(node)?;
        let governs = self.fs.policy(&self.call(), &at).await?.container;
        if governs != shown.container {
            let other =
                format!("the ACL that was read is of {}, and now {governs} governs it", shown.container);
            return Err(Error::new(ErrorKind::Conflict, other).into());
        }
        let acl = Acl { version: shown.version, entries };
        if acl.text(0, Some(home)).len() > limits::TAGS_BYTES_MAX {
            return Err(too_large(Error::new(ErrorKind::TooLarge, "its text would be longer than 64 KiB")));
        }
        let edit = PolicyEdit { acl: Some(acl), ..PolicyEdit::default() };
        let _unsettled = self.mounted.fresh.unsettle();
        let protected = self.fs.protect(&self.change(), &at, Scope::Subtree, &edit).await;
        self.mounted.nodes.listings_are_old();
        protected.map_err(too_large)?;
        done()
    }

    /// Returns the ACL that governs a node, as text.
    async fn acl(&self, node: u64) -> Result<String, Failure> {
        let policy = self.fs.policy(&self.call(), &self.at(node)?).await?;
        let (container, version) = (policy.container, policy.acl.version);
        let edition =
            self.editions.mark(Shown { file: self.mounted.nodes.file(node)?, container, version })?;
        Ok(policy.acl.text(edition, self.home()))
    }

    /// Returns what failed last of a node; of the root, anywhere.
    fn why(&self, node: u64) -> Result<Option<String>, Errno> {
        let file = self.mounted.nodes.file(node)?;
        Ok(if file == self.mounted.root { self.failures.of_mount() } else { self.failures.of(file) })
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

    /// Says how the mount is, in lines of `key: value`. Its node is asked, and for a short while only.
    async fn standing(&self) -> String {
        let call = self.call_within(limits::MOUNT_ANSWERS_WITHIN);
        let answer = self.fs.walk(&call, &self.root(), Want::default()).await;
        let node = match &answer {
            Ok(_) => "answers",
            Err(error) if is_away(error.kind()) => "does not answer",
            Err(error) if is_refusal(error.kind()) => "refuses",
            Err(_) => "fails",
        };
        let mut lines = vec![
            format!("for: {}", self.calls.who().0.name()),
            format!("pid: {}", std::process::id()),
            format!("node: {node}"),
        ];
        if let Some(login) = &self.mounted.login {
            lines.push(format!("domain: {}", login.domain));
            lines.push(format!("login: {}", OneLine(&login.socket.display().to_string())));
        }
        if let Err(error) = answer {
            lines.push(format!("said: {}", OneLine(&error.to_string())));
        }
        if let Some(taken) = &self.mounted.taken {
            lines.push(format!("taken-over: {}", taken.times));
            lines.push(format!("taken-over-at: {} UTC", taken.at.civil()));
            lines.push(format!("taken-over-because: {}", OneLine(&taken.because)));
        }
        if let Some(away) = (self.away)() {
            lines.push(format!("away-since: {} UTC", away.since.civil()));
            lines.push(format!("last-try: {}", OneLine(&away.because)));
        }
        lines.join("\n") + "\n"
    }
}

/// Whether a node that answers so does not take the mount's caller for who it says it is, or lets it in.
fn is_refusal(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Denied
            | ErrorKind::NotPermitted
            | ErrorKind::Unauthenticated
            | ErrorKind::Expired
            | ErrorKind::Revoked
    )
}
