//! Stages: what is on its way to becoming a file. An object of a part is in its row once it holds
//! what the row says; until then the sweep is kept off it.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use weft_core::{CallerId, CallerName, ContainerId, Error, Name, ObjectId, Result, StageId, Time, limits};
use weft_kv::{Order, Read, Txn};

use super::key::{Fields, Key, Table};
use super::row::{Row, decode, encode};

/// A stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StageRow {
    /// Who began it: nobody else may go on with it.
    pub(crate) caller: CallerId,
    /// The directory of the name it is meant for.
    pub(crate) dir: u64,
    /// The generation of that directory.
    pub(crate) generation: u32,
    /// The name it is meant for.
    pub(crate) name: Name,
    pub(crate) begun: Time,
    /// The container its objects are labelled with.
    pub(crate) container: ContainerId,
    /// The object that several parts are being put together in, once they are.
    pub(crate) joined: Option<ObjectId>,
}

impl Row for StageRow {
    const WHAT: &'static str = "stage";
}

impl StageRow {
    /// Returns whether it was abandoned. One that strangers left takes room where nobody sees it.
    pub(crate) fn is_over(&self, now: Time) -> bool {
        let of_anyone = self.caller == CallerName::ANYONE.id();
        let life = if of_anyone { limits::DROP_STAGE_LIFE } else { limits::STAGE_LIFE };
        now.since(self.begun) >= life
    }
}

/// Where a part's bytes are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PartBytes {
    /// In the row.
    Inline(Bytes),
    /// In an object of their own.
    Object {
        object: ObjectId,
        /// The boot whose loss would lose them; none once they were flushed.
        unsynced: Option<u64>,
    },
}

/// A part of a stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PartRow {
    pub(crate) bytes: u64,
    pub(crate) digest: [u8; 32],
    pub(crate) held: PartBytes,
}

impl PartRow {
    /// Returns whether its bytes are on disk when its row is.
    pub(crate) fn is_flushed(&self) -> bool {
        !matches!(self.held, PartBytes::Object { unsynced: Some(_), .. })
    }
}

impl Row for PartRow {
    const WHAT: &'static str = "part of a stage";
}

/// Marks that a caller has a stage for a name in a directory.
#[derive(Serialize, Deserialize)]
pub(super) struct Mark;

impl Row for Mark {
    const WHAT: &'static str = "stage by directory";
}

fn key(id: StageId) -> Key {
    Key::of(Table::Stage).u128(id.0)
}

fn mark(row: &StageRow, id: StageId) -> Key {
    Key::of(Table::StageAt).u64(row.dir).u128(row.caller.0).u128(id.0)
}

/// Returns where a part is.
pub(crate) fn part_key(id: StageId, number: u32) -> Key {
    Key::of(Table::Part).u128(id.0).u32(number)
}

/// Returns a stage.
pub(crate) fn find(read: &dyn Read, id: StageId) -> Result<Option<StageRow>> {
    let key = key(id);
    read.get(&key)?.map(|value| decode(&key, &value)).transpose()
}

/// Writes a stage.
pub(crate) fn put(txn: &mut dyn Txn, id: StageId, row: &StageRow) -> Result<()> {
    let (key, mark) = (key(id), mark(row, id));
    txn.put(&key, &encode(&key, row)?)?;
    txn.put(&mark, &encode(&mark, &Mark)?)
}

/// Removes a stage and its parts.
pub(crate) fn erase(txn: &mut dyn Txn, id: StageId, row: &StageRow) -> Result<()> {
    let numbers: Vec<u32> =
        parts(txn, id, 0).map(|part| part.map(|(number, _)| number)).collect::<Result<_>>()?;
    numbers.into_iter().try_for_each(|number| txn.delete(&part_key(id, number)))?;
    txn.delete(&mark(row, id))?;
    txn.delete(&key(id))
}

/// Returns one part.
pub(crate) fn part(read: &dyn Read, id: StageId, number: u32) -> Result<Option<PartRow>> {
    let key = part_key(id, number);
    read.get(&key)?.map(|value| decode(&key, &value)).transpose()
}

/// Writes one part.
pub(crate) fn put_part(txn: &mut dyn Txn, id: StageId, number: u32, part: &PartRow) -> Result<()> {
    let key = part_key(id, number);
    txn.put(&key, &encode(&key, part)?)
}

/// Parts by number, from one on.
pub(crate) fn parts(
    read: &dyn Read,
    id: StageId,
    from: u32,
) -> impl Iterator<Item = Result<(u32, PartRow)>> + '_ {
    let prefix = Key::of(Table::Part).u128(id.0);
    read.scan(&part_key(id, from), &prefix.end(), Order::Rising).map(|row| {
        let (key, value) = row?;
        let mut fields = Fields::of(&key);
        let number = fields.u128().and_then(|_| fields.u32()).ok_or_else(odd_key)?;
        Ok((number, decode(&key, &value)?))
    })
}

/// Returns how many bytes a stage's parts have, lost ones too: what its container is
/// charged with.
pub(crate) fn bytes(read: &dyn Read, id: StageId) -> Result<u64> {
    parts(read, id, 0).map(|part| part.map(|(_, part)| part.bytes)).sum()
}

/// A caller's stages for names in a directory, after one or from the first.
pub(crate) fn of_caller(
    read: &dyn Read,
    dir: u64,
    caller: CallerId,
    after: Option<StageId>,
) -> impl Iterator<Item = Result<StageId>> + '_ {
    let prefix = Key::of(Table::StageAt).u64(dir).u128(caller.0);
    let from = after.map_or_else(|| prefix.to_vec(), |id| prefix.clone().u128(id.0).next());
    read.scan(&from, &prefix.end(), Order::Rising).map(|row| {
        let (key, _) = row?;
        let mut fields = Fields::of(&key);
        fields.u64().and_then(|_| fields.u128()).and_then(|_| fields.u128()).map(StageId).ok_or_else(odd_key)
    })
}

/// Every stage, after one or from the first.
pub(crate) fn all(
    read: &dyn Read,
    after: Option<StageId>,
) -> impl Iterator<Item = Result<(StageId, StageRow)>> + '_ {
    let prefix = Key::of(Table::Stage);
    let from = after.map_or_else(|| prefix.to_vec(), |id| key(id).next());
    read.scan(&from, &prefix.end(), Order::Rising).map(|row| {
        let (key, value) = row?;
        Ok((StageId(Fields::of(&key).u128().ok_or_else(odd_key)?), decode(&key, &value)?))
    })
}

/// Returns the stage that a mark leads to. For checks and repairs, as all below.
pub(crate) fn id_of_mark(key: &[u8]) -> Option<StageId> {
    let mut fields = Fields::of(key);
    fields.u64().and_then(|_| fields.u128()).and_then(|_| fields.u128()).map(StageId)
}

/// Returns where a stage's mark is.
pub(crate) fn mark_key(row: &StageRow, id: StageId) -> Key {
    mark(row, id)
}

/// Returns a stage's mark.
pub(crate) fn mark_row(row: &StageRow, id: StageId) -> Result<(Vec<u8>, Vec<u8>)> {
    let key = mark(row, id);
    Ok((key.to_vec(), encode(&key, &Mark)?))
}

/// Returns whether a mark is as it was written.
pub(crate) fn is_mark(key: &[u8], value: &[u8]) -> bool {
    decode::<Mark>(key, value).is_ok()
}

fn odd_key() -> Error {
    Error::corrupt("a key of the volume's tables is malformed").about("stage").hint("weft fsck")
}
