//! Whom the uids of a restored domain stand for, on the machine that it was restored on.
//!
//! A uid says who somebody is on one machine. Where the user that the node runs as has another uid than in the
//! backup, this is another machine, or was set up anew: the old uid is nobody's there, or a stranger's, and so may
//! any other be. So none of them is believed, unless whoever restores says that they are the same people; and
//! whoever restores, who has the signing keys in hand, is an administrator by their own uid.
//!
//! What cannot be read is passed by: a damaged backup is restored as well, and `check` tells what is wrong.

use std::sync::Arc;

use weft_core::{CallerKind, CallerName, ErrorKind, Result, limits};
use weft_kv::{Ack, Engine, Order, Read, Row, Space, SpaceId, SpaceTxn, Txn, prefix_end};

use crate::accounts::text;
use crate::tables::{self, Domain, SCHEMA, UserRow};

/// What became of a backup's uids. Users are named locally.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TakenOver {
    /// Who the uid that restores is from now on; nobody if no administrator may log in.
    pub administrator: Option<String>,
    /// Who is known by a uid no more, and by which they were.
    pub ended: Vec<(String, u32)>,
}

/// Makes `uid`, that a restored node will run as, an administrator's; durably, and before the first opening. Of the
/// backup nothing changes if it was one's already. Else the founder has it, or the first administrator who may
/// log in if the founder may not, and no other uid of the backup stands for anybody; with `keep`, others do still.
pub async fn take_over(engine: Arc<dyn Engine>, space: SpaceId, uid: u32, keep: bool) -> Result<TakenOver> {
    let space = Space::open(engine, space, &SCHEMA).await?;
    let rows = space.snapshot()?;
    let domain: Option<Domain> = sound(tables::read(&rows, &tables::domain_key()))?;
    if let Some(domain) = &domain
        && let Some(local) = administrator_at(&rows, domain, uid)?
    {
        return Ok(TakenOver { administrator: Some(local), ended: Vec::new() });
    }
    let administrator = match &domain {
        Some(domain) => first_administrator(&rows, domain)?,
        None => None,
    };
    let ends = {
        let administrator = administrator.clone();
        move |local: &str, of: u32| !keep || of == uid || administrator.as_deref() == Some(local)
    };
    let mut taken = TakenOver { administrator, ended: Vec::new() };
    let mut from = vec![b'u'];
    loop {
        let (start, ends) = (from, ends.clone());
        let page = move |txn: &mut SpaceTxn<'_>| end_uids(txn, &start, &ends);
        let ((ended, next), _) = space.write(Ack::Durable, page).await?;
        taken.ended.extend(ended);
        match next {
            Some(next) => from = next,
            None => break,
        }
    }
    let local = taken.administrator.clone();
    space.write(Ack::Durable, move |txn| give(txn, uid, local.as_deref())).await?;
    if !keep {
        while space.write(Ack::Durable, move |txn| end_leftovers(txn, uid)).await?.0 {}
    }
    Ok(taken)
}

/// Returns a row, or nothing in place of one that is damaged.
fn sound<T>(row: Result<Option<T>>) -> Result<Option<T>> {
    match row {
        Err(error) if error.kind() == ErrorKind::Corrupt => Ok(None),
        row => row,
    }
}

/// Returns the administrator whom a uid stands for, if it does for one who may log in.
fn administrator_at(rows: &impl Read, domain: &Domain, uid: u32) -> Result<Option<String>> {
    let local: Option<String> = sound(tables::read(rows, &tables::uid_key(uid)))?;
    let Some(local) = local else { return Ok(None) };
    let Ok(name) = CallerName::user(&local, domain.id) else { return Ok(None) };
    let able = able(rows, domain, &name)?;
    Ok(able.filter(|row| row.uid == Some(uid)).map(|_| local))
}

/// Returns the row of an administrator who may log in; nothing if it is none.
fn able(rows: &impl Read, domain: &Domain, name: &CallerName) -> Result<Option<UserRow>> {
    let is_user = name.kind() == Some(CallerKind::User) && name.domain() == Some(domain.id);
    if !is_user || rows.get(&tables::member_key(domain.administrators.id(), name.id()))?.is_none() {
        return Ok(None);
    }
    let row: Option<UserRow> = sound(tables::read(rows, &tables::user_key(name.local())))?;
    Ok(row.filter(|row| row.enabled))
}

fn first_administrator(rows: &impl Read, domain: &Domain) -> Result<Option<String>> {
    if able(rows, domain, &domain.founder)?.is_some() {
        return Ok(Some(domain.founder.local().to_owned()));
    }
    let prefix = tables::key(b'e', &[&domain.administrators.id().0.to_be_bytes()]);
    for row in rows.scan(&prefix, &prefix_end(&prefix), Order::Rising) {
        let (key, value) = row?;
        let Ok(member) = tables::opened::<CallerName>(&key, &value) else { continue };
        if able(rows, domain, &member)?.is_some() {
            return Ok(Some(member.local().to_owned()));
        }
    }
    Ok(None)
}

/// Who is known by a uid no more, and where to go on.
type Ended = (Vec<(String, u32)>, Option<Vec<u8>>);

/// Takes their uids away from some users, those of whom `ends` says so, from a key on.
fn end_uids(txn: &mut SpaceTxn<'_>, from: &[u8], ends: &impl Fn(&str, u32) -> bool) -> Result<Ended> {
    let page: Vec<Row> = txn
        .scan(from, &prefix_end(b"u"), Order::Rising)
        .take(limits::AUTH_STEP_ROWS)
        .collect::<Result<_>>()?;
    let mut ended = Vec::new();
    for (key, value) in &page {
        let (Ok(row), Ok(local)) = (tables::opened::<UserRow>(key, value), text(&key[1..])) else { continue };
        let Some(uid) = row.uid.filter(|uid| ends(local, *uid)) else { continue };
        tables::write(txn, key, &UserRow { uid: None, ..row })?;
        txn.delete(&tables::uid_key(uid))?;
        ended.push((local.to_owned(), uid));
    }
    // The least key behind it.
    let next = page.last().filter(|_| page.len() == limits::AUTH_STEP_ROWS);
    Ok((ended, next.map(|(last, _)| [last, &[0][..]].concat())))
}

/// Gives a uid to an administrator, or takes it from whoever had it.
fn give(txn: &mut SpaceTxn<'_>, uid: u32, local: Option<&str>) -> Result<()> {
    let Some(local) = local else { return txn.delete(&tables::uid_key(uid)) };
    let key = tables::user_key(local);
    if let Some(row) = sound(tables::read::<UserRow>(txn, &key))? {
        tables::write(txn, &key, &UserRow { uid: Some(uid), ..row })?;
        tables::write(txn, &tables::uid_key(uid), &local)?;
    }
    Ok(())
}

/// Takes away what leads from a uid other than `but` to a user whose own row cannot be read, some at a time.
/// Returns whether there may be more.
fn end_leftovers(txn: &mut SpaceTxn<'_>, but: u32) -> Result<bool> {
    let kept = tables::uid_key(but);
    let rows: Vec<Row> = txn
        .scan(b"i", &prefix_end(b"i"), Order::Rising)
        .take(limits::AUTH_STEP_ROWS)
        .collect::<Result<_>>()?;
    let more = rows.len() == limits::AUTH_STEP_ROWS;
    for (key, _) in rows.iter().filter(|(key, _)| key[..] != kept[..]) {
        txn.delete(key)?;
    }
    Ok(more)
}
