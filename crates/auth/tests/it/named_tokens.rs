//! Tokens of programs: whom their secrets let in, as how much, for how long, and what ends them.

use std::net::IpAddr;
use std::time::Duration;

use weft_auth::LinkTarget;
use weft_core::form::{Door, Origin};
use weft_core::proof::{Attenuation, Caller, EvidenceKind, Within};
use weft_core::service::{
    Evidence, GroupEdit, LinkGives, NewLink, NewToken, Revoke, Secret, TokenGrant, TokenRecord, TokensOf,
    UserEdit,
};
use weft_core::{ErrorKind, FileId, RelPath, Result, Rights, limits};

use crate::scene::{ROOT_WORD, SOCKET, Scene, scene};

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

fn narrow() -> Attenuation {
    Attenuation {
        rights: Rights::READ | Rights::LIST,
        paths: vec![RelPath::new("d/in").expect("a path")],
        hosts: vec!["192.0.2.0/24".parse().expect("a network")],
        ..Attenuation::NONE
    }
}

fn new(name: &str) -> NewToken {
    NewToken { name: name.to_owned(), limits: narrow(), life: 30 * DAY }
}

fn whole(name: &str) -> NewToken {
    NewToken { limits: Attenuation::NONE, ..new(name) }
}

fn from(address: &str) -> Origin {
    let peer: IpAddr = address.parse().expect("an address");
    Origin { door: Door::Http, peer: Some(peer), uid: None }
}

async fn alice(node: &Scene) -> Caller {
    node.login("alice", "wonder").await.expect("she may")
}

async fn made(node: &Scene, new: &NewToken) -> TokenGrant {
    node.auth.tokens().make_token(&alice(node).await, new).await.expect("she may")
}

async fn show(node: &Scene, secret: &Secret) -> Result<Caller> {
    node.token(secret.expose()).await
}

async fn listed(node: &Scene) -> Vec<TokenRecord> {
    node.auth.tokens().tokens(&alice(node).await, &TokensOf::Caller, None).await.expect("her own")
}

fn kind<T>(answer: Result<T>) -> std::result::Result<(), ErrorKind> {
    answer.map(drop).map_err(|error| error.kind())
}

#[test]
fn a_token_lets_its_holder_act_for_its_maker_as_narrow_as_it_is_and_named_beside_them() {
    scene(1, |node| async move {
        let name = node.add_user("alice", "wonder").await;
        let grant = made(&node, &new("rclone")).await;
        let caller = show(&node, &grant.secret).await.expect("it is right");
        assert_eq!((caller.name(), caller.claims().evidence), (&name, EvidenceKind::Token));
        assert_eq!(*caller.limits(), narrow());
        assert_eq!(caller.claims().delegates[0].local(), grant.record.id.to_string());
        let again = show(&node, &grant.secret).await.expect("it is right");
        assert_eq!(again.credential(), caller.credential(), "signed once");
        assert_eq!(grant.record.expires.since(grant.record.made), 30 * DAY);
        let list = format!("{:?}", listed(&node).await);
        assert!(list.contains("rclone") && !list.contains(grant.secret.expose()), "{list}");
    });
}

#[test]
fn a_token_makes_no_other_way_in_and_administers_nothing_not_even_an_administrators_whole_one() {
    scene(2, |node| async move {
        let admin = node.admin().await;
        let user = node.add_user("bob", "builder").await;
        let tokens = node.auth.tokens();
        let grant = tokens.make_token(&admin, &whole("cron")).await.expect("they may");
        let by = show(&node, &grant.secret).await.expect("it is right");
        let signed = node.auth.authority().credential(&by, &Attenuation::NONE, HOUR).await;
        let derived = node.token(&signed.expect("it may").to_token()).await.expect("it is good");
        for by in [by, derived] {
            let but_policy = Rights::ALL - Rights::ACL_WRITE;
            assert_eq!(*by.limits(), Attenuation { rights: but_policy, ..Attenuation::NONE });
            assert_eq!(kind(tokens.make_token(&by, &new("more")).await), Err(ErrorKind::NotPermitted));
            assert!(tokens.tokens(&by, &TokensOf::Caller, None).await.is_err());
            assert!(tokens.tokens(&by, &TokensOf::Everybody, None).await.is_err());
            assert!(tokens.end_token(&by, grant.record.id).await.is_err());
            let within = Within { root: FileId::ROOT, version: None, hint: RelPath::EMPTY };
            let target = LinkTarget { within, is_directory: true };
            let link = NewLink { gives: LinkGives::Read, life: HOUR, count: None, pin: false };
            assert!(node.auth.links().make(&by, target, &link).await.is_err());
            let accounts = node.auth.accounts();
            assert!(accounts.users(&by, None).await.is_err());
            assert!(accounts.add_group(&by, "team").await.is_err());
            assert!(accounts.edit_user(&by, &user, &UserEdit::Enabled(false)).await.is_err());
            let edit = UserEdit::Password { new: Secret::new("mine now"), old: Some(Secret::new(ROOT_WORD)) };
            assert!(accounts.edit_user(&by, admin.name(), &edit).await.is_err());
            let all = Revoke::Caller(admin.name().clone());
            assert!(node.auth.authority().revoke(&by, &all).await.is_err());
        }
        show(&node, &grant.secret).await.expect("nothing was ended");
    });
}

#[test]
fn what_is_logged_in_by_a_token_stays_as_narrow_and_ends_with_it() {
    scene(3, |node| async move {
        node.add_user("alice", "wonder").await;
        let grant = made(&node, &NewToken { life: HOUR, ..new("restic") }).await;
        let as_password = Evidence::Password { user: "alice".to_owned(), password: grant.secret.clone() };
        for evidence in [Evidence::Token(grant.secret.clone()), as_password] {
            let authority = node.auth.authority();
            let signed = authority.login(&evidence, &Attenuation::NONE, DAY, SOCKET).await.expect("it may");
            let caller = node.token(&signed.to_token()).await.expect("it is good");
            assert_eq!(*caller.limits(), narrow(), "{evidence:?}");
            assert!(caller.claims().expires < grant.record.expires, "{evidence:?}");
            assert!(caller.claims().lineage().any(|id| id == grant.record.id.credential()), "{evidence:?}");
        }
        let signed = node.token_of(&show(&node, &grant.secret).await.expect("it is right")).await;
        let caller = node.token(&signed).await.expect("it is good");
        node.auth.tokens().end_token(&alice(&node).await, grant.record.id).await.expect("it is hers");
        assert_eq!(kind(caller.live(node.sys.clock().moment())), Err(ErrorKind::Revoked));
        assert_eq!(kind(node.token(&signed).await), Err(ErrorKind::Revoked));
    });
}

#[test]
fn a_token_ends_to_the_second_and_so_does_whoever_came_by_it() {
    scene(4, |node| async move {
        node.add_user("alice", "wonder").await;
        let grant = made(&node, &NewToken { life: Duration::from_secs(30), ..new("cron") }).await;
        let caller = show(&node, &grant.secret).await.expect("it is right");
        node.pass(Duration::from_secs(29));
        caller.live(node.sys.clock().moment()).expect("a second is left");
        show(&node, &grant.secret).await.expect("a second is left");
        // Stamps are some nanoseconds ahead of a clock that stands still.
        node.pass(Duration::from_secs(1) + Duration::from_micros(1));
        assert_eq!(kind(caller.live(node.sys.clock().moment())), Err(ErrorKind::Expired));
        assert_eq!(kind(show(&node, &grant.secret).await), Err(ErrorKind::Expired));
        assert_eq!(listed(&node).await[0].ended.as_deref(), Some("the token has run out"));
    });
}

#[test]
fn a_token_outlives_the_credentials_that_are_made_for_it() {
    scene(5, |node| async move {
        node.add_user("alice", "wonder").await;
        let grant = made(&node, &new("cron")).await;
        let caller = show(&node, &grant.secret).await.expect("it is right");
        node.pass(2 * limits::CREDENTIAL_LIFE);
        assert_eq!(kind(caller.live(node.sys.clock().moment())), Err(ErrorKind::Expired));
        let node = node.restart().await;
        let fresh = show(&node, &grant.secret).await.expect("it lasts for a month");
        assert_eq!(*fresh.limits(), narrow());
    });
}

#[test]
fn a_revoked_token_ends_its_callers_at_once_and_stays_ended_after_a_power_cut() {
    for seed in 0..10 {
        scene(seed, |node| async move {
            node.add_user("alice", "wonder").await;
            let (grant, other) = (made(&node, &new("one")).await, made(&node, &new("other")).await);
            let caller = show(&node, &grant.secret).await.expect("it is right");
            node.auth.tokens().end_token(&alice(&node).await, grant.record.id).await.expect("it is hers");
            assert_eq!(kind(caller.live(node.sys.clock().moment())), Err(ErrorKind::Revoked));
            let node = node.crash(seed).await;
            assert_eq!(kind(show(&node, &grant.secret).await), Err(ErrorKind::Revoked));
            show(&node, &other.secret).await.expect("another is not");
            // Long after its withdrawal itself is forgotten.
            node.pass(4 * limits::CREDENTIAL_LIFE);
            node.sys.sleep(limits::AUTH_SWEEP * 2).await;
            assert_eq!(kind(show(&node, &grant.secret).await), Err(ErrorKind::Revoked));
            let again = node.auth.tokens().end_token(&alice(&node).await, grant.record.id).await;
            assert_eq!(again.expect("it is no error").ended.as_deref(), Some("the token was revoked"));
        });
    }
}

#[test]
fn what_ends_its_owner_ends_a_token_and_a_change_of_groups_is_seen_at_its_next_use() {
    scene(6, |node| async move {
        let name = node.add_user("alice", "wonder").await;
        let grant = made(&node, &new("cron")).await;
        let caller = show(&node, &grant.secret).await.expect("it is right");
        let (accounts, admin) = (node.auth.accounts(), node.admin().await);
        let group = accounts.add_group(&admin, "team").await.expect("it is new").name;
        accounts.edit_group(&admin, &group, &GroupEdit::Add(name.clone())).await.expect("it is theirs");
        caller.live(node.sys.clock().moment()).expect("what is under way by it goes on");
        assert!(caller.is_or_is_in(group.id()), "in the groups that there are now");
        let fresh = show(&node, &grant.secret).await.expect("it is right");
        assert!(fresh.is_or_is_in(group.id()));
        let word = UserEdit::Password { new: Secret::new("another"), old: None };
        accounts.edit_user(&admin, &name, &word).await.expect("she is there");
        show(&node, &grant.secret).await.expect("a new password ends no token");
        accounts.edit_user(&admin, &name, &UserEdit::Enabled(false)).await.expect("she is there");
        assert!(fresh.live(node.sys.clock().moment()).is_err());
        assert_eq!(kind(show(&node, &grant.secret).await), Err(ErrorKind::Revoked));
        accounts.edit_user(&admin, &name, &UserEdit::Enabled(true)).await.expect("she is there");
        assert!(show(&node, &grant.secret).await.is_err(), "what she held then is over");
    });
}

#[test]
fn as_a_password_a_token_is_its_owners_alone_and_a_wrong_one_costs_what_a_wrong_password_costs() {
    scene(7, |node| async move {
        for (user, word) in [("alice", "wonder"), ("bob", "builder")] {
            node.add_user(user, word).await;
        }
        let grant = made(&node, &new("davfs")).await;
        let secret = grant.secret.expose();
        let caller = node.login("alice", secret).await.expect("it is hers");
        assert_eq!((caller.claims().evidence, caller.limits()), (EvidenceKind::Token, &narrow()));
        let full = format!("alice@{}", node.auth.domain());
        node.login(&full, secret).await.expect("her name in full");
        let wrong = format!("{}a", &secret[..secret.len() - 1]);
        let place = Some("192.0.2.1".parse().expect("an address"));
        let took = async |user: &str, word: &str| {
            let begun = node.sys.clock().tick();
            let answer = kind(node.login_from(user, word, place).await);
            (answer, node.sys.clock().tick().since(begun))
        };
        for n in 0..=limits::PASSWORD_FAILURES_FREE {
            let word = if n % 2 == 0 { secret } else { wrong.as_str() };
            assert_eq!(took("bob", word).await, (Err(ErrorKind::Unauthenticated), Duration::ZERO), "{n}");
        }
        let (answer, waited) = took("bob", secret).await;
        assert_eq!((answer, waited), (Err(ErrorKind::Unauthenticated), limits::PASSWORD_FAILURE_DELAY));
        for _ in 0..=limits::PASSWORD_FAILURES_FREE {
            assert_eq!(kind(node.login_from("alice", &wrong, place).await), Err(ErrorKind::Unauthenticated));
        }
        assert_eq!(took("alice", secret).await, (Ok(()), Duration::ZERO), "a right one never waits");
        node.auth.tokens().end_token(&alice(&node).await, grant.record.id).await.expect("it is hers");
        assert_eq!(kind(node.login("alice", secret).await), Err(ErrorKind::Revoked));
    });
}

#[test]
fn guesses_from_one_address_wait_and_right_ones_and_others_do_not() {
    scene(8, |node| async move {
        node.add_user("alice", "wonder").await;
        let grant = made(&node, &new("cron")).await;
        let (here, there) = (from("192.0.2.1"), from("192.0.2.2"));
        let wrong = Secret::new(format!("weft_{}", "a".repeat(32)));
        let took = async |secret: &Secret, from: Origin| {
            let begun = node.sys.clock().tick();
            let evidence = Evidence::Token(secret.clone());
            let answer = kind(node.auth.authority().authenticate(&evidence, from).await);
            (answer, node.sys.clock().tick().since(begun))
        };
        let refused = Err(ErrorKind::Unauthenticated);
        for n in 0..=limits::PASSWORD_FAILURES_FREE {
            assert_eq!(took(&wrong, here).await, (refused, Duration::ZERO), "{n}");
        }
        assert_eq!(took(&wrong, here).await, (refused, limits::PASSWORD_FAILURE_DELAY));
        assert_eq!(took(&grant.secret, here).await, (Ok(()), Duration::ZERO));
        assert_eq!(took(&wrong, here).await.1, limits::PASSWORD_FAILURE_DELAY, "a right one clears nothing");
        assert_eq!(took(&wrong, there).await.1, Duration::ZERO);
    });
}

#[test]
fn tokens_are_listed_and_ended_by_their_owner_and_administrators_and_nobody_else() {
    scene(9, |node| async move {
        let [alice_name, _] = [node.add_user("alice", "wonder").await, node.add_user("bob", "builder").await];
        let (grant, tokens) = (made(&node, &new("cron")).await, node.auth.tokens());
        let (bob, admin) = (node.login("bob", "builder").await.expect("he may"), node.admin().await);
        let hers = TokensOf::User(alice_name);
        assert!(tokens.tokens(&bob, &TokensOf::Caller, None).await.expect("his own").is_empty());
        for of in [&hers, &TokensOf::Everybody] {
            assert_eq!(kind(tokens.tokens(&bob, of, None).await), Err(ErrorKind::NotPermitted));
            assert_eq!(tokens.tokens(&admin, of, None).await.expect("they may")[0].id, grant.record.id);
        }
        assert!(tokens.tokens(&admin, &TokensOf::Caller, None).await.expect("their own").is_empty());
        let nobody = TokensOf::User(node.name("carol"));
        assert_eq!(kind(tokens.tokens(&admin, &nobody, None).await), Err(ErrorKind::NotFound));
        assert_eq!(kind(tokens.end_token(&bob, grant.record.id).await), Err(ErrorKind::NotFound));
        let anyone = Caller::anyone();
        assert_eq!(kind(tokens.make_token(&anyone, &new("x")).await), Err(ErrorKind::Unauthenticated));
        assert_eq!(kind(tokens.end_token(&anyone, grant.record.id).await), Err(ErrorKind::Unauthenticated));
        let itself = node.auth.node_caller().expect("it is somebody");
        assert!(tokens.make_token(&itself, &new("x")).await.is_err(), "nodes have no tokens");
        show(&node, &grant.secret).await.expect("nobody has ended it");
        tokens.end_token(&admin, grant.record.id).await.expect("they may");
        assert_eq!(kind(show(&node, &grant.secret).await), Err(ErrorKind::Revoked));
    });
}

#[test]
fn a_token_has_a_name_some_right_and_some_life() {
    scene(10, |node| async move {
        node.add_user("alice", "wonder").await;
        let by = alice(&node).await;
        let bad = [
            new(""),
            new("a/b"),
            new("a b"),
            new(&"a".repeat(limits::TOKEN_NAME_BYTES_MAX + 1)),
            new(&"0".repeat(32)),
            NewToken { life: Duration::ZERO, ..new("x") },
            NewToken { life: limits::TOKEN_LIFE_MAX + Duration::from_secs(1), ..new("x") },
            NewToken { limits: Attenuation { rights: Rights::NONE, ..Attenuation::NONE }, ..new("x") },
        ];
        for bad in bad {
            let refused = kind(node.auth.tokens().make_token(&by, &bad).await);
            assert_eq!(refused, Err(ErrorKind::Invalid), "{bad:?}");
        }
        let paths = vec![RelPath::EMPTY; limits::ATTENUATION_PATHS_MAX + 1];
        let many = NewToken { limits: Attenuation { paths, ..Attenuation::NONE }, ..new("x") };
        assert_eq!(kind(node.auth.tokens().make_token(&by, &many).await), Err(ErrorKind::TooLarge));
        assert!(listed(&node).await.is_empty());
    });
}

#[test]
fn names_are_had_once_tokens_are_bounded_and_those_that_ended_are_forgotten_in_time() {
    scene(11, |node| async move {
        node.add_user("alice", "wonder").await;
        let first = made(&node, &new("n0")).await;
        let again = node.auth.tokens().make_token(&alice(&node).await, &new("n0")).await;
        assert_eq!(kind(again), Err(ErrorKind::Exists));
        node.auth.tokens().end_token(&alice(&node).await, first.record.id).await.expect("it is hers");
        made(&node, &NewToken { life: 300 * DAY, ..new("n0") }).await;
        for n in 2..limits::TOKENS_OWNED_MAX {
            made(&node, &NewToken { life: HOUR, ..new(&format!("n{n}")) }).await;
        }
        let more = node.auth.tokens().make_token(&alice(&node).await, &new("more")).await;
        assert_eq!(kind(more), Err(ErrorKind::TooLarge));
        let all = listed(&node).await;
        assert_eq!(all.len(), limits::TOKENS_OWNED_MAX);
        let after = Some((all[9].by.id(), all[9].id));
        let rest = node.auth.tokens().tokens(&alice(&node).await, &TokensOf::Caller, after).await;
        assert_eq!(rest.expect("a page"), all[10..]);
        node.pass(HOUR + limits::TOKEN_KEPT);
        node.sys.sleep(limits::AUTH_SWEEP * 2).await;
        assert_eq!(listed(&node).await.len(), 1);
        assert_eq!(kind(show(&node, &first.secret).await), Err(ErrorKind::Unauthenticated));
        made(&node, &new("more")).await;
    });
}

#[test]
fn when_a_token_was_used_is_written_down_now_and_then_not_at_each_use() {
    scene(12, |node| async move {
        node.add_user("alice", "wonder").await;
        let grant = made(&node, &new("cron")).await;
        assert_eq!(listed(&node).await[0].last, None);
        show(&node, &grant.secret).await.expect("it is right");
        let first = listed(&node).await[0].last.expect("it was used");
        let before = crate::scene::all_rows(&*node.engine);
        for _ in 0..100 {
            node.pass(Duration::from_secs(1));
            show(&node, &grant.secret).await.expect("it is right");
        }
        assert_eq!(crate::scene::all_rows(&*node.engine), before, "a use writes nothing");
        node.pass(limits::TOKEN_REMEMBERED);
        show(&node, &grant.secret).await.expect("it is right");
        assert!(listed(&node).await[0].last > Some(first));
    });
}
