//! Credentials as tokens: narrowed, tampered with, foreign, expired, revoked.

use std::time::Duration;

use weft_core::acl::{Ask, Network};
use weft_core::proof::{Attenuation, Caller, Objects, Signed};
use weft_core::service::Revoke;
use weft_core::{CredentialId, ErrorKind, RelPath, Rights, Time, limits};

use crate::scene::{Scene, box_0, scene};

const HOUR: Duration = Duration::from_secs(3600);

async fn narrowed(node: &Scene, caller: &Caller, limits: &Attenuation, life: Duration) -> Signed {
    node.auth.authority().credential(caller, limits, life).await.expect("it only narrows")
}

#[test]
fn a_token_proves_its_caller_and_repeating_it_finds_the_same_lease() {
    scene(11, |node| async move {
        node.add_user("alice", "secret").await;
        let alice = node.login("alice", "secret").await.expect("right");
        let token = node.token_of(&alice).await;
        let caller = node.token(&token).await.expect("good");
        assert_eq!(caller.name(), alice.name());
        assert_eq!(caller.claims().parents.last(), Some(&alice.credential()), "the lineage is in it");
        assert_eq!(node.token(&token).await.expect("good").credential(), caller.credential());
        let node = node.restart().await;
        node.token(&token).await.expect("it outlives a restart");
    });
}

#[test]
fn every_bit_of_a_token_counts() {
    scene(12, |node| async move {
        let token = node.token_of(&node.admin().await).await;
        let (prefix, text) = token.split_at("weft1.".len());
        let bytes = data_encoding::BASE64URL_NOPAD.decode(text.as_bytes()).expect("ours");
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let forged = format!("{prefix}{}", data_encoding::BASE64URL_NOPAD.encode(&bytes));
            let error = node.token(&forged).await.expect_err("tampered with");
            assert_eq!(error.kind(), ErrorKind::Unauthenticated, "bit {bit}: {error}");
        }
        for cut in 0..token.len() {
            assert!(node.token(&token[..cut]).await.is_err(), "cut at {cut}");
        }
        node.token(&token).await.expect("untouched, it is good");
    });
}

#[test]
fn another_domains_token_is_nobodys_here() {
    let foreign = scene(13, |node| async move { node.token_of(&node.admin().await).await });
    scene(14, |node| async move {
        let error = node.token(&foreign).await.expect_err("foreign");
        assert_eq!(error.kind(), ErrorKind::Unauthenticated);
    });
}

#[test]
fn narrowing_only_narrows_and_never_outlives_what_it_came_from() {
    scene(15, |node| async move {
        node.add_user("alice", "secret").await;
        let alice = node.login("alice", "secret").await.expect("right");
        let path = |text| RelPath::try_from(text).expect("a good path");
        let first = Attenuation { paths: vec![path("bio")], rights: Rights::READING, ..Default::default() };
        let token = narrowed(&node, &alice, &first, HOUR).await.to_token();
        let reader = node.token(&token).await.expect("good");
        let wider = Attenuation { paths: vec![path("chem")], ..Default::default() };
        let error = node.auth.authority().credential(&reader, &wider, HOUR).await.expect_err("outside");
        assert_eq!(error.kind(), ErrorKind::NotPermitted);
        let longer = narrowed(&node, &reader, &Attenuation::default(), HOUR * 9).await;
        let longer = node.token(&longer.to_token()).await.expect("good");
        assert_eq!(longer.claims().expires, reader.claims().expires, "no longer than its parent");
        assert_eq!(longer.limits(), reader.limits(), "no wider than its parent");
        assert!(longer.claims().parents.ends_with(&[alice.credential(), reader.credential()]));
        let cut = node.auth.authority().credential(&alice, &first, Duration::MAX).await.expect("cut");
        let long = node.token(&cut.to_token()).await.expect("good");
        assert!(long.claims().expires <= alice.claims().expires);
        let refused = node.auth.authority().credential(&alice, &first, Duration::ZERO).await;
        assert_eq!(refused.expect_err("no life").kind(), ErrorKind::Invalid);
    });
}

#[test]
fn a_line_of_narrowed_credentials_has_an_end() {
    scene(16, |node| async move {
        let mut caller = node.admin().await;
        let mut made = 0;
        let error = loop {
            match node.auth.authority().credential(&caller, &Attenuation::default(), HOUR).await {
                Ok(signed) => caller = node.token(&signed.to_token()).await.expect("good"),
                Err(error) => break error,
            }
            made += 1;
            assert!(made < 100);
        };
        assert_eq!((error.kind(), made), (ErrorKind::TooLarge, limits::LINEAGE_MAX - 1));
    });
}

#[test]
fn a_credential_carries_no_right_before_its_time_nor_from_elsewhere() {
    scene(17, |node| async move {
        let admin = node.admin().await;
        let now = node.sys.clock().now();
        let later = Attenuation { from: now.plus(HOUR), ..Default::default() };
        let caller = narrowed(&node, &admin, &later, HOUR * 3).await;
        let caller = node.token(&caller.to_token()).await.expect("it is whose it is");
        assert!(!node.decision(&caller, Rights::READ).is_allowed(), "not yet");
        node.pass(HOUR + Duration::from_secs(1));
        assert!(node.decision(&caller, Rights::READ).is_allowed());

        let network: Network = "192.0.2.0/24".parse().expect("a network");
        let hosts = Attenuation { hosts: vec![network], ..Default::default() };
        let caller = narrowed(&node, &admin, &hosts, HOUR).await;
        let caller = node.token(&caller.to_token()).await.expect("it is whose it is");
        assert!(!node.decision(&caller, Rights::READ).is_allowed(), "from no address");
        let acl = weft_core::acl::Acl::new(vec![weft_core::acl::AclEntry::allow(
            weft_core::acl::Who::Anyone,
            Rights::READ,
        )]);
        let peer = Some("192.0.2.9".parse().expect("an address"));
        let now = node.sys.clock().moment();
        let ask =
            Ask { container: box_0(), epoch: 0, rights: Rights::READ, objects: Objects::All, now, peer };
        assert!(weft_core::acl::decide(&acl, &caller, &ask).is_allowed());
        let error = node.auth.keys(&caller).expect_err("a narrowed administrator administers nothing");
        assert_eq!(error.kind(), ErrorKind::NotPermitted);
    });
}

#[test]
fn credentials_run_out_and_a_wall_clock_set_back_extends_none() {
    scene(18, |node| async move {
        node.add_user("alice", "secret").await;
        let alice = node.login("alice", "secret").await.expect("right");
        let token = narrowed(&node, &alice, &Attenuation::default(), HOUR).await.to_token();
        let caller = node.token(&token).await.expect("good");
        let sim = node.sys.sim_clock().expect("it is simulated").clone();
        node.pass(HOUR / 2);
        sim.jump(-(10 * 3600 * 1_000_000_000));
        node.pass(HOUR / 2 + limits::CLOCK_SKEW_MAX + Duration::from_secs(1));
        let now = node.sys.clock().moment();
        assert!(node.sys.clock().now() < caller.claims().issued, "by the wall it has not begun");
        assert_eq!(caller.live(now).expect_err("over").kind(), ErrorKind::Expired);
        assert_eq!(node.token(&token).await.expect_err("over").kind(), ErrorKind::Expired);
        let again = node.login("alice", "secret").await.expect("right");
        again.live(node.sys.clock().moment()).expect("new ones work");
        let granted = node.auth.issuer().issue(&node.decision(&again, Rights::READ)).expect("allowed");
        granted.allows_container(Rights::READ, node.sys.clock().moment()).expect("and capabilities too");
    });
}

#[test]
fn revoking_a_credential_ends_what_came_of_it_and_is_remembered() {
    scene(19, |node| async move {
        let name = node.add_user("alice", "secret").await;
        node.add_user("bob", "bob").await;
        let alice = node.login("alice", "secret").await.expect("right");
        let parent = node.token(&node.token_of(&alice).await).await.expect("good");
        let child_token = node.token_of(&parent).await;
        let child = node.token(&child_token).await.expect("good");
        let authority = node.auth.authority();
        let bob = node.login("bob", "bob").await.expect("right");
        for what in [Revoke::Credential(parent.credential()), Revoke::Caller(name.clone())] {
            let error = authority.revoke(&bob, &what).await.expect_err("not his");
            assert_eq!(error.kind(), ErrorKind::NotPermitted);
        }
        authority.revoke(&alice, &Revoke::Credential(parent.credential())).await.expect("her own");
        let now = node.sys.clock().moment();
        assert!(parent.live(now).is_err() && child.live(now).is_err(), "both at once");
        alice.live(now).expect("not what it came from");
        assert_eq!(node.token(&child_token).await.expect_err("ended").kind(), ErrorKind::Revoked);
        let node = node.crash(3).await;
        assert_eq!(node.token(&child_token).await.expect_err("ended").kind(), ErrorKind::Revoked);
    });
}

#[test]
fn a_narrowed_credential_can_end_itself_and_nothing_else() {
    scene(20, |node| async move {
        let admin = node.admin().await;
        let reading = Attenuation { rights: Rights::READING, ..Default::default() };
        let reader =
            node.token(&narrowed(&node, &admin, &reading, HOUR).await.to_token()).await.expect("good");
        let authority = node.auth.authority();
        for what in [Revoke::Credential(admin.credential()), Revoke::Caller(admin.name().clone())] {
            assert!(authority.revoke(&reader, &what).await.is_err());
        }
        authority.revoke(&reader, &Revoke::Credential(reader.credential())).await.expect("itself");
        assert!(reader.live(node.sys.clock().moment()).is_err());
        admin.live(node.sys.clock().moment()).expect("its parent is as it was");
    });
}

#[test]
fn revoking_a_caller_ends_all_it_holds_and_a_new_login_works_at_once() {
    scene(21, |node| async move {
        let name = node.add_user("alice", "secret").await;
        let alice = node.login("alice", "secret").await.expect("right");
        let token = node.token_of(&alice).await;
        let granted = node.auth.issuer().issue(&node.decision(&alice, Rights::READ)).expect("allowed");
        let authority = node.auth.authority();
        authority.revoke(&node.admin().await, &Revoke::Caller(name)).await.expect("it may");
        let now = node.sys.clock().moment();
        assert_eq!(
            granted.allows_container(Rights::READ, now).expect_err("ended").kind(),
            ErrorKind::Revoked
        );
        assert_eq!(node.token(&token).await.expect_err("ended").kind(), ErrorKind::Revoked);
        let error = node.auth.issuer().issue(&node.decision(&alice, Rights::READ)).expect_err("ended");
        assert_eq!(error.kind(), ErrorKind::Revoked);
        let again = node.login("alice", "secret").await.expect("not disabled");
        node.auth.issuer().issue(&node.decision(&again, Rights::READ)).expect("allowed");
        let node = node.crash(1).await;
        assert_eq!(node.token(&token).await.expect_err("ended").kind(), ErrorKind::Revoked);
    });
}

#[test]
fn withdrawals_of_what_ran_out_long_ago_are_forgotten_and_nothing_comes_back() {
    scene(22, |node| async move {
        let admin = node.admin().await;
        let caller = node.token(&node.token_of(&admin).await).await.expect("good");
        let token = node.token_of(&caller).await;
        let authority = node.auth.authority();
        authority.revoke(&admin, &Revoke::Credential(caller.credential())).await.expect("it may");
        // Days pass, in steps that let the sweep run.
        for _ in 0..300 {
            node.sys.sleep(limits::AUTH_SWEEP).await;
        }
        assert_eq!(node.token(&token).await.expect_err("over").kind(), ErrorKind::Expired);
        let admin = node.admin().await;
        let unknown = Revoke::AnyCredential(CredentialId(7));
        authority.revoke(&admin, &unknown).await.expect("an unknown one may be foreign");
        assert!(node.sys.clock().now() > Time::EPOCH);
    });
}
