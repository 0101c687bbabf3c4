//! Messages about accounts, node and audit log, both ways, made of anything that their types may hold.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use bytes::Bytes;
use weft_conformance::file_system::site::Dice;
use weft_core::acl::Network;
use weft_core::attr::Version;
use weft_core::drop_box::DropLimits;
use weft_core::form::{Ack, Door, Origin, Supports, Wire};
use weft_core::proof::{Attenuation, KeyCertificate, Purpose, Signed};
use weft_core::service::{
    AuditFilter, AuditOutcome, AuditPage, AuditRecord, AuditSubject, AuditVerdict, BackupReport, CheckReport,
    Damage, DropBoxRecord, Evidence, Finding, GroupEdit, GroupRecord, Identity, KeyRecord, Keys, LinkGives,
    LinkGrant, LinkRecord, NewLink, NewToken, NewUser, NodeHealth, NodeStatus, Revoke, Scrub, Secret,
    SessionGrant, Severity, Share, TokenGrant, TokenRecord, TokensOf, UserEdit, UserRecord,
};
use weft_core::{
    CallerId, CallerKind, CallerName, CapabilityId, ContainerId, CredentialId, DomainId, ErrorKind,
    ErrorReport, FileId, KeyId, LinkId, Name, ObjectId, RelPath, RequestId, Rights, SessionId, Time, TokenId,
    TraceId,
};

use crate::message::{
    AccountsAsk, Answer, AuditAsk, AuthorityAsk, CallBody, CallHeader, LinksAsk, NodeAsk, ToClient, ToServer,
    TokensAsk, Welcome,
};

/// A number as long as any of its lengths.
fn number(dice: &mut Dice) -> u64 {
    match dice.roll(64) {
        0 => u64::MAX,
        bits => dice.roll(1 << bits),
    }
}

fn small(dice: &mut Dice) -> u32 {
    number(dice) as u32
}

fn wide(dice: &mut Dice) -> u128 {
    u128::from(number(dice)) << 64 | u128::from(number(dice))
}

fn coin(dice: &mut Dice) -> bool {
    dice.roll(2) == 0
}

fn maybe<T>(dice: &mut Dice, make: impl FnOnce(&mut Dice) -> T) -> Option<T> {
    coin(dice).then(|| make(dice))
}

fn several<T>(dice: &mut Dice, make: impl Fn(&mut Dice) -> T) -> Vec<T> {
    (0..dice.roll(4)).map(|_| make(dice)).collect()
}

fn text(dice: &mut Dice) -> String {
    let parts = ["a", "Z9", " ", "/", "..", "\0", "\n", "é", "数", "'", "%s", "\u{202e}"];
    (0..dice.roll(12)).map(|_| *dice.pick(&parts)).collect()
}

fn bytes32(dice: &mut Dice) -> [u8; 32] {
    std::array::from_fn(|_| dice.roll(256) as u8)
}

fn secret(dice: &mut Dice) -> Secret {
    Secret::new(text(dice))
}

fn time(dice: &mut Dice) -> Time {
    Time::from_nanos(number(dice) as i64)
}

fn file(dice: &mut Dice) -> FileId {
    *dice.pick(&[FileId::ROOT, FileId::new(weft_core::VolumeId(7), 2, 1)])
}

fn word(dice: &mut Dice) -> String {
    let letters: Vec<_> = "abcxyzABCXYZ0189._-".chars().collect();
    (0..=dice.roll(20)).map(|_| *dice.pick(&letters)).collect()
}

fn name(dice: &mut Dice) -> Name {
    Name::try_from(format!("n{}", word(dice)).as_str()).expect("no dots alone")
}

fn caller(dice: &mut Dice) -> CallerName {
    let (one, other, domain) = (word(dice), word(dice), DomainId(bytes32(dice)));
    let (kind, local) = match dice.roll(9) {
        0 => return CallerName::ANYONE,
        1 => (CallerKind::User, one),
        2 => (CallerKind::Group, format!("{one}/{other}")),
        3 => (CallerKind::Node, one),
        4 => (CallerKind::Link, one),
        5 => (CallerKind::Token, one),
        6 => (CallerKind::Issuer, one),
        7 => (CallerKind::Certificate, one),
        _ => (CallerKind::Job, one),
    };
    CallerName::new(kind, &local, domain).expect("a word is a name")
}

fn address(dice: &mut Dice) -> IpAddr {
    if coin(dice) { Ipv4Addr::from_bits(small(dice)).into() } else { Ipv6Addr::from_bits(wide(dice)).into() }
}

fn network(dice: &mut Dice) -> Network {
    let address = address(dice);
    let bits = if address.is_ipv4() { 32 } else { 128 };
    Network::new(address, dice.roll(bits + 1) as u8).expect("no longer than the address")
}

fn path(dice: &mut Dice) -> RelPath {
    RelPath::new(*dice.pick(&["", "a", "a/b c/é"])).expect("a path")
}

fn limits(dice: &mut Dice) -> Attenuation {
    Attenuation {
        rights: Rights::from_bits(small(dice)),
        paths: several(dice, path),
        hosts: several(dice, network),
        from: time(dice),
    }
}

fn signed(dice: &mut Dice) -> Signed {
    let signature = std::array::from_fn(|_| dice.roll(256) as u8);
    Signed::assemble(text(dice).into_bytes(), KeyId(wide(dice)), signature)
}

fn grant(dice: &mut Dice) -> SessionGrant {
    SessionGrant { id: SessionId(wide(dice)), secret: secret(dice) }
}

fn report(dice: &mut Dice) -> ErrorReport {
    let kind = *dice.pick(&ErrorKind::ALL);
    ErrorReport { kind, about: maybe(dice, text), detail: text(dice), hint: maybe(dice, text) }
}

fn evidence(dice: &mut Dice) -> Evidence {
    match dice.roll(5) {
        0 => Evidence::None,
        1 => Evidence::Password { user: text(dice), password: secret(dice) },
        2 => Evidence::Token(secret(dice)),
        3 => Evidence::Link(secret(dice)),
        _ => Evidence::SocketUid(small(dice)),
    }
}

fn revoke(dice: &mut Dice) -> Revoke {
    match dice.roll(6) {
        0 => Revoke::Credential(CredentialId(wide(dice))),
        1 => Revoke::Caller(caller(dice)),
        2 => Revoke::Capability(CapabilityId(wide(dice)), Rights::from_bits(small(dice))),
        3 => Revoke::Container(ContainerId(number(dice))),
        4 => Revoke::AnyCredential(CredentialId(wide(dice))),
        _ => Revoke::AnyCaller(caller(dice)),
    }
}

fn authority(dice: &mut Dice) -> AuthorityAsk {
    match dice.roll(6) {
        0 => AuthorityAsk::WhoAmI,
        1 => AuthorityAsk::Login { evidence: evidence(dice), limits: limits(dice), life_s: small(dice) },
        2 => AuthorityAsk::LoginHere { limits: limits(dice), life_s: small(dice) },
        3 => AuthorityAsk::Credential { limits: limits(dice), life_s: small(dice) },
        4 => AuthorityAsk::NamesOf(several(dice, |dice| CallerId(wide(dice)))),
        _ => AuthorityAsk::Revoke(revoke(dice)),
    }
}

fn user_edit(dice: &mut Dice) -> UserEdit {
    match dice.roll(3) {
        0 => UserEdit::Password { new: secret(dice), old: maybe(dice, secret) },
        1 => UserEdit::Enabled(coin(dice)),
        _ => UserEdit::Uid(maybe(dice, small)),
    }
}

fn group_edit(dice: &mut Dice) -> GroupEdit {
    if coin(dice) { GroupEdit::Add(caller(dice)) } else { GroupEdit::Remove(caller(dice)) }
}

fn accounts(dice: &mut Dice) -> AccountsAsk {
    let new = |dice: &mut Dice| NewUser {
        name: text(dice),
        password: maybe(dice, secret),
        uid: maybe(dice, small),
    };
    match dice.roll(8) {
        0 => AccountsAsk::AddUser(new(dice)),
        1 => AccountsAsk::EditUser(caller(dice), user_edit(dice)),
        2 => AccountsAsk::Users(maybe(dice, caller)),
        3 => AccountsAsk::AddGroup(text(dice)),
        4 => AccountsAsk::EditGroup(caller(dice), group_edit(dice)),
        5 => AccountsAsk::RemoveGroup(caller(dice)),
        6 => AccountsAsk::Members(caller(dice), maybe(dice, |dice| CallerId(wide(dice)))),
        _ => AccountsAsk::Groups(maybe(dice, caller)),
    }
}

fn node(dice: &mut Dice) -> NodeAsk {
    match dice.roll(11) {
        0 => NodeAsk::Status,
        1 => NodeAsk::Stop,
        2 => NodeAsk::Backup(text(dice)),
        3 => NodeAsk::Check,
        4 => NodeAsk::Share { directory: text(dice), at: path(dice) },
        5 => NodeAsk::Unshare(path(dice)),
        6 => NodeAsk::Health,
        7 => NodeAsk::Scrub { begin: coin(dice) },
        8 => NodeAsk::Keys,
        9 => NodeAsk::RotateKeys { root_key: maybe(dice, text), revoke_old: coin(dice) },
        _ => NodeAsk::Shares,
    }
}

fn audit(dice: &mut Dice) -> AuditAsk {
    if coin(dice) {
        return AuditAsk::Verify;
    }
    AuditAsk::Records(AuditFilter {
        container: maybe(dice, |dice| ContainerId(number(dice))),
        member: maybe(dice, file),
        object: maybe(dice, file),
        caller: maybe(dice, caller),
        from: maybe(dice, time),
        until: maybe(dice, time),
        after: number(dice),
    })
}

fn gives(dice: &mut Dice) -> LinkGives {
    *dice.pick(&[LinkGives::Read, LinkGives::Insert])
}

fn links(dice: &mut Dice) -> LinksAsk {
    let new = |dice: &mut Dice| NewLink {
        gives: gives(dice),
        life: Duration::new(number(dice), dice.roll(1_000_000_000) as u32),
        count: maybe(dice, number),
        pin: coin(dice),
    };
    match dice.roll(6) {
        0 => LinksAsk::Make { at: path(dice), new: new(dice) },
        1 => {
            let after = |dice: &mut Dice| (CallerId(wide(dice)), LinkId(wide(dice)));
            LinksAsk::List { all: coin(dice), after: maybe(dice, after) }
        }
        2 => LinksAsk::End(LinkId(wide(dice))),
        3 => LinksAsk::MakeDropBox { at: path(dice), limits: drop_limits(dice) },
        4 => LinksAsk::DropBoxes,
        _ => LinksAsk::EndDropBox(path(dice)),
    }
}

fn tokens(dice: &mut Dice) -> TokensAsk {
    let after = |dice: &mut Dice| (CallerId(wide(dice)), TokenId(wide(dice)));
    match dice.roll(3) {
        0 => TokensAsk::Make(NewToken {
            name: text(dice),
            limits: limits(dice),
            life: Duration::new(number(dice), dice.roll(1_000_000_000) as u32),
        }),
        1 => TokensAsk::List { of: tokens_of(dice), after: maybe(dice, after) },
        _ => TokensAsk::End(TokenId(wide(dice))),
    }
}

fn tokens_of(dice: &mut Dice) -> TokensOf {
    match dice.roll(3) {
        0 => TokensOf::Caller,
        1 => TokensOf::User(caller(dice)),
        _ => TokensOf::Everybody,
    }
}

fn token(dice: &mut Dice) -> TokenRecord {
    TokenRecord {
        id: TokenId(wide(dice)),
        name: text(dice),
        by: caller(dice),
        limits: limits(dice),
        made: time(dice),
        expires: time(dice),
        last: maybe(dice, time),
        ended: maybe(dice, text),
    }
}

fn drop_limits(dice: &mut Dice) -> DropLimits {
    let rate_per = Duration::from_secs(number(dice));
    DropLimits { bytes: number(dice), files: number(dice), rate_bytes: number(dice), rate_per }
}

fn drop_box(dice: &mut Dice) -> DropBoxRecord {
    DropBoxRecord {
        path: path(dice),
        file: file(dice),
        limits: drop_limits(dice),
        bytes: number(dice),
        files: number(dice),
        rate_left: number(dice),
    }
}

fn link(dice: &mut Dice) -> LinkRecord {
    LinkRecord {
        id: LinkId(wide(dice)),
        by: caller(dice),
        file: file(dice),
        path: path(dice),
        is_directory: coin(dice),
        gives: gives(dice),
        version: maybe(dice, |dice| Version(wide(dice))),
        made: time(dice),
        expires: time(dice),
        count: maybe(dice, number),
        used: number(dice),
        last: maybe(dice, time),
        ended: maybe(dice, text),
    }
}

fn header(dice: &mut Dice) -> CallHeader {
    CallHeader {
        credential: small(dice),
        session: small(dice),
        once: maybe(dice, |dice| RequestId(number(dice))),
        ack: if coin(dice) { Ack::Applied } else { Ack::Durable },
        wire: Wire::Private,
        trace: TraceId(number(dice)),
        left_ms: small(dice),
    }
}

fn call(dice: &mut Dice) -> ToServer {
    let body = match dice.roll(6) {
        0 => CallBody::Authority(authority(dice)),
        1 => CallBody::Accounts(accounts(dice)),
        2 => CallBody::Node(node(dice)),
        3 => CallBody::Links(links(dice)),
        4 => CallBody::Tokens(tokens(dice)),
        _ => CallBody::Audit(audit(dice)),
    };
    ToServer::Call { header: header(dice), body }
}

/// What a client may send: any call of the services, and all that is no call.
pub(crate) fn to_server(dice: &mut Dice) -> ToServer {
    match dice.roll(30) {
        0 => ToServer::Hello { oldest: small(dice) as u16, newest: small(dice) as u16 },
        1 => ToServer::Present { number: small(dice), credential: signed(dice) },
        2 => ToServer::Forget { number: small(dice) },
        3 => ToServer::Begin { session: small(dice), credential: small(dice), resume: maybe(dice, grant) },
        4 => ToServer::End { session: small(dice) },
        5 => ToServer::Drop { session: small(dice), file: small(dice) },
        6 => ToServer::Data { end: coin(dice) },
        7 => ToServer::Abort(report(dice)),
        8 => ToServer::Credit(small(dice)),
        9 => ToServer::Cancel,
        _ => call(dice),
    }
}

fn user(dice: &mut Dice) -> UserRecord {
    UserRecord {
        name: caller(dice),
        enabled: coin(dice),
        uid: maybe(dice, small),
        has_password: coin(dice),
        added: time(dice),
    }
}

fn group(dice: &mut Dice) -> GroupRecord {
    GroupRecord { name: caller(dice), owner: caller(dice), members: several(dice, caller) }
}

fn health(dice: &mut Dice) -> NodeHealth {
    let when = |dice: &mut Dice| coin(dice).then(|| time(dice));
    NodeHealth {
        not_ready: coin(dice).then(|| text(dice)),
        degraded: several(dice, text),
        connections: number(dice),
        transfers: number(dice),
        opens: number(dice),
        backup: when(dice),
        check: when(dice),
        sweep: when(dice),
    }
}

fn scrub(dice: &mut Dice) -> Scrub {
    let damage = |dice: &mut Dice| Damage {
        object: ObjectId(number(dice).into()),
        from: number(dice),
        to: number(dice),
        blocks: number(dice),
        unread: coin(dice),
        since: time(dice),
        files: several(dice, text),
    };
    Scrub {
        bytes_per_second: number(dice),
        rounds: number(dice),
        asked: coin(dice),
        began: maybe(dice, time),
        ended: maybe(dice, time),
        objects: number(dice),
        bytes: number(dice),
        damaged: several(dice, damage),
        beyond: number(dice),
    }
}

fn keys(dice: &mut Dice) -> Keys {
    let purposes = [Purpose::Certificate, Purpose::Credential, Purpose::Capability, Purpose::Audit];
    let key = |dice: &mut Dice| KeyRecord {
        id: KeyId(wide(dice)),
        purpose: *dice.pick(&purposes),
        current: coin(dice),
        ended: coin(dice),
        made: time(dice),
        until: time(dice),
    };
    Keys { root: maybe(dice, text), keys: several(dice, key) }
}

fn status(dice: &mut Dice) -> NodeStatus {
    NodeStatus {
        version: text(dice),
        domain: DomainId(bytes32(dice)),
        started: time(dice),
        pid: small(dice),
        data: text(dice),
        doors: several(dice, |dice| (text(dice), text(dice))),
        bytes_total: number(dice),
        bytes_free: number(dice),
        files: number(dice),
        sessions: number(dice),
        uploads: number(dice),
        upload_bytes: number(dice),
    }
}

fn finding(dice: &mut Dice) -> Finding {
    Finding {
        severity: *dice.pick(&[Severity::Note, Severity::Repairable, Severity::Loss]),
        structure: text(dice),
        detail: text(dice),
        repair: text(dice),
        object: maybe(dice, |dice| ObjectId(wide(dice))),
    }
}

fn share(dice: &mut Dice) -> Share {
    Share {
        volume: weft_core::VolumeId(small(dice) as u16),
        at: text(dice),
        directory: text(dice),
        made: time(dice),
        by: maybe(dice, caller),
        away: maybe(dice, text),
        limited_to: maybe(dice, small),
    }
}

fn record(dice: &mut Dice) -> AuditRecord {
    let doors = [Door::Http, Door::Mount, Door::Native, Door::Node];
    AuditRecord {
        at: time(dice),
        caller: caller(dice),
        credential: CredentialId(wide(dice)),
        delegates: several(dice, caller),
        // The uid means something on its own machine only and is not sent.
        from: Origin { door: *dice.pick(&doors), peer: maybe(dice, address), uid: None },
        trace: TraceId(number(dice)),
        operation: text(dice),
        about: AuditSubject {
            object: maybe(dice, file),
            other: maybe(dice, file),
            container: maybe(dice, |dice| ContainerId(number(dice))),
            also: several(dice, |dice| ContainerId(number(dice))),
            place: maybe(dice, |dice| (file(dice), name(dice))),
            to: maybe(dice, |dice| (file(dice), name(dice))),
        },
        outcome: match dice.roll(2) {
            0 => AuditOutcome::Done,
            _ => AuditOutcome::Failed(*dice.pick(&ErrorKind::ALL)),
        },
        because: text(dice),
        bytes: number(dice),
    }
}

fn verdict(dice: &mut Dice) -> AuditVerdict {
    match dice.roll(2) {
        0 => AuditVerdict::Whole { records: number(dice) },
        _ => AuditVerdict::Broken { file: text(dice), offset: number(dice), detail: text(dice) },
    }
}

/// The answer to a call of the services.
fn answer(dice: &mut Dice) -> Answer {
    match dice.roll(28) {
        0 => Answer::Identity(Identity {
            name: caller(dice),
            credential: CredentialId(wide(dice)),
            issued: time(dice),
            expires: time(dice),
            limits: limits(dice),
        }),
        1 => Answer::Credential(signed(dice)),
        2 => Answer::Names(several(dice, |dice| maybe(dice, caller))),
        3 => Answer::User(user(dice)),
        4 => Answer::Users(several(dice, user)),
        5 => Answer::Group(group(dice)),
        6 => Answer::Groups(several(dice, group)),
        7 => Answer::Status(status(dice)),
        8 => Answer::Backup(BackupReport {
            path: text(dice),
            metadata_bytes: number(dice),
            objects: number(dice),
            object_bytes: number(dice),
            damaged: several(dice, finding),
        }),
        9 => Answer::Check(CheckReport {
            inodes: number(dice),
            objects: number(dice),
            findings: several(dice, finding),
        }),
        10 => Answer::Records(AuditPage {
            records: several(dice, |dice| (number(dice), record(dice))),
            next: maybe(dice, number),
        }),
        11 => Answer::Verdict(verdict(dice)),
        12 => Answer::Digests(several(dice, |dice| [dice.roll(256) as u8; 32])),
        13 => Answer::Share(share(dice)),
        14 => Answer::Shares(several(dice, share)),
        15 => Answer::LinkMade(LinkGrant { record: link(dice), secret: secret(dice) }),
        16 => Answer::Links(several(dice, link)),
        17 => Answer::Link(link(dice)),
        18 => Answer::DropBox(drop_box(dice)),
        19 => Answer::DropBoxes(several(dice, drop_box)),
        20 => Answer::Health(health(dice)),
        21 => Answer::Scrub(scrub(dice)),
        22 => Answer::Keys(keys(dice)),
        23 => Answer::TokenMade(TokenGrant { record: token(dice), secret: secret(dice) }),
        24 => Answer::Tokens(several(dice, token)),
        25 => Answer::Token(token(dice)),
        26 => Answer::Members(several(dice, caller)),
        _ => Answer::Done,
    }
}

fn welcome(dice: &mut Dice) -> Welcome {
    let certificate = |dice: &mut Dice| KeyCertificate { root: bytes32(dice), statement: signed(dice) };
    Welcome {
        version: small(dice) as u16,
        domain: DomainId(bytes32(dice)),
        certificates: several(dice, certificate),
        supports: Supports {
            links: coin(dice),
            exchange: coin(dice),
            tags: coin(dice),
            locks: coin(dice),
            watch: coin(dice),
            publish_keeps_id: coin(dice),
            holes: coin(dice),
            file_bytes_max: number(dice),
        },
    }
}

/// What a node may send: any answer about the services, and all that answers no call.
pub(crate) fn to_client(dice: &mut Dice) -> ToClient {
    match dice.roll(20) {
        0 => ToClient::Welcome(Box::new(welcome(dice))),
        1 => ToClient::Refused(report(dice)),
        2 => ToClient::Begun { session: small(dice), outcome: Ok(grant(dice)) },
        3 => ToClient::Begun { session: small(dice), outcome: Err(report(dice)) },
        4 => ToClient::Data { end: coin(dice) },
        5 => ToClient::Failed(report(dice)),
        6 => ToClient::Grant(small(dice)),
        7 => ToClient::Reply(Box::new(Err(report(dice)))),
        _ => ToClient::Reply(Box::new(Ok(answer(dice)))),
    }
}

mod complete {
    //! What is added to a type stands here before it is fuzzed: this does not compile without it,
    //! and fails until it is made above.

    use std::collections::BTreeSet;

    use super::*;
    use crate::frame::Frame;

    /// Fails unless each of `count` places is met.
    fn met<T>(count: usize, make: impl Fn(&mut Dice) -> T, place: impl Fn(&T) -> usize) {
        let met: BTreeSet<_> = (0..2000).map(|seed| place(&make(&mut Dice::new(seed)))).collect();
        assert!(met.iter().copied().eq(0..count), "of {}: {met:?}", std::any::type_name::<T>());
    }

    #[test]
    fn every_call_of_the_services_is_among_those_that_are_mutated() {
        met(6, authority, |ask| match ask {
            AuthorityAsk::WhoAmI => 0,
            AuthorityAsk::Login { .. } => 1,
            AuthorityAsk::LoginHere { .. } => 2,
            AuthorityAsk::Credential { .. } => 3,
            AuthorityAsk::NamesOf(_) => 4,
            AuthorityAsk::Revoke(_) => 5,
        });
        met(8, accounts, |ask| match ask {
            AccountsAsk::AddUser(_) => 0,
            AccountsAsk::EditUser(..) => 1,
            AccountsAsk::Users(_) => 2,
            AccountsAsk::AddGroup(_) => 3,
            AccountsAsk::EditGroup(..) => 4,
            AccountsAsk::RemoveGroup(_) => 5,
            AccountsAsk::Groups(_) => 6,
            AccountsAsk::Members(..) => 7,
        });
        met(11, node, |ask| match ask {
            NodeAsk::Status => 0,
            NodeAsk::Stop => 1,
            NodeAsk::Backup(_) => 2,
            NodeAsk::Check => 3,
            NodeAsk::Share { .. } => 4,
            NodeAsk::Unshare(_) => 5,
            NodeAsk::Shares => 6,
            NodeAsk::Health => 7,
            NodeAsk::Scrub { .. } => 8,
            NodeAsk::Keys => 9,
            NodeAsk::RotateKeys { .. } => 10,
        });
        met(6, links, |ask| match ask {
            LinksAsk::Make { .. } => 0,
            LinksAsk::List { .. } => 1,
            LinksAsk::End(_) => 2,
            LinksAsk::MakeDropBox { .. } => 3,
            LinksAsk::DropBoxes => 4,
            LinksAsk::EndDropBox(_) => 5,
        });
        met(3, tokens, |ask| match ask {
            TokensAsk::Make(_) => 0,
            TokensAsk::List { .. } => 1,
            TokensAsk::End(_) => 2,
        });
        met(3, tokens_of, |of| match of {
            TokensOf::Caller => 0,
            TokensOf::User(_) => 1,
            TokensOf::Everybody => 2,
        });
        met(2, gives, |gives| match gives {
            LinkGives::Read => 0,
            LinkGives::Insert => 1,
        });
        met(2, audit, |ask| match ask {
            AuditAsk::Records(_) => 0,
            AuditAsk::Verify => 1,
        });
    }

    #[test]
    fn whatever_such_a_call_may_hold_is_among_it() {
        met(5, evidence, |evidence| match evidence {
            Evidence::None => 0,
            Evidence::Password { .. } => 1,
            Evidence::Token(_) => 2,
            Evidence::SocketUid(_) => 3,
            Evidence::Link(_) | Evidence::Certificate(_) => 4, // the latter is never sent
        });
        met(6, revoke, |revoke| match revoke {
            Revoke::Credential(_) => 0,
            Revoke::Caller(_) => 1,
            Revoke::Capability(..) => 2,
            Revoke::Container(_) => 3,
            Revoke::AnyCredential(_) => 4,
            Revoke::AnyCaller(_) => 5,
        });
        met(3, user_edit, |edit| match edit {
            UserEdit::Password { .. } => 0,
            UserEdit::Enabled(_) => 1,
            UserEdit::Uid(_) => 2,
        });
        met(2, group_edit, |edit| match edit {
            GroupEdit::Add(_) => 0,
            GroupEdit::Remove(_) => 1,
        });
        met(9, caller, |caller| match caller.kind() {
            None => 0,
            Some(CallerKind::User) => 1,
            Some(CallerKind::Group) => 2,
            Some(CallerKind::Node) => 3,
            Some(CallerKind::Job) => 4,
            Some(CallerKind::Link) => 5,
            Some(CallerKind::Token) => 6,
            Some(CallerKind::Issuer) => 7,
            Some(CallerKind::Certificate) => 8,
        });
    }

    #[test]
    fn every_message_that_is_no_call_of_files_is_among_them() {
        met(16, to_server, |message| match message {
            ToServer::Hello { .. } => 0,
            ToServer::Present { .. } => 1,
            ToServer::Forget { .. } => 2,
            ToServer::Begin { .. } => 3,
            ToServer::End { .. } => 4,
            ToServer::Drop { .. } => 5,
            ToServer::Call { body: CallBody::Authority(_), .. } => 6,
            ToServer::Call { body: CallBody::Accounts(_), .. } => 7,
            ToServer::Call { body: CallBody::Node(_), .. } => 8,
            ToServer::Call { body: CallBody::Audit(_), .. } => 9,
            ToServer::Data { .. } => 10,
            ToServer::Abort(_) => 11,
            ToServer::Credit(_) => 12,
            ToServer::Cancel => 13,
            ToServer::Call { body: CallBody::Links(_), .. } => 14,
            ToServer::Call { body: CallBody::Tokens(_), .. } => 15,
            ToServer::Call { .. } => usize::MAX,
        });
        met(7, to_client, |message| match message {
            ToClient::Welcome(_) => 0,
            ToClient::Refused(_) => 1,
            ToClient::Begun { .. } => 2,
            ToClient::Reply(_) => 3,
            ToClient::Data { .. } => 4,
            ToClient::Failed(_) => 5,
            ToClient::Grant(_) => 6,
        });
    }

    #[test]
    fn every_answer_about_the_services_is_among_them() {
        met(28, answer, |answer| match answer {
            Answer::Identity(_) => 0,
            Answer::Credential(_) => 1,
            Answer::Names(_) => 2,
            Answer::User(_) => 3,
            Answer::Users(_) => 4,
            Answer::Group(_) => 5,
            Answer::Groups(_) => 6,
            Answer::Status(_) => 7,
            Answer::Backup(_) => 8,
            Answer::Check(_) => 9,
            Answer::Records(_) => 10,
            Answer::Verdict(_) => 11,
            Answer::Digests(_) => 12,
            Answer::Share(_) => 13,
            Answer::Shares(_) => 14,
            Answer::Done => 15,
            Answer::LinkMade(_) => 16,
            Answer::Links(_) => 17,
            Answer::Link(_) => 18,
            Answer::DropBox(_) => 19,
            Answer::DropBoxes(_) => 20,
            Answer::Health(_) => 21,
            Answer::Scrub(_) => 22,
            Answer::Keys(_) => 23,
            Answer::TokenMade(_) => 24,
            Answer::Tokens(_) => 25,
            Answer::Token(_) => 26,
            Answer::Members(_) => 27,
            Answer::Reply(_)
            | Answer::Batch(_)
            | Answer::Opened { .. }
            | Answer::Reading { .. }
            | Answer::Attr(_)
            | Answer::Written(_)
            | Answer::Wcc(_)
            | Answer::Offset(_)
            | Answer::Verifier(_)
            | Answer::Stage(_)
            | Answer::Part(_)
            | Answer::Parts(_)
            | Answer::Published(_)
            | Answer::PublishedAll(_)
            | Answer::Lent(_)
            | Answer::Locked(_)
            | Answer::InTheWay(_)
            | Answer::Supports(_) => usize::MAX,
        });
    }

    #[test]
    fn each_is_read_as_it_was_written() {
        for seed in 0..2000 {
            let (asked, answered) = (to_server(&mut Dice::new(seed)), to_client(&mut Dice::new(seed)));
            let frame = Frame::new(1, &asked, Bytes::new());
            assert_eq!(frame.message::<ToServer>().expect("it is valid"), asked);
            assert_eq!(Frame::new(1, &answered, Bytes::new()).message::<ToClient>().ok(), Some(answered));
        }
    }
}
