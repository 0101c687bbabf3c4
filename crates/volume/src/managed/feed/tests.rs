//! What the ring keeps.

use weft_core::{CallerId, SessionId, VolumeId};

use super::super::act::encode;
use super::*;

fn note(position: u64, depth: u64) -> Note {
    let id = |serial| FileId::new(VolumeId(0), serial, 0);
    let change = Change {
        seq: ChangeSeq(0),
        kind: ChangeKind::Write,
        file: id(7),
        place: None,
        to: None,
        caller: CallerId::ANYONE,
        session: SessionId(1),
    };
    let noted = Noted { change, within: (0..depth).map(id).collect(), container: ContainerId(1) };
    Note {
        position: NotePosition(position),
        commit: weft_kv::Commit(position),
        bytes: encode(&noted).unwrap().into(),
    }
}

#[test]
fn changes_far_down_take_no_more_memory_than_others() {
    let (feed, depth) = (Feed::default(), 10_000);
    let mut acknowledged = 0;
    for position in 1..=4 * (limits::CHANGES_BYTES_KEPT as u64 / (depth * 16)) {
        acknowledged = feed.take(vec![note(position, depth)]).map_or(acknowledged, |to| to.0);
        let ring = feed.lock();
        let held: usize = ring.kept.iter().map(Noted::weight).sum();
        assert!(held <= limits::CHANGES_BYTES_KEPT && held == ring.bytes, "{held}");
        assert_eq!(ring.kept.front().map(|noted| noted.change.seq.0), Some(acknowledged + 1));
    }
    assert!(acknowledged > 0);
    assert_eq!(feed.after(ChangeSeq(0), 1).unwrap_err().kind(), weft_core::ErrorKind::Stale);
    assert_eq!(feed.after(feed.last(), 1).unwrap().len(), 0);
}

#[test]
fn as_many_ordinary_changes_are_kept_as_the_limit_says() {
    let feed = Feed::default();
    let all = limits::CHANGES_KEPT as u64;
    let dropped = (1..=all + 5).filter_map(|position| feed.take(vec![note(position, 10)])).count();
    assert_eq!((dropped, feed.lock().kept.len() as u64), (5, all));
}
