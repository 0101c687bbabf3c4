//! Certificates of clients: whom they let in, as how much, for how long; what is refused; and what ends them.
//!
//! That their keys are held is the handshake's to say, and taken for granted here.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CustomExtension, DistinguishedName,
    DnType, DnValue, ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, Issuer, KeyIdMethod, KeyPair,
    KeyUsagePurpose, NameConstraints, RevokedCertParams, SanType, SerialNumber,
};
use weft_auth::{ActsFor, ClientAuthoritySettings, Settings, check_client_authority, subject_of};
use weft_conformance::file_system::site::Dice;
use weft_conformance::fuzz::fuzz;
use weft_core::form::{Door, Origin};
use weft_core::proof::{Attenuation, Caller, EvidenceKind};
use weft_core::service::{AuditFilter, CertificateChain, Evidence, NewToken, Revoke, UserEdit};
use weft_core::{CallerKind, ErrorKind, Result, Rights, Time, limits};
use weft_sys::{SimDisk, Sys, simulate};

use crate::scene::{Scene, settings};
use crate::twins;

const HOUR: Duration = Duration::from_secs(3600);
const ALICE: &str = "CN=Alice,O=Grid";

/// An authority, or whoever else signs.
struct Signer {
    params: CertificateParams,
    key: KeyPair,
    der: Vec<u8>,
    pem: String,
}

fn name(parts: &[(DnType, &str)]) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    parts.iter().for_each(|(sort, text)| name.push(sort.clone(), *text));
    name
}

fn grid(common: &str) -> DistinguishedName {
    name(&[(DnType::OrganizationName, "Grid"), (DnType::CommonName, common)])
}

/// A client's certificate from an hour ago on, for some hours from now.
fn client(sys: &Sys, subject: DistinguishedName, hours: u32) -> CertificateParams {
    let now = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(sys.clock().now().seconds() as u64);
    let mut params = CertificateParams::default();
    params.distinguished_name = subject;
    (params.not_before, params.not_after) = (now - HOUR, now + HOUR * hours);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

/// An authority's, which may have none below it.
fn authority(sys: &Sys, common: &str) -> CertificateParams {
    let mut params = client(sys, grid(common), 24 * 365);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.extended_key_usages = Vec::new();
    params
}

impl Signer {
    fn root(params: CertificateParams) -> Self {
        let key = KeyPair::generate().expect("a key");
        let made = params.self_signed(&key).expect("it is signed");
        Self { der: made.der().to_vec(), pem: made.pem(), params, key }
    }

    fn new(sys: &Sys, common: &str) -> Self {
        Self::root(authority(sys, common))
    }

    fn below(&self, params: CertificateParams) -> Self {
        let key = KeyPair::generate().expect("a key");
        let made = params.signed_by(&key, &self.issuer()).expect("it is signed");
        Self { der: made.der().to_vec(), pem: made.pem(), params, key }
    }

    fn issuer(&self) -> Issuer<'_, &KeyPair> {
        Issuer::from_params(&self.params, &self.key)
    }

    fn signs(&self, params: &CertificateParams) -> Vec<u8> {
        let key = KeyPair::generate().expect("a key");
        params.signed_by(&key, &self.issuer()).expect("it is signed").der().to_vec()
    }

    /// A list of what it has revoked, good for a day.
    fn list(&self, sys: &Sys, revoked: &[&CertificateParams]) -> Vec<u8> {
        let now = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(sys.clock().now().seconds() as u64);
        let one = |params: &&CertificateParams| RevokedCertParams {
            serial_number: params.serial_number.clone().expect("it has one"),
            revocation_time: now,
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: now - HOUR,
            next_update: now + HOUR * 24,
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: revoked.iter().map(one).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer()).expect("it is signed").pem().expect("it is text").into_bytes()
    }
}

fn chain(ders: &[&[u8]]) -> Evidence {
    let (own, others) = ders.split_first().expect("one at least");
    let bytes = |der: &[u8]| der.to_vec().into();
    let chain = CertificateChain { own: bytes(own), others: others.iter().map(|der| bytes(der)).collect() };
    Evidence::Certificate(Arc::new(chain))
}

/// The settings of an authority whose certificates act for alice and bob.
fn set(signer: &Signer, revoked: Option<Vec<u8>>) -> ClientAuthoritySettings {
    let users =
        [(ALICE, "alice"), ("CN=Bob,O=Grid", "bob")].map(|(subject, user)| (subject.into(), user.into()));
    ClientAuthoritySettings {
        name: "grid".into(),
        certificates: signer.pem.clone().into_bytes(),
        revoked,
        acts_for: ActsFor::Subjects(BTreeMap::from(users)),
    }
}

async fn show(node: &Scene, evidence: &Evidence) -> Result<Caller> {
    show_from(node, evidence, 1).await
}

async fn show_from(node: &Scene, evidence: &Evidence, n: u8) -> Result<Caller> {
    let peer: IpAddr = [192, 0, 2, n].into();
    let from = Origin { door: Door::Http, peer: Some(peer), uid: None };
    node.auth.authority().authenticate(evidence, from).await
}

/// Runs a test on a node that takes certificates of one authority, and has alice and bob.
fn taking<F: Future<Output = ()>>(seed: u64, work: impl FnOnce(Scene, Signer) -> F) {
    simulate(seed, |sys| async move {
        let signer = Signer::new(&sys, "Test CA");
        let settings = Settings { client_authorities: vec![set(&signer, None)], ..settings() };
        let node = Scene::try_start(&sys, SimDisk::new(), settings).await.expect("it starts");
        node.add_user("alice", "wonder").await;
        node.add_user("bob", "builder").await;
        work(node, signer).await;
    });
}

async fn records(node: &Scene) -> Vec<String> {
    let admin = node.admin().await;
    let page = node.auth.audit().records(&admin, &AuditFilter::default()).await.expect("it may");
    page.records.into_iter().map(|(_, record)| record.because).collect()
}

#[test]
fn a_certificate_is_its_user_until_it_ends_and_no_way_to_more() {
    taking(1, |node, signer| async move {
        let below = signer.below(authority(&node.sys, "Below"));
        let der = below.signs(&client(&node.sys, grid("Alice"), 5));
        let alice = chain(&[&der, &below.der]);
        let caller = show(&node, &alice).await.expect("good");
        let claims = caller.claims();
        assert_eq!((caller.name(), claims.evidence), (&node.name("alice"), EvidenceKind::Certificate));
        assert_eq!(caller.limits().rights, Rights::from_bits(Rights::ALL.bits() & !Rights::ACL_WRITE.bits()));
        let delegate = &claims.delegates[0];
        assert_eq!(delegate.kind(), Some(CallerKind::Certificate));
        let told = records(&node).await;
        let told = told.iter().find(|because| because.starts_with("certificate grid, ")).expect("it is told");
        let fingerprint = delegate.local().strip_prefix("grid.").expect("it says whose");
        assert!(told.contains(&format!("subject `{ALICE}`, sha256 {fingerprint}, as ")), "{told}");

        let new = NewToken { name: "mine".into(), limits: Attenuation::NONE, life: HOUR };
        let made = node.auth.tokens().make_token(&caller, &new).await.map(drop);
        assert_eq!(made.expect_err("it would outlive it").kind(), ErrorKind::NotPermitted);
        assert!(node.auth.demand_somebody(&caller).is_err());
        let login = node.auth.authority().login(&alice, &Attenuation::NONE, HOUR, crate::scene::SOCKET).await;
        assert_eq!(login.map(drop).expect_err("it is shown each time").kind(), ErrorKind::NotPermitted);

        let again = show(&node, &alice).await.expect("good");
        assert_eq!(again.credential(), caller.credential(), "it is remembered");
        node.pass(HOUR * 5 - Duration::from_secs(2));
        show(&node, &alice).await.expect("until its end");
        node.pass(Duration::from_secs(3));
        assert_eq!(caller.live(node.sys.clock().moment()).expect_err("it ended").kind(), ErrorKind::Expired);
        assert_eq!(show(&node, &alice).await.map(drop).expect_err("it ended").kind(), ErrorKind::Expired);
    });
}

#[test]
fn who_is_in_is_out_when_the_first_of_those_that_vouch_ends() {
    simulate(2, |sys| async move {
        let mut short = authority(&sys, "Test CA");
        short.not_after = client(&sys, grid("x"), 3).not_after;
        let signer = Signer::root(short);
        let settings = Settings { client_authorities: vec![set(&signer, None)], ..settings() };
        let node = Scene::try_start(&sys, SimDisk::new(), settings).await.expect("it starts");
        node.add_user("alice", "wonder").await;
        node.add_user("bob", "builder").await;
        let alice = chain(&[&signer.signs(&client(&sys, grid("Alice"), 5))]);
        let caller = show(&node, &alice).await.expect("good");
        let ends = Time::from_unix(sys.clock().now().seconds() + 3 * 3600, 0);
        let skew = Duration::from_nanos(ends.since(caller.claims().expires).as_nanos() as u64);
        assert_eq!(skew, limits::CLOCK_SKEW_MAX, "the allowance is taken off: the clock is our own");
        let mut between = authority(&sys, "Between");
        between.not_after = client(&sys, grid("x"), 2).not_after;
        let between = signer.below(between);
        let bob = chain(&[&between.signs(&client(&sys, grid("Bob"), 5)), &between.der]);
        let bob = show(&node, &bob).await.expect("good");
        assert!(bob.claims().expires < caller.claims().expires, "one between ends before the authority");
        node.pass(HOUR * 3 + Duration::from_secs(1));
        assert_eq!(
            show(&node, &alice).await.map(drop).expect_err("its authority ended").kind(),
            ErrorKind::Expired
        );
    });
}

/// Something wrong, and what it is refused with.
struct Bad {
    what: &'static str,
    evidence: Evidence,
    kind: ErrorKind,
    why: &'static str,
}

/// A chain that proves nothing.
fn bad(what: &'static str, ders: &[&[u8]], why: &'static str) -> Bad {
    Bad { what, evidence: chain(ders), kind: ErrorKind::Unauthenticated, why }
}

/// Certificates whose way to the authority is wrong.
fn of_nobody_known(sys: &Sys, signer: &Signer) -> Vec<Bad> {
    let good = || client(sys, grid("Alice"), 5);
    let (namesake, stranger) = (Signer::new(sys, "Test CA"), Signer::new(sys, "Other CA"));
    let plain = signer.below(good());
    let own = signer.params.self_signed(&signer.key).expect("it is signed");
    let mut narrow = authority(sys, "Narrow");
    let permitted_subtrees = vec![GeneralSubtree::DnsName("a.example".into())];
    narrow.name_constraints = Some(NameConstraints { permitted_subtrees, excluded_subtrees: Vec::new() });
    let narrow = signer.below(narrow);
    let mut elsewhere = good();
    elsewhere.subject_alt_names = vec![SanType::DnsName("b.example".try_into().expect("a name"))];
    let mut last = authority(sys, "Last");
    last.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let last = signer.below(last);
    let beyond = last.below(authority(sys, "Beyond"));
    vec![
        bad("of another authority", &[&stranger.signs(&good())], "no authority"),
        bad("of a namesake", &[&namesake.signs(&good())], "has not signed"),
        bad("with its own authority along", &[&stranger.signs(&good()), &stranger.der], "no authority"),
        bad("of itself", &[&Signer::root(good()).der], "no authority"),
        bad("the authority's own", &[own.der()], "authority's own"),
        bad("of one that may sign none", &[&plain.signs(&good()), &plain.der], "sign none"),
        bad("of an authority for other names", &[&narrow.signs(&elsewhere), &narrow.der], "such a name"),
        bad("too deep below", &[&beyond.signs(&good()), &beyond.der, &last.der], "sign none"),
        bad("with garbage along", &[&plain.signs(&good()), b"garbage"], ""),
    ]
}

/// Certificates that are too long, too many, or none.
fn of_no_measure(sys: &Sys, signer: &Signer) -> Vec<Bad> {
    let good = || client(sys, grid("Alice"), 5);
    let mut way = vec![signer.below(authority(sys, "0"))];
    for depth in 1..limits::CLIENT_CHAIN_MAX - 1 {
        way.push(way[depth - 1].below(authority(sys, &depth.to_string())));
    }
    let far = way.last().expect("one").signs(&good());
    let long: Vec<&[u8]> = [&far[..]].into_iter().chain(way.iter().rev().map(|one| &one.der[..])).collect();
    let many: Vec<&[u8]> = long.iter().copied().chain([&signer.der[..]]).collect();
    let (der, large) = (signer.signs(&good()), vec![b'x'; limits::CLIENT_CHAIN_BYTES_MAX]);
    vec![
        bad("too long a way", &long, "too long"),
        bad("too many", &many, "too many"),
        bad("too large", &[&der, &large], "too many"),
        bad("garbage", &[b"garbage"], "cannot be read"),
        bad("nothing", &[b""], "cannot be read"),
        bad("cut off", &[&der[..der.len() - 1]], "cannot be read"),
    ]
}

/// Certificates that the authority has signed, and that say something wrong.
fn of_wrong_content(sys: &Sys, signer: &Signer) -> Vec<Bad> {
    let with = |change: &dyn Fn(&mut CertificateParams)| {
        let mut params = client(sys, grid("Alice"), 5);
        change(&mut params);
        signer.signs(&params)
    };
    let says = |oid: &[u64], critical: bool| {
        let mut extension = CustomExtension::from_oid_content(oid, vec![0x30, 0]);
        extension.set_criticality(critical);
        with(&|one| one.custom_extensions.push(extension.clone()))
    };
    let now = client(sys, grid("x"), 0).not_after;
    let server = with(&|one| one.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]);
    let mut old = name(&[(DnType::OrganizationName, "Grid"), (DnType::OrganizationalUnitName, "Alice")]);
    let user = signer.below(client(sys, old.clone(), 5));
    old.push(DnType::CommonName, "proxy");
    let ended = with(&|one| one.not_after = now - Duration::from_secs(1));
    vec![
        Bad { kind: ErrorKind::Expired, ..bad("run out", &[&ended], "run out") },
        bad("not valid yet", &[&with(&|one| one.not_before = now + HOUR)], "not valid yet"),
        bad("of a server", &[&server], "not one for clients"),
        bad("what is not known and must be", &[&says(&[1, 3, 6, 1, 4, 1, 99999, 1], true)], "not known here"),
        bad("a proxy", &[&says(&[1, 3, 6, 1, 5, 5, 7, 1, 14], true)], "proxy"),
        bad("a proxy of a draft", &[&says(&[1, 3, 6, 1, 4, 1, 3536, 1, 222], false)], "proxy"),
        bad("an old proxy", &[&user.signs(&client(sys, old, 1)), &user.der], "proxy"),
    ]
}

/// Good certificates of subjects that are nobody here.
fn of_nobody_here(sys: &Sys, signer: &Signer) -> Vec<Bad> {
    let common = |text| name(&[(DnType::CommonName, text)]);
    let turned = name(&[(DnType::CommonName, "Alice"), (DnType::OrganizationName, "Grid")]);
    let subjects = [
        ("of another subject", grid("Eve")),
        ("of no subject", name(&[])),
        ("whose one value reads as two", common("Alice,O=Grid")),
        ("in another order", turned),
    ];
    let one = |(what, subject)| {
        let evidence = chain(&[&signer.signs(&client(sys, subject, 5))]);
        Bad { what, evidence, kind: ErrorKind::NotPermitted, why: "nobody here" }
    };
    subjects.into_iter().map(one).collect()
}

#[test]
fn a_certificate_with_anything_wrong_lets_nobody_in_and_the_log_says_which_it_was() {
    taking(3, |node, signer| async move {
        let sorts = [of_nobody_known, of_no_measure, of_wrong_content, of_nobody_here];
        let bad: Vec<Bad> = sorts.iter().flat_map(|sort| sort(&node.sys, &signer)).collect();
        for (n, Bad { what, evidence, kind, why }) in bad.iter().enumerate() {
            let error = show_from(&node, evidence, n as u8).await.map(drop).expect_err(what);
            assert_eq!(error.kind(), *kind, "{what}: {error:?}");
            assert!(error.detail().contains(why), "{what}: {error:?}");
        }
        let told = records(&node).await;
        let refused =
            told.iter().filter(|because| because.starts_with("certificate: ") && because.contains("sha256"));
        assert_eq!(refused.count(), bad.len());
        // The same text in another sort of string is the same subject.
        let mut same = DistinguishedName::new();
        let printable = |text: &str| DnValue::PrintableString(text.try_into().expect("plain letters"));
        same.push(DnType::OrganizationName, printable("Grid"));
        same.push(DnType::CommonName, printable("Alice"));
        let caller = show(&node, &chain(&[&signer.signs(&client(&node.sys, same, 5))])).await.expect("good");
        assert_eq!(caller.name(), &node.name("alice"));
        let mut any = client(&node.sys, grid("Alice"), 5);
        any.extended_key_usages = Vec::new();
        show(&node, &chain(&[&signer.signs(&any)])).await.expect("one for no usage is for all");
    });
}

#[test]
fn wrong_certificates_wait_as_wrong_passwords_do_and_right_ones_do_not() {
    taking(4, |node, signer| async move {
        let bad = chain(&[&Signer::new(&node.sys, "Other").signs(&client(&node.sys, grid("Alice"), 5))]);
        let begun = node.sys.clock().tick();
        for _ in 0..limits::PASSWORD_FAILURES_FREE + 6 {
            // Waiting longer than one may is a refusal as well.
            show(&node, &bad).await.map(drop).expect_err("it is wrong");
        }
        assert!(
            node.sys.clock().tick().since(begun) >= limits::PASSWORD_FAILURE_DELAY * 3,
            "guessing is slow"
        );
        let begun = node.sys.clock().tick();
        show(&node, &chain(&[&signer.signs(&client(&node.sys, grid("Alice"), 5))])).await.expect("good");
        assert_eq!(node.sys.clock().tick(), begun);
    });
}

#[test]
fn what_an_authority_has_revoked_is_out_and_a_list_that_ran_out_lets_nobody_in() {
    taking(5, |node, signer| async move {
        let numbered = |common, serial: u64| {
            let mut params = client(&node.sys, grid(common), 200);
            params.serial_number = Some(SerialNumber::from(serial));
            params
        };
        let (lost, kept) = (numbered("Alice", 7), numbered("Bob", 8));
        let (alice, bob) = (chain(&[&signer.signs(&lost)]), chain(&[&signer.signs(&kept)]));
        let in_before = [show(&node, &alice).await.expect("good"), show(&node, &bob).await.expect("good")];
        let live = |caller: &Caller| caller.live(node.sys.clock().moment()).is_ok();
        let listed = |list| vec![set(&signer, Some(list))];

        node.auth.change_client_authorities(listed(signer.list(&node.sys, &[]))).await.expect("good");
        assert!(in_before.iter().all(live), "nobody is broken off by a list that names none of them");
        node.auth.change_client_authorities(listed(signer.list(&node.sys, &[&lost]))).await.expect("good");
        assert_eq!(in_before.each_ref().map(live), [false, true]);
        let error = show(&node, &alice).await.map(drop).expect_err("revoked");
        assert_eq!(
            (error.kind(), error.detail()),
            (ErrorKind::Revoked, "its authority has revoked the certificate")
        );
        assert_eq!(show(&node, &bob).await.expect("good").credential(), in_before[1].credential());

        let forged = Signer::new(&node.sys, "Test CA").list(&node.sys, &[]);
        node.auth.change_client_authorities(listed(forged)).await.expect("it can be read");
        assert!(!live(&in_before[1]), "what somebody else signed says nothing of it");
        let other = Signer::new(&node.sys, "Other").list(&node.sys, &[]);
        node.auth.change_client_authorities(listed(other)).await.expect("it can be read");
        let error = show(&node, &bob).await.map(drop).expect_err("nobody says");
        assert!(error.detail().contains("no list here"), "{error:?}");

        node.auth.change_client_authorities(listed(signer.list(&node.sys, &[]))).await.expect("good");
        show(&node, &bob).await.expect("good");
        node.pass(HOUR * 25);
        let error = show(&node, &bob).await.map(drop).expect_err("the list is old");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        node.auth.change_client_authorities(vec![set(&signer, None)]).await.expect("good");
        show(&node, &bob).await.expect("no list is asked");
    });
}

#[test]
fn other_authorities_end_those_whom_they_would_not_let_in_and_nobody_else() {
    taking(6, |node, signer| async move {
        let der = |common| signer.signs(&client(&node.sys, grid(common), 200));
        let (alice, bob) = (chain(&[&der("Alice")]), chain(&[&der("Bob")]));
        let before = [show(&node, &alice).await.expect("good"), show(&node, &bob).await.expect("good")];
        let live = |caller: &Caller| caller.live(node.sys.clock().moment()).is_ok();
        let other = Signer::new(&node.sys, "Other");
        let more = ClientAuthoritySettings { name: "other".into(), ..set(&other, None) };
        node.auth.change_client_authorities(vec![more.clone(), set(&signer, None)]).await.expect("good");
        assert!(before.iter().all(live), "another beside is no end");
        assert_eq!(node.auth.client_hints().len(), 2);
        // Each authority has subjects of its own.
        let theirs = chain(&[&other.signs(&client(&node.sys, grid("Alice"), 5))]);
        let by_other = show(&node, &theirs).await.expect("good");
        assert!(by_other.claims().delegates[0].local().starts_with("other."));

        let users = BTreeMap::from([
            (ALICE.to_owned(), "alice".to_owned()),
            ("CN=Bob,O=Grid".into(), "alice".into()),
        ]);
        let renamed = ClientAuthoritySettings { acts_for: ActsFor::Subjects(users), ..set(&signer, None) };
        node.auth.change_client_authorities(vec![renamed]).await.expect("good");
        assert_eq!([&before[0], &before[1], &by_other].map(live), [true, false, false]);
        assert_eq!(show(&node, &bob).await.expect("good").name(), &node.name("alice"));

        for wrong in ["", "garbage", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            let wrong = ClientAuthoritySettings { certificates: wrong.into(), ..set(&signer, None) };
            let changed = node.auth.change_client_authorities(vec![wrong]).await;
            assert!(changed.is_err());
        }
        let wrong = set(&signer, Some(signer.pem.clone().into_bytes()));
        assert!(node.auth.change_client_authorities(vec![wrong]).await.is_err(), "that is no list");
        assert!(live(&before[0]), "and what was stays");

        node.auth.change_client_authorities(Vec::new()).await.expect("good");
        assert!(!live(&before[0]));
        assert!(node.auth.client_hints().is_empty());
        let error = show(&node, &alice).await.map(drop).expect_err("nobody is taken");
        assert_eq!(error.kind(), ErrorKind::Unauthenticated);
    });
}

#[test]
fn disabling_its_user_or_ending_it_here_ends_a_certificate_for_longer_than_any_credential_lives() {
    taking(7, |node, signer| async move {
        let own = signer.signs(&client(&node.sys, grid("Alice"), 24 * 100));
        let alice = chain(&[&own]);
        let first = show(&node, &alice).await.expect("good");
        let same = show(&node, &chain(&[&twins::certificate(&own)])).await.expect("as good");
        assert_eq!(first.claims().parents, same.claims().parents, "one certificate under two signatures");
        let live = |caller: &Caller| caller.live(node.sys.clock().moment()).is_ok();
        let admin = node.admin().await;
        let (accounts, name) = (node.auth.accounts(), node.name("alice"));
        accounts.edit_user(&admin, &name, &UserEdit::Enabled(false)).await.expect("it may");
        assert!(!live(&first));
        assert_eq!(show(&node, &alice).await.map(drop).expect_err("disabled").kind(), ErrorKind::Revoked);
        accounts.edit_user(&admin, &name, &UserEdit::Enabled(true)).await.expect("it may");
        let second = show(&node, &alice).await.expect("it is a way to log in, as a password is");

        // By its own user, who need not be an administrator.
        let login = node.login("alice", "wonder").await.expect("good");
        let id = second.claims().parents[0];
        node.auth.authority().revoke(&login, &Revoke::Credential(id)).await.expect("it is theirs");
        assert!(!live(&second));
        node.pass(limits::CREDENTIAL_LIFE * 3);
        node.sys.sleep(limits::AUTH_SWEEP * 2).await;
        assert_eq!(show(&node, &alice).await.map(drop).expect_err("ended").kind(), ErrorKind::Revoked);
        let twin = chain(&[&twins::certificate(&own)]);
        assert_eq!(show(&node, &twin).await.map(drop).expect_err("the same").kind(), ErrorKind::Revoked);
        let another = chain(&[&signer.signs(&client(&node.sys, grid("Alice"), 24))]);
        show(&node, &another).await.expect("another certificate is another");
    });
}

#[test]
fn a_certificate_never_travels_as_evidence() {
    assert!(postcard::to_stdvec(&chain(&[b"x"])).is_err());
    // Behind the last evidence that does.
    for number in 5..0x80_u8 {
        let bytes = [&[number][..], &[0; 64]].concat();
        assert!(postcard::from_bytes::<Evidence>(&bytes).is_err(), "{number}");
    }
}

#[test]
fn a_subject_is_compared_as_it_is_written_down_once_and_for_all() {
    for (written, said) in [
        (ALICE, Some(ALICE)),
        // What belongs together has an order of its own.
        ("CN=Alice Smith+UID=a1,OU=a\\, b,O=Grid,C=NL", Some("UID=a1+CN=Alice Smith,OU=a\\, b,O=Grid,C=NL")),
        ("UID=a1+CN=Alice Smith,OU=a\\, b,O=Grid,C=NL", Some("UID=a1+CN=Alice Smith,OU=a\\, b,O=Grid,C=NL")),
        ("DC=org,DC=grid", Some("DC=org,DC=grid")),
        ("CN=host/node.example.org,O=Grid", Some("CN=host/node.example.org,O=Grid")),
        ("2.5.4.3=Alice,O=Grid", Some(ALICE)),
        ("", None),
        ("Alice", None),
        ("/O=Grid/CN=Alice", None),
        ("CN=Alice, O=Grid", None),
        ("CN=\\q", None),
    ] {
        assert_eq!(subject_of(written).ok().as_deref(), said, "{written}");
    }
    assert!(subject_of(&format!("CN={}", "x".repeat(limits::CLIENT_SUBJECT_BYTES_MAX))).is_err());
}

#[test]
fn no_mutated_certificate_lets_anybody_in_and_none_panics() {
    taking(8, |node, signer| async move {
        let below = signer.below(authority(&node.sys, "Below"));
        let good = below.signs(&client(&node.sys, grid("Alice"), 5));
        show(&node, &chain(&[&good, &below.der])).await.expect("it is good");
        // Never shown with what leads to its authority: it would be known then.
        let unseen = below.signs(&client(&node.sys, grid("Bob"), 5));
        let make = |dice: &mut Dice| dice.pick(&[good.clone(), below.der.clone()]).clone();
        fuzz("certificate", make, |bytes| {
            if bytes == good || bytes == below.der {
                return;
            }
            let settings =
                ClientAuthoritySettings { certificates: pem(bytes), ..set(&signer, Some(pem(bytes))) };
            // Where an operator gives it, it is read; whatever comes of that.
            let _ = check_client_authority(&settings);
            for evidence in [chain(&[bytes, &below.der]), chain(&[&unseen, bytes])] {
                let mut shown = Box::pin(show(&node, &evidence));
                let mut context = std::task::Context::from_waker(std::task::Waker::noop());
                // What waits was wrong, and waits for that.
                if let std::task::Poll::Ready(Ok(_)) = shown.as_mut().poll(&mut context) {
                    panic!("a mutated certificate lets in");
                }
            }
        });
    });
}

fn pem(der: &[u8]) -> Vec<u8> {
    let text = data_encoding::BASE64.encode(der);
    format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n").into_bytes()
}
