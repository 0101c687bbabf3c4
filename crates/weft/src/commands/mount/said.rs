//! What a mount says of itself: an attribute of lines of `key: value`.

/// What a mount says, in the order in which it says it.
pub type Said = Vec<(String, String)>;

/// Reads lines of `key: value`.
pub fn lines(said: &[u8]) -> Said {
    let said = String::from_utf8_lossy(said);
    let pairs = said.lines().filter_map(|line| line.split_once(": "));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}
