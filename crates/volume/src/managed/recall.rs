//! What this thread read last.
//!
//! Rows do not change within a commit. Who looks at the same commit of the same volume again, as a
//! request does several times and the next one soon after, need not read and decode them again.
//! Each thread has its own, so that nobody waits for anybody.

use std::cell::RefCell;

use weft_core::{ContainerId, Result};
use weft_kv::Commit;

use super::table::inodes::Inode;
use super::view::Governing;

/// Inodes kept: directories on the way, above all. By serial, so that neighbours do not meet.
const INODES: usize = 64;
/// Policies kept.
const POLICIES: usize = 16;

/// A commit of one volume of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Under {
    /// Which volume: no two that this process opens have the same number.
    pub(super) volume: u64,
    pub(super) commit: Commit,
}

struct Recalled {
    inodes: [Option<(Under, u64, Inode)>; INODES],
    policies: [Option<(Under, Governing)>; POLICIES],
}

fn with<T>(act: impl FnOnce(&mut Recalled) -> T) -> T {
    thread_local! {
        static RECALLED: RefCell<Recalled> = const {
            RefCell::new(Recalled { inodes: [const { None }; INODES], policies: [const { None }; POLICIES] })
        };
    }
    RECALLED.with_borrow_mut(act)
}

/// Returns an inode, reading it if it was not read under this commit.
pub(super) fn inode(
    under: Under,
    serial: u64,
    read: impl FnOnce() -> Result<Option<Inode>>,
) -> Result<Option<Inode>> {
    let slot = serial as usize % INODES;
    let known = with(|recalled| match &recalled.inodes[slot] {
        Some((when, known, inode)) if *when == under && *known == serial => Some(inode.clone()),
        _ => None,
    });
    if known.is_some() {
        return Ok(known);
    }
    let found = read()?;
    if let Some(inode) = &found {
        with(|recalled| recalled.inodes[slot] = Some((under, serial, inode.clone())));
    }
    Ok(found)
}

/// Returns a container's policy, reading it if it was not read under this commit.
pub(super) fn governing(
    under: Under,
    container: ContainerId,
    read: impl FnOnce() -> Result<Governing>,
) -> Result<Governing> {
    let slot = container.0 as usize % POLICIES;
    let known = with(|recalled| match &recalled.policies[slot] {
        Some((when, known)) if *when == under && known.container == container => Some(known.clone()),
        _ => None,
    });
    if let Some(governing) = known {
        return Ok(governing);
    }
    let governing = read()?;
    with(|recalled| recalled.policies[slot] = Some((under, governing.clone())));
    Ok(governing)
}
