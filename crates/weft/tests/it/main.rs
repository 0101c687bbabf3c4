//! The real binary: nodes, commands, doors and mounts as processes of their own.
//!
//! Where the tests are root, nodes and mounts run as `nobody`. Tests that mount need
//! `/dev/fuse` and `fusermount3`; those of a full disk need root for a small tmpfs;
//! `programs` and `trees` need the programs they name. What is missing is counted in the
//! file named by `WEFT_NOT_RUN`, and fails the test where nobody counts.

// Figures, and the log of a node whose test failed.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod accounts;
mod backups;
mod beneath;
mod browser;
mod certificates;
mod checking;
mod clients;
mod clocks;
mod commands;
mod configuring;
/// The tester of two mounts, which the mount's own tests run over the model.
#[path = "../../../doors/fuse/tests/it/consistency.rs"]
mod consistency;
mod copying;
mod copying_out;
mod copying_trees;
mod copying_within;
mod corrupt;
mod crash;
mod damaged;
mod drop_boxes;
mod exports;
mod faulty_line;
mod full;
mod guides;
mod http;
mod http2;
mod https;
mod input;
mod interrupts;
mod issuers;
mod killed;
mod life;
mod links;
mod logging;
mod looking;
mod machine;
mod monitor;
mod mounting;
mod moving;
mod node;
mod older;
mod operands;
mod options;
mod other_doors;
mod owners;
mod page;
mod pjdfstest;
mod programs;
mod progress;
#[expect(dead_code, reason = "the mount's own tests need all of it, the tester of two mounts a part")]
#[path = "../../../doors/fuse/tests/it/raw.rs"]
mod raw;
mod reference;
mod rights;
mod rotating;
mod scripts;
mod scrubbing;
mod servers;
mod servers_at_once;
mod shared_mounts;
mod shared_node;
mod shares;
mod shell;
mod streams;
mod suites;
mod taking_over;
mod third_party;
mod tokens;
mod trees;
mod two_mounts;
mod under_load;
mod untouched;
mod upgrading;
mod uploads;
mod vanished;
mod webdav;
mod wellness;
mod withdrawn;
