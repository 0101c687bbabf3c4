//! Spans of time as people write them: a number and a unit, `90s`, `30m`, `12h`, `7d`, `2w`.

use std::time::Duration;

/// Seconds of each unit, the longest first.
const UNITS: [(&str, u64); 5] = [("w", 7 * 24 * 3600), ("d", 24 * 3600), ("h", 3600), ("m", 60), ("s", 1)];

/// Writes a span of time in whole seconds as [`read`] reads it, in the longest unit of which it is a multiple.
pub fn show(span: Duration) -> String {
    let seconds = span.as_secs();
    let unit = UNITS.iter().find(|(_, each)| seconds > 0 && seconds.is_multiple_of(*each));
    unit.map_or_else(|| format!("{seconds}s"), |(unit, each)| format!("{}{unit}", seconds / each))
}

/// Reads a span of time, for an option of a command.
pub fn read(text: &str) -> Result<Duration, &'static str> {
    const FORM: &str = "a span is a number and a unit: `90s`, `30m`, `12h`, `7d`, `2w`";
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let (_, each) = UNITS.iter().find(|(name, _)| *name == unit).ok_or(FORM)?;
    let number: u64 = number.parse().map_err(|_| FORM)?;
    number.checked_mul(*each).map(Duration::from_secs).ok_or("the span is too long")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_a_number_and_a_unit() {
        for (text, seconds) in [("0s", 0), ("90s", 90), ("30m", 1800), ("12h", 43_200), ("7d", 604_800)] {
            assert_eq!(read(text), Ok(Duration::from_secs(seconds)), "{text}");
            assert_eq!(read(&show(Duration::from_secs(seconds))), read(text), "{text}");
        }
        for text in ["", "7", "d", "-1d", "7 d", "1y", "7D", "99999999999999999999s", "99999999999999999w"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
