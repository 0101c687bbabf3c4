//! Settings that are tables by names: of issuers, and of authorities of clients.
//!
//! A file's tables become one text of JSON, as the environment has it from the start, so that one reading serves both
//! and what was said is kept as it was said until then.

use std::collections::BTreeMap;

use toml::de::{DeTable, DeValue};
use weft_auth::ActsFor;
use weft_core::{CallerName, DomainId, limits};

/// What is told of who writes something else than text.
pub const WANTED: &str =
    "tables of texts and lists of texts, such as [issuers.NAME] and url = \"https://…\" below it";

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

/// Fails unless something can be called so.
pub fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if !(1..=32).contains(&name.len()) || !name.bytes().all(is_plain) {
        return Err("a name is 1 to 32 letters, digits, `_` and `-`".to_owned());
    }
    Ok(())
}

/// Reads for whom something acts: one user, or a user for each subject.
pub fn acts_for(user: Option<String>, users: Option<BTreeMap<String, String>>) -> Result<ActsFor, String> {
    let acts_for = match (user, users) {
        (Some(user), None) => ActsFor::User(user),
        (None, Some(users)) => ActsFor::Subjects(users),
        _ => return Err("needs `user`, or a table `users` of subjects, and not both".to_owned()),
    };
    match &acts_for {
        ActsFor::User(user) => check_users([user])?,
        ActsFor::Subjects(users) if users.is_empty() => return Err("`users` names no subject".to_owned()),
        ActsFor::Subjects(users) => check_users(users.values())?,
    }
    Ok(acts_for)
}

/// Fails unless these are few enough to stand in one table, and names of users.
pub fn check_users<'u>(users: impl IntoIterator<Item = &'u String>) -> Result<(), String> {
    for (at, user) in users.into_iter().enumerate() {
        if at >= limits::ISSUER_SUBJECTS_MAX {
            return Err(format!("names more than {} users in one table", limits::ISSUER_SUBJECTS_MAX));
        }
        if CallerName::user(user, DomainId([0; 32])).is_err() {
            return Err(format!("`{user}` is no user's name"));
        }
    }
    Ok(())
}
