//! Builds: a real C project, a crate.

use weft_conformance::run::brought;

use super::{have, script};
use crate::bed::Bed;

#[test]
fn a_c_project_is_cloned_and_built_and_its_product_works() {
    if !have("make", &["make", "cc", "git"]) {
        return;
    }
    if let Some(source) = brought("make", "src/bzip2") {
        script(&Bed::new(), include_str!("c_project.sh"), &[("SOURCE", source.as_os_str())]);
    }
}

#[test]
fn cargo_builds_and_tests_a_crate_and_knows_what_is_fresh() {
    if have("cargo build", &["cargo", "cc"]) {
        script(&Bed::new(), include_str!("crate.sh"), &[]);
    }
}
