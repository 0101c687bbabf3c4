//! WebDAV's parsers against mutations of valid messages.

use weft_conformance::file_system::site::Dice;
use weft_conformance::fuzz::fuzz;

use super::fields::{parse_seconds, pointed};
use super::if_header::If;
use super::request::{lock_info, prop_find, prop_patch};
use super::xml::{self, Element};

fn make_body(dice: &mut Dice) -> Vec<u8> {
    let inner =
        ["<D:allprop/>", "<D:prop><x:a xml:lang='de'>1&amp;&#x32;</x:a><D:b/></D:prop>", "<D:propname/>"];
    let (open, close) = *dice.pick(&[
        ("<D:propfind xmlns:D='DAV:' xmlns:x='u'>", "</D:propfind>"),
        ("<D:propertyupdate xmlns:D='DAV:' xmlns:x='u'><D:set>", "</D:set></D:propertyupdate>"),
        ("<D:lockinfo xmlns:D='DAV:' xmlns:x='u'><D:lockscope><D:shared/></D:lockscope><D:locktype><D:write/></D:locktype><D:owner>", "</D:owner></D:lockinfo>"),
        ("<?xml version='1.0'?><!DOCTYPE D [<!ENTITY e 'f'>]><D xmlns:x='' xmlns:D='u'><![CDATA[&]]>", "<!-- c --></D>"),
    ]);
    format!("{open}{}{close}", dice.pick(&inner)).into_bytes()
}

#[test]
fn bodies() {
    fuzz("webdav-body", make_body, |bytes| {
        let _ = (prop_find(bytes), lock_info(bytes));
        if let Ok(edits) = prop_patch(bytes) {
            assert!(!edits.is_empty());
        }
        let Ok(root) = xml::parse(bytes) else { return };
        reads_back(&root);
        root.elements().for_each(reads_back);
    });
}

/// What is written of any element is well-formed alone and means the same.
fn reads_back(element: &Element) {
    let text = element.to_text();
    let again = xml::parse(text.as_bytes()).unwrap_or_else(|refusal| panic!("{text}: {refusal:?}"));
    assert_eq!(again.name, element.name, "{text}");
    assert_eq!(again.to_text(), text);
}

fn make_if(dice: &mut Dice) -> Vec<u8> {
    let mut text = String::new();
    for _ in 0..dice.roll(4) {
        text += *dice.pick(&[
            "</a/b> ",
            "<http://h:1/a>",
            "(<urn:uuid:01234567-89ab-4def-8123-456789abcdef>)",
            "(Not <DAV:no-lock> [W/\"a\"])",
            " ([\"b\"])",
        ]);
    }
    text.into_bytes()
}

#[test]
fn if_fields() {
    fuzz("webdav-if", make_if, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        if let Ok(read) = If::parse(&text) {
            assert!(read.lists.iter().all(|list| !list.conditions.is_empty()));
            assert!(read.tokens().len() <= text.len() / 45);
        }
        if let Ok(to) = pointed(&text) {
            assert_eq!(pointed(&to.path.encode()).map(|again| again.path), Ok(to.path));
        }
        let _ = parse_seconds(&text);
    });
}
