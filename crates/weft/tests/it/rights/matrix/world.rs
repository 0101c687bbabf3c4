//! A node with a container for every caller, right and side, and everybody who asks.
//!
//! `/CALLER/RIGHT.SIDE` is a container of its own with one thing of each kind; where
//! something is removed or renamed, one more of each kind for each door.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::{join_all, try_join_all};
use tokio::net::UnixStream;
use tokio::runtime::Runtime;
use weft_client::Client;
use weft_core::acl::{Acl, AclEntry, Who};
use weft_core::attr::SetAttr;
use weft_core::drop_box::NOT_FOR_ANYONE;
use weft_core::form::{Ack, At, Call, FileSystem, Guard, Scope};
use weft_core::policy::PolicyEdit;
use weft_core::proof::{Attenuation, Signed};
use weft_core::service::{Accounts, Evidence, GroupEdit, NewToken, NewUser, Revoke, Secret, Tokens};
use weft_core::{CallerName, ContainerId, Deadline, DomainId, FileId, Result, Rights, limits};
use weft_rpc::{As, Connection, Remote};
use weft_sys::Sys;

use super::mount::{self, Mount, Started};
use super::native::{at, new};
use super::{Answers, CALLERS, Cell, DOORS, KINDS, RIGHTS, SIDES, bytes_of, http, native, right};
use crate::http::Http;
use crate::node::Node;

/// How long the credential lives that is to run out; the skew of clocks comes on top.
const LIFE: Duration = Duration::from_secs(1);
/// How much later than that the node may say so.
const SLACK: Duration = Duration::from_secs(10);
/// More than anything here may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// How many mounts stand at the same time, beside those that must.
const MOUNTS: usize = 4;

/// The user that keeps every container changeable.
const KEEPER: &str = "keeper";

/// Somebody who asks, with one credential.
pub struct Person {
    pub id: usize,
    pub token: Option<String>,
    /// What HTTP is shown, if that is not the credential: a token for programs.
    bearer: Option<String>,
    pub remote: Arc<Remote>,
    client: Client,
}

/// One container of the world.
pub struct Member {
    pub container: ContainerId,
    /// What is in it, by kind.
    pub things: BTreeMap<&'static str, FileId>,
}

type Place = (&'static str, &'static str, &'static str);

pub struct World {
    node: Node,
    runtime: Runtime,
    admin: Person,
    members: BTreeMap<Place, Member>,
    people: BTreeMap<Place, Arc<Person>>,
    /// Who has every right everywhere.
    keeper: Arc<Person>,
}

impl Person {
    /// Makes somebody who speaks over the one stub that numbers a connection's credentials.
    fn new(id: usize, remote: &Arc<Remote>, token: Option<String>) -> Result<Self> {
        let signed = token.as_deref().map(Signed::from_token).transpose()?;
        let client = Client::over(remote.connection().clone(), signed.as_ref())?;
        Ok(Self { id, token, bearer: None, remote: remote.clone(), client })
    }

    /// Returns what HTTP is shown.
    fn shown(&self) -> Option<&str> {
        self.bearer.as_deref().or(self.token.as_deref())
    }

    /// Returns a call in their name.
    pub fn call(&self) -> Call {
        Call { ack: Ack::Applied, ..self.client.call() }
    }
}

/// Returns the name of the user behind a caller of the matrix, if there is one.
fn user(caller: &str) -> Option<&'static str> {
    Some(match caller {
        "owner" => "olga",
        "member" => "mel",
        "domain" => "dora",
        "negative" => "nick",
        "narrowed-rights" => "nora",
        "narrowed-path" => "pete",
        "narrowed-host" => "hugo",
        "token" => "tom",
        "stranger" => "stan",
        "revoked" => "rita",
        "expired" => "exa",
        _ => return None,
    })
}

/// Returns what a right is given with: the way there, and what its operation at some door
/// needs as well.
fn beside(name: &str) -> Rights {
    Rights::TRAVERSE
        | match name {
            // HTTP passes a directory on the way to bytes or names only.
            "traverse" => Rights::READ | Rights::LIST,
            // At the mount what is locked is open, and open for reading at least.
            "lock" => Rights::READ,
            // HTTP shows attributes in listings.
            "attr-read" => Rights::LIST,
            _ => Rights::NONE,
        }
}

/// Returns the rights on one side.
fn given(name: &str, side: &str) -> Rights {
    if side == "with" { right(name) | beside(name) } else { Rights::ALL - right(name) }
}

/// Returns a container's ACL; `keeper` only keeps it changeable.
fn acl(caller: &str, who: Option<Who>, keeper: Who, name: &str, side: &str, version: u64) -> Acl {
    let mut entries = vec![AclEntry::allow(keeper, Rights::ALL)];
    match (caller, who) {
        (_, None) => {}
        ("administrator" | "owner" | "member" | "domain", Some(who)) => {
            entries.push(AclEntry::allow(who, given(name, side)));
        }
        // More is not taken.
        ("anyone", Some(who)) => entries.push(AclEntry::allow(who, given(name, side) - NOT_FOR_ANYONE)),
        ("negative", Some(who)) => {
            entries.push(AclEntry::allow(who.clone(), Rights::ALL));
            entries.push(AclEntry::deny(who, Rights::ALL - given(name, side)));
        }
        // What these lack, their credentials lack.
        (_, Some(who)) => entries.push(AclEntry::allow(who, Rights::ALL)),
    }
    Acl { version, entries }
}

/// Returns what the credential is narrowed to.
fn narrowed(caller: &str, name: &str, side: &str) -> Attenuation {
    let with = side == "with";
    let below = |path: &str| vec![at(path).path];
    let network = |text: &str| vec![text.parse().expect("a network")];
    let limits = Attenuation::default();
    match caller {
        "narrowed-rights" | "token" => Attenuation { rights: given(name, side), ..limits },
        "narrowed-path" => {
            Attenuation { paths: below(if with { "/narrowed-path" } else { "/elsewhere" }), ..limits }
        }
        "narrowed-host" => {
            Attenuation { hosts: network(if with { "127.0.0.0/8" } else { "10.0.0.0/8" }), ..limits }
        }
        _ => limits,
    }
}

/// Makes the world, a caller's part at a time.
struct Maker<'a> {
    admin: &'a Person,
    administrators: Who,
    domain: DomainId,
    keeper: Who,
}

impl World {
    pub fn new() -> Self {
        let mut node = Node::start();
        // Containers are split faster here than a proof for one relabelling lives.
        node.allow("labels lag behind");
        let runtime = Runtime::new().expect("a runtime");
        let token = node.token();
        let made = runtime.block_on(async {
            let sys = Sys::real();
            let line = UnixStream::connect(node.data().join("node.sock")).await.expect("it listens");
            let until = Deadline::within(sys.clock(), PATIENCE);
            let connection = Connection::open(&sys, line, until).await?;
            let remote = Arc::new(Remote::new(connection, As::Anyone));
            let admin = Person::new(0, &remote, Some(token.clone()))?;
            let members = Maker::new(&admin).await?.make().await?;
            let people = people(&admin, token).await?;
            let keeper = login_as(&admin, KEEPER, Attenuation::default(), limits::CREDENTIAL_LIFE).await?;
            let keeper = Arc::new(Person::new(people.len() + 1, &remote, Some(keeper))?);
            Ok::<_, weft_core::Error>((admin, members, people, keeper))
        });
        let (admin, members, people, keeper) = made.expect("the world is made");
        Self { node, runtime, admin, members, people, keeper }
    }

    /// Asks one thing as a node does that takes whoever asks for another: for one who may do all, or
    /// for one whose credential has ended.
    pub fn ask_wrongly(&self, cell: &Cell, lets_through: bool) -> String {
        let ended = &self.people[&("revoked", RIGHTS[0], SIDES[0])];
        let taken_for = if lets_through { &self.keeper } else { ended };
        match cell.door {
            "http" => http::ask(&self.node.http(taken_for.token.as_deref()), cell),
            "mount" => asked(&Mount::start(&self.node, taken_for), &[*cell])[cell].clone(),
            _ => {
                let member = &self.members[&(cell.caller, cell.right, cell.side)];
                self.runtime.block_on(native::ask(taken_for, cell, member))
            }
        }
    }

    fn person(&self, cell: &Cell) -> &Arc<Person> {
        &self.people[&(cell.caller, cell.right, cell.side)]
    }

    /// Asks every question, at each door.
    pub fn ask(&self) -> Answers {
        let start = Instant::now();
        let ended = |caller: &str| matches!(caller, "revoked" | "expired");
        let (late, early): (Vec<Cell>, Vec<Cell>) = Cell::all().partition(|cell| ended(cell.caller));
        // What is to end must have begun: mounted, and known to the node.
        let standing: BTreeMap<usize, Started> = self
            .by_person(&late)
            .into_iter()
            .map(|(who, _)| (who.id, Mount::start(&self.node, who)))
            .collect();
        self.runtime.block_on(self.end_credentials()).expect("revoked");
        let mut came = self.ask_mounts(&early);
        came.extend(self.ask_streams(&early));
        // The minute that is waited for began before the first question.
        self.wait_for_the_end();
        for (who, cells) in self.by_person(&late) {
            came.extend(asked(&standing[&who.id], &cells));
        }
        came.extend(self.ask_streams(&late));
        println!("asked in {:?}", start.elapsed());
        came
    }

    /// Presents the credentials that are to end, and revokes one caller's.
    async fn end_credentials(&self) -> Result<()> {
        for caller in ["revoked", "expired"] {
            let who = &self.people[&(caller, RIGHTS[0], SIDES[0])];
            who.remote.who_am_i(&who.call().caller).await?;
        }
        let rita = CallerName::user("rita", self.admin.client.domain())?;
        self.admin.remote.revoke(&self.admin.call().caller, Revoke::Caller(rita)).await
    }

    /// Waits until the node says that the short-lived credential has run out, or should have
    /// and has not: then the cells differ.
    fn wait_for_the_end(&self) {
        let who = &self.people[&("expired", RIGHTS[0], SIDES[0])];
        let until = Instant::now() + LIFE + limits::CLOCK_SKEW_MAX + SLACK;
        while self.node.http(who.token.as_deref()).get("/").status != 401 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Returns the questions to mounts, by whose mount it is.
    fn by_person(&self, cells: &[Cell]) -> Vec<(&Arc<Person>, Vec<Cell>)> {
        let mut by: BTreeMap<usize, (&Arc<Person>, Vec<Cell>)> = BTreeMap::new();
        for cell in cells.iter().filter(|cell| cell.door == "mount" && mount::can_be(cell)) {
            let who = self.person(cell);
            by.entry(who.id).or_insert_with(|| (who, Vec::new())).1.push(*cell);
        }
        by.into_values().collect()
    }

    fn ask_mounts(&self, cells: &[Cell]) -> Answers {
        let left = Mutex::new(self.by_person(cells));
        let work = || {
            let mut came = Answers::new();
            loop {
                let next = left.lock().expect("nobody panics with it").pop();
                let Some((who, cells)) = next else { return came };
                came.extend(asked(&Mount::start(&self.node, who), &cells));
            }
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..MOUNTS).map(|_| scope.spawn(work)).collect();
            workers.into_iter().flat_map(|worker| worker.join().expect("it does not panic")).collect()
        })
    }

    /// Asks HTTP and the native protocol.
    fn ask_streams(&self, cells: &[Cell]) -> Answers {
        let of = |door| cells.iter().copied().filter(move |cell| cell.door == door);
        let mut came: Answers = self.runtime.block_on(async {
            let mut came = Answers::new();
            for caller in CALLERS {
                let ask = |cell: Cell| async move {
                    let member = &self.members[&(cell.caller, cell.right, cell.side)];
                    (cell, native::ask(self.person(&cell), &cell, member).await)
                };
                came.extend(join_all(of("native").filter(|cell| cell.caller == caller).map(ask)).await);
            }
            came
        });
        came.extend(of("http").map(|cell| (cell, http::ask(&self.http(&cell), &cell))));
        came
    }

    /// The owner comes with her password, the others with their tokens.
    fn http(&self, cell: &Cell) -> Http {
        match cell.caller {
            "owner" => Http::basic(self.node.address(), "olga", &password("olga")),
            _ => self.node.http(self.person(cell).shown()),
        }
    }
}

fn asked(mount: &Started, cells: &[Cell]) -> Answers {
    match mount {
        Ok(mount) => mount.ask(cells),
        Err(refused) => {
            // What no mount offers, a mount that is refused does not offer either.
            let answer =
                |cell: &Cell| if mount::offers(cell) { refused.clone() } else { "not-offered".to_owned() };
            cells.iter().map(|cell| (*cell, answer(cell))).collect()
        }
    }
}

fn password(user: &str) -> String {
    format!("the password of {user}")
}

/// Logs everybody in, once for each credential that differs.
async fn people(admin: &Person, token: String) -> Result<BTreeMap<Place, Arc<Person>>> {
    let mut people: BTreeMap<Place, Arc<Person>> = BTreeMap::new();
    let mut ids = 1..;
    let mut person = |token| Person::new(ids.next().expect("endless"), &admin.remote, token);
    for caller in CALLERS {
        let mut known: Vec<(Attenuation, Arc<Person>)> = Vec::new();
        for (name, side) in RIGHTS.into_iter().flat_map(|name| SIDES.map(|side| (name, side))) {
            let limits = narrowed(caller, name, side);
            let same = known.iter().find(|(other, _)| *other == limits).map(|(_, who)| who.clone());
            let who = match (same, caller) {
                (Some(who), _) => who,
                (None, "administrator") => Arc::new(person(Some(token.clone()))?),
                (None, "token") => {
                    let (token, secret) = token_of(admin, &format!("{name}.{side}"), limits.clone()).await?;
                    Arc::new(Person { bearer: Some(secret), ..person(Some(token))? })
                }
                (None, _) => Arc::new(person(login(admin, caller, limits.clone()).await?)?),
            };
            known.push((limits, who.clone()));
            people.insert((caller, name, side), who);
        }
    }
    Ok(people)
}

async fn login(admin: &Person, caller: &str, limits: Attenuation) -> Result<Option<String>> {
    let Some(user) = user(caller) else { return Ok(None) };
    let life = if caller == "expired" { LIFE } else { limits::CREDENTIAL_LIFE };
    login_as(admin, user, limits, life).await.map(Some)
}

/// Makes a token for programs. Returns the credential that it lets in with, and its secret.
async fn token_of(admin: &Person, name: &str, limits: Attenuation) -> Result<(String, String)> {
    let tom = login_as(admin, "tom", Attenuation::default(), limits::CREDENTIAL_LIFE).await?;
    let tom = Person::new(0, &admin.remote, Some(tom))?;
    let new = NewToken { name: name.to_owned(), limits, life: limits::CREDENTIAL_LIFE };
    let secret = admin.remote.make_token(&tom.call().caller, &new).await?.secret;
    let evidence = Evidence::Token(secret.clone());
    let signed = admin.remote.login(evidence, Attenuation::default(), limits::CREDENTIAL_LIFE).await?;
    Ok((signed.to_token(), secret.expose().to_owned()))
}

async fn login_as(admin: &Person, user: &str, limits: Attenuation, life: Duration) -> Result<String> {
    let evidence = Evidence::Password { user: user.to_owned(), password: Secret::new(password(user)) };
    admin.remote.login(evidence, limits, life).await.map(|signed| signed.to_token())
}

impl<'a> Maker<'a> {
    async fn new(admin: &'a Person) -> Result<Self> {
        let domain = admin.client.domain();
        let root = admin.remote.policy(&admin.call(), &At::id(FileId::ROOT)).await?;
        let administrators = root.acl.entries[0].who.clone();
        let keeper = Who::Caller(CallerName::user(KEEPER, domain)?);
        Ok(Self { admin, administrators, domain, keeper })
    }

    async fn make(&self) -> Result<BTreeMap<Place, Member>> {
        let caller = &self.admin.call().caller;
        for user in CALLERS.into_iter().filter_map(user).chain([KEEPER]) {
            let password = Some(Secret::new(password(user)));
            let user = NewUser { name: user.to_owned(), password, uid: None };
            self.admin.remote.add_user(caller, &user).await?;
        }
        let group = self.admin.remote.add_group(caller, "readers").await?.name;
        let mel = GroupEdit::Add(CallerName::user("mel", self.domain)?);
        self.admin.remote.edit_group(caller, &group, &mel).await?;
        let mut members = BTreeMap::new();
        for caller in CALLERS {
            let who = match (caller, user(caller)) {
                ("administrator", _) => Some(self.administrators.clone()),
                ("member", _) => Some(Who::Caller(group.clone())),
                ("domain", _) => Some(Who::Domain(self.domain)),
                ("anyone", _) => Some(Who::Anyone),
                ("stranger", _) => None,
                (_, user) => {
                    user.map(|user| CallerName::user(user, self.domain).map(Who::Caller)).transpose()?
                }
            };
            members.extend(self.part(caller, who).await?);
        }
        Ok(members)
    }

    async fn protect(&self, path: &str, acl: Acl) -> Result<ContainerId> {
        let edit = PolicyEdit { acl: Some(acl), ..PolicyEdit::default() };
        let done = self.admin.remote.protect(&self.admin.call(), &at(path), Scope::Subtree, &edit).await?;
        Ok(done.value.container)
    }

    async fn make_thing(&self, path: &str, kind: &str, owner: Option<&CallerName>) -> Result<FileId> {
        let (fs, call, at) = (&self.admin.remote, self.admin.call(), at(path));
        // A file that may be run, as far as its mode says.
        let set = SetAttr { mode: matches!(kind, "file" | "small").then_some(0o755), ..SetAttr::default() };
        let made = fs.make(&call, &at, new(kind), &set).await?.value.id;
        if let Some(owner) = owner {
            let set = SetAttr { owner: Some(owner.id()), ..SetAttr::default() };
            fs.set(&call, &at, &set, &Guard::NONE).await?;
        }
        Ok(made)
    }

    /// Makes what is one caller's: a directory whose way is open to it, containers below.
    async fn part(&self, caller: &'static str, who: Option<Who>) -> Result<BTreeMap<Place, Member>> {
        let top = format!("/{caller}");
        self.make_thing(&top, "directory", None).await?;
        let version = self.admin.remote.policy(&self.admin.call(), &at(&top)).await?.acl.version;
        let mut entries = vec![
            AclEntry::allow(self.administrators.clone(), Rights::ALL),
            AclEntry::allow(self.keeper.clone(), Rights::ALL),
        ];
        entries.extend(who.iter().map(|who| AclEntry::allow(who.clone(), Rights::TRAVERSE)));
        self.protect(&top, Acl { version, entries }).await?;
        let version = self.admin.remote.policy(&self.admin.call(), &at(&top)).await?.acl.version;
        let places: Vec<Place> =
            RIGHTS.into_iter().flat_map(|name| SIDES.map(|side| (caller, name, side))).collect();
        // First all things, then all policies: each split ends what was issued for the rest.
        let things = try_join_all(places.iter().map(|place| self.things(*place))).await?;
        let protected = places.iter().map(|(caller, name, side)| {
            let acl = acl(caller, who.clone(), self.keeper.clone(), name, side, version);
            async move { self.protect(&format!("/{caller}/{name}.{side}"), acl).await }
        });
        let containers = try_join_all(protected).await?;
        let members =
            containers.into_iter().zip(things).map(|(container, things)| Member { container, things });
        Ok(places.into_iter().zip(members).collect())
    }

    /// Makes the things of one container. Files have bytes where they are touched.
    async fn things(&self, (caller, name, side): Place) -> Result<BTreeMap<&'static str, FileId>> {
        let dir = format!("/{caller}/{name}.{side}");
        let owner = user(caller).filter(|_| caller == "owner");
        let owner = owner.map(|user| CallerName::user(user, self.domain)).transpose()?;
        self.make_thing(&dir, "directory", owner.as_ref()).await?;
        let mut things = BTreeMap::new();
        for kind in KINDS {
            things.insert(kind, self.make_thing(&format!("{dir}/{kind}"), kind, owner.as_ref()).await?);
            if matches!(name, "remove" | "rename") {
                for door in DOORS {
                    self.make_thing(&format!("{dir}/{door}.{kind}"), kind, owner.as_ref()).await?;
                }
            }
        }
        if matches!(name, "read" | "write" | "append" | "execute" | "traverse") {
            for kind in ["file", "small"] {
                native::write(self.admin, at(&format!("{dir}/{kind}")), Rights::WRITE, bytes_of(kind))
                    .await?;
            }
        }
        Ok(things)
    }
}
