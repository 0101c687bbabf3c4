//! What tus 1.0.0 says of an upload, and the address by which one is gone on with.

use data_encoding::{BASE64, HEXLOWER};
use weft_core::{Name, StageId, Time, limits};

use super::target::{encode_extended, parameter};
use super::webdav::fields::parse_seconds;
use super::{Refusal, trim};
use crate::status::Status;

/// What an upload is to become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// The name in its directory.
    pub name: Name,
    /// The time that its bytes are said to be of.
    pub mtime: Option<Time>,
}

impl Metadata {
    /// Reads Upload-Metadata: pairs of a key and its value in Base64. Keys that mean nothing here are
    /// passed over.
    pub fn of(field: &str) -> Result<Self, Refusal> {
        if field.len() > limits::UPLOAD_METADATA_BYTES_MAX {
            return Err(Refusal::new(Status::FIELDS_TOO_LARGE, "Upload-Metadata is larger than its limit"));
        }
        let mut seen: Vec<&str> = Vec::new();
        let (mut name, mut mtime) = (None, None);
        for pair in field.split(',').map(trim).filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once(' ').unwrap_or((pair, ""));
            if !key.bytes().all(|byte| byte.is_ascii_graphic()) || seen.contains(&key) {
                return Err(Refusal::malformed("a key of Upload-Metadata is malformed or comes twice"));
            }
            seen.push(key);
            let value = BASE64
                .decode(trim(value).as_bytes())
                .map_err(|_| Refusal::malformed("a value of Upload-Metadata is not in Base64"))?;
            match key {
                "filename" => name = Some(name_of(value)?),
                "mtime" => mtime = Some(time_of(&value)?),
                _ => {}
            }
        }
        let name = name.ok_or(Refusal::malformed("Upload-Metadata says no `filename`"))?;
        Ok(Self { name, mtime })
    }
}

fn name_of(value: Vec<u8>) -> Result<Name, Refusal> {
    const BAD: Refusal =
        Refusal::malformed("`filename` is not one name: 1 to 255 bytes without `/`, not `.` and not `..`");
    Name::new(value).map_err(|_| BAD)
}

fn time_of(value: &[u8]) -> Result<Time, Refusal> {
    const BAD: Refusal = Refusal::malformed("`mtime` is not a number of seconds");
    std::str::from_utf8(value).ok().and_then(parse_seconds).ok_or(BAD)
}

/// Reads Upload-Length or Upload-Offset.
pub fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.len() <= 20 && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

/// Bytes of a stamp.
pub const STAMP_BYTES: usize = 16;

/// An upload that was begun, as the query of its address says it. Nothing of it is kept here: whoever began it
/// brings it along.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// Its stage.
    pub id: StageId,
    /// How many bytes the file is to have.
    pub length: u64,
    /// What shows that the id and the path of the address belong together.
    pub stamp: [u8; STAMP_BYTES],
    /// Whether nothing may have the name when it is shown.
    pub is_new: bool,
    /// Upload-Metadata, as it came.
    pub said: String,
    /// What that says.
    pub metadata: Metadata,
}

/// Returns whether a query is that of an upload's address, be it a good one or not.
pub fn is_ticket(query: Option<&[u8]>) -> bool {
    query.is_some_and(|query| query.split(|byte| *byte == b'&').any(|pair| pair.starts_with(b"upload=")))
}

impl Ticket {
    /// Reads the query of an address.
    pub fn of(query: Option<&[u8]>) -> Result<Self, Refusal> {
        const BAD: Refusal = Refusal::malformed("this is not the address of an upload: begin another one");
        let value = |name| parameter(query, name).map_err(|_| BAD);
        let text = |value: Option<Vec<u8>>| String::from_utf8(value.ok_or(BAD)?).map_err(|_| BAD);
        let upload = text(value("upload")?)?;
        let mut parts = upload.split('.');
        let (Some(id), Some(length), Some(stamp), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(BAD);
        };
        let id = bytes(id).map(u128::from_be_bytes).map(StageId).ok_or(BAD)?;
        let length = number(length).ok_or(BAD)?;
        let stamp = bytes(stamp).ok_or(BAD)?;
        let is_new = value("new")?.is_some();
        let said = text(value("metadata")?)?;
        let metadata = Metadata::of(&said)?;
        Ok(Self { id, length, stamp, is_new, said, metadata })
    }

    /// Writes the query of its address.
    pub fn to_query(&self) -> String {
        let (id, length, stamp) = (self.id, self.length, HEXLOWER.encode(&self.stamp));
        let new = if self.is_new { "&new=1" } else { "" };
        format!("upload={id}.{length}.{stamp}{new}&metadata={}", encode_extended(self.said.as_bytes()))
    }
}

fn bytes(text: &str) -> Option<[u8; 16]> {
    HEXLOWER.decode(text.as_bytes()).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_a_name_and_perhaps_a_time() {
        for (field, name, seconds) in [
            ("filename YS50eHQ=", "a.txt", None),
            ("filetype dGV4dA==, filename YS50eHQ=,mtime MTcwMA==", "a.txt", Some(1700)),
            ("is_confidential,filename YS50eHQ=", "a.txt", None),
            ("filename YQ==,other ,", "a", None),
        ] {
            let metadata = Metadata::of(field).expect(field);
            assert_eq!(metadata.name.as_bytes(), name.as_bytes(), "{field}");
            assert_eq!(metadata.mtime.map(Time::seconds), seconds, "{field}");
        }
        for bad in [
            "",
            "mtime MTcwMA==",
            "filename",
            "filename YS50eHQ",
            "filename !",
            "filename Li4=",
            "filename Lg==",
            "filename YS9i",
            "filename YQBi",
            "filename YQ==,filename Yg==",
            "filename YQ==,mtime c29vbg==",
            "filename YQ==,\u{e4} YQ==",
        ] {
            assert_eq!(Metadata::of(bad).expect_err(bad).status, Status::BAD_REQUEST, "{bad}");
        }
        let long = format!("filename YQ==,x {}", "AAAA".repeat(2000));
        assert_eq!(Metadata::of(&long).expect_err("too long").status, Status::FIELDS_TOO_LARGE);
    }

    #[test]
    fn numbers_are_digits_alone() {
        assert_eq!((number("0"), number("18446744073709551615")), (Some(0), Some(u64::MAX)));
        for bad in ["", "-1", "+1", " 1", "1e3", "0x1", "18446744073709551616", "000000000000000000001"] {
            assert_eq!(number(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_address_says_the_same_when_it_is_read_again() {
        let said = "filename YS50eHQ=, filetype dGV4dC9wbGFpbg==".to_owned();
        let metadata = Metadata::of(&said).expect("good");
        for is_new in [false, true] {
            let (id, stamp) = (StageId(0xabc), [7; STAMP_BYTES]);
            let ticket =
                Ticket { id, length: 12, stamp, is_new, said: said.clone(), metadata: metadata.clone() };
            let query = ticket.to_query();
            assert!(is_ticket(Some(query.as_bytes())) && query.is_ascii() && !query.contains(' '), "{query}");
            assert_eq!(Ticket::of(Some(query.as_bytes())).expect("it was just written"), ticket);
        }
        for bad in ["", "upload=", "upload=1.2.3&metadata=filename%20YQ==", "page=about"] {
            assert!(Ticket::of(Some(bad.as_bytes())).is_err(), "{bad}");
        }
        assert!(Ticket::of(None).is_err() && !is_ticket(None) && !is_ticket(Some(b"xupload=1")));
    }
}
