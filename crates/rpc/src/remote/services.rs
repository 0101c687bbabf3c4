//! `Authority`, `Accounts`, `Node`, `Links`, `Tokens` and the reader's side of `Audit` over a connection.

use std::time::Duration;

use async_trait::async_trait;
use weft_core::drop_box::DropLimits;
use weft_core::form::Origin;
use weft_core::proof::{Attenuation, Caller, Signed};
use weft_core::service::{
    Accounts, AuditFilter, AuditPage, AuditVerdict, BackupReport, CheckReport, DropBoxRecord, Evidence,
    GroupEdit, GroupRecord, Identity, Keys, LinkGrant, LinkRecord, Links, NewLink, NewToken, NewUser, Node,
    NodeHealth, NodeStatus, Revoke, Scrub, Share, TokenGrant, TokenRecord, Tokens, TokensOf, UserEdit,
    UserRecord,
};
use weft_core::{CallerId, CallerName, Error, LinkId, RelPath, Result, TokenId, limits};

use super::{Remote, take};
use crate::message::{AccountsAsk, Answer, AuditAsk, AuthorityAsk, CallBody, LinksAsk, NodeAsk, TokensAsk};

/// The version since which a node is asked about shares: an older one would take the question for
/// nonsense, and hang up.
const SHARES_SINCE: u16 = 4;
/// The same of links.
const LINKS_SINCE: u16 = 5;
/// The same of tokens.
const TOKENS_SINCE: u16 = 7;
/// The same of a group's members.
const MEMBERS_SINCE: u16 = 7;
/// The same of how well it is.
const HEALTH_SINCE: u16 = 6;
/// The same of its scrubber and its keys.
const UPKEEP_SINCE: u16 = 7;

impl Remote {
    async fn authority(&self, caller: &Caller, ask: AuthorityAsk) -> Result<Answer> {
        self.0.call_as(caller, CallBody::Authority(ask), limits::CALL_DEADLINE).await
    }

    async fn accounts(&self, caller: &Caller, ask: AccountsAsk) -> Result<Answer> {
        self.0.call_as(caller, CallBody::Accounts(ask), limits::CALL_DEADLINE).await
    }

    async fn about_shares(&self, caller: &Caller, ask: NodeAsk) -> Result<Answer> {
        if self.0.connection.welcome().version < SHARES_SINCE {
            return Err(Error::unsupported("the node is too old to share directories of its machine"));
        }
        self.0.call_as(caller, CallBody::Node(ask), limits::CALL_DEADLINE).await
    }

    async fn about_upkeep(&self, caller: &Caller, ask: NodeAsk) -> Result<Answer> {
        if self.0.connection.welcome().version < UPKEEP_SINCE {
            return Err(Error::unsupported("the node is too old to be asked about its scrubber and keys"));
        }
        self.0.call_as(caller, CallBody::Node(ask), limits::CALL_DEADLINE).await
    }

    async fn about_links(&self, caller: &Caller, ask: LinksAsk) -> Result<Answer> {
        if self.0.connection.welcome().version < LINKS_SINCE {
            return Err(Error::unsupported("the node is too old to have links"));
        }
        self.0.call_as(caller, CallBody::Links(ask), limits::CALL_DEADLINE).await
    }

    async fn about_tokens(&self, caller: &Caller, ask: TokensAsk) -> Result<Answer> {
        if self.0.connection.welcome().version < TOKENS_SINCE {
            return Err(Error::unsupported("the node is too old to have tokens"));
        }
        self.0.call_as(caller, CallBody::Tokens(ask), limits::CALL_DEADLINE).await
    }

    /// Returns as whom the node sees this caller.
    pub async fn who_am_i(&self, caller: &Caller) -> Result<Identity> {
        take!(self.authority(caller, AuthorityAsk::WhoAmI).await?, Answer::Identity(identity) => identity)
    }

    /// Exchanges evidence for a credential.
    pub async fn login(&self, evidence: Evidence, limits: Attenuation, life: Duration) -> Result<Signed> {
        let ask = AuthorityAsk::Login { evidence, limits, life_s: seconds(life) };
        take!(self.authority(&Caller::anyone(), ask).await?, Answer::Credential(signed) => signed)
    }

    /// Logs in as the uid of this process.
    pub async fn login_here(&self, limits: Attenuation, life: Duration) -> Result<Signed> {
        let ask = AuthorityAsk::LoginHere { limits, life_s: seconds(life) };
        take!(self.authority(&Caller::anyone(), ask).await?, Answer::Credential(signed) => signed)
    }

    /// Returns a credential for whoever this caller is to the node.
    pub async fn credential(&self, caller: &Caller, limits: Attenuation, life: Duration) -> Result<Signed> {
        let ask = AuthorityAsk::Credential { limits, life_s: seconds(life) };
        take!(self.authority(caller, ask).await?, Answer::Credential(signed) => signed)
    }

    /// Returns the names behind ids, in their order.
    pub async fn names_of(&self, caller: &Caller, ids: Vec<CallerId>) -> Result<Vec<Option<CallerName>>> {
        take!(self.authority(caller, AuthorityAsk::NamesOf(ids)).await?, Answer::Names(names) => names)
    }

    /// Withdraws.
    pub async fn revoke(&self, caller: &Caller, what: Revoke) -> Result<()> {
        take!(self.authority(caller, AuthorityAsk::Revoke(what)).await?, Answer::Done => ())
    }

    /// Returns audit records.
    pub async fn audit_records(&self, caller: &Caller, filter: AuditFilter) -> Result<AuditPage> {
        let body = CallBody::Audit(AuditAsk::Records(filter));
        take!(self.0.call_as(caller, body, limits::CALL_DEADLINE).await?, Answer::Records(page) => page)
    }

    /// Verifies the audit log.
    pub async fn audit_verify(&self, caller: &Caller) -> Result<AuditVerdict> {
        let body = CallBody::Audit(AuditAsk::Verify);
        take!(self.0.call_as(caller, body, limits::UPKEEP_WITHIN).await?, Answer::Verdict(verdict) => verdict)
    }
}

fn seconds(life: Duration) -> u32 {
    u32::try_from(life.as_secs()).unwrap_or(u32::MAX)
}

#[async_trait]
impl Accounts for Remote {
    async fn add_user(&self, caller: &Caller, user: &NewUser) -> Result<UserRecord> {
        take!(self.accounts(caller, AccountsAsk::AddUser(user.clone())).await?, Answer::User(user) => user)
    }

    async fn edit_user(&self, caller: &Caller, name: &CallerName, edit: &UserEdit) -> Result<UserRecord> {
        let ask = AccountsAsk::EditUser(name.clone(), edit.clone());
        take!(self.accounts(caller, ask).await?, Answer::User(user) => user)
    }

    async fn users(&self, caller: &Caller, after: Option<&CallerName>) -> Result<Vec<UserRecord>> {
        take!(self.accounts(caller, AccountsAsk::Users(after.cloned())).await?, Answer::Users(users) => users)
    }

    async fn add_group(&self, caller: &Caller, name: &str) -> Result<GroupRecord> {
        take!(self.accounts(caller, AccountsAsk::AddGroup(name.into())).await?, Answer::Group(group) => group)
    }

    async fn edit_group(&self, caller: &Caller, name: &CallerName, edit: &GroupEdit) -> Result<GroupRecord> {
        let ask = AccountsAsk::EditGroup(name.clone(), edit.clone());
        take!(self.accounts(caller, ask).await?, Answer::Group(group) => group)
    }

    async fn remove_group(&self, caller: &Caller, name: &CallerName) -> Result<()> {
        take!(self.accounts(caller, AccountsAsk::RemoveGroup(name.clone())).await?, Answer::Done => ())
    }

    async fn groups(&self, caller: &Caller, after: Option<&CallerName>) -> Result<Vec<GroupRecord>> {
        take!(self.accounts(caller, AccountsAsk::Groups(after.cloned())).await?, Answer::Groups(groups) => groups)
    }

    /// An older node tells all members with their group.
    async fn members(
        &self,
        caller: &Caller,
        group: &CallerName,
        after: Option<CallerId>,
    ) -> Result<Vec<CallerName>> {
        if self.0.connection.welcome().version < MEMBERS_SINCE {
            return Ok(Vec::new());
        }
        let ask = AccountsAsk::Members(group.clone(), after);
        take!(self.accounts(caller, ask).await?, Answer::Members(members) => members)
    }
}

#[async_trait]
impl Node for Remote {
    async fn status(&self, caller: &Caller) -> Result<NodeStatus> {
        let body = CallBody::Node(NodeAsk::Status);
        take!(self.0.call_as(caller, body, limits::CALL_DEADLINE).await?, Answer::Status(status) => status)
    }

    async fn health(&self, caller: &Caller) -> Result<NodeHealth> {
        if self.0.connection.welcome().version < HEALTH_SINCE {
            return Err(Error::unsupported("the node is too old to say how well it is"));
        }
        let body = CallBody::Node(NodeAsk::Health);
        take!(self.0.call_as(caller, body, limits::CALL_DEADLINE).await?, Answer::Health(health) => health)
    }

    async fn stop(&self, caller: &Caller) -> Result<()> {
        let body = CallBody::Node(NodeAsk::Stop);
        take!(self.0.call_as(caller, body, limits::CALL_DEADLINE).await?, Answer::Done => ())
    }

    async fn backup(&self, caller: &Caller, into: &str) -> Result<BackupReport> {
        let body = CallBody::Node(NodeAsk::Backup(into.into()));
        take!(self.0.call_as(caller, body, limits::UPKEEP_WITHIN).await?, Answer::Backup(report) => report)
    }

    async fn check(&self, caller: &Caller) -> Result<CheckReport> {
        take!(self.0.call_as(caller, CallBody::Node(NodeAsk::Check), limits::UPKEEP_WITHIN).await?, Answer::Check(report) => report)
    }

    async fn scrub(&self, caller: &Caller, begin: bool) -> Result<Scrub> {
        take!(self.about_upkeep(caller, NodeAsk::Scrub { begin }).await?, Answer::Scrub(scrub) => scrub)
    }

    async fn keys(&self, caller: &Caller) -> Result<Keys> {
        take!(self.about_upkeep(caller, NodeAsk::Keys).await?, Answer::Keys(keys) => keys)
    }

    async fn rotate_keys(&self, caller: &Caller, root_key: Option<&str>, revoke_old: bool) -> Result<Keys> {
        let ask = NodeAsk::RotateKeys { root_key: root_key.map(str::to_owned), revoke_old };
        take!(self.about_upkeep(caller, ask).await?, Answer::Keys(keys) => keys)
    }

    /// The node knows itself from where it is asked.
    async fn share(&self, caller: &Caller, _: Origin, directory: &str, at: &RelPath) -> Result<Share> {
        let ask = NodeAsk::Share { directory: directory.into(), at: at.clone() };
        take!(self.about_shares(caller, ask).await?, Answer::Share(share) => share)
    }

    async fn unshare(&self, caller: &Caller, at: &RelPath) -> Result<Share> {
        take!(self.about_shares(caller, NodeAsk::Unshare(at.clone())).await?, Answer::Share(share) => share)
    }

    async fn shares(&self, caller: &Caller) -> Result<Vec<Share>> {
        take!(self.about_shares(caller, NodeAsk::Shares).await?, Answer::Shares(shares) => shares)
    }
}

#[async_trait]
impl Links for Remote {
    /// The node knows itself from where it is asked.
    async fn make_link(&self, caller: &Caller, _: Origin, at: &RelPath, new: &NewLink) -> Result<LinkGrant> {
        let ask = LinksAsk::Make { at: at.clone(), new: new.clone() };
        take!(self.about_links(caller, ask).await?, Answer::LinkMade(made) => made)
    }

    async fn links(
        &self,
        caller: &Caller,
        all: bool,
        after: Option<(CallerId, LinkId)>,
    ) -> Result<Vec<LinkRecord>> {
        take!(self.about_links(caller, LinksAsk::List { all, after }).await?, Answer::Links(links) => links)
    }

    async fn end_link(&self, caller: &Caller, id: LinkId) -> Result<LinkRecord> {
        take!(self.about_links(caller, LinksAsk::End(id)).await?, Answer::Link(link) => link)
    }

    async fn make_drop_box(
        &self,
        caller: &Caller,
        _: Origin,
        at: &RelPath,
        limits: &DropLimits,
    ) -> Result<DropBoxRecord> {
        let ask = LinksAsk::MakeDropBox { at: at.clone(), limits: *limits };
        take!(self.about_links(caller, ask).await?, Answer::DropBox(made) => made)
    }

    async fn drop_boxes(&self, caller: &Caller) -> Result<Vec<DropBoxRecord>> {
        take!(self.about_links(caller, LinksAsk::DropBoxes).await?, Answer::DropBoxes(boxes) => boxes)
    }

    async fn end_drop_box(&self, caller: &Caller, _: Origin, at: &RelPath) -> Result<DropBoxRecord> {
        let ask = LinksAsk::EndDropBox(at.clone());
        take!(self.about_links(caller, ask).await?, Answer::DropBox(was) => was)
    }
}

#[async_trait]
impl Tokens for Remote {
    async fn make_token(&self, caller: &Caller, new: &NewToken) -> Result<TokenGrant> {
        take!(self.about_tokens(caller, TokensAsk::Make(new.clone())).await?, Answer::TokenMade(made) => made)
    }

    async fn tokens(
        &self,
        caller: &Caller,
        of: &TokensOf,
        after: Option<(CallerId, TokenId)>,
    ) -> Result<Vec<TokenRecord>> {
        let ask = TokensAsk::List { of: of.clone(), after };
        take!(self.about_tokens(caller, ask).await?, Answer::Tokens(tokens) => tokens)
    }

    async fn end_token(&self, caller: &Caller, id: TokenId) -> Result<TokenRecord> {
        take!(self.about_tokens(caller, TokensAsk::End(id)).await?, Answer::Token(token) => token)
    }
}
