//! Every store against the laws, and against a vector of bytes.

use proptest::prelude::*;
use weft_conformance::object_store::oracle::{Step, follow};

use crate::node;

mod on_disk {
    weft_conformance::object_store_suite!(crate::node::law_on_disk);
}

mod simulated {
    weft_conformance::object_store_suite!(crate::node::law_simulated);
}

mod always_verified {
    weft_conformance::object_store_suite!(crate::node::law_always_verified);
}

mod in_memory {
    weft_conformance::object_store_suite!(crate::node::law_in_memory);
}

mod of_the_model {
    weft_conformance::object_store_suite!(crate::node::law_on_model);
}

/// Bytes of an object in the property tests: a few blocks.
const REACH: u64 = 3 << 20;

/// Places where something begins or ends are worth more than others.
fn place() -> impl Strategy<Value = u64> {
    let edge = (0..4_u64, -3_i64..4).prop_map(|(block, by)| (block << 20).saturating_add_signed(by));
    prop_oneof![0..REACH, edge, 0..100_u64, (0..REACH / 4096).prop_map(|page| page * 4096)]
}

fn length() -> impl Strategy<Value = u64> {
    prop_oneof![0..100_u64, 0..70_000_u64, Just(1 << 20), 0..2_000_000_u64]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (place(), length()).prop_map(|(at, length)| Step::Write(at, length as usize)),
        2 => (0..200_000_usize).prop_map(Step::Append),
        2 => place().prop_map(Step::Truncate),
        2 => (place(), length()).prop_map(|(at, length)| Step::Punch(at, length)),
        1 => (place(), length(), any::<bool>()).prop_map(|(at, length, keep)| Step::Zero(at, length, keep)),
        1 => (place(), length(), any::<bool>()).prop_map(|(at, length, keep)| Step::Allocate(at, length, keep)),
        1 => (place(), length(), place()).prop_map(|(at, length, to)| Step::Copy(at, length, to)),
        3 => (place(), length()).prop_map(|(at, length)| Step::Read(at, length)),
        1 => place().prop_map(Step::Seek),
        2 => Just(Step::Seal),
        1 => Just(Step::Sync),
        1 => (0..7_u64).prop_map(Step::Rest),
        1 => Just(Step::Restart),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..25)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_steps_on_a_simulated_disk_do_what_they_do_to_a_vector(steps in steps(), seed in 0..u64::MAX) {
        node::simulated(seed, weft_store::Options::default(), async |node, _| follow(&node, &steps).await);
    }

    #[test]
    fn any_steps_on_a_real_disk_do_what_they_do_to_a_vector(steps in steps()) {
        node::on_disk(async |node| follow(&node, &steps).await);
    }

    #[test]
    fn any_steps_in_memory_do_what_they_do_to_a_vector(steps in steps()) {
        node::in_memory(async |subject| follow(subject, &steps).await);
    }
}
