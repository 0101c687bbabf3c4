//! What is held while what is waited for.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use weft_conformance::TestDomain;
use weft_conformance::object_store::bench::{HERE, OBJECT, VOLUME};
use weft_core::service::ObjectStore;
use weft_core::{Clock, Rights, Tick, Time};
use weft_kv::{Embedded, Engine, Options as KvOptions};
use weft_sys::{SimDisk, Sys};

use super::*;
use crate::{Directory, Options};

struct Real(Sys);

impl Clock for Real {
    fn now(&self) -> Time {
        self.0.clock().now()
    }

    fn tick(&self) -> Tick {
        self.0.clock().tick()
    }
}

/// Threads that make room hold the table of what is open and look at each object in it: were an
/// object held by who waits for the table, neither would go on.
#[test]
#[expect(clippy::disallowed_methods, reason = "the order of locks matters between threads only")]
fn who_ends_a_seal_waits_for_the_table_with_no_object_held() {
    // More threads than the store has tasks of its own that wait for the table meanwhile.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(6).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let (inner, live) = runtime.block_on(async {
        let sys = Sys::real();
        let engine = Embedded::open(sys.clone(), Arc::new(SimDisk::new()), KvOptions::default());
        let engine: Arc<dyn Engine> = Arc::new(engine.expect("it opens"));
        let store = Directory::open(sys.clone(), Arc::new(SimDisk::new()), engine, Options::default()).await;
        let store = store.expect("it opens");
        let domain = TestDomain::new(1, Arc::new(Real(sys.clone())), &[VOLUME]);
        let all = domain.granted(&domain.caller("ada"), HERE, Rights::ALL);
        store.make(&all, OBJECT, None).await.expect("a fresh id");
        let inner = store.inner.clone();
        let live = inner.known(OBJECT).expect("it was just made");
        // Dropping the store would stop what is to be watched.
        std::mem::forget(store);
        (inner, live)
    });
    let table = inner.writing_table();
    let (sealing, sealed) = (inner.clone(), live.clone());
    runtime.spawn(async move { sealing.seal(&sealed).await });
    let (said, hears) = channel();
    std::thread::spawn(move || {
        while live.state().phase != Phase::Sealed {
            std::thread::yield_now();
        }
        let _ = said.send(());
    });
    hears.recv_timeout(Duration::from_secs(60)).expect("the object is held by who waits for the table");
    drop(table);
}
