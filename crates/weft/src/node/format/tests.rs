use weft_conformance::ShownBy;
use weft_conformance::file_system::site::Dice;
use weft_conformance::fuzz::fuzz;
use weft_sys::SimDisk;

use super::super::backup;
use super::super::directory::NodeDirectory;
use super::*;

/// Whoever raises a version of a part raises [`FORMAT`] too: else an older program would change other parts of a
/// directory before it comes to that one.
#[test]
fn what_the_format_stands_for_is_as_it_was_when_it_was_raised() {
    let parts = [
        weft_store::SCHEMA.version,
        weft_volume::managed::SCHEMA.version,
        weft_volume::name_locks::SCHEMA.version,
        weft_auth::SCHEMA_VERSION,
    ];
    assert_eq!((FORMAT, parts), (2, [1, 1, 1, 2]));
    let files = weft_kv::FILE_FORMATS.iter().chain(&weft_auth::FILE_FORMATS);
    let files: Vec<_> = files.copied().chain([backup::LAYOUT.as_bytes()]).collect();
    let expected: [&[u8]; 5] =
        [b"WEFTKV01", b"WEFTKVB1", b"weft audit log 2", b"weft key v1\n", b"weft backup 3\n"];
    assert_eq!((FORMAT, weft_kv::TREE_FORMAT, &files[..]), (2, 2, &expected[..]));
}

#[test]
fn a_directory_that_was_left_before_it_said_its_format_is_taken_and_can_be_given_up() {
    let home = tempfile::tempdir().expect("a directory");
    let path = home.path().join("node");
    let directory = NodeDirectory::take(&path, true, "test").expect("it is ours");
    std::fs::write(path.join(MAKING), "weft for").expect("it can be written");
    directory.release().expect("nobody else has it");
    // As after a full disk, or a kill.
    let directory = NodeDirectory::take(&path, true, "test").expect("it may become a node's");
    directory.release().expect("nobody else has it");
    let other = home.path().join("other");
    let directory = NodeDirectory::take_empty(&other, "test").expect("it is ours");
    std::fs::write(other.join(MAKING), "weft for").expect("it can be written");
    directory.give_up().expect("nobody else has it");
    assert!(!other.exists(), "the next restore finds it empty");
}

#[test]
fn a_directory_that_says_nothing_is_older_and_one_that_says_more_is_refused() {
    let disk = SimDisk::new();
    let none = Format::read(&disk).expect("it is none");
    none.check("use", Path::new("/d")).expect("it is older");
    assert_eq!(none.number, UNSAID);
    Format::own().write(&disk).expect("the disk is on");
    assert_eq!(Format::read(&disk).expect("it is there"), Format::own());
    let newer = Format { number: FORMAT + 1, program: "7.8.9".to_owned() };
    newer.write(&disk).expect("the disk is on");
    let error = Format::read(&disk).expect("it is there").check("use", Path::new("/d")).expect_err("newer");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let text = format!("{error} {}", error.advice().unwrap_or_default());
    for word in ["7.8.9", env!("CARGO_PKG_VERSION"), "restore a backup"] {
        assert!(text.contains(word), "{text}");
    }
}

#[test]
fn a_mutated_file_is_refused_or_means_what_is_written_in_it() {
    let make = |dice: &mut Dice| {
        let number = 2 + dice.roll(1000) as u32;
        Format { number, program: format!("{}.{}", dice.roll(10), dice.roll(100)) }.text().into_bytes()
    };
    fuzz("format of a directory", make, |bytes| {
        if let Some(format) = Format::parse(bytes) {
            assert_eq!(Format::parse(format.text().as_bytes()), Some(format));
        }
    });
}

/// Writes the file twice, cuts the power and looks. `true` if the second is there.
fn written(seed: u64, ignored: Option<FlushSite>) -> bool {
    let disk = SimDisk::new();
    Format { number: 2, program: "1".to_owned() }.write(&disk).expect("the disk is on");
    let newer = Format { number: 3, program: "2".to_owned() };
    disk.set_faults(|faults| faults.ignore.extend(ignored));
    newer.write(&disk).expect("the disk is on");
    Format::read(&disk.crash(seed)).is_ok_and(|found| found == newer)
}

#[test]
fn what_was_said_survives_a_crash_because_of_its_flushes() {
    assert!((0..50).all(|seed| written(seed, None)));
    for site in ShownBy::NodeFormat.sites() {
        assert!((0..200).any(|seed| !written(seed, Some(site))), "nothing is lost without {site:?}");
    }
}
