//! A file: text to values, each with its line.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::settings::{Kind, Setting};
use super::tables;

/// A value in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// Of what.
    pub key: Setting,
    /// As it is written.
    pub values: Vec<String>,
    /// The line of it, from 1 on.
    pub line: usize,
}

/// A mistake in a file: its line, and what is wrong.
pub type Fault = (usize, String);

/// Reads a file. What is right in it is returned beside what is wrong.
pub fn read(text: &str) -> (Vec<Value>, Vec<Fault>) {
    let mut reading = Reading { text, values: Vec::new(), faults: Vec::new() };
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let at = error.span().unwrap_or(0..0);
        reading.fault(&at, error.message().to_owned());
    }
    // What a text that is no TOML seems to hold is guessed, and not told of as well.
    if reading.faults.is_empty() {
        reading.table("", table.get_ref());
    }
    (reading.values, reading.faults)
}

struct Reading<'t> {
    text: &'t str,
    values: Vec<Value>,
    faults: Vec<Fault>,
}

impl Reading<'_> {
    fn line(&self, at: &Range<usize>) -> usize {
        let before = self.text.as_bytes().get(..at.start).unwrap_or(self.text.as_bytes());
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }

    fn fault(&mut self, at: &Range<usize>, what: String) {
        let line = self.line(at);
        self.faults.push((line, what));
    }

    fn table(&mut self, above: &str, table: &DeTable<'_>) {
        for (name, value) in table {
            let full = format!("{above}{}", name.get_ref());
            match (Setting::named(&full), value.get_ref()) {
                (Some(key), _) => self.value(key, value),
                (None, DeValue::Table(inner)) if is_table(&full) => self.table(&format!("{full}."), inner),
                (None, _) => {
                    let inner = value.get_ref().as_table().and_then(|inner| inner.iter().next());
                    let leaf = inner.map(|(name, _)| format!("{full}.{}", name.get_ref()));
                    let meant = Setting::like(&full).or_else(|| leaf.and_then(|leaf| Setting::like(&leaf)));
                    let meant = meant.map(|meant| format!("; did you mean `{meant}`?"));
                    let why = format!("there is no setting `{full}`{}", meant.unwrap_or_default());
                    self.fault(&name.span(), why);
                }
            }
        }
    }

    fn value(&mut self, key: Setting, value: &Spanned<DeValue<'_>>) {
        let (about, line) = (key.about(), self.line(&value.span()));
        let values = match (about.kind, value.get_ref()) {
            (Kind::Text, DeValue::String(text)) => Some(vec![text.clone().into_owned()]),
            (Kind::List, DeValue::Array(items)) => items
                .iter()
                .map(|item| match item.get_ref() {
                    DeValue::String(text) => Some(text.clone().into_owned()),
                    _ => None,
                })
                .collect(),
            (Kind::Tables, DeValue::Table(inner)) => tables::text_of(inner).map(|text| vec![text]),
            _ => None,
        };
        match values {
            Some(values) => self.values.push(Value { key, values, line }),
            None => {
                let wanted = match about.kind {
                    Kind::Text => "a text in quotes",
                    Kind::Tables => tables::WANTED,
                    Kind::List => "a list of texts in quotes, such as [\"a.example\", \"b.example\"]",
                };
                self.fault(&value.span(), format!("`{}` takes {wanted}", about.name));
            }
        }
    }
}

/// Returns whether settings lie in a table of that name.
fn is_table(name: &str) -> bool {
    Setting::ALL
        .into_iter()
        .any(|key| key.about().name.strip_prefix(name).is_some_and(|rest| rest.starts_with('.')))
}
