//! Whom a policy is read for.

use std::sync::Arc;

use super::Circumstance;
use crate::caller::CallerName;
use crate::id::CallerId;
use crate::proof::{Attenuation, CredentialClaims, Within};
use crate::rights::Rights;

static WHOLE: Attenuation = Attenuation::NONE;

/// What of somebody decides what an ACL and mode bits give: all that is looked at, and no proof
/// of anything. A [`Caller`](crate::proof::Caller) is one; so is a name that a policy is only
/// explained for.
#[derive(Clone, Debug)]
pub struct Subject<'a> {
    name: &'a CallerName,
    groups: Groups<'a>,
    attributes: &'a [(String, String)],
    limits: &'a Attenuation,
    within: Option<&'a Within>,
}

/// Groups in rising order.
#[derive(Clone, Debug)]
enum Groups<'a> {
    Said(&'a [CallerId]),
    Changed(Arc<[CallerId]>),
}

impl<'a> Subject<'a> {
    /// Returns whom a credential speaks of, in the groups that it says or in those that its caller is in since. They
    /// are in rising order.
    pub(crate) fn of(claims: &'a CredentialClaims, changed: Option<Arc<[CallerId]>>) -> Self {
        let CredentialClaims { caller: name, groups, attributes, limits, within, .. } = claims;
        let groups = changed.map_or(Groups::Said(groups), Groups::Changed);
        Self { name, groups, attributes, limits, within: within.as_ref() }
    }

    /// Returns somebody by name, as it would come with a credential that was not narrowed and
    /// carries no attributes. The groups are in rising order.
    pub fn named(name: &'a CallerName, groups: &'a [CallerId]) -> Self {
        Self { name, groups: Groups::Said(groups), attributes: &[], limits: &WHOLE, within: None }
    }

    /// Returns who it is.
    pub fn name(&self) -> &'a CallerName {
        self.name
    }

    /// Returns the groups it is in.
    pub fn groups(&self) -> &[CallerId] {
        match &self.groups {
            Groups::Said(groups) => groups,
            Groups::Changed(groups) => groups,
        }
    }

    /// Returns whether the id is its own or that of one of its groups.
    pub fn is_or_is_in(&self, id: CallerId) -> bool {
        self.name.id() == id || self.groups().binary_search(&id).is_ok()
    }

    /// Returns an attribute its credential carries.
    pub fn attribute(&self, name: &str) -> Option<&'a str> {
        self.attributes.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Returns what its credential was narrowed to.
    pub fn limits(&self) -> &'a Attenuation {
        self.limits
    }

    /// Returns the one thing that its credential is confined to, if it is a link's.
    pub fn within(&self) -> Option<&'a Within> {
        self.within
    }

    /// Returns whether its credential reaches some places only.
    pub fn is_confined(&self) -> bool {
        !self.limits.paths.is_empty() || self.within.is_some()
    }

    /// Returns the rights its credential may carry in these circumstances: none from an address
    /// or at a time it was not made for.
    pub fn rights_at(&self, at: &Circumstance) -> Rights {
        let limits = self.limits;
        if limits.admits_host(at.peer) && at.now.wall >= limits.from { limits.rights } else { Rights::NONE }
    }
}
