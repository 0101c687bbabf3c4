//! An open file that is opened again when its connection is lost.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use weft_core::attr::{Attr, Version, Wcc};
use weft_core::form::{
    At, Call, FileSystem, OpenFile, OpenHow, Pin, Range, Seek, Shape, Source, Verifier, WriteAt, Written,
};
use weft_core::{Error, ErrorKind, FileId, Result};

use super::{Inner, Link, steadily};

pub(super) struct SteadyFile {
    inner: Arc<Inner>,
    id: FileId,
    /// How to open it again: never making or cutting it.
    how: OpenHow,
    version: Version,
    open: Mutex<(u64, Arc<dyn OpenFile>)>,
}

impl SteadyFile {
    pub(super) fn new(
        inner: &Arc<Inner>,
        epoch: u64,
        how: &OpenHow,
        attr: &Attr,
        file: Arc<dyn OpenFile>,
    ) -> Self {
        let how = OpenHow { need: how.need, pin: how.pin, ..OpenHow::default() };
        Self {
            inner: inner.clone(),
            id: attr.id,
            how,
            version: attr.version,
            open: Mutex::new((epoch, file)),
        }
    }

    /// Returns the file as it is open over this link, opening it if it is not yet.
    async fn over(&self, link: &Link, call: &Call) -> Result<Arc<dyn OpenFile>> {
        let (epoch, file) = self.open.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if epoch == link.epoch {
            return Ok(file);
        }
        let opened = link.remote.open(call, &At::id(self.id), &self.how).await?;
        if self.how.pin == Pin::Version && opened.attr.version != self.version {
            return Err(Error::new(ErrorKind::Conflict, "the file changed while it was read"));
        }
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = (link.epoch, opened.file.clone());
        Ok(opened.file)
    }
}

/// Makes a call of the file over whatever link there is, again if that is `$safe`.
macro_rules! over {
    ($self:ident, $call:ident, |$file:ident| $act:expr) => {
        over!($self, $call, true, |$file| $act)
    };
    ($self:ident, $call:ident, $safe:expr, |$file:ident| $act:expr) => {
        steadily!($self.inner, $call, $safe, |link| async {
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

    async fn attr(&self, call: &Call) -> Result<Attr> {
        over!(self, call, |file| file.attr(call))
    }

    async fn read(&self, call: &Call, range: Range) -> Result<Box<dyn Source>> {
        over!(self, call, |file| file.read(call, range))
    }

    /// Not repeated: the source has been pulled from. The kernel keeps the bytes and
    /// whoever wrote them is told at `fsync`.
    async fn write(&self, call: &Call, at: WriteAt, data: &mut dyn Source) -> Result<Written> {
        let link = self.inner.link();
        let link = match link.remote.connection().ended() {
            Some(_) => self.inner.again(&link, call).await?,
            None => link,
        };
        self.over(&link, call).await?.write(call, at, data).await
    }

    async fn shape(&self, call: &Call, shape: Shape) -> Result<Wcc> {
        // Cutting a file twice would cut what somebody else wrote in between.
        over!(self, call, false, |file| file.shape(call, shape))
    }

    async fn seek(&self, call: &Call, offset: u64, what: Seek) -> Result<u64> {
        over!(self, call, |file| file.seek(call, offset, what))
    }

    async fn sync(&self, call: &Call, range: Range) -> Result<Verifier> {
        over!(self, call, |file| file.sync(call, range))
    }

    async fn close(&self, call: &Call) -> Result<()> {
        let (epoch, file) = self.open.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // What was open over a lost line was closed with its session.
        if epoch == self.inner.link().epoch { file.close(call).await } else { Ok(()) }
    }
}
