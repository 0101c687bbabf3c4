//! Changes of extent, and looking for holes.

use std::sync::Arc;

use tokio::sync::OwnedRwLockWriteGuard;
use weft_core::form::{Seek, Shape};
use weft_core::limits::{FILE_BYTES_MAX, SEAL_BLOCK_BYTES};
use weft_core::{Error, ErrorKind, Result};

use super::Inner;
use super::files::too_large;
use super::live::{Live, Phase};
use super::seals::block_of;

impl Inner {
    /// Changes an object's extent.
    pub(super) async fn shape(&self, live: &Arc<Live>, shape: Shape) -> Result<()> {
        match shape {
            Shape::Truncate(size) => self.truncate(live, size).await,
            Shape::Allocate { at, length, keep_size } => self.allocate(live, at, length, keep_size).await,
            Shape::Punch { at, length } => self.punch(live, at, end_of(at, length)?).await,
            Shape::Zero { at, length, keep_size } => {
                self.zero(live, at, end_of(at, length)?, keep_size).await
            }
        }
    }

    /// Waits until nobody writes, and sees that the object is open for writing.
    async fn alone(&self, live: &Arc<Live>) -> Result<OwnedRwLockWriteGuard<()>> {
        loop {
            let gate = live.gate.clone().write_owned().await;
            if live.state().phase == Phase::Writing {
                return Ok(gate);
            }
            drop(gate);
            self.open_for_writing(live).await?;
        }
    }

    async fn truncate(&self, live: &Arc<Live>, size: u64) -> Result<()> {
        if size > FILE_BYTES_MAX {
            return Err(too_large());
        }
        self.check_edges(live, &[size]).await?;
        self.check_before_growth(live, size).await?;
        let gate = self.alone(live).await?;
        let (live, now) = (live.clone(), self.clock().tick());
        let cut = move || {
            let _gate = gate;
            let old = live.state().size;
            live.state().begin_void(size, old);
            let cut = live.file.set_len(size);
            let mut state = live.state();
            match &cut {
                Ok(()) => state.resize(size, now),
                Err(_) => state.doubt(size, old),
            }
            cut
        };
        self.sys.blocking(cut).await?
    }

    async fn allocate(&self, live: &Arc<Live>, at: u64, length: u64, keep_size: bool) -> Result<()> {
        let end = end_of(at, length)?;
        if at == end {
            return Ok(());
        }
        if !keep_size {
            self.check_before_growth(live, end).await?;
        }
        let gate = self.alone(live).await?;
        let (live, now) = (live.clone(), self.clock().tick());
        let reserve = move || {
            let _gate = gate;
            let size = live.state().size;
            // What lies beyond the end counts against no limit, so nothing is kept free there.
            let end = if keep_size { end.min(size) } else { end };
            if at < end {
                live.file.reserve(at, end - at)?;
            }
            if end <= size {
                return Ok(());
            }
            live.file.set_len(end)?;
            live.state().resize(end, now);
            Ok(())
        };
        self.sys.blocking(reserve).await?
    }

    /// Makes a hole of a range; what lies beyond the end is none.
    async fn punch(&self, live: &Arc<Live>, at: u64, end: u64) -> Result<()> {
        self.check_edges(live, &[at, end]).await?;
        let gate = self.alone(live).await?;
        let (live, now) = (live.clone(), self.clock().tick());
        let punch = move || {
            let _gate = gate;
            let size = live.state().size;
            let end = end.min(size);
            if at >= end {
                return Ok(());
            }
            live.state().begin_void(at, end);
            let punched = live.file.punch(at, end - at);
            let mut state = live.state();
            match &punched {
                Ok(()) => state.resize(size, now),
                Err(_) => state.doubt(at, end),
            }
            punched
        };
        self.sys.blocking(punch).await?
    }

    async fn zero(&self, live: &Arc<Live>, at: u64, end: u64, keep_size: bool) -> Result<()> {
        let size = live.state().size;
        match self.punch(live, at, end).await {
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                self.write_zeros(live, at, end.min(size)).await?;
            }
            punched => punched?,
        }
        if !keep_size && end > live.state().size {
            return self.truncate(live, end).await;
        }
        Ok(())
    }

    /// Checks the blocks that a change cuts through.
    async fn check_edges(&self, live: &Arc<Live>, edges: &[u64]) -> Result<()> {
        for edge in edges.iter().filter(|edge| *edge % SEAL_BLOCK_BYTES != 0) {
            if *edge < live.state().size {
                self.check_before_change(live, block_of(*edge)).await?;
            }
        }
        Ok(())
    }
}

fn end_of(at: u64, length: u64) -> Result<u64> {
    at.checked_add(length).filter(|end| *end <= FILE_BYTES_MAX).ok_or_else(too_large)
}

/// Finds data or a hole.
pub(super) fn seek(live: &Live, offset: u64, what: Seek) -> Result<u64> {
    let size = live.state().size;
    let none = |detail: &'static str| Error::not_found(detail);
    if offset >= size {
        return Err(none("the offset is at the end or beyond it"));
    }
    match (what, live.file.seek(offset, what)?) {
        (Seek::Data, Some(found)) if found < size => Ok(found),
        (Seek::Data, _) => Err(none("there is no data from there on")),
        (Seek::Hole, found) => Ok(found.unwrap_or(size).min(size)),
    }
}
