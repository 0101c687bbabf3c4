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
    ours: impl FnMut() -> Result<f64>,
    theirs: impl FnMut() -> Result<f64>,
) -> Result<(Series, Series)> {
    let (ours, mut theirs) = in_turn(rounds, ours, vec![theirs])?;
    Ok((ours, theirs.pop().ok_or("one side has one series")??))
}

/// The same of several others, all in each round. One that fails takes no further part, and the rest go on.
pub fn in_turn(
    rounds: usize,
    mut ours: impl FnMut() -> Result<f64>,
    theirs: Vec<impl FnMut() -> Result<f64>>,
) -> Result<(Series, Vec<Result<Series>>)> {
    let mut theirs: Vec<_> = theirs.into_iter().map(|side| (side, Ok(Vec::new()))).collect();
    let mut kept = Vec::new();
    for round in 0..=rounds {
        let result = ours()?;
        let is_kept = round > 0;
        kept.extend(is_kept.then_some(result));
        for (side, results) in &mut theirs {
            let Ok(all) = results else { continue };
            match side() {
                Ok(result) => all.extend(is_kept.then_some(result)),
                Err(why) => *results = Err(why),
            }
        }
    }
    let theirs = theirs.into_iter().map(|(_, results)| results.map(Series::of)).collect();
    Ok((Series::of(kept), theirs))
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

    #[test]
    fn of_several_others_one_that_fails_is_left_out_and_the_rest_go_on() {
        let turns = RefCell::new(String::new());
        let side = |name: char| {
            let turns = &turns;
            move || {
                turns.borrow_mut().push(name);
                let fails = name == 'b' && turns.borrow().len() > 3;
                if fails { Err("b has had enough".into()) } else { Ok(1.0) }
            }
        };
        let (ours, theirs) = in_turn(2, side('a'), vec![side('b'), side('c')]).expect("ours goes on");
        assert_eq!(*turns.borrow(), "abcabcac");
        assert_eq!(ours.results().len(), 2);
        assert!(theirs[0].is_err() && theirs[1].as_ref().is_ok_and(|series| series.results().len() == 2));
    }
}
