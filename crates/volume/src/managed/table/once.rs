//! Answers kept for replay: the last of each session ([`limits::ONCE_RING`]), written with the act itself.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use weft_core::{RequestId, Result, SessionId, Time, limits};
use weft_kv::{Order, Read, Txn};

use super::key::{Fields, Key, Table};
use super::row::{Row, decode, encode};

#[derive(Serialize, Deserialize)]
pub(super) struct Ring {
    given: u64,
    last: Time,
}

impl Row for Ring {
    const WHAT: &'static str = "replay ring";
}

#[derive(Serialize, Deserialize)]
pub(super) struct Slot(RequestId);

impl Row for Slot {
    const WHAT: &'static str = "replay slot";
}

/// An answer that was given.
#[derive(Serialize, Deserialize)]
pub(crate) struct Given {
    /// The hash of the caller, the method and its arguments.
    pub(crate) fingerprint: [u8; 32],
    /// The answer, encoded.
    pub(crate) answer: Vec<u8>,
}

impl Row for Given {
    const WHAT: &'static str = "kept answer";
}

fn key(session: SessionId, request: RequestId) -> Key {
    Key::of(Table::Once).u128(session.0).u64(request.0)
}

/// Returns the answer that a request was given before.
pub(crate) fn find(read: &dyn Read, session: SessionId, request: RequestId) -> Result<Option<Given>> {
    let key = key(session, request);
    read.get(&key)?.map(|value| decode(&key, &value)).transpose()
}

/// Keeps an answer, in the place of the oldest if the ring is full.
pub(crate) fn keep(
    txn: &mut dyn Txn,
    session: SessionId,
    request: RequestId,
    given: &Given,
    now: Time,
) -> Result<()> {
    let head = Key::of(Table::OnceHead).u128(session.0);
    let ring = match txn.get(&head)? {
        Some(value) => decode::<Ring>(&head, &value)?,
        None => Ring { given: 0, last: now },
    };
    let slot = Key::of(Table::OnceSlot).u128(session.0).u32((ring.given % limits::ONCE_RING as u64) as u32);
    if let Some(value) = txn.get(&slot)? {
        let Slot(oldest) = decode(&slot, &value)?;
        txn.delete(&key(session, oldest))?;
    }
    txn.put(&slot, &encode(&slot, &Slot(request))?)?;
    txn.put(&head, &encode(&head, &Ring { given: ring.given + 1, last: now })?)?;
    let key = key(session, request);
    txn.put(&key, &encode(&key, given)?)
}

/// Returns whether anything is kept for a session.
pub(crate) fn has(read: &dyn Read, session: SessionId) -> Result<bool> {
    Ok(read.get(&Key::of(Table::OnceHead).u128(session.0))?.is_some())
}

/// Forgets everything kept for a session: at most a few thousand rows.
pub(crate) fn forget(txn: &mut dyn Txn, session: SessionId) -> Result<()> {
    txn.delete(&Key::of(Table::OnceHead).u128(session.0))?;
    for table in [Table::OnceSlot, Table::Once] {
        let prefix = Key::of(table).u128(session.0);
        let keys: Vec<Bytes> = txn
            .scan(&prefix, &prefix.end(), Order::Rising)
            .map(|row| row.map(|(key, _)| key))
            .collect::<Result<_>>()?;
        keys.iter().try_for_each(|key| txn.delete(key))?;
    }
    Ok(())
}

/// Sessions whose last answer was given before `before`; at most `max`.
pub(crate) fn idle(read: &dyn Read, before: Time, max: usize) -> Result<Vec<SessionId>> {
    let prefix = Key::of(Table::OnceHead);
    let mut idle = Vec::new();
    for row in read.scan(&prefix, &prefix.end(), Order::Rising) {
        let (key, value) = row?;
        if let (Some(session), true) = (Fields::of(&key).u128(), decode::<Ring>(&key, &value)?.last < before)
        {
            idle.push(SessionId(session));
        }
        if idle.len() == max {
            break;
        }
    }
    Ok(idle)
}

/// Returns whether a row of one of the three tables is as it was written.
pub(crate) fn is_whole(table: Table, key: &[u8], value: &[u8]) -> bool {
    match table {
        Table::OnceHead => decode::<Ring>(key, value).is_ok(),
        Table::OnceSlot => decode::<Slot>(key, value).is_ok(),
        _ => decode::<Given>(key, value).is_ok(),
    }
}

/// Rows that lack their counterpart: places without an answer, answers without a place,
/// either without their session's ring. For checks.
pub(crate) fn odd_rows(read: &dyn Read) -> Result<Vec<(Bytes, &'static str)>> {
    let mut odd = Vec::new();
    let prefix = Key::of(Table::OnceSlot);
    for row in read.scan(&prefix, &prefix.end(), Order::Rising) {
        let (at, value) = row?;
        let session = SessionId(Fields::of(&at).u128().unwrap_or_default());
        let Slot(request) = decode(&at, &value)?;
        let ring = Key::of(Table::OnceHead).u128(session.0);
        if read.get(&ring)?.is_none() || read.get(&key(session, request))?.is_none() {
            odd.push((at, Slot::WHAT));
        }
    }
    let prefix = Key::of(Table::Once);
    let (mut current, mut held) = (None, std::collections::HashSet::new());
    for row in read.scan(&prefix, &prefix.end(), Order::Rising) {
        let (at, _) = row?;
        let mut fields = Fields::of(&at);
        let (session, request) = (fields.u128().unwrap_or_default(), fields.u64().unwrap_or_default());
        if current != Some(session) {
            (current, held) = (Some(session), slots(read, SessionId(session))?);
        }
        if !held.contains(&request) {
            odd.push((at, Given::WHAT));
        }
    }
    Ok(odd)
}

/// The requests in a session's ring.
fn slots(read: &dyn Read, session: SessionId) -> Result<std::collections::HashSet<u64>> {
    let prefix = Key::of(Table::OnceSlot).u128(session.0);
    read.scan(&prefix, &prefix.end(), Order::Rising)
        .map(|row| {
            let (key, value) = row?;
            Ok(decode::<Slot>(&key, &value)?.0.0)
        })
        .collect()
}
