//! What people write: rights, names of callers, networks, ids, paths. Whatever is read is
//! written so that it reads the same.

use weft_conformance::file_system::site::Dice;
use weft_conformance::fuzz::fuzz;
use weft_core::acl::Network;
use weft_core::{CallerName, ContainerId, DomainId, Rights};

fn words(dice: &mut Dice, of: &[&str], between: &str) -> Vec<u8> {
    let count = 1 + dice.roll(4);
    (0..count).map(|_| *dice.pick(of)).collect::<Vec<_>>().join(between).into_bytes()
}

fn home() -> DomainId {
    DomainId([7; 32])
}

#[test]
fn rights() {
    let make =
        |dice: &mut Dice| words(dice, &["read", "=read", "write", "all", "none", "rlidwka", "insert"], ",");
    fuzz("rights", make, |bytes| {
        let Ok(rights) = Rights::parse(&String::from_utf8_lossy(bytes)) else { return };
        assert!(Rights::ALL.contains(rights));
        assert_eq!(Rights::parse(&rights.to_string()).expect("it was just written"), rights);
    });
}

#[test]
fn callers() {
    let make = |dice: &mut Dice| {
        let kind = *dice.pick(&["", "group:", "node:", "anyone", "user:"]);
        let local = words(dice, &["alice", "x", "caf\u{e9}", "admin/administrators", "a.b"], "/");
        let domain = format!("@{}", home());
        let domain = *dice.pick(&["", "@", domain.as_str()]);
        [kind.as_bytes(), &local, domain.as_bytes()].concat()
    };
    fuzz("caller", make, |bytes| {
        let Ok(name) = CallerName::parse(&String::from_utf8_lossy(bytes), home()) else { return };
        let again = CallerName::parse(&name.to_string(), DomainId([9; 32])).expect("it was just written");
        assert_eq!(again, name);
    });
}

#[test]
fn networks() {
    let make = |dice: &mut Dice| words(dice, &["10.0.0.0", "fe80::1", "::ffff:1.2.3.4", "8", "128"], "/");
    fuzz("network", make, |bytes| {
        let Ok(network) = String::from_utf8_lossy(bytes).parse::<Network>() else { return };
        assert_eq!(network.to_string().parse::<Network>().expect("it was just written"), network);
    });
}

#[test]
fn ids() {
    let make = |dice: &mut Dice| {
        let (domain, id) = (home().to_string(), ContainerId(0xc8).to_string());
        words(dice, &[domain.as_str(), id.as_str(), "f007"], "")
    };
    fuzz("id", make, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        if let Ok(id) = text.parse::<ContainerId>() {
            assert_eq!(id.to_string().parse::<ContainerId>().expect("it was just written"), id);
        }
        if let Ok(domain) = text.parse::<DomainId>() {
            assert_eq!(domain.to_string().parse::<DomainId>().expect("it was just written"), domain);
        }
    });
}
