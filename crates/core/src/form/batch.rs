//! Requests and replies as values: what a batch holds and `rpc` carries. Opens,
//! stages, locks and sources are not among them: they travel as numbers and frames.

use serde::{Deserialize, Serialize};

use super::Verifier;
use super::address::{At, Cursor, Expect, Guard, Replace};
use super::answer::{
    Copied, Entry, LinkTarget, Page, Protected, Space, StagePage, TagPage, Walked, Want, Why,
};
use super::call::Call;
use super::file_system::{FileSystem, New, PageMax, Range, Scope, SyncScope};
use super::watch::{ChangeSeq, Changes};
use crate::attr::{Attr, Changed, SetAttr, TagEdit, TagName};
use crate::caller::CallerName;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{RequestId, StageId};
use crate::limits;
use crate::policy::{Policy, PolicyEdit};
use crate::rights::Rights;

/// Defines both enums and the one place that maps a request to its method.
macro_rules! requests {
    ($( $(#[$doc:meta])* $variant:ident { $($field:ident: $type:ty),* } => $reply:ty, |$fs:ident, $call:ident| $act:expr; )*) => {
        /// One request. Fields are the arguments of the [`FileSystem`] method of the same name.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[allow(missing_docs)]
        pub enum Request { $( $(#[$doc])* $variant { $($field: $type),* } ),* }

        /// The answer to the request of the same name.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[allow(missing_docs)]
        pub enum Reply { $( $variant($reply) ),* }

        /// Makes one request of a file system.
        pub async fn dispatch(fs: &dyn FileSystem, call: &Call, request: Request) -> Result<Reply> {
            match request {
                $( Request::$variant { $($field),* } => {
                    let ($fs, $call) = (fs, call);
                    $act.await.map(Reply::$variant)
                } )*
            }
        }

        impl Request {
            /// Returns the method's name, for logs and audit records.
            pub fn name(&self) -> &'static str {
                match self { $( Self::$variant { .. } => stringify!($variant) ),* }
            }
        }
    };
}

requests! {
    /// See [`FileSystem::walk`].
    Walk { at: At, want: Want } => Walked, |fs, call| fs.walk(call, &at, want);
    /// See [`FileSystem::list`].
    List { dir: At, from: Cursor, max: PageMax, want: Want } => Page, |fs, call| fs.list(call, &dir, from, max, want);
    /// See [`FileSystem::make`].
    Make { at: At, new: New, set: SetAttr } => Changed<Entry>, |fs, call| fs.make(call, &at, new, &set);
    /// See [`FileSystem::link`].
    Link { file: At, to: At } => Changed<Entry>, |fs, call| fs.link(call, &file, &to);
    /// See [`FileSystem::rename`].
    Rename { from: At, to: At, how: Replace, guard: Guard } => Changed<()>, |fs, call| fs.rename(call, &from, &to, how, &guard);
    /// See [`FileSystem::remove`].
    Remove { at: At, kind: Expect, guard: Guard } => Changed<()>, |fs, call| fs.remove(call, &at, kind, &guard);
    /// See [`FileSystem::target`].
    Target { at: At } => LinkTarget, |fs, call| fs.target(call, &at);
    /// See [`FileSystem::set`].
    Set { at: At, set: SetAttr, guard: Guard } => Changed<Attr>, |fs, call| fs.set(call, &at, &set, &guard);
    /// See [`FileSystem::tags`].
    Tags { at: At, from: Option<TagName> } => TagPage, |fs, call| fs.tags(call, &at, from);
    /// See [`FileSystem::tag`].
    Tag { at: At, edits: Vec<TagEdit>, guard: Guard } => Changed<()>, |fs, call| fs.tag(call, &at, &edits, &guard);
    /// See [`FileSystem::policy`].
    Policy { at: At } => Policy, |fs, call| fs.policy(call, &at);
    /// See [`FileSystem::protect`].
    Protect { at: At, scope: Scope, edit: PolicyEdit } => Changed<Protected>, |fs, call| fs.protect(call, &at, scope, &edit);
    /// See [`FileSystem::why`].
    Why { at: At, need: Rights, who: Option<CallerName> } => Why, |fs, call| fs.why(call, &at, need, who);
    /// See [`FileSystem::space`].
    Space { at: At } => Space, |fs, call| fs.space(call, &at);
    /// See [`FileSystem::copy`].
    Copy { from: At, range: Range, to: At, offset: u64 } => Copied, |fs, call| fs.copy(call, &from, range, &to, offset);
    /// See [`FileSystem::stages`].
    Stages { dir: At, from: Option<StageId> } => StagePage, |fs, call| fs.stages(call, &dir, from);
    /// See [`FileSystem::sync`].
    Sync { at: At, scope: SyncScope } => Verifier, |fs, call| fs.sync(call, &at, scope);
    /// See [`FileSystem::watch`].
    Watch { at: At, since: ChangeSeq } => Changes, |fs, call| fs.watch(call, &at, since);
}

/// Carries a batch out in order, each request by itself, whatever became of the one before.
/// Each has a mark of its own, made of the batch's, so that each is replayed alone.
pub async fn one_by_one(fs: &dyn FileSystem, call: &Call, requests: Vec<Request>) -> Vec<Result<Reply>> {
    if requests.len() > limits::BATCH_REQUESTS_MAX {
        return requests.iter().map(|_| Err(too_many_requests())).collect();
    }
    let mut replies = Vec::with_capacity(requests.len());
    for (place, request) in requests.into_iter().enumerate() {
        let call = Call { once: call.once.map(|once| once_at(once, place)), ..call.clone() };
        replies.push(dispatch(fs, &call, request).await);
    }
    replies
}

/// Refuses a batch of more than [`limits::BATCH_REQUESTS_MAX`].
pub fn too_many_requests() -> Error {
    Error::new(ErrorKind::TooLarge, "a batch has at most 256 requests")
}

fn once_at(once: RequestId, place: usize) -> RequestId {
    let hash = blake3::hash(&[once.0.to_be_bytes(), (place as u64).to_be_bytes()].concat());
    let mut id = [0; 8];
    id.copy_from_slice(&hash.as_bytes()[..8]);
    RequestId(u64::from_be_bytes(id))
}
