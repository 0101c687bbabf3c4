//! Issuers whose tokens are taken, as the configuration has them: a table each, by name.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use weft_auth::{ActsFor, is_group};
use weft_core::{Name, RelPath, limits};
use weft_remote::Url;

use super::tables;

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
    /// For whom those act that say groups and nothing of what they may do.
    pub groups: BTreeMap<String, String>,
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
    #[serde(default)]
    groups: BTreeMap<String, String>,
    keys: Option<PathBuf>,
}

/// Reads the issuers that values come to. Fails with what is wrong.
pub fn read(values: &[String]) -> Result<Vec<Issuer>, String> {
    let mut issuers: Vec<Issuer> = Vec::new();
    for (name, value) in tables::merged(values)? {
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

fn issuer(name: &str, written: Written) -> Result<Issuer, String> {
    tables::check_name(name)?;
    check_url(&written.url)?;
    if let Some(bad) =
        written.audiences.iter().find(|text| text.is_empty() || text.contains(char::is_whitespace))
    {
        return Err(format!("`{bad}` is no audience"));
    }
    let groups = written.groups;
    if let Some(bad) = groups.keys().find(|group| !is_group(group)) {
        return Err(format!("`{bad}` is no group, such as /experiment/team"));
    }
    tables::check_users(groups.values())?;
    let acts_for = match (&written.user, &written.users) {
        // Its groups say whom all of its tokens act for.
        (None, None) if !groups.is_empty() => ActsFor::Subjects(BTreeMap::new()),
        _ => tables::acts_for(written.user, written.users)?,
    };
    let base = base_of(written.base.as_deref().unwrap_or("/"))?;
    let (url, audiences, keys) = (written.url, written.audiences, written.keys);
    Ok(Issuer { name: name.to_owned(), url, audiences, base, acts_for, groups, keys })
}

fn check_url(text: &str) -> Result<(), String> {
    let url: Url = text.parse().map_err(|_| format!("`{text}` is no address"))?;
    if !text.starts_with("https://") || !url.is_secure() || text.contains(['?', '#']) {
        return Err(format!("`{text}` is no address of an issuer, such as https://tokens.example.org/"));
    }
    Ok(())
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
        let found = one(r#"{"a": {"url": "https://x/", "groups": {"/cms/us": "uscms"}}}"#).expect("good");
        assert_eq!(
            (found.acts_for, found.groups["/cms/us"].as_str()),
            (ActsFor::Subjects(BTreeMap::new()), "uscms")
        );
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
            (r#"{"a": {"url": "https://x/", "user": "u", "groups": {"cms": "u"}}}"#, "`cms` is no group"),
            (r#"{"a": {"url": "https://x/", "user": "u", "groups": {"/a": "u/v"}}}"#, "no user's name"),
            (r#"{"a": {"url": "https://x/", "groups": {}}}"#, "needs `user`"),
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
