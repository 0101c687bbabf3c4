use weft_conformance::ShownBy;
use weft_sys::{Open, SimDisk};

use super::*;

/// Makes a certificate in place of another, cuts the power and looks. `true` if it is there, and its key.
fn kept(seed: u64, ignored: Option<FlushSite>) -> bool {
    let disk = SimDisk::new();
    disk.set_faults(|faults| faults.ignore.extend(ignored));
    for number in 1..=2 {
        let own = Own { chain: format!("chain {number}"), key: format!("key {number}") };
        keep(&disk, &own).expect("the disk is on");
    }
    let disk = disk.crash(seed);
    let is_whole = |name: &str, text: &str| {
        let mut bytes = vec![0; text.len()];
        let read = disk.open(&format!("{TLS}/{name}"), Open::Read).and_then(|file| {
            file.read_exact_at(&mut bytes, 0)?;
            file.len()
        });
        read.is_ok_and(|len| len == text.len() as u64) && bytes == text.as_bytes()
    };
    is_whole(CHAIN, "chain 2") && is_whole(KEY, "key 2")
}

#[test]
fn the_nodes_own_certificate_survives_a_crash_because_of_its_flushes() {
    assert!((0..50).all(|seed| kept(seed, None)));
    for site in ShownBy::NodeCertificate.sites() {
        assert!((0..200).any(|seed| !kept(seed, Some(site))), "nothing is lost without {site:?}");
    }
}
