//! A stage that nobody looks for by its id. What is small waits in memory, what is larger and of a known
//! length in an object that no row names, and the transaction that publishes it is the only one; what
//! comes otherwise becomes a stage like any other.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::{Mutex, MutexGuard};
use weft_core::attr::{Changed, SetAttr};
use weft_core::form::{Ack, Call, Entry, Guard, Part, PartPage, Source, Stage};
use weft_core::{ContainerId, Error, ErrorKind, ObjectId, Result, StageId, limits};

use super::put::{Putting, inline, pull_small};
use super::{Content, ManagedStage, Parts, Standing, check_number, must_match, object_of, shown};
use crate::managed::act::{Act, fingerprint};
use crate::managed::drop_box::full;
use crate::managed::source::Inbound;
use crate::managed::stages::{Coming, Tail};
use crate::managed::table::stages::{self, PartBytes, PartRow, StageRow};
use crate::managed::table::unnamed;
use crate::managed::{Making, Volume};

/// A stage that only its holder knows.
pub(super) struct BriefStage {
    /// Of which no table has a row.
    here: ManagedStage,
    /// The stage that it becomes.
    below: ManagedStage,
    row: StageRow,
    /// Whether it was said how long it will be.
    measured: bool,
    held: Mutex<Held>,
}

/// Where its bytes are.
enum Held {
    /// Only this stage knows of them.
    Here(Here),
    /// In the stage below; or nowhere, after an end: there is no such stage then.
    Below,
}

/// All there is of a stage so far.
#[derive(Default)]
struct Here {
    part: Option<(u32, PartRow)>,
    /// The part's object, if it has one.
    loose: Option<Loose>,
}

/// An object that no row names. It goes when this is dropped, unless it was handed over.
struct Loose {
    volume: Arc<Volume>,
    object: ObjectId,
    label: ContainerId,
    making: Option<Arc<Making>>,
    /// Counts its bytes until a row does.
    _coming: Coming,
    handed_over: bool,
}

impl Loose {
    /// Leaves the object to a row that is about to name it. The sweep is kept off it until what this
    /// returns is dropped.
    fn hand_over(&mut self) -> Option<Arc<Making>> {
        self.handed_over = true;
        self.making.clone()
    }
}

impl Drop for Loose {
    fn drop(&mut self) {
        if self.handed_over {
            return;
        }
        let (volume, object, label) = (self.volume.clone(), self.object, self.label);
        let making = self.making.take();
        drop(self.volume.sys.spawn(async move {
            let act = move |txn: &mut weft_kv::SpaceTxn<'_>| unnamed::add_garbage(txn, object, label);
            if let Err(error) = volume.space.write(Ack::Applied, act).await {
                tracing::debug!(%error, %object, "the sweep finds what was begun of a file");
            }
            volume.to_tidy.notify_one();
            drop(making);
        }));
    }
}

impl BriefStage {
    /// `length` is what was said of it.
    pub(super) fn new(volume: Arc<Volume>, id: StageId, row: StageRow, length: Option<u64>) -> Self {
        let below = ManagedStage::of(&volume, id);
        let here = ManagedStage { volume, id, unwritten: Some(row.clone()) };
        Self { here, below, row, measured: length.is_some(), held: Mutex::new(Held::Here(Here::default())) }
    }

    async fn held(&self, call: &Call) -> Result<MutexGuard<'_, Held>> {
        self.below.volume.sys.within(call.until, async { Ok(self.held.lock().await) }).await
    }

    /// Puts a part, here or below.
    async fn put_part(&self, call: &Call, number: u32, offset: u64, data: &mut dyn Source) -> Result<Part> {
        check_number(number)?;
        let mut held = self.held(call).await?;
        let mut first = None;
        // The sender may take long for the first bytes: that is the transfer's time, which has bounds
        // of its own, and not the call's.
        let renewed = || call.renewed(self.below.volume.sys.clock(), limits::CALL_DEADLINE);
        if matches!(&*held, Held::Here(Here { part: None, .. })) && offset == 0 {
            let putting = self.here.begin(call, number, 0)?;
            match self.pull(call, &putting, data).await? {
                Ok(part) => return Ok(keep(&mut held, number, part, None)),
                Err(bytes) => first = Some(bytes),
            }
            // Of a drop, rows say what came: it is charged as it comes.
            if self.measured && !putting.drops {
                let (part, loose) = self.pour(&renewed(), &putting, (first, data)).await?;
                return Ok(keep(&mut held, number, part, Some(loose)));
            }
        }
        let call = renewed();
        self.go_below(&call, &mut held).await?;
        drop(held);
        self.below.put_after(&call, number, offset, (first, data)).await
    }

    /// Pulls a part that may stay in memory. Returns what it is, or the bytes so far of one that
    /// may not.
    async fn pull(
        &self,
        call: &Call,
        putting: &Putting,
        data: &mut dyn Source,
    ) -> Result<std::result::Result<PartRow, Bytes>> {
        let standing = Standing::new(&self.here.volume, &self.row, call);
        let check = || standing.check();
        let mut inbound = Inbound::new(&check, None, data, putting.room);
        let bytes = pull_small(None, &mut inbound).await?.unwrap_or_default();
        match inbound.failed.take() {
            // Nobody can go on with it.
            Some(error) => Err(if putting.drops { full(error) } else { error }),
            None if bytes.len() as u64 > limits::INLINE_BYTES_MAX => Ok(Err(bytes.freeze())),
            None => Ok(Ok(inline(bytes))),
        }
    }

    /// Pours a part into an object.
    async fn pour(
        &self,
        call: &Call,
        putting: &Putting,
        data: (Option<Bytes>, &mut dyn Source),
    ) -> Result<(PartRow, Loose)> {
        let volume = &self.here.volume;
        let standing = Standing::new(volume, &self.row, call);
        let poured = self.here.pour_rest(call, putting, &mut Tail::default(), &standing, data).await?;
        let (object, making) = (poured.object, poured.making.map(Arc::new));
        let (volume, label) = (volume.clone(), self.row.container);
        let loose = Loose { volume, object, label, making, _coming: poured.coming, handed_over: false };
        if let Some(error) = poured.failed {
            // Nobody can go on with it.
            return Err(error);
        }
        let held = PartBytes::Object { object, unsynced: Some(putting.verifier) };
        let digest = *poured.pulled.hasher.finalize().as_bytes();
        Ok((PartRow { bytes: poured.pulled.bytes, digest, held }, loose))
    }

    /// Becomes a stage like any other.
    async fn go_below(&self, call: &Call, held: &mut Held) -> Result<()> {
        // Whoever goes away from here on leaves it to the rows, which may be written by then.
        let Held::Here(mut here) = std::mem::replace(held, Held::Below) else { return Ok(()) };
        let (id, row, parts) = (self.below.id, self.row.clone(), Parts::from_iter(here.part.clone()));
        let making = here.loose.as_mut().and_then(Loose::hand_over);
        let write = move |act: &mut Act<'_, '_>| {
            let _making = &making;
            act.write_stage(id, &row, &parts)
        };
        let written = self.below.volume.change_whenever(call, Ack::Applied, write).await;
        if surely_not(&written) {
            here.take_back();
            *held = Held::Here(here);
        }
        written
    }

    /// Publishes what only this stage knows of. An object's publication goes on if whoever asked for it goes
    /// away: it is kept from the sweep until the answer is there.
    async fn publish_here(
        &self,
        call: &Call,
        here: Here,
        (set, guard): (&SetAttr, &Guard),
        given: &[Part],
    ) -> Result<Ended> {
        let stage = ManagedStage {
            unwritten: Some(self.row.clone()),
            ..ManagedStage::of(&self.below.volume, self.below.id)
        };
        let is_inline = here.loose.is_none();
        let (again, row) = (call.clone(), self.row.clone());
        let (set, guard, given) = (set.clone(), *guard, given.to_vec());
        let work = async move { Ok(stage.end(&again, row, here, (&set, &guard), &given).await) };
        let volume = &self.below.volume;
        if is_inline { volume.sys.within(call.until, work).await } else { volume.undropped(call, work).await }
    }
}

/// What a publication came to, and what is left of the stage if it surely did not happen.
type Ended = (Result<Changed<Entry>>, Option<Here>);

impl ManagedStage {
    /// Makes what no row of a stage says the file.
    async fn end(
        &self,
        call: &Call,
        row: StageRow,
        mut here: Here,
        (set, guard): (&SetAttr, &Guard),
        given: &[Part],
    ) -> Ended {
        let parts = Parts::from_iter(here.part.clone());
        let ready = async {
            must_match(given, &parts)?;
            if set.size.is_some() {
                return Err(Error::invalid("the size is that of the parts"));
            }
            let number = self.volume.number().await?;
            let content = self.content(call, &row, &parts).await?;
            Ok((number, content, fingerprint(call, &("publish", self.id, given, set, guard))?))
        };
        let (number, content, print) = match ready.await {
            Ok(ready) => ready,
            Err(error) => return (Err(error), Some(here)),
        };
        let (set, guard) = (set.clone(), *guard);
        let making = here.loose.as_mut().and_then(Loose::hand_over);
        let published = self.volume.change_whenever(call, Ack::Durable, move |act| {
            let _making = &making;
            act.once(&print, |act| act.publish_brief(&row, &content, &set, &guard, number))
        });
        let answer = published.await;
        self.volume.to_tidy.notify_one();
        if surely_not(&answer) {
            here.take_back();
            return (answer, Some(here));
        }
        (answer, None)
    }
}

/// Keeps a first part. Returns what is told of it.
fn keep(held: &mut Held, number: u32, part: PartRow, loose: Option<Loose>) -> Part {
    let put = shown(number, &part);
    *held = Held::Here(Here { part: Some((number, part)), loose });
    put
}

impl Here {
    /// Takes the object back from a transaction that did not happen.
    fn take_back(&mut self) {
        if let Some(loose) = &mut self.loose {
            loose.handed_over = false;
        }
    }
}

/// Whether a transaction failed, and was surely not committed.
fn surely_not<T>(done: &Result<T>) -> bool {
    done.as_ref().is_err_and(|error| !matches!(error.kind(), ErrorKind::Deadline | ErrorKind::Unavailable))
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
        let (mut container, _) = view.published_into(&view.may_go_on_with(row)?)?;
        // An object keeps its label, and that container. Of other bytes no row said that somebody needs it: it
        // may be gone.
        if parts.iter().any(|(_, part)| object_of(&part.held).is_some()) {
            container = row.container;
        }
        stages::put(self.txn, id, &StageRow { container, ..row.clone() })?;
        parts.iter().try_for_each(|(number, part)| self.put_part(id, *number, part))
    }
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
        // Nothing is left for whoever goes away from here on: it must not be published twice.
        let Held::Here(here) = std::mem::replace(&mut *held, Held::Below) else {
            return self.below.publish(call, parts, set, guard).await;
        };
        let ended = self.publish_here(call, here, (set, guard), parts).await;
        let (published, left) = ended.map_err(|e| e.op("publish"))?;
        if let Some(here) = left {
            *held = Held::Here(here);
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
