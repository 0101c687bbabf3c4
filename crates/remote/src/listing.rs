//! What is in a directory of a server that speaks WebDAV.

use bytes::{Bytes, BytesMut};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, StatusCode};
use percent_encoding::percent_decode_str;
use quick_xml::events::Event;
use quick_xml::name::{Namespace, ResolveResult};
use quick_xml::reader::NsReader;
use weft_core::{Error, ErrorKind, Result, Time, limits};

use crate::send::{Ask, lies, refused};
use crate::{Fields, Remote, Url};

const ASKED: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:propfind xmlns:D=\"DAV:\"><D:prop><D:resourcetype/>\
    <D:getcontentlength/><D:getlastmodified/></D:prop></D:propfind>\n";
/// No answer nests deeper that says what is asked.
const DEPTH_MAX: usize = 32;

/// Something that a server has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name in the directory that was asked for; none for that directory, or file, itself.
    pub name: Option<Vec<u8>>,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// Its bytes, if the server says.
    pub length: Option<u64>,
    /// When it was changed, if the server says.
    pub modified: Option<Time>,
}

/// How much of a directory is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// It alone.
    Itself,
    /// What is in it, too.
    Members,
}

/// A member while it is read.
#[derive(Default)]
struct Found {
    href: String,
    is_directory: bool,
    length: String,
    modified: String,
}

impl Remote {
    /// Returns what a server says of a directory or file, and of what is in it. `Unsupported` if it does not speak WebDAV.
    pub async fn list(&self, url: &Url, passed: &Fields, depth: Depth) -> Result<Vec<Entry>> {
        let mut own = Fields::new();
        let depth = if depth == Depth::Itself { "0" } else { "1" };
        own.insert("depth", HeaderValue::from_static(depth));
        own.insert(CONTENT_TYPE, HeaderValue::from_static("application/xml; charset=utf-8"));
        let method = Method::from_bytes(b"PROPFIND").map_err(crate::send::malformed)?;
        let ask = Ask { method, url: url.clone(), own, passed: passed.clone() };
        let mut answer = self.ask(ask, Bytes::from_static(ASKED.as_bytes())).await?;
        let status = answer.head.status;
        if status != StatusCode::MULTI_STATUS {
            let plain = status.is_success() || status == StatusCode::BAD_REQUEST;
            let error = match plain {
                true => Error::new(ErrorKind::Unsupported, "the server does not speak WebDAV"),
                false => refused(status),
            };
            return Err(error.about(url));
        }
        let mut text = BytesMut::new();
        while let Some(piece) = self.piece(&mut answer.body).await.map_err(|error| error.about(url))? {
            text.extend_from_slice(&piece);
            if text.len() > limits::REMOTE_LISTING_BYTES_MAX {
                return Err(
                    Error::new(ErrorKind::TooLarge, "the listing is longer than its limit").about(url)
                );
            }
        }
        entries(&answer.ask.url, &text).map_err(|error| error.about(url))
    }

    /// Makes a directory. `Unsupported` (405) where something has the name.
    pub async fn make_directory(&self, url: &Url, passed: &Fields) -> Result<()> {
        let method = Method::from_bytes(b"MKCOL").map_err(crate::send::malformed)?;
        let ask = Ask { method, url: url.directory(), own: Fields::new(), passed: passed.clone() };
        let answer = self.ask(ask, Bytes::new()).await?;
        match answer.head.status {
            status if status.is_success() => Ok(()),
            status => Err(refused(status).about(url)),
        }
    }
}

/// Reads the answer to a question about `url`.
fn entries(url: &Url, text: &[u8]) -> Result<Vec<Entry>> {
    let malformed = || lies("the server's listing is malformed");
    let text = std::str::from_utf8(text).map_err(|_| malformed())?;
    let mut reader = NsReader::from_str(text.strip_prefix('\u{feff}').unwrap_or(text));
    reader.config_mut().expand_empty_elements = true;
    // The names of the open elements; of another namespace than WebDAV's none.
    let mut open: Vec<Option<String>> = Vec::new();
    let (mut found, mut entries): (Option<Found>, Vec<Entry>) = (None, Vec::new());
    loop {
        let (space, event) = reader.read_resolved_event().map_err(|_| malformed())?;
        match event {
            Event::Start(start) => {
                let is_dav = matches!(space, ResolveResult::Bound(Namespace("DAV:")));
                let name = is_dav.then(|| start.local_name().into_inner().to_owned());
                match (name.as_deref(), &mut found) {
                    (Some("response"), _) => found = Some(Found::default()),
                    (Some("collection"), Some(found)) => found.is_directory = true,
                    _ => {}
                }
                open.push(name);
                if open.len() > DEPTH_MAX {
                    return Err(malformed());
                }
            }
            Event::End(_) => {
                if open.pop().flatten().as_deref() == Some("response")
                    && let Some(found) = found.take()
                {
                    entries.push(found.entry(url)?);
                }
            }
            Event::Text(text) => add(&open, &mut found, &text.xml10_content()),
            Event::CData(text) => add(&open, &mut found, &text.xml10_content()),
            Event::GeneralRef(name) => match name.resolve_char_ref().map_err(|_| malformed())? {
                Some(one) => add(&open, &mut found, one.encode_utf8(&mut [0; 4])),
                None => {
                    let text = quick_xml::escape::resolve_predefined_entity(&name).ok_or_else(malformed)?;
                    add(&open, &mut found, text);
                }
            },
            Event::DocType(_) => return Err(malformed()),
            Event::Comment(_) | Event::PI(_) | Event::Decl(_) | Event::Empty(_) => {}
            Event::Eof if open.is_empty() => return Ok(entries),
            Event::Eof => return Err(malformed()),
        }
    }
}

fn add(open: &[Option<String>], found: &mut Option<Found>, text: &str) {
    let Some(found) = found else { return };
    match open.last().and_then(Option::as_deref) {
        Some("href") if open.len() == 3 => found.href.push_str(text),
        Some("getcontentlength") => found.length.push_str(text),
        Some("getlastmodified") => found.modified.push_str(text),
        _ => {}
    }
}

impl Found {
    fn entry(self, url: &Url) -> Result<Entry> {
        let modified = httpdate::parse_http_date(self.modified.trim()).ok();
        let since = modified.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
        Ok(Entry {
            name: name(url, self.href.trim())?,
            is_directory: self.is_directory,
            length: self.length.trim().parse().ok(),
            modified: since.map(|since| Time::from_unix(since.as_secs() as i64, 0)),
        })
    }
}

/// Returns the name that an address has in the directory `url`; none if it is that itself. What lies elsewhere is no member.
fn name(url: &Url, href: &str) -> Result<Option<Vec<u8>>> {
    let elsewhere = || lies("the server lists what is not in the directory, or has no name");
    // A server behind another may not know by which name it is asked.
    let path = url.leads_to(href).map_err(|_| elsewhere())?;
    // `//` is one way to write `/`, and some servers answer with the other.
    let names = |path: &str| -> Vec<Vec<u8>> {
        path.split('/')
            .filter(|name| !name.is_empty())
            .map(|name| percent_decode_str(name).collect())
            .collect()
    };
    let (own, all) = (names(url.path()), names(path.path()));
    match all.strip_prefix(&own[..]) {
        Some([]) => Ok(None),
        Some([name]) if is_name(name) => Ok(Some(name.clone())),
        _ => Err(elsewhere()),
    }
}

fn is_name(name: &[u8]) -> bool {
    let is_whole = !name.iter().any(|byte| matches!(byte, b'/' | 0));
    is_whole && name.len() <= limits::NAME_BYTES_MAX && name != b"." && name != b".."
}

#[cfg(test)]
mod tests {
    use weft_conformance::file_system::site::Dice;
    use weft_conformance::fuzz::fuzz;

    use super::*;

    fn url() -> Url {
        "https://h/d%20d/".parse().expect("an address")
    }

    fn listing(hrefs: &[&str]) -> String {
        let one = |href: &&str| {
            format!(
                "<x:response><x:href>{href}</x:href><x:propstat><x:prop><x:resourcetype/><x:getcontentlength>7</x:getcontentlength>\
                 <x:getlastmodified>Tue, 14 Nov 2023 22:13:20 GMT</x:getlastmodified></x:prop>\
                 <x:status>HTTP/1.1 200 OK</x:status></x:propstat></x:response>"
            )
        };
        let all: String = hrefs.iter().map(one).collect();
        format!("<?xml version=\"1.0\"?><x:multistatus xmlns:x=\"DAV:\">{all}</x:multistatus>")
    }

    #[test]
    fn members_are_told_by_their_names() {
        let text = listing(&[
            "/d%20d/",
            "/d%20d/a&amp;b",
            "https://other/d%20d/%ff",
            "/d d/c/".replace(' ', "%20").as_str(),
        ]);
        let found = entries(&url(), text.as_bytes()).expect("it is read");
        let names: Vec<Option<&[u8]>> = found.iter().map(|one| one.name.as_deref()).collect();
        assert_eq!(names, [None, Some(&b"a&b"[..]), Some(b"\xff"), Some(b"c")]);
        assert_eq!((found[1].length, found[1].modified), (Some(7), Some(Time::from_unix(1_700_000_000, 0))));
        assert!(!found[1].is_directory);
        let folder = "<multistatus xmlns=\"DAV:\"><response><href>/d%20d/f</href><propstat><prop><resourcetype><collection/>\
            </resourcetype></prop></propstat></response></multistatus>";
        let found = entries(&url(), folder.as_bytes()).expect("it is read");
        assert_eq!((found[0].is_directory, found[0].length), (true, None));
    }

    #[test]
    fn what_is_no_member_is_not_believed() {
        for href in [
            "/e/a",
            "/d%20d/a/b",
            "/d%20d/a%2Fb",
            "/d%20d/..",
            "/d%20d/%2e%2e/",
            "/d%20d/%00",
            "../e",
            "/d%20d/./",
            "file:///x",
        ] {
            assert!(entries(&url(), listing(&[href]).as_bytes()).is_err(), "{href}");
        }
        for text in ["", "<a>", "<!DOCTYPE a [<!ENTITY b \"c\">]><a>&b;</a>", "no XML at all <"] {
            let read = entries(&url(), text.as_bytes());
            assert!(read.is_err() || read.is_ok_and(|found| found.is_empty()), "{text}");
        }
        let deep = "<a>".repeat(DEPTH_MAX + 1);
        assert!(entries(&url(), deep.as_bytes()).is_err());
    }

    #[test]
    fn no_listing_makes_the_reader_panic() {
        let make = |dice: &mut Dice| {
            let hrefs = ["/d%20d/", "/d%20d/a&amp;b", "/d%20d/&#65;", "https://h/d%20d/%41"];
            listing(&hrefs[..1 + dice.roll(4) as usize]).into_bytes()
        };
        fuzz("listing", make, |bytes| {
            for entry in entries(&url(), bytes).unwrap_or_default() {
                let name = entry.name.unwrap_or_default();
                assert!(!name.contains(&b'/') && !name.contains(&0) && name != b"..");
            }
        });
    }
}
