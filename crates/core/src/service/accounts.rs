//! Users and groups of a domain.

use std::fmt;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::authority::Secret;
use crate::caller::CallerName;
use crate::error::Result;
use crate::id::CallerId;
use crate::proof::Caller;
use crate::time::Time;

/// A user to add.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewUser {
    /// The local name.
    pub name: String,
    /// The first password; none means the user cannot log in by password.
    pub password: Option<Secret>,
    /// The uid that is this user on the node's own socket.
    pub uid: Option<u32>,
}

/// A change of a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UserEdit {
    /// Sets the password. Users may set their own if they know it. It ends whoever proves
    /// themselves by the old one at each request, at once, and no login.
    Password {
        /// The new password.
        new: Secret,
        /// The present one. Whoever changes their own must give it, if they have one,
        /// administrators too; who sets somebody else's need not.
        old: Option<Secret>,
    },
    /// Lets the user log in, or not. Disabling revokes what the user holds.
    Enabled(bool),
    /// Sets or clears the uid on the node's own socket.
    Uid(Option<u32>),
}

/// In words, as the audit log keeps them: never a password.
impl fmt::Display for UserEdit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Password { .. } => f.write_str("a new password"),
            Self::Enabled(true) => f.write_str("enabled"),
            Self::Enabled(false) => f.write_str("disabled"),
            Self::Uid(Some(uid)) => write!(f, "uid {uid}"),
            Self::Uid(None) => f.write_str("no uid"),
        }
    }
}

/// A user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserRecord {
    /// The full name.
    pub name: CallerName,
    /// Whether it may log in.
    pub enabled: bool,
    /// The uid on the node's own socket.
    pub uid: Option<u32>,
    /// Whether it has a password.
    pub has_password: bool,
    /// When it was added.
    pub added: Time,
}

/// A group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupRecord {
    /// The full name, its maker's name in it.
    pub name: CallerName,
    /// Who may change it: its maker.
    pub owner: CallerName,
    /// Callers of any domain: all of them, or none where there are more than
    /// `limits::GROUP_MEMBERS_TOLD`. Then [`Accounts::members`] tells them.
    pub members: Vec<CallerName>,
}

/// A change of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupEdit {
    /// Adds a member; one that is there already is no error.
    Add(CallerName),
    /// Removes a member; one that is not there is no error.
    Remove(CallerName),
}

/// In words, as the audit log keeps them.
impl fmt::Display for GroupEdit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Add(member) => write!(f, "with {member}"),
            Self::Remove(member) => write!(f, "without {member}"),
        }
    }
}

/// Keeps a domain's users and groups. Changing a user needs the administrator (or the
/// user, for its own password); making a group needs nobody's leave.
#[async_trait]
pub trait Accounts: Send + Sync {
    /// Adds a user. `Exists` if the name or uid is taken.
    async fn add_user(&self, caller: &Caller, user: &NewUser) -> Result<UserRecord>;

    /// Changes a user.
    async fn edit_user(&self, caller: &Caller, name: &CallerName, edit: &UserEdit) -> Result<UserRecord>;

    /// Returns users in name order after `after`, at most 1 000. Administrators only.
    async fn users(&self, caller: &Caller, after: Option<&CallerName>) -> Result<Vec<UserRecord>>;

    /// Makes a group owned by the caller, its name `CALLER/name`.
    async fn add_group(&self, caller: &Caller, name: &str) -> Result<GroupRecord>;

    /// Changes a group. Its owner and administrators may. Ends the cached proofs of
    /// the member it is about.
    async fn edit_group(&self, caller: &Caller, name: &CallerName, edit: &GroupEdit) -> Result<GroupRecord>;

    /// Removes a group, its members first, some at a time: cut off in between it is smaller, and can be
    /// removed again. Its owner and administrators may.
    async fn remove_group(&self, caller: &Caller, name: &CallerName) -> Result<()>;

    /// Returns the groups the caller owns or is in (an administrator: all), in name
    /// order after `after`, at most 1 000.
    async fn groups(&self, caller: &Caller, after: Option<&CallerName>) -> Result<Vec<GroupRecord>>;

    /// Returns members of a group in the order of their ids after `after`, at most
    /// `limits::GROUP_MEMBERS_TOLD`. For its owner, its members and administrators; `NotFound` for others.
    async fn members(
        &self,
        caller: &Caller,
        group: &CallerName,
        after: Option<CallerId>,
    ) -> Result<Vec<CallerName>>;
}
