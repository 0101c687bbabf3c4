//! The laws of the request form over the in-memory model.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use weft_conformance::file_system::{ADMINISTRATOR, LAWS, Subject};
use weft_conformance::{HandClock, TestDomain};
use weft_core::form::FileSystem;
use weft_core::model::Model;
use weft_core::service::SessionWatcher;
use weft_core::{SessionId, VolumeId};

struct InMemory {
    clock: Arc<HandClock>,
    domain: Arc<TestDomain>,
    model: Arc<Model>,
}

async fn fresh() -> InMemory {
    let clock = Arc::new(HandClock::default());
    let domain = TestDomain::new(1, clock.clone(), &[VolumeId(0)]);
    let owner = domain.name(ADMINISTRATOR);
    let model = Model::with_timer(clock.clone(), clock.clone(), domain.clone(), &owner);
    InMemory { clock, domain, model }
}

#[async_trait]
impl Subject for InMemory {
    fn fs(&self) -> Arc<dyn FileSystem> {
        self.model.clone()
    }

    fn domain(&self) -> &Arc<TestDomain> {
        &self.domain
    }

    fn end_session(&self, session: SessionId) {
        self.model.ended(session);
    }

    async fn pass(&self, span: Duration) {
        self.clock.pass(span);
    }

    fn time_is_moved(&self) -> bool {
        true
    }
}

weft_conformance::file_system_suite!(fresh);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_model_answers_like_itself_for_many_seeds() {
    for seed in 0..40 {
        weft_conformance::file_system::oracle::run(&fresh().await, seed, 400).await;
    }
}

#[tokio::test]
#[should_panic(expected = "the subject differs from the model")]
async fn the_oracle_sees_a_name_that_should_not_be_there() {
    let subject = fresh().await;
    weft_conformance::file_system::site::Site::of(&subject).file("d", b"").await;
    weft_conformance::file_system::oracle::run(&subject, 1, 100).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_models_histories_can_be_put_into_an_order_for_many_seeds() {
    for seed in 0..20 {
        weft_conformance::file_system::history::run(&fresh().await, seed, 12).await;
    }
}

/// A law that no list names would never be tried.
#[test]
fn every_law_is_in_the_list() {
    let sources = [
        ("names", include_str!("../../src/file_system/names.rs")),
        ("symlinks", include_str!("../../src/file_system/symlinks.rs")),
        ("listing", include_str!("../../src/file_system/listing.rs")),
        ("files", include_str!("../../src/file_system/files.rs")),
        ("opens", include_str!("../../src/file_system/opens.rs")),
        ("attributes", include_str!("../../src/file_system/attributes.rs")),
        ("replays", include_str!("../../src/file_system/replays.rs")),
        ("stages", include_str!("../../src/file_system/stages.rs")),
        ("locks", include_str!("../../src/file_system/locks.rs")),
        ("rights", include_str!("../../src/file_system/rights.rs")),
        ("policies", include_str!("../../src/file_system/policies.rs")),
        ("watching", include_str!("../../src/file_system/watching.rs")),
        ("concurrency", include_str!("../../src/file_system/concurrency.rs")),
        ("durable", include_str!("../../src/file_system/durable.rs")),
    ];
    for (module, source) in sources {
        let listed = LAWS.iter().find(|(name, _)| *name == module).map(|(_, laws)| laws.to_vec());
        let written: Vec<&str> = source
            .lines()
            .filter_map(|line| line.strip_prefix("pub async fn "))
            .filter_map(|rest| rest.split('(').next())
            .collect();
        assert_eq!(listed, Some(written), "{module}");
    }
}
