//! How many durable transactions to wait for before the log is flushed.
//!
//! A flush that is nearly free is over before the next caller has come round, and then each
//! transaction gets a flush of its own. Callers come round again, though: most of those that shared
//! the last flush are waited for, shortly, and now and then a few more. Whoever is alone never waits.

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
}

impl Default for Company {
    fn default() -> Self {
        Self { callers: 1, rest: 0, next_rest: KV_COMPANY_REST.0 }
    }
}

impl Company {
    /// Returns whether `waiting` transactions should wait for more.
    pub(super) fn is_expected(&self, waiting: usize) -> bool {
        0 < waiting && waiting < self.wanted()
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

    #[test]
    fn when_callers_go_those_that_stay_wait_once() {
        let mut company = Company::default();
        turns(&mut company, 16, 3, 100);
        assert!(company.is_expected(1));
        company.flushed(1, true);
        assert!(!company.is_expected(1));
    }
}
