//! What a client would rather have.

use super::{members, trim};

/// Returns whether the client would rather have a listing as JSON than as a page. Only a JSON type
/// named as such counts: `*/*` is what every program sends.
pub fn wants_json(accept: Option<&str>) -> bool {
    let json = weight_of(accept, "application/json");
    json > 0 && json >= weight_of(accept, PAGE)
}

/// Returns whether somebody looks at the answer in a browser: only those name a page's type as such.
pub fn wants_page(accept: Option<&str>) -> bool {
    weight_of(accept, PAGE) > 0 && !wants_json(accept)
}

const PAGE: &str = "text/html";

fn weight_of(accept: Option<&str>, wanted: &str) -> u16 {
    let weights = members(accept.unwrap_or_default()).filter_map(|member| {
        let (media, parameters) = member.split_once(';').unwrap_or((member, ""));
        trim(media).eq_ignore_ascii_case(wanted).then(|| weight(parameters))
    });
    weights.max().unwrap_or(0)
}

/// Returns the `q` among parameters, in thousandths: 1000 if there is none, 0 if it is malformed.
pub fn weight(parameters: &str) -> u16 {
    let q = parameters.split(';').find_map(|one| {
        let (name, value) = one.split_once('=')?;
        trim(name).eq_ignore_ascii_case("q").then(|| trim(value))
    });
    q.map_or(1000, thousandths)
}

/// Reads `0`, `1` or a fraction of at most three digits.
fn thousandths(text: &str) -> u16 {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if fraction.len() > 3 || !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
        return 0;
    }
    let parts = format!("{fraction:0<3}").parse().unwrap_or(0);
    match whole {
        "0" => parts,
        "1" if parts == 0 => 1000,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_given_to_those_who_name_it() {
        for (accept, json) in [
            ("application/json", true),
            ("text/html, application/json;q=0.5", false),
            ("text/html;q=0.5, Application/JSON;q=0.9", true),
            ("application/json;q=0", false),
            ("*/*", false),
            ("", false),
        ] {
            assert_eq!(wants_json(Some(accept)), json, "{accept}");
        }
        assert!(!wants_json(None));
    }

    #[test]
    fn a_page_is_given_to_those_who_name_it() {
        for (accept, page) in [
            ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", true),
            ("Text/HTML", true),
            ("text/html, application/json", false),
            ("text/html;q=0", false),
            ("*/*", false),
            ("text/*", false),
        ] {
            assert_eq!(wants_page(Some(accept)), page, "{accept}");
        }
        assert!(!wants_page(None));
    }

    #[test]
    fn weights_are_thousandths() {
        for (text, value) in [
            ("q=0.5", 500),
            ("q=1", 1000),
            ("q=1.000", 1000),
            ("", 1000),
            ("q=1.5", 0),
            ("q=x", 0),
            ("a=1; Q=0.123", 123),
        ] {
            assert_eq!(weight(text), value, "{text}");
        }
    }
}
