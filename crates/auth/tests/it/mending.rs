//! Every table of auth × {missing, extra, cut, bit flipped}: what a check finds, what mending does
//! about it, who may then log in as whom, and that then nothing is found.
//!
//! `mending.txt` is what is expected, cell by cell. A run writes what it found beside the tests'
//! other files and says where; whoever changes the table answers for each line of it.

use std::fmt::Write as _;
use std::time::Duration;

use weft_auth::{LinkTarget, check, mend};
use weft_conformance::tables;
use weft_core::limits::LINK_LIFE;
use weft_core::proof::{Attenuation, Caller, Within};
use weft_core::service::{
    Evidence, Finding, GroupEdit, LinkGives, LinkGrant, NewLink, NewToken, Revoke, Severity, TokenGrant,
    UserEdit,
};
use weft_core::{CallerName, CredentialId, DomainId, FileId, RelPath, Result, VolumeId};
use weft_kv::{Ack, Embedded, Engine, Options, SpaceId};
use weft_sys::{Disk, SimDisk, Sys};

use crate::scene::{FOUNDER_UID, ROOT_WORD, SOCKET, SPACE, Scene, all_rows, as_version_1, scene, settings};

const EXPECTED: &str = include_str!("mending.txt");
const VOLUMES: [VolumeId; 2] = [VolumeId(0), VolumeId(7)];
const ALICES_UID: u32 = 2000;

/// What is done to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    Missing,
    Extra,
    Cut,
    Flipped,
}

/// What some hold from before the damage.
#[derive(Clone)]
struct Held {
    domain: DomainId,
    tokens: Vec<(&'static str, String)>,
    /// A link of alice's.
    link: LinkGrant,
    /// A token of alice's.
    program: TokenGrant,
}

/// A row of each kind, and how it is called.
type Rows = Vec<(&'static str, Vec<u8>)>;

fn eve() -> CallerName {
    CallerName::user("eve", DomainId([2; 32])).expect("a good name")
}

fn word(user: &str) -> &'static str {
    match user {
        "admin" => ROOT_WORD,
        "alice" => "wonder",
        _ => "some other word",
    }
}

async fn logged_in(node: &Scene, user: &str) -> Caller {
    node.login(user, word(user)).await.expect("they may")
}

/// Makes users, a group, withdrawals: rows in every table.
async fn furnish(node: &Scene) -> (Held, Rows) {
    let accounts = node.auth.accounts();
    for user in ["alice", "bob", "carol"] {
        node.add_user(user, word(user)).await;
    }
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|local| node.name(local));
    let uid = UserEdit::Uid(Some(ALICES_UID));
    accounts.edit_user(&node.admin().await, &alice, &uid).await.expect("it is free");
    let team = accounts.add_group(&logged_in(node, "alice").await, "team").await.expect("it is new").name;
    for member in [&alice, &bob, &eve()] {
        let edit = GroupEdit::Add(member.clone());
        accounts.edit_group(&logged_in(node, "alice").await, &team, &edit).await.expect("it is hers");
    }
    let within = Within { root: FileId::ROOT, version: None, hint: RelPath::EMPTY };
    let target = LinkTarget { within, is_directory: true };
    let new = NewLink { gives: LinkGives::Read, life: LINK_LIFE, count: Some(9), pin: false };
    let link = node.auth.links().make(&logged_in(node, "alice").await, target, &new).await.expect("she may");
    let new = NewToken { name: "cron".into(), limits: Attenuation::NONE, life: LINK_LIFE };
    let by = logged_in(node, "alice").await;
    let program = node.auth.tokens().make_token(&by, &new).await.expect("she may");
    let mut held = Held { domain: node.auth.domain(), tokens: Vec::new(), link, program };
    for (whose, user) in
        [("alice's", "alice"), ("bob's", "bob"), ("bob's revoked", "bob"), ("carol's", "carol")]
    {
        held.tokens.push((whose, node.token_of(&logged_in(node, user).await).await));
    }
    held.tokens.push(("admin's", node.token_of(&node.admin().await).await));
    let revoked = node.token(&held.tokens[2].1).await.expect("it is good").credential();
    let by = logged_in(node, "bob").await;
    node.auth.authority().revoke(&by, &Revoke::Credential(revoked)).await.expect("it is his");
    accounts.edit_user(&node.admin().await, &carol, &UserEdit::Enabled(false)).await.expect("she is there");
    let rows = rows_of(node, revoked, &held, [&alice, &bob, &carol, &team]).await;
    (held, rows)
}

async fn rows_of(node: &Scene, revoked: CredentialId, held: &Held, names: [&CallerName; 4]) -> Rows {
    let (link, program) = (held.link.record.id, held.program.record.id);
    let [alice, bob, carol, team] = names.map(|name| name.id().0.to_be_bytes());
    let stranger = eve().id().0.to_be_bytes();
    let row = |table: &str, rest: &[&[u8]]| [table.as_bytes(), &rest.concat()].concat();
    let mut rows = vec![("domain", row("mdomain", &[])), ("count of starts", row("mstarts", &[]))];
    for key in node.auth.keys(&node.admin().await).expect("an administrator") {
        let label = match key.purpose {
            weft_core::proof::Purpose::Credential => "signing key for credentials",
            weft_core::proof::Purpose::Capability => "signing key for capabilities",
            _ => "signing key for the audit",
        };
        rows.push((label, row("k", &[&key.id.0.to_be_bytes()])));
    }
    rows.sort();
    rows.extend([
        ("user alice", row("ualice", &[])),
        ("user carol, who may not log in", row("ucarol", &[])),
        ("user admin, the only administrator", row("uadmin", &[])),
        ("uid 2000", row("i", &[&ALICES_UID.to_be_bytes()])),
        ("group alice/team", row("galice/team", &[])),
        ("group of the administrators", row("gadmin/administrators", &[])),
        ("member bob of alice/team", row("e", &[&team, &bob])),
        ("membership of bob in alice/team", row("r", &[&bob, &team])),
        ("member eve@elsewhere of alice/team", row("e", &[&team, &stranger])),
        ("count of members of alice/team", row("s", &[&team])),
        ("name of alice", row("n", &[&alice])),
        ("name of alice/team", row("n", &[&team])),
        ("line of bob", row("l", &[&bob])),
        ("line of carol, who may not log in", row("l", &[&carol])),
        ("withdrawal of a credential of bob's", row("c", &[&revoked.0.to_be_bytes()])),
        ("count of withdrawals", row("w", &[])),
        ("link of alice's", row("t", &[&alice, &link.0.to_be_bytes()])),
        ("uses of a link", row("q", &[&link.0.to_be_bytes()])),
        ("token of alice's", row("o", &[&alice, &program.0.to_be_bytes()])),
        ("use of a token", row("p", &[&program.0.to_be_bytes()])),
        ("audit head", row("a", &[])),
    ]);
    rows
}

/// Says who a caller is, and in which of the groups that there are.
fn said(domain: DomainId, caller: Result<Caller>) -> String {
    let caller = match caller {
        Ok(caller) => caller,
        Err(error) => return format!("{:?}", error.kind()),
    };
    let mut text = caller.name().seen_from(domain);
    for group in ["group:admin/administrators", "group:alice/team"] {
        let id = CallerName::parse(group, domain).expect("a good name").id();
        if caller.is_or_is_in(id) {
            write!(text, " in {group}").expect("memory");
        }
    }
    text
}

/// Who may log in as whom, and what the accounts are.
async fn look(node: &Scene, held: &Held) -> Vec<String> {
    let mut lines = Vec::new();
    for (whose, token) in &held.tokens {
        lines.push(format!("{whose} token: {}", said(held.domain, node.token(token).await)));
    }
    let link = Evidence::Link(held.link.secret.clone());
    let by_link = node.auth.authority().authenticate(&link, SOCKET).await;
    lines.push(format!("alice's link: {}", said(held.domain, by_link)));
    let by_program = node.token(held.program.secret.expose()).await;
    lines.push(format!("alice's program: {}", said(held.domain, by_program)));
    for uid in [FOUNDER_UID, ALICES_UID] {
        lines.push(format!("uid {uid}: {}", said(held.domain, Ok(node.uid(uid).await))));
    }
    for user in ["alice", "carol"] {
        lines.push(format!("{user}'s password: {}", said(held.domain, node.login(user, word(user)).await)));
    }
    for name in ["alice", "group:alice/team"].map(|name| node.name(name)).into_iter().chain([eve()]) {
        let told = node.auth.authority().name_of(name.id()).await.expect("it can look");
        lines.push(format!(
            "the name of {} is {}",
            name.local(),
            if told.is_some() { "told" } else { "not told" }
        ));
    }
    let by = node.uid(FOUNDER_UID).await;
    match node.auth.accounts().users(&by, None).await {
        Ok(users) => lines.extend(users.into_iter().map(|user| {
            let has = |is: bool, what: &str| if is { format!(", {what}") } else { String::new() };
            let uid = user.uid.map_or_else(String::new, |uid| format!(", uid {uid}"));
            let [enabled, password] = [has(user.enabled, "may log in"), has(user.has_password, "a password")];
            format!("user {}{enabled}{password}{uid}", user.name.local())
        })),
        Err(error) => lines.push(format!("users: {:?}", error.kind())),
    }
    match node.auth.accounts().groups(&by, None).await {
        Ok(groups) => lines.extend(groups.into_iter().map(|group| {
            let mut members: Vec<_> = group.members.iter().map(CallerName::local).collect();
            members.sort_unstable();
            format!("group {} of {}: {}", group.name.local(), group.owner.local(), members.join(" "))
        })),
        Err(error) => lines.push(format!("groups: {:?}", error.kind())),
    }
    lines
}

/// What a mended node is.
struct Mended {
    found: Vec<Finding>,
    /// What a second look finds.
    again: Vec<Finding>,
    look: Vec<String>,
    /// What is found once it was started.
    after: Vec<Finding>,
}

struct Stopped {
    sys: Sys,
    disk: SimDisk,
    held: Held,
}

impl Stopped {
    /// Furnishes a node and stops it.
    async fn furnished(node: Scene) -> (Self, Rows) {
        let (held, rows) = furnish(&node).await;
        node.auth.close().await.expect("it closes");
        let Scene { sys, disk, engine, auth, .. } = node;
        drop(auth);
        engine.close().await.expect("it closes");
        sys.sim_clock().expect("it is simulated").step(Duration::from_secs(1));
        (Self { sys, disk: disk.kill(), held }, rows)
    }

    async fn damaged(&self, damage: Option<(&[u8], Damage)>) -> Mended {
        let disk = self.disk.crashed_copy(7);
        let engine: std::sync::Arc<dyn Engine> = self.engine(&disk);
        if let Some((key, how)) = damage {
            spoil(&*engine, key, how).await;
        }
        let below = disk.beneath("auth").expect("it is there");
        let before = all_rows(&*engine);
        let dry = check(&self.sys, engine.clone(), SpaceId(SPACE), &*below).await.expect("it can look");
        assert!(all_rows(&*engine) == before, "{damage:?}: looking changes rows");
        let mend = || mend(&self.sys, engine.clone(), SpaceId(SPACE), &*below, &VOLUMES);
        let found = mend().await.expect("it can look");
        // What was announced is done, and what that uncovers.
        assert!(
            found.starts_with(&dry) && dry.is_empty() == found.is_empty(),
            "{damage:?}: {dry:#?} {found:#?}"
        );
        let again = mend().await.expect("it can look");
        engine.close().await.expect("it closes");
        drop(engine);
        let (look, after) = self.started(disk.kill()).await;
        Mended { found, again, look, after }
    }

    fn engine(&self, disk: &SimDisk) -> std::sync::Arc<Embedded> {
        let kv = disk.beneath("kv").expect("it is there");
        std::sync::Arc::new(Embedded::open(self.sys.clone(), kv, Options::default()).expect("it opens"))
    }

    async fn started(&self, disk: SimDisk) -> (Vec<String>, Vec<Finding>) {
        let node = match Scene::try_start(&self.sys, disk, settings()).await {
            Ok(node) => node,
            Err(error) => return (vec![format!("no start: {:?}", error.kind())], Vec::new()),
        };
        let look = look(&node, &self.held).await;
        node.auth.close().await.expect("it closes");
        let below = node.disk.beneath("auth").expect("it is there");
        let after =
            check(&node.sys, node.engine.clone(), SpaceId(SPACE), &*below).await.expect("it can look");
        node.engine.close().await.expect("it closes");
        (look, after)
    }
}

/// Damages a row behind everybody's back.
async fn spoil(engine: &dyn Engine, key: &[u8], how: Damage) {
    let key = [&[SPACE], key].concat();
    let value =
        engine.snapshot().expect("it runs").get(&key).expect("it reads").expect("there is such a row");
    let act = move |txn: &mut dyn weft_kv::Txn| match how {
        Damage::Missing => txn.delete(&key),
        Damage::Extra if key.len() == 2 => txn.put(&key, &[0xff; 8]),
        Damage::Extra => {
            // The same row once more, under a key that nothing leads to.
            let mut other = key.clone();
            *other.last_mut().expect("a table's letter") ^= 0x55;
            txn.put(&other, &value)
        }
        Damage::Cut => txn.put(&key, &value[..value.len() / 2]),
        Damage::Flipped => {
            let mut value = value.to_vec();
            *value.last_mut().expect("a value") ^= 4;
            txn.put(&key, &value)
        }
    };
    engine.write(Ack::Durable, Box::new(act)).await.expect("the engine runs");
}

/// A text without long numbers.
fn steady(text: &str) -> String {
    let is_number = |word: &str| word.len() > 11 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let words = text.split_inclusive(|c: char| !c.is_ascii_alphanumeric()).map(|word| {
        let bare = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        if is_number(bare) { word.replace(bare, "#") } else { word.to_owned() }
    });
    words.collect()
}

/// One cell as the table has it.
fn cell(whole: &[String], Mended { found, again, look, after }: &Mended) -> String {
    let mut text = String::new();
    for (when, findings) in [("", found), ("again: ", again), ("after a start: ", after)] {
        for Finding { severity, structure, detail, repair, .. } in findings {
            writeln!(text, "  {when}{severity:?}: {structure}: {}; {repair}", steady(detail))
                .expect("memory");
        }
    }
    let gone = whole.iter().filter(|line| !look.contains(line)).map(|line| ("-", line));
    let new = look.iter().filter(|line| !whole.contains(line)).map(|line| ("+", line));
    for (sign, line) in gone.chain(new) {
        writeln!(text, "  {sign} {line}").expect("memory");
    }
    if text.is_empty() { "  nothing\n".to_owned() } else { text }
}

#[test]
fn every_damaged_row_is_found_and_closed_as_the_table_says() {
    let found = scene(91, |node| async move {
        let (stopped, rows) = Stopped::furnished(node).await;
        let whole = stopped.damaged(None).await;
        assert!(whole.found.is_empty() && whole.after.is_empty(), "before any damage: {:#?}", whole.found);
        let mut text = String::from("no damage\n");
        whole.look.iter().for_each(|line| writeln!(text, "  {line}").expect("memory"));
        for (label, key) in &rows {
            for how in [Damage::Missing, Damage::Extra, Damage::Cut, Damage::Flipped] {
                let mended = stopped.damaged(Some((key, how))).await;
                write!(text, "{label}, {how:?}\n{}", cell(&whole.look, &mended)).expect("memory");
            }
        }
        text
    });
    let file = concat!(env!("CARGO_TARGET_TMPDIR"), "/mending.txt");
    tables::keep(&found, file);
    tables::must_be(EXPECTED, &found, file);
}

#[test]
fn tables_of_version_1_are_taken_up_as_they_were() {
    scene(92, |node| async move {
        let (stopped, _) = Stopped::furnished(node).await;
        let whole = stopped.damaged(None).await.look;
        let disk = stopped.disk.crashed_copy(7);
        let engine = stopped.engine(&disk);
        as_version_1(&*engine).await;
        engine.close().await.expect("it closes");
        drop(engine);
        let (look, after) = stopped.started(disk.kill()).await;
        assert_eq!(look, whole);
        assert_eq!(after, []);
    });
}

/// Nobody can tell what it signed: it is not believed, and all log in again.
#[test]
fn of_a_signing_key_that_is_lost_with_its_file_the_next_start_makes_another() {
    scene(94, |node| async move {
        let (mut stopped, rows) = Stopped::furnished(node).await;
        let (_, key) = rows.iter().find(|(label, _)| *label == "signing key for credentials").expect("one");
        let disk = stopped.disk.crashed_copy(7);
        let mut name = String::new();
        let listed = disk.list("auth/keys", &mut |file, _| {
            name = if file.starts_with("credential-") { format!("auth/keys/{file}") } else { name.clone() };
            std::ops::ControlFlow::Continue(())
        });
        listed.expect("a directory");
        disk.remove(&name).expect("it is there");
        stopped.disk = disk;
        let Mended { found, again, look, after } = stopped.damaged(Some((key, Damage::Missing))).await;
        let said: Vec<_> = found.iter().map(|one| (one.severity, one.repair.as_str())).collect();
        assert_eq!(said, [(Severity::Note, "the next start makes a new one")]);
        assert!(again == found && after.is_empty(), "{again:#?} {after:#?}");
        for line in ["alice's token: Unauthenticated", "uid 2000: alice in group:alice/team"] {
            assert!(look.iter().any(|is| is == line), "{look:#?}");
        }
        // Without the root key nobody is let in.
        stopped.disk.remove("auth/keys/root.key").expect("it is there");
        let Mended { found, look, .. } = stopped.damaged(Some((key, Damage::Missing))).await;
        assert!(matches!(&found[..], [one] if one.severity == Severity::Loss), "{found:#?}");
        assert_eq!(look, ["no start: Unavailable"]);
    });
}

#[test]
fn a_domain_is_not_made_over_the_rows_of_one() {
    scene(93, |node| async move {
        let (stopped, _) = Stopped::furnished(node).await;
        let disk = stopped.disk.crashed_copy(7);
        let engine = stopped.engine(&disk);
        spoil(&*engine, b"mdomain", Damage::Missing).await;
        engine.close().await.expect("it closes");
        drop(engine);
        let started = Scene::try_start(&stopped.sys, disk.kill(), settings()).await;
        assert_eq!(started.err().map(|error| error.kind()), Some(weft_core::ErrorKind::Corrupt));
    });
}
