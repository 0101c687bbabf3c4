//! The cookies that a browser keeps a login of the page in (RFC 6265).
//!
//! A credential that names many groups is longer than a browser keeps in one cookie, so it goes in pieces,
//! each a cookie of its own: `weft0`, `weft1` and so on.

use weft_core::limits;

use super::head::{Field, Head};
use super::{Refusal, trim};

/// Bytes of a piece. Browsers keep 4096 of a cookie with its name and its attributes.
const PIECE_BYTES: usize = 3800;
/// Pieces at most: as many as the longest credential needs.
pub const PIECES_MAX: usize = (2 * limits::PROOF_BYTES_MAX).div_ceil(PIECE_BYTES);

/// Returns the cookies that a token is kept in: names and values.
pub fn split(token: &str) -> Vec<(String, &str)> {
    let mut pieces = Vec::new();
    let mut rest = token;
    while !rest.is_empty() {
        // A token is ASCII; of anything else nothing would be cut in two.
        let (piece, left) = rest.split_at_checked(PIECE_BYTES).unwrap_or((rest, ""));
        pieces.push((name_of(pieces.len()), piece));
        rest = left;
    }
    pieces
}

/// Returns the name of a piece's cookie.
pub fn name_of(piece: usize) -> String {
    format!("weft{piece}")
}

/// Returns the token that the cookies of a request hold. Browsers send one field of them; nobody needs more.
pub fn of(head: &Head) -> Result<Option<String>, Refusal> {
    // Sent twice it is what no browser sends, and is none of ours.
    Ok(if head.has(Field::Cookie) { head.one(Field::Cookie)?.and_then(joined) } else { None })
}

/// Returns the token that the Cookie field of a request holds, if it holds one of ours.
pub fn joined(field: &str) -> Option<String> {
    let mut token = String::new();
    for piece in 0..PIECES_MAX {
        let name = name_of(piece);
        let mut values = field.split(';').filter_map(|pair| {
            let (own, value) = pair.split_once('=')?;
            (trim(own) == name).then(|| trim(value))
        });
        match (values.next(), values.next()) {
            (Some(value), None) => token.push_str(value),
            // A cookie that is there twice was set by somebody else as well: none of them is believed.
            (Some(_), Some(_)) => return None,
            (None, _) => break,
        }
    }
    let is_token = !token.is_empty()
        && token.len() <= 2 * limits::PROOF_BYTES_MAX
        && token.bytes().all(|byte| byte.is_ascii_graphic());
    is_token.then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_of_any_length_comes_back_from_its_cookies() {
        for length in [1, 100, PIECE_BYTES, PIECE_BYTES + 1, 2 * limits::PROOF_BYTES_MAX] {
            let token: String = (0..length).map(|at| char::from(b'a' + (at % 26) as u8)).collect();
            let pieces = split(&token);
            assert!(pieces.len() <= PIECES_MAX && pieces.iter().all(|(_, piece)| piece.len() <= PIECE_BYTES));
            let pairs: Vec<String> =
                pieces.iter().rev().map(|(name, value)| format!("{name}={value}")).collect();
            assert_eq!(joined(&format!("a=b; {}; weftx=1", pairs.join("; "))), Some(token));
        }
    }

    #[test]
    fn what_is_no_token_of_ours_is_none() {
        for field in ["", "weft0", "weft0=", "weft1=a", "a=weft0=b", "weft0=a; weft0=b", "weft0=\u{e9}"] {
            assert_eq!(joined(field), None, "{field}");
        }
    }
}
