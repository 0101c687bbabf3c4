//! Users, groups, members and what is withdrawn, against each other.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use weft_core::{CallerId, CallerKind, CallerName, Error, Result};
use weft_kv::{Order, Read, SpaceSnapshot, counter, prefix_end};

use super::{Fix, Looker};
use crate::accounts::text;
use crate::tables::{self, Domain, Line, UserRow};

/// A group and one of its members.
type Pair = (CallerId, CallerId);

/// What the rows say, each of which is as it was written.
struct Accounts {
    domain: Domain,
    users: BTreeMap<String, UserRow>,
    uids: BTreeMap<u32, String>,
    /// Each group by its local name, with its id.
    groups: BTreeMap<String, CallerId>,
    /// Whom the rows of members name.
    members: BTreeMap<Pair, CallerName>,
    /// Who is in which group by the rows that logins read.
    memberships: BTreeSet<Pair>,
    counts: BTreeMap<CallerId, i64>,
    names: BTreeMap<CallerId, CallerName>,
    lines: BTreeMap<CallerId, Line>,
}

impl Accounts {
    fn of(rows: &SpaceSnapshot, domain: Domain) -> Result<Self> {
        let mut all = Self {
            domain,
            users: BTreeMap::new(),
            uids: BTreeMap::new(),
            groups: BTreeMap::new(),
            members: BTreeMap::new(),
            memberships: BTreeSet::new(),
            counts: BTreeMap::new(),
            names: BTreeMap::new(),
            lines: BTreeMap::new(),
        };
        for row in rows.scan(&[], &[], Order::Rising) {
            let (key, value) = row?;
            all.add(&key, &value)?;
        }
        Ok(all)
    }

    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let (table, rest) = key.split_first().ok_or_else(|| Error::corrupt("a key of auth is empty"))?;
        match table {
            b'u' => drop(self.users.insert(text(rest)?.to_owned(), tables::opened(key, value)?)),
            b'i' => drop(self.uids.insert(tables::uid_of(rest)?, tables::opened(key, value)?)),
            b'g' => {
                let local = text(rest)?;
                let id = CallerName::new(CallerKind::Group, local, self.domain.id)?.id();
                self.groups.insert(local.to_owned(), id);
            }
            b'e' => {
                let (group, member) = tables::pair_of(rest)?;
                self.members.insert((CallerId(group), CallerId(member)), tables::opened(key, value)?);
            }
            b'r' => {
                let (member, group) = tables::pair_of(rest)?;
                self.memberships.insert((CallerId(group), CallerId(member)));
            }
            b's' => drop(self.counts.insert(CallerId(tables::id_of(rest)?), counter(value)?)),
            b'n' => drop(self.names.insert(CallerId(tables::id_of(rest)?), tables::opened(key, value)?)),
            b'l' => drop(self.lines.insert(CallerId(tables::id_of(rest)?), tables::opened(key, value)?)),
            _ => {}
        }
        Ok(())
    }

    fn is_own(&self, name: &CallerName, kind: CallerKind) -> bool {
        name.kind() == Some(kind) && name.domain() == Some(self.domain.id)
    }

    /// The users that have a row, by id.
    fn users_by_id(&self) -> Result<BTreeMap<CallerId, CallerName>> {
        let names = self.users.keys().map(|local| CallerName::user(local, self.domain.id));
        names.map(|name| name.map(|name| (name.id(), name))).collect()
    }

    /// Everybody whom a row names.
    fn everybody(&self) -> impl Iterator<Item = &CallerName> {
        self.names.values().chain(self.members.values())
    }

    /// The users that something names and that have no row.
    fn lost_users(&self) -> BTreeMap<CallerId, CallerName> {
        self.everybody()
            .chain([&self.domain.founder])
            .filter(|name| self.is_own(name, CallerKind::User) && !self.users.contains_key(name.local()))
            .map(|name| (name.id(), name.clone()))
            .collect()
    }

    /// Whether a user whose row is lost must have been allowed to log in: somebody among the
    /// administrators always is, and here it can have been nobody else.
    fn was_enabled(&self, lost: &CallerName) -> bool {
        let group = self.domain.administrators.id();
        let said = self.counts.get(&group).copied().unwrap_or(0);
        let members: Vec<_> = self.members.iter().filter(|((of, _), _)| *of == group).collect();
        let may_not = |name: &CallerName| {
            let user = self.users.get(name.local());
            !self.is_own(name, CallerKind::User) || user.is_some_and(|row| !row.enabled)
        };
        members.len() as i64 == said
            && members.iter().all(|(pair, _)| self.memberships.contains(*pair))
            && members.iter().any(|(_, name)| *name == lost)
            && members.iter().all(|(_, name)| *name == lost || may_not(name))
    }

    /// The pairs of a group, by the rows of members and by those of memberships.
    fn pairs_of(&self, group: CallerId) -> [BTreeSet<Pair>; 2] {
        let whole = (group, CallerId(0))..=(group, CallerId(u128::MAX));
        let members = self.members.range(whole.clone()).map(|(pair, _)| *pair).collect();
        [members, self.memberships.range(whole).copied().collect()]
    }
}

impl Looker<'_> {
    pub(super) fn accounts(&mut self, domain: Domain) -> Result<()> {
        let all = Accounts::of(self.rows, domain)?;
        let layers: [fn(&mut Self, &Accounts) -> Result<()>; 7] = [
            |looker, all| looker.users_and_groups(all),
            |looker, all| looker.uids(all),
            |looker, all| looker.members(all),
            |looker, all| looker.lacking_lines(all),
            |looker, _| looker.withdrawals(),
            |looker, _| looker.links(),
            |looker, _| looker.tokens(),
        ];
        for layer in layers {
            if self.found.findings.is_empty() {
                layer(self, &all)?;
            }
        }
        Ok(())
    }

    /// Whoever has a name has a row, and the other way round.
    fn users_and_groups(&mut self, all: &Accounts) -> Result<()> {
        for lost in all.lost_users().values() {
            self.lost_user(all, lost)?;
        }
        let administrators = &all.domain.administrators;
        let groups: BTreeMap<_, _> = all
            .everybody()
            .chain([administrators])
            .filter(|name| all.is_own(name, CallerKind::Group))
            .map(|name| (name.local(), name))
            .collect();
        for (local, group) in groups.into_iter().filter(|(local, _)| !all.groups.contains_key(*local)) {
            let (maker, _) = local.split_once('/').unwrap_or((local, ""));
            let owner = CallerName::user(maker, all.domain.id)?;
            let fix = Fix::put(tables::group_key(group.local()), &owner)?;
            let detail = format!("{local}: not there");
            self.found.mendable("group", detail, "made again, its maker's", [fix]);
        }
        self.names(all)
    }

    fn lost_user(&mut self, all: &Accounts, lost: &CallerName) -> Result<()> {
        let uid = all.uids.iter().find(|(_, local)| *local == lost.local()).map(|(uid, _)| *uid);
        let enabled = all.was_enabled(lost);
        let row = UserRow { password: None, uid, enabled, added: self.now };
        let line = all.lines.get(&lost.id()).copied().unwrap_or_default();
        let fixes = [Fix::put(tables::user_key(lost.local()), &row)?, self.ended(lost.id(), line)?];
        let repair = match enabled {
            true => "kept without a password; may still log in by uid: no other administrator may",
            false => "kept without a password, and may not log in until an administrator says so",
        };
        self.found.lost("user", format!("{}: not there", lost.local()), repair, fixes);
        Ok(())
    }

    /// Users, groups and members are found by their ids.
    fn names(&mut self, all: &Accounts) -> Result<()> {
        let mut named = all.users_by_id()?;
        for (local, id) in &all.groups {
            named.insert(*id, CallerName::new(CallerKind::Group, local, all.domain.id)?);
        }
        named.extend(all.members.values().map(|name| (name.id(), name.clone())));
        for (id, name) in named.into_iter().filter(|(id, _)| !all.names.contains_key(id)) {
            let detail = format!("of {}: not there", name.seen_from(all.domain.id));
            let fix = Fix::put(tables::name_key(id), &name)?;
            self.found.mendable("name", detail, "made again", [fix]);
        }
        Ok(())
    }

    /// A uid leads to the user that has it.
    fn uids(&mut self, all: &Accounts) -> Result<()> {
        let mut owners = BTreeMap::new();
        for (uid, local) in &all.uids {
            if all.users.get(local).and_then(|user| user.uid) == Some(*uid) {
                owners.insert(*uid, local);
                continue;
            }
            let detail = format!("{uid}: {local} does not have it");
            let fix = Fix::Delete(tables::uid_key(*uid));
            self.found.mendable("uid", detail, "removed", [fix]);
        }
        for (local, user) in &all.users {
            let Some(uid) = user.uid else { continue };
            match owners.entry(uid) {
                Entry::Vacant(free) => {
                    free.insert(local);
                    let fix = Fix::put(tables::uid_key(uid), local)?;
                    self.found.mendable("uid", format!("{uid}: {local} has it"), "made again", [fix]);
                }
                Entry::Occupied(owner) if *owner.get() != local => {
                    let fix = Fix::put(tables::user_key(local), &UserRow { uid: None, ..user.clone() })?;
                    let detail = format!("{uid}: {local} has it, and another");
                    self.found.lost("uid", detail, "left to the other", [fix]);
                }
                Entry::Occupied(_) => {}
            }
        }
        Ok(())
    }

    /// Three tables tell who is in a group. Where they do not agree, two that do are believed, else
    /// only who stands in both.
    fn members(&mut self, all: &Accounts) -> Result<()> {
        let groups: BTreeSet<CallerId> = all.groups.values().copied().collect();
        let of_rows = all.members.keys().chain(&all.memberships).map(|(group, _)| *group);
        let known: BTreeSet<CallerId> = of_rows.chain(all.counts.keys().copied()).collect();
        for group in known {
            let says = all.counts.get(&group).copied().unwrap_or(0);
            let [members, memberships] = all.pairs_of(group);
            let is = if !groups.contains(&group) {
                BTreeSet::new()
            } else if members == memberships {
                members
            } else {
                match [&members, &memberships].map(|pairs| pairs.len() as i64 == says) {
                    [true, false] => members,
                    [false, true] => memberships,
                    _ => &members & &memberships,
                }
            };
            self.members_of(all, group, &is, says)?;
        }
        Ok(())
    }

    /// Makes the rows of a group say that exactly `is` are in it.
    fn members_of(&mut self, all: &Accounts, group: CallerId, is: &BTreeSet<Pair>, says: i64) -> Result<()> {
        let [members, memberships] = all.pairs_of(group);
        let name = |id: CallerId| match all.names.get(&id) {
            Some(name) => name.seen_from(all.domain.id),
            None => id.to_string(),
        };
        let of = |pair: &Pair| format!("{} of {}", name(pair.1), name(pair.0));
        let mut nameless = 0;
        for pair in is.difference(&members) {
            let Some(member) = all.names.get(&pair.1) else {
                // Who that is cannot be told, and so not taken out again: out it is.
                let fixes = self.moved(all, *pair, Fix::Delete(tables::group_of_key(pair.1, pair.0)))?;
                self.found.mendable("membership", format!("{}: of nobody", of(pair)), "removed", fixes);
                nameless += 1;
                continue;
            };
            let fix = Fix::put(tables::member_key(pair.0, pair.1), member)?;
            self.found.mendable("member", format!("{}: not there", of(pair)), "made again", [fix]);
        }
        for pair in members.difference(is) {
            let fix = Fix::Delete(tables::member_key(pair.0, pair.1));
            self.found.mendable(
                "member",
                format!("{}: nothing else tells of it", of(pair)),
                "removed",
                [fix],
            );
        }
        for pair in is.difference(&memberships) {
            let fixes = self.moved(all, *pair, Fix::put(tables::group_of_key(pair.1, pair.0), &())?)?;
            self.found.mendable("membership", format!("{}: not there", of(pair)), "made again", fixes);
        }
        for pair in memberships.difference(is) {
            let fixes = self.moved(all, *pair, Fix::Delete(tables::group_of_key(pair.1, pair.0)))?;
            let detail = format!("{}: nothing else tells of it", of(pair));
            self.found.mendable("membership", detail, "removed", fixes);
        }
        let count = is.len() as i64 - nameless;
        if says != count {
            let detail = format!("of {}: {says}, it has {count}", name(group));
            let fix = Fix::Bump(tables::count_key(group), count - says);
            self.found.mendable("count of members", detail, "corrected", [fix]);
        }
        Ok(())
    }

    /// Returns a correction of who is in a group, and that of the member's line which makes
    /// credentials with the old groups be made afresh.
    fn moved(&self, all: &Accounts, (_, member): Pair, fix: Fix) -> Result<Vec<Fix>> {
        let Some(line) = all.lines.get(&member) else { return Ok(vec![fix]) };
        let line = Line { membership: line.membership.saturating_add(1), ..*line };
        Ok(vec![fix, Fix::put(tables::line_key(member), &line)?])
    }

    /// Every user has a line, and every other of the domain's callers that is in a group.
    fn lacking_lines(&mut self, all: &Accounts) -> Result<()> {
        let mut own = all.users_by_id()?;
        let members = all.members.values().filter(|name| name.domain() == Some(all.domain.id));
        own.extend(members.map(|name| (name.id(), name.clone())));
        for (id, name) in own.into_iter().filter(|(id, _)| !all.lines.contains_key(id)) {
            let detail = format!("of {}: not there", name.seen_from(all.domain.id));
            let fix = self.ended(id, Line::default())?;
            self.found.mendable("line", detail, "whatever its caller holds is ended", [fix]);
        }
        Ok(())
    }

    /// As many withdrawals are there as there should be.
    fn withdrawals(&mut self) -> Result<()> {
        let says = self.rows.get(&tables::withdrawals_key())?.map_or(Ok(0), |value| counter(&value))?;
        let mut is = 0;
        for row in self.rows.scan(b"c", &prefix_end(b"c"), Order::Rising) {
            row?;
            is += 1;
        }
        if is == says {
            return Ok(());
        }
        let (mut fixes, mut repair) = (Vec::new(), "corrected");
        if is < says {
            fixes = self.everybody_ended()?;
            repair = "corrected; as whose are missing cannot be told, all credentials are ended";
        }
        // Last: as long as it is wrong, a mending that was cut off is begun again.
        fixes.push(Fix::Bump(tables::withdrawals_key(), is - says));
        let detail = format!("{says}, there are {is}");
        self.found.mendable("count of withdrawals", detail, repair, fixes);
        Ok(())
    }
}
