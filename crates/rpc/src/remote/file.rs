//! `OpenFile` over a connection.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use weft_core::attr::{Attr, Wcc};
use weft_core::form::{
    BytesSource, Call, OpenFile, Range, Seek, Shape, Source, Verifier, WriteAt, Written, collect, joined,
    pieces,
};
use weft_core::{Error, FileId, Result, limits};

use super::{Shared, take};
use crate::message::{Answer, CallBody, CallHeader, FileAsk, FileRef, ToServer};

/// The version since which a node is asked for digests: an older one would take the question for
/// nonsense, and hang up.
const DIGESTS_SINCE: u16 = 2;

pub(super) struct RemoteFile {
    pub(super) shared: Arc<Shared>,
    pub(super) id: FileId,
    pub(super) file: FileRef,
    pub(super) session: u32,
}

/// The files that are open over a connection, by session and number: one that the node answers twice, since it was asked
/// for twice by one mark, is one, and is closed when nobody has it any more.
pub(super) type OpenFiles = HashMap<(u32, u32), Weak<RemoteFile>>;

impl Drop for RemoteFile {
    fn drop(&mut self) {
        if let FileRef::Open(file) = self.file {
            let mut open = self.shared.open();
            if open.get(&(self.session, file)).is_some_and(|known| known.strong_count() == 0) {
                open.remove(&(self.session, file));
            }
            drop(open);
            self.shared.connection.tell_soon(&ToServer::Drop { session: self.session, file });
        }
    }
}

impl RemoteFile {
    /// Returns the file that is open under a number in a session.
    pub(super) fn open(shared: &Arc<Shared>, id: FileId, (session, number): (u32, u32)) -> Arc<Self> {
        let mut open = shared.open();
        if let Some(file) = open.get(&(session, number)).and_then(Weak::upgrade) {
            return file;
        }
        let file = Arc::new(Self { shared: shared.clone(), id, file: FileRef::Open(number), session });
        open.insert((session, number), Arc::downgrade(&file));
        file
    }

    /// Asks in the session the file was opened in, whatever the call's own has become.
    async fn header(&self, call: &Call) -> Result<CallHeader> {
        match self.file {
            FileRef::Open(_) => self.shared.header_in(call, self.session).await,
            FileRef::Id(..) => self.shared.header(call).await,
        }
    }

    async fn ask(&self, call: &Call, ask: FileAsk) -> Result<Answer> {
        self.send(call, ask, &mut BytesSource::default()).await
    }

    /// Makes a call that carries a source's bytes, in its own frame or after it.
    async fn send(&self, call: &Call, ask: FileAsk, data: &mut dyn Source) -> Result<Answer> {
        let header = self.header(call).await?;
        send(&self.shared, call, header, CallBody::File(self.file, ask), data).await
    }
}

#[async_trait]
impl OpenFile for RemoteFile {
    fn id(&self) -> FileId {
        self.id
    }

    fn kept_as(&self) -> Option<u64> {
        match self.file {
            FileRef::Open(number) => (number > 0).then_some(number.into()),
            FileRef::Id(..) => None,
        }
    }

    async fn attr(&self, call: &Call) -> Result<Attr> {
        take!(self.ask(call, FileAsk::Attr).await?, Answer::Attr(attr) => attr)
    }

    async fn read(&self, call: &Call, range: Range) -> Result<Box<dyn Source>> {
        let header = self.header(call).await?;
        let body = CallBody::File(self.file, FileAsk::Read(range));
        Ok(Box::new(self.shared.connection.call_reading(&call.caller, header, body, call.until).await?))
    }

    async fn lend(&self, call: &Call, range: Range) -> Result<Box<dyn Source>> {
        let connection = &self.shared.connection;
        if !connection.borrows() {
            return Ok(Box::new(BytesSource::default()));
        }
        let (header, body) = (self.header(call).await?, CallBody::File(self.file, FileAsk::Lend(range)));
        Ok(Box::new(connection.call_reading(&call.caller, header, body, call.until).await?))
    }

    async fn digests(&self, call: &Call, block: u64) -> Result<Vec<[u8; 32]>> {
        if self.shared.connection.welcome().version < DIGESTS_SINCE {
            return Err(Error::unsupported("the node is too old to give digests of what it keeps"));
        }
        take!(self.ask(call, FileAsk::Digests(block)).await?, Answer::Digests(digests) => digests)
    }

    async fn write(&self, call: &Call, at: WriteAt, data: &mut dyn Source) -> Result<Written> {
        if !fits_one_frame(data) {
            let ask = FileAsk::Write { at, whole: false };
            return take!(self.send(call, ask, data).await?, Answer::Written(written) => written);
        }
        let pieces = pieces(data, limits::PIECE_BYTES_MAX).await?;
        let (connection, header) = (&self.shared.connection, self.header(call).await?);
        let body = |ask: FileAsk| CallBody::File(self.file, ask);
        let answer = match connection.lendable(&pieces) {
            Some(lendable) => {
                let (from, length) = (lendable.from, lendable.length);
                let body = body(FileAsk::WriteLent { at, from, length });
                connection.call_lending(header, body, lendable, call.until).await?
            }
            None => {
                let body = body(FileAsk::Write { at, whole: true });
                connection.call(header, body, joined(pieces)?, call.until).await?.0
            }
        };
        take!(answer, Answer::Written(written) => written)
    }

    async fn shape(&self, call: &Call, shape: Shape) -> Result<Wcc> {
        take!(self.ask(call, FileAsk::Shape(shape)).await?, Answer::Wcc(wcc) => wcc)
    }

    async fn seek(&self, call: &Call, offset: u64, what: Seek) -> Result<u64> {
        take!(self.ask(call, FileAsk::Seek(offset, what)).await?, Answer::Offset(offset) => offset)
    }

    async fn sync(&self, call: &Call, range: Range) -> Result<Verifier> {
        take!(self.ask(call, FileAsk::Sync(range)).await?, Answer::Verifier(verifier) => verifier)
    }

    async fn close(&self, call: &Call) -> Result<()> {
        take!(self.ask(call, FileAsk::Close).await?, Answer::Done => ())
    }
}

/// Whether a source's bytes can ride in the call's own frame, which saves the wait for
/// the server's grant.
pub(super) fn fits_one_frame(data: &dyn Source) -> bool {
    data.length().is_some_and(|length| length <= limits::PIECE_BYTES_MAX as u64)
}

/// Makes a call that carries a source's bytes, in its own frame or after it.
pub(super) async fn send(
    shared: &Shared,
    call: &Call,
    header: CallHeader,
    body: CallBody,
    data: &mut dyn Source,
) -> Result<Answer> {
    if fits_one_frame(data) {
        let bytes = collect(data, limits::PIECE_BYTES_MAX).await?;
        return shared.connection.call(header, body, bytes, call.until).await.map(|(answer, _)| answer);
    }
    shared.connection.call_writing(header, body, data, call.until).await
}
