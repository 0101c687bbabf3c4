//! The checker: a search for an order, after Wing and Gong, that remembers where it
//! has been.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;

use weft_core::{ErrorKind, FileId};

use super::record::{Act, Answer, Event, made};

/// What a group's names lead to: the plain map that answers are compared with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Contents {
    /// File and mode under each place that has one.
    names: BTreeMap<u8, FileId>,
    modes: BTreeMap<FileId, u16>,
}

impl Contents {
    fn told(&self, id: FileId) -> Answer {
        let links = self.names.values().filter(|other| **other == id).count() as u32;
        if links == 0 {
            return Answer::Done;
        }
        Answer::File { id, mode: self.modes.get(&id).copied().unwrap_or(0), links }
    }

    /// Carries out an event, if the answer that was heard can be the answer here.
    /// Without an answer, anything may have been it.
    fn follow(&self, event: &Event) -> Option<Self> {
        let (next, answer) = self.step(event)?;
        match event.answer {
            Some(heard) => (heard == answer).then_some(next),
            None => Some(next),
        }
    }

    /// Returns what a plain map becomes and answers; `None` if the event made a file
    /// whose id is not known because no answer came: such a file is nobody's to see.
    fn step(&self, event: &Event) -> Option<(Self, Answer)> {
        let refused = |kind| Some((self.clone(), Answer::Refused(kind)));
        let found = |place: u8| self.names.get(&place).copied();
        let mut next = self.clone();
        match event.act {
            Act::Make(spot) => {
                if found(spot.place).is_some() {
                    return refused(ErrorKind::Exists);
                }
                let id = match event.answer {
                    Some(Answer::File { id, .. }) => id,
                    Some(_) => return None,
                    None => unknown(event),
                };
                next.names.insert(spot.place, id);
                let Answer::File { mode, .. } = made(id) else { return None };
                next.modes.insert(id, mode);
                Some((next, made(id)))
            }
            Act::Link(from, to) => match (found(from.place), found(to.place)) {
                (None, _) => refused(ErrorKind::NotFound),
                (_, Some(_)) => refused(ErrorKind::Exists),
                (Some(id), None) => {
                    next.names.insert(to.place, id);
                    let told = next.told(id);
                    Some((next, told))
                }
            },
            Act::Rename(from, to, replace) => match (found(from.place), found(to.place)) {
                (None, _) => refused(ErrorKind::NotFound),
                (_, Some(_)) if !replace => refused(ErrorKind::Exists),
                (Some(id), Some(there)) if id == there => Some((self.clone(), self.told(id))),
                (Some(id), there) => {
                    next.names.remove(&from.place);
                    next.names.insert(to.place, id);
                    if let Some(there) = there {
                        next.forget(there);
                    }
                    let told = next.told(id);
                    Some((next, told))
                }
            },
            Act::Remove(spot) => match found(spot.place) {
                None => refused(ErrorKind::NotFound),
                Some(id) => {
                    next.names.remove(&spot.place);
                    let told = next.told(id);
                    next.forget(id);
                    Some((next, told))
                }
            },
            Act::Set(spot, mode) => match found(spot.place) {
                None => refused(ErrorKind::NotFound),
                Some(id) => {
                    next.modes.insert(id, mode);
                    let told = next.told(id);
                    Some((next, told))
                }
            },
            Act::Walk(spot) => match found(spot.place) {
                None => refused(ErrorKind::NotFound),
                Some(id) => Some((self.clone(), self.told(id))),
            },
        }
    }

    fn forget(&mut self, id: FileId) {
        if !self.names.values().any(|other| *other == id) {
            self.modes.remove(&id);
        }
    }

    /// Gives a file that was made without an answer the id under which somebody else
    /// meets it.
    fn recognise(&self, event: &Event) -> Option<Self> {
        let Some(Answer::File { id, .. }) = event.answer else { return None };
        let place = match event.act {
            Act::Link(spot, _) | Act::Rename(spot, _, _) | Act::Remove(spot) => spot.place,
            Act::Set(spot, _) | Act::Walk(spot) => spot.place,
            Act::Make(_) => return None,
        };
        let stranger = *self.names.get(&place)?;
        if !is_unknown(stranger) || self.modes.contains_key(&id) {
            return None;
        }
        let mut next = self.clone();
        for name in next.names.values_mut().filter(|name| **name == stranger) {
            *name = id;
        }
        let mode = next.modes.remove(&stranger)?;
        next.modes.insert(id, mode);
        Some(next)
    }
}

/// The id that stands for a file whose making was not answered.
fn unknown(event: &Event) -> FileId {
    FileId::new(weft_core::VolumeId(u16::MAX), event.begun, u32::MAX)
}

fn is_unknown(id: FileId) -> bool {
    id.volume() == weft_core::VolumeId(u16::MAX)
}

/// Looks for an order of the events, which begin over `start`, that explains every
/// answer. If there is none, returns the longest beginning that it found one for.
pub fn check(events: &[Event], start: &Contents) -> Result<(), String> {
    let mut search = Search { events, seen: HashSet::new(), furthest: (0, String::new()) };
    let mut done = vec![false; events.len()];
    if search.go_on(&mut done, 0, start) { Ok(()) } else { Err(search.furthest.1) }
}

struct Search<'a> {
    events: &'a [Event],
    /// Which events were put in order, and what they led to: no use trying that again.
    seen: HashSet<(Vec<bool>, Contents)>,
    furthest: (usize, String),
}

impl Search<'_> {
    /// Puts one more event in order, any of those that no other one had to precede.
    fn go_on(&mut self, done: &mut [bool], count: usize, contents: &Contents) -> bool {
        let open = |n: &usize| !done[*n];
        let answered = |n: &usize| self.events[*n].answer.is_some();
        let Some(first_end) =
            (0..self.events.len()).filter(open).filter(answered).map(|n| self.events[n].ended).min()
        else {
            // What is left never answered: it need not have happened.
            return true;
        };
        if !self.seen.insert((done.to_vec(), contents.clone())) {
            return false;
        }
        if count >= self.furthest.0 {
            self.furthest = (count, self.show(done, contents));
        }
        let next: Vec<usize> =
            (0..self.events.len()).filter(open).filter(|n| self.events[*n].begun < first_end).collect();
        for n in next {
            let event = self.events[n];
            let known = contents.recognise(&event);
            let after = contents.follow(&event).or_else(|| known.and_then(|known| known.follow(&event)));
            let Some(after) = after else { continue };
            done[n] = true;
            if self.go_on(done, count + 1, &after) {
                return true;
            }
            done[n] = false;
        }
        false
    }

    fn show(&self, done: &[bool], contents: &Contents) -> String {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "in order so far: {} of {}; then {contents:?}",
            done.iter().filter(|d| **d).count(),
            done.len()
        );
        for (event, done) in self.events.iter().zip(done) {
            let _ = writeln!(text, "  {} {event:?}", if *done { "done" } else { "    " });
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use weft_core::VolumeId;

    use super::super::record::Spot;
    use super::*;

    const A: Spot = Spot { group: 0, place: 0 };
    const B: Spot = Spot { group: 0, place: 1 };

    fn id(n: u64) -> FileId {
        FileId::new(VolumeId(0), n, 0)
    }

    fn file(n: u64, mode: u16, links: u32) -> Option<Answer> {
        Some(Answer::File { id: id(n), mode, links })
    }

    fn event(begun: u64, ended: u64, act: Act, answer: Option<Answer>) -> Event {
        Event { begun, ended, act, answer }
    }

    const NOT_FOUND: Option<Answer> = Some(Answer::Refused(ErrorKind::NotFound));
    const EXISTS: Option<Answer> = Some(Answer::Refused(ErrorKind::Exists));

    #[test]
    fn events_that_overlap_may_be_put_either_way() {
        for answer in [file(7, 0o600, 1), NOT_FOUND] {
            let events = [event(0, 3, Act::Make(A), file(7, 0o600, 1)), event(1, 2, Act::Walk(A), answer)];
            assert_eq!(check(&events, &Contents::default()), Ok(()));
        }
    }

    #[test]
    fn an_event_is_not_put_before_one_that_ended_first() {
        let events = [event(0, 1, Act::Make(A), file(7, 0o600, 1)), event(2, 3, Act::Walk(A), NOT_FOUND)];
        assert!(check(&events, &Contents::default()).is_err());
    }

    #[test]
    fn two_who_both_make_one_name_are_found_out() {
        let events =
            [event(0, 3, Act::Make(A), file(7, 0o600, 1)), event(1, 2, Act::Make(A), file(8, 0o600, 1))];
        assert!(check(&events, &Contents::default()).is_err());
    }

    #[test]
    fn a_rename_seen_half_done_is_found_out() {
        let before = event(0, 1, Act::Make(A), file(7, 0o600, 1));
        let rename = event(2, 9, Act::Rename(A, B, true), file(7, 0o600, 1));
        let neither = [event(3, 4, Act::Walk(A), NOT_FOUND), event(5, 6, Act::Walk(B), NOT_FOUND)];
        assert!(check(&[before, rename, neither[0], neither[1]], &Contents::default()).is_err());
        let moved = event(5, 6, Act::Walk(B), file(7, 0o600, 1));
        assert_eq!(check(&[before, rename, neither[0], moved], &Contents::default()), Ok(()));
    }

    #[test]
    fn a_stale_mode_or_link_count_is_found_out() {
        let make = event(0, 1, Act::Make(A), file(7, 0o600, 1));
        let set = event(2, 3, Act::Set(A, 0o444), file(7, 0o444, 1));
        let link = event(4, 5, Act::Link(A, B), file(7, 0o444, 2));
        for (walk, good) in
            [(file(7, 0o444, 2), true), (file(7, 0o600, 2), false), (file(7, 0o444, 1), false)]
        {
            let events = [make, set, link, event(6, 7, Act::Walk(A), walk)];
            assert_eq!(check(&events, &Contents::default()).is_ok(), good, "{walk:?}");
        }
    }

    #[test]
    fn an_unanswered_event_may_have_happened_late_or_never() {
        let make = event(0, u64::MAX, Act::Make(A), None);
        for answer in [NOT_FOUND, file(7, 0o600, 1)] {
            let events = [make, event(1, 2, Act::Walk(A), NOT_FOUND), event(3, 4, Act::Walk(A), answer)];
            assert_eq!(check(&events, &Contents::default()), Ok(()), "{answer:?}");
        }
        let events =
            [make, event(1, 2, Act::Walk(A), file(7, 0o600, 1)), event(3, 4, Act::Walk(A), NOT_FOUND)];
        assert!(check(&events, &Contents::default()).is_err(), "it happened and was not undone");
        let events = [make, event(1, 2, Act::Make(A), EXISTS), event(3, 4, Act::Walk(A), file(9, 0o600, 1))];
        assert_eq!(check(&events, &Contents::default()), Ok(()));
    }
}
