//! Dead properties are attributes: each is one under the name that the property has, and every
//! attribute is a property.
//!
//! A property `a` of the namespace `http://x/` is the attribute `{http://x/}a`. An attribute whose name
//! has no namespace is a property of [`PLAIN`], if that can be written in XML. A value that is
//! nothing but text is kept as that text, so that it reads the same through every door; anything else
//! is kept as the element, which begins with `<`.

use std::sync::Arc;

use bytes::Bytes;
use weft_core::attr::TagName;
use weft_core::form::{At, Call, FileSystem};
use weft_core::{Error, ErrorKind, FileId, Result, limits};
use weft_sys::Sys;

use crate::codec::webdav::xml::{self, Element, QName, RESERVED, escape_into, is_char, is_local_name};

/// The namespace of attributes that have none.
pub const PLAIN: &str = "weft:attribute";

/// All attributes of something.
pub type Tags = Vec<(TagName, Bytes)>;

/// Returns all attributes of what is there. Each page of them is a call of its own.
pub async fn tags(sys: &Sys, fs: &Arc<dyn FileSystem>, call: &Call, id: FileId) -> Result<Tags> {
    let (mut all, mut from) = (Tags::new(), None);
    loop {
        let call = call.renewed(sys.clock(), limits::CALL_DEADLINE);
        let page = sys.within(call.until, fs.tags(&call, &At::id(id), from)).await?;
        all.extend(page.tags);
        from = page.next;
        if from.is_none() {
            return Ok(all);
        }
    }
}

/// Returns the attribute that a property is.
pub fn tag_of(name: &QName) -> Result<TagName> {
    if RESERVED.contains(&name.space.as_str()) {
        return Err(Error::invalid("no property lies in a namespace of XML itself"));
    }
    if name.space == PLAIN {
        return TagName::new(name.local.clone());
    }
    TagName::new(format!("{{{}}}{}", name.space, name.local))
}

/// Returns the property that an attribute is; `None` if XML has no way to write it.
pub fn property_of(tag: &TagName) -> Option<QName> {
    let text = std::str::from_utf8(tag.as_bytes()).ok()?;
    let (space, local) = match text.strip_prefix('{') {
        Some(rest) => rest.rsplit_once('}')?,
        None => (PLAIN, text),
    };
    let back = QName::new(space, local);
    let same = tag_of(&back).is_ok_and(|again| again == *tag);
    (same && is_local_name(local) && space.chars().all(is_char)).then_some(back)
}

/// Returns the value to keep of a property that a client sets. `TooLarge` beyond what an attribute may
/// hold.
pub fn value_of(element: &Element) -> Result<Bytes> {
    let value = match element.plain_text() {
        Some(text) if !text.starts_with('<') => text.to_owned(),
        _ => element.to_text(),
    };
    if value.len() > limits::TAG_VALUE_BYTES_MAX {
        return Err(Error::new(ErrorKind::TooLarge, "a property's value has at most 60 KiB"));
    }
    Ok(value.into())
}

/// Writes a property with its value. Nothing, and `false`, if XML has no way to write the value.
pub fn write(name: &QName, value: &[u8], out: &mut String) -> bool {
    let Ok(text) = std::str::from_utf8(value) else { return false };
    if text.starts_with('<') {
        // Through another door anything may have been written there.
        let element = xml::parse(value).ok().filter(|element| element.name == *name);
        if let Some(element) = element {
            out.push_str(&element.to_text());
            return true;
        }
    }
    if !text.chars().all(is_char) {
        return false;
    }
    open(name, out);
    out.push('>');
    escape_into(text, out);
    out.push_str("</");
    out.push_str(&name.local);
    out.push('>');
    true
}

/// Writes a property without its value.
pub fn write_name(name: &QName, out: &mut String) {
    open(name, out);
    out.push_str("/>");
}

fn open(name: &QName, out: &mut String) {
    out.push('<');
    out.push_str(&name.local);
    out.push_str(" xmlns=\"");
    escape_into(&name.space, out);
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_property_and_its_attribute_name_each_other() {
        for (space, local, tag) in [
            ("http://x/", "a", "{http://x/}a"),
            ("", "a", "{}a"),
            ("a}b", "c", "{a}b}c"),
            (PLAIN, "color", "color"),
            ("DAV:", "displayname", "{DAV:}displayname"),
        ] {
            let name = QName::new(space, local);
            let tag = TagName::new(tag.to_owned()).expect("good");
            assert_eq!(tag_of(&name).expect("short"), tag);
            assert_eq!(property_of(&tag), Some(name));
        }
        for odd in [
            "{",
            "{a",
            "{a}",
            "a b",
            "{u}a:b",
            "{http://www.w3.org/2000/xmlns/}a",
            "{weft:attribute}a",
            "1",
            "{\u{1}}a",
        ] {
            assert_eq!(property_of(&TagName::new(odd.to_owned()).expect("good")), None, "{odd}");
        }
        assert_eq!(property_of(&TagName::new(vec![0xff]).expect("good")), None);
        assert!(tag_of(&QName::new(&"x".repeat(300), "a")).is_err());
    }

    #[test]
    fn whatever_lies_in_an_attribute_the_answer_stays_well_formed() {
        let name = QName::new("u", "a");
        for value in [
            "text & <more>",
            "",
            "<a xmlns='u'>1<b/></a>",
            "<a",
            "<b xmlns='u'/>",
            "<a xmlns='u'/><x>",
            "]]>",
        ] {
            let mut out = String::from("<prop xmlns='DAV:'>");
            assert!(write(&name, value.as_bytes(), &mut out), "{value}");
            out.push_str("</prop>");
            let root = xml::parse(out.as_bytes()).unwrap_or_else(|_| panic!("{out}"));
            let names: Vec<_> = root.elements().map(|element| &element.name).collect();
            assert_eq!(names, [&name]);
        }
        let mut out = String::new();
        assert!(!write(&name, b"\xff", &mut out) && !write(&name, b"\x01", &mut out) && out.is_empty());
    }
}
