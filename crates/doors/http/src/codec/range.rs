//! Ranges: what was asked for, and what of it is sent.

use weft_core::limits;

use super::{members, trim};

/// A stretch of a file: first byte and number of bytes, never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The first byte.
    pub at: u64,
    /// How many.
    pub length: u64,
}

impl Stretch {
    /// Returns the byte after the last.
    pub fn end(self) -> u64 {
        self.at + self.length
    }
}

/// What a Range field comes to for a file of a certain size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All of it: there is no range, none that can be understood, or too many.
    Whole,
    /// One stretch.
    One(Stretch),
    /// Several, none of which overlap, in the order asked for.
    Several(Vec<Stretch>),
    /// No range lies in the file.
    Nothing,
}

/// Reads a Range field for a file of `size` bytes. Ranges that overlap are joined, so that nobody
/// is sent a byte twice; the answer is never longer than the file.
pub fn wanted(field: &str, size: u64) -> Wanted {
    let Some((unit, set)) = field.split_once('=') else { return Wanted::Whole };
    if !trim(unit).eq_ignore_ascii_case("bytes") {
        return Wanted::Whole;
    }
    let mut stretches = Vec::new();
    let mut asked = 0;
    for member in members(set) {
        asked += 1;
        match stretch(member, size) {
            _ if asked > limits::HTTP_RANGES_MAX => return Wanted::Whole,
            None => return Wanted::Whole,
            Some(None) => {}
            Some(Some(stretch)) => stretches.push(stretch),
        }
    }
    match stretches.as_slice() {
        _ if asked == 0 => Wanted::Whole,
        [] if size == 0 => Wanted::Whole,
        [] => Wanted::Nothing,
        [one] => Wanted::One(*one),
        _ => disjoint(stretches),
    }
}

/// Reads one range. `None` if it is malformed, `Some(None)` if it lies outside the file.
fn stretch(member: &str, size: u64) -> Option<Option<Stretch>> {
    let (first, last) = member.split_once('-')?;
    let (first, last) = (trim(first), trim(last));
    if first.is_empty() {
        let length = number(last)?.min(size);
        return Some((length > 0).then(|| Stretch { at: size - length, length }));
    }
    let first = number(first)?;
    let last = if last.is_empty() { u64::MAX } else { number(last)? };
    if last < first {
        return None;
    }
    Some((first < size).then(|| Stretch { at: first, length: last.min(size - 1) - first + 1 }))
}

/// Reads a number; one that is too large is as good as the largest.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

fn disjoint(stretches: Vec<Stretch>) -> Wanted {
    let mut sorted = stretches.clone();
    sorted.sort_unstable_by_key(|stretch| stretch.at);
    if sorted.windows(2).all(|pair| pair[0].end() <= pair[1].at) {
        return Wanted::Several(stretches);
    }
    let mut joined: Vec<Stretch> = Vec::new();
    for next in sorted {
        match joined.last_mut() {
            Some(last) if next.at <= last.end() => {
                last.length = last.length.max(next.end() - last.at);
            }
            _ => joined.push(next),
        }
    }
    match joined.as_slice() {
        [one] => Wanted::One(*one),
        _ => Wanted::Several(joined),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(at: u64, length: u64) -> Stretch {
        Stretch { at, length }
    }

    #[test]
    fn ranges_mean_what_rfc_9110_says() {
        for (field, wants) in [
            ("bytes=0-9", Wanted::One(of(0, 10))),
            ("Bytes = 10-", Wanted::One(of(10, 90))),
            ("bytes=-5", Wanted::One(of(95, 5))),
            ("bytes=-500", Wanted::One(of(0, 100))),
            ("bytes=90-1000", Wanted::One(of(90, 10))),
            ("bytes=0-99999999999999999999999", Wanted::One(of(0, 100))),
            ("bytes=100-", Wanted::Nothing),
            ("bytes=-0", Wanted::Nothing),
            ("bytes=200-300, 5-6", Wanted::One(of(5, 2))),
            ("bytes=20-29, 0-9", Wanted::Several(vec![of(20, 10), of(0, 10)])),
            ("bytes=0-9, 5-14", Wanted::One(of(0, 15))),
            ("bytes=0-1,0-1,50-51", Wanted::Several(vec![of(0, 2), of(50, 2)])),
            ("bytes=9-0", Wanted::Whole),
            ("bytes=", Wanted::Whole),
            ("bytes=a-b", Wanted::Whole),
            ("lines=0-9", Wanted::Whole),
            ("bytes 0-9", Wanted::Whole),
            ("bytes=+1-2", Wanted::Whole),
        ] {
            assert_eq!(wanted(field, 100), wants, "{field}");
        }
        assert_eq!(wanted("bytes=0-", 0), Wanted::Whole);
    }

    #[test]
    fn too_many_ranges_are_no_ranges_and_overlaps_never_multiply() {
        let many = |count: usize| format!("bytes={}", vec!["0-"; count].join(","));
        assert_eq!(wanted(&many(limits::HTTP_RANGES_MAX + 1), 100), Wanted::Whole);
        assert_eq!(wanted(&many(limits::HTTP_RANGES_MAX), 100), Wanted::One(of(0, 100)));
    }
}
