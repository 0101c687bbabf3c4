//! Sizes as people write them: a number of bytes, or one with a binary unit, `512K`, `10G`, `2TiB`.

/// Reads a size, for an option of a command.
pub fn read(text: &str) -> Result<u64, &'static str> {
    const FORM: &str = "a size is a number, alone or with a unit: `4096`, `512K`, `10G`, `2T`";
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.strip_suffix("iB").unwrap_or(unit) {
        "" if unit.is_empty() => 0,
        "K" | "k" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        "P" => 50,
        _ => return Err(FORM),
    };
    let number: u64 = number.parse().map_err(|_| FORM)?;
    number.checked_mul(1 << shift).ok_or("the size is too large")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_has_a_binary_unit_or_none() {
        for (text, bytes) in
            [("0", 0), ("4096", 4096), ("512K", 512 << 10), ("10G", 10 << 30), ("2TiB", 2 << 40)]
        {
            assert_eq!(read(text), Ok(bytes), "{text}");
        }
        for text in ["", "G", "-1", "1X", "1 G", "1GB", "iB", "99999999999P"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
