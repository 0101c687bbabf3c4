//! The bodies of WebDAV requests (RFC 4918, 14).

use weft_core::form::LockKind;
use weft_core::limits;

use super::xml::{self, Element, QName};
use crate::codec::Refusal;

/// What of a resource is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PropFind {
    /// All that is stored, and these.
    All(Vec<QName>),
    /// The names of what there is.
    Names,
    /// These.
    These(Vec<QName>),
}

/// One step of a change of properties.
#[derive(Clone, Debug)]
pub enum PropEdit {
    /// Gives a property a value: the element is it.
    Set(Element),
    /// Takes it away.
    Remove(QName),
}

/// What a lock is wanted for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockAsked {
    /// Shared or exclusive.
    pub kind: LockKind,
    /// The owner as the client said it: XML, or nothing.
    pub owner: String,
}

const TOO_MANY: Refusal = Refusal::malformed("there are more properties than one request may name");

/// Reads what is asked for; without a body that is everything.
pub fn prop_find(body: &[u8]) -> Result<PropFind, Refusal> {
    if body.is_empty() {
        return Ok(PropFind::All(Vec::new()));
    }
    let root = root(body, "propfind")?;
    let names = |element: &Element| bounded(element.elements().map(|element| element.name.clone()).collect());
    let asked =
        [root.child("allprop").is_some(), root.child("propname").is_some(), root.child("prop").is_some()];
    if asked.iter().filter(|asked| **asked).count() != 1 {
        return Err(Refusal::malformed("`propfind` asks for one of `allprop`, `propname` and `prop`"));
    }
    match (root.child("prop"), asked[0]) {
        (Some(prop), _) => Ok(PropFind::These(names(prop)?)),
        (None, true) => Ok(PropFind::All(root.child("include").map(names).transpose()?.unwrap_or_default())),
        (None, false) => Ok(PropFind::Names),
    }
}

/// Reads a change of properties: its steps, in order.
pub fn prop_patch(body: &[u8]) -> Result<Vec<PropEdit>, Refusal> {
    let root = root(body, "propertyupdate")?;
    let mut edits = Vec::new();
    for step in root.elements() {
        let edit: fn(&Element) -> PropEdit = if step.name.is_dav("set") {
            |property| PropEdit::Set(property.clone())
        } else if step.name.is_dav("remove") {
            |property| PropEdit::Remove(property.name.clone())
        } else {
            continue;
        };
        let prop = step.child("prop").ok_or(Refusal::malformed("`set` and `remove` hold one `prop`"))?;
        edits.extend(prop.elements().map(edit));
    }
    if edits.is_empty() {
        return Err(Refusal::malformed("`propertyupdate` sets and removes nothing"));
    }
    bounded(edits)
}

/// Reads what lock is wanted.
pub fn lock_info(body: &[u8]) -> Result<LockAsked, Refusal> {
    let root = root(body, "lockinfo")?;
    let scope = root.child("lockscope").ok_or(Refusal::malformed("there is no `lockscope`"))?;
    let kind = match (scope.child("exclusive"), scope.child("shared")) {
        (Some(_), None) => LockKind::Exclusive,
        (None, Some(_)) => LockKind::Shared,
        _ => return Err(Refusal::malformed("`lockscope` is `exclusive` or `shared`")),
    };
    if root.child("locktype").and_then(|of| of.child("write")).is_none() {
        return Err(Refusal::malformed("the only `locktype` is `write`"));
    }
    let owner = root.child("owner").map(Element::to_text).unwrap_or_default();
    if owner.len() > limits::NAME_LOCK_OWNER_BYTES_MAX {
        return Err(Refusal::malformed("`owner` is longer than its limit"));
    }
    Ok(LockAsked { kind, owner })
}

fn root(body: &[u8], local: &'static str) -> Result<Element, Refusal> {
    let root = xml::parse(body)?;
    if root.name.is_dav(local) { Ok(root) } else { Err(Refusal::malformed("the body is for another method")) }
}

fn bounded<T>(list: Vec<T>) -> Result<Vec<T>, Refusal> {
    if list.len() > limits::DAV_PROPERTIES_MAX { Err(TOO_MANY) } else { Ok(list) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_propfind_asks_for_one_thing() {
        let ask = |inner: &str| {
            prop_find(format!("<propfind xmlns='DAV:' xmlns:x='u'>{inner}</propfind>").as_bytes()).ok()
        };
        assert_eq!(prop_find(b""), Ok(PropFind::All(Vec::new())));
        assert_eq!(ask("<allprop/>"), Some(PropFind::All(Vec::new())));
        assert_eq!(
            ask("<allprop/><include><x:a/></include>"),
            Some(PropFind::All(vec![QName::new("u", "a")]))
        );
        assert_eq!(ask("<propname/>"), Some(PropFind::Names));
        assert_eq!(
            ask("<prop><getetag/> <x:a/></prop>"),
            Some(PropFind::These(vec![QName::new("DAV:", "getetag"), QName::new("u", "a")]))
        );
        assert_eq!(ask("<x:later/><propname/>"), Some(PropFind::Names), "what is not known is passed over");
        let many = format!("<prop>{}</prop>", "<x:a/>".repeat(limits::DAV_PROPERTIES_MAX + 1));
        for bad in ["", "<prop/><allprop/>", "<propname/><allprop/>", &many] {
            assert_eq!(ask(bad), None, "{bad}");
        }
        assert!(prop_find(b"<other xmlns='DAV:'><propname/></other>").is_err());
    }

    #[test]
    fn steps_of_a_change_keep_their_order() {
        let body = b"<propertyupdate xmlns='DAV:' xmlns:x='u'><remove><prop><x:a/></prop></remove>\
            <set><prop><x:a>1</x:a><x:b/></prop></set></propertyupdate>";
        let edits: Vec<String> = prop_patch(body)
            .expect("good")
            .iter()
            .map(|edit| match edit {
                PropEdit::Set(element) => format!("+{}", element.name.local),
                PropEdit::Remove(name) => format!("-{}", name.local),
            })
            .collect();
        assert_eq!(edits, ["-a", "+a", "+b"]);
        assert!(prop_patch(b"<propertyupdate xmlns='DAV:'/>").is_err());
        assert!(prop_patch(b"<propertyupdate xmlns='DAV:'><set/></propertyupdate>").is_err());
    }

    #[test]
    fn a_lock_is_for_writing_and_exclusive_or_shared() {
        let ask = |inner: &str| lock_info(format!("<lockinfo xmlns='DAV:'>{inner}</lockinfo>").as_bytes());
        let write = "<locktype><write/></locktype>";
        let info = ask(&format!("<lockscope><shared/></lockscope>{write}<owner><href>me</href></owner>"));
        let owner = "<owner xmlns=\"DAV:\"><href>me</href></owner>".to_owned();
        assert_eq!(info, Ok(LockAsked { kind: LockKind::Shared, owner }));
        assert!(ask(&format!("<lockscope><exclusive/></lockscope>{write}")).is_ok());
        for bad in
            ["", "<lockscope><exclusive/></lockscope>", write, "<lockscope><exclusive/><shared/></lockscope>"]
        {
            assert!(ask(bad).is_err(), "{bad}");
        }
        assert!(ask(&format!("<lockscope><exclusive/><shared/></lockscope>{write}")).is_err());
    }
}
