//! What others have changed since a question was asked: an answer about it, or one that leads to it, may be of before.
//!
//! The kernel was told of such a change, or is about to be. Of what it did not know yet it took no notice, and the answer that
//! brings it would be believed. So answers are asked for again that others' changes overtook, each by what it is of: were it by any
//! change at all, a mount of a tree that is written all the time would believe nothing, and ask the more the slower it is answered.

use std::collections::VecDeque;

use weft_core::FileId;

/// Files of the last changes, at most: some pages of the feed, and more than come while one question waits. Of what is older
/// anything may have changed.
const FILES_MAX: usize = 4096;

/// Changes by others.
#[derive(Default)]
pub(crate) struct Others {
    count: u64,
    /// The files and directories of the last ones, each with its change's number, oldest first.
    files: VecDeque<(u64, FileId)>,
    /// Up to this one they may have been of anything.
    of_anything: u64,
}

/// How many changes there had been once.
#[derive(Clone, Copy)]
pub(crate) struct Then(u64);

impl Others {
    /// Returns the present, which a question is asked in.
    pub(crate) fn now(&self) -> Then {
        Then(self.count)
    }

    /// Notes that these files and directories changed.
    pub(crate) fn changed(&mut self, files: impl IntoIterator<Item = FileId>) {
        self.count += 1;
        for file in files {
            if self.files.len() == FILES_MAX
                && let Some((number, _)) = self.files.pop_front()
            {
                self.of_anything = number;
            }
            self.files.push_back((self.count, file));
        }
    }

    /// Notes that anything may have changed.
    pub(crate) fn anything(&mut self) {
        self.count += 1;
        self.of_anything = self.count;
        self.files.clear();
    }

    /// Returns whether any of some files may have changed since.
    pub(crate) fn touched(&self, then: Then, files: &[FileId]) -> bool {
        let since = self.files.iter().rev().take_while(|(number, _)| *number > then.0);
        self.of_anything > then.0 || since.into_iter().any(|(_, file)| files.contains(file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::tests::attr;

    fn files(range: std::ops::Range<u64>) -> impl Iterator<Item = FileId> {
        range.map(|number| attr(number, 0, 0).id)
    }

    fn touched(others: &Others, then: Then, file: u64) -> bool {
        others.touched(then, &[attr(1000, 0, 0).id, attr(file, 0, 0).id])
    }

    #[test]
    fn what_changed_since_a_question_touches_it_and_what_changed_before_or_is_another_does_not() {
        let mut others = Others::default();
        others.changed(files(1..3));
        let then = others.now();
        assert!(!touched(&others, then, 1) && !touched(&others, then, 3));
        others.changed(files(2..4));
        assert!(touched(&others, then, 2) && touched(&others, then, 3) && !touched(&others, then, 1));
        assert!(!touched(&others, others.now(), 2));
        others.anything();
        assert!(touched(&others, then, 1) && !touched(&others, others.now(), 1));
    }

    #[test]
    fn whatever_is_forgotten_counts_as_anything() {
        let mut others = Others::default();
        let then = others.now();
        others.changed(files(1..2));
        let later = others.now();
        others.changed(files(2000..2000 + FILES_MAX as u64 - 1));
        assert!(touched(&others, then, 1) && !touched(&others, then, 3) && !touched(&others, later, 1));
        others.changed(files(9000..9001));
        assert!(touched(&others, then, 1) && touched(&others, then, 3), "the oldest change is forgotten");
        assert!(!touched(&others, later, 1), "and was before this question");
        assert_eq!(others.files.len(), FILES_MAX);
    }
}
