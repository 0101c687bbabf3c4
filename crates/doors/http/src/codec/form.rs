//! What a form of the page sends: `application/x-www-form-urlencoded`, as the URL Standard has it.

use super::Refusal;

/// Returns a field of a form; empty if it is not there. Fails if it comes twice: who reads the one and who
/// reads the other would not agree.
pub fn field(form: &[u8], name: &str) -> Result<String, Refusal> {
    let mut values = form_urlencoded::parse(form).filter(|(own, _)| own == name).map(|(_, value)| value);
    match (values.next(), values.next()) {
        (None, _) => Ok(String::new()),
        (Some(value), None) => Ok(value.into_owned()),
        (Some(_), Some(_)) => Err(Refusal::malformed("a field of the form comes twice")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_decoded_as_browsers_code_it_and_comes_once() {
        let form = b"user=al%20ice+b&password=p%26%3d%C3%A9%2B&empty=&bare&twice=1&twice=1";
        for (name, value) in
            [("user", "al ice b"), ("password", "p&=\u{e9}+"), ("empty", ""), ("bare", ""), ("none", "")]
        {
            assert_eq!(field(form, name).expect("it comes once"), value, "{name}");
        }
        assert!(field(form, "twice").is_err());
    }
}
