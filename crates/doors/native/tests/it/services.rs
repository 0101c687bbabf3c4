//! What is no file system, over the wire: each service answers as itself.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use weft_conformance::TestDomain;
use weft_core::attr::Version;
use weft_core::drop_box::DropLimits;
use weft_core::form::Origin;
use weft_core::proof::{Attenuation, Caller};
use weft_core::service::{
    Accounts, Audit, AuditFilter, AuditPage, AuditRecord, AuditVerdict, BackupReport, CheckReport,
    DropBoxRecord, Evidence, GroupEdit, GroupRecord, Keys, LinkGives, LinkGrant, LinkRecord, Links, NewLink,
    NewToken, NewUser, Node, NodeHealth, NodeStatus, Scrub, Secret, Share, TokenGrant, TokenRecord, Tokens,
    TokensOf, UserEdit, UserRecord,
};
use weft_core::{
    CallerId, CallerKind, CallerName, Error, ErrorKind, FileId, LinkId, RelPath, Result, Time, TokenId,
    VolumeId,
};

use crate::{HERE, UID, World};

/// Answers every service question with something that shows who asked what.
pub struct Home(Arc<TestDomain>);

impl Home {
    pub fn new(domain: Arc<TestDomain>) -> Arc<Self> {
        Arc::new(Self(domain))
    }

    fn user(&self, name: &str) -> UserRecord {
        UserRecord {
            name: self.0.name(name),
            enabled: true,
            uid: None,
            has_password: true,
            added: Time::EPOCH,
        }
    }
}

#[async_trait]
impl Accounts for Home {
    async fn add_user(&self, _: &Caller, user: &NewUser) -> Result<UserRecord> {
        Ok(UserRecord { uid: user.uid, has_password: user.password.is_some(), ..self.user(&user.name) })
    }

    async fn edit_user(&self, _: &Caller, name: &CallerName, edit: &UserEdit) -> Result<UserRecord> {
        let enabled = !matches!(edit, UserEdit::Enabled(false));
        Ok(UserRecord { enabled, ..self.user(name.local()) })
    }

    async fn users(&self, caller: &Caller, after: Option<&CallerName>) -> Result<Vec<UserRecord>> {
        if caller.is_anyone() {
            return Err(Error::denied("only administrators list users").hint("weft login"));
        }
        Ok(if after.is_none() { vec![self.user("alice")] } else { Vec::new() })
    }

    async fn add_group(&self, caller: &Caller, name: &str) -> Result<GroupRecord> {
        let full = format!("{}/{name}", caller.name().local());
        let name = CallerName::new(CallerKind::Group, &full, self.0.id())?;
        Ok(GroupRecord { name, owner: caller.name().clone(), members: Vec::new() })
    }

    async fn edit_group(&self, caller: &Caller, name: &CallerName, edit: &GroupEdit) -> Result<GroupRecord> {
        let members = match edit {
            GroupEdit::Add(member) => vec![member.clone()],
            GroupEdit::Remove(_) => Vec::new(),
        };
        Ok(GroupRecord { name: name.clone(), owner: caller.name().clone(), members })
    }

    async fn remove_group(&self, _: &Caller, _: &CallerName) -> Result<()> {
        Ok(())
    }

    async fn groups(&self, _: &Caller, _: Option<&CallerName>) -> Result<Vec<GroupRecord>> {
        Ok(Vec::new())
    }

    async fn members(
        &self,
        caller: &Caller,
        group: &CallerName,
        after: Option<CallerId>,
    ) -> Result<Vec<CallerName>> {
        Ok(if after.is_none() { vec![caller.name().clone(), group.clone()] } else { Vec::new() })
    }
}

#[async_trait]
impl Audit for Home {
    async fn record(&self, _: AuditRecord) {}

    async fn records(&self, _: &Caller, filter: &AuditFilter) -> Result<AuditPage> {
        Ok(AuditPage { records: Vec::new(), next: Some(filter.after + 1) })
    }

    async fn verify(&self, _: &Caller) -> Result<AuditVerdict> {
        Ok(AuditVerdict::Broken { file: "audit".into(), offset: 7, detail: "on purpose".into() })
    }
}

const BOUNDS: DropLimits = DropLimits { bytes: 9, files: 8, rate_bytes: 7, rate_per: Duration::from_secs(6) };

#[async_trait]
impl Links for Home {
    async fn make_link(
        &self,
        caller: &Caller,
        from: Origin,
        at: &RelPath,
        new: &NewLink,
    ) -> Result<LinkGrant> {
        let record = LinkRecord {
            id: LinkId(7),
            by: caller.name().clone(),
            file: FileId::ROOT,
            path: at.clone(),
            is_directory: false,
            gives: new.gives,
            version: new.pin.then_some(Version(3)),
            made: Time::EPOCH,
            expires: Time::EPOCH.plus(new.life),
            count: new.count,
            used: u64::from(from.uid.unwrap_or(0)),
            last: None,
            ended: None,
        };
        Ok(LinkGrant { record, secret: Secret::new("the secret") })
    }

    async fn links(
        &self,
        caller: &Caller,
        all: bool,
        after: Option<(CallerId, LinkId)>,
    ) -> Result<Vec<LinkRecord>> {
        let new = NewLink { gives: LinkGives::Read, life: Duration::ZERO, count: None, pin: all };
        let made = self.make_link(caller, HERE, &RelPath::EMPTY, &new).await?;
        Ok(if after.is_none() { vec![made.record] } else { Vec::new() })
    }

    async fn end_link(&self, caller: &Caller, id: LinkId) -> Result<LinkRecord> {
        let mut links = self.links(caller, false, None).await?;
        let record = links.pop().ok_or_else(|| Error::not_found("there is no such link"))?;
        Ok(LinkRecord { id, ended: Some("on purpose".into()), ..record })
    }

    async fn make_drop_box(
        &self,
        _: &Caller,
        from: Origin,
        at: &RelPath,
        limits: &DropLimits,
    ) -> Result<DropBoxRecord> {
        let rate_left = u64::from(from.uid.unwrap_or(0));
        let path = at.clone();
        Ok(DropBoxRecord { path, file: FileId::ROOT, limits: *limits, bytes: 1, files: 2, rate_left })
    }

    async fn drop_boxes(&self, caller: &Caller) -> Result<Vec<DropBoxRecord>> {
        Ok(vec![self.end_drop_box(caller, HERE, &RelPath::EMPTY).await?])
    }

    async fn end_drop_box(&self, caller: &Caller, from: Origin, at: &RelPath) -> Result<DropBoxRecord> {
        self.make_drop_box(caller, from, at, &BOUNDS).await
    }
}

#[async_trait]
impl Tokens for Home {
    async fn make_token(&self, caller: &Caller, new: &NewToken) -> Result<TokenGrant> {
        let record = TokenRecord {
            id: TokenId(7),
            name: new.name.clone(),
            by: caller.name().clone(),
            limits: new.limits.clone(),
            made: Time::EPOCH,
            expires: Time::EPOCH.plus(new.life),
            last: None,
            ended: None,
        };
        Ok(TokenGrant { record, secret: Secret::new("the secret") })
    }

    async fn tokens(
        &self,
        caller: &Caller,
        of: &TokensOf,
        after: Option<(CallerId, TokenId)>,
    ) -> Result<Vec<TokenRecord>> {
        let new = NewToken { name: format!("{of:?}"), limits: Attenuation::NONE, life: Duration::ZERO };
        let made = self.make_token(caller, &new).await?;
        Ok(if after.is_none() { vec![made.record] } else { Vec::new() })
    }

    async fn end_token(&self, caller: &Caller, id: TokenId) -> Result<TokenRecord> {
        let mut tokens = self.tokens(caller, &TokensOf::Caller, None).await?;
        let record = tokens.pop().ok_or_else(|| Error::not_found("there is no such token"))?;
        Ok(TokenRecord { id, ended: Some("on purpose".into()), ..record })
    }
}

#[async_trait]
impl Node for Home {
    async fn status(&self, caller: &Caller) -> Result<NodeStatus> {
        Ok(NodeStatus {
            version: caller.name().to_string(),
            domain: self.0.id(),
            started: Time::EPOCH,
            pid: 1,
            data: String::new(),
            doors: Vec::new(),
            bytes_total: 2,
            bytes_free: 1,
            files: 0,
            sessions: 0,
            uploads: 0,
            upload_bytes: 0,
        })
    }

    async fn health(&self, caller: &Caller) -> Result<NodeHealth> {
        Ok(NodeHealth { not_ready: Some(caller.name().to_string()), ..NodeHealth::default() })
    }

    async fn scrub(&self, _: &Caller, begin: bool) -> Result<Scrub> {
        Ok(Scrub { rounds: u64::from(begin), ..Scrub::default() })
    }

    async fn keys(&self, caller: &Caller) -> Result<Keys> {
        self.rotate_keys(caller, None, false).await
    }

    async fn rotate_keys(&self, _: &Caller, root_key: Option<&str>, _: bool) -> Result<Keys> {
        Ok(Keys { root: root_key.map(str::to_owned), keys: Vec::new() })
    }

    async fn stop(&self, _: &Caller) -> Result<()> {
        Ok(())
    }

    async fn backup(&self, _: &Caller, into: &str) -> Result<BackupReport> {
        Ok(BackupReport {
            path: into.into(),
            metadata_bytes: 1,
            objects: 2,
            object_bytes: 3,
            damaged: Vec::new(),
        })
    }

    async fn check(&self, _: &Caller) -> Result<CheckReport> {
        Ok(CheckReport { inodes: 9, ..CheckReport::default() })
    }

    async fn share(&self, caller: &Caller, from: Origin, directory: &str, at: &RelPath) -> Result<Share> {
        Ok(Share {
            volume: VolumeId(1),
            at: format!("/{at}"),
            directory: directory.into(),
            made: Time::EPOCH,
            by: Some(caller.name().clone()),
            away: None,
            limited_to: from.uid,
        })
    }

    async fn unshare(&self, caller: &Caller, at: &RelPath) -> Result<Share> {
        self.share(caller, HERE, "/was/shared", at).await
    }

    async fn shares(&self, caller: &Caller) -> Result<Vec<Share>> {
        let shared = self.share(caller, HERE, "/away", &RelPath::EMPTY).await?;
        Ok(vec![Share { at: String::new(), by: None, away: Some("it is not there".into()), ..shared }])
    }
}

#[tokio::test]
async fn evidence_is_exchanged_for_a_credential_that_works() {
    let world = World::new();
    let remote = world.remote().await;
    let evidence =
        |password: &str| Evidence::Password { user: "alice".into(), password: Secret::new(password) };
    let life = Duration::from_secs(60);
    let wrong = remote.login(evidence("wrong"), Attenuation::default(), life).await.expect_err("it is wrong");
    assert_eq!(wrong.kind(), ErrorKind::Unauthenticated);
    let signed = remote.login(evidence("correct"), Attenuation::default(), life).await.expect("it is right");
    let domain = &world.domain;
    let caller = Caller::verify(&signed, domain.trust(), domain.revocations(), domain.clock().moment())
        .expect("signed");
    assert_eq!(remote.who_am_i(&caller).await.expect("it is presented").name, domain.name("alice"));
    assert!(remote.who_am_i(&Caller::anyone()).await.expect("nobody may ask too").name.is_anyone());
}

#[tokio::test]
async fn a_uid_cannot_be_sent_as_evidence() {
    let remote = World::new().remote().await;
    let sent = remote.login(Evidence::SocketUid(0), Attenuation::default(), Duration::from_secs(60)).await;
    assert_eq!(sent.expect_err("only the kernel says it").kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn a_revoked_credential_is_refused_from_the_next_call_on() {
    let world = World::new();
    let remote = world.remote().await;
    let alice = world.domain.caller("alice");
    remote.who_am_i(&alice).await.expect("it is good");
    world.domain.revocations().end_credential(alice.credential(), Time::MAX);
    assert_eq!(remote.who_am_i(&alice).await.expect_err("it is not any more").kind(), ErrorKind::Revoked);
}

#[tokio::test]
async fn every_service_answers_over_the_wire_as_it_does_here() {
    let world = World::new();
    let (remote, alice) = (world.remote().await, world.domain.caller("alice"));
    let (bob, team) = (world.domain.name("bob"), world.domain.name("group:alice/team"));
    let new = NewUser { name: "bob".into(), password: Some(Secret::new("x")), uid: Some(7) };
    let added = remote.add_user(&alice, &new).await.expect("it is added");
    assert_eq!((added.name.clone(), added.uid, added.has_password), (bob.clone(), Some(7), true));
    let edited = remote.edit_user(&alice, &bob, &UserEdit::Enabled(false)).await.expect("it is edited");
    assert!(!edited.enabled);
    assert_eq!(remote.users(&alice, None).await.expect("a page").len(), 1);
    assert_eq!(remote.users(&alice, Some(&bob)).await.expect("a page").len(), 0);
    assert_eq!(remote.add_group(&alice, "team").await.expect("it is made").name, team);
    let group = remote.edit_group(&alice, &team, &GroupEdit::Add(bob.clone())).await.expect("it is edited");
    assert_eq!(group.members, [bob]);
    let members = remote.members(&alice, &team, None).await.expect("a page");
    assert_eq!(members, [alice.name().clone(), team.clone()]);
    assert!(remote.members(&alice, &team, Some(team.id())).await.expect("a page").is_empty());
    remote.remove_group(&alice, &team).await.expect("it is removed");
    assert!(remote.groups(&alice, None).await.expect("a page").is_empty());
    assert_eq!(remote.status(&alice).await.expect("a status").version, alice.name().to_string());
    remote.stop(&alice).await.expect("it was asked");
    assert_eq!(remote.backup(&alice, "/b").await.expect("a report").path, "/b");
    assert_eq!(remote.check(&alice).await.expect("a report").inodes, 9);
    let at = RelPath::new("a/b").expect("a path");
    let shared = remote.share(&alice, HERE, "/srv/d", &at).await.expect("it is shared");
    assert_eq!(
        (&shared.at[..], &shared.directory[..], shared.by),
        ("/a/b", "/srv/d", Some(alice.name().clone()))
    );
    assert_eq!(shared.limited_to, Some(UID), "whoever asks, the kernel says from which uid");
    assert_eq!(remote.unshare(&alice, &at).await.expect("it was shared").directory, "/was/shared");
    let shares = remote.shares(&alice).await.expect("a list");
    assert_eq!(
        shares.iter().filter_map(|share| share.away.as_deref()).collect::<Vec<_>>(),
        ["it is not there"]
    );
    let new = NewLink { gives: LinkGives::Read, life: Duration::from_secs(9), count: Some(2), pin: true };
    let made = remote.make_link(&alice, HERE, &at, &new).await.expect("it is made");
    assert_eq!((made.secret.expose(), &made.record.path), ("the secret", &at));
    assert_eq!((made.record.count, made.record.expires), (Some(2), Time::from_unix(9, 0)));
    assert_eq!(made.record.used, u64::from(UID), "whoever asks, the kernel says from which uid");
    let links = remote.links(&alice, true, None).await.expect("a list");
    assert!(links[0].version.is_some() && links[0].by == *alice.name());
    let after = Some((alice.name().id(), links[0].id));
    assert!(remote.links(&alice, true, after).await.expect("a list").is_empty());
    assert_eq!(remote.end_link(&alice, LinkId(9)).await.expect("it is ended").id, LinkId(9));
    let made = remote.make_drop_box(&alice, HERE, &at, &BOUNDS).await.expect("it is made");
    assert_eq!((made.limits, &made.path, made.rate_left), (BOUNDS, &at, u64::from(UID)));
    assert_eq!(remote.drop_boxes(&alice).await.expect("a list").len(), 1);
    assert_eq!(remote.end_drop_box(&alice, HERE, &at).await.expect("it was one").path, at);
    let limits = Attenuation { paths: vec![at.clone()], ..Attenuation::NONE };
    let new = NewToken { name: "cron".into(), limits: limits.clone(), life: Duration::from_secs(9) };
    let made = remote.make_token(&alice, &new).await.expect("it is made");
    assert_eq!((made.record.limits, made.record.expires), (limits, Time::from_unix(9, 0)));
    assert_eq!((made.record.name.as_str(), made.secret.expose()), ("cron", "the secret"));
    for of in [TokensOf::Caller, TokensOf::User(alice.name().clone()), TokensOf::Everybody] {
        let tokens = remote.tokens(&alice, &of, None).await.expect("a list");
        assert_eq!(tokens[0].name, format!("{of:?}"));
        let after = Some((alice.name().id(), tokens[0].id));
        assert!(remote.tokens(&alice, &of, after).await.expect("a list").is_empty());
    }
    assert_eq!(remote.end_token(&alice, TokenId(9)).await.expect("it is ended").id, TokenId(9));
    let filter = AuditFilter { after: 4, ..AuditFilter::default() };
    assert_eq!(remote.audit_records(&alice, filter).await.expect("a page").next, Some(5));
    let verdict = remote.audit_verify(&alice).await.expect("a verdict");
    assert!(matches!(verdict, AuditVerdict::Broken { offset: 7, .. }));
}

#[tokio::test]
async fn an_error_keeps_its_kind_detail_and_hint_over_the_wire() {
    let remote = World::new().remote().await;
    let error = remote.users(&Caller::anyone(), None).await.expect_err("nobody may not");
    assert_eq!((error.kind(), error.detail()), (ErrorKind::Denied, "only administrators list users"));
    assert_eq!(error.advice(), Some("weft login"));
}
