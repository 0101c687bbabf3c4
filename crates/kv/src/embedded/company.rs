//! How many durable transactions to wait for before the log is flushed, and who flushes it.
//!
//! A flush that is nearly free is over before the next caller has come round, and then each
//! transaction gets a flush of its own. Callers come round again, though: most of those that shared
//! the last flush are waited for, shortly, and now and then a few more. Whoever is alone never waits,
//! and flushes by itself as long as that is quick: it has one thread less to wake. Now and then it does
//! not: while it waits for the writer, others that this thread kept from coming can.

use std::time::Duration;

use weft_core::limits::{KV_COMPANY_REST, KV_QUEUE_MAX};

/// What the last flushes taught.
#[derive(Debug)]
pub(super) struct Company {
    /// How many there seem to be.
    callers: usize,
    /// Flushes until it is tried whether there are more.
    rest: u32,
    /// How long the next rest is.
    next_rest: u32,
    /// Flushes that who is alone does by itself, until it is tried whether others come.
    alone: u32,
    /// How many those are the next time.
    next_alone: u32,
    /// About how long a flush takes, once one was measured.
    takes: Option<Duration>,
}

impl Default for Company {
    fn default() -> Self {
        Self { callers: 1, rest: 0, next_rest: KV_COMPANY_REST.0, alone: 0, next_alone: 1, takes: None }
    }
}

impl Company {
    /// Returns whether `waiting` transactions should wait for more.
    pub(super) fn is_expected(&self, waiting: usize) -> bool {
        0 < waiting && waiting < self.wanted()
    }

    /// Returns whether nobody has shared a flush lately.
    pub(super) fn is_alone(&self) -> bool {
        self.callers <= 1
    }

    /// Returns whether a caller should flush by itself: it is alone, and a flush is known to take
    /// less than `limit`.
    pub(super) fn flushes_alone(&self, limit: Duration) -> bool {
        self.is_alone() && self.alone > 0 && self.takes.is_some_and(|takes| takes < limit)
    }

    /// Returns whether a flush is known to take so long.
    pub(super) fn flushes_for(&self, long: Duration) -> bool {
        self.takes.is_some_and(|takes| takes >= long)
    }

    /// Learns that a caller flushed by itself.
    pub(super) fn flushed_alone(&mut self) {
        self.alone = self.alone.saturating_sub(1);
    }

    /// Learns how long a flush took. One that is slow says little, several in a row say all.
    pub(super) fn took(&mut self, took: Duration) {
        self.takes = Some(self.takes.map_or(took, |takes| (takes * 7 + took) / 8));
    }

    fn wanted(&self) -> usize {
        match (self.callers, self.rest) {
            (0 | 1, _) => 1,
            (callers, 0) => callers + callers.div_ceil(4),
            // One that is slow today holds nobody up.
            (callers, _) => callers - callers / 8,
        }
    }

    /// Learns from a flush of `came` transactions, `late` if more were expected in vain.
    pub(super) fn flushed(&mut self, came: usize, late: bool) {
        let came = came.min(KV_QUEUE_MAX);
        (self.alone, self.next_alone) = match came {
            0 | 1 => (self.next_alone, (self.next_alone * 2).min(KV_COMPANY_REST.1)),
            _ => (0, 1),
        };
        if late {
            (self.callers, self.rest) = (came, self.next_rest);
            self.next_rest = (self.next_rest * 2).min(KV_COMPANY_REST.1);
            return;
        }
        match self.rest {
            0 => self.next_rest = KV_COMPANY_REST.0,
            _ => self.rest -= 1,
        }
        self.callers = self.callers.max(came);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Flushes in turn with `callers` that all come round in time, of whom `quick` come while a
    /// flush is under way. Returns how many shared each, and how often was waited in vain.
    fn turns(company: &mut Company, callers: usize, quick: usize, flushes: usize) -> (Vec<usize>, usize) {
        let mut vain = 0;
        let turn = |_| {
            let came = company.wanted().max(quick).min(callers);
            let late = came < company.wanted();
            vain += usize::from(late);
            company.flushed(came, late);
            came
        };
        ((0..flushes).map(turn).collect(), vain)
    }

    #[test]
    fn who_is_alone_never_waits() {
        let mut company = Company::default();
        assert_eq!(turns(&mut company, 1, 1, 10_000), (vec![1; 10_000], 0));
        assert!(!company.is_expected(1) && !company.is_expected(0));
    }

    #[test]
    fn callers_that_come_round_share_one_flush_and_are_seldom_waited_for_in_vain() {
        let mut company = Company::default();
        let (came, _) = turns(&mut company, 16, 3, 10_000);
        assert!(came[20..].iter().all(|came| *came >= 14), "{:?}", &came[..20]);
        let (_, vain) = turns(&mut company, 16, 3, 10_000);
        assert!(vain <= 4, "{vain} of 10 000 flushes waited for nobody");
    }

    /// A company that was alone at some flushes of the writer's, each of which took so long.
    fn lone(took: Duration) -> Company {
        let mut company = Company::default();
        (0..20).for_each(|_| {
            company.took(took);
            company.flushed(1, false);
        });
        company
    }

    #[test]
    fn who_is_alone_flushes_by_itself_while_the_disk_is_quick() {
        let (quick, slow, limit) =
            (Duration::from_micros(60), Duration::from_millis(8), Duration::from_micros(500));
        assert!(!Company::default().flushes_alone(limit), "nothing is known");
        let mut company = lone(quick);
        assert!(company.flushes_alone(limit) && !company.flushes_alone(Duration::ZERO));
        company.took(8 * quick);
        assert!(company.flushes_alone(limit), "one that is slower says little");
        company.took(slow);
        assert!(!company.flushes_alone(limit));
        (0..40).for_each(|_| company.took(quick));
        assert!(company.flushes_alone(limit), "it is quick again");
        company.flushed(2, false);
        assert!(!company.flushes_alone(limit), "somebody came");
    }

    #[test]
    fn who_is_alone_seldom_tries_whether_others_come_and_often_at_first() {
        let (mut company, limit) = (Company::default(), Duration::from_millis(1));
        let mut tried = Vec::new();
        for flush in 0..100_000 {
            company.took(Duration::ZERO);
            match company.flushes_alone(limit) {
                true => company.flushed_alone(),
                false => {
                    company.flushed(1, false);
                    tried.push(flush);
                }
            }
        }
        assert!(tried[3] < 20 && tried.len() < 50, "{tried:?}");
    }

    #[test]
    fn when_callers_go_those_that_stay_wait_once() {
        let mut company = Company::default();
        turns(&mut company, 16, 3, 100);
        assert!(company.is_expected(1));
        company.flushed(1, true);
        assert!(!company.is_expected(1));
    }
}
