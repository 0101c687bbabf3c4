//! XML as WebDAV uses it: read into a small tree, and written.
//!
//! A document that would have to be expanded (a DTD, an entity of its own) is refused, and the tree
//! is bounded in depth, elements and bindings, so that no short text becomes a large tree. What is
//! kept of a client's XML is written anew from the tree, never as it came: what was well-formed alone
//! could otherwise break every answer that it becomes a part of.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::Arc;

use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion};
use weft_core::limits;

use crate::codec::Refusal;

/// The namespace of what RFC 4918 defines.
pub const DAV: &str = "DAV:";

/// Spaces that no prefix is bound to and no property lies in.
pub const RESERVED: [&str; 2] = ["http://www.w3.org/XML/1998/namespace", "http://www.w3.org/2000/xmlns/"];

const MALFORMED: Refusal = Refusal::malformed("the body is not well-formed XML");
const TOO_MUCH: Refusal = Refusal::malformed("the body's XML is deeper or larger than its limit");

/// A name with its namespace; an empty one is none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QName {
    /// The namespace.
    pub space: String,
    /// The name in it.
    pub local: String,
}

impl QName {
    /// Makes a name.
    pub fn new(space: &str, local: &str) -> Self {
        Self { space: space.to_owned(), local: local.to_owned() }
    }

    /// Returns whether this is what RFC 4918 calls `local`.
    pub fn is_dav(&self, local: &str) -> bool {
        self.space == DAV && self.local == local
    }
}

/// An element.
#[derive(Clone, Debug)]
pub struct Element {
    /// Its name.
    pub name: QName,
    /// What it holds.
    pub children: Vec<Node>,
    /// Its name as it was written, with the prefix.
    written: String,
    /// Its attributes as they were written, bindings of prefixes among them; values are unescaped.
    attributes: Vec<(String, String)>,
    /// What was bound around it.
    around: Arc<Scope>,
}

/// A part of what an element holds.
#[derive(Clone, Debug)]
pub enum Node {
    /// An element.
    Element(Element),
    /// Text, unescaped.
    Text(String),
}

/// What holds at a place: which prefixes are bound to what, and in which language text is.
#[derive(Clone, Debug, Default)]
struct Scope {
    bindings: Vec<(String, String)>,
    language: Option<String>,
}

impl Scope {
    fn resolve(&self, prefix: &str) -> Option<&str> {
        if prefix == "xml" {
            return Some(RESERVED[0]);
        }
        let bound = self.bindings.iter().find(|(bound, _)| bound == prefix);
        bound.map(|(_, space)| space.as_str()).or((prefix.is_empty()).then_some(""))
    }

    /// Returns the scope within an element.
    fn within(self: &Arc<Self>, attributes: &[(String, String)]) -> Result<Arc<Self>, Refusal> {
        let mut own = None;
        for (name, value) in attributes {
            if name == "xml:lang" {
                if value.len() > limits::TAG_NAME_BYTES_MAX {
                    return Err(TOO_MUCH);
                }
                own.get_or_insert_with(|| (**self).clone()).language = Some(value.clone());
            }
            let Some(prefix) = binding(name) else { continue };
            // An empty binding is of the default alone, and two spaces cannot be bound (Namespaces in
            // XML 1.0, 2.2 and 3).
            let is_reserved = RESERVED.contains(&value.as_str()) || matches!(prefix, "xml" | "xmlns");
            if (value.is_empty() && !prefix.is_empty()) || is_reserved || name == "xmlns:" {
                return Err(MALFORMED);
            }
            if value.len() > limits::TAG_NAME_BYTES_MAX {
                return Err(TOO_MUCH);
            }
            let scope = own.get_or_insert_with(|| (**self).clone());
            scope.bindings.retain(|(bound, _)| bound != prefix);
            scope.bindings.push((prefix.to_owned(), value.clone()));
            if scope.bindings.len() > limits::DAV_XML_BINDINGS_MAX {
                return Err(TOO_MUCH);
            }
        }
        Ok(own.map_or_else(|| self.clone(), Arc::new))
    }
}

/// Returns the prefix that an attribute binds, if it binds one.
fn binding(attribute: &str) -> Option<&str> {
    if attribute == "xmlns" { Some("") } else { attribute.strip_prefix("xmlns:") }
}

/// Reads a document.
pub fn parse(bytes: &[u8]) -> Result<Element, Refusal> {
    let text = std::str::from_utf8(bytes).map_err(|_| Refusal::malformed("XML is taken in UTF-8 only"))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if !text.chars().all(is_char) {
        return Err(MALFORMED);
    }
    let mut reader = Reader::from_str(text);
    reader.config_mut().expand_empty_elements = true;
    let mut open: Vec<(Element, Arc<Scope>)> = Vec::new();
    let (mut root, mut elements) = (None, 0);
    loop {
        match reader.read_event().map_err(|_| MALFORMED)? {
            Event::Start(start) => {
                elements += 1;
                if open.len() >= limits::DAV_XML_DEPTH_MAX || elements > limits::DAV_XML_ELEMENTS_MAX {
                    return Err(TOO_MUCH);
                }
                if root.is_some() {
                    return Err(MALFORMED);
                }
                let around = open.last().map(|(_, scope)| scope.clone()).unwrap_or_default();
                open.push(begin(&start, around)?);
            }
            Event::End(_) => {
                let (element, _) = open.pop().ok_or(MALFORMED)?;
                match open.last_mut() {
                    Some((above, _)) => above.children.push(Node::Element(element)),
                    None => root = Some(element),
                }
            }
            Event::Text(text) => add_text(&mut open, &text.xml10_content())?,
            Event::CData(text) => add_text(&mut open, &text.xml10_content())?,
            Event::GeneralRef(name) => {
                let text = match name.resolve_char_ref().map_err(|_| MALFORMED)? {
                    Some(one) if is_char(one) => one.to_string(),
                    Some(_) => return Err(MALFORMED),
                    None => quick_xml::escape::resolve_predefined_entity(&name).ok_or(MALFORMED)?.to_owned(),
                };
                add_text(&mut open, &text)?;
            }
            Event::DocType(_) => return Err(Refusal::malformed("XML is taken without a DTD only")),
            Event::Comment(_) | Event::PI(_) | Event::Decl(_) | Event::Empty(_) => {}
            Event::Eof => return root.filter(|_| open.is_empty()).ok_or(MALFORMED),
        }
    }
}

fn begin(start: &BytesStart<'_>, around: Arc<Scope>) -> Result<(Element, Arc<Scope>), Refusal> {
    let mut attributes = Vec::new();
    for attribute in start.attributes() {
        let attribute = attribute.map_err(|_| MALFORMED)?;
        let value = attribute.normalized_value(XmlVersion::Implicit1_0).map_err(|_| MALFORMED)?;
        let name = attribute.key.0;
        // What it would be escaped to again is checked here: references may hide anything.
        if !is_written_name(name) || !value.chars().all(is_char) || attribute.value.contains('<') {
            return Err(MALFORMED);
        }
        attributes.push((name.to_owned(), value.into_owned()));
    }
    let scope = around.within(&attributes)?;
    let mut expanded = Vec::new();
    for (name, _) in attributes.iter().filter(|(name, _)| binding(name).is_none()) {
        let Some((prefix, local)) = name.split_once(':') else { continue };
        let one = (scope.resolve(prefix).ok_or(MALFORMED)?, local);
        // Two names with different prefixes may be one (Namespaces in XML 1.0, 6.3).
        if expanded.contains(&one) || expanded.len() >= limits::DAV_XML_BINDINGS_MAX {
            return Err(MALFORMED);
        }
        expanded.push(one);
    }
    let written = start.name().0;
    if !is_written_name(written) {
        return Err(MALFORMED);
    }
    let (prefix, local) = written.split_once(':').unwrap_or(("", written));
    let space = scope.resolve(prefix).ok_or(MALFORMED)?;
    let name = QName::new(space, local);
    Ok((Element { name, children: Vec::new(), written: written.to_owned(), attributes, around }, scope))
}

fn add_text(open: &mut [(Element, Arc<Scope>)], text: &str) -> Result<(), Refusal> {
    let Some((element, _)) = open.last_mut() else {
        return if text.trim().is_empty() { Ok(()) } else { Err(MALFORMED) };
    };
    match element.children.last_mut() {
        Some(Node::Text(before)) => before.push_str(text),
        _ => element.children.push(Node::Text(text.to_owned())),
    }
    Ok(())
}

/// Returns whether a character may stand in XML 1.0 (2.2).
pub fn is_char(one: char) -> bool {
    matches!(one, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

/// Returns whether a name, with at most one prefix, is one that reads back the same.
fn is_written_name(name: &str) -> bool {
    let (prefix, local) = name.split_once(':').unwrap_or(("x", name));
    is_local_name(prefix) && is_local_name(local)
}

/// Returns whether a name without prefix can be written (Namespaces in XML 1.0, NCName).
pub fn is_local_name(name: &str) -> bool {
    let starts = |one: char| {
        one.is_ascii_alphabetic()
            || matches!(one, '_' | '\u{c0}'..='\u{d6}' | '\u{d8}'..='\u{f6}' | '\u{f8}'..='\u{2ff}'
                | '\u{370}'..='\u{37d}' | '\u{37f}'..='\u{1fff}' | '\u{200c}'..='\u{200d}'
                | '\u{2070}'..='\u{218f}' | '\u{2c00}'..='\u{2fef}' | '\u{3001}'..='\u{d7ff}'
                | '\u{f900}'..='\u{fdcf}' | '\u{fdf0}'..='\u{fffd}' | '\u{10000}'..='\u{effff}')
    };
    let goes_on = |one: char| {
        starts(one)
            || one.is_ascii_digit()
            || matches!(one, '-' | '.' | '\u{b7}' | '\u{300}'..='\u{36f}' | '\u{203f}'..='\u{2040}')
    };
    let mut all = name.chars();
    all.next().is_some_and(starts) && all.all(goes_on)
}

impl Element {
    /// Returns the elements it holds.
    pub fn elements(&self) -> impl Iterator<Item = &Element> {
        self.children.iter().filter_map(|node| match node {
            Node::Element(element) => Some(element),
            Node::Text(_) => None,
        })
    }

    /// Returns the element of RFC 4918 that it holds, if there is one.
    pub fn child(&self, local: &str) -> Option<&Element> {
        self.elements().find(|element| element.name.is_dav(local))
    }

    /// Returns what it holds, if that is text alone.
    pub fn plain_text(&self) -> Option<&str> {
        let is_plain =
            self.around.language.is_none() && self.attributes.iter().all(|(name, _)| binding(name).is_some());
        match &self.children[..] {
            [] if is_plain => Some(""),
            [Node::Text(text)] if is_plain => Some(text),
            _ => None,
        }
    }

    /// Writes the element so that it can stand anywhere: with all that was bound around it.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let own = |prefix: &str| self.attributes.iter().any(|(name, _)| binding(name) == Some(prefix));
        let inherited = self.around.bindings.iter().filter(|(prefix, _)| !own(prefix));
        let mut attributes: Vec<(Cow<'_, str>, &str)> = inherited
            .map(|(prefix, space)| {
                let name = if prefix.is_empty() { "xmlns".into() } else { format!("xmlns:{prefix}").into() };
                (name, space.as_str())
            })
            .collect();
        // Where it comes to stand a default may be bound.
        if !own("")
            && self.around.resolve("") == Some("")
            && !self.around.bindings.iter().any(|(p, _)| p.is_empty())
        {
            attributes.push(("xmlns".into(), ""));
        }
        let has_language = self.attributes.iter().any(|(name, _)| name == "xml:lang");
        if let Some(language) = self.around.language.as_deref().filter(|_| !has_language) {
            attributes.push(("xml:lang".into(), language));
        }
        attributes.extend(self.attributes.iter().map(|(name, value)| (name.as_str().into(), value.as_str())));
        self.write(&attributes, &mut text);
        text
    }

    fn write(&self, attributes: &[(Cow<'_, str>, &str)], text: &mut String) {
        let _ = write!(text, "<{}", self.written);
        for (name, value) in attributes {
            let _ = write!(text, " {name}=\"");
            escape_into(value, text);
            text.push('"');
        }
        if self.children.is_empty() {
            text.push_str("/>");
            return;
        }
        text.push('>');
        for node in &self.children {
            match node {
                Node::Text(own) => escape_into(own, text),
                Node::Element(element) => {
                    let own =
                        element.attributes.iter().map(|(name, value)| (name.as_str().into(), value.as_str()));
                    element.write(&own.collect::<Vec<_>>(), text);
                }
            }
        }
        let _ = write!(text, "</{}>", self.written);
    }
}

/// Writes text so that it reads back the same, in an element or an attribute.
pub fn escape_into(text: &str, out: &mut String) {
    let mut from = 0;
    for (at, byte) in text.bytes().enumerate() {
        let escape = match byte {
            b'&' => "&amp;",
            b'<' => "&lt;",
            b'>' => "&gt;",
            b'"' => "&quot;",
            b'\r' => "&#13;",
            b'\n' => "&#10;",
            b'\t' => "&#9;",
            _ => continue,
        };
        out.push_str(&text[from..at]);
        out.push_str(escape);
        from = at + 1;
    }
    out.push_str(&text[from..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn property(document: &str) -> Element {
        let root = parse(document.as_bytes()).expect(document);
        root.elements().next().expect("a child").clone()
    }

    #[test]
    fn names_are_what_their_prefixes_are_bound_to() {
        for (document, space, local) in [
            ("<a xmlns='DAV:'><b/></a>", "DAV:", "b"),
            ("<D:a xmlns:D='DAV:'><D:b/></D:a>", "DAV:", "b"),
            ("<a xmlns='DAV:'><b xmlns=''/></a>", "", "b"),
            ("<a><b/></a>", "", "b"),
            ("<a xmlns:p='one'><p:b xmlns:p='two'/></a>", "two", "b"),
        ] {
            assert_eq!(property(document).name, QName::new(space, local), "{document}");
        }
    }

    #[test]
    fn what_is_written_stands_alone_and_reads_back_the_same() {
        for (document, text) in [
            (
                "<D:p xmlns:D='DAV:' xmlns:x='u'><x:c>a&amp;&#60;b</x:c></D:p>",
                "<x:c xmlns:D=\"DAV:\" xmlns:x=\"u\" xmlns=\"\">a&amp;&lt;b</x:c>",
            ),
            ("<p xmlns='u' xml:lang='de'><c/></p>", "<c xmlns=\"u\" xml:lang=\"de\"/>"),
            (
                "<p><c xml:lang='en' k='&quot;\u{e4}'><d xmlns='v'>1<!-- no -->2</d></c></p>",
                "<c xmlns=\"\" xml:lang=\"en\" k=\"&quot;\u{e4}\"><d xmlns=\"v\">12</d></c>",
            ),
            ("<p><c><![CDATA[<&]]></c></p>", "<c xmlns=\"\">&lt;&amp;</c>"),
        ] {
            let element = property(document);
            assert_eq!(element.to_text(), text, "{document}");
            let again = parse(text.as_bytes()).expect("it is well-formed");
            assert_eq!((again.to_text(), again.name), (element.to_text(), element.name));
        }
    }

    #[test]
    fn text_is_plain_only_where_nothing_else_would_be_lost() {
        for (document, text) in [
            ("<a><b>x</b></a>", Some("x")),
            ("<a><b/></a>", Some("")),
            ("<a><b xmlns='u'>x</b></a>", Some("x")),
            ("<a><b xml:lang='de'>x</b></a>", None),
            ("<a xml:lang='de'><b>x</b></a>", None),
            ("<a><b>x<c/></b></a>", None),
        ] {
            assert_eq!(property(document).plain_text(), text, "{document}");
        }
    }

    #[test]
    fn what_is_not_well_formed_or_could_grow_is_refused() {
        let deep = "<a>".repeat(limits::DAV_XML_DEPTH_MAX + 1);
        let long = format!("<a xmlns:p='{}'/>", "\"".repeat(limits::TAG_NAME_BYTES_MAX + 1));
        let wide = format!("<a>{}</a>", "<b/>".repeat(limits::DAV_XML_ELEMENTS_MAX));
        for bad in [
            "",
            "<a>",
            "</a>",
            "<a></b>",
            "<a/><b/>",
            "<a/>x",
            "<a b='1' b='2'/>",
            "<p:a/>",
            "<a p:b=''/>",
            "<a xmlns:p=''/>",
            "<a xmlns:xmlns='u'/>",
            "<a xmlns:xml='u'/>",
            "<a xmlns:p='http://www.w3.org/2000/xmlns/'/>",
            "<a xmlns='http://www.w3.org/XML/1998/namespace'/>",
            "<a xmlns:p='u' xmlns:q='u' p:k='' q:k=''/>",
            "<a:b:c xmlns:a='u' xmlns:b='v'/>",
            "<1/>",
            "<a>&bomb;</a>",
            "<a>&#0;</a>",
            "<a b='&#1;'/>",
            "<a b='<'/>",
            "<a>\u{1}</a>",
            "<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>",
            "<!DOCTYPE a SYSTEM 'file:///etc/passwd'><a/>",
            &deep,
            &wide,
            &long,
        ] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(parse(b"<a>\xff</a>").is_err());
    }
}
