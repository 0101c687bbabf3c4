//! How long a connection believes who speaks on it.

use std::time::Duration;

use weft_core::limits;
use weft_core::service::Revoke;
use weft_doors_listener::Bounds;
use weft_sys::Sys;

use crate::house::{House, PASSWORD};
use crate::raw::{Raw, basic};

/// Between two requests of a guest who never rests so long that the connection is closed.
const STEP: Duration = Duration::from_secs(15);

#[tokio::test]
async fn a_connection_that_never_rests_shows_its_password_again_every_five_minutes() {
    let sys = Sys::simulated(1);
    let clock = sys.sim_clock().expect("it is simulated").clone();
    let house = House::on(sys, Bounds::default()).await;
    let mut raw = Raw::connect(house.address).await;
    // Twice, so that the second time counts from its own proof.
    for (old, new) in [(PASSWORD, "new"), ("new", "newer")] {
        assert_eq!(raw.ask("GET /", &basic("alice", old), b"").await.status, 200);
        house.set_password("alice", new);
        let mut gone = Duration::ZERO;
        while raw.ask("GET /", &basic("alice", old), b"").await.status == 200 {
            clock.step(STEP);
            gone += STEP;
            assert!(gone <= limits::PASSWORD_REMEMBERED, "it is believed for {gone:?} and longer");
        }
        assert_eq!(gone, limits::PASSWORD_REMEMBERED, "until then it is asked once");
    }
    // What was ended is not waited for.
    assert_eq!(raw.ask("GET /", &basic("alice", "newer"), b"").await.status, 200);
    house.set_password("alice", "newest");
    clock.step(STEP);
    house.authority_revoke(&Revoke::Caller(house.domain.name("alice"))).await;
    assert_eq!(raw.ask("GET /", &basic("alice", "newer"), b"").await.status, 401);
}
