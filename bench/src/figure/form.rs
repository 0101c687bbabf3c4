//! Our side of `meta.*`: a node's metadata as its doors meet it. Requests of the form
//! by an administrator who proved who it is, over a managed volume with rights, change
//! feed and audit on, in a process of its own.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use weft_auth::{Auth, Settings};
use weft_core::acl::{AclEntry, Who};
use weft_core::attr::SetAttr;
use weft_core::form::{
    At, Call, Cursor, Door, FileSystem, Guard, New, Origin, PageMax, Replace, Scope, Want, Wire,
};
use weft_core::policy::PolicyEdit;
use weft_core::proof::Caller;
use weft_core::service::{Evidence, ObjectStore};
use weft_core::{Deadline, FileId, Name, Rights, SessionId, TraceId, VolumeId};
use weft_kv::{Ack, Embedded, Engine, Options, SpaceId};
use weft_store::Directory;
use weft_sys::{Disk, RealDisk, Sys};
use weft_volume::managed::{AUDITS, Config, Managed};

use super::rows::Work;
use crate::Result;

/// A volume with everything around it.
struct Tree {
    sys: Sys,
    engine: Arc<dyn Engine>,
    fs: Managed,
    caller: Caller,
}

/// Runs one side: the arguments of [`super::rows::side`].
pub async fn run(folder: &Path, what: &str, work: Work) -> Result<f64> {
    let tree = Arc::new(open(folder).await?);
    let dirs = Arc::new(tree.directories(work.dirs).await?);
    if what == "own" {
        tree.edit_policy(dirs[0], Scope::Subtree).await?;
    }
    let base = tree.files(&dirs).await?;
    let rate = match what {
        // `own`: in a container of the directory's own.
        // `files`: what `rename` does before its clock starts.
        "create" | "own" | "files" => create(&tree, &dirs, work, base).await,
        "acl" => change_policy(&tree, dirs[0], work).await,
        "rename" => {
            create(&tree, &dirs, work, base).await?;
            rename(&tree, &dirs, work, base).await
        }
        "lookup" => look_up(&tree, &dirs, work, base).await,
        "list" => list(&tree, dirs[0], work, base).await,
        _ => Err(format!("unknown work: {what}").into()),
    };
    tree.engine.close().await?;
    rate
}

async fn open(folder: &Path) -> Result<Tree> {
    // Whoever asks is the administrator of the domain it made.
    let uid = weft_sys::process::uid();
    let (sys, disk) = (Sys::real(), RealDisk::open(folder)?);
    let engine: Arc<dyn Engine> =
        Arc::new(Embedded::open(sys.clone(), disk.beneath("meta")?, Options::of_machine())?);
    let settings = Settings { founder_uid: Some(uid), ..Settings::default() };
    let private = disk.beneath("auth")?;
    std::fs::set_permissions(folder.join("auth"), std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
    let (auth, founded) = Auth::open(sys.clone(), engine.clone(), SpaceId(b'a'), private, settings).await?;
    let auth = Arc::new(auth);
    let store = Directory::open(
        sys.clone(),
        disk.beneath("objects")?,
        engine.clone(),
        weft_store::Options::default(),
    );
    let store: Arc<dyn ObjectStore> = Arc::new(store.await?);
    let node = auth.clone();
    let config = Config {
        sys: sys.clone(),
        engine: engine.clone(),
        space: SpaceId(b'v'),
        issuer: auth.issuer(),
        groups: auth.memberships(),
        store,
        volume: VolumeId(0),
        node: Arc::new(move || node.node_caller().unwrap_or_else(|_| Caller::anyone())),
        audited: true,
        watched_flush_rest: weft_core::limits::WATCHED_FLUSH_REST,
    };
    let fs = match founded {
        Some(_) => Managed::create(config, auth.administrators().clone()).await?,
        None => Managed::open(config).await?,
    };
    let (log, notes) = (auth.audit_log(), engine.notes(AUDITS)?);
    drop(sys.spawn(async move { log.follow(notes).await }));
    let origin = Origin { door: Door::Native, peer: None, uid: None };
    let caller = auth.authority().authenticate(&Evidence::SocketUid(uid), origin).await?;
    Ok(Tree { sys, engine, fs, caller })
}

impl Tree {
    fn call(&self) -> Call {
        Call {
            caller: self.caller.clone(),
            session: SessionId(1),
            until: Deadline::within(self.sys.clock(), Duration::from_secs(60)),
            trace: TraceId(0),
            from: Origin { door: Door::Native, peer: None, uid: None },
            once: None,
            ack: Ack::Durable,
            wire: Wire::Private,
        }
    }

    /// Returns the directories to work in, making those that are not there.
    async fn directories(&self, count: u64) -> Result<Vec<FileId>> {
        let mut dirs = Vec::new();
        for dir in 0..count {
            let at = At::name(FileId::ROOT, name("dir", dir)?);
            let found = self.fs.walk(&self.call(), &at, Want::default()).await;
            dirs.push(match found {
                Ok(walked) => walked.attr.id,
                Err(_) => {
                    self.fs.make(&self.call(), &at, New::Directory, &SetAttr::default()).await?.value.id
                }
            });
        }
        Ok(dirs)
    }

    /// Gives everybody the right to read in `dir`, or takes it away if they had it.
    async fn edit_policy(&self, dir: FileId, scope: Scope) -> Result<()> {
        let at = At::id(dir);
        let mut acl = self.fs.policy(&self.call(), &at).await?.acl;
        let everybody = AclEntry::allow(Who::Anyone, Rights::READ);
        match acl.entries.iter().position(|entry| *entry == everybody) {
            Some(place) => drop(acl.entries.remove(place)),
            None => acl.entries.push(everybody),
        }
        let edit = PolicyEdit { acl: Some(acl), ..PolicyEdit::default() };
        self.fs.protect(&self.call(), &at, scope, &edit).await?;
        Ok(())
    }

    /// Returns how many files there are in the directories.
    async fn files(&self, dirs: &[FileId]) -> Result<u64> {
        let mut files = 0;
        for dir in dirs {
            files += self.fs.walk(&self.call(), &At::id(*dir), Want::default()).await?.attr.size;
        }
        Ok(files)
    }
}

async fn create(tree: &Arc<Tree>, dirs: &Arc<Vec<FileId>>, work: Work, base: u64) -> Result<f64> {
    let next = Arc::new(AtomicU64::new(base));
    let start = Instant::now();
    let callers: Vec<_> = (0..work.callers)
        .map(|_| {
            let (tree, dirs, next) = (tree.clone(), dirs.clone(), next.clone());
            tokio::spawn(async move {
                for _ in 0..work.share() {
                    let id = next.fetch_add(1, Ordering::Relaxed);
                    let at = At::name(dirs[(id % work.dirs) as usize], name("file", id)?);
                    tree.fs
                        .make(&tree.call(), &at, New::File { verifier: None }, &SetAttr::default())
                        .await?;
                }
                weft_core::Result::Ok(())
            })
        })
        .collect();
    for caller in callers {
        caller.await??;
    }
    Ok(work.rate(start))
}

/// Changes the ACL of the container of `dir`, again and again.
async fn change_policy(tree: &Tree, dir: FileId, work: Work) -> Result<f64> {
    let start = Instant::now();
    for _ in 0..work.count {
        tree.edit_policy(dir, Scope::Container).await?;
    }
    Ok(work.rate(start))
}

async fn rename(tree: &Arc<Tree>, dirs: &Arc<Vec<FileId>>, work: Work, base: u64) -> Result<f64> {
    let start = Instant::now();
    let callers: Vec<_> = (0..work.callers)
        .map(|caller| {
            let (tree, dirs) = (tree.clone(), dirs.clone());
            tokio::spawn(async move {
                for at in 0..work.share() {
                    let id = base + caller * work.share() + at;
                    let dir = dirs[(id % work.dirs) as usize];
                    let (from, to) = (At::name(dir, name("file", id)?), At::name(dir, name("renamed", id)?));
                    tree.fs.rename(&tree.call(), &from, &to, Replace::Any, &Guard::NONE).await?;
                }
                weft_core::Result::Ok(())
            })
        })
        .collect();
    for caller in callers {
        caller.await??;
    }
    Ok(work.rate(start))
}

async fn look_up(tree: &Arc<Tree>, dirs: &Arc<Vec<FileId>>, work: Work, base: u64) -> Result<f64> {
    // What is measured is resident.
    for id in 0..base {
        let at = At::name(dirs[(id % work.dirs) as usize], name("file", id)?);
        tree.fs.walk(&tree.call(), &at, Want::default()).await?;
    }
    let start = Instant::now();
    let callers: Vec<_> = (0..work.callers)
        .map(|caller| {
            let (tree, dirs) = (tree.clone(), dirs.clone());
            tokio::spawn(async move {
                let call = tree.call();
                let mut state = 88_172_645_463_325_252_u64 + caller;
                for _ in 0..work.share() {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    let id = state % base;
                    let at = At::name(dirs[(id % work.dirs) as usize], name("file", id)?);
                    tree.fs.walk(&call, &at, Want::default()).await?;
                }
                weft_core::Result::Ok(())
            })
        })
        .collect();
    for caller in callers {
        caller.await??;
    }
    Ok(work.rate(start))
}

async fn list(tree: &Tree, dir: FileId, work: Work, base: u64) -> Result<f64> {
    // What is measured is resident.
    list_some(tree, dir, base / work.dirs).await?;
    let start = Instant::now();
    list_some(tree, dir, work.share()).await?;
    Ok(work.rate(start))
}

/// Lists a directory in pages with attributes until so many entries were seen.
async fn list_some(tree: &Tree, dir: FileId, count: u64) -> Result<()> {
    let want = Want { attr: true, rights: false };
    let (mut from, mut seen) = (Cursor::Start, 0);
    while seen < count {
        let page = tree.fs.list(&tree.call(), &At::id(dir), from, PageMax::new(1000), want).await?;
        seen += page.entries.iter().filter(|entry| entry.attr.is_some()).count() as u64;
        from = page.next.unwrap_or(Cursor::Start);
    }
    Ok(())
}

fn name(kind: &str, id: u64) -> weft_core::Result<Name> {
    Name::try_from(format!("{kind}-{id:010}.dat").as_str())
}
