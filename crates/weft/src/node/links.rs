//! Links: the tree says what a caller may give away, auth keeps what was given.

use std::sync::Arc;

use async_trait::async_trait;
use weft_auth::{Auth, LinkTarget};
use weft_core::attr::{Attr, Kind};
use weft_core::drop_box::DropLimits;
use weft_core::form::{At, Call, FileSystem, OpenHow, Origin, Pin, Scope, Want};
use weft_core::proof::{Caller, Within};
use weft_core::service::{DropBoxRecord, LinkGives, LinkGrant, LinkRecord, Links, NewLink};
use weft_core::{CallerId, Error, ErrorKind, LinkId, RelPath, Result, Rights};
use weft_sys::Sys;
use weft_volume::audited::Audited;
use weft_volume::managed::Managed;

use super::call_of;

/// The links of a node.
pub struct NodeLinks {
    sys: Sys,
    auth: Arc<Auth>,
    fs: Audited,
    /// Where drop-boxes are: shares have none.
    root: Managed,
}

impl NodeLinks {
    pub fn new(sys: Sys, auth: Arc<Auth>, fs: Audited, root: Managed) -> Self {
        Self { sys, auth, fs, root }
    }

    fn call(&self, caller: &Caller, from: Origin) -> Call {
        Call { from, ..call_of(&self.sys, caller) }
    }

    /// Records a refusal, and says of a share that it has no drop-boxes.
    async fn answered<T>(&self, call: &Call, operation: &str, at: &At, answer: Result<T>) -> Result<T> {
        let Err(error) = answer else { return answer };
        self.fs.refused(call, operation, at, &error).await;
        let in_share = error.kind() == ErrorKind::Unavailable
            && self.root.across(call, at).is_ok_and(|across| across.is_some());
        Err(if in_share { Error::unsupported("a share has no drop-boxes") } else { error })
    }

    /// Returns what a link to a path is made for, if the caller has the rights that it is to give.
    async fn target(&self, call: &Call, path: &RelPath, new: &NewLink) -> Result<LinkTarget> {
        let at = At::root(path.clone()).following();
        let walked = self.fs.walk(call, &at, Want { attr: true, rights: true }).await?;
        let is_directory = must_fit(walked.attr.kind, new)?;
        let needed = if is_directory { new.gives.rights() } else { Rights::READ };
        let missing = needed - walked.rights.unwrap_or_default();
        if !missing.is_empty() {
            let detail = format!("a link gives no more than its maker has: {missing} is missing");
            let refused = Error::denied(detail).caller(call.caller.name());
            self.fs.refused(call, "make-link", &at, &refused).await;
            return Err(refused);
        }
        let is_box = || self.root.edits_drop_box(call, &at, Scope::Subtree).unwrap_or(false);
        if new.gives == LinkGives::Insert && !is_box() {
            return Err(Error::invalid("it is no drop-box").hint("weft dropbox create"));
        }
        let attr = if new.pin { self.settled(call, &walked.attr).await? } else { walked.attr };
        let version = new.pin.then_some(attr.version);
        Ok(LinkTarget { within: Within { root: attr.id, version, hint: path.clone() }, is_directory })
    }

    /// Returns a file's attributes with a version that lasts, as a pinned open has it.
    async fn settled(&self, call: &Call, attr: &Attr) -> Result<Attr> {
        let how = OpenHow { need: Rights::READ, pin: Pin::Version, ..OpenHow::default() };
        let opened = self.fs.open(call, &At::id(attr.id), &how).await?;
        opened.file.close(call).await?;
        Ok(opened.attr)
    }
}

/// Returns whether a link is for a directory. Fails for what it cannot be for.
fn must_fit(kind: Kind, new: &NewLink) -> Result<bool> {
    match (kind, new.gives) {
        (Kind::File, LinkGives::Read) => Ok(false),
        (Kind::Directory, LinkGives::Read) if new.pin => {
            Err(Error::invalid("a directory has no version to keep to: only a link to a file can"))
        }
        (Kind::Directory, _) => Ok(true),
        (_, LinkGives::Insert) => {
            Err(Error::new(ErrorKind::NotDirectory, "files are dropped into a directory"))
        }
        _ => Err(Error::invalid("only files and directories have links")),
    }
}

#[async_trait]
impl Links for NodeLinks {
    async fn make_link(
        &self,
        caller: &Caller,
        from: Origin,
        at: &RelPath,
        new: &NewLink,
    ) -> Result<LinkGrant> {
        self.auth.demand_somebody(caller)?;
        let call = self.call(caller, from);
        let target = self.target(&call, at, new).await?;
        self.auth.links().make(caller, target, new).await
    }

    async fn links(
        &self,
        caller: &Caller,
        all: bool,
        after: Option<(CallerId, LinkId)>,
    ) -> Result<Vec<LinkRecord>> {
        self.auth.links().list(caller, all, after)
    }

    async fn end_link(&self, caller: &Caller, id: LinkId) -> Result<LinkRecord> {
        self.auth.links().end(caller, id).await
    }

    async fn make_drop_box(
        &self,
        caller: &Caller,
        from: Origin,
        at: &RelPath,
        limits: &DropLimits,
    ) -> Result<DropBoxRecord> {
        // What a token makes would outlive it: strangers go on dropping.
        self.auth.demand_somebody(caller)?;
        let (call, at) = (self.call(caller, from), At::root(at.clone()).following());
        let answer = self.root.make_drop_box(&call, &at, limits).await;
        self.answered(&call, "make-drop-box", &at, answer).await
    }

    async fn drop_boxes(&self, caller: &Caller) -> Result<Vec<DropBoxRecord>> {
        self.root.drop_boxes(&call_of(&self.sys, caller))
    }

    async fn end_drop_box(&self, caller: &Caller, from: Origin, at: &RelPath) -> Result<DropBoxRecord> {
        self.auth.demand_somebody(caller)?;
        let (call, at) = (self.call(caller, from), At::root(at.clone()).following());
        let answer = self.root.end_drop_box(&call, &at).await;
        self.answered(&call, "end-drop-box", &at, answer).await
    }
}
