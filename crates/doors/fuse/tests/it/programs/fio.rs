//! fio: what it wrote through one mount, it finds through that one and through another.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output};

use weft_conformance::run::full;

use super::have;
use crate::bed::Bed;

/// Has fio do the jobs in a directory, or only compare what they wrote there.
fn fio(directory: &Path, only_compare: bool) -> Output {
    let (size, part) = if full() { ("32M", "4M") } else { ("1M", "256k") };
    let mut fio = Command::new("fio");
    fio.env("SIZE", size).env("PART", part).args(only_compare.then_some("--verify_only"));
    fio.arg("--output-format=terse").arg("--directory").arg(directory);
    fio.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fio.ini"));
    fio.current_dir(std::env::temp_dir()).output().expect("it runs")
}

#[test]
fn fio_finds_what_it_wrote_through_either_mount() {
    if !have("fio", &["fio"]) {
        return;
    }
    let bed = Bed::new();
    let again = bed.mount_again("alice", 2);
    for (mount, only_compare) in [(bed.path(), false), (&again.join("."), true)] {
        let said = fio(mount, only_compare);
        assert!(said.status.success(), "only compare: {only_compare}: {said:?}");
    }
    // One byte that is another is noticed, or this tests nothing.
    let file = File::options().write(true).open(again.join("mapped.0.0")).expect("opened");
    file.write_all_at(&[0], 100_000).expect("written");
    assert!(!fio(bed.path(), true).status.success());
}
