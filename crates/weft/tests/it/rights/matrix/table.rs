//! The rules of `rights.txt`, and what they say of every cell.

use super::{ANSWERS, Answers, CALLERS, Cell, DOORS, KINDS, RIGHTS, SIDES};

/// The rules, in their order.
pub struct Table(Vec<Rule>);

struct Rule {
    /// Values of each column; none means all.
    columns: [Vec<String>; 5],
    answer: String,
    line: String,
}

impl Table {
    /// Reads rules. Fails at a word that its column does not know.
    pub fn parse(text: &str) -> Self {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        Self(lines.map(Rule::parse).collect())
    }

    /// Returns the last rule that speaks of a cell.
    fn decisive(&self, cell: &Cell) -> Option<usize> {
        self.0.iter().rposition(|rule| rule.speaks_of(cell))
    }

    /// Returns what is expected of every cell.
    pub fn expand(&self) -> Answers {
        let answer = |cell: Cell| {
            let rule = self.decisive(&cell).unwrap_or_else(|| panic!("no rule speaks of {cell:?}"));
            (cell, self.0[rule].answer.clone())
        };
        Cell::all().map(answer).collect()
    }

    /// Returns the rules that later ones contradict everywhere.
    pub fn silent(&self) -> Vec<&str> {
        let mut speaks = vec![false; self.0.len()];
        for rule in Cell::all().filter_map(|cell| self.decisive(&cell)) {
            speaks[rule] = true;
        }
        let silent = self.0.iter().zip(speaks).filter(|(_, speaks)| !speaks);
        silent.map(|(rule, _)| rule.line.as_str()).collect()
    }
}

impl Rule {
    fn parse(line: &str) -> Self {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [caller, right, kind, door, side, answer] = words[..] else { panic!("six columns: {line}") };
        assert!(ANSWERS.contains(&answer), "no answer: {line}");
        let known = |words: &str, column: &[&str]| -> Vec<String> {
            if words == "*" {
                return Vec::new();
            }
            let known = |word: &str| assert!(column.contains(&word), "`{word}` is not of its column: {line}");
            words.split(',').inspect(|word| known(word)).map(str::to_owned).collect()
        };
        Self {
            columns: [
                known(caller, &CALLERS),
                known(right, &RIGHTS),
                known(kind, &KINDS),
                known(door, &DOORS),
                known(side, &SIDES),
            ],
            answer: answer.to_owned(),
            line: line.to_owned(),
        }
    }

    fn speaks_of(&self, cell: &Cell) -> bool {
        let means =
            |values: &Vec<String>, value: &str| values.is_empty() || values.iter().any(|v| v == value);
        self.columns.iter().zip(cell.columns()).all(|(values, value)| means(values, value))
    }
}
