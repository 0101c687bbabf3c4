//! Capabilities: signed once, checked by those who have no key, ended in every way.

use std::io::{Read, Write};
use std::time::Duration;

use weft_core::acl::{Acl, AclEntry, Ask, Circumstance, Condition, Stored, Upon, Who, decide};
use weft_core::proof::{Caller, Granted, KeyCertificate, Objects, Purpose, Revocations, Signed, Trust};
use weft_core::service::Revoke;
use weft_core::{ContainerId, ErrorKind, ObjectId, Rights, VolumeId, limits};
use weft_sys::Sys;

use crate::scene::{Scene, box_0, scene};

async fn alice(node: &Scene) -> Caller {
    node.add_user("alice", "alice").await;
    node.login("alice", "alice").await.expect("right")
}

/// Shows a capability to a checker that has what this node trusts and withdraws.
fn check(node: &Scene, capability: &Signed, presenter: &Caller) -> weft_core::Result<Granted> {
    let at = Circumstance { now: node.sys.clock().moment(), peer: None };
    Granted::verify(capability, &node.auth.trust(), &node.auth.revocations(), presenter, &at)
}

#[test]
fn the_same_decision_a_moment_later_is_the_same_capability() {
    scene(41, |node| async move {
        let alice = alice(&node).await;
        let issuer = node.auth.issuer();
        let first = issuer.issue(&node.decision(&alice, Rights::READ)).expect("allowed");
        node.pass(Duration::from_secs(60));
        let again = issuer.issue(&node.decision(&alice, Rights::READ)).expect("allowed");
        assert_eq!(again.claims().id, first.claims().id);
        let differ = [
            node.decision(&alice, Rights::WRITE),
            node.decision_on(&alice, Rights::READ, Objects::Only(vec![ObjectId(1)]), 1),
            node.decision_on(&alice, Rights::READ, Objects::All, 2),
            node.decision(&node.admin().await, Rights::READ),
        ];
        for decision in differ {
            let other = issuer.issue(&decision).expect("allowed");
            assert_ne!(other.claims().id, first.claims().id, "{decision:?}");
        }
        node.pass(limits::CAPABILITY_LIFE / 2);
        let fresh = issuer.issue(&node.decision(&alice, Rights::READ)).expect("allowed");
        assert_ne!(fresh.claims().id, first.claims().id, "with half its life gone it is made anew");
    });
}

#[test]
fn nothing_is_issued_beyond_the_decision_the_credential_or_the_nodes_volumes() {
    scene(42, |node| async move {
        let alice = alice(&node).await;
        let issuer = node.auth.issuer();
        let acl = Acl::new(vec![AclEntry::allow(Who::Anyone, Rights::READ)]);
        let now = node.sys.clock().moment();
        let ask =
            |container, rights| Ask { container, epoch: 1, rights, objects: Objects::All, now, peer: None };
        let more = decide(&acl, &alice, &ask(box_0(), Rights::READ | Rights::WRITE));
        assert_eq!(issuer.issue(&more).expect_err("not all is allowed").kind(), ErrorKind::Denied);
        let elsewhere = decide(&acl, &alice, &ask(ContainerId::new(VolumeId(3), 1), Rights::READ));
        assert_eq!(issuer.issue(&elsewhere).expect_err("not ours").kind(), ErrorKind::NotPermitted);
        let life = Duration::from_secs(300);
        let short =
            node.auth.authority().credential(&alice, &Default::default(), life).await.expect("it may");
        let short = node.token(&short.to_token()).await.expect("good");
        let granted = issuer.issue(&node.decision(&short, Rights::READ)).expect("allowed");
        assert_eq!(granted.claims().expires, short.claims().expires);
        let anyone = issuer.issue(&node.decision(&Caller::anyone(), Rights::READ)).expect("allowed");
        anyone.allows_container(Rights::READ, now).expect("anyone may");
    });
}

#[test]
fn a_condition_binds_the_capability_to_the_address_it_was_met_from() {
    scene(43, |node| async move {
        let alice = alice(&node).await;
        let network = "192.0.2.0/24".parse().expect("a network");
        let mut entry = AclEntry::allow(Who::Anyone, Rights::READ);
        entry.when.push(Condition::Network(network));
        let acl = Acl::new(vec![entry]);
        let decide_from = |peer: &str| {
            let now = node.sys.clock().moment();
            let peer = Some(peer.parse().expect("an address"));
            let ask =
                Ask { container: box_0(), epoch: 1, rights: Rights::READ, objects: Objects::All, now, peer };
            decide(&acl, &alice, &ask)
        };
        let issuer = node.auth.issuer();
        let inside = issuer.issue(&decide_from("192.0.2.1")).expect("allowed");
        let other = issuer.issue(&decide_from("192.0.2.2")).expect("allowed");
        assert_ne!(inside.claims().id, other.claims().id, "each address has its own");
        assert_eq!(issuer.issue(&decide_from("192.0.2.1")).expect("allowed").claims().id, inside.claims().id);
        assert!(issuer.issue(&decide_from("198.51.100.1")).is_err());
        let now = node.sys.clock().moment();
        let at = Circumstance { now, peer: Some("198.51.100.1".parse().expect("an address")) };
        let shown =
            Granted::verify(inside.capability(), &node.auth.trust(), &node.auth.revocations(), &alice, &at);
        let refused = shown.expect("it is genuine").allows_container(Rights::READ, now);
        assert_eq!(refused.expect_err("from elsewhere").kind(), ErrorKind::Denied);
    });
}

#[test]
fn rights_that_rest_on_different_conditions_have_different_capabilities() {
    scene(50, |node| async move {
        let alice = alice(&node).await;
        let clock = node.sys.clock();
        let until = |life| Condition::Until(clock.now().plus(Duration::from_secs(life)));
        let entry =
            |rights, life| AclEntry { when: vec![until(life)], ..AclEntry::allow(Who::Anyone, rights) };
        let acl = Acl::new(vec![entry(Rights::WRITE, 10), entry(Rights::APPEND, 1000)]);
        let issuer = node.auth.issuer();
        let stored = Stored { object: ObjectId(1), label: box_0(), epoch: 1 };
        let of = |rights| {
            let now = clock.moment();
            let ask = Ask { container: box_0(), epoch: 1, rights, objects: Objects::All, now, peer: None };
            issuer.issue(&decide(&acl, &alice, &ask).at_store(Upon::File, stored)).expect("allowed")
        };
        let append = of(Rights::APPEND);
        let write = of(Rights::WRITE);
        assert_ne!(append.claims().id, write.claims().id);
        node.pass(Duration::from_secs(60));
        let now = node.sys.clock().moment();
        assert!(write.allows(Rights::WRITE, ObjectId(1), now).is_err(), "its own condition ended it");
        append.allows(Rights::WRITE, ObjectId(1), now).expect("of the append's, which runs on");
    });
}

#[test]
fn withdrawing_a_right_leaves_the_others_and_a_new_decision_gets_a_new_capability() {
    scene(44, |node| async move {
        let alice = alice(&node).await;
        let both = Rights::READ | Rights::WRITE;
        let issuer = node.auth.issuer();
        let granted = issuer.issue(&node.decision(&alice, both)).expect("allowed");
        issuer.withdraw(&granted, Rights::WRITE);
        let now = node.sys.clock().moment();
        granted.allows_container(Rights::READ, now).expect("still");
        let error = granted.allows_container(Rights::WRITE, now).expect_err("withdrawn");
        assert_eq!(error.kind(), ErrorKind::Revoked);
        let again = issuer.issue(&node.decision(&alice, both)).expect("the ACL says so still");
        again.allows_container(both, now).expect("all of it");
        let by_id = Revoke::Capability(again.claims().id, Rights::ALL);
        let refused = node.auth.authority().revoke(&alice, &by_id).await;
        assert_eq!(refused.expect_err("not hers").kind(), ErrorKind::NotPermitted);
        node.auth.authority().revoke(&node.admin().await, &by_id).await.expect("it may");
        assert!(again.allows_container(Rights::READ, now).is_err());
        assert!(check(&node, again.capability(), &alice).is_err());
    });
}

#[test]
fn an_epoch_and_an_administrators_revocation_end_all_of_a_containers_capabilities() {
    scene(45, |node| async move {
        let alice = alice(&node).await;
        let (issuer, now) = (node.auth.issuer(), node.sys.clock().moment());
        let of = |epoch| issuer.issue(&node.decision_on(&alice, Rights::READ, Objects::All, epoch));
        let first = of(1).expect("allowed");
        issuer.begin_epoch(box_0(), 2);
        assert!(first.allows_container(Rights::READ, now).is_err());
        assert_eq!(of(1).expect_err("an old decision").kind(), ErrorKind::Revoked);
        let second = of(2).expect("allowed");
        node.auth.authority().revoke(&node.admin().await, &Revoke::Container(box_0())).await.expect("it may");
        assert!(second.allows_container(Rights::READ, now).is_err());
        assert!(check(&node, second.capability(), &alice).is_err());
        let third = of(2).expect("the ACL says so still");
        third.allows_container(Rights::READ, now).expect("of now");
        issuer.begin_epoch(box_0(), 3);
        assert!(third.allows_container(Rights::READ, now).is_err());
        of(3).expect("allowed");
    });
}

#[test]
fn a_restart_ends_every_capability_of_the_instance_before() {
    scene(46, |node| async move {
        let alice = alice(&node).await;
        let granted = node.auth.issuer().issue(&node.decision(&alice, Rights::READ)).expect("allowed");
        let capability = granted.capability().clone();
        check(&node, &capability, &Caller::anyone()).expect("genuine, and transferable");
        let node = node.restart().await;
        let error = check(&node, &capability, &Caller::anyone()).expect_err("of an earlier instance");
        assert_eq!(error.kind(), ErrorKind::Revoked);
        let node = node.crash(5).await;
        assert!(check(&node, &capability, &Caller::anyone()).is_err());
        let alice = node.login("alice", "alice").await.expect("right");
        let fresh = node.auth.issuer().issue(&node.decision(&alice, Rights::READ)).expect("allowed");
        check(&node, fresh.capability(), &alice).expect("of this instance");
    });
}

#[test]
fn after_a_restore_no_capability_of_since_the_backup_is_believed() {
    scene(48, |node| async move {
        node.add_user("alice", "alice").await;
        let backup = node.disk.crashed_copy(1);
        // The life that is lost, and that of another restore of the same backup.
        let node = node.restart().await;
        let (mut lost, sys) = (vec![issued(&node).await], node.sys.clone());
        check(&node, &lost[0], &Caller::anyone()).expect("while it lived");
        drop(node);
        for _ in 0..2 {
            sys.sleep(Duration::from_secs(1)).await;
            let node = Scene::restore(&sys, backup.crashed_copy(1)).await;
            for capability in &lost {
                let error = check(&node, capability, &Caller::anyone()).expect_err("of another life");
                assert_eq!(error.kind(), ErrorKind::Revoked);
            }
            lost.push(issued(&node).await);
        }
    });
}

/// A capability for Alice.
async fn issued(node: &Scene) -> Signed {
    let alice = node.login("alice", "alice").await.expect("right");
    let granted = node.auth.issuer().issue(&node.decision(&alice, Rights::READ)).expect("allowed");
    granted.capability().clone()
}

#[test]
fn a_rotated_key_rolls_capabilities_and_an_ended_one_ends_them() {
    scene(47, |node| async move {
        let alice = alice(&node).await;
        let admin = node.admin().await;
        let issuer = node.auth.issuer();
        let old = issuer.issue(&node.decision(&alice, Rights::READ)).expect("allowed");
        node.auth.rotate(&admin, Purpose::Capability).await.expect("the root key is here");
        let now = node.sys.clock().moment();
        old.allows_container(Rights::READ, now).expect("it rolls: the old one is good until it runs out");
        check(&node, old.capability(), &alice).expect("and is still believed");
        let new = issuer.issue(&node.decision(&alice, Rights::WRITE)).expect("allowed");
        assert_ne!(new.capability().key(), old.capability().key());
        let in_use = node.auth.end_key(&admin, new.capability().key()).await;
        assert_eq!(in_use.expect_err("in use").kind(), ErrorKind::Conflict);
        node.auth.end_key(&admin, old.capability().key()).await.expect("it signs no more");
        assert!(
            old.allows_container(Rights::READ, now).is_err()
                && check(&node, old.capability(), &alice).is_err()
        );
        check(&node, new.capability(), &Caller::anyone()).expect("the new key's can be shown again");
        let alice = node.login("alice", "alice").await.expect("right");
        let again = issuer.issue(&node.decision(&alice, Rights::READ)).expect("allowed");
        assert_eq!(again.capability().key(), new.capability().key());
    });
}

/// What crosses is bytes. The checker has certificates, its own list of what is withdrawn, and no
/// key; it sits behind a pipe.
#[test]
#[expect(clippy::disallowed_methods, reason = "a second thread stands for a second process")]
fn issuer_and_checker_exchange_bytes_only() {
    let (mut to_checker, from_issuer) = std::io::pipe().map(|(r, w)| (w, r)).expect("a pipe");
    let (mut to_issuer, from_checker) = std::io::pipe().map(|(r, w)| (w, r)).expect("a pipe");
    let checker = std::thread::spawn(move || checker(from_issuer, &mut to_issuer));
    scene(48, |node| async move {
        let alice = alice(&node).await;
        let granted = node.auth.issuer().issue(&node.decision(&alice, Rights::READ)).expect("allowed");
        let mut answers = from_checker;
        let mut ask = |line: String| {
            writeln!(to_checker, "{line}").expect("the checker reads");
            let mut answer = [0];
            answers.read_exact(&mut answer).expect("the checker answers");
            answer[0]
        };
        let certificates = node.auth.certificates().expect("rows");
        let now = node.sys.clock().now().nanos();
        let encoded = |bytes: Vec<u8>| data_encoding::HEXLOWER.encode(&bytes);
        for certificate in &certificates {
            let bytes = postcard::to_stdvec(certificate).expect("plain data");
            assert_eq!(ask(format!("certificate {}", encoded(bytes))), b'+');
        }
        let capability = granted.capability().to_token();
        assert_eq!(ask(format!("check {now} {capability}")), b'+');
        let middle = capability.len() / 2;
        let other = if capability.as_bytes()[middle] == b'A' { "B" } else { "A" };
        let forged = format!("{}{other}{}", &capability[..middle], &capability[middle + 1..]);
        assert_eq!(ask(format!("check {now} {forged}")), b'-', "tampered with");
        let credential = alice.signed().expect("she has one").to_token();
        assert_eq!(ask(format!("check {now} {credential}")), b'-', "a credential is no capability");
        let later = now + limits::CAPABILITY_LIFE.as_nanos() as i64 * 2;
        assert_eq!(ask(format!("check {later} {capability}")), b'-', "run out");
        assert_eq!(ask(format!("withdraw {}", granted.claims().id)), b'+');
        assert_eq!(ask(format!("check {now} {capability}")), b'-', "withdrawn");
        assert_eq!(ask(format!("check {now} x{capability}")), b'-', "not one at all");
    });
    checker.join().expect("the checker ends with its pipe");
}

fn checker(input: impl Read, output: &mut impl Write) {
    use std::io::BufRead;
    let (mut trust, revocations) = (Trust::none(), Revocations::new());
    let tick = Sys::simulated(1).clock().tick();
    for line in std::io::BufReader::new(input).lines() {
        let line = line.expect("the issuer writes text");
        let words: Vec<&str> = line.split(' ').collect();
        let good = match words[..] {
            ["certificate", hex] => {
                let bytes = data_encoding::HEXLOWER.decode(hex.as_bytes()).expect("hex");
                let certificate: KeyCertificate = postcard::from_bytes(&bytes).expect("a certificate");
                trust.add_domain(weft_core::DomainId::of_root_key(&certificate.root));
                trust.add(&certificate).is_ok()
            }
            ["check", now, token] => {
                let wall = weft_core::Time::from_nanos(now.parse().expect("a time"));
                let at = Circumstance { now: weft_core::Moment { wall, tick }, peer: None };
                let verify = |c: Signed| Granted::verify(&c, &trust, &revocations, &Caller::anyone(), &at);
                Signed::from_token(token)
                    .and_then(verify)
                    .and_then(|granted| granted.allows_container(Rights::READ, at.now))
                    .is_ok()
            }
            ["withdraw", id] => {
                revocations.withdraw(id.parse().expect("an id"), Rights::ALL, weft_core::Time::MAX);
                true
            }
            _ => false,
        };
        output.write_all(if good { b"+" } else { b"-" }).expect("the issuer reads");
    }
}

#[test]
fn a_capability_ends_with_any_credential_its_own_came_from() {
    scene(49, |node| async move {
        let alice = alice(&node).await;
        let login = node.token(&node.token_of(&alice).await).await.expect("good");
        let job = node.token(&node.token_of(&login).await).await.expect("good");
        let other = node.token(&node.token_of(&alice).await).await.expect("good");
        let issuer = node.auth.issuer();
        let of = |caller| issuer.issue(&node.decision(caller, Rights::READ)).expect("allowed");
        let (handed_on, beside) = (of(&job).capability().clone(), of(&other).capability().clone());
        let (anyone, now) = (Caller::anyone(), node.sys.clock().moment());
        let held = check(&node, &handed_on, &anyone).expect("it may be handed on");
        let waits = held.withdrawn(Rights::READ);
        let revoke = Revoke::Credential(login.credential());
        node.auth.authority().revoke(&alice, &revoke).await.expect("it is hers");
        assert_eq!(held.allows_container(Rights::READ, now).expect_err("ended").kind(), ErrorKind::Revoked);
        let shown = check(&node, &handed_on, &anyone).expect_err("shown afresh");
        assert_eq!(shown.kind(), ErrorKind::Revoked);
        waits.await;
        check(&node, &beside, &anyone).expect("another login's is not touched");
    });
}
