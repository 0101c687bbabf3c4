//! A call's body to the trait it belongs to, and the answer back.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::sync::{mpsc, watch};
use weft_core::attr::Changed;
use weft_core::form::{
    BytesSource, Call, Entry, FileSystem, OpenFile, Piece, Range, Request, Source, Stage, Wait, dispatch,
    put_whole,
};
use weft_core::metrics::{Outcome, Way, Work};
use weft_core::service::Evidence;
use weft_core::{Deadline, Error, ErrorReport, Result, StageId, Tick, limits};
use weft_rpc::{
    AccountsAsk, Answer, AuditAsk, AuthorityAsk, CallBody, FileAsk, FileRef, Frame, LinksAsk, NodeAsk, Put,
    StageAsk, ToClient, TokensAsk,
};
use weft_sys::Sys;

use crate::Services;
use crate::connection::Replies;
use crate::download::{download, lend};
use crate::held::{Held, Part, busy};
use crate::repeats::{Act, Turn};
use crate::sessions::OpenTable;
use crate::upload::{Inflow, Upload};

/// A call under way, with all it needs.
pub(crate) struct Calling {
    pub(crate) services: Arc<Services>,
    pub(crate) replies: Replies,
    pub(crate) stream: u32,
    pub(crate) call: Call,
    pub(crate) opens: Arc<OpenTable>,
    /// Bytes that came with the call, if it takes any.
    pub(crate) payload: Bytes,
    /// Memory of the client's that the call's bytes lie in, if it is such a call.
    pub(crate) lent: Option<Piece>,
    /// What the call takes of its uid's room, until its answer is made.
    pub(crate) part: Option<Part>,
    pub(crate) held: Arc<Held>,
    /// Bytes that follow the call, if it takes any.
    pub(crate) inflow: Option<Inflow>,
    /// Ends when nobody waits for the answer any more.
    pub(crate) given_up: watch::Receiver<()>,
    pub(crate) credited: mpsc::Receiver<u32>,
}

impl Calling {
    /// Makes the call and sends what comes of it. If the client is gone, nobody hears.
    pub(crate) async fn run(mut self, body: CallBody) {
        let counted = Counted::new(&self.services, &body);
        let outcome = self.answer(body).await;
        counted.ended(outcome.as_ref().err());
        // What came is not kept while the answer waits to be taken.
        drop((std::mem::take(&mut self.payload), self.part.take()));
        let answer = match outcome {
            Ok(None) => return,
            Ok(Some(answer)) => Ok(answer),
            Err(error) => {
                tracing::debug!(trace = %self.call.trace, caller = %self.call.caller.name(), %error, "a call was refused");
                Err(ErrorReport::from(&error))
            }
        };
        let frame = Frame::new(self.stream, &ToClient::Reply(Box::new(answer)), Bytes::new());
        let _ = self.replies.send(frame).await;
    }

    /// Returns the answer: that of the same call before, if it comes again by its mark.
    async fn answer(&mut self, body: CallBody) -> Result<Option<Answer>> {
        let marked =
            self.call.once.and_then(|mark| Some((mark, (self.call.caller.name().id(), Act::of(&body)?))));
        let Some((mark, asked)) = marked else { return self.answer_anew(body).await };
        let repeats = self.opens.repeats.clone();
        let turn = self.services.sys.within(self.call.until, repeats.begin(mark, &asked)).await?;
        match turn {
            Turn::Made(answer) => Ok(Some(*answer)),
            Turn::Make(keeper) => {
                let answer = self.answer_anew(body).await?;
                if let Some(answer) = &answer {
                    keeper.keep(answer.clone());
                }
                Ok(answer)
            }
        }
    }

    /// Returns the answer, or `None` if a download has answered already, or nobody waits for it.
    async fn answer_anew(&mut self, body: CallBody) -> Result<Option<Answer>> {
        let fs = &*self.services.fs;
        Ok(Some(match body {
            CallBody::Request(request) => Answer::Reply(dispatch(fs, &self.call, request).await?),
            CallBody::Batch(requests) => {
                let replies = fs.batch(&self.call, requests).await;
                Answer::Batch(replies.into_iter().map(|r| r.map_err(|e| (&e).into())).collect())
            }
            CallBody::Open(at, how) => {
                let opened = fs.open(&self.call, &at, &how).await?;
                let file = self.opens.add(opened.file, how.pin, self.held.open()?)?;
                Answer::Opened { file, attr: opened.attr, made: opened.made, parent: opened.parent }
            }
            CallBody::File(file, FileAsk::Read(range)) => {
                let source = self.file_to_read(file).await?.read(&self.call, range).await?;
                download(self.stream, source, &self.replies, &mut self.credited).await?;
                return Ok(None);
            }
            CallBody::File(file, FileAsk::Lend(Range { at, length })) => {
                let open = self.file_to_read(file).await?;
                let Some(passing) = self.replies.lends().cloned() else {
                    return Ok(Some(Answer::Lent(Vec::new())));
                };
                let most = limits::RPC_LENT_BYTES_MAX as u64;
                let range = Range { at, length: Some(length.unwrap_or(most).min(most)) };
                lend(self.stream, open.lend(&self.call, range).await?, &self.replies, passing).await?;
                return Ok(None);
            }
            CallBody::File(file, ask) => self.on_file(file, ask).await?,
            CallBody::Stage(at, hint) => {
                Answer::Stage(self.keep_stage(fs.stage(&self.call, &at, &hint).await?))
            }
            CallBody::Staged(id) => Answer::Stage(self.keep_stage(fs.staged(&self.call, id).await?)),
            CallBody::OnStage(id, ask) => self.on_stage(id, ask).await?,
            CallBody::Lock(at, lock, wait_ms) => {
                let clock = self.services.sys.clock();
                let wait = wait_ms.map_or(Wait::No, |ms| {
                    let slice = Duration::from_millis(ms.into()).min(limits::LOCK_WAIT_SLICE);
                    Wait::Until(Deadline::within(clock, slice))
                });
                // A lock that nobody waits for is not taken: nobody would give it up.
                let lease = tokio::select! {
                    biased;
                    lease = fs.lock(&self.call, &at, &lock, wait) => lease?,
                    () = closed(&mut self.given_up) => return Ok(None),
                };
                Answer::Locked(u32::try_from(lease.until.since(clock.tick()).as_millis()).unwrap_or(u32::MAX))
            }
            CallBody::Test(at, lock) => Answer::InTheWay(fs.test(&self.call, &at, &lock).await?),
            CallBody::Unlock(at, lock) => {
                fs.unlock(&self.call, &at, &lock).await?;
                Answer::Done
            }
            CallBody::Authority(ask) => self.authority(ask).await?,
            CallBody::Accounts(ask) => self.accounts(ask).await?,
            CallBody::Node(ask) => self.node(ask).await?,
            CallBody::Audit(ask) => self.audit(ask).await?,
            CallBody::Links(ask) => self.links(ask).await?,
            CallBody::Tokens(ask) => self.tokens(ask).await?,
            CallBody::Supports(volume) => Answer::Supports(fs.supports(volume)),
            CallBody::Put(at, whole) => {
                let bytes = std::mem::take(&mut self.payload);
                Answer::Published(put_whole(fs, &self.call, &at, bytes, &whole).await?)
            }
            CallBody::PutAll(puts) => {
                let bytes = std::mem::take(&mut self.payload);
                Answer::PublishedAll(put_all(fs, &self.call, puts, bytes).await?)
            }
        }))
    }

    async fn file(&self, file: FileRef) -> Result<Arc<dyn OpenFile>> {
        match file {
            FileRef::Open(number) => self.opens.file(number),
            FileRef::Id(id, need) => self.services.fs.file(&self.call, id, need).await,
        }
    }

    /// Returns an open file; has nothing of it be lent if it is of one version: whoever is lent a file reads it later, when it
    /// may have another.
    async fn file_to_read(&mut self, file: FileRef) -> Result<Arc<dyn OpenFile>> {
        let open = self.file(file).await?;
        if matches!(file, FileRef::Open(number) if self.opens.is_pinned(number)) {
            self.replies.lend_by(None);
        }
        Ok(open)
    }

    async fn on_file(&mut self, file: FileRef, ask: FileAsk) -> Result<Answer> {
        let open = self.file(file).await?;
        let call = &self.call;
        Ok(match ask {
            FileAsk::Check => Answer::Done,
            FileAsk::Attr => Answer::Attr(open.attr(call).await?),
            FileAsk::Write { at, whole } => {
                let mut data = self.upload(whole);
                Answer::Written(open.write(&self.call, at, &mut *data).await?)
            }
            FileAsk::WriteLent { at, length, .. } => {
                let _room = self.room(length as usize).await?;
                let lent = self.lent.take().ok_or_else(|| Error::internal("nothing was lent"))?;
                Answer::Written(open.write(&self.call, at, &mut BytesSource::of(lent)).await?)
            }
            FileAsk::Shape(shape) => Answer::Wcc(open.shape(call, shape).await?),
            FileAsk::Seek(offset, what) => Answer::Offset(open.seek(call, offset, what).await?),
            FileAsk::Digests(block) => Answer::Digests(open.digests(call, block).await?),
            FileAsk::Sync(range) => Answer::Verifier(open.sync(call, range).await?),
            FileAsk::Close => {
                if let FileRef::Open(number) = file {
                    self.opens.drop_file(number);
                }
                open.close(call).await?;
                Answer::Done
            }
            FileAsk::Read(_) | FileAsk::Lend(_) => {
                return Err(Error::internal("what is read is answered where it is asked for"));
            }
        })
    }

    /// Waits for room for bytes that are about to be read.
    async fn room(&self, bytes: usize) -> Result<Part> {
        let patience = Deadline::within(self.services.sys.clock(), limits::TRANSFER_IDLE);
        self.services.sys.within(patience, self.held.incoming(bytes)).await.map_err(busy)
    }

    async fn on_stage(&mut self, id: StageId, ask: StageAsk) -> Result<Answer> {
        let stage = self.stage(id).await?;
        Ok(match ask {
            StageAsk::Put { number, offset, whole } => {
                let mut data = self.upload(whole);
                Answer::Part(stage.put(&self.call, number, offset, &mut *data).await?)
            }
            StageAsk::Parts(from) => Answer::Parts(stage.parts(&self.call, from).await?),
            StageAsk::Publish { parts, set, guard } => {
                // Kept: the same publish may be sent again and is answered the same.
                Answer::Published(stage.publish(&self.call, &parts, &set, &guard).await?)
            }
            StageAsk::Discard => {
                stage.discard(&self.call).await?;
                self.opens.drop_stage(id);
                Answer::Done
            }
        })
    }

    /// Keeps a stage for the calls to come. One that there is no room for is found again by its id.
    fn keep_stage(&self, stage: Arc<dyn Stage>) -> StageId {
        let id = stage.id();
        if let Ok(part) = self.held.open() {
            self.opens.add_stage(stage, part);
        }
        id
    }

    async fn stage(&self, id: StageId) -> Result<Arc<dyn Stage>> {
        match self.opens.stage(id) {
            Some(stage) => Ok(stage),
            None => self.services.fs.staged(&self.call, id).await,
        }
    }

    /// Returns the bytes that came with the call, or those that follow it.
    fn upload(&mut self, whole: bool) -> Box<dyn Source> {
        match self.inflow.take() {
            Some(inflow) if !whole => Box::new(Upload::new(self.stream, self.replies.clone(), inflow)),
            _ => Box::new(BytesSource::new(std::mem::take(&mut self.payload))),
        }
    }

    async fn authority(&self, ask: AuthorityAsk) -> Result<Answer> {
        let (authority, caller) = (&self.services.authority, &self.call.caller);
        let seconds = |life_s: u32| Duration::from_secs(life_s.into());
        Ok(match ask {
            AuthorityAsk::WhoAmI => Answer::Identity(caller.into()),
            AuthorityAsk::Login { evidence, limits, life_s } => {
                // Only the kernel says who is at the other end of the socket, and only a handshake who holds a key.
                if matches!(evidence, Evidence::SocketUid(_) | Evidence::Certificate(_)) {
                    return Err(Error::invalid("a uid or a certificate is no evidence that can be sent"));
                }
                let from = self.call.from;
                Answer::Credential(authority.login(&evidence, &limits, seconds(life_s), from).await?)
            }
            AuthorityAsk::LoginHere { limits, life_s } => {
                let from = self.call.from;
                let uid = from.uid.ok_or_else(|| Error::internal("the socket has told no uid"))?;
                let evidence = Evidence::SocketUid(uid);
                Answer::Credential(authority.login(&evidence, &limits, seconds(life_s), from).await?)
            }
            AuthorityAsk::Credential { limits, life_s } => {
                Answer::Credential(authority.credential(caller, &limits, seconds(life_s)).await?)
            }
            AuthorityAsk::NamesOf(ids) => {
                let mut names = Vec::new();
                for id in ids.into_iter().take(limits::PAGE_ENTRIES_MAX as usize) {
                    names.push(authority.name_of(id).await?);
                }
                Answer::Names(names)
            }
            AuthorityAsk::Revoke(what) => {
                authority.revoke(caller, &what).await?;
                Answer::Done
            }
        })
    }

    async fn accounts(&self, ask: AccountsAsk) -> Result<Answer> {
        let (accounts, caller) = (&self.services.accounts, &self.call.caller);
        Ok(match ask {
            AccountsAsk::AddUser(user) => Answer::User(accounts.add_user(caller, &user).await?),
            AccountsAsk::EditUser(name, edit) => {
                Answer::User(accounts.edit_user(caller, &name, &edit).await?)
            }
            AccountsAsk::Users(after) => Answer::Users(accounts.users(caller, after.as_ref()).await?),
            AccountsAsk::AddGroup(name) => Answer::Group(accounts.add_group(caller, &name).await?),
            AccountsAsk::EditGroup(name, edit) => {
                Answer::Group(accounts.edit_group(caller, &name, &edit).await?)
            }
            AccountsAsk::RemoveGroup(name) => {
                accounts.remove_group(caller, &name).await?;
                Answer::Done
            }
            AccountsAsk::Groups(after) => Answer::Groups(accounts.groups(caller, after.as_ref()).await?),
            AccountsAsk::Members(group, after) => {
                Answer::Members(accounts.members(caller, &group, after).await?)
            }
        })
    }

    async fn node(&self, ask: NodeAsk) -> Result<Answer> {
        let (node, caller) = (&self.services.node, &self.call.caller);
        Ok(match ask {
            NodeAsk::Status => Answer::Status(node.status(caller).await?),
            NodeAsk::Scrub { begin } => Answer::Scrub(node.scrub(caller, begin).await?),
            NodeAsk::Keys => Answer::Keys(node.keys(caller).await?),
            NodeAsk::RotateKeys { root_key, revoke_old } => {
                Answer::Keys(node.rotate_keys(caller, root_key.as_deref(), revoke_old).await?)
            }
            NodeAsk::Health => Answer::Health(node.health(caller).await?),
            NodeAsk::Stop => {
                node.stop(caller).await?;
                Answer::Done
            }
            NodeAsk::Backup(into) => Answer::Backup(node.backup(caller, &into).await?),
            NodeAsk::Check => Answer::Check(node.check(caller).await?),
            NodeAsk::Share { directory, at } => {
                Answer::Share(node.share(caller, self.call.from, &directory, &at).await?)
            }
            NodeAsk::Unshare(at) => Answer::Share(node.unshare(caller, &at).await?),
            NodeAsk::Shares => Answer::Shares(node.shares(caller).await?),
        })
    }

    async fn links(&self, ask: LinksAsk) -> Result<Answer> {
        let (links, caller) = (&self.services.links, &self.call.caller);
        Ok(match ask {
            LinksAsk::Make { at, new } => {
                Answer::LinkMade(links.make_link(caller, self.call.from, &at, &new).await?)
            }
            LinksAsk::List { all, after } => Answer::Links(links.links(caller, all, after).await?),
            LinksAsk::End(id) => Answer::Link(links.end_link(caller, id).await?),
            LinksAsk::MakeDropBox { at, limits } => {
                Answer::DropBox(links.make_drop_box(caller, self.call.from, &at, &limits).await?)
            }
            LinksAsk::DropBoxes => Answer::DropBoxes(links.drop_boxes(caller).await?),
            LinksAsk::EndDropBox(at) => {
                Answer::DropBox(links.end_drop_box(caller, self.call.from, &at).await?)
            }
        })
    }

    async fn tokens(&self, ask: TokensAsk) -> Result<Answer> {
        let (tokens, caller) = (&self.services.tokens, &self.call.caller);
        Ok(match ask {
            TokensAsk::Make(new) => Answer::TokenMade(tokens.make_token(caller, &new).await?),
            TokensAsk::List { of, after } => Answer::Tokens(tokens.tokens(caller, &of, after).await?),
            TokensAsk::End(id) => Answer::Token(tokens.end_token(caller, id).await?),
        })
    }

    async fn audit(&self, ask: AuditAsk) -> Result<Answer> {
        let (audit, caller) = (&self.services.audit, &self.call.caller);
        Ok(match ask {
            AuditAsk::Records(filter) => Answer::Records(audit.records(caller, &filter).await?),
            AuditAsk::Verify => Answer::Verdict(audit.verify(caller).await?),
        })
    }
}

/// Makes several files whose bytes came one after the other. They are on their way at once, so that
/// they share what brings them to disk.
async fn put_all(
    fs: &dyn FileSystem,
    call: &Call,
    puts: Vec<Put>,
    mut bytes: Bytes,
) -> Result<Vec<std::result::Result<Changed<Entry>, ErrorReport>>> {
    let told: usize = puts.iter().map(|put| put.bytes as usize).sum();
    if told != bytes.len() {
        return Err(Error::invalid("the bytes that came are not those of the files"));
    }
    let made = puts.into_iter().map(|Put { at, bytes: own, whole }| {
        let own = bytes.split_to(own as usize);
        async move { put_whole(fs, call, &at, own, &whole).await.map_err(|e| ErrorReport::from(&e)) }
    });
    Ok(join_all(made.collect::<Vec<_>>()).await)
}

/// A request that is counted when it ends; one that is given up before is counted too.
pub(crate) struct Counted {
    sys: Sys,
    begun: Tick,
    work: Work,
    outcome: Outcome,
}

impl Counted {
    pub(crate) fn new(services: &Services, body: &CallBody) -> Self {
        let (sys, begun) = (services.sys.clone(), services.sys.clock().tick());
        Self { sys, begun, work: work_of(body), outcome: Outcome::Broken }
    }

    pub(crate) fn ended(mut self, error: Option<&Error>) {
        self.outcome = error.map_or(Outcome::Done, |error| Outcome::of(error.kind()));
        if let Some(error) = error {
            self.sys.metrics().doors_errors.count((Way::Native, error.kind()));
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let (metrics, took) = (self.sys.metrics(), self.sys.clock().tick().since(self.begun));
        metrics.doors_requests.count((Way::Native, self.work, self.outcome));
        metrics.doors_took.took((Way::Native, self.work), took);
    }
}

/// Returns what sort of work a call is.
fn work_of(body: &CallBody) -> Work {
    match body {
        CallBody::Request(request) => work_of_request(request),
        // Of a batch, that of its first: clients send like with like.
        CallBody::Batch(requests) => requests.first().map_or(Work::Other, work_of_request),
        CallBody::Open(..) | CallBody::Supports(_) => Work::Look,
        CallBody::File(_, FileAsk::Read(_) | FileAsk::Lend(_) | FileAsk::Digests(_)) => Work::Read,
        CallBody::File(
            _,
            FileAsk::Write { .. } | FileAsk::WriteLent { .. } | FileAsk::Shape(_) | FileAsk::Sync(_),
        ) => Work::Write,
        CallBody::File(..) => Work::Look,
        CallBody::Stage(..) | CallBody::Staged(_) | CallBody::OnStage(..) => Work::Write,
        CallBody::Put(..) | CallBody::PutAll(_) => Work::Write,
        CallBody::Lock(..) | CallBody::Test(..) | CallBody::Unlock(..) => Work::Lock,
        CallBody::Authority(_) | CallBody::Accounts(_) | CallBody::Links(_) | CallBody::Tokens(_) => {
            Work::Rights
        }
        CallBody::Node(_) | CallBody::Audit(_) => Work::Operate,
    }
}

fn work_of_request(request: &Request) -> Work {
    match request {
        Request::Walk { .. }
        | Request::List { .. }
        | Request::Target { .. }
        | Request::Tags { .. }
        | Request::Space { .. }
        | Request::Stages { .. }
        | Request::Watch { .. } => Work::Look,
        Request::Make { .. }
        | Request::Link { .. }
        | Request::Rename { .. }
        | Request::Remove { .. }
        | Request::Set { .. }
        | Request::Tag { .. } => Work::Change,
        Request::Copy { .. } | Request::Sync { .. } => Work::Write,
        Request::Policy { .. } | Request::Protect { .. } | Request::Why { .. } => Work::Rights,
    }
}

/// Ends when the other end is gone: nothing is ever said over it.
async fn closed(other_end: &mut watch::Receiver<()>) {
    while other_end.changed().await.is_ok() {}
}
