//! Deciding: properties over random ACLs against a rule written down a second time,
//! and tables for what the rules say in words.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use weft_conformance::{HandClock, TestDomain};
use weft_core::acl::{
    Acl, AclEntry, Ask, Because, Circumstance, Condition, Decision, Effect, Modes, Owned, Stored, Subject,
    Upon, Who, decide, explain, narrow,
};
use weft_core::attr::Kind;
use weft_core::proof::{Attenuation, Caller, Objects};
use weft_core::service::Issuer;
use weft_core::{CallerId, Clock, ContainerId, ErrorKind, ObjectId, RelPath, Rights, Time, VolumeId, limits};

const CONTAINER: ContainerId = ContainerId(7);

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
    fn ask(&self, rights: Rights) -> Ask {
        let now = self.clock.moment();
        Ask { container: CONTAINER, epoch: 0, rights, objects: Objects::All, now, peer: None }
    }

    fn ask_from(&self, rights: Rights, peer: &str) -> Ask {
        Ask { peer: Some(peer.parse().expect("an address")), ..self.ask(rights) }
    }

    fn who(&self, user: &str) -> Who {
        Who::Caller(self.domain.name(user))
    }

    fn decide(&self, entries: &[AclEntry], caller: &Caller, rights: Rights) -> Decision {
        decide(&Acl::new(entries.to_vec()), caller, &self.ask(rights))
    }
}

#[test]
fn no_entry_is_no_right() {
    let w = world();
    let decision = w.decide(&[], &w.domain.caller("alice"), Rights::READ);
    assert!(!decision.is_allowed());
    assert_eq!(decision.because(Rights::READ), Because::NoEntry);
}

#[test]
fn a_negative_entry_wins_wherever_it_stands() {
    let w = world();
    let allow = AclEntry::allow(Who::Anyone, Rights::ALL);
    let deny = AclEntry::deny(w.who("alice"), Rights::WRITE);
    for entries in [[allow.clone(), deny.clone()], [deny, allow]] {
        let decision = w.decide(&entries, &w.domain.caller("alice"), Rights::READ | Rights::WRITE);
        assert_eq!(decision.allowed(), Rights::READ);
        assert!(matches!(decision.because(Rights::WRITE), Because::Withheld(_)));
        assert!(w.decide(&entries, &w.domain.caller("bob"), Rights::WRITE).is_allowed());
    }
}

#[test]
fn anyone_matches_everybody_and_a_domain_only_its_own() {
    let w = world();
    let stranger = TestDomain::new(9, w.clock.clone(), &[]).caller("alice");
    let open = [AclEntry::allow(Who::Anyone, Rights::READ)];
    let ours = [AclEntry::allow(Who::Domain(w.domain.id()), Rights::READ)];
    for (caller, in_ours) in [(w.domain.caller("alice"), true), (stranger, false), (Caller::anyone(), false)]
    {
        assert!(w.decide(&open, &caller, Rights::READ).is_allowed());
        assert_eq!(w.decide(&ours, &caller, Rights::READ).is_allowed(), in_ours);
    }
}

#[test]
fn equal_local_names_of_two_domains_are_two_callers() {
    let w = world();
    let foreign = TestDomain::new(9, w.clock.clone(), &[]).caller("alice");
    let entries = [AclEntry::allow(w.who("alice"), Rights::READ)];
    assert!(!w.decide(&entries, &foreign, Rights::READ).is_allowed());
}

#[test]
fn group_members_have_the_groups_rights() {
    let w = world();
    let group = w.domain.name("group:alice/team");
    let entries = [AclEntry::allow(Who::Caller(group.clone()), Rights::READ)];
    assert!(
        w.decide(&entries, &w.domain.caller_in("bob", &[CallerId(5), group.id()]), Rights::READ).is_allowed()
    );
    assert!(!w.decide(&entries, &w.domain.caller_in("bob", &[CallerId(5)]), Rights::READ).is_allowed());
}

#[test]
fn an_attenuated_credential_never_has_more_than_it_was_left() {
    let w = world();
    let mut claims = w.domain.claims("alice");
    claims.limits.rights = Rights::READ;
    let caller = w.domain.caller_with(&claims);
    let decision =
        w.decide(&[AclEntry::allow(Who::Anyone, Rights::ALL)], &caller, Rights::READ | Rights::WRITE);
    assert_eq!(decision.allowed(), Rights::READ);
    assert_eq!(decision.because(Rights::WRITE), Because::Narrowed);
}

#[test]
fn a_host_limited_credential_is_worth_nothing_elsewhere() {
    let w = world();
    let mut claims = w.domain.claims("alice");
    claims.limits.hosts = vec!["10.1.0.0/16".parse().expect("a network")];
    let caller = w.domain.caller_with(&claims);
    let acl = Acl::new(vec![AclEntry::allow(Who::Anyone, Rights::ALL)]);
    for (peer, allowed) in
        [("10.1.2.3", true), ("::ffff:10.1.2.3", true), ("10.2.0.1", false), ("::1", false)]
    {
        assert_eq!(decide(&acl, &caller, &w.ask_from(Rights::READ, peer)).is_allowed(), allowed, "{peer}");
    }
    assert!(!decide(&acl, &caller, &w.ask(Rights::READ)).is_allowed(), "a local socket has no address");
}

#[test]
fn narrowing_a_credential_again_only_takes_away() {
    let path = |t: &str| RelPath::try_from(t).expect("a path");
    let outer = Attenuation { paths: vec![path("bio")], rights: Rights::READING, ..Attenuation::default() };
    let inner = Attenuation { paths: vec![path("bio/run7")], rights: Rights::ALL, ..Attenuation::default() };
    let both = outer.narrowed(&inner).expect("it lies within");
    assert_eq!((both.rights, both.paths), (Rights::READING, vec![path("bio/run7")]));
    let outside = Attenuation { paths: vec![path("biology")], ..Attenuation::default() };
    assert_eq!(outer.narrowed(&outside).expect_err("it lies outside").kind(), ErrorKind::NotPermitted);
    let kept = outer.narrowed(&Attenuation::default()).expect("nothing more is asked");
    assert_eq!(kept.paths, outer.paths);
}

#[test]
fn a_condition_that_granted_a_right_binds_the_capability() {
    let w = world();
    let until = w.clock.now().plus(Duration::from_secs(600));
    let mut entry = AclEntry::allow(Who::Anyone, Rights::READ);
    entry.when = vec![Condition::Until(until)];
    let decision = w.decide(&[entry], &w.domain.caller("alice"), Rights::READ);
    let granted = w.domain.issue(&decision).expect("it is allowed now");
    granted.allows(Rights::READ, ObjectId(1), w.clock.moment()).expect("the condition holds");
    w.clock.pass(Duration::from_secs(601));
    let refused =
        granted.allows(Rights::READ, ObjectId(1), w.clock.moment()).expect_err("it no longer holds");
    assert_eq!(refused.kind(), ErrorKind::Denied);
}

#[test]
fn a_sleeping_negative_entry_wakes_inside_the_capability() {
    let w = world();
    let night = w.clock.now().plus(Duration::from_secs(600));
    let mut deny = AclEntry::deny(Who::Anyone, Rights::WRITE);
    deny.when = vec![Condition::From(night)];
    let entries = [AclEntry::allow(Who::Anyone, Rights::ALL), deny];
    let decision = w.decide(&entries, &w.domain.caller("alice"), Rights::READ | Rights::WRITE);
    let granted = w.domain.issue(&decision).expect("both are allowed by day");
    w.clock.pass(Duration::from_secs(601));
    let now = w.clock.moment();
    granted.allows(Rights::READ, ObjectId(1), now).expect("reading was never in question");
    assert!(granted.allows(Rights::WRITE, ObjectId(1), now).is_err());
}

#[test]
fn an_unconditional_entry_frees_its_rights_from_another_entrys_condition() {
    for unconditional_first in [false, true] {
        let w = world();
        let mut brief = AclEntry::allow(Who::Anyone, Rights::READ | Rights::WRITE);
        brief.when = vec![Condition::Until(w.clock.now().plus(Duration::from_secs(1)))];
        let mut entries = vec![brief, AclEntry::allow(Who::Anyone, Rights::READ)];
        if unconditional_first {
            entries.reverse();
        }
        let decision = w.decide(&entries, &w.domain.caller("alice"), Rights::READ | Rights::WRITE);
        let granted = w.domain.issue(&decision).expect("both hold now");
        w.clock.pass(Duration::from_secs(2));
        let later = w.clock.moment();
        granted.allows(Rights::READ, ObjectId(1), later).expect("given for good");
        assert!(granted.allows(Rights::WRITE, ObjectId(1), later).is_err());
    }
}

#[test]
fn conditions_ask_what_the_request_brings() {
    let w = world();
    let mut claims = w.domain.claims("alice");
    claims.attributes = vec![("project".into(), "pdb".into())];
    let caller = w.domain.caller_with(&claims);
    let at = |peer: Option<&str>| Circumstance {
        now: w.clock.moment(),
        peer: peer.map(|p| p.parse().expect("an address")),
    };
    let attribute = |value: &str| Condition::Attribute { name: "project".into(), value: value.into() };
    let network = || Condition::Network("192.0.2.0/24".parse().expect("a network"));
    for (condition, peer, holds) in [
        (attribute("pdb"), None, true),
        (attribute("other"), None, false),
        (Condition::Organisation(w.domain.id()), None, true),
        (network(), Some("192.0.2.9"), true),
        (network(), Some("192.0.3.9"), false),
        (network(), None, false),
        (Condition::From(Time::MAX), None, false),
        (Condition::Until(Time::MAX), None, true),
    ] {
        assert_eq!(condition.holds(&caller.subject(), &at(peer)), holds, "{condition}");
    }
}

#[test]
fn an_acl_that_nobody_could_change_is_refused() {
    let w = world();
    let keeper = AclEntry::allow(w.who("alice"), Rights::ACL_WRITE);
    Acl::new(vec![keeper.clone()]).check().expect("alice may change it");
    let mut sometimes = keeper.clone();
    sometimes.when = vec![Condition::Until(Time::MAX)];
    for entries in [
        vec![],
        vec![AclEntry::allow(Who::Anyone, Rights::READ)],
        vec![sometimes],
        vec![keeper.clone(), AclEntry::deny(w.who("alice"), Rights::ACL_WRITE)],
        vec![keeper, AclEntry::deny(Who::Anyone, Rights::ALL)],
    ] {
        assert_eq!(Acl::new(entries).check().expect_err("nobody is left").kind(), ErrorKind::Invalid);
    }
}

#[test]
fn a_narrowed_decision_is_confined_to_its_objects() {
    let w = world();
    let decision =
        w.decide(&[AclEntry::allow(Who::Anyone, Rights::ALL)], &w.domain.caller("alice"), Rights::READ);
    let granted =
        w.domain.issue(&decision.narrowed(Rights::ALL, vec![ObjectId(1)])).expect("reading is left");
    granted.allows(Rights::READ, ObjectId(1), w.clock.moment()).expect("it is about this object");
    assert!(granted.allows(Rights::READ, ObjectId(2), w.clock.moment()).is_err());
    assert!(granted.allows_container(Rights::READ, w.clock.moment()).is_err());
}

#[test]
fn what_is_put_to_a_store_carries_out_what_was_decided_and_nothing_else() {
    let w = world();
    let (alice, now) = (w.domain.caller("alice"), w.clock.moment());
    let stored = Stored { object: ObjectId(1), label: ContainerId(8), epoch: 3 };
    let issue = |decision: Decision, upon| w.domain.issue(&decision.at_store(upon, stored));
    let all = [AclEntry::allow(Who::Anyone, Rights::ALL)];
    for (_, right) in Rights::ALL.each() {
        for (upon, carried) in [
            (
                Upon::File,
                [
                    (Rights::READ | Rights::EXECUTE, Rights::READ),
                    (Rights::WRITE | Rights::APPEND, Rights::WRITE),
                ],
            ),
            (
                Upon::Staged,
                [
                    (Rights::WRITE | Rights::INSERT, Rights::READ | Rights::WRITE),
                    (Rights::NONE, Rights::NONE),
                ],
            ),
        ] {
            let by = carried.iter().find(|(of, _)| of.contains(right)).map_or(Rights::NONE, |(_, by)| *by);
            let granted = issue(w.decide(&all, &alice, right), upon).expect("it is allowed");
            let claims = granted.claims();
            assert_eq!(
                (claims.rights, claims.container, claims.epoch),
                (by, ContainerId(8), 3),
                "{right} {upon:?}"
            );
            assert_eq!(claims.objects, Objects::Only(vec![ObjectId(1)]));
            if !by.is_empty() {
                let without = [AclEntry::allow(Who::Anyone, Rights::ALL - right)];
                assert!(issue(w.decide(&without, &alice, right), upon).is_err(), "{right} {upon:?}");
            }
        }
    }
    let both = Rights::READ | Rights::APPEND;
    let half = [AclEntry::allow(Who::Anyone, Rights::READ)];
    assert!(issue(w.decide(&half, &alice, both), Upon::File).is_err(), "half of it is not allowed");
    let later = w.clock.now().plus(Duration::from_secs(10));
    let entry =
        AclEntry { when: vec![Condition::Until(later)], ..AclEntry::allow(Who::Anyone, Rights::APPEND) };
    let open = AclEntry::allow(Who::Anyone, Rights::READ);
    let granted = issue(w.decide(&[entry, open], &alice, Rights::APPEND), Upon::File).expect("it holds");
    granted.allows(Rights::WRITE, ObjectId(1), now).expect("as yet");
    w.clock.pass(Duration::from_secs(10));
    assert!(
        granted.allows(Rights::WRITE, ObjectId(1), w.clock.moment()).is_err(),
        "the condition went with it"
    );
}

#[test]
fn explaining_for_a_name_is_deciding_for_its_caller() {
    let w = world();
    let group = w.domain.name("group:alice/team");
    let bob = w.domain.caller_in("bob", &[group.id()]);
    let entries = vec![
        AclEntry::allow(Who::Caller(group.clone()), Rights::READING),
        AclEntry::deny(w.who("bob"), Rights::LOCK),
    ];
    let decided = w.decide(&entries, &bob, Rights::ALL);
    let (at, groups) = (Circumstance { now: w.clock.moment(), peer: None }, [group.id()]);
    let explained = explain(&Acl::new(entries), &Subject::named(bob.name(), &groups), Rights::ALL, &at);
    assert_eq!(explained.allowed(), decided.allowed());
    assert!(Rights::ALL.each().all(|(_, right)| explained.because(right) == decided.because(right)));
}

#[test]
fn a_way_is_added_for_whoever_lacks_it_once_and_within_the_bounds() {
    let w = world();
    let keeper = AclEntry::allow(w.who("alice"), Rights::ALL);
    let below = |users: usize| -> Vec<AclEntry> {
        (0..users).map(|n| AclEntry::allow(w.who(&format!("user{n}")), Rights::READ)).collect()
    };
    let above = Acl::new(vec![keeper.clone()]);
    let mended = above.with_way_to(&below(2)).expect("there is room").expect("they lack it");
    assert_eq!((mended.entries.len(), mended.version), (3, above.version + 1));
    assert_eq!(mended.entries[1], AclEntry::allow(w.who("user0"), Rights::TRAVERSE));
    assert_eq!(mended.with_way_to(&below(2)).expect("there is room"), None);
    let open = Acl::new(vec![keeper, AclEntry::allow(Who::Anyone, Rights::TRAVERSE)]);
    assert_eq!(open.with_way_to(&below(2)).expect("there is room"), None, "everybody may pass already");
    let (old, mut new) = (Acl::new(below(3)), Acl::new(below(4)));
    new.entries[0].rights = Rights::NONE;
    new.entries[1].rights = Rights::READING;
    assert_eq!(new.gained_over(&old), [new.entries[1].clone(), new.entries[3].clone()]);
    let full = above.with_way_to(&below(limits::ACL_ENTRIES_MAX));
    assert_eq!(full.expect_err("too many").kind(), ErrorKind::TooLarge);
}

#[test]
fn mode_bits_narrow_by_owner_or_by_class() {
    let w = world();
    let group = w.domain.name("group:alice/team");
    let (alice, bob) = (w.domain.caller("alice"), w.domain.caller_in("bob", &[group.id()]));
    let carol = w.domain.caller("carol");
    let file = |mode| Owned { kind: Kind::File, mode, owner: alice.name().id(), group: group.id() };
    let may =
        |modes, mode, caller: &Caller, right| narrow(modes, &file(mode), &caller.subject()).contains(right);
    for caller in [&alice, &bob, &carol] {
        assert!(!may(Modes::Owner, 0o477, caller, Rights::WRITE), "only the owner's bits count");
        assert!(may(Modes::Owner, 0o600, caller, Rights::WRITE));
    }
    assert!(
        may(Modes::Classes, 0o640, &bob, Rights::READ) && !may(Modes::Classes, 0o640, &bob, Rights::APPEND)
    );
    assert!(!may(Modes::Classes, 0o640, &carol, Rights::READ));
    assert!(!may(Modes::Classes, 0o077, &alice, Rights::READ), "the owner is never counted among the others");
}

#[test]
fn mode_bits_never_touch_rights_they_do_not_speak_of() {
    let w = world();
    for kind in [Kind::File, Kind::Directory, Kind::Fifo, Kind::Symlink, Kind::Reference] {
        let closed = Owned { kind, mode: 0, owner: CallerId(1), group: CallerId(2) };
        let left = narrow(Modes::Classes, &closed, &w.domain.caller("alice").subject());
        assert!(left.contains(Rights::ATTR_READ | Rights::ATTR_WRITE | Rights::ACL_WRITE | Rights::LOCK));
    }
}

/// The rule of the module's essay, written a second time and plainly.
fn plainly(entries: &[AclEntry], caller: &Caller, at: &Circumstance, right: Rights) -> bool {
    let speaks = |e: &&AclEntry| {
        let who = caller.subject();
        e.rights.contains(right) && e.who.matches(&who) && e.when.iter().all(|c| c.holds(&who, at))
    };
    let given = entries.iter().filter(speaks).any(|e| e.effect == Effect::Allow);
    let withheld = entries.iter().filter(speaks).any(|e| e.effect == Effect::Deny);
    given && !withheld && caller.rights_at(at).contains(right)
}

fn any_entry() -> impl Strategy<Value = (u8, bool, u32, Option<bool>)> {
    (0u8..5, any::<bool>(), any::<u32>(), proptest::option::of(any::<bool>()))
}

proptest! {
    #[test]
    fn deciding_many_rights_at_once_equals_deciding_each_plainly(
        drafts in proptest::collection::vec(any_entry(), 0..12), left in any::<u32>(), asked in any::<u32>(),
    ) {
        let w = world();
        let group = w.domain.name("group:alice/team");
        let mut claims = w.domain.claims("alice");
        (claims.groups, claims.limits.rights) = (vec![group.id()], Rights::from_bits(left | 0xff));
        let caller = w.domain.caller_with(&claims);
        let entries: Vec<_> = drafts.into_iter().map(|(who, allow, rights, when)| AclEntry {
            who: match who {
                0 => w.who("alice"),
                1 => w.who("bob"),
                2 => Who::Caller(group.clone()),
                3 => Who::Domain(w.domain.id()),
                _ => Who::Anyone,
            },
            effect: if allow { Effect::Allow } else { Effect::Deny },
            rights: Rights::from_bits(rights),
            when: when.map(|holds| if holds { Condition::Until(Time::MAX) } else { Condition::From(Time::MAX) }).into_iter().collect(),
        }).collect();
        let ask = w.ask(Rights::from_bits(asked));
        let decision = decide(&Acl::new(entries.clone()), &caller, &ask);
        let at = Circumstance { now: ask.now, peer: None };
        for (_, right) in Rights::ALL.each() {
            let expected = ask.rights.contains(right) && plainly(&entries, &caller, &at, right);
            prop_assert_eq!(decision.allowed().contains(right), expected, "{}", right);
            match decision.because(right) {
                Because::Allowed(by) => prop_assert!(expected && entries[by as usize].effect == Effect::Allow),
                Because::Withheld(by) => prop_assert!(!expected && entries[by as usize].effect == Effect::Deny),
                Because::NoEntry | Because::Narrowed | Because::Mode => prop_assert!(!expected),
            }
        }
    }
}
