//! Conditional requests: RFC 9110, 13.2.2, in its order.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use weft_core::attr::{Attr, Kind};
use weft_core::form::VersionIs;
use weft_core::{Time, limits};

use super::head::{Field, Head};
use super::{Refusal, members};

/// A file's strong entity tag, quotes included. It names the inode as well: two files may have
/// equal versions, one file never has one version twice.
pub fn entity_tag(attr: &Attr) -> String {
    let mut tag = String::with_capacity(80);
    write_tag(attr, "\"", &mut tag);
    tag
}

/// Writes the same, between quotes that are written so.
pub fn write_tag(attr: &Attr, quote: &str, out: &mut String) {
    let id = attr.id;
    out.push_str(quote);
    push_hex(out, id.volume().0.into());
    out.push('.');
    push_hex(out, id.serial().into());
    out.push('.');
    push_hex(out, id.generation().into());
    out.push('-');
    push_hex(out, attr.version.0);
    out.push_str(quote);
}

/// Writes a number as `{:x}` does, for a third of what formatting costs.
fn push_hex(text: &mut String, number: u128) {
    let digits = (u128::BITS - number.leading_zeros()).div_ceil(4).max(1) as usize;
    let (mut left, mut all) = (number, [0; 32]);
    for digit in all[..digits].iter_mut().rev() {
        *digit = b"0123456789abcdef"[left as usize & 0xf];
        left >>= 4;
    }
    text.push_str(std::str::from_utf8(&all[..digits]).unwrap_or_default());
}

/// What is known of the thing a condition speaks of.
#[derive(Clone, Debug)]
pub struct Present {
    /// Its entity tag; none for what is no file.
    pub tag: Option<String>,
    /// When its bytes last changed.
    pub mtime: Time,
}

impl Present {
    /// Returns what conditions ask of an inode.
    pub fn of(attr: &Attr) -> Self {
        Self { tag: (attr.kind == Kind::File).then(|| entity_tag(attr)), mtime: attr.mtime }
    }
}

/// The members of If-Match or If-None-Match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tags {
    /// `*`.
    Any,
    /// These; whether each is weak, and the tag with its quotes.
    These(Vec<(bool, String)>),
}

/// The conditions of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// It must be one of these (strong comparison).
    pub matches: Option<Tags>,
    /// It must be none of these (weak comparison).
    pub none_matches: Option<Tags>,
    /// It must have changed since.
    pub modified_since: Option<Time>,
    /// It must not have changed since.
    pub unmodified_since: Option<Time>,
}

/// What conditions come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Go on.
    Holds,
    /// The client has it already: 304 for a read, 412 for a change.
    Known,
    /// 412.
    Fails,
}

impl Conditions {
    /// Reads the conditions of a request. Dates that are none are ignored, as HTTP says; tags that
    /// are none are refused, since ignoring them would make a change unconditional.
    pub fn of(head: &Head) -> Result<Self, Refusal> {
        let tags = |field| head.all(field)?.map(|list| parse_tags(&list)).transpose();
        let date = |field| Ok(head.one(field)?.and_then(parse_date));
        Ok(Self {
            matches: tags(Field::IfMatch)?,
            none_matches: tags(Field::IfNoneMatch)?,
            modified_since: date(Field::IfModifiedSince)?,
            unmodified_since: date(Field::IfUnmodifiedSince)?,
        })
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Judges what is there, or that nothing is.
    pub fn judge(&self, present: Option<&Present>) -> Verdict {
        if let Some(tags) = &self.matches {
            if !present.is_some_and(|present| tags.holds(present, true)) {
                return Verdict::Fails;
            }
        } else if let (Some(date), Some(present)) = (self.unmodified_since, present)
            && present.mtime.seconds() > date.seconds()
        {
            return Verdict::Fails;
        }
        if let Some(tags) = &self.none_matches {
            if present.is_some_and(|present| tags.holds(present, false)) {
                return Verdict::Known;
            }
        } else if let (Some(date), Some(present)) = (self.modified_since, present)
            && present.mtime.seconds() <= date.seconds()
        {
            return Verdict::Known;
        }
        Verdict::Holds
    }

    /// Returns what a change must find for these conditions to hold still, once they were judged
    /// to hold for what `attr` shows. If-Modified-Since says nothing about changes.
    pub fn pinned(&self, attr: Option<&Attr>) -> Option<VersionIs> {
        if self.matches.is_none() && self.none_matches.is_none() && self.unmodified_since.is_none() {
            return None;
        }
        let whatever = |tags: &Option<Tags>| matches!(tags, None | Some(Tags::Any));
        Some(match attr {
            None => VersionIs::Absent,
            Some(attr) if attr.kind != Kind::File => VersionIs::Present,
            Some(_)
                if whatever(&self.matches)
                    && whatever(&self.none_matches)
                    && self.unmodified_since.is_none() =>
            {
                VersionIs::Present
            }
            Some(attr) => VersionIs::Exactly(attr.id, attr.version),
        })
    }
}

impl Tags {
    fn holds(&self, present: &Present, strong: bool) -> bool {
        match self {
            Self::Any => true,
            Self::These(tags) => {
                tags.iter().any(|(weak, tag)| !(strong && *weak) && Some(tag) == present.tag.as_ref())
            }
        }
    }
}

fn parse_tags(list: &str) -> Result<Tags, Refusal> {
    if list.trim_matches([' ', '\t']) == "*" {
        return Ok(Tags::Any);
    }
    let mut tags = Vec::new();
    for member in members(list) {
        let tag = parse_tag(member).ok_or(Refusal::malformed("an entity tag is malformed"))?;
        if tags.len() == limits::HTTP_MEMBERS_MAX {
            return Err(Refusal::malformed("there are more entity tags than the limit"));
        }
        tags.push(tag);
    }
    if tags.is_empty() { Err(Refusal::malformed("there is no entity tag")) } else { Ok(Tags::These(tags)) }
}

/// Reads an entity tag: whether it is weak, and the tag with its quotes.
fn parse_tag(text: &str) -> Option<(bool, String)> {
    let (weak, tag) = match text.strip_prefix("W/") {
        Some(tag) => (true, tag),
        None => (false, text),
    };
    let inner = tag.strip_prefix('"')?.strip_suffix('"')?;
    let is_good =
        tag.len() >= 2 && !inner.contains('"') && inner.bytes().all(|byte| byte > b' ' && byte != 0x7f);
    is_good.then(|| (weak, tag.to_owned()))
}

/// Returns whether ranges of what the client has part of may be served: its validator is strong
/// and still the same. A date never is: a file may change twice within its second, and whoever writes
/// one sets its time (RFC 9110, 8.8.2.2).
pub fn if_range_holds(field: &str, present: &Present) -> bool {
    parse_tag(field).is_some_and(|(weak, tag)| !weak && Some(&tag) == present.tag.as_ref())
}

/// Reads one of HTTP's three forms of a date.
pub fn parse_date(text: &str) -> Option<Time> {
    let since = httpdate::parse_http_date(text).ok()?.duration_since(UNIX_EPOCH).ok()?;
    // Beyond the last time there is, the last whole second of it.
    let seconds = i64::try_from(since.as_secs()).ok()?.min(Time::MAX.seconds());
    Some(Time::from_unix(seconds, 0))
}

/// Writes a time as HTTP does. Times before 1970 or after 9999 are shown as the nearest it can write.
pub fn format_date(time: Time) -> String {
    let seconds = u64::try_from(time.seconds()).unwrap_or(0).min(253_402_300_799);
    let at: SystemTime = UNIX_EPOCH + Duration::from_secs(seconds);
    httpdate::fmt_http_date(at)
}

/// Shows a time to the second, in UTC (RFC 3339).
pub fn format_time(time: Time) -> String {
    let at = time.civil();
    let (date, clock) = ((at.year, at.month, at.day), (at.hour, at.minute, at.second));
    format!("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", date.0, date.1, date.2, clock.0, clock.1, clock.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAG: &str = "\"0.5.0-1\"";

    #[test]
    fn a_date_beyond_the_last_time_there_is_reads_back_as_it_is_shown() {
        let time = parse_date("Sun, 06 Nov 3994 08:49:37 GMT").expect("a date");
        assert_eq!(parse_date(&format_date(time)), Some(time));
    }

    fn present() -> Present {
        Present { tag: Some(TAG.to_owned()), mtime: Time::from_unix(1_000_000, 500) }
    }

    fn tags(list: &str) -> Option<Tags> {
        Some(parse_tags(list).expect(list))
    }

    #[test]
    fn the_order_and_comparisons_are_rfc_9110s() {
        let date = |seconds| Some(Time::from_unix(seconds, 0));
        let none = Conditions::default;
        for (conditions, there, absent) in [
            (none(), Verdict::Holds, Verdict::Holds),
            (Conditions { matches: tags("*"), ..none() }, Verdict::Holds, Verdict::Fails),
            (Conditions { matches: tags(TAG), ..none() }, Verdict::Holds, Verdict::Fails),
            (Conditions { matches: tags("\"x\", \"0.5.0-1\""), ..none() }, Verdict::Holds, Verdict::Fails),
            (Conditions { matches: tags("W/\"0.5.0-1\""), ..none() }, Verdict::Fails, Verdict::Fails),
            (Conditions { none_matches: tags("*"), ..none() }, Verdict::Known, Verdict::Holds),
            (Conditions { none_matches: tags("W/\"0.5.0-1\""), ..none() }, Verdict::Known, Verdict::Holds),
            (Conditions { none_matches: tags("\"x\""), ..none() }, Verdict::Holds, Verdict::Holds),
            (Conditions { modified_since: date(1_000_000), ..none() }, Verdict::Known, Verdict::Holds),
            (Conditions { modified_since: date(999_999), ..none() }, Verdict::Holds, Verdict::Holds),
            (Conditions { unmodified_since: date(1_000_000), ..none() }, Verdict::Holds, Verdict::Holds),
            (Conditions { unmodified_since: date(999_999), ..none() }, Verdict::Fails, Verdict::Holds),
            // A tag beats a date.
            (
                Conditions { none_matches: tags("\"x\""), modified_since: date(2_000_000), ..none() },
                Verdict::Holds,
                Verdict::Holds,
            ),
            (
                Conditions { matches: tags(TAG), unmodified_since: date(1), ..none() },
                Verdict::Holds,
                Verdict::Fails,
            ),
            (
                Conditions { matches: tags("\"x\""), none_matches: tags(TAG), ..none() },
                Verdict::Fails,
                Verdict::Fails,
            ),
        ] {
            assert_eq!(conditions.judge(Some(&present())), there, "{conditions:?}");
            assert_eq!(conditions.judge(None), absent, "{conditions:?}");
        }
    }

    #[test]
    fn numbers_in_tags_are_written_in_hexadecimal() {
        for number in [0, 1, 0xf, 0x10, 0xdead_beef, 1 << 96 | 5 << 48, u128::MAX] {
            let mut text = String::new();
            push_hex(&mut text, number);
            assert_eq!(text, format!("{number:x}"));
        }
    }

    #[test]
    fn malformed_tags_are_refused_and_malformed_dates_ignored() {
        for bad in ["", "x", "\"", "\"a\"b\"", "\"a", "w/\"a\"", "*, \"a\"", "\"a b\""] {
            assert!(parse_tags(bad).is_err(), "{bad}");
        }
        assert_eq!(
            tags("W/\"\",, \"a,b\""),
            Some(Tags::These(vec![(true, "\"\"".into()), (false, "\"a,b\"".into())]))
        );
        assert_eq!(parse_date("yesterday"), None);
    }

    #[test]
    fn if_range_needs_a_strong_validator() {
        let date = format_date(present().mtime);
        for (field, holds) in [
            (TAG, true),
            ("W/\"0.5.0-1\"", false),
            ("\"x\"", false),
            (date.as_str(), false),
            ("Sat, 01 Jan 2000 00:00:00 GMT", false),
            ("nonsense", false),
        ] {
            assert_eq!(if_range_holds(field, &present()), holds, "{field}");
        }
    }

    #[test]
    fn dates_round_trip_to_the_second() {
        let time = Time::from_unix(784_111_777, 0);
        assert_eq!(format_date(time), "Sun, 06 Nov 1994 08:49:37 GMT");
        for text in
            ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"]
        {
            assert_eq!(parse_date(text), Some(time), "{text}");
        }
        assert_eq!(format_date(Time::from_unix(-5, 0)), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert!(!format_date(Time::MAX).is_empty());
    }

    #[test]
    fn times_are_shown_in_utc() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_767_225_599, "2025-12-31T23:59:59Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(format_time(Time::from_unix(seconds, 0)), text);
        }
    }
}
