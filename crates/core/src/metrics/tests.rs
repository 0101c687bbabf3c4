use std::collections::BTreeSet;

use super::*;
use crate::error::ErrorKind;

#[test]
fn names_say_part_and_unit_and_are_of_one_metric() {
    let parts = ["doors", "mover", "kv", "store", "auth", "volume", "node", "process"]
        .map(|part| format!("weft_{part}_"));
    let mut seen = BTreeSet::new();
    for entry in Metrics::CATALOGUE {
        let name = entry.name;
        assert!(seen.insert(name), "{name} is there twice");
        assert!(parts.iter().any(|part| name.starts_with(part)), "{name}");
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
        assert_eq!(name.ends_with("_total"), entry.kind == Kind::Counter, "{name}");
        let bare = name.trim_end_matches("_total");
        assert_eq!(bare.ends_with("_bytes"), entry.unit == Unit::Bytes, "{name}");
        assert_eq!(bare.ends_with("_seconds"), entry.unit == Unit::Seconds, "{name}");
        let help = entry.help.trim();
        assert!(help.ends_with('.') && !help.contains(['\n', '\\', '"']), "{name}: {help}");
    }
}

#[test]
fn labels_have_few_values_that_need_no_escape() {
    for entry in Metrics::CATALOGUE {
        let cells: usize = entry.labels.iter().map(|(_, values)| values.len()).product();
        assert!(cells <= 128, "{} has {cells} cells", entry.name);
        for (label, values) in entry.labels {
            assert!(label.bytes().all(|byte| byte.is_ascii_lowercase()), "{label}");
            assert_eq!(values.iter().collect::<BTreeSet<_>>().len(), values.len(), "{label}");
            let plain =
                |value: &&str| value.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"\\".contains(&byte));
            assert!(values.iter().all(plain), "{label}: {values:?}");
        }
    }
}

/// The value of a sample with these labels.
fn value(metrics: &Metrics, name: &str, labels: &[(&str, &str)]) -> u64 {
    let families = metrics.families();
    let (_, samples) = families.iter().find(|(entry, _)| entry.name == name).expect("it is in the catalogue");
    samples.iter().find(|sample| sample.labels == labels).expect("there is such a cell").value
}

#[test]
fn what_is_counted_shows_under_its_own_labels_and_no_other() {
    let metrics = Metrics::default();
    metrics.doors_requests.count((Way::Https, Work::Lock, Outcome::Failed));
    metrics.doors_errors.add((Way::Native, ErrorKind::Internal), 3);
    let requests = [("door", "https"), ("work", "lock"), ("outcome", "failed")];
    assert_eq!(value(&metrics, "weft_doors_requests_total", &requests), 1);
    assert_eq!(value(&metrics, "weft_doors_errors_total", &[("door", "native"), ("kind", "internal")]), 3);
    let all: u64 =
        metrics.families().iter().flat_map(|(_, samples)| samples).map(|sample| sample.value).sum();
    assert_eq!(all, 4);
    metrics.doors_connections.enter((Way::Http,));
    metrics.doors_connections.enter((Way::Http,));
    metrics.doors_connections.leave((Way::Http,));
    assert_eq!(value(&metrics, "weft_doors_connections", &[("door", "http")]), 1);
}

#[test]
fn every_kind_of_error_is_its_own_label() {
    for (at, kind) in ErrorKind::ALL.into_iter().enumerate() {
        assert_eq!((kind.place(), ErrorKind::VALUES[at]), (at, kind.name()));
    }
}
