//! A node with a container for every caller, right and side, and everybody who asks.
//!
//! `/CALLER/PLACE.SIDE` is a container of its own with one thing of each kind; where
//! something is removed or renamed, one more of each kind for each door that does it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::{join_all, try_join_all};
use tokio::net::UnixStream;
use tokio::runtime::Runtime;
use weft_client::Client;
use weft_core::acl::{Acl, AclEntry, Who};
use weft_core::attr::SetAttr;
use weft_core::drop_box::NOT_FOR_ANYONE;
use weft_core::form::{Ack, At, Call, Door, FileSystem, Guard, Origin, Scope};
use weft_core::policy::PolicyEdit;
use weft_core::proof::{Attenuation, Signed};
use weft_core::service::{
    Accounts, Evidence, GroupEdit, LinkGives, Links, NewLink, NewToken, NewUser, Node as _, Revoke, Secret,
    Tokens,
};
use weft_core::{
    CallerName, ContainerId, Deadline, DomainId, ErrorKind, FileId, RelPath, Result, Rights, limits,
};
use weft_rpc::{As, Connection, Remote};
use weft_sys::Sys;

use super::http::Question;
use super::mount::{self, Mount, Started};
use super::native::{at, new};
use super::{
    Answers, Cell, DOORS, Ground, Place, RIGHTS, SIDES, bytes_of, dir_of, native, places, right, right_at,
    secured, vouched,
};
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
/// The user whose credentials are revoked.
const ENDED: &str = "rita";

/// Somebody who asks, with one credential.
pub struct Person {
    pub id: usize,
    pub token: Option<String>,
    /// What HTTP is shown, if that is not the credential.
    shown: Shown,
    pub remote: Arc<Remote>,
    client: Client,
}

/// What HTTP is shown.
enum Shown {
    /// The credential, if there is one.
    Credential,
    /// A token for programs, or of an issuer.
    Token(String),
    /// A user's name and password.
    Password(&'static str),
    /// Nothing, but what lies below a directory is asked for by this address.
    Link { of: &'static str, address: String },
    /// The certificate that TLS is shown.
    Certificate,
}

/// One container of the world.
pub struct Member {
    pub container: ContainerId,
    /// What is in it, by kind.
    pub things: BTreeMap<&'static str, FileId>,
}

pub struct World {
    ground: &'static Ground,
    node: Node,
    runtime: Runtime,
    admin: Person,
    members: BTreeMap<Place, Member>,
    people: BTreeMap<Place, Arc<Person>>,
    /// Who has every right everywhere.
    keeper: Arc<Person>,
    /// Whose credential is revoked before the first question.
    ended: Arc<Person>,
}

impl Person {
    /// Makes somebody who speaks over the one stub that numbers a connection's credentials.
    fn new(id: usize, remote: &Arc<Remote>, token: Option<String>) -> Result<Self> {
        let signed = token.as_deref().map(Signed::from_token).transpose()?;
        let client = Client::over(remote.connection().clone(), signed.as_ref())?;
        Ok(Self { id, token, shown: Shown::Credential, remote: remote.clone(), client })
    }

    /// Returns what a cell asks in their name.
    pub fn question(&self, cell: &Cell) -> Option<Question> {
        let mut question = Question::of(cell)?;
        if let Shown::Link { of, address } = &self.shown {
            let below = question.target.strip_prefix(of).expect("only that is asked for");
            question.target = format!("{address}{below}");
        }
        Some(question)
    }

    fn bearer(&self) -> Option<&str> {
        match &self.shown {
            Shown::Token(token) => Some(token),
            _ => self.token.as_deref(),
        }
    }

    /// Returns HTTP in the clear in their name.
    fn http(&self, node: &Node) -> Http {
        match self.shown {
            Shown::Password(user) => Http::basic(node.address(), user, &password(user)),
            _ => node.http(self.bearer()),
        }
    }

    /// Returns curl's names of what it is to show, and that.
    pub fn shown_to_curl(&self) -> Vec<(&'static str, String)> {
        match (&self.shown, self.bearer()) {
            (Shown::Password(user), _) => vec![("user", format!("{user}:{}", password(user)))],
            (Shown::Certificate, _) => {
                vouched::CERTIFICATE.map(|(name, file)| (name, file.to_owned())).to_vec()
            }
            (_, Some(token)) => vec![("header", format!("Authorization: Bearer {token}"))],
            (_, None) => Vec::new(),
        }
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
        "issuer" => vouched::USERS[0],
        "certificate" => vouched::USERS[1],
        "stranger" => "stan",
        "revoked" => ENDED,
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
            // A copy takes the properties along.
            "dav-read" => Rights::INSERT | Rights::ATTR_READ,
            "dav-insert" => Rights::READ | Rights::ATTR_READ,
            // A directory is looked into before it is moved.
            "dav-rename" => Rights::LIST,
            // It keeps others from writing, so it is for who writes.
            "dav-lock" => Rights::ATTR_WRITE,
            // The properties that are there are looked at.
            "dav-attr-write" => Rights::ATTR_READ,
            _ => Rights::NONE,
        }
}

/// Returns the rights on one side.
fn given(name: &str, side: &str) -> Rights {
    let right = right(right_at(name));
    if side == "with" { right | beside(name) } else { Rights::ALL - right }
}

/// Returns a container's ACL; `keeper` only keeps it changeable.
fn acl(caller: &str, who: Option<Who>, keeper: Who, name: &str, side: &str, version: u64) -> Acl {
    let mut entries = vec![AclEntry::allow(keeper, Rights::ALL)];
    match (caller, who) {
        (_, None) => {}
        ("administrator" | "owner" | "member" | "domain" | "link" | "certificate", Some(who)) => {
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
    ground: &'static Ground,
    node: &'a Node,
    admin: &'a Person,
    administrators: Who,
    domain: DomainId,
    keeper: Who,
}

impl World {
    pub fn new(ground: &'static Ground) -> Self {
        let mut node = Node::unstarted();
        vouched::furnish(&mut node);
        node.up();
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
            let members = Maker::new(ground, &node, &admin).await?.make().await?;
            let people = people(ground, &node, &admin, token).await?;
            let mut others = Vec::new();
            for (id, user) in (people.len() + 1..).zip([KEEPER, ENDED]) {
                let token = login_as(&admin, user, Attenuation::default(), limits::CREDENTIAL_LIFE).await?;
                others.push(Arc::new(Person::new(id, &remote, Some(token))?));
            }
            let [keeper, ended] = others.try_into().map_err(drop).expect("they are two");
            Ok::<_, weft_core::Error>((admin, members, people, keeper, ended))
        });
        let (admin, members, people, keeper, ended) = made.expect("the world is made");
        Self { ground, node, runtime, admin, members, people, keeper, ended }
    }

    /// Asks one thing as a node does that takes whoever asks for another: for one who may do all, or
    /// for one whose credential has ended.
    pub fn ask_wrongly(&self, cell: &Cell, lets_through: bool) -> String {
        let taken_for = if lets_through { &self.keeper } else { &self.ended };
        match cell.door {
            "http" | "webdav" => ask_http(&self.node, taken_for, cell),
            "https2" => secured::ask(&self.node, taken_for, &[*cell])[cell].clone(),
            "mount" => asked(&Mount::start(&self.node, taken_for), &[*cell])[cell].clone(),
            _ => {
                let member = &self.members[&cell.place()];
                self.runtime.block_on(native::ask(taken_for, cell, member))
            }
        }
    }

    fn person(&self, cell: &Cell) -> &Arc<Person> {
        &self.people[&cell.place()]
    }

    /// Asks every question, at each door.
    pub fn ask(&self) -> Answers {
        let start = Instant::now();
        let ended = |caller: &str| matches!(caller, "revoked" | "expired");
        let (reached, closed): (Vec<Cell>, Vec<Cell>) = Cell::all(self.ground).partition(Cell::can_come);
        let (late, early): (Vec<Cell>, Vec<Cell>) = reached.into_iter().partition(|cell| ended(cell.caller));
        // What is to end must have begun: mounted, and known to the node.
        let standing: BTreeMap<usize, Started> = self
            .by_person("mount", &late)
            .into_iter()
            .map(|(who, _)| (who.id, Mount::start(&self.node, who)))
            .collect();
        self.runtime.block_on(self.end_credentials()).expect("revoked");
        let mut came = self.ask_mounts(&early);
        came.extend(self.ask_streams(&early));
        // The minute that is waited for began before the first question.
        self.wait_for_the_end();
        for (who, cells) in self.by_person("mount", &late) {
            came.extend(asked(&standing[&who.id], &cells));
        }
        came.extend(self.ask_streams(&late));
        came.extend(closed.into_iter().map(|cell| (cell, "not-offered".to_owned())));
        println!("asked in {:?}", start.elapsed());
        came
    }

    /// Presents the credentials that are to end, and revokes one caller's.
    async fn end_credentials(&self) -> Result<()> {
        let known = ["revoked", "expired"].into_iter().filter_map(|caller| self.first(caller));
        for who in known.chain([&self.ended]) {
            who.remote.who_am_i(&who.call().caller).await?;
        }
        let rita = CallerName::user(ENDED, self.admin.client.domain())?;
        self.admin.remote.revoke(&self.admin.call().caller, Revoke::Caller(rita)).await
    }

    /// Returns who asks first for a caller, if it is one of this world.
    fn first(&self, caller: &'static str) -> Option<&Arc<Person>> {
        self.people.get(&(caller, RIGHTS[0], SIDES[0]))
    }

    /// Waits until the node says that the short-lived credential has run out, or should have
    /// and has not: then the cells differ.
    fn wait_for_the_end(&self) {
        let Some(who) = self.first("expired") else { return };
        let until = Instant::now() + LIFE + limits::CLOCK_SKEW_MAX + SLACK;
        while self.node.http(who.token.as_deref()).get("/").status != 401 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Returns the questions at a door, by who asks.
    fn by_person(&self, door: &str, cells: &[Cell]) -> Vec<(&Arc<Person>, Vec<Cell>)> {
        let mut by: BTreeMap<usize, (&Arc<Person>, Vec<Cell>)> = BTreeMap::new();
        let can_be = |cell: &&Cell| cell.door == door && (door != "mount" || mount::can_be(cell));
        for cell in cells.iter().filter(can_be) {
            let who = self.person(cell);
            by.entry(who.id).or_insert_with(|| (who, Vec::new())).1.push(*cell);
        }
        by.into_values().collect()
    }

    fn ask_mounts(&self, cells: &[Cell]) -> Answers {
        let left = Mutex::new(self.by_person("mount", cells));
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
            for caller in self.ground.callers {
                let ask = |cell: Cell| async move {
                    let member = &self.members[&cell.place()];
                    (cell, native::ask(self.person(&cell), &cell, member).await)
                };
                came.extend(join_all(of("native").filter(|cell| cell.caller == *caller).map(ask)).await);
            }
            came
        });
        for door in ["http", "webdav"] {
            came.extend(of(door).map(|cell| (cell, ask_http(&self.node, self.person(&cell), &cell))));
        }
        for (who, cells) in self.by_person("https2", cells) {
            came.extend(secured::ask(&self.node, who, &cells));
        }
        came
    }
}

fn ask_http(node: &Node, who: &Person, cell: &Cell) -> String {
    let ask = |question: Question| question.ask(&who.http(node), cell);
    who.question(cell).map_or_else(|| "not-offered".to_owned(), ask)
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
async fn people(
    ground: &Ground,
    node: &Node,
    admin: &Person,
    token: String,
) -> Result<BTreeMap<Place, Arc<Person>>> {
    let mut people: BTreeMap<Place, Arc<Person>> = BTreeMap::new();
    let mut ids = 1..;
    for &caller in ground.callers {
        let mut known: Vec<(Attenuation, &str, Arc<Person>)> = Vec::new();
        for place @ (_, name, side) in places(caller) {
            let limits = narrowed(caller, name, side);
            let scopes = if caller == "issuer" { vouched::scopes(name, side) } else { "" };
            let same = known.iter().find(|(own, said, _)| *own == limits && *said == scopes);
            let who = match same {
                Some((_, _, who)) => who.clone(),
                None => {
                    let (token, shown) = match caller {
                        "administrator" => (Some(token.clone()), Shown::Credential),
                        "token" => token_of(admin, &format!("{name}.{side}"), limits.clone()).await?,
                        "issuer" => issued(admin, vouched::token(node, scopes)).await?,
                        "link" => (None, link(admin).await?),
                        "owner" => (login(admin, caller, limits.clone()).await?, Shown::Password("olga")),
                        "certificate" => (None, Shown::Certificate),
                        _ => (login(admin, caller, limits.clone()).await?, Shown::Credential),
                    };
                    let id = ids.next().expect("endless");
                    Arc::new(Person { shown, ..Person::new(id, &admin.remote, token)? })
                }
            };
            known.push((limits, scopes, who.clone()));
            people.insert(place, who);
        }
    }
    Ok(people)
}

/// Makes a link to all that is the link's. A link is no login, at no door.
async fn link(admin: &Person) -> Result<Shown> {
    let new = NewLink { gives: LinkGives::Read, life: limits::CREDENTIAL_LIFE, count: None, pin: false };
    let from = Origin { door: Door::Native, peer: None, uid: None };
    let path = RelPath::try_from("link")?;
    let secret = admin.remote.make_link(&admin.call().caller, from, &path, &new).await?.secret;
    let evidence = Evidence::Link(secret.clone());
    let login = admin.remote.login(evidence, Attenuation::default(), limits::CREDENTIAL_LIFE).await;
    assert_eq!(login.map(drop).expect_err("a link is no login").kind(), ErrorKind::NotPermitted);
    Ok(Shown::Link { of: "/link", address: format!("/.weft/link/{}", secret.expose()) })
}

/// Returns the credential that a token lets in with at the native door, and what HTTP is shown.
async fn issued(admin: &Person, token: String) -> Result<(Option<String>, Shown)> {
    let evidence = Evidence::Token(Secret::new(token.clone()));
    let signed = admin.remote.login(evidence, Attenuation::default(), limits::CREDENTIAL_LIFE).await?;
    Ok((Some(signed.to_token()), Shown::Token(token)))
}

async fn login(admin: &Person, caller: &str, limits: Attenuation) -> Result<Option<String>> {
    let Some(user) = user(caller) else { return Ok(None) };
    let life = if caller == "expired" { LIFE } else { limits::CREDENTIAL_LIFE };
    login_as(admin, user, limits, life).await.map(Some)
}

/// Makes a token for programs, which lets in as an issuer's does.
async fn token_of(admin: &Person, name: &str, limits: Attenuation) -> Result<(Option<String>, Shown)> {
    let tom = login_as(admin, "tom", Attenuation::default(), limits::CREDENTIAL_LIFE).await?;
    let tom = Person::new(0, &admin.remote, Some(tom))?;
    let new = NewToken { name: name.to_owned(), limits, life: limits::CREDENTIAL_LIFE };
    let secret = admin.remote.make_token(&tom.call().caller, &new).await?.secret;
    issued(admin, secret.expose().to_owned()).await
}

async fn login_as(admin: &Person, user: &str, limits: Attenuation, life: Duration) -> Result<String> {
    let evidence = Evidence::Password { user: user.to_owned(), password: Secret::new(password(user)) };
    admin.remote.login(evidence, limits, life).await.map(|signed| signed.to_token())
}

impl<'a> Maker<'a> {
    async fn new(ground: &'static Ground, node: &'a Node, admin: &'a Person) -> Result<Self> {
        let domain = admin.client.domain();
        let root = admin.remote.policy(&admin.call(), &At::id(FileId::ROOT)).await?;
        let administrators = root.acl.entries[0].who.clone();
        let keeper = Who::Caller(CallerName::user(KEEPER, domain)?);
        Ok(Self { ground, node, admin, administrators, domain, keeper })
    }

    async fn make(&self) -> Result<BTreeMap<Place, Member>> {
        let caller = &self.admin.call().caller;
        let users = self.ground.callers.iter().filter_map(|caller| user(caller));
        for user in users.chain([KEEPER, ENDED]).collect::<BTreeSet<_>>() {
            let password = Some(Secret::new(password(user)));
            let user = NewUser { name: user.to_owned(), password, uid: None };
            self.admin.remote.add_user(caller, &user).await?;
        }
        let group = self.admin.remote.add_group(caller, "readers").await?.name;
        let mel = GroupEdit::Add(CallerName::user("mel", self.domain)?);
        self.admin.remote.edit_group(caller, &group, &mel).await?;
        let mut members = BTreeMap::new();
        for &caller in self.ground.callers {
            let who = match (caller, user(caller)) {
                // The link is an administrator's, and gives what they may.
                ("administrator" | "link", _) => Some(self.administrators.clone()),
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

    /// Shares a directory of the machine. The owner of one made it when she was an administrator, which she is no
    /// longer: she may what its entries say.
    async fn share(&self, caller: &str, top: &str) -> Result<()> {
        let directory = self.node.make_dir(&format!("shared-{caller}")).display().to_string();
        let (from, path) = (Origin { door: Door::Native, peer: None, uid: None }, at(top).path);
        let Some(maker) = user(caller).filter(|_| caller == "owner") else {
            return self
                .admin
                .remote
                .share(&self.admin.call().caller, from, &directory, &path)
                .await
                .map(drop);
        };
        let (admin, group) = (self.admin.call().caller, self.administrators.clone());
        let (Who::Caller(group), name) = (group, CallerName::user(maker, self.domain)?) else {
            unreachable!("administrators are a group")
        };
        self.admin.remote.edit_group(&admin, &group, &GroupEdit::Add(name.clone())).await?;
        let token = login_as(self.admin, maker, Attenuation::default(), limits::CREDENTIAL_LIFE).await?;
        let maker = Person::new(0, &self.admin.remote, Some(token))?;
        maker.remote.share(&maker.call().caller, from, &directory, &path).await?;
        self.admin.remote.edit_group(&admin, &group, &GroupEdit::Remove(name)).await.map(drop)
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
        if self.ground.is_shared {
            self.share(caller, &top).await?;
        } else {
            self.make_thing(&top, "directory", None).await?;
        }
        let version = self.admin.remote.policy(&self.admin.call(), &at(&top)).await?.acl.version;
        let mut entries = vec![
            AclEntry::allow(self.administrators.clone(), Rights::ALL),
            AclEntry::allow(self.keeper.clone(), Rights::ALL),
        ];
        entries.extend(who.iter().map(|who| AclEntry::allow(who.clone(), Rights::TRAVERSE)));
        self.protect(&top, Acl { version, entries }).await?;
        let version = self.admin.remote.policy(&self.admin.call(), &at(&top)).await?.acl.version;
        let places: Vec<Place> = places(caller).collect();
        // First all things, then all policies: each split ends what was issued for the rest.
        let things = try_join_all(places.iter().map(|place| self.things(*place))).await?;
        let protected = places.iter().map(|place @ (caller, name, side)| {
            let acl = acl(caller, who.clone(), self.keeper.clone(), name, side, version);
            async move { self.protect(&dir_of(*place), acl).await }
        });
        let containers = try_join_all(protected).await?;
        let members =
            containers.into_iter().zip(things).map(|(container, things)| Member { container, things });
        Ok(places.into_iter().zip(members).collect())
    }

    /// Makes the things of one container. Files have bytes where they are touched.
    async fn things(&self, place: Place) -> Result<BTreeMap<&'static str, FileId>> {
        let ((caller, name, _), dir) = (place, dir_of(place));
        // Whose what lies in a shared directory is, the machine says.
        let owner = user(caller).filter(|_| caller == "owner" && !self.ground.is_shared);
        let owner = owner.map(|user| CallerName::user(user, self.domain)).transpose()?;
        self.make_thing(&dir, "directory", owner.as_ref()).await?;
        let mut things = BTreeMap::new();
        for &kind in self.ground.kinds {
            things.insert(kind, self.make_thing(&format!("{dir}/{kind}"), kind, owner.as_ref()).await?);
            for door in spare_at(name) {
                self.make_thing(&format!("{dir}/{door}.{kind}"), kind, owner.as_ref()).await?;
            }
        }
        if matches!(name, "read" | "write" | "append" | "execute" | "traverse" | "dav-read" | "dav-insert") {
            let files = self.ground.kinds.iter().filter(|kind| matches!(**kind, "file" | "small"));
            for kind in files {
                native::write(self.admin, at(&format!("{dir}/{kind}")), Rights::WRITE, bytes_of(kind))
                    .await?;
            }
        }
        Ok(things)
    }
}

/// Returns the doors that remove or rename something at a place.
fn spare_at(name: &str) -> &'static [&'static str] {
    match name {
        "remove" => &DOORS,
        "rename" => &["native", "mount"],
        "dav-rename" => &["webdav", "https2"],
        _ => &[],
    }
}
