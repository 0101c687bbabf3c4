//! A plain object store on the simulated disk: one file an object, its label in front,
//! nothing durable before it is synced. It loses in a crash what a disk may lose.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use weft_core::form::{
    Ack, Piece, Range, Seek, Shape, Source, Stopped, Verifier, WriteAt, digested_range, digests_of,
};
use weft_core::proof::Granted;
use weft_core::service::{ObjectPage, ObjectStat, ObjectStore, ObjectWritten, StoreSpace};
use weft_core::{Clock, ContainerId, Error, ErrorKind, ObjectId, Result, Rights, limits};
use weft_sys::{Disk, DiskFile, FlushSite, Open, SimClock};

const HEADER: u64 = 8;
const SITE: FlushSite = FlushSite::StoreObject;

pub struct DiskStore {
    disk: Arc<dyn Disk>,
    clock: Arc<SimClock>,
    boot: u64,
    /// Files change one at a time: this store is here to be crashed, not to be fast.
    one: Mutex<()>,
}

impl DiskStore {
    pub fn open(disk: &dyn Disk, clock: Arc<SimClock>, boot: u64) -> Arc<Self> {
        let below = disk.beneath("objects").expect("a directory can be made");
        let _ = disk.sync_dir("", SITE);
        Arc::new(Self { disk: below, clock, boot, one: Mutex::new(()) })
    }

    /// Every object there is.
    pub fn objects(&self) -> Vec<ObjectId> {
        let mut found = Vec::new();
        let listed = self.disk.list("", &mut |name, _| {
            found.extend(name.parse::<ObjectId>());
            ControlFlow::Continue(())
        });
        listed.expect("the disk is on");
        found.sort_unstable();
        found
    }

    /// How many objects are more than a file that a crash left without its label.
    pub fn labelled(&self) -> usize {
        let whole = |id: &ObjectId| {
            let file = self.disk.open(&id.to_string(), Open::Read).expect("it is there");
            label(&*file).is_ok_and(|label| label.0 != 0)
        };
        self.objects().iter().filter(|id| whole(id)).count()
    }

    /// The object with the most bytes.
    pub fn largest(&self) -> ObjectId {
        let size = |id: &ObjectId| self.disk.open(&id.to_string(), Open::Read).and_then(|file| file.len());
        self.objects().into_iter().max_by_key(|id| size(id).expect("it is there")).expect("there is one")
    }

    /// Takes an object away behind everybody's back.
    pub fn lose(&self, object: ObjectId) {
        self.disk.remove(&object.to_string()).expect("it is there");
    }

    /// Cuts an object behind everybody's back.
    pub fn cut(&self, object: ObjectId, size: u64) {
        let file = self.disk.open(&object.to_string(), Open::Write).expect("it is there");
        file.set_len(HEADER + size).expect("the disk is on");
    }

    fn file(&self, granted: &Granted, object: ObjectId) -> Result<Arc<dyn DiskFile>> {
        let file = match self.disk.open(&object.to_string(), Open::Write) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(Error::not_found("there is no such object").about(object));
            }
            other => other?,
        };
        // A file that a crash left without its label was never an object.
        let label = label(&*file).map_err(|_| Error::not_found("there is no such object").about(object))?;
        if label != granted.claims().container {
            return Err(Error::denied("the proof is for another container"));
        }
        Ok(file)
    }

    fn may(&self, granted: &Granted, any_of: &[Rights], object: ObjectId) -> Result<()> {
        let mut answer = Err(Error::denied("the proof gives no right"));
        for right in any_of {
            answer = granted.allows(*right, object, self.clock.moment());
            if answer.is_ok() {
                break;
            }
        }
        answer
    }

    fn stat_of(&self, object: ObjectId, file: &dyn DiskFile) -> Result<ObjectStat> {
        let size = file.len()?.saturating_sub(HEADER);
        Ok(ObjectStat { id: object, container: label(file)?, size, used: size, writes: 0, sealed: true })
    }
}

fn label(file: &dyn DiskFile) -> Result<ContainerId> {
    let mut bytes = [0; HEADER as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(ContainerId(u64::from_be_bytes(bytes)))
}

#[async_trait]
impl ObjectStore for DiskStore {
    async fn make(&self, granted: &Granted, object: ObjectId, _: Option<u64>) -> Result<()> {
        self.may(granted, &[Rights::WRITE, Rights::INSERT], object)?;
        let file = self.disk.open(&object.to_string(), Open::MakeNew)?;
        file.write_at(&granted.claims().container.0.to_be_bytes(), 0)
    }

    async fn read(&self, granted: &Granted, object: ObjectId, range: Range) -> Result<Box<dyn Source>> {
        self.may(granted, &[Rights::READ], object)?;
        let file = self.file(granted, object)?;
        let (at, left) = range.within(file.len()? - HEADER);
        let (clock, granted) = (self.clock.clone(), granted.clone());
        Ok(Box::new(Pieces { file, clock, granted, object, at, left }))
    }

    async fn digests(&self, granted: &Granted, object: ObjectId, block: u64) -> Result<Vec<[u8; 32]>> {
        digests_of(&mut *self.read(granted, object, digested_range(block)).await?).await
    }

    async fn write(
        &self,
        granted: &Granted,
        object: ObjectId,
        at: WriteAt,
        data: &mut dyn Source,
    ) -> Result<ObjectWritten> {
        let file = self.file(granted, object)?;
        let start = match at {
            WriteAt::Offset(at) => at,
            WriteAt::End => file.len()? - HEADER,
        };
        let mut bytes = 0;
        while let Some(piece) = data.next(64 << 10).await? {
            self.may(granted, &[Rights::WRITE], object)?;
            let piece = piece.into_bytes()?;
            let _one = self.one.lock().unwrap_or_else(PoisonError::into_inner);
            file.write_at(&piece, HEADER + start + bytes)?;
            bytes += piece.len() as u64;
        }
        let stat = self.stat_of(object, &*file)?;
        Ok(ObjectWritten { at: start, bytes, stat, ack: Ack::Applied, verifier: self.verifier() })
    }

    async fn shape(&self, granted: &Granted, object: ObjectId, shape: Shape) -> Result<ObjectStat> {
        self.may(granted, &[Rights::WRITE], object)?;
        let file = self.file(granted, object)?;
        let size = file.len()? - HEADER;
        match shape {
            Shape::Truncate(to) => file.set_len(HEADER + to)?,
            Shape::Allocate { at, length, .. } => file.set_len(HEADER + size.max(at + length))?,
            Shape::Punch { at, length } | Shape::Zero { at, length, .. } => {
                let length = length.min(size.saturating_sub(at));
                file.punch(HEADER + at, length)?;
            }
        }
        self.stat_of(object, &*file)
    }

    async fn seek(&self, granted: &Granted, object: ObjectId, offset: u64, what: Seek) -> Result<u64> {
        let size = self.stat(granted, object).await?.size;
        Ok(if what == Seek::Data { offset } else { size })
    }

    async fn copy(
        &self,
        from: (&Granted, ObjectId),
        range: Range,
        to: (&Granted, ObjectId),
        offset: u64,
    ) -> Result<u64> {
        let mut source = self.read(from.0, from.1, range).await?;
        Ok(self.write(to.0, to.1, WriteAt::Offset(offset), &mut *source).await?.bytes)
    }

    async fn stat(&self, granted: &Granted, object: ObjectId) -> Result<ObjectStat> {
        self.may(granted, &[Rights::READ, Rights::WRITE, Rights::ATTR_READ], object)?;
        self.stat_of(object, &*self.file(granted, object)?)
    }

    async fn sync(&self, granted: &Granted, object: ObjectId) -> Result<Verifier> {
        self.may(granted, &[Rights::READ, Rights::WRITE], object)?;
        self.file(granted, object)?.sync(SITE)?;
        self.disk.sync_dir("", SITE)?;
        Ok(self.verifier())
    }

    async fn seal(&self, granted: &Granted, object: ObjectId) -> Result<ObjectStat> {
        self.stat(granted, object).await
    }

    async fn relabel(&self, from: &Granted, to: &Granted, object: ObjectId) -> Result<()> {
        self.may(from, &[Rights::REMOVE], object)?;
        self.may(to, &[Rights::INSERT], object)?;
        let file = self.file(from, object)?;
        file.write_at(&to.claims().container.0.to_be_bytes(), 0)?;
        file.sync(SITE)
    }

    async fn remove(&self, granted: &Granted, object: ObjectId) -> Result<()> {
        self.may(granted, &[Rights::REMOVE, Rights::WRITE], object)?;
        self.file(granted, object)?;
        self.disk.remove(&object.to_string())
    }

    async fn list(&self, granted: &Granted, after: Option<ObjectId>) -> Result<ObjectPage> {
        let mut objects = Vec::new();
        for id in self.objects().into_iter().filter(|id| after.is_none_or(|after| *id > after)) {
            let file = self.disk.open(&id.to_string(), Open::Read)?;
            // A file without its header was made in a crash and never synced.
            let labelled = label(&*file).is_ok_and(|label| label == granted.claims().container);
            if labelled {
                objects.push(self.stat_of(id, &*file)?);
            }
        }
        Ok(ObjectPage { objects, next: None })
    }

    fn space(&self) -> Result<StoreSpace> {
        Ok(StoreSpace { bytes_total: 1 << 40, bytes_free: 1 << 39 })
    }

    fn verifier(&self) -> Verifier {
        Verifier(self.boot)
    }
}

struct Pieces {
    file: Arc<dyn DiskFile>,
    clock: Arc<SimClock>,
    granted: Granted,
    object: ObjectId,
    at: u64,
    left: u64,
}

#[async_trait]
impl Source for Pieces {
    async fn next(&mut self, max: usize) -> Result<Option<Piece>> {
        self.granted.allows(Rights::READ, self.object, self.clock.moment())?;
        let length = max.min(limits::PIECE_BYTES_MAX).min(self.left as usize);
        let mut bytes = vec![0; length];
        let read = self.file.read(&mut bytes, HEADER + self.at)?;
        bytes.truncate(read);
        self.at += read as u64;
        self.left -= read as u64;
        Ok((read > 0).then(|| Piece::Bytes(Bytes::from(bytes))))
    }

    fn length(&self) -> Option<u64> {
        Some(self.left)
    }

    fn stopped(&self) -> Stopped {
        Box::pin(std::future::pending())
    }
}
