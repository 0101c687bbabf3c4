//! Every law of the request form, over the wire.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use weft_conformance::TestDomain;
use weft_conformance::file_system::Subject;
use weft_core::SessionId;
use weft_core::form::FileSystem;
use weft_rpc::Remote;

use crate::World;

struct OverTheWire {
    world: World,
    remote: Arc<Remote>,
}

#[async_trait]
impl Subject for OverTheWire {
    fn fs(&self) -> Arc<dyn FileSystem> {
        self.remote.clone()
    }

    fn domain(&self) -> &Arc<TestDomain> {
        &self.world.domain
    }

    fn end_session(&self, session: SessionId) {
        // Messages go in order, so whatever is asked next finds the session ended.
        self.remote
            .end(session)
            .now_or_never()
            .expect("there is room for one message")
            .expect("the line stands");
    }

    fn carries_origin(&self) -> bool {
        false
    }

    async fn pass(&self, span: Duration) {
        self.world.sys.sleep(span).await;
    }
}

async fn fresh() -> OverTheWire {
    let world = World::new();
    let remote = world.remote().await;
    OverTheWire { world, remote }
}

weft_conformance::file_system_suite!(fresh);
