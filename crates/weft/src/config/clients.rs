//! Authorities whose certificates are taken of clients, as the configuration has them: a table each, by name.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use weft_auth::{ActsFor, subject_of};
use weft_core::limits;

use super::tables;

/// An authority whose certificates are taken of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAuthority {
    /// What it is called here.
    pub name: String,
    /// The file of its certificates.
    pub certificates: PathBuf,
    /// The file of what it has revoked, if that is looked at.
    pub revoked: Option<PathBuf>,
    /// For whom its certificates act.
    pub acts_for: ActsFor,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    certificates: PathBuf,
    revoked: Option<PathBuf>,
    user: Option<String>,
    users: Option<BTreeMap<String, String>>,
}

/// Reads the authorities that values come to. Fails with what is wrong.
pub fn read(values: &[String]) -> Result<Vec<ClientAuthority>, String> {
    let mut all = Vec::new();
    for (name, value) in tables::merged(values)? {
        let written: Written = serde_json::from_value(value).map_err(|error| format!("`{name}`: {error}"))?;
        all.push(authority(&name, written).map_err(|why| format!("`{name}`: {why}"))?);
    }
    if all.len() > limits::CLIENT_AUTHORITIES_MAX {
        return Err(format!("there are more than {}", limits::CLIENT_AUTHORITIES_MAX));
    }
    Ok(all)
}

fn authority(name: &str, written: Written) -> Result<ClientAuthority, String> {
    tables::check_name(name)?;
    let Written { certificates, revoked, user, users } = written;
    if [Some(&certificates), revoked.as_ref()].into_iter().flatten().any(|path| path.as_os_str().is_empty()) {
        return Err("names no file".to_owned());
    }
    let acts_for = match tables::acts_for(user, users)? {
        ActsFor::Subjects(users) => ActsFor::Subjects(subjects(users)?),
        one => one,
    };
    Ok(ClientAuthority { name: name.to_owned(), certificates, revoked, acts_for })
}

/// Reads subjects as those of certificates are compared with them.
fn subjects(users: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, String> {
    let mut subjects = BTreeMap::new();
    for (written, user) in users {
        let subject = subject_of(&written).map_err(|error| {
            let hint = error.advice().unwrap_or_default();
            format!("`{written}` is no subject; write it {hint}")
        })?;
        if subjects.insert(subject, user).is_some() {
            return Err(format!("`{written}` is there twice"));
        }
    }
    Ok(subjects)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_is_read_whole_or_what_is_wrong_is_told() {
        let one = |text: &str| read(&[text.to_owned()]).map(|mut all| all.remove(0));
        let found = one(
            r#"{"grid": {"certificates": "/ca.pem", "users": {"CN=Alice Smith,OU=a\\, b,O=Grid,C=NL": "alice"}}}"#,
        )
        .expect("good");
        let ActsFor::Subjects(users) = &found.acts_for else { panic!("by subjects") };
        assert_eq!((found.name.as_str(), found.revoked.clone(), users.len()), ("grid", None, 1));
        assert_eq!(users["CN=Alice Smith,OU=a\\, b,O=Grid,C=NL"], "alice");
        for (text, why) in [
            (r#"{"a": {"user": "u"}}"#, "missing field `certificates`"),
            (r#"{"a": {"certificates": "", "user": "u"}}"#, "names no file"),
            (r#"{"a": {"certificates": "/c"}}"#, "needs `user`"),
            (r#"{"a": {"certificates": "/c", "user": "u", "users": {"CN=s": "u"}}}"#, "needs `user`"),
            (r#"{"a": {"certificates": "/c", "user": "u/v"}}"#, "no user's name"),
            (r#"{"a": {"certificates": "/c", "users": {"Alice": "u"}}}"#, "`Alice` is no subject"),
            (r#"{"a": {"certificates": "/c", "users": {"/C=NL/CN=Alice": "u"}}}"#, "is no subject"),
            (r#"{"a": {"certificates": "/c", "users": {"": "u"}}}"#, "is no subject"),
            (r#"{"a.b": {"certificates": "/c", "user": "u"}}"#, "a name is"),
            (r#"{"a": {"certificates": "/c", "user": "u", "wrong": "u"}}"#, "unknown field `wrong`"),
        ] {
            let told = one(text).expect_err(text);
            assert!(told.contains(why), "{text}: {told}");
        }
    }
}
