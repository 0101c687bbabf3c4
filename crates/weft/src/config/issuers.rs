//! Issuers whose tokens are taken, as the configuration has them: a table each, by name.
//!
//! A file's tables become one text of JSON, as the environment has it from the start, so that one reading serves both
//! and what was said is kept as it was said until then.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use toml::de::{DeTable, DeValue};
use weft_auth::ActsFor;
use weft_core::{CallerName, DomainId, Name, RelPath, limits};
use weft_remote::Url;

/// What is told of who writes something else than text.
pub const WANTED: &str =
    "tables of texts and lists of texts, such as [issuers.NAME] and url = \"https://…\" below it";

/// An issuer whose tokens are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issuer {
    /// What it is called here.
    pub name: String,
    /// Its address.
    pub url: String,
    /// For whom its tokens must be; none stands for this node as others call it.
    pub audiences: Vec<String>,
    /// Where the paths of its tokens begin.
    pub base: RelPath,
    /// For whom its tokens act.
    pub acts_for: ActsFor,
    /// The file of its keys, if they are not to be fetched.
    pub keys: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    url: String,
    #[serde(default)]
    audiences: Vec<String>,
    base: Option<String>,
    user: Option<String>,
    users: Option<BTreeMap<String, String>>,
    keys: Option<PathBuf>,
}

/// Reads the issuers that values come to. Fails with what is wrong.
pub fn read(values: &[String]) -> Result<Vec<Issuer>, String> {
    let mut issuers: Vec<Issuer> = Vec::new();
    for (name, value) in merged(values)? {
        let written: Written = serde_json::from_value(value).map_err(|error| format!("`{name}`: {error}"))?;
        issuers.push(issuer(&name, written).map_err(|why| format!("`{name}`: {why}"))?);
    }
    if issuers.len() > limits::ISSUERS_MAX {
        return Err(format!("there are more than {}", limits::ISSUERS_MAX));
    }
    for (at, one) in issuers.iter().enumerate() {
        if let Some(other) = issuers.iter().skip(at + 1).find(|other| other.url == one.url) {
            return Err(format!("`{}` and `{}` have one address", one.name, other.name));
        }
    }
    Ok(issuers)
}

/// Joins what several places say: of two of one name the later counts, whole.
pub fn merged(values: &[String]) -> Result<serde_json::Map<String, serde_json::Value>, String> {
    let mut all = serde_json::Map::new();
    for text in values {
        let one: serde_json::Map<_, _> =
            serde_json::from_str(text).map_err(|error| format!("is no object of JSON by names: {error}"))?;
        all.extend(one);
    }
    Ok(all)
}

/// Returns a table of a file as the text that is kept of it; none where it holds something else than texts.
pub fn text_of(table: &DeTable<'_>) -> Option<String> {
    Some(json_of(table)?.to_string())
}

fn json_of(table: &DeTable<'_>) -> Option<serde_json::Value> {
    let one = |value: &DeValue<'_>| match value {
        DeValue::String(text) => Some(serde_json::Value::from(text.clone().into_owned())),
        DeValue::Array(items) => items
            .iter()
            .map(|item| match item.get_ref() {
                DeValue::String(text) => Some(serde_json::Value::from(text.clone().into_owned())),
                _ => None,
            })
            .collect::<Option<Vec<_>>>()
            .map(serde_json::Value::from),
        DeValue::Table(inner) => json_of(inner),
        _ => None,
    };
    let entries = table.iter().map(|(name, value)| Some((name.get_ref().to_string(), one(value.get_ref())?)));
    entries.collect::<Option<serde_json::Map<_, _>>>().map(serde_json::Value::from)
}

fn issuer(name: &str, written: Written) -> Result<Issuer, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if !(1..=32).contains(&name.len()) || !name.bytes().all(is_plain) {
        return Err("a name is 1 to 32 letters, digits, `_` and `-`".to_owned());
    }
    check_url(&written.url)?;
    if let Some(bad) =
        written.audiences.iter().find(|text| text.is_empty() || text.contains(char::is_whitespace))
    {
        return Err(format!("`{bad}` is no audience"));
    }
    let acts_for = match (written.user, written.users) {
        (Some(user), None) => ActsFor::User(user),
        (None, Some(users)) => ActsFor::Subjects(users),
        _ => return Err("needs `user`, or a table `users` of subjects, and not both".to_owned()),
    };
    check_users(&acts_for)?;
    let base = base_of(written.base.as_deref().unwrap_or("/"))?;
    let (url, audiences, keys) = (written.url, written.audiences, written.keys);
    Ok(Issuer { name: name.to_owned(), url, audiences, base, acts_for, keys })
}

fn check_url(text: &str) -> Result<(), String> {
    let url: Url = text.parse().map_err(|_| format!("`{text}` is no address"))?;
    if !text.starts_with("https://") || !url.is_secure() || text.contains(['?', '#']) {
        return Err(format!("`{text}` is no address of an issuer, such as https://tokens.example.org/"));
    }
    Ok(())
}

fn check_users(acts_for: &ActsFor) -> Result<(), String> {
    let check = |user: &String| match CallerName::user(user, DomainId([0; 32])) {
        Ok(_) => Ok(()),
        Err(_) => Err(format!("`{user}` is no user's name")),
    };
    match acts_for {
        ActsFor::User(user) => check(user),
        ActsFor::Subjects(users) if users.is_empty() => Err("`users` names no subject".to_owned()),
        ActsFor::Subjects(users) if users.len() > limits::ISSUER_SUBJECTS_MAX => {
            Err(format!("`users` names more than {} subjects", limits::ISSUER_SUBJECTS_MAX))
        }
        ActsFor::Subjects(users) => users.values().try_for_each(check),
    }
}

/// Reads where an issuer's paths begin: a path of the tree from its root.
fn base_of(text: &str) -> Result<RelPath, String> {
    let wrong =
        || format!("`base` is a path from the root of the tree, such as /experiment, and not `{text}`");
    let rest = text.strip_prefix('/').ok_or_else(wrong)?;
    if rest.is_empty() {
        return Ok(RelPath::EMPTY);
    }
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    rest.split('/').try_fold(RelPath::EMPTY, |at, name| {
        let name = Name::try_from(name).map_err(|_| wrong())?;
        at.join(&name).map_err(|_| wrong())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Result<Issuer, String> {
        read(&[text.to_owned()]).map(|mut all| all.remove(0))
    }

    #[test]
    fn an_issuer_is_read_whole_or_what_is_wrong_is_told() {
        let found =
            one(r#"{"cms": {"url": "https://cms.example/", "base": "/cms/", "user": "cms"}}"#).expect("good");
        assert_eq!((found.name.as_str(), found.base.to_string()), ("cms", "cms".to_owned()));
        assert_eq!((found.acts_for, found.audiences.len()), (ActsFor::User("cms".into()), 0));
        for (text, why) in [
            (r#"{"a": {"user": "u"}}"#, "missing field `url`"),
            (r#"{"a": {"url": "https://x/"}}"#, "needs `user`"),
            (r#"{"a": {"url": "https://x/", "user": "u", "users": {"s": "u"}}}"#, "needs `user`"),
            (r#"{"a": {"url": "https://x/", "user": "u", "wrong": "u"}}"#, "unknown field `wrong`"),
            (r#"{"a": {"url": "http://x/", "user": "u"}}"#, "no address of an issuer"),
            (r#"{"a": {"url": "davs://x/", "user": "u"}}"#, "no address of an issuer"),
            (r#"{"a": {"url": "https://x/?a=b", "user": "u"}}"#, "no address of an issuer"),
            (r#"{"a": {"url": "x", "user": "u"}}"#, "no address"),
            (r#"{"a.b": {"url": "https://x/", "user": "u"}}"#, "a name is"),
            (r#"{"a": {"url": "https://x/", "user": "u/v"}}"#, "no user's name"),
            (r#"{"a": {"url": "https://x/", "user": "u", "base": "cms"}}"#, "`base` is a path"),
            (r#"{"a": {"url": "https://x/", "user": "u", "base": "/a/../b"}}"#, "`base` is a path"),
            (r#"{"a": {"url": "https://x/", "user": "u", "audiences": [""]}}"#, "is no audience"),
            (r#"{"a": {"url": "https://x/", "users": {}}}"#, "names no subject"),
            (
                r#"{"a": {"url": "https://x/", "user": "u"}, "b": {"url": "https://x/", "user": "u"}}"#,
                "one address",
            ),
            ("[]", "no object of JSON"),
        ] {
            let told = one(text).expect_err(text);
            assert!(told.contains(why), "{text}: {told}");
        }
    }

    #[test]
    fn the_later_of_one_name_counts_and_others_stay() {
        let texts = [
            r#"{"a": {"url": "https://a/", "user": "one"}, "b": {"url": "https://b/", "user": "b"}}"#
                .to_owned(),
            r#"{"a": {"url": "https://a/", "user": "two"}}"#.to_owned(),
        ];
        let found = read(&texts).expect("good");
        let users: Vec<_> = found.iter().map(|one| (one.name.as_str(), one.acts_for.clone())).collect();
        assert_eq!(users, [("a", ActsFor::User("two".into())), ("b", ActsFor::User("b".into()))]);
    }
}
