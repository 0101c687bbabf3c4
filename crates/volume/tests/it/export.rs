//! The laws of the request form for a shared directory, and what it does not keep of them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use weft_conformance::TestDomain;
use weft_conformance::file_system::{ADMINISTRATOR, Subject};
use weft_core::acl::{Acl, AclEntry, Who};
use weft_core::form::{Call, FileSystem};
use weft_core::service::SessionWatcher;
use weft_core::{ContainerId, FileId, Name, Result, Rights, SessionId, VolumeId};
use weft_kv::{Embedded, Engine, Options, SpaceId};
use weft_sys::{SimClock, SimDisk, Sys};
use weft_volume::export::{Export, Shares, SharesConfig};
use weft_volume::tree::Anchor;

/// Laws that a directory of the machine does not keep, and why.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("only_who_may_gives_files_away", OWNERS),
    ("every_kind_is_made_and_shown", "the machine has no references"),
    ("a_directory_counts_its_entries_and_subdirectories", SIZES),
    ("before_and_after_are_of_the_change_itself", SIZES),
    ("counts_stay_true_under_many_hands", SIZES),
    ("publishing_sets_what_was_asked_for", SIZES),
    ("cookies_rise_and_are_never_used_again", COOKIES),
    ("creators_in_one_directory_all_succeed", COOKIES),
    ("links_inside_a_path_are_followed", "a link to an absolute path leads out of the share"),
    ("versions_change_with_bytes_and_counters_with_anything", VERSIONS),
    ("what_is_set_is_shown_and_the_rest_stays", VERSIONS),
    ("user_attributes_have_limits", "a file system may have room for fewer user attributes"),
    (
        "hard_links_do_not_cross_containers",
        "names of one file may lie under several policies: the path decides",
    ),
    ("mode_bits_narrow_and_never_widen", LIMITS),
    ("where_classes_count_the_mode_is_the_owners", LIMITS),
    ("where_classes_count_a_directory_is_used_by_who_may_bring_something", LIMITS),
    ("a_limit_on_bytes_refuses_growth", LIMITS),
    ("a_limit_on_bytes_counts_what_fills_holes", LIMITS),
    ("what_an_edit_does_not_speak_of_stays", LIMITS),
    ("every_kind_of_change_is_made_once", LIMITS),
    ("replays_survive_a_restart", "an act on the machine and a row beside it are no one commit"),
    ("a_stage_is_taken_up_after_a_restart", "stages end with the process"),
    ("everything_is_what_it_was_after_a_restart", FORGOTTEN),
    ("verifiers_and_versions_change_with_a_restart", FORGOTTEN),
    (
        "random_requests_are_answered_as_the_model_answers",
        "every exception above is met within a few requests",
    ),
];

/// What those who the machine refuses nothing do not keep either: root runs these tests in CI.
const OF_ROOT: &[(&str, &str)] = &[
    ("an_open_that_makes_carries_its_rights_whatever_the_mode", MODES),
    ("a_mode_changed_later_does_not_end_an_open", MODES),
];

const OWNERS: &str = "what is made belongs to the node's user";
const SIZES: &str = "the size of a directory is what the machine says";
const COOKIES: &str = "the kernel gives cookies out when it lists, in an order of its own";
const VERSIONS: &str = "the version is made of the time of change, which attributes change too";
const LIMITS: &str = "modes and room are the machine's: a share takes neither classes nor a limit";
const FORGOTTEN: &str = "where ids were last seen is forgotten with the process";
const MODES: &str = "mode bits do not bind root";

/// A user of the machine that no machine has.
pub const SOMEBODY: u32 = 4_100_001;

/// A share at the root of the tree.
struct AtRoot;

#[async_trait]
impl Anchor for AtRoot {
    fn places(&self) -> Result<Vec<Vec<Name>>> {
        Ok(vec![Vec::new()])
    }

    fn above(&self) -> Result<Vec<FileId>> {
        Ok(Vec::new())
    }

    async fn let_pass(&self, _: &Call, _: &[AclEntry]) -> Result<(Vec<ContainerId>, Vec<ContainerId>)> {
        Ok((Vec::new(), Vec::new()))
    }
}

/// A shared directory, and the domain that signs for it. The files are the machine's own; the clock that
/// rights are judged by is moved by hand.
pub struct Site {
    pub clock: Arc<SimClock>,
    pub domain: Arc<TestDomain>,
    pub home: tempfile::TempDir,
    /// The user of the machine whose directory it is, if the share is limited to what they may do.
    pub owner: Option<u32>,
    config: SharesConfig,
    running: Mutex<Export>,
}

impl Site {
    pub async fn fresh(seed: u64) -> Self {
        Self::shared(seed, None, false, Self::home()).await
    }

    /// A directory in memory: nothing waits for a disk. None where there is no such file system.
    pub async fn in_memory(seed: u64) -> Option<Self> {
        let home = tempfile::tempdir_in("/dev/shm").ok()?;
        Some(Self::shared(seed, None, false, home).await)
    }

    fn home() -> tempfile::TempDir {
        tempfile::tempdir().expect("a directory")
    }

    /// A directory whose files are found by handle, if these tests may.
    pub async fn with_handles(seed: u64) -> Self {
        Self::shared(seed, None, true, Self::home()).await
    }

    /// A directory that its owner shared: of somebody else where these tests may make one.
    pub async fn of_owner(seed: u64) -> Self {
        let own = weft_sys::process::uid();
        Self::shared(seed, Some(if own == 0 { SOMEBODY } else { own }), true, Self::home()).await
    }

    async fn shared(seed: u64, owner: Option<u32>, handles: bool, home: tempfile::TempDir) -> Self {
        let sys = Sys::simulated(seed);
        let clock = sys.sim_clock().expect("it is simulated").clone();
        let domain = TestDomain::new(7, clock.clone(), &[VolumeId(0)]);
        let engine = Embedded::open(sys.clone(), Arc::new(SimDisk::new()), Options::default());
        let engine: Arc<dyn Engine> = Arc::new(engine.expect("the engine opens"));
        let config = SharesConfig {
            sys,
            engine,
            space: SpaceId(2),
            issuer: domain.clone(),
            groups: domain.clone(),
            audited: false,
            handles,
            first: VolumeId(0),
        };
        let shares = Shares::open(config.clone()).await.expect("its tables open");
        let by = domain.name(ADMINISTRATOR);
        let acl = Acl::new(vec![AclEntry::allow(Who::Caller(by.clone()), Rights::ALL)]);
        let directory = home.path().canonicalize().expect("it is there");
        if owner == Some(SOMEBODY) {
            std::os::unix::fs::chown(&directory, owner, owner).expect("root may give it");
        }
        let shared = shares.add(&directory, &by, acl, owner).await.expect("it can be shared");
        let export = shares.export(shared.volume, Arc::new(AtRoot)).expect("it was shared");
        Self { clock, domain, home, owner, config, running: Mutex::new(export) }
    }

    /// Returns whether files are found by handle here: the process may, and the file system can.
    pub fn finds_by_handle(&self) -> bool {
        let top =
            weft_sys::Beneath::open(&self.home.path().canonicalize().expect("there")).expect("it opens");
        let facts = top.itself().and_then(|held| held.facts()).expect("it is there");
        self.config.handles && top.by_handle(facts.inode, facts.generation).expect("asked").is_some()
    }

    pub fn export(&self) -> Export {
        self.running.lock().expect("nobody panics with it").clone()
    }
}

#[async_trait]
impl Subject for Site {
    fn fs(&self) -> Arc<dyn FileSystem> {
        Arc::new(self.export())
    }

    fn domain(&self) -> &Arc<TestDomain> {
        &self.domain
    }

    fn end_session(&self, session: SessionId) {
        self.export().ended(session);
    }

    async fn pass(&self, span: Duration) {
        self.clock.step(span);
        tokio::task::yield_now().await;
    }

    fn time_is_moved(&self) -> bool {
        true
    }

    fn room_is_its_own(&self) -> bool {
        false
    }

    fn exceptions(&self) -> Vec<(&'static str, &'static str)> {
        let unbound = weft_sys::process::uid() == 0 && self.owner.is_none();
        let of_root = if unbound { OF_ROOT } else { &[] };
        let forgets = !self.finds_by_handle();
        let all = EXCEPTIONS.iter().chain(of_root).copied();
        all.filter(|(law, why)| {
            forgets || (*law, *why) != ("everything_is_what_it_was_after_a_restart", FORGOTTEN)
        })
        .collect()
    }

    async fn restart(&self) -> bool {
        let shares = Shares::open(self.config.clone()).await.expect("its tables open");
        let export = shares.export(VolumeId(0), Arc::new(AtRoot)).expect("it was shared");
        *self.running.lock().expect("nobody panics with it") = export;
        true
    }
}

async fn fresh() -> Site {
    Site::fresh(1).await
}

weft_conformance::file_system_suite!(fresh);

/// The same for a directory that is limited to what its owner may do.
mod of_owner {
    use super::Site;

    async fn fresh() -> Site {
        Site::of_owner(1).await
    }

    weft_conformance::file_system_suite!(fresh);
}
