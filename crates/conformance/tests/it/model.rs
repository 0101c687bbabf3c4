//! The laws of the request form over the in-memory model.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use weft_conformance::file_system::{ADMINISTRATOR, Subject};
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
