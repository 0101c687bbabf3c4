//! Proofs, attacked: forged, tampered, foreign, expired, withdrawn.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use weft_conformance::{HandClock, TestDomain};
use weft_core::acl::{Circumstance, Condition, Constraint};
use weft_core::proof::{Caller, CapabilityClaims, CredentialClaims, Granted, Objects, Signed, Trust};
use weft_core::{
    CallerId, CapabilityId, Clock, ContainerId, CredentialId, Error, ErrorKind, ObjectId, Result, Rights,
    Time, VolumeId, limits,
};

const CONTAINER: ContainerId = ContainerId(7);
const OBJECT: ObjectId = ObjectId(1);

struct World {
    clock: Arc<HandClock>,
    domain: Arc<TestDomain>,
}

fn world() -> World {
    let clock = Arc::new(HandClock::default());
    let domain = TestDomain::new(1, clock.clone(), &[VolumeId(0)]);
    World { clock, domain }
}

impl World {
    fn verify(&self, credential: &Signed) -> Result<Caller> {
        Caller::verify(credential, self.domain.trust(), self.domain.revocations(), self.clock.moment())
    }

    fn show(&self, capability: &Signed, presenter: &Caller) -> Result<Granted> {
        let at = Circumstance { now: self.clock.moment(), peer: None };
        Granted::verify(capability, self.domain.trust(), self.domain.revocations(), presenter, &at)
    }

    fn capability_claims(&self, caller: &Caller) -> CapabilityClaims {
        let now = self.clock.now();
        CapabilityClaims {
            id: CapabilityId(99),
            container: CONTAINER,
            epoch: 0,
            objects: Objects::All,
            rights: Rights::READ | Rights::WRITE,
            constraints: Vec::new(),
            caller: caller.name().id(),
            lineage: caller.claims().lineage().collect(),
            issued: now,
            expires: now.plus(Duration::from_secs(600)),
        }
    }

    fn read(&self, granted: &Granted) -> Result<()> {
        granted.allows(Rights::READ, OBJECT, self.clock.moment())
    }
}

fn kind<T>(result: Result<T>) -> ErrorKind {
    result.err().expect("it must be refused").kind()
}

/// Counts how often a future is woken.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn every_flipped_bit_of_a_token_is_refused() {
    let w = world();
    let token = w.domain.credential(&w.domain.claims("alice")).to_token();
    w.verify(&Signed::from_token(&token).expect("as made")).expect("as made");
    for at in 0..token.len() {
        for bit in 0..7 {
            let mut bytes = token.clone().into_bytes();
            bytes[at] ^= 1 << bit;
            let Ok(text) = String::from_utf8(bytes) else { continue };
            let outcome = Signed::from_token(&text).and_then(|signed| w.verify(&signed));
            assert_eq!(kind(outcome), ErrorKind::Unauthenticated, "byte {at} bit {bit}");
        }
    }
}

#[test]
fn a_token_with_anything_after_it_is_refused() {
    let w = world();
    let signed = w.domain.credential(&w.domain.claims("alice"));
    for text in ["", "weft1.", "weft2.AAAA", &format!("{}AAAA", signed.to_token()), &signed.to_token()[..40]]
    {
        assert_eq!(kind(Signed::from_token(text)), ErrorKind::Unauthenticated, "{text}");
    }
}

#[test]
fn a_signature_for_one_purpose_is_worth_nothing_for_another() {
    let w = world();
    let caller = w.domain.caller("alice");
    let claims = w.capability_claims(&caller);
    // Signed by the credential key, shown as a capability, and the other way round.
    let as_credential = w.domain.credential(&w.domain.claims("alice"));
    assert_eq!(kind(w.show(&as_credential, &caller)), ErrorKind::Unauthenticated);
    assert_eq!(kind(w.verify(&w.domain.capability(&claims))), ErrorKind::Unauthenticated);
}

#[test]
fn a_foreign_domains_credential_is_refused_until_it_is_trusted() {
    let w = world();
    let foreign = TestDomain::new(9, w.clock.clone(), &[VolumeId(0)]);
    let credential = foreign.credential(&foreign.claims("alice"));
    assert_eq!(kind(w.verify(&credential)), ErrorKind::Unauthenticated);
    let nobody = Trust::none();
    let refused = Caller::verify(&credential, &nobody, w.domain.revocations(), w.clock.moment());
    assert_eq!(kind(refused), ErrorKind::Unauthenticated);
}

#[test]
fn a_domain_cannot_vouch_for_another_domains_caller() {
    let w = world();
    let foreign = TestDomain::new(9, w.clock.clone(), &[]);
    let mut claims = w.domain.claims("alice");
    claims.caller = foreign.name("alice");
    assert_eq!(kind(w.verify(&w.domain.credential(&claims))), ErrorKind::Unauthenticated);
    claims.caller = weft_core::CallerName::ANYONE;
    assert_eq!(kind(w.verify(&w.domain.credential(&claims))), ErrorKind::Unauthenticated);
}

#[test]
fn a_capability_for_a_volume_its_key_does_not_speak_for_is_refused() {
    let w = world();
    let caller = w.domain.caller("alice");
    let mut claims = w.capability_claims(&caller);
    claims.container = ContainerId::new(VolumeId(1), 7);
    assert_eq!(kind(w.show(&w.domain.capability(&claims), &caller)), ErrorKind::Unauthenticated);
}

#[test]
fn a_credential_ends_at_its_expiry_and_no_later_than_the_skew() {
    let w = world();
    let claims =
        CredentialClaims { expires: w.clock.now().plus(Duration::from_secs(10)), ..w.domain.claims("alice") };
    let caller = w.domain.caller_with(&claims);
    w.clock.pass(Duration::from_secs(69));
    caller.live(w.clock.moment()).expect("within the stated skew");
    w.clock.pass(Duration::from_secs(1));
    assert_eq!(kind(caller.live(w.clock.moment())), ErrorKind::Expired);
    assert_eq!(kind(w.verify(&w.domain.credential(&claims))), ErrorKind::Expired);
}

#[test]
fn a_wall_clock_set_back_extends_no_right() {
    let w = world();
    let caller = w.domain.caller_with(&CredentialClaims {
        expires: w.clock.now().plus(Duration::from_secs(10)),
        ..w.domain.claims("alice")
    });
    let granted = w.show(&w.domain.capability(&w.capability_claims(&caller)), &caller).expect("fresh");
    w.clock.jump(Time::EPOCH);
    w.read(&granted).expect("no time has passed");
    w.clock.pass(Duration::from_secs(700));
    assert_eq!(kind(caller.live(w.clock.moment())), ErrorKind::Expired);
    assert_eq!(kind(w.read(&granted)), ErrorKind::Expired);
}

#[test]
fn a_wall_clock_set_forward_ends_rights_at_once() {
    let w = world();
    let caller = w.domain.caller("alice");
    w.clock.jump(Time::MAX);
    assert_eq!(kind(caller.live(w.clock.moment())), ErrorKind::Expired);
}

#[test]
fn revoking_a_credential_ends_its_callers_and_what_was_derived_from_it() {
    let w = world();
    let parent = w.domain.claims("alice");
    let child = CredentialClaims { parents: vec![parent.id], ..w.domain.claims("alice") };
    let other = w.domain.caller("alice");
    let (one, two) = (w.domain.caller_with(&parent), w.domain.caller_with(&child));
    let granted = w.show(&w.domain.capability(&w.capability_claims(&one)), &one).expect("fresh");
    w.domain.revocations().end_credential(parent.id, Time::MAX);
    for caller in [&one, &two] {
        assert_eq!(kind(caller.live(w.clock.moment())), ErrorKind::Revoked);
    }
    assert_eq!(kind(w.read(&granted)), ErrorKind::Revoked);
    assert_eq!(kind(w.verify(&w.domain.credential(&child))), ErrorKind::Revoked);
    other.live(w.clock.moment()).expect("another credential of the same caller lives on");
}

#[test]
fn revoking_a_caller_ends_what_was_issued_so_far_and_nothing_later() {
    let w = world();
    let before = w.domain.claims("alice");
    let caller = w.domain.caller_with(&before);
    w.domain.revocations().end_caller(caller.name().id(), w.clock.now());
    assert_eq!(kind(caller.live(w.clock.moment())), ErrorKind::Revoked);
    assert_eq!(kind(w.verify(&w.domain.credential(&before))), ErrorKind::Revoked);
    w.clock.pass(Duration::from_secs(1));
    w.domain.caller("alice").live(w.clock.moment()).expect("a later login is a new beginning");
}

#[test]
fn changed_groups_count_at_once_for_who_is_at_work_and_ask_for_a_fresh_credential() {
    let w = world();
    let claims = w.domain.claims("alice");
    let caller = w.domain.caller_with(&claims);
    let capability = w.domain.capability(&w.capability_claims(&caller));
    let granted = w.show(&capability, &caller).expect("fresh");
    let change = |count: u64, groups: &[u128]| {
        let groups = groups.iter().copied().map(CallerId).collect();
        w.domain.revocations().change_membership(caller.name().id(), count, || Ok(groups));
    };
    change(1, &[3]);
    caller.live(w.clock.moment()).expect("it is who it was");
    assert!(caller.is_or_is_in(CallerId(3)));
    // What was given for the old groups is decided again.
    assert_eq!(kind(w.read(&granted)), ErrorKind::Revoked);
    w.read(&w.show(&capability, &caller).expect("it may be shown again")).expect("and is good");
    // Of two changes that come the wrong way round the later one counts.
    change(3, &[5, 4]);
    change(2, &[3]);
    assert_eq!(caller.subject().groups(), [CallerId(4), CallerId(5)]);
    // Who cannot be told the groups has nothing left.
    let other = w.domain.caller("bob");
    let untold = || Err(Error::corrupt("the rows are damaged"));
    w.domain.revocations().change_membership(other.name().id(), 1, untold);
    assert_eq!(kind(other.live(w.clock.moment())), ErrorKind::Revoked);
    assert_eq!(kind(w.verify(&w.domain.credential(&claims))), ErrorKind::Stale);
    let fresh = CredentialClaims { membership: 3, groups: vec![CallerId(3)], ..claims };
    assert!(
        w.verify(&w.domain.credential(&fresh)).expect("it knows the new groups").is_or_is_in(CallerId(3))
    );
}

#[test]
fn a_capability_ends_with_each_credential_in_its_line() {
    let w = world();
    for ended in 0..3 {
        let mut claims = w.domain.claims("alice");
        claims.parents = vec![CredentialId(1000 + ended), CredentialId(2000)];
        let caller = w.domain.caller_with(&claims);
        let capability = w.domain.capability(&w.capability_claims(&caller));
        let held = w.show(&capability, &Caller::anyone()).expect("it may be handed on");
        let line: Vec<_> = claims.lineage().collect();
        w.domain.revocations().end_credential(line[ended as usize], Time::MAX);
        assert_eq!(kind(w.read(&held)), ErrorKind::Revoked);
        assert_eq!(kind(w.show(&capability, &Caller::anyone())), ErrorKind::Revoked);
    }
}

#[test]
fn a_line_of_credentials_has_an_end() {
    let w = world();
    let caller = w.domain.caller("alice");
    let mut claims = w.domain.claims("alice");
    claims.parents = (0..limits::LINEAGE_MAX).map(|n| CredentialId(1000 + n as u128)).collect();
    assert_eq!(kind(w.verify(&w.domain.credential(&claims))), ErrorKind::TooLarge);
    let mut capability = w.capability_claims(&caller);
    capability.lineage = claims.lineage().collect();
    assert_eq!(kind(w.show(&w.domain.capability(&capability), &caller)), ErrorKind::TooLarge);
    claims.parents.pop();
    let last = w.verify(&w.domain.credential(&claims)).expect("as long as may be");
    w.show(&w.domain.capability(&w.capability_claims(&last)), &caller).expect("and its capability");
}

#[test]
fn one_right_of_a_capability_can_be_taken_and_the_rest_kept() {
    let w = world();
    let caller = w.domain.caller("alice");
    let capability = w.domain.capability(&w.capability_claims(&caller));
    let granted = w.show(&capability, &caller).expect("fresh");
    w.domain.revocations().withdraw(CapabilityId(99), Rights::WRITE, Time::MAX);
    for granted in [granted, w.show(&capability, &caller).expect("reading is left")] {
        w.read(&granted).expect("reading is left");
        assert_eq!(kind(granted.allows(Rights::WRITE, OBJECT, w.clock.moment())), ErrorKind::Revoked);
    }
    w.domain.revocations().withdraw(CapabilityId(99), Rights::READ, Time::MAX);
    assert_eq!(kind(w.show(&capability, &caller)), ErrorKind::Revoked);
}

#[test]
fn a_new_epoch_ends_the_capabilities_of_the_old_one_only() {
    let w = world();
    let caller = w.domain.caller("alice");
    let old = w.capability_claims(&caller);
    let new = CapabilityClaims { id: CapabilityId(100), epoch: 1, ..old.clone() };
    let elsewhere = CapabilityClaims { id: CapabilityId(101), container: ContainerId(8), ..old.clone() };
    let held = w.show(&w.domain.capability(&old), &caller).expect("fresh");
    let other = w.show(&w.domain.capability(&elsewhere), &caller).expect("fresh");
    w.domain.revocations().begin_epoch(CONTAINER, 1);
    assert_eq!(kind(w.read(&held)), ErrorKind::Revoked);
    assert_eq!(kind(w.show(&w.domain.capability(&old), &caller)), ErrorKind::Revoked);
    w.read(&other).expect("another container is not touched");
    w.show(&w.domain.capability(&new), &caller).expect("it is of the new epoch");
}

#[test]
fn a_capability_covers_its_own_operations_and_objects_only() {
    let w = world();
    let caller = w.domain.caller("alice");
    let claims = CapabilityClaims { objects: Objects::Only(vec![OBJECT]), ..w.capability_claims(&caller) };
    let granted = w.show(&w.domain.capability(&claims), &caller).expect("fresh");
    w.read(&granted).expect("it is covered");
    let now = w.clock.moment();
    assert_eq!(kind(granted.allows(Rights::READ, ObjectId(2), now)), ErrorKind::Denied);
    assert_eq!(kind(granted.allows(Rights::APPEND, OBJECT, now)), ErrorKind::Denied);
    assert_eq!(kind(granted.allows_container(Rights::READ, now)), ErrorKind::Denied);
}

#[test]
fn a_constraint_is_judged_by_where_the_capability_is_shown() {
    let w = world();
    let caller = w.domain.caller("alice");
    let network = Condition::Network("10.0.0.0/8".parse().expect("a network"));
    let constraint = Constraint { rights: Rights::READ, conditions: vec![network], must_hold: true };
    let claims = CapabilityClaims { constraints: vec![constraint], ..w.capability_claims(&caller) };
    let capability = w.domain.capability(&claims);
    for (peer, good) in [("10.0.0.1", true), ("192.0.2.1", false)] {
        let at = Circumstance { now: w.clock.moment(), peer: Some(peer.parse().expect("an address")) };
        let granted = Granted::verify(&capability, w.domain.trust(), w.domain.revocations(), &caller, &at)
            .expect("the signature is good");
        assert_eq!(w.read(&granted).is_ok(), good, "{peer}");
    }
}

#[test]
fn whoever_waits_is_woken_by_the_withdrawal_of_its_own_right_only() {
    let w = world();
    let caller = w.domain.caller("alice");
    let granted = w.show(&w.domain.capability(&w.capability_claims(&caller)), &caller).expect("fresh");
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(wakes.clone());
    let mut context = Context::from_waker(&waker);
    let mut reading = pin!(granted.withdrawn(Rights::READ));
    assert!(reading.as_mut().poll(&mut context).is_pending());
    w.domain.revocations().withdraw(CapabilityId(99), Rights::WRITE, Time::MAX);
    assert!(reading.as_mut().poll(&mut context).is_pending(), "reading is left");
    w.domain.revocations().end_credential(caller.credential(), Time::MAX);
    assert!(wakes.0.load(Ordering::SeqCst) >= 1, "it must not have to be polled by chance");
    assert_eq!(reading.as_mut().poll(&mut context), Poll::Ready(()));
}

#[test]
fn what_was_withdrawn_before_waiting_began_is_seen_at_once() {
    let w = world();
    let caller = w.domain.caller("alice");
    w.domain.revocations().end_credential(caller.credential(), Time::MAX);
    let mut context = Context::from_waker(Waker::noop());
    assert_eq!(pin!(caller.withdrawn()).poll(&mut context), Poll::Ready(()));
}

#[test]
fn dead_proofs_cost_no_memory_for_ever_and_live_ones_are_still_reached() {
    let w = world();
    let kept = w.domain.caller("alice");
    for _ in 0..5_000 {
        drop(w.domain.caller("alice"));
    }
    w.domain.revocations().end_caller(kept.name().id(), w.clock.now());
    assert_eq!(kind(kept.live(w.clock.moment())), ErrorKind::Revoked);
}

#[test]
fn anyone_is_nobody_and_never_expires() {
    let w = world();
    let anyone = Caller::anyone();
    w.clock.jump(Time::MAX);
    anyone.live(w.clock.moment()).map_or_else(|e: Error| panic!("{e:?}"), |()| ());
    assert!(anyone.is_anyone() && anyone.credential() == CredentialId(0));
    assert!(!anyone.is_or_is_in(CallerId(1)));
}
