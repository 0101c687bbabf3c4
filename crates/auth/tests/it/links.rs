//! Links: whom a secret lets its holder act for, for how long, and how often.

use std::net::IpAddr;
use std::time::Duration;

use weft_auth::LinkTarget;
use weft_core::form::{Door, Origin};
use weft_core::proof::{Attenuation, Caller, EvidenceKind, Within};
use weft_core::service::{Evidence, GroupEdit, LinkGives, LinkGrant, NewLink, Portion, Secret, UserEdit};
use weft_core::{ErrorKind, FileId, RelPath, Result, Rights, VolumeId, limits};

use crate::scene::{SOCKET, Scene, scene};

const HOUR: Duration = Duration::from_secs(3600);

fn file() -> FileId {
    FileId::new(VolumeId(0), 7, 3)
}

fn target() -> LinkTarget {
    let within = Within { root: file(), version: None, hint: RelPath::new("d/f").expect("a path") };
    LinkTarget { within, is_directory: false }
}

fn new() -> NewLink {
    NewLink { gives: LinkGives::Read, life: HOUR, count: None, pin: false }
}

fn from(address: &str) -> Origin {
    let peer: IpAddr = address.parse().expect("an address");
    Origin { door: Door::Http, peer: Some(peer), uid: None }
}

async fn alice(node: &Scene) -> Caller {
    node.login("alice", "wonder").await.expect("she may")
}

async fn made(node: &Scene, new: &NewLink) -> LinkGrant {
    node.auth.links().make(&alice(node).await, target(), new).await.expect("she may")
}

async fn follow(node: &Scene, secret: &Secret, from: Origin) -> Result<Caller> {
    node.auth.authority().authenticate(&Evidence::Link(secret.clone()), from).await
}

async fn count(
    node: &Scene,
    caller: &Caller,
    from: Origin,
    first: bool,
) -> std::result::Result<(), ErrorKind> {
    count_bytes(node, caller, from, Portion { first, bytes: 1, of: 100 }).await
}

async fn count_bytes(
    node: &Scene,
    caller: &Caller,
    from: Origin,
    portion: Portion,
) -> std::result::Result<(), ErrorKind> {
    let counted = node.auth.authority().count_use(caller, from, file(), portion).await;
    counted.map_err(|error| error.kind())
}

async fn used(node: &Scene) -> u64 {
    let links = node.auth.links().list(&alice(node).await, false, None).expect("her own");
    links.iter().map(|link| link.used).sum()
}

#[test]
fn a_secret_lets_its_holder_act_for_its_maker_confined_and_named_beside_them() {
    scene(1, |node| async move {
        let name = node.add_user("alice", "wonder").await;
        let grant = made(&node, &new()).await;
        let caller = follow(&node, &grant.secret, SOCKET).await.expect("it is right");
        assert_eq!((caller.name(), caller.claims().evidence), (&name, EvidenceKind::Link));
        assert_eq!(caller.within().map(|within| within.root), Some(file()));
        assert_eq!(caller.limits().rights, LinkGives::Read.rights());
        assert_eq!(caller.claims().delegates[0].local(), grant.record.id.to_string());
        let again = follow(&node, &grant.secret, SOCKET).await.expect("it is right");
        assert_eq!(again.credential(), caller.credential(), "signed once");
    });
}

#[test]
fn a_link_lends_nothing_else_not_even_an_administrators() {
    scene(2, |node| async move {
        let admin = node.admin().await;
        let grant = node.auth.links().make(&admin, target(), &new()).await.expect("they may");
        let caller = follow(&node, &grant.secret, SOCKET).await.expect("it is right");
        let (authority, whole) = (node.auth.authority(), Attenuation::default());
        let kept = authority.credential(&caller, &whole, HOUR).await;
        assert_eq!(kept.expect_err("it would outlive the link").kind(), ErrorKind::NotPermitted);
        let evidence = Evidence::Link(grant.secret.clone());
        let login = authority.login(&evidence, &whole, HOUR, SOCKET).await;
        assert_eq!(login.expect_err("it is no login").kind(), ErrorKind::NotPermitted);
        let users = node.auth.accounts().users(&caller, None).await;
        assert_eq!(users.expect_err("it is narrowed").kind(), ErrorKind::NotPermitted);
        let another = node.auth.links().make(&caller, target(), &new()).await;
        assert_eq!(another.map(drop).expect_err("it is narrowed").kind(), ErrorKind::NotPermitted);
        assert!(node.auth.links().list(&caller, false, None).is_err());
    });
}

#[test]
fn a_link_ends_to_the_second_and_so_does_whoever_came_by_it() {
    scene(3, |node| async move {
        node.add_user("alice", "wonder").await;
        let grant = made(&node, &NewLink { life: Duration::from_secs(30), ..new() }).await;
        let caller = follow(&node, &grant.secret, SOCKET).await.expect("it is right");
        node.pass(Duration::from_secs(29));
        caller.live(node.sys.clock().moment()).expect("a second is left");
        follow(&node, &grant.secret, SOCKET).await.expect("a second is left");
        // Stamps are some nanoseconds ahead of a clock that stands still.
        node.pass(Duration::from_secs(1) + Duration::from_micros(1));
        let ended = caller.live(node.sys.clock().moment()).expect_err("it has run out");
        assert_eq!(ended.kind(), ErrorKind::Expired);
        let late = follow(&node, &grant.secret, SOCKET).await.expect_err("it has run out");
        assert_eq!(late.kind(), ErrorKind::Expired);
    });
}

#[test]
fn a_revoked_link_ends_its_callers_at_once_and_stays_ended_after_a_power_cut() {
    scene(4, |node| async move {
        node.add_user("alice", "wonder").await;
        let (grant, other) = (made(&node, &new()).await, made(&node, &new()).await);
        let caller = follow(&node, &grant.secret, SOCKET).await.expect("it is right");
        let by = alice(&node).await;
        node.auth.links().end(&by, grant.record.id).await.expect("it is hers");
        let ended = caller.live(node.sys.clock().moment()).expect_err("it is revoked");
        assert_eq!(ended.kind(), ErrorKind::Revoked);
        let node = node.crash(4).await;
        let late = follow(&node, &grant.secret, SOCKET).await.expect_err("it is revoked");
        assert_eq!(late.kind(), ErrorKind::Revoked);
        follow(&node, &other.secret, SOCKET).await.expect("another is not");
        let by = alice(&node).await;
        let again =
            node.auth.links().end(&by, grant.record.id).await.expect("it is no error to end it twice");
        assert_eq!(again.ended.as_deref(), Some("the link was revoked"));
    });
}

#[test]
fn what_ends_its_maker_ends_a_link_and_a_change_of_groups_is_seen_at_its_next_use() {
    scene(5, |node| async move {
        let name = node.add_user("alice", "wonder").await;
        let grant = made(&node, &new()).await;
        let caller = follow(&node, &grant.secret, SOCKET).await.expect("it is right");
        let accounts = node.auth.accounts();
        let admin = node.admin().await;
        let group = accounts.add_group(&admin, "team").await.expect("it is new").name;
        accounts.edit_group(&admin, &group, &GroupEdit::Add(name.clone())).await.expect("it is theirs");
        caller.live(node.sys.clock().moment()).expect("what is under way by it goes on");
        assert!(caller.is_or_is_in(group.id()), "in the groups that there are now");
        let fresh = follow(&node, &grant.secret, SOCKET).await.expect("it is right");
        assert!(fresh.is_or_is_in(group.id()));
        accounts.edit_user(&admin, &name, &UserEdit::Enabled(false)).await.expect("she is there");
        assert!(fresh.live(node.sys.clock().moment()).is_err());
        let after = follow(&node, &grant.secret, SOCKET).await.expect_err("she may not log in");
        assert_eq!(after.kind(), ErrorKind::Revoked);
        accounts.edit_user(&admin, &name, &UserEdit::Enabled(true)).await.expect("she is there");
        assert!(follow(&node, &grant.secret, SOCKET).await.is_err(), "what she held then is over");
    });
}

#[test]
fn a_use_that_was_answered_is_counted_after_any_power_cut() {
    for seed in 0..20 {
        scene(seed, |node| async move {
            node.add_user("alice", "wonder").await;
            let grant = made(&node, &NewLink { count: Some(3), ..new() }).await;
            let caller = follow(&node, &grant.secret, SOCKET).await.expect("it is right");
            for _ in 0..2 {
                count(&node, &caller, SOCKET, true).await.expect("it may be used");
            }
            let node = node.crash(seed).await;
            assert_eq!(used(&node).await, 2);
            let caller = follow(&node, &grant.secret, SOCKET).await.expect("one is left");
            assert_eq!(count(&node, &caller, SOCKET, true).await, Ok(()));
            assert_eq!(count(&node, &caller, SOCKET, true).await, Err(ErrorKind::Expired));
        });
    }
}

#[test]
fn who_goes_on_is_not_counted_and_only_for_a_while_and_from_where_they_were() {
    scene(6, |node| async move {
        node.add_user("alice", "wonder").await;
        let grant = made(&node, &NewLink { count: Some(2), life: 24 * HOUR, ..new() }).await;
        let [here, there] = ["192.0.2.1", "192.0.2.2"].map(from);
        let caller = follow(&node, &grant.secret, here).await.expect("it is right");
        assert_eq!(count(&node, &caller, here, false).await, Ok(()));
        assert_eq!((count(&node, &caller, here, false).await, used(&node).await), (Ok(()), 1));
        assert_eq!((count(&node, &caller, there, false).await, used(&node).await), (Ok(()), 2));
        assert_eq!(count(&node, &caller, from("192.0.2.3"), false).await, Err(ErrorKind::Expired));
        let strange = follow(&node, &grant.secret, from("192.0.2.3")).await.expect_err("it is used up");
        assert_eq!(strange.kind(), ErrorKind::Expired);
        node.pass(limits::LINK_RESUMED_WITHIN / 2);
        follow(&node, &grant.secret, here).await.expect("it goes on");
        assert_eq!(count(&node, &caller, here, false).await, Ok(()));
        node.pass(limits::LINK_RESUMED_WITHIN / 2);
        assert_eq!(count(&node, &caller, here, false).await, Ok(()), "since the last, not the first");
        node.pass(limits::LINK_RESUMED_WITHIN);
        assert_eq!(count(&node, &caller, here, false).await, Err(ErrorKind::Expired));
        assert!(follow(&node, &grant.secret, here).await.is_err());
    });
}

#[test]
fn what_goes_on_uncounted_is_a_few_times_the_file_and_no_more() {
    scene(16, |node| async move {
        node.add_user("alice", "wonder").await;
        let grant = made(&node, &NewLink { count: Some(2), ..new() }).await;
        let caller = follow(&node, &grant.secret, SOCKET).await.expect("it is right");
        let rest = Portion { first: false, bytes: 99, of: 100 };
        assert_eq!(
            count_bytes(&node, &caller, SOCKET, Portion { first: true, bytes: 100, of: 100 }).await,
            Ok(())
        );
        for _ in 0..limits::LINK_RESUMED_LENGTHS {
            assert_eq!((count_bytes(&node, &caller, SOCKET, rest).await, used(&node).await), (Ok(()), 1));
        }
        assert_eq!((count_bytes(&node, &caller, SOCKET, rest).await, used(&node).await), (Ok(()), 2));
        for _ in 0..limits::LINK_RESUMED_LENGTHS {
            assert_eq!(count_bytes(&node, &caller, SOCKET, rest).await, Ok(()));
        }
        assert_eq!(count_bytes(&node, &caller, SOCKET, rest).await, Err(ErrorKind::Expired));
    });
}

#[test]
fn downloads_that_may_go_on_are_bounded_whoever_begins_them() {
    scene(7, |node| async move {
        node.add_user("alice", "wonder").await;
        let grant = made(&node, &new()).await;
        let caller = follow(&node, &grant.secret, SOCKET).await.expect("it is right");
        let address = |n: usize| from(&format!("10.{}.{}.{}", n >> 16, n >> 8 & 255, n & 255));
        for n in 0..=limits::LINK_RESUMES_MAX {
            node.pass(Duration::from_nanos(1));
            count(&node, &caller, address(n), true).await.expect("as often as one likes");
        }
        let before = used(&node).await;
        count(&node, &caller, address(0), false).await.expect("as often as one likes");
        assert_eq!(used(&node).await, before + 1, "the oldest is forgotten");
        count(&node, &caller, address(limits::LINK_RESUMES_MAX), false).await.expect("it goes on");
        assert_eq!(used(&node).await, before + 1, "the last is not");
    });
}

#[test]
fn guesses_from_one_address_wait_and_right_ones_and_others_do_not() {
    scene(8, |node| async move {
        node.add_user("alice", "wonder").await;
        let grant = made(&node, &new()).await;
        let (here, there) = (from("192.0.2.1"), from("192.0.2.2"));
        let wrong = Secret::new("a".repeat(32));
        let took = async |node: &Scene, secret: &Secret, from: Origin| {
            let begun = node.sys.clock().tick();
            let kind = follow(node, secret, from).await.map(drop).map_err(|error| error.kind());
            (kind, node.sys.clock().tick().since(begun))
        };
        for n in 0..=limits::PASSWORD_FAILURES_FREE {
            assert_eq!(took(&node, &wrong, here).await, (Err(ErrorKind::NotFound), Duration::ZERO), "{n}");
        }
        let (kind, waited) = took(&node, &wrong, here).await;
        assert_eq!((kind, waited), (Err(ErrorKind::NotFound), limits::PASSWORD_FAILURE_DELAY));
        assert_eq!(took(&node, &grant.secret, here).await, (Ok(()), Duration::ZERO));
        assert_eq!(
            took(&node, &wrong, here).await.1,
            limits::PASSWORD_FAILURE_DELAY,
            "a right one clears nothing"
        );
        assert_eq!(took(&node, &wrong, there).await.1, Duration::ZERO);
    });
}

#[test]
fn links_are_bounded_and_those_that_ended_are_forgotten_in_time() {
    scene(9, |node| async move {
        node.add_user("alice", "wonder").await;
        for n in 0..limits::LINKS_OWNED_MAX {
            let life = if n == 0 { 100 * 24 * HOUR } else { HOUR };
            made(&node, &NewLink { life, ..new() }).await;
        }
        let by = alice(&node).await;
        let more = node.auth.links().make(&by, target(), &new()).await.map(drop);
        assert_eq!(more.expect_err("they are many").kind(), ErrorKind::TooLarge);
        let listed = node.auth.links().list(&by, false, None).expect("her own");
        assert_eq!(listed.len(), limits::LINKS_OWNED_MAX);
        let last = listed.last().map(|link| (link.by.id(), link.id));
        assert!(node.auth.links().list(&by, false, last).expect("a page").is_empty());
        let rest =
            node.auth.links().list(&by, false, Some((by.name().id(), listed[899].id))).expect("a page");
        assert_eq!(rest.len(), 100);
        node.pass(HOUR + limits::LINK_KEPT);
        node.sys.sleep(limits::AUTH_SWEEP * 2).await;
        let by = alice(&node).await;
        let kept = node.auth.links().list(&by, false, None).expect("her own");
        assert_eq!(kept.len(), 1);
        node.auth.links().make(&by, target(), &new()).await.expect("there is room");
    });
}

#[test]
fn a_link_is_made_by_users_for_some_time_and_some_uses() {
    scene(10, |node| async move {
        node.add_user("alice", "wonder").await;
        let (by, links) = (alice(&node).await, node.auth.links());
        let beyond = limits::LINK_LIFE_MAX + Duration::from_secs(1);
        for bad in [
            NewLink { life: Duration::ZERO, ..new() },
            NewLink { life: beyond, ..new() },
            NewLink { count: Some(0), ..new() },
        ] {
            let refused = links.make(&by, target(), &bad).await.map(drop);
            assert_eq!(refused.expect_err("it is none").kind(), ErrorKind::Invalid, "{bad:?}");
        }
        let nobody = links.make(&Caller::anyone(), target(), &new()).await.map(drop);
        assert_eq!(nobody.expect_err("nobody").kind(), ErrorKind::Unauthenticated);
        let itself = node.auth.node_caller().expect("it is somebody");
        assert!(links.make(&itself, target(), &new()).await.is_err(), "nodes have no links");
        assert_eq!(links.list(&by, false, None).expect("her own").len(), 0);
        assert!(
            LinkGives::Read.rights().contains(Rights::READ) && LinkGives::Insert.rights() == Rights::INSERT
        );
    });
}
