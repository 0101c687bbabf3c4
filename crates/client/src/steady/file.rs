//! An open file that is opened again when its connection is lost.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use async_trait::async_trait;
use weft_core::attr::{Attr, Version, Wcc};
use weft_core::form::{
    At, Call, FileSystem, OpenFile, OpenHow, Pin, Range, Seek, Shape, Source, Verifier, WriteAt, Written,
};
use weft_core::{Error, ErrorKind, FileId, Result};

use super::kept::{Held, OpenNote};
use super::{Inner, Link, Repeat, steadily};

/// Every file that is open.
#[derive(Default)]
pub(super) struct Files {
    last: u64,
    open: HashMap<u64, Weak<SteadyFile>>,
}

impl Files {
    pub(super) fn each(&self) -> Vec<Arc<SteadyFile>> {
        self.open.values().filter_map(Weak::upgrade).collect()
    }
}

pub(super) struct SteadyFile {
    inner: Arc<Inner>,
    number: u64,
    id: FileId,
    /// How to open it again: never making or cutting it.
    how: OpenHow,
    version: Version,
    /// The link it was opened over last, and as what; `None` if that was in another process, over a link that is gone.
    open: Mutex<(u64, Option<Arc<dyn OpenFile>>)>,
    /// Under what it is kept for the process after this one.
    kept: Option<u64>,
}

impl SteadyFile {
    /// Notes that a file was opened over the link of an epoch.
    pub(super) fn new(
        inner: &Arc<Inner>,
        epoch: u64,
        how: &OpenHow,
        attr: &Attr,
        file: Arc<dyn OpenFile>,
    ) -> Arc<Self> {
        let how = OpenHow { need: how.need, pin: how.pin, ..OpenHow::default() };
        // Another process could not tell whether a pinned one is of that version still.
        let kept =
            (how.pin == Pin::None).then(|| inner.keep_open(attr.id, how.need, epoch, &*file)).flatten();
        Self::add(inner, (attr.id, attr.version), how, (epoch, Some(file)), kept)
    }

    /// Takes up a file that a process before this one had open, and which of this one's links it is open over, if any.
    pub(super) fn taken_up(inner: &Arc<Inner>, kept: u64, note: &OpenNote, held: Option<Held>) -> Arc<Self> {
        let how = OpenHow { need: note.need, ..OpenHow::default() };
        let open = held.map_or((0, None), |held| (held.epoch, Some(held.file)));
        // Its version counts for pinned ones alone.
        Self::add(inner, (note.file, Version(0)), how, open, Some(kept))
    }

    fn add(
        inner: &Arc<Inner>,
        (id, version): (FileId, Version),
        how: OpenHow,
        open: (u64, Option<Arc<dyn OpenFile>>),
        kept: Option<u64>,
    ) -> Arc<Self> {
        let mut files = inner.files();
        files.last += 1;
        let number = files.last;
        let open = Mutex::new(open);
        let file = Arc::new(Self { inner: inner.clone(), number, id, how, version, open, kept });
        files.open.insert(number, Arc::downgrade(&file));
        file
    }

    /// Returns the file as it is open over this link, opening it if it is not yet.
    pub(super) async fn over(&self, link: &Link, call: &Call) -> Result<Arc<dyn OpenFile>> {
        let (epoch, file) = self.open.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(file) = file.filter(|_| epoch >= link.epoch) {
            return Ok(file);
        }
        // Another call than the one that it is opened for, whose mark is of that one.
        let call = Call { once: None, ..call.clone() };
        let opened = link.remote.open(&call, &At::id(self.id), &self.how).await?;
        if self.how.pin == Pin::Version && opened.attr.version != self.version {
            return Err(Error::new(ErrorKind::Conflict, "the file changed while it was read"));
        }
        self.inner.keep_opened(self.kept, link.epoch, &*opened.file);
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = (link.epoch, Some(opened.file.clone()));
        Ok(opened.file)
    }

    /// Acts on the bytes, unless a program here relies on a lock of the file that is
    /// somebody else's now. Asked after the link is there: that is when locks are lost.
    async fn guarded<T>(&self, act: impl Future<Output = Result<T>>) -> Result<T> {
        self.inner.check_locks(self.id)?;
        act.await
    }
}

impl Drop for SteadyFile {
    fn drop(&mut self) {
        // Before the node hears of it: what is kept is open there.
        self.inner.keep_no_more(self.kept);
        self.inner.files().open.remove(&self.number);
    }
}

/// Makes a call of the file over whatever link there is, again if `$repeat` allows it.
macro_rules! over {
    ($self:ident, $call:ident, |$file:ident| $act:expr) => {
        over!($self, $call, Repeat::Safe, |$file| $act)
    };
    ($self:ident, $call:ident, $repeat:expr, |$file:ident| $act:expr) => {
        steadily!($self.inner, $call, $repeat, |link| async {
            let $file = $self.over(&link, $call).await?;
            $act.await
        })
    };
}

#[async_trait]
impl OpenFile for SteadyFile {
    fn id(&self) -> FileId {
        self.id
    }

    fn kept_as(&self) -> Option<u64> {
        self.kept
    }

    async fn attr(&self, call: &Call) -> Result<Attr> {
        over!(self, call, |file| file.attr(call))
    }

    async fn read(&self, call: &Call, range: Range) -> Result<Box<dyn Source>> {
        over!(self, call, |file| self.guarded(file.read(call, range)))
    }

    async fn lend(&self, call: &Call, range: Range) -> Result<Box<dyn Source>> {
        over!(self, call, |file| self.guarded(file.lend(call, range)))
    }

    async fn digests(&self, call: &Call, block: u64) -> Result<Vec<[u8; 32]>> {
        over!(self, call, |file| self.guarded(file.digests(call, block)))
    }

    /// Not repeated: the source has been pulled from, and another may have written since.
    /// A write that meets the end of the line fails at once. One of a page that was mapped
    /// is told at `fsync` or `close`, as Linux does, and the page is gone.
    async fn write(&self, call: &Call, at: WriteAt, data: &mut dyn Source) -> Result<Written> {
        over!(self, call, Repeat::Never, |file| self.guarded(file.write(call, at, &mut *data)))
    }

    async fn shape(&self, call: &Call, shape: Shape) -> Result<Wcc> {
        // Cutting a file twice would cut what somebody else wrote in between.
        over!(self, call, Repeat::Never, |file| self.guarded(file.shape(call, shape)))
    }

    async fn seek(&self, call: &Call, offset: u64, what: Seek) -> Result<u64> {
        over!(self, call, |file| file.seek(call, offset, what))
    }

    async fn sync(&self, call: &Call, range: Range) -> Result<Verifier> {
        over!(self, call, |file| self.guarded(file.sync(call, range)))
    }

    async fn close(&self, call: &Call) -> Result<()> {
        let (epoch, file) = self.open.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // What was open over a lost line was closed with its session.
        match file.filter(|_| epoch == self.inner.link().epoch) {
            Some(file) => file.close(call).await,
            None => Ok(()),
        }
    }
}
