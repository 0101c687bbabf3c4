//! The rules of `rights.txt` or `shared.txt`, and what they say of every cell.

use super::{ANSWERS, Answers, Cell, Ground, SIDES};

/// The rules, in their order.
pub struct Table {
    ground: &'static Ground,
    rules: Vec<Rule>,
}

struct Rule {
    /// Values of each column; none means all.
    columns: [Vec<String>; 5],
    answer: String,
    line: String,
}

impl Table {
    /// Reads rules. Fails at a word that its column does not know.
    pub fn parse(ground: &'static Ground, text: &str) -> Self {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        Self { ground, rules: lines.map(|line| Rule::parse(ground, line)).collect() }
    }

    /// Returns the last rule that speaks of a cell.
    fn decisive(&self, cell: &Cell) -> Option<usize> {
        self.rules.iter().rposition(|rule| rule.speaks_of(cell))
    }

    /// Returns what is expected of every cell.
    pub fn expand(&self) -> Answers {
        let answer = |cell: Cell| {
            let rule = self.decisive(&cell).unwrap_or_else(|| panic!("no rule speaks of {cell:?}"));
            (cell, self.rules[rule].answer.clone())
        };
        Cell::all(self.ground).map(answer).collect()
    }

    /// Returns the rules that later ones contradict everywhere.
    pub fn silent(&self) -> Vec<&str> {
        let mut speaks = vec![false; self.rules.len()];
        for rule in Cell::all(self.ground).filter_map(|cell| self.decisive(&cell)) {
            speaks[rule] = true;
        }
        let silent = self.rules.iter().zip(speaks).filter(|(_, speaks)| !speaks);
        silent.map(|(rule, _)| rule.line.as_str()).collect()
    }
}

impl Rule {
    fn parse(ground: &Ground, line: &str) -> Self {
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
        let [callers, rights, kinds, doors] = ground.columns();
        Self {
            columns: [
                known(caller, callers),
                known(right, rights),
                known(kind, kinds),
                known(door, doors),
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
