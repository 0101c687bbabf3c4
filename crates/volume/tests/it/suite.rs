//! The laws of the request form, all of them.

use super::site::Volume;

async fn fresh() -> Volume {
    Volume::fresh(1).await
}

weft_conformance::file_system_suite!(fresh);

/// More seeds of the random comparison with the plain model, each with restarts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_seeds_are_answered_as_the_model_answers() {
    for seed in 2..42 {
        weft_conformance::file_system::oracle::run(&Volume::fresh(seed).await, seed, 600).await;
    }
}
