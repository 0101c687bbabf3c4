//! Messages. Adding one: append a variant, raise [`VERSION`], and say in
//! `docs/decisions/` what an older end does with it. Variants are never reordered:
//! their numbers travel.

use std::fmt;
use std::marker::PhantomData;

use bytes::Bytes;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use weft_core::attr::{Attr, Changed, SetAttr, Wcc};
use weft_core::drop_box::DropLimits;
use weft_core::form::{
    Ack, At, Entry, Guard, Lock, OpenHow, Part, PartPage, Range, Reply, Request, Seek, Shape, StageHint,
    Supports, Verifier, Whole, Wire, WriteAt, Written,
};
use weft_core::proof::{Attenuation, KeyCertificate, Signed};
use weft_core::rights::Rights;
use weft_core::service::{
    AuditFilter, AuditPage, AuditVerdict, BackupReport, CheckReport, DropBoxRecord, Evidence, GroupEdit,
    GroupRecord, Identity, Keys, LinkGrant, LinkRecord, NewLink, NewToken, NewUser, NodeHealth, NodeStatus,
    Revoke, Scrub, SessionGrant, Share, TokenGrant, TokenRecord, TokensOf, UserEdit, UserRecord,
};
use weft_core::{
    CallerId, CallerName, DomainId, ErrorReport, FileId, LinkId, RelPath, RequestId, StageId, TokenId,
    TraceId, VolumeId, limits,
};

/// The newest version this build speaks.
pub const VERSION: u16 = 11;
/// The oldest version this build still speaks.
pub const VERSION_OLDEST: u16 = 1;
/// The version since which a client understands [`Answer::Lent`].
pub const LENT_SINCE: u16 = 9;
/// The version since which a node understands [`FileAsk::WriteLent`].
pub const WRITE_LENT_SINCE: u16 = 10;
/// The version since which a node understands [`FileAsk::Lend`].
pub const LEND_SINCE: u16 = 11;

/// What a client sends. The stream number in the frame says which call it belongs to;
/// 0 belongs to none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToServer {
    /// The first message: the versions the client speaks.
    Hello {
        /// The oldest.
        oldest: u16,
        /// The newest.
        newest: u16,
    },
    /// Presents a credential under a number the client chose. Not answered: a call under
    /// the number fails if the credential does.
    Present {
        /// The number; not 0 (the connection itself) or 1 (anyone).
        number: u32,
        /// The credential.
        credential: Signed,
    },
    /// Forgets a number.
    Forget {
        /// The number.
        number: u32,
    },
    /// Begins, or resumes, a session under a number the client chose.
    Begin {
        /// The number.
        session: u32,
        /// Whose it is.
        credential: u32,
        /// The session to take up again.
        resume: Option<SessionGrant>,
    },
    /// Ends a session.
    End {
        /// The number.
        session: u32,
    },
    /// Abandons an open file without asking how it went.
    Drop {
        /// The session it was opened in.
        session: u32,
        /// Its number.
        file: u32,
    },
    /// A call.
    Call {
        /// What accompanies it.
        header: CallHeader,
        /// What is asked.
        body: CallBody,
    },
    /// Bytes of an upload; the payload holds them.
    Data {
        /// Whether these are the last.
        end: bool,
    },
    /// The client's own source failed: there will be no more bytes.
    Abort(ErrorReport),
    /// Room for so many more bytes of a download.
    Credit(u32),
    /// Nobody waits for the stream any more.
    Cancel,
}

/// What accompanies a call (request-form law 19).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallHeader {
    /// The number a credential was presented under; 0 is the connection's own
    /// identity (the uid at the socket), 1 is anyone.
    pub credential: u32,
    /// The number a session was begun under.
    pub session: u32,
    /// For changes that must happen at most once.
    pub once: Option<RequestId>,
    /// When a change is answered.
    pub ack: Ack,
    /// The least protection asked for.
    pub wire: Wire,
    /// The trace.
    pub trace: TraceId,
    /// Milliseconds until there must be an answer.
    pub left_ms: u32,
}

/// A file that a call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FileRef {
    /// One that was opened in the session.
    Open(u32),
    /// One by id, with the rights that are needed.
    Id(FileId, Rights),
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CallBody {
    /// A request of the form.
    Request(Request),
    /// Several, in order; no more than [`limits::BATCH_REQUESTS_MAX`].
    Batch(#[serde(deserialize_with = "requests_of_a_batch")] Vec<Request>),
    /// `open`.
    Open(At, OpenHow),
    /// A method of an open file.
    File(FileRef, FileAsk),
    /// `stage`.
    Stage(At, StageHint),
    /// `staged`.
    Staged(StageId),
    /// A method of a stage.
    OnStage(StageId, StageAsk),
    /// `lock`; the milliseconds to wait, if at all.
    Lock(At, Lock, Option<u32>),
    /// `test`.
    Test(At, Lock),
    /// `unlock`.
    Unlock(At, Lock),
    /// Something of the authority.
    Authority(AuthorityAsk),
    /// Something of users and groups.
    Accounts(AccountsAsk),
    /// Something of the node.
    Node(NodeAsk),
    /// Something of the audit log.
    Audit(AuditAsk),
    /// `supports`.
    Supports(VolumeId),
    /// Something of links. From version 5 on.
    Links(LinksAsk),
    /// `put_whole`: this frame's payload holds the bytes. From version 5 on.
    Put(At, Box<Whole>),
    /// Something of tokens. From version 7 on.
    Tokens(TokensAsk),
    /// `put_whole` of each, in any order: this frame's payload holds their bytes, one after the other; no
    /// more than [`limits::PUTS_TOGETHER_MAX`]. From version 8 on.
    PutAll(#[serde(deserialize_with = "puts_together")] Vec<Put>),
}

/// One of several files that come whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Put {
    /// Where it goes.
    pub at: At,
    /// Bytes of the payload that are its own.
    pub bytes: u32,
    /// What it is to be.
    pub whole: Whole,
}

/// A method of an open file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileAsk {
    /// Nothing but that the file is there and the rights are given.
    Check,
    /// `attr`.
    Attr,
    /// `read`: answered with [`Answer::Reading`], then bytes.
    Read(Range),
    /// `write`.
    Write {
        /// Where to.
        at: WriteAt,
        /// Whether this frame's payload holds all bytes; else they follow as granted.
        whole: bool,
    },
    /// `shape`.
    Shape(Shape),
    /// `seek`.
    Seek(u64, Seek),
    /// `sync`.
    Sync(Range),
    /// `close`.
    Close,
    /// `digests`, from a block on. From version 2 on.
    Digests(u64),
    /// `write` of bytes that lie in memory of the client's, whose descriptor goes along. Only a process of the node's own uid
    /// on a local socket may. The memory is the client's again once it is answered. From version 10 on.
    WriteLent {
        /// Where to.
        at: WriteAt,
        /// Where in that memory they begin.
        from: u64,
        /// How many; 1 to [`limits::PIECE_BYTES_MAX`].
        length: u32,
    },
    /// `lend`: answered with [`Answer::Lent`] of as much as lies in files, of [`limits::RPC_LENT_BYTES_MAX`] at most; of nothing,
    /// to whoever cannot be lent any. From version 11 on.
    Lend(Range),
}

/// A method of a stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StageAsk {
    /// `put`.
    Put {
        /// The part.
        number: u32,
        /// Where in it.
        offset: u64,
        /// Whether this frame's payload holds all bytes; else they follow as granted.
        whole: bool,
    },
    /// `parts`.
    Parts(u32),
    /// `publish`.
    Publish {
        /// What must be staged.
        parts: Vec<Part>,
        /// Attributes to set.
        set: Box<SetAttr>,
        /// What must be true.
        guard: Guard,
    },
    /// `discard`.
    Discard,
}

/// A method of the authority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AuthorityAsk {
    /// Who the call is made as.
    WhoAmI,
    /// `login` by evidence.
    Login {
        /// The evidence.
        evidence: Evidence,
        /// What to narrow it to.
        limits: Attenuation,
        /// Seconds it should live.
        life_s: u32,
    },
    /// `login` as the uid at this end of the socket, which the kernel told the node.
    LoginHere {
        /// What to narrow it to.
        limits: Attenuation,
        /// Seconds it should live.
        life_s: u32,
    },
    /// `credential` for whoever the call is made as.
    Credential {
        /// What to narrow it to.
        limits: Attenuation,
        /// Seconds it should live.
        life_s: u32,
    },
    /// `name_of`, for several ids.
    NamesOf(Vec<CallerId>),
    /// `revoke`.
    Revoke(Revoke),
}

/// A method of accounts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AccountsAsk {
    /// `add_user`.
    AddUser(NewUser),
    /// `edit_user`.
    EditUser(CallerName, UserEdit),
    /// `users`.
    Users(Option<CallerName>),
    /// `add_group`.
    AddGroup(String),
    /// `edit_group`.
    EditGroup(CallerName, GroupEdit),
    /// `remove_group`.
    RemoveGroup(CallerName),
    /// `groups`.
    Groups(Option<CallerName>),
    /// `members`. From version 7 on.
    Members(CallerName, Option<CallerId>),
}

/// A method of the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeAsk {
    /// `status`.
    Status,
    /// `stop`.
    Stop,
    /// `backup`.
    Backup(String),
    /// `check`.
    Check,
    /// `share`. From version 4 on, as the two below.
    Share {
        /// The directory.
        directory: String,
        /// Where.
        at: RelPath,
    },
    /// `unshare`.
    Unshare(RelPath),
    /// `shares`.
    Shares,
    /// `health`. From version 6 on.
    Health,
    /// `scrub`. From version 7 on.
    Scrub {
        /// Whether a round is to begin.
        begin: bool,
    },
    /// `keys`. From version 7 on.
    Keys,
    /// `rotate_keys`. From version 7 on.
    RotateKeys {
        /// Where the root key was put away.
        root_key: Option<String>,
        /// Whether what old keys signed dies at once.
        revoke_old: bool,
    },
}

/// A method of the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AuditAsk {
    /// `records`.
    Records(AuditFilter),
    /// `verify`.
    Verify,
}

/// A method of links.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LinksAsk {
    /// `make_link`.
    Make {
        /// To what.
        at: RelPath,
        /// What it is to be.
        new: NewLink,
    },
    /// `links`.
    List {
        /// Whether everybody's.
        all: bool,
        /// After which.
        after: Option<(CallerId, LinkId)>,
    },
    /// `end_link`.
    End(LinkId),
    /// `make_drop_box`.
    MakeDropBox {
        /// Of what.
        at: RelPath,
        /// What it takes.
        limits: DropLimits,
    },
    /// `drop_boxes`.
    DropBoxes,
    /// `end_drop_box`.
    EndDropBox(RelPath),
}

/// A method of tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TokensAsk {
    /// `make_token`.
    Make(NewToken),
    /// `tokens`.
    List {
        /// Whose.
        of: TokensOf,
        /// After which.
        after: Option<(CallerId, TokenId)>,
    },
    /// `end_token`.
    End(TokenId),
}

/// What a server sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToClient {
    /// The answer to `Hello`.
    Welcome(Box<Welcome>),
    /// Why the connection ends.
    Refused(ErrorReport),
    /// A session was begun, or not.
    Begun {
        /// The number it was asked for under.
        session: u32,
        /// The session.
        outcome: Result<SessionGrant, ErrorReport>,
    },
    /// The answer to a call. For short reads the payload holds all the bytes.
    Reply(Box<Result<Answer, ErrorReport>>),
    /// Bytes of a download; the payload holds them.
    Data {
        /// Whether these are the last.
        end: bool,
    },
    /// A download ends early.
    Failed(ErrorReport),
    /// So many more bytes of an upload may be sent.
    Grant(u32),
}

/// What a client is told first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The version that will be spoken.
    pub version: u16,
    /// The node's domain.
    pub domain: DomainId,
    /// The keys that vouch for its credentials.
    pub certificates: Vec<KeyCertificate>,
    /// What the root volume can do.
    pub supports: Supports,
}

/// The answer to a [`CallBody`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Of a request.
    Reply(Reply),
    /// Of a batch.
    Batch(Vec<Result<Reply, ErrorReport>>),
    /// Of an open.
    Opened {
        /// The number it is known by in the session.
        file: u32,
        /// Whose file it is.
        attr: Attr,
        /// Whether it was made.
        made: bool,
        /// Its directory, if it was made.
        parent: Option<Wcc>,
    },
    /// Of a read: bytes follow, unless they are all in this frame's payload.
    Reading {
        /// How many, if known.
        length: Option<u64>,
        /// Whether the payload holds all of them.
        whole: bool,
    },
    /// Attributes.
    Attr(Attr),
    /// Of a write.
    Written(Written),
    /// Before and after.
    Wcc(Wcc),
    /// Of a seek.
    Offset(u64),
    /// Of a sync.
    Verifier(Verifier),
    /// Nothing more to say.
    Done,
    /// A stage.
    Stage(StageId),
    /// Of a put.
    Part(Part),
    /// Parts.
    Parts(PartPage),
    /// Of a publish.
    Published(Changed<Entry>),
    /// Of a lock: milliseconds that it certainly stands.
    Locked(u32),
    /// Of a test.
    InTheWay(Option<Lock>),
    /// Who the call is made as.
    Identity(Identity),
    /// A credential.
    Credential(Signed),
    /// Names, in the order of the ids asked for.
    Names(Vec<Option<CallerName>>),
    /// A user.
    User(UserRecord),
    /// Users.
    Users(Vec<UserRecord>),
    /// A group.
    Group(GroupRecord),
    /// Groups.
    Groups(Vec<GroupRecord>),
    /// The node.
    Status(NodeStatus),
    /// Of a backup.
    Backup(BackupReport),
    /// Of a check.
    Check(CheckReport),
    /// Audit records.
    Records(AuditPage),
    /// Of a verification.
    Verdict(AuditVerdict),
    /// What a volume can do.
    Supports(Supports),
    /// Of blocks. From version 2 on.
    Digests(Vec<[u8; 32]>),
    /// A share. From version 4 on, as all of them.
    Share(Share),
    /// Shares.
    Shares(Vec<Share>),
    /// A link that was made. From version 5 on, as all of them.
    LinkMade(LinkGrant),
    /// Links.
    Links(Vec<LinkRecord>),
    /// A link.
    Link(LinkRecord),
    /// A drop-box.
    DropBox(DropBoxRecord),
    /// Drop-boxes.
    DropBoxes(Vec<DropBoxRecord>),
    /// How well the node is. From version 6 on.
    Health(NodeHealth),
    /// How far the scrubber is. From version 7 on.
    Scrub(Scrub),
    /// The domain's keys. From version 7 on.
    Keys(Keys),
    /// A token that was made. From version 7 on, as the two below.
    TokenMade(TokenGrant),
    /// Tokens.
    Tokens(Vec<TokenRecord>),
    /// A token.
    Token(TokenRecord),
    /// Members of a group. From version 7 on.
    Members(Vec<CallerName>),
    /// Of several files that came whole, in their order. From version 8 on.
    PublishedAll(Vec<Result<Changed<Entry>, ErrorReport>>),
    /// Of a read, over a local socket, by a process of the node's own uid: instead of bytes, where they lie.
    /// The descriptors came with the frame's first byte.
    Lent(Vec<Lent>),
}

/// Where some bytes of a read are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lent {
    /// In a file.
    File {
        /// Which of the descriptors that came along, from 0 on.
        descriptor: u32,
        /// The first byte.
        at: u64,
        /// How many.
        length: u32,
    },
    /// In the payload, after those of the parts before: so many.
    Bytes(u32),
}

impl Lent {
    /// Returns how many descriptors came along with an answer of these parts.
    pub fn descriptors(parts: &[Self]) -> usize {
        let one = |part: &Self| match part {
            Self::File { descriptor, .. } => *descriptor as usize + 1,
            Self::Bytes(_) => 0,
        };
        parts.iter().map(one).max().unwrap_or(0)
    }
}

/// Reads a batch no further than one may go on.
fn requests_of_a_batch<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Request>, D::Error> {
    at_most(limits::BATCH_REQUESTS_MAX, from)
}

/// Reads files that come together no further than they may go on.
fn puts_together<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Put>, D::Error> {
    at_most(limits::PUTS_TOGETHER_MAX, from)
}

/// Reads so many of a sequence at most: what a byte says becomes a request of hundreds.
fn at_most<'de, T: Deserialize<'de>, D: Deserializer<'de>>(most: usize, from: D) -> Result<Vec<T>, D::Error> {
    struct AtMost<T>(usize, PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for AtMost<T> {
        type Value = Vec<T>;

        fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(to, "at most {} requests", self.0)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Vec<T>, A::Error> {
            let mut requests = Vec::new();
            while let Some(request) = from.next_element()? {
                if requests.len() == self.0 {
                    return Err(serde::de::Error::invalid_length(requests.len() + 1, &self));
                }
                requests.push(request);
            }
            Ok(requests)
        }
    }

    from.deserialize_seq(AtMost(most, PhantomData))
}

/// Encodes a message. Plain data always encodes.
pub(crate) fn to_bytes<T: Serialize>(message: &T) -> Bytes {
    postcard::to_stdvec(message).expect("plain data always encodes").into()
}
