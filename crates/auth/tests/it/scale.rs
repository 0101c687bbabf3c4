//! A domain of many users and groups: what each act reads and writes is counted, not timed. A cliff would
//! show as work that grows with the domain.
//!
//! 20 000 users and 2 000 groups, one of them of everybody; 100 000 and 10 000 with the long counts.

use std::ops::AddAssign;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use weft_auth::Auth;
use weft_conformance::run::full;
use weft_core::proof::Caller;
use weft_core::service::{Evidence, GroupEdit, NewUser, Secret};
use weft_core::{CallerName, Error, ErrorKind, Result, limits};
use weft_kv::{
    Ack, Boot, Commit, Embedded, Engine, NoteKind, NotePosition, Notes, Options, Order, Read, Rows, Snapshot,
    SpaceId, Supports, Txn, WriteFn,
};
use weft_sys::{Disk, FlushSite, SimDisk, Sys, simulate};

use crate::scene::{FOUNDER_UID, SOCKET, SPACE, as_version_1, settings};

/// What was asked of the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Work {
    /// Rows read, by snapshots and in transactions.
    read: u64,
    /// Rows written by one transaction, at most.
    wrote: u64,
    /// Transactions.
    transactions: u64,
}

impl AddAssign for Work {
    fn add_assign(&mut self, more: Self) {
        self.read += more.read;
        self.wrote = self.wrote.max(more.wrote);
        self.transactions += more.transactions;
    }
}

type Count = Arc<Mutex<Work>>;

fn add(count: &Count, more: Work) {
    *count.lock().expect("nobody panicked") += more;
}

const ONE_READ: Work = Work { read: 1, wrote: 0, transactions: 0 };

/// An engine that counts.
struct Counting {
    engine: Arc<Embedded>,
    count: Count,
    /// How many transactions it takes before its disk is gone.
    transactions_max: u64,
}

/// A reader that counts.
struct Reading<R> {
    inner: R,
    count: Count,
}

impl Read for Reading<Box<dyn Snapshot>> {
    fn get(&self, key: &[u8]) -> Result<Option<bytes::Bytes>> {
        add(&self.count, ONE_READ);
        self.inner.get(key)
    }

    fn scan(&self, from: &[u8], to: &[u8], order: Order) -> Rows<'_> {
        Box::new(self.inner.scan(from, to, order).inspect(|_| add(&self.count, ONE_READ)))
    }
}

impl Snapshot for Reading<Box<dyn Snapshot>> {
    fn commit(&self) -> Commit {
        self.inner.commit()
    }
}

/// A transaction that counts.
struct Transacting<'t> {
    inner: &'t mut dyn Txn,
    count: Count,
    wrote: u64,
}

impl Read for Transacting<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<bytes::Bytes>> {
        add(&self.count, ONE_READ);
        self.inner.get(key)
    }

    fn scan(&self, from: &[u8], to: &[u8], order: Order) -> Rows<'_> {
        Box::new(self.inner.scan(from, to, order).inspect(|_| add(&self.count, ONE_READ)))
    }
}

impl Txn for Transacting<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.wrote += 1;
        self.inner.put(key, value)
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.wrote += 1;
        self.inner.delete(key)
    }

    fn bump(&mut self, key: &[u8], delta: i64) -> Result<()> {
        self.wrote += 1;
        self.inner.bump(key, delta)
    }

    fn note(&mut self, kind: NoteKind, bytes: &[u8]) -> Result<()> {
        self.inner.note(kind, bytes)
    }
}

#[async_trait]
impl Engine for Counting {
    fn supports(&self) -> Supports {
        self.engine.supports()
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        Ok(Box::new(Reading { inner: self.engine.snapshot()?, count: self.count.clone() }))
    }

    async fn write(&self, ack: Ack, mut act: WriteFn) -> Result<Commit> {
        let count = self.count.clone();
        if count.lock().expect("nobody panicked").transactions == self.transactions_max {
            return Err(Error::new(ErrorKind::Unavailable, "the disk is gone"));
        }
        let counted = move |txn: &mut dyn Txn| {
            let mut txn = Transacting { inner: txn, count: count.clone(), wrote: 0 };
            let answer = act(&mut txn);
            add(&count, Work { wrote: txn.wrote, transactions: 1, ..Work::default() });
            answer
        };
        self.engine.write(ack, Box::new(counted)).await
    }

    async fn flush(&self) -> Result<Commit> {
        self.engine.flush().await
    }

    fn notes(&self, kind: NoteKind) -> Result<Box<dyn Notes>> {
        self.engine.notes(kind)
    }

    fn last_note(&self, kind: NoteKind) -> Result<Option<NotePosition>> {
        self.engine.last_note(kind)
    }

    async fn backup(&self, into: Arc<dyn Disk>) -> Result<Commit> {
        self.engine.backup(into).await
    }

    fn boot(&self) -> Boot {
        self.engine.boot()
    }

    async fn close(&self) -> Result<()> {
        self.engine.close().await
    }
}

/// A domain of many, at rest or at work.
struct Town {
    sys: Sys,
    disk: SimDisk,
    engine: Arc<Embedded>,
    auth: Auth,
    count: Count,
}

/// How many there are.
struct Size {
    users: usize,
    groups: usize,
}

impl Size {
    fn of_this_run() -> Self {
        match full() {
            true => Self { users: 100_000, groups: 10_000 },
            false => Self { users: 20_000, groups: 2_000 },
        }
    }
}

fn user(n: usize) -> String {
    format!("u{n:06}")
}

impl Town {
    async fn start(sys: &Sys, disk: SimDisk) -> Self {
        Self::try_start(sys, disk, u64::MAX).await.expect("it starts")
    }

    /// Starts over a disk that goes after so many transactions.
    async fn try_start(sys: &Sys, disk: SimDisk, transactions_max: u64) -> Result<Self> {
        let kv = disk.beneath("kv").expect("it is ours");
        let engine = Arc::new(Embedded::open(sys.clone(), kv, Options::default()).expect("it opens"));
        let below = disk.beneath("auth").expect("it is ours");
        disk.sync_dir("", FlushSite::KvLogDir).expect("it can");
        let count = Count::default();
        let counting = Arc::new(Counting { engine: engine.clone(), count: count.clone(), transactions_max });
        let (auth, _) = Auth::open(sys.clone(), counting, SpaceId(SPACE), below, settings()).await?;
        Ok(Self { sys: sys.clone(), disk, engine, auth, count })
    }

    async fn restart(self) -> Self {
        let (sys, disk) = self.stop().await;
        Self::start(&sys, disk).await
    }

    async fn stop(self) -> (Sys, SimDisk) {
        self.auth.close().await.expect("it closes");
        let Self { sys, disk, engine, auth, .. } = self;
        drop(auth);
        engine.close().await.expect("it closes");
        drop(engine);
        (sys, disk.kill())
    }

    fn name(&self, text: &str) -> CallerName {
        CallerName::parse(text, self.auth.domain()).expect("a good name")
    }

    async fn by(&self, evidence: Evidence) -> Caller {
        self.auth.authority().authenticate(&evidence, SOCKET).await.expect("it is right")
    }

    async fn admin(&self) -> Caller {
        self.by(Evidence::SocketUid(FOUNDER_UID)).await
    }

    async fn add_user(&self, name: &str, uid: Option<u32>, password: Option<&str>) {
        let user = NewUser { name: name.to_owned(), password: password.map(Secret::new), uid };
        self.auth.accounts().add_user(&self.admin().await, &user).await.expect("it is new");
    }

    async fn put(&self, group: &CallerName, member: &CallerName) {
        let edit = GroupEdit::Add(member.clone());
        let by = self.admin().await;
        self.auth.accounts().edit_group(&by, group, &edit).await.expect("there is room");
    }

    /// Makes the domain: everybody in one group, and one user in as many groups as may be. Those who make
    /// groups prove themselves by their uids.
    async fn fill(&self, size: &Size) -> CallerName {
        let makers = size.groups.div_ceil(limits::GROUPS_OWNED_MAX);
        for n in 0..size.users {
            let uid = (n < makers).then(|| 2000 + u32::try_from(n).expect("a few"));
            self.add_user(&user(n), uid, (n == makers).then_some("a word")).await;
        }
        let busy = self.name(&user(size.users - 1));
        for n in 0..size.groups {
            let maker = u32::try_from(n / limits::GROUPS_OWNED_MAX).expect("a few");
            let maker = self.by(Evidence::SocketUid(2000 + maker)).await;
            let group = self.auth.accounts().add_group(&maker, &format!("g{n}")).await.expect("it is new");
            if n + 1 < limits::MEMBERSHIPS_MAX {
                self.put(&group.name, &busy).await;
            }
        }
        let admin = self.admin().await;
        let all = self.auth.accounts().add_group(&admin, "all").await.expect("it is new").name;
        for n in 0..size.users {
            self.put(&all, &self.name(&user(n))).await;
        }
        all
    }

    /// Returns what some act costs.
    async fn cost<T>(&self, act: impl Future<Output = T>) -> (T, Work) {
        *self.count.lock().expect("nobody panicked") = Work::default();
        let done = act.await;
        (done, *self.count.lock().expect("nobody panicked"))
    }

    async fn pages_of_users(&self) -> Vec<usize> {
        let (by, mut after, mut pages) = (self.admin().await, None, Vec::new());
        loop {
            let page = self.auth.accounts().users(&by, after.as_ref()).await.expect("it may");
            let Some(last) = page.last() else { return pages };
            after = Some(last.name.clone());
            pages.push(page.len());
        }
    }

    async fn pages_of_groups(&self, by: &Caller) -> Vec<usize> {
        let (mut after, mut pages) = (None, Vec::new());
        loop {
            let page = self.auth.accounts().groups(by, after.as_ref()).await.expect("it may");
            let Some(last) = page.last() else { return pages };
            after = Some(last.name.clone());
            pages.push(page.len());
        }
    }

    async fn members_of(&self, group: &CallerName) -> Vec<CallerName> {
        let (by, mut all) = (self.admin().await, Vec::<CallerName>::new());
        loop {
            let after = all.last().map(CallerName::id);
            let page = self.auth.accounts().members(&by, group, after).await.expect("it may");
            assert!(page.len() <= limits::GROUP_MEMBERS_TOLD);
            if page.is_empty() {
                return all;
            }
            all.extend(page);
        }
    }
}

#[test]
fn in_a_domain_of_many_each_act_costs_what_it_is_about_and_not_what_there_is() {
    let size = Size::of_this_run();
    simulate(51, |sys| async move {
        let town = Town::start(&sys, SimDisk::new()).await;
        let all = town.fill(&size).await;
        let (town, started) = restarted(town).await;
        // The line of each user, and a little beside.
        assert!(started.read < size.users as u64 + 100 && started.wrote < 10, "a start: {started:?}");
        logins(&town, &size).await;
        changes(&town, &all).await;
        listings(&town, &size, &all).await;
        let by = town.admin().await;
        let (found, check) = town.cost(town.auth.check(&by)).await;
        assert_eq!(found.expect("it can look").first(), None);
        let rows = 8 * size.users as u64 + 10 * size.groups as u64 + 5000;
        assert!(check.read < 3 * rows, "a check: {check:?}");
        removal(&town, &size, &all).await;
    });
}

/// Of users without a password and a group version 1 kept no line, so each gets one on the way.
#[test]
fn tables_of_version_1_are_taken_up_some_at_a_time_and_a_start_that_is_cut_off_goes_on() {
    simulate(52, |sys| async move {
        let town = Town::start(&sys, SimDisk::new()).await;
        for n in 0..2 * limits::AUTH_STEP_ROWS {
            town.add_user(&user(n), None, None).await;
        }
        as_version_1(&*town.engine).await;
        let (sys, mut disk) = town.stop().await;
        for cut in [1, 2, 1] {
            let started = Town::try_start(&sys, disk.clone(), cut).await.map(drop);
            assert_eq!(started.map_err(|error| error.kind()), Err(ErrorKind::Unavailable));
            disk = disk.kill();
        }
        let town = Town::start(&sys, disk).await;
        let started = *town.count.lock().expect("nobody panicked");
        assert!(
            started.transactions > 1 && started.wrote <= 2 * limits::AUTH_STEP_ROWS as u64 + 1,
            "{started:?}"
        );
        assert_eq!(town.auth.check(&town.admin().await).await.expect("it can look").first(), None);
        assert_eq!(town.pages_of_users().await.iter().sum::<usize>(), 2 * limits::AUTH_STEP_ROWS + 1);
    });
}

async fn restarted(town: Town) -> (Town, Work) {
    let town = town.restart().await;
    let work = *town.count.lock().expect("nobody panicked");
    (town, work)
}

async fn logins(town: &Town, size: &Size) {
    let makers = size.groups.div_ceil(limits::GROUPS_OWNED_MAX);
    let word = || Evidence::Password { user: user(makers), password: Secret::new("a word") };
    let (plain, login) = town.cost(town.by(word())).await;
    assert!(login.read < 16 && login.wrote < 8, "a login: {login:?}");
    assert_eq!(plain.claims().groups.len(), 1);
    assert_eq!(town.cost(town.by(word())).await.1.read, 0, "a password that is repeated");
    let life = limits::CREDENTIAL_LIFE;
    let uid = weft_core::service::UserEdit::Uid(Some(1999));
    let busy = town.name(&user(size.users - 1));
    town.auth.accounts().edit_user(&town.admin().await, &busy, &uid).await.expect("it is free");
    let (busy, login) = town.cost(town.by(Evidence::SocketUid(1999))).await;
    assert_eq!(busy.claims().groups.len(), limits::MEMBERSHIPS_MAX);
    assert!(login.read < limits::MEMBERSHIPS_MAX as u64 + 16, "one who is in many groups: {login:?}");
    let signed = town.auth.authority().credential(&busy, busy.limits(), life).await.expect("it may");
    let token = || Evidence::Token(Secret::new(signed.to_token()));
    assert_eq!(town.by(token()).await.claims().groups.len(), limits::MEMBERSHIPS_MAX);
    assert_eq!(town.cost(town.by(token())).await.1, Work::default(), "a request by a credential");
}

async fn changes(town: &Town, all: &CallerName) {
    let admin = town.admin().await;
    let (_, added) = town.cost(town.add_user("new", None, None)).await;
    assert!(added.read < 24 && added.wrote < 12, "a new user: {added:?}");
    // With the long counts the group is as large as may be.
    let one = town.name(&user(1));
    let accounts = town.auth.accounts();
    for edit in [GroupEdit::Remove(one.clone()), GroupEdit::Add(one)] {
        let (answer, edited) = town.cost(accounts.edit_group(&admin, all, &edit)).await;
        assert!(answer.expect("it may").members.is_empty(), "too many to be told");
        assert!(edited.read < 32 && edited.wrote < 12, "{edit}: {edited:?}");
    }
}

async fn listings(town: &Town, size: &Size, all: &CallerName) {
    let (pages, listed) = town.cost(town.pages_of_users()).await;
    assert_eq!(pages.iter().sum::<usize>(), size.users + 2);
    assert_eq!(pages.len(), (size.users + 2).div_ceil(limits::ACCOUNTS_PAGE_MAX));
    assert!(listed.read < size.users as u64 * 11 / 10, "all users: {listed:?}");
    let admin = town.admin().await;
    let (pages, listed) = town.cost(town.pages_of_groups(&admin)).await;
    assert_eq!(pages.iter().sum::<usize>(), size.groups + 2);
    assert!(listed.read < 4 * size.groups as u64 + 5000, "all groups: {listed:?}");
    let (members, told) = town.cost(town.members_of(all)).await;
    assert_eq!(members.len(), size.users);
    assert!(told.read < size.users as u64 * 11 / 10, "all members: {told:?}");
    let busy = town.by(Evidence::SocketUid(1999)).await;
    let (pages, listed) = town.cost(town.pages_of_groups(&busy)).await;
    assert_eq!(pages.iter().sum::<usize>(), limits::MEMBERSHIPS_MAX);
    assert!(
        listed.read < 16 * limits::MEMBERSHIPS_MAX as u64,
        "the groups of one who is in many: {listed:?}"
    );
}

async fn removal(town: &Town, size: &Size, all: &CallerName) {
    let admin = town.admin().await;
    let (answer, removed) = town.cost(town.auth.accounts().remove_group(&admin, all)).await;
    answer.expect("it may");
    // No transaction grows with the group.
    assert!(removed.wrote <= 5 * limits::GROUP_MEMBERS_TOLD as u64, "a group of everybody: {removed:?}");
    let parts = size.users.div_ceil(limits::GROUP_MEMBERS_TOLD) as u64;
    assert!(removed.transactions <= parts + 8, "a group of everybody: {removed:?}");
    let gone: Result<_> = town.auth.accounts().members(&admin, all, None).await;
    assert_eq!(gone.map_err(|error: Error| error.kind()), Err(ErrorKind::NotFound));
}
