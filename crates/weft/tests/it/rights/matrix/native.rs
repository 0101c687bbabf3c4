//! The operations of the request form, over the node's socket.

use bytes::Bytes;
use weft_core::attr::{SetAttr, SetTime};
use weft_core::form::{
    At, BytesSource, Cursor, Expect, FileSystem, Guard, Lock, LockKind, LockOwner, LockScope, New, OpenHow,
    PageMax, Range, Replace, Scope, Wait, Want, WriteAt, collect,
};
use weft_core::policy::{AuditReads, PolicyEdit};
use weft_core::service::AuditFilter;
use weft_core::{RelPath, Result, Rights};

use super::world::{Member, Person};
use super::{Cell, bytes_of};

/// Returns the address of a path of the tree itself.
pub fn at(path: &str) -> At {
    let below = Bytes::copy_from_slice(&path.as_bytes()[1..]);
    At::root(RelPath::new(below).expect("a path"))
}

/// Asks one thing.
pub async fn ask(who: &Person, cell: &Cell, member: &Member) -> String {
    match act(who, cell, member).await {
        None => "not-offered".to_owned(),
        Some(Ok(())) => "allowed".to_owned(),
        Some(Err(error)) => error.kind().name().to_owned(),
    }
}

async fn act(who: &Person, cell: &Cell, member: &Member) -> Option<Result<()>> {
    let (fs, call, thing) = (&who.remote, who.call(), at(&cell.thing()));
    Some(match cell.right {
        "read" if cell.has_bytes() => read(who, thing, Rights::READ).await,
        "execute" if cell.has_bytes() => read(who, thing, Rights::EXECUTE).await,
        "write" if cell.has_bytes() => write(who, thing, Rights::WRITE, bytes_of(cell.kind)).await,
        "append" if cell.has_bytes() => write(who, thing, Rights::APPEND, b"native").await,
        "list" if cell.kind == "directory" => {
            fs.list(&call, &thing, Cursor::Start, PageMax::MAX, Want::default()).await.map(drop)
        }
        "traverse" => fs.walk(&call, &thing, Want::default()).await.map(drop),
        "insert" => {
            fs.make(&call, &at(&cell.new_thing()), new(cell.kind), &SetAttr::default()).await.map(drop)
        }
        "remove" => fs.remove(&call, &at(&cell.spare()), Expect::Any, &Guard::NONE).await.map(drop),
        "rename" => {
            let to = at(&cell.new_thing());
            fs.rename(&call, &at(&cell.spare()), &to, Replace::Never, &Guard::NONE).await.map(drop)
        }
        "lock" => {
            let owner = LockOwner(Bytes::from_static(b"matrix"));
            let lock = Lock { scope: LockScope::Whole, kind: LockKind::Shared, owner };
            fs.lock(&call, &thing, &lock, Wait::No).await.map(drop)
        }
        "attr-read" => fs.tags(&call, &thing, None).await.map(drop),
        "attr-write" => {
            let set = SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() };
            fs.set(&call, &thing, &set, &Guard::NONE).await.map(drop)
        }
        "acl-read" => fs.policy(&call, &thing).await.map(drop),
        "acl-write" => {
            let edit = PolicyEdit { audit_reads: Some(AuditReads::All), ..PolicyEdit::default() };
            fs.protect(&call, &thing, Scope::Container, &edit).await.map(drop)
        }
        "audit-read" => {
            let (container, member) = (Some(member.container), member.things.get(cell.kind).copied());
            // About this one: its container reaches beyond the paths of a credential.
            let filter = AuditFilter { container, member, object: member, ..AuditFilter::default() };
            fs.audit_records(&call.caller, filter).await.map(drop)
        }
        _ => return None,
    })
}

/// Returns a new thing of a kind.
pub fn new(kind: &str) -> New {
    match kind {
        "file" | "small" => New::File { verifier: None },
        "directory" => New::Directory,
        "symlink" => New::Symlink(Bytes::from_static(b"file")),
        "fifo" => New::Fifo,
        _ => unreachable!("not a kind: {kind}"),
    }
}

async fn read(who: &Person, at: At, need: Rights) -> Result<()> {
    let (fs, call) = (&who.remote, who.call());
    let opened = fs.open(&call, &at.following(), &OpenHow { need, ..OpenHow::default() }).await?;
    let mut bytes = opened.file.read(&call, Range::ALL).await?;
    collect(&mut *bytes, 1 << 20).await?;
    opened.file.close(&call).await
}

/// Writes by one right: at the start, or at the end if that is all that may be done.
pub async fn write(who: &Person, at: At, need: Rights, bytes: &'static [u8]) -> Result<()> {
    let (fs, call) = (&who.remote, who.call());
    let opened = fs.open(&call, &at.following(), &OpenHow { need, ..OpenHow::default() }).await?;
    let place = if need == Rights::APPEND { WriteAt::End } else { WriteAt::Offset(0) };
    opened.file.write(&call, place, &mut BytesSource::new(bytes)).await?;
    opened.file.close(&call).await
}
