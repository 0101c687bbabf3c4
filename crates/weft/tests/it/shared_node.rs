//! A node of this process with a tree of two volumes, for the commands to meet: what serves real
//! directories is tested where it is. Everybody at its socket is alice, who may do everything;
//! volume 1 stands at `/d/share`, and the node says that it is `/srv/data`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::runtime::Runtime;
use weft_conformance::{Sharing, TestDomain, TestSessions};
use weft_core::attr::SetAttr;
use weft_core::drop_box::DropLimits;
use weft_core::form::{At, FileSystem, New, Origin};
use weft_core::model::Model;
use weft_core::proof::{Attenuation, Caller, Signed};
use weft_core::service::{
    Accounts, Audit, AuditFilter, AuditPage, AuditRecord, AuditVerdict, Authority, BackupReport, CheckReport,
    DropBoxRecord, Evidence, GroupEdit, GroupRecord, Keys, LinkGrant, LinkRecord, Links, NewLink, NewToken,
    NewUser, Node as NodeService, NodeHealth, NodeStatus, Revoke, Scrub, Sessions, Share, TokenGrant,
    TokenRecord, Tokens, TokensOf, UserEdit, UserRecord,
};
use weft_core::{CallerId, CallerName, Clock, Error, LinkId, RelPath, Result, Time, TokenId, VolumeId};
use weft_doors_native::{OpenTables, Services, Uids, serve};
use weft_sys::Sys;

use crate::node::Node;

/// Where its share is, and of which directory the node says that it is.
pub const AT: &str = "/d/share";
pub const DIRECTORY: &str = "/srv/data";

/// The node, and the place that commands find it at.
pub struct SharedNode {
    pub place: Node,
    pub home: Arc<Home>,
    _runtime: Runtime,
}

/// What is asked of it that is no file.
pub struct Home {
    domain: Arc<TestDomain>,
    pub shares: Mutex<Vec<Share>>,
}

impl SharedNode {
    pub fn start() -> Self {
        let place = Node::unstarted();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(1).build();
        let runtime = runtime.expect("a runtime starts");
        let sys = Sys::real();
        let domain = TestDomain::new(3, Arc::new(sys.clone()), &[VolumeId(0)]);
        let new = || {
            let (clock, timer) = (Arc::new(sys.clone()), Arc::new(sys.clone()));
            Model::with_timer(clock, timer, domain.clone(), &domain.name("alice"))
        };
        let (root, share) = (new(), new());
        let call = domain.call(&domain.caller("alice"), 99);
        let d = At::root("d".try_into().expect("a name"));
        runtime.block_on(root.make(&call, &d, New::Directory, &SetAttr::default())).expect("made");
        let fs = Sharing::new(&call, root.clone(), share.clone(), "d/share").expect("a free name");
        let sessions = Arc::<TestSessions>::default();
        let opens = Arc::<OpenTables>::default();
        sessions.watch(root);
        sessions.watch(share);
        sessions.watch(opens.clone());
        let shared = Share {
            volume: VolumeId(1),
            at: AT.into(),
            directory: DIRECTORY.into(),
            made: Time::from_unix(7, 0),
            by: Some(domain.name("alice")),
            away: None,
            limited_to: None,
        };
        let home = Arc::new(Home { domain: domain.clone(), shares: Mutex::new(vec![shared]) });
        let services = Arc::new(Services {
            sys,
            fs,
            authority: home.clone(),
            accounts: home.clone(),
            sessions,
            audit: home.clone(),
            node: home.clone(),
            links: home.clone(),
            tokens: home.clone(),
            domain: domain.id(),
            certificates: Arc::new(|| Ok(Vec::new())),
            opens,
            uids: Uids::default(),
        });
        let socket = place.make_dir("data").join("node.sock");
        let listener = {
            let _entered = runtime.enter();
            UnixListener::bind(&socket).expect("nobody has it")
        };
        fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).expect("it is ours");
        runtime.spawn(async move {
            while let Ok((line, _)) = listener.accept().await {
                let services = services.clone();
                tokio::spawn(async move { serve(services, line, 1000).await });
            }
        });
        Self { place, home, _runtime: runtime }
    }
}

fn not_asked<T>() -> Result<T> {
    Err(Error::unsupported("no test asks for it"))
}

#[async_trait::async_trait]
impl Links for Home {
    async fn make_link(&self, _: &Caller, _: Origin, _: &RelPath, _: &NewLink) -> Result<LinkGrant> {
        not_asked()
    }

    async fn links(&self, _: &Caller, _: bool, _: Option<(CallerId, LinkId)>) -> Result<Vec<LinkRecord>> {
        not_asked()
    }

    async fn end_link(&self, _: &Caller, _: LinkId) -> Result<LinkRecord> {
        not_asked()
    }

    async fn make_drop_box(
        &self,
        _: &Caller,
        _: Origin,
        _: &RelPath,
        _: &DropLimits,
    ) -> Result<DropBoxRecord> {
        not_asked()
    }

    async fn drop_boxes(&self, _: &Caller) -> Result<Vec<DropBoxRecord>> {
        not_asked()
    }

    async fn end_drop_box(&self, _: &Caller, _: Origin, _: &RelPath) -> Result<DropBoxRecord> {
        not_asked()
    }
}

#[async_trait::async_trait]
impl Tokens for Home {
    async fn make_token(&self, _: &Caller, _: &NewToken) -> Result<TokenGrant> {
        not_asked()
    }

    async fn tokens(
        &self,
        _: &Caller,
        _: &TokensOf,
        _: Option<(CallerId, TokenId)>,
    ) -> Result<Vec<TokenRecord>> {
        not_asked()
    }

    async fn end_token(&self, _: &Caller, _: TokenId) -> Result<TokenRecord> {
        not_asked()
    }
}

#[async_trait::async_trait]
impl Authority for Home {
    async fn authenticate(&self, _: &Evidence, _: Origin) -> Result<Caller> {
        Ok(self.domain.caller("alice"))
    }
    async fn credential(&self, _: &Caller, _: &Attenuation, _: Duration) -> Result<Signed> {
        not_asked()
    }
    async fn name_of(&self, _: CallerId) -> Result<Option<CallerName>> {
        Ok(Some(self.domain.name("alice")))
    }
    async fn revoke(&self, _: &Caller, _: &Revoke) -> Result<()> {
        not_asked()
    }
}

#[async_trait::async_trait]
impl Accounts for Home {
    async fn add_user(&self, _: &Caller, _: &NewUser) -> Result<UserRecord> {
        not_asked()
    }
    async fn edit_user(&self, _: &Caller, _: &CallerName, _: &UserEdit) -> Result<UserRecord> {
        not_asked()
    }
    async fn users(&self, _: &Caller, _: Option<&CallerName>) -> Result<Vec<UserRecord>> {
        not_asked()
    }
    async fn add_group(&self, _: &Caller, _: &str) -> Result<GroupRecord> {
        not_asked()
    }
    async fn edit_group(&self, _: &Caller, _: &CallerName, _: &GroupEdit) -> Result<GroupRecord> {
        not_asked()
    }
    async fn remove_group(&self, _: &Caller, _: &CallerName) -> Result<()> {
        not_asked()
    }
    async fn groups(&self, _: &Caller, _: Option<&CallerName>) -> Result<Vec<GroupRecord>> {
        not_asked()
    }
    async fn members(&self, _: &Caller, _: &CallerName, _: Option<CallerId>) -> Result<Vec<CallerName>> {
        not_asked()
    }
}

#[async_trait::async_trait]
impl Audit for Home {
    async fn record(&self, _: AuditRecord) {}
    async fn records(&self, _: &Caller, _: &AuditFilter) -> Result<AuditPage> {
        not_asked()
    }
    async fn verify(&self, _: &Caller) -> Result<AuditVerdict> {
        not_asked()
    }
}

#[async_trait::async_trait]
impl NodeService for Home {
    async fn status(&self, _: &Caller) -> Result<NodeStatus> {
        not_asked()
    }
    async fn health(&self, _: &Caller) -> Result<NodeHealth> {
        not_asked()
    }
    async fn scrub(&self, _: &Caller, _: bool) -> Result<Scrub> {
        not_asked()
    }
    async fn keys(&self, _: &Caller) -> Result<Keys> {
        not_asked()
    }
    async fn rotate_keys(&self, _: &Caller, _: Option<&str>, _: bool) -> Result<Keys> {
        not_asked()
    }
    async fn stop(&self, _: &Caller) -> Result<()> {
        not_asked()
    }
    async fn backup(&self, _: &Caller, _: &str) -> Result<BackupReport> {
        not_asked()
    }
    async fn check(&self, _: &Caller) -> Result<CheckReport> {
        not_asked()
    }
    async fn share(&self, caller: &Caller, _: Origin, directory: &str, at: &RelPath) -> Result<Share> {
        let mut shares = self.shares.lock().expect("whole");
        let share = Share {
            volume: VolumeId(shares.len() as u16 + 1),
            at: format!("/{at}"),
            directory: directory.into(),
            made: Sys::real().now(),
            by: Some(caller.name().clone()),
            away: None,
            limited_to: None,
        };
        shares.push(share.clone());
        Ok(share)
    }
    async fn unshare(&self, _: &Caller, at: &RelPath) -> Result<Share> {
        let (mut shares, at) = (self.shares.lock().expect("whole"), format!("/{at}"));
        let place = shares.iter().position(|share| share.at == at);
        place.map(|place| shares.remove(place)).ok_or_else(|| Error::not_found("nothing is there"))
    }
    async fn shares(&self, _: &Caller) -> Result<Vec<Share>> {
        Ok(self.shares.lock().expect("whole").clone())
    }
}
