//! Each row by itself: is it as it was written? And what the whole domain rests on.

use std::collections::BTreeSet;

use weft_core::proof::KeyCertificate;
use weft_core::{
    CallerId, CallerKind, CallerName, CredentialId, DomainId, Error, KeyId, Result, Time, limits,
};
use weft_kv::{Order, Read, counter, prefix_end};

use super::{Fix, Looker};
use crate::audit::KnownHead;
use crate::auth::starts_by_clock;
use crate::keys;
use crate::tables::{self, Domain, KeyRow, Line, LinkRow, LinkUses, TokenRow, TokenUse, UserRow};

pub(super) const STARTS: &str = "count of starts";
pub(super) const SIGNING_KEY: &str = "signing key";
pub(super) const CERTIFIED: &str = "certified again by the root key";
pub(super) const MOVED_ON: &str = "moved on past every number that a start had";
const AGAIN: &str = "removed, then made again of what else tells of it";
const ALL_ENDED: &str = "removed; as whose it was cannot be told, all credentials are ended";

/// What people call the rows of a table.
fn what(key: &[u8]) -> &'static str {
    match key.first() {
        Some(b'm') if key == tables::domain_key() => "domain",
        Some(b'm') if key == tables::starts_key() => STARTS,
        Some(b'k') => SIGNING_KEY,
        Some(b'u') => "user",
        Some(b'i') => "uid",
        Some(b'g') => "group",
        Some(b'e') => "member",
        Some(b'r') => "membership",
        Some(b's') => "count of members",
        Some(b'n') => "name",
        Some(b'l') => "line",
        Some(b'c') => "withdrawal",
        Some(b't') => "link",
        Some(b'q') => "uses of a link",
        Some(b'o') => "token",
        Some(b'p') => "use of a token",
        Some(b'w') => "count of withdrawals",
        Some(b'a') => "audit head",
        _ => "row",
    }
}

/// Shows a key as people can look it up.
fn shown(key: &[u8]) -> String {
    match (key.first(), std::str::from_utf8(key.get(1..).unwrap_or_default())) {
        (Some(b'u' | b'g'), Ok(local)) => local.escape_debug().to_string(),
        _ => format!("row {}", key.iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
    }
}

/// Whether a row can be read, and stands under a key of its table.
fn is_whole(key: &[u8], value: &[u8]) -> bool {
    let Some((table, rest)) = key.split_first() else { return false };
    let id = tables::id_of(rest).ok();
    let local = std::str::from_utf8(rest).is_ok();
    match table {
        b'm' if key == tables::domain_key() => tables::opened::<Domain>(key, value).is_ok(),
        b'm' if key == tables::starts_key() => tables::opened::<u64>(key, value).is_ok(),
        b'k' => id.is_some() && tables::opened::<KeyRow>(key, value).is_ok(),
        b'u' => local && tables::opened::<UserRow>(key, value).is_ok(),
        b'i' => rest.len() == size_of::<u32>() && tables::opened::<String>(key, value).is_ok(),
        b'g' => local && tables::opened::<CallerName>(key, value).is_ok(),
        b'e' => tables::opened::<CallerName>(key, value)
            .is_ok_and(|name| tables::pair_of(rest).is_ok_and(|(_, member)| name.id() == CallerId(member))),
        b'r' => tables::pair_of(rest).is_ok() && tables::opened::<()>(key, value).is_ok(),
        b's' => id.is_some() && counter(value).is_ok(),
        b'n' => tables::opened::<CallerName>(key, value).is_ok_and(|name| Some(name.id().0) == id),
        b'l' => id.is_some() && tables::opened::<Line>(key, value).is_ok(),
        b'c' => id.is_some() && tables::opened::<Time>(key, value).is_ok(),
        b't' => tables::opened::<LinkRow>(key, value)
            .is_ok_and(|row| tables::pair_of(rest).is_ok_and(|(maker, _)| row.by.id() == CallerId(maker))),
        b'q' => id.is_some() && tables::opened::<LinkUses>(key, value).is_ok(),
        b'o' => tables::opened::<TokenRow>(key, value)
            .is_ok_and(|row| tables::pair_of(rest).is_ok_and(|(owner, _)| row.by.id() == CallerId(owner))),
        b'p' => id.is_some() && tables::opened::<TokenUse>(key, value).is_ok(),
        b'w' => rest.is_empty() && counter(value).is_ok(),
        b'a' => rest.is_empty() && tables::opened::<KnownHead>(key, value).is_ok(),
        _ => false,
    }
}

impl Looker<'_> {
    /// Finds rows that are not as they were written. What others tell of is removed here and made
    /// again in a later round.
    pub(super) fn rows(&mut self) -> Result<()> {
        for row in self.rows.scan(&[], &[], Order::Rising) {
            let (key, value) = row?;
            // `domain` sees to that one: without it nothing is made again.
            if !is_whole(&key, &value) && *key != *tables::domain_key() {
                self.broken(&key)?;
            }
        }
        Ok(())
    }

    fn broken(&mut self, key: &[u8]) -> Result<()> {
        let detail = format!("{}: not as it was written", shown(key));
        let delete = Fix::Delete(key.to_vec());
        let id = tables::id_of(&key[1..]).ok();
        let (repair, fixes) = match (key[0], id) {
            (b'm', _) if key == tables::starts_key() => (MOVED_ON, vec![self.starts_moved_on()?]),
            (b'k', _) => match self.key_again(id)? {
                Some(fix) => (CERTIFIED, vec![fix]),
                None => {
                    self.found.lost(what(key), detail, "removed; nothing it signed is believed", [delete]);
                    return Ok(());
                }
            },
            (b'l', Some(id)) => {
                let fix = self.ended(CallerId(id), Line::default())?;
                ("whatever its caller holds is ended", vec![fix])
            }
            (b'c', Some(id)) => {
                let until = self.now.plus(limits::REVOCATION_KEPT).plus(limits::CLOCK_SKEW_MAX);
                let fix = Fix::put(tables::credential_key(CredentialId(id)), &until)?;
                ("it stays as long as any", vec![fix])
            }
            (b'l' | b'c', None) => {
                let mut fixes = self.everybody_ended()?;
                fixes.push(delete);
                (ALL_ENDED, fixes)
            }
            (b'a', _) => ("removed; until the next record a cut of the log is not noticed", vec![delete]),
            (b't' | b'q', _) => ("removed; the link works no more", vec![delete]),
            (b'o' | b'p', _) => ("removed; the token works no more", vec![delete]),
            _ if what(key) == "row" => ("removed", vec![delete]),
            _ => (AGAIN, vec![delete]),
        };
        self.found.mendable(what(key), detail, repair, fixes);
        Ok(())
    }

    /// Returns the row of a key whose own is damaged, if its file is here and it can be certified.
    fn key_again(&self, id: Option<u128>) -> Result<Option<Fix>> {
        let (Some((disk, volumes)), Some(id)) = (self.keys, id) else { return Ok(None) };
        let Ok(Some(domain)) = tables::read::<Domain>(self.rows, &tables::domain_key()) else {
            return Ok(None);
        };
        let mut known = Vec::new();
        for row in self.rows.scan(b"k", &prefix_end(b"k"), Order::Rising) {
            let (key, value) = row?;
            let row = tables::id_of(&key[1..]).and_then(|id| Ok((KeyId(id), tables::opened(&key, &value)?)));
            known.extend(row);
        }
        let again = keys::certify_again(self.sys, disk, domain.id, &known, volumes)?;
        let again = again.into_iter().find(|key| key.id == KeyId(id));
        again.map(|key| Fix::put(tables::key_key(key.id), &key.row)).transpose()
    }

    pub(super) fn starts_moved_on(&self) -> Result<Fix> {
        Fix::put(tables::starts_key(), &starts_by_clock(self.sys))
    }

    /// Returns the domain, if its row is as it was written.
    pub(super) fn domain(&mut self) -> Result<Option<Domain>> {
        let detail = match tables::read(self.rows, &tables::domain_key()) {
            Ok(Some(domain)) => return Ok(Some(domain)),
            Ok(None) if self.rows.scan(&[], &[], Order::Rising).next().is_none() => {
                return Err(Error::corrupt("the tables name no domain").op("check the keys"));
            }
            Ok(None) => "not there",
            Err(_) => "not as it was written",
        };
        match self.domain_again()? {
            Some(domain) => {
                let mut fixes = self.everybody_ended()?;
                fixes.push(Fix::put(tables::domain_key(), &domain)?);
                let repair = "made again of its keys and groups; all credentials are ended";
                self.found.mendable("domain", detail.to_owned(), repair, fixes);
            }
            None => self.found.lost("domain", detail.to_owned(), "restore a backup", []),
        }
        Ok(None)
    }

    /// Returns what can be told of the domain without its row; none where more than one group may
    /// be that of the administrators.
    fn domain_again(&self) -> Result<Option<Domain>> {
        let roots: BTreeSet<[u8; 32]> = keys::key_rows(self.rows)?
            .into_iter()
            .map(|(_, KeyRow { certificate: KeyCertificate { root, .. }, .. })| root)
            .collect();
        let founders = self.makers_of("administrators")?;
        let (Some(root), 1, [founder]) = (roots.first(), roots.len(), &founders[..]) else { return Ok(None) };
        let id = DomainId::of_root_key(root);
        let administrators = CallerName::new(CallerKind::Group, &format!("{founder}/administrators"), id)?;
        let mut mark = [0; 32];
        self.sys.random().fill(&mut mark);
        Ok(Some(Domain { id, founder: CallerName::user(founder, id)?, administrators, mark }))
    }

    /// Returns who made groups of a name, by the rows of groups and by their names.
    fn makers_of(&self, group: &str) -> Result<Vec<String>> {
        let mut locals = BTreeSet::new();
        for row in self.rows.scan(b"g", &prefix_end(b"g"), Order::Rising) {
            locals.extend(std::str::from_utf8(&row?.0[1..]).map(str::to_owned));
        }
        tables::each_below(self.rows, b"n", |_, name| {
            let name: CallerName = tables::decode(name)?;
            locals.extend((name.kind() == Some(CallerKind::Group)).then(|| name.local().to_owned()));
            Ok(true)
        })?;
        let maker = |local: &String| {
            local.split_once('/').filter(|(_, name)| *name == group).map(|(maker, _)| maker.to_owned())
        };
        Ok(locals.iter().filter_map(maker).collect())
    }
}
