//! How things are shown to people. JSON is made where the thing is known.

use std::ffi::OsStr;

use weft_core::Time;
use weft_core::attr::{Attr, Kind};
use weft_core::service::{Damage, Finding};

/// Shows a size: exact below 1 KiB, else three digits and a binary unit.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.digits$} {}", UNITS[unit])
}

/// Shows an argument as it is typed to a shell.
pub fn argument(text: &OsStr) -> String {
    let text = text.to_string_lossy();
    let plain = |c: char| c.is_alphanumeric() || "/._-+:,@%=".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text.into_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// Shows kind and mode as `ls` does.
pub fn mode(attr: &Attr) -> String {
    let kind = match attr.kind {
        Kind::File => '-',
        Kind::Directory => 'd',
        Kind::Symlink => 'l',
        Kind::Fifo => 'p',
        Kind::Reference => 'r',
    };
    let bit = |shift: u16, letter: char| if attr.mode >> shift & 1 == 1 { letter } else { '-' };
    let mut text = String::from(kind);
    for class in [6, 3, 0] {
        text.extend([bit(class + 2, 'r'), bit(class + 1, 'w'), bit(class, 'x')]);
    }
    text
}

/// The kind's name in JSON.
pub fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "file",
        Kind::Directory => "directory",
        Kind::Symlink => "symlink",
        Kind::Fifo => "fifo",
        Kind::Reference => "reference",
    }
}

/// Shows a time in UTC to the second: `2026-11-21 13:37:00`.
pub fn time(time: Time) -> String {
    time.civil().to_string()
}

/// Shows what a check found: what is wrong, and what became of it or is to be done, if anything.
pub fn finding(finding: &Finding) -> String {
    let Finding { structure, detail, repair, .. } = finding;
    let after = if repair.is_empty() { "" } else { "; " };
    format!("{structure}: {detail}{after}{repair}")
}

/// Says what is wrong with a stored object, and since when that is known.
pub fn damage(damage: &Damage) -> String {
    let Damage { from, to, blocks, unread, since, .. } = damage;
    let since = time(*since);
    let what = if *unread { "cannot be read" } else { "do not match their checksum" };
    match (from == to, blocks) {
        (true, _) => format!("nothing of it can be read (found {since} UTC)"),
        (false, 1) => format!("bytes {from} to {to} {what} (found {since} UTC)"),
        (false, _) => format!("{blocks} blocks between bytes {from} and {to} {what} (found {since} UTC)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_keep_three_digits() {
        for (bytes, text) in
            [(0, "0 B"), (1023, "1023 B"), (1024, "1.00 KiB"), (10_240, "10.0 KiB"), (1 << 20, "1.00 MiB")]
        {
            assert_eq!(size(bytes), text);
        }
        assert_eq!(size(u64::MAX), "16.0 EiB");
    }

    #[test]
    fn a_finding_ends_with_what_there_is_to_say() {
        let shown = |repair: &str| {
            let (structure, detail, repair) = ("key".to_owned(), "not there".to_owned(), repair.to_owned());
            let severity = weft_core::service::Severity::Note;
            finding(&Finding { severity, structure, detail, repair, object: None })
        };
        assert_eq!(shown("put it back"), "key: not there; put it back");
        assert_eq!(shown(""), "key: not there");
    }

    #[test]
    fn an_argument_is_one_word_to_a_shell() {
        for (text, typed) in
            [("weft:/a-b.c", "weft:/a-b.c"), ("a b", "'a b'"), ("it's", r"'it'\''s'"), ("", "''")]
        {
            assert_eq!(argument(OsStr::new(text)), typed);
        }
    }

    #[test]
    fn dates_are_right_around_leap_days_and_before_1970() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00"),
            (-1, "1969-12-31 23:59:59"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_709_251_199, "2024-02-29 23:59:59"),
            (4_107_542_400, "2100-03-01 00:00:00"),
        ] {
            assert_eq!(time(Time::from_unix(seconds, 0)), text);
        }
    }
}
