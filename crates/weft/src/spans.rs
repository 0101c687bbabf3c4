//! Spans of time as people write them: a number and a unit, `90s`, `30m`, `12h`, `7d`, `2w`.

use std::time::Duration;

/// Reads a span of time, for an option of a command.
pub fn read(text: &str) -> Result<Duration, &'static str> {
    const FORM: &str = "a span is a number and a unit: `90s`, `30m`, `12h`, `7d`, `2w`";
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let each: u64 = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 24 * 3600,
        "w" => 7 * 24 * 3600,
        _ => return Err(FORM),
    };
    let number: u64 = number.parse().map_err(|_| FORM)?;
    number.checked_mul(each).map(Duration::from_secs).ok_or("the span is too long")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_a_number_and_a_unit() {
        for (text, seconds) in [("0s", 0), ("90s", 90), ("30m", 1800), ("12h", 43_200), ("7d", 604_800)] {
            assert_eq!(read(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "7", "d", "-1d", "7 d", "1y", "7D", "99999999999999999999s", "99999999999999999w"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
