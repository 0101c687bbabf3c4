//! Taking turns, and what is kept of it.

use crate::Result;

/// The results of one side, one per round, in the order they were made.
#[derive(Clone, Debug, PartialEq)]
pub struct Series(Vec<f64>);

impl Series {
    /// Makes a series of at least one result.
    pub fn of(results: Vec<f64>) -> Self {
        assert!(!results.is_empty(), "a series has a result");
        Self(results)
    }

    /// Returns the results in the order they were made.
    pub fn results(&self) -> &[f64] {
        &self.0
    }

    /// Returns the middle result; of an even number, the mean of the middle two.
    pub fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        match sorted.len() % 2 {
            1 => sorted[middle],
            _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
        }
    }

    /// Returns the smallest result.
    pub fn min(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// Returns the largest result.
    pub fn max(&self) -> f64 {
        self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }
}

/// Measures `ours` and `theirs` in turn: one warm-up each, then `rounds` rounds.
pub fn alternate(
    rounds: usize,
    mut ours: impl FnMut() -> Result<f64>,
    mut theirs: impl FnMut() -> Result<f64>,
) -> Result<(Series, Series)> {
    ours()?;
    theirs()?;
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        a.push(ours()?);
        b.push(theirs()?);
    }
    Ok((Series::of(a), Series::of(b)))
}

/// Measures one thing: one warm-up, then `rounds` rounds.
pub fn repeat(rounds: usize, mut one: impl FnMut() -> Result<f64>) -> Result<Series> {
    one()?;
    (0..rounds).map(|_| one()).collect::<Result<Vec<_>>>().map(Series::of)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn the_median_is_the_middle_whatever_the_order() {
        assert_eq!(Series::of(vec![9.0, 1.0, 4.0]).median(), 4.0);
        assert_eq!(Series::of(vec![4.0, 1.0, 3.0, 2.0]).median(), 2.5);
    }

    #[test]
    fn sides_take_turns_after_a_warm_up_that_is_not_kept() {
        let turns = RefCell::new(String::new());
        let side = |name: char| {
            let turns = &turns;
            move || {
                turns.borrow_mut().push(name);
                Ok(turns.borrow().len() as f64)
            }
        };
        let (ours, theirs) = alternate(2, side('a'), side('b')).expect("nothing fails here");
        assert_eq!(*turns.borrow(), "ababab");
        assert_eq!((ours.results(), theirs.results()), (&[3.0, 5.0][..], &[4.0, 6.0][..]));
    }
}
