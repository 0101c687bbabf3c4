//! What an Authorization field proves with.

use data_encoding::BASE64;
use weft_core::limits;
use weft_core::service::{Evidence, Secret};

/// Reads the field. `None` if it is malformed or of a scheme this door does not take, which is
/// answered like a wrong password.
pub fn evidence(field: &str) -> Option<Evidence> {
    let (scheme, rest) = field.split_once(' ')?;
    let rest = rest.trim_matches(' ');
    if scheme.eq_ignore_ascii_case("bearer") {
        let is_token = !rest.is_empty()
            && rest.len() <= limits::PROOF_BYTES_MAX * 2
            && rest.bytes().all(|byte| byte.is_ascii_graphic());
        return is_token.then(|| Evidence::Token(Secret::new(rest)));
    }
    if scheme.eq_ignore_ascii_case("basic") {
        return basic(rest);
    }
    None
}

fn basic(coded: &str) -> Option<Evidence> {
    if coded.len() > 2 * (limits::PASSWORD_BYTES_MAX + limits::CALLER_NAME_BYTES_MAX) {
        return None;
    }
    let pair = String::from_utf8(BASE64.decode(coded.as_bytes()).ok()?).ok()?;
    let (user, password) = pair.split_once(':')?;
    if user.is_empty() || password.len() > limits::PASSWORD_BYTES_MAX {
        return None;
    }
    let evidence = Evidence::Password { user: user.to_owned(), password: Secret::new(password) };
    drop(Secret::new(pair));
    Some(evidence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn basic_and_bearer_are_read_and_nothing_else() {
        let Some(Evidence::Password { user, password }) = evidence("Basic YWxpY2U6cDp3") else {
            panic!("good")
        };
        assert_eq!((user.as_str(), password.expose()), ("alice", "p:w"));
        let Some(Evidence::Token(token)) = evidence("bearer abc.def") else { panic!("good") };
        assert_eq!(token.expose(), "abc.def");
        for bad in [
            "",
            "Basic",
            "Basic !",
            "Basic YWxpY2U=",
            "Basic OnB3",
            "Bearer ",
            "Bearer a b",
            "Digest x",
            "Basic /w==",
        ] {
            assert!(evidence(bad).is_none(), "{bad}");
        }
    }
}
