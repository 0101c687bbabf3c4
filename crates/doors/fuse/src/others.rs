//! What others have changed since a question was asked: an answer about it, or one that leads to it, may be of before.
//!
//! The kernel was told of such a change, or is about to be. Of what it did not know yet it took no notice, and the answer that
//! brings it would be believed. So answers are asked for again that others' changes overtook, each by what it is of: were it by any
//! change at all, a mount of a tree that is written all the time would believe nothing, and ask the more the slower it is answered.

use std::collections::VecDeque;

use weft_core::form::Change;
use weft_core::{FileId, Name};

/// Files and names of the last changes, at most: some pages of the feed, and more than come while one question waits. Of what is
/// older anything may have changed.
const TOUCHED_MAX: usize = 4096;

/// Changes by others.
#[derive(Default)]
pub(crate) struct Others {
    count: u64,
    /// What the last ones were of, each with its change's number, oldest first.
    touched: VecDeque<(u64, Touched)>,
    /// Up to this one they may have been of anything.
    of_anything: u64,
}

/// What a change was of.
enum Touched {
    /// A file's bytes or attributes, or those of a directory.
    File(FileId),
    /// A name in a directory.
    Name(FileId, Name),
}

/// How many changes there had been once.
#[derive(Clone, Copy)]
pub(crate) struct Then(u64);

impl Others {
    /// Returns the present, which a question is asked in.
    pub(crate) fn now(&self) -> Then {
        Then(self.count)
    }

    /// Notes changes, of which all is known that they were of.
    pub(crate) fn changed(&mut self, changes: &[Change]) {
        self.count += 1;
        for change in changes {
            self.touch(Touched::File(change.file));
            for (directory, name) in change.names() {
                self.touch(Touched::File(*directory));
                self.touch(Touched::Name(*directory, name.clone()));
            }
        }
    }

    fn touch(&mut self, what: Touched) {
        if self.touched.len() == TOUCHED_MAX
            && let Some((number, _)) = self.touched.pop_front()
        {
            self.of_anything = number;
        }
        self.touched.push_back((self.count, what));
    }

    /// Notes that anything may have changed.
    pub(crate) fn anything(&mut self) {
        self.count += 1;
        self.of_anything = self.count;
        self.touched.clear();
    }

    /// Returns whether a file may have changed since, or a directory.
    pub(crate) fn touched_file(&self, then: Then, file: FileId) -> bool {
        self.any_since(then, |what| matches!(what, Touched::File(other) if *other == file))
    }

    /// Returns whether a name may mean something else since.
    pub(crate) fn touched_name(&self, then: Then, directory: FileId, name: &[u8]) -> bool {
        let is_it = |what: &Touched| matches!(what, Touched::Name(other, its) if *other == directory && its.as_bytes() == name);
        self.any_since(then, is_it)
    }

    fn any_since(&self, then: Then, is_it: impl Fn(&Touched) -> bool) -> bool {
        let mut since = self.touched.iter().rev().take_while(|(number, _)| *number > then.0);
        self.of_anything > then.0 || since.any(|(_, what)| is_it(what))
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use weft_core::form::ChangeKind;

    use super::*;
    use crate::nodes::tests::{attr, change};

    fn written(files: Range<u64>) -> Vec<Change> {
        files.map(|file| change(ChangeKind::Write, file)).collect()
    }

    fn touched(others: &Others, then: Then, file: u64) -> bool {
        others.touched_file(then, attr(file, 0, 0).id)
    }

    #[test]
    fn what_changed_since_a_question_touches_it_and_what_changed_before_or_is_another_does_not() {
        let mut others = Others::default();
        others.changed(&written(1..3));
        let then = others.now();
        assert!(!touched(&others, then, 1) && !touched(&others, then, 3));
        others.changed(&written(2..4));
        assert!(touched(&others, then, 2) && touched(&others, then, 3) && !touched(&others, then, 1));
        assert!(!touched(&others, others.now(), 2));
        others.anything();
        assert!(touched(&others, then, 1) && !touched(&others, others.now(), 1));
    }

    #[test]
    fn a_change_of_names_touches_them_their_directories_and_the_file_and_no_other_name() {
        let place =
            |directory, name: &str| Some((attr(directory, 0, 0).id, name.try_into().expect("a name")));
        let mut others = Others::default();
        let then = others.now();
        let moved = Change { place: place(1, "a"), to: place(2, "b"), ..change(ChangeKind::Rename, 3) };
        others.changed(&[moved]);
        let named = |directory, name: &[u8]| others.touched_name(then, attr(directory, 0, 0).id, name);
        assert!(named(1, b"a") && named(2, b"b") && !named(1, b"b") && !named(2, b"a"));
        assert!((1..4).all(|file| touched(&others, then, file)) && !touched(&others, then, 4));
    }

    #[test]
    fn whatever_is_forgotten_counts_as_anything() {
        let mut others = Others::default();
        let then = others.now();
        others.changed(&written(1..2));
        let later = others.now();
        others.changed(&written(2000..2000 + TOUCHED_MAX as u64 - 1));
        assert!(touched(&others, then, 1) && !touched(&others, then, 3) && !touched(&others, later, 1));
        others.changed(&written(9000..9001));
        assert!(touched(&others, then, 1) && touched(&others, then, 3), "the oldest change is forgotten");
        assert!(!touched(&others, later, 1), "and was before this question");
        assert_eq!(others.touched.len(), TOUCHED_MAX);
    }
}
