//! What is in a directory of a server that speaks WebDAV.

use std::collections::HashSet;

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

/// What a server says of a directory, or of a file.
#[derive(Clone, Debug)]
pub struct Listing {
    /// What is there, the directory itself among it.
    pub entries: Vec<Entry>,
    /// Why it may be less than what is there.
    doubt: Option<&'static str>,
}

impl Listing {
    /// Fails unless this is known to be all that the directory holds which was asked for: only then is what it does
    /// not name not there.
    pub fn whole(&self) -> Result<()> {
        self.sure()?;
        match self.entries.iter().any(|entry| entry.name.is_none() && entry.is_directory) {
            true => Ok(()),
            false => Err(lies("the server's listing does not say that it is of the directory")),
        }
    }

    /// Fails unless this is known to be of a file, and of nothing else.
    pub fn file(&self) -> Result<()> {
        self.sure()?;
        match &self.entries[..] {
            [Entry { name: None, is_directory: false, .. }] => Ok(()),
            _ => Err(lies("what the server has there is not just a file any more")),
        }
    }

    fn sure(&self) -> Result<()> {
        self.doubt.map_or(Ok(()), |why| Err(lies(why)))
    }
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
    told: Told,
    /// Properties whose own status has not been read yet, and that.
    part: Told,
    part_status: String,
}

/// Properties of a member.
#[derive(Default)]
struct Told {
    has_kind: bool,
    is_directory: bool,
    length: String,
    modified: String,
}

impl Remote {
    /// Returns what a server says of a directory or file, and of what is in it. `Unsupported` if it does not speak WebDAV.
    pub async fn list(&self, url: &Url, passed: &Fields, depth: Depth) -> Result<Listing> {
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
        let mut listing = listing(&answer.ask.url, &text).map_err(|error| error.about(url))?;
        let there = &answer.ask.url;
        // A server may send on to its own TLS.
        let is_upgraded = there.host() == url.host() && there.is_secure() && !url.is_secure();
        if names(there.path()) != names(url.path()) || !(is_upgraded || there.is_same_server(url)) {
            listing.doubt = Some("the server sends on to another directory, and tells what is in that");
        }
        Ok(listing)
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
fn listing(url: &Url, text: &[u8]) -> Result<Listing> {
    let malformed = || lies("the server's listing is malformed");
    let text = std::str::from_utf8(text).map_err(|_| malformed())?;
    let mut reader = NsReader::from_str(text.strip_prefix('\u{feff}').unwrap_or(text));
    reader.config_mut().expand_empty_elements = true;
    // The names of the open elements; of another namespace than WebDAV's none.
    let mut open: Vec<Option<String>> = Vec::new();
    let (mut found, mut entries): (Option<Found>, Vec<Entry>) = (None, Vec::new());
    let (mut doubt, mut is_begun) = (None, false);
    loop {
        let (space, event) = reader.read_resolved_event().map_err(|_| malformed())?;
        match event {
            Event::Start(start) => {
                let is_dav = matches!(space, ResolveResult::Bound(Namespace("DAV:")));
                let name = is_dav.then(|| start.local_name().into_inner().to_owned());
                match (name.as_deref(), &mut found) {
                    (Some("multistatus"), _) if open.is_empty() => is_begun = true,
                    _ if open.is_empty() => return Err(malformed()),
                    (Some("response"), _) => found = Some(Found::default()),
                    (Some("resourcetype"), Some(found)) => found.part.has_kind = true,
                    (Some("collection"), Some(found)) => found.part.is_directory = true,
                    _ => {}
                }
                open.push(name);
                if open.len() > DEPTH_MAX {
                    return Err(malformed());
                }
            }
            Event::End(_) => match (open.pop().flatten().as_deref(), &mut found) {
                (Some("propstat"), Some(found)) => found.end_part(),
                (Some("response"), ended) => {
                    if let Some(mut found) = ended.take() {
                        found.end_part();
                        doubt = doubt.or(found.doubt());
                        entries.push(found.entry(url)?);
                    }
                }
                _ => {}
            },
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
            Event::Eof if open.is_empty() && is_begun => break,
            Event::Eof => return Err(malformed()),
        }
    }
    let mut seen = HashSet::new();
    if !entries.iter().all(|entry| seen.insert(&entry.name)) {
        doubt = doubt.or(Some("the server lists a name twice"));
    }
    Ok(Listing { entries, doubt })
}

fn add(open: &[Option<String>], found: &mut Option<Found>, text: &str) {
    let Some(found) = found else { return };
    match open.last().and_then(Option::as_deref) {
        Some("href") if open.len() == 3 => found.href.push_str(text),
        Some("status") => found.part_status.push_str(text),
        Some("getcontentlength") => found.part.length.push_str(text),
        Some("getlastmodified") => found.part.modified.push_str(text),
        _ => {}
    }
}

/// Returns whether a status line says that all went well, as one that is not there does.
fn is_success(status: &str) -> bool {
    status.split_whitespace().nth(1).is_none_or(|code| code.starts_with('2'))
}

impl Found {
    /// Takes over the properties read last, unless the server says that these it does not tell.
    fn end_part(&mut self) {
        let (part, status) = (std::mem::take(&mut self.part), std::mem::take(&mut self.part_status));
        if !is_success(&status) {
            return;
        }
        self.told.has_kind |= part.has_kind;
        self.told.is_directory |= part.is_directory;
        self.told.length.push_str(&part.length);
        self.told.modified.push_str(&part.modified);
    }

    /// Returns why there may be more than the server tells, or something else: where it has a status for an entry, as 507, it tells
    /// no properties of it.
    fn doubt(&self) -> Option<&'static str> {
        // Some do not tell the kind of a file, as it has none to say.
        let is_file = !self.told.length.is_empty() && !self.href.trim_end().ends_with('/');
        (!self.told.has_kind && !is_file)
            .then_some("the server does not tell all that is there, or not of all whether it is a directory")
    }

    fn entry(self, url: &Url) -> Result<Entry> {
        let told = self.told;
        let modified = httpdate::parse_http_date(told.modified.trim()).ok();
        let since = modified.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
        Ok(Entry {
            name: name(url, self.href.trim())?,
            is_directory: told.is_directory,
            length: told.length.trim().parse().ok(),
            modified: since.map(|since| Time::from_unix(since.as_secs() as i64, 0)),
        })
    }
}

/// Returns the name that an address has in the directory `url`; none if it is that itself. What lies elsewhere is no member.
fn name(url: &Url, href: &str) -> Result<Option<Vec<u8>>> {
    let elsewhere = || lies("the server lists what is not in the directory, or has no name");
    // A server behind another may not know by which name it is asked.
    let path = url.leads_to(href).map_err(|_| elsewhere())?;
    let (own, all) = (names(url.path()), names(path.path()));
    match all.strip_prefix(&own[..]) {
        Some([]) => Ok(None),
        Some([name]) if is_name(name) => Ok(Some(name.clone())),
        _ => Err(elsewhere()),
    }
}

/// Returns the names of a path: `//` is one way to write `/`, and some servers answer with the other.
fn names(path: &str) -> Vec<Vec<u8>> {
    let names = path.split('/').filter(|name| !name.is_empty());
    names.map(|name| percent_decode_str(name).collect()).collect()
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

    fn answer(hrefs: &[&str]) -> String {
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
        let text = answer(&[
            "/d%20d/",
            "/d%20d/a&amp;b",
            "https://other/d%20d/%ff",
            "/d d/c/".replace(' ', "%20").as_str(),
        ]);
        let found = listing(&url(), text.as_bytes()).expect("it is read").entries;
        let names: Vec<Option<&[u8]>> = found.iter().map(|one| one.name.as_deref()).collect();
        assert_eq!(names, [None, Some(&b"a&b"[..]), Some(b"\xff"), Some(b"c")]);
        assert_eq!((found[1].length, found[1].modified), (Some(7), Some(Time::from_unix(1_700_000_000, 0))));
        assert!(!found[1].is_directory);
        let folder = "<multistatus xmlns=\"DAV:\"><response><href>/d%20d/f</href><propstat><prop><resourcetype><collection/>\
            </resourcetype></prop></propstat></response></multistatus>";
        let found = listing(&url(), folder.as_bytes()).expect("it is read").entries;
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
            assert!(listing(&url(), answer(&[href]).as_bytes()).is_err(), "{href}");
        }
        for text in [
            "",
            "<a>",
            "<a/>",
            "<html>Index of /d d/</html>",
            "<!DOCTYPE a [<!ENTITY b \"c\">]><a>&b;</a>",
            "no XML at all <",
        ] {
            assert!(listing(&url(), text.as_bytes()).is_err(), "{text}");
        }
        let deep = "<a>".repeat(DEPTH_MAX + 1);
        assert!(listing(&url(), deep.as_bytes()).is_err());
    }

    /// A listing of a directory and this.
    fn beside(more: &str) -> String {
        let own = "<response><href>/d%20d/</href><propstat><prop><resourcetype><collection/></resourcetype></prop>\
            <status>HTTP/1.1 200 OK</status></propstat></response>";
        format!("<multistatus xmlns=\"DAV:\">{own}{more}</multistatus>")
    }

    #[test]
    fn a_listing_is_whole_only_if_nothing_in_it_says_otherwise() {
        let whole = |text: &str| listing(&url(), text.as_bytes()).expect("it is read").whole();
        let of = |status: &str| {
            format!(
                "<response><href>/d%20d/a</href><propstat><prop><resourcetype/></prop><status>{status}</status></propstat></response>"
            )
        };
        assert!(whole(&beside("")).is_ok() && whole(&beside(&of("HTTP/1.1 200 OK"))).is_ok());
        // Of a file, the length says as much as its kind; what is not told of it says nothing.
        let sized = "<response><href>/d%20d/a</href><propstat><prop><getcontentlength>0</getcontentlength></prop><status>HTTP/1.1 \
            200 OK</status></propstat><propstat><prop><resourcetype/></prop><status>HTTP/1.1 404 Not Found</status></propstat></response>";
        assert!(whole(&beside(sized)).is_ok());
        for more in [
            // Whether it is a directory is not for the caller to know.
            of("HTTP/1.1 403 Forbidden"),
            // Cut off by the server, as its kind of error for that says.
            "<response><href>/d%20d/</href><status>HTTP/1.1 507 Insufficient Storage</status></response>"
                .to_owned(),
            "<response><href>/d%20d/a</href><status>HTTP/1.1 403 Forbidden</status></response>".to_owned(),
            // A directory has a length with some servers.
            sized.replace("/a<", "/a/<"),
            // It may be both, or the other.
            of("HTTP/1.1 200 OK") + sized,
        ] {
            assert!(whole(&beside(&more)).is_err(), "{more}");
        }
        // It may be of anything, or of a file.
        assert!(whole("<multistatus xmlns=\"DAV:\"/>").is_err() && whole(&answer(&["/d%20d/a"])).is_err());
        assert!(whole(&answer(&["/d%20d/"])).is_err());
        for end in 0..beside("").len() {
            assert!(listing(&url(), &beside("").as_bytes()[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn a_file_is_told_from_all_else() {
        let file = |text: &str| listing(&url(), text.as_bytes()).expect("it is read").file();
        let own = answer(&["/d%20d"]);
        assert!(file(&own).is_ok(), "{own}");
        for other in [beside(""), answer(&["/d%20d", "/d%20d/a"]), answer(&["/d%20d/a"]), answer(&[])] {
            assert!(file(&other).is_err(), "{other}");
        }
        assert!(file(&own.replace("<x:resourcetype/>", "").replace("200 OK", "403 No")).is_err());
    }

    #[test]
    fn a_directory_that_may_not_be_known_for_one_is_not_told_as_one() {
        let hidden = "<response><href>/d%20d/a</href><propstat><prop><resourcetype><collection/></resourcetype></prop>\
            <status>HTTP/1.1 403 Forbidden</status></propstat></response>";
        let found = listing(&url(), beside(hidden).as_bytes()).expect("it is read");
        assert!(!found.entries[1].is_directory && found.whole().is_err());
    }

    #[test]
    fn no_listing_makes_the_reader_panic() {
        let make = |dice: &mut Dice| {
            let hrefs = ["/d%20d/", "/d%20d/a&amp;b", "/d%20d/&#65;", "https://h/d%20d/%41"];
            answer(&hrefs[..1 + dice.roll(4) as usize]).into_bytes()
        };
        fuzz("listing", make, |bytes| {
            let found = listing(&url(), bytes).map(|listing| listing.entries);
            for entry in found.unwrap_or_default() {
                let name = entry.name.unwrap_or_default();
                assert!(!name.contains(&b'/') && !name.contains(&0) && name != b"..");
            }
        });
    }
}
