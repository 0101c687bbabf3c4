//! Laws of splits too large for one transaction: whatever moves meanwhile, in the end
//! each place is governed by the container that it lies in, and at no moment by less.

use std::sync::Arc;
use std::time::Duration;

use weft_conformance::file_system::site::*;
use weft_core::acl::{AclEntry, Condition};
use weft_core::form::{At, Expect, Protected, Range, Replace, Scope, Want};
use weft_core::policy::PolicyEdit;
use weft_core::{ContainerId, ErrorKind, Rights, limits};
use weft_sys::{SimDisk, Sys, simulate};

use super::crash::volume_on;
use super::laws::simulated;
use super::site::Volume;

/// Directories, and files in each: together more than one transaction moves.
const DIRS: usize = 12;
const FILES: usize = 900;

/// More members than one transaction moves: both policies bind until all are moved, a
/// restart in the middle changes nothing, and in the end one container holds them.
#[test]
fn a_large_split_goes_on_behind_and_survives_a_restart() {
    simulate(5, |sys| async move {
        // A task among others, so that it gets its turn between two steps of the split.
        sys.spawn(large_split(sys.clone())).await.works();
    });
}

async fn large_split(sys: Sys) {
    let (_, volume) = simulated(&sys).await;
    let site = Site::of(&volume);
    let (alice, bob) = (site.user("alice"), site.user("bob"));
    site.dir("d").await;
    for dir in 0..12 {
        site.dir(&format!("d/{dir}")).await;
        for file in 0..900 {
            site.file(&format!("d/{dir}/{file}"), b"").await;
        }
    }
    site.edit("", Scope::Container, |all| {
        all.push(AclEntry::allow(who(&alice), Rights::READING));
        all.push(AclEntry::allow(who(&bob), Rights::READING));
    })
    .await;
    let mut files = Vec::new();
    for dir in 0..12 {
        files.push(site.find(&format!("d/{dir}/899")).await.works());
    }
    let split = site.seal("d").await;
    assert!(split.made && split.members_left > limits::SPLIT_MEMBERS_MAX as u64);
    // At once: what the new policy does not give is refused, moved or not.
    let call = site.call_of(&alice, 2);
    let refused = site.find_as(&call, "d/11/899").await;
    assert!(matches!(refused.fails(), ErrorKind::Denied | ErrorKind::NotFound));
    // By id, so that no directory above is asked: what still carries the old
    // container's name is bound by the new one all the same.
    let mut waiting = 0;
    for id in files {
        waiting += usize::from(site.attr(id).await.container != split.container);
        let walked = site.fs.walk(&call, &At::id(id), Want::default()).await;
        assert!(walked.is_err(), "the old policy alone does not open it");
    }
    assert!(waiting > 0, "all were moved before anybody could look");
    let made = site.file("d/11/new", b"").await;
    assert_eq!(site.attr(made).await.container, split.container, "what is made joins the new one");
    drop(site);
    volume.crash_in_place().await;
    sys.sleep(Duration::from_secs(60)).await;
    let site = Site::of(&volume);
    for path in ["d", "d/0/0", "d/5/450", "d/11/899"] {
        let id = site.find(path).await.works();
        assert_eq!(site.attr(id).await.container, split.container, "{path}");
    }
    let call = volume.domain.call(&volume.domain.caller("node:n1"), 0);
    let report = volume.running().managed.check(&call).await.works();
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
}

/// Makes a large directory `d` in which `alice` may read.
async fn filled(site: &Site<'_>) {
    let alice = site.user("alice");
    for dir in ["d", "other"] {
        site.dir(dir).await;
    }
    for dir in 0..DIRS {
        site.dir(&format!("d/{dir}")).await;
        site.dir(&format!("d/{dir}/below")).await;
        for file in 0..FILES / 2 {
            site.file(&format!("d/{dir}/{file}"), b"").await;
            site.file(&format!("d/{dir}/below/{file}"), b"").await;
        }
    }
    site.edit("", Scope::Container, |all| all.push(AclEntry::allow(who(&alice), Rights::READING))).await;
}

/// Begins to split a large directory off for the administrator alone.
pub async fn begun(site: &Site<'_>) -> Protected {
    filled(site).await;
    let split = site.seal("d").await;
    assert!(split.members_left > limits::SPLIT_MEMBERS_MAX as u64);
    split
}

/// Checks that everything at and below a place is governed by one container.
async fn all_in(site: &Site<'_>, path: &str, container: ContainerId) -> usize {
    let mut todo = vec![site.find(path).await.works()];
    let mut seen = 0;
    while let Some(id) = todo.pop() {
        let attr = site.attr(id).await;
        assert_eq!(attr.container, container, "{id} below {path}");
        seen += 1;
        if attr.kind == weft_core::attr::Kind::Directory {
            todo.extend(site.scan(id, limits::PAGE_ENTRIES_MAX).await.iter().map(|entry| entry.id));
        }
    }
    seen
}

async fn settled(volume: &Volume) {
    volume.sys.sleep(Duration::from_secs(60)).await;
    let call = volume.domain.call(&volume.domain.caller("node:n1"), 0);
    let report = volume.running().managed.check(&call).await.works();
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
}

async fn moved(site: &Site<'_>, from: &str, to: &str) {
    site.fs.rename(&site.call(), &at(from), &at(to), Replace::Never, &free()).await.works();
}

/// Runs a scenario while a split is under way: at its beginning, and further on.
fn while_splitting<F: Future<Output = ()> + Send + 'static>(
    scenario: impl Fn(Sys, Volume, Protected) -> F + Clone + Send + Sync + 'static,
) {
    for steps in [0, 6, 10] {
        let scenario = scenario.clone();
        simulate(5, |sys| async move {
            let inner = sys.clone();
            sys.spawn(async move {
                let (volume, _) = volume_on(&inner, &SimDisk::new(), 1, true).await;
                let split = begun(&Site::of(&volume)).await;
                for _ in 0..steps {
                    tokio::task::yield_now().await;
                }
                scenario(inner, volume, split).await;
            })
            .await
            .works();
        });
    }
}

/// A condition in the new policy binds what is not moved yet, also what is read already, and also
/// when it came later than the split.
#[test]
fn a_condition_of_the_new_policy_ends_what_is_read_before_it_is_moved() {
    for later in [false, true] {
        simulate(5, |sys| async move {
            sys.spawn(conditional_split(sys.clone(), later)).await.works();
        });
    }
}

async fn conditional_split(sys: Sys, later: bool) {
    let (_, volume) = simulated(&sys).await;
    let site = Site::of(&volume);
    filled(&site).await;
    let alice = site.user("alice");
    let call = site.call_of(&alice, 2);
    let inline = site.file("d/11/inline", &pattern(100, 1)).await;
    let object = site.file("d/11/object", &pattern(100_000, 1)).await;
    let begin = async |id| {
        let file = site.fs.file(&call, id, Rights::READ).await.works();
        let mut source = file.read(&call, Range::ALL).await.works();
        assert_eq!(source.next(10).await.works().expect("there are more").length(), 10);
        source
    };
    if later {
        site.grant("d", Vec::new()).await;
        begin(inline).await;
        begin(object).await;
    }
    let span = Duration::from_secs(10);
    let until = vec![Condition::Until(sys.clock().now().plus(span))];
    let conditional = |all: &mut Vec<AclEntry>| {
        let hers = all.iter_mut().filter(|entry| entry.who == who(&alice));
        hers.for_each(|entry| entry.when.clone_from(&until));
    };
    let split = site.edit("d", Scope::Subtree, conditional).await;
    assert_eq!(split.made, !later);
    let mut reads = vec![begin(inline).await, begin(object).await];
    volume.clock.step(span);
    for source in &mut reads {
        assert_eq!(source.next(10).await.map(drop).fails(), ErrorKind::Revoked);
    }
    for id in [inline, object] {
        assert_ne!(site.attr(id).await.container, split.container, "it was moved too soon");
    }
}

#[test]
fn what_leaves_a_subtree_that_is_split_off_is_governed_by_where_it_comes_to() {
    while_splitting(|_, volume, split| async move {
        let site = Site::of(&volume);
        let root = site.attr(weft_core::FileId::ROOT).await.container;
        for dir in [0, 5, 11] {
            moved(&site, &format!("d/{dir}"), &format!("other/{dir}")).await;
        }
        moved(&site, "d/6/17", "other/file").await;
        moved(&site, "d/7/below", "other/below").await;
        settled(&volume).await;
        let below = FILES / 2 + 1;
        assert_eq!(all_in(&site, "other", root).await, 2 + 3 * (2 * below) + below);
        assert_eq!(all_in(&site, "d", split.container).await, 9 * 2 * below + 1 - 1 - below);
    });
}

#[test]
fn what_moves_within_a_subtree_that_is_split_off_is_not_left_behind() {
    while_splitting(|_, volume, split| async move {
        let site = Site::of(&volume);
        let alice = site.call_of(&site.user("alice"), 2);
        // To where the split has been, from where it has not.
        for dir in (1..DIRS).rev() {
            moved(&site, &format!("d/{dir}/17"), &format!("d/0/from-{dir}")).await;
            site.fs
                .link(&site.call(), &at(&format!("d/{dir}/18")), &at(&format!("d/0/linked-{dir}")))
                .await
                .works();
            site.fs.remove(&site.call(), &at(&format!("d/{dir}/18")), Expect::Any, &free()).await.works();
        }
        for dir in (1..DIRS).rev() {
            moved(&site, &format!("d/{dir}/below"), &format!("d/below-{dir}")).await;
        }
        for dir in (2..DIRS).rev() {
            moved(&site, &format!("d/{dir}"), &format!("d/1/{dir}x")).await;
        }
        let id = site.find("d/0/from-11").await.works();
        let walked = site.fs.walk(&alice, &At::id(id), Want::default()).await;
        assert!(walked.is_err(), "the new policy binds at once");
        settled(&volume).await;
        assert_eq!(all_in(&site, "d", split.container).await, 1 + DIRS * 2 * (FILES / 2 + 1));
        for path in ["d/0/linked-3", "d/1/7x/44", "d/below-9/12"] {
            let id = site.find(path).await.works();
            assert!(site.fs.walk(&alice, &At::id(id), Want::default()).await.is_err(), "{path}");
        }
    });
}

#[test]
fn a_split_within_one_that_is_under_way_leaves_nothing_behind() {
    while_splitting(|_, volume, split| async move {
        let site = Site::of(&volume);
        let alice = site.call_of(&site.user("alice"), 2);
        let inner = site.seal("d/11").await;
        let id = site.find("d/11/below/17").await.works();
        assert!(site.fs.walk(&alice, &At::id(id), Want::default()).await.is_err(), "all policies bind");
        moved(&site, "d/11/below", "d/10/below-11").await;
        settled(&volume).await;
        assert_eq!(all_in(&site, "d/11", inner.container).await, FILES / 2 + 1);
        moved(&site, "d/11", "other/11").await;
        assert_eq!(all_in(&site, "d", split.container).await, 1 + DIRS * 2 * (FILES / 2 + 1) - FILES / 2 - 1);
        assert!(site.fs.walk(&alice, &At::id(id), Want::default()).await.is_err());
    });
}

#[test]
fn a_file_that_gets_a_name_elsewhere_while_a_large_subtree_is_looked_through_is_not_torn() {
    simulate(9, |sys| async move {
        sys.spawn(tied(sys.clone())).await.works();
    });
}

async fn tied(sys: Sys) {
    let (_, volume) = simulated(&sys).await;
    let volume = Arc::new(volume);
    let site = Site::of(&*volume);
    filled(&site).await;
    let sealing = || {
        let volume = volume.clone();
        sys.spawn(async move {
            let site = Site::of(&*volume);
            let admin = who(&site.admin);
            let mut acl = site.fs.policy(&site.call(), &at("d")).await?.acl;
            acl.entries.retain(|entry| entry.who == admin);
            let edit = PolicyEdit { acl: Some(acl), ..PolicyEdit::default() };
            site.fs.protect(&site.call(), &at("d"), Scope::Subtree, &edit).await
        })
    };
    volume.gate.close();
    let sealed = sealing();
    // It has looked, and is about to begin.
    volume.gate.reached().await;
    let file = site.find("d/3/below/7").await.works();
    site.fs.link(&site.call(), &At::id(file), &at("other/too")).await.works();
    volume.gate.open();
    assert_eq!(sealed.await.works().fails(), ErrorKind::CrossVolume);
    // A directory that takes one of a file's names along ties as well.
    moved(&site, "other/too", "d/4/too").await;
    volume.gate.close();
    let sealed = sealing();
    volume.gate.reached().await;
    moved(&site, "d/4", "other/4").await;
    volume.gate.open();
    assert_eq!(sealed.await.works().fails(), ErrorKind::CrossVolume);
    moved(&site, "other/4", "d/4").await;
    let split = sealing().await.works().works().value;
    settled(&volume).await;
    all_in(&site, "d", split.container).await;
}
