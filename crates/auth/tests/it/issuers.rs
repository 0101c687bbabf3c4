//! Tokens of issuers: whom they let in, as how much, for how long; what is refused; and how their keys are had.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use data_encoding::BASE64URL_NOPAD;
use serde_json::{Value, json};
use weft_auth::{ActsFor, Documents, IssuerSettings, Settings};
use weft_conformance::file_system::site::Dice;
use weft_conformance::fuzz::fuzz;
use weft_conformance::issuer::{TokenKey, coded, shown};
use weft_core::form::{Door, Origin};
use weft_core::proof::{Attenuation, Caller, Confines, EvidenceKind, Scope};
use weft_core::service::{AuditFilter, Evidence, NewToken, Revoke, Secret, UserEdit};
use weft_core::{CallerKind, Error, ErrorKind, RelPath, Result, Rights, Time, limits};
use weft_sys::{SimDisk, Sys, simulate};

use crate::scene::{SOCKET, Scene, settings};
use crate::twins;

const HOUR: Duration = Duration::from_secs(3600);
const URL: &str = "https://tokens.example.org/";
const NODE: &str = "https://node.example.org:8421";

fn path(text: &str) -> RelPath {
    RelPath::try_from(text).expect("a path")
}

/// An issuer that is set with these keys, for alice.
fn given(keys: &Value) -> IssuerSettings {
    IssuerSettings {
        name: "exp".into(),
        url: URL.into(),
        audiences: vec![NODE.into()],
        base: path("exp"),
        acts_for: ActsFor::User("alice".into()),
        groups: BTreeMap::new(),
        keys: Some(keys.to_string().into_bytes()),
    }
}

fn with(issuer: IssuerSettings) -> Settings {
    Settings { issuers: vec![issuer], ..settings() }
}

fn at(sys: &Sys, hours: i64) -> i64 {
    sys.clock().now().seconds() + hours * 3600
}

/// What a good token of the WLCG's profile says.
fn claims(sys: &Sys) -> Value {
    json!({
        "iss": URL, "sub": "a1b2-c3", "jti": "t-1", "aud": NODE, "wlcg.ver": "1.0",
        "exp": at(sys, 2), "iat": at(sys, 0), "nbf": at(sys, 0),
        "scope": "storage.read:/ storage.create:/in",
    })
}

fn but(claims: &Value, changes: Value) -> Value {
    let mut all = claims.as_object().expect("an object").clone();
    for (name, value) in changes.as_object().expect("an object") {
        match value {
            Value::Null => _ = all.remove(name),
            value => _ = all.insert(name.clone(), value.clone()),
        }
    }
    all.into()
}

fn from(n: usize) -> Origin {
    let peer: IpAddr = [192, 0, 2, u8::try_from(n).expect("few")].into();
    Origin { door: Door::Http, peer: Some(peer), uid: None }
}

async fn show_from(node: &Scene, token: &str, from: Origin) -> Result<Caller> {
    node.auth.authority().authenticate(&Evidence::Token(Secret::new(token)), from).await
}

async fn refused(node: &Scene, token: &str, kind: ErrorKind, why: &str) {
    let error = node.token(token).await.map(drop).expect_err(why);
    assert_eq!(error.kind(), kind, "{why}: {error:?}");
}

/// Runs a test on a node that takes tokens by one key, and has alice.
fn taking<F: Future<Output = ()>>(seed: u64, work: impl FnOnce(Scene, TokenKey) -> F) {
    simulate(seed, |sys| async move {
        let key = TokenKey::new("ES256", "k1");
        let settings = with(given(&shown(&[&key])));
        let node = Scene::try_start(&sys, SimDisk::new(), settings).await.expect("it starts");
        node.add_user("alice", "wonder").await;
        work(node, key).await;
    });
}

#[test]
fn a_token_is_its_user_as_far_as_its_scopes_go_and_no_way_to_more() {
    taking(1, |node, key| async move {
        let claims = claims(&node.sys);
        let caller = node.token(&key.token(&claims)).await.expect("good");
        assert_eq!((caller.name(), caller.claims().evidence), (&node.name("alice"), EvidenceKind::Issuer));
        let Confines::Scopes(scopes) = &caller.claims().confines else { panic!("confined by path") };
        let read = Rights::READ | Rights::LIST | Rights::TRAVERSE | Rights::ATTR_READ;
        let create = Rights::INSERT | Rights::TRAVERSE | Rights::ATTR_READ;
        let scope = |at: &str, rights| Scope { path: path(at), rights };
        assert_eq!(scopes[..], [scope("exp", read), scope("exp/in", create)]);
        assert_eq!(caller.limits().rights, read | create);
        assert_eq!(caller.claims().expires, Time::EPOCH.plus(Duration::from_secs(at(&node.sys, 2) as u64)));
        let delegate = &caller.claims().delegates[0];
        assert_eq!((delegate.kind(), delegate.local()), (Some(CallerKind::Issuer), "exp.a1b2-c3"));

        let new = NewToken { name: "mine".into(), limits: Attenuation::NONE, life: HOUR };
        let made = node.auth.tokens().make_token(&caller, &new).await.map(drop);
        assert_eq!(made.expect_err("it would outlive it").kind(), ErrorKind::NotPermitted);
        assert!(node.auth.demand_somebody(&caller).is_err());

        // Shown again it is remembered; another token is another credential.
        let again = node.token(&key.token(&claims)).await.expect("good");
        assert_ne!(again.credential(), caller.credential(), "signed anew, it is another text");
        let token = key.token(&claims);
        let [one, same] = [node.token(&token).await.expect("good"), node.token(&token).await.expect("good")];
        assert_eq!(one.credential(), same.credential());
    });
}

#[test]
fn every_key_and_profile_that_is_taken_lets_in() {
    for (seed, algorithm) in ["ES256", "ES384", "EdDSA"].into_iter().enumerate() {
        simulate(seed as u64, |sys| async move {
            let (key, other) = (TokenKey::new(algorithm, "k1"), TokenKey::new("ES256", "k0"));
            let settings = with(given(&shown(&[&other, &key])));
            let node = Scene::try_start(&sys, SimDisk::new(), settings).await.expect("it starts");
            node.add_user("alice", "wonder").await;
            let wlcg = claims(&sys);
            let scitokens = json!({"wlcg.ver": null, "ver": "scitokens:2.0", "scope": "read:/x"});
            for claims in [
                but(&wlcg, json!({})),
                but(&wlcg, json!({"wlcg.ver": "1.2", "aud": ["https://else/", format!("{NODE}/")]})),
                but(&wlcg, json!({"jti": null, "iat": null, "nbf": null})),
                but(&wlcg, json!({"exp": sys.clock().now().seconds() as f64 + 60.5})),
                but(&wlcg, scitokens),
            ] {
                node.token(&key.token(&claims)).await.expect("good");
            }
        });
    }
}

/// Every token that is good but for one thing, with that thing.
fn wrong_tokens(sys: &Sys, key: &TokenKey) -> Vec<(&'static str, String)> {
    let good = claims(sys);
    let of = |changes: Value| key.token(&but(&good, changes));
    let headed = |header: Value| key.token_of(&header, &good.to_string());
    let text = key.token(&good);
    let [header, body, signature] = text.split('.').collect::<Vec<_>>().try_into().expect("three parts");
    let secret = |header: Value| {
        let signed = format!("{}.{body}", coded(header.to_string()));
        let by = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, key.public());
        format!("{signed}.{}", coded(ring::hmac::sign(&by, signed.as_bytes())))
    };
    let unsigned = |alg: &str| format!("{}.{body}.", coded(json!({"alg": alg}).to_string()));
    let [stranger, other] = [TokenKey::new("ES256", "k1"), TokenKey::new("EdDSA", "k1")];
    let more = coded(but(&good, json!({"scope": "storage.modify:/"})).to_string());
    let twice = good.to_string().replacen('{', "{\"aud\":\"https://else/\",", 1);
    vec![
        ("no signature", unsigned("none")),
        ("no signature, otherwise written", unsigned("None")),
        ("an empty signature", format!("{header}.{body}.")),
        ("a signature by the public key as a secret", secret(json!({"alg": "HS256", "kid": "k1"}))),
        ("the same under the key's algorithm", secret(json!({"alg": "ES256", "kid": "k1"}))),
        ("an algorithm of other keys", headed(json!({"alg": "RS256", "kid": "k1"}))),
        ("an algorithm of a longer key", headed(json!({"alg": "ES384", "kid": "k1"}))),
        ("a lower-case algorithm", headed(json!({"alg": "es256", "kid": "k1"}))),
        ("no algorithm", headed(json!({"kid": "k1"}))),
        ("another's key under the same name", stranger.token(&good)),
        ("another's key of another kind", other.token(&good)),
        ("a key that is not there", headed(json!({"alg": "ES256", "kid": "k2"}))),
        ("a key of its own", headed(json!({"alg": "ES256", "kid": "k9", "jwk": key.shown()}))),
        ("an unknown demand", headed(json!({"alg": "ES256", "kid": "k1", "crit": ["b64"], "b64": false}))),
        ("an empty demand", headed(json!({"alg": "ES256", "kid": "k1", "crit": []}))),
        ("more rights under the old signature", format!("{header}.{more}.{signature}")),
        (
            "another's signature",
            format!("{header}.{body}.{}", of(json!({"jti": "t-2"})).rsplit('.').next().expect("one")),
        ),
        ("a part too many", format!("{text}.{signature}")),
        ("a padded part", format!("{header}=.{body}.{signature}")),
        ("a part too few", format!("{header}.{body}")),
        ("no claims", format!("{header}..{signature}")),
        ("claims told twice", key.token_of(&json!({"alg": "ES256", "kid": "k1"}), &twice)),
        ("claims that are none", key.token_of(&json!({"alg": "ES256", "kid": "k1"}), "[1]")),
        ("too much of it", of(json!({"more": "x".repeat(limits::ISSUED_BYTES_MAX)}))),
        ("no end", of(json!({"exp": null}))),
        ("an end that is a text", of(json!({"exp": format!("{}", at(sys, 2))}))),
        ("a time before which it is not", of(json!({"nbf": at(sys, 1)}))),
        ("made later than now", of(json!({"iat": at(sys, 1)}))),
        ("another audience", of(json!({"aud": "https://node.example.org"}))),
        ("an audience that begins alike", of(json!({"aud": format!("{NODE}.evil.example")}))),
        ("any audience", of(json!({"aud": "https://wlcg.cern.ch/jwt/v1/any"}))),
        ("other audiences", of(json!({"aud": ["https://a/", "https://b/"]}))),
        ("audiences of nobody", of(json!({"aud": []}))),
        ("no audience", of(json!({"aud": null}))),
        ("another issuer", of(json!({"iss": "https://other.example.org/"}))),
        ("an issuer that begins alike", of(json!({"iss": format!("{URL}x")}))),
        ("an issuer without its end", of(json!({"iss": URL.trim_end_matches('/')}))),
        ("no issuer", of(json!({"iss": null}))),
        ("no subject", of(json!({"sub": null}))),
        ("no profile", of(json!({"wlcg.ver": null}))),
        ("a later profile", of(json!({"wlcg.ver": "2.0"}))),
        ("two profiles", of(json!({"ver": "scitokens:2.0"}))),
        ("an earlier SciToken", of(json!({"wlcg.ver": null, "ver": "scitokens:1.0"}))),
        ("a way out of the base", of(json!({"scope": "storage.read:/../other"}))),
        ("a coded way out of the base", of(json!({"scope": "storage.read:/%2e%2e/other"}))),
        ("a path that is none", of(json!({"scope": "storage.read:x"}))),
    ]
}

#[test]
fn a_token_that_is_wrong_in_one_thing_lets_nobody_in() {
    taking(2, |node, key| async move {
        let good = key.token(&claims(&node.sys));
        node.token(&good).await.expect("nothing is wrong with it");
        for (n, (why, token)) in wrong_tokens(&node.sys, &key).into_iter().enumerate() {
            let error = show_from(&node, &token, from(n)).await.map(drop).expect_err(why);
            assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{why}: {error:?}");
            let life = Duration::from_secs(60);
            let evidence = Evidence::Token(Secret::new(&token));
            let login = node.auth.authority().login(&evidence, &Attenuation::NONE, life, from(n + 100)).await;
            assert!(login.is_err(), "{why}: it logs in");
        }
        for (why, changes, kind) in [
            ("run out", json!({"exp": at(&node.sys, -1)}), ErrorKind::Expired),
            ("no scope", json!({"scope": null}), ErrorKind::NotPermitted),
            (
                "no scope of storage",
                json!({"scope": "openid compute.read storage.read"}),
                ErrorKind::NotPermitted,
            ),
        ] {
            refused(&node, &key.token(&but(&claims(&node.sys), changes)), kind, why).await;
        }
        let now = node.sys.clock().now().seconds();
        let skewed = json!({"exp": now - 30, "iat": now + 30});
        node.token(&key.token(&but(&claims(&node.sys), skewed))).await.expect("clocks differ");
    });
}

#[test]
fn no_mutated_token_lets_anybody_in() {
    taking(3, |node, key| async move {
        let good = key.token(&claims(&node.sys));
        node.token(&good).await.expect("it is good");
        let make = |_: &mut Dice| good.clone().into_bytes();
        fuzz("shown token of an issuer", make, |bytes| {
            let Ok(text) = std::str::from_utf8(bytes) else { return };
            let evidence = Evidence::Token(Secret::new(text));
            let authority = node.auth.authority();
            let mut shown = Box::pin(authority.authenticate(&evidence, SOCKET));
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            // What waits was wrong, and waits for that.
            if let std::task::Poll::Ready(Ok(_)) = shown.as_mut().poll(&mut context) {
                assert_eq!(text, good, "a mutated token lets in");
            }
        });
    });
}

#[test]
fn a_subject_is_whom_the_settings_say_and_others_are_nobody() {
    simulate(4, |sys| async move {
        let key = TokenKey::new("EdDSA", "k1");
        let users = [("a1b2-c3", "alice"), ("gone", "nobody-here")];
        let users: BTreeMap<_, _> = users.map(|(a, b)| (a.to_owned(), b.to_owned())).into();
        let issuer = IssuerSettings { acts_for: ActsFor::Subjects(users), ..given(&shown(&[&key])) };
        let node = Scene::try_start(&sys, SimDisk::new(), with(issuer)).await.expect("it starts");
        node.add_user("alice", "wonder").await;
        let of = |subject: &str| key.token(&but(&claims(&sys), json!({"sub": subject})));
        assert_eq!(node.token(&of("a1b2-c3")).await.expect("alice").name(), &node.name("alice"));
        refused(&node, &of("a1b2-c"), ErrorKind::NotPermitted, "a subject that begins alike").await;
        refused(&node, &of("alice"), ErrorKind::NotPermitted, "a user's name is no subject").await;
        refused(&node, &of("gone"), ErrorKind::Revoked, "a user that is not there").await;
        let odd = node.token(&of("a1b2-c3")).await.expect("alice");
        assert!(odd.claims().delegates[0].local().starts_with("exp."));
    });
}

#[test]
fn a_token_that_says_groups_and_no_rights_is_the_user_of_its_first_known_group_below_the_base() {
    simulate(11, |sys| async move {
        let key = TokenKey::new("EdDSA", "k1");
        let groups = [("/exp/production", "bob"), ("/exp", "carol"), ("/exp/gone", "nobody-here")];
        let groups: BTreeMap<_, _> = groups.map(|(a, b)| (a.to_owned(), b.to_owned())).into();
        let issuer = IssuerSettings { groups, ..given(&shown(&[&key])) };
        let node = Scene::try_start(&sys, SimDisk::new(), with(issuer)).await.expect("it starts");
        for user in ["alice", "bob", "carol"] {
            node.add_user(user, "wonder").await;
        }
        let of = |scope: &str, groups: &[&str]| {
            key.token(&but(&claims(&sys), json!({"scope": scope, "wlcg.groups": groups})))
        };
        for (scope, groups, user) in [
            ("", &["/exp"][..], "carol"),
            ("openid offline_access", &["/exp/production", "/exp"], "bob"),
            ("", &["/exp", "/exp/production"], "carol"),
            ("", &["/exp/else", "/exp/production"], "bob"),
            // What a token says itself of rights counts, and its groups are nothing then.
            ("storage.read:/", &["/exp/production"], "alice"),
        ] {
            let caller = node.token(&of(scope, groups)).await.expect("good");
            assert_eq!(caller.name(), &node.name(user), "{scope} {groups:?}");
            let Confines::Scopes(scopes) = &caller.claims().confines else { panic!("confined by path") };
            assert_eq!((scopes.len(), &scopes[0].path), (1, &path("exp")));
            assert!(!scopes[0].rights.intersects(Rights::ACL_WRITE | Rights::ACL_READ | Rights::MAINTAIN));
            assert!(node.auth.demand_somebody(&caller).is_err());
        }
        refused(&node, &of("", &["/exp/else"]), ErrorKind::NotPermitted, "a group below is not that above")
            .await;
        refused(&node, &of("", &["/exp/production/x"]), ErrorKind::NotPermitted, "nor the other way").await;
        refused(&node, &of("", &[]), ErrorKind::NotPermitted, "no group and no right").await;
        refused(&node, &of("compute.create", &["/exp"]), ErrorKind::NotPermitted, "rights to something else")
            .await;
        refused(&node, &of("storage.read", &["/exp"]), ErrorKind::NotPermitted, "a right without a path")
            .await;
        refused(&node, &of("", &["/exp/gone"]), ErrorKind::Revoked, "a user that is not there").await;
        refused(&node, &of("", &["/exp", "exp"]), ErrorKind::Unauthenticated, "no name of a group").await;
        let many: Vec<String> = (0..=limits::ISSUED_GROUPS_MAX).map(|n| format!("/exp/{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        refused(&node, &of("", &many), ErrorKind::TooLarge, "too many").await;
        node.token(&of("", &[&many[1..], &["/exp"]].concat()[1..])).await.expect("as many as may be");
        // SciTokens know no groups.
        let other = json!({"wlcg.ver": null, "ver": "scitokens:2.0", "scope": "", "wlcg.groups": ["/exp"]});
        refused(&node, &key.token(&but(&claims(&sys), other)), ErrorKind::NotPermitted, "another profile")
            .await;
    });
}

#[test]
fn what_it_lets_in_ends_with_the_token() {
    taking(5, |node, key| async move {
        let token = key.token(&claims(&node.sys));
        let caller = node.token(&token).await.expect("good");
        let authority = node.auth.authority();
        let exchanged = authority.credential(&caller, &Attenuation::NONE, HOUR * 12).await.expect("it may");
        let exchanged = node.token(&exchanged.to_token()).await.expect("good");
        assert_eq!(exchanged.claims().expires, caller.claims().expires);
        node.pass(HOUR * 2 + limits::CLOCK_SKEW_MAX);
        for who in [&caller, &exchanged] {
            let error = who.live(node.sys.clock().moment()).expect_err("it is over");
            assert_eq!(error.kind(), ErrorKind::Expired);
        }
        refused(&node, &token, ErrorKind::Expired, "it is over").await;
    });
}

#[test]
fn exchanged_it_stays_as_narrow_and_narrowing_only_takes_away() {
    taking(6, |node, key| async move {
        let token = key.token(&claims(&node.sys));
        let caller = node.token(&token).await.expect("good");
        let authority = node.auth.authority();
        let evidence = Evidence::Token(Secret::new(&token));
        let login = authority.login(&evidence, &Attenuation::NONE, HOUR * 12, SOCKET).await.expect("it may");
        let narrower = Attenuation { rights: Rights::READ, paths: vec![path("exp/x")], ..Attenuation::NONE };
        let narrow = authority.credential(&caller, &narrower, HOUR).await.expect("it may");
        for (signed, rights) in [(login, caller.limits().rights), (narrow, Rights::READ)] {
            let got = node.token(&signed.to_token()).await.expect("good");
            assert_eq!(got.claims().confines, caller.claims().confines);
            assert_eq!(got.claims().delegates, caller.claims().delegates);
            assert_eq!(got.limits().rights, rights);
            assert!(node.auth.demand_somebody(&got).is_err());
        }
        // Whoever's groups change is signed anew, as narrow.
        let admin = node.admin().await;
        let team = node.auth.accounts().add_group(&admin, "team").await.expect("it is new").name;
        let exchanged = authority.credential(&caller, &Attenuation::NONE, HOUR).await.expect("it may");
        let add = weft_core::service::GroupEdit::Add(node.name("alice"));
        node.auth.accounts().edit_group(&admin, &team, &add).await.expect("it may");
        let fresh = node.token(&exchanged.to_token()).await.expect("made anew");
        assert!(fresh.is_or_is_in(team.id()));
        assert_eq!(fresh.claims().confines, caller.claims().confines);
    });
}

#[test]
fn it_ends_with_its_user_and_by_being_revoked() {
    taking(7, |node, key| async move {
        let (admin, accounts) = (node.admin().await, node.auth.accounts());
        let token = key.token(&claims(&node.sys));
        let caller = node.token(&token).await.expect("good");
        let alice = node.name("alice");
        accounts.edit_user(&admin, &alice, &UserEdit::Enabled(false)).await.expect("she is there");
        assert!(caller.live(node.sys.clock().moment()).is_err(), "at once");
        refused(&node, &token, ErrorKind::Revoked, "she may not log in").await;
        accounts.edit_user(&admin, &alice, &UserEdit::Enabled(true)).await.expect("she is there");
        refused(&node, &token, ErrorKind::Revoked, "what was before stays over").await;

        node.pass(Duration::from_secs(5));
        let later = but(&claims(&node.sys), json!({"jti": "t-2"}));
        let token = key.token(&later);
        let caller = node.token(&token).await.expect("made since");
        node.auth
            .authority()
            .revoke(&admin, &Revoke::Credential(caller.claims().parents[1]))
            .await
            .expect("it may");
        assert!(caller.live(node.sys.clock().moment()).is_err(), "at once");
        refused(&node, &token, ErrorKind::Revoked, "shown again").await;
        let restarted = node.restart_with(with(given(&shown(&[&key])))).await;
        refused(&restarted, &token, ErrorKind::Revoked, "after a restart").await;
    });
}

#[test]
fn a_token_that_was_revoked_is_not_another_by_another_signature() {
    taking(30, |node, key| async move {
        let token = key.token(&claims(&node.sys));
        let (signed, signature) = token.rsplit_once('.').expect("it is signed");
        let twin = twins::signature(&BASE64URL_NOPAD.decode(signature.as_bytes()).expect("it is coded"));
        let twin = format!("{signed}.{}", coded(twin));
        let [caller, same] =
            [node.token(&token).await.expect("good"), node.token(&twin).await.expect("as good")];
        assert_eq!(caller.claims().parents, same.claims().parents);
        let what = Revoke::Credential(caller.claims().parents[1]);
        node.auth.authority().revoke(&node.admin().await, &what).await.expect("it may");
        refused(&node, &token, ErrorKind::Revoked, "it was revoked").await;
        refused(&node, &twin, ErrorKind::Revoked, "it is the same").await;
    });
}

#[test]
fn a_token_that_its_user_revoked_stays_so_for_as_long_as_it_lasts() {
    taking(31, |node, key| async move {
        let good = claims(&node.sys);
        let five_days = key.token(&but(&good, json!({"exp": at(&node.sys, 5 * 24)})));
        let caller = node.token(&five_days).await.expect("good");
        let alice = node.login("alice", "wonder").await.expect("her password");
        let what = Revoke::Credential(caller.claims().parents[1]);
        node.auth.authority().revoke(&alice, &what).await.expect("it is hers");
        for _ in 0..4 {
            node.pass(24 * HOUR);
            // What is over is forgotten.
            node.sys.sleep(limits::AUTH_SWEEP).await;
            refused(&node, &five_days, ErrorKind::Revoked, "days later").await;
        }
        let longer = but(&claims(&node.sys), json!({"exp": at(&node.sys, 367 * 24)}));
        refused(&node, &key.token(&longer), ErrorKind::Unauthenticated, "nobody could take it back").await;
    });
}

#[test]
fn a_key_that_cannot_be_read_is_passed_over_and_the_others_are_not() {
    simulate(32, |sys| async move {
        let key = TokenKey::new("ES256", "k1");
        let odd =
            [json!({"kid": "z"}), json!({"kty": "EC", "kid": 7}), json!("a key"), json!(null), key.shown()];
        let settings = with(given(&json!({"keys": odd})));
        let node = Scene::try_start(&sys, SimDisk::new(), settings).await.expect("one of them is a key");
        node.add_user("alice", "wonder").await;
        node.token(&key.token(&claims(&sys))).await.expect("good");
    });
}

#[test]
fn an_issuer_that_is_no_longer_set_so_ends_what_its_tokens_were_exchanged_for() {
    taking(8, |node, key| async move {
        let caller = node.token(&key.token(&claims(&node.sys))).await.expect("good");
        let signed =
            node.auth.authority().credential(&caller, &Attenuation::NONE, HOUR).await.expect("it may");
        let exchanged = signed.to_token();
        let same = given(&shown(&[&key]));
        let node = node.restart_with(with(same.clone())).await;
        node.token(&exchanged).await.expect("nothing has changed");
        let node = node.restart_with(with(IssuerSettings { base: path("elsewhere"), ..same.clone() })).await;
        refused(&node, &exchanged, ErrorKind::Revoked, "its paths began elsewhere").await;
        let node = node.restart_with(settings()).await;
        refused(&node, &exchanged, ErrorKind::Revoked, "nobody's tokens are taken").await;
        let node = node.restart_with(with(same)).await;
        node.token(&exchanged).await.expect("it is taken again");
    });
}

#[test]
fn issuers_that_change_while_it_runs_end_what_was_theirs_and_nothing_else() {
    taking(10, |node, key| async move {
        let other_key = TokenKey::new("ES256", "k9");
        let same = given(&shown(&[&key]));
        let other = IssuerSettings {
            name: "other".into(),
            url: "https://other.example.org/".into(),
            base: path("other"),
            ..given(&shown(&[&other_key]))
        };
        let theirs = but(&claims(&node.sys), json!({"iss": "https://other.example.org/"}));
        refused(&node, &other_key.token(&theirs), ErrorKind::Unauthenticated, "it is not set yet").await;
        let token = key.token(&claims(&node.sys));
        let caller = node.token(&token).await.expect("good");
        let authority = node.auth.authority();
        let exchanged =
            authority.credential(&caller, &Attenuation::NONE, HOUR).await.expect("it may").to_token();
        let held = node.token(&exchanged).await.expect("good");
        let live = |caller: &Caller| caller.live(node.sys.clock().moment()).is_ok();

        node.auth.change_issuers(&[other.clone(), same.clone()]).await.expect("good");
        assert!(live(&caller) && live(&held), "what stays as it was goes on");
        let by_other = node.token(&other_key.token(&theirs)).await.expect("it is set now");

        let broken = IssuerSettings { keys: Some(b"{}".to_vec()), ..same.clone() };
        node.auth.change_issuers(&[broken]).await.expect_err("it has no keys");
        assert!(live(&caller) && live(&by_other), "and what was stays");

        let elsewhere = IssuerSettings { base: path("elsewhere"), ..same.clone() };
        node.auth.change_issuers(&[elsewhere, other.clone()]).await.expect("good");
        assert_eq!([&caller, &held, &by_other].map(live), [false, false, true]);
        refused(&node, &exchanged, ErrorKind::Revoked, "its paths began elsewhere").await;
        let moved = node.token(&token).await.expect("it is taken as it is now");
        let Confines::Scopes(scopes) = &moved.claims().confines else { panic!("confined by path") };
        assert_eq!(scopes[0].path, path("elsewhere"));

        node.auth.change_issuers(&[same]).await.expect("good");
        assert_eq!([&moved, &by_other].map(live), [false, false]);
        refused(&node, &other_key.token(&theirs), ErrorKind::Unauthenticated, "it is gone").await;
        node.token(&exchanged).await.expect("it is taken again as it was");
    });
}

#[test]
fn the_log_names_issuer_subject_and_token_and_no_secret() {
    taking(9, |node, key| async move {
        let odd = but(&claims(&node.sys), json!({"sub": "a\nb`"}));
        let token = key.token(&odd);
        node.token(&token).await.expect("good");
        let forged = TokenKey::new("ES256", "k1").token(&odd);
        refused(&node, &forged, ErrorKind::Unauthenticated, "another signed it").await;
        node.sys.sleep(Duration::from_secs(2)).await;
        let admin = node.admin().await;
        let page = node.auth.audit().records(&admin, &AuditFilter::default()).await.expect("it may");
        let said: Vec<String> = page.records.iter().map(|(_, record)| record.because.clone()).collect();
        let good = said.iter().find(|text| text.contains("issuer exp")).expect("it is there");
        assert!(good.contains(r"subject `a\nb`") && good.contains("token `t-1`"), "{good}");
        let bad = said.iter().find(|text| text.contains("no key of its issuer")).expect("it is there");
        for text in [good, bad] {
            assert!(!text.contains(&token[..20]) && !text.contains('\n'), "{text}");
        }
    });
}

/// What an issuer shows, and how often it was asked.
#[derive(Debug, Default)]
struct Shelf {
    documents: Mutex<HashMap<String, String>>,
    asked: AtomicUsize,
    /// Whether an answer takes a while.
    slow: Mutex<Duration>,
    sys: Mutex<Option<Held>>,
}

struct Held(Sys);

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Held")
    }
}

const WELL_KNOWN: &str = "https://tokens.example.org/.well-known/openid-configuration";
const JWKS: &str = "https://tokens.example.org/jwks";

impl Shelf {
    fn shows(&self, keys: &[&TokenKey]) {
        let about = json!({"issuer": URL, "jwks_uri": JWKS});
        self.puts(WELL_KNOWN, &about);
        self.puts(JWKS, &shown(keys));
    }

    fn puts(&self, url: &str, text: &Value) {
        self.documents.lock().expect("whole").insert(url.to_owned(), text.to_string());
    }

    fn is_gone(&self) {
        self.documents.lock().expect("whole").clear();
    }

    /// How often the keys, or what leads to them, were asked for.
    fn asked(&self) -> usize {
        self.asked.swap(0, Ordering::AcqRel)
    }
}

#[async_trait]
impl Documents for Shelf {
    async fn document(&self, url: &str) -> Result<Bytes> {
        self.asked.fetch_add(usize::from(url == WELL_KNOWN), Ordering::AcqRel);
        let (slow, sys) = (
            *self.slow.lock().expect("whole"),
            self.sys.lock().expect("whole").as_ref().map(|held| held.0.clone()),
        );
        if let Some(sys) = sys {
            sys.sleep(slow).await;
        }
        let found = self.documents.lock().expect("whole").get(url).cloned();
        found.map(Bytes::from).ok_or_else(|| Error::new(ErrorKind::Unavailable, "nobody answers"))
    }
}

/// Runs a test on a node that fetches the keys of its issuer.
fn fetching<F: Future<Output = ()>>(seed: u64, work: impl FnOnce(Scene, Arc<Shelf>) -> F) {
    simulate(seed, |sys| async move {
        let shelf = Arc::<Shelf>::default();
        *shelf.sys.lock().expect("whole") = Some(Held(sys.clone()));
        let issuer = IssuerSettings { keys: None, ..given(&json!({})) };
        let settings = Settings { documents: Some(shelf.clone()), ..with(issuer) };
        let node = Scene::try_start(&sys, SimDisk::new(), settings).await.expect("it starts");
        node.add_user("alice", "wonder").await;
        work(node, shelf).await;
    });
}

/// A token made now, which no other is like.
fn fresh(node: &Scene, key: &TokenKey) -> String {
    key.token(&claims(&node.sys))
}

#[test]
fn keys_are_fetched_when_they_are_needed_and_kept() {
    fetching(20, |node, shelf| async move {
        let key = TokenKey::new("ES256", "k1");
        shelf.shows(&[&key]);
        assert_eq!(shelf.asked(), 0, "nobody has shown a token");
        for _ in 0..3 {
            node.token(&fresh(&node, &key)).await.expect("good");
        }
        assert_eq!(shelf.asked(), 1);
        assert!(node.auth.issuer_troubles().is_empty());
        // Beside the token that is let in by those that are here.
        node.pass(limits::ISSUER_KEYS_RENEW);
        node.token(&fresh(&node, &key)).await.expect("good");
        node.sys.sleep(Duration::from_secs(1)).await;
        assert_eq!(shelf.asked(), 1);
    });
}

#[test]
fn a_new_key_is_found_and_strangers_make_the_issuer_be_asked_once_a_minute() {
    fetching(21, |node, shelf| async move {
        let [old, new] = [TokenKey::new("ES256", "k1"), TokenKey::new("ES256", "k2")];
        shelf.shows(&[&old]);
        node.token(&fresh(&node, &old)).await.expect("good");
        shelf.shows(&[&new]);
        refused(&node, &fresh(&node, &new), ErrorKind::Unauthenticated, "it was asked a moment ago").await;
        node.pass(limits::ISSUER_FETCH_REST);
        node.token(&fresh(&node, &new)).await.expect("it is there now");
        refused(&node, &fresh(&node, &old), ErrorKind::Unauthenticated, "it is there no more").await;
        shelf.asked();
        for n in 0..200 {
            let forged = TokenKey::new("EdDSA", &format!("forged-{n}"));
            let at = from(n);
            assert!(show_from(&node, &fresh(&node, &forged), at).await.is_err());
            node.pass(Duration::from_secs(1));
        }
        let asked = shelf.asked();
        assert!((1..=4).contains(&asked), "asked {asked} times in 200 s");
        let elsewhere = but(&claims(&node.sys), json!({"iss": "https://other.example.org/"}));
        node.pass(limits::ISSUER_FETCH_REST);
        assert!(node.token(&new.token(&elsewhere)).await.is_err());
        assert_eq!(shelf.asked(), 0, "who is not set is not asked");
    });
}

#[test]
fn an_issuer_that_is_gone_is_believed_for_a_day_and_then_no_more() {
    fetching(22, |node, shelf| async move {
        let key = TokenKey::new("ES256", "k1");
        refused(&node, &fresh(&node, &key), ErrorKind::Unavailable, "nobody answers").await;
        refused(&node, &fresh(&node, &key), ErrorKind::Unavailable, "nor is asked again").await;
        assert_eq!(shelf.asked(), 1);
        assert!(node.auth.issuer_troubles()[0].contains("none of its tokens is taken"));
        node.pass(limits::ISSUER_FETCH_REST);
        shelf.shows(&[&key]);
        node.token(&fresh(&node, &key)).await.expect("it is there");
        assert!(node.auth.issuer_troubles().is_empty());
        shelf.is_gone();
        let begun = node.sys.clock().tick();
        for hours in [1, 5, 7, 12, 23] {
            let past = node.sys.clock().tick().since(begun);
            node.pass(HOUR * hours - past);
            node.token(&fresh(&node, &key)).await.expect("by the keys that are here");
            node.sys.sleep(Duration::from_secs(1)).await;
            assert!(node.auth.issuer_troubles()[0].contains(&format!("{} minutes ago", hours * 60)));
        }
        node.pass(HOUR);
        refused(&node, &fresh(&node, &key), ErrorKind::Unavailable, "they are too old").await;
        assert!(node.auth.issuer_troubles()[0].contains("none of its tokens is taken"));
        node.pass(limits::ISSUER_FETCH_REST);
        shelf.shows(&[&key]);
        node.token(&fresh(&node, &key)).await.expect("it is back");
    });
}

#[test]
fn many_wait_for_one_fetch_and_whoever_gives_up_does_not_end_it() {
    fetching(23, |node, shelf| async move {
        let key = TokenKey::new("ES256", "k1");
        shelf.shows(&[&key]);
        *shelf.slow.lock().expect("whole") = Duration::from_secs(5);
        let token = fresh(&node, &key);
        let soon = weft_core::Deadline::within(node.sys.clock(), Duration::from_secs(1));
        let gave_up = node.sys.within(soon, node.token(&token)).await;
        assert_eq!(gave_up.map(drop).expect_err("it is slow").kind(), ErrorKind::Deadline);
        let all = (0..50).map(|_| {
            node.sys.spawn({
                let (authority, token) = (node.auth.authority(), fresh(&node, &key));
                async move { authority.authenticate(&Evidence::Token(Secret::new(token)), SOCKET).await }
            })
        });
        for waiting in all.collect::<Vec<_>>() {
            waiting.await.expect("it runs").expect("good");
        }
        assert_eq!(shelf.asked(), 1);
        // One that takes longer than it may is one that is gone.
        *shelf.slow.lock().expect("whole") = limits::ISSUER_WAIT;
        let unknown = TokenKey::new("ES256", "k2");
        node.pass(limits::ISSUER_FETCH_REST);
        let begun = node.sys.clock().tick();
        refused(&node, &fresh(&node, &unknown), ErrorKind::Unauthenticated, "nobody answers").await;
        assert!(node.sys.clock().tick().since(begun) <= limits::ISSUER_WAIT);
        node.token(&fresh(&node, &key)).await.expect("by the keys that are here");
    });
}

#[test]
fn an_issuer_that_stays_as_it_was_keeps_its_keys_where_others_change() {
    fetching(26, |node, shelf| async move {
        let key = TokenKey::new("ES256", "k1");
        shelf.shows(&[&key]);
        node.token(&fresh(&node, &key)).await.expect("by keys that were fetched");
        assert!(shelf.asked() > 0);
        let other =
            IssuerSettings { name: "other".into(), url: "https://other/".into(), ..given(&shown(&[&key])) };
        let same = IssuerSettings { keys: None, ..given(&json!({})) };
        node.auth.change_issuers(&[other, same]).await.expect("good");
        node.token(&fresh(&node, &key)).await.expect("by those that are here");
        assert_eq!(shelf.asked(), 0, "nobody asks again");
    });
}

#[test]
fn a_token_that_waited_for_the_keys_of_an_issuer_that_went_meanwhile_lets_nobody_in() {
    fetching(25, |node, shelf| async move {
        let key = TokenKey::new("ES256", "k1");
        shelf.shows(&[&key]);
        *shelf.slow.lock().expect("whole") = Duration::from_secs(5);
        let (authority, token) = (node.auth.authority(), fresh(&node, &key));
        let evidence = Evidence::Token(Secret::new(token));
        let waiting =
            node.sys.spawn(async move { authority.authenticate(&evidence, SOCKET).await.map(drop) });
        node.sys.sleep(Duration::from_secs(1)).await;
        node.auth.change_issuers(&[]).await.expect("good");
        let error = waiting.await.expect("it runs").expect_err("it is gone");
        assert_eq!(error.kind(), ErrorKind::Revoked, "{error:?}");
    });
}

#[test]
fn what_an_issuer_says_of_itself_is_believed_of_itself_only() {
    fetching(24, |node, shelf| async move {
        let key = TokenKey::new("ES256", "k1");
        let private = json!({"keys": [{"kty": "oct", "kid": "k1", "k": coded("secret"), "alg": "HS256"}]});
        let encrypting = json!({"keys": [but(&key.shown(), json!({"use": "enc"}))]});
        for (why, about, keys) in [
            ("another issuer", json!({"issuer": "https://evil/", "jwks_uri": JWKS}), shown(&[&key])),
            (
                "keys without TLS",
                json!({"issuer": URL, "jwks_uri": "http://tokens.example.org/jwks"}),
                shown(&[&key]),
            ),
            ("keys of the machine", json!({"issuer": URL, "jwks_uri": "file:///etc/passwd"}), shown(&[&key])),
            ("no keys", json!({"issuer": URL, "jwks_uri": JWKS}), json!({"keys": []})),
            ("secrets", json!({"issuer": URL, "jwks_uri": JWKS}), private),
            ("keys for something else", json!({"issuer": URL, "jwks_uri": JWKS}), encrypting),
            ("what is no set", json!({"issuer": URL, "jwks_uri": JWKS}), json!([])),
        ] {
            shelf.puts(WELL_KNOWN, &about);
            shelf.puts(JWKS, &keys);
            shelf.puts("http://tokens.example.org/jwks", &keys);
            shelf.puts("file:///etc/passwd", &keys);
            refused(&node, &fresh(&node, &key), ErrorKind::Unavailable, why).await;
            node.pass(limits::ISSUER_FETCH_REST);
        }
        shelf.shows(&[&key]);
        node.token(&fresh(&node, &key)).await.expect("nothing is wrong now");
    });
}
