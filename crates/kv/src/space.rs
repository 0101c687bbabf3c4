//! One crate's part of an engine: a key prefix, a schema version, typed writes.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Buf, Bytes};
use weft_core::form::Ack;
use weft_core::{Error, Result};

use crate::engine::{
    Boot, Commit, Engine, NoteKind, Notes, Order, Read, Row, Rows, Snapshot, Txn, prefix_end,
};

/// Which part: the first byte of its keys, 1 to 0xef.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpaceId(pub u8);

/// How a crate's tables look, and how to come there from how they looked before.
pub struct Schema {
    /// The version that the code reads and writes, from 1.
    pub version: u32,
    /// Steps from older versions, each from one to the next above it.
    pub migrations: &'static [Migration],
}

/// One step forward, in as many transactions as it takes. Each records how far it came, so that whoever
/// is cut off goes on from there.
pub struct Migration {
    /// The version it starts from; it leads to the next.
    pub from: u32,
    /// Rewrites a part of what changed: at first from the beginning, then from where it said. What it does
    /// in one call must fit one transaction, and what it says is at most a key long.
    pub step: fn(&mut SpaceTxn<'_>, from: &[u8]) -> Result<Stepped>,
}

/// How far a step came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stepped {
    /// To its end.
    Done,
    /// So far: it goes on from there.
    Until(Vec<u8>),
}

/// How far a space has come: its version, and where in the step from that one it is.
type Reached = (u32, Bytes);

/// One crate's keys. Cheap to clone.
#[derive(Clone)]
pub struct Space {
    engine: Arc<dyn Engine>,
    id: SpaceId,
}

impl fmt::Debug for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Space({})", self.id.0)
    }
}

/// Holds the version of each space's schema, under the space's own byte. No space is 0.
const SCHEMA_PREFIX: u8 = 0;

impl Space {
    /// Opens a part of `engine`, migrating it forward if it is older than `schema`.
    /// `Unsupported` if a newer program wrote it.
    pub async fn open(engine: Arc<dyn Engine>, id: SpaceId, schema: &Schema) -> Result<Self> {
        if !(1..=0xef).contains(&id.0) {
            return Err(Error::invalid(format!("{} is no space's number", id.0)));
        }
        let space = Self { engine, id };
        loop {
            let found = space.reached()?;
            if found.as_ref().is_some_and(|(version, _)| *version == schema.version) {
                return Ok(space);
            }
            space.step(found, schema).await?;
        }
    }

    fn reached(&self) -> Result<Option<Reached>> {
        let row = self.engine.snapshot()?.get(&[SCHEMA_PREFIX, self.id.0])?;
        let parse = |mut bytes: Bytes| {
            let version = bytes.split_to(bytes.len().min(size_of::<u32>()));
            version.as_ref().try_into().map(|version| (u32::from_be_bytes(version), bytes))
        };
        row.map(parse).transpose().map_err(|_| Error::corrupt("a schema version is less than four bytes"))
    }

    /// Takes one step, or a part of one, from `found` towards `schema`.
    async fn step(&self, found: Option<Reached>, schema: &Schema) -> Result<()> {
        let (step, found, from) = match found {
            None => (None, schema.version, Bytes::new()),
            Some((found, _)) if found > schema.version => {
                return Err(Error::unsupported(format!(
                    "the metadata was written by a newer Weft: schema {found}, this one knows {}",
                    schema.version
                ))
                .about(format!("space {}", self.id.0))
                .hint("start the newer version again, or restore a backup made before it"));
            }
            Some((found, from)) => {
                let step = schema.migrations.iter().find(|migration| migration.from == found);
                let step = step.ok_or_else(|| {
                    Error::unsupported(format!("there is no migration from schema {found}"))
                        .about(format!("space {}", self.id.0))
                })?;
                (Some(step.step), found, from)
            }
        };
        let id = self.id;
        let act = move |txn: &mut dyn Txn| {
            let stepped = step.map(|step| step(&mut SpaceTxn { txn: &mut *txn, id }, &from)).transpose()?;
            let reached = match stepped {
                None => found.to_be_bytes().to_vec(),
                Some(Stepped::Done) => (found + 1).to_be_bytes().to_vec(),
                Some(Stepped::Until(from)) => [&found.to_be_bytes()[..], &from].concat(),
            };
            txn.put(&[SCHEMA_PREFIX, id.0], &reached)
        };
        self.engine.write(Ack::Durable, Box::new(act)).await?;
        Ok(())
    }

    /// Returns the engine.
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    /// Returns a snapshot that shows every commit answered so far.
    pub fn snapshot(&self) -> Result<SpaceSnapshot> {
        Ok(SpaceSnapshot { snapshot: self.engine.snapshot()?, id: self.id })
    }

    /// Runs a transaction over this space's keys and returns what it returned and where it
    /// stands. See [`Engine::write`] for failures; the closure may run more than once.
    pub async fn write<T: Send + 'static>(
        &self,
        ack: Ack,
        mut act: impl FnMut(&mut SpaceTxn<'_>) -> Result<T> + Send + 'static,
    ) -> Result<(T, Commit)> {
        let id = self.id;
        let answer = Arc::new(Mutex::new(None));
        let inside = answer.clone();
        let act = move |txn: &mut dyn Txn| {
            let value = act(&mut SpaceTxn { txn, id })?;
            *inside.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
            Ok(())
        };
        let commit = self.engine.write(ack, Box::new(act)).await?;
        let value = answer.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok((value.ok_or_else(|| Error::internal("a transaction committed without running"))?, commit))
    }

    /// Makes everything committed so far durable, in every space.
    pub async fn flush(&self) -> Result<Commit> {
        self.engine.flush().await
    }

    /// Subscribes to a kind of notes. Kinds are shared by all spaces.
    pub fn notes(&self, kind: NoteKind) -> Result<Box<dyn Notes>> {
        self.engine.notes(kind)
    }

    /// Returns the name of the engine's present boot.
    pub fn boot(&self) -> Boot {
        self.engine.boot()
    }
}

/// A space at one moment.
pub struct SpaceSnapshot {
    snapshot: Box<dyn Snapshot>,
    id: SpaceId,
}

impl SpaceSnapshot {
    /// Returns the last commit it shows.
    pub fn commit(&self) -> Commit {
        self.snapshot.commit()
    }
}

impl Read for SpaceSnapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.snapshot.get(&Prefixed::new(self.id, key)?)
    }

    fn scan(&self, from: &[u8], to: &[u8], order: Order) -> Rows<'_> {
        scan(&*self.snapshot, self.id, from, to, order)
    }
}

/// A transaction over one space's keys.
pub struct SpaceTxn<'a> {
    txn: &'a mut dyn Txn,
    id: SpaceId,
}

impl Read for SpaceTxn<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.txn.get(&Prefixed::new(self.id, key)?)
    }

    fn scan(&self, from: &[u8], to: &[u8], order: Order) -> Rows<'_> {
        scan(self.txn, self.id, from, to, order)
    }
}

impl Txn for SpaceTxn<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.txn.put(&Prefixed::new(self.id, key)?, value)
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.txn.delete(&Prefixed::new(self.id, key)?)
    }

    fn bump(&mut self, key: &[u8], delta: i64) -> Result<()> {
        self.txn.bump(&Prefixed::new(self.id, key)?, delta)
    }

    fn note(&mut self, kind: NoteKind, bytes: &[u8]) -> Result<()> {
        self.txn.note(kind, bytes)
    }
}

fn scan<'a, R: Read + ?Sized>(read: &'a R, id: SpaceId, from: &[u8], to: &[u8], order: Order) -> Rows<'a> {
    let bounds = Prefixed::new(id, from).and_then(|from| {
        let to = if to.is_empty() { prefix_end(&[id.0]) } else { Prefixed::new(id, to)?.to_vec() };
        Ok((from, to))
    });
    match bounds {
        Ok((from, to)) => Box::new(read.scan(&from, &to, order).map(|row| row.map(without_prefix))),
        Err(error) => Box::new(std::iter::once(Err(error))),
    }
}

fn without_prefix((mut key, value): Row) -> Row {
    key.advance(1);
    (key, value)
}

/// A key with its space's byte before it, on the stack if it is of ordinary length.
enum Prefixed {
    Short { bytes: [u8; Prefixed::SHORT], len: usize },
    Long(Vec<u8>),
}

impl Prefixed {
    const SHORT: usize = 64;

    fn new(id: SpaceId, key: &[u8]) -> Result<Self> {
        let len = key.len() + 1;
        if len > weft_core::limits::KV_KEY_BYTES_MAX {
            return Err(Error::new(
                weft_core::ErrorKind::TooLarge,
                "the metadata key is longer than it may be",
            ));
        }
        if len > Self::SHORT {
            return Ok(Self::Long([&[id.0], key].concat()));
        }
        let mut bytes = [0; Self::SHORT];
        bytes[0] = id.0;
        bytes[1..len].copy_from_slice(key);
        Ok(Self::Short { bytes, len })
    }
}

impl std::ops::Deref for Prefixed {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Short { bytes, len } => &bytes[..*len],
            Self::Long(bytes) => bytes,
        }
    }
}
