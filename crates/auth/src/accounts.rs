//! Users and groups.
//!
//! Every listing is an ordered scan from where the last page ended, and every look-up one row, so
//! a domain of 100 000 users costs a login what one of ten does. A change is one durable
//! transaction; what it ends (remembered passwords, proofs that carry old groups) ends before the
//! answer.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use weft_core::proof::Caller;
use weft_core::service::{Accounts, GroupEdit, GroupRecord, NewUser, Secret, UserEdit, UserRecord};
use weft_core::{CallerId, CallerKind, CallerName, Clock, Error, ErrorKind, Result, Shown, limits};
use weft_kv::{Ack, Order, Read, SpaceTxn, Txn, prefix_end};
use weft_sys::users;

use crate::checks::{Checks, Place};
use crate::home::{Home, is_whole, revoke_line};
use crate::password::PasswordHash;
use crate::tables::{self, Line, UserRow};

/// The accounts of the home domain, in its tables.
#[derive(Clone)]
pub(crate) struct TableAccounts {
    home: Arc<Home>,
    checks: Arc<Checks>,
}

impl TableAccounts {
    pub(crate) fn new(home: Arc<Home>, checks: Arc<Checks>) -> Self {
        Self { home, checks }
    }

    /// Returns the row of a user as others see it.
    fn record(name: CallerName, row: &UserRow) -> UserRecord {
        UserRecord {
            name,
            enabled: row.enabled,
            uid: row.uid,
            has_password: row.password.is_some(),
            added: row.added,
        }
    }

    fn own(&self, name: &CallerName, kind: CallerKind) -> Result<()> {
        if name.kind() == Some(kind) && name.domain() == Some(self.home.domain.id) {
            return Ok(());
        }
        let what = if kind == CallerKind::User { "user" } else { "group" };
        Err(Error::not_found(format!("the domain has no such {what}")).about(name))
    }

    /// Checks the password that somebody gives who changes their own. Returns what was
    /// stored then. Guesses wait as those of a login do.
    async fn demand_old(&self, name: &CallerName, old: Option<&Secret>) -> Result<Option<PasswordHash>> {
        let row = self.home.user(&self.home.space.snapshot()?, name)?;
        let Some(stored) = row.and_then(|row| row.password) else { return Ok(None) };
        let old = old.ok_or_else(|| {
            Error::not_permitted("whoever changes their own password gives the present one too")
                .hint("weft user passwd asks for it; an administrator can set it for another")
        })?;
        let place = Place::Caller(name.id());
        let attempt = self.checks.begin(name.local(), place).await?;
        let turn = self.checks.turn(place).await?;
        if !self.checks.compare(turn, stored.clone(), old).await? {
            attempt.was_wrong(self.home.steady.tick());
            return Err(Error::new(ErrorKind::Unauthenticated, "the present password is wrong"));
        }
        attempt.was_right();
        Ok(Some(stored))
    }

    /// Sets a password for `by`; whoever changes their own has proved `known`. Ends those who
    /// prove themselves by the old one at each request, and no login.
    async fn set_password(
        &self,
        by: CallerId,
        name: &CallerName,
        password: &Secret,
        known: Option<Option<PasswordHash>>,
    ) -> Result<UserRow> {
        let hash = self.checks.hash(by, password).await?;
        let _gate = self.home.gate.write().await;
        let (user, home) = (name.clone(), self.home.clone());
        let until = self.home.steady.now().plus(limits::CREDENTIAL_LIFE + limits::CLOCK_SKEW_MAX);
        let act = move |txn: &mut SpaceTxn<'_>| {
            let mut old = None;
            let row = change_user(txn, &user, |txn, row| {
                if known.as_ref().is_some_and(|known| *known != row.password) {
                    return Err(Error::new(ErrorKind::Conflict, "somebody else has just changed it"));
                }
                old = row.password.replace(hash.clone()).map(|old| home.parent_of_repeats(&old));
                old.map_or(Ok(()), |old| tables::withdraw(txn, old, until))
            })?;
            Ok((row, old))
        };
        let ((row, old), _) = self.home.space.write(Ack::Durable, act).await?;
        if let Some(old) = old {
            self.home.revocations.end_credential(old, until);
        }
        self.home.remembered.forget(name.id());
        Ok(row)
    }

    async fn set_enabled(&self, name: &CallerName, enabled: bool) -> Result<UserRow> {
        let _gate = self.home.gate.write().await;
        let (user, domain) = (name.clone(), self.home.domain.clone());
        let (id, at) = (name.id(), self.home.steady.stamp());
        let act = move |txn: &mut SpaceTxn<'_>| {
            let row = change_user(txn, &user, |_, row| {
                row.enabled = enabled;
                Ok(())
            })?;
            if !enabled {
                revoke_line(txn, id, at)?;
                keep_an_administrator(txn, &domain)?;
            }
            Ok(row)
        };
        let (row, _) = self.home.space.write(Ack::Durable, act).await?;
        if !enabled {
            self.home.revocations.end_caller(id, at);
        }
        self.home.remembered.forget(id);
        Ok(row)
    }

    async fn set_uid(&self, name: &CallerName, uid: Option<u32>) -> Result<UserRow> {
        check_uid(uid)?;
        let _gate = self.home.gate.write().await;
        let (user, id, at) = (name.clone(), name.id(), self.home.steady.stamp());
        let act = move |txn: &mut SpaceTxn<'_>| {
            let mut changes = false;
            let row = change_user(txn, &user, |txn, row| {
                changes = row.uid != uid;
                if let Some(old) = row.uid {
                    txn.delete(&tables::uid_key(old))?;
                }
                row.uid = uid;
                claim_uid(txn, uid, user.local())
            })?;
            if changes {
                // What the old uid was given must not outlive its being this user.
                revoke_line(txn, id, at)?;
            }
            Ok((row, changes))
        };
        let ((row, changes), _) = self.home.space.write(Ack::Durable, act).await?;
        if changes {
            self.home.revocations.end_caller(id, at);
        }
        self.home.remembered.forget(id);
        Ok(row)
    }

    async fn edit(&self, caller: &Caller, name: &CallerName, edit: &UserEdit) -> Result<UserRecord> {
        let themselves = caller.name() == name
            && is_whole(caller, self.home.steady.moment().wall)
            && matches!(edit, UserEdit::Password { .. });
        if themselves {
            self.home.live(caller)?;
        } else {
            self.home.demand_administrator(caller)?;
        }
        self.own(name, CallerKind::User)?;
        let row = match edit {
            UserEdit::Password { new, old } => {
                let known = if themselves { Some(self.demand_old(name, old.as_ref()).await?) } else { None };
                self.set_password(caller.name().id(), name, new, known).await?
            }
            UserEdit::Enabled(enabled) => self.set_enabled(name, *enabled).await?,
            UserEdit::Uid(uid) => self.set_uid(name, *uid).await?,
        };
        Ok(Self::record(name.clone(), &row))
    }

    async fn add(&self, caller: &Caller, user: &NewUser) -> Result<UserRecord> {
        self.home.demand_administrator(caller)?;
        check_uid(user.uid)?;
        let name = CallerName::user(&user.name, self.home.domain.id)?;
        let password = match &user.password {
            Some(password) => Some(self.checks.hash(caller.name().id(), password).await?),
            None => None,
        };
        let row = UserRow { password, uid: user.uid, enabled: true, added: self.home.steady.now() };
        let _gate = self.home.gate.write().await;
        let (kept, to) = (row.clone(), name.clone());
        self.home.space.write(Ack::Durable, move |txn| put_new_user(txn, &to, &kept)).await?;
        self.home.remembered.forget(name.id());
        Ok(Self::record(name, &row))
    }

    /// Checks that the caller may make such a change, and returns the group's owner.
    fn demand_change(
        &self,
        caller: &Caller,
        rows: &impl Read,
        group: &CallerName,
        edit: &GroupEdit,
    ) -> Result<CallerName> {
        // Anybody can be put into a group by anybody, so everybody can leave.
        let leaves = matches!(edit, GroupEdit::Remove(member) if member == caller.name());
        if !leaves || !caller.is_or_is_in(group.id()) || !is_whole(caller, self.home.steady.moment().wall) {
            return self.demand_owner(caller, rows, group);
        }
        self.own(group, CallerKind::Group)?;
        self.home.live(caller)?;
        let owner: Option<CallerName> = tables::read(rows, &tables::group_key(group.local()))?;
        owner.ok_or_else(|| Error::not_found("the domain has no such group").about(group))
    }

    /// Checks that the caller may change a group as it likes, and returns the group's owner.
    fn demand_owner(&self, caller: &Caller, rows: &impl Read, group: &CallerName) -> Result<CallerName> {
        self.own(group, CallerKind::Group)?;
        self.home.live(caller)?;
        let owner: Option<CallerName> = tables::read(rows, &tables::group_key(group.local()))?;
        let gone = || Error::not_found("the domain has no such group").about(group);
        let owner = owner.ok_or_else(gone)?;
        // The administrators' own group is theirs, not its founder's.
        let owns = owner == *caller.name()
            && is_whole(caller, self.home.steady.moment().wall)
            && *group != self.home.domain.administrators;
        if owns || self.home.is_administrator(caller) {
            return Ok(owner);
        }
        // Whoever is not in it learns nothing about it.
        if caller.is_or_is_in(group.id()) || owner == *caller.name() {
            return Err(
                Error::not_permitted("only its owner and administrators may change a group").about(group)
            );
        }
        Err(gone())
    }

    async fn change_group(
        &self,
        caller: &Caller,
        group: &CallerName,
        edit: &GroupEdit,
    ) -> Result<GroupRecord> {
        let _gate = self.home.gate.write().await;
        let owner = self.demand_change(caller, &self.home.space.snapshot()?, group, edit)?;
        let (to, change, domain) = (group.clone(), edit.clone(), self.home.domain.clone());
        let act = move |txn: &mut SpaceTxn<'_>| {
            let changed = match &change {
                GroupEdit::Add(member) => add_member(txn, &domain, &to, member)?,
                GroupEdit::Remove(member) => remove_member(txn, &domain, &to, member)?,
            };
            keep_an_administrator(txn, &domain)?;
            Ok(changed)
        };
        let (changed, _) = self.home.space.write(Ack::Durable, act).await?;
        self.tell_members(changed.into_iter().collect());
        let members = members_told(&self.home.space.snapshot()?, group.id())?;
        Ok(GroupRecord { name: group.clone(), owner, members })
    }

    async fn drop_group(&self, caller: &Caller, group: &CallerName) -> Result<()> {
        let _gate = self.home.gate.write().await;
        self.demand_owner(caller, &self.home.space.snapshot()?, group)?;
        if *group == self.home.domain.administrators {
            return Err(Error::not_permitted("a domain keeps its administrators").about(group));
        }
        while self.drop_members(group).await? {}
        let gone = group.clone();
        let act = move |txn: &mut SpaceTxn<'_>| {
            txn.delete(&tables::group_key(gone.local()))?;
            txn.delete(&tables::name_key(gone.id()))
        };
        self.home.space.write(Ack::Durable, act).await.map(drop)
    }

    /// Takes as many members out of a group as fit a transaction. Returns whether there were any.
    async fn drop_members(&self, group: &CallerName) -> Result<bool> {
        let (from, domain) = (group.clone(), self.home.domain.clone());
        let act = move |txn: &mut SpaceTxn<'_>| {
            let members = members_page(txn, from.id(), None)?;
            let mut changed = Vec::new();
            for member in &members {
                changed.extend(remove_member(txn, &domain, &from, member)?);
            }
            Ok((!members.is_empty(), changed))
        };
        let ((any, changed), _) = self.home.space.write(Ack::Durable, act).await?;
        self.tell_members(changed);
        Ok(any)
    }

    /// Tells the proofs of those whose groups have changed: what they are doing is decided with the new ones.
    fn tell_members(&self, changed: Vec<(CallerId, u64)>) {
        for (member, membership) in changed {
            let groups = || tables::groups_of(&self.home.space.snapshot()?, member);
            self.home.revocations.change_membership(member, membership, groups);
        }
    }

    async fn make_group(&self, caller: &Caller, name: &str) -> Result<GroupRecord> {
        self.home.live(caller)?;
        let maker = caller.name();
        if self.own(maker, CallerKind::User).is_err() || !is_whole(caller, self.home.steady.moment().wall) {
            let detail = "groups are made by the domain's users, with a credential that is not narrowed";
            return Err(Error::not_permitted(detail).caller(maker));
        }
        let group =
            CallerName::new(CallerKind::Group, &format!("{}/{name}", maker.local()), self.home.domain.id)?;
        let _gate = self.home.gate.write().await;
        let (made, owner) = (group.clone(), maker.clone());
        self.home.space.write(Ack::Durable, move |txn| put_new_group(txn, &made, &owner)).await?;
        Ok(GroupRecord { name: group, owner: maker.clone(), members: Vec::new() })
    }

    /// Returns the local names of the groups a caller owns or is in.
    fn groups_of(&self, rows: &impl Read, caller: &Caller) -> Result<BTreeSet<String>> {
        let mut locals = BTreeSet::new();
        if self.own(caller.name(), CallerKind::User).is_ok() {
            let prefix = tables::group_key(&format!("{}/", caller.name().local()));
            tables::each_below(rows, &prefix, |rest, _| {
                locals.insert(format!("{}/{}", caller.name().local(), text(rest)?));
                Ok(true)
            })?;
        }
        for id in tables::groups_of(rows, caller.name().id())? {
            let name: Option<CallerName> = tables::read(rows, &tables::name_key(id))?;
            locals.extend(name.map(|name| name.local().to_owned()));
        }
        Ok(locals)
    }

    fn list_groups(&self, caller: &Caller, after: Option<&CallerName>) -> Result<Vec<GroupRecord>> {
        self.home.live(caller)?;
        let rows = self.home.space.snapshot()?;
        let after = after.map(|name| name.local().to_owned());
        let mut page = Page { home: &self.home, records: Vec::new(), members: 0 };
        if self.home.is_administrator(caller) {
            for row in rows.scan(&start_after(b'g', after.as_deref()), &prefix_end(b"g"), Order::Rising) {
                let (key, owner) = row?;
                if !page.add(&rows, text(&key[1..])?, tables::opened(&key, &owner)?)? {
                    break;
                }
            }
            return Ok(page.records);
        }
        for local in self.groups_of(&rows, caller)? {
            let owner: Option<CallerName> = tables::read(&rows, &tables::group_key(&local))?;
            let Some(owner) = owner.filter(|_| Some(&local) > after.as_ref()) else { continue };
            if !page.add(&rows, &local, owner)? {
                break;
            }
        }
        Ok(page.records)
    }

    fn list_members(
        &self,
        caller: &Caller,
        group: &CallerName,
        after: Option<CallerId>,
    ) -> Result<Vec<CallerName>> {
        self.own(group, CallerKind::Group)?;
        self.home.live(caller)?;
        let rows = self.home.space.snapshot()?;
        let owner: Option<CallerName> = tables::read(&rows, &tables::group_key(group.local()))?;
        let knows = |owner: &CallerName| {
            owner == caller.name() || caller.is_or_is_in(group.id()) || self.home.is_administrator(caller)
        };
        if !owner.as_ref().is_some_and(knows) {
            return Err(Error::not_found("the domain has no such group").about(group));
        }
        members_page(&rows, group.id(), after)
    }

    fn list_users(&self, caller: &Caller, after: Option<&CallerName>) -> Result<Vec<UserRecord>> {
        self.home.demand_administrator(caller)?;
        let rows = self.home.space.snapshot()?;
        let from = start_after(b'u', after.map(CallerName::local));
        let record = |row: Result<(bytes::Bytes, bytes::Bytes)>| {
            let (key, value) = row?;
            let name = CallerName::user(text(&key[1..])?, self.home.domain.id)?;
            Ok(Self::record(name, &tables::opened(&key, &value)?))
        };
        rows.scan(&from, &prefix_end(b"u"), Order::Rising)
            .take(limits::ACCOUNTS_PAGE_MAX)
            .map(record)
            .collect()
    }
}

/// A page of groups, bounded in groups and in their members.
struct Page<'a> {
    home: &'a Home,
    records: Vec<GroupRecord>,
    members: usize,
}

impl Page<'_> {
    /// Adds a group. Returns whether there is room for another.
    fn add(&mut self, rows: &impl Read, local: &str, owner: CallerName) -> Result<bool> {
        let name = CallerName::new(CallerKind::Group, local, self.home.domain.id)?;
        let members = members_told(rows, name.id())?;
        self.members += members.len();
        self.records.push(GroupRecord { name, owner, members });
        Ok(self.records.len() < limits::ACCOUNTS_PAGE_MAX && self.members < limits::GROUPS_PAGE_MEMBERS)
    }
}

fn start_after(table: u8, local: Option<&str>) -> Vec<u8> {
    // No local name contains a zero byte, so nothing lies between a name and this.
    local.map_or_else(|| vec![table], |local| tables::key(table, &[local.as_bytes(), &[0]]))
}

pub(crate) fn text(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|error| Error::corrupt("a name of auth is not text").caused_by(error))
}

fn check_uid(uid: Option<u32>) -> Result<()> {
    if matches!(uid, Some(users::NOBODY | u32::MAX)) {
        return Err(Error::invalid("that uid stands for nobody"));
    }
    Ok(())
}

fn claim_uid(txn: &mut impl Txn, uid: Option<u32>, local: &str) -> Result<()> {
    let Some(uid) = uid else { return Ok(()) };
    if txn.get(&tables::uid_key(uid))?.is_some() {
        return Err(Error::exists("the uid is another user's"));
    }
    tables::write(txn, &tables::uid_key(uid), &local)
}

/// Adds a user. `Exists` if the name or the uid is taken.
pub(crate) fn put_new_user(txn: &mut impl Txn, name: &CallerName, row: &UserRow) -> Result<()> {
    let key = tables::user_key(name.local());
    if txn.get(&key)?.is_some() {
        return Err(Error::exists("there is a user of that name").about(name.local()));
    }
    claim_uid(txn, row.uid, name.local())?;
    tables::write(txn, &key, row)?;
    tables::begin_line(txn, name.id())?;
    tables::write(txn, &tables::name_key(name.id()), name)
}

/// Adds an empty group. `Exists`, or `TooLarge` if its maker has too many.
pub(crate) fn put_new_group(txn: &mut impl Txn, group: &CallerName, owner: &CallerName) -> Result<()> {
    let key = tables::group_key(group.local());
    if txn.get(&key)?.is_some() {
        return Err(Error::exists("there is a group of that name").about(group.local()));
    }
    let mut owned = 0;
    tables::each_below(txn, &tables::group_key(&format!("{}/", owner.local())), |_, _| {
        owned += 1;
        Ok(owned < limits::GROUPS_OWNED_MAX)
    })?;
    if owned >= limits::GROUPS_OWNED_MAX {
        return Err(Error::new(ErrorKind::TooLarge, "a user owns at most 1 024 groups"));
    }
    tables::write(txn, &key, owner)?;
    tables::write(txn, &tables::name_key(group.id()), group)
}

fn change_user<'t>(
    txn: &mut SpaceTxn<'t>,
    name: &CallerName,
    change: impl FnOnce(&mut SpaceTxn<'t>, &mut UserRow) -> Result<()>,
) -> Result<UserRow> {
    let key = tables::user_key(name.local());
    let mut row: UserRow = tables::read(txn, &key)?
        .ok_or_else(|| Error::not_found("the domain has no such user").about(name))?;
    change(txn, &mut row)?;
    tables::write(txn, &key, &row)?;
    Ok(row)
}

/// Returns some of a group's members, in the order of their ids.
fn members_page(rows: &impl Read, group: CallerId, after: Option<CallerId>) -> Result<Vec<CallerName>> {
    let prefix = tables::key(b'e', &[&group.0.to_be_bytes()]);
    // The least key behind it.
    let from = after.map(|after| [tables::member_key(group, after), vec![0]].concat());
    let from = from.unwrap_or_else(|| prefix.clone());
    let member = |row: Result<(bytes::Bytes, bytes::Bytes)>| {
        let (key, value) = row?;
        tables::opened(&key, &value)
    };
    rows.scan(&from, &prefix_end(&prefix), Order::Rising)
        .take(limits::GROUP_MEMBERS_TOLD)
        .map(member)
        .collect()
}

/// Returns a group's members as they are told with it: none of a group that has too many.
fn members_told(rows: &impl Read, group: CallerId) -> Result<Vec<CallerName>> {
    if member_count(rows, group)? > limits::GROUP_MEMBERS_TOLD as i64 {
        return Ok(Vec::new());
    }
    members_page(rows, group, None)
}

fn member_count(rows: &impl Read, group: CallerId) -> Result<i64> {
    rows.get(&tables::count_key(group))?.map_or(Ok(0), |value| weft_kv::counter(&value))
}

/// Adds a member. Returns its new membership if it is one of the domain's own and was not in.
pub(crate) fn add_member(
    txn: &mut impl Txn,
    domain: &tables::Domain,
    group: &CallerName,
    member: &CallerName,
) -> Result<Option<(CallerId, u64)>> {
    if matches!(member.kind(), None | Some(CallerKind::Group)) {
        return Err(Error::invalid("a group holds users, nodes and jobs, not groups and not anyone"));
    }
    let key = tables::member_key(group.id(), member.id());
    if txn.get(&key)?.is_some() {
        return Ok(None);
    }
    let unknown = member.kind() == Some(CallerKind::User)
        && member.domain() == Some(domain.id)
        && txn.get(&tables::user_key(member.local()))?.is_none();
    if unknown {
        return Err(Error::not_found("the domain has no such user").about(member));
    }
    if tables::groups_of(txn, member.id())?.len() >= limits::MEMBERSHIPS_MAX {
        return Err(Error::new(ErrorKind::TooLarge, "a caller is in at most 1 000 groups").about(member));
    }
    if member_count(txn, group.id())? >= limits::GROUP_MEMBERS_MAX as i64 {
        return Err(Error::new(ErrorKind::TooLarge, "a group has at most 100 000 members").about(group));
    }
    txn.bump(&tables::count_key(group.id()), 1)?;
    tables::write(txn, &key, member)?;
    tables::write(txn, &tables::group_of_key(member.id(), group.id()), &())?;
    tables::write(txn, &tables::name_key(member.id()), member)?;
    move_membership(txn, domain, member)
}

fn remove_member(
    txn: &mut impl Txn,
    domain: &tables::Domain,
    group: &CallerName,
    member: &CallerName,
) -> Result<Option<(CallerId, u64)>> {
    let key = tables::member_key(group.id(), member.id());
    if txn.get(&key)?.is_none() {
        return Ok(None);
    }
    txn.bump(&tables::count_key(group.id()), -1)?;
    txn.delete(&key)?;
    txn.delete(&tables::group_of_key(member.id(), group.id()))?;
    move_membership(txn, domain, member)
}

/// Counts a change of a caller's groups. Another domain's callers are counted by their own.
fn move_membership(
    txn: &mut impl Txn,
    domain: &tables::Domain,
    member: &CallerName,
) -> Result<Option<(CallerId, u64)>> {
    if member.domain() != Some(domain.id) {
        return Ok(None);
    }
    let key = tables::line_key(member.id());
    let mut line: Line = tables::read(txn, &key)?.unwrap_or_default();
    line.membership += 1;
    tables::write(txn, &key, &line)?;
    Ok(Some((member.id(), line.membership)))
}

/// Fails with `NotPermitted` if no user who may log in would be left among the administrators.
fn keep_an_administrator(txn: &impl Read, domain: &tables::Domain) -> Result<()> {
    let mut kept = false;
    let prefix = tables::key(b'e', &[&domain.administrators.id().0.to_be_bytes()]);
    tables::each_below(txn, &prefix, |_, value| {
        let member: CallerName = tables::decode(value)?;
        if member.kind() == Some(CallerKind::User) && member.domain() == Some(domain.id) {
            let row: Option<UserRow> = tables::read(txn, &tables::user_key(member.local()))?;
            kept = row.is_some_and(|row| row.enabled);
        }
        Ok(!kept)
    })?;
    if kept {
        return Ok(());
    }
    Err(Error::not_permitted("the domain would be left without an administrator"))
}

#[async_trait]
impl Accounts for TableAccounts {
    async fn add_user(&self, caller: &Caller, user: &NewUser) -> Result<UserRecord> {
        let (this, caller, user) = (self.clone(), caller.clone(), user.clone());
        let change = async move {
            let answer = this.add(&caller, &user).await.map_err(|error| error.op("add user"));
            let of = Shown(user.name.as_bytes()).to_string();
            this.home.tell_edit(&caller, "add-user", answer, of).await
        };
        self.home.to_the_end(change).await
    }

    async fn edit_user(&self, caller: &Caller, name: &CallerName, edit: &UserEdit) -> Result<UserRecord> {
        let (this, caller, name, edit) = (self.clone(), caller.clone(), name.clone(), edit.clone());
        let change = async move {
            let answer = this.edit(&caller, &name, &edit).await.map_err(|error| error.op("change user"));
            this.home.tell_edit(&caller, "change-user", answer, format!("{name}: {edit}")).await
        };
        self.home.to_the_end(change).await
    }

    async fn users(&self, caller: &Caller, after: Option<&CallerName>) -> Result<Vec<UserRecord>> {
        self.list_users(caller, after).map_err(|error| error.op("list users"))
    }

    async fn add_group(&self, caller: &Caller, name: &str) -> Result<GroupRecord> {
        let (this, caller, name) = (self.clone(), caller.clone(), name.to_owned());
        let change = async move {
            let answer = this.make_group(&caller, &name).await.map_err(|error| error.op("make group"));
            let of = Shown(name.as_bytes()).to_string();
            this.home.tell_edit(&caller, "make-group", answer, of).await
        };
        self.home.to_the_end(change).await
    }

    async fn edit_group(&self, caller: &Caller, name: &CallerName, edit: &GroupEdit) -> Result<GroupRecord> {
        let (this, caller, name, edit) = (self.clone(), caller.clone(), name.clone(), edit.clone());
        let change = async move {
            let answer = this.change_group(&caller, &name, &edit).await;
            let answer = answer.map_err(|error| error.op("change group"));
            this.home.tell_edit(&caller, "change-group", answer, format!("{name}: {edit}")).await
        };
        self.home.to_the_end(change).await
    }

    async fn remove_group(&self, caller: &Caller, name: &CallerName) -> Result<()> {
        let (this, caller, name) = (self.clone(), caller.clone(), name.clone());
        let change = async move {
            let answer = this.drop_group(&caller, &name).await.map_err(|error| error.op("remove group"));
            this.home.tell_edit(&caller, "remove-group", answer, name.to_string()).await
        };
        self.home.to_the_end(change).await
    }

    async fn groups(&self, caller: &Caller, after: Option<&CallerName>) -> Result<Vec<GroupRecord>> {
        self.list_groups(caller, after).map_err(|error| error.op("list groups"))
    }

    async fn members(
        &self,
        caller: &Caller,
        group: &CallerName,
        after: Option<CallerId>,
    ) -> Result<Vec<CallerName>> {
        self.list_members(caller, group, after).map_err(|error| error.op("list members"))
    }
}
