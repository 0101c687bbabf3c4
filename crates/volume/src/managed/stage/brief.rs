//! A stage that nobody looks for by its id. What is small waits in memory, and the transaction that
//! publishes it is the only one; what is not becomes a stage like any other.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::{Mutex, MutexGuard};
use weft_core::attr::{Changed, SetAttr};
use weft_core::form::{Ack, Call, Entry, Guard, Part, PartPage, Source, Stage};
use weft_core::{Error, ErrorKind, Result, StageId, limits};

use super::put::{inline, pull_small};
use super::{Content, ManagedStage, Parts, Standing, check_number, must_match, shown};
use crate::managed::Volume;
use crate::managed::act::{Act, fingerprint};
use crate::managed::drop_box::full;
use crate::managed::source::Inbound;
use crate::managed::table::stages::{self, PartBytes, PartRow, StageRow};

/// A stage that only its holder knows.
pub(super) struct BriefStage {
    below: ManagedStage,
    row: StageRow,
    held: Mutex<Held>,
}

/// Where its bytes are.
enum Held {
    /// In memory, all there are.
    Here(Option<(u32, PartRow)>),
    /// In the stage below; or nowhere, after an end: there is no such stage then.
    Below,
}

impl BriefStage {
    pub(super) fn new(volume: Arc<Volume>, id: StageId, row: StageRow) -> Self {
        Self { below: ManagedStage { volume, id }, row, held: Mutex::new(Held::Here(None)) }
    }

    async fn held(&self, call: &Call) -> Result<MutexGuard<'_, Held>> {
        self.below.volume.sys.within(call.until, async { Ok(self.held.lock().await) }).await
    }

    /// Puts a part, here or below.
    async fn put_part(&self, call: &Call, number: u32, offset: u64, data: &mut dyn Source) -> Result<Part> {
        check_number(number)?;
        let mut held = self.held(call).await?;
        let mut first = None;
        if matches!(&*held, Held::Here(None)) && offset == 0 {
            match self.pull(call, data).await? {
                Ok(part) => {
                    let put = shown(number, &part);
                    *held = Held::Here(Some((number, part)));
                    return Ok(put);
                }
                Err(bytes) => first = Some(bytes),
            }
        }
        // The sender may have taken long for the first bytes: that is the transfer's time, which has
        // bounds of its own, and not the call's.
        let call = &call.renewed(self.below.volume.sys.clock(), limits::CALL_DEADLINE);
        self.go_below(call, &mut held).await?;
        drop(held);
        self.below.put_after(call, number, offset, (first, data)).await
    }

    /// Pulls a part that may stay in memory. Returns what it is, or the bytes so far of one that
    /// may not.
    async fn pull(&self, call: &Call, data: &mut dyn Source) -> Result<std::result::Result<PartRow, Bytes>> {
        let volume = &self.below.volume;
        let (room, drops) = volume.look(call, |view| {
            let spot = view.may_go_on_with(&self.row)?;
            Ok((view.room_for_part(self.below.id, &self.row, 1)?, view.drops_into(&spot.dir)?))
        })?;
        let standing = Standing::new(volume, &self.row, call);
        let check = || standing.check();
        let mut inbound = Inbound::new(&check, None, data, room);
        let bytes = pull_small(None, &mut inbound).await?.unwrap_or_default();
        match inbound.failed.take() {
            // Nobody can go on with it.
            Some(error) => Err(if drops { full(error) } else { error }),
            None if bytes.len() as u64 > limits::INLINE_BYTES_MAX => Ok(Err(bytes.freeze())),
            None => Ok(Ok(inline(bytes))),
        }
    }

    /// Becomes a stage like any other.
    async fn go_below(&self, call: &Call, held: &mut Held) -> Result<()> {
        let Held::Here(part) = held else { return Ok(()) };
        let (id, row, parts) = (self.below.id, self.row.clone(), Parts::from_iter(part.clone()));
        let write = move |act: &mut Act<'_, '_>| act.write_stage(id, &row, &parts);
        self.below.volume.change_whenever(call, Ack::Applied, write).await?;
        *held = Held::Below;
        Ok(())
    }

    /// Publishes what is in memory.
    async fn publish_here(
        &self,
        call: &Call,
        part: Option<(u32, PartRow)>,
        (set, guard): (&SetAttr, &Guard),
        given: &[Part],
        number: u64,
    ) -> Result<Changed<Entry>> {
        let parts = Parts::from_iter(part);
        must_match(given, &parts)?;
        if set.size.is_some() {
            return Err(Error::invalid("the size is that of the parts"));
        }
        let content = Content::Inline(match parts.first() {
            Some((_, PartRow { held: PartBytes::Inline(bytes), .. })) => bytes.clone(),
            _ => Bytes::new(),
        });
        let volume = &self.below.volume;
        let print = fingerprint(call, &("publish", self.below.id, given, set, guard))?;
        let (row, set, guard) = (self.row.clone(), set.clone(), *guard);
        let published = volume.change_whenever(call, Ack::Durable, move |act| {
            act.once(&print, |act| act.publish_brief(&row, &content, &set, &guard, number))
        });
        let answer = volume.sys.within(call.until, published).await?;
        volume.to_tidy.notify_one();
        Ok(answer)
    }
}

impl Act<'_, '_> {
    /// Makes bytes that waited in memory the file at the target: no row says that they were staged.
    fn publish_brief(
        &mut self,
        row: &StageRow,
        content: &Content,
        set: &SetAttr,
        guard: &Guard,
        number: u64,
    ) -> Result<Changed<Entry>> {
        // They were waited for: the credential may have ended since.
        self.call.caller.live(self.now)?;
        let view = self.view();
        view.must_own(row)?;
        let spot = view.target_of(row)?;
        self.count_sent(&spot.dir, content.used(), false)?;
        self.publish_at(&spot, content, set, guard, number)
    }

    /// Writes the rows of a stage that was kept in memory.
    fn write_stage(&mut self, id: StageId, row: &StageRow, parts: &Parts) -> Result<()> {
        let view = self.view();
        // The container of then may be gone: no row said that somebody needs it.
        let (container, _) = view.published_into(&view.may_go_on_with(row)?)?;
        stages::put(self.txn, id, &StageRow { container, ..row.clone() })?;
        parts.iter().try_for_each(|(number, part)| self.put_part(id, *number, part))
    }
}

/// Whether a transaction that ended so may have been committed all the same.
fn may_have_happened(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Deadline | ErrorKind::Unavailable)
}

#[async_trait]
impl Stage for BriefStage {
    fn id(&self) -> StageId {
        self.below.id
    }

    async fn put(&self, call: &Call, number: u32, offset: u64, data: &mut dyn Source) -> Result<Part> {
        self.put_part(call, number, offset, data).await.map_err(|e| e.op("stage"))
    }

    async fn parts(&self, call: &Call, from: u32) -> Result<PartPage> {
        let mut held = self.held(call).await?;
        self.go_below(call, &mut held).await.map_err(|e| e.op("list parts of"))?;
        self.below.parts(call, from).await
    }

    async fn publish(
        &self,
        call: &Call,
        parts: &[Part],
        set: &SetAttr,
        guard: &Guard,
    ) -> Result<Changed<Entry>> {
        call.check(self.below.volume.sys.clock()).map_err(|e| e.op("publish"))?;
        let mut held = self.held(call).await?;
        let part = match &*held {
            Held::Below => return self.below.publish(call, parts, set, guard).await,
            Held::Here(part) => part.clone(),
        };
        let number = self.below.volume.number().await.map_err(|e| e.op("publish"))?;
        // Nothing is left for whoever goes away from here on: it must not be published twice.
        *held = Held::Below;
        let published = self.publish_here(call, part.clone(), (set, guard), parts, number).await;
        if published.as_ref().is_err_and(|error| !may_have_happened(error)) {
            *held = Held::Here(part);
        }
        published.map_err(|e| e.op("publish"))
    }

    async fn discard(&self, call: &Call) -> Result<()> {
        let mut held = self.held(call).await?;
        if matches!(&*held, Held::Below) {
            return self.below.discard(call).await;
        }
        let looked = self.below.volume.look(call, |view| {
            view.must_own(&self.row)?;
            view.may_discard(&self.row)
        });
        looked.map_err(|e| e.op("discard"))?;
        *held = Held::Below;
        Ok(())
    }
}
